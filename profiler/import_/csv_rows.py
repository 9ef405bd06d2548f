"""Rows of somebody's CSV file as numbers, with errors that name the file and the line."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from simulator.errors import InputError, suggest


class CsvRow:
    """One line of a file: `number(column)` and `text(column)` raise InputError for what cannot be used."""

    def __init__(self, values: dict[str, str], where: str) -> None:
        self._values, self._where = values, where

    def text(self, column: str) -> str:
        """The field as it stands."""
        return self._values[column]

    def number(self, column: str) -> float:
        """The field as a finite number."""
        text = self._values[column]
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputError(f"{self._where}: {column} is {text!r}, a number is expected")
        return value

    def count(self, column: str) -> int:
        """The field as a whole number >= 0."""
        value = self.number(column)
        if value < 0 or value != int(value):
            raise InputError(f"{self._where}: {column} is {value:g}, a whole number >= 0 is expected")
        return int(value)

    def empty(self, column: str) -> bool:
        """Whether the field is empty."""
        return not self._values[column].strip()


def read_csv(path: Path, columns: Sequence[str]) -> Iterator[CsvRow]:
    """The rows of a file that must have the given columns; raises InputError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: file is missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from None
    lines = csv.reader(text.splitlines())
    header = next(lines, [])
    for column in columns:
        if column not in header:
            raise InputError(f"{path}: column {column!r} is missing{suggest(column, header)}")
    for number, line in enumerate(lines, start=2):
        if len(line) != len(header):
            raise InputError(f"{path}:{number}: {len(line)} fields, the header has {len(header)}")
        yield CsvRow(dict(zip(header, line, strict=True)), f"{path}:{number}")
