"""`stallfree kernels`: import other people's measurements, fit them, check the fits, show what is shipped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from simulator.cli.options import OUTPUT_DEFAULTS, OutputOptions
from simulator.cli.output import deliver

if TYPE_CHECKING:
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

        return _import_page(import_aic(device, out, release))

    deliver(options, page)


def _import_page(report: ImportReport) -> Page:
    from simulator.report.documents import SCHEMA_VERSION
    from simulator.report.page import Page, table

    rows = [[op, f"{count:,}"] for op, count in report.rows.items()]
    return Page(
        answer=f"{report.out}: {sum(report.rows.values()):,} measurements of {report.device}.",
        tables=(table(("op", "rows"), rows),),
        notes=report.notes,
        document={
            "schema_version": SCHEMA_VERSION,
            "command": "kernels import",
            "out": str(report.out),
            "device": report.device,
            "rows": report.rows,
            "notes": list(report.notes),
        },
    )
