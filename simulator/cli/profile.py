"""`stallfree profile` and `stallfree replay`: the two commands that run kernels on a device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter, validators

from simulator.cli.options import LARGEST, OUTPUT_DEFAULTS, AtLeastOne, OutputOptions, Seed
from simulator.cli.output import deliver, out_folder
from simulator.errors import ConfigError

if TYPE_CHECKING:
    from profiler.job import ProfileJob
    from simulator.report import Page

Dtype = Literal["bf16", "fp16", "fp32"]

_UNITS_S = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class GridOptions:
    """What is measured and how long at most."""

    tp: str = "1"
    """Tensor-parallel sizes whose shards are measured, e.g. 1,2,4."""
    page_size: AtLeastOne = 16
    """Tokens of a KV page."""
    dtype: Dtype | None = None
    """Default: the model's on a GPU, fp32 on a CPU."""
    grid: Literal["full", "small"] | None = None
    """Default: full on a GPU, small on a CPU."""
    ops: str | None = None
    """Only these operators, e.g. attention,gemm; default: all."""
    max_len: Annotated[int | None, Parameter(validator=validators.Number(gte=2, lte=LARGEST))] = None
    """Longest sequence; default: the model's."""
    passes: AtLeastOne = 2
    """How often the whole grid is measured, in another order each time."""
    gpu: str | None = None
    """The GPU preset that the table is of (stallfree list gpus); default: found from the device's name."""
    deadline: str | None = None
    """Stop after so long, e.g. 400s or 10m; what is measured is kept."""


GRID_DEFAULTS = GridOptions()


def profile(
    *,
    model: str | None = None,
    out: Path | None = None,
    device: str = "cuda:0",
    attention: str = "auto",
    resume: Annotated[bool, Parameter(negative="")] = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    list_backends: Annotated[bool, Parameter(negative="")] = False,
    grid: GridOptions = GRID_DEFAULTS,
    options: OutputOptions = OUTPUT_DEFAULTS,
) -> None:
    """Measure a model's kernels on this machine into a table that can be fitted.

    Parameters
    ----------
    model
        A shipped model, a model file, or a Hugging Face config.json.
    out
        Folder of the table; rows are appended as they are measured.
    device
        cuda:0, cuda:1, ... or cpu.
    attention
        auto, torch, or the name of a backend.
    resume
        Go on with the table in --out: measure only what it lacks.
    dry_run
        Print the grid and a time estimate; measures nothing and needs no device.
    list_backends
        Print the attention backends, which of them can be used here, and why the others cannot.
    """

    def page() -> Page:
        from profiler import answers

        if list_backends:
            from profiler.kernels.registry import list_backends as statuses

            return answers.backends_page(device, statuses(device))
        job = _job(model, out, device, attention, resume=resume or dry_run, grid=grid)
        if dry_run:
            from profiler.estimate import dry_run as dry

            return answers.dry_run_page(job, *dry(job))
        if out is None:
            raise ConfigError("--out: name a folder for the table")
        from profiler.run import profile as measure

        with out_folder(out):
            return answers.profile_page(measure(job, options.progress()))

    deliver(options, page)


def replay(
    scenario: str,
    *,
    device: str = "cuda:0",
    attention: str = "auto",
    dtype: Dtype | None = None,
    mode: Literal["sample", "live"] = "sample",
    sample: AtLeastOne = 60,
    deadline: str | None = None,
    sets: Annotated[tuple[str, ...], Parameter(name="--set", negative="", consume_multiple=False)] = (),
    seed: Seed = 0,
    options: OutputOptions = OUTPUT_DEFAULTS,
) -> None:
    """Run a scenario's batches on real kernels and print how far the predicted times are off.

    Parameters
    ----------
    scenario
        A shipped scenario (stallfree list scenarios) or a YAML file.
    device
        cuda:0, cuda:1, ... or cpu.
    attention
        auto, torch, or the name of a backend.
    dtype
        Default: the model's on a GPU, fp32 on a CPU.
    mode
        sample: measure iterations drawn from a simulation. live: serve the workload in real time with the
        same scheduler, and compare latencies too.
    sample
        How many iterations to measure in sample mode.
    deadline
        End a live run after so long, e.g. 60s.
    sets
        Change one key of the scenario, e.g. --set kernels=DIR; may be repeated.
    seed
        Seed of arrivals and lengths.
    """

    def page() -> Page:
        from profiler.answers import replay_page
        from profiler.replay import ReplayJob
        from profiler.replay import replay as run
        from simulator.load import load_scenario

        job = ReplayJob(
            scenario=load_scenario(scenario, sets),
            device=device,
            attention=attention,
            dtype=dtype or "",
            mode=mode,
            sample=sample,
            seed=seed,
            deadline_s=_seconds("--deadline", deadline),
        )
        return replay_page(run(job, options.progress()))

    deliver(options, page)


def _job(
    model: str | None, out: Path | None, device: str, attention: str, *, resume: bool, grid: GridOptions
) -> ProfileJob:
    from profiler.job import ProfileJob
    from simulator.load import load_model

    if model is None:
        raise ConfigError("--model: name a model (stallfree list models) or a config.json")
    return ProfileJob(
        model=load_model(model),
        out=out or Path(),
        tensor_parallel=_sizes(grid.tp),
        device=device,
        gpu=grid.gpu or "",
        attention=attention,
        page_size=grid.page_size,
        dtype=grid.dtype or "",
        grid=grid.grid or "",
        ops=tuple(grid.ops.split(",")) if grid.ops is not None else (),
        max_len=grid.max_len,
        passes=grid.passes,
        deadline_s=_seconds("--deadline", grid.deadline),
        resume=resume,
    )


def _sizes(text: str) -> tuple[int, ...]:
    """`1,2,4` as numbers."""
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise ConfigError(f"--tp {text}: expected sizes such as 1,2,4")
    return sizes


def _seconds(option: str, text: str | None) -> float | None:
    """`400s`, `10m` or plain seconds; None for None."""
    if text is None:
        return None
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        seconds = float(number) * _UNITS_S[text[len(number) :] or "s"]
    except (ValueError, KeyError):
        raise ConfigError(f"{option} {text}: expected a time such as 400s, 10m or 1h") from None
    if seconds <= 0:
        raise ConfigError(f"{option} {text}: must be more than nothing")
    return seconds
