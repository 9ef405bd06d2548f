"""Independent random streams of one seed, so that a change to one leaves the draws of the others alone."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

Stream = Literal["arrivals", "prompts", "outputs", "rows", "routing"]


def stream(seed: int, name: Stream) -> np.random.Generator:
    """The generator of one stream; the same seed and name give the same draws, whatever the others drew."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(get_args(Stream).index(name),)))
