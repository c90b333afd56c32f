"""A question as a row of the list: what a reader searches and filters by. Knows no page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pydantic import BaseModel, Field

from preference import Candidate, DropReason
from preference.candidate_records import Ends, GoldVerdict, Tag
from preference.records import shared_fields
from reasonrag.exploration.summary import counted_ends
from reasonrag.viewing.collection import ExploredQuestion
from reasonrag.viewing.explanations import cautions


class KeptPairSummary(BaseModel):
    """type: action type of the chosen step; null for a reply that did not parse."""

    type: str | None
    margin: float | None
    confidence: float | None
    doubtful: bool
    """Whether its label needs review."""
    layer: int = Field(default=0, exclude=True)
    """This and what follows is for the overview."""
    label: str = Field(default="none", exclude=True)
    tags: list[Tag] = Field(default=[], exclude=True)
    gold: GoldVerdict = Field(default="unknown", exclude=True)
    tokens: tuple[int | None, int | None] = Field(default=(None, None), exclude=True)
    words: tuple[int, int] = Field(default=(0, 0), exclude=True)
    """Of both replies."""


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
    unreadable: int | None
    """Replies in the tree that did not parse."""
    calls: int | None
    cost_usd: float | None
    candidates: int
    kept: list[KeptPairSummary]
    dropped: dict[str, int]
    first_pair: int = Field(default=0, exclude=True)
    """Place of the first kept pair among those of the whole run."""


def question_row(explored: ExploredQuestion) -> QuestionRow:
    first = explored.question
    failed = all(each.error for each in explored.questions)
    ends = {each.ends for each in explored.questions if not each.error}
    records = [tree.record for tree in explored.trees if not tree.record.error]
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
        unreadable=sum(node.parse_error is not None for record in records for node in record.nodes)
        if explored.trees
        else None,
        calls=sum(each.calls for each in usages) if usages else None,
        cost_usd=sum(costs) if costs else None,
        candidates=len(explored.candidates),
        kept=[_kept_pair(each) for each in explored.candidates if each.dropped is None],
        dropped=dict(Counter(each.dropped for each in explored.candidates if each.dropped)),
        first_pair=explored.first_pair,
    )


def _kept_pair(each: Candidate) -> KeptPairSummary:
    both = each.chosen, each.rejected
    return KeptPairSummary.model_construct(
        **shared_fields(each.pair, KeptPairSummary) | {"label": each.pair.label or "none"},
        type=each.chosen.action_type,
        doubtful=bool(cautions(each)),
        layer=each.state.layer,
        tokens=(both[0].tokens, both[1].tokens),
        words=(len(both[0].response.split()), len(both[1].response.split())),
    )


def capped_row(row: QuestionRow, capped: Mapping[int, DropReason]) -> QuestionRow:
    """The row once the caps on the whole data set are known."""
    reasons = [capped.get(row.first_pair + place) for place in range(len(row.kept))]
    if not any(reasons):
        return row
    dropped = Counter(row.dropped) + Counter(reason for reason in reasons if reason)
    kept = [pair for pair, reason in zip(row.kept, reasons, strict=True) if reason is None]
    return row.model_copy(update={"kept": kept, "dropped": dict(dropped)})
