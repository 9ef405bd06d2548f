"""How a batch is put to each attention library, against stand-ins that take the library's published arguments
and compute with what they are given. The libraries themselves need a GPU."""

from __future__ import annotations

import sys
from itertools import pairwise
from types import ModuleType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="profiling needs torch: pip install 'stallfree[profile]'")

from dataclasses import replace

from profiler.device import open_device
from profiler.kernels.backends.vllm import vllm_num_splits
from profiler.kernels.batch import AttnBatch
from profiler.kernels.gate import gate_batches, pass_gate, relative_error
from profiler.kernels.registry import BACKENDS
from simulator.errors import ConfigError
from simulator.latency.kernels import AttentionHeads

HOPPER = replace(open_device("cpu"), capability=(9, 0))


def attend(q, keys, values, scale, window):
    """Causal attention of the last len(q) positions of one sequence, bottom-right aligned."""
    count, total = q.shape[0], keys.shape[0]
    group = q.shape[1] // keys.shape[1]
    keys, values = (part.repeat_interleave(group, 1).float() for part in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", q.float(), keys) * scale
    distance = torch.arange(total - count, total)[:, None] - torch.arange(total)[None, :]
    hidden = distance < 0
    if window[0] is not None and window[0] >= 0:
        hidden |= distance > window[0]
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), values).to(
        q.dtype
    )


