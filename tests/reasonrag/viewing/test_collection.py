"""What is shown of a run or a data set: where it is found, the status of steps, why pairs were labelled so."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reasonrag as package
from preference import Candidate, DropReason, FinalScore, PairingRules, PairSummary, RolloutRecord
from preference.filters import candidates_of, select
from preference.labelling import labelled_states, with_judge_label, with_outcome_label
from reasonrag.agent.prompting import load_prompts, render_prompt
from reasonrag.agent.protocols.known import PROTOCOLS
from reasonrag.agent.settings import AgentName
from reasonrag.agent.state import Observation, State
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.errors import InputError
from reasonrag.exploration.summary import RunSummary
from reasonrag.retrieval.settings import BEST_FIRST
from reasonrag.viewing.collection import Collection, ExploredQuestion, ExploredTree, RowPlace, open_collection
from reasonrag.viewing.explanations import OUTCOMES, explain
from reasonrag.viewing.overview import Overview
from reasonrag.viewing.question_rows import columns_of, question_row
from reasonrag.viewing.question_view import QuestionView, StepStatus, question_view, step_statuses
from tests.helpers.command_line import Reasonrag
from tests.helpers.trees import (
    Fields,
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

RULES = PairingRules()


@dataclass(frozen=True)
class Made:
    """A run of the offline teacher, and the data set that was made of it."""

    run: Path
    data: Path
    run_summary: RunSummary
    pair_summary: PairSummary


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    home = tmp_path_factory.mktemp("made")
    run, data = home / "runs" / "a", home / "data" / "a"
    explored = package.generate(dataset="atlas", split="dev", limit=10, set={"search.simulations": 8}, run=run)
    return Made(run, data, explored, package.pairs(run, out=data))


def scanned(path: Path, *trees: Path) -> list[ExploredQuestion]:
    return list(open_collection(path, trees).scan())


def found(collection: Collection, question_id: str) -> ExploredQuestion:
    explored = collection.find(question_id)
    assert explored is not None
    return explored


def view_of(path: Path, question_id: str, *trees: Path) -> QuestionView:
    collection = open_collection(path, trees)
    return question_view(found(collection, question_id), collection.rules)


# -- sources ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["run", "data"])
def test_a_question_is_the_same_however_it_is_looked_for(made: Made, which: str) -> None:
    """By its place after a scan, or by its id without one: candidates, verdicts and trees."""
    path: Path = getattr(made, which)
    collection = open_collection(path)
    every = list(collection.scan())
    assert [each.number for each in every] == list(range(made.run_summary.done))
    assert list(open_collection(path).ids()) == [each.question.question_id for each in every]
    for each in every:
        placed, looked_for = collection.at(each.number), found(open_collection(path), each.question.question_id)
        assert [(one.pair.pair_id, one.dropped) for one in placed.candidates] == [
            (one.pair.pair_id, one.dropped) for one in looked_for.candidates
        ]
        assert placed.trees == looked_for.trees
        assert len(placed.trees) == 1


def test_a_run_that_is_being_written_is_seen_as_far_as_it_is(tmp_path: Path) -> None:
    """Its last line may be cut off anywhere, and lines that come later are for who looks later."""
    whole = [asked(each) for each in range(3)]
    last = asked(3).to_line()
    for cut in (1, 40, len(last) // 2, len(last) - 2):
        run = run_of(tmp_path / f"cut{cut}", *whole, torn=last[:cut])
        collection = open_collection(run)
        assert [each.question.question_id for each in collection.scan()] == ["q0", "q1", "q2"]
        assert collection.find("q3") is None
        with (run / "rollouts.jsonl").open("ab") as file:
            file.write(last[cut:])
        assert collection.find("q3") is None
        sent = (run / "rollouts.jsonl").rename(run / "sent.jsonl")  # alone, under any name
        assert found(open_collection(sent), "q3").trees


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (asked(0).to_line() + b'{"schema_version": "reasonrag.rollouts/1", "question_id": 3}\n', "line 2"),
        (b"hello", "line 1 is not a rollout record"),
        (asked(0).to_line() + asked(1).to_line().replace(b"Who", b"\\ud800 who"), "line 2 is not JSON"),
    ],
)
def test_what_is_no_line_that_is_being_written_is_refused_by_its_place(
    tmp_path: Path, content: bytes, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        scanned(run_of(tmp_path, torn=content))


def test_a_question_that_failed_and_was_explored_later_has_its_tree(tmp_path: Path) -> None:
    """In the list, in the numbers, and in the trees of a data set."""
    run = run_of(tmp_path / "run", failure("q1", question="Who was number 1?"), asked(2), asked(1))
    collection = open_collection(run)
    failed, *later = collection.scan()
    assert (question_row(failed).cause, [each.number for each in later]) == ("timeout", [1, 0])
    assert question_row(collection.at(0)).ends != "failed"
    assert len(found(collection, "q1").candidates) == 1
    numbers = package.stats(run)
    assert (numbers.questions, numbers.failures_by_cause) == (2, {})
    package.pairs(run, out=tmp_path / "data")
    [view] = view_of(tmp_path / "data", "q1").trees
    assert len(view.steps) == 3


def test_a_data_set_whose_run_was_moved_finds_its_trees_where_it_is_told(made: Made, tmp_path: Path) -> None:
    """Without being told it warns, and shows the states that pairs are of with their steps."""
    run = shutil.copytree(made.run, tmp_path / "elsewhere" / "run")
    data = shutil.copytree(made.data, tmp_path / "data")
    summary = json.loads((data / "summary.json").read_text())
    (data / "summary.json").write_text(json.dumps(summary | {"sources": ["runs/gone"]}))
    [question_id, *_] = [each.question.question_id for each in scanned(data) if each.candidates]
    alone = view_of(data, question_id)
    assert any("--trees" in warning for warning in open_collection(data).warnings)
    assert alone.trees == []
    assert all(state.steps and state.tree is None for state in alone.states)
    told = view_of(data, question_id, run)
    assert [each.source for each in told.trees] == [str(run)]
    assert all(state.tree == 0 and not state.steps for state in told.states)
    assert [(each.id, each.dropped) for each in told.pairs] == [(each.id, each.dropped) for each in alone.pairs]
    assert package.show(str(data), question_id, trees=str(run)) == told


def test_a_question_of_two_runs_is_one_question_with_two_trees(tmp_path: Path) -> None:
    """Each state is of its own tree, also where both runs asked the same prompt."""
    runs = [run_of(tmp_path / f"run{seed}", ada(seed=seed), asked(seed)) for seed in (1, 2)]
    package.pairs(runs, out=tmp_path / "data")
    assert len(scanned(tmp_path / "data")) == 3
    collection = open_collection(tmp_path / "data")
    [explored] = [each for each in list(collection.scan()) if len(each.questions) > 1]
    view = question_view(collection.at(explored.number), collection.rules)
    assert [each.seed for each in view.trees] == [1, 2]
    assert Counter(state.tree for state in view.states) == {0: 2, 1: 2}
    assert_own(view, collection.at(explored.number))


def test_questions_of_two_runs_that_are_numbered_alike_are_not_taken_for_each_other(tmp_path: Path) -> None:
    """An id that names two questions shows neither, and says how both are seen."""
    other = siblings(query("she", 0.9), query("he", 0.0), question_id="q1", question="Who else?", seed=8)
    others = other, asked(3, seed=8)
    runs = [run_of(tmp_path / name, *trees) for name, trees in (("one", (asked(1), asked(2))), ("two", others))]
    package.pairs(runs, out=tmp_path / "data")
    with pytest.raises(InputError, match=r"2 questions with the id 'q1', from several runs.*reasonrag view"):
        package.show(tmp_path / "data", "q1")
    for question_id in ("q2", "q3"):
        assert package.show(tmp_path / "data", question_id).id == question_id
    collection = open_collection(tmp_path / "data")
    for each in list(collection.scan()):
        view = question_view(collection.at(each.number), collection.rules)
        assert_own(view, collection.at(each.number))


@pytest.mark.parametrize("what", ["run", "data"])
def test_a_question_that_is_asked_under_two_ids_keeps_its_trees_apart(tmp_path: Path, what: str) -> None:
    """In one run: the prompts are the same, the trees are not, and either id shows it."""
    text = "Who was number 1?"
    steps = [query("nobody", 0.0), query("what", 0.2), query("who", 0.9)]
    records = asked(1), siblings(*steps, question_id="again", question=text)
    package.pairs(run_of(tmp_path / "run", *records), out=tmp_path / "data")
    collection = open_collection(tmp_path / what)
    views = [question_view(collection.at(each.number), RULES) for each in list(collection.scan())]
    for view in views:
        assert_own(view, collection.at(view.number))
    assert sum(len(view.pairs) for view in views) == 1 + 3
    for question_id in ("q1", "again"):
        view = package.show(tmp_path / what, question_id)
        assert len(view.trees) == (1 if what == "run" else 2)
        assert_own(view, found(collection, question_id))


def assert_own(view: QuestionView, explored: ExploredQuestion) -> None:
    """Every pair is of steps of its own tree, where these say what the candidate says."""
    for pair, each in zip(view.pairs, explored.candidates, strict=True):
        number = view.states[pair.state].tree
        assert number is not None
        record = explored.trees[number].record
        assert record.question_id == each.state.question_id
        steps = view.trees[number].steps
        assert steps[pair.chosen].response == each.chosen.response
        assert steps[pair.rejected].response == each.rejected.response


def without_verdicts(data: Path) -> None:
    for file in ("dropped.jsonl", "RAG_ProGuide.json", "summary.json"):
        (data / file).unlink()


def with_a_rule_of_none(data: Path) -> None:
    summary = json.loads((data / "summary.json").read_text())
    summary["rules"]["max_tokens"] = 9
    (data / "summary.json").write_text(json.dumps(summary))


def of_another_export(data: Path) -> None:
    path = data / "candidates.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"pair_id":"', b'"pair_id":"other-'))


def half(file: str) -> Callable[[Path], object]:
    return lambda data: (data / file).write_bytes((whole := (data / file).read_bytes())[: len(whole) // 2])


def with_a_list_as_id(data: Path) -> None:
    (data / "dropped.jsonl").write_text('{"pair_id": ["a"], "reason": "duplicate"}\n')


def with_an_unknown_reason(data: Path) -> None:
    (data / "dropped.jsonl").write_text('{"pair_id": "a", "reason": "because"}\n')


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (with_a_list_as_id, r"dropped\.jsonl, line 1 does not say why a pair was dropped"),
        (with_an_unknown_reason, r"dropped\.jsonl, line 1 does not say why a pair was dropped"),
        (without_verdicts, r"neither RAG_ProGuide\.json nor dropped.* Run the same command again"),
        (with_a_rule_of_none, r"the rules of .*summary\.json are none .*max_tokens.*Make the data"),
        (half("dropped.jsonl"), r"data/dropped\.jsonl"),
        (half("RAG_ProGuide.json"), r"data/RAG_ProGuide\.json"),
        (of_another_export, "does not belong to the rows"),
    ],
)
def test_a_data_set_that_is_damaged_is_refused_with_what_is_wrong(
    made: Made, tmp_path: Path, damage: Callable[[Path], object], says: str
) -> None:
    """Half of the verdicts would be shown as all of them."""
    damage(data := shutil.copytree(made.data, tmp_path / "data"))
    with pytest.raises(InputError, match=says):
        package.stats(data)


def test_the_reference_names_every_column_of_the_table_of_pairs() -> None:
    """In the order of the page's JSON."""
    page = (Path(__file__).parents[3] / "docs/reference/formats/shown.md").read_text("utf-8")
    named = re.search(r"candidates by column: ([^;]*);", page)
    assert named
    assert re.findall(r"`(\w+)`", named[1]) == list(columns_of([], dropped=True))


