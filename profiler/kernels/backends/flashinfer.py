"""FlashInfer: decode and prefill wrappers as in vLLM, or its one persistent kernel for mixed batches."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from profiler.kernels.attention import AttentionBackend, Run, scale
from profiler.kernels.batch import cumulative
from simulator.errors import ConfigError

if TYPE_CHECKING:
    from profiler.device import Device
    from profiler.kernels.paged import AttnStep, KVPool

_WORKSPACE_BYTES = 256 * 2**20


class FlashInfer(AttentionBackend):
    """A mixed batch is two launches: the decodes through one wrapper, the chunks through another.

    `plan` is host work of microseconds to milliseconds that a server pays once per step; it is not timed.
    """

    name = "flashinfer"
    policy = "two launches, splits chosen by plan()"

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._wrappers: tuple[Any, Any] | None = None

    @classmethod
    def unusable(cls, device: Device) -> str:
        """Needs the package, a GPU, and a compiler or FlashInfer's cache of compiled kernels."""
        if not device.is_cuda or device.capability < (8, 0):
            return "needs a CUDA GPU of compute capability 8.0 or later"
        try:
            import flashinfer  # noqa: F401
        except (ImportError, OSError, RuntimeError) as error:
            return f"flashinfer cannot be imported: {error}"
        compiler = shutil.which("nvcc") or os.environ.get("CUDA_HOME")
        if not compiler and find_spec("flashinfer_jit_cache") is None:
            return "flashinfer has neither nvcc nor flashinfer-jit-cache to get its kernels from"
        return ""

    @classmethod
    def versions(cls) -> dict[str, str]:
        """The package's version."""
        import flashinfer

        return {"flashinfer": flashinfer.__version__}

    def plan(self, step: AttnStep) -> Run:
        """Plan the decodes and the chunks."""
        decode, prefill = self._open(step)
        count, total = step.batch.num_decodes, step.batch.num_seqs
        if count:
            self._plan_decode(decode, step, count)
        if count < total:
            self._plan_prefill(prefill, step, count)

        def run(q: Any, pool: KVPool, out: Any) -> Any:
            cache = (pool.k, pool.v)
            if count:
                decode.run(q[:count], cache, out=out[:count])
            if count < total:
                prefill.run(q[count:], cache, out=out[count:])
            return out

        return run

    def _open(self, step: AttnStep) -> tuple[Any, Any]:
        if self._wrappers is None:
            import torch
            from flashinfer import BatchDecodeWithPagedKVCacheWrapper, BatchPrefillWithPagedKVCacheWrapper

            spaces = [
                torch.zeros(_WORKSPACE_BYTES, dtype=torch.uint8, device=self.device.handle) for _ in range(2)
            ]
            self._wrappers = (
                BatchDecodeWithPagedKVCacheWrapper(
                    spaces[0], "NHD", use_tensor_cores=step.batch.q_heads > step.batch.kv_heads
                ),
                BatchPrefillWithPagedKVCacheWrapper(spaces[1], "NHD"),
            )
        return self._wrappers

    def _plan_decode(self, wrapper: Any, step: AttnStep, count: int) -> None:
        batch = step.batch
        wrapper.plan(
            *_pages(step, 0, count),
            batch.q_heads,
            batch.kv_heads,
            batch.head_dim,
            batch.page_size,
            window_left=batch.window_size[0],
            sm_scale=scale(batch),
            **_dtypes(step),
        )

    def _plan_prefill(self, wrapper: Any, step: AttnStep, count: int) -> None:
        import torch

        batch = step.batch
        wrapper.plan(
            torch.from_numpy(cumulative(batch.q_lens[count:])),
            *_pages(step, count, batch.num_seqs),
            batch.q_heads,
            batch.kv_heads,
            batch.head_dim,
            batch.page_size,
            causal=True,
            window_left=batch.window_size[0],
            sm_scale=scale(batch),
            **_dtypes(step),
        )


class FlashInferBatch(FlashInfer):
    """`BatchAttention`: one persistent kernel for decodes and chunks together; no sliding window."""

    name = "flashinfer_batch"
    policy = "one persistent kernel"

    def plan(self, step: AttnStep) -> Run:
        """Plan the whole batch."""
        import torch

        batch = step.batch
        if batch.window:
            raise ConfigError("attention backend flashinfer_batch has no sliding window")
        wrapper = self._attention()
        indptr, indices, _ = _pages(step, 0, batch.num_seqs)
        wrapper.plan(
            torch.from_numpy(cumulative(batch.q_lens)).to(self.device.handle),
            indptr.to(self.device.handle),
            indices.to(self.device.handle),
            step.kv_lens,
            batch.q_heads,
            batch.kv_heads,
            batch.head_dim,
            batch.head_dim,
            batch.page_size,
            causal=True,
            sm_scale=scale(batch),
            **_dtypes(step),
        )

        def run(q: Any, pool: KVPool, out: Any) -> Any:
            return wrapper.run(q, (pool.k, pool.v), out=out)[0]

        return run

    def _attention(self) -> Any:
        if self._wrappers is None:
            from flashinfer import BatchAttention

            self._wrappers = (BatchAttention("NHD", str(self.device.handle)), None)
        return self._wrappers[0]


def _pages(step: AttnStep, first: int, last: int) -> tuple[Any, Any, Any]:
    """FlashInfer's page lists of sequences first..last-1: row starts, pages, fill of each last page."""
    import torch

    batch, table = step.batch, step.table_host
    if table is None:
        raise RuntimeError("FlashInfer reads paged caches only")
    pages = batch.pages[first:last]
    used = [row[:count] for row, count in zip(table[first:last], pages, strict=True)]
    fill = [(kv_len - 1) % batch.page_size + 1 for kv_len in batch.kv_lens[first:last]]
    return (
        torch.from_numpy(cumulative(pages)),
        torch.from_numpy(np.concatenate(used)).to(step.table.device),
        torch.tensor(fill, dtype=torch.int32),
    )


def _dtypes(step: AttnStep) -> dict[str, Any]:
    from profiler.device import torch_dtype

    dtype = torch_dtype(step.batch.dtype)
    return {"q_data_type": dtype, "kv_data_type": dtype}
