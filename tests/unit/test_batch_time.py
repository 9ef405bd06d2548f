"""Whole iterations as a linear function of the batch."""

from __future__ import annotations

import json

import pytest

from simulator.batch import BatchShape
from simulator.errors import ConfigError
from simulator.latency.batch_time import BatchTimeSpec, LinearBatchTime
from simulator.load import read_mapping
from simulator.resources import config_path
from simulator.spec import parse


@pytest.fixture
def artefact():
    return json.loads(config_path("kernels", "niyama-a100-llama3-8b").read_text())


@pytest.fixture
def model(artefact):
    return LinearBatchTime(parse(BatchTimeSpec, artefact, "test"))


@pytest.mark.parametrize(
    ("shape", "milliseconds"),
    [
        (BatchShape.of(decode_kv=(4096,) * 32), 32.5),
        (BatchShape.of(chunks=((512, 0),)), 56.6),
        (BatchShape.of(chunks=((431, 1170),), decode_kv=(2560,) * 81), 81.6),
    ],
    ids=["32 decodes", "a chunk", "both"],
)
def test_it_reproduces_the_published_model(model, shape, milliseconds):
    """Worked by hand from the coefficients; a real engine needs about 33, 57 and 82 ms."""
    assert model.stage_time_s(shape, 0) * 1e3 == pytest.approx(milliseconds, abs=0.1)


def test_the_bin_is_chosen_by_all_tokens_of_the_batch(model):
    full = BatchShape.of(chunks=((412, 0),), decode_kv=(100,) * 100)
    over = BatchShape.of(chunks=((413, 0),), decode_kv=(100,) * 100)
    assert model.stage_time_s(over, 0) != pytest.approx(model.stage_time_s(full, 0), rel=0.02)


def test_a_prediction_is_never_below_the_base(artefact):
    artefact["bins"][1]["per_decode_s"] = -1.0
    model = LinearBatchTime(parse(BatchTimeSpec, artefact, "test"))
    assert model.stage_time_s(BatchShape.of(decode_kv=(1,) * 600), 0) == 0.005004


def test_larger_batches_than_measured_are_counted(model):
    model.stage_time_s(BatchShape.of(chunks=((2552, 0),)), 0)
    model.stage_time_s(BatchShape.of(chunks=((2553, 0),)), 0)
    assert (model.num_queries, model.num_extrapolated) == (2, 1)


def test_the_breakdown_is_the_whole_and_counts_nothing(model):
    shape = BatchShape.of(chunks=((100, 7),), decode_kv=(9,))
    assert model.breakdown(shape, 0) == {"iteration": model.stage_time_s(shape, 0)}
    assert model.num_queries == 1


def test_nothing_is_sent(model):
    assert (model.num_stages, model.hop_time_s(512)) == (1, 0.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bins": []}, "bins"),
        ({"schema_version": 2}, "schema_version must be 1"),
        ({"extra": 1}, "unknown key extra"),
    ],
)
def test_a_damaged_artefact_is_refused(artefact, change, words):
    with pytest.raises(ConfigError, match=words):
        parse(BatchTimeSpec, artefact | change, "test")


def test_bins_must_ascend(artefact):
    artefact["bins"].reverse()
    with pytest.raises(ConfigError, match="must ascend"):
        parse(BatchTimeSpec, artefact, "test")


def test_the_shipped_file_names_its_source():
    artefact = read_mapping(config_path("kernels", "niyama-a100-llama3-8b"))
    assert "niyama" in artefact["source"]
    assert artefact["licence"] == "Apache-2.0"
