"""The candidate record: one line of `candidates.jsonl`, a state with its steps and every pair of them.

Decides the fields of that file and of `questions.jsonl` beside it. Both are made once from rollouts, or imported; every
filter and format works on them alone, so that filters can change without the trees and without a model call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, Field, ValidationError, model_validator

from preference.answer_scores import label_em, normalize_answer
from preference.records import (
    AbsentIfEmpty,
    AbsentIfNone,
    ActionType,
    AgentAction,
    Items,
    Message,
    QuestionError,
    Record,
    Usage,
    first_error,
    short_digest,
)

Tag = Literal["efficiency_only", "one_draw", "style_only", "same_findings", "golden_rejected", "prompt_cut"]
"""efficiency_only: the undiscounted outcome is equal, only path length differs, and no judge was asked. one_draw: the
label rests on one continuation a side (`observations` of both at most 1), and they are not two answers. style_only:
both are answers and cover-EM cannot tell them apart; never without gold answers. same_findings: both reveal the same in
part (`PairRecord.in_common`). golden_rejected: the rejected answer equals a gold answer and the chosen one does not,
but evidence supports the chosen one alone. prompt_cut: the endpoint seems to have cut the state's prompt."""

GoldVerdict = Literal["right", "wrong", "tie", "unknown"]
"""Whether the chosen step has more gold passages than the rejected one (right), fewer (wrong) or as many (tie), if both
are queries or both evidence. unknown: other types, or unknown gold passages."""

LabelName = Literal["value", "judge", "outcome", "imported"]
"""Source of a label: values of continuations, a judge that saw all steps of the state, the outcome of each step's own
trajectory, or an imported file."""

Ends = Literal["all_right", "all_wrong", "mixed", "unknown"]
"""How the continuations of a tree ended; unknown if none was recorded."""


