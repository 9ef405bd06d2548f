"""What a simulation leaves behind: flat columns of iterations and requests, from which all metrics follow.

The loop appends plain numbers; nothing grows with the number of output tokens. The time of a token is the
end of the iteration that made it, found through the request's segments (see request.py).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from simulator.request import ENDS_PREFILL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from simulator.batch import Batch
    from simulator.request import Request

ITERATION_COLUMNS = (
    "start_s",
    "end_s",
    "set_id",
    "num_decodes",
    "num_chunks",
    "prefill_tokens",
    "kv_blocks_used",
)
REQUEST_COLUMNS = (
    "id",
    "arrival_s",
    "scheduled_s",
    "first_token_s",
    "finished_s",
    "prompt_tokens",
    "output_tokens",
    "num_preemptions",
)
SEGMENT_COLUMNS = ("set_id", "start", "stop")


class Recorder:
    """Collects the iterations and the finished requests of one replica."""

    def __init__(self) -> None:
        self.num_iterations = 0
        self._iterations = array("d")
        self._requests = array("d")
        self._segments = array("q")
        self._num_segments = array("q")

    def iteration(self, start_s: float, end_s: float, batch: Batch, kv_blocks_used: int) -> None:
        """Note an iteration that ends now, before its scheduler accounts for it."""
        shape = batch.shape
        num_decodes = shape.num_decodes
        decodes = batch.decodes
        self._iterations.extend(
            (
                start_s,
                end_s,
                ENDS_PREFILL if decodes is None else decodes.id,
                num_decodes,
                len(shape.chunks),
                shape.num_tokens - num_decodes,
                kv_blocks_used,
            )
        )
        self.num_iterations += 1

    def prefill_ended(self, request: Request) -> None:
        """Note that the last iteration ended a prefill of a request, and so gave it a token."""
        request.segments.append((ENDS_PREFILL, self.num_iterations - 1, self.num_iterations))

    def finished(self, request: Request) -> None:
        """Keep a finished request's times and tokens."""
        self._requests.extend(
            (
                request.id,
                request.arrival_s,
                request.scheduled_s,
                request.first_token_s,
                request.finished_s,
                request.prompt_tokens,
                request.output_tokens,
                request.num_preemptions,
            )
        )
        for segment in request.segments:
            self._segments.extend(segment)
        self._num_segments.append(len(request.segments))

    def records(self) -> Records:
        """All columns as arrays that share this recorder's memory."""
        iterations = np.frombuffer(self._iterations).reshape(-1, len(ITERATION_COLUMNS))
        requests = np.frombuffer(self._requests).reshape(-1, len(REQUEST_COLUMNS))
        segments = np.frombuffer(self._segments, dtype=np.int64).reshape(-1, len(SEGMENT_COLUMNS))
        return Records(
            iterations={name: iterations[:, i] for i, name in enumerate(ITERATION_COLUMNS)},
            requests={name: requests[:, i] for i, name in enumerate(REQUEST_COLUMNS)},
            segments={name: segments[:, i] for i, name in enumerate(SEGMENT_COLUMNS)},
            num_segments=np.frombuffer(self._num_segments, dtype=np.int64),
        )


@dataclass(frozen=True)
class Records:
    """Columns of iterations and requests; each request has `num_segments` rows of `segments`."""

    iterations: dict[str, NDArray[np.float64]]
    requests: dict[str, NDArray[np.float64]]
    segments: dict[str, NDArray[np.int64]]
    num_segments: NDArray[np.int64]

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
            num_segments=np.concatenate([part.num_segments for part in parts]),
        )

    def token_clock(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Token times laid end to end, and where in them each segment starts.

        First the ends of all iterations (for tokens that end a prefill), then those of each decode set.
        """
        ends, sets = self.iterations["end_s"], self.iterations["set_id"].astype(np.int64)
        by_set = np.argsort(sets, kind="stable")
        times = np.concatenate([ends, ends[by_set]])
        first_of_set = len(ends) + np.searchsorted(sets[by_set], self.segments["set_id"])
        base = np.where(self.segments["set_id"] == ENDS_PREFILL, 0, first_of_set)
        return times, base + self.segments["start"]


def _concatenated(parts: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
