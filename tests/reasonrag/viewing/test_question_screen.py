"""`reasonrag show` and `stats`: what a person sees in a terminal, and what a program is given."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from rich.cells import cell_len

import reasonrag as package
from reasonrag.rendering import counts_text
from reasonrag.viewing.overview import Overview
from reasonrag.viewing.question_view import QuestionView
from tests.helpers.command_line import Reasonrag
from tests.helpers.hostile import Hostile, make
from tests.helpers.trees import (
    ada,
    answer,
    asked,
    evidence,
    failure,
    malformed,
    query,
    rollouts_of,
    run_of,
    siblings,
    tree,
)

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
WIDTH = 80


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the offline teacher."""
    run = tmp_path_factory.mktemp("runs") / "a"
    package.generate(dataset="atlas", model="offline", limit=8, set={"search.simulations": 8}, run=run)
    return run


@pytest.fixture(scope="module")
def richest(run: Path) -> QuestionView:
    """Its question with most kept pairs."""
    lines = (run / "rollouts.jsonl").read_bytes().splitlines()
    views = [package.show(run, json.loads(line)["question_id"]) for line in lines]
    return max(views, key=lambda view: sum(pair.dropped is None for pair in view.pairs))


def assert_harmless(text: str) -> None:
    """Nothing that moves a cursor, hides or turns a line, but joiners of emoji; colours are the drawing's own."""
    left = COLOUR.sub("", text)
    assert {unicodedata.category(each) for each in left if each not in "\n\u200d"}.isdisjoint(
        {"Cc", "Cf", "Cs", "Zl", "Zp"}
    )


# -- show ------------------------------------------------------------------------------------------------------


def test_show_draws_every_step_once_and_marks_those_of_kept_pairs(
    reasonrag: Reasonrag, run: Path, richest: QuestionView
) -> None:
    """On a line of 80 columns each, also in a pipe; with signs, not by colour alone. The question and its gold answers
    stand above, the pairs and why they were kept below; the others are counted by drop reason."""
    done = reasonrag("show", run, richest.id)
    assert done.status == 0
    drawing, _, below = done.out.partition("pairs: ")
    steps = richest.trees[0].steps[1:]
    assert Counter(map(int, re.findall(r"[├└]╴#(\d+) ", drawing))) == Counter(step.id for step in steps)
    for step in steps:
        assert f"#{step.id} {step.type} {'?' if step.reward is None else f'{step.reward:.2f}'}" in drawing
    assert all(cell_len(line) <= WIDTH for line in drawing.splitlines())
    assert f"gold answers: {', '.join(richest.golden_answers)}" in drawing
    assert " ".join(richest.question.split()) in " ".join(drawing.split())
    kept = [pair for pair in richest.pairs if pair.dropped is None]
    assert below.startswith(f"{len(kept)} kept of {len(richest.pairs)} candidates")
    for pair in kept:
        assert re.search(rf"#{pair.chosen} [^:]*\+\d", drawing)
        assert re.search(rf"#{pair.rejected} [^:]*-\d", drawing)
        assert f"{pair.id}  depth {richest.states[pair.state].layer}  margin {pair.margin:.2f}" in below
        assert next(why.text for why in pair.why if why.topic == "label") in " ".join(below.split())
    for reason, count in Counter(pair.dropped for pair in richest.pairs if pair.dropped).items():
        assert f"{reason.replace('_', ' ')} {count:,}" in " ".join(below.split())


