"""Counts the blocks of a paged KV cache; which block is whose does not matter to scheduling."""

from __future__ import annotations


class KVBlocks:
    """A pool of equal blocks of `block_size` tokens.

    `watermark` blocks are kept free when a request is admitted, so that running requests can grow
    (vLLM and Sarathi: 1 % of the pool; Orca and FasterTransformer, which reserve the worst case: none).
    """

    __slots__ = ("block_size", "free", "num_blocks", "watermark")

    def __init__(self, num_blocks: int, block_size: int = 16, watermark: int = 0) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.watermark = watermark
        self.free = num_blocks

    @property
    def used(self) -> int:
        """Blocks that requests hold."""
        return self.num_blocks - self.free

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-num_tokens // self.block_size)

    def can_admit(self, blocks: int) -> bool:
        """Whether a new request may take so many blocks without touching the watermark."""
        return self.free - blocks >= self.watermark

    def take(self, blocks: int) -> None:
        """Take blocks out of the pool; taking more than there are is a fault of the caller."""
        if blocks > self.free:
            raise RuntimeError(f"{blocks} KV blocks taken of {self.free} free")
        self.free -= blocks

    def give_back(self, blocks: int) -> None:
        """Return blocks to the pool; returning more than were taken is a fault of the caller."""
        self.free += blocks
        if self.free > self.num_blocks:
            raise RuntimeError(f"{self.free} KV blocks free of {self.num_blocks}")
