"""How unequal KV lengths slow down attention: when the last thread block of a launch ends, in a microsecond.

Of the decodes' KV lengths their number, sum, sum of squares and longest are known. Two lengths have the same:
so many sequences as long as the longest, and the rest alike. A thread block passes over one sequence's keys
for one head, and an SM that is free takes the next in order of launch, head by head: tiles of the chunk, then
the decodes in order of arrival, long and short ones mixed. Costs and times are in blocks of keys.
"""

from __future__ import annotations

from simulator.latency.features import ATTENTION_TILES, KV_BLOCK

QUERY_TILE = ATTENTION_TILES[0]
START_BLOCKS = 2.0  # a thread block's start and end cost about as much as this many blocks of keys
FEW_WAVES = 3.0  # thread blocks per SM up to which it matters that all SMs start at once
# Thread blocks per SM below which FlashAttention-2 cuts the lengths of decodes alone (num_splits_heuristic
# in its flash_api.cpp: 0.8 of twice the SMs).
SPLIT_BELOW = 1.6
STREAMING = 0.3  # decodes alone wait for memory: an SM without work leaves its bandwidth to the others
ROUNDING = 1e-9  # of thread blocks per SM


class UnevenSlowdown:
    """Attention over one rank's heads: time of a batch over that of the same batch with equal KV lengths.

    An engine launches long and short sequences as they arrived; `longest_first` is for tables measured so.
    """

    def __init__(self, sm_count: int, q_heads: int, kv_heads: int, *, longest_first: bool = False) -> None:
        self._longest_first = longest_first
        self._sm = 1 / sm_count
        self._q_heads_per_sm = q_heads / sm_count
        self._kv_heads_per_sm = kv_heads / sm_count

    def at(
        self, chunk: int, prefix: int, num_decodes: int, kv_tokens: int, kv_squares: int, kv_max: int
    ) -> float:
        """The factor; `chunk` is 0 for decodes alone, 1.0 is the answer for equal lengths."""
        # Asked for every batch of a simulation: written flat, since calls would double its cost.
        mean = kv_tokens / num_decodes
        above = kv_max - mean
        if above <= 0:
            return 1.0
        below = (kv_squares / num_decodes - mean * mean) / above
        num_long = num_decodes * below / (above + below)
        num_short = num_decodes - num_long
        # Short ones after the last of the long ones: of mixed ones as many, on average, as between two.
        after_long = num_short if self._longest_first else num_short / (num_long + 1)
        long = START_BLOCKS - -kv_max // KV_BLOCK
        short = START_BLOCKS - -round(mean - below) // KV_BLOCK
        even = START_BLOCKS - -(kv_tokens // num_decodes) // KV_BLOCK  # the mean as attention is asked for it
        if chunk:
            heads = self._q_heads_per_sm
            tiles = -(-chunk // QUERY_TILE)
            tile = last = START_BLOCKS - -(prefix + chunk) // KV_BLOCK
            if tiles > 1:
                tile = (START_BLOCKS - -(prefix + QUERY_TILE) // KV_BLOCK + last) / 2
        else:
            heads = self._kv_heads_per_sm
            tiles, tile, last = 0, even, 0.0  # no tiles, of a size that ends no launch
            if num_decodes * heads < SPLIT_BELOW:
                return 1.0
        blocks = tiles + num_decodes
        if heads * blocks <= FEW_WAVES:
            shares = (tiles / blocks, num_long / blocks, num_short / blocks)
            waves = heads * blocks - ROUNDING
            until = (waves, waves - num_decodes * self._sm, waves - after_long * self._sm)
            end = _end(shares, until, tile, last, long, short)
            if chunk:
                even_end = _end(shares, until, tile, last, even, even)
            else:
                even_end = -((ROUNDING - heads * blocks) // 1) * even  # whole waves of equal blocks
        else:
            # Up to the last launch all SMs work, and each is then half through a block on average, more
            # likely a long one. The last of a kind begins earlier, by the launches still to come.
            tile_work, long_work, short_work = tiles * tile, num_long * long, num_short * short
            work = tile_work + long_work + short_work
            begun = (tile_work * tile + long_work * long + short_work * short) / (2 * work)
            interval = work * self._sm / blocks
            latest = long - after_long * interval
            if short > latest:
                latest = short
            if last - num_decodes * interval > latest:
                latest = last - num_decodes * interval
            end = heads * work - begun + latest
            short_work = num_decodes * even
            work = tile_work + short_work
            begun = (tile_work * tile + short_work * even) / (2 * work)
            latest = last - num_decodes * self._sm * work / blocks
            even_end = heads * work - begun + (even if even > latest else latest)
        return end / even_end if chunk else 1.0 + STREAMING * (end / even_end - 1.0)


def _end(
    shares: tuple[float, float, float],
    until: tuple[float, float, float],
    tile: float,
    last: float,
    long: float,
    short: float,
) -> float:
    """When a launch of few waves ends: SMs that are free take each kind of block by its share of them all.

    What was launched grows like a renewal process. The last block of all starts once it amounts to the first
    entry of `until`, in blocks per SM, the last tile and the last long sequence at the others.
    """
    tile_share, long_share, short_share = shares
    waves, waves_to_tile, waves_to_long = until
    times, parts = [0.0], [1.0]  # when SMs take new blocks, and which part of the SMs does
    after_tile = after_long = after_short = 0  # of these, the first whose tiles, ... are still running
    tile_ends, long_ends, short_ends = tile, long, short
    launched = 1.0
    time = last_tile = last_long = 0.0
    while launched < waves:
        time = tile_ends if tile_ends < long_ends else long_ends
        if short_ends < time:
            time = short_ends
        times.append(time)
        part = 0.0
        if tile_ends == time:
            part = parts[after_tile] * tile_share
            after_tile += 1
            tile_ends = times[after_tile] + tile
        if long_ends == time:
            part += parts[after_long] * long_share
            after_long += 1
            long_ends = times[after_long] + long
        if short_ends == time:
            part += parts[after_short] * short_share
            after_short += 1
            short_ends = times[after_short] + short
        parts.append(part)
        if launched < waves_to_tile:
            last_tile = time
        if launched < waves_to_long:
            last_long = time
        launched += part
    end = time + short
    if last_long + long > end:
        end = last_long + long
    return end if end > last_tile + last else last_tile + last
