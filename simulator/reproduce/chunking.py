"""Figure 14 and sections 3.1 and 4.3: what cutting a prompt costs, tiles, and where prefill saturates.

Iteration times are asked of the latency model directly; nothing is scheduled.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from simulator.batch import Chunk
from simulator.reproduce.rows import Ledger
from simulator.reproduce.shapes import batch, batch_s, prefill_s
from simulator.search.inputs import latency_of

if TYPE_CHECKING:
    from simulator.reproduce.experiments import Experiments, Results
    from simulator.reproduce.lab import Lab

PROMPTS = (2048, 4096, 8192, 16384)
CHUNKS = (512, 1024, 2048)


def experiments(lab: Lab) -> Experiments:
    """Two quick ones."""
    return {"chunking/overhead": (overhead,), "chunking/saturation": (saturation,)}


def overhead(lab: Lab) -> dict[str, float]:
    """Yi-34B's prefill time in chunks over that in one piece; prompts lack a token, as in the artifact."""
    scenario = lab.scenario("yi", "arxiv")
    whole = {prompt: prefill_s(scenario, prompt - 1) for prompt in PROMPTS}
    return {
        f"{prompt}/{size}": prefill_s(scenario, prompt - 1, size) / whole[prompt]
        for prompt, size in product(PROMPTS, CHUNKS)
    }


def saturation(lab: Lab) -> dict[str, float]:
    """Tiles (Yi-34B), and the times of Figure 4 (Mistral-7B)."""
    yi, mistral = lab.scenario("yi"), lab.scenario("mistral")

    def speed(tokens: int) -> float:
        return tokens / prefill_s(mistral, tokens)

    def linear_s(tokens: int) -> float:
        return latency_of(mistral).breakdown(batch([Chunk(tokens, 0)]), 0)["linear"]

    return {
        "tile/257-over-256": prefill_s(yi, 257) / prefill_s(yi, 256),
        "saturation/prefill-512-over-2048": speed(512) / speed(2048),
        "saturation/prefill-128": 1e3 * prefill_s(mistral, 128),
        "saturation/prefill-2048": 1e3 * prefill_s(mistral, 2048),
        "saturation/decode-1": 1e3 * batch_s(mistral, batch(decodes=1, kv=1024)),
        "saturation/decode-64": 1e3 * batch_s(mistral, batch(decodes=64, kv=1024)),
        "saturation/linear-share-2048": linear_s(2048) / prefill_s(mistral, 2048),
        "saturation/decode-in-prefill-tokens": max(
            tokens for tokens in range(1, 513) if linear_s(tokens) <= 1.1 * linear_s(1)
        ),
    }


def report(ledger: Ledger, results: Results) -> None:
    """One row a number."""
    for figures in results.values():
        for id, value in figures.items():
            ledger.add(f"chunking/{id}", value)
