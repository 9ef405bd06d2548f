"""Progress on stderr: a bar on a terminal, lines elsewhere, nothing at all with --quiet."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

from simulator.cli.progress import Lines

COMMAND = [sys.executable, "-c", "import sys; from simulator.cli import main; sys.exit(main())"]
QUESTION = ("budget", "--runs", "1", "--budgets", "256", "512", "--jobs", "1", "--no-store")


class Clock:
    """Seconds that pass when told."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_lines_come_now_and_then_with_rate_time_left_and_best() -> None:
    lines: list[str] = []
    clock = Clock()
    progress = Lines(lines.append, clock)
    with progress.counting(10) as count:
        for done in range(1, 11):
            clock.now_s += 2.0
            progress.best(f"{done} requests/s")
            count(done)
    assert lines == [
        "3/10 done, 0.5/s, about 14 s left; best so far: 3 requests/s",
        "6/10 done, 0.5/s, about 8 s left; best so far: 6 requests/s",
        "9/10 done, 0.5/s, about 2 s left; best so far: 9 requests/s",
    ]


def test_what_is_quick_is_not_counted() -> None:
    lines: list[str] = []
    with Lines(lines.append, Clock()).counting(3) as count:
        for done in range(1, 4):
            count(done)
    assert lines == []


def on_a_terminal(*arguments: str) -> tuple[str, str]:
    """Stdout, and what a terminal as stderr was sent."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "120"},
    ) as process:
        os.close(theirs)
        sent = b""
        while True:
            try:
                chunk = os.read(ours, 4096)
            except OSError:  # how Linux says that the other end is closed
                break
            if not chunk:
                break
            sent += chunk
        out = process.stdout.read() if process.stdout else ""
    os.close(ours)
    assert process.returncode == 0
    return out, sent.decode()


def test_a_terminal_gets_a_bar(small: str) -> None:
    out, sent = on_a_terminal(QUESTION[0], small, *QUESTION[1:])
    assert "━" in sent
    assert "5/5" in sent
    assert "best so far: " in sent
    assert "capacity at budgets 256, 512" in sent
    assert "━" not in out


def test_quiet_is_silent_on_a_terminal_too(small: str) -> None:
    out, sent = on_a_terminal(QUESTION[0], small, *QUESTION[1:], "--quiet")
    assert sent == ""
    assert out
