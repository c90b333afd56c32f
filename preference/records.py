"""The rollout record: one line of `rollouts.jsonl`, everything explored for one question.

Decides the file's fields, their meaning and how lines are read back. `docs/formats.md` describes the same, for people.
Optional fields may be added; a change of meaning needs a new SCHEMA_VERSION.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

SCHEMA_VERSION: Final = "reasonrag.rollouts/1"

ActionType = Literal["query", "evidence", "answer"]
AgentAction = Literal["think", "read", "conclude"]


OutcomeName = Literal["f1", "em", "evident_f1", "judge", "rubric"]
"""Quality of an answer, in [0, 1]. evident_f1: F1, but 0 for an answer that no evidence reported before it holds.
judge, rubric: a judge's score, by the passages that were read or by a rubric. A function of the user's has its own
name."""


class MalformedRolloutsError(ValueError):
    """A line of a rollouts file is not a rollout record; the message has file, line and cause."""


class OtherSchemaError(MalformedRolloutsError):
    """The line was written by another version of reasonrag: it is not broken, it is not for this one."""


class TornLineError(MalformedRolloutsError):
    """The last line was cut off while it was written."""


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Message(Record):
    """One turn of a chat prompt."""

    role: Literal["system", "user", "assistant"]
    content: str


class PassageRef(Record):
    """A passage as a read turn saw it, without its text. score: null where an imported tree does not say."""

    id: str
    title: str
    score: float | None


class ParseFailure(Record):
    """Why a reply is no step. `repair`: the reply to the repair turn, which did not parse either."""

    cause: str
    detail: str
    repair: str | None = None


ContinuationResult = Literal["right", "partly right", "wrong", "failed"]


class FinalScore(Record):
    """The end of one real continuation: its answer's scores, 0 for a failed step. `steps`: edges from the root.

    f1, em: null where the question has no golden answers.
    end: an answer of the agent's own accord, the conclusion it was forced to, or a failed step; null in older records.
    """

    f1: float | None
    em: float | None
    steps: int
    end: Literal["answer", "conclusion", "failed"] | None = None
    outcome: float | None = None
    """What search and labels took for the answer's quality; null where it was F1."""

    @property
    def quality(self) -> float:
        """What search and labels took for the answer's quality."""
        return (self.f1 or 0.0) if self.outcome is None else self.outcome

    @property
    def came_to(self) -> ContinuationResult:
        """The same in a word; `failed` where a step could not be read."""
        if self.end == "failed":
            return "failed"
        return "right" if self.quality >= 1 else "wrong" if self.quality <= 0 else "partly right"


class Outcome(Record):
    """The number that search and labels take as the quality of an answer, in [0, 1]; null where the judgement that it
    would be could not be read."""

    name: str
    value: float | None


class Usage(Record):
    """What the answers in this record cost, once: however often a run was continued. Retries are not in it.

    calls: sampled replies; requests: HTTP requests that delivered them (several replies may share one).
    """

    calls: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens that the endpoint charged at its cached price."""
    repairs: int = 0
    """Repair turns among the calls."""
    judgements: int = 0
    """Replies of a judge of answers, or of one that was asked after the search, among the calls."""
    bounded_requests: int = 0
    """Requests whose endpoint told no tokens: theirs are an upper bound, a token for each byte."""
    cached_calls: int = 0
    cost_usd: float | None = None

    def __add__(self, other: Usage) -> Usage:
        """Both together; their cost is not known where one's is not."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields if name != "cost_usd"}
        if self.cost_usd is None or other.cost_usd is None:
            return Usage(**sums)
        return Usage(**sums, cost_usd=round(self.cost_usd + other.cost_usd, 8))


class QuestionError(Record):
    """Why a question has no tree."""

    cause: str
    message: str


