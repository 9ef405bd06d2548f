"""The questions that decide whether the reproduction is believed, answered from its rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import exp
from statistics import median
from typing import NamedTuple

from simulator.reproduce.rows import Row

MEDIAN_LOG_ERROR = 0.20
LARGEST_LOG_ERROR = 0.7
ISOLATED_SHARE = 0.12
OURS_SHARE, OTHERS_SHARE = 0.15, 0.25
ABLATION_SHARE = 0.40
OVER = re.compile(r"/over-(orca|prefill_first)")
ABLATIONS = {"": " at half the script's rates", "script-rate": " at the script's rates"}
CHUNKING_DIFFERENCE = 0.08
TP8_RATIO = 1.7


class Verdict(NamedTuple):
    """One question, whether the answer is yes, and the figures."""

    question: str
    holds: bool
    words: str


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """The answers to all questions that the rows can answer."""
    judges: tuple[Callable[[Sequence[Row]], list[Verdict]], ...] = (
        _ratios,
        _relaxing,
        _isolated,
        _mistral,
        _ablation,
        _chunking,
        _pipeline,
    )
    return [verdict for judge in judges for verdict in judge(rows)]


def _ratios(rows: Sequence[Row]) -> list[Verdict]:
    compared = [row for row in rows if OVER.search(row.id) and row.published.value is not None]
    if not compared:
        return []
    right = sum(row.ours is not None and row.ours > 1 for row in compared)
    errors = {row.id: abs(row.log_ratio) for row in compared if row.log_ratio is not None}
    worst = max(errors, key=lambda id: errors[id])
    middle = median(errors.values())
    return [
        Verdict(
            "every capacity ratio on the right side of 1",
            right == len(compared),
            f"{right} of {len(compared)}",
        ),
        Verdict(
            f"absolute log error of the ratios: median within {MEDIAN_LOG_ERROR:g}, all within "
            f"{LARGEST_LOG_ERROR:g}",
            middle <= MEDIAN_LOG_ERROR and errors[worst] <= LARGEST_LOG_ERROR,
            f"median {middle:.2f}, largest {errors[worst]:.2f} ({worst})",
        ),
    ]


def _relaxing(rows: Sequence[Row]) -> list[Verdict]:
    chosen = [row for row in rows if row.id.endswith("relaxing-helps-prefill_first-more")]
    return _all_hold("relaxing the SLO helps prefill_first more than stall_free", chosen)


def _isolated(rows: Sequence[Row]) -> list[Verdict]:
    chosen = [row for row in rows if row.id.startswith("capacity/isolated/") and row.published.value]
    return _within("schedulers on measured iteration times", chosen, ISOLATED_SHARE)


def _mistral(rows: Sequence[Row]) -> list[Verdict]:
    chosen = [
        row
        for row in rows
        if row.id.startswith("capacity/mistral/chat/") and row.published.unit == "requests/s"
    ]
    chosen = [row for row in chosen if row.published.value]
    ours = [row for row in chosen if row.id.endswith("/stall_free")]
    others = [row for row in chosen if row not in ours]
    return _within("Mistral-7B from kernels, stall_free", ours, OURS_SHARE) + _within(
        "Mistral-7B from kernels, the other two", others, OTHERS_SHARE
    )


def _ablation(rows: Sequence[Row]) -> list[Verdict]:
    judged = []
    for variant, words in ABLATIONS.items():
        table = [row for row in rows if row.group == "ablation" and _variant_of(row) == variant]
        values = [row for row in table if row.published.value is not None]
        orders = [row for row in table if "/order/" in row.id]
        judged += _all_hold(f"Table 4{words}, order in its four columns", orders)
        judged += _within(f"Table 4{words}, values", values, ABLATION_SHARE)
    return judged


def _variant_of(row: Row) -> str:
    return row.id.split("/")[4] if row.id.count("/") == 4 else ""


def _chunking(rows: Sequence[Row]) -> list[Verdict]:
    chosen = [
        row for row in rows if row.id.startswith(("chunking/2048/", "chunking/4096/", "chunking/8192/"))
    ]
    differences = {
        row.id: abs(row.ours - row.published.value) for row in chosen if row.ours and row.published.value
    }
    if not differences:
        return []
    worst = max(differences, key=lambda id: differences[id])
    kept = sum(difference <= CHUNKING_DIFFERENCE for difference in differences.values())
    return [
        Verdict(
            f"Figure 14 within {CHUNKING_DIFFERENCE:g} for prompts up to 8k",
            kept == len(differences),
            f"{kept} of {len(differences)}, largest difference {differences[worst]:.2f} ({worst})",
        )
    ]


def _pipeline(rows: Sequence[Row]) -> list[Verdict]:
    ratios = [
        row.ours for row in rows if row.id.startswith("pipeline/tp8-over-pp2/") and row.ours is not None
    ]
    if not ratios:
        return []
    gain = [row for row in rows if row.id == "pipeline/gain-larger-at-strict"]
    return [
        Verdict(
            f"Falcon-180B: median TBT of TP8 at least {TP8_RATIO:g} x that of TP4-PP2",
            min(ratios) >= TP8_RATIO,
            f"{min(ratios):.2f} to {max(ratios):.2f} over the batch sizes",
        ),
        *_all_hold("Falcon-180B: gain over prefill_first larger at the strict SLO", gain),
    ]


def _all_hold(question: str, rows: Sequence[Row]) -> list[Verdict]:
    if not rows:
        return []
    held = sum(bool(row.holds) for row in rows)
    others = ", ".join(row.id for row in rows if not row.holds)
    words = f"{held} of {len(rows)}" + (f", not {others}" if others else "")
    return [Verdict(question, held == len(rows), words)]


def _within(question: str, rows: Sequence[Row], share: float) -> list[Verdict]:
    """Whether every row is within a share of the published value, above or below."""
    if not rows:
        return []
    off = {row.id: float("inf") if row.log_ratio is None else exp(row.log_ratio) - 1 for row in rows}
    worst = max(off, key=lambda id: abs(off[id]))
    kept = sum(abs(each) <= share for each in off.values())
    return [
        Verdict(
            f"{question}: within {share:.0%}",
            kept == len(rows),
            f"{kept} of {len(rows)}, furthest {off[worst]:+.1%} ({worst})",
        )
    ]
