"""What one iteration runs: a frozen batch of slices, and its shape in plain numbers for a latency model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulator.decode_set import DecodeSet
    from simulator.request import Request


class Slice(NamedTuple):
    """The next `num_tokens` tokens of a request."""

    request: Request
    num_tokens: int


class Chunk(NamedTuple):
    """A prefill chunk: each of its tokens attends `prefix` KV tokens and those before it in the chunk."""

    tokens: int
    prefix: int


class BatchShape(NamedTuple):
    """All that a latency model may know of a batch.

    `decode_kv_tokens` sums the KV lengths that the decodes attend, each with its new token,
    `decode_kv_squares` their squares, and `decode_kv_max` is the longest. `num_sampled` counts the sequences
    that emit a token: the decodes and the chunks that end a prompt.
    """

    chunks: tuple[Chunk, ...]
    num_decodes: int
    decode_kv_tokens: int
    decode_kv_squares: int
    decode_kv_max: int
    num_sampled: int
    num_tokens: int

    @classmethod
    def of(
        cls,
        chunks: tuple[Chunk, ...] = (),
        decode_kv: tuple[int, ...] = (),
        prompts_ended: int = 0,
    ) -> BatchShape:
        """The shape of some chunks (tokens, prefix) and of decodes that attend so many KV tokens each."""
        return cls(
            chunks=tuple(Chunk(*chunk) for chunk in chunks),
            num_decodes=len(decode_kv),
            decode_kv_tokens=sum(decode_kv),
            decode_kv_squares=sum(kv * kv for kv in decode_kv),
            decode_kv_max=max(decode_kv, default=0),
            num_sampled=len(decode_kv) + prompts_ended,
            num_tokens=sum(chunk[0] for chunk in chunks) + len(decode_kv),
        )


class Batch(NamedTuple):
    """One iteration: prefill slices, who ends its prefill with them, and the decodes, one token for each."""

    prefills: tuple[Slice, ...]
    ending: tuple[Request, ...]
    decodes: DecodeSet | None
    shape: BatchShape

    def slices(self) -> Iterator[Slice]:
        """Every slice, decodes first; walks the decodes one by one, so not for the event loop."""
        for request in self.decodes or ():
            yield Slice(request, 1)
        yield from self.prefills
