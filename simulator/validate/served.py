"""Requests as they were served, measured or simulated: the common ground on which the two are compared."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from simulator.quantiles import STATISTICS, summarise

if TYPE_CHECKING:
    from typing import Self

    from numpy.typing import NDArray

    from simulator.metrics import Result

    Seconds = NDArray[np.float64]

Summary = dict[str, float | None]

PHASES = {
    "waiting": ("arrival_s", "scheduled_s"),
    "prefill": ("scheduled_s", "first_token_s"),
    "decode": ("first_token_s", "finished_s"),
}
"""The parts of a request's life, each between two moments."""


@dataclass(frozen=True, eq=False)
class Served:
    """Moments of each request, in seconds from the first arrival, in order of arrival.

    `scheduled_s` is None where the run did not record it. `tbt_s` sums up the gaps between tokens; it is None
    where only first and last tokens were recorded.
    """

    arrival_s: Seconds
    first_token_s: Seconds
    finished_s: Seconds
    output_tokens: NDArray[np.int64]
    scheduled_s: Seconds | None = None
    tbt_s: Summary | None = None

    def __len__(self) -> int:
        return len(self.arrival_s)

    @classmethod
    def simulated(cls, result: Result) -> Self:
        """The requests of a simulation in order of arrival; none may have been rejected or cut as warm-up."""
        requests = result.records.requests
        order = np.argsort(requests["id"])
        return cls(
            arrival_s=requests["arrival_s"][order],
            first_token_s=requests["first_token_s"][order],
            finished_s=requests["finished_s"][order],
            output_tokens=requests["output_tokens"][order],
            scheduled_s=requests["scheduled_s"][order],
            tbt_s=result.metrics["tbt_s"],
        )

    def take(self, rows: NDArray[np.bool_]) -> Served:
        """The chosen requests, without their token gaps."""
        return Served(
            self.arrival_s[rows],
            self.first_token_s[rows],
            self.finished_s[rows],
            self.output_tokens[rows],
            None if self.scheduled_s is None else self.scheduled_s[rows],
        )

    @property
    def ttft_s(self) -> Seconds:
        """Arrival to first token."""
        return self.first_token_s - self.arrival_s

    @property
    def e2e_s(self) -> Seconds:
        """Arrival to last token."""
        return self.finished_s - self.arrival_s

    @property
    def tpot_s(self) -> Seconds:
        """(Last - first token) / (tokens - 1) of the requests that have more than one token."""
        several = self.output_tokens > 1
        decode_s = (self.finished_s - self.first_token_s)[several]
        tpot: Seconds = decode_s / (self.output_tokens[several] - 1)
        return tpot

    @cached_property
    def metrics(self) -> dict[str, Summary]:
        """Statistics of TTFT, TBT, TPOT and E2E in seconds; None where nothing was recorded."""
        return {
            "ttft_s": summarise(self.ttft_s),
            "tbt_s": self.tbt_s or dict.fromkeys(STATISTICS),
            "tpot_s": summarise(self.tpot_s),
            "e2e_s": summarise(self.e2e_s),
        }

    @property
    def makespan_s(self) -> float:
        """First arrival to last token."""
        return float(self.finished_s.max() - self.arrival_s.min())

    @property
    def throughput_rps(self) -> float:
        """Requests per second of the makespan."""
        return len(self) / self.makespan_s

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens per second of the makespan."""
        return float(self.output_tokens.sum()) / self.makespan_s

    def phase_mean_s(self, phase: str) -> float | None:
        """Mean seconds between the two moments of a phase; None where one was not recorded."""
        begin, end = (getattr(self, moment) for moment in PHASES[phase])
        return None if begin is None or end is None else float((end - begin).mean())