class RolloutNode(Record):
    """A step: `prompt` produced `response`. The root (id 0) is no step and has none of that."""

    id: int
    parent_id: int | None
    children_ids: list[int]
    layer: int | None
    """Layer of the state the step was taken in; root state 0, null at the root node."""
    action: AgentAction | None = None
    prompt: list[Message] | None = None
    """The state's own prompt, byte-identical to what training and evaluation use."""
    response: str | None = None
    action_type: ActionType | None = None
    content: str | None = None
    """Text inside the tag."""
    passages: list[PassageRef] | None = None
    """What a read turn was shown, best first; null for other turns."""
    terminal: bool = False
    parse_error: ParseFailure | None = None
    repaired: bool = False
    f1: float | None = None
    em: float | None = None
    outcome: Outcome | None = None
    grounded: bool | None = None
    """Whether the content is supported by passages read so far; null where that has no meaning."""
    in_evidence: bool | None = None
    """Whether an answer occurs in evidence reported before it; null for other steps, and for yes and no."""
    gold: int | None = None
    """Of a query: gold passages it found that were not read before on its path. Of evidence: gold passages of its read
    turn from which it reports a sentence. Null for other steps, where no gold passages are known, and for a query
    whose passages nobody looked up."""
    sampled_by: str | None = None
    """The model whose reply it is, where that is not the run's teacher but its value model."""
    sampled_with: list[Message] | None = None
    """What was really sent, where the step is no plain sample of `prompt`: the repair turn, siblings shown, or the
    prompt itself at another temperature."""
    sampled_temperature: float | None = None
    """That other temperature."""
    draws: int = 1
    """How often the step was drawn in its state; it is one node however often."""
    plain_draws: int = 1
    """How many of the draws were plain samples of the state's policy: that of the value model, where there is one."""
    same_as: int | None = None
    """The earlier sibling that says the same in other words and with which it shares its estimate."""
    visits: int = 0
    value: float = 0.0
    """What search used."""
    reward: float | None = None
    """What labels use; null if no counted continuation runs through the step, or its judgement is missing."""
    rewards: dict[str, float | None] = {}
    """What the step would be worth under each rule that was computed, by name. `judge-score`, `judge-rank`: a judge's
    view; null where it is missing, and where there was nothing to choose between."""
    observations: float | None = None
    """How many independent continuations what is known of the step is worth: as many as began at it, or at a sibling it
    shares its estimate with; fewer where several of them began with the same step, which was explored once. Of an
    answer how often it was drawn. Null where none was."""
    expected_outcome: float | None = None
    """Mean outcome below the step, undiscounted, every draw of a state weighing the same."""
    rollouts: list[FinalScore] = []


class FailedContinuation(Record):
    """The failed step at the end of a continuation whose steps are not nodes of the tree.

    node_id: the step it continued from.
    """

    node_id: int
    layer: int
    action: AgentAction
    response: str
    parse_error: ParseFailure


class UnreadableJudgement(Record):
    """A judgement that could not be read, which is therefore missing: it is no number and changes none.

    kind: score and rank are of steps, answer of the answer at the end of a path, which then counts nowhere.
    node_id: the step that was scored, or the one after which the steps that were ranked were taken (0: the question),
        or the answer; of an answer that is no node the step that was continued to it.
    response: the last reply, to the repair turn unless a content filter took the first one back.
    """

    kind: Literal["score", "rank", "answer"] = "score"
    node_id: int
    response: str


class RecipeRef(Record):
    """How the rewards of a record came about. `outcome`: what quality of an answer they are made of, an `OutcomeName`
    or the name of a user's function.

    reward: which of a node's `rewards` its reward is, or the mean of which two, joined by a plus sign; null where
        nobody has said.
    judge_weight: share of the judgement in a reward; 0 without a judge, 1 for nothing else.
    judge_sees_gold: whether judges, of answers and steps, were shown the golden answers; null without any judge.
    """

    name: str
    reward: str | None = None
    judge_weight: float = Field(default=0.0, ge=0, le=1)
    judge_sees_gold: bool | None = None
    outcome: str = "f1"
    alpha: float = Field(gt=0, le=1)
    margin_by_layer: bool


