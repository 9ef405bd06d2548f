"""Latency models: how long one iteration takes on one pipeline stage."""

from simulator.latency.build import build_latency
from simulator.latency.model import ConstantLatency, LatencyModel

__all__ = ["ConstantLatency", "LatencyModel", "build_latency"]
