"""What a simulation leaves behind: flat columns of iterations and requests, from which all metrics follow.

The loop appends plain numbers; nothing grows with the number of output tokens. The time of a token is the
end of the iteration that made it, found through the request's segments (see request.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from simulator.request import ENDS_PREFILL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from simulator.batch import Batch
    from simulator.request import Request


class Table:
    """Rows of named numbers, d for a double and i or q for a whole number, packed without gaps.

    `extend(pack(*row))` costs a quarter of what appending a row to an array of doubles does.
    """

    def __init__(self, **columns: str) -> None:
        self._dtype = np.dtype(list(columns.items()))
        self._rows = bytearray()
        self.pack = Struct("=" + "".join(columns.values())).pack
        """A row as bytes, its numbers in the order of the columns."""
        self.extend = self._rows.extend
        """Adds packed rows."""

    def columns(self) -> dict[str, NDArray[Any]]:
        """All columns as arrays that share this table's memory, to which no row can be added then."""
        rows = np.frombuffer(self._rows, dtype=self._dtype)
        return {name: rows[name] for name in self._dtype.names or ()}


class Recorder:
    """Collects the iterations and the finished requests of one replica."""

    def __init__(self) -> None:
        self.num_iterations = 0
        self._iterations = Table(
            start_s="d",
            end_s="d",
            set_id="i",
            num_decodes="i",
            num_chunks="i",
            prefill_tokens="i",
            kv_blocks_used="i",
        )
        self._requests = Table(
            id="q",
            arrival_s="d",
            scheduled_s="d",
            first_token_s="d",
            finished_s="d",
            prompt_tokens="q",
            output_tokens="q",
            num_preemptions="q",
            num_segments="q",
        )
        self._segments = Table(set_id="q", start="q", stop="q")
        self._pack_iteration, self._add_iteration = self._iterations.pack, self._iterations.extend

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
        self.num_iterations += 1

    def prefill_ended(self, request: Request) -> None:
        """Note that the last iteration ended a prefill of a request, and so gave it a token."""
        request.segments.append((ENDS_PREFILL, self.num_iterations - 1, self.num_iterations))

    def finished(self, request: Request) -> None:
        """Keep a finished request's times and tokens."""
        table = self._requests
        table.extend(
            table.pack(
                request.id,
                request.arrival_s,
                request.scheduled_s,
                request.first_token_s,
                request.finished_s,
                request.prompt_tokens,
                request.output_tokens,
                request.num_preemptions,
                len(request.segments),
            )
        )
        pack_segment = self._segments.pack
        for segment in request.segments:
            self._segments.extend(pack_segment(*segment))

    def records(self) -> Records:
        """All columns; the recorder takes no more after that."""
        return Records(
            iterations=self._iterations.columns(),
            requests=self._requests.columns(),
            segments=self._segments.columns(),
        )


@dataclass(frozen=True)
class Records:
    """Columns of iterations and requests; each request has `num_segments` rows of `segments`."""

    iterations: dict[str, NDArray[Any]]
    requests: dict[str, NDArray[Any]]
    segments: dict[str, NDArray[Any]]

    @classmethod
    def merged(cls, parts: Sequence[Self]) -> Self:
        """The records of several replicas as one; decode sets and iterations are renumbered."""
        sets = rows = 0
        iterations, segments = [], []
        for part in parts:
            set_id, kind = part.iterations["set_id"], part.segments["set_id"]
            iterations.append(
                {**part.iterations, "set_id": np.where(set_id == ENDS_PREFILL, set_id, set_id + sets)}
            )
            ends_prefill = kind == ENDS_PREFILL
            segments.append(
                {
                    "set_id": np.where(ends_prefill, kind, kind + sets),
                    "start": part.segments["start"] + ends_prefill * rows,
                    "stop": part.segments["stop"] + ends_prefill * rows,
                }
            )
            sets += int(set_id.max(initial=ENDS_PREFILL)) + 1
            rows += len(set_id)
        return cls(
            iterations=_concatenated(iterations),
            requests=_concatenated([part.requests for part in parts]),
            segments=_concatenated(segments),
        )

    def token_clock(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Token times laid end to end, and where in them each segment starts.

        First the ends of all iterations (for tokens that end a prefill), then those of each decode set.
        """
        ends, sets = self.iterations["end_s"], self.iterations["set_id"]
        by_set = np.argsort(sets, kind="stable")
        times = np.concatenate([ends, ends[by_set]])
        first_of_set = len(ends) + np.searchsorted(sets[by_set], self.segments["set_id"])
        base = np.where(self.segments["set_id"] == ENDS_PREFILL, 0, first_of_set)
        return times, base + self.segments["start"]


def _concatenated(parts: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
