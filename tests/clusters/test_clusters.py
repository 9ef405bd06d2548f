"""The same bytes from one process, two, Ray, Dask, and the stores that they fill; a cluster that does not
answer is one clear line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "import sys; from simulator.cli import main; sys.exit(main())"]
SMALL = """
model: llama-3-8b
gpu: h100_sxm
kernels: roofline
scheduler: {policy: stall_free, token_budget: 512, max_num_seqs: 32, max_model_len: 4096}
workload:
  lengths:
    prompt: {kind: uniform, low: 20, high: 400}
    output: {kind: uniform, low: 2, high: 300}
  num_requests: 160
  rate_rps: 8
slo: {p99_tbt_ms: 20}
"""
CAPACITY = ("capacity", "small.yaml", "--runs", "2")
# fmt: off
QUESTIONS = {
    "capacity": CAPACITY,
    "budget": ("budget", "small.yaml", "--runs", "1", "--budgets", "256", "512"),
    "compare": ("compare", "small.yaml", "--policy", "orca", "--policy", "stall_free", "--runs", "2"),
    "reproduce": ("reproduce", "--only", "chunking"),
    "plan": (
        "plan", "small.yaml", "--rate", "8", "--gpus", "h100_sxm,a100_sxm", "--max-gpus", "2",
        "--runs", "1", "--budgets", "512", "--sequences", "32",
    ),
}
# fmt: on


def answer(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own, in a folder with the small scenario."""
    (folder / "small.yaml").write_text(SMALL, encoding="utf-8")
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=os.environ | {"RAY_DISABLE_IMPORT_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module", params=QUESTIONS)
def question(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """One question for each command that fans out."""
    return (*QUESTIONS[request.param], "--json")


@pytest.fixture(scope="module")
def expected(question: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> str:
    """What one process answers without a store."""
    outcome = answer(tmp_path_factory.mktemp("one"), *question, "--jobs", "1", "--no-store")
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


@pytest.mark.parametrize("where", ["two", "ray", "dask"])
def test_the_answer_is_the_same_everywhere(
    question: tuple[str, ...], expected: str, where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    workers = (
        ("--jobs", "2")
        if where == "two"
        else ("--backend", where, "--address", request.getfixturevalue(f"{where}_address"))
    )
    store = ("--store", str(tmp_path / "trials.sqlite"))
    outcome = answer(tmp_path, *question, *workers, *store)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout == expected
    if question[0] == "plan":  # the search with the most kinds of rounds: again, from what the workers stored
        assert answer(tmp_path, *question, "--jobs", "1", *store).stdout == expected


@pytest.mark.parametrize("cluster", ["ray", "dask"])
def test_a_users_error_on_a_cluster_is_told_as_it_is_here(
    cluster: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue(f"{cluster}_address")
    wrong = ("--set", "model=llama-3-70b", "--no-store")  # does not fit, which is found in the simulation
    arguments = (*QUESTIONS["compare"], *wrong, "--quiet")
    here = answer(tmp_path, *arguments, "--jobs", "1")
    there = answer(tmp_path, *arguments, "--backend", cluster, "--address", address)
    assert here.returncode == there.returncode == 2
    assert "does not fit" in here.stderr
    assert there.stderr == here.stderr


@pytest.mark.parametrize("cluster", ["ray", "dask"])
def test_a_cluster_that_does_not_answer_is_one_line(cluster: str, tmp_path: Path) -> None:
    pytest.importorskip({"ray": "ray", "dask": "distributed"}[cluster], reason=f"no extra [{cluster}]")
    outcome = answer(tmp_path, *CAPACITY, "--backend", cluster, "--address", "127.0.0.1:9")
    assert outcome.returncode == 2
    assert outcome.stdout == ""
    [line] = outcome.stderr.splitlines()
    assert line.startswith(f"error: no {cluster.capitalize()} cluster can be reached at 127.0.0.1:9 (")


LATE_RESULTS = """
import sys, threading, time
import ray
from joblib import Parallel, delayed
from simulator.search.on_cluster import on_cluster

def fail():
    raise ValueError

def late_get(*args, get=ray.get, **options):
    time.sleep(1.0 if threading.current_thread() is not threading.main_thread() else 0.0)
    return get(*args, **options)

ray.get = late_get
try:
    with on_cluster("ray", sys.argv[1]):
        Parallel(n_jobs=2)([delayed(fail)(), *[delayed(time.sleep)(0.1)] * 3])
except ValueError:
    print(threading.active_count())
time.sleep(1.5)
"""


def test_after_an_error_no_thread_connects_to_ray_again(ray_address: str) -> None:
    command = [sys.executable, "-c", LATE_RESULTS, ray_address]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (outcome.stdout, outcome.stderr) == ("1\n", "")
