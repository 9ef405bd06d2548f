"""A KV cache that finds full blocks again: prefix caching as in vLLM V1.

A full block whose content has an id is cached while it is in use and, once free, until its place is taken:
free blocks are taken in the order in which they became free, and those of one request from its end. All other
blocks are only counted, as in `KVBlocks`, so that a decode costs nothing more than there.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import count, islice
from typing import TYPE_CHECKING

from simulator.kv import KVBlocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.request import Request


class Block:
    """One block with a content to be found again, or `size` others that became free together."""

    __slots__ = ("content", "num_users", "size")

    def __init__(self, content: int | None, num_users: int, size: int = 1) -> None:
        self.content = content
        self.num_users = num_users
        self.size = size


class PrefixCache(KVBlocks):
    """A pool of blocks, some of which requests share.

    Contents are `Request.block_ids`, which stand for a block and all that is before it. Of two blocks with
    the same content only the newer one is found. `queried_tokens` and `hit_tokens` count the context of
    admitted requests and how much of it was found; what a preempted request had computed is in neither.
    """

    __slots__ = ("_cached", "_free", "_held", "_own_ids", "hit_tokens", "queried_tokens")

    def __init__(self, num_blocks: int, block_size: int = 16, watermark: int = 0) -> None:
        super().__init__(num_blocks, block_size, watermark)
        self.queried_tokens = 0
        self.hit_tokens = 0
        self._cached: dict[int, Block] = {}
        self._free = OrderedDict([(Block(None, 0, num_blocks), None)])
        # The blocks with a content that a request holds: the first ones of its context, in order.
        self._held: dict[int, list[Block]] = {}
        self._own_ids = count(-1, -1)

    def find(self, request: Request) -> list[Block]:
        """Cached blocks with which a request's context begins; one token at least is left to compute."""
        found: list[Block] = []
        for content in islice(request.block_ids, (request.num_tokens - 1) // self.block_size):
            block = self._cached.get(content)
            if block is None:
                break
            found.append(block)
        return found

    def share(self, request: Request, found: list[Block]) -> None:
        """Let a request that is being admitted hold what was found for it."""
        for block in found:
            if not block.num_users:
                del self._free[block]
                self.free -= 1
            block.num_users += 1
        self._held[request.id] = found

    def take(self, blocks: int) -> None:
        """Take blocks out of the pool, those that have been free for longest; what they held is lost."""
        super().take(blocks)
        free, cached = self._free, self._cached
        while blocks:
            oldest = next(iter(free))
            if oldest.size > blocks:
                oldest.size -= blocks
                return
            del free[oldest]
            blocks -= oldest.size
            if oldest.content is not None:
                del cached[oldest.content]

    def cache(self, request: Request, num_tokens: int) -> None:
        """Make the full blocks among a request's first tokens known, as far as they have an id."""
        held, cached = self._held[request.id], self._cached
        contents = request.block_ids[len(held) : num_tokens // self.block_size]
        for content in cached.keys() & contents:
            cached[content].content = None
        blocks = [Block(content, 1) for content in contents]
        cached.update(zip(contents, blocks, strict=True))
        held += blocks

    def cache_own(self, request: Request, num_tokens: int) -> None:
        """Likewise for a request that will come back: full blocks that have no id get one of their own."""
        unnamed = num_tokens // self.block_size - len(request.block_ids)
        if unnamed > 0:
            request.block_ids = [*request.block_ids, *islice(self._own_ids, unnamed)]
        self.cache(request, num_tokens)

    def release(self, request: Request, num_tokens: int) -> None:
        """Give back what a request with so many tokens holds, last block first."""
        held = self._held.pop(request.id)
        others = self.blocks_for(num_tokens) - len(held)
        if others:
            self._free[Block(None, 0, others)] = None
        freed = others
        for block in reversed(held):
            block.num_users -= 1
            if not block.num_users:
                self._free[block] = None
                freed += 1
        self.give_back(freed)


def engine_block_ids(
    ids: Sequence[int], block_tokens: int, prompt_tokens: int, block_size: int
) -> Sequence[int]:
    """Ids for a prompt's full blocks of `block_size` tokens from those of its blocks of `block_tokens`.

    An id stands for a block and all that is before it, so an engine's block is known by the recorded block in
    which it ends, and by its number among those that end there. A last id may stand for less than a block.
    """
    full = prompt_tokens // block_size
    if block_tokens == block_size:
        return ids[:full]
    per_id = block_tokens // block_size + 1
    result: list[int] = []
    for place, content in enumerate(ids, start=1):
        until = min(place * block_tokens // block_size, full)
        result.extend(range(content * per_id, content * per_id + until - len(result)))
    return result
