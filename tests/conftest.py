"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real traces, tables and runs: $STALLFREE_SHARED_DATA, else ../shared/data; skips if absent."""
    path = Path(os.environ.get("STALLFREE_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"no shared data at {path} (set STALLFREE_SHARED_DATA)")
    return path
