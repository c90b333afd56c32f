"""Sentences about pairs are true: of every pair of real runs, word by word against the records."""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given

import reasonrag as package
from preference import Candidate, PairingRules, RolloutRecord
from preference.filters import candidates_of, select
from preference.labelling import labelled_states
from reasonrag.terminal import show
from reasonrag.viewing.collection import ExploredTree, open_collection
from reasonrag.viewing.explanations import cautions, explain, number
from reasonrag.viewing.question_rows import question_row
from reasonrag.viewing.question_screen import pair_parts, question_parts
from reasonrag.viewing.question_view import QuestionView, question_view
from reasonrag.viewing.stats_tables import stats_parts
from tests.helpers.trees import (
    Fields,
    answer,
    branch,
    evidence,
    query,
    random_trees,
    rollouts_of,
    run_of,
    siblings,
    tree,
)

RULES = PairingRules()
EXPLORED: dict[str, dict[str, object]] = {
    "economy": {"recipe": "economy"},
    "released, margins not by layer": {"recipe": "released", "set": {"search.simulations": 64}},
    "continuations": {"recipe": "continuation"},
    "another discount": {"recipe": "economy", "set": {"search.alpha": 0.85, "search.simulations": 48}},
}
CLOSE = 0.005 + 1e-9
"""What is written with two digits is true to half of the last one."""
NUMBER = r"(-?\d+(?:\.\d+)?(?:e-?\d+)?)"


@dataclass(frozen=True)
class Said:
    """A pair of a tree, and what is said of it, by topic."""

    candidate: Candidate
    record: RolloutRecord
    texts: dict[str, str]


@dataclass(frozen=True)
class Shown:
    """One run of the offline teacher in the three forms in which it can be shown, and what is said of its pairs."""

    run: Path
    data: Path
    """The data set, without its run."""
    imported: Path
    """The data set that an import makes of its rows."""
    pairs: list[Said]

    @property
    def reward(self) -> str:
        """The rule by which continuations make rewards."""
        return self.pairs[0].record.recipe.reward.partition("+")[0]


@pytest.fixture(scope="module", params=EXPLORED)
def shown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    home = tmp_path_factory.mktemp("reasons")
    run = home / "run"
    explored = {"limit": 4, "set": {"search.simulations": 48}} | EXPLORED[request.param]
    package.generate(dataset="atlas", model="offline", run=run, **explored)
    package.pairs(run, out=home / "data", min_confidence=0.5)
    package.import_published([home / "data" / "RAG_ProGuide.json"], out=home / "imported")
    moved = run.rename(home / "moved")
    return Shown(moved, home / "data", home / "imported", list(said_of(moved)))


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
    texts = [{why.topic: why.text for why in explain(each, ExploredTree("runs/a", record), RULES)} for each in found]
    return [Said(each, record, text) for each, text in zip(found, texts, strict=True)]


# -- the reward of a step --------------------------------------------------------------------------------------


def test_a_reward_that_is_told_is_the_steps_and_so_is_the_mean_that_it_is_made_of(shown: Shown) -> None:
    """Of every continuation alike for rule spre, fork by fork for spre_even; the rule outcome weighs by visits, and
    no plain mean is told of it."""
    seen = 0
    for each in shown.pairs:
        for topic, step in (("chosen", each.candidate.chosen), ("rejected", each.candidate.rejected)):
            node = each.record.nodes[step.id]
            text = each.texts[topic]
            for reward in re.findall(rf"Reward {NUMBER}", text):
                assert float(reward) == pytest.approx(step.reward, abs=CLOSE), text
            averages = re.findall(rf"(?:\. Mean|oversamples some branches\):|each reply equal:) {NUMBER}", text)
            if not averages:
                continue
            [told] = averages
            assert shown.reward != "outcome"
            plain = sum(end.quality for end in node.rollouts) / len(node.rollouts)
            true = plain if shown.reward == "spre" else node.expected_outcome
            assert float(told) == pytest.approx(true, abs=CLOSE), text
            for uncounted in re.findall(rf"Raw mean {NUMBER}", text):
                assert float(uncounted) == pytest.approx(plain, abs=CLOSE), text
            seen += 1
    assert (seen > 0) == (shown.reward != "outcome")