@pytest.mark.parametrize("what", ["run", "data"])
def test_a_folder_whose_name_is_not_utf_8_is_shown_with_its_bytes(made: Made, tmp_path: Path, what: str) -> None:
    """In the page, the numbers and a question; all of them are JSON."""
    folder = Path(os.fsdecode(bytes(tmp_path) + b"/\xff"))
    shutil.copytree(made.run if what == "run" else made.data, folder)
    assert package.view(folder, max_mb=1).is_file()
    numbers = package.stats(folder)
    assert numbers.path.endswith("/\\xff")
    assert numbers.model_dump_json()
    [first, *_] = open_collection(folder).scan()
    assert package.show(folder, first.question.question_id).model_dump_json()


def test_an_imported_data_set_has_states_and_no_trees(made: Made, tmp_path: Path) -> None:
    """Its labels are those of the file, and the reasons say so."""
    package.import_published([str(made.data / "RAG_ProGuide.json")], out=tmp_path / "imported")
    collection = open_collection(tmp_path / "imported")
    views = [question_view(collection.at(each.number), collection.rules) for each in list(collection.scan())]
    pairs = [pair for view in views for pair in view.pairs]
    assert pairs
    assert not any(view.trees for view in views)
    assert {pair.label for pair in pairs} == {"imported"}
    assert all("imported" in why.text for pair in pairs for why in pair.why if why.topic == "label")


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("tuning.json", "trials/base"),
        ("predictions.jsonl", "is an evaluation: reasonrag view"),
        ("compare.json", "is a comparison: see its compare.md"),
        ("notes.txt", "reasonrag generate --run RUN, reasonrag pairs RUN --out DIR"),
        (None, "reasonrag generate"),
    ],
)
def test_what_is_neither_run_nor_data_set_is_refused_with_what_to_do(
    tmp_path: Path, file: str | None, says: str
) -> None:
    """Directories that other commands make are known by their files."""
    if file:
        (tmp_path / "some").mkdir()
        (tmp_path / "some" / file).write_text("")
    with pytest.raises(InputError, match=says):
        open_collection(tmp_path / "some")