def test_show_names_the_status_of_branches_and_what_could_not_be_read(reasonrag: Reasonrag, tmp_path: Path) -> None:
    """Converged, repeated, alike, unexplored; F1 at answers; the cause at replies that did not parse. Two steps
    that reveal the same name each other."""
    steps = [
        query("settled", 0.9, rollouts=rollouts_of(1.0, 3, 3), visits=2),
        query("Settled!", 0.9, same_as=1),
        query("unexplored", None),
        malformed("no tag at all"),
        answer("Ada", 0.45, f1=0.5),
        query("as settled", 0.1, rollouts=rollouts_of(0.0, *[3] * 8), observations=8, in_common={1: 0.75}),
    ]
    run = run_of(tmp_path / "run", siblings(*steps))
    out = reasonrag("show", run, "q1").out
    assert "#1 query 0.90 n2 +1 converged reveals the same as #6: settled" in out
    assert "#2 query 0.90 repeats #1: Settled!" in out
    assert "#3 query ? unexplored: unexplored" in out
    assert "#4 unreadable (no_tag) 0.00: no tag at all" in out
    assert "#5 answer 0.45 F1 0.50 +1 -1: Ada" in out
    assert "#6 query 0.10 -1 converged reveals the same as #1: as settled" in out
    [pair] = [each for each in package.show(run, "q1").pairs if (each.chosen, each.rejected) == (1, 6)]
    said = " ".join(reasonrag("show", run, "q1", "--pair", pair.id).out.split())
    assert "both steps reveal the same (75 % in common), and their continuations do not tell them apart" in said


def test_show_and_stats_give_one_object_as_json(reasonrag: Reasonrag, run: Path, richest: QuestionView) -> None:
    """What the Python call returns."""
    done = reasonrag("show", run, richest.id, "--json")
    assert QuestionView.model_validate_json(done.out) == richest == package.show(str(run), richest.id)
    assert Overview.model_validate_json(reasonrag("stats", run, "--json").out) == package.stats(run)


def test_show_of_a_pair_has_both_sides_and_every_reason(reasonrag: Reasonrag, run: Path, richest: QuestionView) -> None:
    """By its id, or by how that begins."""
    pair = next(each for each in richest.pairs if each.dropped)
    done = reasonrag("show", run, richest.id, "--pair", pair.id)
    said = " ".join(done.out.split())
    for why in pair.why:
        assert " ".join(f"{why.topic}: {why.text}".split()) in said
    assert f"chosen #{pair.chosen}" in said
    assert f"rejected #{pair.rejected}" in said
    assert reasonrag("show", run, richest.id, "--pair", pair.id[:12]).out == done.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("q11",), "no question has the id 'q11': "),
        (("nothing like it",), "run has 3 questions, for instance q1, q2, q10"),
        ((), "say which question to show: "),
        (("q2", "--pair", "ffff"), "question q2 has no pair 'ffff'; choose from "),
        (("q2", "--pair", ""), "question q2 has no pair ''"),
        (("q2", "--pair", "ffff", "--json"), "--pair and --json exclude each other"),
    ],
)
def test_show_refuses_what_is_not_there_and_says_what_is(
    reasonrag: Reasonrag, tmp_path: Path, arguments: tuple[object, ...], says: str
) -> None:
    """Exit status 2, nothing on stdout."""
    run = run_of(tmp_path / "run", asked(1), asked(2), asked(10))
    done = reasonrag("show", run, *arguments)
    assert (done.status, done.out) == (2, "")
    assert says in done.err


def test_show_without_trees_draws_the_states_that_pairs_are_of(reasonrag: Reasonrag, tmp_path: Path) -> None:
    """And says what is missing, and where it could be given."""
    package.pairs(run_of(tmp_path / "run", ada()), out=tmp_path / "data")
    (tmp_path / "run").rename(tmp_path / "moved")
    out = reasonrag("show", tmp_path / "data", "q1").out
    assert "trees are missing" in out
    assert re.search(r"state \w{16}, depth 1\n├╴#5 evidence 0.73 \+1: Born in London\.", out)
    assert "#2 answer 0.90" in out
    told = reasonrag("show", tmp_path / "data", "q1", "--trees", tmp_path / "moved")
    assert "missing" not in told.out
    assert reasonrag("show", tmp_path / "data", "q1", "--trees", tmp_path / "run").status == 2


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    return make(tmp_path_factory.mktemp("hostile"))


