"""FlashAttention-3 for Hopper through its own `flash_attn_interface` module."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from profiler.kernels.attention import AttentionBackend, Run, scale

if TYPE_CHECKING:
    from profiler.device import Device
    from profiler.kernels.paged import AttnStep, KVPool

_DISTRIBUTIONS = ("flash-attn-3", "flash_attn_3", "tokenspeed-fa3")


class FA3(AttentionBackend):
    """`flash_attn_with_kvcache` with scheduler metadata that is made once per iteration."""

    name = "fa3"
    policy = "num_splits 0 (heuristic)"

    @classmethod
    def unusable(cls, device: Device) -> str:
        """Needs the module and a Hopper GPU."""
        if not device.is_cuda or device.capability[0] != 9:
            return "needs a CUDA GPU of compute capability 9.0"
        try:
            from flash_attn_interface import flash_attn_with_kvcache, get_scheduler_metadata  # noqa: F401
        except (ImportError, OSError) as error:
            return f"flash_attn_interface cannot be imported: {error}"
        return ""

    @classmethod
    def versions(cls) -> dict[str, str]:
        """The version of whichever distribution brought the module."""
        for name in _DISTRIBUTIONS:
            try:
                return {name: version(name)}
            except PackageNotFoundError:
                continue
        return {"flash-attn-3": "unknown"}

    def plan(self, step: AttnStep) -> Run:
        """The tile scheduler's metadata, without which every layer would launch one more kernel."""
        from flash_attn_interface import flash_attn_with_kvcache, get_scheduler_metadata

        from profiler.device import torch_dtype

        batch = step.batch
        metadata = get_scheduler_metadata(
            batch.num_seqs,
            batch.max_q,
            # The call itself takes the table's width for the longest sequence: both must choose alike.
            step.table.shape[1] * batch.page_size,
            batch.q_heads,
            batch.kv_heads,
            batch.head_dim,
            step.kv_lens,
            qkv_dtype=torch_dtype(batch.dtype),
            cu_seqlens_q=step.cu_q,
            page_size=batch.page_size,
            causal=True,
            window_size=batch.window_size,
            num_splits=0,
        )

        def run(q: Any, pool: KVPool, out: Any) -> Any:
            return flash_attn_with_kvcache(
                q,
                pool.k,
                pool.v,
                cache_seqlens=step.kv_lens,
                page_table=step.table,
                cu_seqlens_q=step.cu_q,
                max_seqlen_q=batch.max_q,
                softmax_scale=scale(batch),
                causal=True,
                window_size=batch.window_size,
                scheduler_metadata=metadata,
                num_splits=0,
            )

        return run
