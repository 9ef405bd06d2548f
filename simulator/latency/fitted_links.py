"""Measured collectives: times by message size, for groups of GPUs over one kind of link."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.latency.kernels import Array


class MeasuredCollective:
    """Measured times of one collective in one kind of group, by message size."""

    def __init__(self, item: dict[str, Any]) -> None:
        self.op = str(item["op"])
        self.world_size = int(item["world_size"])
        self._bytes = np.asarray(item["bytes"], dtype=float)
        self._us = np.asarray(item["us"], dtype=float)
        if len(self._bytes) < 2 or len(self._bytes) != len(self._us):
            raise ValueError("a collective needs at least two sizes, and a time for each")
        self.bandwidth_gbps = float(item["bandwidth_gbps"])

    def us(self, message_bytes: Array) -> Array:
        """Microseconds: linear between sizes; beyond the largest, at the pace between the last two."""
        inside = np.interp(message_bytes, self._bytes, self._us)
        pace = (self._us[-1] - self._us[-2]) / (self._bytes[-1] - self._bytes[-2])
        result: Array = inside + np.maximum(0.0, message_bytes - self._bytes[-1]) * max(pace, 0.0)
        return result
