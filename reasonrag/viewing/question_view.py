"""Everything to show about one question: its trees step by step, its pairs, and why each was labelled so.

Decides what a page or a terminal is given, as JSON: `QuestionView`. A prompt is referred to by its number in `texts`,
since siblings share theirs, and the text of a passage by its place in the prompt. Knows neither HTML nor terminals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from preference import DropReason, Message, PairingRules, QuestionError, RolloutNode, RolloutRecord, StateRecord, Usage
from preference.candidate_records import Ends, GoldVerdict, LabelName, Tag
from preference.export.formats import SplitName
from preference.records import (
    AbsentIfNone,
    ContinuationResult,
    FailedContinuation,
    FinalScore,
    Outcome,
    ParseFailure,
    PassageRef,
    RecipeRef,
    UnreadableJudgement,
    shared_fields,
)
from reasonrag.agent.prompting import inert, one_line
from reasonrag.rendering import Part, Shown
from reasonrag.viewing.collection import ExploredQuestion, ExploredTree
from reasonrag.viewing.explanations import Explanation, cautions, differing, explain, uncounted_in_words, why_no_pair
from reasonrag.viewing.question_screen import question_parts

StepStatus = Literal["answer", "failed", "repeated", "unexplored", "settled", "mixed"]
"""answer, failed: the path ends with this step, with an answer or without. repeated: it says the same as an earlier
sibling and shares that one's estimate, so the search went on there only. unexplored: no continuation below it was ever
sampled. settled (people read "converged"): at least two continuations, all with the same outcome. mixed ("open"): all
others, where outcomes differ or only one continuation is known. All continuations that were drawn count, also those
that count for no mean above."""


class PassageView(BaseModel):
    """A passage that a read turn was shown. gold: null where gold passages are not known. start, end: where its text
    stands in the user turn; null where it was not found there."""

    id: str
    title: str
    score: float | None
    gold: bool | None
    start: int | None
    end: int | None


class EndView(BaseModel):
    """Continuations that ended alike. times: how many. quality: the outcome that search and labels used."""

    came_to: ContinuationResult
    quality: float
    f1: float | None
    em: float | None
    steps: int
    times: int


class StepView(BaseModel):
    """A step of a tree; node 0 is the question. Fields as in `rollouts.jsonl`; `system`, `user`: numbers of texts,
    as those of the turns `between`, of the user and replies in turn."""

    id: int
    parent: int | None
    layer: int | None
    action: str | None = None
    type: str | None = None
    content: str | None = None
    response: str | None = None
    reasoning: str = ""
    system: int | None = None
    user: int | None = None
    between: list[int] = []
    sampled_with: list[int] | None = None
    sampled_temperature: float | None = None
    sampled_by: str | None = None
    passages: list[PassageView] | None = None
    observation: str | None = None
    fate: StepStatus | None = None
    terminal: bool = False
    parse_error: ParseFailure | None = None
    repaired: bool = False
    f1: float | None = None
    em: float | None = None
    outcome: Outcome | None = None
    grounded: bool | None = None
    in_evidence: bool | None = None
    gold: int | None = None
    draws: int = 1
    same_as: int | None = None
    in_common: dict[int, float] = {}
    visits: int = 0
    value: float | None = None
    reward: float | None = None
    rewards: dict[str, float | None] = {}
    observations: float | None = None
    expected_outcome: float | None = None
    uncounted: str = ""
    """What `explanations.uncounted_in_words` says of the answers that do not count."""
    ends: list[EndView] = []
    """The ends of the counted continuations through it, equal ones together, the most frequent first."""


class TreeView(BaseModel):
    """What one run explored for the question."""

    source: str
    recipe: RecipeRef
    agent: AbsentIfNone[str] = None
    config_hash: str
    seed: int
    usage: Usage
    error: QuestionError | None
    steps: list[StepView]
    failed_continuations: list[FailedContinuation]
    unreadable_judgements: list[UnreadableJudgement]


class StateView(BaseModel):
    """A state in which at least two steps were taken. tree: number of its tree; null if that is missing, and
    its `steps` are here."""

    id: str
    tree: int | None
    layer: int
    action: str | None
    system: int | None
    user: int | None
    steps: list[StepView]


class PairView(BaseModel):
    """Two steps of a state, kept or dropped. state: its number. dropped: null for a row of the data set."""

    id: str
    state: int
    chosen: int
    rejected: int
    label: LabelName | None
    margin: float | None
    confidence: float | None
    similarity: float
    same_type: bool
    tags: list[Tag]
    gold: GoldVerdict
    dropped: DropReason | None
    part: SplitName | None
    flipped: bool
    differ: tuple[str, str]
    """Both sides from where they differ (`explanations.differing`)."""
    cautions: list[str]
    """Why the label needs review."""
    why: list[Explanation]


class QuestionView(BaseModel, Shown):
    """Everything about one question; the object of `show --json`."""

    number: int
    id: str
    question: str
    golden_answers: list[str]
    rubric: list[str] | None
    gold_passages: list[str] | None
    dataset: str
    split: str
    ends: list[Ends]
    error: QuestionError | None
    trees: list[TreeView]
    states: list[StateView]
    pairs: list[PairView]
    no_pair: str
    """Why none was kept (`explanations.why_no_pair`)."""
    texts: list[str]

    def shown(self) -> Iterator[Part]:
        return question_parts(self)


def question_view(explored: ExploredQuestion, rules: PairingRules, *, caps_known: bool = True) -> QuestionView:
    """What to show of a question. caps_known: whether caps on the whole data set were applied to its pairs."""
    texts = _Texts()
    first = explored.question
    records = [tree.record for tree in explored.trees]
    trees = [_tree(tree, texts) for tree in explored.trees]
    states, numbers = _states(explored, texts)
    pairs = []
    for each in explored.candidates:
        state, row = numbers[id(each.state)], explored.row_of(each)
        tree = None if (number := states[state].tree) is None else explored.trees[number]
        shown = _view(
            PairView,
            each.pair,
            id=each.pair.pair_id,
            state=state,
            dropped=each.dropped,
            **shared_fields(row, PairView),
            differ=differing(each),
            cautions=cautions(each),
            why=explain(each, tree, rules, row=row, caps_known=caps_known),
        )
        pairs.append(shown)
    return _view(
        QuestionView,
        first,
        **shared_fields(first.origin, QuestionView),
        number=explored.number,
        id=first.question_id,
        rubric=records[0].rubric if records else None,
        gold_passages=records[0].gold_passages if records else None,
        ends=[each.ends for each in explored.questions],
        error=first.error if all(each.error for each in explored.questions) else None,
        trees=trees,
        states=states,
        pairs=pairs,
        no_pair=why_no_pair(records, explored.candidates),
        texts=list(texts.numbers),
    )


View = TypeVar("View", bound=BaseModel)


def _view(kind: type[View], record: BaseModel, **more: Any) -> View:
    """With the fields that both have, and with more, which take their places."""
    return kind.model_construct(**shared_fields(record, kind) | more)


class _Texts:
    """Long texts, each once, with their numbers."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    def turns(self, prompt: Sequence[Message]) -> dict[str, Any]:
        """A prompt as a `StepView` has it, by the last turns of system and user."""
        numbers = [self.number(turn.content) for turn in prompt]
        last = {turn.role: number for turn, number in zip(prompt, numbers, strict=True)}
        return {"system": last.get("system"), "user": last.get("user"), "between": numbers[1:-1]}


