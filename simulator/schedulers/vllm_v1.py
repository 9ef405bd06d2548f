"""vLLM V1's scheduler: everyone in order of admission, memory chunk by chunk, prefixes found in the cache.

Restated from vllm/v1/core/sched/scheduler.py (vLLM 0.19). Left out: speculative decoding, multimodal inputs,
KV transfer, priorities. One thing differs: where several batches are in flight in a pipeline, a request in
one of them is never preempted; there the last one that is not makes way.
"""

from __future__ import annotations

from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from simulator.batch import Slice
from simulator.prefix_cache import PrefixCache
from simulator.schedulers.base import BatchBuilder, Scheduler

if TYPE_CHECKING:
    from simulator.kv import KVBlocks
    from simulator.request import Request

_ADMISSION = attrgetter("admission")


class VLLMV1(Scheduler):
    """vLLM V1: running requests in order of admission, each as far as it is behind; then waiting ones.

    The budget limits decodes too. A prompt gets at most `long_prefill_token_threshold` tokens an iteration
    and KV blocks for those only; its next chunk may follow before this one ends. Who finds no block takes
    those of the request admitted last, and nobody is admitted in that iteration. With `prompt_must_fit` a
    request is admitted only if its whole context would find blocks (vLLM: scheduler_reserve_full_isl).
    Prefixes are found and shared if `kv` is a PrefixCache.
    """

    name: ClassVar[str] = "vllm_v1"
    default_watermark: ClassVar[float] = 0.0

    def __init__(
        self,
        kv: KVBlocks,
        *,
        token_budget: int,
        max_num_seqs: int,
        max_model_len: int,
        decides_ahead: bool = False,
        long_prefill_token_threshold: int | None = None,
        prompt_must_fit: bool = True,
    ) -> None:
        super().__init__(
            kv,
            token_budget=token_budget,
            max_num_seqs=max_num_seqs,
            max_model_len=max_model_len,
            decides_ahead=decides_ahead,
        )
        self.longest_chunk = long_prefill_token_threshold or token_budget
        self.prompt_must_fit = prompt_must_fit
        self._cache = kv if isinstance(kv, PrefixCache) else None
        self._num_admitted = 0
        # What preempted requests had computed, until they are admitted again.
        self._lost_tokens: dict[int, int] = {}

    def _fill(self, batch: BatchBuilder) -> None:
        if self._run_everyone(batch) or self._run_one_by_one(batch):
            self._admit_in_order(batch)

    # Running requests.

    def _run_everyone(self, batch: BatchBuilder) -> bool:
        """All decodes and the next chunks in one stroke; false, and nothing done, where they do not all fit.

        That decodes go first is no matter: who was admitted behind a prompt lives on what it left over, and
        never needs more tokens than then.
        """
        ready, kv = self.ready, self.kv
        room = self.token_budget - len(ready.members)
        chunks = self._next_chunks(room)
        needed = ready.blocks_needed + sum([self._new_blocks(*chunk) for chunk in chunks])
        if room < 0 or needed > kv.free:
            return False
        kv.take(needed)
        if ready.members:
            batch.decodes = ready
            batch.num_tokens += len(ready.members)
            self.ready = self._empty_set()
        for request, tokens in chunks:
            self._add_chunk(batch, request, tokens)
        return True

    def _next_chunks(self, room: int) -> list[Slice]:
        """The next chunk of every prompt that has begun, in order, as far as the room goes."""
        chunks = []
        for request in self.prefilling:
            tokens = min(self._wanted(request), room)
            if tokens > 0:
                chunks.append(Slice(request, tokens))
                room -= tokens
        return chunks

    def _run_one_by_one(self, batch: BatchBuilder) -> bool:
        """Each running request in order of admission, as far as the budget goes; whether memory sufficed."""
        preemptions = self.num_preemptions
        fits = True
        queue = deque(sorted([*self.ready, *self.prefilling], key=_ADMISSION))
        decodes = []
        while fits and queue and batch.room_for(1):
            request = queue.popleft()
            is_decode = request.decode_set is not None
            tokens = 1 if is_decode else batch.room_for(self._wanted(request))
            blocks = self._new_blocks(request, tokens)
            fits = self._make_room(blocks, request, queue)
            if not fits or not tokens:
                continue
            self.kv.take(blocks)
            if is_decode:
                decodes.append(request)
                batch.num_tokens += 1
            else:
                self._add_chunk(batch, request, tokens)
        self._run_decodes_of(batch, decodes)
        return fits and self.num_preemptions == preemptions

    def _make_room(self, blocks: int, request: Request, later: deque[Request]) -> bool:
        """Preempt those admitted last until so many blocks are free; false if not even that helps."""
        while blocks > self.kv.free:
            victim = next((other for other in reversed(later) if not other.in_flight), request)
            if not victim.in_flight:
                self._preempt(victim)
            if victim is request:
                return False
            later.remove(victim)
        return True

    def _run_decodes_of(self, batch: BatchBuilder, requests: list[Request]) -> None:
        """Run these of the ready requests; the others stay."""
        if not requests:
            return
        chosen = self.ready
        if len(requests) == len(chosen.members):
            self.ready = self._empty_set()
        else:
            chosen = self._empty_set()
            for request in requests:
                self.ready.leave(request)
                chosen.join(request)
        batch.decodes = chosen

    # Waiting requests.

    def _admit_in_order(self, batch: BatchBuilder) -> None:
        """Admit waiting requests in order until one finds no budget, no place or no memory."""
        kv, cache = self.kv, self._cache
        while self.waiting and self.num_running < self.max_num_seqs and batch.room_for(1):
            request = self.waiting[0]
            found = cache.find(request) if cache else []
            computed = len(found) * kv.block_size
            tokens = batch.room_for(min(request.num_tokens - computed, self.longest_chunk))
            must_fit = request.num_tokens if self.prompt_must_fit else computed + tokens
            in_use = sum([block.num_users > 0 for block in found])
            if not kv.can_admit(kv.blocks_for(must_fit) - in_use):
                break
            self.waiting.popleft()
            if cache:
                cache.share(request, found)
                self._count_hits(cache, request, computed)
            kv.take(kv.blocks_for(tokens))  # what was found ends with a block
            request.num_computed = computed
            request.admission = self._num_admitted
            self._num_admitted += 1
            self.num_running += 1
            self.prefilling.append(request)
            self._add_chunk(batch, request, tokens)
        self._turned_away = self.waiting[0] if self.waiting else None

    def _count_hits(self, cache: PrefixCache, request: Request, computed: int) -> None:
        """Tell what a request got from others from what it had computed itself before it was preempted."""
        lost = self._lost_tokens.pop(request.id, 0)
        regained = min(lost, computed)
        self.recomputed_tokens -= regained
        cache.queried_tokens += request.num_tokens - lost
        cache.hit_tokens += computed - regained

    # Bookkeeping.

    def _wanted(self, request: Request) -> int:
        """Prefill tokens that a running request can use now."""
        return min(request.behind - request.in_flight, self.longest_chunk)

    def _new_blocks(self, request: Request, tokens: int) -> int:
        """KV blocks that the next tokens of a running request open."""
        if request.decode_set is not None:
            computed = request.decode_set.kv_of(request)
        else:
            computed = request.num_computed + request.in_flight
        return self.kv.blocks_for(computed + tokens) - self.kv.blocks_for(computed)

    def _add_chunk(self, batch: BatchBuilder, request: Request, tokens: int) -> None:
        batch.add_prefill(request, tokens)
        if self._cache:
            # Known before it is computed: who finds it runs in this batch or in a later one.
            self._cache.cache(request, request.num_computed + request.in_flight)

    def _preempt(self, victim: Request) -> None:
        recomputed = self.recomputed_tokens
        super()._preempt(victim)
        if self._cache:
            self._lost_tokens[victim.id] = self.recomputed_tokens - recomputed

    def _held_in_prefill(self, request: Request) -> int:
        return request.num_computed + request.in_flight

    def _release(self, request: Request, num_tokens: int) -> None:
        if self._cache is None:
            super()._release(request, num_tokens)
            return
        if request.num_generated < request.output_tokens:
            self._cache.cache_own(request, num_tokens)
        self._cache.release(request, num_tokens)
