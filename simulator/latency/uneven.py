"""How unequal KV lengths slow down attention: when the last thread block of a launch ends, in closed form.

Of the decodes' KV lengths their number, sum, sum of squares and longest are known. Two lengths have the same:
so many sequences as long as the longest, and the rest alike. A thread block passes over one sequence's keys
for one head, and an SM that is free takes the next in order of launch, head by head: tiles of the chunk, long
sequences, short ones. Costs and times are in blocks of keys.
"""

from __future__ import annotations

from heapq import heappop, heappush

from simulator.latency.features import ATTENTION_TILES, KV_BLOCK

QUERY_TILE = ATTENTION_TILES[0]
START_BLOCKS = 2.0  # a thread block's start and end cost about as much as this many blocks of keys
FEW_WAVES = 3.0  # thread blocks per SM up to which it matters that all SMs start at once
SPLIT_BELOW = 1.6  # thread blocks per SM below which FlashAttention-2 cuts the lengths of decodes alone
STREAMING = 0.25  # decodes alone wait for memory: an SM without work leaves its bandwidth to the others
ROUNDING = 1e-9  # of thread blocks per SM

Blocks = tuple[float, float, float]
"""Thread blocks of one kind: how many there are for each head, the cost of one, the cost of the last."""


class UnevenSlowdown:
    """Attention over one rank's heads: time of a batch over that of the same batch with equal KV lengths."""

    def __init__(self, sm_count: int, q_heads: int, kv_heads: int) -> None:
        self._sm = 1 / sm_count
        self._q_heads_per_sm = q_heads / sm_count
        self._kv_heads_per_sm = kv_heads / sm_count

    def __call__(
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
        long = START_BLOCKS - -kv_max // KV_BLOCK
        short = START_BLOCKS - -round(mean - below) // KV_BLOCK
        even = START_BLOCKS - -kv_tokens // (num_decodes * KV_BLOCK)
        if chunk:
            heads = self._q_heads_per_sm
            tiles = -(-chunk // QUERY_TILE)
            tile = last = START_BLOCKS - -(prefix + chunk) // KV_BLOCK
            if tiles > 1:
                tile = (START_BLOCKS - -(prefix + QUERY_TILE) // KV_BLOCK + last) / 2
        else:
            heads = self._kv_heads_per_sm
            tiles, tile, last = 0, 0.0, 0.0
            if num_decodes * heads < SPLIT_BELOW:
                return 1.0
        blocks = tiles + num_decodes
        if heads * blocks <= FEW_WAVES:
            end = self._end(heads, (tiles, tile, last), (num_long, long, long), (num_short, short, short))
            even_end = self._end(heads, (tiles, tile, last), (num_decodes, even, even))
        else:
            # Up to the last launch all SMs work, and each is then half through a block on average, more
            # likely a long one. The last of a kind begins earlier, by the launches still to come.
            tile_work, long_work, short_work = tiles * tile, num_long * long, num_short * short
            work = tile_work + long_work + short_work
            begun = (tile_work * tile + long_work * long + short_work * short) / (2 * work)
            interval = work * self._sm / blocks
            end = heads * work - begun
            end += max(last - num_decodes * interval, long - num_short * interval, short)
            work = tile_work + num_decodes * even
            begun = (tile_work * tile + num_decodes * even * even) / (2 * work)
            interval = work * self._sm / blocks
            even_end = heads * work - begun + max(last - num_decodes * interval, even)
        return end / even_end if chunk else 1.0 + STREAMING * (end / even_end - 1.0)

    def _end(self, heads_per_sm: float, *kinds: Blocks) -> float:
        """When a launch of few waves ends: SMs that are free take each kind by its share of the blocks."""
        behind = sum([number for number, _, _ in kinds])
        waves = heads_per_sm * behind - ROUNDING
        shares = [(number / behind, cost) for number, cost, _ in kinds]
        one_sm = self._sm
        busy: list[
            tuple[float, float]
        ] = []  # until when how many of the SMs are; below one they do not count
        launched = free = 1.0
        time = end = 0.0
        for number, _, last in kinds:
            behind -= number
            while launched < waves - behind * one_sm:
                for share, cost in shares:
                    if free * share >= one_sm:
                        heappush(busy, (time + cost, free * share))
                if not busy:
                    break
                time, free = heappop(busy)
                launched += free
            if time + last > end:
                end = time + last
        return end
