"""Runs independent calls on several processes; results come back in the order of the calls.

The processes are joblib's own, on this machine, or those of a Ray or Dask cluster inside `on_cluster`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, nullcontext
from typing import Any, TypeVar

from simulator.errors import StallfreeError
from simulator.search.progress import SILENT, Count, Progress

Outcome = TypeVar("Outcome")


def fan_out(
    function: Callable[..., Outcome],
    calls: Sequence[tuple[Any, ...]],
    *,
    jobs: int | None = None,
    on_done: Callable[[Outcome], None] | None = None,
    progress: Progress = SILENT,
) -> list[Outcome]:
    """`[function(*call) for call in calls]` on `jobs` processes (None: as many as there are cores).

    The order of the outcomes, and of the calls of `on_done`, does not depend on the number of processes, nor
    does the error, if the user is to be told of one.
    """
    outcomes: list[Outcome] = []
    with (
        progress.counting(len(calls)) as count,
        closing(_outcomes(function, calls, jobs, count)) as finished,
    ):
        for outcome in finished:
            outcomes.append(outcome)
            if on_done is not None:
                on_done(outcome)
    return outcomes


def _outcomes(
    function: Callable[..., Outcome], calls: Sequence[tuple[Any, ...]], jobs: int | None, count: Count
) -> Generator[Outcome]:
    """The outcomes in order, each as early as the processes allow."""
    if jobs == 1 or len(calls) < 2:
        yield from _one_by_one(function, calls, count)
        return
    from joblib import Parallel, delayed, effective_n_jobs
    from joblib.parallel import get_active_backend

    workers = min(jobs or effective_n_jobs(-1), len(calls))
    if workers == 1:
        yield from _one_by_one(function, calls, count)
        return

    # A worker that has come to hold much memory makes room for a new one between two calls; none is lost.
    warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
    # After an error nobody wants what the other calls found.
    warnings.filterwarnings("ignore", r"\d+ tasks (have been successfully|which were still)", UserWarning)

    class Counted(Parallel):  # type: ignore[misc]
        """Tells of every finished call, where joblib itself would print."""

        def print_progress(self) -> None:
            count(self.n_completed_tasks)

    # Ray's backend gives no outcome before it has them all.
    early = get_active_backend()[0].supports_return_generator
    parallel = Counted(n_jobs=workers, return_as="generator" if early else "list", batch_size=1)
    # The first call that fails decides what is told: joblib would raise whichever error it meets first.
    outcomes = parallel(delayed(_outcome_or_error)(function, call) for call in calls)
    with closing(outcomes) if early else nullcontext():
        for outcome in outcomes:
            if isinstance(outcome, StallfreeError):
                raise outcome
            yield outcome


def _outcome_or_error(function: Callable[..., Outcome], call: tuple[Any, ...]) -> Outcome | StallfreeError:
    try:
        return function(*call)
    except StallfreeError as error:
        return error


def _one_by_one(
    function: Callable[..., Outcome], calls: Sequence[tuple[Any, ...]], count: Count
) -> Generator[Outcome]:
    for done, call in enumerate(calls, start=1):
        yield function(*call)
        count(done)
