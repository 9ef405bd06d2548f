"""Every command that the README shows with its output prints exactly that.

    STALLFREE_UPDATE_README=1 pytest -n 0 tests/golden/test_readme.py

writes what the commands print now into the README instead.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
BLOCK = re.compile(r"^```console\n\$ (?P<command>stallfree [^\n]*)\n(?P<output>.*?)^```$", re.M | re.S)
BLOCKS = list(BLOCK.finditer(README.read_text(encoding="utf-8")))


def output_of(command: str) -> str:
    arguments = [sys.executable, "-m", "simulator", *shlex.split(command)[1:]]
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(arguments, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_shows_commands_with_their_output() -> None:
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block["command"])
def test_the_readme_shows_what_is_printed(block: re.Match[str]) -> None:
    printed = output_of(block["command"])
    if os.environ.get("STALLFREE_UPDATE_README"):
        text = README.read_text(encoding="utf-8")
        shown = f"```console\n$ {block['command']}\n"
        README.write_text(text.replace(shown + block["output"], shown + printed), encoding="utf-8")
    else:
        assert printed == block["output"]
