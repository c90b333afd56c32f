"""One Ray cluster for the tests of all test processes, started by whichever needs it first.

It is a process of its own, as the test process that starts it may end before the others. Everyone who uses it holds a
named pipe open, from which the cluster's process reads: where that ends, after an ended or a killed test process too,
nobody is left, and the cluster ends.

    python tests/helpers/ray_cluster.py PIPE  # that process; it prints the address
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.helpers.shared import held

# A cluster listens to other machines. Ray reads this when it is imported; processes of xdist get it from their parent.
os.environ["RAY_AUTH_MODE"] = "token"
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))

CPUS = 4
"""As Ray counts them. For each it keeps an idle process."""
_STARTED: list[subprocess.Popen[str]] = []
"""Nobody waits for it, as others may use it still."""


@contextmanager
def shared_cluster(folder: Path) -> Iterator[str]:
    """The address of the session's cluster. folder: the same for all test processes."""
    pipe, address = folder / "ray.pipe", folder / "ray.address"
    with held(folder / "ray.lock"):
        user = -1
        if address.exists():
            with suppress(OSError):  # the last user has gone, and the cluster with it
                user = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        if user < 0:
            pipe.unlink(missing_ok=True)
            os.mkfifo(pipe)
            server = subprocess.Popen([sys.executable, __file__, pipe], stdout=subprocess.PIPE, text=True)
            _STARTED.append(server)
            user = os.open(pipe, os.O_WRONLY)
            assert server.stdout
            with server.stdout:
                found = server.stdout.readline().strip()
            assert found, "the cluster did not start; what it said is above"
            address.write_text(found)
    try:
        yield address.read_text()
    finally:
        os.close(user)


def kill_workers(name: str) -> int:
    """SIGKILL for every process of a cluster on this machine that runs an actor of this class; how many."""
    killed = 0
    for each in Path("/proc").iterdir():
        with suppress(OSError):  # it has ended, or is no process
            if (each / "cmdline").read_bytes().startswith(f"ray::{name}".encode()):
                os.kill(int(each.name), signal.SIGKILL)
                killed += 1
    return killed


def serve(pipe: str) -> None:
    with Path(pipe).open("rb") as users:
        import ray  # here, as everyone waits for the pipe

        context = ray.init(
            "local",
            num_cpus=CPUS,
            object_store_memory=128 << 20,
            include_dashboard=False,
            logging_level="ERROR",
            log_to_driver=False,  # nobody reads stdout after the address
        )
        port = context.address_info["gcs_address"].rpartition(":")[2]
        print(f"127.0.0.1:{port}", flush=True)
        users.read()  # until the last user is gone
    ray.shutdown()


if __name__ == "__main__":
    serve(sys.argv[1])
