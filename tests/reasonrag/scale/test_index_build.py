"""`index build --on ray`: the same bytes as in one process, whoever is killed, and nothing encoded twice."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

import reasonrag as package
from reasonrag.errors import InputError
from reasonrag.progress import SilentWatcher
from reasonrag.retrieval.dense.encoders import EncoderChoice
from reasonrag.retrieval.dense.index import encoded_probe
from reasonrag.retrieval.dense.manifest import read_manifest
from reasonrag.retrieval.dense.piece_encoding import EncodingJob
from reasonrag.retrieval.dense.vector_store import PIECE, Piece
from reasonrag.scale.ray_encoding import RayEncoding
from tests.helpers.command_line import Reasonrag
from tests.helpers.processes import Command, until
from tests.helpers.ray_cluster import kill_workers
from tests.helpers.shared import Shared

ROWS = 4 * PIECE + 50
FLAGS = {"corpus": "corpus.jsonl", "encoder": "hashing-64", "type": "flat"}


def make_world() -> None:
    """A corpus, and its index as one process builds it."""
    lines = (
        orjson.dumps({"id": f"p{row}", "contents": f"Title {row}\n{'word ' * (row % 50)}n{row}"}) for row in range(ROWS)
    )
    Path("corpus.jsonl").write_bytes(b"\n".join(lines))
    package.index_build(**FLAGS, out="here")


@pytest.fixture
def world(shared: Shared) -> Path:
    return shared.copy("an-index-in-five-pieces", make_world)


class Listening(SilentWatcher):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.encoded: list[int] = []
        self._encoding = False

    def stage(self, name: str, *, total: int, done: int = 0) -> None:  # noqa: ARG002
        self._encoding = name == "encoding"
        if self._encoding:
            self.encoded.append(done)

    def reached(self, done: int) -> None:
        if self._encoding:
            self.encoded.append(done)


def on_ray(address: str) -> dict[str, Any]:
    return {"on": "ray", "workers": 2, "address": address, "launch": RayEncoding}


def assert_as_here(out: str) -> None:
    """Vectors and manifest are those of one process, but for what was measured; and nothing else is there."""
    assert {each.name for each in Path(out).iterdir()} == {each.name for each in Path("here").iterdir()}
    assert Path(out, "vectors.npy").read_bytes() == Path("here/vectors.npy").read_bytes()
    found, expected = (read_manifest(Path(each)).model_dump() for each in (out, "here"))
    for each in (found, expected):
        del each["encoding_seconds"], each["indexes"]["flat"]["seconds"], each["corpus"]
    assert found == expected
    assert not Path(f".{out}.encoding").exists()


@pytest.mark.usefixtures("world")
def test_an_index_that_a_cluster_encodes_is_that_of_one_process(ray_address: str) -> None:
    """To the byte, with progress after every piece; and nothing stays in the memory that Ray shares."""
    watcher = Listening()
    package.index_build(**FLAGS, out="ray", watcher=watcher, **on_ray(ray_address))
    assert_as_here("ray")
    assert len(watcher.encoded) == 6
    assert (watcher.encoded[0], watcher.encoded[-1]) == (0, ROWS)


@pytest.mark.usefixtures("world")
def test_workers_that_are_killed_are_started_again(ray_address: str) -> None:
    """SIGKILL for all of them after the first piece, so in the middle of the next."""

    class Killing(Listening):
        killed = 0

        def reached(self, done: int) -> None:
            super().reached(done)
            if self._encoding and not self.killed:
                self.killed = kill_workers("Worker")

    watcher = Killing()
    package.index_build(**FLAGS, out="ray", watcher=watcher, **on_ray(ray_address))
    assert watcher.killed
    assert_as_here("ray")
    assert watcher.encoded == sorted(set(watcher.encoded)), "a piece was counted twice"


KILLED = """
import os, signal, sys
import reasonrag
from reasonrag.progress import SilentWatcher
from reasonrag.scale.ray_encoding import RayEncoding

