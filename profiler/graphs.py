"""A forward pass in piecewise CUDA graphs, as serving engines run it: all but attention is captured.

Launching a layer's dozen kernels one by one takes the host longer than a GPU needs to run them for a small
batch. Graphs are made for some numbers of tokens; a batch is padded to the next one, and its padding writes
to a spare cache slot. Larger batches run without graphs. On a CPU nothing is captured, but the pieces are the
same. Not yet run on a GPU.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from profiler.kernels.attention import Run
    from profiler.model import Layer, StepInputs, Transformer

SIZES = (1, 2, 4, 8, 16, 32, *range(64, 513, 64))
"""Numbers of tokens that graphs are made for."""

Piece = Callable[[], tuple[Any, ...]]


class PiecewiseGraphs:
    """Runs a model's iterations through graphs, one set for each size."""

    def __init__(self, model: Transformer) -> None:
        self._model = model
        self._sets: dict[int, _GraphSet] = {}

    def prepare(self, most_tokens: int) -> None:
        """Capture every size that iterations of at most so many tokens need."""
        for size in SIZES[: bisect_left(SIZES, most_tokens) + 1]:
            self._sets[size] = _GraphSet(self._model, size)

    def forward(self, inputs: StepInputs, attend: Run) -> Any:
        """One iteration on the device: the sampled tokens."""
        place = bisect_left(SIZES, len(inputs.tokens))
        graphs = self._sets.get(SIZES[place]) if place < len(SIZES) else None
        if graphs is None:
            return self._model.forward(inputs, attend)
        return self._model.sample(self._model.head(graphs.hidden(inputs, attend), inputs.sampled))


class _GraphSet:
    """The pieces of one size: one before each layer's attention, and one behind the last."""

    def __init__(self, model: Transformer, size: int) -> None:
        device = model.device.handle
        self._model = model
        self._tokens, self._positions = (
            torch.zeros(size, dtype=torch.int64, device=device) for _ in range(2)
        )
        self._slots = torch.full_like(self._tokens, model.spare_slot)
        self._attended = torch.zeros(
            size, model.spec.num_heads, model.spec.head_dim, dtype=model.torch_dtype, device=device
        )
        self._pool: Any = torch.cuda.graph_pool_handle() if model.device.is_cuda else None
        self._runs: list[Callable[[], None]] = []
        self._queries: list[Any] = []
        self._last: Any = None
        self._capture_all()

    def hidden(self, inputs: StepInputs, attend: Run) -> Any:
        """The last hidden state of a batch that is padded to this size; valid until the next call."""
        count = len(inputs.tokens)
        self._tokens[:count].copy_(inputs.tokens)
        self._positions[:count].copy_(inputs.positions)
        self._slots[:count].copy_(inputs.slots)
        self._slots[count:].fill_(self._model.spare_slot)
        out = self._attended[:count]
        for number, layer in enumerate(self._model.layers):
            self._runs[number]()
            result = attend(self._queries[number][:count], layer.pool, out)
            if result.data_ptr() != out.data_ptr():
                out.copy_(result)
        self._runs[-1]()
        return self._last[:count]

    def _capture_all(self) -> None:
        layers = self._model.layers
        query, residual = self._capture(partial(self._first, layers[0]))
        self._queries.append(query)
        for behind, layer in pairwise(layers):
            query, residual = self._capture(partial(self._between, behind, layer, residual))
            self._queries.append(query)
        (self._last,) = self._capture(partial(self._end, layers[-1], residual))

    def _first(self, layer: Layer) -> tuple[Any, ...]:
        return self._before(layer, None, self._model.embed(self._tokens))

    def _between(self, behind: Layer, layer: Layer, residual: Any) -> tuple[Any, ...]:
        return self._before(layer, *self._model.after_attention(behind, self._attended.flatten(1), residual))

    def _before(self, layer: Layer, hidden: Any, residual: Any) -> tuple[Any, ...]:
        return self._model.before_attention(layer, hidden, residual, self._positions, self._slots)

    def _end(self, behind: Layer, residual: Any) -> tuple[Any, ...]:
        return (
            self._model.last_norm(*self._model.after_attention(behind, self._attended.flatten(1), residual)),
        )

    def _capture(self, piece: Piece) -> tuple[Any, ...]:
        """The outputs of a piece, which every later run of it fills again."""
        outputs = piece()  # compiles what is not compiled, and gives an uncaptured piece its outputs
        if self._pool is None:
            self._runs.append(lambda: _refill(outputs, piece()))
            return outputs
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            outputs = piece()
        self._runs.append(graph.replay)
        return outputs


def _refill(outputs: tuple[Any, ...], fresh: tuple[Any, ...]) -> None:
    for old, new in zip(outputs, fresh, strict=True):
        old.copy_(new)
