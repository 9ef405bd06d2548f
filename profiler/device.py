"""The device that is measured: opening it, its data types, and the facts that the timing protocol needs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from simulator.errors import ConfigError

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}

_PRESETS = {
    "H200": "h200_sxm",
    "H100 HBM3": "h100_sxm",
    "A100 80GB PCIe": "a100_80gb_pcie",
    "A100 80GB": "a100_80gb_sxm",
    "A40": "a40",
    "L40S": "l40s",
    "RTX PRO 6000": "rtx_pro_6000",
}
"""The shipped GPU whose every word is in the device's name; the first that fits."""


@dataclass(frozen=True, slots=True)
class Device:
    """A CPU or one CUDA GPU; `handle` is the torch device."""

    handle: Any
    name: str
    capability: tuple[int, int]
    """CUDA compute capability; (0, 0) for a CPU."""
    cache_bytes: int
    """The last cache before memory: copies that are rotated must exceed it."""
    memory_bytes: int

    @property
    def is_cuda(self) -> bool:
        """Whether kernels run asynchronously on a GPU."""
        return bool(self.handle.type == "cuda")

    def synchronise(self) -> None:
        """Wait until everything that was launched has run."""
        if self.is_cuda:
            import torch

            torch.cuda.synchronize(self.handle)


def require_torch() -> Any:
    """The torch module; ConfigError with the install command where it is absent."""
    try:
        import torch
    except ImportError as error:
        raise ConfigError(
            f"profiling and replaying need torch ({error}): pip install 'stallfree[profile]'"
        ) from None
    return torch


def torch_dtype(name: str) -> Any:
    """The torch dtype of a table's dtype name; ConfigError for an unknown one."""
    torch = require_torch()
    if name not in DTYPES:
        raise ConfigError(f"dtype {name!r} is not one of {', '.join(DTYPES)}")
    return getattr(torch, DTYPES[name])


def check_device(name: str) -> None:
    """ConfigError for what is no device's name; whether there is such a device needs torch."""
    if not re.fullmatch(r"(cpu|cuda)(:\d{1,2})?", name):
        raise ConfigError(f"device {name!r}: expected cpu, cuda or cuda:N")


def open_device(name: str) -> Device:
    """The device called `cpu`, `cuda` or `cuda:N`; ConfigError where it does not exist."""
    check_device(name)
    torch = require_torch()
    handle = torch.device(name)
    if handle.type == "cpu":
        return Device(handle, _cpu_name(), (0, 0), _cpu_cache_bytes(), _cpu_memory_bytes())
    if not torch.cuda.is_available():
        raise ConfigError(f"device {name!r}: no such device here (torch {torch.__version__})")
    index = handle.index or 0
    if index >= torch.cuda.device_count():
        raise ConfigError(f"device {name!r}: this machine has {torch.cuda.device_count()} CUDA device(s)")
    torch.cuda.set_device(index)
    facts = torch.cuda.get_device_properties(index)
    return Device(
        torch.device("cuda", index),
        facts.name,
        (facts.major, facts.minor),
        facts.L2_cache_size,
        facts.total_memory,
    )


def gpu_preset(device_name: str) -> str:
    """The shipped GPU preset of a CUDA device's name; ConfigError where none is known."""
    name = set(device_name.replace("-", " ").split())
    for words, preset in _PRESETS.items():
        if name.issuperset(words.split()):
            return preset
    raise ConfigError(
        f"no GPU preset is known for {device_name!r}: name one with --gpu (stallfree list gpus)"
    )


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return f"cpu ({names[0]})" if names else "cpu"


def _cpu_cache_bytes() -> int:
    try:
        size = os.sysconf("SC_LEVEL3_CACHE_SIZE")
    except (AttributeError, ValueError, OSError):
        size = 0
    return size if size > 0 else 32 * 2**20


def _cpu_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
