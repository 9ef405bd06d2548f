"""Reading scenarios and presets: where values come from, and what is said of files that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.errors import ConfigError
from simulator.load import load_cluster, load_engine, load_gpu, load_model, load_scenario, looks_like_path
from simulator.memory import kv_capacity
from simulator.resources import list_configs

SCENARIO = "model: llama-3-8b\ngpu: h100_sxm\nworkload: {trace: chat}\n"


def written(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refusal(path: Path | str, *sets: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_scenario(str(path), sets)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", list_configs("scenarios"))
def test_shipped_scenarios_are_whole(name: str):
    """Every name in them resolves, the model fits, and there is an SLO to judge by."""
    scenario = load_scenario(name)
    gpu = load_gpu(scenario.gpu)
    load_engine(scenario.engine)
    load_cluster(scenario.cluster or gpu.cluster)
    assert kv_capacity(load_model(scenario.model), gpu, scenario).tokens > 8192
    assert scenario.name == name
    assert scenario.description
    assert scenario.slo


def test_the_default_scenario_is_the_one_promised():
    scenario = load_scenario("default")
    assert (scenario.model, scenario.gpu, scenario.workload.trace) == ("llama-3-8b", "h100_sxm", "chat")
    assert scenario.slo["p99_tbt_ms"] == 50
    assert (scenario.scheduler.policy, scenario.scheduler.token_budget) == ("stall_free", 512)


def test_the_papers_scenarios_differ_by_budget_and_slo_only():
    strict, relaxed = (load_scenario(f"paper-mistral-chat-{slo}") for slo in ("strict", "relaxed"))
    changed = strict.with_({"scheduler.token_budget": 2048, "slo.p99_tbt_ms": 500})
    assert changed.digest() == relaxed.digest()
    assert strict.slo == {"p99_tbt_ms": 100, "p50_scheduling_delay_s": 2}


def test_overrides_are_read_as_yaml_and_win():
    scenario = load_scenario(
        "default",
        [
            "scheduler.token_budget=1024",
            "workload.rate_rps=1.5e0",
            "slo={p99_ttft_s: 2}",
            "cluster=null",
            "name=a b",
        ],
    )
    assert scenario.scheduler.token_budget == 1024
    assert scenario.workload.rate_rps == 1.5
    assert scenario.slo == {"p99_ttft_s": 2}
    assert (scenario.cluster, scenario.name) == (None, "a b")


@pytest.mark.parametrize(
    ("text", "value"), [("1e1", 10), ("2E+1", 20), ("5e-1", 0.5), ("1.5e1", 15), ("3", 3)]
)
def test_exponents_are_numbers(text: str, value: float):
    assert load_scenario("default", [f"workload.rate_rps={text}"]).workload.rate_rps == value


def test_an_override_may_contain_equals_signs():
    assert load_scenario("default", ["description=a=b"]).description == "a=b"


def test_a_file_takes_its_name_from_the_file(tmp_path: Path):
    assert load_scenario(str(written(tmp_path, SCENARIO))).name == "mine"


def test_a_file_may_start_from_another(tmp_path: Path):
    text = "base: default\nscheduler: {token_budget: 64}\nslo: {p99_ttft_ms: 900}\n"
    scenario = load_scenario(str(written(tmp_path, text)))
    default = load_scenario("default")
    assert scenario.scheduler.token_budget == 64
    assert scenario.scheduler.max_num_seqs == default.scheduler.max_num_seqs
    assert scenario.slo == default.slo | {"p99_ttft_ms": 900}
    assert (scenario.name, scenario.description) == ("mine", "")


def test_a_base_may_be_a_file_beside(tmp_path: Path):
    written(tmp_path, SCENARIO, "under.yaml")
    assert load_scenario(str(written(tmp_path, "base: under.yaml\nreplicas: 3\n"))).replicas == 3


def test_another_kind_of_distribution_replaces_the_base_whole(tmp_path: Path):
    lengths = "workload: {lengths: {prompt: {kind: uniform, low: 1, high: 9}, output: 5}}\n"
    written(tmp_path, "model: llama-3-8b\ngpu: h100_sxm\n" + lengths, "under.yaml")
    over = "base: under.yaml\nworkload: {lengths: {prompt: {kind: fixed, tokens: 7}}}\n"
    found = load_scenario(str(written(tmp_path, over))).workload.lengths
    assert found is not None
    assert found.prompt.kind == "fixed"


def test_bases_that_go_round_in_circles_are_refused(tmp_path: Path):
    assert "at most 8 deep" in refusal(written(tmp_path, "base: mine.yaml\n"))


def test_the_resolved_scenario_can_be_read_again(tmp_path: Path):
    scenario = load_scenario("paper-mistral-chat-relaxed")
    path = written(tmp_path, json.dumps(scenario.model_dump(mode="json")), "again.json")
    assert load_scenario(str(path)) == scenario


def test_relative_traces_count_from_here_then_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
    elsewhere.mkdir()
    here.mkdir()
    text = SCENARIO.replace("chat", "mine.csv")
    path = written(elsewhere, text)
    monkeypatch.chdir(here)
    written(elsewhere, "", "mine.csv")
    assert load_scenario(str(path)).workload.trace == str(elsewhere / "mine.csv")
    written(here, "", "mine.csv")
    assert load_scenario(str(path)).workload.trace == "mine.csv"


def test_a_trace_given_by_override_is_left_as_it_is():
    assert load_scenario("default", ["workload.trace=../x/y.csv"]).workload.trace == "../x/y.csv"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "must be a mapping of keys to values (found nothing)"),
        ("- a\n- b\n", "must be a mapping of keys to values (found a list)"),
        ("just words\n", "must be a mapping of keys to values (found a str)"),
        (SCENARIO + "gpu: a40\n", "line 4, column 1: key 'gpu' is given twice"),
        (
            SCENARIO + "slo: {p99_tbt_ms: 50\n",
            "line 5, column 1: expected ',' or '}', but got '<stream end>'",
        ),
        (SCENARIO + "\tslo: 5\n", "line 4, column 1: found character '\\t' that cannot start any token"),
        (SCENARIO + "name: !!python/name:os.system\n", "line 4, column 7: could not determine a constructor"),
        (SCENARIO + "? [a]\n: b\n", "line 4, column 3: found unhashable key"),
        (SCENARIO + "x: *nowhere\n", "line 4, column 4: found undefined alias"),
        (SCENARIO + "x: \x07\n", "special characters are not allowed"),
        (SCENARIO + "x: !!timestamp soon\n", "a value does not fit its !! tag"),
        (SCENARIO + "x: 2024-13-45\n", "month must be in 1..12"),
        (SCENARIO + f"replicas: {'9' * 5000}\n", "Exceeds the limit"),
        ("x: " + "[" * 5000, "recursion"),
        ("gpu: h100_sxm\nworkload: {trace: chat}\n", "key model is required"),
        ("model: llama-3-8b\ngpu: h100_sxm\n", "key workload is required"),
        (SCENARIO + "modle: x\n", "unknown key modle (did you mean 'model'?)"),
        (SCENARIO + "5: x\n", "unknown key 5"),
        (SCENARIO + "slo: {p99_tbt: 50}\n", "slo.p99_tbt: the unit is missing: say p99_tbt_ms or p99_tbt_s"),
        (SCENARIO + "warmup_s: .nan\n", "warmup_s must be a finite number (found nan)"),
        (SCENARIO + "replicas: two\n", "replicas must be a valid integer"),
        (SCENARIO + "base: [default]\n", "base must name a preset or file"),
        (SCENARIO + "base: nothing-such\n", "unknown scenario 'nothing-such'"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str, expected: str):
    path = written(tmp_path, text)
    message = refusal(path)
    assert expected in message
    assert message.startswith((f"{path}: ", "unknown scenario"))


def test_bytes_that_are_not_text(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"model: \xff\xfe\n")
    assert refusal(path) == f"{path}: not UTF-8 text (byte 7)"


def test_missing_files_and_folders(tmp_path: Path):
    assert refusal(tmp_path / "no.yaml") == f"{tmp_path / 'no.yaml'}: no such file"
    assert refusal(f"{tmp_path}/") == f"{tmp_path}: is a folder, not a file"


def test_a_name_that_no_file_system_allows():
    assert refusal("x" * 5000 + ".yaml").endswith("no such file")
    assert "unknown scenario" in refusal("x" * 5000)


def test_unknown_names_get_a_hint():
    assert refusal("defualt") == "unknown scenario 'defualt' (did you mean 'default'?)"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("replicas", "--set replicas: must be key.path=value"),
        ("=5", "--set =5: must be key.path=value"),
        ("a..b=5", "--set a..b=5: must be key.path=value"),
        ("replicas=0", "--set: replicas must be greater than or equal to 1 (found 0)"),
        ("scheduler.budget=9", "--set: unknown key scheduler.budget (did you mean 'token_budget'?)"),
        ("slo.p99_tbt=9", "--set: slo.p99_tbt: the unit is missing: say p99_tbt_ms or p99_tbt_s"),
        ("replicas=[1", "--set replicas: line 1, column 3: expected ',' or ']', but got '<stream end>'"),
        ("model.name=x", "--set: model must be a valid string (found {'name': 'x'})"),
    ],
)
def test_overrides_that_cannot_be_used(override: str, expected: str):
    assert refusal("default", override) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"model": "a", "model": "b"}', "key 'model' is given twice"),
        ('{"model": }', "line 1, column 11: Expecting value"),
        ("[]", "must be a mapping"),
    ],
)
def test_json_files_that_cannot_be_used(tmp_path: Path, text: str, expected: str):
    assert expected in refusal(written(tmp_path, text, "mine.json"))


def test_json_may_be_indented_by_tabs(tmp_path: Path):
    text = '{\n\t"model": "llama-3-8b", "gpu": "a40",\n\t"workload": {"trace": "chat"}\n}'
    assert load_scenario(str(written(tmp_path, text, "mine.json"))).gpu == "a40"


def test_a_model_may_be_a_file_of_ours(tmp_path: Path):
    model = load_model(str(written(tmp_path, "base: llama-3-8b\nnum_layers: 2\n", "small.yaml")))
    assert (model.name, model.num_layers, model.hidden_size) == ("small", 2, 4096)


def test_a_preset_with_a_wrong_key_names_the_file(tmp_path: Path):
    path = written(tmp_path, "base: h100_sxm\nmemory_gb: 80\n", "gpu.yaml")
    with pytest.raises(ConfigError) as caught:
        load_gpu(str(path))
    assert str(caught.value).startswith(f"{path}: unknown key memory_gb (did you mean 'memory_gib'?)")


def test_unknown_presets_get_a_hint():
    for load, name, hint in (
        (load_model, "mistral7b", "mistral-7b"),
        (load_gpu, "h100-sxm", "h100_sxm"),
        (load_cluster, "nvlink4", "nvlink4_8gpu"),
        (load_engine, "vllm_v1", "vllm-v1"),
    ):
        with pytest.raises(ConfigError, match=f"did you mean '{hint}'"):
            load(name)


def test_what_looks_like_a_path():
    assert all(looks_like_path(text) for text in ("a/b", "./a", "a.yaml", "A.CSV", ".."))
    assert not any(looks_like_path(text) for text in ("llama-3.1-8b", "chat", "h100_sxm"))
