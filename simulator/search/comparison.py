"""Compares variants of a deployment on the same requests: paired differences over replications."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.errors import ConfigError
from simulator.search.effort import Effort
from simulator.search.replicate import Variant, run_variants
from simulator.search.stats import Interval, mean, mean_interval

if TYPE_CHECKING:
    from simulator.config import Scenario


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a variant's mean lies from the baseline's, with the interval of the paired differences."""

    baseline: float
    value: float
    interval: Interval | None
    """None for a single run."""

    @property
    def absolute(self) -> float:
        """Variant minus baseline, in the metric's unit."""
        return self.value - self.baseline

    @property
    def share(self) -> float | None:
        """The difference as a share of the baseline; None where that is zero."""
        return self.absolute / self.baseline if self.baseline else None

    @property
    def is_noise(self) -> bool | None:
        """Whether the interval includes no difference at all; None where a single run leaves it open."""
        return None if self.interval is None else self.interval.contains(0.0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All variants, the first of which is the baseline."""

    variants: tuple[Variant, ...]
    effort: Effort

    @property
    def baseline(self) -> Variant:
        """The variant that the others are compared with."""
        return self.variants[0]

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of requests that all variants have."""
        shared = [set(variant.classes) for variant in self.variants]
        return tuple(name for name in self.baseline.classes if all(name in each for each in shared))

    def difference(
        self, variant: Variant, name: str, statistic: str | None = None, of_class: str = ""
    ) -> Difference | None:
        """A variant against the baseline, run by run; None where either measured nothing."""
        values = [each.values(name, statistic, of_class) for each in (self.baseline, variant)]
        pairs = list(zip(*values, strict=False))
        if not pairs:
            return None
        interval = mean_interval([value - base for base, value in pairs])
        return Difference(mean([base for base, _ in pairs]), mean([value for _, value in pairs]), interval)


def compare(variants: Sequence[tuple[str, Scenario]], effort: Effort) -> Comparison:
    """Simulate every variant with the same seeds; equal workloads then draw the same requests.

    Raises ConfigError for fewer than two variants or for equal labels.
    """
    labels = [label for label, _ in variants]
    if len(labels) < 2:
        raise ConfigError("nothing to compare: give at least two policies, scenarios or variants")
    if len(set(labels)) < len(labels):
        raise ConfigError(f"variants must differ in name (found {', '.join(labels)})")
    return Comparison(tuple(run_variants(variants, effort)), effort)
