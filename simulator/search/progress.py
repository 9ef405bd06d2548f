"""What a search says about how far it is; who listens decides what becomes of it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Progress(Protocol):
    """Listens to a search; the answer does not depend on it."""

    def __call__(self, line: str) -> None:
        """One line on what comes next."""

    def best(self, words: str) -> None:
        """The best answer so far."""

    def counting(self, total: int) -> AbstractContextManager[Count]:
        """So many calls are about to be made; the result is told how many of them are done."""


class Count(Protocol):
    """Is told how many calls are done."""

    def __call__(self, done: int) -> None: ...


def _ignore(done: int) -> None:
    pass


class Silent:
    """Progress that nobody watches."""

    def __call__(self, line: str) -> None:
        """Say nothing."""

    def best(self, words: str) -> None:
        """Forget it."""

    def counting(self, total: int) -> AbstractContextManager[Count]:
        """Count nothing."""
        return nullcontext(_ignore)


SILENT = Silent()
