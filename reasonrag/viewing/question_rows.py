"""A question as a row of the list, and its candidates as rows of the table of pairs: what a reader searches and
filters by. Knows no page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, Field

from preference import Candidate, DropReason
from preference.candidate_records import Ends, GoldVerdict, Tag
from preference.export.formats import SplitName
from preference.records import shared_fields
from reasonrag.exploration.summary import counted_ends, unread_judgements, unread_steps
from reasonrag.viewing.collection import ExploredQuestion
from reasonrag.viewing.explanations import cautions, differing


class PairRow(BaseModel):
    """A candidate as a row of the table of pairs.

    part, row: where it is a row of a data set, and its number there from 1. type, rejected_type: action types of
    both steps; null for a reply that did not parse. draws: effective sample size of the side that has less. review:
    whether its label needs review. rewards, words, tokens: of both sides. chosen, rejected: both steps from where they
    differ.
    """

    question: int
    id: str
    dropped: DropReason | None
    part: SplitName | None
    row: int | None
    layer: int
    type: str | None
    rejected_type: str | None
    rewards: tuple[float | None, float | None]
    margin: float | None
    confidence: float | None
    draws: float | None
    gold: GoldVerdict
    review: bool
    tags: list[Tag]
    words: tuple[int, int]
    tokens: tuple[int | None, int | None]
    chosen: str
    rejected: str
    label: str = Field(default="none", exclude=True)
    """For the overview."""


class QuestionRow(BaseModel):
    """number: place in the list. ends: outcomes of the continuations of all its trees; `failed` without a tree."""

    number: int
    id: str
    ids: list[str]
    """One per tree; a question may have several trees in a data set of several runs."""
    question: str
    golden_answers: list[str]
    ends: Ends | str
    cause: str | None
    """Why it failed."""
    f1: float | None
    """Mean over the continuations from the question on; null if the trees are missing."""
    steps: int | None
    unreadable: dict[str, int]
    """Replies, in and outside its trees, that did not parse, by cause."""
    calls: int | None
    cost_usd: float | None
    pairs: int
    """Kept ones."""
    review: int
    """Those of them whose labels need review."""
    candidates: list[PairRow] = Field(exclude=True)

    @property
    def kept(self) -> list[PairRow]:
        return [each for each in self.candidates if each.dropped is None]


def question_row(explored: ExploredQuestion) -> QuestionRow:
    first = explored.question
    failed = all(each.error for each in explored.questions)
    ends = {each.ends for each in explored.questions if not each.error}
    records = [tree.record for tree in explored.trees if not tree.record.error]
    unreadable = Counter(cause for each in records for cause in unread_steps(each) + unread_judgements(each))
    scores = [end.f1 for record in records for end in counted_ends(record) if end.f1 is not None]
    usages = [each.usage for each in explored.questions if each.usage]
    costs = [each.cost_usd for each in usages if each.cost_usd is not None]
    return QuestionRow.model_construct(
        number=explored.number,
        id=first.question_id,
        ids=list(dict.fromkeys(each.question_id for each in explored.questions)),
        question=first.question,
        golden_answers=first.golden_answers,
        ends="failed" if failed else ends.pop() if len(ends) == 1 else "mixed",
        cause=first.error.cause if failed and first.error else None,
        f1=sum(scores) / len(scores) if scores else None,
        steps=sum(len(record.nodes) - 1 for record in records) if explored.trees else None,
        unreadable=dict(unreadable),
        calls=sum(each.calls for each in usages) if usages else None,
        cost_usd=sum(costs) if costs else None,
        **_counted([_pair_row(each, explored) for each in explored.candidates]),
    )


def _counted(rows: list[PairRow]) -> dict[str, Any]:
    kept = [each for each in rows if each.dropped is None]
    return {"candidates": rows, "pairs": len(kept), "review": sum(each.review for each in kept)}


def _pair_row(each: Candidate, explored: ExploredQuestion) -> PairRow:
    place, sides = explored.row_of(each), (each.chosen, each.rejected)
    one, other = (step.observations for step in sides)
    chosen, rejected = differing(each)
    named = {
        "question": explored.number,
        "id": each.pair.pair_id,
        "dropped": each.dropped,
        "part": place.part,
        "row": place.number,
        "layer": each.state.layer,
        "type": each.chosen.action_type,
        "rejected_type": each.rejected.action_type,
        "rewards": tuple(step.reward for step in sides),
        "draws": None if one is None or other is None else min(one, other),
        "review": bool(cautions(each)),
        "tokens": tuple(step.tokens for step in sides),
        "words": tuple(len(step.response.split()) for step in sides),
        "chosen": chosen,
        "rejected": rejected,
        "label": each.pair.label or "none",
    }
    return PairRow.model_construct(**shared_fields(each.pair, PairRow) | named)


def columns_of(rows: Iterable[QuestionRow], *, dropped: bool) -> dict[str, list[Any]]:
    """The pairs of these questions by column, which a browser reads faster than rows. dropped: whether dropped
    candidates are among them."""
    pairs = [each for row in rows for each in (row.candidates if dropped else row.kept)]
    names = [name for name, known in PairRow.model_fields.items() if not known.exclude]
    return {name: [getattr(each, name) for each in pairs] for name in names}


def capped_row(row: QuestionRow, capped: Mapping[tuple[int, str], DropReason]) -> QuestionRow:
    """The row once the caps on the whole data set are known."""
    reasons = [capped.get((row.number, each.id)) for each in row.candidates] if capped else []
    if not any(reasons):
        return row
    judged = zip(row.candidates, reasons, strict=True)
    rows = [each.model_copy(update={"dropped": reason}) if reason else each for each, reason in judged]
    return row.model_copy(update=_counted(rows))
