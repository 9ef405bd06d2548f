"""All-reduces of groups that are spread over nodes: their steps, and how far they are from measured ones."""

from __future__ import annotations

import csv
from math import exp
from pathlib import Path

import numpy as np
import pytest

from simulator.hardware import ClusterSpec, LinkSpec
from simulator.latency.collectives import group_all_reduce_s
from simulator.latency.fitted import FittedKernels
from simulator.latency.roofline import RooflineKernels
from simulator.load import load_cluster, load_gpu
from simulator.resources import config_path

NVLINK, ETHERNET = LinkSpec(bandwidth_gbps=300, latency_us=5), LinkSpec(bandwidth_gbps=12.5, latency_us=30)
SIZES = 2.0 ** np.arange(11, 27)
"""2 KiB to 64 MiB."""


class TimedMessages(RooflineKernels):
    """An all-reduce within a node takes 1 s, a message between nodes 1 s and another per byte."""

    def __init__(self) -> None:
        super().__init__(load_gpu("a100_80gb_sxm"))

    def all_reduce_s(self, message_bytes, world_size, link):
        assert (world_size, link) in ((2, NVLINK), (4, NVLINK))
        return np.ones_like(message_bytes)

    def send_recv_s(self, message_bytes, link):
        assert link == ETHERNET
        return 1 + message_bytes


class DgxKernels(RooflineKernels):
    """Collectives of two DGX A100 as Vidur measured them; `per_node` GPUs of each take part."""

    def __init__(self, network: Path, per_node: int) -> None:
        super().__init__(load_gpu("a100_80gb_sxm"))
        with network.open() as lines:
            self._rows = [row for row in csv.DictReader(lines) if row["node"] == "a100_dgx"]
        self._per_node = per_node

    def measured_s(self, collective: str, workers: int, per_node: int, message_bytes):
        points = sorted(
            (int(row["bytes"]), float(row["median_ms"]))
            for row in self._rows
            if row["collective"] == collective
            and (int(row["num_workers"]), int(row["devices_per_node"])) == (workers, per_node)
        )
        size, ms = np.array(points).T
        return np.interp(message_bytes, size, ms) * 1e-3

    def all_reduce_s(self, message_bytes, world_size, link):
        return self.measured_s("all_reduce", world_size, self._per_node, message_bytes)

    def send_recv_s(self, message_bytes, link):
        return self.measured_s("send_recv", 2, 1, message_bytes)


def nodes_of(gpus: int) -> ClusterSpec:
    return ClusterSpec(name="nodes", gpus_per_node=gpus, intra_node=NVLINK, inter_node=ETHERNET)


@pytest.mark.parametrize(
    ("world_size", "per_node", "seconds"),
    [
        (1, 4, 0),
        (4, 4, 1),
        (8, 4, 1 + 2 * (1 + 600 / 2)),
        (6, 4, 1 + 2 * (1 + 600 / 2)),
        (6, 2, 1 + 4 * (1 + 600 / 3)),
        (2, 1, 2 * (1 + 600 / 2)),
    ],
)
def test_a_group_adds_up_within_its_nodes_and_then_over_them(world_size, per_node, seconds):
    message = np.array([600.0])
    assert group_all_reduce_s(TimedMessages(), message, world_size, nodes_of(per_node))[0] == seconds


def test_eight_gpus_over_ethernet_follow_from_what_was_measured():
    """1 MB: 0.128 ms within each node (four GPUs over PCIe), and twice 0.069 ms for half of it."""
    gpu = load_gpu("a100_80gb_pcie")
    kernels = FittedKernels.load(config_path("kernels", "a100_80gb_pcie"), gpu)
    time = group_all_reduce_s(kernels, np.array([1e6]), 8, load_cluster("nvlink3_pairs_4gpu"))[0]
    assert time * 1e3 == pytest.approx(0.128 + 2 * 0.069, rel=0.01)


@pytest.mark.parametrize(
    ("workers", "per_node", "two_levels", "ring", "peak"),
    [(2, 1, 1.24, 1.24, 1.61), (4, 2, 1.52, 1.90, 1.44), (8, 4, 1.30, 3.11, 1.44), (16, 8, 1.46, 3.96, 1.50)],
)
def test_distance_from_all_reduces_measured_over_two_nodes(
    shared_data, workers, per_node, two_levels, ring, peak
):
    """Mean factor (up or down) over all sizes, as docs/latency-model.md has it.

    Two levels; one ring around all GPUs, of messages as measured; and a ring at the link's assumed pace.
    """
    kernels = DgxKernels(shared_data / "kernels_vidur" / "network.csv", per_node)
    measured = kernels.measured_s("all_reduce", workers, per_node, SIZES)
    cluster = nodes_of(per_node)
    models = (
        group_all_reduce_s(kernels, SIZES, workers, cluster),
        2 * (workers - 1) * kernels.send_recv_s(SIZES / workers, ETHERNET),
        RooflineKernels(load_gpu("a100_80gb_sxm")).all_reduce_s(SIZES, workers, ETHERNET),
    )
    factors = [exp(np.abs(np.log(model / measured)).mean()) for model in models]
    assert factors == pytest.approx([two_levels, ring, peak], abs=0.006)
