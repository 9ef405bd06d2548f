"""`stallfree runs`: what the store of finished trials holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter, validators

from simulator.cli.options import STORE_DEFAULTS, AtLeastOne, StoreOptions
from simulator.cli.output import deliver
from simulator.errors import ConfigError

if TYPE_CHECKING:
    from simulator.report import Page

# The calendar begins in the year 1, which is farther back than this.
Days = Annotated[float, Parameter(validator=validators.Number(gt=0, lte=365_000))]

runs = App(name="runs", help="List, show, export and clear the trials that searches keep.")


@runs.command(name="list")
def list_(*, limit: AtLeastOne = 20, options: StoreOptions = STORE_DEFAULTS) -> None:
    """List the newest trials.

    Parameters
    ----------
    limit
        How many to list.
    """

    def page() -> Page:
        from simulator.report.runs import trials_page

        store = options.opened()
        return trials_page(store.newest(limit), len(store), store.path)

    deliver(options, page)


@runs.command
def show(key: str, *, options: StoreOptions = STORE_DEFAULTS) -> None:
    """Show one trial with all its latencies.

    Parameters
    ----------
    key
        The key as listed, or the start of it.
    """

    def page() -> Page:
        from simulator.report.runs import trial_page

        store = options.opened()
        found = store.starting_with(key)
        if len(found) != 1:
            raise ConfigError(f"{store.path}: {len(found) or 'no'} trials have a key that starts with {key}")
        return trial_page(found[0])

    deliver(options, page)


@runs.command
def export(*, options: StoreOptions = STORE_DEFAULTS) -> None:
    """Write all trials with their latencies, e.g. --output trials.csv (or .json, with everything)."""

    def page() -> Page:
        from simulator.report.runs import export_page

        store = options.opened()
        return export_page(store.newest(), store.path)

    deliver(options, page)


@runs.command
def gc(*, older_than_days: Days | None = None, options: StoreOptions = STORE_DEFAULTS) -> None:
    """Delete the trials of other versions of the simulator, which no search can find any more.

    Parameters
    ----------
    older_than_days
        Delete also what finished longer ago than this.
    """

    def page() -> Page:
        from simulator.report.runs import dropped_page

        store = options.opened()
        dropped = store.drop_other_code()
        if older_than_days is not None:
            dropped += store.drop_before(datetime.now(UTC) - timedelta(days=older_than_days))
        return dropped_page(dropped, len(store), store.path)

    deliver(options, page)
