"""What a profiling run is asked to measure; needs no torch, so that a dry run runs anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from profiler.device import check_device
from profiler.grid import GRIDS, Block, model_grid
from profiler.kernels.registry import named_backend
from profiler.tables import OPS
from simulator.errors import ConfigError, suggest
from simulator.hardware import ModelSpec
from simulator.load import load_gpu


@dataclass(frozen=True, kw_only=True)
class ProfileJob:
    """What to measure, where, and how long at most."""

    model: ModelSpec
    out: Path
    tensor_parallel: tuple[int, ...] = (1,)
    device: str = "cuda"
    gpu: str = ""
    """Name of the GPU preset that the table is of; empty: found from the device's name."""
    attention: str = "auto"
    page_size: int = 16
    dtype: str = ""
    """Empty: the model's on a GPU, fp32 on a CPU."""
    grid: str = ""
    """full or small; empty: full on a GPU, small on a CPU."""
    ops: tuple[str, ...] = ()
    """Only these ops; empty: all."""
    max_len: int | None = None
    """Longest sequence; None: the model's."""
    passes: int = 2
    deadline_s: float | None = None
    resume: bool = False

    @property
    def on_cuda(self) -> bool:
        """Whether the device is named as a GPU; needs no torch."""
        return self.device.startswith("cuda")

    @property
    def kind(self) -> str:
        """cuda or cpu."""
        return "cuda" if self.on_cuda else "cpu"

    @property
    def table_dtype(self) -> str:
        """The dtype that is measured: CPUs without bf16 units would make nonsense of the model's."""
        return self.dtype or (self.model.dtype if self.on_cuda else "fp32")

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return self.max_len or self.model.max_position_embeddings

    def check(self) -> None:
        """Raise ConfigError for what is wrong whatever the machine; `blocks` does so for the grid."""
        check_device(self.device)
        if self.gpu:
            load_gpu(self.gpu)
        backend = named_backend(self.attention, on_cuda=self.on_cuda)
        if backend is not None:
            backend.check(self.page_size)
        most = max(self.longest, self.model.max_position_embeddings)
        if self.page_size > most:
            raise ConfigError(
                f"--page-size: no sequence is longer than {most} tokens, found {self.page_size}"
            )

    def blocks(self) -> list[Block]:
        """The grid in order of priority; ConfigError for an unknown grid or a TP that does not divide."""
        name = self.grid or ("full" if self.on_cuda else "small")
        if name not in GRIDS:
            raise ConfigError(f"--grid: unknown grid {name!r}{suggest(name, GRIDS)}")
        blocks = model_grid(
            self.model,
            self.tensor_parallel,
            GRIDS[name],
            self.table_dtype,
            longest=self.longest,
            passes=self.passes,
        )
        if not self.ops:
            return blocks
        for op in self.ops:
            if op not in OPS:
                raise ConfigError(f"--ops: unknown operator {op!r}{suggest(op, OPS)}")
        kept = (Block(block.name, tuple(p for p in block.points if p.op in self.ops)) for block in blocks)
        return [block for block in kept if block.points]
