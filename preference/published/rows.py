"""Rows of the published RAG_ProGuide as candidates: the states behind them, with their steps and pairs.

Decides which rows belong to one state (those with the same prompt) and to one question, and what is repaired (see
`repairs`). The label of such a pair is `imported`: the file says which side is better, but not by how much or with what
confidence. The ten fields have no gold answers; they stay unknown unless the caller knows the question.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from preference.answer_scores import cover_em
from preference.candidate_records import Origin, PairRecord, QuestionRecord, StateRecord, StepRecord, question_key
from preference.export.formats import ACTION_TYPE_NAMES
from preference.export.sanitize import plain_text
from preference.published.repairs import (
    ImportRules,
    Notes,
    StepReply,
    Turns,
    Unusable,
    facts_about,
    plain,
    question_asked,
    question_of,
    read_reply,
    text,
    whole_number,
)
from preference.records import AgentAction, pair_key, shared_fields, state_key
from preference.similarity import folded, similarity

LABEL = "imported"
_DEEPEST = 1000
"""Larger numbers are not taken for layers."""
_TYPES = {name: own for own, name in ACTION_TYPE_NAMES.items() if own is not None}


def is_row(item: object) -> bool:
    """Whether an item of a file looks like a pair."""
    return isinstance(item, dict) and "chosen" in item and "rejected" in item


class _Row(NamedTuple):
    layer: int
    chosen: StepReply
    rejected: StepReply


_RowsOfState: TypeAlias = dict[tuple[str, str], _Row]
"""By the chosen and the rejected reply."""


class PublishedRowReader:
    """Reads rows one by one and rebuilds their states and questions."""

    def __init__(self, rules: ImportRules) -> None:
        self._rules = rules
        self._questions: dict[str, tuple[QuestionRecord, dict[Turns, _RowsOfState]]] = {}
        self.rows = 0
        """Rows read so far, each a pair."""

    def add(self, item: object, note: Notes, *, revision: str) -> None:
        """Read a row. Raises Unusable if it cannot be repaired; then nothing of it is kept.

        revision: SHA-256 of its file.
        """
        if not isinstance(item, dict):
            raise Unusable("not_an_object")
        turns, asked, row = _read(item, note)
        key = question_key(asked)
        known = self._questions.get(key)
        question, states = known or (self._about(item, asked, revision, note), {})
        rows, replies = states.get(turns, {}), (row.chosen.response, row.rejected.response)
        if replies in rows:
            raise Unusable("duplicate")
        if (layer := next(iter(rows.values()), row).layer) != row.layer:
            raise Unusable("no_layer", f"the layer is {row.layer}, of an earlier row of the same state {layer}")
        states[turns] = rows | {replies: row}
        self._questions[key] = question, states
        self.rows += 1

    def _about(self, item: dict[str, Any], question: str, revision: str, note: Notes) -> QuestionRecord:
        """A question from its first row."""
        facts = facts_about(item, question, self._rules, note)
        origin = Origin(
            **shared_fields(facts, Origin) | {"revision": revision},
            teacher=self._rules.teacher or text(item.get("teacher")),
            recipe=text(item.get("recipe")),
            renderer=text(item.get("renderer")),
        )
        return QuestionRecord(
            question_id=facts.id, question=question, golden_answers=facts.golden_answers, origin=origin
        )

    def questions(self) -> Iterator[QuestionRecord]:
        """The lines of questions.jsonl, in order of first appearance."""
        return (question for question, _ in self._questions.values())

    def states(self) -> Iterator[StateRecord]:
        """The lines of candidates.jsonl, grouped by question."""
        for question, states in self._questions.values():
            for turns, rows in states.items():
                yield _state(turns, rows, question)


def _state(turns: Turns, rows: _RowsOfState, question: QuestionRecord) -> StateRecord:
    steps, state_id = dict[str, StepReply](), state_key(turns.messages)
    for side in (side for row in rows.values() for side in (row.chosen, row.rejected)):
        steps.setdefault(side.response, side)
    ids, layer = {response: i for i, response in enumerate(steps)}, next(iter(rows.values())).layer
    return StateRecord(
        state_id=state_id,
        **shared_fields(question, StateRecord),
        layer=layer,
        action=_action(turns, layer, steps.values()),
        prompt=turns.messages,
        steps=[
            StepRecord(id=i, **reply._asdict() | {"parse_error": reply.parse_error and reply.parse_error.cause})
            for i, reply in enumerate(steps.values())
        ],
        pairs=[
            PairRecord(
                pair_id=pair_key(state_id, chosen, rejected, of=LABEL),
                chosen=ids[chosen],
                rejected=ids[rejected],
                label=LABEL,
                **_compared(steps[chosen], steps[rejected], question.golden_answers),
            )
            for chosen, rejected in rows
        ],
    )


def _compared(better: StepReply, worse: StepReply, golds: list[str]) -> dict[str, Any]:
    """The fields of a pair that both replies decide. Tagged style_only if gold answers are known; a row cannot tell
    efficiency_only."""
    same_type = better.action_type == worse.action_type
    left, right = (
        each.content if same_type and each.content is not None else each.response for each in (better, worse)
    )
    alike = same_type and better.action_type == "answer" and golds and cover_em(left, golds) == cover_em(right, golds)
    return {
        "similarity": similarity(left, right),
        "same": same_type and folded(left) == folded(right),
        "same_type": same_type,
        "tags": ["style_only"] if alike else [],
    }


def _action(turns: Turns, layer: int, steps: Iterable[StepReply]) -> AgentAction | None:
    """The agent's action, if prompt and replies tell: a conclusion and a thought that ends in an answer look alike."""
    if turns.is_read:
        return "read"
    return "think" if layer == 0 or any(each.action_type == "query" for each in steps) else None


def _read(item: dict[str, Any], note: Notes) -> tuple[Turns, str, _Row]:
    """The prompt and the question of a row, and the rest."""
    system, user = text(item.get("instruction")), text(item.get("input"))
    if system is None or user is None or text(item.get("system")):
        raise Unusable("no_prompt")
    if item.get("prompt") not in (None, f"System: {system}\nUser: {user}"):
        raise Unusable("other_prompt")
    turns = Turns(plain(system, note), plain(user, note))
    chosen, rejected = (plain(text(item.get(side)) or "", note) for side in ("chosen", "rejected"))
    if not chosen.strip() or not rejected.strip():
        raise Unusable("empty_reply")
    if chosen.strip() == rejected.strip():
        raise Unusable("identical_sides")
    asked = question_of(turns.user)
    if asked is None:
        raise Unusable("no_question")
    question = question_asked(text(item.get("question")), asked, note)
    layer = whole_number(item.get("layer"))
    if layer is None or layer > _DEEPEST:
        raise Unusable("no_layer")
    better, worse = _side(item, "chosen", chosen, note), _side(item, "rejected", rejected, note)
    if better.parse_error:
        raise Unusable("chosen_malformed", better.parse_error.detail)
    return turns, question, _Row(layer, better, worse)


def _side(item: dict[str, Any], side: str, response: str, note: Notes) -> StepReply:
    """A reply parsed as a step; type and content are those of its tag."""
    name, content = item.get(f"{side}_action_type"), item.get(f"{side}_content")
    stated = _TYPES.get(name) if isinstance(name, str) else None
    reply = read_reply(response, note, stated=stated)
    if reply.parse_error:
        return reply
    if stated != reply.action_type:
        note("type_from_tag")
    if not isinstance(content, str) or plain_text(content).strip() != reply.content:
        note("content_from_tag")
    return reply