@given(question_id=st.text(st.characters(exclude_categories=["Cs"]), max_size=1200), order=st.booleans())
def test_any_id_is_found_however_the_line_was_written(
    tmp_path_factory: pytest.TempPathFactory, question_id: str, order: bool
) -> None:
    """A law: by other programs too, with other orders and escapes, and beside texts that look like an id."""
    known = {"question_id": question_id, "question": 'Is "question_id":"other" an id?'}
    line = json.dumps(asked(1).model_dump(mode="json") | known, sort_keys=order, ensure_ascii=order)
    run = tmp_path_factory.mktemp("run")
    (run / "rollouts.jsonl").write_bytes(f"{line}\n".encode())
    collection = open_collection(run)
    assert list(collection.ids()) == [question_id]
    assert found(collection, question_id).question.question_id == question_id
    assert question_id == "other" or collection.find("other") is None


# -- branches --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "status"),
    [
        (answer("Ada", 0.9), "answer"),
        (malformed("nothing"), "failed"),
        (query("Ada", 0.5, same_as=1), "repeated"),
        (query("Ada", None), "unexplored"),
        (query("Ada", 0.9, rollouts=rollouts_of(0.0, 3, 5)), "settled"),
        (query("Ada", 0.9, rollouts=rollouts_of(1.0, 3)), "mixed"),
        (query("Ada", 0.9, rollouts=[*rollouts_of(1.0, 3), *rollouts_of(0.0, 3)]), "mixed"),
    ],
)
def test_the_status_of_a_step(step: Fields, status: StepStatus) -> None:
    """One continuation settles nothing; two that agree do, right or wrong."""
    assert step_statuses(siblings(query("first", 0.1), step))[2] == status


