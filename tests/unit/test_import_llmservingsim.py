"""The LLMServingSim importer, on files made like its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.import_.llmservingsim import import_llmservingsim
from profiler.tables import KernelTable
from simulator.errors import InputError

META = """\
vllm_version: 0.19.0
cuda_version: '13.0'
gpu: NVIDIA RTX PRO 6000 Blackwell Server Edition
model: meta-llama/Llama-3.1-8B
measurement_iterations: 3
engine_effective: {block_size: 16}
"""
DENSE = "layer,tokens,time_us\nqkv_proj,8,30\ngate_up_proj,8,150\nlayernorm,8,3\nrotary_emb,8,3\nact_fn,8,3\n"
ATTENTION = (
    "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n0,0,2,15,8\n512,1024,0,0,67\n512,1024,4,255,74\n"
)
SKEW = "n,nb,pc,kp,kvs,kv_big,t_skew_us\n4,1,16,512,99,399,90\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "profile"
    source.mkdir()
    (source / "meta.yaml").write_text(META)
    (source / "dense.csv").write_text(DENSE)
    (source / "per_sequence.csv").write_text("layer,sequences,time_us\nlm_head,2,700\nsampler,2,40\n")
    (source / "attention.csv").write_text(ATTENTION)
    return source


def test_layers_become_operators_of_their_model(folder: Path, tmp_path: Path) -> None:
    report = import_llmservingsim(folder, tmp_path / "out")
    assert report.rows == {"gemm": 3, "rmsnorm": 1, "rope": 1, "activation": 1, "sampler": 1, "attention": 3}
    table = KernelTable.read(tmp_path / "out")
    assert table.meta.device == "rtx_pro_6000"
    assert table.meta.page_size == 16
    assert [(row.n, row.k) for row in table.select("gemm").rows()] == [
        (6144, 4096),
        (28672, 4096),
        (128256, 4096),
    ]
    (sampler,) = table.select("sampler").rows()
    assert (sampler.m, sampler.width) == (2, 128256)


def test_kv_lengths_count_the_new_token(folder: Path, tmp_path: Path) -> None:
    import_llmservingsim(folder, tmp_path / "out")
    decode, prefill, mixed = KernelTable.read(tmp_path / "out").select("attention").rows()
    assert (decode.num_decodes, decode.decode_kv_tokens, decode.num_chunks) == (2, 32, 0)
    assert (prefill.chunk_tokens, prefill.prefix_tokens, prefill.num_decodes) == (512, 1024, 0)
    assert (mixed.num_chunks, mixed.num_decodes, mixed.decode_kv_tokens) == (1, 4, 1024)


def test_skewed_batches_are_means_of_the_runs_that_their_times_add_up(folder: Path, tmp_path: Path) -> None:
    (folder / "skew.csv").write_text(SKEW)
    import_llmservingsim(folder, tmp_path / "out")
    *_, skewed = KernelTable.read(tmp_path / "out").rows()
    assert skewed.latency_us == pytest.approx(30.0)
    assert (skewed.decode_kv_tokens, skewed.decode_kv_max_tokens) == (3 * 100 + 400, 400)
    assert skewed.pass_id == "skew"


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("meta.yaml", "RTX PRO 6000", "RTX 9000", "unknown gpu"),
        ("meta.yaml", "Llama-3.1-8B", "Nobody-7B", "model 'meta-llama/Nobody-7B'"),
        ("meta.yaml", "gpu:", "gpus:", "keys 'gpu' and 'model' are expected"),
        ("dense.csv", "act_fn", "act_fun", r"unknown layer 'act_fun' \(did you mean 'act_fn'"),
        ("attention.csv", "512,1024,4,255,74", "512,1024,4,255,", r"attention.csv:4: time_us is ''"),
        ("attention.csv", "kv_decode", "kv", "column 'kv_decode' is missing"),
    ],
)
def test_a_bad_file_is_named(
    folder: Path, tmp_path: Path, name: str, old: str, new: str, message: str
) -> None:
    path = folder / name
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InputError, match=message):
        import_llmservingsim(folder, tmp_path / "out")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"meta.yaml: file is missing"):
        import_llmservingsim(tmp_path, tmp_path / "out")
