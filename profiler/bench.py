"""Turns a point of the grid into calls: one for each copy of the weights or KV cache in rotation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from profiler.device import BYTES, torch_dtype
from profiler.kernels.attention import attention
from profiler.kernels.batch import AttnBatch, page_table, spread_lengths
from profiler.kernels.elementwise import Elementwise, embed, rope_table
from profiler.kernels.linear import linear
from profiler.kernels.paged import KVPool, attn_step, pool_shape
from profiler.model import Transformer, step_inputs
from profiler.rotation import num_copies
from profiler.timing import Call

if TYPE_CHECKING:
    from profiler.device import Device
    from profiler.kernels.attention import AttentionBackend
    from profiler.tables import KernelRow
    from simulator.hardware import ModelSpec

_CACHE_SLOTS = 65536
_HOST_KV_TOKENS = 512
_LAYER_PAGES = 8
_ANCHORS = {"cuda": (8192, 4 * 10**9), "cpu": (256, 16 * 2**20)}
"""Rows of a square matrix, bytes of a copy."""


class Arena:
    """Random normal numbers in one buffer that grows; what is taken from it overlaps with what was before."""

    def __init__(self, dtype: str, device: Device) -> None:
        self._dtype = torch_dtype(dtype)
        self._device = device.handle
        self._flat = torch.empty(0, dtype=self._dtype, device=self._device)

    def take(self, *shape: int) -> Any:
        """A tensor of random numbers, valid until the next call."""
        size = prod(shape)
        if size > self._flat.numel():
            self._flat = torch.empty(0, dtype=self._dtype, device=self._device)  # free before growing
            self._flat = torch.randn(size, dtype=self._dtype, device=self._device)
        return self._flat[:size].view(shape)


class Bench:
    """Makes the calls of any point of one model, attention backend and page size."""

    def __init__(
        self, model: ModelSpec, device: Device, backend: AttentionBackend, page_size: int, dtype: str
    ) -> None:
        self._model = model
        self._device = device
        self._backend = backend
        self._page_size = backend.table_page_size(page_size)
        self._dtype = dtype
        self._ops = Elementwise.on(device)
        self._rotated = Arena(dtype, device)
        self._rng = np.random.default_rng(0)
        self._makers: dict[str, Callable[[KernelRow], list[Call]]] = {
            "gemm": self._gemm,
            "attention": self._attention,
            "rmsnorm": self._rmsnorm,
            "rope": self._rope,
            "activation": self._activation,
            "kv_write": self._kv_write,
            "embedding": self._embedding,
            "sampler": self._sampler,
            "host": self._host,
        }

    @property
    def elementwise(self) -> str:
        """How the elementwise operators run, in words."""
        return "compiled by Inductor" if self._ops.compiled else "eager"

    def calls(self, point: KernelRow) -> list[Call]:
        """The calls that measure a point; they share buffers with those of the point before."""
        return self._makers[point.op](point)

    def layer(self) -> Call:
        """One layer of the model over two decodes: what a CPU's caches see between two calls."""
        spec = self._model.model_copy(update={"num_layers": 1, "vocab_size": 64})
        model = Transformer(spec, self._device, self._backend, self._dtype, _LAYER_PAGES, self._page_size)
        kv_lens = (4 * self._page_size,) * 2
        table = np.arange(_LAYER_PAGES, dtype=np.int32).reshape(2, -1)
        inputs = model.inputs(model.batch((1, 1), kv_lens), table, np.ones(2, dtype=bool))
        return partial(model.forward, inputs, model.plan(inputs))

    def anchors(self) -> tuple[Call, Call]:
        """A matrix product and a copy repeated through a run: they tell whether the device drifts."""
        size, bytes_copied = _ANCHORS["cuda" if self._device.is_cuda else "cpu"]
        bytes_copied = min(bytes_copied, self._device.memory_bytes // 8)
        gemm = self._rotated.take(2, size, size)
        copy = self._rotated.take(2, bytes_copied // BYTES[self._dtype])
        return partial(torch.mm, gemm[0], gemm[1]), partial(copy[0].copy_, copy[1])

    def _gemm(self, point: KernelRow) -> list[Call]:
        copies = self._copies(point)
        weights = self._rotated.take(copies, point.n, point.k)
        x = self._normal(point.m, point.k)
        return [partial(linear, x, weight) for weight in weights]

    def _attention(self, point: KernelRow) -> list[Call]:
        batch = batch_of(point, self._page_size)
        num_pages = sum(batch.pages)
        table = page_table(batch.pages, num_pages, self._rng) if self._page_size else None
        shape = pool_shape(num_pages, self._page_size, point.kv_heads, point.head_dim, self._backend.packed)
        storage = self._rotated.take(self._copies(point), *shape)
        pools = [KVPool.of(copy, self._backend.packed) for copy in storage]
        rotated = self._normal(batch.num_tokens, point.q_heads + point.kv_heads, point.head_dim)
        q = rotated[:, : point.q_heads]
        attend = self._backend.plan(attn_step(batch, table, self._device.handle))
        return [partial(attention, attend, q, pool) for pool in pools]

    def _rmsnorm(self, point: KernelRow) -> list[Call]:
        x, residual = self._normal(point.m, point.width), self._normal(point.m, point.width)
        weight = self._normal(point.width)
        return [lambda: self._ops.add_rmsnorm(x, residual, weight)]

    def _rope(self, point: KernelRow) -> list[Call]:
        head_dim = self._model.head_dim
        heads = point.width // head_dim
        qkv = self._normal(point.m, point.width + head_dim)
        positions = self._integers(point.m, point.m)
        cos_sin = rope_table(point.m, head_dim, qkv.dtype, self._device.handle)
        return [lambda: self._ops.rope(qkv.view(point.m, -1, head_dim)[:, :heads], positions, cos_sin)]

    def _activation(self, point: KernelRow) -> list[Call]:
        gated = self._model.gated_mlp
        x = self._normal(point.m, point.width * (2 if gated else 1))
        activation = self._ops.silu_and_mul if gated else self._ops.gelu
        return [lambda: activation(x)]

    def _kv_write(self, point: KernelRow) -> list[Call]:
        head_dim = self._model.head_dim
        kv_heads = point.width // (2 * head_dim)
        heads = self._normal(point.m, 2 * kv_heads, head_dim)
        shape = pool_shape(_CACHE_SLOTS, 1, kv_heads, head_dim, self._backend.packed)
        pool = KVPool.of(self._rotated.take(*shape), self._backend.packed)
        slots = torch.from_numpy(self._rng.permutation(_CACHE_SLOTS)[: point.m]).to(self._device.handle)
        return [lambda: self._ops.write_kv(heads[:, :kv_heads], heads[:, kv_heads:], slots, *pool.flat)]

    def _embedding(self, point: KernelRow) -> list[Call]:
        table = self._rotated.take(self._model.vocab_size, point.width)
        tokens = self._integers(point.m, self._model.vocab_size)
        return [lambda: embed(tokens, table)]

    def _sampler(self, point: KernelRow) -> list[Call]:
        logits = self._normal(point.m, point.width)
        return [lambda: self._ops.sample(logits)]

    def _host(self, point: KernelRow) -> list[Call]:
        """What a replay's host does between scheduling and launching: page tables, copies, the plan."""
        model = self._model
        batch = AttnBatch(
            (1,) * point.m,
            (_HOST_KV_TOKENS,) * point.m,
            model.num_heads,
            model.num_kv_heads,
            model.head_dim,
            self._page_size or 1,
            self._dtype,
            model.sliding_window or 0,
        )
        table = page_table(batch.pages, sum(batch.pages), self._rng)
        samples = np.ones(point.m, dtype=bool)

        def prepare() -> None:
            inputs = step_inputs(batch, table, samples, model.vocab_size, self._device.handle)
            self._backend.plan(inputs.attn)

        return [prepare]

    def _copies(self, point: KernelRow) -> int:
        return num_copies(point, self._model, self._device.cache_bytes)

    def _normal(self, *shape: int) -> Any:
        return torch.randn(*shape, dtype=torch_dtype(self._dtype), device=self._device.handle)

    def _integers(self, count: int, limit: int) -> Any:
        return torch.from_numpy(self._rng.integers(0, limit, count)).to(self._device.handle)


def batch_of(point: KernelRow, page_size: int) -> AttnBatch:
    """The attention batch of a row: decodes first, then its chunks."""
    decodes: tuple[int, ...] = ()
    if point.num_decodes:
        decodes = spread_lengths(point.num_decodes, point.decode_kv_tokens, point.decode_kv_max_tokens)
    chunk, whole = point.chunk_tokens, point.prefix_tokens + point.chunk_tokens
    return AttnBatch(
        (1,) * len(decodes) + (chunk,) * point.num_chunks,
        decodes + (whole,) * point.num_chunks,
        point.q_heads,
        point.kv_heads,
        point.head_dim,
        page_size,
        point.dtype,
        point.window,
    )
