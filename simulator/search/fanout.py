"""Runs independent calls on several processes; results come back in the order of the calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

Outcome = TypeVar("Outcome")


def fan_out(
    function: Callable[..., Outcome],
    calls: Sequence[tuple[Any, ...]],
    *,
    jobs: int | None = None,
    on_done: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """`[function(*call) for call in calls]` on `jobs` processes (None: one per core).

    The order of the outcomes, and of the calls of `on_done`, does not depend on the number of processes.
    """
    outcomes: list[Outcome] = []
    for outcome in _outcomes(function, calls, jobs):
        outcomes.append(outcome)
        if on_done is not None:
            on_done(outcome)
    return outcomes


def _outcomes(
    function: Callable[..., Outcome], calls: Sequence[tuple[Any, ...]], jobs: int | None
) -> Iterable[Outcome]:
    if jobs == 1 or len(calls) < 2:
        return (function(*call) for call in calls)
    from joblib import Parallel, cpu_count, delayed

    workers = min(jobs or cpu_count(), len(calls))
    if workers == 1:
        return (function(*call) for call in calls)
    parallel = Parallel(n_jobs=workers, return_as="generator", batch_size=1)
    outcomes: Iterable[Outcome] = parallel(delayed(function)(*call) for call in calls)
    return outcomes
