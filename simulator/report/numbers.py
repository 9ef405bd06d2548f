"""How numbers are written: as many digits as they deserve, in the unit that a reader expects."""

from __future__ import annotations

from collections.abc import Sequence

MISSING = "-"


def significant(value: float | None) -> str:
    """`value` to three significant digits, whole numbers from a hundred on; a dash for None."""
    if value is None:
        return MISSING
    if value == 0 or abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:#.3g}"


def milliseconds(seconds: float | None) -> str:
    """Seconds as milliseconds."""
    return significant(None if seconds is None else 1e3 * seconds)


def percent(share: float | None) -> str:
    """A share as a percentage, e.g. 12.3 %."""
    return MISSING if share is None else f"{100 * share:.1f} %"


def count(value: float | None) -> str:
    """A whole number with its thousands separated, e.g. 19,366."""
    return MISSING if value is None else f"{value:,.0f}"


def numbered(number: int, noun: str) -> str:
    """A number and what is counted, e.g. 1 run, 5 runs."""
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def span(interval: Sequence[float] | None) -> str:
    """Both ends of an interval, e.g. 7.91 to 8.34."""
    return MISSING if interval is None else f"{significant(interval[0])} to {significant(interval[1])}"
