"""The rollout record: one line of `rollouts.jsonl`, everything explored for one question.

Decides the file's fields, their meaning and how lines are read back; docs/reference/formats/rollouts.md describes them.
Optional fields may be added; a change of meaning needs a new SCHEMA_VERSION.
"""

from __future__ import annotations

import hashlib
import html
import operator
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import fields
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, TypeVar

import orjson
from pydantic import BaseModel, Field, ValidationError, model_validator

from mcts import RECIPES, Recipe

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SCHEMA_VERSION: Final = "reasonrag.rollouts/1"

_Item = TypeVar("_Item")
Items: TypeAlias = Annotated[list[_Item], Field(fail_fast=True)]
"""A list whose first wrong item ends the check: the errors of millions take gigabytes."""
AbsentIfEmpty: TypeAlias = Annotated[_Item, Field(exclude_if=operator.not_)]
"""An optional field, absent from its record's JSON where it is empty: files of those who do not use it keep their
bytes. Not for what may be 0 or say nothing: see `AbsentIfNone`."""
AbsentIfNone: TypeAlias = Annotated[_Item | None, Field(exclude_if=lambda value: value is None)]

ActionType = Literal["query", "evidence", "answer"]
AgentAction = Literal["think", "read", "conclude"]

OutcomeName = Literal["f1", "em", "evident_f1", "builder_f1", "prorag_f1", "choice", "judge", "rubric"]
"""Quality of an answer, in [0, 1]; docs/reference/formats/rollouts.md says how each is computed. A user's function has
its own name."""


class MalformedRolloutsError(ValueError):
    """A line of a rollouts file is not a rollout record; the message has file, line and cause."""


class OtherSchemaError(MalformedRolloutsError):
    """The line was written by another version of reasonrag; it is not broken."""


class TornLineError(MalformedRolloutsError):
    """The last line was cut off while being written."""


class Record(BaseModel, frozen=True, extra="ignore", allow_inf_nan=False):
    def to_line(self) -> bytes:
        """The record as one JSON line, newline included; the same bytes for the same record."""
        return self.model_dump_json().encode() + b"\n"


class Message(Record):
    """One turn of a chat prompt."""

    role: Literal["system", "user", "assistant"]
    content: str


class PassageRef(Record):
    """A passage as a read turn saw it, without its text. score: null if an imported tree lacks it. not_gold: whether it
    has a gold passage's title over another text. fallback: whether BM25 found it by character n-grams alone."""

    id: str
    title: str
    score: float | None
    not_gold: AbsentIfEmpty[bool] = False
    fallback: AbsentIfEmpty[bool] = False


OF_THE_STATE = frozenset({"withheld", "too_long", "rejected", "no_passages"})
"""Causes of failures that are the state's and no reply's: the path ends there, and counts nowhere."""


class ParseFailure(Record):
    """Why a reply did not parse. `repair`: the reply to the repair turn, which did not parse either."""

    cause: str
    detail: str
    repair: str | None = None


ContinuationResult = Literal["right", "partly right", "wrong", "failed"]


class FinalScore(Record):
    """The end of one real continuation: its answer's scores, 0 for a failed step. `steps`: edges from the root.

    f1, em: null if the question has no gold answers.
    end: an answer the agent chose to give, a forced conclusion, a failed step, or steps that were spent without one.
    outcome: the answer quality that search and labels used; null if it was F1.
    """

    f1: float | None
    em: float | None
    steps: int
    end: Literal["answer", "conclusion", "failed", "unanswered"] | None = None
    outcome: float | None = None

    @property
    def quality(self) -> float:
        """The answer quality that search and labels used."""
        return (self.f1 or 0.0) if self.outcome is None else self.outcome

    @property
    def came_to(self) -> ContinuationResult:
        """The quality in a word; `failed` if a step did not parse."""
        if self.end == "failed":
            return "failed"
        return "right" if self.quality >= 1 else "wrong" if self.quality <= 0 else "partly right"


