"""The Ray cluster that work is done on: joined, or started on this machine and shut down afterwards.

Decides how a cluster is found, what a local one may use, and what errors of workers become. Does not know
what is run on it.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from reasonrag.errors import InputError, ReasonragError, RunStopped, first_line, needs_extra

OBJECT_STORE_BYTES = 128 << 20
"""Shared memory of a local cluster, of which Ray would take 30 % of the machine: ranks send short results, and what an
encoder's worker sends at a time is 8 MiB of 1,024 dimensions. Ray's minimum is 75 MiB."""


@contextmanager
def ray_cluster(*, workers: int) -> Iterator[Any]:
    """The module `ray`, connected to a cluster while the block lasts.

    RAY_ADDRESS names it; without it a cluster is started on this machine, with a CPU at least for each of `workers`. A
    connection that the calling program has already is used, and left open. Raises InputError without the ray extra, and
    for a cluster that cannot be reached or started.
    """
    # Ray reads it when it is imported. Under `uv run` it would have every worker make an environment of its own.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    with needs_extra("ray", "--on ray"):
        import ray
    if ray.is_initialized():
        yield ray
        return
    address = os.environ.get("RAY_ADDRESS") or "local"
    own = {"num_cpus": max(workers, os.cpu_count() or 1), "object_store_memory": OBJECT_STORE_BYTES}
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}  # no usage statistics
    try:
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if host and port.isdecimal():  # without a listener Ray retries for five minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address, **quiet, **own if address == "local" else {})
    except (Exception, SystemExit) as error:  # Ray ends the program where it gives up waiting for a cluster
        if address == "local":
            raise InputError(f"no Ray cluster can be started on this machine: {first_line(error)}") from error
        raise InputError(
            f"the Ray cluster {address} cannot be reached: {first_line(error).rstrip('.')}. Check RAY_ADDRESS "
            "and RAY_AUTH_MODE; without RAY_ADDRESS a cluster is started on this machine"
        ) from error
    try:
        with redirect_stdout(sys.stderr):  # Ray tells of dead workers on stdout, which is for results
            yield ray
    finally:
        ray.shutdown()


@contextmanager
def errors_of_workers(ray: Any, worker: str) -> Iterator[None]:
    """Raises an error of ours as a worker raised it, InputError for a file that it does not see, else RunStopped."""
    try:
        yield
    except ray.exceptions.RayError as error:
        cause: BaseException = error
        while isinstance(below := getattr(cause, "cause", None) or cause.__cause__, Exception):
            cause = below
        if isinstance(cause, ReasonragError):
            raise cause from None
        if isinstance(cause, OSError):
            shared = "All must have these files under the same paths, on a file system that they share"
            raise InputError(f"{worker} does not see what this machine does: {cause}. {shared}") from error
        raise RunStopped(
            f"{worker} could not go on: {first_line(cause).rstrip('.')}. Ray's logs on its machine say more; every "
            "machine needs this version of reasonrag, with the same extras. What was done is kept, and the same "
            "command continues"
        ) from error
