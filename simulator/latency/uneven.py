"""How unequal KV lengths slow down attention, from their mean and the longest.

Thread blocks share the SMs evenly until few are left; then the longest sequence holds the launch up: all the
more, the fewer waves of blocks there are to hide it. Constants are those of FlashAttention-2's thread blocks.
"""

from __future__ import annotations

QUERY_TILE = 64
KV_BLOCK = 128
START = 1.0  # a thread block's start and end, in blocks of keys
SPLIT_BELOW = (
    1.6  # thread blocks per SM below which decodes alone are split along their lengths, and so evened out
)
STREAMING = 0.25  # decodes alone wait for memory: an SM without work leaves its bandwidth to the others


class UnevenSlowdown:
    """Attention over one rank's heads: time of a batch over that of the same batch with equal KV lengths."""

    def __init__(self, sm_count: int, q_heads: int, kv_heads: int) -> None:
        self._q_heads_per_sm = q_heads / sm_count
        self._kv_heads_per_sm = kv_heads / sm_count

    def __call__(self, chunk: int, prefix: int, num_decodes: int, kv_mean: float, kv_max: float) -> float:
        """The factor; `chunk` is 0 for decodes alone, 1.0 is the answer for equal lengths."""
        if kv_max <= kv_mean:
            return 1.0
        mean, longest = START + kv_mean / KV_BLOCK, START + kv_max / KV_BLOCK
        if not chunk:
            waves = num_decodes * self._kv_heads_per_sm
            if waves < SPLIT_BELOW:
                return 1.0
            share = waves * mean
            return 1.0 + STREAMING * (_end(longest, share, waves) / _end(mean, share, waves) - 1.0)
        tiles = -(-chunk // QUERY_TILE)
        per_sm = self._q_heads_per_sm
        waves = per_sm * (num_decodes + tiles)
        share = per_sm * (num_decodes * mean + tiles * (START + (prefix + chunk / 2) / KV_BLOCK))
        last_tile = START + (prefix + chunk) / KV_BLOCK
        if longest <= last_tile:
            return 1.0
        return _end(longest, share, waves) / _end(mean if mean > last_tile else last_tile, share, waves)


def _end(last: float, share: float, waves: float) -> float:
    """When the launch ends: an SM's share of the work, less one block's, then the last block."""
    hidden = 1.0 - 1.0 / waves if waves > 1.0 else 0.0
    return share + last * hidden if last <= share else last + share * hidden
