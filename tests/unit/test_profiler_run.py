"""The profiling job on the CPU: rows as they are measured, resume after a kill, deadlines, and the gate."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="profiling needs torch: pip install 'stallfree[profile]'")

from profiler.device import open_device
from profiler.job import ProfileJob
from profiler.kernels.backends.sdpa import Sdpa
from profiler.kernels.collectives import measure_collectives
from profiler.kernels.gate import GateError
from profiler.run import profile
from profiler.tables import KernelRow, KernelTable, row_key
from profiler.timing import CpuClock
from simulator.errors import ConfigError
from simulator.load import load_model

TINY = load_model("tiny")


def job(out: Path, **changes) -> ProfileJob:
    return ProfileJob(**{"model": TINY, "out": out, "device": "cpu", "passes": 1, **changes})


def keys(out: Path) -> Counter:
    return Counter(row_key(row) for row in KernelTable.read(out).rows())


def wanted(job: ProfileJob) -> Counter:
    return Counter(row_key(point) for block in job.blocks() for point in block.points)


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """A whole pass over the elementwise operators and the host, a second's work."""
    out = tmp_path_factory.mktemp("profile") / "table"
    profile(job(out, ops=("rmsnorm", "rope", "activation", "kv_write", "embedding", "sampler", "host")))
    return out


def test_every_point_of_the_grid_is_a_row_with_plausible_statistics(table: Path) -> None:
    rows = list(KernelTable.read(table).rows())
    assert {row.op for row in rows} == {
        *("rmsnorm", "rope", "activation", "kv_write", "embedding", "sampler", "host")
    }
    for row in rows:
        assert 0 < row.p10_us <= row.latency_us <= row.p90_us < 1e6
        assert row.num_samples == 15


def test_more_tokens_take_longer(table: Path) -> None:
    norms = {row.m: row.latency_us for row in KernelTable.read(table).rows() if row.op == "rmsnorm"}
    assert norms[320] > norms[1]


def test_the_table_says_where_it_comes_from(table: Path) -> None:
    meta = KernelTable.read(table).meta
    assert (meta.device, meta.backend, meta.page_size) == ("cpu", "sdpa", 16)
    assert meta.libraries["torch"] == torch.__version__
    assert meta.environment["dtype"] == "fp32"
    assert "median" in meta.protocol


def test_conditions_are_noted_beside_the_rows(table: Path) -> None:
    lines = (table / "conditions.csv").read_text().splitlines()
    assert lines[0].startswith("time_s,block,points_done,anchor_gemm_us,anchor_copy_us,sm_clock_mhz")
    assert len(lines) >= 2


def test_attention_and_linear_rows_and_their_gate(tmp_path: Path) -> None:
    out = tmp_path / "table"
    report = profile(job(out, ops=("attention", "gemm"), deadline_s=3.0))
    assert set(report.gate_errors) == {"prefix chunk", "decode", "mixed"}
    rows = list(KernelTable.read(out).rows())
    assert rows
    assert {row.op for row in rows} <= {"attention", "gemm"}


def test_a_folder_with_a_table_is_not_written_over(table: Path) -> None:
    with pytest.raises(ConfigError, match="holds a table already; --resume goes on with it"):
        profile(job(table, ops=("host",)))


def test_a_resumed_job_that_lacks_nothing_measures_nothing(table: Path) -> None:
    before = keys(table)
    report = profile(job(table, ops=("host", "rmsnorm"), resume=True))
    assert report.measured == 0
    assert keys(table) == before


def test_the_deadline_keeps_what_is_measured_and_resume_adds_the_rest(tmp_path: Path) -> None:
    out = tmp_path / "table"
    short = job(out, ops=("rmsnorm", "sampler"), deadline_s=1e-9)
    first = profile(short)
    assert (first.measured, first.remaining) == (0, sum(wanted(short).values()))
    second = profile(job(out, ops=("rmsnorm", "sampler"), resume=True))
    assert second.remaining == 0
    assert keys(out) == wanted(short)


def test_a_killed_run_loses_no_row_and_resume_doubles_none(tmp_path: Path) -> None:
    out = tmp_path / "table"
    ops = ("rmsnorm", "rope", "activation", "kv_write", "embedding", "sampler")
    words = f"profile --model tiny --device cpu --ops {','.join(ops)} --quiet --out {out}".split()
    program = f"from simulator.cli import main; main({words})"
    process = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "OMP_NUM_THREADS": "1"})
    rows = out / "rows.csv"
    until = time.monotonic() + 60
    while not (rows.exists() and rows.read_text().count("\n") > 10):
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    survived = keys(out)
    assert sum(survived.values()) >= 10
    with rows.open("a") as file:
        file.write("rmsnorm,fp32,12,3")  # as if the kill had come in the middle of a line
    rest = job(out, ops=ops, passes=2, resume=True)
    report = profile(rest)
    assert report.present == sum(survived.values())
    assert report.measured > 0
    assert keys(out) == wanted(rest)


def test_ctrl_c_keeps_the_rows(tmp_path: Path, monkeypatch) -> None:
    measure, calls = CpuClock.measure, []

    def interrupted(self, copies):
        calls.append(copies)
        if len(calls) > 12:
            raise KeyboardInterrupt
        return measure(self, copies)

    monkeypatch.setattr(CpuClock, "measure", interrupted)
    monkeypatch.setattr(CpuClock, "preheat", lambda *arguments: None)
    out = tmp_path / "table"
    lines: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        profile(job(out, ops=("rmsnorm", "rope")), lines.append)
    assert sum(keys(out).values()) == 10  # two of the twelve calls were anchors
    assert "--resume goes on where this run stopped" in lines[-1]


def test_a_backend_that_is_wrong_leaves_no_table(tmp_path: Path, monkeypatch) -> None:
    plan = Sdpa.plan

    def wrong(self, step):
        attend = plan(self, step)
        return lambda q, pool, out: attend(q, pool, out) * 1.1

    monkeypatch.setattr(Sdpa, "plan", wrong)
    with pytest.raises(GateError, match=r"relative error 0\.1"):
        profile(job(tmp_path / "table"))
    assert not (tmp_path / "table").exists()


def test_points_beyond_the_memory_are_skipped(tmp_path: Path, monkeypatch) -> None:
    small = replace(open_device("cpu"), memory_bytes=2**20)
    monkeypatch.setattr("profiler.run.open_device", lambda name: small)
    report = profile(job(tmp_path / "table", ops=("gemm",), grid="small"))
    assert (report.measured, report.remaining) == (0, 0)
    assert report.skipped == sum(wanted(job(tmp_path, ops=("gemm",))).values())


def test_messages_between_two_processes() -> None:
    points = [
        KernelRow(op, "fp32", message_bytes=size, world_size=2)
        for op in ("all_reduce", "send_recv")
        for size in (1024, 2**18)
    ]
    times: list[float] = []
    measure_collectives(points, 2, cuda=False, on_timing=lambda point, timing: times.append(timing.median_us))
    assert len(times) == 4
    assert min(times) > 0
