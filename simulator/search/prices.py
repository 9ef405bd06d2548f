"""What GPUs are called and cost: a dated list of prices by the hour, which a user's own override."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import PositiveFloat

from simulator.errors import ConfigError
from simulator.load import load_gpu, looks_like_path, read_mapping
from simulator.resources import config_path, list_configs
from simulator.spec import Spec, parse

DEFAULT_PRICES = "on-demand-2025"


class PriceList(Spec):
    """US dollars for an hour of one GPU, by the GPU's preset."""

    name: str
    as_of: str
    """When the prices were looked up."""
    source: str = ""
    usd_per_gpu_hour: dict[str, PositiveFloat]

    def of(self, gpu: str) -> float:
        """Dollars for an hour of one GPU; ConfigError where the list has none."""
        if gpu not in self.usd_per_gpu_hour:
            raise ConfigError(f"{self.name} has no price of {gpu}: give one with --price {gpu}=DOLLARS")
        return self.usd_per_gpu_hour[gpu]

    def with_(self, own: Mapping[str, float]) -> PriceList:
        """The list with some prices replaced or added; ConfigError for an unknown GPU."""
        named = {gpu_named(name): price for name, price in own.items()}
        return self.model_copy(update={"usd_per_gpu_hour": self.usd_per_gpu_hour | named})


def load_prices(name_or_path: str = DEFAULT_PRICES) -> PriceList:
    """A shipped list of prices, or a file of the same keys; raises ConfigError."""
    path = Path(name_or_path) if looks_like_path(name_or_path) else config_path("prices", name_or_path)
    return parse(PriceList, {"name": path.stem} | read_mapping(path), str(path))


def gpu_named(name: str) -> str:
    """The shipped GPU with that name or, if it is the only one, with these parts (a100_sxm), or a file's."""
    shipped = list_configs("gpus")
    parts = set(name.split("_"))
    fitting = [each for each in shipped if parts <= set(each.split("_"))]
    if name in shipped or looks_like_path(name) or len(fitting) != 1:
        load_gpu(name)
        return name
    return fitting[0]
