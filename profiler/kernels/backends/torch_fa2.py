"""The FlashAttention-2 that torch ships: varlen and GQA, but keys and values of a sequence in one piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profiler.kernels.attention import AttentionBackend, Run, scale

if TYPE_CHECKING:
    from profiler.device import Device
    from profiler.kernels.paged import AttnStep, KVPool


class TorchFA2(AttentionBackend):
    """`aten::_flash_attention_forward`; its tables state page size 0 and stand for no paged server."""

    name = "torch_fa2"
    paged = False
    policy = "split KV for decode-only batches"

    @classmethod
    def unusable(cls, device: Device) -> str:
        """Needs an Ampere GPU or a later one."""
        if not device.is_cuda or device.capability < (8, 0):
            return "needs a CUDA GPU of compute capability 8.0 or later"
        import torch

        if not hasattr(torch.ops.aten, "_flash_attention_forward"):
            return f"torch {torch.__version__} has no _flash_attention_forward"
        return ""

    @classmethod
    def versions(cls) -> dict[str, str]:
        """Torch's version."""
        import torch

        return {"torch": torch.__version__}

    def plan(self, step: AttnStep) -> Run:
        """Nothing to prepare but the arguments."""
        import torch

        batch = step.batch
        left, right = batch.window_size
        limits = {"window_size_left": left, "window_size_right": right} if batch.window else {}
        total = sum(batch.kv_lens)

        def run(q: Any, pool: KVPool, out: Any) -> Any:
            k, v = pool.flat
            return torch.ops.aten._flash_attention_forward(
                q,
                k[:total],
                v[:total],
                step.cu_q,
                step.cu_kv,
                batch.max_q,
                batch.max_kv,
                0.0,
                True,
                False,
                scale=scale(batch),
                **limits,
            )[0]

        return run
