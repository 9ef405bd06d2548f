"""Lists of prices."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.errors import ConfigError
from simulator.load import load_gpu
from simulator.search.prices import gpu_named, load_prices


def test_the_shipped_list_is_dated_and_names_shipped_gpus():
    prices = load_prices()
    assert "2025" in prices.as_of
    assert prices.source
    for gpu in prices.usd_per_gpu_hour:
        load_gpu(gpu)
        assert 0.1 < prices.of(gpu) < 20


def test_own_prices_win(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("as_of: 2026-03\nusd_per_gpu_hour: {h100_sxm: 2, l40s: 0.7}\n", encoding="utf-8")
    prices = load_prices(str(path)).with_({"h100": 1.5})
    assert (prices.name, prices.of("h100_sxm"), prices.of("l40s")) == ("mine", 1.5, 0.7)


@pytest.mark.parametrize("price", ["0", "-1", ".nan", "free"])
def test_a_price_is_a_number_of_dollars(tmp_path: Path, price: str):
    path = tmp_path / "mine.yaml"
    path.write_text(f"as_of: 2026-03\nusd_per_gpu_hour: {{h100_sxm: {price}}}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mine\.yaml: usd_per_gpu_hour\.h100_sxm"):
        load_prices(str(path))


def test_a_gpu_without_a_price():
    with pytest.raises(ConfigError, match="no price of cpu"):
        load_prices().of("cpu")


@pytest.mark.parametrize(
    ("said", "meant"),
    [("h100_sxm", "h100_sxm"), ("a100_sxm", "a100_80gb_sxm"), ("h200", "h200_sxm"), ("a40", "a40")],
)
def test_a_gpu_may_be_named_by_its_parts(said: str, meant: str):
    assert gpu_named(said) == meant


@pytest.mark.parametrize("said", ["a100", "h10", "sxm_v100"])
def test_a_name_that_could_be_several_gpus_or_none_is_refused(said: str):
    with pytest.raises(ConfigError, match="unknown gpu"):
        gpu_named(said)
