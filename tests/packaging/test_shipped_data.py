"""The presets and traces that a wheel must hold, by name: one that .gitignore matches is left out of it."""

from __future__ import annotations

import subprocess

import pytest

from simulator.load import load_gpu, load_scenario
from simulator.resources import KINDS, config_path, data_root, list_configs

SHIPPED = {
    "models": """
        codellama-34b falcon-180b llama-2-70b llama-2-7b llama-3-70b llama-3-8b llama-3.1-70b llama-3.1-8b
        llama-3.2-1b llama-3.2-3b llama-3.3-70b mistral-7b qwen2.5-0.5b qwen2.5-1.5b qwen2.5-14b qwen2.5-32b
        qwen2.5-3b qwen2.5-72b qwen2.5-7b qwen3-0.6b qwen3-1.7b qwen3-14b qwen3-32b qwen3-4b qwen3-8b tiny
        yi-34b yi-34b-200k
    """,
    "gpus": "a100_80gb_pcie a100_80gb_sxm a40 cpu h100_sxm h200_sxm l40s rtx_pro_6000",
    "clusters": """
        nvlink3_8gpu nvlink3_pairs_4gpu nvlink3_pairs_a40_8gpu nvlink4_8gpu pcie4_8gpu pcie5_8gpu
    """,
    "engines": "ideal sarathi-2024 sarathi-2024-ray sync-2024 sync-2024-ray vllm-v1",
    "papers": "sarathi-osdi24",
    "prices": "on-demand-2025",
    "scenarios": """
        default long-prompt paper-mistral-chat-relaxed paper-mistral-chat-strict pipeline-falcon
        sarathi-falcon sarathi-llama2 sarathi-mistral sarathi-yi summarisation tiny-cpu
        vllm-rtxpro6000-llama31-8b
    """,
}


@pytest.mark.parametrize("kind", SHIPPED)
def test_presets_are_listed_by_name(kind: str):
    assert list_configs(kind) == SHIPPED[kind].split()


def test_every_data_file_is_tracked():
    """An untracked or ignored file would work in this checkout and be missing from what others install."""
    root = data_root()
    if not (root / ".git").exists():
        pytest.skip("not a checkout")
    command = ["git", "ls-files", "-z", "--cached", "configs", "traces"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    tracked = set(listed.split("\0")) - {""}
    present = {
        str(path.relative_to(root))
        for folder in ("configs", "traces")
        for path in (root / folder).rglob("*")
        if path.is_file()
    }
    assert present == tracked


def test_data_folders_hold_no_code():
    """A module in them would make configs or traces importable and shadow packages of that name."""
    folders = [data_root() / name for name in ("configs", "traces")]
    assert not [path for folder in folders for path in folder.rglob("*.py")]


@pytest.mark.parametrize("name", list_configs("gpus"))
def test_the_kernels_of_a_gpu_are_shipped(name: str):
    kernels = load_gpu(name).kernels
    if kernels is None:
        pytest.skip(f"{name} has no measured kernels: the roofline stands in")
    assert config_path("kernels", kernels).exists()


@pytest.mark.parametrize("name", list_configs("scenarios"))
def test_the_traces_of_scenarios_are_shipped(name: str):
    trace = load_scenario(name).workload.trace
    if trace is None:
        pytest.skip(f"{name} draws its lengths from distributions")
    assert list((data_root() / "traces").glob(f"{trace}.*"))


def test_every_kind_of_preset_is_shipped():
    assert all(list_configs(kind) for kind in KINDS)