def is_conversation(prompt: Sequence[Message] | None) -> bool:
    """Whether a prompt is one system turn, then user turns with replies between them, which every format needs."""
    roles = [turn.role for turn in prompt or ()]
    return roles == ["system", "user"] + ["assistant", "user"] * (len(roles) // 2 - 1)


def _conversation(prompt: list[Message]) -> list[Message]:
    if not is_conversation(prompt):
        raise ValueError("a prompt must be one system turn, then user turns with replies between them")
    return prompt


Prompt: TypeAlias = Annotated[Items[Message], AfterValidator(_conversation)]
_FOR_TRAINING = frozenset({"train", "training"})


class MalformedCandidatesError(ValueError):
    """A line is not a candidate or question record; the message has file, line and cause."""


def is_training_split(name: str) -> bool:
    """Whether questions of a split may be trained on: `train`, `train_1k`, `train-00`; also as dataset/split."""
    return not _FOR_TRAINING.isdisjoint(re.split(r"[^a-z]+", name.rpartition("/")[2].lower()))


class Origin(Record):
    """Where a state comes from: the question's data set and the run that explored it. Unknown fields are null."""

    dataset: str
    split: str
    revision: str | None = None
    """The question file's commit on the Hub, else its SHA-256."""
    config_hash: str | None = None
    seed: int | None = None
    recipe: str | None = None
    reward: str | None = None
    """The reward rule, as in `recipe.reward` of a rollouts line."""
    teacher: str | None = None
    value_model: str | None = None
    retriever: str | None = None
    renderer: str | None = None
    """Names what swapped states into prompts; equal renderers give equal prompts."""
    agent: AbsentIfNone[str] = None
    """Null for the agent that ReasonRAG defines."""
    reader: AbsentIfNone[str] = None
    """The model that reads for an agent with a reader; null for others."""
    top_k: int | None = None
    max_steps: int | None = None
    steps_by_hops: AbsentIfEmpty[bool] = False
    """Whether a question had the steps that its hops need, where these are more than `max_steps`."""
    max_passage_chars: AbsentIfEmpty[int | None] = None
    """Null where passages were shown whole."""
    passage_order: AbsentIfEmpty[str | None] = None
    """Null where a prompt shows the best passage first."""
    style: AbsentIfEmpty[str | None] = None
    """Of answers; null for short ones."""
    sampled: AbsentIfEmpty[bool] = False
    """Whether the questions were drawn from the split by the seed."""
    cut_from: AbsentIfEmpty[int | None] = None
    """Bytes of a prompt from which the run's endpoint seems to have cut it; null if it did not."""


class StepRecord(Record):
    """A step of a state, with the fields of `RolloutNode` that filters and formats need; some only where a step of the
    state has one (`_OF_STATES`)."""

    id: int
    action_type: ActionType | None
    content: str | None
    response: str
    reward: float | None = None
    own_outcome: float | None = None
    """Outcome of its own trajectory (`labelling.own_outcomes`)."""
    expected_outcome: float | None = None
    critic_score: float | None = None
    """Mean raw score of the critics that were not trained on the question."""
    grounded: bool | None = None
    em: float | None = None
    in_evidence: bool | None = None
    gold: int | None = None
    visits: int = 0
    value: float | None = None
    """Mean search value, where a judge is shown it (`prorag`)."""
    rollouts: int = 0
    """Number of real continuations through it."""
    observations: float | None = None
    uncounted: Items[float] | None = None
    """As of `RolloutRecord.uncounted`."""
    parse_error: str | None = None
    """Cause."""
    repaired: bool = False
    same_as: int | None = None
    tokens: int | None = None
    """Tokens of the reply and its end token, as a trainer counts them."""


class PairRecord(Record):
    """Two steps of a state, by id. Unknown fields are null, and filters that need them do not apply."""

    pair_id: str
    chosen: int
    rejected: int
    label: LabelName | None
    """Null if a judge saw the state and did not pick these two."""
    margin: float | None = None
    """Difference of the rewards, divided by alpha**layer if the recipe says so; below 0 where a judge disagrees. Of a
    label by outcome the difference of the two outcomes."""
    confidence: float | None = None
    """Chance that the chosen step is truly better, in [0, 1]; null if a judge or one trajectory decides."""
    value_confidence: float | None = None
    """Where a judge decides: that chance by the values, which had decided before; else absent."""
    similarity: float
    """Similarity of both contents, in [0, 1]: Jaccard index of their words; of the whole replies if types differ."""
    same: bool = False
    """Both have equal content or share one estimate."""
    in_common: float = 0.0
    """Share of what both reveal that they have in common, as of `RolloutNode.in_common`; 0 where they reveal different
    things, or it is not known. Absent where no pair of the state has any."""
    same_type: bool
    tags: Items[Tag] = Field(default_factory=list)
    gold: GoldVerdict = "unknown"

    def swapped(self) -> PairRecord:
        """The pair with its sides exchanged, under the same id."""
        return self.model_copy(
            update={
                "chosen": self.rejected,
                "rejected": self.chosen,
                "margin": None if self.margin is None else -self.margin,
                "confidence": None if self.confidence is None else 1 - self.confidence,
                "value_confidence": None if self.value_confidence is None else 1 - self.value_confidence,
                "gold": {"right": "wrong", "wrong": "right"}.get(self.gold, self.gold),
                "tags": [tag for tag in self.tags if tag != "golden_rejected"],
            }
        )


def prefers_wrong(golden_answers: Sequence[str], chosen: StepRecord, rejected: StepRecord) -> bool:
    """Whether both are answers, and only the rejected one equals a gold answer."""
    both = chosen.action_type == rejected.action_type == "answer"
    return both and _is_golden(rejected, golden_answers) and not _is_golden(chosen, golden_answers)


def support_decides(golden_answers: Sequence[str], chosen: StepRecord, rejected: StepRecord) -> bool:
    """Whether a pair prefers a wrong answer that evidence supports to a gold one that it does not: tag
    `golden_rejected`."""
    return prefers_wrong(golden_answers, chosen, rejected) and _support(chosen) is True and _support(rejected) is False


def _is_golden(answer: StepRecord, golden_answers: Sequence[str]) -> bool:
    said = answer.content or ""
    return bool(label_em(said, golden_answers)) or (answer.em == 1 and is_letter(said))


def is_letter(answer: str) -> bool:
    """Whether an answer may be the letter of an option, whose record alone says whether it is right."""
    return len("".join(each for each in answer if each.isalnum())) == 1


def _support(answer: StepRecord) -> bool | None:
    """By the evidence; where that does not tell, or its verdict is not recorded, by the passages."""
    return answer.grounded if answer.in_evidence is None else answer.in_evidence


class StateRecord(Record):
    """A state: its prompt, the steps taken in it, and every pair of them."""

    schema_version: Literal["reasonrag.candidates/1"] = "reasonrag.candidates/1"
    state_id: str
    """Equal for equal prompts, across runs."""
    question_id: str
    question: str
    golden_answers: Items[str]
    origin: Origin
    layer: int = Field(ge=0)
    action: AgentAction | None = None
    prompt: Prompt
    tokens: int | None = None
    """Tokens of the prompt in the chat template, as a trainer counts them."""
    token_counter: str | None = None
    """What counted the tokens here and in the steps; null if they were not counted."""
    steps: Items[StepRecord]
    pairs: Items[PairRecord]
    visits: AbsentIfEmpty[int] = 0
    """Of the step that leads to the state; only where a judge needs it (`prorag`), else absent."""
    trajectory_f1: AbsentIfEmpty[float] = 0.0
    """F1 of the answer at the end of the one trajectory that was followed (`ragym`); absent if 0."""
    not_reached: AbsentIfEmpty[bool] = False
    """Whether the published builder does not come here: a step above, or the root, has no reward or no sibling. Absent
    if not."""

    @model_validator(mode="after")
    def _pairs_are_of_its_steps(self) -> StateRecord:
        ids = {step.id for step in self.steps}
        if len(ids) != len(self.steps):
            raise ValueError(f"two steps of state {self.state_id} have the same id")
        for pair in self.pairs:
            if pair.chosen == pair.rejected or not {pair.chosen, pair.rejected} <= ids:
                raise ValueError(f"pair {pair.pair_id} does not name two steps of its state")
        return self

    def to_line(self) -> bytes:
        """As `Record.to_line`, without the fields of steps and pairs that none of the state has."""
        unknown = {name for name in _OF_STATES if all(getattr(step, name) is None for step in self.steps)}
        unsaid = {name for name, none in _OF_PAIRS.items() if all(getattr(pair, name) == none for pair in self.pairs)}
        absent = {"steps": {"__all__": unknown}, "pairs": {"__all__": unsaid}}
        return self.model_dump_json(exclude=absent).encode() + b"\n"


_OF_STATES = ("value", "own_outcome", "expected_outcome", "critic_score", "em", "in_evidence", "uncounted")
"""Fields of steps that a state has where some step does."""
_OF_PAIRS = {"value_confidence": None, "in_common": 0.0}
"""Fields of pairs that a state has where some pair does, by what they are where none does."""


class PathStep(Record):
    """A step on the path to an answer."""

    layer: int
    action_type: ActionType
    prompt: Prompt
    response: str
    content: str
    critic_score: AbsentIfNone[float] = None
    """As of a `StepRecord`."""


class PlainStep(Record):
    """A step of which every draw, and every step before it, is a plain sample of the policy: what policy gradients
    learn from."""

    id: int
    parent_id: int
    """0 for the first step."""
    state_id: str
    layer: int
    action_type: ActionType | None
    """Null, as the content, for a reply that did not parse."""
    prompt: Prompt
    response: str
    content: str | None
    draws: int
    value: float
    """Expected outcome below it, undiscounted."""
    outcome: AbsentIfNone[float] = None
    """Of the attempts that end with it; absent for other steps."""
    right: AbsentIfEmpty[bool] = False
    """Whether it ends right attempts."""
    critic_score: AbsentIfNone[float] = None
    """As of a `StepRecord`."""


class QuestionRecord(Record):
    """An explored question: how it ended, what it cost, and the best path to a right answer."""

    schema_version: Literal["reasonrag.questions/1"] = "reasonrag.questions/1"
    question_id: str
    question: str
    golden_answers: Items[str]
    hops: AbsentIfEmpty[int | None] = None
    """Of the question, where they decided how many steps it had."""
    gold_passages: AbsentIfNone[Items[str]] = None
    """As of `RolloutRecord`."""
    origin: Origin
    error: QuestionError | None = None
    ends: Ends = "unknown"
    usage: Usage | None = None
    path: Items[PathStep] | None = None
    """Null if no continuation reaches a right answer by steps that all parsed."""
    group: AbsentIfNone[int] = None
    """Plain attempts (recipe `chains`) that are the whole tree; absent where a search made it."""
    plain_steps: AbsentIfEmpty[Items[PlainStep]] = Field(default_factory=list)
    """Of plain attempts, and of other trees where rows of reinforcement (`rl`) were asked for."""
    not_plain: AbsentIfEmpty[int] = 0
    """Draws that are in none of these: of repaired or failed requests, and of answers of unknown outcome."""


def question_key(question: str) -> str:
    """A key that ignores case, punctuation, articles and spaces; 16 hexadecimal digits."""
    return short_digest(normalize_answer(question).encode())


AnyRecord = TypeVar("AnyRecord", bound=Record)


def read_lines(path: Path, kind: type[AnyRecord]) -> Iterator[AnyRecord]:
    """All records of a file, one at a time. Raises MalformedCandidatesError at the first malformed line."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            yield parse_line(line, kind, where=f"{path}, line {number}")


def parse_line(line: bytes, kind: type[AnyRecord], *, where: str) -> AnyRecord:
    """One line. Raises MalformedCandidatesError naming `where`."""
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        name = kind.model_fields["schema_version"].default
        raise MalformedCandidatesError(f"{where} is not a line of {name}: {first_error(error)}") from error
