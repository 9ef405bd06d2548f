"""Runs independent calls on several processes; results come back in the order of the calls.

The processes are joblib's own, on this machine, or those of a Ray or Dask cluster inside `on_cluster`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

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

    The order of the outcomes, and of the calls of `on_done`, does not depend on the number of processes.
    """
    outcomes: list[Outcome] = []
    with progress.counting(len(calls)) as count:
        for outcome in _outcomes(function, calls, jobs, count):
            outcomes.append(outcome)
            if on_done is not None:
                on_done(outcome)
    return outcomes


def _outcomes(
    function: Callable[..., Outcome], calls: Sequence[tuple[Any, ...]], jobs: int | None, count: Count
) -> Iterable[Outcome]:
    """The outcomes in order, each as early as the processes allow."""
    if jobs == 1 or len(calls) < 2:
        return _one_by_one(function, calls, count)
    from joblib import Parallel, delayed, effective_n_jobs
    from joblib.parallel import get_active_backend

    workers = min(jobs or effective_n_jobs(-1), len(calls))
    if workers == 1:
        return _one_by_one(function, calls, count)

    # A worker that has come to hold much memory makes room for a new one between two calls; none is lost.
    warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)

    class Counted(Parallel):  # type: ignore[misc]
        """Tells of every finished call, where joblib itself would print."""

        def print_progress(self) -> None:
            count(self.n_completed_tasks)

    # Ray's backend gives no outcome before it has them all.
    early = get_active_backend()[0].supports_return_generator
    parallel = Counted(n_jobs=workers, return_as="generator" if early else "list", batch_size=1)
    outcomes: Iterable[Outcome] = parallel(delayed(function)(*call) for call in calls)
    return outcomes


def _one_by_one(
    function: Callable[..., Outcome], calls: Sequence[tuple[Any, ...]], count: Count
) -> Iterable[Outcome]:
    for done, call in enumerate(calls, start=1):
        yield function(*call)
        count(done)