def _tree(tree: ExploredTree, texts: _Texts) -> TreeView:
    record, statuses = tree.record, step_statuses(tree.record)
    steps = [_step(node, record, status, texts) for node, status in zip(record.nodes, statuses, strict=True)]
    return _view(TreeView, record, source=tree.source, steps=steps)


def _step(node: RolloutNode, record: RolloutRecord, status: StepStatus, texts: _Texts) -> StepView:
    turns = texts.turns(node.prompt or [])
    sent = None if node.sampled_with is None else [texts.number(each.content) for each in node.sampled_with]
    ends = Counter(node.rollouts).most_common()
    return _view(
        StepView,
        node,
        **turns,
        parent=node.parent_id,
        type=node.action_type,
        sampled_with=sent,
        passages=_passages(node, record.gold_passages),
        fate=status,
        in_common=record.common_findings[node.id] if node.same_as is None else {},
        uncounted=uncounted_in_words(record.uncounted[node.id], record.drawn_otherwise[node.id]),
        ends=[_view(EndView, end, came_to=end.came_to, quality=end.quality, times=times) for end, times in ends],
    )


def _passages(node: RolloutNode, gold: Sequence[str] | None) -> list[PassageView] | None:
    if node.passages is None:
        return None
    user = next((turn.content for turn in reversed(node.prompt or []) if turn.role == "user"), "")
    shown = zip(node.passages, _places(node.passages, user), strict=True)
    return [
        _view(PassageView, each, gold=None if gold is None else not {each.id, each.title}.isdisjoint(gold), **place)
        for each, place in shown
    ]


