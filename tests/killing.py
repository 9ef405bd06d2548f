"""Kills a search again and again in the middle of its work, and lets it finish at last."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from simulator.search.store import StoredTrial, TrialStore

TRIAL_S = 0.03
"""About what one trial takes."""
PATIENCE_S = 60.0


def answer_after_kills(question: Sequence[str], calm: Path, killed: Path, *, kills: int) -> bytes:
    """What a command prints in the end; every kill comes between its first trial and its last.

    The store must end up with the same trials as `calm`, which an undisturbed run filled.
    """
    num_trials = len(undated(calm))
    dice = random.Random(0)
    for turn in range(kills):
        victim = Search(question, killed)
        # One in each part of the trials, so that every victim has done some and leaves some.
        victim.work_until(1 + int(num_trials * (turn + dice.random()) / (kills + 2)))
        time.sleep(dice.uniform(0, TRIAL_S))
        victim.kill()
        assert 0 < victim.num_trials() < num_trials
    answer = Search(question, killed).finish()
    assert undated(killed) == undated(calm)
    return answer


def undated(store: Path) -> list[StoredTrial]:
    """All that a store holds, but for the times at which trials finished."""
    return sorted(trial._replace(created="") for trial in TrialStore(store).newest())


class Search:
    """A command as a process group of its own, with a store."""

    def __init__(self, question: Sequence[str], store: Path) -> None:
        self.store = store
        program = [sys.executable, "-c", "import sys; from simulator.cli import main; sys.exit(main())"]
        self.process = subprocess.Popen(
            [*program, *question, "--store", str(store)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def work_until(self, trials: int) -> None:
        """Wait until there are so many trials in the store."""
        deadline = time.monotonic() + PATIENCE_S
        while self.num_trials() < trials:
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)

    def kill(self) -> None:
        """Kill all its processes at once, which must not have finished."""
        assert self.process.poll() is None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def end(self, number: int) -> tuple[int, bytes, bytes]:
        """Send it a signal; its exit code, stdout and stderr, which none of its workers may hold open."""
        assert self.process.poll() is None
        self.process.send_signal(number)
        out, error = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, error

    def any_left(self) -> bool:
        """Whether one of its processes is still there."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def finish(self) -> bytes:
        out, error = self.process.communicate()
        assert self.process.returncode == 0, error
        return out

    def num_trials(self) -> int:
        """Trials in the store, which is not there at first; looking must not make it.

        It may have to undo what a killed search had begun to write, hence no `mode=ro`.
        """
        try:
            with closing(sqlite3.connect(f"file:{self.store}?mode=rw", uri=True)) as connection:
                return int(connection.execute("SELECT count(*) FROM trials").fetchone()[0])
        except sqlite3.OperationalError:
            return 0
