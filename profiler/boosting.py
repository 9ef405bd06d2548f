"""Gradient boosting with scikit-learn, handed over as plain trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.latency.kernels import Array
from simulator.latency.trees import BoostedTrees

FEATURE_SHARE = 0.3  # of the features that a split may choose from: trees that differ average out noise
SEED = 0


@dataclass(frozen=True, slots=True)
class Boosting:
    """At most how many trees, of what size, and how much each of them may correct."""

    max_trees: int
    max_leaves: int
    max_depth: int
    learning_rate: float
    max_min_leaf: int
    """Least rows in a leaf where the table is large; in a small one it is a fiftieth of the rows."""

    def num_trees(self, num_rows: int) -> int:
        """Trees for a table of that size: a small one needs fewer."""
        return int(np.clip(num_rows // 2, 60, self.max_trees))

    def min_leaf(self, num_rows: int) -> int:
        """Least rows in a leaf."""
        return int(np.clip(num_rows // 50, 3, self.max_min_leaf))


def fit_trees(features: Array, target: Array, boosting: Boosting) -> BoostedTrees:
    """Trees that predict the target, least squares; a table too small to split yields its median alone."""
    min_leaf = boosting.min_leaf(len(target))
    if len(target) < 2 * min_leaf:
        return _constant(float(np.median(target)))
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(
        max_iter=boosting.num_trees(len(target)),
        learning_rate=boosting.learning_rate,
        max_leaf_nodes=boosting.max_leaves,
        max_depth=boosting.max_depth,
        max_features=FEATURE_SHARE,
        min_samples_leaf=min_leaf,
        early_stopping=False,
        random_state=SEED,
    )
    model.fit(features, target)
    return _convert(model)


def _constant(value: float) -> BoostedTrees:
    none = np.zeros(0, dtype=np.int32)
    return BoostedTrees(value, none, none, np.zeros(0), none, np.zeros(0))


def _convert(model: Any) -> BoostedTrees:
    """The fitted trees, with their nodes in the order that `BoostedTrees` asks for."""
    trees = [_ordered(stage[0].nodes) for stage in model._predictors]
    nodes = np.concatenate([tree for tree, _ in trees])
    right = np.concatenate([distance for _, distance in trees])
    return BoostedTrees(
        baseline=float(np.ravel(model._baseline_prediction)[0]),
        sizes=np.array([len(tree) for tree, _ in trees], dtype=np.int32),
        feature=nodes["feature_idx"].astype(np.int32) * (right > 0),
        threshold=np.where(right > 0, nodes["num_threshold"], 0.0),
        right=right,
        value=np.where(right > 0, 0.0, nodes["value"]),
    )


def _ordered(nodes: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
    """Nodes with every left child right after its parent, and the distance from each to its right child."""
    order: list[int] = []
    stack = [0]
    while stack:
        index = stack.pop()
        order.append(index)
        if not nodes[index]["is_leaf"]:
            stack += [int(nodes[index]["right"]), int(nodes[index]["left"])]
    place = {index: position for position, index in enumerate(order)}
    right = [
        0 if nodes[index]["is_leaf"] else place[int(nodes[index]["right"])] - position
        for position, index in enumerate(order)
    ]
    return nodes[order], np.array(right, dtype=np.int32)
