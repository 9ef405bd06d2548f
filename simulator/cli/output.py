"""Delivers an answer: the page to stdout and to a file; paths are tried before the work starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import TYPE_CHECKING

from simulator.cli.options import OutputOptions
from simulator.errors import ConfigError, OutputError

if TYPE_CHECKING:
    from simulator.report import Page


def deliver(options: OutputOptions, work: Callable[[], Page]) -> None:
    """Do the work, write its page to `--output`, which is tried before the work starts, and print it."""
    with _destination(options.output) as write:
        with options.surroundings():
            page = work()
        # The file first: whoever reads stdout may leave early.
        write(page)
        _print(page, as_json=options.json)


@contextmanager
def out_folder(path: Path) -> Iterator[None]:
    """The folder that `--out` needs, made before the work starts; gone again if it comes to hold nothing.

    Raises ConfigError for one that cannot be made or written to.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        try:
            path.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=path).close()
        except OSError as error:
            raise ConfigError(f"--out: {path} cannot be used as a folder ({error.strerror})") from None
        yield
    finally:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def out_file(path: Path) -> Iterator[None]:
    """As `out_folder`, where `--out` is a file."""
    if path.is_dir():
        raise ConfigError(f"--out {path}: is a folder, a file is expected")
    with out_folder(path.parent):
        yield


def _print(page: Page, *, as_json: bool) -> None:
    from simulator.report import to_json, to_text

    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    text = to_json(page) if as_json else to_text(page, colour=colour)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"stdout: {error.strerror}") from None


@contextmanager
def _destination(path: Path | None) -> Iterator[Callable[[Page], None]]:
    """A writer for `path` that replaces the file in one step, or leaves it alone when the work fails.

    Raises ConfigError for a suffix without a format and for a path that cannot be written.
    """
    if path is None:
        yield lambda page: None
        return
    from simulator.report import FORMATS

    if path.suffix not in FORMATS:
        raise ConfigError(f"--output {path}: unknown format {path.suffix!r} (allowed: {', '.join(FORMATS)})")
    if path.is_dir():
        raise ConfigError(f"--output {path}: is a folder")
    try:
        with NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            partial = Path(file.name)
    except OSError as error:
        raise ConfigError(f"--output {path}: cannot be written ({error.strerror})") from None
    try:
        yield lambda page: _replace(path, partial, FORMATS[path.suffix](page))
    finally:
        partial.unlink(missing_ok=True)


def _replace(path: Path, partial: Path, text: str) -> None:
    partial.write_text(text, encoding="utf-8")
    partial.chmod(0o666 & ~_umask())
    partial.replace(path)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
