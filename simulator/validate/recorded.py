"""A recorded run: what a real engine was asked and when it answered, checked and put in order of arrival."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simulator.errors import InputError
from simulator.quantiles import summarise
from simulator.validate.served import Served
from simulator.workload import Workload
from simulator.workload.spec import MAX_SECONDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simulator.workload.workload import BlockIds

CLOCK_NOISE_S = 1e-4
"""Moments may be out of order by so much: clocks of two threads, and rounding in a file."""

LEAST_E2E_S = 1e-6
"""No request is served sooner; a clock too coarse to see it pass would make every relative error infinite."""


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """Requests in order of arrival, as they were asked and as they were served."""

    name: str
    kind: str
    """Who wrote the file, in words."""
    prompt_tokens: NDArray[np.int64]
    served: Served
    queued_s: NDArray[np.float64] | None = None
    """When the engine took a request out of its input queue, where that was recorded."""
    block_ids: BlockIds | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.served)

    @property
    def queued_ttft_s(self) -> float | None:
        """Mean time to first token from when the engine took the request out of its queue, if recorded."""
        return None if self.queued_s is None else float((self.served.first_token_s - self.queued_s).mean())

    def workload(self) -> Workload:
        """The same requests at the same times, for a simulation."""
        return Workload(
            arrival_s=self.served.arrival_s,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.served.output_tokens,
            name=self.name,
            block_ids=self.block_ids,
        )


@dataclass
class Rows:
    """What a reader found, one entry a request in the order of the file; `place` says where a row stands.

    All moments are in seconds on one clock; `gaps_s` holds the gaps between tokens of each request.
    """

    arrival_s: Sequence[float]
    prompt_tokens: Sequence[int]
    output_tokens: Sequence[int]
    first_token_s: Sequence[float]
    finished_s: Sequence[float]
    scheduled_s: Sequence[float] | None = None
    queued_s: Sequence[float] | None = None
    gaps_s: Sequence[Sequence[float]] | None = None
    notes: list[str] = field(default_factory=list)


def recorded_run(path: Path, kind: str, rows: Rows, place: Callable[[int], str]) -> RecordedRun:
    """The run in those rows.

    InputError where there is no request, a time is beyond belief, a moment comes before its cause, or a
    request takes no time.
    """
    if not len(rows.arrival_s):
        raise InputError(f"{path}: no request in it finished")
    _check_range(path, rows, place)
    _check_order(path, rows, place)
    arrival = np.asarray(rows.arrival_s, dtype=np.float64)
    order = np.argsort(arrival, kind="stable")
    start = arrival.min()

    def moments(values: Sequence[float] | None) -> NDArray[np.float64]:
        ordered: NDArray[np.float64] = (np.asarray(values, dtype=np.float64) - start)[order]
        return ordered

    served = Served(
        arrival_s=moments(rows.arrival_s),
        first_token_s=moments(rows.first_token_s),
        finished_s=moments(rows.finished_s),
        output_tokens=np.asarray(rows.output_tokens, dtype=np.int64)[order],
        scheduled_s=None if rows.scheduled_s is None else moments(rows.scheduled_s),
        tbt_s=None if rows.gaps_s is None else summarise(np.concatenate(list(map(np.array, rows.gaps_s)))),
    )
    instant = np.flatnonzero(served.e2e_s < LEAST_E2E_S)
    if len(instant):
        row = int(instant[0])
        raise InputError(
            f"{path}, {place(int(order[row]))}: last token comes {served.e2e_s[row]:.6g} s after arrival"
            f" (allowed: {LEAST_E2E_S:g} s or more, for a request takes some time)"
        )
    return RecordedRun(
        name=path.stem,
        kind=kind,
        prompt_tokens=np.asarray(rows.prompt_tokens, dtype=np.int64)[order],
        served=served,
        queued_s=None if rows.queued_s is None else moments(rows.queued_s),
        notes=tuple(rows.notes),
    )


def failure_notes(failed: int) -> list[str]:
    """A note on requests that failed: they are left out, and with them the load that they were."""
    return [f"failed requests are left out, with the load that they were ({failed})"] if failed else []


CLOSED_LOOP = "requests were sent as others finished; the simulation sends them at the recorded times"
"""A note on runs with a fixed number of requests in flight."""


def event_notes(output_tokens: Sequence[int], gaps_s: Sequence[Sequence[float]]) -> list[str]:
    """A note where tokens came several to an event, so that TBT is not a gap between single tokens."""
    expected, found = sum(output_tokens) - len(output_tokens), sum(map(len, gaps_s))
    if found >= expected:
        return []
    return [f"{expected - found} of {expected} gaps between tokens are hidden in events with several tokens"]


def _moments(rows: Rows) -> list[tuple[str, NDArray[np.float64]]]:
    """The moments that were recorded, in words and in the order in which they must come."""
    named = {
        "arrival": rows.arrival_s,
        "queued": rows.queued_s,
        "scheduled": rows.scheduled_s,
        "first token": rows.first_token_s,
        "last token": rows.finished_s,
    }
    return [
        (name, np.asarray(values, dtype=np.float64)) for name, values in named.items() if values is not None
    ]


def _check_range(path: Path, rows: Rows, place: Callable[[int], str]) -> None:
    """No moment may lie further from the first arrival, and no gap be longer, than a run can last."""
    start = min(rows.arrival_s)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below
        lasts = [(f"{name}, from the first arrival,", moments - start) for name, moments in _moments(rows)]
    if rows.gaps_s is not None:
        longest = [max(map(abs, gaps), default=0.0) for gaps in rows.gaps_s]
        lasts.append(("a gap between tokens", np.array(longest, dtype=np.float64)))
    for name, seconds in lasts:
        beyond = np.flatnonzero(~(np.abs(seconds) <= MAX_SECONDS))
        if len(beyond):
            row = int(beyond[0])
            raise InputError(
                f"{path}, {place(row)}: {name} is {seconds[row]:.6g} s (allowed: up to {MAX_SECONDS:g} s)"
            )


def _check_order(path: Path, rows: Rows, place: Callable[[int], str]) -> None:
    """Arrival, queued, scheduled, first token and last token must come in this order."""
    for (before, earlier), (after, later) in pairwise(_moments(rows)):
        early = np.flatnonzero(later < earlier - CLOCK_NOISE_S)
        if len(early):
            row = int(early[0])
            raise InputError(
                f"{path}, {place(row)}: {after} comes {earlier[row] - later[row]:.6g} s before {before}"
            )
