"""Fits kernel tables: a JSON artefact for the simulator, and how wrong it is on points that it did not see.

Matrix products and attention are boosted trees on log(measured / reference); collectives are measured points;
elementwise kernels are a curve of log(measured / reference) over their number of elements.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from profiler.boosting import fit_trees
from profiler.families import DECODE, GEMM, MIXED, PREFILL, Family, families
from profiler.splits import held_out
from profiler.tables import ELEMENTWISE_OPS, ROWS_FILE, KernelTable
from simulator.errors import InputError
from simulator.latency.estimators import decode_us, gemm_us, mixed_us, prefill_us, prefix_us
from simulator.latency.features import FEATURES_VERSION, AttentionShapes, Device, elementwise_reference_us
from simulator.latency.fitted import SCHEMA_VERSION
from simulator.latency.kernels import Array
from simulator.latency.trees import BoostedTrees
from simulator.load import load_gpu

MIN_PREFIX_SHARE = 0.1
"""Of the chunks of a table: with fewer on a prefix, the effect of a prefix is computed, not fitted."""
CURVE_POINTS = 48
REPORT_FOLDS = 1
REPORT_SPLITS = ("axes", "beyond")


@dataclass(frozen=True)
class FittedFamily:
    """The trees of one family; predictions go the way that the simulator's go."""

    family: Family
    trees: BoostedTrees
    prefix_fitted: bool = True
    """Whether the trees saw prefixes; else what a prefix adds is computed."""

    def predict_us(self, other: Family) -> Array:
        """Microseconds of other points of the same kind, on their device."""
        device, sizes = other.device, other.sizes
        if self.family.kind is GEMM:
            return gemm_us(self.trees, self.axis("k"), device, sizes["m"], sizes["n"], sizes["k"])
        shapes = AttentionShapes(**{name: sizes[name] for name in AttentionShapes.__dataclass_fields__})
        if self.family.kind is DECODE:
            return decode_us(self.trees, self.axis("kv_mean"), device, shapes)
        if self.family.kind is MIXED:
            return mixed_us(self.trees, device, shapes)
        if self.prefix_fitted:
            return prefill_us(self.trees, self.axis("chunk"), device, shapes)
        alone = AttentionShapes(**{**sizes, "prefix": np.zeros_like(shapes.prefix)})
        return prefill_us(self.trees, self.axis("chunk"), device, alone) + prefix_us(device, shapes)

    def axis(self, size: str) -> Array:
        """The values of a size that were measured."""
        return np.unique(self.family.sizes[size])


@dataclass(frozen=True)
class FitReport:
    """What was fitted, and how wrong it is: `errors[family][split]` is (MAPE, signed bias) in per cent."""

    name: str
    out: Path | None
    points: dict[str, int]
    errors: dict[str, dict[str, tuple[float, float]]]
    notes: tuple[str, ...] = field(default=())

    def lines(self) -> list[str]:
        """The report as text."""
        lines = [f"{self.name}: " + ", ".join(f"{count} {name}" for name, count in self.points.items())]
        for family, splits in self.errors.items():
            parts = [
                f"{_SPLIT_NAMES[split]} {mape:.1f} % ({bias:+.1f} %)"
                for split, (mape, bias) in splits.items()
            ]
            lines.append(f"{family}: " + (", ".join(parts) or "too few points for a held-out error"))
        return [*lines, *self.notes]


_SPLIT_NAMES = {
    "random": "random points",
    "shapes": "shapes held out",
    "axes": "sizes held out",
    "beyond": "beyond the largest size",
    "off_grid": "points off the grid",
}


def fit_table(path: str | Path | Sequence[str | Path], out: str | Path, name: str | None = None) -> FitReport:
    """Fits one table, or several that hold different ops, and writes the artefact; raises InputError."""
    paths = [path] if isinstance(path, str | Path) else list(path)
    target = Path(out)
    artefact, report = fit([KernelTable.read(item) for item in paths], name or target.stem)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_format(artefact), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror}") from None
    return FitReport(report.name, target, report.points, report.errors, report.notes)