def test_what_was_continued_below_counts_above() -> None:
    """Also where it enters no mean of the step above."""
    grown = tree([0, 1, 1], [query("a", None), query("b", 0.9, rollouts=rollouts_of(1.0, 3, 3)), query("c", None)])
    assert step_statuses(grown) == ["settled", "settled", "settled", "unexplored"]


# -- explanations ------------------------------------------------------------------------------------------------


def recipe(reward: str | None = None, **fields: Any) -> Fields:
    return {"recipe": {"name": "economy", "reward": reward, "alpha": 0.9, "margin_by_layer": True} | fields}


def first_pair(record: RolloutRecord, rules: PairingRules = RULES) -> Candidate:
    return select(labelled_states(record), rules)[0]


def told(each: Candidate, record: RolloutRecord | None = None, rules: PairingRules = RULES, **known: Any) -> str:
    found_trees = None if record is None else ExploredTree("runs/a", record)
    return "\n".join(f"{why.topic}: {why.text}" for why in explain(each, found_trees, rules, **known))


GOOD = query("good", 0.81, rollouts=rollouts_of(1.0, 2, 2), observations=2, expected_outcome=1.0)
BAD = query("bad", 0.0, rollouts=rollouts_of(0.0, 3), observations=1, expected_outcome=0.0)


UNSAID = malformed("", parse_error={"cause": "withheld", "detail": "filtered"})