class Killing(SilentWatcher):
    def stage(self, name, *, total, done=0):
        self.name = name
    def reached(self, done):
        if self.name == "encoding":
            os.kill(os.getpid(), signal.SIGKILL)

reasonrag.index_build(corpus="corpus.jsonl", encoder="hashing-64", type="flat", out="ray", on="ray", workers=2,
                      address=sys.argv[1], watcher=Killing(), launch=RayEncoding)
"""


@pytest.mark.usefixtures("world")
def test_a_build_whose_driver_was_killed_goes_on_where_it_was(ray_address: str) -> None:
    """By the same command, or without a cluster; only what is missing is encoded."""
    done = subprocess.run([sys.executable, "-c", KILLED, ray_address], check=False)
    assert done.returncode == -signal.SIGKILL
    until(lambda: not kill_workers("Worker"))  # Ray ends them too, a little later
    shutil.copytree(".ray.encoding", ".other.encoding")
    for out, flags in (("ray", on_ray(ray_address)), ("other", {})):
        watcher = Listening()
        package.index_build(**FLAGS, out=out, watcher=watcher, **flags)
        assert watcher.encoded[0] >= ROWS % PIECE, "what was kept is encoded again"
        assert_as_here(out)


@pytest.mark.usefixtures("world")
def test_ctrl_c_ends_the_command_and_keeps_what_is_encoded(ray_address: str) -> None:
    """Status 130, and the command that continues."""
    command = "index build --corpus corpus.jsonl --encoder hashing-64 --type flat --out ray".split()
    with Command(*command, "--on", "ray", "--workers", 1, "--address", ray_address) as running:
        log = Path(".ray.encoding/encoded.jsonl")
        until(lambda: running.poll() is not None or (log.exists() and log.stat().st_size > 0))
        running.send_signal(signal.SIGINT)
        assert running.wait() == 130, running.err
        assert "continue with: reasonrag index build" in running.err
    assert not Path("ray").exists()
    package.index_build(**FLAGS, out="ray")
    assert_as_here("ray")


@pytest.mark.usefixtures("world")
def test_what_a_worker_refuses_is_said_as_it_is_here(ray_address: str) -> None:
    """In one line, with nothing left behind."""
    before = set(Path().iterdir())
    with pytest.raises(InputError, match="there is no encoder /nowhere/at/all"):
        package.index_build(**FLAGS | {"encoder": "/nowhere/at/all"}, out="ray", **on_ray(ray_address))
    assert set(Path().iterdir()) == before


@pytest.mark.usefixtures("world")
def test_a_machine_that_does_not_share_the_files_is_named(ray_address: str) -> None:
    """A job that names another corpus stands for a machine on which it lies elsewhere."""
    told = Listening()
    with RayEncoding(address=ray_address, workers=1, say=told.say) as encoding:
        encoder = encoding.load(EncoderChoice(model="hashing-64"), devices=[], precision=None, batch_size=8)
        job = EncodingJob(
            corpus=Path("elsewhere.jsonl"),
            corpus_bytes=1,
            corpus_mtime_ns=1,
            folder=Path("here"),
            slices=Path("slices"),
            spec=encoder.spec,
            precision=encoder.precision,
            batch_size=8,
            probe=encoded_probe(encoder),
        )
        with pytest.raises(InputError, match=r"does not see what this machine does: .*elsewhere\.jsonl.*a file system"):
            list(encoding.pieces(job, encoder, [Piece(0, 0, 10)], lambda _: None))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--on", "ray"), "--on ray is for dense indexes: give --kind dense"),
        (("--kind", "dense", "--workers", 2), "--workers goes with --on ray"),
        (("--kind", "dense", "--address", "auto"), "--address goes with --on ray"),
    ],
)
def test_flags_of_a_cluster_without_one_are_refused(
    flags: tuple[object, ...], message: str, reasonrag: Reasonrag
) -> None:
    """A flag that would be ignored is a mistake; a setting from the environment may be meant for generate."""
    done = reasonrag("index", "build", "--corpus", "corpus.jsonl", *flags)
    assert done.status == 2
    assert message in done.err
