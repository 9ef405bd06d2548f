"""The matrix product of a linear layer, as serving engines run it on unquantised weights: `F.linear`."""

from __future__ import annotations

from typing import Any

from torch.nn.functional import linear as _linear


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """[m, k] x [n, k]^T (+ bias): cuBLAS on a GPU, oneDNN or MKL on a CPU."""
    return _linear(x, weight, bias)
