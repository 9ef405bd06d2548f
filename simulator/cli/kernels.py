"""`stallfree kernels`: import other people's measurements, fit them, check the fits, show what is shipped."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from simulator.cli.options import OUTPUT_DEFAULTS, OutputOptions
from simulator.cli.output import deliver, out_file, out_folder
from simulator.errors import ConfigError

if TYPE_CHECKING:
    from profiler.evaluate import EvaluationReport
    from profiler.fit import FitReport
    from profiler.import_.report import ImportReport
    from simulator.report import Page

kernels = App(name="kernels", help="Import, fit, check and show kernel measurements.")
import_ = App(name="import", help="Turn other people's measurements into a table of ours.")
kernels.command(import_)


@import_.command
def aic(
    *, device: str, out: Path, release: str | None = None, options: OutputOptions = OUTPUT_DEFAULTS
) -> None:
    """Import NVIDIA's AIConfigurator: the parquet tables of the PyPI package aiconfigurator-core.

    Needs the extra: pip install 'stallfree[aic]'.

    Parameters
    ----------
    device
        A device of the package, e.g. h100_sxm, h200_sxm, a100_sxm.
    out
        Folder of the new table.
    release
        The vLLM release that was measured; by default the newest one.
    """

    def page() -> Page:
        from profiler.import_.aic import import_aic

        with out_folder(out):
            return _import_page(import_aic(device, out, release))

    deliver(options, page)


@import_.command
def vidur(folder: Path, *, out: Path, options: OutputOptions = OUTPUT_DEFAULTS) -> None:
    """Import Vidur: linear_ops.csv, network.csv and FlashAttention tables, one table of ours per GPU.

    Parameters
    ----------
    folder
        The folder that holds the files.
    out
        Folder of the new tables.
    """

    def page() -> Page:
        from profiler.import_.vidur import import_vidur

        with out_folder(out):
            return _import_page(import_vidur(folder, out))

    deliver(options, page)


@import_.command
def llmservingsim(folder: Path, *, out: Path, options: OutputOptions = OUTPUT_DEFAULTS) -> None:
    """Import a profile of LLMServingSim 2: meta.yaml, dense.csv, per_sequence.csv, attention.csv, skew.csv.

    Parameters
    ----------
    folder
        The folder that holds the files.
    out
        Folder of the new table.
    """

    def page() -> Page:
        from profiler.import_.llmservingsim import import_llmservingsim

        with out_folder(out):
            return _import_page(import_llmservingsim(folder, out))

    deliver(options, page)


@kernels.command
def evaluate(table: Path, *, folds: int = 5, options: OutputOptions = OUTPUT_DEFAULTS) -> None:
    """Measure how wrong fits of a table are on points held out of them, beside two plainer methods.

    Held out are random points, whole shapes, whole sizes between the others, and the largest sizes.

    Parameters
    ----------
    table
        Folder written by stallfree profile or stallfree kernels import.
    folds
        Of 5 folds, so many: fewer take less time. All of a large public table take minutes.
    """

    def page() -> Page:
        from profiler.evaluate import evaluate_table

        if not 1 <= folds <= 5:
            raise ConfigError(f"--folds must be 1 to 5 (found {folds})")
        return _evaluation_page(evaluate_table(table, folds))

    deliver(options, page)


@kernels.command
def fit(
    *tables: Path,
    out: Path | None = None,
    name: str | None = None,
    options: OutputOptions = OUTPUT_DEFAULTS,
) -> None:
    """Fit tables of one GPU and print the held-out errors.

    The artefact is a JSON file; use it with --set kernels=FILE, or with the folder that holds it alone.

    Parameters
    ----------
    tables
        Folders written by stallfree profile or stallfree kernels import; several must hold different ops.
    out
        File of the artefact, e.g. h100.json; by default in the first table's folder and called as it is.
    name
        Its name; by default the file's.
    """

    def page() -> Page:
        from profiler.fit import fit_table

        if not tables:
            raise ConfigError("nothing to fit: give at least one table")
        target = out or tables[0] / f"{tables[0].resolve().name}.json"
        with nullcontext() if out is None else out_file(out):
            return _fit_page(fit_table(tables, target, name))

    deliver(options, page)


@kernels.command
def show(name: str, *, options: OutputOptions = OUTPUT_DEFAULTS) -> None:
    """Show where an artefact comes from and what it holds.

    Parameters
    ----------
    name
        A shipped artefact (stallfree list kernels) or its file.
    """

    def page() -> Page:
        from simulator.report.kernels import artefact_page

        return artefact_page(name)

    deliver(options, page)


def _import_page(report: ImportReport) -> Page:
    from simulator.report.documents import command_header
    from simulator.report.page import Page, table

    rows = [[op, f"{count:,}"] for op, count in report.rows.items()]
    return Page(
        answer=f"{report.out}: {sum(report.rows.values()):,} measurements of {report.device}.",
        tables=(table(("op", "rows"), rows),),
        notes=report.notes,
        document=command_header("kernels import")
        | {
            "out": str(report.out),
            "device": report.device,
            "rows": report.rows,
            "notes": list(report.notes),
        },
    )


def _fit_page(report: FitReport) -> Page:
    from simulator.report.documents import command_header
    from simulator.report.page import Page, table

    rows = [
        [family, split, f"{mape:.1f}", f"{bias:+.1f}"]
        for family, splits in report.errors.items()
        for split, (mape, bias) in splits.items()
    ]
    points = ", ".join(f"{count:,} {name}" for name, count in report.points.items())
    return Page(
        answer=f"{report.out}: {report.name}, fitted to {points}.",
        tables=(table(("family", "held out", "mean absolute error (%)", "bias (%)"), rows),) if rows else (),
        notes=report.notes,
        document=command_header("kernels fit")
        | {
            "name": report.name,
            "out": str(report.out),
            "points": report.points,
            "held_out_error_pct": {
                family: {split: {"mape": mape, "bias": bias} for split, (mape, bias) in splits.items()}
                for family, splits in report.errors.items()
            },
            "notes": list(report.notes),
        },
    )


def _evaluation_page(report: EvaluationReport) -> Page:
    from simulator.report.documents import command_header
    from simulator.report.page import Page, table

    rows = [
        [row.family, row.split, row.method, f"{row.points:,}"]
        + [f"{value:.1f}" for value in (row.mape, row.p50, row.p90, row.p99)]
        + [f"{row.bias:+.1f}"]
        for row in report.rows
    ]
    columns = ("family", "held out", "method", "points", "MAPE (%)", "P50", "P90", "P99", "bias")
    return Page(
        answer=f"{report.table}: errors of fits to kernels of {report.device}, on points held out of them.",
        tables=(table(columns, rows),) if rows else (),
        notes=() if rows else ("too few points to hold any out",),
        document=command_header("kernels evaluate") | report.to_dict(),
    )
