"""Finds the data shipped with the package: presets under configs/ and workloads under traces/."""

from __future__ import annotations

from pathlib import Path

from simulator.errors import ConfigError, suggest

KINDS = ("models", "gpus", "clusters", "engines", "scenarios", "kernels", "papers", "prices")


def data_root() -> Path:
    """Folder that holds `configs` and `traces`: inside an installed package, else the checkout's root."""
    package = Path(__file__).resolve().parent
    packaged = package / "_data"
    return packaged if packaged.is_dir() else package.parent


def list_configs(kind: str) -> list[str]:
    """Names of the shipped presets of one kind, sorted; a kind that ships none gives an empty list."""
    return sorted(_paths(kind))


def config_path(kind: str, name: str) -> Path:
    """File (or, for kernels, file or folder) of a shipped preset; ConfigError names the nearest ones."""
    paths = _paths(kind)
    if name not in paths:
        noun = kind if kind == "kernels" else kind.removesuffix("s")
        raise ConfigError(f"unknown {noun} {name!r}{suggest(name, paths)}")
    return paths[name]


def _paths(kind: str) -> dict[str, Path]:
    if kind not in KINDS:
        raise ConfigError(f"unknown kind of preset {kind!r}{suggest(kind, KINDS)}")
    folder = data_root() / "configs" / kind
    if not folder.is_dir():
        return {}
    if kind == "kernels":
        entries = [path for path in folder.iterdir() if path.is_dir() or path.suffix == ".json"]
    else:
        entries = list(folder.glob("*.yaml"))
    return {path.name if path.is_dir() else path.stem: path for path in entries}
