"""Which attention backends exist, which of them run here and why the others do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from profiler.device import open_device, require_torch
from profiler.kernels.attention import AttentionBackend
from profiler.kernels.backends.fa2 import FA2, FA2Split
from profiler.kernels.backends.fa3 import FA3
from profiler.kernels.backends.fa4 import FA4
from profiler.kernels.backends.flashinfer import FlashInfer, FlashInferBatch
from profiler.kernels.backends.reference import Reference
from profiler.kernels.backends.sdpa import Sdpa
from profiler.kernels.backends.torch_fa2 import TorchFA2
from profiler.kernels.backends.vllm import Vllm, VllmFA3Library
from simulator.errors import ConfigError, suggest

if TYPE_CHECKING:
    from profiler.device import Device

BACKENDS: dict[str, type[AttentionBackend]] = {
    backend.name: backend
    for backend in (
        Vllm,
        VllmFA3Library,
        FA3,
        FA2,
        FA2Split,
        FA4,
        FlashInfer,
        FlashInferBatch,
        TorchFA2,
        Sdpa,
        Reference,
    )
}

_PREFERRED = {
    0: ("sdpa",),
    8: ("vllm", "fa2", "flashinfer", "torch_fa2"),
    9: ("vllm", "vllm_fa3_so", "fa3", "flashinfer", "fa2", "torch_fa2"),
    10: ("vllm", "fa4", "flashinfer", "torch_fa2"),
}
"""By major compute capability: the kernels that servers run come first."""


class BackendStatus(NamedTuple):
    """One backend and whether it can be used; `reason` is empty if it can."""

    name: str
    usable: bool
    reason: str


def list_backends(device: str = "cuda") -> list[BackendStatus]:
    """Every backend with the reason why it cannot be used on the device; an absent device is a reason too."""
    try:
        opened = open_device(device)
    except ConfigError as error:
        return [BackendStatus(name, False, str(error)) for name in BACKENDS]
    reasons = {name: backend.unusable(opened) for name, backend in BACKENDS.items()}
    return [BackendStatus(name, not reason, reason) for name, reason in reasons.items()]


def named_backend(name: str, *, on_cuda: bool) -> type[AttentionBackend] | None:
    """The backend of that name, `torch` for torch's; None for `auto`; ConfigError if there is none."""
    if name == "auto":
        return None
    if name == "torch":
        name = "torch_fa2" if on_cuda else "sdpa"
    if name not in BACKENDS:
        raise ConfigError(f"unknown attention backend {name!r}{suggest(name, [*BACKENDS, 'auto', 'torch'])}")
    return BACKENDS[name]


def open_backend(name: str, device: Device) -> AttentionBackend:
    """The backend of that name, `auto` for the best usable one, `torch` for torch's; ConfigError if none."""
    require_torch()
    backend = named_backend(name, on_cuda=device.is_cuda)
    if backend is None:
        return _best(device)
    if reason := backend.unusable(device):
        raise ConfigError(f"attention backend {backend.name!r} cannot be used on {device.name}: {reason}")
    return backend(device)


def _best(device: Device) -> AttentionBackend:
    order = _PREFERRED.get(device.capability[0], _PREFERRED[8])
    reasons = []
    for name in order:
        reason = BACKENDS[name].unusable(device)
        if not reason:
            return BACKENDS[name](device)
        reasons.append(f"{name}: {reason}")
    raise ConfigError(f"no attention backend can be used on {device.name} ({'; '.join(reasons)})")