@pytest.mark.parametrize(
    ("recipe", "valued", "unknown"),
    [
        ("reasonrag", r"distinct trajectories, each counted once|The answer scores", "so the branch is pruned"),
        ("prorag", r"the mean value backed up by \d+ simulations? through", "the search simulated another step"),
        ("ragym", r"1 / \(1 \+ rank\)", None),
    ],
)
def test_the_rewards_of_the_published_searches_are_told_as_they_are_made(
    recipe: str, valued: str, unknown: str | None, tmp_path: Path
) -> None:
    """No rule is taken for a mean over continuations that it is not, and no judge's rank for what golden answers say;
    what is missing says why."""
    package.generate(
        dataset="atlas", model="offline", limit=3, recipe=recipe, set={"search.simulations": 30}, run=tmp_path / "a"
    )
    told: set[bool] = set()
    for each in said_of(tmp_path / "a"):
        for topic, step in (("chosen", each.candidate.chosen), ("rejected", each.candidate.rejected)):
            if step.parse_error is None:
                told.add(step.reward is None)
                wanted = valued if step.reward is not None else unknown or "nothing is unknown"
                assert re.search(wanted, each.texts[topic]), each.texts[topic]
                if recipe == "ragym":
                    assert not re.search(r"gold|F1|continuation|scores|[Mm]ean|Discounted", each.texts[topic])
    assert told == ({False} if unknown is None else {False, True})


def test_a_margin_that_is_worked_out_is_the_pairs_margin(shown: Shown) -> None:
    """`a - b`, or `(a - b) / alpha^layer`: both sides' rewards, and what results is true to two digits."""
    forms = set()
    for each in shown.pairs:
        found = re.search(
            rf"Margin: \(?{NUMBER} - {NUMBER}\)?(?: / {NUMBER}\^(\d+))? = {NUMBER}[.,]", each.texts["label"]
        )
        if not found:
            assert "Margin:" not in each.texts["label"]
            continue
        chosen, rejected, alpha, layer, margin = found.groups()
        assert float(chosen) == pytest.approx(each.candidate.chosen.reward, abs=CLOSE)
        assert float(rejected) == pytest.approx(each.candidate.rejected.reward, abs=CLOSE)
        assert float(margin) == pytest.approx(each.candidate.pair.margin, abs=CLOSE)
        divisor = 1.0 if alpha is None else float(alpha) ** int(layer)
        difference = (each.candidate.chosen.reward or 0) - (each.candidate.rejected.reward or 0)
        assert difference / divisor == pytest.approx(each.candidate.pair.margin), each.texts["label"]
        forms.add(alpha is None)
    assert forms == ({True} if shown.reward == "outcome" else {True, False})


# -- labels that need review -----------------------------------------------------------------------------------

RIGHT, PARTLY, WRONG = "Ada Lovelace", "Ada Byron", "Charles Babbage"


@pytest.mark.parametrize(
    ("chosen", "rejected", "says"),
    [
        (answer(RIGHT, 0.9), answer(WRONG, 0.1), []),
        (answer(RIGHT, 0.9), answer("lovelace, ada", 0.1), []),
        (answer(PARTLY, 0.9), answer(RIGHT, 0.1), ["the rejected answer is better (F1 1.00; chosen: 0.50)"]),
        (query("a", 0.9), answer(RIGHT, 0.1), []),
        (query("a", 0.9, gold=1), query("b", 0.1, gold=1), []),
        (query("a", 0.9, gold=0), query("b", 0.1, gold=1), ["the rejected step finds more gold passages"]),
        (evidence("a", 0.9, gold=0), evidence("b", 0.1, gold=1), ["the rejected step reports more gold passages"]),
        (evidence("a", 0.9), evidence("b", 0.1, gold=1), []),
    ],
)
def test_a_label_needs_review_where_gold_says_the_opposite(chosen: Fields, rejected: Fields, says: list[str]) -> None:
    """And nowhere else: what is as good, what cannot be compared and what is not known contradicts nothing."""
    [state] = labelled_states(siblings(rejected, chosen, golden_answers=[RIGHT], gold_passages=["p1", "p2"]))
    [each] = candidates_of(state)
    assert each.chosen.content == chosen["content"]
    found = cautions(each)
    assert len(found) == len(says)
    assert all(part in text for part, text in zip(says, found, strict=True))


LATE = answer("late", 0.0, f1=0.0, em=0.0, rollouts=rollouts_of(0.0, 3))
ONE = "1 right answer not counted: the search had looked for it"
OTHERWISE = "1 answer not counted: not drawn by the plain prompt"


