"""Attention on the CPU: the reference against a formula written out, backends against it, and the gate."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="profiling needs torch: pip install 'stallfree[profile]'")

from profiler.device import open_device
from profiler.kernels.backends.sdpa import Sdpa
from profiler.kernels.batch import AttnBatch
from profiler.kernels.gate import GateError, gate_batches, pass_gate, random_inputs, relative_error
from profiler.kernels.reference import reference_attention
from profiler.kernels.registry import BACKENDS, list_backends, open_backend
from simulator.errors import ConfigError
from simulator.latency.kernels import AttentionHeads

CPU = open_device("cpu")


def one_by_one(q, keys, values, window):
    """Attention of the last len(q) positions, each query, head and key in its own Python loop."""
    tokens, heads, dim = q.shape
    out = np.zeros((tokens, heads, dim))
    group = heads // keys.shape[1]
    for token in range(tokens):
        position = len(keys) - tokens + token
        seen = [i for i in range(position + 1) if not window or i > position - window]
        for head in range(heads):
            scores = [float(q[token, head] @ keys[i, head // group]) / math.sqrt(dim) for i in seen]
            weights = np.exp(np.array(scores) - max(scores))
            weights /= weights.sum()
            out[token, head] = sum(w * values[i, head // group] for w, i in zip(weights, seen, strict=True))
    return out


@pytest.mark.parametrize("window", [0, 5])
def test_the_reference_is_the_formula(window: int) -> None:
    batch = AttnBatch((1, 1, 6), (9, 3, 11), 4, 2, 8, page_size=4, dtype="fp32", window=window)
    q, pool, _, step = random_inputs(batch, packed=True, device=CPU.handle)
    got = reference_attention(q, pool, step).numpy()
    start = 0
    for row, (q_len, kv_len) in enumerate(zip(batch.q_lens, batch.kv_lens, strict=True)):
        slots = [int(step.table[row, i // 4]) * 4 + i % 4 for i in range(kv_len)]
        keys, values = (part.numpy()[slots] for part in pool.flat)
        expected = one_by_one(q[start : start + q_len].numpy(), keys, values, window)
        assert got[start : start + q_len] == pytest.approx(expected, abs=1e-5)
        start += q_len


@pytest.mark.parametrize("heads", [(8, 2, 32), (4, 4, 16), (8, 1, 64), (14, 2, 64)])
@pytest.mark.parametrize("window", [0, 64])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_sdpa_passes_the_gate(heads: tuple[int, int, int], window: int, dtype: str) -> None:
    errors = pass_gate(Sdpa(CPU), gate_batches(AttentionHeads(*heads, window), 16, dtype))
    assert set(errors) == {"prefix chunk", "decode", "mixed"}
    assert max(errors.values()) < (5e-3 if dtype == "bf16" else 1e-5)


@pytest.mark.parametrize("page_size", [1, 16, 64, 256])
def test_any_page_size_gives_the_same_answer(page_size: int) -> None:
    batch = AttnBatch((1, 1, 30), (300, 7, 65), 8, 2, 32, page_size, "fp32")
    assert relative_error(Sdpa(CPU), batch) < 1e-5


@pytest.mark.parametrize(
    ("q_lens", "kv_lens"),
    [((1,), (1,)), ((1,), (16,)), ((1,), (17,)), ((7,), (7,)), ((1, 3, 1), (5, 9, 40)), ((2, 2), (2, 300))],
)
@pytest.mark.parametrize("window", [0, 1, 16])
def test_edges_of_pages_and_windows(q_lens, kv_lens, window: int) -> None:
    batch = AttnBatch(q_lens, kv_lens, 8, 2, 32, 16, "fp32", window)
    assert relative_error(Sdpa(CPU), batch) < 1e-5


class Broken(Sdpa):
    """Computes something else than attention in one respect."""

    name = "broken"
    fault = ""

    def plan(self, step):
        attend = super().plan(step)

        def run(q, pool, out):
            if self.fault == "scale":
                return attend(q * 2, pool, out)
            result = attend(q, pool, torch.empty_like(out))
            if self.fault == "unwritten":
                out[:-1] = result[:-1]
                return out
            return result.roll(1, 0)

        return run


@pytest.mark.parametrize("fault", ["scale", "unwritten", "order"])
def test_no_gate_no_data(fault: str) -> None:
    backend = Broken(CPU)
    backend.fault = fault
    with pytest.raises(GateError, match="'broken' fails the correctness gate"):
        pass_gate(backend, gate_batches(AttentionHeads(8, 2, 32), 16, "fp32"))


def test_every_backend_says_why_it_cannot_be_used() -> None:
    statuses = {status.name: status for status in list_backends("cpu")}
    assert set(statuses) == set(BACKENDS)
    assert statuses["sdpa"].usable
    assert all(status.usable != bool(status.reason) for status in statuses.values())
    assert "compute capability 9.0" in statuses["fa3"].reason


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_an_absent_gpu_is_a_reason_too() -> None:
    assert all("no such device here" in status.reason for status in list_backends("cuda:0"))
    with pytest.raises(ConfigError, match="device 'cuda:0': no such device here"):
        open_device("cuda:0")


@pytest.mark.parametrize("name", ["auto", "torch", "sdpa"])
def test_the_cpu_gets_torchs_own_kernel(name: str) -> None:
    assert open_backend(name, CPU).name == "sdpa"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fa33", "unknown attention backend 'fa33'.*did you mean 'fa3'"),
        ("vllm", "'vllm' cannot be used on cpu.*: needs a CUDA GPU"),
    ],
)
def test_a_backend_that_cannot_be_had_is_named(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_backend(name, CPU)


def test_flash_attention_2_reads_pages_of_256_tokens_only() -> None:
    with pytest.raises(ConfigError, match="fa2 needs a multiple of 256, found 16"):
        BACKENDS["fa2"](CPU).check(16)