@pytest.mark.parametrize("colours", [False, True])
def test_hostile_text_stays_text(
    reasonrag: Reasonrag, hostile: Hostile, monkeypatch: pytest.MonkeyPatch, colours: bool
) -> None:
    """Escape sequences, marks of direction and rich's markup, in every field, in every view, also with colours."""
    monkeypatch.setenv("COLUMNS", "100000")
    if colours:
        monkeypatch.setenv("FORCE_COLOR", "1")
    [pair, *_] = package.show(hostile.run, hostile.attacked).pairs
    several = ("show", hostile.attacked), ("show", hostile.attacked, "--pair", pair.id), ("stats",)
    for command, *more in several:
        done = reasonrag(command, hostile.run, *more)
        assert done.status == 0, done.err
        assert_harmless(done.out if colours else done.out + done.err)  # progress moves the cursor where there is one
        assert "[bold red]loud[/bold red]" in COLOUR.sub("", done.out)
    for name in (hostile.failed, hostile.attacked + "?"):
        done = reasonrag("show", hostile.run, name)
        assert_harmless(done.out + done.err)


# -- stats -----------------------------------------------------------------------------------------------------


def words(tables: str) -> str:
    """What tables say, without their lines."""
    return " ".join(re.sub(r"[│┃]", " ", tables).split())


def test_stats_says_the_numbers(reasonrag: Reasonrag, run: Path) -> None:
    """Tables of 80 columns; what is counted is what the Python call returns. It tells how far it is, in shares of the
    file that rise to all of it."""
    shares: list[float] = []
    numbers = package.stats(str(run), watch=shares.append)
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] == 1.0
    done = reasonrag("stats", run)
    said = words(done.out)
    assert f"questions {numbers.questions:,}: " in said
    assert f"{numbers.pairs:,} of {numbers.candidates:,} candidates" in said
    assert counts_text(numbers.dropped) in said
    assert "pairs by depth" in said
    body = done.out.partition("next: ")[0].partition("\n")[2]  # without the path, which may be long
    assert all(cell_len(line) <= WIDTH for line in body.splitlines())


def test_stats_says_what_money_bought(reasonrag: Reasonrag, tmp_path: Path) -> None:
    """A question and a pair, in dollars and replies; nothing where it is not known."""
    paid = [asked(each, usage={"calls": 10, "requests": 4, "cost_usd": 0.5}) for each in range(4)]
    out = words(reasonrag("stats", run_of(tmp_path / "paid", *paid)).out)
    assert "$2.00; $0.50 per question; $0.50 per pair" in out
    assert "40 in 16 requests; 10.0 per question; 10.0 per pair" in out
    assert "unknown" in reasonrag("stats", run_of(tmp_path / "free", asked(1))).out


def test_stats_says_where_questions_die(reasonrag: Reasonrag, run: Path, tmp_path: Path) -> None:
    """Every explored question under one cause, those that are not right together, with an example of each."""
    facts = package.stats(run).trees
    assert facts
    assert sum(each.questions for each in facts.causes) == package.stats(run).questions
    assert "where questions die" in reasonrag("stats", run).out
    shown = [{"id": "7", "title": "Zola", "score": 1.0}]
    steps = [query("novels", 0.0), evidence("Zola.", 0.0, passages=shown, gold=1), answer("1840", 0.0, f1=0.0)]
    record = tree([0, 1, 2], steps, gold_passages=["Zola", "Nana (novel)"])
    dead = run_of(tmp_path / "dead", record, failure("q3"))
    said = words(reasonrag("stats", dead).out)
    assert "none right 1 0 passage not found 1 0 q1; lacks Nana (novel)" in said


def test_a_run_without_pairs_or_trees_is_no_error(reasonrag: Reasonrag, tmp_path: Path) -> None:
    """Nothing to divide by, nothing to draw; of a question that failed it is said why."""
    empty = reasonrag("stats", run_of(tmp_path / "empty"))
    assert (empty.status, "0 of 0 candidates" in empty.out) == (0, True)
    failed = run_of(tmp_path / "failed", failure("q2"))
    assert "timeout 1" in reasonrag("stats", failed).out
    done = reasonrag("show", failed, "q2")
    assert done.status == 0
    assert "timeout: no answer after 600 s" in done.out
    assert "0 kept of 0 candidates" in done.out
    assert reasonrag("stats", tmp_path / "nowhere").status == 2
