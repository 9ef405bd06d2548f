"""The neutral batch: lengths, positions, page tables without shared pages, lengths from three numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.kernels.batch import AttnBatch, cumulative, page_table, slots_of, spread_lengths
from simulator.errors import ConfigError

MIXED = AttnBatch((1, 1, 5), (17, 3, 9), q_heads=8, kv_heads=2, head_dim=32, page_size=4)


def test_a_mixed_batch_counts_tokens_decodes_and_pages() -> None:
    assert (MIXED.num_seqs, MIXED.num_tokens, MIXED.num_decodes) == (3, 7, 2)
    assert (MIXED.max_q, MIXED.max_kv) == (5, 17)
    assert MIXED.pages == (5, 1, 3)


def test_a_chunk_continues_behind_its_prefix() -> None:
    assert MIXED.positions().tolist() == [16, 2, 4, 5, 6, 7, 8]


def test_a_cache_in_one_piece_has_a_page_a_token() -> None:
    whole = AttnBatch((2,), (7,), 4, 4, 16, page_size=0)
    assert whole.pages == (7,)


@pytest.mark.parametrize(("window", "expected"), [(0, (-1, -1)), (1, (0, 0)), (128, (127, 0))])
def test_the_window_in_flash_attention_terms_counts_the_token_itself(window: int, expected: tuple) -> None:
    assert AttnBatch((1,), (9,), 1, 1, 8, window=window).window_size == expected


@pytest.mark.parametrize(
    ("q_lens", "kv_lens", "heads", "message"),
    [
        ((), (), (8, 2), "0 query lengths"),
        ((1, 1), (4,), (8, 2), "2 query lengths and 1 KV lengths"),
        ((5,), (4,), (8, 2), "5 queries on 4 KV tokens"),
        ((0,), (4,), (8, 2), "0 queries on 4 KV tokens"),
        ((1,), (4,), (8, 3), "8 query heads on 3 KV heads"),
    ],
)
def test_an_impossible_batch_is_refused(q_lens, kv_lens, heads, message) -> None:
    with pytest.raises(ConfigError, match=message):
        AttnBatch(q_lens, kv_lens, *heads, head_dim=32)


def test_no_page_is_shared_and_none_is_in_order() -> None:
    pages = (40, 1, 25)
    table = page_table(pages, 70, np.random.default_rng(3))
    used = np.concatenate([row[:count] for row, count in zip(table, pages, strict=True)])
    assert table.shape == (3, 40)
    assert len(set(used.tolist())) == 66
    assert used.min() >= 0
    assert used.max() < 70
    assert (np.diff(used) == 1).mean() < 0.2
    assert not table[1, 1:].any()


def test_a_pool_that_is_too_small_is_refused() -> None:
    with pytest.raises(ConfigError, match="9 KV pages are needed, the pool has 8"):
        page_table((4, 5), 8, np.random.default_rng(0))


def test_slots_lead_to_the_page_of_each_new_token() -> None:
    table = np.array([[4, 7, 0, 3, 9], [2, 0, 0, 0, 0], [8, 6, 5, 0, 0]], dtype=np.int32)
    # position 16 of sequence 0: page 4 of it, id 9; position 2 of sequence 1; positions 4 to 8 of sequence 2
    assert slots_of(MIXED, table).tolist() == [36, 10, 24, 25, 26, 27, 20]


def test_cumulative_starts() -> None:
    assert cumulative((3, 1, 2)).tolist() == [0, 3, 4, 6]


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=64))
def test_spread_lengths_keep_count_sum_and_longest(lengths: list[int]) -> None:
    spread = spread_lengths(len(lengths), sum(lengths), max(lengths))
    assert len(spread) == len(lengths)
    assert sum(spread) == sum(lengths)
    assert max(spread) == max(lengths) == spread[0]
    assert min(spread) >= 1


def test_equal_lengths_stay_equal() -> None:
    assert spread_lengths(5, 5 * 777, 777) == (777,) * 5


@pytest.mark.parametrize("shape", [(3, 2, 1), (3, 31, 10), (3, 10, 9)])
def test_lengths_that_cannot_be_are_refused(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError, match="cannot sum to"):
        spread_lengths(*shape)
