"""What one attention call is asked to do, in plain numbers, and where its KV pages lie; no torch here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.errors import ConfigError

IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class AttnBatch:
    """One attention call over sequences of unequal lengths; every backend translates it into its own terms.

    A prefill chunk of c tokens on a prefix of p is the pair (c, c + p), a decode that attends k tokens is
    (1, k). Decodes come first, as in vLLM. `page_size` 0 means that each sequence's keys lie in one piece;
    `window` 0 means full attention, otherwise a token attends itself and the `window - 1` before it.
    """

    q_lens: tuple[int, ...]
    kv_lens: tuple[int, ...]
    q_heads: int
    kv_heads: int
    head_dim: int
    page_size: int = 16
    dtype: str = "bf16"
    window: int = 0

    def __post_init__(self) -> None:
        if not self.q_lens or len(self.q_lens) != len(self.kv_lens):
            raise ConfigError(
                f"attention batch: {len(self.q_lens)} query lengths and {len(self.kv_lens)} KV lengths, "
                f"as many of both are needed, and at least one"
            )
        for q_len, kv_len in zip(self.q_lens, self.kv_lens, strict=True):
            if not 1 <= q_len <= kv_len:
                raise ConfigError(
                    f"attention batch: {q_len} queries on {kv_len} KV tokens, need 1 <= q <= kv"
                )
        if self.q_heads % self.kv_heads:
            raise ConfigError(f"attention batch: {self.q_heads} query heads on {self.kv_heads} KV heads")

    @property
    def num_seqs(self) -> int:
        """Sequences in the call."""
        return len(self.q_lens)

    @property
    def num_tokens(self) -> int:
        """Query tokens of all sequences."""
        return sum(self.q_lens)

    @property
    def max_q(self) -> int:
        """Query tokens of the longest sequence."""
        return max(self.q_lens)

    @property
    def max_kv(self) -> int:
        """KV tokens of the longest sequence."""
        return max(self.kv_lens)

    @property
    def num_decodes(self) -> int:
        """Sequences with a single query token, which stand at the front."""
        chunked = (i for i, q_len in enumerate(self.q_lens) if q_len > 1)
        return next(chunked, self.num_seqs)

    @property
    def pages(self) -> tuple[int, ...]:
        """KV pages of each sequence; its KV tokens where the cache is not paged."""
        size = self.page_size or 1
        return tuple(-(-kv_len // size) for kv_len in self.kv_lens)

    @property
    def window_size(self) -> tuple[int, int]:
        """The window in flash-attn's terms: tokens to the left and to the right, -1 for no limit."""
        return (self.window - 1, 0) if self.window else (-1, -1)

    def positions(self) -> IntArray:
        """The position of every query token within its sequence."""
        spans = [np.arange(kv - q, kv) for q, kv in zip(self.q_lens, self.kv_lens, strict=True)]
        return np.concatenate(spans).astype(np.int32)


def cumulative(lengths: tuple[int, ...]) -> IntArray:
    """Where each sequence starts in a packed tensor, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def page_table(pages: tuple[int, ...], num_pages: int, rng: np.random.Generator) -> IntArray:
    """A page table with pages in random order, none of them shared; the unused tail of a row is 0.

    Pages drawn with repetition, or in order, would be found in the L2 cache more often than in a server.
    """
    if sum(pages) > num_pages:
        raise ConfigError(f"page table: {sum(pages)} KV pages are needed, the pool has {num_pages}")
    drawn = rng.permutation(num_pages)[: sum(pages)].astype(np.int32)
    return table_of(np.split(drawn, np.cumsum(pages)[:-1]))


def table_of(rows: list[IntArray]) -> IntArray:
    """One padded table of each sequence's own pages."""
    table = np.zeros((len(rows), max(len(row) for row in rows)), dtype=np.int32)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return table


def slots_of(batch: AttnBatch, table: IntArray) -> npt.NDArray[np.int64]:
    """The slot in the flat cache (page x page_size + offset) where each query token's key is written."""
    sequence = np.repeat(np.arange(batch.num_seqs), batch.q_lens)
    page, offset = np.divmod(batch.positions(), batch.page_size)
    return table[sequence, page].astype(np.int64) * batch.page_size + offset


def spread_lengths(count: int, total: int, largest: int) -> tuple[int, ...]:
    """KV lengths of `count` decodes that sum to `total` with `largest` as the longest.

    A table's row keeps only these three numbers. The lengths follow a power law between the longest and
    the shortest, whose exponent is solved for; equal lengths come out equal.
    """
    if not count <= total <= count * largest or total < largest + count - 1:
        raise ConfigError(f"{count} decodes of at most {largest} KV tokens cannot sum to {total}")
    if count == 1:
        return (total,)
    fraction = 1 - np.arange(count) / count
    low, high = 0.0, 1e3 * count
    for _ in range(60):  # bisection on the exponent: the sum falls as it grows
        power = (low + high) / 2
        if (1 + (largest - 1) * fraction**power).sum() > total:
            low = power
        else:
            high = power
    lengths = np.rint(1 + (largest - 1) * fraction**high).astype(int)
    for index in range(count - 1, 0, -1):  # what rounding has left, to the shortest that can take it
        lengths[index] = np.clip(lengths[index] + total - lengths.sum(), 1, largest)
    return tuple(int(length) for length in lengths)
