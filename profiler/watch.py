"""Latency models around another one: one that remembers what it was asked, one that adds host time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profiler.replay_report import COMPOSITIONS, composition

if TYPE_CHECKING:
    from simulator.batch import BatchShape
    from simulator.latency.model import LatencyModel


class PassedOn:
    """A latency model that gives the answers of the one behind it."""

    def __init__(self, latency: LatencyModel) -> None:
        self.num_stages = latency.num_stages
        self.num_queries = latency.num_queries
        self.num_extrapolated = latency.num_extrapolated
        self.notes = latency.notes
        self._latency = latency

    def stage_time_s(self, shape: BatchShape, stage: int) -> float:
        """The model's answer."""
        seconds = self._latency.stage_time_s(shape, stage)
        self.num_queries = self._latency.num_queries
        self.num_extrapolated = self._latency.num_extrapolated
        return seconds

    def hop_time_s(self, num_tokens: int) -> float:
        """The model's answer."""
        return self._latency.hop_time_s(num_tokens)

    def breakdown(self, shape: BatchShape, stage: int) -> dict[str, float]:
        """The model's answer."""
        return self._latency.breakdown(shape, stage)


class ShapeSampler(PassedOn):
    """Keeps a random sample of the iterations that were asked for, at most `size` of each composition."""

    def __init__(self, latency: LatencyModel, size: int, seed: int = 0) -> None:
        super().__init__(latency)
        self._kept: dict[str, list[BatchShape]] = {name: [] for name in COMPOSITIONS}
        self._seen = dict.fromkeys(COMPOSITIONS, 0)
        self._size = size
        self._rng = np.random.default_rng(seed)

    def stage_time_s(self, shape: BatchShape, stage: int) -> float:
        """The model's answer; every iteration of a composition has the same chance to be kept."""
        name = composition(shape)
        kept = self._kept[name]
        self._seen[name] += 1
        if len(kept) < self._size:
            kept.append(shape)
        elif (place := int(self._rng.integers(self._seen[name]))) < self._size:
            kept[place] = shape
        return super().stage_time_s(shape, stage)

    def sample(self, count: int) -> list[BatchShape]:
        """About `count` iterations in random order: each composition by its share, but at least a tenth."""
        total = sum(self._seen.values())
        drawn: list[BatchShape] = []
        for name, kept in self._kept.items():
            wanted = max(round(count * self._seen[name] / total), count // 10, 1)
            order = self._rng.permutation(len(kept))[:wanted]
            drawn += [kept[i] for i in order]
        return [drawn[i] for i in self._rng.permutation(len(drawn))]


class HostCost(NamedTuple):
    """Seconds of host work: for an iteration, for each sequence in it, and for each chunk on top."""

    fixed_s: float
    per_sequence_s: float
    per_chunk_s: float

    def seconds(self, shape: BatchShape) -> float:
        """Host time of an iteration."""
        chunks = len(shape.chunks)
        return self.fixed_s + self.per_sequence_s * (shape.num_decodes + chunks) + self.per_chunk_s * chunks


class HostTimed(PassedOn):
    """Adds the host time of this machine's own replay loop to every iteration."""

    def __init__(self, latency: LatencyModel, host: HostCost) -> None:
        super().__init__(latency)
        self._host = host

    def stage_time_s(self, shape: BatchShape, stage: int) -> float:
        """Device time, then host time."""
        return super().stage_time_s(shape, stage) + self._host.seconds(shape)

    def breakdown(self, shape: BatchShape, stage: int) -> dict[str, float]:
        """The model's parts and the host."""
        return {**super().breakdown(shape, stage), "host": self._host.seconds(shape)}