def _format(artefact: dict[str, Any]) -> str:
    """JSON with one line per entry of the artefact."""
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in artefact.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def fit(tables: Sequence[KernelTable], name: str) -> tuple[dict[str, Any], FitReport]:
    """The artefact of a GPU's tables and its report; the first table names the GPU; raises InputError.

    No kind of kernel may be in two tables: rows of different backends never meet in one fit. A table of
    another GPU may add attention: what it says about the reference time is used with this GPU's reference.
    """
    for table in tables:
        if not len(table):
            raise InputError(f"{Path(table.origin) / ROWS_FILE}: it has no measurements")
    gpu = load_gpu(tables[0].meta.device)
    found = [family for table in tables for family in families(table, device_of(table.meta.device))]
    _check_distinct([family.kind.name for family in found], tables)
    fits = {family.kind.name: fit_family(family) for family in found}
    errors = {key: held_out_errors(fitted.family) for key, fitted in fits.items()}
    artefact: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kind": "kernels",
        "features_version": FEATURES_VERSION,
        "name": name,
        "gpu": gpu.name,
        "device": _device_json(device_of(gpu.name)),
        "attention_includes_kv_write": any(_writes_kv(table) for table in tables),
        "times_include_gaps": all(table.meta.gaps == "included" for table in tables),
        "sources": [f"{table.meta.source or table.origin} ({_conditions(table)})" for table in tables],
        "licence": "; ".join(dict.fromkeys(table.meta.licence for table in tables if table.meta.licence)),
        "notes": [*_foreign_notes(tables), *_prefix_notes(fits)],
        "held_out_error_pct": {
            key: {s: round(e[0], 2) for s, e in value.items()} for key, value in errors.items()
        },
        **{key: _family_json(fitted) for key, fitted in fits.items()},
        "collectives": _collectives(tables),
        "elementwise": _elementwise(tables),
    }
    points = {key: len(fitted.family) for key, fitted in fits.items()}
    points |= {
        "collective groups": len(artefact["collectives"]),
        "elementwise ops": len(artefact["elementwise"]),
    }
    if not any(points.values()):
        # The artefact would lend its name to times that all come from the roofline.
        origins = ", ".join(table.origin for table in tables)
        raise InputError(f"{origins}: no measurements that can be fitted")
    return artefact, FitReport(name, None, points, errors, tuple(artefact["notes"]))


def fit_family(family: Family) -> FittedFamily:
    """The trees of a family; prompts without enough prefixes among them leave the prefix to a formula."""
    prefix_fitted = True
    if family.kind is PREFILL and np.mean(family.sizes["prefix"] > 0) < MIN_PREFIX_SHARE:
        family, prefix_fitted = family.where(family.sizes["prefix"] == 0), False
    reference, table = family.features()
    target = np.log(family.latency_us / reference)
    return FittedFamily(family, fit_trees(table, target, family.kind.boosting), prefix_fitted)


def held_out_errors(family: Family) -> dict[str, tuple[float, float]]:
    """MAPE and signed bias in per cent on held-out sizes, and on the off-grid points that a profile drew."""
    folds = {split: [mask for _, mask in held_out(family, split, REPORT_FOLDS)] for split in REPORT_SPLITS}
    folds["off_grid"] = [family.off_grid] if family.off_grid.any() else []
    errors = {}
    for split, masks in folds.items():
        relative = [held_out_error(family, mask) for mask in masks if 0 < mask.sum() < len(mask)]
        if relative:
            pooled = np.concatenate(relative)
            errors[split] = (100 * float(np.mean(np.abs(pooled))), 100 * float(np.mean(pooled)))
    return errors


def held_out_error(family: Family, mask: np.ndarray) -> Array:
    """Relative errors of the masked points, predicted from the others."""
    test = family.where(mask)
    result: Array = fit_family(family.where(~mask)).predict_us(test) / test.latency_us - 1
    return result


def _check_distinct(kinds: Iterable[str], tables: Sequence[KernelTable]) -> None:
    seen: set[str] = set()
    for kind in kinds:
        if kind in seen:
            origins = ", ".join(table.origin for table in tables)
            raise InputError(f"{kind} rows are in more than one table ({origins}): their conditions differ")
        seen.add(kind)


def device_of(name: str) -> Device:
    """The peak rates of a GPU of configs/gpus; raises ConfigError for an unknown one."""
    gpu = load_gpu(name)
    return Device(gpu.tflops_bf16, gpu.memory_bandwidth_gbps, gpu.sm_count, gpu.launch_us)


def _device_json(device: Device) -> dict[str, float]:
    return {name: getattr(device, name) for name in Device.__dataclass_fields__}


def _writes_kv(table: KernelTable) -> bool:
    return bool(len(table.select("attention"))) and table.meta.kv_write == "included"


def _conditions(table: KernelTable) -> str:
    meta = table.meta
    libraries = " ".join(f"{key} {value}" for key, value in meta.libraries.items())
    return (
        ", ".join(part for part in (meta.backend, libraries, meta.licence) if part)
        or "no conditions recorded"
    )


def _foreign_notes(tables: Sequence[KernelTable]) -> list[str]:
    gpu = tables[0].meta.device
    return [
        f"attention was measured on {table.meta.device}: its share of the peak is assumed for {gpu} too"
        for table in tables[1:]
        if table.meta.device != gpu and len(table.select("attention"))
    ]


