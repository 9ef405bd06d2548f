"""`stallfree list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from simulator.cli.options import OUTPUT_DEFAULTS, OutputOptions
from simulator.cli.output import deliver

if TYPE_CHECKING:
    from simulator.report import Page

Kind = Literal[
    "models", "gpus", "clusters", "engines", "scenarios", "kernels", "prices", "traces", "policies"
]


def list_(kind: Kind | None = None, *, options: OutputOptions = OUTPUT_DEFAULTS) -> None:
    """List what is shipped: models, GPUs, scenarios, traces and more.

    Parameters
    ----------
    kind
        One kind, with a word on each entry; by default the names of all kinds.
    """

    def page() -> Page:
        from simulator.report.catalogue import all_kinds_page, kind_page

        return all_kinds_page() if kind is None else kind_page(kind)

    deliver(options, page)
