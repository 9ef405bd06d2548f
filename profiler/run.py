"""The profiling job: gate, measure block by block, append every row as it is measured, stop at the deadline.

Rows are flushed one by one, so that a deadline, Ctrl-C or a killed process loses none; a resumed job measures
only what the table lacks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from profiler.device import Device, gpu_preset, open_device, require_torch
from profiler.environment import ConditionsLog, driver_version, library_versions, machine_facts
from profiler.grid import GRIDS, Block, model_grid
from profiler.rotation import num_copies, rotated_bytes
from profiler.tables import META_FILE, OPS, KernelRow, RowKey, TableMeta, TableWriter, row_key
from profiler.timing import CpuClock, Timing, clock_for
from simulator.errors import ConfigError, suggest

if TYPE_CHECKING:
    from profiler.bench import Bench
    from profiler.kernels.attention import AttentionBackend
    from profiler.timing import Clock
    from simulator.hardware import ModelSpec

COLLECTIVES = ("all_reduce", "send_recv")
_ANCHOR_EVERY = 100
_PREHEAT_S = {"cuda": 3.0, "cpu": 0.3}
_MEMORY_SHARE = 0.6
_PROTOCOL = {
    "cuda": "CUDA graphs of n calls between events, 7 replays, median; copies rotated; random order",
    "cpu": "single calls, an untimed layer before each, 15 samples, median; copies rotated; random order",
}
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ProfileJob:
    """What to measure, where, and how long at most."""

    model: ModelSpec
    out: Path
    tensor_parallel: tuple[int, ...] = (1,)
    device: str = "cuda"
    gpu: str = ""
    """Name of the GPU preset that the table is of; empty: found from the device's name."""
    attention: str = "auto"
    page_size: int = 16
    dtype: str = ""
    """Empty: the model's on a GPU, fp32 on a CPU."""
    grid: str = ""
    """full or small; empty: full on a GPU, small on a CPU."""
    ops: tuple[str, ...] = ()
    """Only these ops; empty: all."""
    max_len: int | None = None
    """Longest sequence; None: the model's."""
    passes: int = 2
    deadline_s: float | None = None
    resume: bool = False

    @property
    def on_cuda(self) -> bool:
        """Whether the device is named as a GPU; needs no torch."""
        return self.device.startswith("cuda")

    @property
    def kind(self) -> str:
        """cuda or cpu."""
        return "cuda" if self.on_cuda else "cpu"

    @property
    def table_dtype(self) -> str:
        """The dtype that is measured: CPUs without bf16 units would make nonsense of the model's."""
        return self.dtype or (self.model.dtype if self.on_cuda else "fp32")

    def blocks(self) -> list[Block]:
        """The grid in order of priority; ConfigError for an unknown grid or a TP that does not divide."""
        name = self.grid or ("full" if self.on_cuda else "small")
        if name not in GRIDS:
            raise ConfigError(f"--grid: unknown grid {name!r}{suggest(name, GRIDS)}")
        blocks = model_grid(
            self.model,
            self.tensor_parallel,
            GRIDS[name],
            self.table_dtype,
            longest=self.max_len or self.model.max_position_embeddings,
            passes=self.passes,
        )
        if not self.ops:
            return blocks
        for op in self.ops:
            if op not in OPS:
                raise ConfigError(f"--ops: unknown operator {op!r}{suggest(op, OPS)}")
        kept = (Block(block.name, tuple(p for p in block.points if p.op in self.ops)) for block in blocks)
        return [block for block in kept if block.points]


@dataclass(frozen=True)
class ProfileReport:
    """What a job has done: rows of this run, rows that were there, points skipped and left."""

    out: Path
    backend: str
    gate_errors: dict[str, float]
    measured: int = 0
    present: int = 0
    skipped: int = 0
    """Points that do not fit the device's memory, or need more GPUs than there are."""
    remaining: int = 0
    seconds: float = 0.0


def profile(job: ProfileJob, progress: Progress = lambda line: None) -> ProfileReport:
    """Measure a job's grid into its table folder; raises a StallfreeError before anything is measured."""
    require_torch()
    from profiler.bench import Bench
    from profiler.kernels.gate import gate_batches, pass_gate
    from profiler.kernels.registry import open_backend

    started = time.monotonic()
    blocks = job.blocks()
    _check_folder(job)
    device = open_device(job.device)
    backend = open_backend(job.attention, device)
    backend.check(job.page_size)
    heads = next((point for block in blocks for point in block.points if point.op == "attention"), None)
    errors: dict[str, float] = {}
    if heads is not None:
        page_size = backend.table_page_size(job.page_size)
        shape = (heads.q_heads, heads.kv_heads, heads.head_dim)
        errors = pass_gate(backend, gate_batches(*shape, page_size, job.table_dtype, heads.window))
        progress(f"gate: {backend.name} agrees with float32, " + _percentages(errors))
    bench = Bench(job.model, device, backend, job.page_size, job.table_dtype)
    with TableWriter(job.out, _meta(job, device, backend, errors)) as writer:
        run = _Run(job, device, bench, writer, progress, started)
        run.measure(blocks)
    return replace(run.report, backend=backend.name, gate_errors=errors, seconds=time.monotonic() - started)


def _check_folder(job: ProfileJob) -> None:
    if (job.out / META_FILE).exists() and not job.resume:
        raise ConfigError(f"--out {job.out}: holds a table already; --resume goes on with it")


