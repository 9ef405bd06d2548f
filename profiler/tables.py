"""The one schema of kernel tables, whoever measured them: a folder with `meta.yaml` and `rows.csv`.

A row is one measured point. Columns that do not apply are empty: they read as 0, NaN (statistics) or "".

- gemm: m, n, k of [m, k] x [k, n] on one rank;
- attention: num_chunks chunks of chunk_tokens each, every one on prefix_tokens; num_decodes decodes whose KV
  lengths (the new token included) sum to decode_kv_tokens, the largest being decode_kv_max_tokens, and
  decode_kv_lengths listing them where they differ and are known (`3x100 1x400`); q_heads, kv_heads,
  head_dim, window (0 = none);
- all_reduce, send_recv: message_bytes, world_size, topology (nvlink, nvlink_pair, pcie, ethernet);
- rmsnorm, rope, activation, kv_write, embedding: m tokens of `width` elements;
- sampler: m sequences over a vocabulary of `width`;
- host: m sequences in the iteration.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from simulator.errors import InputError, suggest

META_FILE = "meta.yaml"
ROWS_FILE = "rows.csv"

ELEMENTWISE_OPS = ("rmsnorm", "rope", "activation", "kv_write", "embedding", "sampler")
OPS = ("gemm", "attention", "all_reduce", "send_recv", *ELEMENTWISE_OPS, "host")


class TableMeta(BaseModel):
    """Where the rows of a table come from; another backend or page size is another table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    device: str
    driver: str = ""
    libraries: dict[str, str] = {}
    backend: str = ""
    page_size: int = 0
    kv_write: Literal["included", "excluded"] = "excluded"
    """Whether the attention rows contain the write of new keys and values into the cache."""
    gaps: Literal["included", "excluded"] = "included"
    """Whether times contain the gap before a kernel: replayed graphs do, sums of kernel durations do not."""
    protocol: str = ""
    source: str = ""
    licence: str = ""
    notes: tuple[str, ...] = ()
    environment: dict[str, Any] = {}
    """Anything else that was recorded about the machine: clocks, temperatures, anchors."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One measured point; `latency_us` is the median (or the only statistic the source has)."""

    op: str
    dtype: str = ""
    m: int = 0
    n: int = 0
    k: int = 0
    chunk_tokens: int = 0
    prefix_tokens: int = 0
    num_chunks: int = 0
    num_decodes: int = 0
    decode_kv_tokens: int = 0
    decode_kv_max_tokens: int = 0
    decode_kv_lengths: str = ""
    q_heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    window: int = 0
    message_bytes: int = 0
    world_size: int = 0
    topology: str = ""
    width: int = 0
    latency_us: float = math.nan
    p10_us: float = math.nan
    p90_us: float = math.nan
    num_samples: int = 0
    pass_id: str = ""
    flags: str = ""
    """Words joined by `;`, such as `spread` (p90/p10 above 1.1) or `clock_drop`."""


COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(KernelRow))
_TEXT = ("op", "dtype", "decode_kv_lengths", "topology", "pass_id", "flags")
_STATISTICS = ("latency_us", "p10_us", "p90_us")
_NOT_IN_KEY = (*_STATISTICS, "num_samples", "flags")
KEY_COLUMNS: tuple[str, ...] = tuple(name for name in COLUMNS if name not in _NOT_IN_KEY)

RowKey = tuple[str | int, ...]


def row_key(row: KernelRow) -> RowKey:
    """What identifies a measured point: its op, shape and pass, without the statistics."""
    return tuple(getattr(row, name) for name in KEY_COLUMNS)


