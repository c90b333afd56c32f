"""`pairs --as-published`: the labels and filters of the system whose recipe made a run; `--label outcome`: others."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

import reasonrag
from preference import StateRecord, read_rollouts
from preference.candidate_records import read_lines
from preference.labelling import own_outcomes
from reasonrag.errors import InputError
from reasonrag.llm.chat import ChatRequest
from tests.endpoints.weak_teacher import WeakTeacher
from tests.helpers.published_trees import builder_rewards, builder_rows, in_published_form
from tests.helpers.scripted_model import ScriptedModel

Rows = list[dict[str, Any]]
FIELDS = 10


def _questions(place: Path) -> Path:
    """Six questions with one answer, and a page that says it."""
    (place / "toy").mkdir(parents=True)
    asked = [
        {"id": f"q{i}", "question": f"Which river is meant by {i}?", "golden_answers": ["Seine"]} for i in range(6)
    ]
    (place / "toy" / "train.jsonl").write_text("".join(json.dumps(each) + "\n" for each in asked))
    (place / "toy" / "corpus.jsonl").write_text(
        json.dumps({"id": "1", "contents": "Paris\nThe Seine is a river."}) + "\n"
    )
    return place


def babble(request: ChatRequest, position: int) -> str:
    """A teacher that says anything: equal replies, replies without a whole tag, contents equal but for case or tag."""
    said = repr(([turn.content for turn in request.messages], request.samples[position]))
    random = Random(hashlib.sha256(said.encode()).digest())
    content = random.choice(["Seine", "the Seine", "SEINE", "Loire", "a river", "yes"])
    stop = "".join(request.sampling.stop)
    if "score" in stop:
        return random.choice([f"<score>{random.randint(0, 100)}</score>", "it depends"])
    if "query" not in stop:
        tag = "evidence" if "evidence" in stop else "answer"
        return random.choice([f"So <{tag}>{content}</{tag}>"] * 4 + [content])
    if random.random() < 0.5:
        return f"Hm. <query>{content}</query>"
    return random.choice([f"Hm. <answer>{content}</answer>", f"<query>{content}</query> or <answer>a</answer>", "Hm."])


def test_the_rows_of_a_released_run_are_the_builder_s(tmp_path: Path) -> None:
    """Written as the published pipeline writes trees, and labelled as its builder does, a run has the same rewards and
    the same rows; unreadable replies, equal siblings and forced conclusions are among its steps."""
    run, data = tmp_path / "run", tmp_path / "data"
    flags: dict[str, Any] = {"dataset": "toy", "data_dir": _questions(tmp_path / "in"), "max_steps": 4}
    model = ScriptedModel(babble)
    reasonrag.generate(**flags, recipe="released", chat_model=model, abort_degenerate=False, run=run)
    reasonrag.pairs(run, out=data, as_published=True, validation=0.0)
    records = list(read_rollouts(run / "rollouts.jsonl"))
    rows = [dict(list(row.items())[:FIELDS]) for row in json.loads((data / "RAG_ProGuide.json").read_bytes())]
    expected: Rows = []
    seen: Counter[str] = Counter()
    for record in records:
        published = in_published_form(record)
        rewards = builder_rewards(published)
        assert [node.reward for node in record.nodes] == [rewards[node.id] for node in record.nodes]
        expected += builder_rows(published)
        seen.update(each.action or "" for each in record.nodes if each.parse_error or each.action == "conclude")
        replies = Counter((each.parent_id, each.response) for each in record.nodes[1:])
        seen["equal"] += sum(count > 1 for count in replies.values())
    assert Counter(map(json.dumps, rows)) == Counter(map(json.dumps, expected))
    assert min(seen["conclude"], seen["think"], seen["equal"], len(expected)) > 0


def test_prorag_judges_what_was_visited_often_enough(tmp_path: Path) -> None:
    """The judge sees steps visited at least once, in the root's state and in those reached by three visits, each with
    its value and visits; every pick is a row, and every other pair says why it is none."""
    run, data = tmp_path / "run", tmp_path / "data"
    reasonrag.generate(
        dataset="atlas", recipe="prorag", model="offline", limit=2, set={"search.simulations": 40}, run=run
    )
    judge = ScriptedModel(lambda _request, _position: "So the pick is <pick>2 1</pick>")
    summary = reasonrag.pairs(run, out=data, as_published=True, chat_model=judge, validation=0.0)
    asked = sum(request.messages[-1].content.count("[search: mean value 0.") for request in judge.requests)
    states = list(read_lines(data / "candidates.jsonl", StateRecord))
    shown = [[step for step in state.steps if step.visits] for state in states if not state.layer or state.visits > 2]
    assert asked == sum(len(steps) for steps in shown if len(steps) > 1)
    assert len(shown) < len(states)
    dropped = {reason for reason, count in summary.dropped.items() if count}
    assert summary.pairs == len(judge.requests) > 0
    assert {"few_visits"} <= dropped <= {"few_visits", "not_picked"}
    filtered = reasonrag.pairs(data, out=tmp_path / "again", as_published=True, validation=0.0)
    assert filtered.pairs == summary.pairs  # its judge is not asked again
    other = tmp_path / "other"
    reasonrag.generate(dataset="atlas", recipe="released", model="offline", limit=1, run=other)
    for beside, refusal in ((other, "labels the runs of prorag, and no others"), (run, "would be asked again")):
        with pytest.raises(InputError, match=refusal):
            reasonrag.pairs([data, beside], out=tmp_path / "both", as_published=True, chat_model=judge)


@pytest.mark.parametrize(
    ("recipe", "flags", "message"),
    [
        ("economy", {}, "no published system labels the runs of recipe economy"),
        ("prorag", {}, "needs `model`, the name of the judge"),
        ("released", {"label": "judge", "model": "offline"}, "no published judge labels the runs of recipe released"),
        ("released", {"min_margin": 0.2, "min_draws": 2}, "leave out `min_margin`, `min_draws`"),
    ],
)
def test_what_no_published_system_does_is_refused(
    tmp_path: Path, recipe: str, flags: dict[str, Any], message: str
) -> None:
    run = tmp_path / "run"
    reasonrag.generate(dataset="atlas", recipe=recipe, model="offline", limit=1, set={"search.simulations": 2}, run=run)
    with pytest.raises(InputError, match=message):
        reasonrag.pairs(run, out=tmp_path / "data", as_published=True, **flags)
    assert not (tmp_path / "data" / "RAG_ProGuide.json").exists()


def test_labels_by_outcome_are_made_from_a_run_or_its_data_set(tmp_path: Path) -> None:
    """With the same bytes. They have margins and no confidence, stay when the data set is filtered again, and are
    refused where a judge or a published system would label it."""
    run, out = tmp_path / "run", tmp_path / "outcome"
    reasonrag.generate(dataset="atlas", chat_model=WeakTeacher(), limit=8, run=run)
    valued = reasonrag.pairs(run, out=tmp_path / "value", validation=0.0)
    made = reasonrag.pairs(run, out=out, label="outcome", validation=0.0)
    reasonrag.pairs(tmp_path / "value", out=tmp_path / "again", label="outcome", validation=0.0)
    for name in ("candidates.jsonl", "RAG_ProGuide.json"):
        assert (tmp_path / "again" / name).read_bytes() == (out / name).read_bytes()
    assert made.pairs_by_label == {"outcome": made.pairs}
    assert made.pairs > 0 == made.dropped["uncertain"] < valued.dropped["uncertain"]
    assert made.mean_confidence is None
    own = {record.question_id: own_outcomes(record) for record in read_rollouts(run / "rollouts.jsonl")}
    for row in json.loads((out / "RAG_ProGuide.json").read_bytes()):
        ends = own[row["question_id"]]
        assert (row["chosen_reward"], row["rejected_reward"]) == (ends[row["chosen_id"]], ends[row["rejected_id"]])
        assert row["margin"] == row["chosen_reward"] - row["rejected_reward"] >= 0.05
    wide = reasonrag.pairs(out, out=tmp_path / "wide", min_margin=1.0, validation=0.0)
    assert wide.pairs_by_label == {"outcome": wide.pairs}
    joined = reasonrag.pairs([out, tmp_path / "value"], out=tmp_path / "joined", validation=0.0)
    assert joined.pairs_by_label == made.pairs_by_label  # a tree is taken from the first that has it
    judge = ScriptedModel(lambda _request, _position: "<pick>2 1</pick>")
    for flags in ({"label": "judge", "chat_model": judge}, {"as_published": True}):
        with pytest.raises(InputError, match="outcome is labelled by outcome"):
            reasonrag.pairs(out, out=tmp_path / "judged", **flags)


def test_labels_by_outcome_need_the_outcomes(tmp_path: Path) -> None:
    """Imported rows do not have them; a published system has its own labels; and a run that
    continues one step of each state has few."""
    run, old = tmp_path / "run", tmp_path / "old"
    reasonrag.generate(dataset="atlas", model="offline", recipe="ragym", limit=2, run=run)
    with pytest.raises(InputError, match="leave out `label` outcome"):
        reasonrag.pairs(run, out=tmp_path / "data", label="outcome", as_published=True)
    made = reasonrag.pairs(run, out=old, label="outcome", validation=0.0)
    assert made.dropped["unvalued"] > made.dropped["wrong_trajectory"] == made.dropped["not_ranked_apart"] == 0
    reasonrag.pairs(run, out=old, validation=0.0)
    lines = re.sub(rb'"own_outcome":[^,]*,', b"", (old / "candidates.jsonl").read_bytes())
    (old / "candidates.jsonl").write_bytes(lines)
    with pytest.raises(InputError, match="old does not say how the trajectories of its steps ended"):
        reasonrag.pairs(old, out=tmp_path / "data", label="outcome")
    assert reasonrag.pairs(old, out=tmp_path / "data", validation=0.0).candidates == made.candidates
