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
from simulator.schedulers.vllm_v1 import VLLMV1

POLICIES: dict[str, type[Scheduler]] = {
    policy.name: policy
    for policy in (StallFree, PrefillFirst, DecodeFirst, Orca, HybridOnly, ChunkedOnly, VLLMV1)
}


def policy_named(name: str) -> type[Scheduler]:
    """The scheduler class of a policy; ConfigError for an unknown name."""
    try:
        return POLICIES[name]
    except KeyError:
        raise ConfigError(f"unknown policy {name!r}{suggest(name, POLICIES)}") from None


__all__ = [
    "POLICIES",
    "VLLMV1",
    "ChunkedOnly",
    "DecodeFirst",
    "HybridOnly",
    "Orca",
    "PrefillFirst",
    "Scheduler",
    "StallFree",
    "policy_named",
]
