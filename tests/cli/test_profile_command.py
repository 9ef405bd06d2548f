"""`stallfree profile` and `stallfree replay`: answers, JSON, and one clear line for every mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.cli import main

ROOT = Path(__file__).resolve().parents[2]


def run(capsys, line: str) -> tuple[int, str, str]:
    code = main(line.split())
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_dry_run_needs_no_gpu(capsys) -> None:
    code, out, _ = run(capsys, "profile --model llama-3-8b --gpu h200_sxm --dry-run")
    assert code == 0
    assert out.startswith("1064 points, about ")
    assert "mixed, pass 2" in out


def test_the_dry_run_as_json(capsys) -> None:
    line = "profile --model llama-3-8b --gpu h200_sxm --dry-run --passes 1 --tp 1,2 --json"
    document = json.loads(run(capsys, line)[1])
    assert document["command"] == "profile"
    assert document["points"] == sum(block["points"] for block in document["blocks"])
    assert [block["name"] for block in document["blocks"]][-1] == "collectives, pass 1"


def test_a_deadline_that_is_too_short_is_said(capsys) -> None:
    out = run(capsys, "profile --model llama-3-8b --gpu a40 --dry-run --deadline 10s")[1]
    assert "The deadline of 10.0 s would cut it short." in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("profile --out x", "--model: name a model"),
        ("profile --model tiny --device cpu --out /dev/null", "/dev/null cannot be used as a folder"),
        ("profile --model tinny --out x", "did you mean 'tiny'"),
        ("profile --model tiny --device cpu --dry-run --tp 1,x", "--tp 1,x: expected sizes such as 1,2,4"),
        ("profile --model tiny --device cpu --dry-run --tp 3", "num_heads 8, which 3 ranks cannot share"),
        ("profile --model tiny --device cpu --dry-run --deadline 5d", "--deadline 5d: expected a time"),
        ("profile --model tiny --device cpu --dry-run --deadline 0s", "must be more than nothing"),
        ("profile --model tiny --device cpu --dry-run --ops gem", "did you mean 'gemm'"),
        ("profile --model tiny --device cpu --dry-run --gpu h20", "unknown gpu"),
        ("profile --model tiny --device foo --dry-run", "device 'foo': expected cpu, cuda or cuda:N"),
        ("profile --model tiny --device cpu --dry-run --attention zz", "unknown attention backend 'zz'"),
        ("profile --model tiny --device cpu --dry-run --ops=", "unknown operator ''"),
        ("profile --model tiny --device cpu --dry-run --max-len 10000000000", "--max-len. Must be <="),
        (
            "profile --model tiny --device cpu --dry-run --page-size 100000000",
            "no sequence is longer than 2048",
        ),
        (
            "profile --model llama-3-8b --gpu a40 --dry-run --attention fa2",
            "fa2 needs a multiple of 256, found 16",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(capsys, words: str, message: str) -> None:
    code, out, err = run(capsys, words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_without_torch_the_install_command_is_named(capsys, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for words in (f"profile --model tiny --device cpu --out {tmp_path}/t", "replay tiny-cpu --device cpu"):
        code, _, err = run(capsys, words)
        assert code == 2
        assert "need torch" in err
        assert "pip install 'stallfree[profile]'" in err


def test_the_script_for_a_gpu_prints_its_grids() -> None:
    environment = os.environ | {"DRY_RUN": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    script = ROOT / "docs" / "examples" / "profile-gpu.sh"
    done = subprocess.run(
        ["bash", str(script), "h100_sxm"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.count("nothing was measured") == 3
    assert "on h100_sxm" in done.stdout


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="profiling needs torch: pip install 'stallfree[profile]'")


def test_backends_are_listed_with_reasons(capsys, torch) -> None:
    code, out, _ = run(capsys, "profile --list-backends --device cpu")
    assert code == 0
    assert out.startswith("Attention backends usable on cpu: sdpa, reference.")
    assert "needs a CUDA GPU of compute capability 9.0" in out


def test_a_table_is_measured_and_not_written_over(capsys, torch, tmp_path: Path) -> None:
    out = tmp_path / "table"
    line = f"profile --model tiny --device cpu --passes 1 --ops rmsnorm --out {out}"
    code, text, _ = run(capsys, f"{line} --quiet")
    assert code == 0
    assert text.startswith("8 rows measured in ")
    code, _, err = run(capsys, line)
    assert code == 2
    assert "holds a table already; --resume goes on with it" in err
    document = json.loads(run(capsys, f"{line} --resume --json --quiet")[1])
    assert (document["measured"], document["present"], document["remaining"]) == (0, 8, 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--set parallel.tensor=2", "replay runs one model on one device"),
        ("--attention fa2", "cannot be used on cpu"),
        ("--set memory.num_blocks=2", "not one of 40 requests fits"),
    ],
)
def test_a_replay_that_cannot_be_is_refused(capsys, torch, words: str, message: str) -> None:
    code, _, err = run(capsys, f"replay tiny-cpu --device cpu --quiet {words}")
    assert code in (2, 3)
    assert message in err


def test_a_sample_of_iterations_as_json(capsys, torch) -> None:
    line = "replay tiny-cpu --device cpu --sample 6 --quiet --json --set workload.num_requests=8"
    code, out, _ = run(capsys, line)
    document = json.loads(out)
    assert code == 0
    assert set(document["iteration_error_pct"]) == {"p50", "p90", "bias"}
    assert document["iterations"] == sum(group["count"] for group in document["by_composition"].values())
    assert set(document["by_composition"]) <= {"decode", "prefill", "mixed"}


def test_a_live_run_prints_both_sides(capsys, torch) -> None:
    line = "replay tiny-cpu --device cpu --mode live --quiet --set workload.num_requests=4"
    code, out, _ = run(capsys, f"{line} --set workload.rate_rps=50")
    assert code == 0
    assert out.startswith("Iteration time: error ")
    for words in (
        "TTFT median (ms)",
        "TBT P99 (ms)",
        "output tokens/s",
        "host time of the replay's own loop",
    ):
        assert words in out
