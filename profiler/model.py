"""A transformer of a model's real shape with random weights and a paged KV cache: what a replay runs.

It is made of the very functions that the profiler measures. Its answers mean nothing; its time is that of the
model. One GPU, no tensor or pipeline parallelism.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from profiler.device import torch_dtype
from profiler.kernels.batch import AttnBatch, IntArray, slots_of
from profiler.kernels.elementwise import Elementwise, embed, rope_table
from profiler.kernels.linear import linear
from profiler.kernels.paged import AttnStep, KVPool, attn_step, pool_shape

if TYPE_CHECKING:
    from profiler.device import Device
    from profiler.kernels.attention import AttentionBackend, Run
    from simulator.hardware import ModelSpec

_WEIGHT_SCALE = 0.02


@dataclass(frozen=True, slots=True)
class StepInputs:
    """One iteration's tensors: token ids, positions and cache slots, and the rows that sample."""

    attn: AttnStep
    tokens: Any
    positions: Any
    slots: Any
    sampled: Any


@dataclass(frozen=True, slots=True)
class _Layer:
    qkv: Any
    qkv_bias: Any
    out: Any
    up: Any
    down: Any
    input_norm: Any
    inner_norm: Any
    head_norm: Any
    pool: KVPool


def step_inputs(
    batch: AttnBatch, table: IntArray, samples: npt.NDArray[np.bool_], vocab_size: int, device: Any
) -> StepInputs:
    """The tensors of a batch whose sequence i samples a token where `samples[i]`; token ids are arbitrary."""
    positions = batch.positions()
    last_rows = np.cumsum(batch.q_lens) - 1

    def move(array: npt.NDArray[Any]) -> Any:
        return torch.from_numpy(array.astype(np.int64)).to(device, non_blocking=True)

    return StepInputs(
        attn=attn_step(batch, table, device),
        tokens=move(positions % vocab_size),
        positions=move(positions),
        slots=move(slots_of(batch, table)),
        sampled=move(last_rows[samples]),
    )


class Transformer:
    """Weights, cache and forward pass; `num_pages` pages of KV cache in every layer."""

    def __init__(
        self,
        spec: ModelSpec,
        device: Device,
        backend: AttentionBackend,
        dtype: str,
        num_pages: int,
        page_size: int,
    ) -> None:
        self.spec = spec
        self.device = device
        self.dtype = dtype
        self.num_pages = num_pages
        self.page_size = page_size
        self._backend = backend
        self._ops = Elementwise.on(device)
        self._generator = torch.Generator(device.handle).manual_seed(0)
        self._embedding = self._normal(spec.vocab_size, spec.hidden_size)
        self._layers = [self._new_layer() for _ in range(spec.num_layers)]
        self._norm = self._normal(spec.hidden_size)
        self._head = self._embedding if spec.tied_embeddings else self._normal(*self._embedding.shape)
        self._cos_sin = rope_table(
            spec.max_position_embeddings, spec.head_dim, torch_dtype(dtype), device.handle
        )

    def batch(self, q_lens: tuple[int, ...], kv_lens: tuple[int, ...]) -> AttnBatch:
        """The attention batch of some sequences with this model's heads."""
        spec = self.spec
        return AttnBatch(
            q_lens,
            kv_lens,
            spec.num_heads,
            spec.num_kv_heads,
            spec.head_dim,
            self.page_size,
            self.dtype,
            spec.sliding_window or 0,
        )

    def inputs(self, batch: AttnBatch, table: IntArray, samples: npt.NDArray[np.bool_]) -> StepInputs:
        """The tensors of one iteration, as `step_inputs` makes them."""
        return step_inputs(batch, table, samples, self.spec.vocab_size, self.device.handle)

    def plan(self, inputs: StepInputs) -> Run:
        """The attention backend's host work of one iteration."""
        return self._backend.plan(inputs.attn)

    def forward(self, inputs: StepInputs, attend: Run) -> Any:
        """One iteration on the device: the sampled tokens."""
        return self._ops.sample(self.logits(inputs, attend))

    def logits(self, inputs: StepInputs, attend: Run) -> Any:
        """One iteration up to the logits of the sequences that sample, [sequences, vocabulary]."""
        ops = self._ops
        residual = embed(inputs.tokens, self._embedding)
        hidden = None
        for layer in self._layers:
            hidden, residual = self._normed(hidden, residual, layer.input_norm)
            if self.spec.parallel_block:
                attended = self._attention(layer, hidden, inputs, attend)
                hidden = attended + self._mlp(layer, ops.rmsnorm(residual, layer.inner_norm))
            else:
                attended = self._attention(layer, hidden, inputs, attend)
                hidden, residual = ops.add_rmsnorm(attended, residual, layer.inner_norm)
                hidden = self._mlp(layer, hidden)
        hidden, _ = self._normed(hidden, residual, self._norm)
        return linear(hidden.index_select(0, inputs.sampled), self._head)

    def _normed(self, hidden: Any, residual: Any, weight: Any) -> tuple[Any, Any]:
        """The norm before a block: the first layer has nothing to add to the residual yet."""
        if hidden is None:
            return self._ops.rmsnorm(residual, weight), residual
        normed, residual = self._ops.add_rmsnorm(hidden, residual, weight)
        return normed, residual

    def _attention(self, layer: _Layer, hidden: Any, inputs: StepInputs, attend: Run) -> Any:
        spec, ops = self.spec, self._ops
        heads = linear(hidden, layer.qkv, layer.qkv_bias).view(len(hidden), -1, spec.head_dim)
        rotated = heads[:, : spec.num_heads + spec.num_kv_heads]
        if spec.qk_norm:
            rotated = ops.rmsnorm(rotated, layer.head_norm)
        rotated = ops.rope(rotated, inputs.positions, self._cos_sin)
        keys, values = rotated[:, spec.num_heads :], heads[:, spec.num_heads + spec.num_kv_heads :]
        ops.write_kv(keys, values, inputs.slots, *layer.pool.flat)
        query = rotated[:, : spec.num_heads]
        out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        return linear(attend(query, layer.pool, out).flatten(1), layer.out)

    def _mlp(self, layer: _Layer, hidden: Any) -> Any:
        activation = self._ops.silu_and_mul if self.spec.gated_mlp else self._ops.gelu
        return linear(activation(linear(hidden, layer.up)), layer.down)

    def _new_layer(self) -> _Layer:
        spec = self.spec
        qkv, out, up, down = (self._normal(op.n, op.k) for op in spec.linear_ops(1))
        shape = pool_shape(
            self.num_pages, self.page_size, spec.num_kv_heads, spec.head_dim, self._backend.packed
        )
        return _Layer(
            qkv=qkv,
            qkv_bias=self._normal(qkv.shape[0]) if spec.qkv_bias else None,
            out=out,
            up=up,
            down=down,
            input_norm=self._normal(spec.hidden_size),
            inner_norm=self._normal(spec.hidden_size),
            head_norm=self._normal(spec.head_dim) if spec.qk_norm else None,
            pool=KVPool.of(self._normal(*shape), self._backend.packed),
        )

    def _normal(self, *shape: int) -> Any:
        """Small normal numbers: zeros would make a GPU's matrix products faster than they are."""
        values = torch.empty(shape, dtype=torch_dtype(self.dtype), device=self.device.handle)
        return values.normal_(0.0, _WEIGHT_SCALE, generator=self._generator)
