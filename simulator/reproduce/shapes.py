"""Batches as the micro-measurements describe them, and how long a deployment takes for one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from simulator.batch import BatchShape, Chunk
from simulator.config import Scenario
from simulator.search.inputs import latency_of
from simulator.search.rules import iteration_s


def batch(chunks: Iterable[Chunk] = (), decodes: int = 0, kv: int = 0) -> BatchShape:
    """Chunks, of which none ends its prompt, beside decodes that attend `kv` tokens each."""
    return BatchShape.of(tuple(chunks), (kv,) * decodes)


def cut(prompt: int, size: int) -> Iterator[Chunk]:
    """A prompt in chunks."""
    return (Chunk(min(size, prompt - start), start) for start in range(0, prompt, size))


def batch_s(scenario: Scenario, shape: BatchShape) -> float:
    """Seconds from launch to last stage of one iteration on an idle deployment."""
    return iteration_s(latency_of(scenario), shape)


def prefill_s(scenario: Scenario, prompt: int, size: int | None = None) -> float:
    """Seconds to prefill a prompt that is alone, whole or in chunks of a size."""
    return sum(batch_s(scenario, batch([chunk])) for chunk in cut(prompt, size or prompt))
