"""The `stallfree` command: its table of commands and its exit codes.

0 answered; 1 a bug of ours; 2 usage, configuration or input; 3 a valid question without an answer within the
bounds; 130 interrupted, and so 128 + its number for another signal. Commands live in the modules beside this
one, which import the simulator inside the functions, so that `--help` and `--version` stay quick.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

from cyclopts import App, CycloptsError

from simulator import __version__
from simulator.errors import InfeasibleError, OutputError, StallfreeError

BUG, USAGE, INFEASIBLE, SIGNALLED = 1, 2, 3, 128


def build_app() -> App:
    """The command-line application with every command registered."""
    from simulator.cli.budget import budget
    from simulator.cli.capacity import capacity
    from simulator.cli.catalogue import list_
    from simulator.cli.compare import compare
    from simulator.cli.kernels import kernels
    from simulator.cli.plan import plan
    from simulator.cli.profile import profile, replay
    from simulator.cli.reproduce import reproduce
    from simulator.cli.runs import runs
    from simulator.cli.simulate import simulate
    from simulator.cli.validate import calibrate, validate

    app = App(
        name="stallfree",
        help="Simulate LLM serving on measured kernels: token budgets, capacities, schedulers compared.",
        version=__version__,
        help_formatter="default" if sys.stdout.isatty() else "plain",
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for command in (simulate, capacity, budget, plan, compare):
        app.command(command)
    app.command(validate)
    app.command(calibrate)
    app.command(reproduce)
    app.command(list_, name="list")
    app.command(runs)
    app.command(kernels)
    app.command(profile)
    app.command(replay)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _replace_closed_streams()
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in tokens or bool(os.environ.get("STALLFREE_DEBUG"))
    try:
        with _signals_interrupt():
            build_app()(tokens, exit_on_error=False, print_error=False)
    except BrokenPipeError:
        _silence_stdout()
    except SystemExit as error:
        # Rich, which prints help and version, answers with this, and has silenced stdout already.
        if not isinstance(error.__context__, BrokenPipeError):
            raise
    except KeyboardInterrupt as interrupt:
        return _fail("interrupted", SIGNALLED + next(iter(interrupt.args), signal.SIGINT))
    except OutputError as error:
        _silence_stdout()
        return _fail(str(error), USAGE)
    except Exception as error:
        if debug:
            _print_traceback()
        return _explain(error)
    return 0


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP end the work as Ctrl-C does: no worker and no temporary file outlives it.

    One that is ignored stays so, for nohup; only the main thread may say what signals do.
    """
    known = (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP"))  # Windows lacks the latter
    ending = [number for number in known if number and signal.getsignal(number) == signal.SIG_DFL]
    if current_thread() is not main_thread():
        ending = []
    for number in ending:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in ending:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(number)


def _explain(error: Exception) -> int:
    if isinstance(error, InfeasibleError):
        return _fail(str(error), INFEASIBLE)
    if isinstance(error, StallfreeError | CycloptsError):
        return _fail(str(error), USAGE)
    return _fail(
        f"this is a bug in stallfree {__version__}, please report it: {type(error).__name__}: {error}"
        " (--debug shows where)",
        BUG,
    )


def _fail(message: str, code: int) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _print_traceback() -> None:
    import traceback

    traceback.print_exc()


def _replace_closed_streams() -> None:
    """After `>&-` Python has no stdout: what is printed goes nowhere, and no other file takes its number.

    Workers inherit them, as they cannot start without a stderr.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def _silence_stdout() -> None:
    """What we printed found no place: keep the interpreter from complaining when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
