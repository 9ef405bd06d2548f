"""The AIConfigurator importer, on files made like the package's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiler.import_.aic import import_aic
from profiler.tables import KernelTable
from simulator.errors import InputError

parquet = pytest.importorskip("pyarrow.parquet")
pyarrow = pytest.importorskip("pyarrow")

GEMM = {"kernel_source": "linear", "gemm_dtype": "bfloat16", "m": 64, "n": 4096, "k": 1024, "latency": 0.02}
ATTENTION = {
    "kernel_source": "fa3",
    "batch_size": 4,
    "isl": 512,
    "num_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "attn_dtype": "bfloat16",
    "kv_cache_dtype": "bfloat16",
    "step": 0,
    "window_size": 0,
    "latency": 0.1,
}
ALL_REDUCE = {
    "kernel_source": "vLLM_custom_graph",
    "allreduce_dtype": "bfloat16",
    "num_gpus": 4,
    "message_size": 1024,
    "latency": 0.005,
    "backend": "vllm_graph",
}


def write(path: Path, *records: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(list(records)), path)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    device = root / "h100_sxm"
    write(device / "gemm/vllm/0.9.0/gemm_perf.parquet", {**GEMM, "latency": 99.0})
    write(device / "gemm/vllm/0.24.0/gemm_perf.parquet", GEMM, {**GEMM, "gemm_dtype": "fp8"})
    attention = device / "attention/vllm/0.24.0"
    write(
        attention / "context_attention_perf.parquet",
        ATTENTION,
        {**ATTENTION, "isl": 1024},
        {**ATTENTION, "kv_cache_dtype": "fp8"},
        {**ATTENTION, "window_size": 128},
        {**ATTENTION, "kernel_source": "fa4", "head_dim": 512},
    )
    write(attention / "generation_attention_perf.parquet", {**ATTENTION, "isl": 1, "step": 2047})
    write(
        device / "comm/vllm/0.19.0/custom_allreduce_perf.parquet",
        ALL_REDUCE,
        {**ALL_REDUCE, "backend": "vllm_eager", "latency": 0.5},
    )
    return root


def test_one_format_one_kernel_and_the_newest_release_are_taken(data: Path, tmp_path: Path) -> None:
    report = import_aic("h100_sxm", tmp_path / "out", data=data)
    assert report.rows == {"gemm": 1, "attention": 3, "all_reduce": 1}
    table = KernelTable.read(tmp_path / "out")
    assert table.meta.device == "h100_sxm"
    assert table.meta.backend == "fa3"
    assert table.meta.kv_write == "included"
    assert table.meta.libraries == {"vllm": "0.24.0", "vllm (all-reduce)": "0.19.0"}


def test_units_are_converted(data: Path, tmp_path: Path) -> None:
    import_aic("h100_sxm", tmp_path / "out", data=data)
    gemm, context, _, generation, all_reduce = KernelTable.read(tmp_path / "out").rows()
    assert gemm.latency_us == pytest.approx(20.0)
    assert (context.num_chunks, context.chunk_tokens, context.prefix_tokens) == (4, 512, 0)
    assert (generation.num_decodes, generation.decode_kv_tokens, generation.decode_kv_max_tokens) == (
        4,
        8192,
        2048,
    )
    assert (all_reduce.message_bytes, all_reduce.world_size, all_reduce.topology) == (2048, 4, "nvlink")


def test_a_release_can_be_chosen(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no version '0.9.0'"):  # it lacks attention
        import_aic("h100_sxm", tmp_path / "out", "0.9.0", data=data)


def test_unknown_devices_and_missing_files_are_named(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown device 'h100_sxn' \(did you mean 'h100_sxm'"):
        import_aic("h100_sxn", tmp_path / "out", data=data)
    with pytest.raises(InputError, match=r"holds no gemm_perf.parquet"):
        import_aic("a100_sxm", tmp_path / "out", data=data)


def test_a_damaged_file_is_named(data: Path, tmp_path: Path) -> None:
    (data / "h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet").write_text("not parquet")
    with pytest.raises(InputError, match=r"gemm_perf.parquet: "):
        import_aic("h100_sxm", tmp_path / "out", data=data)


def test_a_folder_that_holds_a_table_is_not_overwritten(data: Path, tmp_path: Path) -> None:
    import_aic("h100_sxm", tmp_path / "out", data=data)
    with pytest.raises(InputError, match="holds a table already"):
        import_aic("h100_sxm", tmp_path / "out", data=data)


def test_a_file_without_latencies_is_named(data: Path, tmp_path: Path) -> None:
    write(data / "h100_sxm/gemm/vllm/0.24.0/gemm_perf.parquet", {"m": 1, "kernel_source": "x"})
    with pytest.raises(InputError, match="the gemm file has no column 'latency'"):
        import_aic("h100_sxm", tmp_path / "out", data=data)
