"""Kernels fitted to measured tables, read from a JSON artefact and evaluated with numpy alone.

What an artefact lacks comes from the roofline, and a note says so. Trees are evaluated on a lattice of sizes
and interpolated between: fine where kernels step (at the edges of their tiles), wide where they are smooth.
"""

from __future__ import annotations

import json
from math import log
from pathlib import Path
from typing import Any

import numpy as np

from simulator.errors import CalibrationError
from simulator.hardware import GPUSpec, LinkSpec
from simulator.latency.features import ELEMENTWISE_PASSES, FEATURES_VERSION, Device, elementwise_reference_us
from simulator.latency.fitted_attention import FittedAttention
from simulator.latency.fitted_gemm import FittedGemm
from simulator.latency.fitted_links import MeasuredCollective
from simulator.latency.kernels import KERNEL_GAP_S, Array, AttentionHeads, AttentionRange, Slowdown
from simulator.latency.roofline import RooflineKernels
from simulator.latency.uneven import UnevenSlowdown

SCHEMA_VERSION = 1
MICROSECOND = 1e-6
LINK_TOLERANCE = log(4)  # a link whose bandwidth differs more than fourfold is another kind of link


class FittedKernels:
    """`Kernels` of one GPU from its fitted artefact."""

    def __init__(self, artefact: dict[str, Any], gpu: GPUSpec, origin: str = "") -> None:
        """Raises KeyError, TypeError or ValueError where the artefact is damaged; `load` names the file."""
        self.name = str(artefact["name"])
        self.attention_includes_kv_write = bool(artefact["attention_includes_kv_write"])
        self.gap_s = 0.0 if artefact.get("times_include_gaps", True) else KERNEL_GAP_S
        self._roofline = RooflineKernels(gpu)
        self._device = Device(**artefact["device"])
        self._gemm = FittedGemm(artefact["gemm"], self._device) if "gemm" in artefact else None
        self._attention = (
            FittedAttention(artefact, self._device)
            if "prefill" in artefact and "decode" in artefact
            else None
        )
        self._uneven_measured = "mixed" in artefact and bool(artefact["mixed"]["uneven"])
        self._collectives = [MeasuredCollective(item) for item in artefact.get("collectives", [])]
        self._elementwise = {
            op: (np.log(np.asarray(fit["elements"], dtype=float)), np.asarray(fit["log_ratio"], dtype=float))
            for op, fit in artefact.get("elementwise", {}).items()
        }
        self.notes = self._describe(artefact, gpu)

    @classmethod
    def load(cls, path: Path, gpu: GPUSpec) -> FittedKernels:
        """Reads an artefact; raises CalibrationError if it is damaged or of another version."""
        try:
            artefact = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CalibrationError(f"{path}: {error}") from None
        kind = artefact.get("kind") if isinstance(artefact, dict) else type(artefact).__name__
        if kind != "kernels":
            raise CalibrationError(f"{path}: kind must be 'kernels' (found {kind!r})")
        for key, supported in (("schema_version", SCHEMA_VERSION), ("features_version", FEATURES_VERSION)):
            if artefact.get(key) != supported:
                found = artefact.get(key)
                raise CalibrationError(f"{path}: {key} must be {supported} (found {found!r}): fit it again")
        try:
            return cls(artefact, gpu, str(path))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise CalibrationError(f"{path}: damaged artefact: {type(error).__name__}: {error}") from None

    def gemm_s(self, m: Array, n: int, k: int) -> Array:
        """[m, k] x [k, n]."""
        if self._gemm is None:
            return self._roofline.gemm_s(m, n, k)
        return self._gemm.us(np.asarray(m, dtype=float), n, k) * MICROSECOND

    def prefill_attention_s(self, chunk: Array, prefix: Array, heads: AttentionHeads) -> Array:
        """One chunk."""
        if self._attention is None:
            return self._roofline.prefill_attention_s(chunk, prefix, heads)
        return self._attention.prefill_us(chunk, prefix, heads) * MICROSECOND

    def decode_attention_s(self, num_decodes: Array, kv_mean: Array, heads: AttentionHeads) -> Array:
        """Decodes of equal lengths."""
        if self._attention is None:
            return self._roofline.decode_attention_s(num_decodes, kv_mean, heads)
        return self._attention.decode_us(num_decodes, kv_mean, heads) * MICROSECOND

    def mixed_attention_s(
        self, chunk: Array, prefix: Array, num_decodes: Array, kv_mean: Array, heads: AttentionHeads
    ) -> Array | None:
        """A chunk and decodes in one launch; None where such launches were not measured."""
        if self._attention is None:
            return None
        time_us = self._attention.mixed_us(chunk, prefix, num_decodes, kv_mean, heads)
        return None if time_us is None else time_us * MICROSECOND

    def uneven_slowdown(self, heads: AttentionHeads) -> Slowdown | None:
        """What unequal KV lengths do to a batch; None where no such batches were measured.

        None, too, with a window: how many sequences are longer than that is not known of a batch.
        """
        if not self._uneven_measured or heads.window:
            return None
        return UnevenSlowdown(self._device.sm_count, heads.q_heads, heads.kv_heads).at

    def all_reduce_s(self, message_bytes: Array, world_size: int, link: LinkSpec) -> Array:
        """Interpolated between measured sizes of the group whose link is most like this one."""
        measured = self._collective("all_reduce", world_size, link)
        if measured is None:
            return self._roofline.all_reduce_s(message_bytes, world_size, link)
        return measured.us(message_bytes) * MICROSECOND

    def send_recv_s(self, message_bytes: Array, link: LinkSpec) -> Array:
        """Interpolated between measured sizes over the link most like this one."""
        measured = self._collective("send_recv", 2, link)
        if measured is None:
            return self._roofline.send_recv_s(message_bytes, link)
        return measured.us(message_bytes) * MICROSECOND

    def elementwise_s(self, op: str, tokens: Array, width: int) -> Array:
        """Bytes over bandwidth and a launch, times what was measured about it at that many elements."""
        if op not in self._elementwise:
            return self._roofline.elementwise_s(op, tokens, width)
        log_elements, log_ratio = self._elementwise[op]
        elements = np.asarray(tokens, dtype=float) * width
        ratio = np.exp(np.interp(np.log(np.maximum(elements, 1.0)), log_elements, log_ratio))
        result: Array = elementwise_reference_us(self._device, op, elements) * ratio * MICROSECOND
        return result

    def gemm_range(self, n: int, k: int) -> int | None:
        """The largest m measured for this weight; None where this very weight was not measured."""
        if self._gemm is None:
            return self._roofline.gemm_range(n, k)
        return self._gemm.largest_m.get((n, k))

    def attention_range(self, heads: AttentionHeads) -> AttentionRange:
        """The measured range of the attention kernel."""
        if self._attention is None:
            return self._roofline.attention_range(heads)
        return self._attention.range(heads)

    def _collective(self, op: str, world_size: int, link: LinkSpec) -> MeasuredCollective | None:
        matching = [c for c in self._collectives if c.op == op and c.world_size == world_size]
        distance, best = min(
            ((abs(log(c.bandwidth_gbps / link.bandwidth_gbps)), i) for i, c in enumerate(matching)),
            default=(LINK_TOLERANCE, -1),
        )
        return matching[best] if distance < LINK_TOLERANCE else None

    def _has_elementwise(self, op: str) -> bool:
        return op in self._elementwise or (op == "kv_write" and self.attention_includes_kv_write)

    def _describe(self, artefact: dict[str, Any], gpu: GPUSpec) -> tuple[str, ...]:
        notes = [f"{self.name} kernels: {source}" for source in artefact["sources"]]
        if artefact["gpu"] != gpu.name:
            notes.append(f"{self.name} was measured on {artefact['gpu']}, the scenario has {gpu.name}")
        missing = [
            name
            for name, found in (
                ("matrix products", self._gemm is not None),
                ("attention", self._attention is not None),
                ("collectives", bool(self._collectives)),
                *((op, self._has_elementwise(op)) for op in ELEMENTWISE_PASSES),
            )
            if not found
        ]
        if missing:
            notes.append(f"{self.name} has no measurements of {', '.join(missing)}: roofline in their stead")
        return (*notes, *_error_notes(self.name, artefact["held_out_error_pct"]), *artefact.get("notes", ()))


def _error_notes(name: str, errors: dict[str, dict[str, float]]) -> list[str]:
    """How far off the fits were on sizes that they did not see, inside of what was measured and beyond."""
    parts = [
        ", ".join(f"{family} {splits[split]:.1f} %" for family, splits in errors.items() if split in splits)
        for split in ("axes", "beyond")
    ]
    if not parts[0]:
        return []
    beyond = f"; beyond the largest measured: {parts[1]}" if parts[1] else ""
    return [f"{name}, mean error on sizes held out of the fit: {parts[0]}{beyond}"]
