"""The proof: batches of the scheduler on real kernels, their time held against the simulator's prediction.

`sample` measures iterations drawn from a simulation, device time alone. `live` serves the workload in real
time with the same scheduler, and compares what its requests saw with what a simulation of them says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from profiler.device import Device, open_device, require_torch
from profiler.kernels.batch import page_table, spread_lengths
from profiler.replay_report import Measured, Mode, ReplayReport
from profiler.timing import CpuClock, clock_for
from profiler.watch import HostCost, HostTimed, ShapeSampler
from simulator.batch import BatchShape, Chunk
from simulator.errors import ConfigError, InfeasibleError
from simulator.latency import build_latency
from simulator.latency.kernels import AttentionHeads
from simulator.load import load_model
from simulator.run import blocks_per_replica, build_scheduler, simulate, within_limit
from simulator.workload import build_workload

if TYPE_CHECKING:
    from profiler.kernels.attention import AttentionBackend, Run
    from profiler.model import StepInputs, Transformer
    from simulator.config import Scenario
    from simulator.metrics import Result

Progress = Callable[[str], None]

# Predicted and measured alike: no engine's host time, no slower attention path, every token computed.
_KERNELS_ALONE = {"engine": "ideal", "memory.prefix_caching": False}
_HOST_DECODES = 16
_HOST_KV_TOKENS = 64


@dataclass(frozen=True, kw_only=True)
class ReplayJob:
    """What to replay, on what, and how much of it."""

    scenario: Scenario
    device: str = "cuda"
    attention: str = "auto"
    dtype: str = ""
    """Empty: the model's on a GPU, fp32 on a CPU."""
    mode: Mode = "sample"
    sample: int = 60
    """Iterations to measure in sample mode."""
    seed: int = 0
    deadline_s: float | None = None


def replay(job: ReplayJob, progress: Progress = lambda line: None) -> ReplayReport:
    """Run a scenario's batches on real kernels; raises a StallfreeError where that cannot be done here."""
    torch = require_torch()
    parallel = job.scenario.parallel
    if parallel.tensor * parallel.pipeline > 1 or job.scenario.replicas > 1:
        raise ConfigError(
            "replay runs one model on one device: set parallel.tensor, parallel.pipeline and replicas to 1"
        )
    device = open_device(job.device)
    with torch.inference_mode():
        return _Replay(job, device, progress).run()


