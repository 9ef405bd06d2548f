"""Kernel tables of NVIDIA's AIConfigurator: the parquet files of the PyPI package `aiconfigurator-core`.

What a reader has to know about them: latencies are in ms; `message_size` counts elements; a generation row
attends isl + step tokens; attention rows have no prefix and contain the write of the KV cache; a folder mixes
number formats, KV formats, window sizes and kernels, of which one combination is taken here (bf16, no window,
the kernel that most rows were measured with); some shapes occur twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from profiler.import_.report import ImportReport, write_table
from profiler.tables import KernelRow, TableMeta
from simulator.errors import InputError, suggest

PACKAGE = "aiconfigurator-core"
TESTED_VERSION = "0.12.0"
BACKEND = "vllm"
BYTES_PER_VALUE = 2

Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class _Device:
    gpu: str
    """Our name of it (configs/gpus)."""
    topology: str
    """How the GPUs of the measured node are joined."""


DEVICES = {
    "a100_sxm": _Device("a100_80gb_sxm", "nvlink"),
    "h100_sxm": _Device("h100_sxm", "nvlink"),
    "h200_sxm": _Device("h200_sxm", "nvlink"),
    "l40s": _Device("l40s", "pcie"),
}


def import_aic(device: str, out: Path, version: str | None = None, data: Path | None = None) -> ImportReport:
    """Writes a table of one device's bf16 kernels under vLLM; raises InputError.

    `version` names the vLLM release that was measured (default: the newest); `data` is a folder like the
    package's `systems/data`, for tests.
    """
    if device not in DEVICES:
        raise InputError(f"aic: unknown device {device!r}{suggest(device, DEVICES)}")
    root = (data or _package_data()) / device
    files = {
        name: _file(root, family, f"{name}_perf.parquet", version)
        for name, family in (("gemm", "gemm"), ("context_attention", "attention"))
    }
    files["generation_attention"] = files["context_attention"].with_name("generation_attention_perf.parquet")
    files["custom_allreduce"] = _file(root, "comm", "custom_allreduce_perf.parquet", None)
    tables = {name: _read(path) for name, path in files.items()}
    attention_kernel = _main_kernel(tables["context_attention"])
    rows = [
        *_gemm_rows(tables["gemm"]),
        *_context_rows(tables["context_attention"], attention_kernel),
        *_generation_rows(tables["generation_attention"], attention_kernel),
        *_all_reduce_rows(tables["custom_allreduce"], DEVICES[device].topology),
    ]
    meta = TableMeta(
        device=DEVICES[device].gpu,
        libraries=_versions(files),
        backend=attention_kernel,
        kv_write="included",
        protocol="CUDA graph replay, mean; GEMM weights rotated among 6 copies, attention with a warm L2",
        source=f"PyPI {PACKAGE} {_package_version()}, {device}",
        licence="Apache-2.0",
        notes=("attention: prompts without a prefix, batches of equal lengths, no window, bf16",),
    )
    return write_table(out, meta, rows)


def _package_data() -> Path:
    spec = find_spec("aiconfigurator_core")
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"aic: {PACKAGE} is not installed: pip install 'stallfree[aic]'")
    return Path(spec.submodule_search_locations[0]) / "systems" / "data"


def _package_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return TESTED_VERSION


def _versions(files: dict[str, Path]) -> dict[str, str]:
    """The vLLM release of the matrix products and attention, and that of the collectives where it differs."""
    versions = {name: path.parent.name for name, path in files.items()}
    main, links = versions["gemm"], versions["custom_allreduce"]
    return {BACKEND: main} | ({f"{BACKEND} (all-reduce)": links} if links != main else {})


def _file(root: Path, family: str, name: str, version: str | None) -> Path:
    """The file of one operator family: of the named release, else of the newest that has it."""
    folder = root / family / BACKEND
    found = {path.parent.name: path for path in folder.glob(f"*/{name}")}
    if not found:
        raise InputError(f"aic: {folder} holds no {name}")
    if version is None:
        version = max(found, key=_version_key)
    if version not in found:
        raise InputError(f"aic: {folder} has no version {version!r}{suggest(version, found)}")
    return found[version]


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in version.split("."))


def _read(path: Path) -> Columns:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise InputError("aic: pyarrow is not installed: pip install 'stallfree[aic]'") from None
    try:
        columns: Columns = parquet.read_table(path).to_pydict()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None
    return columns


def _records(columns: Columns, path_hint: str, **wanted: str | int) -> Iterator[dict[str, Any]]:
    """The rows whose columns have the wanted values; a column that the file lacks does not exclude a row."""
    if "latency" not in columns:
        raise InputError(f"aic: the {path_hint} file has no column 'latency'")
    names = list(columns)
    for values in zip(*columns.values(), strict=True):
        record = dict(zip(names, values, strict=True))
        if all(record.get(key, value) == value for key, value in wanted.items()):
            yield record


def _main_kernel(columns: Columns) -> str:
    return str(Counter(columns["kernel_source"]).most_common(1)[0][0])


def _gemm_rows(columns: Columns) -> Iterator[KernelRow]:
    for record in _records(columns, "gemm", gemm_dtype="bfloat16"):
        yield KernelRow(
            "gemm", "bf16", m=record["m"], n=record["n"], k=record["k"], latency_us=record["latency"] * 1e3
        )


_ATTENTION: dict[str, Any] = {"attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16", "window_size": 0}


def _heads(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "q_heads": record["num_heads"],
        "kv_heads": record["num_key_value_heads"],
        "head_dim": record["head_dim"],
    }


def _context_rows(columns: Columns, kernel: str) -> Iterator[KernelRow]:
    for record in _records(columns, "context attention", kernel_source=kernel, **_ATTENTION):
        yield KernelRow(
            "attention",
            "bf16",
            num_chunks=record["batch_size"],
            chunk_tokens=record["isl"],
            latency_us=record["latency"] * 1e3,
            **_heads(record),
        )


def _generation_rows(columns: Columns, kernel: str) -> Iterator[KernelRow]:
    for record in _records(columns, "generation attention", kernel_source=kernel, **_ATTENTION):
        kv_tokens = record["isl"] + record["step"]
        yield KernelRow(
            "attention",
            "bf16",
            num_decodes=record["batch_size"],
            decode_kv_tokens=record["batch_size"] * kv_tokens,
            decode_kv_max_tokens=kv_tokens,
            latency_us=record["latency"] * 1e3,
            **_heads(record),
        )


def _all_reduce_rows(columns: Columns, topology: str) -> Iterator[KernelRow]:
    """vLLM's own choice of algorithm by size, replayed from a CUDA graph as vLLM does while it serves."""
    for record in _records(columns, "all-reduce", backend="vllm_graph", allreduce_dtype="bfloat16"):
        yield KernelRow(
            "all_reduce",
            "bf16",
            message_bytes=record["message_size"] * BYTES_PER_VALUE,
            world_size=record["num_gpus"],
            topology=topology,
            latency_us=record["latency"] * 1e3,
        )
