"""The float32 reference as a backend: for tests and for holding other backends against, never for timing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profiler.kernels.attention import AttentionBackend, Run

if TYPE_CHECKING:
    from profiler.device import Device
    from profiler.kernels.paged import AttnStep, KVPool


class Reference(AttentionBackend):
    """Explicit softmax in float32, sequence by sequence."""

    name = "reference"
    policy = "none"

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
        """Nothing to prepare."""
        from profiler.kernels.reference import reference_attention

        def run(q: Any, pool: KVPool, out: Any) -> Any:
            return out.copy_(reference_attention(q, pool, step))

        return run