def _prefix_notes(fits: dict[str, FittedFamily]) -> list[str]:
    prefill = fits.get(PREFILL.name)
    if prefill is None or prefill.prefix_fitted:
        return []
    return ["chunks with a prefix were not measured: computed from prompts (docs/accuracy.md has the error)"]


def _family_json(fitted: FittedFamily) -> dict[str, Any]:
    sizes, kind = fitted.family.sizes, fitted.family.kind
    data: dict[str, Any] = {"trees": fitted.trees.to_json()}
    if kind is GEMM:
        weights, index = np.unique(np.stack([sizes["n"], sizes["k"]], axis=1), axis=0, return_inverse=True)
        largest = np.zeros(len(weights))
        np.maximum.at(largest, index.ravel(), sizes["m"])
        rows = np.column_stack([weights, largest]).astype(int)
        return data | {"k_axis": fitted.axis("k").astype(int).tolist(), "weights": rows.tolist()}
    heads = np.unique(np.stack([sizes[name] for name in kind.shape], axis=1), axis=0).astype(int)
    data["heads"] = heads.tolist()
    if kind is PREFILL:
        # A prefix that is computed from prompts is covered as far as their lengths are.
        largest_prefix = np.max(sizes["prefix"] if fitted.prefix_fitted else sizes["chunk"])
        data["chunk_axis"] = fitted.axis("chunk").astype(int).tolist()
        data["prefix_fitted"] = fitted.prefix_fitted
        data |= {"max_chunk": int(np.max(sizes["chunk"])), "max_prefix": int(largest_prefix)}
    if kind is MIXED:
        data["uneven"] = bool(np.any(sizes["kv_max"] > sizes["kv_mean"] + 1))
    if kind is DECODE:
        data["kv_axis"] = np.unique(np.round(fitted.axis("kv_mean"))).astype(int).tolist()
        data |= {
            "max_num_decodes": int(np.max(sizes["num_decodes"])),
            "max_kv": int(np.max(sizes["kv_mean"])),
        }
    return data


def _collectives(tables: Sequence[KernelTable]) -> list[dict[str, Any]]:
    """One curve per op, group size and topology, thinned to powers of two and what lies between them."""
    curves = []
    for table in tables:
        rows = table.select("all_reduce", "send_recv")
        groups = sorted(set(zip(rows["op"], rows["world_size"], rows["topology"], strict=True)))
        for op, world_size, topology in groups:
            mask = (rows["op"] == op) & (rows["world_size"] == world_size) & (rows["topology"] == topology)
            sizes, latency = _curve(rows["message_bytes"][mask].astype(float), rows["latency_us"][mask])
            if len(sizes) < 2:
                continue
            world = max(2, int(world_size))
            moved = 2 * (world - 1) / world if op == "all_reduce" else 1.0
            curves.append(
                {
                    "op": str(op),
                    "world_size": world,
                    "topology": str(topology),
                    "bandwidth_gbps": round(float(np.max(moved * sizes / latency)) / 1e3, 2),
                    "bytes": [round(size) for size in sizes.tolist()],
                    "us": [float(f"{value:.4g}") for value in latency],
                }
            )
    return curves


def _elementwise(tables: Sequence[KernelTable]) -> dict[str, Any]:
    """One curve per op over its number of elements."""
    curves: dict[str, Any] = {}
    for table in tables:
        device = device_of(table.meta.device)
        for op in ELEMENTWISE_OPS:
            rows = table.select(op)
            if not len(rows):
                continue
            elements = rows["m"].astype(float) * rows["width"]
            ratio = rows["latency_us"] / elementwise_reference_us(device, op, elements)
            sizes, ratios = _curve(elements, ratio)
            curves[op] = {
                "elements": [round(size) for size in sizes.tolist()],
                "log_ratio": [round(float(value), 4) for value in np.log(ratios)],
            }
    return curves


def _curve(sizes: Array, values: Array) -> tuple[Array, Array]:
    """At most `CURVE_POINTS` points: medians of size and value in bins of equal width in log(size)."""
    order = np.argsort(sizes, kind="stable")
    sizes, values = sizes[order], values[order]
    if len(np.unique(sizes)) <= CURVE_POINTS:
        bins = np.searchsorted(np.unique(sizes), sizes)
    else:
        span = np.log(sizes / sizes[0]) / np.log(sizes[-1] / sizes[0])
        bins = np.minimum((span * CURVE_POINTS).astype(int), CURVE_POINTS - 1)
    chosen = [bins == number for number in np.unique(bins)]
    middle = np.array([np.exp(np.median(np.log(sizes[mask]))) for mask in chosen])
    return middle, np.array([np.median(values[mask]) for mask in chosen])
