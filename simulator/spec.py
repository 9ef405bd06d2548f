"""Base of every frozen configuration class, and the one place that words what a user's value lacks.

`Spec` refuses unknown keys, coercions ("5" for 5, true for 1) and numbers that are not finite.
A validator may raise PydanticCustomError of type `bad_key` with {key, problem} to blame one key of a mapping.
`parse` turns pydantic's report into one line: where, which key, what is allowed, what was found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from simulator.errors import ConfigError, suggest

SpecT = TypeVar("SpecT", bound=BaseModel)

Count = Annotated[int, Field(ge=1, le=10**9)]
"""A whole number of things; the upper bound is there for slips of the keyboard."""

SHOWN_ERRORS = 3
SHOWN_CHARACTERS = 60


class Spec(BaseModel):
    """A frozen group of settings whose unknown keys, wrong types and non-finite numbers are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            for key in data:
                if key not in cls.model_fields:
                    hint = suggest(str(key), cls.model_fields)
                    raise PydanticCustomError("unknown_key", "{hint}", {"key": str(key), "hint": hint})
        return data


def parse(spec: type[SpecT], data: Any, where: str) -> SpecT:
    """Validate `data` as `spec`; ConfigError starts with `where` (a file or an option) and names the keys."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where}: must be a mapping of keys to values (found {_show(data)})")
    try:
        return spec.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_explain(error, data)}") from None


def _explain(error: ValidationError, data: Any) -> str:
    """One line for all that is wrong, at most three findings in full."""
    findings = [_finding(detail, key_path(detail["loc"], data)) for detail in error.errors(include_url=False)]
    more = len(findings) - SHOWN_ERRORS
    return "; ".join(findings[:SHOWN_ERRORS]) + (f"; and {more} more" if more > 0 else "")


def key_path(location: tuple[int | str, ...], data: Any) -> list[str]:
    """The keys a user wrote, out of pydantic's location, which also names validators and union members."""
    path = []
    for depth, part in enumerate(location):
        inside = isinstance(data, Mapping) and part in data
        if inside or isinstance(part, int) or depth == len(location) - 1:
            path.append(str(part))
            data = data[part] if inside else None
    return path


def _finding(detail: ErrorDetails, path: list[str]) -> str:
    context = detail.get("ctx", {})
    if detail["type"] == "unknown_key":
        return f"unknown key {'.'.join([*path, context['key']])}{context['hint']}"
    if detail["type"] == "bad_key":
        return f"{'.'.join([*path, context['key']])}: {context['problem']}"
    key = ".".join(path)
    if detail["type"] == "missing":
        return f"key {key} is required"
    if detail["type"] in ("value_error", "assertion_error"):
        return f"{key}: {context['error']}" if key else str(context["error"])
    message = detail["msg"].replace("Input should be", "must be", 1)
    message = re.sub(r"must be a valid dictionary.*", "must be a mapping", message)
    return f"{key} {message}{_near(detail)} (found {_show(detail['input'])})".strip()


def _near(detail: ErrorDetails) -> str:
    """The did-you-mean of a value that must be one of some names."""
    if detail["type"] != "literal_error" or not isinstance(detail["input"], str):
        return ""
    hint = suggest(detail["input"], re.findall(r"'([^']*)'", str(detail["ctx"]["expected"])))
    return hint if "did you mean" in hint else ""


def _show(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."
