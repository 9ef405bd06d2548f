"""Replicas behind a router, and the arrivals that drive them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import numpy as np
from simpy import Environment, Event
from simpy.events import URGENT

from simulator.errors import ConfigError, suggest
from simulator.replica import Replica
from simulator.request import Request
from simulator.workload.streams import stream

Router = Callable[[Request], Replica]
"""Chooses the replica that serves a request, at its arrival."""


MOST_AHEAD = 32
"""Unfinished requests by which a replica may be ahead of the least busy one and still get what it knows."""
MATCH_SHARE = 0.5
"""Share of a prompt's blocks that a replica must have been sent before to be said to know the prompt."""


def least_busy(replicas: Iterable[Replica]) -> Replica:
    """The replica with the fewest requests that have not finished; the first of several."""
    return min(replicas, key=lambda replica: replica.num_outstanding)


def round_robin(replicas: Sequence[Replica], rng: np.random.Generator) -> Router:
    """Each replica in turn."""
    return lambda request: replicas[request.id % len(replicas)]


def at_random(replicas: Sequence[Replica], rng: np.random.Generator) -> Router:
    """Any replica, all equally likely."""
    return lambda request: replicas[int(rng.integers(len(replicas)))]


def least_outstanding(replicas: Sequence[Replica], rng: np.random.Generator) -> Router:
    """The replica with the fewest requests that have not finished; the first of several."""
    return lambda request: least_busy(replicas)


def power_of_two(replicas: Sequence[Replica], rng: np.random.Generator) -> Router:
    """The less busy of two replicas at random; nearly as good as the least busy, and asks only two."""
    if len(replicas) < 2:
        return round_robin(replicas, rng)

    def route(request: Request) -> Replica:
        first, step = int(rng.integers(len(replicas))), int(rng.integers(1, len(replicas)))
        return least_busy((replicas[first], replicas[(first + step) % len(replicas)]))

    return route


class PrefixAffinity:
    """The replica that was sent most of this prompt before, so that its prefix cache may know it.

    Where none was sent MATCH_SHARE of it, or the one that was is too far ahead in work, the least busy one.
    It goes by the ids of the prompt's blocks, and so holds together what a session sends. What has been
    evicted from a cache since then it does not know.
    """

    def __init__(self, replicas: Sequence[Replica], rng: np.random.Generator) -> None:
        self._replicas = replicas
        self._sent: dict[int, int] = {}
        """Of each block the replicas that were sent it, one bit each."""

    def __call__(self, request: Request) -> Replica:
        """Choose, and remember what was sent there."""
        idle = least_busy(self._replicas)
        chosen = least_busy(self._knowing(request.block_ids) or self._replicas)
        if chosen.num_outstanding > idle.num_outstanding + MOST_AHEAD:
            chosen = idle
        bit = 1 << self._replicas.index(chosen)
        for block in request.block_ids:
            self._sent[block] = self._sent.get(block, 0) | bit
        return chosen

    def _knowing(self, blocks: Sequence[int]) -> list[Replica]:
        """The replicas that were sent the longest part of a prompt, if that is long enough."""
        known, length = -1, 0
        while length < len(blocks) and (still := known & self._sent.get(blocks[length], 0)):
            known, length = still, length + 1
        if not length or length < MATCH_SHARE * len(blocks):
            return []
        return [replica for place, replica in enumerate(self._replicas) if known >> place & 1]


ROUTERS: dict[str, Callable[[Sequence[Replica], np.random.Generator], Router]] = {
    "round_robin": round_robin,
    "random": at_random,
    "least_outstanding": least_outstanding,
    "power_of_two": power_of_two,
    "prefix_affinity": PrefixAffinity,
}

DRAWN_ROUTINGS = ("random", "power_of_two")
"""Those that depend on the seed."""


def router_named(name: str, replicas: Sequence[Replica], seed: int = 0) -> Router:
    """A router over some replicas, with a random stream of its own; ConfigError for an unknown name."""
    try:
        router = ROUTERS[name]
    except KeyError:
        raise ConfigError(f"unknown routing {name!r}{suggest(name, ROUTERS)}") from None
    return router(replicas, stream(seed, "routing"))


class _Arrival(Event):
    """Comes before all else at its time: who arrives just as an iteration ends is seen by the next one."""

    def __init__(self, env: Environment, delay_s: float) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        env.schedule(self, URGENT, delay_s)


def feed(
    env: Environment,
    requests: Iterable[Request],
    route: Router,
    on_rejected: Callable[[Request, str], None],
) -> Generator[Event, Any, None]:
    """Hand each request to a replica when it arrives; the requests come in order of arrival."""
    for request in requests:
        if request.arrival_s > env.now:
            yield _Arrival(env, request.arrival_s - env.now)
        reason = route(request).submit(request)
        if reason is not None:
            on_rejected(request, reason)
