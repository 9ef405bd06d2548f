"""vllm_v1 against a plain restatement of vLLM's rules: one list of running requests, every block by number.

The restatement walks all requests at every step and keeps a table of blocks for each, so it has none of the
shortcuts of the scheduler under test; hypothesis lets both serve the same requests, batch by batch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from builders import describe, make_request, make_scheduler
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simulator.batch import Batch
from simulator.prefix_cache import PrefixCache
from simulator.request import Request

BLOCK = 4


@dataclass
class Plain:
    """A request of the restatement; `computed` counts what has been scheduled, as in vLLM."""

    id: int
    prompt: int
    output: int
    contents: list[int]
    generated: int = 0
    computed: int = 0
    in_flight: int = 0
    decoding: bool = False
    blocks: list[int] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return self.prompt + self.generated

    def content(self, place: int) -> object:
        """What names a full block: the id in the workload, or one that no other request has."""
        return self.contents[place] if place < len(self.contents) else ("own", self.id, place)


class Step(NamedTuple):
    """A batch of the restatement: the requests, those that catch up with it, and both in words."""

    requests: list[Plain]
    ending: list[Plain]
    words: str


@dataclass
class PlainEngine:
    """The scheduler and its KV cache, in plain lists."""

    num_blocks: int
    budget: int
    max_num_seqs: int
    threshold: int
    must_fit: bool
    caching: bool

    def __post_init__(self) -> None:
        self.free = list(range(self.num_blocks))
        self.users = [0] * self.num_blocks
        self.contents: dict[int, object] = {}
        self.waiting: list[Plain] = []
        self.running: list[Plain] = []
        self.preemptions = 0

    def step(self) -> Step:
        """The next batch, counted as scheduled."""
        batch = self.schedule()
        words = [f"d{id}" for id in sorted(request.id for request, _ in batch if request.decoding)]
        words += [f"p{request.id}:{tokens}" for request, tokens in batch if not request.decoding]
        for request, tokens in batch:
            request.computed += tokens
            request.in_flight += 1
        requests = [request for request, _ in batch]
        ending = [request for request in requests if request.computed == request.tokens]
        return Step(requests, ending, " ".join(words) or "-")

    def complete(self, step: Step) -> None:
        for request in step.requests:
            request.in_flight -= 1
        # Of those that finish together, decodes let go first: vLLM has them in order of admission.
        for request in sorted(step.ending, key=lambda request: request.id if request.decoding else 1000):
            request.generated += 1
            request.decoding = True
            if request.generated == request.output:
                self.running.remove(request)
                self.release(request)

    def schedule(self) -> list[tuple[Plain, int]]:
        batch: list[tuple[Plain, int]] = []
        left, place, preemptions = self.budget, 0, self.preemptions
        while place < len(self.running) and left:
            request = self.running[place]
            place += 1
            tokens = min(request.tokens - request.computed, self.threshold, left)
            if tokens:
                if not self.allocate_or_preempt(request, tokens, place):
                    return batch
                batch.append((request, tokens))
                left -= tokens
        if self.preemptions > preemptions:
            return batch
        while self.waiting and left and len(self.running) < self.max_num_seqs:
            request = self.waiting[0]
            hit = self.find(request)
            tokens = min(request.tokens - len(hit) * BLOCK, self.threshold, left)
            if not self.admit(request, hit, tokens):
                break
            self.running.append(self.waiting.pop(0))
            batch.append((request, tokens))
            left -= tokens
        return batch

    def allocate_or_preempt(self, request: Plain, tokens: int, place: int) -> bool:
        while not self.allocate(request, tokens):
            victims = [other for other in self.running[place - 1 :] if not other.in_flight]
            if victims:
                self.preempt(victims[-1])
            if victims in ([], [request]):
                return False
        return True

    def preempt(self, request: Plain) -> None:
        self.running.remove(request)
        self.release(request)
        request.computed = 0
        request.decoding = False
        self.preemptions += 1
        self.waiting.insert(0, request)

    def find(self, request: Plain) -> list[int]:
        hit: list[int] = []
        while self.caching and (len(hit) + 1) * BLOCK < request.tokens:
            content = request.content(len(hit))
            block = next((block for block, held in self.contents.items() if held == content), None)
            if block is None:
                break
            hit.append(block)
        return hit

    def admit(self, request: Plain, hit: list[int], tokens: int) -> bool:
        until = request.tokens if self.must_fit else len(hit) * BLOCK + tokens
        in_use = sum(self.users[block] > 0 for block in hit)
        if -(-until // BLOCK) - in_use > len(self.free):
            return False
        for block in hit:
            if not self.users[block]:
                self.free.remove(block)
            self.users[block] += 1
        request.blocks = list(hit)
        request.computed = len(hit) * BLOCK
        return self.allocate(request, tokens)

    def allocate(self, request: Plain, tokens: int) -> bool:
        until = request.computed + tokens
        needed = -(-until // BLOCK) - len(request.blocks)
        if needed > len(self.free):
            return False
        for _ in range(needed):
            block = self.free.pop(0)
            self.contents.pop(block, None)
            self.users[block] = 1
            request.blocks.append(block)
        if self.caching:
            for place in range(request.computed // BLOCK, until // BLOCK):
                content = request.content(place)
                for older in [block for block, held in self.contents.items() if held == content]:
                    del self.contents[older]
                self.contents[request.blocks[place]] = content
        return True

    def release(self, request: Plain) -> None:
        for block in reversed(request.blocks):
            self.users[block] -= 1
            if not self.users[block]:
                self.free.append(block)
        request.blocks = []


def prefix_ids(words: list[int]) -> list[int]:
    """An id for each word and all that is before it: the digits so far, after a leading one."""
    ids = [1]
    for word in words:
        ids.append(ids[-1] * 10 + word)
    return ids[1:]


# A prompt of some blocks whose beginnings are often equal, and a rest; its output; a pause before the next.
PROMPTS = st.tuples(st.lists(st.integers(0, 1), max_size=5), st.integers(1, 2 * BLOCK))
REQUESTS = st.lists(st.tuples(PROMPTS, st.integers(1, 12), st.integers(0, 3)), min_size=1, max_size=16)


@settings(max_examples=250, deadline=None)
@pytest.mark.parametrize("caching", [False, True])
@given(
    sizes=REQUESTS,
    budget=st.integers(1, 12),
    max_num_seqs=st.integers(1, 8),
    num_blocks=st.integers(10, 30),
    threshold=st.integers(1, 8),
    must_fit=st.booleans(),
    depth=st.integers(1, 3),
)
@example(
    # A prompt that is in flight finds no memory for its next chunk and cannot make way.
    sizes=[(([0], 1), 9, 4), (([1, 0, 0, 0], 5), 10, 2), (([0, 1, 0, 0, 0], 8), 1, 2), (([], 2), 1, 6)],
    budget=7,
    max_num_seqs=5,
    num_blocks=13,
    threshold=8,
    must_fit=False,
    depth=2,
)
def test_batches_are_those_of_the_restatement(
    caching: bool,
    sizes: list[tuple[tuple[list[int], int], int, int]],
    budget: int,
    max_num_seqs: int,
    num_blocks: int,
    threshold: int,
    must_fit: bool,
    depth: int,
) -> None:
    scheduler = make_scheduler(
        "vllm_v1",
        budget=budget,
        max_num_seqs=max_num_seqs,
        num_blocks=num_blocks,
        block_size=BLOCK,
        prefix_caching=caching,
        long_prefill_token_threshold=threshold,
        prompt_must_fit=must_fit,
    )
    plain = PlainEngine(num_blocks, budget, max_num_seqs, threshold, must_fit, caching)
    coming = deque(enumerate(sizes))
    in_flight: deque[tuple[Batch, Step]] = deque()
    accepted: list[Request] = []
    pause = num_tokens = 0
    for _ in range(10_000):
        while coming and not pause:
            id, ((words, rest), output, pause) = coming.popleft()
            prompt, ids = len(words) * BLOCK + rest, prefix_ids(words)
            request = make_request(id, prompt, output, block_ids=ids)
            if scheduler.add(request) is None:
                accepted.append(request)
                plain.waiting.append(Plain(id, prompt, output, ids))
        pause = max(0, pause - 1)
        while len(in_flight) < depth:
            batch, preemptions, step = scheduler.schedule(), plain.preemptions, plain.step()
            if not step.requests and plain.preemptions > preemptions:
                step = plain.step()  # one in which the last request made way runs nothing and takes no time
            assert describe(batch) == step.words
            assert scheduler.kv.free == len(plain.free)
            if batch is None:
                break
            ending = [request.id for request in step.ending if not request.decoding]
            assert [request.id for request in batch.ending] == ending
            num_tokens += batch.shape.num_tokens
            in_flight.append((batch, step))
        if in_flight:
            batch, step = in_flight.popleft()
            scheduler.complete(batch)
            plain.complete(step)
        elif not coming:
            break
    assert not plain.running
    assert not plain.waiting
    assert scheduler.num_preemptions == plain.preemptions
    assert scheduler.kv.used == 0
    # Every token of a context is computed or found; what is computed twice was lost to a preemption.
    contexts = sum(request.max_tokens for request in accepted)
    found = scheduler.kv.hit_tokens if isinstance(scheduler.kv, PrefixCache) else 0
    assert num_tokens == contexts + scheduler.recomputed_tokens - found
