"""What a latency model asks of a GPU's kernels: times of one layer on one rank, vectorised over shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from simulator.hardware import LinkSpec

Array = npt.NDArray[np.float64]
"""Sizes in, seconds out: one value per shape asked for."""

Slowdown = Callable[[int, int, int, int, int, int], float]
"""(chunk or 0, prefix, decodes; KV lengths: sum, sum of squares, longest) -> time over that of equal ones."""


@dataclass(frozen=True, slots=True)
class AttentionHeads:
    """The attention heads of one rank; `window` is the sliding window in tokens, None for full attention."""

    q_heads: int
    kv_heads: int
    head_dim: int
    window: int | None = None


@dataclass(frozen=True, slots=True)
class AttentionRange:
    """The largest measured sizes; `measured_heads`: these very head counts were measured."""

    max_chunk: float
    max_prefix: float
    max_num_decodes: float
    max_kv: float
    measured_heads: bool = True


KERNEL_GAP_S = 1e-6
"""From the end of a kernel to the start of the next in a replayed CUDA graph; a round figure, not fitted."""


class Kernels(Protocol):
    """Kernel times of one GPU in seconds; the array arguments of a call broadcast to its answer."""

    name: str
    notes: tuple[str, ...]
    attention_includes_kv_write: bool
    """True where attention times contain the write of the new keys and values: it is not added again."""
    gap_s: float
    """What comes before each kernel beside its time: nothing where times were measured back to back."""

    def gemm_s(self, m: Array, n: int, k: int) -> Array:
        """[m, k] x [k, n]."""

    def prefill_attention_s(self, chunk: Array, prefix: Array, heads: AttentionHeads) -> Array:
        """One chunk of a prompt, which attends the `prefix` tokens before it and its own triangle."""

    def decode_attention_s(self, num_decodes: Array, kv_mean: Array, heads: AttentionHeads) -> Array:
        """One new token each for `num_decodes` sequences attending `kv_mean` tokens, the new one included."""

    def mixed_attention_s(
        self, chunk: Array, prefix: Array, num_decodes: Array, kv_mean: Array, heads: AttentionHeads
    ) -> Array | None:
        """A chunk and decodes in one batch; None where such batches were not measured."""

    def uneven_slowdown(self, heads: AttentionHeads) -> Slowdown | None:
        """What unequal KV lengths do to a batch; None where that was not measured."""

    def all_reduce_s(self, message_bytes: Array, world_size: int, link: LinkSpec) -> Array:
        """All-reduce of a message of that size on every rank of one node."""

    def send_recv_s(self, message_bytes: Array, link: LinkSpec) -> Array:
        """A message from one GPU to another."""

    def elementwise_s(self, op: str, tokens: Array, width: int) -> Array:
        """rmsnorm, rope, activation, kv_write, embedding; sampler: tokens = sequences, width = vocabulary."""

    def gemm_range(self, n: int, k: int) -> int | None:
        """The largest m measured for this weight; None where this very weight was not measured."""

    def attention_range(self, heads: AttentionHeads) -> AttentionRange:
        """The measured range of the attention kernel."""
