"""Reads scenarios and presets: a shipped name or a file, YAML or JSON, into frozen settings.

A file may start from another one with `base: NAME`; its own keys win. Overrides (`a.b=c`) win over both.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Hashable, Sequence
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import yaml

from simulator.config import Scenario
from simulator.errors import ConfigError
from simulator.hardware import ClusterSpec, EngineSpec, GPUSpec, ModelSpec
from simulator.huggingface import CONFIG_NAME, is_hugging_face, model_mapping
from simulator.resources import config_path, list_configs
from simulator.spec import Spec, parse

SpecT = TypeVar("SpecT", bound=Spec)

SUFFIXES = (".yaml", ".yml", ".json", ".csv", ".jsonl", ".parquet")
PATH_KEYS = ("model", "gpu", "cluster", "engine", "kernels", "workload.trace")
OWN_KEYS = ("name", "description", "source")
"""What a file says about itself, and so does not hand down."""
MAX_BASES = 8


def load_scenario(name_or_path: str, sets: Sequence[str] = (), where: str = "--set") -> Scenario:
    """A shipped scenario or a scenario file, with `key.path=value` overrides applied last.

    Paths inside a file count from the working directory, then from the file's folder. Raises ConfigError;
    `where` are the options that the overrides came from.
    """
    path = _find("scenarios", name_or_path)
    scenario = _load("scenarios", Scenario, path)
    return scenario.with_(dict(_override(text, where) for text in sets), where=where) if sets else scenario


def load_model(name_or_path: str) -> ModelSpec:
    """A shipped model, a model file, or a Hugging Face config.json (or its folder); raises ConfigError."""
    path = _find("models", name_or_path)
    if path.is_dir():
        path /= CONFIG_NAME
    if path.suffix == ".json":
        data = read_mapping(path)
        if is_hugging_face(data):
            return parse(ModelSpec, model_mapping(data, path), str(path))
    return _load("models", ModelSpec, path)


def load_gpu(name_or_path: str) -> GPUSpec:
    """A shipped GPU or a GPU file; raises ConfigError."""
    return _load("gpus", GPUSpec, _find("gpus", name_or_path))


def load_cluster(name_or_path: str) -> ClusterSpec:
    """A shipped interconnect or a cluster file; raises ConfigError."""
    return _load("clusters", ClusterSpec, _find("clusters", name_or_path))


def load_engine(name_or_path: str) -> EngineSpec:
    """A shipped engine preset or an engine file; raises ConfigError."""
    return _load("engines", EngineSpec, _find("engines", name_or_path))


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping in a YAML or JSON file; ConfigError says where the file is not one."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    data = _parse_json(text, str(path)) if path.suffix == ".json" else _parse_yaml(text, str(path))
    if not isinstance(data, dict):
        found = "nothing" if data is None else f"a {type(data).__name__}"
        raise ConfigError(f"{path}: must be a mapping of keys to values (found {found})")
    return data


def _load(kind: str, spec: type[SpecT], path: Path) -> SpecT:
    data = {"name": path.stem} | _read_preset(kind, path)
    return parse(spec, data, str(path))


def _find(kind: str, name_or_path: str) -> Path:
    """The file of a shipped name or of a path; shipped names win over files called the same."""
    path = Path(name_or_path)
    is_name = not looks_like_path(name_or_path)
    if not is_name or (os.path.exists(path) and name_or_path not in list_configs(kind)):
        if not os.path.exists(path):  # unlike Path.exists, also answers for names that no system allows
            raise ConfigError(f"{path}: no such file")
        if path.is_dir() and kind != "models":
            raise ConfigError(f"{path}: is a folder, not a file")
        return path
    return config_path(kind, name_or_path)


def looks_like_path(text: str) -> bool:
    """Whether a value that may be a name or a path is meant as a path."""
    return os.sep in text or "/" in text or text.lower().endswith(SUFFIXES) or text in (".", "..")


def _read_preset(kind: str, path: Path) -> dict[str, Any]:
    """The mapping of a file merged over the chain of its bases."""
    chain: list[dict[str, Any]] = []
    while True:
        data = read_mapping(path)
        base = data.pop("base", None)
        chain.append(_resolve_paths(data, path.parent))
        if base is None:
            break
        if not isinstance(base, str) or len(chain) == MAX_BASES:
            raise ConfigError(f"{path}: base must name a preset or file, at most {MAX_BASES} deep")
        path = _find(kind, _beside(base, path.parent))
    merged: dict[str, Any] = {}
    for data in reversed(chain):
        inherited = {key: value for key, value in merged.items() if key not in OWN_KEYS}
        merged = _merge(inherited, data)
    return merged


def _merge(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` on top of `under`, mapping by mapping; a mapping with another `kind` replaces its forerunner."""
    merged = dict(under)
    for key, value in over.items():
        old = merged.get(key)
        nested = isinstance(old, dict) and isinstance(value, dict) and old.get("kind") == value.get("kind")
        merged[key] = _merge(old, value) if nested and isinstance(old, dict) else value
    return merged


def _resolve_paths(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The mapping with its relative paths made to work from the working directory."""
    resolved = dict(data)
    for dotted in PATH_KEYS:
        parent, _, key = dotted.rpartition(".")
        group = resolved.get(parent) if parent else resolved
        if isinstance(group, dict) and isinstance(group.get(key), str):
            changed = group | {key: _beside(group[key], folder)}
            resolved = resolved | {parent: changed} if parent else changed
    return _resolve_mix(resolved, folder)


def _resolve_mix(data: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Likewise for the traces of a workload's classes."""
    workload = data.get("workload")
    mix = workload.get("mix") if isinstance(workload, dict) else None
    if not isinstance(workload, dict) or not isinstance(mix, dict):
        return data
    resolved = {
        name: part | {"trace": _beside(part["trace"], folder)}
        if isinstance(part, dict) and isinstance(part.get("trace"), str)
        else part
        for name, part in mix.items()
    }
    return data | {"workload": workload | {"mix": resolved}}


def _beside(value: str, folder: Path) -> str:
    """A path that exists only beside the file that names it, seen from the working directory."""
    if looks_like_path(value) and not os.path.exists(value) and os.path.exists(folder / value):
        return str(folder / value)
    return value


def _override(text: str, where: str) -> tuple[str, Any]:
    """The key and YAML value of one `a.b=c`."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise ConfigError(f"{where} {text}: must be key.path=value")
    return key, _parse_yaml(value, f"{where} {key}")


def _parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: {error}") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise ValueError(f"key {key!r} is given twice")
        data[key] = value
    return data


class _Loader(yaml.SafeLoader):
    """YAML that refuses a key given twice and reads 1e3 as a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.value in seen:
                message = f"key {key.value!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, message, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+"), list("-+0123456789")
)


def _parse_yaml(text: str, where: str) -> Any:
    # A search loads the same presets for every trial.
    return deepcopy(_parsed_yaml(text, where))


@lru_cache(maxsize=64)
def _parsed_yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: {_syntax_message(error)}") from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # a number of 5000 digits, the 45th of a month, deep nesting
        raise ConfigError(f"{where}: {error}") from None
    except (AttributeError, KeyError):  # how PyYAML fails at "!!timestamp x" and "!!bool x"
        raise ConfigError(f"{where}: a value does not fit its !! tag") from None


def _syntax_message(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else str(problem)
