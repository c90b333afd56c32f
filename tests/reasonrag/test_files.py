"""Folders with one writer, and bad input to any command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import lock_descriptor

from reasonrag import files
from reasonrag.files import JOURNAL, is_written, only_writer
from tests.endpoints.simulator import EndpointBehaviour
from tests.helpers.command_line import Reasonrag
from tests.helpers.endpoints import Stage

DEAD = "http://127.0.0.1:1/v1"
"""Nobody listens there."""


_TAKES_TURNS = """
import sys
from pathlib import Path
from reasonrag.errors import InputError
from reasonrag.files import only_writer
folder, held = Path("runs/today/new"), 0
while held < 50:
    try:
        with only_writer(folder):
            held += 1
            marker = (folder / "alone").open("x")  # fails where another one is in
            marker.close()
            Path(marker.name).unlink()
    except InputError as error:
        assert "is being written by another reasonrag" in str(error), error
"""


def test_two_processes_are_never_in_one_folder() -> None:
    starts = [
        subprocess.Popen([sys.executable, "-c", _TAKES_TURNS], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    errors = [each.communicate()[1] for each in starts]
    assert [each.returncode for each in starts] == [0] * len(starts), b"".join(errors).decode()


def test_a_look_at_the_lock_keeps_no_writer_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`is_written` holds it for a moment: what is taken is tried once more."""
    with (tmp_path / ".lock").open("ab") as look:
        assert lock_descriptor(look.fileno(), blocking=False)
        monkeypatch.setattr(files, "sleep", lambda _: look.close())  # the look ends meanwhile
        with only_writer(tmp_path):
            assert is_written(tmp_path)


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
def test_bad_input_to_any_command_is_told(reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit status 2 and a sentence; no answer is recorded, and the folder can be used for another start."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
    wrong: dict[str, object] = {}
    with Stage(EndpointBehaviour(api_key="sk-right")).open() as stage:
        places = {"LOCKED": stage.base_url, "WRONG": stage.base_url.removesuffix("/v1") + "/nowhere", "RUN": "run"}
        assert reasonrag("generate", "--limit", 6, "--run", "run").status == 0
        for start in BAD_STARTS:
            done = reasonrag(*(places.get(word, word) for word in start.split()))
            if done.status != 2 or "error: " not in done.err:
                wrong[start] = done
        assert not any(each.stat().st_size for each in Path().rglob(JOURNAL) if each.parent.name != "run")
        assert reasonrag("generate", "--limit", 6, "--run", "runs/new").status == 0
    assert wrong == {}
