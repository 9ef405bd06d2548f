"""What a simulation leaves behind: flat columns of requests and token times, and totals of iterations.

The loop appends plain numbers. Iterations are added up a block at a time, and of each only its end is kept,
eight bytes: nothing grows with the number of output tokens. The time of a token is the end of the iteration
that made it, found through the request's segments (see request.py).
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from simulator.request import ENDS_PREFILL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from simulator.batch import Batch
    from simulator.request import Request

    Columns = dict[str, NDArray[Any]]

ITERATIONS_PER_BLOCK = 2**15
REQUESTS_PER_BLOCK = 2**12
REQUEST_COLUMNS = {
    "id": np.int32,
    "arrival_s": np.float64,
    "scheduled_s": np.float64,
    "first_token_s": np.float64,
    "finished_s": np.float64,
    "prompt_tokens": np.int32,
    "output_tokens": np.int32,
    "num_preemptions": np.int32,
}


class Table:
    """Rows of named numbers, d for a double and i for a whole number, packed without gaps.

    `extend(pack(*row))` costs a quarter of what appending a row to an array of doubles does.
    """

    def __init__(self, **columns: str) -> None:
        self._dtype = np.dtype(list(columns.items()))
        self._rows = bytearray()
        self.pack = Struct("=" + "".join(columns.values())).pack
        """A row as bytes, its numbers in the order of the columns."""
        self.extend = self._rows.extend
        """Adds packed rows."""

    def __len__(self) -> int:
        return len(self._rows) // self._dtype.itemsize

    def take(self) -> Columns:
        """All columns, of which none is left here."""
        rows = np.frombuffer(bytes(self._rows), dtype=self._dtype)
        self._rows.clear()
        return {name: rows[name] for name in self._dtype.names or ()}


@dataclass
class IterationTotals:
    """Sums and maxima over iterations, zero where there are none; times in seconds."""

    sums: Counter[str] = field(default_factory=Counter)
    maxima: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, iterations: Columns) -> Self:
        """The totals of some rows, of which there is at least one."""
        duration_s = iterations["end_s"] - iterations["start_s"]
        decodes, prefill = iterations["num_decodes"], iterations["prefill_tokens"]
        tokens, kv_blocks = decodes + prefill, iterations["kv_blocks_used"]
        sums = {
            "iterations": len(tokens),
            "decodes": int(decodes.sum()),
            "chunks": int(iterations["num_chunks"].sum()),
            "tokens": int(tokens.sum()),
            "decode_only": int((prefill == 0).sum()),
            "prefill_only": int((decodes == 0).sum()),
            "duration_s": float(duration_s.sum()),
            "kv_block_seconds": float((kv_blocks * duration_s).sum()),
        }
        maxima = {"tokens": tokens, "duration_s": duration_s, "kv_blocks": kv_blocks}
        return cls(Counter(sums), Counter({name: float(values.max()) for name, values in maxima.items()}))

    def add(self, other: IterationTotals) -> None:
        """Count other iterations as well."""
        self.sums.update(other.sums)
        self.maxima |= other.maxima


class Recorder:
    """Collects the iterations and the finished requests of one replica.

    With `keep_iterations` the records have a row for each iteration too.
    """

    def __init__(self, *, keep_iterations: bool = False) -> None:
        self._iterations = Table(
            start_s="d",
            end_s="d",
            set_id="i",
            num_decodes="i",
            num_chunks="i",
            prefill_tokens="i",
            kv_blocks_used="i",
        )
        self._pack_iteration, self._add_iteration = self._iterations.pack, self._iterations.extend
        self._totals = IterationTotals()
        self._set_ends: list[list[NDArray[np.float64]]] = []
        self._prefill_ends = array("d")
        self._finished: list[Request] = []
        self._requests: list[Columns] = []
        self._segments: list[NDArray[np.int32]] = []
        self._kept: list[Columns] | None = [] if keep_iterations else None

    def scheduled(self, request: Request) -> None:
        """A request is in an iteration for the first time: its own `scheduled_s` is all that is kept."""

    def iteration(self, start_s: float, end_s: float, batch: Batch, kv_blocks_used: int) -> None:
        """Note an iteration that ends now, before its scheduler accounts for it."""
        chunks, num_decodes, _, _, _, _, num_tokens = batch.shape
        set_id = ENDS_PREFILL if batch.decodes is None else batch.decodes.id
        prefill_tokens = num_tokens - num_decodes
        self._add_iteration(
            self._pack_iteration(
                start_s, end_s, set_id, num_decodes, len(chunks), prefill_tokens, kv_blocks_used
            )
        )

    def prefill_ended(self, request: Request, end_s: float) -> None:
        """Note that the last iteration ended a prefill of a request, and so gave it a token."""
        number = len(self._prefill_ends)
        self._prefill_ends.append(end_s)
        request.segments.append((ENDS_PREFILL, number, number + 1))

    def finished(self, request: Request) -> None:
        """Keep a finished request's times and tokens."""
        self._finished.append(request)
        if len(self._finished) >= REQUESTS_PER_BLOCK:
            self._pack_requests()
        if len(self._iterations) >= ITERATIONS_PER_BLOCK:  # looked at here, where it costs least
            self._add_up_iterations()

    def _pack_requests(self) -> None:
        """Put the finished requests into columns, and forget them."""
        finished = self._finished
        columns: Columns = {
            name: np.fromiter(map(attrgetter(name), finished), kind, len(finished))
            for name, kind in REQUEST_COLUMNS.items()
        }
        segments = [request.segments for request in finished]
        columns["num_segments"] = np.fromiter(map(len, segments), np.int32, len(finished))
        numbers = chain.from_iterable(chain.from_iterable(segments))
        self._segments.append(np.fromiter(numbers, np.int32).reshape(-1, 3))
        self._requests.append(columns)
        finished.clear()

    def _add_up_iterations(self) -> None:
        """Add the rows of iterations to the totals and the clocks, and forget them."""
        iterations = self._iterations.take()
        if not len(iterations["end_s"]):
            return
        self._totals.add(IterationTotals.of(iterations))
        ends, sets = iterations["end_s"], iterations["set_id"]
        while len(self._set_ends) <= sets.max():
            self._set_ends.append([])
        for set_id in np.unique(sets[sets != ENDS_PREFILL]):
            self._set_ends[set_id].append(ends[sets == set_id])
        if self._kept is not None:
            self._kept.append(iterations)

    def records(self) -> Records:
        """All columns; the recorder takes no more after that."""
        self._add_up_iterations()
        self._pack_requests()
        if self._kept is not None:
            self._kept.append(self._iterations.take())  # no rows, but the columns
        clocks = [np.array(self._prefill_ends)]
        clocks += [np.concatenate(ends) if ends else np.empty(0) for ends in self._set_ends]
        self._set_ends.clear()
        set_id, start, stop = np.concatenate(self._segments).T
        first = np.cumsum([0, *map(len, clocks)])[set_id - ENDS_PREFILL]
        return Records(
            token_times_s=np.concatenate(clocks),
            requests=_concatenated(self._requests),
            segments={"start": first + start, "stop": first + stop},
            totals=self._totals,
            iterations=_concatenated(self._kept) if self._kept else {},
        )


@dataclass(frozen=True)
class Records:
    """Columns of requests and of their token times; each request has `num_segments` rows of `segments`.

    `token_times_s` are the clocks of all decode sets laid end to end, with those of ended prefills. A segment
    is a stretch of it, `start` to before `stop`, and the times of that many tokens of its request.
    """

    token_times_s: NDArray[np.float64]
    requests: Columns
    segments: Columns
    totals: IterationTotals
    iterations: Columns
    """A row for each iteration, where they were kept; without columns otherwise."""

    @classmethod
    def merged(cls, parts: Sequence[Self]) -> Self:
        """The records of several replicas as one."""
        if len(parts) == 1:
            return parts[0]
        totals = IterationTotals()
        for part in parts:
            totals.add(part.totals)
        first = np.cumsum([0, *(len(part.token_times_s) for part in parts)])
        segments = [
            {name: column + at for name, column in part.segments.items()}
            for part, at in zip(parts, first, strict=False)
        ]
        return cls(
            token_times_s=np.concatenate([part.token_times_s for part in parts]),
            requests=_concatenated([part.requests for part in parts]),
            segments=_concatenated(segments),
            totals=totals,
            iterations=_concatenated([part.iterations for part in parts]),
        )


def _concatenated(parts: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
