"""`stallfree reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from simulator.cli.options import WORK_DEFAULTS, WorkOptions
from simulator.cli.output import deliver

if TYPE_CHECKING:
    from simulator.report import Page

Part = Literal["capacity", "ablation", "chunking", "pipeline", "stalls", "budget", "claims", "calibration"]


def reproduce(
    paper: str = "sarathi-osdi24",
    *,
    only: Annotated[tuple[Part, ...], Parameter(negative="", consume_multiple=True)] = (),
    chat_trace: str | None = None,
    engine: str | None = None,
    plots: Path | None = None,
    options: WorkOptions = WORK_DEFAULTS,
) -> None:
    """Rerun a paper's evaluation in simulation and print our numbers beside the published ones.

    Every published number has a source and a certainty. Capacities follow the paper's own search rule. A run
    that was interrupted continues where it was.

    Parameters
    ----------
    paper
        The publication; sarathi-osdi24 is Sarathi-Serve, OSDI 2024.
    only
        The parts to run, e.g. --only capacity stalls; by default all.
    chat_trace
        Prompt and output lengths of the chat workload, in place of the shipped trace.
    engine
        Engine preset for all deployments: ideal shows the result without any calibration.
    plots
        Folder for plots (SVG) of Figure 1's stall and of capacity over the SLO.
    """

    def page() -> Page:
        from simulator.report.plots import write_plots
        from simulator.report.reproduction import reproduction_page
        from simulator.reproduce.lab import Lab
        from simulator.reproduce.paper import load_paper
        from simulator.reproduce.reproduction import GROUPS, reproduce

        lab = Lab(load_paper(paper), options.run(), chat_trace, engine)
        groups = [name for name in GROUPS if name in (only or GROUPS)]
        reproduction = reproduce(lab, groups, options.jobs, options.progress())
        if plots is not None:
            write_plots(reproduction, plots)
        return reproduction_page(reproduction)

    deliver(options, page)
