"""The two plots of a reproduction: Figure 1's stall, and capacity over the SLO."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simulator.errors import ConfigError
from simulator.report.svg import Line, line_chart

if TYPE_CHECKING:
    from simulator.reproduce.experiments import Results
    from simulator.reproduce.reproduction import Reproduction


def write_plots(reproduction: Reproduction, folder: Path) -> None:
    """Write the plots whose experiments were run; ConfigError where the folder cannot be written."""
    charts = {
        "stall.svg": stall_chart(reproduction.results),
        "capacity.svg": capacity_chart(reproduction.results),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, chart in charts.items():
            if chart is not None:
                (folder / name).write_text(chart, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--plots {folder}: cannot be written ({error.strerror})") from None


def stall_chart(results: Results) -> str | None:
    """Output tokens of a burst over time, one line a scheduler."""
    prefix = "stalls/burst/"
    lines = [
        Line(id.removeprefix(prefix), [(x, y / 1000) for x, y in result["curve"]])
        for id, result in results.items()
        if id.startswith(prefix)
    ]
    title = "128 summaries asked for at once (Yi-34B on two A100)"
    return line_chart(title, "seconds", "thousands of output tokens", lines) if lines else None


def capacity_chart(results: Results) -> str | None:
    """Capacity of Mistral-7B over the bound on P99 TBT, one line a scheduler."""
    prefix = "capacity/over-slo/"
    points: dict[str, list[tuple[float, float]]] = {}
    for id, capacity in results.items():
        if id.startswith(prefix):
            series, slo_s = id.removeprefix(prefix).split("/")
            points.setdefault(series, []).append((float(slo_s), capacity or 0.0))
    lines = [Line(series, each, marked=True) for series, each in points.items()]
    title = "Capacity of Mistral-7B on one A100, chat"
    return line_chart(title, "bound on P99 TBT (s)", "requests/s", lines) if lines else None
