"""One request: what it asks for, how far it has come, and when; phase-free, as in vLLM v1.

A request is `behind` by some tokens: its whole prompt when it arrives, what is left of it between two
chunks, and exactly one token while it decodes. Prefill, chunk and decode are therefore one operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.decode_set import DecodeSet


ENDS_PREFILL = -1
"""Stands for a decode set in a segment whose one token came with the end of a prefill."""


class Request:
    """A request on its way through one replica; only its scheduler and its replica change it.

    `id` numbers the requests in order of arrival, so that it is also their first-come-first-served priority.
    `in_flight` counts the prefill tokens of batches that have not ended, `num_computed` only those that have.
    `block_ids` name the full blocks of its prompt: equal ids, equal blocks and equal context before them.
    `segments` are its output tokens in order: (decode set, first tick, tick after the last one), or, for the
    token that ends a prefill, (ENDS_PREFILL, its number among such tokens, the next number).
    Times are in seconds of simulated time and are written by the replica, never read by a scheduler.
    """

    __slots__ = (
        "admission",
        "arrival_s",
        "block_ids",
        "decode_set",
        "finish_tick",
        "finished_s",
        "first_token_s",
        "id",
        "in_flight",
        "joined_tick",
        "kv_offset",
        "num_computed",
        "num_generated",
        "num_preemptions",
        "output_tokens",
        "prompt_tokens",
        "scheduled_s",
        "segments",
    )

    def __init__(
        self,
        id: int,
        prompt_tokens: int,
        output_tokens: int,
        arrival_s: float = 0.0,
        block_ids: Sequence[int] = (),
    ) -> None:
        self.id = id
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.arrival_s = arrival_s
        self.block_ids = block_ids
        self.num_computed = 0
        self.num_generated = 0
        self.num_preemptions = 0
        self.admission = 0
        self.in_flight = 0
        self.scheduled_s = -1.0
        self.first_token_s = -1.0
        self.finished_s = -1.0
        self.segments: list[tuple[int, int, int]] = []
        # Set while the request decodes: see decode_set.py.
        self.decode_set: DecodeSet | None = None
        self.joined_tick = 0
        self.finish_tick = 0
        self.kv_offset = 0

    @property
    def num_tokens(self) -> int:
        """Tokens of the prompt and of the answer so far (exact while the request is in no decode set)."""
        return self.prompt_tokens + self.num_generated

    @property
    def behind(self) -> int:
        """Tokens that must be computed before the next output token appears."""
        return self.prompt_tokens + self.num_generated - self.num_computed

    @property
    def max_tokens(self) -> int:
        """Tokens in the KV cache when the last output token appears, which itself is never written."""
        return self.prompt_tokens + self.output_tokens - 1

    def __repr__(self) -> str:
        return f"Request({self.id}: {self.prompt_tokens}+{self.num_generated}/{self.output_tokens})"
