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
from profiler.grid import Block
from profiler.job import ProfileJob
from profiler.rotation import num_copies, rotated_bytes
from profiler.tables import META_FILE, KernelRow, RowKey, TableMeta, TableWriter, row_key
from profiler.timing import CpuClock, Timing, clock_for
from simulator.errors import ConfigError
from simulator.latency.kernels import AttentionHeads

if TYPE_CHECKING:
    from profiler.bench import Bench
    from profiler.kernels.attention import AttentionBackend
    from profiler.timing import Clock

COLLECTIVES = ("all_reduce", "send_recv")
_ANCHOR_EVERY = 100
_PREHEAT_S = {"cuda": 3.0, "cpu": 0.3}
_MEMORY_SHARE = 0.6
_PROTOCOL = {
    "cuda": "CUDA graphs of n calls between events, 7 replays, median; copies rotated; random order",
    "cpu": "single calls, an untimed layer before each, 15 samples, median; copies rotated; random order",
}
Progress = Callable[[str], None]


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
    from profiler.kernels.registry import open_backend

    started = time.monotonic()
    job.check()
    blocks = job.blocks()
    _check_folder(job)
    device = open_device(job.device)
    backend = open_backend(job.attention, device)
    backend.check(job.page_size)
    errors = _pass_gates(job, backend, blocks)
    if errors:
        progress(f"gate: {backend.name} agrees with float32, worst case {max(errors.values()):.2%}")
    bench = Bench(job.model, device, backend, job.page_size, job.table_dtype)
    with TableWriter(job.out, _meta(job, device, backend, bench.elementwise, errors)) as writer:
        run = _Run(job, device, bench, writer, progress, started)
        run.measure(blocks)
    return replace(run.report, backend=backend.name, gate_errors=errors, seconds=time.monotonic() - started)


def _check_folder(job: ProfileJob) -> None:
    if (job.out / META_FILE).exists() and not job.resume:
        raise ConfigError(f"--out {job.out}: holds a table already; --resume goes on with it")


def _pass_gates(job: ProfileJob, backend: AttentionBackend, blocks: list[Block]) -> dict[str, float]:
    """The largest error of each kind of batch over all heads of the grid; GateError beyond the tolerance."""
    from profiler.kernels.gate import gate_batches, pass_gate

    points = (point for block in blocks for point in block.points if point.op == "attention")
    shapes = {AttentionHeads(p.q_heads, p.kv_heads, p.head_dim, p.window or None) for p in points}
    page_size = backend.table_page_size(job.page_size)
    worst: dict[str, float] = {}
    for heads in sorted(shapes, key=str):
        for name, error in pass_gate(backend, gate_batches(heads, page_size, job.table_dtype)).items():
            worst[name] = max(error, worst.get(name, 0.0))
    return worst


def _meta(
    job: ProfileJob, device: Device, backend: AttentionBackend, elementwise: str, errors: dict[str, float]
) -> TableMeta:
    return TableMeta(
        device=job.gpu or (gpu_preset(device.name) if device.is_cuda else "cpu"),
        driver=driver_version(device),
        libraries=library_versions(backend),
        backend=backend.name,
        page_size=backend.table_page_size(job.page_size),
        kv_write="excluded",
        protocol=_PROTOCOL[job.kind],
        source="measured by stallfree profile",
        notes=(f"attention: {backend.policy}", f"elementwise: {elementwise}"),
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
