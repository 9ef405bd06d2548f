"""Whole iterations as a linear function of the batch: an engine measured from outside, not its kernels."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, field_validator

from simulator.batch import BatchShape
from simulator.spec import Spec


class BatchTimeBin(Spec):
    """Coefficients in seconds for batches of at most `max_tokens` tokens."""

    max_tokens: PositiveInt
    base_s: PositiveFloat
    per_token_s: float
    per_prefill_token_s: float
    per_decode_s: float
    per_decode_kv_token_s: float
    """For each token of KV that the decodes attend."""
    per_prefix_token_s: float
    """For each token of prefix that the chunks attend."""


class BatchTimeSpec(Spec):
    """An artefact of kind `batch_time`: bins by batch size, and what they were measured with."""

    schema_version: Literal[1]
    kind: Literal["batch_time"]
    name: str
    gpu: str
    model: str
    tensor: PositiveInt = 1
    source: str
    licence: str
    bins: tuple[BatchTimeBin, ...] = Field(min_length=1, strict=False)  # JSON has lists, not tuples

    @field_validator("bins")
    @classmethod
    def _ascending(cls, bins: tuple[BatchTimeBin, ...]) -> tuple[BatchTimeBin, ...]:
        sizes = [part.max_tokens for part in bins]
        if sizes != sorted(set(sizes)):
            raise ValueError(f"max_tokens must ascend (found {sizes})")
        return bins


class LinearBatchTime:
    """Latency model of one stage that takes the linear time of the batch's bin, and never less than its base.

    The last bin also serves larger batches, which count as extrapolated.
    """

    num_stages = 1

    def __init__(self, spec: BatchTimeSpec, notes: tuple[str, ...] = ()) -> None:
        self.num_queries = 0
        self.num_extrapolated = 0
        self.notes = (f"{spec.name}: measured whole iterations, host time included", *notes)
        self._bins = spec.bins
        self._max_tokens = spec.bins[-1].max_tokens

    def stage_time_s(self, shape: BatchShape, stage: int) -> float:
        """Seconds of the whole iteration."""
        self.num_queries += 1
        if shape.num_tokens > self._max_tokens:
            self.num_extrapolated += 1
        return self._seconds(shape)

    def _seconds(self, shape: BatchShape) -> float:
        part = self._bin(shape.num_tokens)
        seconds = (
            part.base_s
            + part.per_token_s * shape.num_tokens
            + part.per_prefill_token_s * (shape.num_tokens - shape.num_decodes)
            + part.per_decode_s * shape.num_decodes
            + part.per_decode_kv_token_s * shape.decode_kv_tokens
            + part.per_prefix_token_s * sum(chunk.prefix for chunk in shape.chunks)
        )
        return max(part.base_s, seconds)

    def _bin(self, num_tokens: int) -> BatchTimeBin:
        for part in self._bins:
            if num_tokens <= part.max_tokens:
                return part
        return self._bins[-1]

    def hop_time_s(self, num_tokens: int) -> float:
        """There is one stage: nothing is sent."""
        return 0.0

    def breakdown(self, shape: BatchShape, stage: int) -> dict[str, float]:
        """The iteration was measured as a whole."""
        return {"iteration": self._seconds(shape)}