@pytest.mark.parametrize(
    ("others", "fields", "says"),
    [
        ([BAD], recipe("spre"), "Discounted by 0.9 per step from the question (2 steps): 1.00 x 0.9^2 = 0.81."),
        ([BAD], recipe("spre", alpha=1.0), "2 continuations: 2 right. Mean 1.00.\n"),
        ([BAD], recipe("spre_even"), "2 right. Mean 1.00. Discounted"),
        ([BAD], recipe("outcome"), "The mean, weighted by visits of the search."),
        ([BAD], recipe("rank"), "1 / (1 + rank), where a judge ranks all steps of this state from 0; 0 for all"),
        ([BAD], {}, "the chance that a draw from Beta(1/2 + n r, "),
        ([BAD], {}, "(effective sample size 2.00) exceeds one of the rejected step (effective sample size 1.00)"),
        ([malformed("no tag")], {}, "The reply could not be parsed as a step (no_tag)"),
        ([UNSAID], {}, "There is no reply (withheld): the path ends here, with reward 0.00"),
        ([query("other", None)], {}, "Reward unknown"),
        ([BAD, query("also good", 0.81, same_as=1)], {}, "Same content as step 1"),
    ],
)
def test_a_reward_is_told_by_the_rule_that_found_it(others: list[Fields], fields: Fields, says: str) -> None:
    """With the tree or without it, its numbers and how many stand behind it; where a step has none, why."""
    record = siblings(GOOD, *others, **fields)
    pairs = select(labelled_states(record), RULES)
    text = "\n".join(told(each, known) for each in pairs for known in (record, None))
    assert "chosen: Reward 0.81" in text
    assert says in text


@pytest.mark.parametrize("outcome", sorted(OUTCOMES))
def test_the_reward_of_an_answer_is_what_its_outcome_says(outcome: str) -> None:
    """Named in words, discounted by its steps."""
    value = {"name": outcome, "value": 0.5}
    record = siblings(answer("right", 0.45, f1=0.5, outcome=value), answer("wrong", 0.0), **recipe(outcome=outcome))
    text = told(first_pair(record), record)
    assert f"Reward 0.45. The answer scores 0.50, {OUTCOMES[outcome]}." in text
    assert "Discounted by 0.9 per step from the question (1 step): 0.50 x 0.9^1 = 0.45." in text


@pytest.mark.parametrize(
    ("pick", "says"),
    [
        ((1, 2), "A judge saw every step of this state and picked the chosen step as better"),
        ((2, 1), "By the rewards alone the margin would be -0.81"),
        (None, "did not pick this pair"),
    ],
)
def test_a_judges_label_is_told_as_a_judges(pick: tuple[int, int] | None, says: str) -> None:
    """And what continuations say beside it."""
    [state] = labelled_states(siblings(GOOD, BAD))
    [each] = candidates_of(with_judge_label(state, pick))
    assert says in told(each)


@pytest.mark.parametrize(
    ("rejected", "label", "side"),
    [
        (answer("bad", 0.9, f1=0.25), "Margin: 1.00 - 0.25 = 0.75.", "ended with outcome 0.25"),
        (answer("bad", 0.9, f1=1.0), "Both trajectories had the same outcome", "ended with outcome 1.00"),
        (answer("bad", 0.9), "One of the two trajectories has no known end", "has no known end"),
    ],
)
def test_a_label_by_outcome_is_told_by_both_trajectories(rejected: Fields, label: str, side: str) -> None:
    """Whatever the rewards are."""
    record = siblings(answer("good", 0.1, f1=1.0), rejected)
    [state] = labelled_states(record)
    [each] = select([with_outcome_label(state)], RULES)
    text = told(each, record)
    assert f"The trajectory in which this step was first drawn {side}." in text
    assert label in text
    assert "Reward" not in text


DROPPED: dict[DropReason, str] = {
    "contaminated": "evaluation split",
    "held_out": "kept for reinforcement",
    "malformed": "could not be parsed",
    "unvalued": "one side has no known reward",
    "not_reached": "the published builder stops above this state",
    "wrong_trajectory": "has an F1 of 0.00, which is not above 0.75",
    "not_ranked_apart": "did not rank one first",
    "same_content": "both steps have the same content",
    "few_visits": "too few visits for the judge",
    "not_picked": "the judge picked two other steps",
    "prompt_cut": "seems to have cut the prompt of this state",
    "ungrounded": "no passage read so far supports",
    "repeated_query": "repeats an earlier one on its path",
    "small_margin": "the margin 0.0499 is below 0.0500",
    "uncertain": "the confidence 0.60 is below 0.70",
    "few_draws": "a step has fewer than 1 continuations (effective sample size)",
    "same_findings": "both steps reveal the same (80 % in common), and their continuations do not tell them apart: it "
    "takes a confidence of 0.95, with 4 continuations each",
    "no_consensus": "no critic prefers it",
    "golden_rejected": "the rejected answer equals a gold answer",
    "near_identical": "word similarity 0.95, above 0.90",
    "too_long": "1,234 tokens; the limit is 1,000",
    "duplicate": "has the same content and a margin at least as wide",
    "contradicted": "prefers the opposite",
    "state_full": "this state already has its maximum, 2 pairs with higher confidence",
    "efficiency_only_cap": "capped at 10 % of the data set",
    "style_only_cap": "capped at 20 % of the data set",
}


