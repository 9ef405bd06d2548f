"""Workloads: which requests arrive, when, and how long they are."""

from __future__ import annotations

from simulator.workload.build import build_workload
from simulator.workload.spec import WorkloadSpec
from simulator.workload.streams import stream
from simulator.workload.workload import Classes, Workload

__all__ = ["Classes", "Workload", "WorkloadSpec", "build_workload", "stream"]
