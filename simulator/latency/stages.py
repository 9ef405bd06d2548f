"""The time of a pipeline stage, put together out of kernels and compiled into lookup tables.

A prediction reads three to five table entries. What depends on the number of tokens alone (matrix products,
norms, collectives) is one entry, exact at every integer, since tile steps matter there. Attention adds up:
decodes count at their mean length, and several chunks count as one with as many query-key pairs.
"""

from __future__ import annotations

from functools import partial
from math import sqrt

import numpy as np

from simulator.batch import BatchShape, Chunk
from simulator.hardware import ClusterSpec, EngineSpec, ModelSpec
from simulator.latency.kernels import Array, Kernels
from simulator.latency.lookup import IntegerTable, SurfaceTable
from simulator.latency.mixed import MixedRatio
from simulator.latency.parts import ModelParts, StageRole


class KernelLatency:
    """Latency model of one deployment: kernels of its GPU, layers of its stages, links, and host time."""

    def __init__(
        self,
        model: ModelSpec,
        kernels: Kernels,
        cluster: ClusterSpec,
        engine: EngineSpec,
        tensor: int = 1,
        pipeline: int = 1,
    ) -> None:
        self.num_stages = pipeline
        self.num_queries = 0
        self.num_extrapolated = 0
        parts = ModelParts(model, kernels, cluster, tensor, pipeline)
        self.notes = kernels.notes + parts.notes
        self._parts = parts
        self._roles = _stage_roles(model, pipeline)
        dense = {role: IntegerTable(partial(self._dense_s, role)) for role in self._roles}
        head = IntegerTable(parts.head_s)
        self._stages = [
            (role.num_layers, dense[role], head if role.is_last else None) for role in self._roles
        ]
        self._hop = IntegerTable(parts.hop_s)
        self._decode_s = SurfaceTable(parts.decode_s).at
        self._prefill_s = SurfaceTable(parts.prefill_s).at
        self._mixed_ratio = MixedRatio(parts.mixed_ratio).at if parts.mixed_measured else None
        self._last_shape: BatchShape | None = None
        self._layer_attention_s = 0.0
        self._is_extrapolated = False
        self._uneven_slowdown = parts.uneven_slowdown
        self._decode_slowdown = 1 / engine.decode_bandwidth_scale
        self._host_fixed_s = engine.host_fixed_us * 1e-6
        self._host_per_seq_s = engine.host_per_seq_us * 1e-6
        self._host_hidden = engine.asynchronous
        measured = parts.attention_range
        self._max_tokens = parts.max_tokens
        self._max_decodes, self._max_kv = measured.max_num_decodes, measured.max_kv
        self._max_chunk, self._max_prefix = measured.max_chunk, measured.max_prefix

    def stage_time_s(self, shape: BatchShape, stage: int) -> float:
        """Seconds of a stage: its kernels, and the host time that they do not hide."""
        # The innermost call of a simulation: written flat, since each further call would cost a tenth of it.
        chunks, decodes, kv_tokens, kv_squares, kv_max, sampled, tokens = shape
        layers, dense, head = self._stages[stage]
        if shape is not self._last_shape:  # the stages of a pipeline are asked for the same one in turn
            self._last_shape = shape
            chunk, prefix = merged(chunks) if chunks else (0, 0)
            self._layer_attention_s = self._attention_s(chunk, prefix, decodes, kv_tokens, kv_squares, kv_max)
            self._is_extrapolated = (
                tokens > self._max_tokens
                or decodes > self._max_decodes
                or kv_tokens > self._max_kv * decodes
                or chunk > self._max_chunk
                or prefix > self._max_prefix
                or (len(chunks) > 1 and self._leave_range(chunks))
            )
        device_s = dense[tokens] + layers * self._layer_attention_s
        if sampled and head is not None:
            device_s += head[sampled]
        self.num_queries += 1
        if self._is_extrapolated:
            self.num_extrapolated += 1
        host_s = self._host_fixed_s + self._host_per_seq_s * (decodes + len(chunks))
        if self._host_hidden:
            return device_s if device_s > host_s else host_s
        return device_s + host_s

    def _attention_s(
        self, chunk: int, prefix: int, decodes: int, kv_tokens: int, kv_squares: int, kv_max: int
    ) -> float:
        """One layer: the chunks as one, and the decodes at their mean length, slowed down by unequal ones."""
        if not decodes:
            return self._prefill_s(chunk, prefix) if chunk else 0.0
        kv_mean = kv_tokens // decodes
        attention_s = self._decode_s(decodes, kv_mean) * self._decode_slowdown
        if chunk:
            attention_s += self._prefill_s(chunk, prefix)
            if self._mixed_ratio is not None:
                attention_s *= self._mixed_ratio(chunk, prefix, decodes, kv_mean)
        if self._uneven_slowdown is not None:
            attention_s *= self._uneven_slowdown(chunk, prefix, decodes, kv_tokens, kv_squares, kv_max)
        return attention_s

    def _leave_range(self, chunks: tuple[Chunk, ...]) -> bool:
        max_chunk, max_prefix = self._max_chunk, self._max_prefix
        for tokens, prefix in chunks:  # noqa: SIM110 (any() costs three times as much)
            if tokens > max_chunk or prefix > max_prefix:
                return True
        return False

    def hop_time_s(self, num_tokens: int) -> float:
        """Seconds to send the activations of that many tokens to the next stage."""
        return self._hop[num_tokens] if self.num_stages > 1 else 0.0

    def breakdown(self, shape: BatchShape, stage: int) -> dict[str, float]:
        """Seconds by part; `host` is the host time that the device does not hide."""
        role = self._roles[stage]
        tokens = np.array([float(shape.num_tokens)])
        parts = {name: float(value[0]) for name, value in self._parts.token_parts(tokens, role).items()}
        chunk, prefix = merged(shape.chunks) if shape.chunks else (0, 0)
        attention_s = self._attention_s(chunk, prefix, *shape[1:5])
        parts["attention"] = role.num_layers * attention_s
        sampled = np.array([float(shape.num_sampled)])
        parts["head"] = float(self._parts.head_s(sampled)[0]) if role.is_last and shape.num_sampled else 0.0
        device_s = sum(parts.values())
        host_s = self._host_fixed_s + self._host_per_seq_s * (shape.num_decodes + len(shape.chunks))
        parts["host"] = max(0.0, host_s - device_s) if self._host_hidden else host_s
        return parts

    def _dense_s(self, role: StageRole, tokens: Array) -> Array:
        return sum(self._parts.token_parts(tokens, role).values(), np.zeros_like(tokens))


def _stage_roles(model: ModelSpec, pipeline: int) -> list[StageRole]:
    layers = model.layers_per_stage(pipeline)
    return [StageRole(count, i == 0, i == pipeline - 1) for i, count in enumerate(layers)]


def merged(chunks: tuple[Chunk, ...]) -> tuple[int, int]:
    """Tokens and prefix of one chunk in place of several: sqrt(sum of squares), and as many query-key pairs.

    Independent chunks that start a prompt then make a chunk without a prefix.
    """
    if len(chunks) == 1:
        return chunks[0]
    squares = with_prefix = 0
    for tokens, prefix in chunks:
        squares += tokens * tokens
        with_prefix += tokens * prefix
    size = round(sqrt(squares))
    return size, round((with_prefix + squares / 2) / size - size / 2)
