"""Figure 13 and section 3.3: Falcon-180B across two nodes, by tensor parallelism and by a pipeline."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from simulator.batch import Chunk
from simulator.reproduce.paper import SLOS, Slo
from simulator.reproduce.rows import Ledger, ratio
from simulator.reproduce.shapes import batch, batch_s
from simulator.search.inputs import latency_of

if TYPE_CHECKING:
    from simulator.reproduce.experiments import Experiments, Results
    from simulator.reproduce.lab import Lab

BATCHES = (8, 16, 32, 64, 128)
LAYOUTS = {"tp8": {"tensor": 8, "pipeline": 1}, "pp2": {"tensor": 4, "pipeline": 2}}
RATE_RPS = 0.75
"""Of the artifact's figure-8 script, which measures the median TBT under this load."""
POLICIES = ("stall_free", "prefill_first")
ALL_REDUCES = 81
"""Of one iteration of Falcon-180B: one a layer, and one after the embedding."""


def experiments(lab: Lab) -> Experiments:
    """Runs of Figure 13a, runs at capacity for their bubbles, capacity with more places, two iterations."""
    return (
        {
            f"pipeline/p50_tbt/{layout}/{size}": (median_tbt, layout, size)
            for layout, size in product(LAYOUTS, BATCHES)
        }
        | {
            f"pipeline/at-capacity/{policy}/{slo}": (at_capacity, policy, slo)
            for policy, slo in product(POLICIES, SLOS)
        }
        | {f"pipeline/places-per-microbatch/{slo}": (with_places_per_microbatch, slo) for slo in SLOS}
        | {"pipeline/anchors": (anchors,)}
    )


def median_tbt(lab: Lab, layout: str, size: int) -> float | None:
    """Median TBT in seconds of stall-free scheduling with at most `size` sequences."""
    scenario = lab.scenario(
        "falcon",
        parallel=LAYOUTS[layout],
        scheduler__max_num_seqs=size,
        workload__rate_rps=RATE_RPS,
    )
    return lab.trial(scenario).value("tbt_s", "p50")


def at_capacity(lab: Lab, policy: str, slo: Slo) -> dict[str, Any]:
    """Capacity of the pipeline, and the share of working time that its stages idle there."""
    scenario = lab.under_policy("falcon", "chat", slo, policy)
    capacity = lab.capacity(scenario, lab.deployment("falcon").start_rps["chat"]).capacity_rps
    if capacity is None:
        return {"capacity": None, "bubble": None}
    stages = lab.trial(scenario.with_({"workload.rate_rps": capacity})).document["stages"]
    return {"capacity": capacity, "bubble": sum(stage["bubble_share"] for stage in stages) / len(stages)}


def with_places_per_microbatch(lab: Lab, slo: Slo) -> float | None:
    """Capacity of stall-free scheduling if the paper's 128 places were those of each microbatch."""
    scenario = lab.scenario("falcon", "chat", slo)
    places = scenario.scheduler.max_num_seqs * scenario.parallel.pipeline
    scenario = scenario.with_({"scheduler.max_num_seqs": places})
    return lab.capacity(scenario, lab.deployment("falcon").start_rps["chat"]).capacity_rps


def anchors(lab: Lab) -> dict[str, float]:
    """The two iterations that section 3.3 sets against each other, and the bubble between them, in seconds.

    Of each the time on the slower stage, which is what the other one waits for.
    """
    latency = latency_of(lab.scenario("falcon"))
    shapes = {"prompt-4096": batch([Chunk(4096, 0)]), "decode-32": batch(decodes=32, kv=4096)}
    times = {
        name: max(latency.stage_time_s(shape, stage) for stage in range(latency.num_stages))
        for name, shape in shapes.items()
    }
    whole = {f"{name}/both-stages": batch_s(lab.scenario("falcon"), shape) for name, shape in shapes.items()}
    return times | {"bubble": times["prompt-4096"] - times["decode-32"]} | whole


def report(ledger: Ledger, results: Results) -> None:
    """Figure 13a as times and ratios, gains over prefill-first, bubbles, more places, anchors."""
    for size in BATCHES:
        tp8, pp2 = (results[f"pipeline/p50_tbt/{layout}/{size}"] for layout in LAYOUTS)
        ledger.add(f"pipeline/p50_tbt/tp8/{size}", tp8, "s")
        ledger.add(f"pipeline/p50_tbt/pp2/{size}", pp2, "s")
        ledger.add(f"pipeline/tp8-over-pp2/{size}", ratio(tp8, pp2), "x")
    _report_implied(ledger, results["pipeline/p50_tbt/tp8/32"])
    for name, seconds in results["pipeline/anchors"].items():
        ledger.add(f"pipeline/{name}", seconds, "s")
    for policy, slo in product(POLICIES, SLOS):
        ledger.add(
            f"pipeline/bubble-share/{policy}/{slo}",
            results[f"pipeline/at-capacity/{policy}/{slo}"]["bubble"],
            "share",
            "of the stages' working time, at this scheduler's capacity",
        )
    for slo in SLOS:
        id = f"pipeline/places-per-microbatch/{slo}"
        ledger.add(id, results[id], "requests/s", "capacity of stall_free with 128 places a microbatch")
    _report_gain(ledger, results)


def _report_implied(ledger: Ledger, ours_s: float | None) -> None:
    """What an all-reduce over Ethernet would have to take for the paper's median TBT under TP8."""
    published = ledger.paper.published("pipeline/p50_tbt/tp8/32")
    if published is None or published.value is None or ours_s is None:
        return
    ledger.add(
        "pipeline/implied-all-reduce",
        1e3 * (published.value - ours_s) / ALL_REDUCES,
        "ms",
        f"what each of {ALL_REDUCES} all-reduces would take beyond ours, were all of the difference theirs",
    )


def _report_gain(ledger: Ledger, results: Results) -> None:
    gains = [
        ratio(*(results[f"pipeline/at-capacity/{policy}/{slo}"]["capacity"] for policy in POLICIES))
        for slo in SLOS
    ]
    strict, relaxed = gains
    ledger.add(
        "pipeline/gain-larger-at-strict",
        ratio(strict, relaxed),
        "x",
        "gain of stall_free over prefill_first, strict over relaxed",
        holds=strict is None or (relaxed is not None and strict > relaxed),
    )
