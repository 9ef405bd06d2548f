"""Kernel tables: reading, appending, resuming, refusing."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.tables import COLUMNS, KernelRow, KernelTable, TableMeta, TableWriter, row_key
from simulator.errors import InputError

META = TableMeta(device="test", backend="fake", page_size=16)
GEMM = KernelRow("gemm", "bf16", m=64, n=4096, k=1024, latency_us=12.25, p90_us=13.0, num_samples=7)
MIXED = KernelRow(
    "attention",
    "bf16",
    chunk_tokens=512,
    num_chunks=1,
    num_decodes=2,
    decode_kv_tokens=300,
    decode_kv_max_tokens=200,
    q_heads=32,
    kv_heads=8,
    head_dim=128,
    latency_us=99.0,
    flags="spread;clock_drop",
)


def write(folder: Path, *rows: KernelRow) -> None:
    with TableWriter(folder, META) as writer:
        writer.append(*rows)


def test_rows_survive_a_round_trip(tmp_path: Path) -> None:
    write(tmp_path, GEMM, MIXED)
    table = KernelTable.read(tmp_path)
    assert table.meta == META
    gemm, mixed = table.rows()
    assert (gemm.m, gemm.n, gemm.k, gemm.latency_us, gemm.p90_us) == (64, 4096, 1024, 12.25, 13.0)
    assert mixed == KernelRow(
        **{**{c: getattr(MIXED, c) for c in COLUMNS}, "p10_us": mixed.p10_us, "p90_us": mixed.p90_us}
    )
    assert len(table.select("attention")) == 1


def test_resuming_keeps_rows_and_knows_their_keys(tmp_path: Path) -> None:
    write(tmp_path, GEMM)
    with TableWriter(tmp_path, META) as writer:
        assert writer.existing_keys() == {row_key(GEMM)}
        writer.append(MIXED)
    assert [row.op for row in KernelTable.read(tmp_path).rows()] == ["gemm", "attention"]


def test_a_second_pass_has_another_key() -> None:
    again = KernelRow("gemm", "bf16", m=64, n=4096, k=1024, latency_us=12.0, pass_id="2")
    assert row_key(again) != row_key(GEMM)


def test_a_line_that_was_cut_off_is_not_read_and_is_mended_on_resume(tmp_path: Path) -> None:
    write(tmp_path, GEMM)
    with (tmp_path / "rows.csv").open("a") as file:
        file.write("gemm,bf16,128,40")
    assert len(KernelTable.read(tmp_path)) == 1
    write(tmp_path, MIXED)
    assert [row.op for row in KernelTable.read(tmp_path).rows()] == ["gemm", "attention"]


def test_another_backend_may_not_append(tmp_path: Path) -> None:
    write(tmp_path, GEMM)
    with pytest.raises(InputError, match="backend 'fake', this run has 'other'"):
        TableWriter(tmp_path, META.model_copy(update={"backend": "other"}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("op,m\n", "column 'latency_us' is missing"),
        ("op,latency_ms\n", r"unknown column 'latency_ms' \(did you mean 'latency_us'"),
        ("op,m,n,k,latency_us\ngem,1,1,1,1\n", r"rows.csv:2: unknown op 'gem' \(did you mean 'gemm'"),
        ("op,m,n,k,latency_us\ngemm,1,1,1,1\ngemm,1,x,1,1\n", "rows.csv:3: n is 'x'"),
        ("op,m,n,k,latency_us\ngemm,1,1.5,1,1\n", "n is '1.5', a whole number"),
        ("op,m,n,k,latency_us\ngemm,1,,1,1\n", "gemm needs n > 0"),
        ("op,m,n,k,latency_us\ngemm,1,1,1,nan\n", "latency_us is nan"),
        ("op,m,n,k,latency_us\ngemm,1,1,1,-3\n", "latency_us is -3.0"),
        ("op,m,n,k,latency_us\ngemm,1,1,1\ngemm,1,1,1,1\n", "rows.csv:2: 4 fields, the header has 5"),
        ("op,q_heads,kv_heads,head_dim,latency_us\nattention,8,8,64,5\n", "needs num_decodes > 0"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "meta.yaml").write_text("device: test\n")
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        KernelTable.read(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("devise: x\ndevice: y\n", r"devise: .*did you mean 'device'"),
        ("device: x\nschema_version: 2\n", "schema_version"),
        ("- a\n", "a mapping is expected"),
        ("a: [\n", "meta.yaml"),
    ],
)
def test_a_bad_meta_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "meta.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        KernelTable.read(tmp_path)


def test_a_folder_without_meta_is_not_a_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not a kernel table: meta.yaml is missing"):
        KernelTable.read(tmp_path)


def test_a_row_that_no_reader_would_take_is_not_written(tmp_path: Path) -> None:
    with TableWriter(tmp_path, META) as writer, pytest.raises(InputError, match="latency_us is nan"):
        writer.append(KernelRow("gemm", m=1, n=1, k=1))
    assert len(KernelTable.read(tmp_path)) == 0
