"""Fits the engine presets sarathi-2024* to micro-measurements, and shows how well they meet them.

Two constants are fitted: the host time of an iteration, and the share of its kernel's speed that decode
attention reaches. The host time of a sequence was measured by others and is inherited. The sum of absolute
log errors decides, so that measurements which contradict all others (there are some) count for little.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simulator.hardware import EngineSpec
from simulator.latency import build_latency
from simulator.load import load_engine
from simulator.reproduce.measurements import Measurement, measurements
from simulator.reproduce.paper import Published
from simulator.reproduce.rows import Ledger
from simulator.search.rules import iteration_s

if TYPE_CHECKING:
    from simulator.reproduce.experiments import Experiments, Results
    from simulator.reproduce.lab import Lab

FIXED_US = np.arange(0, 60_001, 100)
SCALES = np.arange(40, 101) / 100
KERNELS_ALONE = "ideal"


class Plan(NamedTuple):
    """What an engine inherits from, the models that it serves, and the measurements that it is fitted to."""

    base: str
    models: tuple[str, ...]
    families: tuple[str, ...]


PLANS = {
    "sarathi-2024": Plan("sync-2024", ("mistral",), ("slo", "niyama")),
    "sarathi-2024-ray": Plan(
        "sync-2024-ray", ("yi", "llama2", "falcon"), ("slo", "prefill", "piggyback", "chunks")
    ),
}
"""Left out: figure-2/decode.csv, a run so heavy on the host that it takes twice what the SLO implies."""


def predicted_ms(measurement: Measurement, engine: EngineSpec) -> float:
    """The time of a measurement's iterations with an engine, in ms."""
    latency = build_latency(measurement.scenario, engine)
    return 1e3 * sum(iteration_s(latency, shape) for shape in measurement.shapes)


def targets(all_measurements: Sequence[Measurement], plan: Plan) -> list[Measurement]:
    """The measurements that a plan names."""
    return [each for each in all_measurements if each.model in plan.models and each.family in plan.families]


def fit(measured: Sequence[Measurement], base: EngineSpec) -> EngineSpec:
    """The base engine with the two constants, of all on a grid, that come nearest to the measurements."""

    def predictions(**constants: float) -> Any:
        engine = base.model_copy(update=constants)
        return np.array([predicted_ms(each, engine) for each in measured])

    # An iteration's time is linear in the host time and in the slowdown of decode attention.
    bare = predictions(host_fixed_us=0.0, decode_bandwidth_scale=1.0)
    host = predictions(host_fixed_us=1e3, decode_bandwidth_scale=1.0) - bare
    decode = predictions(host_fixed_us=0.0, decode_bandwidth_scale=0.5) - bare
    fixed_ms, slowdown = np.meshgrid(FIXED_US / 1e3, 1 / SCALES - 1, indexing="ij")
    times = bare + fixed_ms[..., None] * host + slowdown[..., None] * decode
    values = np.array([each.published.value for each in measured])
    errors = np.abs(np.log(times / values)).sum(axis=-1)
    fixed, scale = np.unravel_index(errors.argmin(), errors.shape)
    return base.model_copy(
        update={"host_fixed_us": float(FIXED_US[fixed]), "decode_bandwidth_scale": float(SCALES[scale])}
    )


def experiments(lab: Lab) -> Experiments:
    """One fit per engine, and one prediction of everything."""
    fits: Experiments = {f"calibration/fit/{name}": (fitted_constants, name) for name in PLANS}
    return fits | {"calibration/predictions": (predictions,)}


def fitted_constants(lab: Lab, name: str) -> dict[str, float]:
    """The two constants of an engine, fitted anew."""
    plan = PLANS[name]
    engine = fit(targets(measurements(lab), plan), load_engine(plan.base))
    return {"host_fixed_us": engine.host_fixed_us, "decode_bandwidth_scale": engine.decode_bandwidth_scale}


def predictions(lab: Lab) -> list[dict[str, Any]]:
    """Every measurement as measured, by the scenario's engine, and by the kernels alone, in ms."""
    alone = load_engine(KERNELS_ALONE)
    return [
        {
            "id": each.id,
            "published": list(each.published),
            "ours": predicted_ms(each, load_engine(each.scenario.engine)),
            "alone": predicted_ms(each, alone),
            "fitted_to": any(each in targets([each], plan) for plan in PLANS.values()),
        }
        for each in measurements(lab)
    ]


def report(ledger: Ledger, results: Results) -> None:
    """The constants beside those that are shipped, then the measurements beside the predictions."""
    for name in PLANS:
        shipped = load_engine(name).model_dump()
        for constant, value in results[f"calibration/fit/{name}"].items():
            ledger.add(
                f"calibration/fit/{name}/{constant}",
                value,
                "us" if constant.endswith("_us") else "share",
                f"shipped: {shipped[constant]:g}",
                holds=bool(np.isclose(value, shipped[constant])),
            )
    for each in results["calibration/predictions"]:
        note = f"kernels alone {each['alone']:.1f} ms" + ("" if each["fitted_to"] else "; not fitted to")
        ledger.add(each["id"], each["ours"], note=note, published=Published(*each["published"]))