@dataclass(frozen=True)
class KernelTable:
    """A kernel table in memory: its meta data and one numpy array per column."""

    meta: TableMeta
    columns: Mapping[str, np.ndarray]
    origin: str = ""

    @classmethod
    def read(cls, path: str | Path) -> KernelTable:
        """Reads a table folder; raises InputError with file and line for what is not of the schema."""
        folder = Path(path)
        return cls.from_rows(read_meta(folder), _read_rows(folder / ROWS_FILE), str(folder))

    @classmethod
    def from_rows(cls, meta: TableMeta, rows: Iterable[KernelRow], origin: str = "") -> KernelTable:
        """A table of rows that need no file."""
        listed = list(rows)
        columns: dict[str, np.ndarray] = {
            name: np.array([getattr(row, name) for row in listed], dtype=_dtype_of(name)) for name in COLUMNS
        }
        return cls(meta, columns, origin)

    def __len__(self) -> int:
        return len(self.columns["op"])

    def __getitem__(self, column: str) -> np.ndarray:
        return self.columns[column]

    def where(self, mask: np.ndarray) -> KernelTable:
        """The rows for which `mask` holds."""
        return KernelTable(self.meta, {name: col[mask] for name, col in self.columns.items()}, self.origin)

    def select(self, *ops: str) -> KernelTable:
        """The rows of the given ops."""
        return self.where(np.isin(self.columns["op"], ops))

    def rows(self) -> Iterator[KernelRow]:
        """The rows one by one."""
        lists = [self.columns[name].tolist() for name in COLUMNS]
        for values in zip(*lists, strict=True):
            yield KernelRow(*values)


class TableWriter:
    """Appends rows to a table folder, one flushed line each, so that a killed run keeps what it measured.

    Opening a folder that already holds a table resumes it: the meta data must be of the same device, backend
    and protocol (InputError otherwise), and a last line that was cut off is removed.
    """

    def __init__(self, path: str | Path, meta: TableMeta) -> None:
        self.folder = Path(path)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._rows_path = self.folder / ROWS_FILE
        self._resume_or_create(meta)
        self._file = self._rows_path.open("a", encoding="utf-8", newline="")
        if self._file.tell() == 0:
            self._file.write(",".join(COLUMNS) + "\n")
            self._file.flush()

    def existing_keys(self) -> set[RowKey]:
        """Keys of the rows that the folder holds: the points that need no second measurement."""
        return {row_key(row) for row in _read_rows(self._rows_path)}

    def append(self, *rows: KernelRow) -> None:
        """Writes rows and flushes them; raises InputError for a row that a reader would refuse."""
        for row in rows:
            _check_row(row, f"row for {self._rows_path}")
        self._file.write("".join(_format_row(row) for row in rows))
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _resume_or_create(self, meta: TableMeta) -> None:
        if (self.folder / META_FILE).exists():
            _check_same_conditions(read_meta(self.folder), meta, self.folder)
        else:
            write_meta(self.folder, meta)
        if self._rows_path.exists():
            _drop_cut_line(self._rows_path)
            _check_header(self._rows_path)


def read_meta(folder: Path) -> TableMeta:
    """Reads `meta.yaml` of a table folder; raises InputError if it is missing or not of the schema."""
    path = folder / META_FILE
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{folder}: not a kernel table: {META_FILE} is missing (it is a folder with that and {ROWS_FILE})"
        ) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: a mapping is expected, found {type(data).__name__}")
    try:
        return TableMeta.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        hint = suggest(key, TableMeta.model_fields) if first["type"] == "extra_forbidden" else ""
        raise InputError(f"{path}: {key}: {first['msg']}{hint}") from None


def write_meta(folder: Path, meta: TableMeta) -> None:
    """Writes `meta.yaml`."""
    text = yaml.safe_dump(meta.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=110)
    (folder / META_FILE).write_text(text, encoding="utf-8")


def _check_same_conditions(old: TableMeta, new: TableMeta, folder: Path) -> None:
    for name in ("device", "backend", "page_size", "kv_write", "protocol"):
        before, now = getattr(old, name), getattr(new, name)
        if before != now:
            raise InputError(
                f"{folder}: holds rows of {name} {before!r}, this run has {now!r}; choose another folder"
            )


