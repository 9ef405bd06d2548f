"""From a specification and a seed to the requests of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from simulator.errors import ConfigError
from simulator.workload import arrivals
from simulator.workload.lengths import draw_lengths
from simulator.workload.profiles import Curve, Phases, Profile
from simulator.workload.spec import MAX_TOKENS, ClassSpec, Lengths, WorkloadSpec
from simulator.workload.streams import stream
from simulator.workload.traces import Trace, find_trace, read_trace
from simulator.workload.workload import Classes, Workload

DEFAULT_REQUESTS = 2048
"""Requests drawn from distributions unless told otherwise: the paper's number for one trial."""


def build_workload(spec: WorkloadSpec, seed: int) -> Workload:
    """The requests of one run, a function of the specification and the seed alone.

    A replayed trace gives its first `num_requests` rows in order. Where arrivals are drawn, its rows are too:
    shuffled by the seed, each used once before any is used again. Either way a trace shorter than
    `num_requests` is gone through again, and a note says so. `prompt_scale` and then `max_total_tokens` are
    applied after that and before arrivals are drawn. Two rates of one seed give the same requests in the same
    pattern.
    InputError for a bad trace, ConfigError for keys that do not fit it or make the run longer than believed.
    """
    count = spec.num_requests or DEFAULT_REQUESTS
    if spec.lengths is not None:
        requests = _drawn(spec.lengths, count, seed)
    elif spec.mix is not None:
        requests = _mixed(spec.mix, count, seed)
    else:
        trace = _recorded(spec)
        requests = _picked(trace, spec.num_requests or len(trace), seed)
    requests = _within_limit(_scaled(requests, spec.prompt_scale), spec)
    workload = Workload(
        arrival_s=np.zeros(len(requests)),
        prompt_tokens=requests.prompt_tokens,
        output_tokens=requests.output_tokens,
        name=requests.name,
        notes=requests.notes,
        block_ids=requests.block_ids,
        classes=requests.classes,
        max_total_tokens=spec.max_total_tokens if spec.on_too_long == "reject" else None,
    )
    if spec.arrivals == "all_at_once":
        return workload
    if requests.arrival_s is None:
        return _at_drawn_times(workload, spec, seed)
    workload = replace(workload, arrival_s=arrivals.at_pace(requests.arrival_s, spec.speed, "workload.speed"))
    return workload if spec.rate_rps is None else workload.at_rate(spec.rate_rps)


def _drawn(lengths: Lengths, count: int, seed: int, *part: int) -> Trace:
    """Requests with lengths from distributions."""
    return Trace(
        "synthetic",
        draw_lengths(lengths.prompt, count, stream(seed, "prompts", *part)),
        draw_lengths(lengths.output, count, stream(seed, "outputs", *part)),
    )


def _mixed(mix: Mapping[str, ClassSpec], count: int, seed: int) -> Trace:
    """Requests whose classes are drawn by their shares, and their lengths class by class.

    What the prompts of a trace have in common is left out: nobody knows what those of two traces would have.
    """
    shares = np.cumsum([part.share for part in mix.values()])
    codes = np.searchsorted(shares[:-1], shares[-1] * stream(seed, "classes").random(count), side="right")
    prompts, outputs = np.ones(count, dtype=np.int64), np.ones(count, dtype=np.int64)
    notes: list[str] = []
    for code, part in enumerate(mix.values()):
        rows = np.flatnonzero(codes == code)
        requests = _of_class(part, len(rows), seed, code)
        prompts[rows], outputs[rows] = requests.prompt_tokens, requests.output_tokens
        notes += requests.notes
        if requests.block_ids is not None:
            notes.append(f"shared prefixes of trace {requests.name} are left out of the mix")
    return Trace("mix", prompts, outputs, classes=Classes(tuple(mix), codes), notes=tuple(notes))


def _of_class(part: ClassSpec, count: int, seed: int, code: int) -> Trace:
    """So many requests of one class."""
    if part.lengths is not None:
        return _drawn(part.lengths, count, seed, code)
    trace = replace(read_trace(find_trace(part.trace or "")), arrival_s=None)
    return _picked(trace, count, seed, code)


