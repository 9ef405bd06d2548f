"""The steps that policies are made of: run the decodes, continue prefills, admit new requests.

A scheduler knows requests and KV blocks; no clock, no latency model. The same object therefore serves the
simulated clock and the wall clock of a replay on real kernels. Conventions, from the Sarathi-Serve paper and
its artefact: a request's whole context is reserved at admission and a decode takes a block when it crosses
into one; progress counts when a batch ends, so that one chunk of a prompt is in flight at a time; the last
chunk of a prompt emits the first output token; a victim of preemption starts over at the head of the queue.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from collections import deque
from operator import attrgetter
from sys import maxsize
from typing import ClassVar

from simulator.batch import Batch, BatchShape, Chunk, Slice
from simulator.decode_set import DecodeSet
from simulator.kv import KVBlocks
from simulator.request import Request

_ID = attrgetter("id")
# Makes a named tuple in half the time that its own constructor takes, in the innermost loop.
_new = tuple.__new__


class BatchBuilder:
    """A batch in the making and what is left of its token budget (None: no limit)."""

    __slots__ = ("chunks", "decodes", "ending", "num_tokens", "prefills", "token_budget")

    def __init__(self, token_budget: int | None) -> None:
        self.token_budget = maxsize if token_budget is None else token_budget
        self.num_tokens = 0
        self.prefills: list[Slice] = []
        self.chunks: list[Chunk] = []
        self.ending: list[Request] = []
        self.decodes: DecodeSet | None = None

    def __bool__(self) -> bool:
        return self.num_tokens > 0

    def room_for(self, tokens: int) -> int:
        """How many of so many tokens still fit the budget."""
        left = self.token_budget - self.num_tokens
        if tokens <= left:
            return tokens
        return left if left > 0 else 0

    def add_prefill(self, request: Request, tokens: int) -> None:
        """Add a chunk, or a whole prompt."""
        prefix = request.num_computed + request.in_flight
        request.in_flight += tokens
        self.num_tokens += tokens
        self.prefills.append(_new(Slice, (request, tokens)))
        self.chunks.append(_new(Chunk, (tokens, prefix)))
        if prefix + tokens == request.num_tokens:
            self.ending.append(request)

    def seal(self) -> Batch:
        """The batch as it goes to the kernels."""
        num_decodes = kv_tokens = kv_squares = kv_max = 0
        decodes = self.decodes
        if decodes is not None:
            num_decodes = len(decodes.members)
            kv_tokens = decodes.kv_tokens + num_decodes
            kv_squares = decodes.kv_squares + decodes.kv_tokens + kv_tokens
            kv_max = decodes.kv_max + 1
        sampled = num_decodes + len(self.ending)
        shape = _new(
            BatchShape,
            (tuple(self.chunks), num_decodes, kv_tokens, kv_squares, kv_max, sampled, self.num_tokens),
        )
        return _new(Batch, (tuple(self.prefills), tuple(self.ending), decodes, shape))


class Scheduler(ABC):
    """Queues, admission, preemption and bookkeeping; a policy adds `_fill`, the order of the steps.

    `token_budget` is the most tokens of one iteration (vLLM: max_num_batched_tokens), `max_num_seqs` the most
    admitted requests, in flight or not, `max_model_len` the most tokens of a request, prompt and answer. A
    scheduler that
    `decides_ahead` belongs to an asynchronous engine, which puts an iteration together while the one before
    it runs: it does not see yet who arrives in that time, and who finishes then keeps its place and memory.
    """

    name: ClassVar[str]
    reserves_worst_case: ClassVar[bool] = False
    """Whether admission reserves KV blocks for `max_model_len` tokens, as in Orca and FasterTransformer."""
    default_watermark: ClassVar[float] = 0.01
    """Share of the KV blocks that admission leaves free unless a scenario says otherwise."""

    def __init__(
        self,
        kv: KVBlocks,
        *,
        token_budget: int,
        max_num_seqs: int,
        max_model_len: int,
        decides_ahead: bool = False,
    ) -> None:
        self.kv = kv
        self.token_budget = token_budget
        self.max_num_seqs = max_num_seqs
        self.max_model_len = max_model_len
        self.decides_ahead = decides_ahead
        self.waiting: deque[Request] = deque()
        self.prefilling: list[Request] = []
        self.num_running = 0
        self.num_preemptions = 0
        self.recomputed_tokens = 0
        # Heads the queue and was not admitted by the last decision.
        self._turned_away: Request | None = None
        # What the next decision does not know yet, where it is made ahead.
        self._arrived: deque[Request] = deque() if decides_ahead else self.waiting
        self._leaving: list[Request] = []
        self._num_sets = 0
        self._spare: list[DecodeSet] = []
        self.ready = self._empty_set()

    @abstractmethod
    def _fill(self, batch: BatchBuilder) -> None:
        """Put the next iteration together, step by step."""

    @property
    def _iteration_tokens(self) -> int | None:
        """The most tokens that `_fill` may put in one iteration; None for a policy without a limit."""
        return self.token_budget

    def add(self, request: Request) -> str | None:
        """Queue a request; one that could never run is not queued, and the reason is returned."""
        if request.max_tokens + 1 > self.max_model_len:
            return f"{request.max_tokens + 1} tokens exceed max_model_len {self.max_model_len}"
        blocks = self._blocks_of(request, request.max_tokens + 1)
        available = self.kv.num_blocks - self.kv.watermark
        if blocks > available:
            return f"{request.max_tokens + 1} tokens need {blocks} KV blocks of {available}"
        self._arrived.append(request)
        return None

    def schedule(self) -> Batch | None:
        """The next iteration, or None when nothing can run now."""
        preemptions = self.num_preemptions
        builder = BatchBuilder(self._iteration_tokens)
        self._turned_away = None
        self._fill(builder)
        has_news = self.decides_ahead and bool(self._arrived or self._leaving)
        if has_news:
            self._catch_up()
        if builder.num_tokens:
            return builder.seal()
        # Where the last decode made way for itself, its blocks are free now and it can begin again.
        return self.schedule() if has_news or self.num_preemptions > preemptions else None

    def complete(self, batch: Batch) -> list[Request]:
        """Account for an iteration that has ended; return the requests that finished with it."""
        finished: list[Request] = []
        decodes = batch.decodes
        if decodes is not None:
            finished = decodes.tick()
            spare = self.ready
            if spare.members:  # of batches in flight at the same time; the smaller set moves
                if len(spare.members) > len(decodes.members):
                    spare, decodes = decodes, spare
                decodes.absorb(spare)
            self._spare.append(spare)
            self.ready = decodes
        for request, tokens in batch.prefills:
            request.in_flight -= tokens
            request.num_computed += tokens
        for request in batch.ending:
            self.prefilling.remove(request)
            request.num_generated += 1
            if request.num_generated == request.output_tokens:
                finished.append(request)
            else:
                self.ready.join(request)
        if finished:
            if self.decides_ahead:
                self._leaving += finished
            else:
                self._dismiss(finished)
        return finished

    def repeat(self, batch: Batch) -> Batch | None:
        """Account for decodes that have ended, and run the same ones again, if that is all there is to do.

        A shortcut through `complete` and `schedule` for the long stretches in which nobody comes in, finishes
        or lacks memory; None, and nothing done, otherwise. Who was turned away stays so: places and budget
        are the same, and memory only becomes less.
        """
        decodes = batch.decodes
        if decodes is None or batch.prefills or self.prefilling or self.ready.members:
            return None
        if self.waiting and self.waiting[0] is not self._turned_away:
            return None
        is_last = decodes.next_finish <= decodes.ticks + 1
        needed = 0 if self.reserves_worst_case else decodes.blocks_needed_then
        if is_last or self.kv.free <= needed or (self.decides_ahead and (self._arrived or self._leaving)):
            return None
        decodes.tick()
        self.kv.take(needed)
        count = len(decodes.members)
        kv_tokens = decodes.kv_tokens + count
        kv_squares = decodes.kv_squares + decodes.kv_tokens + kv_tokens
        shape = (batch.shape.chunks, count, kv_tokens, kv_squares, decodes.kv_max + 1, count, count)
        return _new(Batch, (batch.prefills, batch.ending, decodes, _new(BatchShape, shape)))

    # The steps.

    def _run_decodes(self, batch: BatchBuilder) -> None:
        """One token for every request that decodes and is not in flight in another batch."""
        ready = self.ready
        if not ready.members:
            return
        if not self.reserves_worst_case:
            needed = ready.blocks_needed
            # A decode wants a free block even where it opens none: only the last one may find the pool empty.
            if self.kv.free > needed:
                self.kv.free -= needed
            else:
                self._run_decodes_under_pressure()
        if ready.members:
            batch.decodes = ready
            batch.num_tokens += len(ready.members)
            self.ready = self._empty_set()

    def _continue_prefills(self, batch: BatchBuilder) -> None:
        """The next chunk of every prompt that has begun, oldest first, as far as the budget goes."""
        for request in self.prefilling:
            if not request.in_flight and (tokens := batch.room_for(request.behind)):
                batch.add_prefill(request, tokens)

    def _admit(self, batch: BatchBuilder, *, whole: bool = False) -> None:
        """Admit waiting requests in order until one finds no budget, no place or no memory.

        With `whole` a prompt is not cut: it enters if all of it fits the budget.
        """
        waiting, kv = self.waiting, self.kv
        while waiting and self.num_running < self.max_num_seqs and batch.num_tokens < batch.token_budget:
            request = waiting[0]
            behind = request.behind
            tokens = batch.room_for(behind)
            if whole and tokens < behind:
                break
            blocks = self._blocks_of(request, behind)
            if not kv.can_admit(blocks):
                break
            waiting.popleft()
            kv.take(blocks)
            self.num_running += 1
            # A request that was preempted can be older than those whose prompt is under way.
            insort(self.prefilling, request, key=_ID)
            batch.add_prefill(request, tokens)
        self._turned_away = waiting[0] if waiting else None

    # Bookkeeping.

    def _catch_up(self) -> None:
        """Take note of what has happened since the last decision, which may let in who was turned away."""
        self._turned_away = None
        self.waiting.extend(self._arrived)
        self._arrived.clear()
        self._dismiss(self._leaving)
        self._leaving.clear()

    def _dismiss(self, finished: list[Request]) -> None:
        """Give up the places and the memory of requests that have finished."""
        for request in finished:
            self.num_running -= 1
            self._release(request, request.num_computed)

    def _run_decodes_under_pressure(self) -> None:
        """Give out the last blocks one by one, oldest request first; the youngest makes way (by recompute).

        A victim is a request not yet served in this walk, be it decoding or in the middle of its prompt, and
        never one in flight; where there is none, the request that lacks the block makes way itself.
        """
        begun = (request for request in self.prefilling if not request.in_flight)
        queue = deque(sorted([*self.ready, *begun], key=_ID))
        while queue:
            request = queue.popleft()
            if request.decode_set is None:
                continue
            while not self.kv.free:
                victim = queue.pop() if queue else request
                self._preempt(victim)
                if victim is request:
                    break
            else:
                if self.ready.kv_of(request) % self.kv.block_size == 0:
                    self.kv.take(1)

    def _preempt(self, victim: Request) -> None:
        """Take a request's KV blocks away and put it at the head of the queue, to be computed again."""
        if victim.decode_set is not None:
            victim.decode_set.leave(victim)
            held = victim.num_computed
        else:
            self.prefilling.remove(victim)
            held = self._held_in_prefill(victim)
        self._release(victim, held)
        self.num_preemptions += 1
        self.recomputed_tokens += victim.num_computed
        victim.num_computed = 0
        victim.num_preemptions += 1
        self.num_running -= 1
        self.waiting.appendleft(victim)

    def _held_in_prefill(self, request: Request) -> int:
        """Tokens for which a request holds KV blocks before it decodes."""
        return request.num_tokens

    def _release(self, request: Request, num_tokens: int) -> None:
        """Give back the KV blocks of a request that holds those of so many tokens."""
        self.kv.give_back(self._blocks_of(request, num_tokens))

    def _blocks_of(self, request: Request, num_tokens: int) -> int:
        """KV blocks reserved for a request with so many tokens of context."""
        return self.kv.blocks_for(self.max_model_len if self.reserves_worst_case else num_tokens)

    def _empty_set(self) -> DecodeSet:
        if self._spare:
            return self._spare.pop()
        self._num_sets += 1
        return DecodeSet(self._num_sets - 1, self.kv.block_size)
