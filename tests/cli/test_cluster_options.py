"""`--backend` and `--address` that cannot be followed: one line, before any work."""

from __future__ import annotations

import sys

import pytest

QUESTIONS = [
    ("capacity",),
    ("budget",),
    ("compare", "--policy", "orca", "--policy", "stall_free"),
    ("plan", "--rate", "1"),
    ("reproduce",),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question[0])
@pytest.mark.parametrize(("backend", "package"), [("ray", "ray"), ("dask", "distributed")])
def test_a_missing_extra_is_named(stallfree, monkeypatch, question, backend, package):
    monkeypatch.setitem(sys.modules, package, None)
    if backend == "dask":
        monkeypatch.setitem(sys.modules, "dask", None)
    outcome = stallfree(*question, "--backend", backend)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f"error: --backend {backend} needs an extra: pip install 'stallfree[{backend}]'\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--address", "127.0.0.1:1"), "--address belongs to --backend ray or dask"),
        (("--backend", "slurm"), "--backend"),
    ],
)
def test_options_that_do_not_fit(stallfree, options, said):
    outcome = stallfree("capacity", *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "give the scheduler's --address"),
        (("--address", "nowhere"), "--address nowhere: must be HOST:PORT"),
        (("--address", "127.0.0.1:99999"), "no Dask cluster can be reached at 127.0.0.1:99999"),
    ],
)
def test_addresses_that_lead_nowhere(stallfree, monkeypatch, options, said):
    pytest.importorskip("distributed", reason="the extra [dask] is not installed")
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)
    outcome = stallfree("capacity", "--backend", "dask", *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
