"""Which simulator this is: a hash of the sources that decide a result."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import numpy as np

NOT_DECIDING = ("cli", "report", "reproduce", "search", "validate")
"""Packages of the simulator that only ask for trials or show them."""
BUT_DECIDING = ("search/inputs.py", "search/trials.py")


@cache
def code_hash() -> str:
    """Hash of those sources, and of numpy's version, which draws the requests; as hexadecimal."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256(np.__version__.encode())
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if name.partition("/")[0] not in NOT_DECIDING or name in BUT_DECIDING:
            digest.update(name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
