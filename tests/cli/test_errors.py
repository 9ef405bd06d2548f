"""Bad usage and impossible questions: one line, the right exit code, nothing half-written."""

from __future__ import annotations

import os
import resource
import runpy
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from killing import Search

COMMAND = [sys.executable, "-c", "import sys; from simulator.cli import main; sys.exit(main())"]

USAGE = [
    (["simulat"], "simulate"),
    (["simulate", "nosuch"], "unknown scenario 'nosuch'"),
    (["simulate", "defalt"], "did you mean 'default'?"),
    (["simulate", "a.yaml"], "a.yaml: no such file"),
    (["simulate", "default", "extra"], "extra"),
    (["simulate", "--sed", "1"], "--seed"),
    (["simulate", "--seed", "x"], "--seed"),
    (["simulate", "--seed", "-1"], "--seed"),
    (["simulate", "--seed", str(10**22)], "--seed. Must be <= 4294967295"),
    (["simulate", "--runs", str(10**22)], "--runs. Must be <= 4294967295"),
    (["runs", "list", "--limit", str(10**22)], "--limit. Must be <= 4294967295"),
    (["runs", "gc", "--older-than-days", "1e12"], "--older-than-days. Must be <= 365000"),
    (["simulate", "--runs", "0"], "--runs"),
    (["simulate", "--jobs", "0"], "--jobs"),
    (["simulate", "--set"], "--set"),
    (["simulate", "--set", "seed"], "key.path=value"),
    (["simulate", "--set", "scheduler.token_bugdet=1"], "token_budget"),
    (["simulate", "--set", "scheduler.token_budget=0"], "scheduler.token_budget"),
    (["simulate", "--set", "workload.rate_rps=-1"], "workload.rate_rps"),
    (["simulate", "--set", "model=gpt-9"], "unknown model 'gpt-9'"),
    (["simulate", "--set", "slo.p98_tbt_ms=1"], "p98"),
    (["simulate", "--output", "x.pdf"], "unknown format '.pdf' (allowed: .json, .csv, .md, .txt)"),
    (["simulate", "--output", "x"], "unknown format ''"),
    (["simulate", "--output", "/no/such/folder/x.json"], "cannot be written"),
    (["budget", "--rate", "0"], "--rate"),
    (["plan", "--rate", "1", "--max-gpus", "10001"], "--max-gpus"),
    (["budget", "--rate", "nan"], "--rate"),
    (["budget", "--by", "tbt"], "--by"),
    (["budget", "--budgets", "0"], "--budgets"),
    (["budget", "--set", "scheduler.policy=orca"], "orca has no token budget"),
    (["budget", "--set", "model=llama-3-70b"], "does not fit"),
    (["capacity", "--set", "slo=null"], "slo"),
    (["capacity", "--set", "slo={}"], "a capacity needs an SLO"),
    (["compare"], "at least two"),
    (["compare", "--policy", "orca"], "at least two"),
    (["compare", "--policy", "orca", "--policy", "orca"], "differ in name"),
    (["compare", "--policy", "orca", "--policy", "fifo"], "fifo"),
    (["compare", "--variant", "a:"], "--variant"),
    (["compare", "--variant", "a: scheduler=1"], "scheduler"),
    (["compare", "--variant", "a: routing=x"], "--variant: routing"),
    (["compare", "--set", "routing=x"], "--set: routing"),
    (["list", "colours"], "colours"),
]


