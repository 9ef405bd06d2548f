"""What GPUs cost: a dated list of prices by the hour, which a user's own prices override."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import PositiveFloat

from simulator.errors import ConfigError
from simulator.load import looks_like_path, read_mapping
from simulator.resources import config_path
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
        """The list with some prices replaced or added."""
        return self.model_copy(update={"usd_per_gpu_hour": self.usd_per_gpu_hour | dict(own)})


def load_prices(name_or_path: str = DEFAULT_PRICES) -> PriceList:
    """A shipped list of prices, or a file of the same keys; raises ConfigError."""
    path = Path(name_or_path) if looks_like_path(name_or_path) else config_path("prices", name_or_path)
    return parse(PriceList, {"name": path.stem} | read_mapping(path), str(path))