class Outcome(Record):
    """The answer quality that search and labels use, in [0, 1]; null if its judgement was unreadable."""

    name: str
    value: float | None


class Usage(Record):
    """What the completions in this record cost, counted once however often a run was continued. Excludes retries.

    calls: completions; requests: HTTP requests that delivered them (several completions may share one).
    reasoning_tokens, cached_tokens: of the completions' and the prompts' tokens. repairs, judgements: repair turns and
        judgements of answers, among the calls. bounded_requests: those whose endpoint reported no token counts; theirs
        are an upper bound, one token per byte.
    """

    calls: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: AbsentIfEmpty[int] = 0
    cached_tokens: int = 0
    repairs: int = 0
    judgements: int = 0
    bounded_requests: int = 0
    cached_calls: int = 0
    cost_usd: float | None = None

    def __add__(self, other: Usage) -> Usage:
        """The sum; its cost is unknown if either cost is."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields if name != "cost_usd"}
        if self.cost_usd is None or other.cost_usd is None:
            return Usage(**sums)
        return Usage(**sums, cost_usd=round(self.cost_usd + other.cost_usd, 8))


class QuestionError(Record):
    """Why a question has no tree."""

    cause: str
    message: str


class RolloutNode(Record):
    """A step: `prompt` produced `response`. The root (id 0) is not a step and has neither."""

    id: int
    parent_id: int | None
    children_ids: Items[int]
    layer: int | None
    """Layer of the state the step was taken in; root state 0, null at the root node."""
    action: AgentAction | None = None
    prompt: Items[Message] | None = None
    """The state's own prompt, byte-identical to the one training and evaluation use."""
    response: str | None = None
    reasoning: AbsentIfEmpty[str] = ""
    """What the model reasoned before `response`; never part of a prompt, and in no export."""
    action_type: ActionType | None = None
    content: str | None = None
    """Text inside the tag."""
    passages: Items[PassageRef] | None = None
    """Passages shown in a read turn, best first; null for other turns."""
    observation: AbsentIfNone[str] = None
    """What a reader said of these passages, where the agent is shown that in their place."""
    terminal: bool = False
    parse_error: ParseFailure | None = None
    repaired: bool = False
    calls_left_out: AbsentIfEmpty[int] = 0
    """Further calls of a tool in the reply, of which the first counts."""
    f1: float | None = None
    em: float | None = None
    outcome: Outcome | None = None
    grounded: bool | None = None
    """Whether passages read so far support the content; null where that does not apply."""
    in_evidence: bool | None = None
    """Whether evidence reported before supports the answer; null for others, and where no string tells."""
    gold: int | None = None
    """Of a query: gold passages it found that are new on its path. Of evidence: gold passages it reports a sentence of.
    Null for other steps, if none are known, and for a query that was never searched."""
    sampled_by: str | None = None
    """The model that gave the reply, if that is the run's value model and not its teacher."""
    sampled_with: Items[Message] | None = None
    """The messages really sent, if not `prompt` as it is: the repair turn, siblings shown, another temperature."""
    sampled_temperature: float | None = None
    """The temperature of such a step, if it differs from the run's."""
    draws: int = 1
    """How often the step was drawn in its state; repeats are one node."""
    plain_draws: int = 1
    """How many draws were plain samples of the state's policy (the value model's, if there is one)."""
    decisive_draws: AbsentIfEmpty[int] = 0
    """How many of the plain ones lie on a path whose answer, unlike all before it, decided that the search goes on
    here. They count for no step above."""
    same_as: int | None = None
    """The earlier sibling that says the same, or found the same passages, whose estimate this step shares."""
    in_common: AbsentIfEmpty[dict[int, Annotated[float, Field(gt=0, le=1)]]] = {}
    """By id of earlier siblings that reveal the same in part: the share that both have in common. Where the recipe
    shares estimates, the step's counts the continuations of both by it."""
    visits: int = 0
    value: float = 0.0
    """Mean value, used by the search."""
    reward: float | None = None
    """Used by labels; null if no counted continuation runs through the step, or its judgement is missing."""
    rewards: dict[str, float | None] = {}
    """The step's reward under each computed rule, by name."""
    observations: float | None = None
    """Effective sample size (Kish) behind the estimate: continuations from here or an equivalent sibling; fewer if
    several began with the same step, which was explored once. Of an answer: its draws."""
    expected_outcome: float | None = None
    """Mean outcome below the step, undiscounted, every draw of a state weighing the same."""
    rollouts: Items[FinalScore] = []

    @property
    def quality(self) -> float | None:
        """The quality of an answer that search and labels used; None if it is not known."""
        return self.f1 if self.outcome is None else self.outcome.value


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
    """An unreadable judgement: it counts as missing and changes no number.

    kind: score and rank are about steps, answer about the answer at the end of a path, which then counts nowhere.
    node_id: the scored step, the parent of the ranked steps (0: the question), or the answer; for an answer that is not
        a node, the step that was continued to it.
    response: the last reply: to the repair turn, unless a content filter withdrew the first one.
    cause: `reasoning_cut` if that reply was nothing but reasoning, up to the token limit; else empty.
    """

    kind: Literal["score", "rank", "answer"] = "score"
    node_id: int
    response: str
    cause: AbsentIfEmpty[str] = ""