def _places(passages: Sequence[PassageRef], user: str) -> Iterator[dict[str, int | None]]:
    """Where the text of each stands: below its title, up to the next one; or, of other agents, on one line with it."""
    referred = "<reference>" in user
    heads = [inert(each.title) if referred else one_line(each.title) for each in passages]
    heads = [f"Wikipedia Title: {head}\n" if referred else f"(Title: {head}) " for head in heads]
    begin = user.find("<reference>") if referred else max(map(user.rfind, ("\nQuery: ", "\n<retrieval>")))
    starts, place = [], max(0, begin)
    for head in heads:  # in order, so that a text which looks like a head misleads only up to the next one
        found = user.find(head, place)
        starts.append(found)
        place = found + len(head) if found >= 0 else place
    close = user.rfind("</reference>") if "</reference>" in user else len(user)
    for i, head in enumerate(heads):
        start = starts[i] + len(head)
        end = next((later for later in starts[i + 1 :] if later >= 0), close)
        shown = user[start:end].rstrip("\n") if referred else user[start:].partition("\n")[0]
        yield {"start": start, "end": start + len(shown)} if starts[i] >= 0 else {"start": None, "end": None}


def _states(explored: ExploredQuestion, texts: _Texts) -> tuple[list[StateView], dict[int, int]]:
    """The states of the candidates, and their numbers by identity: one prompt in two runs is two states here."""
    records = (tree.record for tree in explored.trees)
    known = {(each.config_hash, each.seed, each.question_id): number for number, each in enumerate(records)}
    states = {id(each.state): each.state for each in explored.candidates}
    found = []
    for state in states.values():
        tree = known.get((state.origin.config_hash or "", state.origin.seed or 0, state.question_id))
        found.append(_state(state, tree, texts))
    return found, {name: number for number, name in enumerate(states)}


def _state(state: StateRecord, tree: int | None, texts: _Texts) -> StateView:
    of_state = {"layer": state.layer, "action": state.action} | texts.turns(state.prompt)
    steps = [  # which its tree has, if that is here
        _view(
            StepView,
            step,
            **of_state,
            parent=None,
            type=step.action_type,
            terminal=step.action_type == "answer",
            parse_error=step.parse_error and ParseFailure(cause=step.parse_error, detail=""),
            uncounted=uncounted_in_words(step.uncounted),
        )
        for step in (state.steps if tree is None else ())
    ]
    return StateView.model_construct(id=state.state_id, tree=tree, steps=steps, **of_state)


def step_statuses(record: RolloutRecord) -> list[StepStatus]:
    """Status of every node by id; that of the root is the status of its state."""
    ends = [Counter(node.rollouts) for node in record.nodes]
    for node in reversed(record.nodes):  # children have higher ids than their parents
        ends[node.id] |= sum((ends[each] for each in node.children_ids), Counter[FinalScore]())
    return [_step_status(node, ends[node.id]) for node in record.nodes]


def _step_status(node: RolloutNode, ends: Counter[FinalScore]) -> StepStatus:
    if node.parse_error is not None:
        return "failed"
    if node.terminal:
        return "answer" if node.action_type == "answer" else "failed"
    if node.same_as is not None:
        return "repeated"
    if not ends:
        return "unexplored"
    return "settled" if ends.total() > 1 and len({end.quality for end in ends}) == 1 else "mixed"
