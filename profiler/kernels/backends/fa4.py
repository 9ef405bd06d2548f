"""FlashAttention-4 (`flash_attn.cute`), compiled at first use for each configuration."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from profiler.kernels.attention import AttentionBackend, Run, scale

if TYPE_CHECKING:
    from profiler.device import Device
    from profiler.kernels.paged import AttnStep, KVPool


class FA4(AttentionBackend):
    """`flash_attn_varlen_func` with a page table; on Hopper it cannot split the keys of a sequence."""

    name = "fa4"
    policy = "one split"

    @classmethod
    def unusable(cls, device: Device) -> str:
        """Needs flash-attn-4 and a Hopper or Blackwell GPU."""
        if not device.is_cuda or device.capability[0] not in (9, 10):
            return "needs a CUDA GPU of compute capability 9.0 or 10.x"
        try:
            from flash_attn.cute import flash_attn_varlen_func  # noqa: F401
        except (ImportError, OSError) as error:
            return f"flash_attn.cute cannot be imported: {error}"
        return ""

    @classmethod
    def versions(cls) -> dict[str, str]:
        """The package's version."""
        try:
            return {"flash-attn-4": version("flash-attn-4")}
        except PackageNotFoundError:
            return {"flash-attn-4": "unknown"}

    def plan(self, step: AttnStep) -> Run:
        """Nothing to prepare but the arguments."""
        from flash_attn.cute import flash_attn_varlen_func

        batch = step.batch
        window = batch.window_size if batch.window else (None, None)

        def run(q: Any, pool: KVPool, out: Any) -> Any:
            result = flash_attn_varlen_func(
                q,
                pool.k,
                pool.v,
                cu_seqlens_q=step.cu_q,
                seqused_k=step.kv_lens,
                max_seqlen_q=batch.max_q,
                max_seqlen_k=batch.max_kv,
                page_table=step.table,
                softmax_scale=scale(batch),
                causal=True,
                window_size=window,
                num_splits=1,
            )
            return result[0] if isinstance(result, tuple) else result

        return run