class RecipeRef(Record):
    """How a record's rewards were computed.

    outcome: the answer quality behind them, an `OutcomeName` or the name of a user's function.
    reward: which of a node's `rewards` is its reward; null if not stated.
    judge_sees_gold: whether judges, of answers and steps, were shown the gold answers; null without any judge.
    equal_steps, estimates: what the search does with equal steps of a state, and with what it learns of steps that
        reveal the same; absent where it does as the shipped recipe of this name, or else `merged` and `own`.
    group: the plain attempts that are the whole tree; absent where a search made it.
    """

    name: str
    reward: str | None = None
    judge_sees_gold: bool | None = None
    outcome: str = "f1"
    alpha: float = Field(gt=0, le=1)
    margin_by_layer: bool
    equal_steps: AbsentIfEmpty[Literal["merged", "apart"] | None] = None
    estimates: AbsentIfEmpty[Literal["own", "shared"] | None] = None
    group: AbsentIfNone[int] = None

    @classmethod
    def of(cls, recipe: Recipe) -> RecipeRef:
        """What a record says of its recipe."""
        judged = {} if recipe.judged else {"judge_sees_gold": None}
        named = cls(**shared_fields(recipe, cls) | judged, alpha=recipe.search.alpha, group=recipe.search.group)
        merge, share = recipe.search.merge_equal, recipe.search.share_estimates
        equal_steps = None if named.merges_equal == merge else "merged" if merge else "apart"
        estimates = None if named.shares_estimates == share else "shared" if share else "own"
        return named.model_copy(update={"equal_steps": equal_steps, "estimates": estimates})

    @property
    def merges_equal(self) -> bool:
        shipped = RECIPES.get(self.name)
        return self.equal_steps == "merged" if self.equal_steps else shipped is None or shipped.search.merge_equal

    @property
    def shares_estimates(self) -> bool:
        shipped = RECIPES.get(self.name)
        return self.estimates == "shared" if self.estimates else shipped is not None and shipped.search.share_estimates