@pytest.mark.parametrize("reason", get_args(DropReason))
def test_every_drop_reason_is_a_sentence_with_the_numbers_that_decided(reason: DropReason) -> None:
    """And with its name, by which it is counted."""
    rules = PairingRules(max_per_state=2, max_row_tokens=1000, max_style_only=0.2)
    [state] = labelled_states(siblings(GOOD, BAD))
    tokens = [step.model_copy(update={"tokens": 234}) for step in state.steps]
    state = state.model_copy(update={"tokens": 1000, "steps": tokens})
    [each] = candidates_of(state)
    pair = each.pair.model_copy(update={"margin": 0.0499, "confidence": 0.6, "similarity": 0.95, "in_common": 0.8})
    text = told(replace(each, pair=pair, dropped=reason), rules=rules)
    verdict = text.rpartition("verdict: ")[2]
    assert verdict.startswith(f"Dropped ({reason.replace('_', ' ')}): ")
    assert DROPPED[reason] in verdict


def test_two_steps_with_one_reward_are_said_to_have_it() -> None:
    """Where nothing is asked of margins, no margin is still none."""
    rules = PairingRules(min_margin=0.0)
    each = first_pair(siblings(query("one", 0.5), query("other", 0.5)), rules)
    assert each.dropped == "small_margin"
    assert "Dropped (small margin): both steps have the same reward" in told(each, rules=rules)


def test_a_kept_pair_says_what_it_passed_and_where_it_is() -> None:
    """Its part, whether it was turned, and what was not looked at."""
    each = first_pair(siblings(GOOD, BAD))
    assert "it passes every filter (margin at least 0.05, confidence at least 0.70" in told(each)
    assert "Kept for validation" in told(each, row=RowPlace("validation"))
    assert "exchanged on purpose" in told(each, row=RowPlace("train", flipped=True))
    published = told(each, row=RowPlace("train"), rules=PairingRules(as_published=True))
    assert "Kept for training, by the rules of the published system (--as-published)." in published
    tagged = replace(each, pair=each.pair.model_copy(update={"tags": ["efficiency_only"]}))
    assert "capped over the whole data set" in told(tagged, caps_known=False)
    assert "capped" not in told(tagged)


def test_steps_that_reveal_the_same_say_whose_continuations_count_too() -> None:
    """Where the recipe pools them: either of them, and by how much."""
    alike = query("good too", 0.81, expected_outcome=1.0, observations=1.5, in_common={1: 0.75})
    texts = {}
    for name in ("economy", "paper"):
        of = recipe("spre_even")["recipe"] | {"name": name}
        record = siblings(GOOD | {"expected_outcome": 0.9}, alike, BAD, recipe=of)
        found = select(labelled_states(record), RULES)
        texts[name] = {each.chosen.id: told(each, record) for each in found if each.rejected.id == 3}
    mean = "Raw mean 1.00. Counting siblings that reveal the same, and each sampled reply equally: 0.90."
    assert mean in texts["economy"][1]
    assert "Continuations of siblings that reveal the same count too: #2 by 75 %." in texts["economy"][1]
    assert "Continuations of siblings that reveal the same count too: #1 by 75 %." in texts["economy"][2]
    assert "count too" not in texts["paper"][1] + texts["paper"][2]


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"f1": 0.5, "em": 1.0}, "partly right"),
        ({"f1": 0.0}, "wrong"),
        ({"f1": None}, "wrong"),
        ({"f1": 0.0, "outcome": 1.0}, "right"),
        ({"f1": None, "outcome": 0.25}, "partly right"),
        ({"f1": None, "outcome": 0.0, "end": "failed"}, "failed"),
    ],
)
def test_an_end_came_to_what_search_and_labels_took_it_for(fields: Fields, word: str) -> None:
    """The outcome where there is one, else F1; and failed, whatever it counts, where a step could not be read."""
    assert FinalScore.model_validate({"em": 0.0, "steps": 2} | fields).came_to == word


# -- details ---------------------------------------------------------------------------------------------------


PASSAGES = (
    Passage(id="p1", title="Ada <b>", text="Ada wrote it.\nIn 1843."),
    Passage(id="p2", title="Wikipedia Title", text="<evidence>not ours</evidence> & more"),
    Passage(id="p3", title="Ada <b>", text=""),
)