@pytest.mark.parametrize(
    ("record", "says", "review"),
    [
        (branch(0.5), ONE, True),
        (branch(1.0), ONE, False),
        (branch(0.0, late=LATE), "1 right, 1 wrong answers not counted: the search had looked for them", True),
        # the query was drawn again, so that what was found later counts
        (branch(0.0, late=LATE, more=1), ONE, True),
        (branch(0.0, late=LATE | {"plain_draws": 0}), ONE, True),
        (siblings(query("who", 0.9, expected_outcome=1.0), query("what", 0.1, expected_outcome=0.0)), "", False),
    ],
)
def test_an_answer_that_was_looked_for_is_said_and_contradicts_the_label(
    record: RolloutRecord, says: str, review: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the reason of the label, in the list of answers, in `show`, and in a data set without its run."""
    package.pairs(run_of(tmp_path, record), out=tmp_path / "data", min_confidence=0.5, eval=[])
    (tmp_path / "rollouts.jsonl").rename(tmp_path / "moved.jsonl")
    without = open_collection(tmp_path / "data")
    (tmp_path / "moved.jsonl").rename(tmp_path / "rollouts.jsonl")
    for collection in (open_collection(tmp_path), without):
        [explored] = collection.scan()
        view = question_view(collection.at(explored.number), collection.rules)
        pair = next(each for each in view.pairs if (each.chosen, each.rejected) == (1, 2))
        rejected = next(why.text for why in pair.why if why.topic == "rejected")
        assert rejected.endswith(f" {says}.") if says else "not counted" not in rejected
        assert pair.cautions == ([f"below the rejected step, {ONE}"] if review else [])
        assert question_row(explored).kept[0].review == review
        steps = view.trees[0].steps if view.trees else view.states[pair.state].steps
        said, _, otherwise = next(step.uncounted for step in steps if step.id == 2).partition("; ")
        assert (said, otherwise) == (says, OTHERWISE if view.trees and record.drawn_otherwise[2] else "")
        show(pair_parts(view, pair.id))
        assert ("not counted" in capsys.readouterr().out) == bool(says)


@pytest.mark.parametrize(("draws", "plain", "count"), [(1, 1, 0), (1, 0, 1), (3, 1, 2)])
def test_answers_that_were_drawn_otherwise_are_counted_below_every_step_of_their_path(
    draws: int, plain: int, count: int
) -> None:
    """So the page's list of answers is never longer than what it says of them."""
    record = branch(0.0, late=LATE | {"draws": draws, "plain_draws": plain})
    late = next(node for node in record.nodes if node.content == "late")
    found = record.drawn_otherwise
    assert [found[late.id], found[late.parent_id or 0], found[0]] == [count] * 3


def test_the_worked_example_is_the_same_in_the_docs_the_code_and_on_the_page(tmp_path: Path) -> None:
    """Every row of the table in docs/explanation/confidence.md: a tree with these continuations at depth 5, its
    confidence by the code, and both again in the page of the run."""
    text = (Path(package.__file__).parents[1] / "docs/explanation/confidence.md").read_text("utf-8")
    row = re.compile(
        r"\| (\d+) of (\d+), (\d) below \| (\d+) of \d+(?:, \d below)? \| (\d+) \| (\S+) \| (\S+) \| (\S+) \|"
    )
    rows = row.findall(text)
    assert len(rows) == len(re.findall(r"^\| \d+ of", text, re.MULTILINE)) > 0
    for right, of, below, other, n, *figures in rows:
        first, second, sure = map(float, figures)
        steps = []
        for name, many, share in (("a", int(right), first), ("b", int(other), second)):
            ends = [*rollouts_of(1.0, *[6 + int(below)] * many), *rollouts_of(0.0, *[7] * (int(of) - many))]
            reward = many / int(of) * 0.9 ** (6 + int(below))
            assert share == pytest.approx(many / int(of) * 0.9 ** int(below), abs=1e-9)
            steps.append(evidence(name, reward, rollouts=ends, observations=int(n), expected_outcome=many / int(of)))
        record = tree([0, 1, 2, 3, 4, 5, 5], [*(query(f"q{each}", None) for each in range(5)), *steps])
        record = record.model_copy(update={"recipe": record.recipe.model_copy(update={"reward": "spre_even"})})
        [each] = candidates_of(next(labelled_states(record)))
        assert each.pair.confidence == pytest.approx(sure, abs=5e-4)
        page = package.view(run_of(tmp_path, record), out=tmp_path / "view.html").read_text("utf-8")
        [packed] = re.findall(r'id="question-\d+">(.*?)</script>', page)
        view = gzip.decompress(base64.b64decode(packed)).decode()
        assert f"P(chosen > rejected) = {number(sure)}: the chance" in view
        assert f"chosen step (n {number(float(n))}, r {number(first)}) exceeds one" in view
        assert f"rejected step (n {number(float(n))}, r {number(second)})." in view


def test_pairs_that_need_review_are_counted_as_they_are_marked(shown: Shown, tmp_path: Path) -> None:
    """Over the rows of the list, the views of the questions, and in the overview; those that are kept."""
    wrong = answer(WRONG, 0.9, observations=9, in_evidence=True)
    lucky = siblings(wrong, answer(RIGHT, 0.1, observations=9, in_evidence=False))
    lines = (shown.run / "rollouts.jsonl").read_bytes()
    (tmp_path / "rollouts.jsonl").write_bytes(lines + lucky.model_copy(update={"question_id": "lucky"}).to_line())
    collection = open_collection(tmp_path)
    rows = [question_row(each) for each in collection.scan()]
    views = [question_view(collection.at(number), collection.rules) for number in range(len(rows))]
    in_views = sum(pair.dropped is None and bool(pair.cautions) for view in views for pair in view.pairs)
    in_rows = sum(pair.review for row in rows for pair in row.kept)
    assert package.stats(tmp_path).doubtful == in_rows == in_views
    assert rows[-1].kept[0].review


# -- equations -------------------------------------------------------------------------------------------------

TERM = r"\(*-?\d+(?:\.\d+)?(?:e-?\d+)?\)*(?:\^\d+)?"
EQUATION = re.compile(rf"((?:{TERM} [-+x/] )+{TERM}) = {NUMBER}")
COUNTED = re.compile(
    r"(\d+) continuations?: ((?:\d+ (?:right|partly right|wrong|failed \(unreadable reply\))(?:, )?)+)"
)


def worked_out(expression: str) -> float:
    """What a printed sum, product or quotient comes to."""
    return float(eval(expression.replace(" x ", " * ").replace("^", "**")))  # noqa: S307 - of numbers alone


def equations_in(text: str) -> list[str]:
    """Every equation that a text prints; each of them holds as printed, and continuations add up to their number."""
    found = []
    for match in EQUATION.finditer(text):
        expression, result = match.groups()
        digits = len(result.partition(".")[2])
        assert abs(worked_out(expression) - float(result)) <= 0.5 * 10**-digits + 1e-9, match.group()
        found.append(match.group())
    for match in COUNTED.finditer(text):
        assert int(match[1]) == sum(map(int, re.findall(r"\d+", match[2]))), match.group()
    return found


def printed_of(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, list[str]]:
    """Everything that `show` and `stats` print of a run or a data set, and the sentences that are in its page."""
    collection = open_collection(path)
    for each in list(collection.scan()):
        view = question_view(collection.at(each.number), collection.rules)
        show(question_parts(view))
        for pair in {pair.id: pair for pair in view.pairs}.values():
            show(pair_parts(view, pair.id))
    show(stats_parts(package.stats(path)))
    page = package.view(path, out=path.parent / f"{path.name}.html").read_text("utf-8")
    packed = re.findall(r'id="question-\d+">(.*?)</script>', page)
    views = [QuestionView.model_validate_json(gzip.decompress(base64.b64decode(each))) for each in packed]
    sentences = [
        text for view in views for pair in view.pairs for text in (*pair.cautions, *(w.text for w in pair.why))
    ]
    return capsys.readouterr().out, sentences


def test_every_equation_that_is_printed_holds_as_printed(
    shown: Shown, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the terminal and on the page, with the run and without it, and of pairs that were imported."""
    monkeypatch.setenv("COLUMNS", "2000")  # else a line break may stand in the middle of one
    for path in (shown.run, shown.data, shown.imported):
        terminal, sentences = printed_of(path, capsys)
        on_page = [equations_in(text) for text in sentences]
        assert set(chain(*on_page)) <= set(equations_in(terminal))
        for text, found in zip(sentences, on_page, strict=True):
            assert text.count(" = ") == len(found) + text.count("P(chosen > rejected) = "), text
        assert any(on_page) == (path != shown.imported)


@given(grown=random_trees())
def test_equations_hold_whatever_the_rewards(grown: RolloutRecord) -> None:
    """A law: rewards of any size, discounts .5, .9 and 1, with the tree and without it."""
    for each in select(labelled_states(grown), RULES):
        for known in (None, ExploredTree("runs/a", grown)):
            for why in explain(each, known, RULES):
                found = equations_in(why.text)
                assert why.text.count(" = ") == len(found) + why.text.count("P(chosen > rejected) = ")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "unknown"),
        (0.0, "0.00"),
        (0.0049, "0.0049"),
        (-0.5, "-0.50"),
        (0.9962, "0.996"),
        (0.99998, "0.99998"),
        (1.0 - 1e-12, "1.00"),
    ],
)
def test_a_number_has_two_digits_or_as_many_as_tell_it_from_nothing_and_from_certainty(
    value: float | None, written: str
) -> None:
    """A chance of .9962 is not written as certainty, a margin of .0049 not as none; what floats add is left out."""
    assert number(value) == written
