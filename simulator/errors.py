"""The exceptions a user can meet; each carries one clear line: where, what was found, what is allowed."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class StallfreeError(Exception):
    """Base of every error that a user can cause and mend; the command line turns it into one line."""


class ConfigError(StallfreeError):
    """A scenario, preset, key or option that cannot be used."""


class InputError(StallfreeError):
    """A trace, kernel table or recorded run that cannot be read."""


class CalibrationError(StallfreeError):
    """A fitted kernel artefact that is damaged, of another schema, or that lacks what a model needs."""


class OutputError(StallfreeError):
    """An answer that stdout does not take."""


class InfeasibleError(StallfreeError):
    """A valid question whose answer does not exist within the given bounds."""


def suggest(name: str, allowed: Iterable[str]) -> str:
    """The tail of an error message: the nearest allowed name, or the allowed names."""
    names = sorted(allowed)
    near = get_close_matches(name, names, n=1)
    if near:
        return f" (did you mean {near[0]!r}?)"
    return f" (allowed: {', '.join(names) or 'none'})"
