"""Where questions die: each explored question has the first cause that holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import RolloutRecord
from preference.causes import CAUSES, NOT_DEAD, Cause, CauseCounts, cause_of
from tests.helpers.trees import Fields, answer, evidence, failure, malformed, prompt, query, random_trees, tree

GOLD = ["Ada Lovelace", "Analytical Engine"]
RIGHT, WRONG = "Ada Lovelace", "Charles Babbage"


def ask(content: str = "who wrote it") -> Fields:
    return query(content, 0.0, action="think")


def read(*titles: str, reports: int = 0, content: str = "She wrote it.") -> Fields:
    """Evidence of a read turn that showed these passages, and reports from so many gold ones."""
    passages = [{"id": f"id of {each}", "title": each, "score": 1.0} for each in titles]
    return evidence(content, 0.0, action="read", passages=passages, gold=reports)


def says(
    content: str, outcome: float | None = 0.0, *, held: bool | None = False, name: str = "evident_f1", **fields: object
) -> Fields:
    """An answer, its outcome, and whether evidence holds it."""
    end = "conclusion" if fields.get("action") == "conclude" else "answer"
    ends = [] if outcome is None else [{"f1": 0.0, "em": 0.0, "steps": 3, "end": end, "outcome": outcome}]
    judged = {"name": name, "value": outcome}
    return answer(content, 0.0, outcome=judged, in_evidence=held, rollouts=ends) | {"action": "think"} | fields


def forced(content: str = WRONG, **fields: object) -> Fields:
    return says(content, action="conclude", **fields)


def unread() -> Fields:
    return malformed("?", rollouts=[{"f1": 0.0, "em": 0.0, "steps": 1, "end": "failed"}])


def chain(*steps: Fields, gold: list[str] | None = None, **fields: object) -> RolloutRecord:
    """One path."""
    return tree(range(len(steps)), steps, gold_passages=gold, **fields)


both = read(*GOLD, reports=2)
first, second = (read(each, reports=1) for each in GOLD)

TABLE: list[tuple[str, Cause, RolloutRecord]] = [
    ("outcomes differ", "mixed", tree([0, 0], [says(RIGHT, 1.0), says(WRONG)], gold_passages=GOLD)),
    ("all are right", "all_right", chain(says(RIGHT, 1.0))),
    ("all are partly right", "wrong_answer", chain(says("Ada", 0.5, held=True))),
    ("no reply is readable", "unreadable", tree([0, 0], [unread(), unread()])),
    ("a reply among others is unreadable", "wrong_answer", tree([0, 0], [unread(), says(WRONG)])),
    ("no path came to its end", "no_answer", chain(ask(), both, gold=GOLD)),
    ("a longer right answer, held", "strict_outcome", chain(says(f"It was {RIGHT}", 0.6, held=True))),
    ("right after all passages, not held", "strict_outcome", chain(ask(), both, says(RIGHT), gold=GOLD)),
    ("right, and the outcome asks for no evidence", "strict_outcome", chain(says(RIGHT, 0.0, name="judge"))),
    ("no is not in every sentence that has it", "wrong_answer", chain(says("No one"), golden_answers=["no"])),
    ("all passages, then wrong", "reasoning", chain(ask(), both, says(WRONG), gold=GOLD)),
    ("more passages than searches", "too_few_steps", chain(ask(), first, forced(), gold=GOLD)),
    ("a passage is never found", "passage_not_found", chain(ask(), first, ask(), read("Zola"), forced(), gold=GOLD)),
    (
        "a passage is shown, never reported",
        "passage_not_reported",
        chain(ask(), read(*GOLD, reports=1), says(WRONG), gold=GOLD),
    ),
    ("a guess beside a lacking passage", "passage_not_found", chain(ask(), first, says(RIGHT), gold=GOLD)),
    (
        "each on its own path, and a guess",
        "unsupported_answer",
        tree([0, 1, 2, 0, 4, 5], [ask(), first, says(RIGHT), ask(), second, says(WRONG)], gold_passages=GOLD),
    ),
    (
        "each on its own path",
        "passages_not_together",
        tree([0, 1, 2, 0, 4, 5], [ask(), first, says(WRONG), ask(), second, says(WRONG)], gold_passages=GOLD),
    ),
    ("a guess, no gold passages known", "unsupported_answer", chain(ask(), read("Zola"), says(RIGHT))),
    ("every path was made to conclude", "steps_spent", chain(ask(), read("Zola"), forced())),
    ("conclusions that have no outcome", "steps_spent", chain(ask(), read("Zola"), forced(outcome=None))),
    ("nothing else is known", "wrong_answer", chain(ask(), read("Zola"), says(WRONG), gold=[])),
]


@pytest.mark.parametrize(("cause", "record"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_a_question_has_the_first_cause_that_holds(cause: Cause, record: RolloutRecord) -> None:
    assert cause_of(record).cause == cause


def test_the_table_has_every_cause() -> None:
    assert {cause for _, cause, _ in TABLE} == set(CAUSES)


def test_of_several_passages_that_are_read_evidence_reports_those_that_share_its_words() -> None:
    """The record counts them; their texts stand in the prompt. Other spellings of a title are the same passage."""
    texts = ["She wrote the first program.", "It was never built."]
    shown = "".join(f"Wikipedia Title: {title}\n{text}\n\n" for title, text in zip(GOLD, texts, strict=True))
    for said, lacking in zip(reversed(texts), GOLD, strict=True):
        step = read(*GOLD, reports=1, content=said) | {"prompt": prompt(f"<reference>{shown}</reference>")}
        record = chain(ask(), step, says(WRONG), gold=[each.upper() for each in GOLD])
        assert cause_of(record).lacking == (lacking.upper(),)


def test_another_paragraph_of_a_gold_title_is_not_found() -> None:
    """The record marks it; by its title alone it would count."""
    step = read(*GOLD)
    assert cause_of(chain(ask(), step, says(WRONG), gold=GOLD)).never_found == ()
    marked = [each | {"not_gold": True} for each in step["passages"]]
    assert cause_of(chain(ask(), step | {"passages": marked}, says(WRONG), gold=GOLD)).never_found == tuple(GOLD)


@given(st.lists(random_trees() | random_trees(gold_passages=["Ada"], question_id="q2"), max_size=5))
def test_every_explored_question_has_exactly_one_cause(records: list[RolloutRecord]) -> None:
    """The counts add up to the questions, in the order of the causes; a failed question has none."""
    counts = CauseCounts()
    for each in [*records, failure()]:
        counts.add(each)
    rows = counts.rows()
    assert sum(row.questions for row in rows) == len(records)
    assert [row.cause for row in rows] == [each for each in CAUSES if any(row.cause == each for row in rows)]
    for row in rows:
        assert 0 <= row.with_golden_answer <= row.questions
        assert not (row.cause in NOT_DEAD and row.lacking)
