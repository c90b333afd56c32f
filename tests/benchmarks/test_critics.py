"""The experiment with critics: its oracle knows every value, and its figures say so."""

from __future__ import annotations

from pathlib import Path

import pytest
from critics import Oracle, Plan, with_true_values
from critics_report import label_figures, refined_figures
from gold_teacher import GoldQuestion, GoldTeacher, open_world
from lucky_world import Size, write_world

import reasonrag
from reasonrag.data.questions import open_questions
from tests.reasonrag.llm.test_critic import FACTS, folder_of

PLAN = Plan()
CRITIC = {"base_model": "qwen", "finetuning_type": "full"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small world, a run in it, and the folder of a critic, whose scores are the oracle's."""
    place = tmp_path_factory.mktemp("critics")
    write_world(place, Size(towns=30, people=60, works=80, organisations=20), {"train": 16}, seed=0)
    known = questions(place)
    asked = {"questions": place / "train.jsonl", "corpus": place / "corpus.jsonl", "index_home": place / "indexes"}
    asked |= {"model": "gold teacher", "top_k": PLAN.top_k, "max_steps": PLAN.max_steps, "outcome": "f1"}
    reasonrag.generate(chat_model=GoldTeacher(known.values()), abort_degenerate=0, run=place / "run", **asked)
    folder_of(place / "critic", FACTS, questions=[], **CRITIC)
    return place


def questions(place: Path) -> dict[str, GoldQuestion]:
    world = open_world(place, place / "indexes")
    asked = open_questions(place / "train.jsonl", dataset="train", split="train").read(None)
    more = {"max_steps": PLAN.max_steps, "alpha": 1.0, "top_k": PLAN.top_k}
    return {each.id: GoldQuestion(each, world, PLAN.skill, **more) for each in asked}


def oracle(place: Path) -> Oracle:
    return Oracle({each.question.question: each for each in questions(place).values()})


def test_where_the_oracle_says_what_is_true_it_ranks_every_pair_right(home: Path) -> None:
    with_true_values(home / "run", home / "true", questions(home))
    found = reasonrag.evaluate_critic(home / "critic", home / "true", critic_model=oracle(home), out=home / "judged")
    assert found.accuracy.value == 1
    assert found.accuracy.n > 200


def test_labels_and_paths_are_held_against_the_oracle(home: Path) -> None:
    """A judge that sees where steps lead is right more often than one trajectory; a critic that knows keeps no path
    with a step that loses the question."""
    known = questions(home)
    by_outcome = reasonrag.pairs(home / "run", out=home / "outcome", label="outcome", validation=0)
    judge = {"label": "judge", "model": "gold teacher", "chat_model": GoldTeacher(known.values()), "yes": True}
    by_judge = reasonrag.pairs(home / "run", out=home / "judge", validation=0, **judge)
    outcome, judged = (label_figures(home / name, known) for name in ("outcome", "judge"))
    assert (outcome["pairs"], judged["pairs"]) == (by_outcome.pairs, by_judge.pairs)
    assert judged["value"] > outcome["value"]
    refining = {"format": "sft", "critic": str(home / "critic"), "critic_model": oracle(home), "validation": 0}
    reasonrag.pairs(home / "run", out=home / "refined", critic_threshold=0.6, **refining)
    parts = refined_figures(home / "refined", known)
    assert parts["kept"]["paths"] > 0
    assert parts["kept"]["earned"] == 1
    assert parts["left out"]["earned"] < 1
