"""The constants of the engines sarathi-2024*: the fit that makes them, and what it may see."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from simulator.load import load_engine
from simulator.reproduce.calibration import FITS, fit, fitted, predicted_ms
from simulator.reproduce.lab import Lab
from simulator.reproduce.measurements import measurements
from simulator.reproduce.paper import load_paper

LAB = Lab(load_paper("sarathi-osdi24"))


@pytest.mark.parametrize("engine", FITS)
def test_shipped_constants_are_those_of_the_fit(engine: str) -> None:
    plan = FITS[engine]
    assert fitted(LAB, engine) == pytest.approx(getattr(load_engine(engine), plan.constant))


@pytest.mark.parametrize("engine", FITS)
def test_a_fit_finds_the_constant_that_made_the_measurements(engine: str) -> None:
    plan = FITS[engine]
    value = float(plan.values[len(plan.values) // 3])
    made = load_engine(engine).model_copy(update={plan.constant: value})
    measured = [each for each in measurements(LAB) if each.family in plan.families][:6]
    targets = [
        each._replace(published=each.published._replace(value=time))
        for each, time in zip(measured, predicted_ms(measured, made), strict=True)
    ]
    assert fit(targets, load_engine(engine), plan) == pytest.approx(value)


def test_measurements_are_iterations_and_never_loads() -> None:
    measured = measurements(LAB)
    assert len({each.id for each in measured}) == len(measured)
    families = {each.family for each in measured}
    assert families >= {family for plan in FITS.values() for family in plan.families}
    for each in measured:
        assert each.published.unit == "ms"
        assert (each.published.value or 0.0) > 0
        assert each.id.startswith("calibration/")


def test_the_inherited_host_times_are_those_that_others_measured(shared_data: Path) -> None:
    """Per sequence: a line through the host times of Vidur's engine, by batch size."""
    for engine, model in (
        ("sarathi-2024", "meta-llama/Llama-2-7b-hf"),
        ("sarathi-2024-ray", "codellama/CodeLlama-34b-Instruct-hf"),
    ):
        with (shared_data / "kernels_vidur" / "cpu_overheads_a100.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if row["model_name"] == model]
        parts = ("schedule", "sampler_e2e", "prepare_inputs_e2e", "process_model_outputs")
        host_ms = [sum(float(row[f"{part}_median_ms"]) for part in parts) for row in rows]
        slope_ms, _ = np.polyfit([int(row["batch_size"]) for row in rows], host_ms, 1)
        assert load_engine(engine).host_per_seq_us == pytest.approx(1e3 * slope_ms, rel=0.2)