@pytest.mark.parametrize(("arguments", "said"), USAGE, ids=[" ".join(each) for each, _ in USAGE])
def test_usage_and_configuration(stallfree, arguments: list[str], said: str):
    outcome = stallfree(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    [line] = [line for line in outcome.err.splitlines() if not line.startswith("capacity at budgets")]
    assert line.startswith("error: ")
    assert said in line


def test_infeasible_questions_name_the_nearest_miss(stallfree, small: str):
    alone = stallfree("capacity", small, "--set", "slo.p99_tbt_ms=1", "--jobs", "1")
    assert alone.code == 3
    assert "holds at no load" in alone.err
    assert "p99_tbt_ms" in alone.err
    loaded = stallfree("budget", small, "--rate", "1000", "--budgets", "256", "512", "--jobs", "1", "--quiet")
    assert loaded.code == 3
    assert "nearest: budget" in loaded.err
    assert loaded.out == ""


def test_a_failed_run_leaves_the_old_file_alone(stallfree, small: str, tmp_path: Path):
    path = tmp_path / "answer.json"
    path.write_text("old", encoding="utf-8")
    outcome = stallfree("capacity", small, "--set", "slo.p99_tbt_ms=1", "--jobs", "1", "--output", str(path))
    assert outcome.code == 3
    assert path.read_text(encoding="utf-8") == "old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["answer.json", "small.yaml"]


def test_output_is_tried_before_the_work_starts(stallfree, small: str, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("simulator.search.fanout.fan_out", lambda *_, **__: pytest.fail("worked"))
    outcome = stallfree("simulate", small, "--output", str(tmp_path / "no" / "x.json"))
    assert outcome.code == 2
    (tmp_path / "folder.json").mkdir()
    assert "is a folder" in stallfree("simulate", small, "--output", str(tmp_path / "folder.json")).err


def test_as_a_module_it_exits_with_the_same_code(monkeypatch):
    for arguments, code in (["--version"], 0), (["simulat"], 2):
        monkeypatch.setattr(sys, "argv", ["stallfree", *arguments])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("simulator", run_name="__main__")
        assert ended.value.code == code


def test_our_own_bugs_exit_1_and_ask_for_a_report(stallfree, small: str, monkeypatch):
    monkeypatch.setattr("simulator.report.simulation.simulation_page", lambda *_: 1 / 0)
    outcome = stallfree("simulate", small)
    assert outcome.code == 1
    assert "please report it: ZeroDivisionError" in outcome.err
    assert "Traceback" not in outcome.err
    assert "Traceback" in stallfree("simulate", small, "--debug").err
    monkeypatch.setenv("STALLFREE_DEBUG", "1")
    assert "Traceback" in stallfree("simulate", small).err


def test_an_interrupt_exits_130(stallfree, small: str, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("simulator.report.simulation.simulation_page", interrupted)
    outcome = stallfree("simulate", small)
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "error: interrupted\n")


def test_sigterm_leaves_no_process_and_no_file(small: str, tmp_path: Path):
    answers = tmp_path / "answers"
    answers.mkdir()
    question = ["capacity", small, "--runs", "8", "--jobs", "2", "--set", "workload.num_requests=1000"]
    question += ["--quiet", "--output", str(answers / "answer.json")]
    search = Search(question, tmp_path / "store")
    search.work_until(1)
    assert search.end(signal.SIGTERM) == (128 + signal.SIGTERM, b"", b"error: interrupted\n")
    patience = time.monotonic() + 5
    while search.any_left() and time.monotonic() < patience:
        time.sleep(0.02)
    assert not search.any_left()
    assert not list(answers.iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_is_ignored_stays_so(stallfree, small: str, monkeypatch, number: signal.Signals):
    """As `nohup` wants it."""
    monkeypatch.setattr("simulator.report.simulation.simulation_page", lambda *_: signal.raise_signal(number))
    before = signal.signal(number, signal.SIG_IGN)
    try:
        assert "interrupted" not in stallfree("simulate", small).err
        signal.signal(number, signal.SIG_DFL)
        assert stallfree("simulate", small) == (128 + number, "", "error: interrupted\n")
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize(
    "arguments", [["list", "models"], ["--help"], ["simulate", "--help"], ["--version"]], ids=" ".join
)
def test_a_reader_that_leaves_is_no_error(arguments: list[str]):
    read, write = os.pipe()
    os.close(read)
    finished = subprocess.run([*COMMAND, *arguments], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert finished.returncode == 0
    assert finished.stderr == b""


def test_a_reader_that_leaves_does_not_keep_the_file_from_being_written(small: str, tmp_path: Path):
    read, write = os.pipe()
    os.close(read)
    path = tmp_path / "answer.json"
    finished = subprocess.run([*COMMAND, "simulate", small, "--output", str(path)], stdout=write, check=False)
    os.close(write)
    assert finished.returncode == 0
    assert path.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is a device of Linux")
def test_a_full_disk_behind_stdout_is_no_bug():
    with open("/dev/full", "w", encoding="utf-8") as full:
        finished = subprocess.run(
            [*COMMAND, "list", "models"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (finished.returncode, finished.stderr) == (2, "error: stdout: No space left on device\n")


def test_a_closed_stdout_or_stderr_takes_nothing_and_breaks_nothing(small: str, tmp_path: Path):
    path = tmp_path / "answer.json"
    command = shlex.join([*COMMAND, "simulate", small, "--output", str(path)])
    finished = subprocess.run(f"{command} >&-", shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert path.exists()
    command = shlex.join([*COMMAND, "capacity", small, "--runs", "2", "--jobs", "2", "--no-store"])
    finished = subprocess.run(f"{command} 2>&-", shell=True, stdout=subprocess.PIPE, check=False)
    assert finished.returncode == 0
    assert finished.stdout


def test_help_is_quick_and_plain():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    finished = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5
    for command in ("simulate", "capacity", "budget", "compare", "list"):
        assert f"  {command}: " in finished.stdout
    assert not set(finished.stdout) & set("│─╭╮╰╯")


def test_version(stallfree):
    from simulator import __version__

    outcome = stallfree("--version")
    assert (outcome.code, outcome.out.strip()) == (0, __version__)
