"""How long a profiling run will take, by roofline and overhead: what `--dry-run` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from profiler.device import gpu_preset, open_device
from profiler.grid import Block
from profiler.rotation import num_copies
from profiler.tables import KernelRow
from profiler.timing import calls_per_sample
from simulator.errors import ConfigError
from simulator.hardware import ClusterSpec, GPUSpec, ModelSpec
from simulator.latency.kernels import AttentionHeads
from simulator.latency.roofline import RooflineKernels
from simulator.load import load_cluster, load_gpu

if TYPE_CHECKING:
    from profiler.job import ProfileJob

POINT_OVERHEAD_S = {"cuda": 0.05, "cpu": 0.001}
"""Making the inputs of a point and capturing its graph: between the 20 and 100 ms expected of a GPU."""
_HOST_S = 100e-6
_RUNS = 8  # one to warm and seven samples


@dataclass(frozen=True, slots=True)
class BlockEstimate:
    """A block of the grid: how many points, how many seconds."""

    name: str
    points: int
    seconds: float


def dry_run(job: ProfileJob) -> tuple[str, list[BlockEstimate]]:
    """The GPU preset that a job would measure and its blocks' times; needs neither torch nor a device.

    Raises ConfigError for what the run itself would refuse on any machine, and where the GPU can be told from
    nothing.
    """
    job.check()
    name = job.gpu or (_gpu_here(job.device) if job.on_cuda else "cpu")
    gpu = load_gpu(name)
    return name, estimate(job.blocks(), job.model, gpu, load_cluster(gpu.cluster), job.kind)


def _gpu_here(device: str) -> str:
    try:
        return gpu_preset(open_device(device).name)
    except ConfigError as error:
        raise ConfigError(f"--dry-run: name the GPU with --gpu (stallfree list gpus): {error}") from None


def estimate(
    blocks: Sequence[Block], model: ModelSpec, gpu: GPUSpec, cluster: ClusterSpec, kind: str
) -> list[BlockEstimate]:
    """Points and expected seconds of each block on a GPU (`kind` cuda) or a CPU."""
    kernels = RooflineKernels(gpu)
    overhead_s = POINT_OVERHEAD_S[kind]
    cache_bytes = int(gpu.l2_mib * 2**20)

    def seconds(point: KernelRow) -> float:
        call_s = _call_s(point, kernels, cluster)
        copies = num_copies(point, model, cache_bytes)
        return overhead_s + call_s * (2 * copies + _RUNS * calls_per_sample(call_s * 1e6, copies))

    return [
        BlockEstimate(name, len(points), sum(seconds(point) for point in points)) for name, points in blocks
    ]


def _call_s(point: KernelRow, kernels: RooflineKernels, cluster: ClusterSpec) -> float:
    """Roofline seconds of one call."""
    if point.op == "gemm":
        return _scalar(kernels.gemm_s(_array(point.m), point.n, point.k))
    if point.op == "attention":
        return _attention_s(point, kernels)
    if point.op == "host":
        return _HOST_S
    message = _array(point.message_bytes)
    if point.op == "all_reduce":
        return _scalar(kernels.all_reduce_s(message, point.world_size, cluster.link(point.world_size)))
    if point.op == "send_recv":
        return _scalar(kernels.send_recv_s(message, cluster.link(2)))
    return _scalar(kernels.elementwise_s(point.op, _array(point.m), point.width))


def _attention_s(point: KernelRow, kernels: RooflineKernels) -> float:
    heads = AttentionHeads(point.q_heads, point.kv_heads, point.head_dim, point.window or None)
    total = 0.0
    if point.num_chunks:
        chunk, prefix = _array(point.chunk_tokens), _array(point.prefix_tokens)
        total += point.num_chunks * _scalar(kernels.prefill_attention_s(chunk, prefix, heads))
    if point.num_decodes:
        mean = _array(point.decode_kv_tokens / point.num_decodes)
        total += _scalar(kernels.decode_attention_s(_array(point.num_decodes), mean, heads))
    return total


def _array(value: float) -> np.ndarray:
    return np.array([float(value)])


def _scalar(values: np.ndarray) -> float:
    return float(values[0])