class RolloutRecord(Record):
    """Everything explored for one question, or why nothing was."""

    schema_version: Literal["reasonrag.rollouts/1"] = SCHEMA_VERSION
    question_id: str
    question: str
    golden_answers: Items[str]
    """Empty if the question has none; then a judge or a function decides the outcome."""
    rubric: Items[str] | None = None
    """The criteria answers were judged by; null unless the outcome is `rubric`."""
    gold_passages: Items[str] | None = None
    """Passages the answer rests on, by id or else by title; null if the question file names none."""
    hops: AbsentIfEmpty[int | None] = None
    """Where they decided how many steps it had; else absent."""
    dataset: str
    split: str
    revision: AbsentIfEmpty[str | None] = None
    """Of an imported tree the SHA-256 of its file; else absent."""
    config_hash: str
    seed: int
    renderer: str | None = None
    """Identifies the prompt templates; null in imported trees."""
    agent: AbsentIfNone[str] = None
    """Null for the agent that ReasonRAG defines."""
    recipe: RecipeRef
    usage: Usage
    value_usage: Usage | None = None
    """The value model's part of `usage`; null in a run without one."""
    reader_usage: AbsentIfNone[Usage] = None
    """Of a reader that is another model."""
    nodes: Items[RolloutNode]
    failed_continuations: Items[FailedContinuation] = []
    unreadable_judgements: Items[UnreadableJudgement] = []
    error: QuestionError | None = None

    @cached_property
    def ends(self) -> list[FinalScore]:
        """The ends of all continuations, each once, also of those below a step none of whose draws counts."""
        known = dict[tuple[Any, ...], FinalScore]()
        below, hidden = (defaultdict[int, Counter[tuple[Any, ...]]](Counter) for _ in range(2))
        for node in reversed(self.nodes):  # children have higher ids than their parents
            keys = [tuple(vars(each).values()) for each in node.rollouts]  # hashed five times as fast as a model
            known |= zip(keys, node.rollouts, strict=True)
            found = below[node.id] | Counter(keys) if node.children_ids else Counter(keys)
            found.update(hidden[node.id])  # many times as fast as `+`
            if node.parent_id is None:
                return [known[each] for each in found.elements()]
            (below if node.plain_draws > node.decisive_draws else hidden)[node.parent_id].update(found)
        return []

    @cached_property
    def uncounted(self) -> list[list[float]]:
        """By node, the outcomes of answers that count for no step above, because the search had looked for one: of an
        answer its own, of other steps those below it or an equivalent sibling that do not count for it."""
        firsts = [node.id if node.same_as is None else node.same_as for node in self.nodes]
        counting = {firsts[node.id] for node in self.nodes if node.terminal or node.plain_draws > node.decisive_draws}
        below, hidden, joined = (defaultdict[int, list[float]](list) for _ in range(3))
        for node, first in zip(self.nodes[::-1], firsts[::-1], strict=True):  # children have higher ids
            if node.terminal and node.rollouts and node.parse_error is None:
                below[node.id] = [node.rollouts[0].quality] * node.plain_draws
                hidden[node.id] = [node.rollouts[0].quality] * node.decisive_draws
            joined[first] += hidden[node.id]
            if node.parent_id is not None and node.plain_draws:
                hidden[node.parent_id] += (hidden if first in counting else below)[node.id]
                below[node.parent_id] += below[node.id]
        return [hidden[node.id] if node.terminal else joined[firsts[node.id]] for node in self.nodes]

    @cached_property
    def common_findings(self) -> list[dict[int, float]]:
        """By node, `RolloutNode.in_common` with all siblings, later ones, too; of a repeat, that of its first step."""
        found: list[dict[int, float]] = [{} for _ in self.nodes]
        for node in self.nodes:
            for other, share in node.in_common.items():
                found[node.id][other] = found[other][node.id] = share
        return [found[node.id if node.same_as is None else node.same_as] for node in self.nodes]

    @cached_property
    def drawn_otherwise(self) -> list[int]:
        """By node, how many answers below it count for no step above, as a step on their path is no plain sample."""
        found, every = [0] * len(self.nodes), [0] * len(self.nodes)
        for node in reversed(self.nodes):  # children have higher ids
            if node.terminal and node.parse_error is None:
                every[node.id], found[node.id] = node.draws, node.draws - node.plain_draws
            if node.parent_id is not None:
                every[node.parent_id] += every[node.id]
                found[node.parent_id] += found[node.id] if node.plain_draws else every[node.id]
        return found

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
            for other in node.in_common:
                if not 0 < other < node.id or self.nodes[other].parent_id != node.parent_id:
                    raise ValueError(f"node {node.id} has something in common with {other}, no earlier sibling")
        return self

    def _parent_id(self, node: RolloutNode) -> int:
        """A step's parent id. Raises ValueError if that parent is impossible."""
        if node.parent_id is None or not 0 <= node.parent_id < node.id:
            raise ValueError(f"node {node.id} has parent {node.parent_id}, which is not an earlier node")
        parent = self.nodes[node.parent_id]
        layer = 0 if parent.layer is None else parent.layer + 1
        if node.layer != layer:
            raise ValueError(f"node {node.id} has layer {node.layer}, below node {parent.id} it is {layer}")
        if parent.terminal:
            raise ValueError(f"node {node.id} continues node {parent.id}, which is terminal")
        return node.parent_id

    def to_line(self) -> bytes:
        """As `Record.to_line`; floats are written as orjson writes them."""
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_APPEND_NEWLINE)


