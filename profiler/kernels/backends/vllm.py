"""vLLM's own flash-attention library: through vLLM, or its FlashAttention-3 extension loaded from a file."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from profiler.kernels.attention import AttentionBackend, Run, scale
from profiler.kernels.batch import AttnBatch

if TYPE_CHECKING:
    from profiler.device import Device
    from profiler.kernels.paged import AttnStep, KVPool

LIBRARY_VARIABLE = "STALLFREE_VLLM_FA3"
"""Environment variable with the path of `_vllm_fa3_C.abi3.so` out of a vLLM wheel."""

_MOST_SPLITS = 32
_GRAPH_TOKENS = 512


def vllm_num_splits(batch: AttnBatch) -> int:
    """The `num_splits` that vLLM passes: a fixed bound in steps that its CUDA graphs cover, else 0."""
    return _MOST_SPLITS if batch.num_tokens <= _GRAPH_TOKENS else 0


class Vllm(AttentionBackend):
    """`vllm.vllm_flash_attn.flash_attn_varlen_func`, the version that vLLM picks for the GPU."""

    name = "vllm"
    packed = True
    page_multiple = 16
    policy = f"FA3: num_splits {_MOST_SPLITS} up to {_GRAPH_TOKENS} tokens, else 0"

    @classmethod
    def unusable(cls, device: Device) -> str:
        """Needs vLLM and an Ampere GPU or a later one."""
        if not device.is_cuda or device.capability < (8, 0):
            return "needs a CUDA GPU of compute capability 8.0 or later"
        try:
            from vllm.vllm_flash_attn import flash_attn_varlen_func  # noqa: F401
        except (ImportError, OSError, RuntimeError) as error:
            return f"vllm.vllm_flash_attn cannot be imported: {error}"
        return ""

    @classmethod
    def versions(cls) -> dict[str, str]:
        """vLLM's version."""
        import vllm

        return {"vllm": vllm.__version__}

    @property
    def fa_version(self) -> int:
        """FlashAttention 3 on Hopper, 4 on Blackwell, where vLLM has them; else 2."""
        from vllm.vllm_flash_attn import is_fa_version_supported

        wanted = {9: 3, 10: 4}.get(self.device.capability[0], 2)
        return wanted if is_fa_version_supported(wanted) else 2

    def plan(self, step: AttnStep) -> Run:
        """FlashAttention-3's scheduler metadata, as vLLM makes it once per step."""
        from vllm.vllm_flash_attn import flash_attn_varlen_func

        batch, fa_version = step.batch, self.fa_version
        splits = vllm_num_splits(batch) if fa_version == 3 else 0
        metadata = self._metadata(step, splits) if fa_version == 3 else None

        def run(q: Any, pool: KVPool, out: Any) -> Any:
            return flash_attn_varlen_func(
                q,
                pool.k,
                pool.v,
                max_seqlen_q=batch.max_q,
                cu_seqlens_q=step.cu_q,
                max_seqlen_k=batch.max_kv,
                seqused_k=step.kv_lens,
                softmax_scale=scale(batch),
                causal=True,
                window_size=list(batch.window_size),
                block_table=step.table,
                out=out,
                scheduler_metadata=metadata,
                num_splits=splits,
                fa_version=fa_version,
            )

        return run

    def _metadata(self, step: AttnStep, splits: int) -> Any:
        from vllm.vllm_flash_attn import get_scheduler_metadata

        from profiler.device import torch_dtype

        batch = step.batch
        return get_scheduler_metadata(
            batch_size=batch.num_seqs,
            max_seqlen_q=batch.max_q,
            max_seqlen_k=batch.max_kv,
            num_heads_q=batch.q_heads,
            num_heads_kv=batch.kv_heads,
            headdim=batch.head_dim,
            cache_seqlens=step.kv_lens,
            qkv_dtype=torch_dtype(batch.dtype),
            cu_seqlens_q=step.cu_q,
            page_size=batch.page_size,
            causal=True,
            window_size=batch.window_size,
            num_splits=splits,
        )


class VllmFA3Library(AttentionBackend):
    """vLLM's FlashAttention-3 kernels without vLLM: its extension, loaded from the path in an environment
    variable, called with the arguments that vLLM 0.26 passes."""

    name = "vllm_fa3_so"
    packed = True
    page_multiple = 16
    policy = Vllm.policy
    _loaded: ClassVar[str] = ""

    @classmethod
    def unusable(cls, device: Device) -> str:
        """Needs the library and a Hopper GPU."""
        if not device.is_cuda or device.capability[0] != 9:
            return "needs a CUDA GPU of compute capability 9.0"
        path = os.environ.get(LIBRARY_VARIABLE, "")
        if not path:
            return f"{LIBRARY_VARIABLE} is not set to the path of _vllm_fa3_C.abi3.so"
        return cls._load(path)

    @classmethod
    def versions(cls) -> dict[str, str]:
        """The library's checksum: the file carries no version."""
        digest = sha256(Path(cls._loaded).read_bytes()).hexdigest()
        return {"_vllm_fa3_C": f"sha256 {digest[:16]}"}

    @classmethod
    def _load(cls, path: str) -> str:
        import torch

        if cls._loaded == path:
            return ""
        try:
            torch.ops.load_library(path)
            fwd = torch.ops._vllm_fa3_C.fwd
        except (OSError, AttributeError, RuntimeError) as error:
            return f"{path} cannot be loaded: {error}"
        cls._loaded = path if fwd else ""
        return ""

    def plan(self, step: AttnStep) -> Run:
        """The scheduler metadata, made once per step."""
        import torch

        from profiler.device import torch_dtype

        batch, op = step.batch, torch.ops._vllm_fa3_C
        left, right = batch.window_size
        splits = vllm_num_splits(batch)
        # batch, longest query and key, heads, head dims, dtype, KV lengths, cu_q, (cu_k, cu_k_new, used q,
        # left pad), page size, new keys, causal, window, softcap, splits, pack_gqa, SM margin
        metadata = op.get_scheduler_metadata(
            *(batch.num_seqs, batch.max_q, batch.max_kv, batch.q_heads, batch.kv_heads),
            *(batch.head_dim, batch.head_dim, torch_dtype(batch.dtype), step.kv_lens, step.cu_q),
            *(None, None, None, None, batch.page_size, 0, True, left, right, False, splits, None, 0),
        )

        def run(q: Any, pool: KVPool, out: Any) -> Any:
            # q, k, v, (k_new, v_new, qv), out, cu_q, (cu_k, cu_k_new, used q), KV lengths, longest query and
            # key, table, (batch index, left pad, rotary x3, descale x3), scale, causal, window, softcap,
            # rotary interleaved, metadata, splits, pack_gqa, SM margin, sinks, context parallel x3
            return op.fwd(
                *(q, pool.k, pool.v, None, None, None, out, step.cu_q, None, None, None, step.kv_lens),
                *(batch.max_q, batch.max_kv, step.table, None, None, None, None, None, None, None, None),
                *(scale(batch), True, left, right, 0.0, True, metadata, splits, None, 0, None, 1, 0, None),
            )[0]

        return run
