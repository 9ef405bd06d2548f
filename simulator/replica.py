"""One engine replica on the simulated clock: its scheduler decides, its pipeline stages take time.

Batches pass the stages in order. When one is launched, the time at which it leaves each stage is known
already, for nothing that happens later can overtake it: it starts on a stage once it has arrived there and
the batch before it has left. So a replica knows its own next moment, the end of a batch or the first stage
coming free, and needs an event of the clock only where something else happens before that: an arrival, or a
moment of another replica. Up to there it runs ahead.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simpy import Environment, Event

    from simulator.batch import Batch, BatchShape
    from simulator.latency.model import LatencyModel
    from simulator.record import Recorder
    from simulator.request import Request
    from simulator.schedulers import Scheduler


class Replica:
    """A scheduler, `num_stages` pipeline stages and at most as many batches in flight.

    `busy_s` is each stage's time at work; `working_s` the time during which the replica held any request.
    A stage's bubble is the difference.
    """

    def __init__(
        self,
        env: Environment,
        scheduler: Scheduler,
        latency: LatencyModel,
        recorder: Recorder,
    ) -> None:
        self.env = env
        self.scheduler = scheduler
        self.latency = latency
        self.recorder = recorder
        self.num_stages = latency.num_stages
        self.num_outstanding = 0
        self.busy_s = [0.0] * self.num_stages
        self.working_s = 0.0
        self._working_since_s = 0.0
        self.last_end_s = 0.0
        self._free_at_s = [0.0] * self.num_stages
        self._in_flight: deque[tuple[float, float, Batch]] = deque()
        self._wakes_at_s = inf

    def submit(self, request: Request) -> str | None:
        """Hand a request over now; returns the reason if it can never run here."""
        reason = self.scheduler.add(request)
        if reason is None:
            now = self.env.now
            if not self.num_outstanding:
                self._working_since_s = now
            self.num_outstanding += 1
            if len(self._in_flight) < self.num_stages and self._free_at_s[0] <= now:
                # Not at once: others that arrive at this moment belong in the same batch.
                self._wake_at(now)
        return reason

    def stage_use(self, until_s: float) -> tuple[dict[str, float], ...]:
        """Each stage's share of the time up to `until_s`, and its idle share of that with work here."""
        working_s = self.working_s + (until_s - self._working_since_s if self.num_outstanding else 0.0)
        # What is in flight at a cut was counted in full when it was launched.
        busy = [
            busy_s - max(0.0, free_at_s - until_s)
            for busy_s, free_at_s in zip(self.busy_s, self._free_at_s, strict=True)
        ]
        return tuple(
            {
                "utilisation": busy_s / (until_s or 1.0),
                "bubble_share": max(0.0, working_s - busy_s) / (working_s or 1.0),
            }
            for busy_s in busy
        )

    def _wake_at(self, at_s: float) -> None:
        """Have the clock call at a time, unless it will call before that."""
        if at_s < self._wakes_at_s:
            self._wakes_at_s = at_s
            self.env.timeout(at_s - self.env.now, at_s).callbacks.append(self._wake)

    def _wake(self, event: Event) -> None:
        if event.value == self._wakes_at_s:  # and not a later call that has been overtaken
            self._wakes_at_s = inf
            self._run(event.value)

    def _run(self, now_s: float) -> None:
        """End and launch what is due, from one own moment to the next, until something else happens first."""
        schedule, peek = self.scheduler.schedule, self.env.peek
        in_flight, free_at, num_stages = self._in_flight, self._free_at_s, self.num_stages
        while True:
            while in_flight and in_flight[0][1] <= now_s:
                self._account(*in_flight.popleft())
            while len(in_flight) < num_stages and free_at[0] <= now_s:
                batch = schedule()
                if batch is None:
                    break
                self._launch(batch, now_s)
            if not in_flight:
                return  # the next request wakes it
            next_s = in_flight[0][1]
            if len(in_flight) < num_stages and now_s < free_at[0] < next_s:
                next_s = free_at[0]
            if next_s >= peek():
                self._wake_at(next_s)
                return
            now_s = next_s

    def _launch(self, batch: Batch, now_s: float) -> None:
        """Send a batch through the stages."""
        for request, _ in batch.prefills:
            if request.scheduled_s < 0.0:
                request.scheduled_s = now_s
                self.recorder.scheduled(request)
        left_at = self._pass_stages(batch.shape, now_s)
        if self.num_stages == 1 and not batch.prefills:
            now_s, left_at, batch = self._repeat(now_s, left_at, batch)
        self._in_flight.append((now_s, left_at, batch))

    def _repeat(self, start_s: float, end_s: float, batch: Batch) -> tuple[float, float, Batch]:
        """Let a batch of decodes repeat for as long as nothing else happens; returns the last repetition."""
        env, scheduler, recorder = self.env, self.scheduler, self.recorder
        while end_s < env.peek():
            kv_blocks_used = scheduler.kv.used
            repeated = scheduler.repeat(batch)
            if repeated is None:
                break
            recorder.iteration(start_s, end_s, batch, kv_blocks_used)
            batch, start_s = repeated, end_s
            end_s = self._pass_stages(batch.shape, start_s)
        return start_s, end_s, batch

    def _pass_stages(self, shape: BatchShape, now_s: float) -> float:
        """Occupy each stage in turn from the moment that it is free; returns when the last one is left."""
        latency, free_at, busy = self.latency, self._free_at_s, self.busy_s
        duration = latency.stage_time_s(shape, 0)  # which is free, or nothing would be launched
        free_at[0] = at = now_s + duration
        busy[0] += duration
        for stage in range(1, self.num_stages):
            at += latency.hop_time_s(shape.num_tokens)
            if free_at[stage] > at:
                at = free_at[stage]
            duration = latency.stage_time_s(shape, stage)
            free_at[stage] = at = at + duration
            busy[stage] += duration
        return at

    def _account(self, start_s: float, end_s: float, batch: Batch) -> None:
        """A batch has ended: record it, and whom it gave a first or a last token."""
        scheduler, recorder = self.scheduler, self.recorder
        recorder.iteration(start_s, end_s, batch, scheduler.kv.used)
        self.last_end_s = end_s
        finished = scheduler.complete(batch)
        for request in batch.ending:
            recorder.prefill_ended(request, end_s)
            if request.first_token_s < 0.0:
                request.first_token_s = end_s
        for request in finished:
            self._finish(request, end_s)

    def _finish(self, request: Request, now_s: float) -> None:
        request.finished_s = now_s
        self.recorder.finished(request)
        self.num_outstanding -= 1
        if not self.num_outstanding:
            self.working_s += now_s - self._working_since_s
