"""Tensors of one attention call: a layer's KV pool, and the step metadata that all layers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from profiler.kernels.batch import AttnBatch, IntArray, cumulative


@dataclass(frozen=True, slots=True)
class KVPool:
    """Keys and values of one layer: [pages, page_size, kv_heads, head_dim] each, or views of one tensor."""

    k: Any
    v: Any

    @classmethod
    def of(cls, storage: Any, packed: bool) -> KVPool:
        """A pool in a tensor of `pool_shape`; packed: keys and values of a token side by side, as in vLLM."""
        k, v = storage.chunk(2, dim=-1) if packed else storage.unbind(0)
        return cls(k, v)

    @property
    def flat(self) -> tuple[Any, Any]:
        """Keys and values by slot: [pages x page_size, kv_heads, head_dim]."""
        return self.k.flatten(0, 1), self.v.flatten(0, 1)


def pool_shape(pages: int, page_size: int, kv_heads: int, head_dim: int, packed: bool) -> tuple[int, ...]:
    """The shape of a tensor that holds one layer's keys and values."""
    size = page_size or 1
    if packed:
        return (pages, size, kv_heads, 2 * head_dim)
    return (2, pages, size, kv_heads, head_dim)


@dataclass(frozen=True, slots=True)
class AttnStep:
    """A batch with its index tensors on the device: made once per iteration, used by every layer."""

    batch: AttnBatch
    cu_q: Any
    """int32 [sequences + 1]: where each sequence's queries start."""
    cu_kv: Any
    """int32 [sequences + 1]: where its keys start, for caches that are not paged."""
    kv_lens: Any
    """int32 [sequences]."""
    table: Any
    """int32 [sequences, most pages], or None for a cache that is not paged."""
    table_host: IntArray | None


def attn_step(batch: AttnBatch, table: IntArray | None, device: Any) -> AttnStep:
    """Move a batch's lengths and page table to the device."""

    def move(array: IntArray) -> Any:
        return torch.from_numpy(array).to(device, non_blocking=True)

    kv_lens = cumulative(batch.kv_lens)
    return AttnStep(
        batch=batch,
        cu_q=move(cumulative(batch.q_lens)),
        cu_kv=move(kv_lens),
        kv_lens=move((kv_lens[1:] - kv_lens[:-1]).copy()),
        table=None if table is None else move(table),
        table_host=table,
    )
