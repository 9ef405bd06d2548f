"""How wrong fits of a table are on what they did not see, beside two plainer ways to predict it.

For every family of kernels and every split (profiler/splits.py) three predictions: ours; a random forest on
raw shapes and times (what Vidur does); and interpolation of log(time) between the nearest measured sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from profiler.families import DECODE, MIXED, PREFILL, Family, families, sizes_of
from profiler.fit import device_of, fit_family
from profiler.makespan import parse_lengths, slowdown
from profiler.splits import FOLDS, SPLITS, held_out
from profiler.tables import KernelRow, KernelTable
from simulator.batch import BatchShape
from simulator.latency.kernels import Array
from simulator.latency.uneven import UnevenSlowdown

Predictor = Callable[[Family, Family], Array]
"""(points that may be learned from, points to predict) -> microseconds."""

FOREST_TREES = 30
UNEQUAL = 1.01  # longest over mean KV length, from which on the lengths of a batch count as unequal


@dataclass(frozen=True)
class Errors:
    """Relative errors of one prediction on held-out points, in per cent."""

    family: str
    split: str
    method: str
    points: int
    mape: float
    p50: float
    p90: float
    p99: float
    bias: float
    """Mean of the signed errors: above 0 where times are overestimated."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, rounded to hundredths of a per cent."""
        return {
            name: round(value, 2) if isinstance(value, float) else value
            for name in self.__dataclass_fields__
            for value in (getattr(self, name),)
        }


@dataclass(frozen=True)
class EvaluationReport:
    """Errors by family, split and method; the errors of each axis come before those of all of them."""

    table: str
    device: str
    rows: tuple[Errors, ...]

    def get(self, family: str, split: str, method: str = "ours") -> Errors:
        """One row; KeyError where the table has no such points."""
        for row in self.rows:
            if (row.family, row.split, row.method) == (family, split, method):
                return row
        raise KeyError(f"{self.table} has no {family} points to hold out by {split}")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"table": self.table, "device": self.device, "rows": [row.to_dict() for row in self.rows]}

    def lines(self) -> list[str]:
        """The report as text."""
        columns = ("MAPE", "p50", "p90", "p99", "bias")
        head = f"{'family':8} {'split':18} {'method':14} {'points':>7}" + "".join(f"{c:>7}" for c in columns)
        body = [
            f"{row.family:8} {row.split:18} {row.method:14} {row.points:7d}"
            + "".join(f"{value:7.1f}" for value in (row.mape, row.p50, row.p90, row.p99))
            + f"{row.bias:+7.1f}"
            for row in self.rows
        ]
        return [f"{self.table}: {self.device}, errors in % on held-out points", head, *body]


def evaluate_table(
    path: str | Path, folds: int = FOLDS, splits: tuple[str, ...] = SPLITS
) -> EvaluationReport:
    """Judges the fits of a table; raises InputError. Fewer `folds` (of 5) take less time."""
    return evaluate(KernelTable.read(path), folds, splits)


def evaluate(table: KernelTable, folds: int = FOLDS, splits: tuple[str, ...] = SPLITS) -> EvaluationReport:
    """Judges the fits of a table in memory."""
    found = {family.kind.name: family for family in families(table, device_of(table.meta.device))}
    rows: list[Errors] = []
    for family in found.values():
        for split in splits:
            rows += _split_rows(family, split, folds)
    rows += _physics_rows(table, found)
    return EvaluationReport(table.origin, table.meta.device, tuple(rows))


def _split_rows(family: Family, split: str, folds: int) -> Iterator[Errors]:
    """The errors of every method; folds of one axis are pooled, and axes weigh the same."""
    by_axis: dict[str, list[np.ndarray]] = {}
    for axis, mask in held_out(family, split, folds):
        if 0 < mask.sum() < len(mask):
            by_axis.setdefault(axis, []).append(mask)
    if not by_axis:
        return
    for method, predict in METHODS.items():
        per_axis = {axis: _pooled(family, masks, predict) for axis, masks in by_axis.items()}
        if split in ("axes", "beyond"):
            for axis, relative in per_axis.items():
                yield _errors(family.kind.name, f"{split}:{axis}", method, [relative])
        yield _errors(family.kind.name, split, method, list(per_axis.values()))


def _pooled(family: Family, masks: list[np.ndarray], predict: Predictor) -> Array:
    parts = []
    for mask in masks:
        test = family.where(mask)
        parts.append(predict(family.where(~mask), test) / test.latency_us - 1)
    return np.concatenate(parts)


def _errors(family: str, split: str, method: str, parts: list[Array]) -> Errors:
    """Statistics over several sets of relative errors, each with the same weight."""
    relative = np.concatenate(parts)
    weight = np.concatenate([np.full(len(part), 1 / len(part)) for part in parts])
    weight /= weight.sum()
    order = np.argsort(np.abs(relative), kind="stable")
    shares = np.minimum(np.cumsum(weight[order]), 1.0)
    ranks = np.minimum(np.searchsorted(shares, np.array([0.5, 0.9, 0.99])), len(order) - 1)
    p50, p90, p99 = (100 * float(value) for value in np.abs(relative)[order][ranks])
    mape, bias = 100 * float(weight @ np.abs(relative)), 100 * float(weight @ relative)
    return Errors(family, split, method, len(relative), mape, p50, p90, p99, bias)


def _ours(train: Family, test: Family) -> Array:
    return fit_family(train).predict_us(test)


