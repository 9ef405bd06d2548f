"""Replicas behind a router, and the arrivals that drive them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

from simpy import Environment, Event
from simpy.events import URGENT

from simulator.errors import ConfigError, suggest
from simulator.replica import Replica
from simulator.request import Request

Router = Callable[[Request], Replica]
"""Chooses the replica that serves a request, at its arrival."""


def round_robin(replicas: Sequence[Replica]) -> Router:
    """Each replica in turn."""
    return lambda request: replicas[request.id % len(replicas)]


def least_outstanding(replicas: Sequence[Replica]) -> Router:
    """The replica with the fewest requests that have not finished; the first of several."""
    return lambda request: min(replicas, key=lambda replica: replica.num_outstanding)


ROUTERS: dict[str, Callable[[Sequence[Replica]], Router]] = {
    "round_robin": round_robin,
    "least_outstanding": least_outstanding,
}


def router_named(name: str, replicas: Sequence[Replica]) -> Router:
    """A router over some replicas; ConfigError for an unknown name."""
    try:
        return ROUTERS[name](replicas)
    except KeyError:
        raise ConfigError(f"unknown routing {name!r}{suggest(name, ROUTERS)}") from None


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
