"""The pages of `profile` and `replay`: what was measured, what it would take, how wrong predictions are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simulator.report.documents import SCHEMA_VERSION
from simulator.report.numbers import MISSING, milliseconds, significant
from simulator.report.page import Page, Table, table

if TYPE_CHECKING:
    from profiler.estimate import BlockEstimate
    from profiler.job import ProfileJob
    from profiler.kernels.registry import BackendStatus
    from profiler.replay_report import ReplayReport
    from profiler.run import ProfileReport
    from simulator.metrics import Result

_LIVE_ROWS = (
    ("TTFT median (ms)", "ttft_s", "p50"),
    ("TTFT P99 (ms)", "ttft_s", "p99"),
    ("TBT median (ms)", "tbt_s", "p50"),
    ("TBT P99 (ms)", "tbt_s", "p99"),
    ("TPOT median (ms)", "tpot_s", "p50"),
)


def backends_page(device: str, statuses: Sequence[BackendStatus]) -> Page:
    """Every attention backend and why it cannot be used."""
    usable = [status.name for status in statuses if status.usable]
    rows = [[status.name, "yes" if status.usable else "no", status.reason] for status in statuses]
    return Page(
        f"Attention backends usable on {device}: {', '.join(usable) or 'none'}.",
        (table(("backend", "usable", "reason"), rows, left=True),),
        document=_document("profile", device=device, backends=[status._asdict() for status in statuses]),
    )


def dry_run_page(job: ProfileJob, gpu: str, estimates: Sequence[BlockEstimate]) -> Page:
    """The grid and the time that it should take."""
    points = sum(block.points for block in estimates)
    seconds = sum(block.seconds for block in estimates)
    rows = [[block.name, str(block.points), significant(block.seconds)] for block in estimates]
    deadline = (
        f" The deadline of {significant(job.deadline_s)} s would cut it short."
        if job.deadline_s is not None and seconds > job.deadline_s
        else ""
    )
    return Page(
        f"{points} points, about {significant(seconds)} s on {gpu}; nothing was measured.{deadline}",
        (table(("block, in this order", "points", "about (s)"), rows),),
        notes=("times by roofline and a fixed overhead a point; compilation of kernels is not counted",),
        document=_document(
            "profile",
            gpu=gpu,
            points=points,
            seconds=seconds,
            blocks=[{"name": b.name, "points": b.points, "seconds": b.seconds} for b in estimates],
        ),
    )


def profile_page(report: ProfileReport) -> Page:
    """What a run has measured."""
    left = f" {report.remaining} points are left: --resume goes on." if report.remaining else ""
    skipped = f" {report.skipped} points could not be measured here." if report.skipped else ""
    rows = [[name, f"{error:.1e}"] for name, error in report.gate_errors.items()]
    return Page(
        f"{report.measured} rows measured in {significant(report.seconds)} s with {report.backend}, "
        f"{report.present + report.measured} in {report.out}.{left}{skipped}",
        (table(("correctness gate", "relative error"), rows),) if rows else (),
        notes=(f"next: stallfree kernels fit {report.out}",),
        document=_document(
            "profile",
            out=str(report.out),
            backend=report.backend,
            measured=report.measured,
            present=report.present,
            skipped=report.skipped,
            remaining=report.remaining,
            seconds=report.seconds,
            gate_errors=report.gate_errors,
        ),
    )


def replay_page(report: ReplayReport) -> Page:
    """How far the predicted iteration times are from the measured ones."""
    errors = report.iteration_error_pct
    tables = [_errors_table(report)]
    notes = list(report.notes)
    if report.live is not None and report.simulated is not None:
        tables.append(_live_table(report.live, report.simulated))
    if report.host is not None:
        fixed, per_sequence, per_chunk = (significant(seconds * 1e6) for seconds in report.host)
        notes.append(
            f"host time of the replay's own loop, measured before the run and added to predictions: "
            f"{fixed} us an iteration, {per_sequence} us a sequence, {per_chunk} us a chunk"
        )
    return Page(
        f"Iteration time: error {errors['p50']:.1f} % at the median, {errors['p90']:.1f} % at P90 over "
        f"{len(report.iterations)} iterations of {report.scenario} with {report.backend} on {report.device}.",
        tuple(tables),
        notes=tuple(notes),
        document=_document("replay", **report.to_dict()),
    )


def _errors_table(report: ReplayReport) -> Table:
    rows = [
        [
            name,
            f"{row['count']:.0f}",
            significant(row["measured_ms"]),
            significant(row["predicted_ms"]),
            f"{row['p50']:.1f}",
            f"{row['p90']:.1f}",
            f"{row['bias']:+.1f}",
        ]
        for name, row in report.by_composition().items()
    ]
    columns = ("iterations", "count", "measured (ms)", "predicted (ms)", "error P50 (%)", "P90", "bias")
    return table(columns, rows)


def _live_table(live: Result, simulated: Result) -> Table:
    rows = [
        _compared(words, live.metrics[metric][statistic], simulated.metrics[metric][statistic])
        for words, metric, statistic in _LIVE_ROWS
    ]
    for words, name in (("requests/s", "throughput_rps"), ("output tokens/s", "output_tokens_per_s")):
        measured, predicted = getattr(live, name), getattr(simulated, name)
        rows.append([words, significant(measured), significant(predicted), _difference(measured, predicted)])
    return table(("live run", "measured", "simulated", "difference"), rows)


def _compared(words: str, measured_s: float | None, predicted_s: float | None) -> list[str]:
    return [words, milliseconds(measured_s), milliseconds(predicted_s), _difference(measured_s, predicted_s)]


def _difference(measured: float | None, predicted: float | None) -> str:
    if not measured or predicted is None:
        return MISSING
    return f"{(predicted / measured - 1) * 100:+.1f} %"


def _document(command: str, **content: Any) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, "command": command, **content}
