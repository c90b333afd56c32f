"""Rounds: what each is made of, that a start after a stop repeats nothing, when they end early, and what is
refused before anything is drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import reasonrag
from preference.candidate_records import question_key
from reasonrag.agent.prompting import load_prompts
from reasonrag.agent.protocols.known import renderer_hash
from reasonrag.errors import InputError, ModelError
from reasonrag.processes.children import find_python
from reasonrag.training.llamafactory.launcher import TrainingFailed
from reasonrag.training.policy.round_measures import HEAD, Round, repeats_itself
from reasonrag.training.policy.rounds import reason_to_end
from reasonrag.training.provenance import Provenance, TrainingConditions
from reasonrag.training.stages.runner import StagesRecord
from tests.helpers.scripted_model import ScriptedModel, turn
from tests.helpers.tiny_qwen import make_tiny_qwen

pytest.importorskip("torch", reason="the rl extra is not installed")
pytest.importorskip("peft", reason="the rl extra is not installed")

RIGHT, WRONG, UNREADABLE = "So the answer is <answer>Oslo</answer>", "So the answer is <answer>Vale</answer>", "what?"
QUESTIONS = [
    {"id": str(number), "question": f"In which city does number {number} live?", "golden_answers": ["Oslo"]}
    for number in range(3)
]
CORPUS = [{"id": "1", "contents": "Number 1\nNumber 1 lives in Oslo."}]
QUERY = "So the next query is <query>where number 1 lives</query>"
FOUND = "Based on the query, the relevant evidence is <evidence>Number 1 lives in Oslo.</evidence>"
SMALL = {"train.max_steps": 2, "train.save_strategy": "no"}


class Students:
    """What answers for a folder: the first of a question's four replies is `first`, the others are as told. fails: to
    answer a question with these words. asked: by the folder's name, how many completions."""

    def __init__(
        self, others: str = WRONG, *, first: str = RIGHT, fails: str = "no such", searches: bool = False
    ) -> None:
        self.others, self.first, self.fails, self.searches = others, first, fails, searches
        self.asked = dict[str, int]()

    def __call__(self, folder: Path) -> ScriptedModel:
        def reply(request: Any, place: int) -> str:
            self.asked[folder.name] = self.asked.get(folder.name, 0) + 1
            if self.fails in request.messages[-1].content:
                raise ModelError("no answer", cause="timeout")
            if self.searches and (turn(request) == "read" or len(request.messages[1].content.splitlines()) == 1):
                return FOUND if turn(request) == "read" else QUERY
            return self.others if request.samples[place] % 4 else self.first

        return ScriptedModel(reply, name=folder.name)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Arguments of two rounds of three questions."""
    monkeypatch.chdir(tmp_path)
    for name, rows in (("mine", QUESTIONS), ("corpus", CORPUS)):
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    make_tiny_qwen(tmp_path / "student")
    flags = {"questions": "mine.jsonl", "corpus": "corpus.jsonl", "model": "student", "run": "rl"}
    return flags | {"config": "policy-smoke-cpu", "rounds": 2, "group": 4, "set": SMALL}


def test_a_round_is_a_run_a_data_set_and_a_model_and_is_made_once(asked: dict[str, Any]) -> None:
    students = Students()
    first = reasonrag.rounds(**asked | {"rounds": 1}, chat_model=students)
    assert [(each.outcome, each.unreadable, each.distance) for each in first.rounds] == [(0.25, 0, 0)]
    assert (first.rounds[0].em.share, first.rounds[0].em.of) == (0.25, 3)
    made = reasonrag.rounds(**asked, chat_model=students)
    assert students.asked == {"student": 12, "policy-1": 12}
    assert (made.rounds[0], made.rounds[1].model) == (first.rounds[0], "policy-1")
    assert made.rounds[1].distance
    assert made.rounds[1].entropy
    assert Path("rl/model").resolve() == Path("rl/round-2/policy-2").resolve()
    known = json.loads(Path("rl/model/reasonrag.json").read_text("utf-8"))
    assert known["stages"] == ["policy", "policy"]
    assert Path("rl/rounds.md").read_text("utf-8").count("| 0.25 |") == 2
    assert reasonrag.rounds(**asked, chat_model=students) == made
    assert students.asked == {"student": 12, "policy-1": 12}
    for other, why in (({"seed": 2}, "seed was 0, is 2"), ({"corpus": "other.jsonl"}, "corpus was")):
        Path("other.jsonl").write_text(Path("corpus.jsonl").read_text())
        with pytest.raises(InputError, match=rf"holds another training: .*{why}.* another .run"):
            reasonrag.rounds(**asked | other, chat_model=students)
    students.others = UNREADABLE
    asked["questions"] = str(Path(asked["questions"]).resolve())  # the same file
    worse = reasonrag.rounds(**asked | {"rounds": 4}, chat_model=students)
    assert worse.rounds[-1].stopped == "75 % of the replies of round 3 cannot be read, more than a third"
    assert Path("rl/model").resolve() == Path("rl/round-1/policy-1").resolve(), "what drew the last sound attempts"
    assert reasonrag.rounds(**asked | {"rounds": 4}, chat_model=students) == worse
    assert not Path("rl/round-4").exists()
    Path("mine.jsonl").write_text(json.dumps(QUESTIONS[0]) + "\n")
    with pytest.raises(InputError, match="questions_sha256 was"):
        reasonrag.rounds(**asked | {"rounds": 5}, chat_model=students)


def test_what_was_drawn_is_not_drawn_again_where_the_training_failed(asked: dict[str, Any]) -> None:
    """Nor are questions that failed: the attempts of a round are those that its model drew."""
    students = Students(fails="number 2")
    asked |= {"rounds": 1, "set": SMALL | {"train.max_length": 1}}
    for _ in range(2):
        with pytest.raises(TrainingFailed, match="none teaches anything"):
            reasonrag.rounds(**asked, chat_model=students)
        assert students.asked == {"student": 9}
    students.fails, nothing = "number", asked | {"run": "none", "set": SMALL}
    with pytest.raises(InputError, match=r"no question of .* has attempts"):
        reasonrag.rounds(**nothing, chat_model=students)


@pytest.mark.parametrize(("train", "others"), [("policy", RIGHT), ("sft", WRONG)])
def test_rounds_end_where_nothing_is_left_to_learn(asked: dict[str, Any], train: str, others: str) -> None:
    """All attempts are right, or none is; the model that drew them is the newest."""
    if train != "policy":
        find_python()
        asked |= {"train": train, "config": f"smoke-cpu-{train}", "set": {}}
    students = Students(others, first=others)
    found = reasonrag.rounds(**asked, chat_model=students)
    [only] = found.rounds
    assert (only.stopped or "").startswith("round 1 teaches nothing")
    assert Path("rl/model").resolve() == Path("student").resolve()
    assert reasonrag.rounds(**asked, chat_model=students) == found
    assert students.asked.keys() == {"student"}


def test_tables_of_what_rounds_call_do_not_count(asked: dict[str, Any]) -> None:
    """But for that of generate, whose recipe is another one."""
    tables = {
        "generate": {"set": ["search.siblings=9"], "top_k": 1},
        "pairs": {"format": ["sft"], "label": "judge"},
        "train-policy": {"set": ["learning_rate=0.5"]},
        "doctor": {"gpus": 2},
    }
    lines = (
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(each)}\n" for key, each in values.items())
        for name, values in tables.items()
    )
    Path("reasonrag.toml").write_text("\n".join(lines))
    reasonrag.rounds(**asked, chat_model=Students(RIGHT))
    drawn = json.loads(Path("rl/round-1/run/config.json").read_text("utf-8"))["decides_answers"]
    assert (drawn["top_k"], drawn["recipe"]["search"]["group"]) == (1, 4)
    made = json.loads(Path("rl/round-1/data/summary.json").read_text("utf-8"))
    assert made["files"] == {"RAG_ProGuide.json": 0, "rl.jsonl": 3}


def test_what_critics_would_be_refused_for_is_found_first_and_attempts_stay_with_their_questions(
    asked: dict[str, Any],
) -> None:
    students, of_critic = Students(), asked | {"critic": "smoke-cpu", "set": SMALL | {"critic.lernrate": 1}}
    with pytest.raises(InputError, match="TRL has no argument 'lernrate'; did you mean learning_rate"):
        reasonrag.rounds(**of_critic, chat_model=students, train_critic=reasonrag.train_critic)
    keys = [question_key(each["question"]) for each in QUESTIONS[:2]]
    known = Provenance(base_model="none", stage="sft", finetuning_type="full", questions=keys)
    known.write(Path("student"))
    of_critic |= {"set": SMALL}
    with pytest.raises(InputError, match=r"trained on 2 of these 3 questions.* take others, or a folder"):
        reasonrag.rounds(**of_critic, chat_model=students, train_critic=reasonrag.train_critic)
    assert not students.asked
    Path("student/reasonrag.json").unlink()

    def refuses(*_: Any, **__: Any) -> None:
        raise InputError("no critic today")

    for _ in range(2):
        with pytest.raises(InputError, match="no critic today"):
            reasonrag.rounds(**of_critic, chat_model=students, train_critic=refuses)
        assert students.asked == {"student": 12}
    with pytest.raises(InputError, match=r"holds another training: draw.seed was 0, is 1\. Choose another .run"):
        reasonrag.rounds(**asked | {"seed": 1}, chat_model=students)
    Path("other").mkdir()
    Path("other/stages.json").write_text(StagesRecord(recipe="sft-dpo", stages=[]).model_dump_json())
    with pytest.raises(InputError, match="stages of another recipe, sft-dpo"):
        reasonrag.rounds(**asked | {"run": "other"}, chat_model=students)


def test_critics_are_trained_anew_in_each_round(asked: dict[str, Any]) -> None:
    """Of its own pairs, from the model of round 1, which has learned from none of the questions."""
    asked |= {"critic": "smoke-cpu", "set": SMALL | {"train.advantage": "prorag", "critic.max_steps": 1}}
    made = reasonrag.rounds(**asked, chat_model=Students(searches=True), train_critic=reasonrag.train_critic)
    assert [each.stopped for each in made.rounds] == [None, None]
    rows = [json.loads(line) for line in Path("rl/round-2/data/rl.jsonl").read_text("utf-8").splitlines()]
    assert all(each["score"] is not None for each in rows)


def row(number: int, **measures: float) -> Round:
    made = {"outcome": 0.5, "unreadable": 0.0, "loops": 0.0, "searches": 1.0, "tokens": 9.0, "failed": 0, "cost": 0.0}
    return Round(round=number, model="student", **made | measures)


def test_a_row_says_what_its_columns_are_called() -> None:
    shown = dict(zip(HEAD, row(3, unreadable=0.125, loops=0.01, searches=2.0).row(), strict=True))
    shares = {"unreadable": "12.5 %", "loops": "1.0 %"}
    assert shown == {"round": 3, "outcome": 0.5, "searches": 2.0, "tokens": 9.0, "spent": "0 s"} | shares | {
        "entropy": None,
        "distance": None,
    }
    assert row(3, cost=1.5).row()[-1] == "$1.50"


@pytest.mark.parametrize(
    ("before", "now", "ends"),
    [
        ([], {"unreadable": 0.9}, False),
        ([{"unreadable": 0.9}], {"unreadable": 0.8}, False),
        ([{"unreadable": 0.3}], {"unreadable": 0.33}, False),
        ([{"unreadable": 0.3}], {"unreadable": 0.34}, True),
        ([{"unreadable": 0.5}, {"unreadable": 0.4}], {"unreadable": 0.6}, True),
        ([{"loops": 0.0}], {"loops": 0.5}, False),
        ([{"loops": 0.5}, {"loops": 0.0}], {"loops": 0.5}, False),
        ([{"loops": 0.0}, {"loops": 0.02}], {"loops": 0.02}, True),
        ([{"loops": 0.03}, {"loops": 0.02}], {"loops": 0.03}, False),
    ],
)
def test_rounds_end_early_where_it_gets_worse(
    before: list[dict[str, float]], now: dict[str, float], ends: bool
) -> None:
    reports = [row(number, **each) for number, each in enumerate(before, start=1)]
    assert (reason_to_end(row(len(before) + 1, **now), reports) is not None) == ends


@pytest.mark.parametrize(
    ("reply", "loops"),
    [("so it is what it is what it is what it is what it is", True), ("one two three four " * 3, False), ("", False)],
)
def test_a_reply_loops_that_says_the_same_four_words_four_times(reply: str, loops: bool) -> None:
    assert repeats_itself(reply) == loops


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"group": 1}, "must be at least 2"),
        ({"config": "smoke-cpu-sft", "train": "dpo"}, "is a configuration of sft"),
        ({"config": None}, "a configuration is needed: .* policy-smoke-cpu"),
        ({"set": {"train.advantage": "prorag"}}, "advantage prorag needs scores"),
        ({"set": {"agent.temperature": 0.5}}, "temperature 1"),
        ({"split": "dev"}, "not a training split"),
        ({"questions": "no-answers.jsonl"}, "golden_answers"),
        ({"model": "nowhere"}, "the model nowhere is not there"),
        ({"critic": "student"}, "student is no critic"),
        ({"critic": "smoke-cpu"}, "give train_critic=reasonrag.train_critic"),
        ({"critic": "small-cpu"}, "there is no configuration 'small-cpu'"),
        ({"recipe": "economy"}, "rounds has no"),
        ({"value_model": "other"}, "rounds has no"),
        ({"outcome": "judge"}, "must not judge itself"),
        ({"set": {"train.lernrate": 1}}, "no argument 'lernrate'; did you mean learning_rate"),
        ({"set": {"train.advantage": "bogus"}}, "advantage 'bogus': choose from"),
        ({"agent": "prorag"}, "base_renderer"),
    ],
)
def test_what_would_stop_a_round_is_refused_before_anything_is_drawn(
    asked: dict[str, Any], change: dict[str, Any], why: str
) -> None:
    Path("no-answers.jsonl").write_text(json.dumps({"id": "1", "question": "Who?", "golden_answers": []}) + "\n")
    asks = TrainingConditions(renderer=renderer_hash(load_prompts()))
    Provenance(base_model="none", stage="sft", finetuning_type="full", asked=asks).write(Path("student"))
    students = Students()
    with pytest.raises(InputError, match=why):
        reasonrag.rounds(**asked | change, chat_model=students)
    assert not students.asked
    assert not Path("rl").exists()
