"""Shows the progress of a search on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from simulator.search.progress import SILENT

if TYPE_CHECKING:
    from simulator.search.progress import Count, Progress

LINE_EVERY_S = 5.0


def progress(*, quiet: bool) -> Progress:
    """What fits where stderr goes; nothing if `quiet`."""
    if quiet:
        return SILENT
    return Bar() if sys.stderr.isatty() else Lines()


class Lines:
    """Plain lines; while calls are counted, one in so many seconds."""

    def __init__(
        self,
        write: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._write = write
        self._clock = clock
        self._best = ""

    def __call__(self, line: str) -> None:
        """Write a line."""
        self._write(line)

    def best(self, words: str) -> None:
        """Keep it for the next line."""
        self._best = words

    @contextmanager
    def counting(self, total: int) -> Iterator[Count]:
        """Write how many calls are done, how fast, and how long the others will take."""
        began_s = last_s = self._clock()

        def count(done: int) -> None:
            nonlocal last_s
            now_s = self._clock()
            if now_s - last_s >= LINE_EVERY_S and done < total:
                last_s = now_s
                self._write(self._line(done, total, now_s - began_s))

        yield count

    def _line(self, done: int, total: int, passed_s: float) -> str:
        left_s = (total - done) * passed_s / done
        line = f"{done}/{total} done, {done / passed_s:.2g}/s, about {left_s:.0f} s left"
        return f"{line}; best so far: {self._best}" if self._best else line


class Bar:
    """A bar at the foot of the terminal, above it the lines."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._best = ""
        self._show_best: Callable[[], None] = lambda: None

    def __call__(self, line: str) -> None:
        """Write a line."""
        self._console.print(line, markup=False, highlight=False)

    def best(self, words: str) -> None:
        """Show it beside the bar."""
        self._best = f"best so far: {words}"
        self._show_best()

    @contextmanager
    def counting(self, total: int) -> Iterator[Count]:
        """Show how many calls are done, how fast, and how long the others will take; then clear the line."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[best]}", markup=False),
        )
        began_s = monotonic()
        with Progress(*columns, console=self._console, transient=True) as shown:
            task = shown.add_task("", total=total, rate="", best=self._best)
            self._show_best = lambda: shown.update(task, best=self._best)

            def count(done: int) -> None:
                rate = done / max(monotonic() - began_s, 1e-9)
                shown.update(task, completed=done, rate=f"{rate:.2g}/s")

            yield count
        self._show_best = lambda: None
