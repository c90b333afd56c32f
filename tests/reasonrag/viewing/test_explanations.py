"""Sentences about pairs are true: of every pair of real runs, word by word against the records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import reasonrag as package
from preference import Candidate, PairingRules, RolloutRecord
from preference.filters import candidates_of, select
from preference.labelling import labelled_states
from reasonrag.viewing.collection import ExploredTree, open_collection
from reasonrag.viewing.explanations import cautions, reasons
from reasonrag.viewing.question_rows import question_row
from reasonrag.viewing.question_view import question_view
from tests.helpers.trees import Fields, answer, evidence, query, rollouts_of, siblings

RULES = PairingRules()
RECIPES = {"paper": "spre", "released": "outcome", "economy": "spre_even"}
"""Each by the rule of its rewards."""
CLOSE = 0.005 + 1e-9
"""What is written with two digits is true to half of the last one."""
CLOSER = 0.01 + 1e-9
"""What is written of two numbers that are written with two digits."""
NUMBER = r"(-?\d+(?:\.\d+)?(?:e-?\d+)?)"


@dataclass(frozen=True)
class Said:
    """A pair of a tree, and what is said of it, by topic."""

    candidate: Candidate
    record: RolloutRecord
    texts: dict[str, str]


@dataclass(frozen=True)
class Made:
    recipe: str
    run: Path
    pairs: list[Said]


@pytest.fixture(scope="module", params=RECIPES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A small run of the offline teacher, and everything that is said of its pairs."""
    run = tmp_path_factory.mktemp("reasons") / request.param
    package.generate(dataset="atlas", model="offline", limit=5, recipe=request.param, simulations=48, run=run)
    return Made(request.param, run, list(said_of(run)))


def said_of(run: Path) -> Iterator[Said]:
    collection = open_collection(run)
    for explored in list(collection.scan()):
        whole = collection.at(explored.number)
        view = question_view(whole, collection.rules)
        [found] = whole.trees
        for each, pair in zip(whole.candidates, view.pairs, strict=True):
            yield Said(each, found.record, {why.topic: why.text for why in pair.why})


def said_by(record: RolloutRecord) -> list[Said]:
    """The same of a tree that was grown by hand."""
    found = select(labelled_states(record), RULES)
    texts = [{why.topic: why.text for why in reasons(each, ExploredTree("runs/a", record), RULES)} for each in found]
    return [Said(each, record, text) for each, text in zip(found, texts, strict=True)]


# -- what a step is worth --------------------------------------------------------------------------------------


def test_a_mean_that_is_told_is_the_mean_by_which_the_step_is_worth_what_it_is(made: Made) -> None:
    """Of every continuation alike for rule spre, fork by fork for spre_even; the rule outcome weighs by visits, and
    no plain mean is told of it."""
    seen = 0
    for each in made.pairs:
        for topic, step in (("chosen", each.candidate.chosen), ("rejected", each.candidate.rejected)):
            node = each.record.nodes[step.id]
            text = each.texts[topic]
            averages = re.findall(rf"which is {NUMBER} on average", text)
            averages += re.findall(rf"which makes {NUMBER}", text)
            if not averages:
                continue
            [told] = averages
            rule = each.record.recipe.reward
            assert rule == RECIPES[made.recipe] != "outcome"
            plain = sum(end.quality for end in node.rollouts) / len(node.rollouts)
            true = plain if rule == "spre" else node.expected_outcome
            assert float(told) == pytest.approx(true, abs=CLOSE), text
            for uncounted in re.findall(rf"\({NUMBER} on average\)", text):
                assert float(uncounted) == pytest.approx(plain, abs=CLOSE), text
            seen += 1
    assert (seen > 0) == (made.recipe != "released")


def test_a_worth_that_is_told_is_the_steps(made: Made) -> None:
    """And where it is worked out from the answer's score, the sum is right."""
    worked_out = 0
    for each in made.pairs:
        for topic, step in (("chosen", each.candidate.chosen), ("rejected", each.candidate.rejected)):
            text = each.texts[topic]
            for worth in re.findall(rf"It is worth {NUMBER}", text):
                assert float(worth) == pytest.approx(step.reward, abs=CLOSE), text
            for score, alpha, steps, result in re.findall(rf"{NUMBER} x {NUMBER}\^(\d+) = {NUMBER}", text):
                assert float(result) == pytest.approx(float(score) * float(alpha) ** int(steps), abs=CLOSER), text
                assert float(result) == pytest.approx(step.reward, abs=CLOSE), text
                worked_out += 1
    assert worked_out


def test_a_margin_that_is_worked_out_is_the_pairs_margin(made: Made) -> None:
    """`a - b`, or `(a - b) / alpha^layer`: both sides' rewards, and what results is true to two digits."""
    forms = set()
    for each in made.pairs:
        found = re.search(
            rf"The margin is \(?{NUMBER} - {NUMBER}\)?(?: / {NUMBER}\^(\d+))? = {NUMBER}[.,]", each.texts["label"]
        )
        if not found:
            assert "The margin is" not in each.texts["label"]
            continue
        chosen, rejected, alpha, layer, margin = found.groups()
        assert float(chosen) == pytest.approx(each.candidate.chosen.reward, abs=CLOSE)
        assert float(rejected) == pytest.approx(each.candidate.rejected.reward, abs=CLOSE)
        assert float(margin) == pytest.approx(each.candidate.pair.margin, abs=CLOSE)
        divisor = 1.0 if alpha is None else float(alpha) ** int(layer)
        difference = (each.candidate.chosen.reward or 0) - (each.candidate.rejected.reward or 0)
        assert difference / divisor == pytest.approx(each.candidate.pair.margin), each.texts["label"]
        forms.add(alpha is None)
    assert forms == ({True} if made.recipe == "released" else {True, False})


