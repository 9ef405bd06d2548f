"""Ways to hold measured points out of a fit: which of them a simulation is like.

- `random`: single points; their neighbours on every side are known.
- `shapes`: whole weights (n, k) or head counts; the case of a model that was not measured.
- `axes`: whole values of one axis, ends excepted; the case of sizes between those of the grid.
- `beyond`: the largest value of an axis; the case of sizes outside of what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from profiler.families import Family

FOLDS = 5
MIN_AXIS_VALUES = 5
"""An axis with fewer values is not interpolated: nothing of it is held out."""
MIN_SHAPES = 5
SEED = 0

SPLITS = ("random", "shapes", "axes", "beyond")

Mask = np.ndarray
Fold = tuple[str, Mask]
"""What was held out (the axis, or the split's name) and the points that it concerns."""


def held_out(family: Family, split: str, folds: int = FOLDS) -> Iterator[Fold]:
    """The folds of a split, of which the first `folds` are yielded per axis; none where it does not apply."""
    if split == "random":
        groups = np.random.default_rng(SEED).permutation(len(family)) % FOLDS
        yield from (("random", groups == fold) for fold in range(min(folds, FOLDS)))
    elif split == "shapes":
        yield from _shape_folds(family, folds)
    else:
        for axis in family.kind.axes:
            values, index = np.unique(family.sizes[axis], return_inverse=True)
            if len(values) < MIN_AXIS_VALUES:
                continue
            if split == "beyond":
                yield axis, index == len(values) - 1
            else:
                inner = (index > 0) & (index < len(values) - 1)
                yield from (
                    (axis, inner & ((index - 1) % FOLDS == fold)) for fold in range(min(folds, FOLDS))
                )


def _shape_folds(family: Family, folds: int) -> Iterator[Fold]:
    keys = np.stack([family.sizes[name] for name in family.kind.shape], axis=1)
    shapes, index = np.unique(keys, axis=0, return_inverse=True)
    if len(shapes) < MIN_SHAPES:
        return
    groups = np.random.default_rng(SEED).permutation(len(shapes)) % FOLDS
    yield from (("shapes", groups[index.ravel()] == fold) for fold in range(min(folds, FOLDS)))
