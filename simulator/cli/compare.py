"""`stallfree compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from simulator.cli.options import SEARCH_DEFAULTS, SearchOptions
from simulator.cli.output import deliver

if TYPE_CHECKING:
    from simulator.report import Page

Names = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]


def compare(
    *scenarios: str, policy: Names = (), variant: Names = (), options: SearchOptions = SEARCH_DEFAULTS
) -> None:
    """Compare policies, scenarios or changes on the same requests.

    The first variant is the baseline; each difference has a 95 % interval from paired runs, and what may be
    noise is marked. Several scenarios all serve the workload of the first. Examples:

    stallfree compare long-prompt --policy prefill_first --policy stall_free

    stallfree compare --variant "big: scheduler.token_budget=2048" --variant "tp2: parallel.tensor=2"

    Parameters
    ----------
    scenarios
        Shipped scenarios (stallfree list scenarios) or YAML files; by default the scenario `default`.
    policy
        A scheduling policy; may be repeated.
    variant
        Changes under a name, "name: key=value, key=value"; may be repeated, and is compared with no change.
    """

    def page() -> Page:
        from simulator.report.comparison import comparison_page
        from simulator.search.comparison import compare
        from simulator.search.variants import variants_of

        variants = variants_of(scenarios or ("default",), options.sets, variant, policy)
        return comparison_page(compare(variants, options.effort(default_runs=5)))

    deliver(options, page)
