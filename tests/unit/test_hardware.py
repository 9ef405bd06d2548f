"""Shapes of models and links: parameter counts known from the checkpoints, and splits that add up."""

from __future__ import annotations

import pytest

from simulator.errors import ConfigError
from simulator.hardware import ClusterSpec, LinearOp, LinkSpec, ModelSpec
from simulator.load import load_cluster, load_engine, load_gpu, load_model
from simulator.resources import list_configs

# Parameters in the published checkpoints (safetensors index), a tied embedding counted once.
PARAMETERS = {
    "mistral-7b": 7_241_732_096,
    "llama-2-7b": 6_738_415_616,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "yi-34b": 34_388_917_248,
    "codellama-34b": 33_743_970_304,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
}

NVLINK, PCIE, ETHERNET = (LinkSpec(bandwidth_gbps=rate, latency_us=5) for rate in (300, 25, 12.5))


def pairs(gpus_per_node: int = 4) -> ClusterSpec:
    return ClusterSpec(
        name="pairs", gpus_per_node=gpus_per_node, pair=NVLINK, intra_node=PCIE, inter_node=ETHERNET
    )


@pytest.mark.parametrize(("name", "parameters"), PARAMETERS.items())
def test_shapes_give_the_published_number_of_parameters(name: str, parameters: int):
    assert load_model(name).num_parameters() == parameters


def test_falcon_has_about_180_billion_parameters():
    assert load_model("falcon-180b").num_parameters() == pytest.approx(180e9, rel=0.01)


def test_products_of_llama_3_8b():
    assert load_model("llama-3-8b").linear_ops(1) == (
        LinearOp("qkv", 4096, 6144),
        LinearOp("o", 4096, 4096),
        LinearOp("gate_up", 4096, 28672),
        LinearOp("down", 14336, 4096),
    )
    assert load_model("llama-3-8b").lm_head(1) == LinearOp("lm_head", 4096, 128256)


def test_products_of_yi_34b_on_two_ranks():
    assert [tuple(op) for op in load_model("yi-34b").linear_ops(2)] == [
        ("qkv", 7168, 4608),
        ("o", 3584, 7168),
        ("gate_up", 7168, 20480),
        ("down", 10240, 7168),
    ]


def test_an_ungated_mlp_has_one_product_up():
    up = load_model("falcon-180b").linear_ops(4)[2]
    assert up == LinearOp("up", 14848, 59392 // 4)


@pytest.mark.parametrize("name", list_configs("models"))
def test_ranks_share_the_weights_of_a_layer(name: str):
    """Apart from replicated norms and KV heads, two ranks hold what one held."""
    model = load_model(name)
    halves = 2 * sum(op.weight_bytes for op in model.linear_ops(2))
    assert halves == sum(op.weight_bytes for op in model.linear_ops(1))


def test_kv_bytes_per_token():
    assert load_model("mistral-7b").kv_bytes_per_token(1, 32) == 131_072
    assert load_model("yi-34b").kv_bytes_per_token(2, 60) == 122_880
    assert load_model("llama-2-70b").kv_bytes_per_token(4, 40) == 40_960
    assert load_model("falcon-180b").kv_bytes_per_token(4, 40) == 20_480


def test_more_ranks_than_kv_heads_replicate_them():
    model = load_model("qwen2.5-72b")  # 8 KV heads
    assert model.kv_heads_per_rank(16) == 1
    assert model.linear_ops(16)[0].n == (64 // 16 + 2) * 128


@pytest.mark.parametrize(
    ("name", "ranks", "what"),
    [
        ("llama-3-8b", 3, "num_heads 32"),
        ("qwen2.5-7b", 8, "num_heads 28"),
        ("falcon-180b", 16, "num_heads 232"),
        ("llama-3-8b", 0, "num_heads 32"),
    ],
)
def test_impossible_tensor_splits(name: str, ranks: int, what: str):
    with pytest.raises(ConfigError, match=rf"parallel.tensor: {name} has {what}, which {ranks} ranks"):
        load_model(name).linear_ops(ranks)


def test_kv_heads_that_ranks_cannot_share():
    model = load_model("llama-3.2-3b")  # 24 query heads, 8 KV heads
    with pytest.raises(ConfigError, match="num_kv_heads 8, which 12 ranks"):
        model.linear_ops(12)


@pytest.mark.parametrize("stages", [1, 2, 3, 7, 32])
def test_stages_hold_every_layer_once(stages: int):
    layers = load_model("llama-3-8b").layers_per_stage(stages)
    assert len(layers) == stages
    assert sum(layers) == 32
    assert max(layers) - min(layers) <= 1
    assert layers[-1] == min(layers)


def test_stages_with_a_remainder():
    assert load_model("llama-3-8b").layers_per_stage(5) == (6, 6, 7, 7, 6)


@pytest.mark.parametrize("stages", [0, 33])
def test_impossible_pipelines(stages: int):
    with pytest.raises(ConfigError, match=rf"32 layers, which cannot be split into {stages} stages"):
        load_model("llama-3-8b").layers_per_stage(stages)


def test_a_tensor_group_takes_the_slowest_link_it_crosses():
    assert [pairs().link(size) for size in (2, 3, 4, 8)] == [NVLINK, PCIE, PCIE, ETHERNET]


def test_stages_are_joined_by_the_slowest_link_of_the_replica():
    assert pairs().stage_link(1, 2) == NVLINK
    assert pairs(gpus_per_node=8).stage_link(4, 2) == PCIE
    assert pairs(gpus_per_node=4).stage_link(4, 2) == ETHERNET


def test_without_pairs_two_gpus_use_the_node():
    cluster = ClusterSpec(name="node", gpus_per_node=8, intra_node=NVLINK, inter_node=ETHERNET)
    assert cluster.link(2) == NVLINK


@pytest.mark.parametrize("name", list_configs("gpus"))
def test_gpus_name_a_shipped_cluster_and_a_source(name: str):
    gpu = load_gpu(name)
    assert gpu.source
    assert load_cluster(gpu.cluster).source


def test_engines_differ_as_their_names_say():
    assert load_engine("vllm-v1").asynchronous
    assert not load_engine("sync-2024").asynchronous
    assert (
        load_engine("sync-2024-ray").decode_bandwidth_scale == load_engine("sync-2024").decode_bandwidth_scale
    )
    assert load_engine("sync-2024-ray").host_fixed_us > load_engine("sync-2024").host_fixed_us
    assert load_engine("ideal").host_fixed_us == load_engine("ideal").host_per_seq_us == 0


def test_a_model_is_frozen():
    model = load_model("llama-3-8b")
    assert isinstance(model, ModelSpec)
    with pytest.raises(ValueError, match="frozen"):
        model.num_layers = 3  # type: ignore[misc]
