"""What an attention backend is: an object that plans a call once an iteration and runs it in every layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from profiler.kernels.batch import AttnBatch
from simulator.errors import ConfigError

if TYPE_CHECKING:
    from profiler.device import Device
    from profiler.kernels.paged import AttnStep, KVPool

Run = Callable[[Any, "KVPool", Any], Any]
"""run(q, pool, out) -> the attention output; `out` is written where the library can, and else ignored."""


class AttentionBackend(ABC):
    """One library's attention kernel. Nothing of the library is imported before `unusable` is asked."""

    name: ClassVar[str]
    paged: ClassVar[bool] = True
    """False: keys and values of a sequence lie in one piece, which no serving engine does."""
    packed: ClassVar[bool] = False
    """True: keys and values share one tensor, as in vLLM."""
    page_multiple: ClassVar[int] = 1
    """Page sizes must be a multiple of this."""
    policy: ClassVar[str] = "library default"
    """How the KV sequence is split over the GPU, in words, for the table's protocol."""

    def __init__(self, device: Device) -> None:
        self.device = device

    @classmethod
    @abstractmethod
    def unusable(cls, device: Device) -> str:
        """Why the backend cannot run here; empty if it can."""

    @classmethod
    @abstractmethod
    def versions(cls) -> dict[str, str]:
        """The versions of the libraries that run the kernel."""

    @abstractmethod
    def plan(self, step: AttnStep) -> Run:
        """Do the host work of one iteration; the result holds until the next plan."""

    @classmethod
    def check(cls, page_size: int) -> None:
        """Raise ConfigError for a page size that the kernel cannot read."""
        if cls.paged and (page_size < 1 or page_size % cls.page_multiple):
            raise ConfigError(
                f"--page-size: {cls.name} needs a multiple of {cls.page_multiple}, found {page_size}"
            )

    def table_page_size(self, page_size: int) -> int:
        """The page size that a table of this backend states: 0 where the cache is not paged."""
        return page_size if self.paged else 0


def scale(batch: AttnBatch) -> float:
    """The softmax scale."""
    return float(batch.head_dim**-0.5)


def attention(attend: Run, q: Any, pool: KVPool) -> Any:
    """A layer's attention as model and profiler call it: a fresh output, [tokens, q_heads x head_dim]."""
    import torch

    return attend(q, pool, torch.empty_like(q)).flatten(1)
