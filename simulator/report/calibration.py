"""The page of `calibrate`: fitted host times, and the errors on what was fitted and on what was predicted."""

from __future__ import annotations

from typing import Any

from simulator.report.documents import SCHEMA_VERSION
from simulator.report.page import Page, Table, table
from simulator.report.validation import ERROR_WORDS, UNUSED, cut_notes, signed
from simulator.report.words import deployment, policy
from simulator.validate.calibrate import Calibration

CONSTANTS = {"host_fixed_us": "an iteration", "host_per_seq_us": "each sequence in it"}
ROWS = {key: words for key, words in ERROR_WORDS.items() if key != "makespan"}


def calibration_page(calibration: Calibration) -> Page:
    """The constants, then both parts of the run, each with the engine before and after."""
    return Page(
        answer=_answer(calibration),
        tables=(_constants_table(calibration), _errors_table(calibration)),
        notes=_notes(calibration),
        document=_document(calibration),
    )


def _answer(calibration: Calibration) -> str:
    before, after = calibration.predicted_part_pct
    fitted, scenario = calibration.fitted_engine, calibration.scenario
    host = f"host time {fitted.host_fixed_us:g} us an iteration and {fitted.host_per_seq_us:g} us a sequence"
    outcome = "unchanged, as no other explains the run better" if fitted == calibration.engine else "fitted"
    return (
        f"{deployment(scenario)}, {policy(scenario)}: {host}, {outcome} ({calibration.num_fitted} requests,"
        f" {calibration.run.kind}); mean E2E of the {calibration.num_predicted} others"
        f" {signed(after['e2e_mean'])}, without the fit {signed(before['e2e_mean'])}."
    )


def _constants_table(calibration: Calibration) -> Table:
    rows = [
        [f"host time of {words} (us)", f"{getattr(engine, key):g}", f"{getattr(fitted, key):g}"]
        for engine, fitted in [(calibration.engine, calibration.fitted_engine)]
        for key, words in CONSTANTS.items()
    ]
    return table(("", calibration.engine.name, "fitted"), rows)


def _errors_table(calibration: Calibration) -> Table:
    parts = (*calibration.fitted_part_pct, *calibration.predicted_part_pct)
    rows = [[words, *(signed(errors[key]) for errors in parts)] for key, words in ROWS.items()]
    name = calibration.engine.name
    return table(("error", f"fitted part, {name}", "fitted", f"other part, {name}", "predicted"), rows)


def _notes(calibration: Calibration) -> tuple[str, ...]:
    engine = calibration.engine
    seen = (
        f"the fit saw the requests that finished within {calibration.split_s:.4g} s of the first arrival:"
        f" {calibration.num_fitted} of {len(calibration.run)}"
    )
    hidden = f"{engine.name} hides host time behind the device's: only where it is longer can a run show it"
    cuts = cut_notes(calibration.scenario)
    return (*calibration.run.notes, *cuts, seen, *([hidden] if engine.asynchronous else []))


def _document(calibration: Calibration) -> dict[str, Any]:
    run = calibration.run
    parts = {"fitted_part": calibration.fitted_part_pct, "predicted_part": calibration.predicted_part_pct}
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "calibrate",
        "run": {"name": run.name, "kind": run.kind, "requests": len(run)},
        "scenario": calibration.scenario.model_dump(mode="json", exclude=UNUSED),
        "engine": calibration.engine.model_dump(mode="json"),
        "fitted": {key: getattr(calibration.fitted_engine, key) for key in CONSTANTS},
        "split_s": calibration.split_s,
        "num_fitted": calibration.num_fitted,
        "num_predicted": calibration.num_predicted,
        "errors_pct": {name: {"before": before, "after": after} for name, (before, after) in parts.items()},
        "notes": list(_notes(calibration)),
    }