def read_turn(**fields: Any) -> RolloutRecord:
    """A tree with one read turn over these passages."""
    turn = render_prompt(load_prompts(), "read", question="Who?", thoughts=["<query>Ada</query>"], passages=PASSAGES)
    shown = [{"id": each.id, "title": each.title, "score": 1.0} for each in PASSAGES]
    prompt = [each.model_dump() for each in turn]
    steps = [query("Ada", 0.5), *(evidence(each, 0.5, prompt=prompt, passages=shown) for each in ("one", "two"))]
    return tree([0, 1, 1], steps, **fields)


def view_of_record(record: RolloutRecord, folder: Path) -> QuestionView:
    return view_of(run_of(folder, record), record.question_id)


def test_where_a_passage_stands_is_where_its_text_is(tmp_path: Path) -> None:
    """As the turn has it: our own tags in it made inert, its end without the line breaks behind it."""
    view = view_of_record(read_turn(), tmp_path)
    step = view.trees[0].steps[2]
    assert step.user is not None
    text = view.texts[step.user]
    places = [text[each.start : each.end] for each in step.passages or ()]
    assert places[0] == "Ada wrote it.\nIn 1843."
    assert places[1].endswith("& more")
    assert "not ours" in places[1]
    assert places[2] == ""


@pytest.mark.parametrize("agent", ["react", "prorag", "tools"])
def test_other_agents_are_shown_a_passage_on_a_line(agent: AgentName, tmp_path: Path) -> None:
    seen = Observation("Ada", PASSAGES)
    state = State(Question(id="q", question="Who?"), "think", 1, ("<query>Ada</query>",), PASSAGES, observed=(seen,))
    turns = PROTOCOLS[agent].messages(load_prompts(agent=agent), state, BEST_FIRST)
    record = read_turn()
    nodes = [each.model_copy(update={"prompt": list(turns)} if each.passages else {}) for each in record.nodes]
    view = view_of_record(record.model_copy(update={"nodes": nodes}), tmp_path)
    step = view.trees[0].steps[2]
    assert step.user is not None
    places = [view.texts[step.user][each.start : each.end] for each in step.passages or ()]
    assert (places[0], places[2]) == ("Ada wrote it. In 1843.", "")
    assert places[1].endswith("& more")


@pytest.mark.parametrize(
    ("gold", "marks"),
    [
        (None, [None, None, None]),
        ([], [False, False, False]),
        (["p2", "p3"], [False, True, True]),
        (["Ada <b>"], [True, False, True]),
    ],
)
def test_gold_passages_are_known_by_id_or_by_title(
    tmp_path: Path, gold: list[str] | None, marks: list[bool | None]
) -> None:
    """As the question file names them; where it names none, nobody knows."""
    step = view_of_record(read_turn(gold_passages=gold), tmp_path).trees[0].steps[2]
    assert [each.gold for each in step.passages or ()] == marks


def test_a_prompt_that_siblings_share_stands_once(made: Made) -> None:
    """And the view is the same after a journey as JSON."""
    for each in scanned(made.run)[:3]:
        view = package.show(made.run, each.question.question_id)
        assert len(set(view.texts)) == len(view.texts)
        by_parent: dict[int | None, set[int | None]] = {}
        for step in view.trees[0].steps[1:]:
            by_parent.setdefault(step.parent, set()).add(step.user)
        assert all(len(users) == 1 for users in by_parent.values())
        assert QuestionView.model_validate_json(view.model_dump_json()) == view


def test_what_was_really_sent_is_there_where_it_differs(tmp_path: Path) -> None:
    """Of a repaired step: the turns of the repair, each a text of the view."""
    turns = [{"role": "user", "content": "once more"}]
    view = view_of_record(siblings(query("a", 0.5, repaired=True, sampled_with=turns), query("b", 0.1)), tmp_path)
    [one, other] = view.trees[0].steps[1:]
    assert [view.texts[each] for each in one.sampled_with or ()] == ["once more"]
    assert other.sampled_with is None


# -- numbers ---------------------------------------------------------------------------------------------------


