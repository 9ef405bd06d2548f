"""`stallfree capacity`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.cli.options import SEARCH_DEFAULTS, SearchOptions
from simulator.cli.output import deliver

if TYPE_CHECKING:
    from simulator.report import Page


def capacity(scenario: str = "default", *, options: SearchOptions = SEARCH_DEFAULTS) -> None:
    """Find the largest arrival rate at which the SLO holds.

    The SLO must hold in a stable run; a median scheduling delay of at most 2 s is part of it unless the
    scenario bounds that delay itself. Each run (seed) is searched by bisection to 2.5 %; the answer is the
    mean over runs with its 95 % interval.

    Parameters
    ----------
    scenario
        A shipped scenario (stallfree list scenarios) or a YAML file.
    """

    def page() -> Page:
        from simulator.load import load_scenario
        from simulator.report.capacity import capacity_page
        from simulator.search.capacity import find_capacity

        effort = options.effort(default_runs=5)
        return capacity_page(find_capacity(load_scenario(scenario, options.sets), effort), effort)

    deliver(options, page)
