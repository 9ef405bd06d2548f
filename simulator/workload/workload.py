"""The requests a simulation serves: when each arrives, how long its prompt is, how long its output."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Self

import numpy as np
from numpy.typing import NDArray

from simulator.errors import ConfigError
from simulator.workload.arrivals import at_pace, mean_rate, require_believable
from simulator.workload.profiles import Profile

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BlockIds:
    """The prompt of each request as ids of token blocks: equal leading ids are an equal prefix.

    Request i has `ids[offsets[i]:offsets[i + 1]]`, one id for every `block_tokens` tokens of its prompt; a
    last block that is not full may have an id or none.
    """

    ids: Integers
    offsets: Integers
    block_tokens: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def of(self, index: int) -> Integers:
        """The ids of one request's prompt."""
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    @classmethod
    def of_rows(cls, rows: Sequence[Sequence[int] | Integers], block_tokens: int) -> Self:
        """From one sequence of ids for each request."""
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(ids) for ids in rows], out=offsets[1:])
        return cls(np.fromiter(chain.from_iterable(rows), np.int64, int(offsets[-1])), offsets, block_tokens)

    def take(self, rows: Integers) -> Self:
        """The ids of the given requests, in the given order."""
        return self.of_rows([self.of(row) for row in rows], self.block_tokens)


@dataclass(frozen=True, eq=False)
class Classes:
    """The class of each request, as an index into `names`."""

    names: tuple[str, ...]
    codes: Integers

    def take(self, rows: Integers) -> Classes:
        """The classes of the given requests, in the given order."""
        return replace(self, codes=self.codes[rows])


@dataclass(frozen=True, eq=False)
class Workload:
    """Requests in order of arrival; times in seconds from the start of the simulation, lengths in tokens.

    `max_total_tokens`: a request whose prompt and output exceed it arrives and is turned away.
    `unit_arrivals`: the same arrivals at one request a second, where they were drawn so; a `profile` says how
    the rate moves around its average.
    """

    arrival_s: NDArray[np.float64]
    prompt_tokens: Integers
    output_tokens: Integers
    name: str = "workload"
    notes: tuple[str, ...] = ()
    block_ids: BlockIds | None = None
    classes: Classes | None = None
    max_total_tokens: int | None = None
    unit_arrivals: NDArray[np.float64] | None = None
    profile: Profile | None = None

    def __post_init__(self) -> None:
        types = {"arrival_s": np.float64, "prompt_tokens": np.int64, "output_tokens": np.int64}
        for field, dtype in types.items():
            object.__setattr__(self, field, np.asarray(getattr(self, field), dtype=dtype))
        if not len(self.arrival_s) == len(self.prompt_tokens) == len(self.output_tokens):
            raise ConfigError("a workload needs one arrival, one prompt and one output for each request")
        if len(self) and (self.arrival_s[0] < 0 or not np.all(np.diff(self.arrival_s) >= 0)):
            raise ConfigError("a workload's arrivals must be in order and not before 0 s")
        if len(self) and min(self.prompt_tokens.min(), self.output_tokens.min()) < 1:
            raise ConfigError("a workload's prompts and outputs need at least one token each")

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def offered_rate_rps(self) -> float | None:
        """Requests a second from the first to the last arrival; None where all arrive at one moment."""
        return mean_rate(self.arrival_s)

    def at_rate(self, rate_rps: float) -> Self:
        """The same requests in the same pattern, faster or slower.

        ConfigError where they all arrive at once, or the last of them later than is believed.
        Drawn arrivals equal, to the last bit, those drawn with that `rate_rps` and the same seed.
        """
        unit = self.unit_arrivals
        if unit is None:
            rate = self.offered_rate_rps
            if rate is None:
                raise ConfigError(f"{self.name}: all requests arrive at once, so there is no rate to change")
            unit = self.arrival_s * rate
        arrival_s = at_pace(unit, rate_rps, "workload.rate_rps")
        if self.profile is not None and len(unit):
            arrival_s = self.profile.when(arrival_s)
            require_believable(float(arrival_s[-1]), "workload.arrivals")
        return replace(self, arrival_s=arrival_s, unit_arrivals=unit)

    def fingerprint(self) -> str:
        """A hash of everything here that can change what a simulation does; names and notes are left out."""
        digest = hashlib.sha256(repr((len(self), self.max_total_tokens)).encode())
        arrays: list[NDArray[np.float64] | Integers] = [
            self.arrival_s,
            self.prompt_tokens,
            self.output_tokens,
        ]
        if self.block_ids is not None:
            digest.update(repr(self.block_ids.block_tokens).encode())
            arrays += [self.block_ids.ids, self.block_ids.offsets]
        if self.classes is not None:
            digest.update(repr(self.classes.names).encode())
            arrays.append(self.classes.codes)
        for array in arrays:
            digest.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes())
        return digest.hexdigest()
