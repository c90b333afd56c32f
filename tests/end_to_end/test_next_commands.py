"""Every command that a command proposes to go on with works as it is printed.

What is written in capitals is the user's own: put in place here. A real merge is in `training/test_train.py`, what a
critic proposes in `critics/test_train.py`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import orjson
import pytest

from reasonrag.curation.audit.report import verdict_parts
from reasonrag.terminal import show
from reasonrag.training.llamafactory.merge import MergeResult
from reasonrag.training.provenance import Provenance
from tests.helpers.command_line import CORPUS, QUESTION, Done, Reasonrag, next_commands
from tests.helpers.jsonl import write_passages
from tests.helpers.training_world import make_tiny_qwen2

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_files(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("handbook").mkdir()
    for name, title, text in CORPUS:
        Path("handbook", f"{name}.md").write_text(f"# {title}\n\n{text}")
    Path("QUESTIONS.jsonl").write_bytes(orjson.dumps(QUESTION.model_dump(include={"id", "question", "golden_answers"})))
    monkeypatch.setenv("REASONRAG_TRAIN_PYTHON", "/nowhere/python")


def run(reasonrag: Reasonrag, *words: str) -> Done:
    done = reasonrag(*words)
    assert done.status == 0, done.err
    return done


def train(reasonrag: Reasonrag, *words: str) -> None:
    """It ends where the environment of the training is looked for."""
    done = reasonrag(*words)
    assert (done.status, "REASONRAG_TRAIN_PYTHON: there is no" in done.err) == (2, True), done.err


def test_from_a_folder_of_pages_to_a_run(reasonrag: Reasonrag) -> None:
    [questions] = next_commands(run(reasonrag, "corpus", "build", "handbook").out)
    [generate] = next_commands(run(reasonrag, *questions).out)
    assert generate[:3] == ["generate", "--questions", "questions.jsonl"]
    [pairs] = next_commands(run(reasonrag, *generate).out)
    assert pairs == ["pairs", "runs/own", "--out", "data/own"]
    run(reasonrag, *pairs)


def test_from_a_run_to_a_training_an_import_and_a_question(
    reasonrag: Reasonrag, capsys: pytest.CaptureFixture[str]
) -> None:
    """Publishing is proposed for public questions, and tried without a network."""
    [pairs] = next_commands(run(reasonrag, "generate", "--dataset", "atlas", "--limit", "8").out)
    view, review, trained = next_commands(run(reasonrag, *pairs).out)
    assert [each[0] for each in (view, review, trained)] == ["view", "review", "train"]
    run(reasonrag, *view)
    [judged] = next_commands(run(reasonrag, *review).out)
    assert judged == ["review", pairs[-1], "--judgements", review[-1]]
    assert "no verdict in" in reasonrag(*judged).err
    train(reasonrag, *trained)
    capsys.readouterr()
    show(verdict_parts(Path(pairs[-1]), ["hotpotqa/train"]))
    *_, publish = next_commands(capsys.readouterr().out)
    run(reasonrag, *publish, "--dry-run", "--license", "mit")
    done = run(reasonrag, "import", f"{pairs[-1]}/RAG_ProGuide.json", "--out", "data/b")
    audit, trained, again = next_commands(done.out)
    run(reasonrag, *audit)
    run(reasonrag, *again)
    train(reasonrag, *trained)
    told = run(reasonrag, "stats", pairs[1]).out
    [(show_tree, view_of_run)] = re.findall(r"next: reasonrag (show \S+ QUESTION_ID), or reasonrag (view \S+)", told)
    run(reasonrag, *show_tree.replace("QUESTION_ID", "atlas_train_0_0").split())
    run(reasonrag, *view_of_run.split())


def test_from_ranks_to_a_run_and_from_an_evaluation_to_a_comparison(reasonrag: Reasonrag) -> None:
    atlas = ("--dataset", "atlas", "--limit", "2")
    [merge] = next_commands(run(reasonrag, "generate", *atlas, "--shard", "0/1", "--run", "runs/a").out)
    run(reasonrag, *merge)
    evaluated = run(reasonrag, "evaluate", *atlas)
    assert "run directory: evals/atlas-dev-agent-offline" in evaluated.err
    [compare] = next_commands(evaluated.out)
    run(reasonrag, "evaluate", *atlas, "--method", "rag", "--run", "OTHER_RUN")
    run(reasonrag, *compare)


@pytest.mark.parametrize(
    ("splits", "proposed"),
    [(["atlas/train"], ["--dataset", "atlas", "--split", "dev"]), (["own/train"], ["--questions", "QUESTIONS.jsonl"])],
)
def test_from_a_trained_model_to_its_evaluation(
    splits: list[str], proposed: list[str], reasonrag: Reasonrag, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the end of a training and of a merge say it, of a model that they could have left."""
    pytest.importorskip("torch", reason="no torch here, so no model's folder can be served")
    make_tiny_qwen2(Path(sys.executable))
    model = Path("models/tiny-qwen2")
    Provenance(base_model="tiny", stage="dpo", finetuning_type="full", splits=splits).write(model)
    write_passages(Path("CORPUS.jsonl"), CORPUS)
    capsys.readouterr()
    show(MergeResult(out=str(model), adapter="saves/a", base_model="tiny").shown())
    [evaluate] = next_commands(capsys.readouterr().out)
    assert evaluate[3 : 3 + len(proposed)] == proposed
    done = run(reasonrag, *evaluate, "--limit", "1", "--max-reply-tokens", "8")
    assert "run directory: evals/" in done.err


def test_no_proposal_is_left_untried() -> None:
    """By the first word of each in the sources: a new one needs a place in these tests."""
    sources = "".join(path.read_text() for path in sorted((ROOT / "reasonrag").rglob("*.py")))
    proposed = re.findall(r"next_command\(\s*\"([\w-]+)\"", sources)
    here = [
        "compare",
        "corpus",
        "evaluate",
        "evaluate",
        "generate",
        "merge",
        "pairs",
        "publish",
        "review",
        "train",
        "view",
    ]
    imported = ["audit", "train", "pairs", "pairs", "pairs"]  # those of trees are tried where they are imported
    assert sorted(proposed) == sorted([*here, *imported, "review", "train", "evaluate-critic", "pairs"])
