"""How much longer a launch takes when its sequences have unequal lengths: thread blocks scheduled one by one.

A launch that mixes a chunk with decodes has a thread block for every head and tile of queries; a block passes
over all keys that its queries attend, and a free SM takes the next block in order of launch. Equal lengths
fill the SMs evenly; with unequal ones some SMs work on long sequences when the others have no blocks left.
"""

from __future__ import annotations

import re
from heapq import heapreplace
from math import ceil

from simulator.errors import InputError
from simulator.latency.features import KV_BLOCK
from simulator.latency.uneven import QUERY_TILE, START_BLOCKS


def slowdown(sm_count: int, heads: int, chunk: int, prefix: int, lengths: list[int]) -> float:
    """Time with these KV lengths, in order of launch, over the time with all of them at their mean."""
    tiles = _chunk_tiles(chunk, prefix)
    unequal = tiles + [_cost(length) for length in lengths]
    equal = tiles + [_cost(sum(lengths) / len(lengths))] * len(lengths)
    return _makespan(unequal * heads, sm_count) / _makespan(equal * heads, sm_count)


def parse_lengths(text: str) -> list[int]:
    """Lengths from a table's notation, `3x100 1x400`; raises InputError."""
    lengths: list[int] = []
    for part in text.split():
        match = re.fullmatch(r"(\d+)x(\d+)", part)
        if match is None:
            raise InputError(f"decode_kv_lengths: {part!r} is not of the form COUNTxLENGTH")
        lengths += [int(match[2])] * int(match[1])
    return lengths


def _chunk_tiles(chunk: int, prefix: int) -> list[float]:
    ends = range(QUERY_TILE, chunk + QUERY_TILE, QUERY_TILE)
    return [_cost(prefix + min(end, chunk)) for end in ends]


def _cost(keys: float) -> float:
    """Of one thread block, in blocks of keys."""
    return START_BLOCKS + ceil(keys / KV_BLOCK)


def _makespan(jobs: list[float], machines: int) -> float:
    """When the last job ends, if every machine takes the next job as soon as it is free."""
    ends = [0.0] * machines
    for job in jobs:
        heapreplace(ends, ends[0] + job)
    return max(ends)
