"""From a scenario to its latency model: which kernels it gets, what the answer says of them, and how soon."""

from __future__ import annotations

import json
import shutil
import time
from itertools import pairwise

import pytest

from simulator.batch import BatchShape
from simulator.config import Scenario
from simulator.errors import CalibrationError, ConfigError
from simulator.latency import ConstantLatency, build_latency
from simulator.latency.batch_time import LinearBatchTime
from simulator.latency.build import find_artefact
from simulator.latency.stages import KernelLatency
from simulator.load import load_gpu
from simulator.resources import config_path, list_configs

NIYAMA = "niyama-a100-llama3-8b"
SHAPE = BatchShape.of(chunks=((400, 0),), decode_kv=(1000,) * 16)


def scenario(**changes) -> Scenario:
    settings = {
        "model": "llama-3-8b",
        "gpu": "l40s",
        "kernels": "roofline",
        "workload": {"trace": "chat", "arrivals": "poisson", "rate_rps": 1.0},
    }
    return Scenario.model_validate(settings | changes)


def test_the_roofline_says_what_it_is():
    model = build_latency(scenario())
    assert isinstance(model, KernelLatency)
    assert any("l40s: analytic roofline" in note for note in model.notes)


def test_auto_falls_back_to_the_roofline_where_nothing_was_measured():
    assert find_artefact("auto", load_gpu("cpu")) is None
    missing = load_gpu("cpu").model_copy(update={"kernels": "not-shipped"})
    assert find_artefact("auto", missing) is None


def test_auto_finds_the_kernels_of_the_gpu():
    gpu = load_gpu("l40s").model_copy(update={"kernels": NIYAMA})
    assert find_artefact("auto", gpu) == config_path("kernels", NIYAMA)


def test_whole_iterations_by_name():
    model = build_latency(scenario(kernels=NIYAMA, gpu="a100_80gb_sxm"))
    assert isinstance(model, LinearBatchTime)
    assert len(model.notes) == 1


def test_measurements_of_another_gpu_and_model_are_noted():
    notes = build_latency(scenario(kernels=NIYAMA, model="mistral-7b")).notes
    assert any("measured with a100_80gb_sxm, the scenario has l40s" in note for note in notes)
    assert any("measured with llama-3-8b, the scenario has mistral-7b" in note for note in notes)


def measured_gpus() -> list[str]:
    return [gpu for gpu in list_configs("gpus") if find_artefact("auto", load_gpu(gpu)) is not None]


@pytest.mark.parametrize("chunks", [(), ((400, 1000),)])
def test_unequal_lengths_take_longer_where_they_were_measured(chunks):
    """Of lengths with one sum and one maximum, those take longer of which more are long."""
    model = build_latency(scenario(gpu="rtx_pro_6000", model="llama-3.1-8b", kernels="auto"))
    lengths = [(2000,) * 64, (4000,) + (1968,) * 62 + (1984,), (4000,) * 16 + (1333,) * 47 + (1349,)]
    assert len({sum(kv) for kv in lengths}) == 1
    equal, one_long, many_long = (model.stage_time_s(BatchShape.of(chunks, kv), 0) for kv in lengths)
    assert equal < one_long < many_long


@pytest.mark.parametrize("kv", [2047, 2048, 2049, 2175, 2176, 2177])
def test_a_longer_sequence_does_not_speed_a_mixed_batch_up(kv):
    model = build_latency(scenario(gpu="rtx_pro_6000", model="llama-3.1-8b", kernels="auto"))
    shorter, longer = (
        model.stage_time_s(BatchShape.of(((512, 0),), (*(kv,) * 63, last)), 0) for last in (kv, kv + 1)
    )
    assert longer >= 0.998 * shorter


@pytest.mark.parametrize("gpu", measured_gpus())
def test_measured_kernels_are_not_far_from_the_roofline(gpu):
    """Within a factor of two for whole iterations: a slip of units or of shapes would not be."""
    measured = build_latency(scenario(gpu=gpu, kernels="auto"))
    roofline = build_latency(scenario(gpu=gpu))
    assert not any("in place of measured kernels" in note for note in measured.notes)
    for shape in (
        BatchShape.of(decode_kv=(1500,) * 64),
        BatchShape.of(decode_kv=(8000,) * 16),
        BatchShape.of(chunks=((512, 0),)),
        BatchShape.of(chunks=((400, 3000),), decode_kv=(1500,) * 100),
        BatchShape.of(chunks=((2048, 0), (1500, 0))),
    ):
        ratio = measured.stage_time_s(shape, 0) / roofline.stage_time_s(shape, 0)
        assert 0.5 < ratio < 2
        assert sum(measured.breakdown(shape, 0).values()) == pytest.approx(measured.stage_time_s(shape, 0))


