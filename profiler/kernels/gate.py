"""The correctness gate: a backend whose output is not that of the float32 reference gives no data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from profiler.device import torch_dtype
from profiler.kernels.batch import AttnBatch, cumulative, page_table, slots_of
from profiler.kernels.paged import AttnStep, KVPool, attn_step, pool_shape
from profiler.kernels.reference import reference_attention
from simulator.errors import StallfreeError

if TYPE_CHECKING:
    from profiler.kernels.attention import AttentionBackend
    from simulator.latency.kernels import AttentionHeads

TOLERANCE = 1e-2
_POISON = 1e3
"""Large but finite: kernels may load the unused tail of a page, and times zero it must vanish."""

_CASES = {
    "prefix chunk": ((65,), (65 + 448,)),
    "decode": ((1,) * 5, (1, 17, 160, 333, 1024)),
    "mixed": ((1, 1, 1, 96, 40), (512, 31, 770, 96, 40 + 203)),
}


class GateError(StallfreeError):
    """An attention backend computes something else than attention."""


class Inputs(NamedTuple):
    """The tensors of one small call."""

    q: Any
    pool: KVPool
    out: Any
    step: AttnStep


def gate_batches(heads: AttentionHeads, page_size: int, dtype: str) -> dict[str, AttnBatch]:
    """The three batches that a backend must get right: chunk with prefix, decodes, and both in one call."""
    shape = (heads.q_heads, heads.kv_heads, heads.head_dim)
    return {
        name: AttnBatch(q_lens, kv_lens, *shape, page_size, dtype, heads.window or 0)
        for name, (q_lens, kv_lens) in _CASES.items()
    }


def random_inputs(batch: AttnBatch, packed: bool, device: Any, seed: int = 0) -> Inputs:
    """Fresh random queries and keys in a pool whose unused slots are poisoned, and a poisoned output."""
    rng = np.random.default_rng(seed)
    generator = torch.Generator(device).manual_seed(seed)
    num_pages = sum(batch.pages) + 3
    table = page_table(batch.pages, num_pages, rng) if batch.page_size else None
    step = attn_step(batch, table, device)
    dtype = torch_dtype(batch.dtype)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator, device=device).to(dtype)

    shape = pool_shape(num_pages, batch.page_size, batch.kv_heads, batch.head_dim, packed)
    pool = KVPool.of(torch.full(shape, _POISON, dtype=dtype, device=device), packed)
    slots = _used_slots(batch, step).to(device)
    for part in pool.flat:
        part[slots] = normal(len(slots), batch.kv_heads, batch.head_dim)
    # Queries are a slice of what the rotary embedding returns, keys being the rest.
    q = normal(batch.num_tokens, batch.q_heads + batch.kv_heads, batch.head_dim)[:, : batch.q_heads]
    return Inputs(q, pool, torch.full_like(q, float("nan")), step)


def relative_error(backend: AttentionBackend, batch: AttnBatch, seed: int = 0) -> float:
    """||output - reference|| / ||reference|| of one call; NaN where the output was not fully written."""
    q, pool, out, step = random_inputs(batch, backend.packed, backend.device.handle, seed)
    result = backend.plan(step)(q, pool, out).float()
    expected = reference_attention(q, pool, step)
    return float((result - expected).norm() / expected.norm())


def pass_gate(backend: AttentionBackend, batches: dict[str, AttnBatch]) -> dict[str, float]:
    """The relative error of each case; GateError if one is not below the tolerance."""
    errors = {name: relative_error(backend, batch) for name, batch in batches.items()}
    for name, error in errors.items():
        if not error < TOLERANCE:  # NaN fails too
            raise GateError(
                f"attention backend {backend.name!r} fails the correctness gate on {backend.device.name}: "
                f"{name} batch, relative error {error:.2g} against float32, allowed {TOLERANCE:g}"
            )
    return errors


def _used_slots(batch: AttnBatch, step: AttnStep) -> Any:
    """The slots of all keys of the batch."""
    if step.table_host is None:
        return torch.arange(int(cumulative(batch.kv_lens)[-1]))
    whole = AttnBatch(
        batch.kv_lens, batch.kv_lens, batch.q_heads, batch.kv_heads, batch.head_dim, batch.page_size
    )
    return torch.from_numpy(slots_of(whole, step.table_host))