def _percentages(errors: dict[str, float]) -> str:
    return ", ".join(f"{name} {error:.2%}" for name, error in errors.items())


def _meta(job: ProfileJob, device: Device, backend: AttentionBackend, errors: dict[str, float]) -> TableMeta:
    return TableMeta(
        device=job.gpu or (gpu_preset(device.name) if device.is_cuda else "cpu"),
        driver=driver_version(device),
        libraries=library_versions(backend),
        backend=backend.name,
        page_size=backend.table_page_size(job.page_size),
        kv_write="excluded",
        protocol=_PROTOCOL[job.kind],
        source="measured by stallfree profile",
        notes=(f"attention: {backend.policy}", f"model shapes: {job.model.name}"),
        environment={
            **machine_facts(device),
            "dtype": job.table_dtype,
            "gate_relative_error": {name: float(f"{error:.3g}") for name, error in errors.items()},
        },
    )


@dataclass
class _Run:
    """The state of a job while it measures."""

    job: ProfileJob
    device: Device
    bench: Bench
    writer: TableWriter
    progress: Progress
    started: float
    report: ProfileReport = field(init=False)
    clock: Clock = field(init=False)
    done: set[RowKey] = field(init=False)

    def __post_init__(self) -> None:
        self.clock = clock_for(self.device, None if self.device.is_cuda else self.bench.layer())
        self.done = self.writer.existing_keys()
        self.report = ProfileReport(self.job.out, "", {}, present=len(self.done))
        self._host_clock = CpuClock() if self.device.is_cuda else self.clock
        self._conditions = ConditionsLog(self.job.out, self.device)
        self._rng = np.random.default_rng(len(self.done))

    def measure(self, blocks: list[Block]) -> None:
        """Measure what the table lacks, block by block."""
        todo = [Block(name, self._missing(points)) for name, points in blocks]
        total = sum(len(points) for _, points in todo)
        try:
            self._preheat()
            for name, points in todo:
                began, before = time.monotonic(), self.report.measured
                if points and not self._block(name, points):
                    break
                count = self.report.measured - before
                self.progress(f"{name}: {count} points in {time.monotonic() - began:.1f} s")
        finally:
            remaining = total - self.report.measured - self.report.skipped
            self.report = replace(self.report, remaining=remaining)
            if remaining:
                self.progress(f"{remaining} points are left; --resume goes on where this run stopped")

    def _missing(self, points: tuple[KernelRow, ...]) -> tuple[KernelRow, ...]:
        return tuple(point for point in points if row_key(point) not in self.done)

    def _block(self, name: str, points: tuple[KernelRow, ...]) -> bool:
        """Measure a block's points in random order; False when the deadline has passed."""
        singles = [point for point in points if point.op not in COLLECTIVES]
        for number, index in enumerate(self._rng.permutation(len(singles))):
            if self._deadline_passed():
                return False
            if number % _ANCHOR_EVERY == 0:
                self._note_conditions(name)
            self._measure(singles[index])
        for world_size, group in _by_world_size(points):
            if self._deadline_passed():
                return False
            self._collectives(world_size, group)
        return True

    def _measure(self, point: KernelRow) -> None:
        import torch

        if self._too_large(point):
            self._skip(1)
            return
        clock = self._host_clock if point.op == "host" else self.clock
        try:
            with torch.inference_mode():
                timing = clock.measure(self.bench.calls(point))
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            self._skip(1)
        else:
            self._append(point, timing)

    def _collectives(self, world_size: int, points: list[KernelRow]) -> None:
        import torch

        from profiler.kernels.collectives import measure_collectives

        if self.device.is_cuda and torch.cuda.device_count() < world_size:
            self.progress(f"{len(points)} collectives need {world_size} GPUs: skipped")
            self._skip(len(points))
            return
        measure_collectives(points, world_size, self.device.is_cuda, self._append)

    def _append(self, point: KernelRow, timing: Timing) -> None:
        flags = ";".join(word for word in (point.flags, timing.flags) if word)
        self.writer.append(
            replace(
                point,
                latency_us=timing.median_us,
                p10_us=timing.p10_us,
                p90_us=timing.p90_us,
                num_samples=timing.num_samples,
                flags=flags,
            )
        )
        self.report = replace(self.report, measured=self.report.measured + 1)

    def _skip(self, count: int) -> None:
        self.report = replace(self.report, skipped=self.report.skipped + count)

    def _too_large(self, point: KernelRow) -> bool:
        copies = num_copies(point, self.job.model, self.device.cache_bytes)
        return rotated_bytes(point) * copies > _MEMORY_SHARE * self.device.memory_bytes

    def _deadline_passed(self) -> bool:
        deadline = self.job.deadline_s
        return deadline is not None and time.monotonic() - self.started > deadline

    def _preheat(self) -> None:
        gemm, _ = self.bench.anchors()
        self.clock.preheat(gemm, _PREHEAT_S[self.job.kind])

    def _note_conditions(self, block: str) -> None:
        gemm, copy = (self.clock.measure([anchor]).median_us for anchor in self.bench.anchors())
        self._conditions.note(block, self.report.measured, gemm, copy)


def _by_world_size(points: tuple[KernelRow, ...]) -> Iterator[tuple[int, list[KernelRow]]]:
    collectives = [point for point in points if point.op in COLLECTIVES]
    for world_size in sorted({point.world_size for point in collectives}):
        yield world_size, [point for point in collectives if point.world_size == world_size]
