"""One engine replica on the simulated clock: its scheduler decides, its pipeline stages take time.

Batches pass the stages in order. When one is launched, the time at which it leaves each stage is known
already, for nothing that happens later can overtake it: it starts on a stage once it has arrived there and
the batch before it has left. So a batch costs one event for its end (and one for the first stage coming
free, where there are several), however deep the pipeline is.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from simpy import Environment, Event

    from simulator.batch import Batch, BatchShape
    from simulator.latency.model import LatencyModel
    from simulator.record import Recorder
    from simulator.request import Request
    from simulator.schedulers import Scheduler


class Replica:
    """A scheduler, `num_stages` pipeline stages and at most as many batches in flight.

    `busy_s` is each stage's time at work; `working_s` the time during which the replica held any request.
    A stage's bubble is the difference. `on_finished` is called with each request as it finishes.
    """

    def __init__(
        self,
        env: Environment,
        scheduler: Scheduler,
        latency: LatencyModel,
        recorder: Recorder,
        on_finished: Callable[[Request], None] | None = None,
    ) -> None:
        self.env = env
        self.scheduler = scheduler
        self.latency = latency
        self.recorder = recorder
        self.on_finished = on_finished
        self.num_stages = latency.num_stages
        self.num_outstanding = 0
        self.busy_s = [0.0] * self.num_stages
        self.working_s = 0.0
        self._working_since_s = 0.0
        self._free_at_s = [0.0] * self.num_stages
        self._in_flight: deque[tuple[float, float, Batch]] = deque()
        self._first_stage_busy = False
        self.last_end_s = 0.0

    def submit(self, request: Request) -> str | None:
        """Hand a request over now; returns the reason if it can never run here."""
        reason = self.scheduler.add(request)
        if reason is None:
            if not self.num_outstanding:
                self._working_since_s = self.env.now
            self.num_outstanding += 1
            if self._has_room():
                # Not at once: others that arrive at this moment belong in the same batch.
                self.env.timeout(0.0).callbacks.append(self._launch_all)
        return reason

    def stage_use(self, until_s: float) -> tuple[dict[str, float], ...]:
        """Each stage's share of the time up to `until_s`, and its idle share of that with work here."""
        working_s = self.working_s + (until_s - self._working_since_s if self.num_outstanding else 0.0)
        return tuple(
            {
                "utilisation": busy_s / (until_s or 1.0),
                "bubble_share": max(0.0, working_s - busy_s) / (working_s or 1.0),
            }
            for busy_s in self.busy_s
        )

    def _has_room(self) -> bool:
        return len(self._in_flight) < self.num_stages and not self._first_stage_busy

    def _launch_all(self, _: Event | None = None) -> None:
        """Launch batches for as long as there is work and room for it.

        One that leaves a lone stage before anything else happens needs no event: it ends here and now, and
        the clock catches up with whatever comes next.
        """
        env, scheduler = self.env, self.scheduler
        now = env.now
        while self._has_room() and (batch := scheduler.schedule()) is not None:
            for request, _tokens in batch.prefills:
                if request.scheduled_s < 0.0:
                    request.scheduled_s = now
            left_at = self._pass_stages(batch.shape, now)
            if self.num_stages == 1:
                now, left_at, batch = self._repeat(now, left_at, batch)
            if self.num_stages == 1 and left_at < env.peek():
                self._account(now, left_at, batch)
                now = left_at
            else:
                self._send(batch, now, left_at)

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

    def _send(self, batch: Batch, now_s: float, left_at_s: float) -> None:
        """Come back when a batch leaves the first of several stages, and when it leaves the last one."""
        env = self.env
        self._in_flight.append((now_s, left_at_s, batch))
        env.timeout(left_at_s - env.now).callbacks.append(self._end)
        if self.num_stages > 1:
            self._first_stage_busy = True
            env.timeout(self._free_at_s[0] - env.now).callbacks.append(self._leave_first_stage)

    def _leave_first_stage(self, _: Event) -> None:
        self._first_stage_busy = False
        self._launch_all()

    def _pass_stages(self, shape: BatchShape, now_s: float) -> float:
        """Occupy each stage in turn from the moment that it is free; returns when the last one is left."""
        latency, free_at, busy = self.latency, self._free_at_s, self.busy_s
        at = now_s
        for stage in range(self.num_stages):
            if stage:
                at += latency.hop_time_s(shape.num_tokens)
            duration = latency.stage_time_s(shape, stage)
            if free_at[stage] > at:
                at = free_at[stage]
            at += duration
            free_at[stage] = at
            busy[stage] += duration
        return at

    def _end(self, _: Event) -> None:
        """The oldest batch in flight leaves the last stage."""
        self._account(*self._in_flight.popleft())
        self._launch_all()

    def _account(self, start_s: float, end_s: float, batch: Batch) -> None:
        """A batch has ended: record it, and whom it gave a first or a last token."""
        scheduler, recorder = self.scheduler, self.recorder
        recorder.iteration(start_s, end_s, batch, scheduler.kv.used)
        self.last_end_s = end_s
        finished = scheduler.complete(batch)
        for request in batch.ending:
            recorder.prefill_ended(request)
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
        if self.on_finished is not None:
            self.on_finished(request)
