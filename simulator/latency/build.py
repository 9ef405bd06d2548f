"""From a scenario to its latency model: the kernels that it names, or the roofline in their stead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from simulator.config import Scenario
from simulator.errors import CalibrationError, ConfigError
from simulator.hardware import EngineSpec, GPUSpec
from simulator.latency.batch_time import BatchTimeSpec, LinearBatchTime
from simulator.latency.fitted import FittedKernels
from simulator.latency.model import LatencyModel
from simulator.latency.roofline import RooflineKernels
from simulator.latency.stages import KernelLatency
from simulator.load import load_cluster, load_engine, load_gpu, load_model, looks_like_path
from simulator.resources import config_path, list_configs
from simulator.spec import parse


def build_latency(scenario: Scenario, engine: EngineSpec | None = None) -> LatencyModel:
    """The latency model of a scenario; `engine` takes the place of the one that it names.

    Raises ConfigError or CalibrationError where it cannot be had.
    """
    gpu = load_gpu(scenario.gpu)
    path = find_artefact(scenario.kernels, gpu)
    if path is not None:
        artefact = read_artefact(path)
        if artefact.get("kind") == "batch_time":
            return _batch_time(parse(BatchTimeSpec, artefact, str(path)), scenario, gpu)
    return KernelLatency(
        load_model(scenario.model),
        RooflineKernels(gpu) if path is None else FittedKernels.load(path, gpu),
        load_cluster(scenario.cluster or gpu.cluster),
        engine or load_engine(scenario.engine),
        tensor=scenario.parallel.tensor,
        pipeline=scenario.parallel.pipeline,
    )


def find_artefact(kernels: str, gpu: GPUSpec) -> Path | None:
    """The fitted artefact that `kernels` means for a GPU; None means the roofline. Raises ConfigError."""
    if kernels == "roofline":
        return None
    if kernels == "auto":
        if gpu.kernels is None or gpu.kernels not in list_configs("kernels"):
            return None
        return _single_file(config_path("kernels", gpu.kernels))
    if not looks_like_path(kernels) and not Path(kernels).exists():
        return _single_file(config_path("kernels", kernels))
    if not Path(kernels).exists():
        raise ConfigError(f"kernels: {kernels}: no such file")
    return _single_file(Path(kernels))


def _single_file(path: Path) -> Path:
    """The artefact itself, or the only one in a folder."""
    if not path.is_dir():
        return path
    artefacts = sorted(path.glob("*.json"))
    if len(artefacts) == 1:
        return artefacts[0]
    if (path / "rows.csv").exists():
        raise ConfigError(f"kernels: {path} is a table of measurements: fit it first (stallfree kernels fit)")
    raise ConfigError(f"kernels: {path} must hold one fitted artefact, *.json (found {len(artefacts)})")


def read_artefact(path: Path) -> dict[str, Any]:
    """The JSON object in an artefact's file; CalibrationError where there is none."""
    try:
        artefact = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CalibrationError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise CalibrationError(f"{path}: not a JSON artefact: {error}") from None
    if not isinstance(artefact, dict):
        raise CalibrationError(f"{path}: must be a JSON object (found a {type(artefact).__name__})")
    return artefact


def _batch_time(spec: BatchTimeSpec, scenario: Scenario, gpu: GPUSpec) -> LinearBatchTime:
    """A model of whole iterations, which serves the one parallel layout it was measured with."""
    parallel = scenario.parallel
    if parallel.pipeline > 1 or parallel.tensor != spec.tensor:
        raise ConfigError(
            f"kernels: {spec.name} holds whole iterations at tensor {spec.tensor}, pipeline 1 "
            f"(found tensor {parallel.tensor}, pipeline {parallel.pipeline})"
        )
    notes = [
        f"{spec.name} was measured with {measured}, the scenario has {used}"
        for measured, used in ((spec.gpu, gpu.name), (spec.model, load_model(scenario.model).name))
        if measured != used
    ]
    return LinearBatchTime(spec, tuple(notes))
