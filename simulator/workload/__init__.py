"""Workloads: which requests arrive, when, and how long they are."""

from __future__ import annotations

from simulator.workload.spec import WorkloadSpec

__all__ = ["WorkloadSpec"]
