"""Ends a run as soon as its SLO is certainly broken, for searches that only ask whether it holds.

A percentile is broken for certain once more samples exceed its bound than it leaves room for among all that
there will ever be. How many there will be is known beforehand: one scheduling delay a request, one gap an
output token. Only what has already happened counts, so a run that would hold its SLO is never ended.
Bounds on TTFT, TPOT, E2E and means, and those of a class, are left to the end of the run.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from simulator.metrics import overall, split_slo_key
from simulator.quantiles import LEVELS
from simulator.record import Recorder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simulator.batch import Batch
    from simulator.request import Request
    from simulator.workload import Workload

CHECK_EVERY = 64
"""Iterations between two looks at who has waited for too long."""


class SLOBroken(Exception):  # noqa: N818 (an outcome, not an error)
    """The run was ended: the bound named by the one argument is certainly broken."""


class _Bound:
    """One bound on a percentile, how many samples have exceeded it, and how many may."""

    __slots__ = ("exceeded", "key", "most", "seconds")

    def __init__(self, key: str, seconds: float, level: float, num_samples: int) -> None:
        self.key = key
        self.seconds = seconds
        self.exceeded = 0
        self.most = num_samples - 1 - int((num_samples - 1) * level)

    def check(self, exceeded: int) -> None:
        if exceeded > self.most:
            raise SLOBroken(self.key)


class Watch:
    """What the recorders of a run know together; `recorder` makes the one of a replica."""

    def __init__(self, slo: Mapping[str, float], workload: Workload) -> None:
        self.arrival_s: list[float] = workload.arrival_s.tolist()
        self.num_scheduled = 0
        self.gaps: list[_Bound] = []
        self.delays: list[_Bound] = []
        num_gaps = int((workload.output_tokens - 1).sum())
        for key, bound in overall(slo).items():
            statistic, metric, unit_s = split_slo_key(key)
            level = 1.0 if statistic == "max" else LEVELS.get(statistic)
            if level is not None and metric == "tbt_s" and num_gaps:
                self.gaps.append(_Bound(key, bound * unit_s, level, num_gaps))
            if level is not None and metric == "scheduling_delay_s":
                self.delays.append(_Bound(key, bound * unit_s, level, len(workload)))

    def recorder(self) -> Recorder:
        """A recorder that also watches; raises SLOBroken out of the run."""
        return _WatchingRecorder(self)

    def gap(self, gap_s: float, count: int) -> None:
        """So many requests have waited so long for their next token."""
        for bound in self.gaps:
            if gap_s > bound.seconds:
                bound.exceeded += count
                bound.check(bound.exceeded)

    def scheduled(self, delay_s: float) -> None:
        """A request has been scheduled for the first time."""
        self.num_scheduled += 1
        for bound in self.delays:
            bound.exceeded += delay_s > bound.seconds

    def rejected(self) -> None:
        """A request will never be scheduled; it counts as one whose delay is known."""
        self.num_scheduled += 1

    def look_at_queue(self, now_s: float) -> None:
        """Count those who wait for too long already, beside those who did."""
        for bound in self.delays:
            arrived = bisect_left(self.arrival_s, now_s - bound.seconds)
            bound.check(bound.exceeded + max(0, arrived - self.num_scheduled))


class _WatchingRecorder(Recorder):
    """A recorder of one replica that reports to a watch."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch
        self._num_iterations = 0
        # Of each decode set: the end of its last iteration, and how many had joined it by then.
        self._last: dict[int, tuple[float, int]] = {}

    def scheduled(self, request: Request) -> None:
        """Report the delay at once: until its first iteration ends a request would seem to wait."""
        self._watch.scheduled(request.scheduled_s - request.arrival_s)

    def iteration(self, start_s: float, end_s: float, batch: Batch, kv_blocks_used: int) -> None:
        """Note an iteration, and judge the gaps that it ends."""
        super().iteration(start_s, end_s, batch, kv_blocks_used)
        watch, decodes = self._watch, batch.decodes
        if decodes is not None:
            before = self._last.get(decodes.id)
            self._last[decodes.id] = end_s, decodes.num_joined
            if before is not None:
                # Who has joined since has waited for less; only the others count.
                last_s, num_joined = before
                waited = len(decodes.members) - (decodes.num_joined - num_joined)
                if waited > 0:
                    watch.gap(end_s - last_s, waited)
        self._num_iterations += 1
        if self._num_iterations % CHECK_EVERY == 0:
            watch.look_at_queue(end_s)
