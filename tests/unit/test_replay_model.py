"""The random-weight transformer and its pages: neither cuts, batches nor pages may change its answers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="replaying needs torch: pip install 'stallfree[profile]'")

from profiler.device import open_device
from profiler.graphs import PiecewiseGraphs
from profiler.kernels.backends.reference import Reference
from profiler.kernels.backends.sdpa import Sdpa
from profiler.model import Transformer
from profiler.pages import PagePool
from simulator.load import load_model

CPU = open_device("cpu")
TINY = load_model("tiny").model_copy(update={"num_layers": 2, "vocab_size": 128, "intermediate_size": 96})
PROMPTS = [np.random.default_rng(seed).integers(0, 128, length) for seed, length in enumerate((50, 7, 33))]


class Runner:
    """A model and its pages; runs slices of prompts and returns the logits of those that sample."""

    def __init__(self, spec=TINY, backend=Sdpa) -> None:
        self.model = Transformer(spec, CPU, backend(CPU), "fp32", num_pages=40, page_size=8)
        self.pages = PagePool(40, 8)
        self.seen = (0, 0)

    def run(self, *slices: tuple[int, int, int]):
        """Each slice: number of the prompt, first token, token behind the last one; ordered as given."""
        model = self.model
        for prompt, _, stop in slices:
            self.pages.grow(prompt, stop)
        batch = model.batch(
            tuple(stop - start for _, start, stop in slices), tuple(stop for _, _, stop in slices)
        )
        table = self.pages.table([prompt for prompt, _, _ in slices])
        inputs = model.inputs(batch, table, np.ones(len(slices), dtype=bool))
        tokens = np.concatenate([PROMPTS[prompt][start:stop] for prompt, start, stop in slices])
        inputs = replace(inputs, tokens=torch.from_numpy(tokens))
        with torch.inference_mode():
            return model.logits(inputs, model.plan(inputs)).numpy()


@pytest.fixture(scope="module")
def whole() -> list[np.ndarray]:
    """The logits behind each prompt, run by itself and in one piece."""
    return [Runner().run((i, 0, len(prompt)))[0] for i, prompt in enumerate(PROMPTS)]


def test_prompts_that_differ_have_different_answers(whole) -> None:
    assert np.abs(whole[0] - whole[1]).max() > 0.01


@pytest.mark.parametrize("cuts", [(20,), (8, 16), (1, 2, 49)])
def test_a_prompt_in_chunks_ends_where_the_whole_one_does(whole, cuts: tuple[int, ...]) -> None:
    runner = Runner()
    for start, stop in zip((0, *cuts), (*cuts, 50), strict=True):
        logits = runner.run((0, start, stop))
    assert logits[0] == pytest.approx(whole[0], abs=1e-4)


def test_a_mixed_batch_gives_each_sequence_its_own_answer(whole) -> None:
    runner = Runner()
    runner.run((1, 0, 6), (0, 0, 21))
    logits = runner.run((1, 6, 7), (0, 21, 50), (2, 0, 33))  # a decode, a chunk on a prefix, a whole prompt
    for got, prompt in zip(logits, (1, 0, 2), strict=True):
        assert got == pytest.approx(whole[prompt], abs=1e-4)


def test_decoding_token_by_token_ends_where_the_whole_prompt_does(whole) -> None:
    runner = Runner()
    runner.run((1, 0, 1))
    for start in range(1, 7):
        logits = runner.run((1, start, start + 1))
    assert logits[0] == pytest.approx(whole[1], abs=1e-4)


def test_the_fast_kernel_and_the_reference_agree(whole) -> None:
    assert Runner(backend=Reference).run((0, 0, 50))[0] == pytest.approx(whole[0], abs=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {"parallel_block": True, "gated_mlp": False},
        {"qkv_bias": True, "tied_embeddings": True},
        {"qk_norm": True},
        {"sliding_window": 12},
        {"num_kv_heads": 8},
    ],
)
def test_every_kind_of_block_runs_in_chunks_as_whole(changes: dict) -> None:
    spec = TINY.model_copy(update=changes)
    expected = Runner(spec).run((0, 0, 50))[0]
    runner = Runner(spec)
    runner.run((0, 0, 19))
    assert runner.run((0, 19, 50))[0] == pytest.approx(expected, abs=1e-4)


def test_a_batch_in_which_nothing_samples_returns_nothing() -> None:
    runner = Runner()
    runner.pages.grow(0, 16)
    model = runner.model
    inputs = model.inputs(model.batch((16,), (16,)), runner.pages.table([0]), np.array([False]))
    assert model.forward(inputs, model.plan(inputs)).tolist() == []


# Pieces of a forward pass, as CUDA graphs capture them.


@pytest.mark.parametrize("changes", [{}, {"parallel_block": True, "gated_mlp": False}, {"qk_norm": True}])
def test_the_pieces_of_a_padded_batch_give_the_same_tokens(changes: dict) -> None:
    spec = TINY.model_copy(update=changes)
    tokens = []
    for pieces in (False, True):
        runner = Runner(spec)
        model = runner.model
        graphs = PiecewiseGraphs(model)
        if pieces:
            graphs.prepare(64)
        forward = graphs.forward if pieces else model.forward
        for kv_lens in ((21, 9), (22, 10), (23, 50)):  # prompts, decodes, a decode beside a chunk
            q_lens = tuple(now - before for now, before in zip(kv_lens, runner.seen, strict=True))
            runner.seen = kv_lens
            for number, kv_len in enumerate(kv_lens):
                runner.pages.grow(number, kv_len)
            inputs = model.inputs(
                model.batch(q_lens, kv_lens), runner.pages.table([0, 1]), np.ones(2, dtype=bool)
            )
            with torch.inference_mode():
                tokens.append(forward(inputs, model.plan(inputs)).tolist())
    assert tokens[:3] == tokens[3:]
    assert len({tuple(pair) for pair in tokens}) == 3


def test_batches_beyond_the_largest_graph_run_without() -> None:
    runner = Runner()
    graphs = PiecewiseGraphs(runner.model)
    graphs.prepare(4)
    runner.pages.grow(0, 50)
    inputs = runner.model.inputs(runner.model.batch((50,), (50,)), runner.pages.table([0]), np.array([True]))
    with torch.inference_mode():
        attend = runner.model.plan(inputs)
        assert graphs.forward(inputs, attend).tolist() == runner.model.forward(inputs, attend).tolist()


# Pages.


def test_pages_are_handed_out_in_random_order_and_to_one_sequence_each() -> None:
    pool = PagePool(64, 16)
    pool.grow(7, 16 * 30)
    pool.grow(8, 16 * 20 + 1)
    table = pool.table([7, 8])
    held = [*table[0, :30].tolist(), *table[1, :21].tolist()]
    assert len(set(held)) == 51
    assert pool.num_free == 13
    assert sum(b - a == 1 for a, b in pairwise(held)) < 10


def test_growing_keeps_the_pages_that_hold_tokens() -> None:
    pool = PagePool(8, 16)
    pool.grow(1, 17)
    before = pool.table([1])[0].tolist()
    pool.grow(1, 32)
    assert pool.table([1])[0].tolist() == before
    pool.grow(1, 33)
    assert pool.table([1])[0].tolist()[:2] == before


def test_released_pages_serve_others() -> None:
    pool = PagePool(4, 16)
    pool.grow(1, 64)
    with pytest.raises(RuntimeError, match="1 KV pages wanted of 0 free"):
        pool.grow(2, 1)
    pool.release(1)
    pool.release(1)  # holds nothing any more
    pool.grow(2, 64)
    assert pool.num_free == 0
