"""Blocks that are found again: whose they are, which are lost first, and what their ids are."""

from __future__ import annotations

import pytest
from builders import make_request

from simulator.prefix_cache import PrefixCache, engine_block_ids
from simulator.request import Request

BLOCK = 4


def serve(cache: PrefixCache, request: Request, tokens: int | None = None) -> int:
    """Admit a request and compute the first tokens of its prompt; returns the blocks that it found."""
    tokens = tokens or request.prompt_tokens
    found = cache.find(request)
    hit = len(found)
    cache.share(request, found)
    cache.take(cache.blocks_for(tokens) - hit)
    cache.cache(request, tokens)
    return hit


def test_a_prompt_is_found_up_to_its_last_token() -> None:
    cache = PrefixCache(10, BLOCK)
    assert serve(cache, make_request(0, prompt=12, block_ids=[1, 2, 3])) == 0
    assert serve(cache, make_request(1, prompt=12, block_ids=[1, 2, 3])) == 2  # the last token is computed
    assert serve(cache, make_request(2, prompt=13, block_ids=[1, 2, 3])) == 3
    assert serve(cache, make_request(3, prompt=13, block_ids=[1, 9, 3])) == 1  # an end without its beginning
    # Three blocks; a second copy of the third; one more token; two others and one more token.
    assert cache.used == 3 + 1 + 1 + 3


def test_only_full_blocks_that_have_an_id_are_cached() -> None:
    cache = PrefixCache(10, BLOCK)
    serve(cache, make_request(0, prompt=12, block_ids=[1, 2, 3]), tokens=7)
    assert len(cache.find(make_request(1, prompt=12, block_ids=[1, 2, 3]))) == 1
    serve(cache, make_request(2, prompt=12, block_ids=[8]))
    assert len(cache.find(make_request(3, prompt=12, block_ids=[8, 9]))) == 1


def test_what_has_been_free_for_longest_is_lost_first_and_an_end_before_its_beginning() -> None:
    cache = PrefixCache(6, BLOCK)
    first, second = make_request(0, prompt=8, block_ids=[1, 2]), make_request(1, prompt=8, block_ids=[3, 4])
    for request in (first, second):
        serve(cache, request)
    cache.release(second, 8)
    cache.release(first, 8)
    # The queue: two that were never used, then 4, 3, 2, 1.
    cache.take(3)
    assert len(cache.find(make_request(2, prompt=9, block_ids=[3, 4]))) == 1
    cache.take(1)
    assert not cache.find(make_request(3, prompt=9, block_ids=[3, 4]))
    assert len(cache.find(make_request(4, prompt=9, block_ids=[1, 2]))) == 2


def test_what_is_shared_is_not_free_and_goes_to_the_end_of_the_queue() -> None:
    cache = PrefixCache(4, BLOCK)
    first, other = make_request(0, prompt=8, block_ids=[1, 2]), make_request(1, prompt=8, block_ids=[3, 4])
    serve(cache, first)
    serve(cache, other)
    cache.release(first, 8)
    cache.release(other, 8)
    assert cache.free == 4
    again = make_request(2, prompt=9, block_ids=[1, 2])
    cache.share(again, cache.find(again))
    assert cache.free == 2
    cache.take(2)  # 4 and 3, for 1 and 2 are in use
    assert len(cache.find(make_request(3, prompt=9, block_ids=[1, 2]))) == 2
    assert not cache.find(make_request(4, prompt=9, block_ids=[3, 4]))


def test_a_block_is_free_when_its_last_user_has_gone() -> None:
    cache = PrefixCache(4, BLOCK)
    first, second = (make_request(i, prompt=9, block_ids=[1, 2]) for i in range(2))
    serve(cache, first)
    serve(cache, second)
    assert cache.used == 4
    cache.release(first, 9)
    assert cache.used == 3
    cache.release(second, 9)
    assert cache.used == 0


def test_of_two_equal_blocks_the_newer_is_found() -> None:
    cache = PrefixCache(4, BLOCK)
    first, second = (make_request(i, prompt=4, block_ids=[1]) for i in range(2))
    serve(cache, first)
    serve(cache, second)  # one block, computed again for its last token
    cache.release(first, 4)
    cache.take(3)
    assert len(cache.find(make_request(2, prompt=5, block_ids=[1]))) == 1
    cache.release(second, 4)
    cache.take(1)
    assert not cache.find(make_request(3, prompt=5, block_ids=[1]))


def test_a_request_that_comes_back_finds_what_nobody_else_can() -> None:
    cache = PrefixCache(4, BLOCK)
    request = make_request(0, prompt=6, output=9, block_ids=[1])
    serve(cache, request)
    request.num_generated = 5
    cache.take(1)
    cache.cache_own(request, 10)
    cache.release(request, 10)
    assert cache.used == 0
    assert len(cache.find(request)) == 2
    assert len(cache.find(make_request(1, prompt=11, block_ids=[1]))) == 1


def test_more_blocks_than_there_are_is_a_fault() -> None:
    with pytest.raises(RuntimeError, match="3 KV blocks taken of 2 free"):
        PrefixCache(2, BLOCK).take(3)


def test_ids_of_the_same_size_are_taken_as_they_are() -> None:
    assert list(engine_block_ids([7, 8, 9], 16, 40, 16)) == [7, 8]


def test_a_large_recorded_block_is_several_blocks_of_the_engine() -> None:
    ids = engine_block_ids([7, 8], 512, 1000, 16)
    assert len(ids) == len(set(ids)) == 62
    # The same first block and another second one; and a longer prompt with the same beginning.
    other = engine_block_ids([7, 9], 512, 1000, 16)
    assert ids[:32] == other[:32]
    assert not set(ids[32:]) & set(other)
    assert engine_block_ids([7, 8, 3], 512, 1100, 16)[:62] == ids


def test_a_small_recorded_block_counts_by_the_last_one_in_a_block_of_the_engine() -> None:
    assert engine_block_ids([1, 2, 3, 4, 5], 16, 80, 32) == [2, 4]


def test_sizes_that_do_not_divide() -> None:
    # Ends at 48, 96, ... 1008: the eleventh is the first that reaches into the second recorded block.
    first, second = (engine_block_ids([7, content], 512, 1024, 48) for content in (8, 9))
    assert len(first) == len(set(first)) == 21
    assert first[:10] == second[:10]
    assert not set(first[10:]) & set(second[10:])


def test_tokens_beyond_the_recorded_blocks_have_no_id() -> None:
    assert len(engine_block_ids([7], 512, 2000, 16)) == 32
