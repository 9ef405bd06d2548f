"""The page of `kernels show`: where a fitted artefact comes from and what it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simulator.latency.build import read_artefact
from simulator.load import looks_like_path
from simulator.report.documents import command_header
from simulator.report.page import Page, Table, table
from simulator.resources import config_path

FACTS = ("kind", "gpu", "model", "tensor", "licence")


def artefact_page(name: str) -> Page:
    """A shipped artefact or a file; raises ConfigError or CalibrationError."""
    path = Path(name) if looks_like_path(name) else config_path("kernels", name)
    artefact = read_artefact(path)
    sources = artefact.get("sources") or [artefact.get("source", "")]
    facts = [[fact, str(artefact[fact])] for fact in FACTS if fact in artefact]
    facts += [["source", str(source)] for source in sources]
    return Page(
        answer=f"{artefact.get('name', path.stem)} ({path}, {path.stat().st_size / 1024:.0f} KiB)",
        tables=(table(("fact", ""), facts, left=True), *_errors_table(artefact)),
        notes=tuple(map(str, artefact.get("notes", ()))),
        document=command_header("kernels show") | {"path": str(path), "artefact": artefact},
    )


def _errors_table(artefact: dict[str, Any]) -> list[Table]:
    errors = artefact.get("held_out_error_pct", {})
    rows = [
        [family, split, f"{value:.1f}"]
        for family, splits in errors.items()
        for split, value in splits.items()
    ]
    return [table(("family", "held out", "mean absolute error (%)"), rows)] if rows else []
