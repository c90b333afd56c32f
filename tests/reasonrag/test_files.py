"""Folders with one writer: who is refused, who waits, and what a start that failed leaves behind: nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from preference.export.summary import CANDIDATES, QUESTIONS
from reasonrag.errors import InputError
from reasonrag.files import CONFIG, FAILURES, JOURNAL, ROLLOUTS, build_lock, only_writer
from tests.endpoints.simulator import EndpointBehaviour
from tests.helpers.command_line import Reasonrag
from tests.helpers.endpoints import Stage

OF_A_START = (CONFIG, ROLLOUTS, FAILURES, JOURNAL, CANDIDATES, QUESTIONS)
DEAD = "http://127.0.0.1:1/v1"
"""Nobody listens there."""


def everything() -> set[str]:
    return {str(each) for each in Path().rglob("*")}


def failed_start(directory: Path, *, answer: str | None = None) -> None:
    """A start that writes its files and finds that it cannot go on. answer: the file that got one before that."""

    def start() -> None:
        for name in OF_A_START:
            (directory / name).write_bytes(b"paid\n" if name == answer else b"")
        raise InputError("no such model")

    with pytest.raises(InputError, match="no such model"), only_writer(directory):
        start()


# -- what is left ----------------------------------------------------------------------------------------------


def test_a_failed_start_leaves_no_file_and_no_folder_that_was_not_there() -> None:
    """Nor does a lock of a build that failed, or a name that is too long; an empty folder that was there stays."""
    failed_start(Path("runs/today/new"))
    with pytest.raises(InputError), build_lock(Path("indexes/new")):
        raise InputError("no such corpus")
    with pytest.raises(InputError, match="File name too long"), only_writer(Path("runs", "x" * 300)):
        pass
    assert everything() == set()
    Path("runs/new").mkdir(parents=True)
    failed_start(Path("runs/new"))
    assert everything() == {"runs", "runs/new"}


def test_files_that_were_there_stay() -> None:
    Path("new").mkdir()
    for name in ("notes.txt", CONFIG, ".lock"):
        Path("new", name).touch()
    failed_start(Path("new"))
    assert everything() == {"new", "new/notes.txt", f"new/{CONFIG}", "new/.lock"}


@pytest.mark.parametrize("paid", [JOURNAL, ROLLOUTS])
def test_nothing_is_removed_once_an_answer_is_recorded(paid: str) -> None:
    """Whatever it was that failed then: the next command goes on from there."""
    failed_start(Path("new"), answer=paid)
    assert everything() - {"new/.lock"} == {"new", *(f"new/{name}" for name in OF_A_START)}


def test_nothing_is_removed_beside_files_of_another_kind() -> None:
    """A model that LLaMA-Factory has trained has a config.json of its own."""

    def train() -> None:
        for name in (CONFIG, "model.safetensors"):
            Path("model", name).touch()
        raise InputError("cannot read training.json")

    with pytest.raises(InputError), only_writer(Path("model")):
        train()
    assert Path("model", CONFIG).exists()


# -- between processes -----------------------------------------------------------------------------------------

_TAKES_TURNS = """
import sys
from pathlib import Path
from reasonrag.errors import InputError
from reasonrag.files import CONFIG, only_writer
folder, held = Path("runs/today/new"), 0
while held < 50:
    try:
        with only_writer(folder):
            held += 1
            marker = (folder / "alone").open("x")  # fails where another one is in
            (folder / CONFIG).touch()
            marker.close()
            Path(marker.name).unlink()
            raise InputError("not today")
    except InputError as error:
        assert str(error) == "not today" or "is being written by another reasonrag" in str(error), error
"""


def test_starts_that_fail_at_once_neither_meet_nor_trip_each_other() -> None:
    """A lock that is removed while others wait for it lets two in; a folder that is removed fails who opens it."""
    starts = [
        subprocess.Popen([sys.executable, "-c", _TAKES_TURNS], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    errors = [each.communicate()[1] for each in starts]
    assert [each.returncode for each in starts] == [0] * len(starts), b"".join(errors).decode()


# -- every command ---------------------------------------------------------------------------------------------


@pytest.fixture
def world() -> None:
    """Questions, a corpus, and files that are neither."""
    passage = {"id": "paris", "title": "Paris", "text": "Paris is the capital of France. It lies on the Seine."}
    question = {"id": "q", "question": "Which river flows through Paris?", "golden_answers": ["Seine"]}
    Path("corpus.jsonl").write_text(json.dumps(passage) + "\n", "utf-8")
    Path("q.jsonl").write_text(json.dumps(question) + "\n", "utf-8")
    Path("bad.jsonl").write_text("not json\n", "utf-8")
    Path("empty").mkdir()


OWN = "--questions q.jsonl --corpus corpus.jsonl"
BAD_STARTS = (
    *(
        f"generate --run runs/new {flags}"
        for flags in (
            f"--model m --base-url {DEAD} {OWN}",
            f"--model m --base-url LOCKED {OWN}",
            f"--model m --base-url WRONG {OWN}",
            "--model offline --dataset nope",
            "--model offline --questions bad.jsonl --corpus corpus.jsonl",
            "--model offline --questions q.jsonl --corpus bad.jsonl",
            "--model offline --questions q.jsonl --index empty",
            "--model offline --questions q.jsonl --retriever http://127.0.0.1:1",
            f"--model offline --top-k 0 {OWN}",
            f"--model m --max-cost 1 --base-url {DEAD} {OWN}",
        )
    ),
    *(
        f"{command} --run runs/new {flags}"
        for command in ("tune --vary search.siblings=3,6", "evaluate")
        for flags in (f"--model m --base-url LOCKED {OWN}", "--model offline --questions q.jsonl --index empty")
    ),
    f"generate --run runs/new --model offline --value-model v --value-base-url {DEAD} {OWN}",
    f"generate --run runs/new --replay {OWN}",
    f"evaluate --run runs/new --model offline --judge j --judge-base-url {DEAD} {OWN}",
    f"pairs RUN --out data/new --label judge --model j --base-url {DEAD}",
    "pairs RUN --out data/new --label judge",
    "pairs RUN --out data/new --eval bad.jsonl",
    "pairs bad.jsonl --out data/new",
    "pairs empty --out data/new",
    "import bad.jsonl --out data/new",
    "import corpus.jsonl --out data/new",
    "train nope --data empty --out models/new",
    "corpus build empty --out corpora/new.jsonl",
    "corpus build empty --out bad.jsonl",
    "index build --corpus bad.jsonl --out indexes/new",
    f"calibrate RUN --revalue 2 --model m --base-url {DEAD}",
    "publish empty --repo a/b --dry-run",
)


@pytest.mark.usefixtures("world")
def test_bad_input_to_any_command_is_told_and_leaves_nothing(
    reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit status 2 and a sentence. Only an index of a corpus that is in order stays: it is what the next try needs."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
    left: dict[str, object] = {}
    with Stage(EndpointBehaviour(api_key="sk-right")).open() as stage:
        places = {"LOCKED": stage.base_url, "WRONG": stage.base_url.removesuffix("/v1") + "/nowhere", "RUN": "run"}
        assert reasonrag("generate", "--limit", 6, "--run", "run").status == 0
        before = everything()
        for start in BAD_STARTS:
            done = reasonrag(*(places.get(word, word) for word in start.split()))
            new = {each for each in everything() - before if not each.startswith("indexes")}
            if done.status != 2 or "error: " not in done.err or new:
                left[start] = (done, new)
            before |= new
    assert left == {}
