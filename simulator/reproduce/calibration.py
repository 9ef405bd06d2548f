"""Fits the engine presets sarathi-2024*, one constant each, and shows how they meet micro-measurements.

On one GPU the share of its kernel's speed that decode attention reaches within an engine is fitted to
measured decode iterations of a model of Mistral's shapes; on several GPUs the host time of an iteration to
the prefill iterations that the artifact measured on Yi-34B. The rest is inherited from what others measured
directly. A fit has the least mean absolute log error, so that contradicting measurements count for little.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simulator.hardware import EngineSpec
from simulator.latency import LatencyModel, build_latency
from simulator.load import load_engine
from simulator.reproduce.measurements import Measurement, measurements
from simulator.reproduce.paper import Published
from simulator.reproduce.rows import Ledger
from simulator.search.rules import iteration_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from simulator.reproduce.experiments import Experiments, Results
    from simulator.reproduce.lab import Lab

KERNELS_ALONE = "ideal"


class Fit(NamedTuple):
    """One constant of an engine, the values it may take, and the families of measurements that decide."""

    constant: str
    unit: str
    values: NDArray[np.float64]
    families: tuple[str, ...]
    power: int
    """The times are linear in the constant to this power."""


FITS = {
    "sarathi-2024": Fit(
        "decode_bandwidth_scale", "share", np.arange(30, 101) / 100, ("niyama-decode",), power=-1
    ),
    "sarathi-2024-ray": Fit(
        "host_fixed_us", "us", np.arange(0.0, 50_001, 100), ("prefill", "piggyback", "chunks"), power=1
    ),
}


def predicted_ms(measured: Sequence[Measurement], engine: EngineSpec | None = None) -> NDArray[np.float64]:
    """The times of the measurements' iterations in ms, with an engine in place of each scenario's own."""
    latencies: dict[str, LatencyModel] = {}

    def seconds(each: Measurement) -> float:
        key = each.scenario.digest()
        if key not in latencies:
            latencies[key] = build_latency(each.scenario, engine)
        return sum(iteration_s(latencies[key], shape) for shape in each.shapes)

    return 1e3 * np.array([seconds(each) for each in measured])


def fit(measured: Sequence[Measurement], engine: EngineSpec, plan: Fit) -> float:
    """The value of the constant, of all that it may take, with which the engine comes nearest."""

    def times(value: float) -> NDArray[np.float64]:
        return predicted_ms(measured, engine.model_copy(update={plan.constant: value}))

    # Two predictions are enough: between them and beyond, times are linear.
    powers = plan.values**plan.power
    first, last = times(plan.values[0]), times(plan.values[-1])
    way = (powers - powers[0]) / (powers[-1] - powers[0])
    all_times = first + way[:, None] * (last - first)
    published = np.array([each.published.value for each in measured])
    errors = np.abs(np.log(all_times / published)).mean(axis=1)
    return float(plan.values[errors.argmin()])


def experiments(lab: Lab) -> Experiments:
    """The fits, and one prediction of everything."""
    fits: Experiments = {f"calibration/fit/{engine}": (fitted, engine) for engine in FITS}
    return fits | {"calibration/predictions": (predictions,)}


def fitted(lab: Lab, engine: str) -> float:
    """An engine's constant, fitted anew with its others as they are shipped."""
    plan = FITS[engine]
    measured = [each for each in measurements(lab) if each.family in plan.families]
    return fit(measured, load_engine(engine), plan)


def predictions(lab: Lab) -> list[dict[str, Any]]:
    """Every measurement as measured, by the scenario's engine, and by the kernels alone, in ms."""
    measured = measurements(lab)
    ours, alone = predicted_ms(measured), predicted_ms(measured, load_engine(KERNELS_ALONE))
    return [
        {
            "id": each.id,
            "published": list(each.published),
            "ours": float(mine),
            "alone": float(bare),
            "fitted_to": any(each.family in plan.families for plan in FITS.values()),
        }
        for each, mine, bare in zip(measured, ours, alone, strict=True)
    ]


def report(ledger: Ledger, results: Results) -> None:
    """The constants beside those that are shipped, then the measurements beside the predictions."""
    for engine, plan in FITS.items():
        value = results[f"calibration/fit/{engine}"]
        shipped = getattr(load_engine(engine), plan.constant)
        ledger.add(
            f"calibration/fit/{engine}/{plan.constant}",
            value,
            plan.unit,
            f"shipped: {shipped:g}",
            holds=bool(np.isclose(value, shipped)),
        )
    for each in results["calibration/predictions"]:
        note = f"kernels alone {each['alone']:.1f} ms" + ("; fitted to" if each["fitted_to"] else "")
        ledger.add(each["id"], each["ours"], note=note, published=Published(*each["published"]))
