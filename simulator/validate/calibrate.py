"""Fits an engine's host time to the first part of a recorded run, and predicts the rest with it.

Two constants are fitted, the host time of an iteration and of each sequence in it, to the E2E of the requests
that finish first. The errors on the requests that finish later are a prediction: the fit never sees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simulator.errors import ConfigError, InputError
from simulator.latency import build_latency
from simulator.latency.batch_time import LinearBatchTime
from simulator.load import load_engine
from simulator.validate.compare import Errors, errors_pct, replay

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from simulator.config import Scenario
    from simulator.hardware import EngineSpec
    from simulator.validate.recorded import RecordedRun
    from simulator.validate.served import Served

    Vector = NDArray[np.float64]

MIN_REQUESTS = 10
"""Least number of requests to fit to, and to predict."""
STEPS_US = np.array([100.0, 2.0])
"""Changes of the two constants that measure their effect: to smaller ones a simulation answers in jumps."""
DAMPING = 1e-3
MAX_ROUNDS = 8
GAIN = 1e-3
"""A round that lowers the error by less than this share ends the fit."""


@dataclass(frozen=True)
class Calibration:
    """The fitted engine, and the errors without and with it on both parts of the run, in percent."""

    run: RecordedRun
    scenario: Scenario
    engine: EngineSpec
    fitted_engine: EngineSpec
    split_s: float
    """The fit saw what happened up to this moment, in seconds from the first arrival."""
    num_fitted: int
    num_predicted: int
    fitted_part_pct: tuple[Errors, Errors]
    """Of the requests in the fit: with the engine as it was, with the fitted one."""
    predicted_part_pct: tuple[Errors, Errors]
    """Of the other requests, likewise."""


def calibrate(run: RecordedRun, scenario: Scenario, share: float) -> Calibration:
    """Fit to the `share` of the requests that finish first.

    Raises InputError for a run with too few requests, ConfigError where kernels already hold the host time.
    """
    engine = load_engine(scenario.engine)
    if isinstance(build_latency(scenario), LinearBatchTime):
        raise ConfigError(f"kernels {scenario.kernels}: hold whole iterations, host time included")
    split_s = float(np.quantile(run.served.finished_s, share))
    early = run.served.finished_s <= split_s
    _check_size(run, early, share)

    def served(constants_us: Vector) -> Served:
        candidate = _with_host_time(engine, constants_us)
        return replay(run, scenario, build_latency(scenario, candidate)).served

    def residuals(constants_us: Vector) -> Vector:
        return np.log(served(constants_us).e2e_s[early] / run.served.e2e_s[early])

    before_us = np.array([engine.host_fixed_us, engine.host_per_seq_us])
    after_us = fit(residuals, before_us)
    outcomes = [served(constants_us) for constants_us in (before_us, after_us)]

    def errors(rows: NDArray[np.bool_]) -> tuple[Errors, Errors]:
        before, after = (_errors_of(run.served, outcome, rows) for outcome in outcomes)
        return before, after

    return Calibration(
        run=run,
        scenario=scenario,
        engine=engine,
        fitted_engine=_with_host_time(engine, after_us),
        split_s=split_s,
        num_fitted=int(early.sum()),
        num_predicted=int((~early).sum()),
        fitted_part_pct=errors(early),
        predicted_part_pct=errors(~early),
    )


def fit(residuals: Callable[[Vector], Vector], start: Vector) -> Vector:
    """Constants, none below zero, that bring the residuals close to zero: damped Gauss-Newton steps."""
    from scipy.optimize import nnls

    best, left = start, residuals(start)
    for _ in range(MAX_ROUNDS):
        slopes = np.stack(
            [(residuals(best + step) - left) / step.sum() for step in np.diag(STEPS_US)], axis=1
        )
        damping = DAMPING * np.sqrt(len(left)) * np.diag(1 / STEPS_US)
        matrix = np.vstack([slopes, damping])
        target = np.concatenate([slopes @ best - left, damping @ best])
        constants = np.round(nnls(matrix, target)[0], 2)
        now_left = residuals(constants)
        if np.abs(now_left).mean() > (1 - GAIN) * np.abs(left).mean():
            break
        best, left = constants, now_left
    return best


def _with_host_time(engine: EngineSpec, constants_us: Vector) -> EngineSpec:
    fixed_us, per_seq_us = constants_us.tolist()
    return engine.model_copy(update={"host_fixed_us": fixed_us, "host_per_seq_us": per_seq_us})


def _errors_of(measured: Served, simulated: Served, rows: NDArray[np.bool_]) -> Errors:
    """Errors of some requests; their makespan would say little."""
    errors = errors_pct(measured.take(rows), simulated.take(rows))
    del errors["makespan"]
    return errors


def _check_size(run: RecordedRun, early: NDArray[np.bool_], share: float) -> None:
    for number, use in ((int(early.sum()), "to fit to"), (int((~early).sum()), "to predict")):
        if number < MIN_REQUESTS:
            raise InputError(
                f"{run.name}: --share {share:g} of {len(run)} requests leaves {number} {use}"
                f" (needed: {MIN_REQUESTS})"
            )
