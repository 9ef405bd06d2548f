"""What the choices in simulator/latency/uneven.py do, on batches of two lengths and on a served run.

    python tests/benchmarks/uneven_lengths.py FOLDER

FOLDER holds `profile/` and `requests.jsonl` of LLMServingSim's run of vLLM on an RTX PRO 6000. The first
table has errors in per cent: of batches that mix a chunk with decodes, and of 64 and more decodes alone.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from profiler.evaluate import UNEQUAL, Family
from profiler.families import DECODE, MIXED, Kind, families, sizes_of
from profiler.fit import device_of, fit_family
from profiler.import_.llmservingsim import import_llmservingsim
from profiler.makespan import parse_lengths
from profiler.tables import KernelTable
from simulator.batch import BatchShape
from simulator.latency import uneven
from simulator.load import load_scenario
from simulator.report.validation import validation_page
from simulator.validate.read import read_run
from simulator.validate.validation import validate

SHIPPED = {"FEW_WAVES": uneven.FEW_WAVES, "STREAMING": uneven.STREAMING}
CHOICES: dict[str, dict[str, float]] = {
    "as shipped": {},
    "no waves followed": {"FEW_WAVES": 0.0},
    "two waves followed": {"FEW_WAVES": 2.0},
    "four waves followed": {"FEW_WAVES": 4.0},
    "STREAMING 0.25": {"STREAMING": 0.25},
}


class Rows:
    """Measured batches of unequal lengths of one kind, with what the fit of equal ones says at their mean."""

    def __init__(self, table: KernelTable, kind: Kind, *, chunks: bool, at_least: int) -> None:
        rows = table.select("attention")
        rows = rows.where((rows["num_chunks"] > 0) == chunks)
        rows = rows.where(rows["num_decodes"] >= at_least)
        longest, total = rows["decode_kv_max_tokens"], rows["decode_kv_tokens"]
        rows = rows.where(longest * rows["num_decodes"] > UNEQUAL * total)
        family = {each.kind.name: each for each in families(table, device_of(table.meta.device))}[kind.name]
        sizes = sizes_of(rows, kind)
        at_mean = {**sizes, "kv_max": sizes["kv_mean"]}
        equal = family.where(family.sizes["kv_max"] <= UNEQUAL * family.sizes["kv_mean"])
        asked = Family(kind, family.device, at_mean, rows["latency_us"], np.zeros(len(rows), dtype=bool))
        self.at_mean_us = fit_family(equal).predict_us(asked)
        self.sm_count = family.device.sm_count
        self.rows = list(rows.rows())
        self.shapes = [BatchShape.of(decode_kv=tuple(parse_lengths(r.decode_kv_lengths))) for r in self.rows]

    def errors_pct(self, *, longest_first: bool) -> np.ndarray:
        """Absolute errors of the prediction."""
        first = self.rows[0]
        slowdown = uneven.UnevenSlowdown(
            self.sm_count, first.q_heads, first.kv_heads, longest_first=longest_first
        )
        predicted = self.at_mean_us * [
            slowdown.at(row.chunk_tokens, row.prefix_tokens, *shape[1:5])
            for row, shape in zip(self.rows, self.shapes, strict=True)
        ]
        return 100 * np.abs(predicted / [row.latency_us for row in self.rows] - 1)


def main() -> None:
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as work:
        import_llmservingsim(folder / "profile", Path(work) / "table")
        table = KernelTable.read(Path(work) / "table")
    mixed = Rows(table, MIXED, chunks=True, at_least=1)
    alone = Rows(table, DECODE, chunks=False, at_least=64)
    print(f"{'':40} {len(mixed.rows):,} mixed: P50, P90   {len(alone.rows)} of decodes alone: mean")
    for name, constants in CHOICES.items():
        for order in (True, False):
            choose(constants)
            both, only = mixed.errors_pct(longest_first=order), alone.errors_pct(longest_first=order)
            label = f"{name}, launched {'longest first' if order else 'as they arrive'}"
            p50, p90 = np.quantile(both, 0.5), np.quantile(both, 0.9)
            print(f"{label:48} {p50:14.2f} {p90:6.2f} {only.mean():22.2f}")
    run, scenario = read_run(folder / "requests.jsonl"), load_scenario("vllm-rtxpro6000-llama31-8b")
    for name, constants, order in (
        ("as shipped", {}, False),
        ("launched longest first", {}, True),
        ("STREAMING 0.25", {"STREAMING": 0.25}, False),
    ):
        choose(constants, longest_first=order)
        print(f"{name}: {validation_page(validate(run, scenario)).answer.partition(': ')[2]}")


def choose(constants: dict[str, float], *, longest_first: bool = False) -> None:
    """Run what follows with these constants, and the others as shipped."""
    for name, value in {**SHIPPED, **constants}.items():
        setattr(uneven, name, value)
    uneven.UnevenSlowdown.__init__.__kwdefaults__["longest_first"] = longest_first


if __name__ == "__main__":
    main()
