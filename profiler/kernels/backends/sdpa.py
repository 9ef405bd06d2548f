"""torch's scaled_dot_product_attention, sequence by sequence on gathered pages: the fast path of a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from profiler.kernels.attention import AttentionBackend, Run, scale

if TYPE_CHECKING:
    from profiler.device import Device
    from profiler.kernels.batch import AttnBatch
    from profiler.kernels.paged import AttnStep, KVPool


class _Part(NamedTuple):
    """One sequence: its slices of the queries and of the gathered keys, and its mask if it needs one."""

    queries: slice
    keys: slice
    causal: bool
    mask: Any


class Sdpa(AttentionBackend):
    """One gather for the pages of all sequences, then one fused call for each of them.

    A decode's query heads that share a KV head are passed as rows of one query, so that keys are read once.
    """

    name = "sdpa"
    policy = "one call a sequence"

    @classmethod
    def unusable(cls, device: Device) -> str:
        """Usable wherever torch is."""
        return ""

    @classmethod
    def versions(cls) -> dict[str, str]:
        """Torch's version."""
        import torch

        return {"torch": torch.__version__}

    def plan(self, step: AttnStep) -> Run:
        """The pages to gather and the mask of every chunk that has a prefix or a window."""
        import torch

        batch, table = step.batch, step.table_host
        if table is None:
            raise RuntimeError("the sdpa backend reads paged caches only")
        rows = zip(table, batch.pages, strict=True)
        pages = torch.cat([torch.from_numpy(row[:used]) for row, used in rows]).to(self.device.handle)
        parts = self._parts(batch)
        factor = scale(batch)

        def run(q: Any, pool: KVPool, out: Any) -> Any:
            keys, values = (part.index_select(0, pages).flatten(0, 1) for part in (pool.k, pool.v))
            for part in parts:
                _attend(q[part.queries], keys[part.keys], values[part.keys], part, factor, out[part.queries])
            return out

        return run

    def _parts(self, batch: AttnBatch) -> list[_Part]:
        parts = []
        query = key = 0
        for q_len, kv_len, pages in zip(batch.q_lens, batch.kv_lens, batch.pages, strict=True):
            # Keys that fall out of the window of every query are not read.
            first = max(0, kv_len - q_len - batch.window + 1) if batch.window else 0
            masked = q_len > 1 and (q_len < kv_len - first or bool(batch.window))
            parts.append(
                _Part(
                    slice(query, query + q_len),
                    slice(key + first, key + kv_len),
                    causal=q_len > 1 and not masked,
                    mask=self._mask(q_len, kv_len - first, batch) if masked else None,
                )
            )
            query += q_len
            key += pages * batch.page_size
        return parts

    def _mask(self, q_len: int, kv_len: int, batch: AttnBatch) -> Any:
        """An additive mask in the queries' dtype, which spares a conversion in every layer."""
        import torch

        from profiler.device import torch_dtype
        from profiler.kernels.reference import causal_mask

        seen = causal_mask(q_len, kv_len, batch.window, self.device.handle)
        zeros = torch.zeros(q_len, kv_len, dtype=torch_dtype(batch.dtype), device=self.device.handle)
        return zeros.masked_fill(~seen, float("-inf"))


def _attend(q: Any, k: Any, v: Any, part: _Part, factor: float, out: Any) -> None:
    from torch.nn.functional import scaled_dot_product_attention

    k, v = (tensor.transpose(0, 1).unsqueeze(0) for tensor in (k, v))
    if q.shape[0] == 1:
        grouped = q.view(1, k.shape[1], -1, q.shape[2])
        out.view_as(grouped).copy_(scaled_dot_product_attention(grouped, k, v, scale=factor))
        return
    result = scaled_dot_product_attention(
        q.transpose(0, 1).unsqueeze(0),
        k,
        v,
        attn_mask=part.mask,
        is_causal=part.causal,
        scale=factor,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    out.copy_(result.squeeze(0).transpose(0, 1))
