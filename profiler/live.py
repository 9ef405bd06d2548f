"""A serving engine in miniature: the simulator's scheduler on the wall clock, on real kernels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from profiler.pages import PagePool
from simulator.metrics import Result
from simulator.record import Recorder, Records

if TYPE_CHECKING:
    from profiler.kernels.attention import Run
    from profiler.model import StepInputs, Transformer
    from simulator.batch import Batch, BatchShape
    from simulator.config import Scenario
    from simulator.request import Request
    from simulator.schedulers import Scheduler

_NAP_S = 1e-3

Forward = Callable[["StepInputs", "Run"], Any]
"""Runs one iteration on the device and returns the sampled tokens."""


class Iteration(NamedTuple):
    """What one iteration took: seconds of host work before the launch, and of everything."""

    shape: BatchShape
    host_s: float
    total_s: float


class _Row(NamedTuple):
    """One sequence of an iteration."""

    sequence: int
    q_len: int
    kv_len: int
    samples: bool


class LiveEngine:
    """Serves requests in real time, one iteration after another, as a simulated replica does."""

    def __init__(
        self,
        model: Transformer,
        scheduler: Scheduler,
        forward: Forward | None = None,
        now: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.recorder = Recorder()
        self.iterations: list[Iteration] = []
        self.rejections: list[tuple[int, str]] = []
        self._model = model
        self._scheduler = scheduler
        self._forward = forward or model.forward
        self._pages = PagePool(model.num_pages, model.page_size)
        self._clock = now
        self._sleep = sleep
        self._started = 0.0

    def serve(self, requests: Sequence[Request], deadline_s: float | None = None) -> None:
        """Serve requests, which come in order of arrival, until all have finished or the deadline passes."""
        self._started = self._clock()
        waiting = list(reversed(requests))
        while not (deadline_s is not None and self._now() > deadline_s):
            while waiting and waiting[-1].arrival_s <= self._now():
                self._submit(waiting.pop())
            began = self._now()
            batch = self._scheduler.schedule()
            if batch is not None:
                self._run(batch, began)
            elif waiting:
                self._sleep(min(_NAP_S, max(0.0, waiting[-1].arrival_s - self._now())))
            else:
                return

    def reject(self, request: Request, reason: str) -> None:
        """Note a request that can never run."""
        self.rejections.append((request.id, reason))

    def result(self, scenario: Scenario, num_blocks: int) -> Result:
        """What the requests saw, in the form of a simulation's outcome."""
        scheduler = self._scheduler
        return Result(
            records=Records.merged([self.recorder.records()]),
            rejections=tuple(self.rejections),
            slo=scenario.slo,
            warmup_s=scenario.warmup_s,
            num_blocks=num_blocks,
            preemptions=scheduler.num_preemptions,
            recomputed_tokens=scheduler.recomputed_tokens,
            stages=(),
            extrapolated_share=0.0,
            notes=(),
        )

    def _now(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._started

    def _submit(self, request: Request) -> None:
        reason = self._scheduler.add(request)
        if reason is not None:
            self.reject(request, reason)

    def _run(self, batch: Batch, began: float) -> None:
        """One iteration: pages, inputs, kernels, and the sampled tokens back on the host."""
        for request, _ in batch.prefills:
            if request.scheduled_s < 0.0:
                request.scheduled_s = began
        self._release_preempted()
        inputs = self._inputs(batch)
        attend = self._model.plan(inputs)
        launched = self._now()
        self._forward(inputs, attend).tolist()
        ended = self._now()
        self.iterations.append(Iteration(batch.shape, launched - began, ended - began))
        self._end(batch, began, ended)

    def _release_preempted(self) -> None:
        """Victims stand at the head of the queue; they start over and hold nothing meanwhile."""
        for request in self._scheduler.waiting:
            if not request.num_preemptions:
                return
            self._pages.release(request.id)

    def _inputs(self, batch: Batch) -> StepInputs:
        rows = list(_rows(batch))
        for row in rows:
            self._pages.grow(row.sequence, row.kv_len)
        return self._model.inputs(
            self._model.batch(tuple(row.q_len for row in rows), tuple(row.kv_len for row in rows)),
            self._pages.table([row.sequence for row in rows]),
            np.array([row.samples for row in rows]),
        )

    def _end(self, batch: Batch, began: float, ended: float) -> None:
        """Account for an iteration as the simulated replica does, with real times."""
        recorder, scheduler = self.recorder, self._scheduler
        recorder.iteration(began, ended, batch, scheduler.kv.used)
        completed = batch.ending
        finished = scheduler.complete(batch)
        for request in completed:
            recorder.prefill_ended(request, ended)
            if request.first_token_s < 0.0:
                request.first_token_s = ended
        for request in finished:
            request.finished_s = ended
            recorder.finished(request)
            self._pages.release(request.id)


def _rows(batch: Batch) -> Iterator[_Row]:
    """The sequences of a batch, decodes first."""
    decodes = batch.decodes
    if decodes is not None:
        for request in decodes:
            yield _Row(request.id, 1, decodes.kv_of(request) + 1, samples=True)
    for request, tokens in batch.prefills:
        yield _Row(request.id, tokens, request.num_computed + tokens, samples=tokens == request.behind)
