"""Requests that decode together, kept so that an iteration costs the same for two as for two hundred.

In every policy that runs all decodes that are ready, each member gets one token per iteration. A set is
then a clock: a member knows the tick at which it finishes, its KV length is an offset plus the ticks so
far, and it opens a new KV block when that length is a multiple of the block size. A tick touches only those
members that finish. Token times are not stored: they are the ends of the iterations that ran the set.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulator.request import Request


class DecodeSet:
    """`members` by id, the sums of their KV lengths and of the squares, and the ticks and arrivals so far."""

    __slots__ = (
        "_by_length",
        "_finish",
        "_longest",
        "_residues",
        "block_size",
        "id",
        "kv_squares",
        "kv_tokens",
        "members",
        "num_joined",
        "ticks",
    )

    def __init__(self, id: int, block_size: int) -> None:
        self.id = id
        self.block_size = block_size
        self.ticks = 0
        self.kv_tokens = 0
        self.kv_squares = 0
        self.num_joined = 0
        self.members: dict[int, Request] = {}
        # Members by (length - ticks) modulo the block size; those that open a block next share a residue.
        self._residues = [0] * block_size
        # Heaps whose entries of departed members are dropped when they surface.
        self._finish: list[tuple[int, int, Request]] = []
        self._by_length: list[tuple[int, int, Request]] = []
        # Length of the longest member, less the ticks.
        self._longest = 0

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.members.values())

    @property
    def blocks_needed(self) -> int:
        """KV blocks that the next tick opens."""
        return self._residues[-self.ticks % self.block_size]

    @property
    def blocks_needed_then(self) -> int:
        """KV blocks that the tick after the next one opens, if all stay."""
        return self._residues[(-self.ticks - 1) % self.block_size]

    @property
    def kv_max(self) -> int:
        """KV tokens of the longest member; 0 for an empty set."""
        return self._longest + self.ticks if self.members else 0

    def kv_of(self, request: Request) -> int:
        """KV tokens of a member before its next token."""
        return request.kv_offset + self.ticks

    def join(self, request: Request) -> None:
        """Add a request that has its whole context in the KV cache but for its newest token."""
        ticks = self.ticks
        request.decode_set = self
        request.joined_tick = ticks
        request.kv_offset = offset = request.num_computed - ticks
        request.finish_tick = finish = ticks + request.output_tokens - request.num_generated
        self.members[request.id] = request
        self.num_joined += 1
        self._residues[offset % self.block_size] += 1
        self.kv_tokens += request.num_computed
        self.kv_squares += request.num_computed**2
        heappush(self._finish, (finish, request.id, request))
        heappush(self._by_length, (-offset, request.id, request))
        self._longest = -self._by_length[0][0]

    def leave(self, request: Request) -> None:
        """Take a member out and bring its counters up to date."""
        ticks = self.ticks
        decoded = ticks - request.joined_tick
        if decoded:
            request.segments.append((self.id, request.joined_tick, ticks))
        request.num_computed += decoded
        request.num_generated += decoded
        request.decode_set = None
        del self.members[request.id]
        self._residues[request.kv_offset % self.block_size] -= 1
        self.kv_tokens -= request.num_computed
        self.kv_squares -= request.num_computed**2
        if request.kv_offset == self._longest:
            self._find_longest()

    @property
    def next_finish(self) -> int:
        """A tick before which nobody finishes."""
        return self._finish[0][0]

    def tick(self) -> list[Request]:
        """Give every member one token; return those that have all of theirs, already taken out."""
        self.ticks = ticks = self.ticks + 1
        count = len(self.members)
        self.kv_squares += 2 * self.kv_tokens + count
        self.kv_tokens += count
        finished: list[Request] = []
        heap = self._finish
        while heap and heap[0][0] <= ticks:
            finish, _, request = heappop(heap)
            if request.decode_set is self and request.finish_tick == finish:
                self.leave(request)
                finished.append(request)
        return finished

    def _find_longest(self) -> None:
        heap = self._by_length
        while heap:
            negated, _, request = heap[0]
            if request.decode_set is self and request.kv_offset == -negated:
                self._longest = -negated
                return
            heappop(heap)

    def absorb(self, other: DecodeSet) -> None:
        """Move all members of another set into this one."""
        for request in list(other):
            other.leave(request)
            self.join(request)
