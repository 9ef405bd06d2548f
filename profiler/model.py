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
from profiler.kernels.attention import attention
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
class Layer:
    """The weights of one layer and its KV cache."""

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
        self.torch_dtype = torch_dtype(dtype)
        self.num_pages = num_pages
        self.page_size = page_size
        self._backend = backend
        self._ops = Elementwise.on(device)
        self._generator = torch.Generator(device.handle).manual_seed(0)
        self._embedding = self._normal(spec.vocab_size, spec.hidden_size)
        self.layers = [self._new_layer() for _ in range(spec.num_layers)]
        self._norm = self._normal(spec.hidden_size)
        self._head = self._embedding if spec.tied_embeddings else self._normal(*self._embedding.shape)
        self._cos_sin = rope_table(
            spec.max_position_embeddings, spec.head_dim, torch_dtype(dtype), device.handle
        )

    @property
    def spare_slot(self) -> int:
        """A cache slot that belongs to no page in use, where padding may write."""
        return self.num_pages * self.page_size

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
        return self.sample(self.logits(inputs, attend))

    def logits(self, inputs: StepInputs, attend: Run) -> Any:
        """One iteration up to the logits of the sequences that sample, [sequences, vocabulary]."""
        hidden, residual = None, self.embed(inputs.tokens)
        for layer in self.layers:
            query, residual = self.before_attention(layer, hidden, residual, inputs.positions, inputs.slots)
            attended = attention(attend, query, layer.pool)
            hidden, residual = self.after_attention(layer, attended, residual)
        return self.head(self.last_norm(hidden, residual), inputs.sampled)

    def embed(self, tokens: Any) -> Any:
        """The residual stream before the first layer."""
        return embed(tokens, self._embedding)

    def before_attention(
        self, layer: Layer, hidden: Any, residual: Any, positions: Any, slots: Any
    ) -> tuple[Any, Any]:
        """Norm, qkv, rotary embedding and cache write of a layer: its queries, and the new residual."""
        spec, ops = self.spec, self._ops
        hidden, residual = self._normed(hidden, residual, layer.input_norm)
        heads = linear(hidden, layer.qkv, layer.qkv_bias).view(len(hidden), -1, spec.head_dim)
        rotated = heads[:, : spec.num_heads + spec.num_kv_heads]
        if spec.qk_norm:
            rotated = ops.rmsnorm(rotated, layer.head_norm)
        rotated = ops.rope(rotated, positions, self._cos_sin)
        keys, values = rotated[:, spec.num_heads :], heads[:, spec.num_heads + spec.num_kv_heads :]
        ops.write_kv(keys, values, slots, *layer.pool.flat)
        return rotated[:, : spec.num_heads], residual

    def after_attention(self, layer: Layer, attended: Any, residual: Any) -> tuple[Any, Any]:
        """Output projection and MLP of a layer: what is to be added to the residual, and the residual."""
        projected = linear(attended, layer.out)
        if self.spec.parallel_block:
            return projected + self._mlp(layer, self._ops.rmsnorm(residual, layer.inner_norm)), residual
        hidden, residual = self._ops.add_rmsnorm(projected, residual, layer.inner_norm)
        return self._mlp(layer, hidden), residual

    def last_norm(self, hidden: Any, residual: Any) -> Any:
        """The norm behind the last layer."""
        return self._normed(hidden, residual, self._norm)[0]

    def head(self, hidden: Any, sampled: Any) -> Any:
        """Logits of the rows that sample."""
        return linear(hidden.index_select(0, sampled), self._head)

    def sample(self, logits: Any) -> Any:
        """One token for each row of logits."""
        return self._ops.sample(logits)

    def _normed(self, hidden: Any, residual: Any, weight: Any) -> tuple[Any, Any]:
        """The norm before a block: the first layer has nothing to add to the residual yet."""
        if hidden is None:
            return self._ops.rmsnorm(residual, weight), residual
        normed, residual = self._ops.add_rmsnorm(hidden, residual, weight)
        return normed, residual

    def _mlp(self, layer: Layer, hidden: Any) -> Any:
        activation = self._ops.silu_and_mul if self.spec.gated_mlp else self._ops.gelu
        return linear(activation(linear(hidden, layer.up)), layer.down)

    def _new_layer(self) -> Layer:
        spec = self.spec
        qkv, out, up, down = (self._normal(op.n, op.k) for op in spec.linear_ops(1))
        shape = pool_shape(
            self.num_pages + 1, self.page_size, spec.num_kv_heads, spec.head_dim, self._backend.packed
        )
        return Layer(
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
