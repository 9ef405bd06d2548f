"""A Ray and a Dask cluster of two processes each, on loopback, while the tests of this folder run."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

START_TIMEOUT_S = 60.0
BIN = Path(sys.executable).parent


@pytest.fixture(scope="session")
def ray_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a Ray cluster with two CPUs."""
    pytest.importorskip("ray", reason="the extra [ray] is not installed")
    port = free_port()
    # Not below pytest's folder: Ray's socket paths may have 107 characters at the most.
    command = [
        BIN / "ray", "start", "--head", "--block", "--node-ip-address", "127.0.0.1", "--port", str(port),
        "--num-cpus", "2", "--object-store-memory", str(80 * 2**20), "--include-dashboard", "false",
        "--disable-usage-stats",
    ]  # fmt: skip
    log = tmp_path_factory.mktemp("ray") / "log"
    with running([command], log, until="Ray runtime started"):
        yield f"127.0.0.1:{port}"


@pytest.fixture(scope="session")
def dask_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a Dask scheduler with two workers of one thread each."""
    pytest.importorskip("distributed", reason="the extra [dask] is not installed")
    folder = tmp_path_factory.mktemp("dask")
    address = f"tcp://127.0.0.1:{free_port()}"
    scheduler = [
        BIN / "dask", "scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2],
        "--no-dashboard",
    ]  # fmt: skip
    worker = [
        BIN / "dask", "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard",
        "--local-directory", folder,
    ]  # fmt: skip
    with (
        running([scheduler], folder / "scheduler", until="Scheduler at:"),
        running([worker, worker], folder / "workers", until="Registered to:"),
    ):
        yield address


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def running(commands: list[list[str | Path]], log: Path, until: str) -> Iterator[None]:
    """The commands as processes with groups of their own, from when each has said `until`."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "RAY_DISABLE_IMPORT_WARNING": "1"}
    with log.open("wb") as output:
        processes = [
            subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
            for command in commands
        ]
    try:
        wait_for(until, len(commands), log, processes)
        yield
    finally:
        for process in processes:
            stop(process)


def wait_for(words: str, times: int, log: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while log.read_text(errors="replace").count(words) < times:
        if time.monotonic() > deadline or any(process.poll() is not None for process in processes):
            pytest.fail(f"no cluster: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and all it has started, with a word first."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sent)
            process.wait(10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
