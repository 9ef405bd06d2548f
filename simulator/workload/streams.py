"""Independent random streams of one seed, so that a change to one leaves the draws of the others alone."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

Stream = Literal["arrivals", "prompts", "outputs", "rows", "routing", "phases", "classes"]


def stream(seed: int, name: Stream, *part: int) -> np.random.Generator:
    """The generator of one stream, or of a part of it, such as a class of requests.

    The same seed, name and part give the same draws, whatever the others drew.
    """
    key = (get_args(Stream).index(name), *part)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
