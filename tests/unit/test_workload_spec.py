"""The workload's configuration: what is accepted, what is refused and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.errors import ConfigError
from simulator.spec import parse
from simulator.workload.spec import WorkloadSpec

ONE_TOKEN = {"prompt": 1, "output": 1}


def refusal(**keys: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(WorkloadSpec, keys, "here")
    message = str(caught.value)
    assert "\n" not in message
    return message


def refused_prompt(**keys: Any) -> str:
    return refusal(lengths={"prompt": keys, "output": 1})


def test_a_bare_number_is_a_fixed_length() -> None:
    spec = WorkloadSpec.model_validate({"lengths": {"prompt": 512, "output": 8}})
    assert spec.lengths is not None
    assert spec.lengths.prompt.model_dump() == {"kind": "fixed", "tokens": 512}


def test_a_spec_survives_json() -> None:
    quantiles = {"kind": "quantiles", "points": {0: 1, 0.5: 40, 1: 90}}
    spec = WorkloadSpec.model_validate({"lengths": {"prompt": quantiles, "output": 8}, "rate_rps": 2})
    assert WorkloadSpec.model_validate(spec.model_dump(mode="json")) == spec
    assert WorkloadSpec.model_validate_json(spec.model_dump_json()) == spec


def test_a_workload_has_one_source_of_lengths() -> None:
    assert "give trace (a name or a path), lengths" in refusal()
    assert "exclude each other" in refusal(trace="chat", lengths=ONE_TOKEN)
    assert "needs a trace" in refusal(lengths=ONE_TOKEN, arrivals="trace")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"rate_rps": 0}, "rate_rps must be greater than 0 (found 0)"),
        ({"rate_rps": -1.5}, "rate_rps must be greater than 0 (found -1.5)"),
        ({"rate_rps": float("nan")}, "rate_rps must be a finite number"),
        ({"rate_rps": "fast"}, "rate_rps must be a valid number (found 'fast')"),
        ({"num_requests": 0}, "num_requests must be greater than or equal to 1"),
        ({"num_requests": 2.5}, "num_requests must be a valid integer"),
        ({"num_requests": True}, "num_requests must be a valid integer"),
        ({"arrivals": "gama", "cv": 2.0}, "did you mean 'gamma'?"),
        ({"arrivals": "gamma"}, "cv belongs to arrivals: gamma, which needs it"),
        ({"arrivals": "poisson", "cv": 2.0}, "cv belongs to arrivals: gamma"),
        ({"arrivals": "gamma", "cv": 2.0, "truncate_at": 3.0}, "truncate_at belongs to Poisson arrivals"),
        ({"arrivals": "all_at_once", "rate_rps": 1.0}, "all_at_once has no rate"),
        ({"arrivals": "constant", "speed": 2.0}, "speed belongs to the replay of a trace"),
        ({"speed": 2.0, "rate_rps": 1.0}, "speed and rate_rps exclude each other"),
        ({"speed": 0}, "speed must be greater than 0"),
        ({"prompt_scale": 1e300}, "prompt_scale must be less than or equal to 1000 (found 1e+300)"),
        ({"prompt_scale": 1e-9}, "prompt_scale must be greater than or equal to 0.001 (found 1e-09)"),
        ({"max_total_tokens": 1}, "max_total_tokens must be greater than or equal to 2"),
        ({"on_too_long": "crop"}, "on_too_long must be 'reject', 'drop' or 'scale'"),
        ({"rate_qps": 3}, "unknown key rate_qps (did you mean 'rate_rps'?)"),
        ({"trace": ""}, "trace"),
    ],
)
def test_arrival_keys_are_checked(keys: dict[str, Any], words: str) -> None:
    assert words in refusal(**{"trace": "chat", **keys})


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"kind": "logn", "median": 5}, "unknown kind 'logn' (did you mean 'lognormal'?)"),
        ({"tokens": 5}, "unknown kind None"),
        ({"kind": "fixed", "tokens": 0}, "lengths.prompt.tokens must be greater than or equal to 1"),
        ({"kind": "fixed", "tokens": 10**8}, "lengths.prompt.tokens must be less than or equal to 10000000"),
        ({"kind": "lognormal", "median": 5}, "give one of sigma, mean, p90 beside median, not none"),
        ({"kind": "lognormal", "median": 5, "sigma": 1, "p90": 9}, "not sigma and p90"),
        ({"kind": "lognormal", "median": 5, "p90": 4}, "p90 (4) is below the median (5)"),
        ({"kind": "gamma", "mean": 5}, "give either shape or cv"),
        ({"kind": "gamma", "mean": 5, "cv": 1, "low": 9, "high": 8}, "low (9) is above high (8)"),
        ({"kind": "uniform", "low": 9, "high": 8}, "low (9) is above high (8)"),
        ({"kind": "zipf", "alpha": -1, "low": 1, "high": 8}, "alpha must be greater than or equal to 0"),
        ({"kind": "zipf", "alpha": 1.0, "low": 1}, "key lengths.prompt.high is required"),
        ({"kind": "quantiles", "points": {0.1: 3, 1: 9}}, "points must run from quantile 0"),
        ({"kind": "quantiles", "points": {0: 3, 0.5: 12, 1: 9}}, "fall between the quantiles 0.5 and 1"),
        ({"kind": "quantiles", "points": {0: 3, 1.5: 9, 1: 9}}, "less than or equal to 1"),
    ],
)
def test_distributions_are_checked(keys: dict[str, Any], words: str) -> None:
    assert words in refused_prompt(**keys)
