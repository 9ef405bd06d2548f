"""Shipped data are found in a checkout and in an installed package, and a wrong name gets a hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator import resources
from simulator.errors import ConfigError


def test_a_checkout_finds_its_own_folders():
    root = resources.data_root()
    assert (root / "configs" / "models").is_dir()
    assert (root / "traces").is_dir()


def test_an_installed_package_uses_the_data_inside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    packaged = tmp_path / "simulator" / "_data"
    (packaged / "configs" / "models").mkdir(parents=True)
    (packaged / "configs" / "models" / "only.yaml").touch()
    monkeypatch.setattr(resources, "__file__", str(tmp_path / "simulator" / "resources.py"))
    assert resources.data_root() == packaged
    assert resources.list_configs("models") == ["only"]
    assert resources.list_configs("gpus") == []


def test_kernels_are_files_or_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kernels = tmp_path / "simulator" / "_data" / "configs" / "kernels"
    (kernels / "table").mkdir(parents=True)
    (kernels / "fitted.json").touch()
    (kernels / "README.md").touch()
    monkeypatch.setattr(resources, "__file__", str(tmp_path / "simulator" / "resources.py"))
    assert resources.list_configs("kernels") == ["fitted", "table"]
    assert resources.config_path("kernels", "fitted") == kernels / "fitted.json"


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("models", "lama-3-8b", "unknown model 'lama-3-8b' (did you mean 'llama-3-8b'?)"),
        ("gpus", "h100_sx", "unknown gpu 'h100_sx' (did you mean 'h100_sxm'?)"),
        ("model", "llama-3-8b", "unknown kind of preset 'model' (did you mean 'models'?)"),
    ],
)
def test_unknown_names_get_a_hint(kind: str, name: str, message: str):
    with pytest.raises(ConfigError) as caught:
        resources.config_path(kind, name)
    assert str(caught.value) == message


def test_a_name_cannot_leave_the_folder():
    with pytest.raises(ConfigError, match="unknown model"):
        resources.config_path("models", "../gpus/a40")