class _Replay:
    """One replay: the device, its backend, and the prediction that is tested."""

    def __init__(self, job: ReplayJob, device: Device, progress: Progress) -> None:
        from profiler.kernels.gate import gate_batches, pass_gate
        from profiler.kernels.registry import open_backend

        self.job = job
        self.device = device
        self.progress = progress
        self.scenario = job.scenario.with_(_KERNELS_ALONE)
        self.spec = spec = load_model(self.scenario.model)
        self.dtype = job.dtype or (spec.dtype if device.is_cuda else "fp32")
        self.page_size = self.scenario.memory.block_size_tokens
        self.backend: AttentionBackend = open_backend(job.attention, device)
        if not self.backend.paged:
            raise ConfigError(f"attention backend {self.backend.name!r}: replay needs a paged cache")
        self.backend.check(self.page_size)
        heads = AttentionHeads(spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.sliding_window)
        pass_gate(self.backend, gate_batches(heads, self.page_size, self.dtype))
        self.latency = build_latency(self.scenario)

    def run(self) -> ReplayReport:
        """Simulate, then measure."""
        sampler = ShapeSampler(self.latency, self.job.sample, self.job.seed)
        simulate(self.scenario, self.job.seed, latency=sampler)
        shapes = sampler.sample(self.job.sample)
        self.progress(f"simulated; {len(shapes)} iterations drawn, {self.backend.name} on {self.device.name}")
        return self._sample(shapes) if self.job.mode == "sample" else self._live()

    def _sample(self, shapes: list[BatchShape]) -> ReplayReport:
        model = self._model(max(_pages_of(shape, self.page_size) for shape in shapes))
        clock = clock_for(self.device)
        steps = ShapeSteps(model, self.job.seed)
        measured = []
        for shape in shapes:
            inputs, attend = steps.prepare(shape)
            timing = clock.measure([partial(model.forward, inputs, attend)])
            measured.append(Measured(shape, self._predicted_s(shape), timing.median_us * 1e-6))
        return self._report(measured)

    def _live(self) -> ReplayReport:
        from profiler.graphs import PiecewiseGraphs
        from profiler.live import LiveEngine

        num_pages = blocks_per_replica(self.scenario)
        model = self._model(num_pages)
        host = host_cost(model, self.scenario.scheduler.token_budget // 2)
        graphs = PiecewiseGraphs(model)
        if self.device.is_cuda:
            graphs.prepare(self.scenario.scheduler.token_budget)
        scenario = self.scenario
        if self.job.deadline_s is not None:
            scenario = scenario.with_({"until_s": self.job.deadline_s})
        workload = build_workload(scenario.workload, self.job.seed)
        self.progress(f"serving {len(workload)} requests in real time")
        engine = LiveEngine(model, build_scheduler(scenario, num_pages), graphs.forward)
        engine.serve(list(within_limit(workload, engine.reject)), scenario.until_s)
        predicted = HostTimed(self.latency, host)
        measured = [
            Measured(item.shape, predicted.stage_time_s(item.shape, 0), item.total_s)
            for item in engine.iterations
        ]
        simulated = simulate(scenario, self.job.seed, workload=workload, latency=predicted)
        for result in (live := engine.result(scenario, num_pages), simulated):
            if not result.requests_completed:
                raise InfeasibleError("no request finished before the end of the live run")
        return self._report(measured, live, simulated, host)

    def _model(self, num_pages: int) -> Transformer:
        from profiler.model import Transformer

        return Transformer(self.spec, self.device, self.backend, self.dtype, num_pages, self.page_size)

    def _predicted_s(self, shape: BatchShape) -> float:
        return self.latency.stage_time_s(shape, 0)

    def _report(
        self,
        measured: Sequence[Measured],
        live: Result | None = None,
        simulated: Result | None = None,
        host: HostCost | None = None,
    ) -> ReplayReport:
        return ReplayReport(
            scenario=self.scenario.name or "",
            mode=self.job.mode,
            device=self.device.name,
            backend=self.backend.name,
            iterations=tuple(measured),
            notes=self.latency.notes,
            live=live,
            simulated=simulated,
            host=host,
        )


class ShapeSteps:
    """Turns batch shapes into steps of a model, on random pages of its cache."""

    def __init__(self, model: Transformer, seed: int = 0) -> None:
        self._model = model
        self._rng = np.random.default_rng(seed)

    def prepare(self, shape: BatchShape) -> tuple[StepInputs, Run]:
        """The inputs and the planned attention of an iteration of that shape."""
        return self.planner(shape)()

    def planner(self, shape: BatchShape) -> Callable[[], tuple[StepInputs, Run]]:
        """What the host does for an iteration of that shape once it knows its sequences and pages."""
        model = self._model
        q_lens, kv_lens = _lengths(shape)
        samples = np.arange(len(q_lens)) < shape.num_sampled
        batch = model.batch(q_lens, kv_lens)
        table = page_table(batch.pages, model.num_pages, self._rng)

        def plan() -> tuple[StepInputs, Run]:
            inputs = model.inputs(batch, table, samples)
            return inputs, model.plan(inputs)

        return plan


def host_cost(model: Transformer, chunk_tokens: int) -> HostCost:
    """What the host of a replay does before it launches an iteration, measured behind forward passes."""
    one = _host_s(model, BatchShape.of(decode_kv=(_HOST_KV_TOKENS,)))
    many = _host_s(model, BatchShape.of(decode_kv=(_HOST_KV_TOKENS,) * _HOST_DECODES))
    chunk = _host_s(model, BatchShape.of(chunks=(Chunk(chunk_tokens, chunk_tokens),), prompts_ended=1))
    per_sequence = max(0.0, (many - one) / (_HOST_DECODES - 1))
    return HostCost(max(0.0, one - per_sequence), per_sequence, max(0.0, chunk - one))


def _host_s(model: Transformer, shape: BatchShape) -> float:
    plan = ShapeSteps(model).planner(shape)
    return CpuClock(between=partial(model.forward, *plan())).measure([plan]).median_us * 1e-6


def _lengths(shape: BatchShape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Query and KV lengths of a batch of that shape, decodes first."""
    decodes: tuple[int, ...] = ()
    if shape.num_decodes:
        decodes = spread_lengths(shape.num_decodes, shape.decode_kv_tokens, shape.decode_kv_max)
    chunks = tuple(chunk.tokens for chunk in shape.chunks)
    wholes = tuple(chunk.tokens + chunk.prefix for chunk in shape.chunks)
    return (1,) * len(decodes) + chunks, decodes + wholes


def _pages_of(shape: BatchShape, page_size: int) -> int:
    return sum(-(-kv_len // page_size) for kv_len in _lengths(shape)[1])
