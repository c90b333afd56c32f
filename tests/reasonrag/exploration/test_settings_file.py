"""`reasonrag init`: four answers become a reasonrag.toml that the later commands read."""

from __future__ import annotations

import io
import tomllib
from pathlib import Path
from typing import Any

import orjson
import pytest

from reasonrag.curation.pairs_settings import PairsSettings
from reasonrag.evaluation.settings import EvaluateSettings
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.exploration.settings_file import STUDENTS
from reasonrag.settings import resolve
from reasonrag.training.llamafactory.config_files import find_config
from reasonrag.training.settings import TrainSettings
from tests.helpers.command_line import Reasonrag

FILE = Path("reasonrag.toml")
READERS = {"generate": GenerateSettings, "pairs": PairsSettings, "train": TrainSettings, "evaluate": EvaluateSettings}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str, source: type[io.StringIO] = io.StringIO) -> None:
    monkeypatch.setattr("sys.stdin", source("".join(f"{line}\n" for line in lines)))


def settings() -> dict[str, dict[str, Any]]:
    """What each command reads in the file that differs from its defaults."""
    assert set(tomllib.loads(FILE.read_text())) == set(READERS)
    return {name: resolve(model, name, {}).model_dump(exclude_defaults=True) for name, model in READERS.items()}  # type: ignore[type-var]


def test_with_yes_every_command_reads_the_defaults(reasonrag: Reasonrag) -> None:
    """Nothing is asked; the file says what to do next, and each of its comments that is a setting is one."""
    assert reasonrag("init", "--yes").status == 0
    written = settings()
    assert written["generate"] == {"model": "gpt-4o", "dataset": ["hotpotqa"], "max_cost": 20.0}
    assert written["train"]["data"] == written["pairs"]["out"]
    assert written["evaluate"]["model"] == str(written["train"]["out"])
    assert written["evaluate"]["dataset"] == ["hotpotqa"]
    FILE.write_text(FILE.read_text().replace("# base_url", "base_url").replace("# format", "format"))
    assert settings()["pairs"]["format"] == ["sft"]


def test_the_answers_are_asked_for_one_by_one(reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a pipe too; an empty line takes the default, and a flag answers its question."""
    typed(monkeypatch, "Qwen/Qwen2.5-72B-Instruct at http://127.0.0.1:8000/v1", "2wiki", "qwen2.5-7b-dpo-qlora")
    done = reasonrag("init", "--budget", 0)
    assert done.status == 0, done.err
    assert "Budget" not in done.err
    assert done.err.index("Teacher") < done.err.index("Data") < done.err.index("Student")
    written = settings()
    assert written["generate"] == {
        "model": "Qwen/Qwen2.5-72B-Instruct",
        "base_url": ["http://127.0.0.1:8000/v1"],
        "dataset": ["2wikimultihopqa"],
    }
    assert written["train"]["config"] == "qwen2.5-7b-dpo-qlora"


def test_the_file_leads_from_own_questions_to_a_data_set(reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch) -> None:
    """File names are quoted, whatever they hold."""
    folder = Path('my "own" data')
    folder.mkdir()
    questions = [
        {"id": f"q{i}", "question": f"Who founded town {i}?", "golden_answers": [f"Ann {i}"]} for i in range(3)
    ]
    passages = [{"id": f"p{i}", "contents": f"Town {i}\nTown {i} was founded by Ann {i}."} for i in range(3)]
    for name, rows in (("questions", questions), ("corpus", passages)):
        (folder / f"{name}.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    typed(monkeypatch, "offline", f"'{folder}/questions.jsonl' '{folder}/corpus.jsonl'", "", "")
    assert reasonrag("init").status == 0
    assert reasonrag("generate", "--limit", 2).status == 0
    assert Path("runs/questions-train-economy/rollouts.jsonl").is_file()
    assert reasonrag("pairs", "runs/questions-train-economy").status == 0
    assert Path("data/questions-train-economy/summary.json").is_file()
    assert "a configuration is needed" not in reasonrag("train", "--dry-run").err
    adapter = Path("saves/questions-train-economy")
    adapter.mkdir(parents=True)
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "mine/base"}')
    monkeypatch.setenv("REASONRAG_TRAIN_PYTHON", "nowhere")
    merging = reasonrag("train", "--merge", adapter).err
    assert "REASONRAG_TRAIN_PYTHON" in merging, "the merged model does not go where the adapter is"
    assert "is not empty" in reasonrag("train", "--merge", adapter, "--out", adapter).err


@pytest.mark.parametrize(
    ("flag", "answer", "said"),
    [
        ("--teacher", "gpt 4o", "NAME at URL"),
        ("--teacher", "qwen at localhost", "must look like http://127.0.0.1:8000/v1"),
        ("--teacher", "qwen at http://host/v1?key=mine", "the address may hold a key"),
        ("--teacher", "qwen at http://host/v1#mine", "the address may hold a key"),
        ("--teacher", "sk-proj-abcdefghijklmnopqrstuvwx0123456789ABCDEFGH", "looks like a key"),
        ("--dataset", "hotpotqaa", "did you mean 'hotpotqa'?"),
        ("--dataset", "bamboogle", "no training questions"),
        ("--dataset", "nowhere.jsonl", "there is no file of this name"),
        ("--dataset", "a b c", "one file of questions and one corpus"),
        ("--dataset", "'", "No closing quotation"),
        ("--budget", "-1", "must be at least 0"),
        ("--student", "a\nb", "control character"),
        ("--student", " ", "this is empty"),
    ],
)
def test_an_answer_that_no_command_could_use_is_refused(
    flag: str, answer: str, said: str, reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit status 2 and no file, with or without questions; keys never reach it. In a terminal it is asked again."""
    done = reasonrag("init", flag, answer, "--yes")
    assert (done.status, FILE.exists()) == (2, False)
    assert said in done.err
    if answer.strip() and "\n" not in answer:
        names = ["--teacher", "--dataset", "--budget", "--student"]
        typed(monkeypatch, *([""] * names.index(flag)), answer, *([""] * 5), source=Terminal)
        again = reasonrag("init")
        assert again.status == 0
        assert said in again.err
        assert "key" not in said or answer not in FILE.read_text()


@pytest.mark.parametrize(("answer", "replaced"), [("", False), ("n", False), ("y", True)])
def test_a_file_that_is_there_is_replaced_only_after_a_yes(
    answer: str, replaced: bool, reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked in a terminal only: neither --yes nor a pipe replaces it."""
    FILE.write_text("# mine\n")
    assert reasonrag("init", "--yes").status == 2
    typed(monkeypatch, "y", "", "", "", "")
    assert reasonrag("init").status == 2
    assert FILE.read_text() == "# mine\n"
    typed(monkeypatch, answer, "", "", "", "", source=Terminal)
    assert reasonrag("init").status == (0 if replaced else 2)
    assert (FILE.read_text() != "# mine\n") == replaced


def test_every_student_that_is_offered_is_a_shipped_configuration() -> None:
    """With the number and memory of GPUs that its header names."""
    for name, needs in STUDENTS.items():
        header = " ".join(find_config(name).text.replace("#", " ").split())
        assert needs.split(" of ")[1].split()[0] in header, name
