"""How unequal KV lengths slow down a launch that mixes a chunk with decodes, from their mean and the longest.

Thread blocks share the SMs evenly until few are left; then the longest sequence holds the launch up: all the
more, the fewer waves of blocks there are to hide it. Constants are those of thread blocks, not fitted.
"""

from __future__ import annotations

QUERY_TILE = 64
KV_BLOCK = 128
START = 1.0  # a thread block's start and end, in blocks of keys


def slowdown(
    sm_count: int, heads: int, chunk: int, prefix: int, num_decodes: int, kv_mean: float, kv_max: float
) -> float:
    """Time of the launch over that with every length at the mean; 1.0 for equal lengths."""
    if kv_max <= kv_mean:
        return 1.0
    tiles = -(-chunk // QUERY_TILE)
    mean, longest = START + kv_mean / KV_BLOCK, START + kv_max / KV_BLOCK
    chunk_mean = START + (prefix + chunk / 2) / KV_BLOCK
    chunk_longest = START + (prefix + chunk) / KV_BLOCK if chunk else 0.0
    share = heads * (num_decodes * mean + tiles * chunk_mean) / sm_count
    waves = max(1.0, heads * (num_decodes + tiles) / sm_count)

    def end(last: float) -> float:
        return max(last, share + last - min(last, share) / waves)

    return end(max(longest, chunk_longest)) / end(max(mean, chunk_longest))
