"""What a paper printed, with source and certainty, and the settings of its experiments: configs/papers/."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pydantic import PositiveFloat

from simulator.load import read_mapping
from simulator.resources import config_path
from simulator.spec import Count, Spec, parse

Slo = Literal["strict", "relaxed"]
SLOS: tuple[Slo, ...] = ("strict", "relaxed")


class Published(NamedTuple):
    """One published value; `value` is None where only words were."""

    value: float | None
    unit: str
    certainty: str
    source: str


class Deployment(Spec):
    """One model on its machines, and what the paper's searches set for it."""

    scenario: str
    tbt_s: dict[Slo, PositiveFloat]
    """Bounds on P99 TBT."""
    budget: dict[Slo, Count]
    orca_seqs: Count
    start_rps: dict[str, PositiveFloat]
    """Where the search starts, by data set."""


class Dataset(Spec):
    """A workload: a trace, and the longest request that is served."""

    trace: str
    max_tokens: Count


class Paper(Spec):
    """A publication: settings, and values as `id: [value, unit, certainty, source]`."""

    title: str
    source: str
    certainties: dict[str, str]
    seed: int
    deployments: dict[str, Deployment]
    datasets: dict[str, Dataset]
    values: dict[str, list[Any]]

    def published(self, id: str) -> Published | None:
        """What was published under an id; None for a number that is only ours."""
        entry = self.values.get(id)
        return None if entry is None else Published(*entry)


def load_paper(name: str) -> Paper:
    """A shipped paper; ConfigError for an unknown name."""
    path = config_path("papers", name)
    return parse(Paper, read_mapping(path), str(path))
