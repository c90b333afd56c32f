"""Where questions die: the one cause for which an explored question has no right answer, or nothing to compare.

Decides the causes, their order (the first that holds is the question's), and which gold passage is lacking. Sees only
steps that are nodes of the tree: of other continuations it knows how they ended. Opens no index and asks no model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from pydantic import BaseModel

from preference.answer_scores import VERDICTS, comparable, label_cover_em, label_em
from preference.records import RolloutNode, RolloutRecord, title_key

Cause = Literal[
    "mixed",
    "all_right",
    "unreadable",
    "no_answer",
    "strict_outcome",
    "reasoning",
    "too_few_steps",
    "passage_not_found",
    "passage_not_reported",
    "unsupported_answer",
    "passages_not_together",
    "steps_spent",
    "wrong_answer",
]
"""In the order in which they are tried; `docs/troubleshooting/few-pairs.md` defines each. The first two are no deaths:
outcomes differ, or all are right."""
CAUSES: tuple[Cause, ...] = get_args(Cause)
NOT_DEAD: tuple[Cause, ...] = ("mixed", "all_right")

_PASSAGE = "Wikipedia Title: "
"""How a read turn begins a passage."""


@dataclass(frozen=True, slots=True)
class QuestionCause:
    """What became of a question.

    golden: whether an answer of the tree names a golden answer, supported or not. lacking: gold passages, by name,
    that no query found; else those that no evidence reports; else those that the fullest path does not report.
    never_found: those that no query found. Both are empty where outcomes are mixed or right, or no gold passages are
    known.
    """

    cause: Cause
    golden: bool
    lacking: tuple[str, ...] = ()
    never_found: tuple[str, ...] = ()


class CauseCount(BaseModel):
    """Questions that died of one cause, and the first of them as an example; see `QuestionCause`."""

    cause: Cause
    questions: int = 0
    with_golden_answer: int = 0
    """Of the questions: those where an answer names a golden answer."""
    example: str
    """Its question id."""
    lacking: list[str]


class CauseCounts:
    """Causes over questions."""

    def __init__(self) -> None:
        self._rows: dict[Cause, CauseCount] = {}

    def add(self, rollout: RolloutRecord) -> None:
        """Count an explored question; one without a tree is not counted."""
        if rollout.error:
            return
        found = cause_of(rollout)
        first = CauseCount(cause=found.cause, example=rollout.question_id, lacking=list(found.lacking))
        row = self._rows.setdefault(found.cause, first)
        row.questions += 1
        row.with_golden_answer += found.golden

    def rows(self) -> list[CauseCount]:
        """The causes that occur, in their order; their questions add up to all explored ones."""
        return [self._rows[cause] for cause in CAUSES if cause in self._rows]


def cause_of(rollout: RolloutRecord) -> QuestionCause:
    """The cause of a question that was explored: the first that holds, in the order of `Cause`."""
    tree = _Tree(rollout)
    cause = tree.cause()
    if cause in NOT_DEAD or not tree.gold:
        return QuestionCause(cause, bool(tree.golden))
    never_found = tree.names(tree.gold - tree.found)
    lacking = never_found or tree.names(tree.gold - tree.reported) or tree.names(tree.gold - tree.fullest)
    return QuestionCause(cause, bool(tree.golden), lacking, never_found)


class _Tree:
    """A tree as the causes see it. Gold passages are keys: their names, compared as titles are.

    golden: the answers that name a golden answer. found, reported: gold passages that a query found, and that evidence
        reports. paths: by node, those reported on the path to it, itself included. fullest: of the path with most.
    """

    def __init__(self, rollout: RolloutRecord) -> None:
        self.nodes = rollout.nodes
        self.failed = bool(rollout.failed_continuations)
        self._names: dict[str, str] = {}
        for each in rollout.gold_passages or ():
            self._names.setdefault(title_key(each), each)
        self.gold = frozenset(self._names)
        self.ends = {end for node in self.nodes for end in node.rollouts}
        self.answers = [node for node in self.nodes if node.action_type == "answer" and not node.parse_error]
        golds = rollout.golden_answers
        self.golden = [node for node in self.answers if _names_golden(node.content or "", golds)]
        self.found: frozenset[str] = frozenset()
        self.paths: list[frozenset[str]] = []
        for node in self.nodes:
            shown = self._shown(node)
            self.found |= {key for key in shown if key is not None}
            above = frozenset() if node.parent_id is None else self.paths[node.parent_id]
            self.paths.append(above | _reported(node, shown))
        self.reported = frozenset[str]().union(*self.paths)
        self.fullest = max(self.paths, key=len, default=frozenset[str]())

    def cause(self) -> Cause:
        outcomes = {end.quality for end in self.ends}
        unanswered = not self.answers and all(end.end in ("failed", "unanswered") for end in self.ends)
        unread = self.failed or any(node.parse_error for node in self.nodes)
        refused = {self._supported(each) for each in self.golden if each.quality is not None and each.quality < 1}
        spent = all(each.end in ("conclusion", "unanswered") for each in self.ends)
        holds: dict[Cause, bool] = {
            "mixed": len(outcomes) > 1,
            "all_right": outcomes == {1.0},
            "unreadable": unanswered and unread,
            "no_answer": unanswered,
            "strict_outcome": True in refused,
            "reasoning": bool(self.gold) and self.fullest == self.gold,
            "too_few_steps": bool(self.gold) and len(self.gold) > self._searches(),
            "passage_not_found": bool(self.gold - self.found),
            "passage_not_reported": bool(self.gold - self.reported),
            "unsupported_answer": False in refused,
            "passages_not_together": bool(self.gold),
            "steps_spent": spent and all(node.action == "conclude" for node in self.answers),
            "wrong_answer": True,
        }
        return next(cause for cause in CAUSES if holds[cause])

    def _searches(self) -> float:
        """How many a path has room for: a query and a read turn each before the forced conclusion. Infinite if no path
        came to one."""
        layers = [node.layer or 0 for node in self.nodes if node.action == "conclude"]
        layers += [end.steps - 1 for end in self.ends if end.end == "conclusion"]
        return max(layers) // 2 if layers else math.inf

    def names(self, keys: frozenset[str]) -> tuple[str, ...]:
        """As the question file spells and orders them."""
        return tuple(name for key, name in self._names.items() if key in keys)

    def _shown(self, node: RolloutNode) -> list[str | None]:
        """The gold passage behind each passage of a read turn; None for others."""
        if not self.gold:
            return []
        keys = ((title_key(each.id), "" if each.not_gold else title_key(each.title)) for each in node.passages or ())
        return [own if own in self.gold else title if title in self.gold else None for own, title in keys]

    def _supported(self, answer: RolloutNode) -> bool:
        """Whether evidence holds the answer, or reports every gold passage before it, as it may follow from several;
        and where the outcome does not ask for evidence."""
        if answer.outcome is None or answer.outcome.name != "evident_f1" or answer.in_evidence is not False:
            return True
        return bool(self.gold) and self.paths[answer.parent_id or 0] == self.gold


def _reported(node: RolloutNode, shown: list[str | None]) -> frozenset[str]:
    """The gold passages that evidence reports. The record says how many; which of several is told by shared words."""
    gold = {place: key for place, key in enumerate(shown) if key is not None}
    many = (node.gold or 0) if node.action_type == "evidence" else 0
    if many >= len(gold):
        return frozenset(gold.values())
    said = set(comparable(node.content or "").split())
    texts = node.prompt[-1].content.split(_PASSAGE)[1:] if node.prompt else []
    if len(texts) != len(shown):
        texts = [each.title for each in node.passages or ()]
    nearest = sorted(gold, key=lambda place: -len(said & set(comparable(texts[place]).split())))
    return frozenset(gold[place] for place in nearest[:many])


def _names_golden(answer: str, golden_answers: list[str]) -> bool:
    """Whether the answer holds a golden answer as whole words; yes and no must be all of it."""
    verdicts = [each for each in golden_answers if comparable(each) in VERDICTS]
    others = [each for each in golden_answers if each not in verdicts]
    return bool(label_em(answer, verdicts) or label_cover_em(answer, others))
