"""flash-attn 2: one varlen call for the whole batch, or decodes and chunks in a call each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profiler.kernels.attention import AttentionBackend, Run, scale

if TYPE_CHECKING:
    from profiler.device import Device
    from profiler.kernels.paged import AttnStep, KVPool


class FA2(AttentionBackend):
    """`flash_attn_varlen_func` with a block table.

    It splits the keys of long decodes over the GPU only where the batch is decodes alone and heads
    are grouped; in a mixed batch every decode runs a whole tile with one live row.
    """

    name = "fa2"
    page_multiple = 256
    policy = "split KV for decode-only grouped heads, else one split"

    @classmethod
    def unusable(cls, device: Device) -> str:
        """Needs the flash-attn package and an Ampere GPU or a later one."""
        if not device.is_cuda or device.capability < (8, 0):
            return "needs a CUDA GPU of compute capability 8.0 or later"
        try:
            from flash_attn import flash_attn_varlen_func  # noqa: F401
        except (ImportError, OSError) as error:
            return f"flash_attn cannot be imported: {error}"
        return ""

    @classmethod
    def versions(cls) -> dict[str, str]:
        """The package's version."""
        import flash_attn

        return {"flash-attn": flash_attn.__version__}

    def plan(self, step: AttnStep) -> Run:
        """Nothing to prepare but the arguments."""
        return _varlen(step, step.cu_q, step.cu_kv, step.table, first=0)


class FA2Split(FA2):
    """Decodes through `flash_attn_with_kvcache`, which splits long keys, and chunks through a second call.

    The two outputs are joined by a copy, which is part of the measured time.
    """

    name = "fa2_split"
    policy = "two calls: decodes with split KV, chunks with one split"

    def plan(self, step: AttnStep) -> Run:
        """Cut the batch behind its decodes."""
        import torch
        from flash_attn import flash_attn_with_kvcache

        batch, count = step.batch, step.batch.num_decodes
        if count == 0:
            return super().plan(step)
        cu_q, cu_kv = step.cu_q[count:] - count, step.cu_kv[count:] - step.cu_kv[count]
        chunks = _varlen(step, cu_q, cu_kv, step.table[count:], first=count)

        def run(q: Any, pool: KVPool, out: Any) -> Any:
            decoded = flash_attn_with_kvcache(
                q[:count].unsqueeze(1),
                pool.k,
                pool.v,
                cache_seqlens=step.kv_lens[:count],
                block_table=step.table[:count],
                softmax_scale=scale(batch),
                causal=True,
                window_size=batch.window_size,
                num_splits=0,
            ).squeeze(1)
            return decoded if count == batch.num_seqs else torch.cat([decoded, chunks(q, pool, out)])

        return run


def _varlen(step: AttnStep, cu_q: Any, cu_kv: Any, table: Any, first: int) -> Run:
    """The varlen call over the sequences from `first` on; those before it are single-token decodes."""
    from flash_attn import flash_attn_varlen_func

    batch = step.batch
    max_q, max_kv = max(batch.q_lens[first:], default=1), max(batch.kv_lens[first:], default=1)

    def run(q: Any, pool: KVPool, out: Any) -> Any:
        return flash_attn_varlen_func(
            q[first:],
            pool.k,
            pool.v,
            cu_seqlens_q=cu_q,
            cu_seqlens_k=cu_kv,
            max_seqlen_q=max_q,
            max_seqlen_k=max_kv,
            softmax_scale=scale(batch),
            causal=True,
            window_size=batch.window_size,
            block_table=table,
        )

    return run