def parse_rollout(line: bytes, *, where: str) -> RolloutRecord:
    """One line of a rollouts file. Raises MalformedRolloutsError naming `where`."""
    try:
        record = orjson.loads(line)
        if isinstance(record, dict) and "schema_version" not in record:
            raise MalformedRolloutsError(
                f"{where} is not a rollout record: it has no schema_version (this reasonrag reads {SCHEMA_VERSION})"
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
    """All records of a file, one at a time. Raises MalformedRolloutsError at the first malformed line."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            yield parse_rollout(line, where=f"{path}, line {number}")


@lru_cache(maxsize=4096)  # gold titles, and those of passages that siblings read
def title_key(title: str) -> str:
    """What is compared of a gold passage's title: without case, runs of spaces, outer quotes, HTML entities, and forms
    of one letter, quote or dash."""
    plain = unicodedata.normalize("NFKC", html.unescape(html.unescape(title))).translate(_SAME_SIGNS)
    return " ".join(unicodedata.normalize("NFC", plain.casefold()).split()).strip('"').strip()


_SAME_SIGNS = str.maketrans("\u2018\u2019\u201c\u201d\u2010\u2011\u2012\u2013\u2014\u2212_", "''\"\"------ ")


def shared_fields(record: BaseModel | DataclassInstance | tuple[Any, ...], kind: type[BaseModel]) -> dict[str, Any]:
    """The values of a model's, a dataclass's or a named tuple's fields that `kind` has, too, under the same name; not
    the `schema_version`, as each has its own."""
    return {name: getattr(record, name) for name in _shared_names(type(record), kind)}


@cache
def _shared_names(one: type[Any], other: type[BaseModel]) -> tuple[str, ...]:
    own = getattr(one, "model_fields", None) or getattr(one, "_fields", None) or [each.name for each in fields(one)]
    return tuple(name for name in own if name in other.model_fields and name != "schema_version")


def first_error(error: ValidationError) -> str:
    """The first problem of a validation error in a line, with its field."""
    first: Any = error.errors(include_url=False)[0]
    location = ".".join(str(part) for part in first["loc"]) or "record"
    if first["type"] == "missing":
        return f"{location} is missing"
    if first["type"] == "extra_forbidden":
        return f"{location} is not known"
    own = first["msg"].removeprefix("Value error, ")
    return own if first["type"] == "value_error" and not first["loc"] else f"{location}: {own}"


def state_key(prompt: list[Message]) -> str:
    """A state's id, a digest of its prompt; 16 hexadecimal digits."""
    return short_digest(orjson.dumps([(turn.role, turn.content) for turn in prompt]))


def pair_key(state_id: str, chosen: str, rejected: str, *, of: str) -> str:
    """A pair's id, a digest of its content and its tree, independent of the file; 16 hexadecimal digits."""
    return short_digest(orjson.dumps([state_id, chosen, rejected, of]))


def short_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
