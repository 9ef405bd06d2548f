"""`stallfree plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from simulator.cli.options import SEARCH_DEFAULTS, AtLeastOne, Positive, SearchOptions
from simulator.cli.output import deliver
from simulator.errors import ConfigError

if TYPE_CHECKING:
    from simulator.report import Page

Words = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]
MaxGPUs = Annotated[int, Parameter(validator=validators.Number(gte=1, lte=10_000))]
"""With one GPU each, as many as a scenario may have replicas."""
Numbers = Annotated[tuple[AtLeastOne, ...], Parameter(consume_multiple=True, negative="", show_default=False)]


def plan(
    scenario: str = "default",
    *,
    rate: Positive,
    slo: Words = (),
    gpus: Words = (),
    max_gpus: MaxGPUs = 64,
    policies: Words = (),
    budgets: Numbers = (),
    sequences: Numbers = (),
    routing: str = "least_outstanding",
    prices: str = "on-demand-2025",
    price: Words = (),
    options: SearchOptions = SEARCH_DEFAULTS,
) -> None:
    """Find the cheapest deployments that hold an SLO at a load.

    Searched: GPU types, tensor and pipeline parallelism, replicas, policies, token budgets and sequences.
    What does not fit or cannot hold by iteration times alone is left out, the rest is simulated; whatever is
    printed held the SLO as a whole fleet in every run (5 unless --runs says). An interrupted plan continues
    where it was.

    Parameters
    ----------
    scenario
        The model, the workload and all that is not searched: a shipped scenario or a YAML file.
    rate
        Requests per second of the whole deployment.
    slo
        A bound, e.g. --slo p99_tbt_ms=50; may be repeated. Together they replace those of the scenario.
    gpus
        GPU types, e.g. --gpus h100_sxm,a100_sxm; by default all that have a price.
    max_gpus
        Most GPUs of a deployment.
    policies
        Scheduling policies to consider, separated by commas.
    budgets
        Token budgets to consider, e.g. --budgets 512 2048.
    sequences
        Values of max_num_seqs to consider, e.g. --sequences 128 256.
    routing
        How requests are spread over replicas: round_robin, random, least_outstanding, power_of_two or
        prefix_affinity.
    prices
        A list of prices: a shipped one or a YAML file.
    price
        A price of your own in dollars per GPU and hour, e.g. --price h100_sxm=2.2; may be repeated.
    """

    def page() -> Page:
        from simulator.load import load_scenario
        from simulator.report.plan import plan_page
        from simulator.search.plan import find_plan
        from simulator.search.plan_space import ask
        from simulator.search.prices import load_prices

        loaded = load_scenario(scenario, options.sets)
        if slo:
            loaded = loaded.with_({"slo": _numbers("--slo", slo)}, where="--slo")
        question = ask(
            loaded,
            rate,
            routing,
            load_prices(prices).with_(_numbers("--price", price)),
            max_gpus=max_gpus,
            gpus=_split(gpus),
            policies=_split(policies),
            budgets=budgets,
            sequences=sequences,
        )
        return plan_page(find_plan(question, options.effort(default_runs=5)))

    deliver(options, page)


def _split(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names in arguments that may hold several, separated by commas."""
    return tuple(name.strip() for each in names for name in each.split(",") if name.strip())


def _numbers(option: str, texts: tuple[str, ...]) -> dict[str, float]:
    """The numbers in arguments of the form name=number, by name; ConfigError for any that is not positive."""
    numbers = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        try:
            numbers[name] = float(value)
        except ValueError:
            numbers[name] = 0.0
        if not name or not 0 < numbers[name] < float("inf"):
            raise ConfigError(f"{option} {text}: must be NAME=NUMBER with a number above 0")
    return numbers
