"""The policies, each an order of the steps in base.py; sections are those of the Sarathi-Serve paper."""

from __future__ import annotations

from typing import ClassVar

from simulator.schedulers.base import BatchBuilder, Scheduler


class StallFree(Scheduler):
    """Stall-free batching (Algorithm 3): all decodes, then one chunk after another up to the token budget.

    Decodes are never limited by the budget; prompts that have begun go before new requests.
    """

    name: ClassVar[str] = "stall_free"

    def _fill(self, batch: BatchBuilder) -> None:
        self._run_decodes(batch)
        self._continue_prefills(batch)
        self._admit(batch)


class PrefillFirst(Scheduler):
    """vLLM before chunked prefill (Algorithm 2): whole prompts as soon as they fit, no decode beside them.

    As there, a prefill iteration holds at most `max_model_len` tokens; the token budget has no part in it.
    """

    name: ClassVar[str] = "prefill_first"

    @property
    def _iteration_tokens(self) -> int:
        return self.max_model_len

    def _fill(self, batch: BatchBuilder) -> None:
        self._admit(batch, whole=True)
        if not batch:
            self._run_decodes(batch)


class DecodeFirst(Scheduler):
    """Request-level batching, as in FasterTransformer (Algorithm 1): admit nobody until all answers are done.

    Memory is reserved for the longest possible request, so nobody is ever preempted.
    """

    name: ClassVar[str] = "decode_first"
    reserves_worst_case: ClassVar[bool] = True

    @property
    def _iteration_tokens(self) -> None:
        return None

    def _fill(self, batch: BatchBuilder) -> None:
        self._run_decodes(batch)
        if not batch:
            self._admit(batch, whole=True)


class Orca(Scheduler):
    """Iteration-level batching (section 3.2): every decode and every admissible whole prompt in one batch.

    Memory is reserved for the longest possible request, which is why Orca's batches are small.
    """

    name: ClassVar[str] = "orca"
    reserves_worst_case: ClassVar[bool] = True

    @property
    def _iteration_tokens(self) -> None:
        return None

    def _fill(self, batch: BatchBuilder) -> None:
        self._run_decodes(batch)
        self._admit(batch, whole=True)


class HybridOnly(StallFree):
    """Ablation (Table 4): stall-free order without chunking, that is with `max_model_len` as the budget.

    Where several prompts fill that, the last of them is cut.
    """

    name: ClassVar[str] = "hybrid_only"

    @property
    def _iteration_tokens(self) -> int:
        return self.max_model_len


class ChunkedOnly(Scheduler):
    """Ablation (Table 4): prompts in chunks, but never in one batch with decodes; the two take turns.

    On the prefills' turn prompts that have begun go on; only where there is none are new ones admitted. A
    turn that finds nothing to do passes to the other side.
    """

    name: ClassVar[str] = "chunked_only"

    _prefills_turn = True

    def _fill(self, batch: BatchBuilder) -> None:
        turns = (self._run_prefills, self._run_decodes)
        for turn in turns if self._prefills_turn else reversed(turns):
            turn(batch)
            if batch:
                self._prefills_turn = turn == self._run_decodes
                return

    def _run_prefills(self, batch: BatchBuilder) -> None:
        self._continue_prefills(batch)
        if not batch:
            self._admit(batch)
