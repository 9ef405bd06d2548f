"""How many requests were running and how many waited, over the time of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simulator.validate.served import Served

if TYPE_CHECKING:
    from numpy.typing import NDArray

NUM_MOMENTS = 60


@dataclass(frozen=True, eq=False)
class Timeline:
    """Requests in service and waiting at equally spaced moments, measured and simulated.

    A request waits until it is scheduled, or, where the run did not record that (`until_first_token`), until
    its first token.
    """

    at_s: NDArray[np.float64]
    running: tuple[NDArray[np.int64], NDArray[np.int64]]
    waiting: tuple[NDArray[np.int64], NDArray[np.int64]]
    until_first_token: bool


def timeline(measured: Served, simulated: Served) -> Timeline:
    """Both runs over the longer of the two makespans."""
    at = np.linspace(0.0, max(measured.makespan_s, simulated.makespan_s), NUM_MOMENTS + 1)[1:]
    until_first_token = measured.scheduled_s is None
    levels = [_levels(served, at, until_first_token) for served in (measured, simulated)]
    running, waiting = zip(*levels, strict=True)
    return Timeline(at, running, waiting, until_first_token)


def _levels(
    served: Served, at_s: NDArray[np.float64], until_first_token: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    begun = served.first_token_s if until_first_token else served.scheduled_s
    assert begun is not None  # a simulation always knows
    arrived, started, finished = (
        np.searchsorted(np.sort(moments), at_s, side="right")
        for moments in (served.arrival_s, begun, served.finished_s)
    )
    return started - finished, arrived - started
