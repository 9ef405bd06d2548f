"""Which kernels a transformer runs on a rank, and in what sizes: the parts of a stage's time, vectorised."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from simulator.hardware import BYTES_PER_VALUE, ClusterSpec, LinearOp, ModelSpec
from simulator.latency.collectives import group_all_reduce_s
from simulator.latency.kernels import Array, AttentionHeads, AttentionRange, Kernels, Slowdown


@dataclass(frozen=True, slots=True)
class StageRole:
    """What one pipeline stage runs: its layers, and the embedding or the head at the ends."""

    num_layers: int
    is_first: bool
    is_last: bool


class ModelParts:
    """Seconds of a model's parts on one rank of a tensor-parallel group."""

    def __init__(
        self, model: ModelSpec, kernels: Kernels, cluster: ClusterSpec, tensor: int, pipeline: int
    ) -> None:
        self.heads = AttentionHeads(
            model.heads_per_rank(tensor),
            model.kv_heads_per_rank(tensor),
            model.head_dim,
            model.sliding_window,
        )
        self._model = model
        self._kernels = kernels
        self._tensor = tensor
        self._linear_ops = model.linear_ops(tensor)
        self._cluster = cluster
        self._stage_link = cluster.stage_link(tensor, pipeline)

    def token_parts(self, tokens: Array, role: StageRole) -> dict[str, Array]:
        """The parts that depend on nothing but the number of tokens, for all layers of a stage."""
        layers = role.num_layers
        linear = layers * self._layer_linear_s(tokens)
        elementwise = layers * self._layer_elementwise_s(tokens)
        all_reduces = layers * (1 if self._model.parallel_block else 2)
        if role.is_first:
            elementwise = elementwise + self._elementwise_s("embedding", tokens, self._model.hidden_size)
            all_reduces += 1  # each rank holds a part of the vocabulary
        if role.is_last:
            elementwise = elementwise + self._elementwise_s("rmsnorm", tokens, self._model.hidden_size)
        collective = all_reduces * self._all_reduce_s(tokens * self._model.hidden_size)
        return {"linear": linear, "elementwise": elementwise, "collective": collective}

    def _layer_linear_s(self, tokens: Array) -> Array:
        total = np.zeros_like(tokens)
        for op in self._linear_ops:
            total += self._gemm_s(tokens, op)
        return total

    def _layer_elementwise_s(self, tokens: Array) -> Array:
        heads, model = self.heads, self._model
        query_and_key = (heads.q_heads + heads.kv_heads) * heads.head_dim
        total = 2 * self._elementwise_s("rmsnorm", tokens, model.hidden_size)
        total = total + self._elementwise_s("rope", tokens, query_and_key)
        total = total + self._elementwise_s("activation", tokens, model.intermediate_size // self._tensor)
        if model.qk_norm:
            total = total + self._elementwise_s("rmsnorm", tokens, query_and_key)
        if not self._kernels.attention_includes_kv_write:
            total = total + self._elementwise_s("kv_write", tokens, 2 * heads.kv_heads * heads.head_dim)
        return total

    def _gemm_s(self, tokens: Array, op: LinearOp) -> Array:
        return self._kernels.gemm_s(tokens, op.n, op.k) + self._kernels.gap_s

    def _elementwise_s(self, op: str, tokens: Array, width: int) -> Array:
        return self._kernels.elementwise_s(op, tokens, width) + self._kernels.gap_s

    def _all_reduce_s(self, num_values: Array) -> Array:
        if self._tensor == 1:
            return np.zeros_like(num_values)
        message_bytes = num_values * BYTES_PER_VALUE
        all_reduce_s = group_all_reduce_s(self._kernels, message_bytes, self._tensor, self._cluster)
        return all_reduce_s + self._kernels.gap_s

    def head_s(self, sequences: Array) -> Array:
        """Logits of the sampled sequences, gathered over the ranks (half an all-reduce), and the sampler."""
        op = self._model.lm_head(self._tensor)
        vocabulary = self._model.vocab_size
        gather = self._all_reduce_s(sequences * vocabulary) / 2
        sampler = self._elementwise_s("sampler", sequences, vocabulary)
        return self._gemm_s(sequences, op) + gather + sampler

    def prefill_s(self, chunk: Array, prefix: Array) -> Array:
        """Attention of one layer over one chunk."""
        return self._kernels.prefill_attention_s(chunk, prefix, self.heads) + self._attention_gap_s

    def decode_s(self, num_decodes: Array, kv_mean: Array) -> Array:
        """Attention of one layer over decodes that all attend `kv_mean` tokens."""
        kv_mean = np.maximum(kv_mean, 1)
        return self._kernels.decode_attention_s(num_decodes, kv_mean, self.heads) + self._attention_gap_s

    @property
    def _attention_gap_s(self) -> float:
        """Attention times that contain the write into the cache are those of two kernels."""
        return self._kernels.gap_s * (2 if self._kernels.attention_includes_kv_write else 1)

    @property
    def mixed_measured(self) -> bool:
        """Whether batches of a chunk and decodes were measured."""
        one = np.ones(1)
        return self._kernels.mixed_attention_s(one, one, one, one, self.heads) is not None

    def mixed_ratio(self, chunk: Array, prefix: Array, num_decodes: Array, kv_mean: Array) -> Array:
        """Attention of one layer over a chunk beside decodes, relative to the sum of the two."""
        apart = self.prefill_s(chunk, prefix) + self.decode_s(num_decodes, kv_mean)
        together = self._kernels.mixed_attention_s(chunk, prefix, num_decodes, kv_mean, self.heads)
        return np.ones_like(apart) if together is None else (together + self._attention_gap_s) / apart

    @property
    def uneven_slowdown(self) -> Slowdown | None:
        """What unequal KV lengths do to attention, where that was measured."""
        return self._kernels.uneven_slowdown(self.heads)

    @property
    def max_tokens(self) -> float:
        """The largest number of tokens that every measured weight of a layer was measured with."""
        measured = (self._kernels.gemm_range(op.n, op.k) for op in self._linear_ops)
        return min((largest for largest in measured if largest is not None), default=inf)

    @property
    def attention_range(self) -> AttentionRange:
        """The measured range of the attention kernels."""
        return self._kernels.attention_range(self.heads)

    @property
    def notes(self) -> tuple[str, ...]:
        """What of this model was not measured itself."""
        unmeasured = [op for op in self._linear_ops if self._kernels.gemm_range(op.n, op.k) is None]
        notes = []
        if unmeasured:
            shapes = ", ".join(f"{op.name} {op.k}x{op.n}" for op in unmeasured)
            notes.append(f"weights of a shape that was not measured, predicted from others: {shapes}")
        if not self.attention_range.measured_heads:
            heads = f"{self.heads.q_heads} query and {self.heads.kv_heads} KV heads"
            notes.append(f"attention over {heads} was not measured, predicted from other head counts")
        return tuple(notes)

    def hop_s(self, tokens: Array) -> Array:
        """Activations to the next stage, once: each rank sends its share, as in vLLM's `send_tensor_dict`."""
        message_bytes = tokens * (self._model.hidden_size * BYTES_PER_VALUE)
        return self._kernels.send_recv_s(message_bytes, self._stage_link)
