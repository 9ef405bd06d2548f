"""Another simulator's record: with its iteration times, stall_free must form its batches and its times."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
from builders import serve

from simulator.batch import BatchShape
from simulator.kv import KVBlocks
from simulator.latency.model import ConstantLatency
from simulator.request import Request
from simulator.schedulers import StallFree


class Recorded(ConstantLatency):
    """The k-th iteration takes as long as the k-th of a record."""

    def __init__(self, durations_s: list[float]) -> None:
        super().__init__()
        self._durations_s = iter(durations_s)

    def stage_time_s(self, shape: BatchShape, stage: int) -> float:
        return next(self._durations_s)


def test_stall_free_forms_the_batches_of_vidur(shared_data: Path) -> None:
    folder = shared_data / "vidur_ref" / "real_conv"
    settings = json.loads((folder / "settings.json").read_text())
    with gzip.open(folder / "batches.csv.gz", "rt") as file:
        batches = list(csv.DictReader(file))
    with (folder / "trace.csv").open() as file:
        requests = [
            Request(
                i, int(row["num_prefill_tokens"]), int(row["num_decode_tokens"]), float(row["arrived_at"])
            )
            for i, row in enumerate(csv.DictReader(file))
        ]
    with (folder / "requests.csv").open() as file:
        expected = {int(row["id"]): row for row in csv.DictReader(file)}

    num_blocks = settings["num_blocks"]
    watermark = int(settings["watermark_fraction"] * num_blocks)
    scheduler = StallFree(
        KVBlocks(num_blocks, settings["block_size"], watermark),
        token_budget=settings["token_budget"],
        max_num_seqs=settings["max_num_seqs"],
        max_model_len=16384,
    )
    durations = [float(row["completed_at"]) - float(row["scheduled_at"]) for row in batches]
    result = serve(requests, scheduler, Recorded(durations))

    assert result.iterations == len(batches) == 6855
    columns = result.records.iterations
    ours = [
        (int(decodes + chunks), int(decodes + prefill), int(prefill))
        for decodes, chunks, prefill in zip(
            columns["num_decodes"], columns["num_chunks"], columns["prefill_tokens"], strict=True
        )
    ]
    theirs = [(int(r["num_requests"]), int(r["num_tokens"]), int(r["num_prefill_tokens"])) for r in batches]
    assert ours == theirs

    rows = result.records.requests
    for column, name in (
        ("scheduled_s", "scheduled_at"),
        ("first_token_s", "first_token_at"),
        ("finished_s", "completed_at"),
    ):
        reference = [float(expected[int(id)][name]) for id in rows["id"]]
        assert np.abs(rows[column] - reference).max() < 1e-6, column
