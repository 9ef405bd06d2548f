"""The two rules of thumb beside a budget search."""

from __future__ import annotations

from typing import Any

from simulator.report.numbers import milliseconds
from simulator.report.page import Table, table
from simulator.search.rules import FREE_SHARE, RulesOfThumb


def rules_table(rules: RulesOfThumb) -> Table:
    """One row a rule: the budget that it names, and the time that decides."""
    beside = rules.beside
    decodes = f"{beside.num_decodes} decodes of {beside.decode_kv_tokens} tokens"
    within = "no bound on TBT" if rules.tbt_bound_s is None else f"<= {milliseconds(rules.tbt_bound_s)} ms"
    rows = [
        [f"largest whose iteration beside {decodes} meets the TBT bound", _budget(rules.within_slo), within],
        [
            f"largest that adds at most {FREE_SHARE:.0%} to what these decodes cost alone",
            _budget(rules.free),
            f"{milliseconds(rules.decodes_alone_s)} ms alone",
        ],
    ]
    return table(("rule of thumb", "token budget", "iteration"), rows)


def rules_document(rules: RulesOfThumb) -> dict[str, Any]:
    """The same for JSON, times in seconds."""
    return {
        "num_decodes": rules.beside.num_decodes,
        "decode_kv_tokens": rules.beside.decode_kv_tokens,
        "prefix_tokens": rules.beside.prefix_tokens,
        "decodes_alone_s": rules.decodes_alone_s,
        "tbt_bound_s": rules.tbt_bound_s,
        "within_slo": rules.within_slo,
        "free": rules.free,
    }


def _budget(budget: int | None) -> str:
    return "none" if budget is None else str(budget)