def _recorded(spec: WorkloadSpec) -> Trace:
    """The trace, with its arrival times only if they are to be replayed."""
    trace = read_trace(find_trace(spec.trace or ""))
    if spec.arrivals == "trace" and trace.arrival_s is None:
        raise ConfigError(f"workload.arrivals: trace {trace.name} has no times; give rate_rps and a process")
    replay = spec.arrivals == "trace" or (spec.arrivals == "auto" and spec.rate_rps is None)
    if replay and trace.arrival_s is not None:
        if spec.truncate_at is not None:
            raise ConfigError("workload.truncate_at: the trace's own times are replayed; give a rate_rps")
        return trace
    if spec.speed != 1:
        raise ConfigError(f"workload.speed: trace {trace.name} has no times to replay")
    return replace(trace, arrival_s=None)


def _picked(trace: Trace, count: int, seed: int, *part: int) -> Trace:
    """So many rows of a trace: in order if their times are replayed, shuffled otherwise."""
    size = len(trace)
    if trace.arrival_s is not None:
        rows = np.arange(count) % size
        picked = replace(trace.take(rows), arrival_s=arrivals.repeat_times(trace.arrival_s, count))
    else:
        rng = stream(seed, "rows", *part)
        passes = [rng.permutation(size) for _ in range(max(1, -(-count // size)))]
        picked = trace.take(np.concatenate(passes)[:count])
    repeated = f"the {size} requests of trace {trace.name} are repeated to make {count}"
    return picked.noted(repeated) if count > size else picked


def _scaled(requests: Trace, scale: float) -> Trace:
    """The requests with longer or shorter prompts; what prompts shared is then unknown."""
    if scale == 1:
        return requests
    if requests.block_ids is not None:
        requests = requests.noted(
            f"shared prefixes of trace {requests.name} are left out: prompt_scale changes its prompts"
        )
    prompts = np.maximum(1, np.rint(scale * requests.prompt_tokens)).astype(np.int64)
    if prompts.max() > MAX_TOKENS:
        raise ConfigError(
            f"workload.prompt_scale: {scale:g} makes a prompt of {prompts.max()} tokens"
            f" (allowed: up to {MAX_TOKENS})"
        )
    return replace(requests, prompt_tokens=prompts, block_ids=None)


def _within_limit(requests: Trace, spec: WorkloadSpec) -> Trace:
    """Drops or scales requests over `max_total_tokens`; turning them away is the simulation's part."""
    limit = spec.max_total_tokens
    total = requests.prompt_tokens + requests.output_tokens
    if limit is None or spec.on_too_long == "reject" or total.max() <= limit:
        return requests
    too_long = total > limit
    share = f"{np.count_nonzero(too_long)} of {len(requests)} requests"
    if spec.on_too_long == "drop":
        if too_long.all():
            raise ConfigError(f"workload.max_total_tokens: every request has more than {limit} tokens")
        return requests.take(np.flatnonzero(~too_long)).noted(f"{share} over {limit} tokens are dropped")
    prompt = np.maximum(1, requests.prompt_tokens * limit // total)
    return replace(
        requests,
        prompt_tokens=np.where(too_long, prompt, requests.prompt_tokens),
        output_tokens=np.where(too_long, limit - prompt, requests.output_tokens),
    ).noted(f"{share} over {limit} tokens are scaled down to it")


def _at_drawn_times(workload: Workload, spec: WorkloadSpec, seed: int) -> Workload:
    """The requests at the times of the process that the specification names."""
    process = "poisson" if spec.arrivals == "auto" else spec.arrivals
    if spec.rate_rps is None:
        raise ConfigError(f"workload.rate_rps is missing: {process} arrivals of {workload.name} need a rate")
    rng, count = stream(seed, "arrivals"), len(workload)
    if process == "constant":
        unit = arrivals.constant(count)
    elif spec.cv is not None:
        unit = arrivals.gamma(count, rng, spec.cv)
    else:
        unit = arrivals.poisson(count, rng, spec.truncate_at)
    if spec.truncate_at is not None:
        load = arrivals.truncated_load(spec.truncate_at)
        note = f"gaps truncated at {spec.truncate_at:g} x their mean: the real load is {load:.3f} x rate_rps"
        workload = replace(workload, notes=(*workload.notes, note))
    return replace(workload, unit_arrivals=unit, profile=_profile(spec, seed)).at_rate(spec.rate_rps)


def _profile(spec: WorkloadSpec, seed: int) -> Profile | None:
    """How the rate moves around its average, if it does."""
    if spec.on_off is not None:
        return Phases(spec.on_off.on_s, spec.on_off.off_s, spec.on_off.off_share, seed)
    if spec.curve is not None:
        return Curve(tuple(sorted(spec.curve.items())))
    return None
