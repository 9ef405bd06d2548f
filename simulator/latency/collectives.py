"""All-reduces of tensor-parallel groups, also of those that are spread over nodes."""

from __future__ import annotations

import numpy as np

from simulator.hardware import ClusterSpec
from simulator.latency.kernels import Array, Kernels


def group_all_reduce_s(
    kernels: Kernels, message_bytes: Array, world_size: int, cluster: ClusterSpec
) -> Array:
    """Seconds to add up a message of that size on each of `world_size` neighbouring GPUs.

    Within each node first, then over the m nodes in a ring: 2 (m - 1) steps, in each of which a message of
    1/m goes from every node to the next. The GPUs of a node share its way out. So the time follows from
    measured parts where the whole was not measured; docs/latency-model.md sets it beside wholes that were.
    """
    per_node = min(world_size, cluster.gpus_per_node)
    total_s = np.zeros_like(message_bytes)
    if per_node > 1:
        total_s = total_s + kernels.all_reduce_s(message_bytes, per_node, cluster.link(per_node))
    nodes = cluster.num_nodes(world_size)
    if nodes > 1:
        message_s = kernels.send_recv_s(message_bytes / nodes, cluster.inter_node)
        total_s = total_s + 2 * (nodes - 1) * message_s
    return total_s
