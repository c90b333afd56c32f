"""`index build --on ray`: the same bytes as in one process, whoever is killed, and nothing encoded twice."""

from __future__ import annotations

import signal
from pathlib import Path

import orjson
import pytest

import reasonrag as package
from reasonrag.errors import InputError
from reasonrag.progress import SilentWatcher
from reasonrag.retrieval.dense.encoders import EncoderChoice, load_encoder
from reasonrag.retrieval.dense.manifest import read_manifest
from reasonrag.retrieval.dense.vector_pieces import PIECE
from reasonrag.scale.ray_encoding import EncodingWorker, RayEncoding
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
def world(shared: Shared, ray_address: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAY_ADDRESS", ray_address)
    return shared.copy("an-index-in-five-pieces", make_world)


class Listening(SilentWatcher):
    """Keeps how many passages are encoded, as it is told. kills: all workers, once the first piece is finished."""

    def __init__(self, *, kills: bool = False) -> None:
        self.encoded: list[int] = []
        self.killed, self._kills, self._encoding = 0, kills, False

    def stage(self, name: str, *, total: int, done: int = 0) -> None:  # noqa: ARG002
        self._encoding = name == "encoding"
        if self._encoding:
            self.encoded.append(done)

    def reached(self, done: int) -> None:
        if self._encoding:
            self.encoded.append(done)
            if self._kills and not self.killed:
                self.killed = kill_workers("EncodingWorker")


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
@pytest.mark.parametrize("kills", [False, True], ids=["whole", "workers-killed"])
def test_an_index_that_a_cluster_encodes_is_that_of_one_process(*, kills: bool) -> None:
    """To the byte, with progress after every piece, which counts once; killed workers are started again."""
    watcher = Listening(kills=kills)
    package.index_build(**FLAGS, out="ray", watcher=watcher, on="ray", workers=2, launch=RayEncoding)
    assert_as_here("ray")
    assert bool(watcher.killed) == kills
    assert watcher.encoded == sorted(set(watcher.encoded))
    assert (watcher.encoded[0], watcher.encoded[-1], len(watcher.encoded)) == (0, ROWS, 6)


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)], ids=["ctrl-c", "kill"])
def test_a_build_that_was_stopped_keeps_what_is_encoded(sent: signal.Signals, status: int) -> None:
    """But the piece that is being written; the build goes on without a cluster, and encodes what is missing."""
    command = "index build --corpus corpus.jsonl --encoder hashing-64 --type flat --out ray --on ray --workers 1"
    with Command(*command.split()) as running:
        log = Path(".ray.encoding/encoded.jsonl")
        until(lambda: running.poll() is not None or (log.exists() and log.read_bytes().count(b"\n") > 1))
        running.send_signal(sent)
        assert running.wait() == status, running.err
        assert sent == signal.SIGKILL or "continue with: reasonrag index build" in running.err
    assert not Path("ray").exists()
    watcher = Listening()
    package.index_build(**FLAGS, out="ray", watcher=watcher)
    assert watcher.encoded[0] >= ROWS % PIECE, "what was kept is encoded again"
    assert_as_here("ray")


def test_a_worker_with_other_weights_is_named() -> None:
    """Another encoder's probe stands for a machine on which the model's files differ."""
    ours, theirs = (load_encoder(EncoderChoice(model=name)) for name in ("hashing-64", "hashing-32"))
    worker = EncodingWorker(ours.spec, "fp32", 8, theirs.probe())
    with pytest.raises(InputError, match=r"hashing-64 is another encoder on .* Give all machines the same files"):
        worker.encoder  # noqa: B018


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--on", "ray"), "--on is for dense indexes: give --kind dense"),
        (("--kind", "dense", "--workers", 2), "--workers goes with --on ray"),
        (("--kind", "dense", "--on", "ray", "--device", "cuda:0"), "leave out --device"),
    ],
)
def test_flags_of_a_cluster_without_one_are_refused(
    flags: tuple[object, ...], message: str, reasonrag: Reasonrag
) -> None:
    """A flag that would be ignored is a mistake; a setting from the environment may be meant for generate."""
    done = reasonrag("index", "build", "--corpus", "corpus.jsonl", *flags)
    assert done.status == 2
    assert message in done.err
