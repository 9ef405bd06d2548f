"""Which KV pages a request holds on real memory; the scheduler counts them, this says which they are."""

from __future__ import annotations

import numpy as np

from profiler.kernels.batch import IntArray, table_of


class PagePool:
    """Free pages in random order, and the pages of each sequence; no page belongs to two."""

    def __init__(self, num_pages: int, page_size: int, seed: int = 0) -> None:
        self.page_size = page_size
        self._free: list[int] = np.random.default_rng(seed).permutation(num_pages).tolist()
        self._held: dict[int, list[int]] = {}

    @property
    def num_free(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    def grow(self, sequence: int, kv_tokens: int) -> None:
        """Give a sequence enough pages for so many tokens; what it holds already stays in place."""
        held = self._held.setdefault(sequence, [])
        missing = -(-kv_tokens // self.page_size) - len(held)
        if missing > len(self._free):
            raise RuntimeError(f"{missing} KV pages wanted of {len(self._free)} free")
        held.extend(self._free.pop() for _ in range(missing))

    def release(self, sequence: int) -> None:
        """Take a sequence's pages back; they are handed out again in another order."""
        self._free[:0] = self._held.pop(sequence, [])

    def table(self, sequences: list[int]) -> IntArray:
        """The page table of some sequences, in that order."""
        return table_of([np.array(self._held[sequence], dtype=np.int32) for sequence in sequences])