class RolloutRecord(Record):
    """Everything explored for one question, or why nothing was."""

    schema_version: Literal["reasonrag.rollouts/1"] = SCHEMA_VERSION
    question_id: str
    question: str
    golden_answers: list[str]
    """Empty where the question has none, and something else says what an answer is worth."""
    rubric: list[str] | None = None
    """What answers were held against, criterion by criterion; null where the outcome is no rubric's."""
    gold_passages: list[str] | None = None
    """Passages the answer rests on, by id or else by title; null where the question file names none."""
    dataset: str
    split: str
    revision: str | None = None
    """Of an imported tree: SHA-256 of its file. Other records do not have the field."""
    config_hash: str
    seed: int
    renderer: str | None = None
    """Names what turned states into prompts; null in older records."""
    recipe: RecipeRef
    usage: Usage
    value_usage: Usage | None = None
    """The part of `usage` that is the value model's; null in a run without one."""
    nodes: list[RolloutNode]
    failed_continuations: list[FailedContinuation] = []
    unreadable_judgements: list[UnreadableJudgement] = []
    error: QuestionError | None = None

    @cached_property
    def ends(self) -> list[FinalScore]:
        """The ends of all continuations, each once, also those that do not count for the root: below a step that was no
        plain sample, or was none yet."""
        below = [Counter[FinalScore]() for _ in self.nodes]
        hidden = [Counter[FinalScore]() for _ in self.nodes]
        for node in reversed(self.nodes):  # children have higher ids than their parents
            found = (below[node.id] | Counter(node.rollouts)) + hidden[node.id]
            if node.parent_id is None:
                return list(found.elements())
            (below if node.plain_draws else hidden)[node.parent_id] += found
        return []

    @model_validator(mode="after")
    def _nodes_are_a_tree(self) -> RolloutRecord:
        children: list[list[int]] = [[] for _ in self.nodes]
        for position, node in enumerate(self.nodes):
            if node.id != position:
                raise ValueError(f"node {position} has id {node.id}: nodes stand in order of their ids")
            if position > 0:
                children[self._parent_id(node)].append(position)
            elif (node.parent_id, node.layer) != (None, None):
                raise ValueError(f"node 0 is the root, but has parent {node.parent_id} and layer {node.layer}")
        for node, found in zip(self.nodes, children, strict=True):
            if node.children_ids != found:
                raise ValueError(f"node {node.id} lists the children {node.children_ids}, its children are {found}")
        return self

    def _parent_id(self, node: RolloutNode) -> int:
        """Where a step hangs, once it is sure that it may hang there."""
        if node.parent_id is None or not 0 <= node.parent_id < node.id:
            raise ValueError(f"node {node.id} has parent {node.parent_id}, which is no node before it")
        parent = self.nodes[node.parent_id]
        layer = 0 if parent.layer is None else parent.layer + 1
        if node.layer != layer:
            raise ValueError(f"node {node.id} has layer {node.layer}, below node {parent.id} it is {layer}")
        if parent.terminal:
            raise ValueError(f"node {node.id} continues node {parent.id}, which is terminal")
        return node.parent_id

    def to_line(self) -> bytes:
        """The record as one JSON line, newline included; the same bytes for the same record."""
        fields = self.model_dump(mode="json")
        if self.revision is None:
            del fields["revision"]
        return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def parse_rollout(line: bytes, *, where: str) -> RolloutRecord:
    """One line of a rollouts file. Raises MalformedRolloutsError naming `where`."""
    try:
        record = orjson.loads(line)
        if isinstance(record, dict) and "schema_version" not in record:
            raise MalformedRolloutsError(
                f"{where} is not a rollout record: it says no schema_version (this reasonrag reads {SCHEMA_VERSION})"
            )
        if isinstance(record, dict) and record["schema_version"] != SCHEMA_VERSION:
            raise OtherSchemaError(
                f"{where} is not a rollout record: schema_version is {str(record['schema_version'])[:40]!r}, "
                f"written by another version of reasonrag (this one reads {SCHEMA_VERSION}). Use that version"
            )
        return RolloutRecord.model_validate(record)
    except orjson.JSONDecodeError as error:
        torn = not line.endswith(b"\n")
        raise (TornLineError if torn else MalformedRolloutsError)(f"{where} is not JSON: {error}") from error
    except ValidationError as error:
        raise MalformedRolloutsError(f"{where} is not a rollout record: {first_error(error)}") from error


def read_rollouts(path: Path) -> Iterator[RolloutRecord]:
    """All records of a file, one at a time. Raises MalformedRolloutsError at the first line that is none."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            yield parse_rollout(line, where=f"{path}, line {number}")


def first_error(error: ValidationError) -> str:
    """The first complaint of a validation error as `field: message`."""
    first: Any = error.errors(include_url=False)[0]
    location = ".".join(str(part) for part in first["loc"]) or "record"
    return f"{location}: {first['msg']}"
