"""From the command of the front page to pairs, in a fresh folder: questions from a Hub, a teacher at an endpoint.

The Hub's client reads its environment at import, so each command has a process of its own.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reasonrag.data.atlas import write_world
from reasonrag.data.datasets import REPOSITORY
from tests.helpers.collection import jsonl, rows_of
from tests.helpers.hub_server import HubServer, environment_for, running_hub
from tests.helpers.processes import finished
from tests.helpers.trees import trees

QUESTIONS = 8


def put_collection(hub: HubServer, folder: Path) -> None:
    """Atlas' questions as if they were HotpotQA's, with passages."""
    world = write_world(folder)
    hotpotqa = rows_of(world / "train.jsonl", world / "corpus.jsonl", QUESTIONS)
    hub.put(REPOSITORY, {"hotpotqa/train.jsonl": jsonl(hotpotqa)})


class Newcomer:
    """A user with a fresh folder, who runs one command after the other."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.environment, self.folder = environment, folder

    def __call__(self, command: str) -> subprocess.CompletedProcess[str]:
        return finished(*command.split()[1:], cwd=self.folder, environment=self.environment)


@pytest.fixture
def newcomer(endpoint: str, tmp_path: Path) -> Iterator[Newcomer]:
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    with running_hub() as hub:
        put_collection(hub, tmp_path)
        environment = os.environ | environment_for(hub.endpoint, tmp_path)
        # loading Qwen2.5's vocabulary takes seconds
        yield Newcomer(environment | {"OPENAI_BASE_URL": endpoint, "REASONRAG_TOKENIZER": "estimate"}, fresh)


def test_a_newcomer_goes_from_the_command_of_the_front_page_to_pairs(newcomer: Newcomer) -> None:
    """Without a key one line says what to set, and nothing is fetched; an estimate needs none. With it, no other flag
    is needed: each command says where it wrote and which is next."""
    done = newcomer("reasonrag generate --dataset hotpotqa")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "set OPENAI_API_KEY" in done.stderr
    assert list(newcomer.folder.iterdir()) == []
    estimate = newcomer("reasonrag generate --dataset hotpotqa --sample 100 --dry-run")
    assert estimate.returncode == 0, estimate.stderr
    assert "neither --model nor OPENAI_API_KEY is set: estimated for gpt-4o" in estimate.stderr
    assert "hotpotqa/train has 8 questions, fewer than --sample 100: all are used" in estimate.stderr
    assert "teacher gpt-4o" in estimate.stdout
    newcomer.environment["OPENAI_API_KEY"] = "sk-none"
    done = newcomer("reasonrag generate --dataset hotpotqa")
    assert done.returncode == 0, done.stderr
    assert "distractor setting: " in done.stderr
    assert "passages that came with the questions of hotpotqa/train" in done.stderr
    assert "run directory: runs/hotpotqa-train-economy" in done.stderr
    assert "next: reasonrag pairs runs/hotpotqa-train-economy" in done.stdout
    assert len(trees(newcomer.folder / "runs" / "hotpotqa-train-economy")) == QUESTIONS
    done = newcomer("reasonrag pairs runs/hotpotqa-train-economy")
    assert done.returncode == 0, done.stderr
    assert (newcomer.folder / "data" / "hotpotqa-train-economy" / "RAG_ProGuide.json").stat().st_size > 1000
    done = newcomer("reasonrag audit runs/hotpotqa-train-economy")
    assert done.returncode == 0, done.stderr
    assert "wrote data/hotpotqa-train-economy/audit.html" in done.stdout
