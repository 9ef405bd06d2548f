"""The micro-measurements of the paper's artifact, and of others on its machines, as batches to predict.

A measurement is the time of one iteration, or of several in a row; never of a run under load.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from simulator.batch import BatchShape, Chunk
from simulator.reproduce.capacity import ISOLATED
from simulator.reproduce.paper import Published
from simulator.reproduce.shapes import batch, batch_s, cut

if TYPE_CHECKING:
    from simulator.config import Scenario
    from simulator.reproduce.lab import Lab

DECODES = (1, 8, 16, 32, 64, 128)
CONTEXTS = (1024, 2560, 4096)
MOST_KV = 400_000
"""KV tokens of an A100 beside the weights."""
BUDGETS = (256, 512, 1024, 2048)


class Measurement(NamedTuple):
    """Iterations of a deployment and their measured time together, in ms."""

    id: str
    scenario: Scenario
    shapes: tuple[BatchShape, ...]
    published: Published

    @property
    def family(self) -> str:
        """Which set of measurements it belongs to."""
        return self.id.split("/")[1]


def measurements(lab: Lab) -> list[Measurement]:
    """All of them."""
    return [*_decode_iterations(lab), *_niyama(lab), *_yi(lab)]


def _decode_iterations(lab: Lab) -> Iterator[Measurement]:
    for model in lab.paper.deployments:
        yield _measured(lab, f"slo/{model}", model, batch(decodes=32, kv=4096))


def _yi(lab: Lab) -> Iterator[Measurement]:
    for tokens in (128, 256, 512, 1024, 2048, 4096, 8192, 16_384):
        yield _measured(lab, f"prefill/{tokens}", "yi", batch([Chunk(tokens, 0)]))
    for decodes in (1, 2, 4, 8, 16, 32, 64, 128):
        yield _measured(lab, f"decode/{decodes}", "yi", batch(decodes=decodes, kv=1020))
    yield _measured(lab, "piggyback/4-decodes", "yi", batch(decodes=4, kv=1024))
    yield _measured(
        lab, "piggyback/1021-prefill-and-3-decodes", "yi", batch([Chunk(1021, 0)], decodes=3, kv=1024)
    )
    yield _measured(lab, "piggyback/1024-prefill", "yi", batch([Chunk(1024, 0)]))
    for prompt in (2048, 4096, 8192, 16_384):
        for size in (512, 1024, 2048, 16_384):
            shapes = [batch([chunk]) for chunk in cut(prompt - 1, size)]
            yield _measured(lab, f"chunks/{prompt}/{size}", "yi", *shapes)


def _measured(lab: Lab, id: str, model: str, *shapes: BatchShape) -> Measurement:
    published = lab.paper.published(f"calibration/{id}")
    assert published is not None  # a test holds the data file to it
    return Measurement(f"calibration/{id}", lab.scenario(model), shapes, published)


def _niyama(lab: Lab) -> Iterator[Measurement]:
    """Whole iterations of Llama-3-8B, which has Mistral's shapes, by the model that Niyama fitted to them."""
    scenario = lab.scenario("mistral")
    measured = scenario.with_({"kernels": ISOLATED})
    shapes = {
        f"niyama-decode/{decodes}x{context}": batch(decodes=decodes, kv=context)
        for decodes, context in product(DECODES, CONTEXTS)
        if decodes * context <= MOST_KV
    }
    for budget in BUDGETS:
        beside = batch([Chunk(budget - 64, 1024)], decodes=64, kv=2560)
        shapes[f"niyama-prefill/{budget}"] = batch([Chunk(budget, 0)])
        shapes[f"niyama-mixed/{budget - 64}-prefill-and-64-decodes"] = beside
    for name, shape in shapes.items():
        published = Published(1e3 * batch_s(measured, shape), "ms", "artifact", ISOLATED)
        yield Measurement(f"calibration/{name}", scenario, (shape,), published)
