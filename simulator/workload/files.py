"""Cells out of CSV, JSON lines and Parquet files, block by block; knows nothing of what the columns mean.

The format is recognised by content, never by name. Every failure is an InputError that names the file and the
line. A file is read in blocks, so that memory follows what the caller keeps, not the length of the file.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, Protocol

from simulator.errors import InputError

BLOCK_ROWS = 65_536
HEAD_BYTES = 4096

Cells = list[list[Any]]
"""One list of cells for each column that was asked for."""


class RowFile(Protocol):
    """A file of rows with named columns."""

    path: Path
    columns: Sequence[str]

    def read(self, names: Sequence[str]) -> Iterator[Cells]:
        """The cells of the named columns in blocks of rows; blank lines are no rows."""

    def place(self, index: int) -> str:
        """Where the user finds a row (counted from 0), as in "line 7"."""


def open_rows(path: Path) -> RowFile:
    """Recognise a file's format and its columns; InputError where it is missing, empty, binary or damaged."""
    head = _head(path)
    rows = _reader(path, head)(path)
    repeated = sorted({name for name in rows.columns if rows.columns.count(name) > 1})
    if repeated:
        raise InputError(f"{path}: column {shorten(repeated[0])} appears more than once")
    return rows


def shorten(cell: object, limit: int = 40) -> str:
    """A cell as it may appear in a message: quoted, on one line, cut after `limit` characters."""
    text = repr(cell)
    return text if len(text) <= limit else f"{text[:limit]}..."


def _head(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise InputError(f"{path}: is a folder, not a file of requests")
        if not path.is_file():
            raise InputError(
                f"{path}: no such file" if not path.exists() else f"{path}: is not a regular file"
            )
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except OSError as error:
        raise InputError(f"{shorten(str(path))}: cannot be read ({error.strerror})") from None


def _reader(path: Path, head: bytes) -> Callable[[Path], RowFile]:
    if head.startswith(b"PAR1"):
        return ParquetFile
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{path}: is UTF-16 text; save it as UTF-8")
    if head.startswith((b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd")):
        raise InputError(f"{path}: is compressed; unpack it first")
    if b"\0" in head:
        raise InputError(f"{path}: is binary; expected CSV, JSON lines or Parquet")
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text and len(head) < HEAD_BYTES:
        raise InputError(f"{path}: is empty")
    if text.startswith(b"["):
        raise InputError(f"{path}: is a JSON array; expected JSON lines, one object on each line")
    return JsonLinesFile if text.startswith(b"{") else CsvFile


class CsvFile:
    """Comma-separated UTF-8 text with a header; CRLF, a byte order mark and quoted fields are welcome."""

    def __init__(self, path: Path) -> None:
        self.path = path
        header = next(self._records(), None)
        if header is None:
            raise InputError(f"{path}: is empty")
        self.columns: Sequence[str] = [name.strip() for name in header[1]]

    def read(self, names: Sequence[str]) -> Iterator[Cells]:
        """The cells of the named columns as text."""
        indices = [self.columns.index(name) for name in names]
        rows = (row for _, row in self._rows())
        for block in _blocks(rows):
            yield [[row[index] for row in block] for index in indices]

    def place(self, index: int) -> str:
        """The line on which a row ends."""
        line, _ = next(islice(self._rows(), index, None))
        return f"line {line}"

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """The records after the header, each as wide as the header."""
        width = len(self.columns)
        for line, record in islice(self._records(), 1, None):
            if len(record) != width:
                fields = f"{len(record)} field{'s' * (len(record) != 1)}"
                raise InputError(f"{self.path}, line {line}: {fields}, where the header has {width}")
            yield line, record

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            try:
                for record in reader:
                    if len(record) > 1 or (record and record[0].strip()):
                        yield reader.line_num, record
            except csv.Error as error:
                raise InputError(f"{self.path}, line {reader.line_num}: {error}") from None
            except UnicodeDecodeError:
                _refuse_encoding(self.path)


class JsonLinesFile:
    """UTF-8 text with one JSON object on each line; the first object's keys name the columns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _, first = next(self._records())
        self.columns: Sequence[str] = list(first)

    def read(self, names: Sequence[str]) -> Iterator[Cells]:
        """The values of the named keys; InputError where an object lacks one."""
        rows = (self._pick(line, record, names) for line, record in self._records())
        for block in _blocks(rows):
            yield [list(column) for column in zip(*block, strict=True)]

    def place(self, index: int) -> str:
        """The line of an object."""
        line, _ = next(islice(self._records(), index, None))
        return f"line {line}"

    def _pick(self, line: int, record: dict[str, Any], names: Sequence[str]) -> list[Any]:
        try:
            return [record[name] for name in names]
        except KeyError as error:
            raise InputError(f"{self.path}, line {line}: no key {error.args[0]}") from None

    def _records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        with self.path.open(encoding="utf-8-sig") as file:
            try:
                for number, line in enumerate(file, start=1):
                    if not line.isspace():
                        yield number, self._object(number, line)
            except UnicodeDecodeError:
                _refuse_encoding(self.path)

    def _object(self, number: int, line: str) -> dict[str, Any]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            return record
        raise InputError(
            f"{self.path}, line {number}: not one complete JSON object: {shorten(line.strip())}"
            " (is the file cut short?)"
        )


class ParquetFile:
    """Parquet, by way of pyarrow, which only this format needs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            import pyarrow.parquet as parquet
        except ImportError:
            raise InputError(f"{path}: Parquet needs pyarrow: pip install 'stallfree[parquet]'") from None
        with _explained(self.path):
            self._file = parquet.ParquetFile(path)
        self.columns: Sequence[str] = list(self._file.schema_arrow.names)

    def read(self, names: Sequence[str]) -> Iterator[Cells]:
        """The values of the named columns as Python objects."""
        with _explained(self.path):
            for batch in self._file.iter_batches(BLOCK_ROWS, columns=list(names)):
                yield [batch.column(name).to_pylist() for name in names]

    def place(self, index: int) -> str:
        """The row's number, counted from 1."""
        return f"row {index + 1}"


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turns pyarrow's complaints about a damaged file into an InputError."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(f"{path}: damaged Parquet file ({reason})") from None


def _blocks(rows: Iterator[Any]) -> Iterator[list[Any]]:
    while block := list(islice(rows, BLOCK_ROWS)):
        yield block


def _refuse_encoding(path: Path) -> NoReturn:
    """Finds the line of the first byte that is no UTF-8."""
    data = path.read_bytes()
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8 text; save the file as UTF-8"
        ) from None
    raise InputError(f"{path}: is not UTF-8 text")
