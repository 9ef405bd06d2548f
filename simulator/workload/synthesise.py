"""Makes the traces that ship with the package, from published statistics and not from anybody's data.

`python -m simulator.workload.synthesise chat > traces/chat.csv` writes the same bytes on every machine: only
`random.Random.random` is used, whose sequence Python guarantees, and everything is rounded.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from random import Random
from statistics import NormalDist

REQUESTS = 4096
SEED = 2403  # the month of the paper, arXiv:2403.02310
NORMAL = NormalDist()

Quantile = Callable[[float], float]
Row = tuple[float, int, int]

CHAT_PROMPT = {0: 1, 0.25: 580, 0.5: 1730, 0.75: 3734.5, 0.9: 5696, 0.95: 6563, 0.99: 7434, 1: 8141}
CHAT_OUTPUT = {0: 2, 0.25: 228, 0.5: 415, 0.75: 628, 0.9: 834, 0.95: 920, 0.99: 998, 1: 1024}
CHAT_LIMIT = 8192


def chat() -> list[Row]:
    """Multi-round chat as in the paper's Table 2 (openchat_sharegpt4): prompts carry the history of the talk.

    Quantiles as published; total at most 8192 tokens; 4 requests a second.
    """
    rng = Random(SEED)
    prompts = _shuffled(_stratified(_between(CHAT_PROMPT)), rng)
    outputs = _shuffled(_stratified(_between(CHAT_OUTPUT)), rng)
    _keep_within(CHAT_LIMIT, prompts, outputs, rng)
    return list(zip(_poisson(4.0, rng), prompts, outputs, strict=True))


def summarisation() -> list[Row]:
    """Summaries of long articles as in the paper's Table 2 (arxiv_summarization); 1 request a second.

    Lognormal lengths, cut at the top so that totals stay below 16384 tokens; medians, 90th percentiles and
    standard deviations come out as published, the two standard deviations of outputs unswapped.
    """
    rng = Random(SEED)
    prompts = _shuffled(_stratified(_cut_lognormal(median=8300, sigma=0.71, high=15800)), rng)
    outputs = _shuffled(_stratified(_cut_lognormal(median=211, sigma=0.48, high=560)), rng)
    return list(zip(_poisson(1.0, rng), prompts, outputs, strict=True))


def long_prompt() -> list[Row]:
    """Sixteen answers under way when one prompt of 8192 tokens arrives: a generation stall in the small."""
    return [*[(0.0, 256, 512)] * 16, (1.0, 8192, 128)]


TRACES = {"chat": chat, "summarisation": summarisation, "long-prompt": long_prompt}


def _between(points: Mapping[float, float]) -> Quantile:
    """Quantile function through the points: geometric between them, straight below the second.

    Geometric since lengths thin out upwards; so the mean, too, comes out within 1 % of the published one.
    """
    levels = sorted(points)

    def quantile(level: float) -> float:
        upper = next(index for index, other in enumerate(levels) if other >= level)
        low, high = levels[upper - 1], levels[upper]
        share = (level - low) / (high - low)
        if upper == 1:
            return points[low] + share * (points[high] - points[low])
        return points[low] * math.exp(share * math.log(points[high] / points[low]))

    return quantile


def _cut_lognormal(median: float, sigma: float, high: float) -> Quantile:
    """Quantile function of a lognormal on condition that it stays below `high`."""
    kept = NORMAL.cdf(math.log(high / median) / sigma)
    return lambda level: median * math.exp(sigma * NORMAL.inv_cdf(level * kept))


def _stratified(quantile: Quantile) -> list[int]:
    """One length from the middle of each of many equal shares of the distribution."""
    return [round(quantile((index + 0.5) / REQUESTS)) for index in range(REQUESTS)]


def _shuffled(lengths: Sequence[int], rng: Random) -> list[int]:
    return sorted(lengths, key=lambda _: rng.random())


def _keep_within(limit: int, prompts: Sequence[int], outputs: list[int], rng: Random) -> None:
    """Swaps outputs until no request exceeds the limit; both sets of lengths stay as they are."""
    for index in range(REQUESTS):
        while prompts[index] + outputs[index] > limit:
            other = int(rng.random() * REQUESTS)
            if prompts[other] + outputs[index] <= limit:
                outputs[index], outputs[other] = outputs[other], outputs[index]


def _poisson(rate_rps: float, rng: Random) -> list[float]:
    times, now = [], 0.0
    for _ in range(REQUESTS):
        now -= math.log(1 - rng.random()) / rate_rps
        times.append(round(now, 3))
    return times


def as_csv(rows: Sequence[Row]) -> str:
    """The text of a trace file."""
    lines = [f"{arrival:.3f},{prompt},{output}\n" for arrival, prompt, output in rows]
    return "".join(["arrival_s,prompt_tokens,output_tokens\n", *lines])


def main() -> None:
    """Writes the trace named on the command line to standard output."""
    parser = argparse.ArgumentParser(prog="python -m simulator.workload.synthesise", description=__doc__)
    parser.add_argument("trace", choices=sorted(TRACES))
    sys.stdout.write(as_csv(TRACES[parser.parse_args().trace]()))


if __name__ == "__main__":
    main()
