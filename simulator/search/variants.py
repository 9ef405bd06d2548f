"""What `compare` compares: every scenario with every group of changes under every policy, by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from simulator.errors import ConfigError
from simulator.load import load_scenario

if TYPE_CHECKING:
    from simulator.config import Scenario

NAMED = re.compile(r"\s*(?P<name>[^=:]+):\s*(?P<sets>.*)", re.DOTALL)
NEXT_KEY = re.compile(r",\s*(?=[A-Za-z_][\w.]*=)")
BASE = "base"


def parse_variant(text: str) -> tuple[str, tuple[str, ...]]:
    """Name and overrides of `name: a.b=c, d=e`; the overrides name a group that has no name of its own.

    Raises ConfigError for a group without overrides.
    """
    named = NAMED.fullmatch(text)
    name, sets = (named["name"].strip(), named["sets"]) if named else (text.strip(), text)
    if not sets.strip():
        raise ConfigError(f'--variant {text!r}: must be "name: key.path=value, key.path=value"')
    return name, tuple(part.strip() for part in NEXT_KEY.split(sets.strip()))


def variants_of(
    scenarios: Sequence[str], sets: Sequence[str], groups: Sequence[str], policies: Sequence[str]
) -> list[tuple[str, Scenario]]:
    """All combinations with their labels, the baseline first.

    Groups are compared with the scenario without them. All scenarios serve the workload of the first one, so
    that they see the same requests.
    """
    changes: list[tuple[str, tuple[str, ...]]] = [parse_variant(group) for group in groups]
    if len(scenarios) == 1 and changes and not policies:
        changes.insert(0, (BASE, ()))
    variants = []
    for name, (label, changed), policy in product(scenarios, changes or [("", ())], policies or [""]):
        overrides = [*sets, *changed]
        where = " or ".join(["--set"] * bool(sets) + ["--variant"] * bool(changed))
        scenario = load_scenario(name, overrides, where)
        workload = load_scenario(scenarios[0], overrides, where).workload
        updates: dict[str, object] = {"workload": workload.model_dump()}
        if policy:
            updates["scheduler.policy"] = policy
        parts = [name if len(scenarios) > 1 else "", label, policy]
        variants.append((" ".join(filter(None, parts)) or name, scenario.with_(updates, where="--policy")))
    return variants
