"""What a layer runs between its matrix products: norm, rotary embedding, activation, cache write, sampler.

On a GPU the functions are compiled by Inductor into one kernel each, as serving engines do; on a CPU they run
as written. Shapes may change from call to call.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    from profiler.device import Device

_EPSILON = 1e-5
_ROPE_BASE = 10000.0


def add_rmsnorm(x: Any, residual: Any, weight: Any) -> tuple[Any, Any]:
    """The norm of x + residual, and that sum as the next residual."""
    total = x + residual
    return rmsnorm(total, weight), total


def rmsnorm(x: Any, weight: Any) -> Any:
    """x over its root mean square, in float32."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + _EPSILON)
    return scaled.to(x.dtype) * weight


def rope(heads: Any, positions: Any, cos_sin: Any) -> Any:
    """Rotary embedding of [tokens, heads, head_dim], halves rotated against each other."""
    cos, sin = cos_sin[positions].unsqueeze(1).chunk(2, dim=-1)
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def silu_and_mul(x: Any) -> Any:
    """SiLU of the gate half times the other half."""
    gate, up = x.chunk(2, dim=-1)
    return functional.silu(gate) * up


def gelu(x: Any) -> Any:
    """The activation of an MLP without a gate."""
    return functional.gelu(x)


def write_kv(keys: Any, values: Any, slots: Any, k: Any, v: Any) -> None:
    """New keys and values [tokens, kv_heads, head_dim] into their slots of a flat cache."""
    k.index_copy_(0, slots, keys)
    v.index_copy_(0, slots, values)


def embed(tokens: Any, table: Any) -> Any:
    """Rows of the embedding."""
    return functional.embedding(tokens, table)


def sample(logits: Any) -> Any:
    """The likeliest token of each sequence, from float32 logits; no temperature, no top-p."""
    return logits.float().argmax(dim=-1)


def rope_table(length: int, head_dim: int, dtype: Any, device: Any) -> Any:
    """Cosines and sines of every position, side by side: [length, head_dim]."""
    steps = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim
    angles = torch.arange(length, dtype=torch.float32, device=device)[:, None] * _ROPE_BASE**-steps
    return torch.cat((angles.cos(), angles.sin()), dim=-1).to(dtype)


@dataclass(frozen=True, slots=True)
class Elementwise:
    """The functions of this module as they run on one device."""

    compiled: bool
    add_rmsnorm: Callable[..., Any]
    rmsnorm: Callable[..., Any]
    rope: Callable[..., Any]
    silu_and_mul: Callable[..., Any]
    gelu: Callable[..., Any]
    write_kv: Callable[..., Any]
    sample: Callable[..., Any]

    @classmethod
    def on(cls, device: Device) -> Elementwise:
        """Compiled for a GPU, at the first call; plain for a CPU, and where Triton is absent."""
        functions = (add_rmsnorm, rmsnorm, rope, silu_and_mul, gelu, write_kv, sample)
        if not device.is_cuda or find_spec("triton") is None:
            return cls(False, *functions)
        return cls(True, *(torch.compile(function, dynamic=True) for function in functions))
