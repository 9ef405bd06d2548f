"""Lends a fan-out the processes of a Ray or Dask cluster, by joblib's own backends for them.

Whatever cannot be reached, or is not the same stallfree as here, is a ConfigError before any work starts.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from simulator.errors import ConfigError
from simulator.search.code import code_hash

Cluster = Literal["ray", "dask"]
CONNECT_TIMEOUT_S = 5.0


@contextmanager
def on_cluster(cluster: Cluster, address: str | None = None) -> Iterator[None]:
    """Within it every fan-out runs on the cluster at `address`.

    By default the address is the one that Ray or Dask is configured with; for Ray also that of a cluster on
    this machine.
    """
    with {"ray": _ray, "dask": _dask}[cluster](address):
        from joblib import parallel_config

        with parallel_config(backend=cluster):
            yield


@contextmanager
def _ray(address: str | None) -> Iterator[None]:
    with _extra("ray"):
        import ray
        from ray.exceptions import RayError, RayTaskError
        from ray.util.joblib import register_ray
        from ray.util.multiprocessing.pool import ResultThread
    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    if address != "auto":
        _reach("Ray", address)
    register_ray()
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR")
    except (Exception, SystemExit) as error:  # so it gives up on a cluster that has gone
        raise _unreachable("Ray", address, error) from None
    try:
        _require_this_code("Ray", lambda: [ray.get(ray.remote(lambda: code_hash()).remote())], RayError)
        yield
    except RayTaskError as error:
        raise error.cause from None
    finally:
        # After an error some of the pool's threads still wait for results, and would connect once more.
        for thread in threading.enumerate():
            if isinstance(thread, ResultThread):
                thread.join(CONNECT_TIMEOUT_S)
        ray.shutdown()


@contextmanager
def _dask(address: str | None) -> Iterator[None]:
    with _extra("dask"):
        import dask
        from distributed import Client
    address = address or dask.config.get("scheduler-address", None)
    if address is None:
        raise ConfigError(
            "--backend dask: give the scheduler's --address, such as tcp://127.0.0.1:8786"
            " (or set DASK_SCHEDULER_ADDRESS)"
        )
    _reach("Dask", address)
    try:
        client = Client(address, timeout=CONNECT_TIMEOUT_S)
    except Exception as error:
        raise _unreachable("Dask", address, error) from None
    with _without_log(), client:
        _require_this_code(
            "Dask", lambda: [client.run_on_scheduler(code_hash), *client.run(code_hash).values()], Exception
        )
        if not client.ncores():
            raise ConfigError(f"the Dask cluster at {address} has no workers")
        yield


@contextmanager
def _without_log() -> Iterator[None]:
    """What fails is raised; Dask would write it, and what it broke off because of it, to stderr as well."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _extra(name: str) -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise ConfigError(f"--backend {name} needs an extra: pip install 'stallfree[{name}]'") from None


def _reach(cluster: str, address: str) -> None:
    """Try the port: Ray itself would go on trying for more than a minute."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdecimal():
        raise ConfigError(f"--address {address}: must be HOST:PORT")
    try:
        socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(cluster, address, error) from None


def _unreachable(cluster: str, address: str, error: BaseException) -> ConfigError:
    return ConfigError(f"no {cluster} cluster can be reached at {address} ({_first_line(error)})")


def _require_this_code(
    cluster: str, hashes: Callable[[], Iterable[str]], failure: type[Exception] | tuple[Any, ...]
) -> None:
    """ConfigError where the cluster lacks the simulator or has another one: its answers would be others."""
    try:
        found = set(hashes())
    except failure as error:
        raise ConfigError(f"the {cluster} cluster cannot run stallfree ({_first_line(error)})") from None
    if found != {code_hash()}:
        raise ConfigError(f"the {cluster} cluster has another version of stallfree than is installed here")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