@pytest.mark.parametrize("reward", ["judge-score", "judge-rank"])
def test_a_judges_reward_is_not_told_by_golden_answers(reward: str) -> None:
    """Neither of an answer, whose F1 stands in the tree and is not what it is worth, nor of a query."""
    steps = [
        answer("right", 0.3, f1=1.0, em=1.0, rollouts=rollouts_of(1.0, 1)),
        answer("wrong", 0.8, f1=0.0, em=0.0, rollouts=rollouts_of(0.0, 1)),
        query("who", 0.6, rollouts=rollouts_of(1.0, 2, 2), expected_outcome=1.0),
    ]
    recipe = {"name": "released", "reward": reward, "judge_weight": 1.0, "alpha": 0.9, "margin_by_layer": True}
    for each in said_by(siblings(*steps, recipe=recipe)):
        for topic in ("chosen", "rejected"):
            text = each.texts[topic]
            assert "judge" in text
            assert not re.search(r"golden|F1|continuation|scores|average|counts 0\.9", text), text


def test_two_parts_of_a_reward_are_told_apart() -> None:
    """What it led to, by its rule, and what a judge says: each with its own number."""
    known = {"expected_outcome": 0.5, "rewards": {"spre": 0.45, "judge-score": 0.95}}
    steps = [query("who", 0.7, rollouts=[*rollouts_of(1.0, 2), *rollouts_of(0.0, 2)], **known), query("what", 0.0)]
    recipe = {"name": "paper", "reward": "spre+judge-score", "judge_weight": 0.5, "alpha": 0.9, "margin_by_layer": True}
    [each] = said_by(siblings(*steps, recipe=recipe))
    assert "It is worth 0.70, of two parts (0.5 and 0.5 of it). By what it led to 0.45: of 2" in each.texts["chosen"]
    assert "And 0.95: a judge's score of the path down to it." in each.texts["chosen"]


# -- labels to look at twice -----------------------------------------------------------------------------------

RIGHT, PARTLY, WRONG = "Ada Lovelace", "Ada Byron", "Charles Babbage"


@pytest.mark.parametrize(
    ("chosen", "rejected", "says"),
    [
        (answer(RIGHT, 0.9), answer(WRONG, 0.1), []),
        (answer(RIGHT, 0.9), answer("lovelace, ada", 0.1), []),
        (answer(WRONG, 0.9), answer("nobody", 0.1), []),
        (
            answer(WRONG, 0.9),
            answer(RIGHT, 0.1),
            ["the rejected answer is the better one (F1 1.00, the chosen one 0.00"],
        ),
        (answer(PARTLY, 0.9), answer(RIGHT, 0.1), ["(F1 1.00, the chosen one 0.50)"]),
        (query("a", 0.9), answer(RIGHT, 0.1), []),
        (query("a", 0.9), query("b", 0.1), []),
        (query("a", 0.9, gold=2), query("b", 0.1, gold=1), []),
        (query("a", 0.9, gold=1), query("b", 0.1, gold=1), []),
        (query("a", 0.9, gold=0), query("b", 0.1, gold=1), ["the rejected step finds more gold passages"]),
        (evidence("a", 0.9, gold=0), evidence("b", 0.1, gold=1), ["the rejected step reports more gold passages"]),
        (evidence("a", 0.9), evidence("b", 0.1, gold=1), []),
    ],
)
def test_a_label_is_to_be_looked_at_twice_where_gold_says_the_opposite(
    chosen: Fields, rejected: Fields, says: list[str]
) -> None:
    """And nowhere else: what is as good, what cannot be compared and what is not known contradicts nothing."""
    [state] = labelled_states(siblings(rejected, chosen, golden_answers=[RIGHT], gold_passages=["p1", "p2"]))
    [each] = candidates_of(state)
    assert each.chosen.content == chosen["content"]
    found = cautions(each)
    assert len(found) == len(says)
    assert all(part in text for part, text in zip(says, found, strict=True))


def test_pairs_to_look_at_twice_are_counted_as_they_are_marked(made: Made, tmp_path: Path) -> None:
    """Over the rows of the list, the views of the questions, and in the overview; those that are kept."""
    lucky = siblings(answer(WRONG, 0.9, observations=9), answer(RIGHT, 0.1, observations=9))
    lines = (made.run / "rollouts.jsonl").read_bytes()
    (tmp_path / "rollouts.jsonl").write_bytes(lines + lucky.model_copy(update={"question_id": "lucky"}).to_line())
    collection = open_collection(tmp_path)
    every = list(collection.scan())
    rows = [question_row(each) for each in every]
    views = [question_view(collection.at(each.number), collection.rules) for each in every]
    in_views = sum(pair.dropped is None and bool(pair.cautions) for view in views for pair in view.pairs)
    in_rows = sum(pair.doubtful for row in rows for pair in row.kept)
    assert package.stats(tmp_path).doubtful == in_rows == in_views
    assert rows[-1].kept[0].doubtful
