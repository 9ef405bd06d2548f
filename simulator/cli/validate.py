"""`stallfree validate` and `stallfree calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from simulator.cli.options import SCENARIO_DEFAULTS, ScenarioOptions
from simulator.cli.output import deliver

if TYPE_CHECKING:
    from simulator.report import Page

AtLeastOne = Annotated[int, Parameter(validator=validators.Number(gte=1))]
Share = Annotated[float, Parameter(validator=validators.Number(gt=0, lt=1))]


def validate(
    run: Path,
    scenario: str = "default",
    *,
    benchmark: AtLeastOne | None = None,
    options: ScenarioOptions = SCENARIO_DEFAULTS,
) -> None:
    """Simulate the requests of a recorded run and print how far off the simulation is.

    The requests come from the run, with their times and lengths; the deployment comes from the scenario.
    Nothing is fitted to the run. An error is simulated over measured, less one. TPOT: (last - first token) /
    (tokens - 1) of a request. TBT: every gap between tokens of a request.

    Parameters
    ----------
    run
        A result of vllm bench serve --save-result --save-detailed, a GuideLLM report (JSON), AIPerf's
        profile_export.jsonl, or CSV or JSON lines with arrival_s, prompt_tokens, output_tokens and either
        first_token_s and last_token_s or token_s. A workload.jsonl with prompt_block_ids beside such a table
        says which prompts share prefixes.
    scenario
        The deployment that served the run: a shipped scenario or a YAML file.
    benchmark
        Which benchmark of a GuideLLM report that holds several, counted from 1.
    """

    def page() -> Page:
        from simulator.load import load_scenario
        from simulator.report.validation import validation_page
        from simulator.validate.read import read_run
        from simulator.validate.validation import validate

        return validation_page(validate(read_run(run, benchmark), load_scenario(scenario, options.sets)))

    deliver(options, page)
