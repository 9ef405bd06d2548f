"""`stallfree validate` and `stallfree calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from simulator.cli.options import SCENARIO_DEFAULTS, AtLeastOne, ScenarioOptions
from simulator.cli.output import deliver

if TYPE_CHECKING:
    from simulator.report import Page

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


def calibrate(
    run: Path,
    scenario: str = "default",
    *,
    share: Share = 1 / 3,
    benchmark: AtLeastOne | None = None,
    options: ScenarioOptions = SCENARIO_DEFAULTS,
) -> None:
    """Fit the host time of an engine to the first part of a recorded run and predict the rest.

    Two constants are fitted, the host time of an iteration and of each sequence in it, to the E2E of the
    requests that finish first; kernels and scheduler stay as they are. Errors on the fitted part and on the
    rest, which the fit never sees, are printed apart. To use the constants, put them into an engine file
    (host_fixed_us, host_per_seq_us, asynchronous) and name it: --set engine=FILE.

    Parameters
    ----------
    run
        A recorded run, as in stallfree validate.
    scenario
        The deployment that served the run: a shipped scenario or a YAML file.
    share
        Share of the requests, those that finish first, to fit to.
    benchmark
        Which benchmark of a GuideLLM report that holds several, counted from 1.
    """

    def page() -> Page:
        from simulator.load import load_scenario
        from simulator.report.calibration import calibration_page
        from simulator.validate.calibrate import calibrate
        from simulator.validate.read import read_run

        loaded = load_scenario(scenario, options.sets)
        return calibration_page(calibrate(read_run(run, benchmark), loaded, share))

    deliver(options, page)
