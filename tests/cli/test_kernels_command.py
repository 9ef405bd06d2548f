"""`stallfree kernels`: what it shows, and one line for what it cannot use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def test_show_says_where_an_artefact_comes_from(stallfree):
    outcome = stallfree("kernels", "show", "niyama-a100-llama3-8b")
    assert outcome.code == 0
    assert "Apache-2.0" in outcome.out
    assert "Niyama" in outcome.out
    answer = json.loads(stallfree("kernels", "show", "niyama-a100-llama3-8b", "--json").out)
    assert answer["artefact"]["gpu"] == "a100_80gb_sxm"


def test_show_takes_a_file(stallfree, tmp_path: Path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"name": "mine", "held_out_error_pct": {"gemm": {"shapes": 4.25}}}))
    outcome = stallfree("kernels", "show", str(path))
    assert outcome.code == 0
    assert outcome.out.startswith("mine (")
    assert outcome.out.splitlines()[-1].split() == ["gemm", "shapes", "4.2"]


def test_evaluate_prints_the_errors_of_three_methods(stallfree, tmp_path: Path):
    rows = [f"gemm,{m},{n},4096,{5 + m * n / 1e6}" for m in (1, 8, 64, 256, 512, 1024) for n in (1024, 4096)]
    (tmp_path / "meta.yaml").write_text("device: h100_sxm\n")
    (tmp_path / "rows.csv").write_text("op,m,n,k,latency_us\n" + "\n".join(rows) + "\n")
    outcome = stallfree("kernels", "evaluate", str(tmp_path), "--folds", "1")
    assert outcome.code == 0
    assert all(method in outcome.out for method in ("ours", "random forest", "interpolation"))
    document = json.loads(stallfree("kernels", "evaluate", str(tmp_path), "--folds", "1", "--json").out)
    assert {"family", "split", "method", "mape", "bias"} <= set(document["rows"][0])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "nosuch"], "unknown kernels 'nosuch'"),
        (["show", "nosuch.json"], "cannot be read"),
        (["fit", "--out", "x.json"], "at least one table"),
        (["fit", "nosuch", "--out", "x.json"], "nosuch"),
        (["import", "aic", "--device", "h1000", "--out", "x"], "unknown device 'h1000'"),
        (["import", "nobody"], "nobody"),
        (["import", "vidur", "nosuch", "--out", "x"], "linear_ops.csv: file is missing"),
        (["import", "llmservingsim", "nosuch", "--out", "x"], "meta.yaml: file is missing"),
        (["evaluate", "nosuch"], "nosuch: not a kernel table"),
        (["evaluate", "nosuch", "--folds", "6"], "--folds must be 1 to 5"),
    ],
)
def test_errors(stallfree, arguments: list[str], said: str):
    outcome = stallfree("kernels", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("\n") == 1
    assert said in outcome.err


@pytest.mark.parametrize(
    ("arguments", "out", "said"),
    [
        (["import", "aic", "--device", "h100_sxm"], "file", "file cannot be used as a folder (File exists)"),
        (["import", "vidur", "nosuch"], "file/x", "file/x cannot be used as a folder (Not a directory)"),
        (["import", "llmservingsim", "nosuch"], "file", "file cannot be used as a folder (File exists)"),
        (["fit", "nosuch"], "folder", "folder: is a folder, a file is expected"),
        (["fit", "nosuch"], "file/x.json", "file cannot be used as a folder (File exists)"),
    ],
)
def test_out_is_tried_before_the_work_starts(stallfree, tmp_path, arguments, out, said):
    """What is read is not there either, and that is not yet known."""
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    outcome = stallfree("kernels", *arguments, "--out", str(tmp_path / out))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: --out")
    assert outcome.err.count("\n") == 1
    assert said in outcome.err


def test_a_failed_import_leaves_no_folder(stallfree, tmp_path):
    assert stallfree("kernels", "import", "vidur", "nosuch", "--out", str(tmp_path / "a" / "b")).code == 2
    assert not list(tmp_path.iterdir())
