"""A mix of classes: shares, lengths class by class, and what does not depend on what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from simulator.errors import ConfigError
from simulator.load import load_scenario
from simulator.spec import parse
from simulator.workload import Workload, WorkloadSpec, build_workload

SHORT = {"prompt": {"kind": "uniform", "low": 10, "high": 99}, "output": 5}
LONG = {"prompt": {"kind": "uniform", "low": 1000, "high": 1999}, "output": 7}


def built(mix: dict[str, Any], count: int = 4000, seed: int = 0, **keys: Any) -> Workload:
    spec = {"mix": mix, "rate_rps": 1.0, "num_requests": count, **keys}
    return build_workload(WorkloadSpec.model_validate(spec), seed)


def of_class(workload: Workload, name: str) -> np.ndarray:
    assert workload.classes is not None
    return workload.prompt_tokens[workload.classes.codes == workload.classes.names.index(name)]


def test_classes_come_by_their_shares_with_lengths_of_their_own() -> None:
    workload = built({"chat": {"share": 3, "lengths": SHORT}, "batch": {"lengths": LONG}})
    assert workload.classes is not None
    assert workload.classes.names == ("chat", "batch")
    assert np.mean(workload.classes.codes == 0) == pytest.approx(0.75, abs=0.03)
    assert of_class(workload, "chat").max() < 100
    assert of_class(workload, "batch").min() >= 1000
    assert set(workload.output_tokens[workload.classes.codes == 0]) == {5}


def test_two_classes_alike_are_drawn_apart() -> None:
    workload = built({"a": {"lengths": SHORT}, "b": {"lengths": SHORT}})
    a, b = of_class(workload, "a"), of_class(workload, "b")
    assert a[:100].tolist() != b[:100].tolist()


def test_another_class_leaves_the_lengths_of_a_class_alone() -> None:
    one = of_class(built({"a": {"lengths": SHORT}, "b": {"lengths": LONG}}), "a")
    two = of_class(built({"a": {"lengths": SHORT}, "b": {"lengths": SHORT, "share": 3}}), "a")
    shared = min(len(one), len(two))
    assert one[:shared].tolist() == two[:shared].tolist()


def test_a_trace_may_be_a_class(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,3,1\n1,4,1\n")
    mix = {"t": {"trace": str(tmp_path / "t.csv")}, "chat": {"trace": "chat"}}
    workload = built(mix)
    drawn = of_class(workload, "t")
    assert set(drawn) == {3, 4}
    assert abs(np.count_nonzero(drawn == 3) - len(drawn) / 2) <= 1
    assert any("trace t are repeated" in note for note in workload.notes)
    assert WorkloadSpec.model_validate({"mix": mix, "rate_rps": 1.0}).traces() == (
        str(tmp_path / "t.csv"),
        "chat",
    )


def test_prefixes_of_traces_are_left_out_and_said_so(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("prompt_tokens,output_tokens,block_ids\n32,1,1 2\n")
    workload = built({"t": {"trace": str(tmp_path / "t.csv")}}, count=3)
    assert workload.block_ids is None
    assert "shared prefixes of trace t are left out of the mix" in workload.notes


def test_a_class_without_a_request_keeps_its_name() -> None:
    workload = built({"a": {"lengths": SHORT}, "rare": {"trace": "chat", "share": 1e-6}}, count=5)
    assert workload.classes is not None
    assert workload.classes.names == ("a", "rare")
    assert len(of_class(workload, "rare")) == 0


def test_traces_of_a_mix_are_found_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("prompt_tokens,output_tokens\n3,1\n")
    scenario = {
        "model": "tiny",
        "gpu": "cpu",
        "workload": {"mix": {"own": {"trace": "own.csv"}, "drawn": {"lengths": SHORT}}, "rate_rps": 1},
    }
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(scenario))
    assert load_scenario(str(tmp_path / "s.yaml")).workload.traces() == (str(tmp_path / "own.csv"),)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"mix": {"a": {}}}, "mix.a: give either trace or lengths"),
        ({"mix": {"a": {"trace": "chat", "lengths": SHORT}}}, "give either trace or lengths"),
        ({"mix": {"a": {"trace": "chat", "share": 0}}}, "mix.a.share must be greater than 0"),
        ({"mix": {}}, "mix"),
        ({"mix": {"a": {"trace": "chat"}}, "trace": "chat"}, "trace and mix exclude each other"),
        ({"mix": {"a": {"trace": "chat"}}, "arrivals": "trace"}, "arrivals: trace needs a trace"),
    ],
)
def test_keys_are_checked(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(WorkloadSpec, {"rate_rps": 1.0, **keys}, "workload")
