"""Scheduling policies by name; pure code that neither waits nor predicts."""

from __future__ import annotations

from simulator.errors import ConfigError, suggest
from simulator.schedulers.base import Scheduler
from simulator.schedulers.policies import (
    ChunkedOnly,
    DecodeFirst,
    HybridOnly,
    Orca,
    PrefillFirst,
    StallFree,
)

POLICIES: dict[str, type[Scheduler]] = {
    policy.name: policy for policy in (StallFree, PrefillFirst, DecodeFirst, Orca, HybridOnly, ChunkedOnly)
}


def policy_named(name: str) -> type[Scheduler]:
    """The scheduler class of a policy; ConfigError for an unknown name."""
    try:
        return POLICIES[name]
    except KeyError:
        raise ConfigError(f"unknown policy {name!r}{suggest(name, POLICIES)}") from None


__all__ = [
    "POLICIES",
    "ChunkedOnly",
    "DecodeFirst",
    "HybridOnly",
    "Orca",
    "PrefillFirst",
    "Scheduler",
    "StallFree",
    "policy_named",
]
