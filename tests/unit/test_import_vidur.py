"""The Vidur importer, on files made like its own, and on the real ones where they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler.import_.vidur import import_vidur
from profiler.tables import KernelTable
from simulator.errors import InputError

LINEAR = """\
gpu,model,tp,tokens,n_head,n_kv_head,n_embd,n_expanded_embd,vocab_size,use_gated_mlp,emb_ms,input_layernorm_ms,\
attn_pre_proj_ms,attn_rope_ms,attn_post_proj_ms,post_attention_layernorm_ms,mlp_up_proj_ms,mlp_act_ms,\
mlp_down_proj_ms,add_ms
a100,llama,2,256,32,8,4096,14336,128256,true,0.015,0.008,0.075,0.007,0.053,,0.291,0.027,0.135,0.004
a40,phi,1,8,32,32,2560,10240,51200,false,0.01,0.01,0.05,0.01,0.02,,0.08,0.01,0.09,0.01
"""
NETWORK = """\
num_workers,bytes,devices_per_node,median_ms,node,collective
2,2048,2,0.007,a100_pairwise_nvlink,all_reduce
4,2048,4,0.066,a100_pairwise_nvlink,all_reduce
8,2048,4,0.1,a100_pairwise_nvlink,all_reduce
2,2048,1,0.012,a100_pairwise_nvlink,send_recv
2,2048,2,0.010,a100_dgx,all_reduce
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "vidur"
    (source / "a100_flash_attention_32q_4kv").mkdir(parents=True)
    (source / "linear_ops.csv").write_text(LINEAR)
    (source / "network.csv").write_text(NETWORK)
    attention = source / "a100_flash_attention_32q_4kv"
    (attention / "prefill.csv").write_text("chunk_tokens,prefix_tokens,median_ms\n64,32,0.015\n")
    (attention / "decode.csv").write_text("decodes,kv_tokens_each,median_ms\n4,128,0.02\n")
    return source


def test_every_gpu_becomes_a_table(folder: Path, tmp_path: Path) -> None:
    report = import_vidur(folder, tmp_path / "out")
    assert report.rows["gemm"] == 8
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "a100_80gb_pcie",
        "a40",
        "a100_80gb_pcie-attention",
    }


def test_operators_are_those_of_one_rank(folder: Path, tmp_path: Path) -> None:
    import_vidur(folder, tmp_path / "out")
    rows = list(KernelTable.read(tmp_path / "out" / "a100_80gb_pcie").select("gemm").rows())
    assert [(row.n, row.k) for row in rows] == [(3072, 4096), (4096, 2048), (14336, 4096), (4096, 7168)]
    assert rows[0].latency_us == pytest.approx(75.0)
    (rope,) = KernelTable.read(tmp_path / "out" / "a100_80gb_pcie").select("rope").rows()
    assert rope.width == 2048 + 512


def test_an_ungated_mlp_has_one_matrix_upwards(folder: Path, tmp_path: Path) -> None:
    import_vidur(folder, tmp_path / "out")
    shapes = [(row.n, row.k) for row in KernelTable.read(tmp_path / "out" / "a40").select("gemm").rows()]
    assert (10240, 2560) in shapes
    assert (20480, 2560) not in shapes


def test_links_are_told_apart(folder: Path, tmp_path: Path) -> None:
    import_vidur(folder, tmp_path / "out")
    table = KernelTable.read(tmp_path / "out" / "a100_80gb_pcie").select("all_reduce", "send_recv")
    assert [(row.op, row.world_size, row.topology) for row in table.rows()] == [
        ("all_reduce", 2, "nvlink_pair"),
        ("all_reduce", 4, "pcie"),
        ("send_recv", 2, "ethernet"),
    ]


def test_attention_has_a_table_of_its_own(folder: Path, tmp_path: Path) -> None:
    import_vidur(folder, tmp_path / "out")
    prefill, decode = KernelTable.read(tmp_path / "out" / "a100_80gb_pcie-attention").rows()
    assert (prefill.chunk_tokens, prefill.prefix_tokens, prefill.latency_us) == (64, 32, 15.0)
    assert (decode.num_decodes, decode.decode_kv_tokens, decode.kv_heads) == (4, 512, 4)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tokens,", "toks,", r"column 'tokens' is missing \(did you mean 'toks'"),
        ("a100,llama,2,256", "a100,llama,2,x", "linear_ops.csv:2: tokens is 'x'"),
        ("a100,llama,2,256", "a100,llama,2,2.5", "tokens is 2.5, a whole number"),
        ("a40,phi", "v100,phi", "unknown gpu 'v100'"),
        (",0.09,0.01\n", ",0.09\n", "linear_ops.csv:3: 19 fields, the header has 20"),
    ],
)
def test_a_bad_file_is_named(folder: Path, tmp_path: Path, old: str, new: str, message: str) -> None:
    (folder / "linear_ops.csv").write_text(LINEAR.replace(old, new))
    with pytest.raises(InputError, match=message):
        import_vidur(folder, tmp_path / "out")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"linear_ops.csv: file is missing"):
        import_vidur(tmp_path, tmp_path / "out")
