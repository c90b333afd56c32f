"""The Ray cluster that work is done on: joined, or started on this machine and shut down afterwards.

Decides how a cluster is found and what a local one may use. Does not know what is run on it.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from reasonrag.errors import InputError, first_line, needs_extra

OBJECT_STORE_BYTES = 128 << 20
"""Shared memory of a local cluster, of which Ray would take 30 % of the machine: workers write files, and only settings
and short results travel. Ray's minimum is 75 MiB."""
PATIENCE_S = 10
"""For a cluster to accept a connection."""


@contextmanager
def ray_cluster(address: str | None, *, workers: int) -> Iterator[Any]:
    """The module `ray`, connected to a cluster while the block lasts.

    address: as `ray.init` takes it; None: RAY_ADDRESS, else a cluster is started on this machine, with a CPU at least
    for each of `workers`. A connection that the calling program has already is used, and left open. Raises InputError
    without the ray extra, and for a cluster that cannot be reached or started.
    """
    # Ray reads it when it is imported. Under `uv run` it would have every worker make an environment of its own.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    with needs_extra("ray", "--on ray"):
        import ray
    if ray.is_initialized():
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    own = {"num_cpus": max(workers, os.cpu_count() or 1), "object_store_memory": OBJECT_STORE_BYTES}
    try:
        _knock(address)
        ray.init(
            address,
            include_dashboard=False,  # it is what would send usage statistics
            log_to_driver=False,
            logging_level=logging.ERROR,
            **own if address == "local" else {},
        )
    except (Exception, SystemExit) as error:  # Ray ends the program where it gives up waiting for a cluster
        if address == "local":
            raise InputError(f"no Ray cluster can be started on this machine: {first_line(error)}") from error
        raise InputError(
            f"the Ray cluster {address} cannot be reached: {first_line(error).rstrip('.')}. Check --address, "
            "RAY_ADDRESS and RAY_AUTH_MODE; without an address a cluster is started on this machine"
        ) from error
    try:
        with redirect_stdout(sys.stderr):  # Ray tells of dead workers on stdout, which is for results
            yield ray
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raises OSError where nobody listens: Ray would try for five minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
