"""Attention as the formula says, in float32: what every backend is held against."""

from __future__ import annotations

from typing import Any

import torch

from profiler.kernels.attention import scale
from profiler.kernels.paged import AttnStep, KVPool


def reference_attention(q: Any, pool: KVPool, step: AttnStep) -> Any:
    """float32 attention [tokens, q_heads, head_dim] of queries of any dtype, sequence by sequence."""
    batch = step.batch
    outputs = []
    start = 0
    for index, (q_len, kv_len) in enumerate(zip(batch.q_lens, batch.kv_lens, strict=True)):
        keys, values = _sequence(pool, step, index, kv_len)
        outputs.append(_attend(q[start : start + q_len].float(), keys, values, batch.window, scale(batch)))
        start += q_len
    return torch.cat(outputs)


def causal_mask(q_len: int, kv_len: int, window: int, device: Any) -> Any:
    """True where a query may look: the last `q_len` of `kv_len` positions, each at itself and backwards."""
    query = torch.arange(kv_len - q_len, kv_len, device=device)[:, None]
    key = torch.arange(kv_len, device=device)[None, :]
    seen = key <= query
    return seen & (key > query - window) if window else seen


def _sequence(pool: KVPool, step: AttnStep, index: int, kv_len: int) -> tuple[Any, Any]:
    """A sequence's float32 keys and values, [kv_len, kv_heads, head_dim]."""
    if step.table is None:
        start = int(step.cu_kv[index])
        k, v = pool.flat
        return k[start : start + kv_len].float(), v[start : start + kv_len].float()
    pages = step.table[index, : step.batch.pages[index]].long()
    return tuple(part[pages].flatten(0, 1)[:kv_len].float() for part in (pool.k, pool.v))


def _attend(q: Any, k: Any, v: Any, window: int, factor: float) -> Any:
    group = q.shape[1] // k.shape[1]
    k, v = (part.repeat_interleave(group, dim=1) for part in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * factor
    mask = causal_mask(q.shape[0], k.shape[0], window, q.device)
    weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, v)