def assert_agrees(numbers: Overview, summary: PairSummary) -> None:
    """What both count, they count alike."""
    for name in ("pairs", "candidates", "questions", "questions_with_a_pair", "pairs_by_tag", "pairs_by_label"):
        assert getattr(numbers, name) == getattr(summary, name), name
    assert numbers.dropped == {reason: count for reason, count in summary.dropped.items() if count}
    layers = {layer: sum(counts.values()) for layer, counts in numbers.pairs_by_layer.items()}
    assert layers == {layer: count for layer, count in summary.pairs_by_layer.items() if count}
    assert numbers.mean_margin == pytest.approx(summary.mean_margin)
    assert numbers.mean_confidence == pytest.approx(summary.mean_confidence)


def test_the_numbers_of_a_run_and_its_data_set_are_those_of_their_summaries(made: Made) -> None:
    """Counted from the files, not copied: a run that is not finished has no summary."""
    of_run, of_data = package.stats(str(made.run)), package.stats(made.data)
    assert_agrees(of_run, made.pair_summary)
    assert_agrees(of_data, made.pair_summary)
    run, facts = made.run_summary, of_run.trees
    assert facts is not None
    assert facts.steps + run.done == run.nodes
    for name in "continuations repair_turns mean_f1 mean_em mean_outcome degenerate parse_failures_by_cause".split():
        assert getattr(facts, name) == getattr(run, name), name
    assert of_run.usage is not None
    assert (of_run.usage.calls, of_run.usage.prompt_tokens) == (run.calls, run.prompt_tokens)
    assert "the questions are from the atlas/dev split: keep" in str(of_run.warnings)
    assert (of_run.usage, of_run.ends, None) == (of_data.usage, of_data.ends, of_data.trees)
    assert of_run.ends["mixed"] == run.questions_mixed
    assert {question_row(each).steps for each in scanned(made.data)} == {None}
    for name in ("margin", "confidence"):
        assert of_run.histograms[name] == of_data.histograms[name]
    assert sum(of_run.histograms["margin"].counts) == of_run.pairs
    assert sum(of_run.histograms["chosen"].counts) == of_run.pairs


def too_alike() -> list[RolloutRecord]:
    """Questions with more pairs of two tags than a data set may have."""
    surely = {"observations": 9, "f1": 1.0, "rollouts": rollouts_of(1.0, *[1] * 9)}
    longer = query("who", 0.4, observations=9, rollouts=rollouts_of(1.0, *[8] * 9))
    worded = answer("it was Ada Lovelace", 0.4, observations=9, f1=0.5, rollouts=rollouts_of(0.5, *[1] * 9))
    best = answer("Ada Lovelace", 0.9, **surely)
    return [
        *(siblings(best, longer, question_id=f"e{i}", question=f"Who wrote {i}?") for i in range(3)),
        *(siblings(best, worded, question_id=f"s{i}", question=f"Who said {i}?") for i in range(3)),
        *(asked(i) for i in range(12)),
    ]


def test_a_run_knows_which_pairs_its_data_set_would_have_too_many_of(tmp_path: Path) -> None:
    """Caps of tags are over the whole: the same pairs are dropped, and a question says so once all was seen. The line
    that a run is writing at this moment neither hides those before it nor counts."""
    run, data = run_of(tmp_path / "run", *too_alike()), tmp_path / "data"
    summary = package.pairs(run, out=data)
    run_of(run, *too_alike(), torn=asked(99).to_line()[:200])
    assert (summary.dropped["efficiency_only_cap"], summary.dropped["style_only_cap"]) == (2, 2)
    assert_agrees(package.stats(run), summary)
    assert_agrees(package.stats(data), summary)
    of_run, of_data = open_collection(run), open_collection(data)
    for each in list(of_run.scan()):
        verdicts = [one.dropped for one in of_run.at(each.number).candidates]
        assert verdicts == [one.dropped for one in found(of_data, each.question.question_id).candidates]
    alone = package.show(run, "e2")
    assert "that cap was not checked here" in alone.pairs[0].why[-1].text


def test_a_page_replaces_nothing_that_is_none(tmp_path: Path, reasonrag: Reasonrag) -> None:
    """A slip of the hand must not cost a run: what is there stays as it is."""
    out = run_of(tmp_path / "run", asked(1)) / "rollouts.jsonl"
    before = out.read_bytes()
    done = reasonrag("view", out.parent, "--out", out)
    assert done.status == 2
    assert f"{out} must end in .html" in done.err
    (tmp_path / "page.html").mkdir()
    assert "page.html is a directory; name a file" in reasonrag("view", out.parent, "--out", "page.html").err
    assert out.read_bytes() == before
    assert list(out.parent.iterdir()) == [out]