@pytest.mark.parametrize("gpu", measured_gpus())
def test_longer_contexts_are_not_cheaper_on_measured_kernels(gpu):
    model = build_latency(scenario(gpu=gpu, kernels="auto"))
    for number in (8, 32, 100):
        seconds = [
            model.stage_time_s(BatchShape.of(decode_kv=(kv,) * number), 0) for kv in range(64, 9000, 61)
        ]
        assert all(after >= before * 0.998 for before, after in pairwise(seconds))


@pytest.mark.parametrize("parallel", [{"tensor": 2}, {"pipeline": 2}])
def test_whole_iterations_serve_one_layout(parallel):
    with pytest.raises(ConfigError, match="whole iterations at tensor 1, pipeline 1"):
        build_latency(scenario(kernels=NIYAMA, parallel=parallel))


def test_an_artefact_by_path_or_by_the_folder_that_holds_it(tmp_path):
    copy = tmp_path / "mine.json"
    shutil.copy(config_path("kernels", NIYAMA), copy)
    for place in (copy, tmp_path):
        model = build_latency(scenario(kernels=str(place)))
        assert isinstance(model, LinearBatchTime)


def test_a_folder_with_two_artefacts_is_ambiguous(tmp_path):
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(ConfigError, match=r"one fitted artefact.*found 2"):
        build_latency(scenario(kernels=str(tmp_path)))


def test_a_table_must_be_fitted_first(tmp_path):
    (tmp_path / "rows.csv").write_text("op\n")
    with pytest.raises(ConfigError, match="fit it first"):
        build_latency(scenario(kernels=str(tmp_path)))


@pytest.mark.parametrize(
    ("kernels", "words"),
    [("niyama-a100", "did you mean 'niyama-a100-llama3-8b'"), ("./nowhere.json", "no such file")],
)
def test_unknown_kernels_are_refused(kernels, words):
    with pytest.raises(ConfigError, match=words):
        build_latency(scenario(kernels=kernels))


@pytest.mark.parametrize("content", ['{"kind": ', "[1, 2]", '"text"'])
def test_a_file_that_is_no_artefact_is_refused(tmp_path, content):
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(CalibrationError, match=r"broken\.json"):
        build_latency(scenario(kernels=str(path)))


def test_a_damaged_batch_time_names_its_key(tmp_path):
    artefact = json.loads(config_path("kernels", NIYAMA).read_text())
    del artefact["bins"][0]["base_s"]
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(artefact))
    with pytest.raises(ConfigError, match=r"damaged\.json: key bins\.0\.base_s is required"):
        build_latency(scenario(kernels=str(path)))


def test_a_split_that_does_not_divide_is_refused():
    with pytest.raises(ConfigError, match=r"parallel\.tensor"):
        build_latency(scenario(parallel={"tensor": 3}))


def test_the_cluster_of_the_scenario_wins_over_the_gpus():
    parallel = {"tensor": 4}
    usual = build_latency(scenario(parallel=parallel))
    fast = build_latency(scenario(parallel=parallel, cluster="nvlink4_8gpu"))
    assert fast.breakdown(SHAPE, 0)["collective"] < usual.breakdown(SHAPE, 0)["collective"]


@pytest.mark.parametrize("kernels", ["roofline", "auto"])
def test_the_first_prediction_is_there_at_once(kernels):
    """Fresh models, as every worker of a search builds one; 0.01 s and 0.2 s on a slow core."""
    start = time.process_time()
    build_latency(scenario(kernels=kernels)).stage_time_s(BatchShape.of(((512, 3000),), (2000,) * 128), 0)
    assert time.process_time() - start < (0.2 if kernels == "roofline" else 1.0)


def test_a_constant_is_a_latency_model():
    model = ConstantLatency(num_stages=2, seconds=0.5, hop_s=0.1)
    assert (model.stage_time_s(SHAPE, 1), model.hop_time_s(9), model.num_queries) == (0.5, 0.1, 1)
    assert model.breakdown(SHAPE, 0) == {"constant": 0.5}