def paged(q, k, v, cu_q, kv_lens, table, scale, window):
    """The same over a paged cache, sequence by sequence."""
    assert cu_q.dtype == kv_lens.dtype == table.dtype == torch.int32
    assert k.stride(-1) == v.stride(-1) == 1
    parts = []
    for row, (start, stop) in enumerate(zip(cu_q[:-1].tolist(), cu_q[1:].tolist(), strict=True)):
        pages = table[row, : -(-int(kv_lens[row]) // k.shape[1])].long()
        keys, values = (part[pages].flatten(0, 1)[: int(kv_lens[row])] for part in (k, v))
        parts.append(attend(q[start:stop], keys, values, scale, window))
    return torch.cat(parts)


def module(monkeypatch, name: str, **content) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(content, __path__=[])
    monkeypatch.setitem(sys.modules, name, made)
    return made


def kv_lens_of(cu_seqlens_k):
    return cu_seqlens_k[1:] - cu_seqlens_k[:-1]


@pytest.fixture
def flash_attn(monkeypatch):
    """flash-attn 2.8."""

    def flash_attn_varlen_func(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None,
        causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False,
        return_attn_probs=False, block_table=None,
    ):  # fmt: skip
        lens = kv_lens_of(cu_seqlens_k)
        assert causal
        assert k.shape[1] % 256 == 0
        assert (max_seqlen_q, max_seqlen_k) == (int(kv_lens_of(cu_seqlens_q).max()), int(lens.max()))
        return paged(q, k, v, cu_seqlens_q, lens, block_table, softmax_scale, window_size)

    def flash_attn_with_kvcache(
        q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None,
        cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False,
        window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0,
        return_softmax_lse=False,
    ):  # fmt: skip
        assert causal
        assert q.shape[1] == 1
        cu_q = torch.arange(len(q) + 1, dtype=torch.int32)
        out = paged(q[:, 0], k_cache, v_cache, cu_q, cache_seqlens, block_table, softmax_scale, window_size)
        return out.unsqueeze(1)

    module(
        monkeypatch,
        "flash_attn",
        flash_attn_varlen_func=flash_attn_varlen_func,
        flash_attn_with_kvcache=flash_attn_with_kvcache,
        __version__="2.8.3",
    )


@pytest.fixture
def flash_attn_interface(monkeypatch):
    """FlashAttention-3's own module."""
    planned = {}

    def get_scheduler_metadata(
        batch_size, max_seqlen_q, max_seqlen_k, num_heads_q, num_heads_kv, headdim, cache_seqlens,
        qkv_dtype=torch.bfloat16, headdim_v=None, cu_seqlens_q=None, cu_seqlens_k_new=None,
        cache_leftpad=None, page_size=None, max_seqlen_k_new=0, causal=False, window_size=(-1, -1),
        attention_chunk=0, has_softcap=False, num_splits=0, pack_gqa=None, sm_margin=0,
    ):  # fmt: skip
        assert len(cache_seqlens) == batch_size == len(cu_seqlens_q) - 1
        planned.update(max_k=max_seqlen_k, splits=num_splits, dtype=qkv_dtype, page_size=page_size)
        return planned

    def flash_attn_with_kvcache(
        q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None,
        cache_batch_idx=None, cache_leftpad=None, page_table=None, cu_seqlens_q=None, cu_seqlens_k_new=None,
        max_seqlen_q=None, rotary_seqlens=None, q_descale=None, k_descale=None, v_descale=None,
        softmax_scale=None, causal=False, window_size=(-1, -1), attention_chunk=0, softcap=0.0,
        rotary_interleaved=True, scheduler_metadata=None, num_splits=0, pack_gqa=None, sm_margin=0,
        return_softmax_lse=False,
    ):  # fmt: skip
        # The kernel takes the table's width for the longest sequence: the plan must have done so too.
        assert scheduler_metadata["max_k"] == page_table.shape[1] * k_cache.shape[1]
        assert scheduler_metadata["splits"] == num_splits
        assert scheduler_metadata["dtype"] == q.dtype
        assert causal
        return paged(q, k_cache, v_cache, cu_seqlens_q, cache_seqlens, page_table, softmax_scale, window_size)

    module(
        monkeypatch,
        "flash_attn_interface",
        get_scheduler_metadata=get_scheduler_metadata,
        flash_attn_with_kvcache=flash_attn_with_kvcache,
    )


@pytest.fixture
def flash_attn_cute(monkeypatch):
    """flash-attn-4."""

    def flash_attn_varlen_func(
        q, k, v, qv=None, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None,
        min_seqlen_k=None, seqused_q=None, seqused_k=None, gather_kv_indices=None, page_table=None,
        softmax_scale=None, causal=False, window_size=(None, None), learnable_sink=None, softcap=0.0,
        num_splits=1, pack_gqa=None, return_lse=False,
    ):  # fmt: skip
        assert causal
        assert num_splits == 1
        return paged(q, k, v, cu_seqlens_q, seqused_k, page_table, softmax_scale, window_size), None

    package = module(monkeypatch, "flash_attn")
    package.cute = module(monkeypatch, "flash_attn.cute", flash_attn_varlen_func=flash_attn_varlen_func)


@pytest.fixture
def vllm(monkeypatch):
    """vLLM 0.26's `vllm_flash_attn`."""
    planned = {}

    def get_scheduler_metadata(
        batch_size, max_seqlen_q, max_seqlen_k, num_heads_q, num_heads_kv, headdim, cache_seqlens,
        qkv_dtype=torch.bfloat16, headdim_v=None, cu_seqlens_q=None, cu_seqlens_k_new=None,
        cache_leftpad=None, page_size=None, max_seqlen_k_new=0, causal=False, window_size=(-1, -1),
        has_softcap=False, num_splits=0, pack_gqa=None, sm_margin=0,
    ):  # fmt: skip
        assert int(cache_seqlens.max()) == max_seqlen_k
        planned["splits"] = num_splits
        return planned

    def flash_attn_varlen_func(
        q, k, v, max_seqlen_q, cu_seqlens_q, max_seqlen_k, cu_seqlens_k=None, seqused_k=None, q_v=None,
        dropout_p=0.0, softmax_scale=None, causal=False, window_size=None, softcap=0.0, alibi_slopes=None,
        deterministic=False, return_attn_probs=False, block_table=None, return_softmax_lse=False, out=None,
        scheduler_metadata=None, q_descale=None, k_descale=None, v_descale=None, num_splits=0,
        output_scale=None, fa_version=2, s_aux=None,
    ):  # fmt: skip
        assert causal
        assert fa_version == 3
        assert scheduler_metadata["splits"] == num_splits
        # One tensor holds keys and values of a token side by side.
        assert v.data_ptr() - k.data_ptr() == k.shape[-1] * k.element_size()
        out.copy_(paged(q, k, v, cu_seqlens_q, seqused_k, block_table, softmax_scale, window_size))
        return out

    module(monkeypatch, "vllm", __version__="0.26.0")
    module(
        monkeypatch,
        "vllm.vllm_flash_attn",
        flash_attn_varlen_func=flash_attn_varlen_func,
        get_scheduler_metadata=get_scheduler_metadata,
        is_fa_version_supported=lambda version: version <= 3,
    )


@pytest.fixture
def vllm_library(monkeypatch):
    """The operators of vLLM's `_vllm_fa3_C`, positional as its C++ schema has them."""

    def get_scheduler_metadata(*arguments):
        assert len(arguments) == 23
        assert arguments[7] is torch.float32
        return "metadata"

    def fwd(*arguments):
        assert len(arguments) == 37
        q, k, v = arguments[:3]
        out, cu_q, kv_lens, max_q, max_k, table = (arguments[i] for i in (6, 7, 11, 12, 13, 14))
        scale, causal, left, right, metadata = (arguments[i] for i in (23, 24, 25, 26, 29))
        assert (causal, metadata) == (True, "metadata")
        assert (max_q, max_k) == (int(kv_lens_of(cu_q).max()), int(kv_lens.max()))
        out.copy_(paged(q, k, v, cu_q, kv_lens, table, scale, (left, right)))
        return out, None, None, None

    operators = SimpleNamespace(get_scheduler_metadata=get_scheduler_metadata, fwd=fwd)
    monkeypatch.setattr(torch.ops, "_vllm_fa3_C", operators, raising=False)


@pytest.fixture
def torch_fa2(monkeypatch):
    """aten's FlashAttention-2, which has no CPU kernel."""

    def forward(
        query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, return_debug_mask, *,
        scale=None, window_size_left=None, window_size_right=None, seqused_k=None, alibi_slopes=None,
    ):  # fmt: skip
        assert is_causal
        spans = zip(cum_seq_q.tolist(), cum_seq_k.tolist(), strict=True)
        ends = list(spans)
        parts = [
            attend(query[q0:q1], key[k0:k1], value[k0:k1], scale, (window_size_left, window_size_right))
            for (q0, k0), (q1, k1) in pairwise(ends)
        ]
        assert ends[-1] == (len(query), len(key))
        return torch.cat(parts), None, None, None, None

    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", forward)


class FakeWrapper:
    """FlashInfer's paged wrappers: pages are given as lists, sequences by starts."""

    def __init__(self, workspace, kv_layout, use_tensor_cores=False):
        assert kv_layout == "NHD"

    def _keep(self, starts, indices, last_page_len, page_size, window_left, sm_scale):
        counts = kv_lens_of(starts)
        self.kv_lens = ((counts - 1) * page_size + last_page_len).to(torch.int32)
        rows = torch.split(indices, counts.tolist())
        self.table = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        self.window, self.scale = (window_left, 0), sm_scale

    def run(self, q, paged_kv_cache, *, out):
        out.copy_(paged(q, *paged_kv_cache, self.cu_q, self.kv_lens, self.table, self.scale, self.window))
        return out


class FakeDecode(FakeWrapper):
    def plan(
        self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,
        pos_encoding_mode="NONE", window_left=-1, logits_soft_cap=None, q_data_type="float16",
        kv_data_type=None, o_data_type=None, data_type=None, sm_scale=None,
    ):  # fmt: skip
        self._keep(indptr, indices, last_page_len, page_size, window_left, sm_scale)
        self.cu_q = torch.arange(len(indptr), dtype=torch.int32)


class FakePrefill(FakeWrapper):
    def plan(
        self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads,
        num_kv_heads, head_dim_qk, page_size, head_dim_vo=None, custom_mask=None, packed_custom_mask=None,
        causal=False, pos_encoding_mode="NONE", use_fp16_qk_reduction=False, sm_scale=None, window_left=-1,
        logits_soft_cap=None, rope_scale=None, rope_theta=None, q_data_type="float16", kv_data_type=None,
    ):  # fmt: skip
        assert causal
        self._keep(
            paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size, window_left, sm_scale
        )
        self.cu_q = qo_indptr


class FakeBatchAttention:
    def __init__(self, kv_layout="NHD", device="cuda"):
        assert kv_layout == "NHD"

    def plan(
        self, qo_indptr, kv_indptr, kv_indices, kv_len_arr, num_qo_heads, num_kv_heads, head_dim_qk,
        head_dim_vo, page_size, causal=False, sm_scale=None, logits_soft_cap=None,
        q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16, use_profiler=False,
    ):  # fmt: skip
        rows = torch.split(kv_indices, kv_lens_of(kv_indptr).tolist())
        table = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        self.arguments = (qo_indptr, kv_len_arr, table, sm_scale, (-1, -1))

    def run(self, q, kv_cache, out=None, lse=None):
        return out.copy_(paged(q, *kv_cache, *self.arguments)), None


@pytest.fixture
def flashinfer(monkeypatch):
    """FlashInfer 0.6's wrappers."""
    module(
        monkeypatch,
        "flashinfer",
        BatchDecodeWithPagedKVCacheWrapper=FakeDecode,
        BatchPrefillWithPagedKVCacheWrapper=FakePrefill,
        BatchAttention=FakeBatchAttention,
        __version__="0.6.7",
    )


CASES = [
    ("fa2", "flash_attn", 256),
    ("fa2_split", "flash_attn", 256),
    ("fa3", "flash_attn_interface", 16),
    ("fa4", "flash_attn_cute", 128),
    ("vllm", "vllm", 16),
    ("vllm_fa3_so", "vllm_library", 16),
    ("flashinfer", "flashinfer", 16),
    ("flashinfer_batch", "flashinfer", 16),
    ("torch_fa2", "torch_fa2", 0),
]


@pytest.mark.parametrize(("name", "library", "page_size"), CASES)
@pytest.mark.parametrize("window", [0, 64])
def test_each_library_gets_the_batch_that_is_meant(name, library, page_size, window, request) -> None:
    request.getfixturevalue(library)
    backend = BACKENDS[name](HOPPER)
    batches = gate_batches(AttentionHeads(8, 2, 32, window), page_size, "fp32")
    if name == "flashinfer_batch" and window:
        with pytest.raises(ConfigError, match="has no sliding window"):
            pass_gate(backend, batches)
        return
    assert max(pass_gate(backend, batches).values()) < 1e-5


@pytest.mark.parametrize(("name", "library", "page_size"), CASES)
def test_a_chunk_alone_and_a_decode_alone(name, library, page_size, request) -> None:
    request.getfixturevalue(library)
    backend = BACKENDS[name](HOPPER)
    for q_lens, kv_lens in (((33,), (33,)), ((1,), (700,)), ((2, 3), (2, 512))):
        batch = AttnBatch(q_lens, kv_lens, 8, 2, 32, page_size, "fp32")
        assert relative_error(backend, batch) < 1e-5


@pytest.mark.parametrize(("tokens", "splits"), [(1, 32), (512, 32), (513, 0)])
def test_vllm_bounds_the_splits_of_steps_in_its_graphs(tokens: int, splits: int) -> None:
    assert vllm_num_splits(AttnBatch((tokens,), (tokens + 7,), 8, 2, 32)) == splits
