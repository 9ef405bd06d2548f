"""All-reduce and point-to-point messages over torch.distributed: NCCL between GPUs, gloo between processes.

Every rank is a process of its own; rank 0 reports the slowest rank's time. Engines that bring their own
all-reduce for small messages are faster there than NCCL, which is what this measures.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty
from typing import TYPE_CHECKING, Any, NamedTuple

from profiler.device import BYTES, torch_dtype
from profiler.timing import Timing

if TYPE_CHECKING:
    from profiler.tables import KernelRow

_CALLS = 20
_SAMPLES = 7


class Group(NamedTuple):
    """The processes that take part."""

    world_size: int
    cuda: bool


def measure_collectives(
    points: Sequence[KernelRow], world_size: int, cuda: bool, on_timing: Callable[[KernelRow, Timing], None]
) -> None:
    """Measure all-reduce and send_recv points of one group size, reporting each as it is done."""
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    queue = context.Queue()
    address = f"tcp://127.0.0.1:{_free_port()}"
    ranks = mp.spawn(
        _rank, (list(points), Group(world_size, cuda), address, queue), nprocs=world_size, join=False
    )
    for point in points:
        on_timing(point, _next(queue, ranks))
    while not ranks.join():
        pass


def _next(queue: Any, ranks: Any) -> Timing:
    """The next timing of rank 0; a rank that has failed raises here."""
    while True:
        try:
            timing: Timing = queue.get(timeout=0.2)
        except Empty:
            ranks.join(timeout=0)
        else:
            return timing


def _rank(rank: int, points: list[KernelRow], group: Group, address: str, queue: Any) -> None:
    import torch
    import torch.distributed as dist

    if group.cuda:
        torch.cuda.set_device(rank)
    backend, own = ("nccl", {"device_id": torch.device("cuda", rank)}) if group.cuda else ("gloo", {})
    dist.init_process_group(backend, init_method=address, world_size=group.world_size, rank=rank, **own)
    try:
        for point in points:
            timing = _time(point, rank, group)
            if rank == 0:
                queue.put(timing)
    finally:
        dist.destroy_process_group()


def _time(point: KernelRow, rank: int, group: Group) -> Timing:
    import torch

    device = torch.device("cuda", rank) if group.cuda else torch.device("cpu")
    size = max(1, point.message_bytes // BYTES[point.dtype])
    message = torch.randn(size, dtype=torch_dtype(point.dtype), device=device)
    call = _all_reduce(message) if point.op == "all_reduce" else _send_recv(message, rank)
    run = _captured(call) if group.cuda else partial(_repeat, call)
    _sample_us(run, group, device)
    return Timing.of([_sample_us(run, group, device) for _ in range(_SAMPLES)])


def _captured(call: Callable[[], None]) -> Callable[[], None]:
    """Calls in a CUDA graph: launching each of them by itself would take longer than a small message."""
    import torch

    call()  # opens the connections, which a capture cannot
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # NCCL's watchdog thread queries events meanwhile, which only this mode permits.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        _repeat(call)
    return lambda: graph.replay()


def _all_reduce(message: Any) -> Callable[[], None]:
    import torch.distributed as dist

    def call() -> None:
        dist.all_reduce(message, op=dist.ReduceOp.MAX)  # a sum would run to infinity

    return call


def _send_recv(message: Any, rank: int) -> Callable[[], None]:
    """Rank 0 sends, rank 1 receives, the others look on."""
    import torch.distributed as dist

    def call() -> None:
        if rank == 0:
            dist.send(message, dst=1)
        elif rank == 1:
            dist.recv(message, src=0)

    return call


def _sample_us(run: Callable[[], None], group: Group, device: Any) -> float:
    """Microseconds of one call, the slowest rank's, over calls in a row."""
    import torch
    import torch.distributed as dist

    dist.barrier()
    elapsed_us = _cuda_us(run) if group.cuda else _wall_us(run)
    slowest = torch.tensor([elapsed_us / _CALLS], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest.item())


def _cuda_us(run: Callable[[], None]) -> float:
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def _wall_us(run: Callable[[], None]) -> float:
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1e6


def _repeat(call: Callable[[], None]) -> None:
    for _ in range(_CALLS):
        call()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