def _forest(train: Family, test: Family) -> Array:
    """A random forest from raw sizes to raw times."""
    from sklearn.ensemble import RandomForestRegressor

    model = RandomForestRegressor(FOREST_TREES, random_state=0)
    model.fit(_raw(train), train.latency_us)
    result: Array = model.predict(_raw(test))
    return result


def _interpolation(train: Family, test: Family) -> Array:
    """log(time), linear in the log of one size between points that share all others; else the nearest."""
    known, asked = np.log1p(_raw(train)), np.log1p(_raw(test))
    log_time = np.log(train.latency_us)
    result = np.full(len(test), np.nan)
    for column in range(known.shape[1]):
        missing = np.isnan(result)
        if missing.any():
            result[missing] = _between(known, log_time, asked[missing], column)
    missing = np.isnan(result)
    if missing.any():
        from sklearn.neighbors import KNeighborsRegressor

        nearest = KNeighborsRegressor(n_neighbors=1).fit(known, log_time)
        result[missing] = nearest.predict(asked[missing])
    answer: Array = np.exp(result)
    return answer


def _between(known: Array, log_time: Array, asked: Array, column: int) -> Array:
    """Interpolated along one column where points on both sides agree in the others; NaN elsewhere."""
    others = [index for index in range(known.shape[1]) if index != column]
    rest = np.concatenate([known[:, others], asked[:, others]])
    group = np.unique(np.round(rest, 9), axis=0, return_inverse=True)[1].ravel()
    of_known, of_asked = group[: len(known)], group[len(known) :]
    order = np.lexsort((known[:, column], of_known))
    groups, place, times = of_known[order], known[order, column], log_time[order]
    start, stop = np.searchsorted(groups, of_asked, "left"), np.searchsorted(groups, of_asked, "right")
    result = np.full(len(asked), np.nan)
    for index, (low, high) in enumerate(zip(start.tolist(), stop.tolist(), strict=True)):
        at = asked[index, column]
        if high - low >= 2 and place[low] < at < place[high - 1]:
            result[index] = np.interp(at, place[low:high], times[low:high])
    return result


def _raw(family: Family) -> Array:
    names = dict.fromkeys((*family.kind.axes, *family.kind.shape))
    return np.stack([family.sizes[name] for name in names], axis=1)


METHODS: dict[str, Predictor] = {"ours": _ours, "random forest": _forest, "interpolation": _interpolation}


def _physics_rows(table: KernelTable, found: dict[str, Family]) -> Iterator[Errors]:
    """What stands in for measurements that a table may lack, judged where this one has them."""
    prefill, decode, mixed = (found.get(kind.name) for kind in (PREFILL, DECODE, MIXED))
    if prefill is not None:
        on_prefix = prefill.sizes["prefix"] > 0
        if on_prefix.any() and not on_prefix.all():
            yield _errors("prefill", "prefix", "formula", [_pooled(prefill, [on_prefix], _ours)])
    if prefill is not None and decode is not None and mixed is not None:
        apart = fit_family(prefill).predict_us(mixed) + fit_family(decode).predict_us(mixed)
        yield _errors("mixed", "apart", "sum of both", [apart / mixed.latency_us - 1])
    if mixed is not None and 0 < _unequal(mixed).sum() < len(mixed):
        yield from _unequal_rows(table, mixed)


def _unequal(family: Family) -> np.ndarray:
    return np.asarray(family.sizes["kv_max"] > UNEQUAL * family.sizes["kv_mean"])


def _unequal_rows(table: KernelTable, mixed: Family) -> Iterator[Errors]:
    """Batches of unequal KV lengths: the fit of equal ones, and what is known of the lengths."""
    rows = table.select("attention")
    rows = rows.where((rows["num_chunks"] > 0) & (rows["num_decodes"] > 0))
    rows = rows.where(rows["decode_kv_max_tokens"] * rows["num_decodes"] > UNEQUAL * rows["decode_kv_tokens"])
    sizes = sizes_of(rows, MIXED)
    equal_sizes = {**sizes, "kv_max": sizes["kv_mean"]}
    equal = Family(MIXED, mixed.device, equal_sizes, rows["latency_us"], np.zeros(len(rows), dtype=bool))
    at_mean = fit_family(mixed.where(~_unequal(mixed))).predict_us(equal)
    sm_count = mixed.device.sm_count
    ways: dict[str, Callable[[KernelRow], float]] = {"mean": lambda row: 1.0}
    if (rows["decode_kv_lengths"] != "").all():
        ways["two lengths"] = lambda row: _from_two_lengths(row, sm_count)
        ways["all lengths"] = lambda row: _from_lengths(row, sm_count)
    for way, ratio in ways.items():
        ratios = np.array([ratio(row) for row in rows.rows()])
        yield _errors("mixed", "unequal", way, [at_mean * ratios / rows["latency_us"] - 1])


def _from_two_lengths(row: KernelRow, sm_count: int) -> float:
    """What the simulator does, which knows no more of the lengths than a batch's shape, but the order."""
    lengths = parse_lengths(row.decode_kv_lengths)
    shape = BatchShape.of(decode_kv=tuple(lengths))
    longest_first = lengths == sorted(lengths, reverse=True)
    from_two_lengths = UnevenSlowdown(sm_count, row.q_heads, row.kv_heads, longest_first=longest_first)
    return from_two_lengths.at(row.chunk_tokens, row.prefix_tokens, *shape[1:5])


def _from_lengths(row: KernelRow, sm_count: int) -> float:
    lengths = parse_lengths(row.decode_kv_lengths)
    return slowdown(sm_count, row.q_heads, row.chunk_tokens, row.prefix_tokens, lengths)
