"""The engine presets sarathi-2024*: the one constant that is fitted, and how they meet micro-measurements.

Host times were measured directly by others and are inherited. Fitted is the share of its kernel's speed that
decode attention reaches within an engine: to measured decode iterations of a model of Mistral's shapes, by
the mean absolute log error. All other measurements, the artifact's among them, judge the outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.hardware import EngineSpec
from simulator.latency import build_latency
from simulator.load import load_engine
from simulator.reproduce.measurements import FITTED, Measurement, measurements
from simulator.reproduce.paper import Published
from simulator.reproduce.rows import Ledger
from simulator.search.rules import iteration_s

if TYPE_CHECKING:
    from simulator.reproduce.experiments import Experiments, Results
    from simulator.reproduce.lab import Lab

SCALES = np.arange(30, 101) / 100
BASE, ENGINE = "sync-2024", "sarathi-2024"
KERNELS_ALONE = "ideal"


def predicted_ms(measurement: Measurement, engine: EngineSpec) -> float:
    """The time of a measurement's iterations with an engine, in ms."""
    latency = build_latency(measurement.scenario, engine)
    return 1e3 * sum(iteration_s(latency, shape) for shape in measurement.shapes)


def fit_decode_scale(measured: Sequence[Measurement], base: EngineSpec) -> float:
    """The scale, of all on a grid, with which the base engine comes nearest to the measurements."""

    def times(scale: float) -> Any:
        engine = base.model_copy(update={"decode_bandwidth_scale": scale})
        return np.array([predicted_ms(each, engine) for each in measured])

    # An iteration's time is linear in the slowdown of decode attention.
    bare = times(1.0)
    slowed = bare + (1 / SCALES[:, None] - 1) * (times(0.5) - bare)
    values = np.array([each.published.value for each in measured])
    errors = np.abs(np.log(slowed / values)).mean(axis=1)
    return float(SCALES[errors.argmin()])


def experiments(lab: Lab) -> Experiments:
    """The fit, and one prediction of everything."""
    return {"calibration/fit": (fitted_scale,), "calibration/predictions": (predictions,)}


def fitted_scale(lab: Lab) -> float:
    """The share that decode attention reaches, fitted anew."""
    measured = [each for each in measurements(lab) if each.family == FITTED]
    return fit_decode_scale(measured, load_engine(BASE))


def predictions(lab: Lab) -> list[dict[str, Any]]:
    """Every measurement as measured, by the scenario's engine, and by the kernels alone, in ms."""
    alone = load_engine(KERNELS_ALONE)
    return [
        {
            "id": each.id,
            "published": list(each.published),
            "ours": predicted_ms(each, load_engine(each.scenario.engine)),
            "alone": predicted_ms(each, alone),
            "fitted_to": each.family == FITTED,
        }
        for each in measurements(lab)
    ]


def report(ledger: Ledger, results: Results) -> None:
    """The constant beside the one that is shipped, then the measurements beside the predictions."""
    fitted, shipped = results["calibration/fit"], load_engine(ENGINE).decode_bandwidth_scale
    ledger.add(
        "calibration/fit/decode_bandwidth_scale",
        fitted,
        "share",
        f"shipped: {shipped:g}",
        holds=abs(fitted - shipped) < 0.005,
    )
    for each in results["calibration/predictions"]:
        note = f"kernels alone {each['alone']:.1f} ms" + ("; fitted to" if each["fitted_to"] else "")
        ledger.add(each["id"], each["ours"], note=note, published=Published(*each["published"]))
