"""What a measurement depends on besides the kernel: machine, library versions, clocks, temperature.

Settings are recorded, never changed.
"""

from __future__ import annotations

import csv
import os
import platform
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profiler.device import Device
    from profiler.kernels.attention import AttentionBackend

CONDITIONS_FILE = "conditions.csv"
_SMI_FIELDS = {
    "sm_clock_mhz": "clocks.sm",
    "memory_clock_mhz": "clocks.mem",
    "power_w": "power.draw",
    "temperature_c": "temperature.gpu",
    "throttle": "clocks_event_reasons.active",
}
_OLD_NAMES = {"clocks_event_reasons": "clocks_throttle_reasons"}  # as drivers before 535 have it
CONDITION_COLUMNS = ("time_s", "block", "points_done", "anchor_gemm_us", "anchor_copy_us", *_SMI_FIELDS)


def library_versions(backend: AttentionBackend) -> dict[str, str]:
    """Versions of Python, torch, CUDA and the attention library."""
    import torch

    versions = {"python": platform.python_version(), "torch": torch.__version__, **backend.versions()}
    if torch.version.cuda:
        versions["cuda"] = torch.version.cuda
    return versions


def machine_facts(device: Device) -> dict[str, Any]:
    """The host and the device, for the table's meta data."""
    import torch

    facts: dict[str, Any] = {
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "device": device.name,
        "cache_mib": round(device.cache_bytes / 2**20, 1),
        "memory_gib": round(device.memory_bytes / 2**30, 1),
    }
    if device.is_cuda:
        properties = torch.cuda.get_device_properties(device.handle)
        facts["sm_count"] = properties.multi_processor_count
        facts["compute_capability"] = f"{properties.major}.{properties.minor}"
    return facts


def driver_version(device: Device) -> str:
    """The NVIDIA driver's version; empty for a CPU or where nothing tells it."""
    return _query(device, "driver_version") if device.is_cuda else ""


def read_conditions(device: Device) -> dict[str, str]:
    """Clocks, power, temperature and throttle reasons of a GPU now; empty where nvidia-smi does not tell."""
    if not device.is_cuda:
        return {}
    fields = ",".join(_SMI_FIELDS.values())
    line = _query(device, fields)
    for name, old in _OLD_NAMES.items():
        line = line or _query(device, fields.replace(name, old))
    values = [value.strip() for value in line.split(",")]
    return dict(zip(_SMI_FIELDS, values, strict=True)) if len(values) == len(_SMI_FIELDS) else {}


class ConditionsLog:
    """Appends one line a block to `conditions.csv` beside a table's rows."""

    def __init__(self, folder: Path, device: Device) -> None:
        self._path = folder / CONDITIONS_FILE
        self._device = device

    def note(self, block: str, points_done: int, anchor_gemm_us: float, anchor_copy_us: float) -> None:
        """Record the anchors and the GPU's state."""
        line = {
            "time_s": f"{time.time():.1f}",
            "block": block,
            "points_done": str(points_done),
            "anchor_gemm_us": f"{anchor_gemm_us:.6g}",
            "anchor_copy_us": f"{anchor_copy_us:.6g}",
            **read_conditions(self._device),
        }
        fresh = not self._path.exists()
        with self._path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, CONDITION_COLUMNS, restval="", lineterminator="\n")
            if fresh:
                writer.writeheader()
            writer.writerow(line)


def _query(device: Device, fields: str) -> str:
    """One line of nvidia-smi about this GPU; empty where it cannot be had."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return ""
    arguments = [f"--query-gpu={fields}", "--format=csv,noheader,nounits", f"--id={_smi_id(device)}"]
    with suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run([command, *arguments], capture_output=True, text=True, timeout=10, check=True)
        return answer.stdout.strip().splitlines()[0] if answer.stdout.strip() else ""
    return ""


def _smi_id(device: Device) -> str:
    """The name by which nvidia-smi knows the GPU: CUDA may number the visible ones differently."""
    import torch

    uuid = getattr(torch.cuda.get_device_properties(device.handle), "uuid", None)
    return f"GPU-{uuid}" if uuid is not None else str(device.handle.index)
