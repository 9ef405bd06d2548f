"""`stallfree simulate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.cli.options import RUN_DEFAULTS, RunOptions
from simulator.cli.output import deliver

if TYPE_CHECKING:
    from simulator.report import Page


def simulate(scenario: str = "default", *, options: RunOptions = RUN_DEFAULTS) -> None:
    """Serve one workload and print its latencies against the SLO.

    TTFT: arrival to first output token. TBT: every gap between output tokens of a request (vLLM: ITL). TPOT:
    (last - first token) / (tokens - 1) of a request. Goodput: requests per second that hold every bound.

    Parameters
    ----------
    scenario
        A shipped scenario (stallfree list scenarios) or a YAML file.
    """

    def page() -> Page:
        from simulator.load import load_scenario
        from simulator.report.simulation import simulation_page
        from simulator.search.replicate import run_variants

        effort = options.effort(default_runs=1)
        [runs] = run_variants([("", load_scenario(scenario, options.sets))], effort)
        return simulation_page(runs, effort)

    deliver(options, page)
