"""Takes values out of JSON result files; every failure is an InputError that names the file and the key."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from simulator.errors import InputError
from simulator.workload.files import shorten
from simulator.workload.spec import MAX_TOKENS

T = TypeVar("T")


class Node:
    """A JSON object in a file, and the way to it."""

    def __init__(self, path: Path, value: dict[str, Any], trail: str = "") -> None:
        self.path = path
        self.trail = trail
        self._value = value

    def __contains__(self, key: str) -> bool:
        return self._value.get(key) is not None

    def keys(self) -> Sequence[str]:
        """The keys of the object."""
        return list(self._value)

    def number(self, key: str) -> float:
        """A finite number."""
        return self._checked(key, _is_number, "a number", float)

    def tokens(self, key: str) -> int:
        """A believable number of tokens, at least one."""
        return self._checked(key, _is_count, f"a whole number of tokens, 1 to {MAX_TOKENS}", int)

    def text(self, key: str) -> str:
        """A string."""
        return self._checked(key, lambda value: isinstance(value, str), "a text", str)

    def entries(self, key: str) -> list[Any]:
        """A list of anything."""
        return self._checked(key, lambda value: isinstance(value, list), "a list", list)

    def numbers(self, key: str) -> list[float]:
        """A list of finite numbers."""
        return self._checked(key, _are_numbers, "a list of numbers", list)

    def node(self, key: str) -> Node:
        """An object inside this one."""
        value = self._checked(key, lambda value: isinstance(value, dict), "an object", dict)
        return Node(self.path, value, self._at(key))

    def nodes(self, key: str) -> list[Node]:
        """A list of objects."""
        allowed = "a list of objects"
        values = self._checked(key, lambda value: isinstance(value, list), allowed, list)
        for index, value in enumerate(values):
            if not isinstance(value, dict):
                self.refuse(f"{key}[{index}]", value, "an object")
        return [Node(self.path, value, self._at(f"{key}[{index}]")) for index, value in enumerate(values)]

    def _checked(
        self, key: str, is_allowed: Callable[[Any], bool], allowed: str, convert: Callable[[Any], T]
    ) -> T:
        if key not in self._value:
            raise InputError(f"{self.path}: no key {self._at(key)} (needed: {allowed})")
        value = self._value[key]
        if not is_allowed(value):
            self.refuse(key, value, allowed)
        return convert(value)

    def refuse(self, key: str, value: object, allowed: str) -> NoReturn:
        """InputError that says what stands under a key and what may."""
        raise InputError(f"{self.path}: {self._at(key)} is {shorten(value)} (allowed: {allowed})")

    def _at(self, key: str) -> str:
        return f"{self.trail}.{key}" if self.trail else key


def parse_document(path: Path) -> Node | None:
    """The one JSON object that a file is; None where it is something else (JSON lines) or unreadable."""
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return None
    return Node(path, value) if isinstance(value, dict) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_count(value: Any) -> bool:
    return _is_number(value) and 1 <= value <= MAX_TOKENS and value % 1 == 0


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))