def _dtype_of(column: str) -> type:
    if column in _TEXT:
        return str
    return float if column in _STATISTICS else int


def _format_row(row: KernelRow) -> str:
    buffer = io.StringIO()
    values = (getattr(row, name) for name in COLUMNS)
    csv.writer(buffer, lineterminator="\n").writerow([_format(value) for value in values])
    return buffer.getvalue()


def _format(value: str | int | float) -> str:
    if isinstance(value, str):
        return value
    if value == 0 or math.isnan(value):
        return ""
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _drop_cut_line(path: Path) -> None:
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)


def _check_header(path: Path) -> None:
    with path.open(encoding="utf-8") as file:
        header = file.readline().rstrip("\n")
    if header not in ("", ",".join(COLUMNS)):
        raise InputError(f"{path}: its columns are not those that this release writes; choose another folder")


def _read_rows(path: Path) -> Iterator[KernelRow]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: file is missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from None
    reader = csv.reader(io.StringIO(text))
    header = next(reader, None)
    if header is None:
        raise InputError(f"{path}: the file is empty, a header line is expected")
    parsers = [_parser(name, path) for name in header]
    for name in ("op", "latency_us"):
        if name not in header:
            raise InputError(f"{path}: column {name!r} is missing")
    cut_off = not text.endswith("\n")
    lines = [line for line in reader if line]
    for index, line in enumerate(lines):
        if len(line) != len(header):
            if cut_off and index == len(lines) - 1:
                return  # the write of the last row was interrupted
            raise InputError(f"{path}:{index + 2}: {len(line)} fields, the header has {len(header)}")
        yield _parse_row(header, parsers, line, f"{path}:{index + 2}")


def _parser(column: str, path: Path) -> Any:
    if column not in COLUMNS:
        raise InputError(f"{path}: unknown column {column!r}{suggest(column, COLUMNS)}")
    if column in _TEXT:
        return str
    return (lambda text: float(text) if text else math.nan) if column in _STATISTICS else _parse_int


def _parse_int(text: str) -> int:
    if not text:
        return 0
    number = float(text)
    if number != int(number) or number < 0:
        raise ValueError("a whole number >= 0 is expected")
    return int(number)


def _parse_row(header: list[str], parsers: list[Any], line: list[str], where: str) -> KernelRow:
    values: dict[str, Any] = {}
    for name, parse, text in zip(header, parsers, line, strict=True):
        try:
            values[name] = parse(text)
        except (ValueError, OverflowError):
            kind = "a number" if name in _STATISTICS else "a whole number >= 0"
            raise InputError(f"{where}: {name} is {text!r}, {kind} is expected") from None
    row = KernelRow(**values)
    _check_row(row, where)
    return row


_REQUIRED: dict[str, tuple[str, ...]] = {
    "gemm": ("m", "n", "k"),
    "attention": ("q_heads", "kv_heads", "head_dim"),
    "all_reduce": ("message_bytes", "world_size"),
    "send_recv": ("message_bytes",),
    "host": ("m",),
    **dict.fromkeys(ELEMENTWISE_OPS, ("m", "width")),
}


def _check_row(row: KernelRow, where: str) -> None:
    required = _REQUIRED.get(row.op)
    if required is None:
        raise InputError(f"{where}: unknown op {row.op!r}{suggest(row.op, OPS)}")
    if row.op == "attention":
        required += ("chunk_tokens",) if row.num_chunks else ("num_decodes",)
        required += ("decode_kv_tokens",) if row.num_decodes else ()
    for name in required:
        if getattr(row, name) <= 0:
            raise InputError(f"{where}: {row.op} needs {name} > 0, found {getattr(row, name)}")
    if not (math.isfinite(row.latency_us) and row.latency_us > 0):
        raise InputError(f"{where}: latency_us is {row.latency_us}, a finite number > 0 is expected")
