"""Values a sample of pairs again: continues both sides anew, with draws that no search has used.

Decides which pairs are drawn, and which continuations count. Knows neither where the models are nor what they cost.
"""

from __future__ import annotations

import hashlib
import heapq
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias, get_args

import orjson
from pydantic import BaseModel

from mcts import shortest_path_reward
from mcts.search import STRIDE
from preference import Candidate, PairingRules, RolloutNode, RolloutRecord, candidates, read_rollouts
from preference.best_path import steps_to
from preference.candidate_records import StateRecord, read_lines
from preference.export.formats import pairs_files
from preference.export.summary import CANDIDATES
from preference.filters import candidates_of
from preference.margin_and_confidence import TOLERANCE
from preference.statistics import LABEL_LEVEL, Bin, CheckedPair, SignAgreement, reliability, sign_agreement
from reasonrag.agent.agent import Agent, AgentStep
from reasonrag.agent.outcomes import AnswerValuer, OutcomeRule, counts, outcome_of, with_value
from reasonrag.agent.state import State
from reasonrag.concurrency import together
from reasonrag.data.item_files import explained_records, read_items
from reasonrag.data.questions import AnswerStyle, Question
from reasonrag.errors import InputError, ModelError, RetrievalError
from reasonrag.exploration.explorer import READER, TEACHER
from reasonrag.files import ROLLOUTS
from reasonrag.rendering import Part, Shown, Table, agreement_text, dollars_or_unknown
from reasonrag.run.engine import Asked, Run
from reasonrag.run_config import RecordedRecipe

FRESH = 10**9
"""First number of fresh continuations, plus STRIDE for each step above them: as in a search, so that no two share a
draw, but beyond every search. Fresh judgements of an answer are numbered from here on, too."""


class RevaluedPair(BaseModel):
    """One pair of the sample: its label, and the mean outcomes of its fresh continuations."""

    question_id: str
    chosen_id: int
    rejected_id: int
    action_type: str
    rejected_type: str = ""
    layer: int
    confidence: float | None
    """None where labels have none, as those of a judge, or of outcomes."""
    one_draw: bool = False
    margin: float
    fresh_margin: float | None
    """Divided by alpha**layer, or of undiscounted outcomes, as the label's; null if a side has no continuation."""
    chosen_fresh: float | None
    rejected_fresh: float | None
    """Mean discounted outcome."""
    chosen_outcome: float | None = None
    rejected_outcome: float | None = None
    """Mean outcome, undiscounted."""

    @property
    def checked(self) -> CheckedPair:
        """By the fresh margin."""
        margin = self.fresh_margin or 0.0
        return CheckedPair(abs(margin) <= TOLERANCE, margin > TOLERANCE, self.confidence)


class Revaluation(BaseModel, Shown):
    """Result of fresh continuations of a sample of pairs."""

    model: str
    """The model that continued."""
    k: int
    exportable: int
    """Size of what is sampled: pairs that `pairs` would export at `min_confidence`, or the data set's rows."""
    pairs: int
    unvalued: int
    """Pairs of the sample of which a side has no valid fresh continuation."""
    failures_by_cause: dict[str, int]
    """Steps whose continuation failed, by cause; their pairs are unvalued."""
    failed_attempts: int
    """Failed attempts of requests; most were repeated with success."""
    confidence_level: float
    """Level of the (Wilson) intervals."""
    confirmed: SignAgreement
    mean_margin: float | None
    mean_fresh_margin: float | None
    """Smaller than `mean_margin` by the winner's curse: pairs were chosen by the label's margin."""
    reliability: list[Bin]
    calls: int
    """Completions of this model in all calibrations of the run so far."""
    session_calls: int
    """Completions requested in this session."""
    cost_usd: float | None
    """Cost of all of them."""
    refused_parameters: dict[str, list[str]] = {}
    """Request parameters that an endpoint refused in this session, by name of the model."""
    sample: list[RevaluedPair]

    def shown(self) -> Iterator[Part]:
        yield Table(f"{self.k:,} fresh continuations per step  by {self.model}", self._rows())
        claimed = [each for each in self.reliability if each.mean_confidence is not None]  # others have no pair
        if any(each.confidence is None for each in self.sample):
            yield "these labels have no confidence"
        elif claimed:
            rows = [(f"{each.low:.1f} to {each.high:.1f}", agreement_text(each)) for each in claimed]
            yield Table("claimed confidence, share right of all", rows)

    def _rows(self) -> Iterator[tuple[str, object]]:
        yield "pairs", f"{self.pairs:,} of {self.exportable:,}, {self.unvalued:,} could not be valued"
        yield "failure causes", self.failures_by_cause
        yield "labels", self.confirmed
        yield "margin, label", self.mean_margin
        yield "margin, fresh", self.mean_fresh_margin
        yield "completions", f"{self.calls:,}, {self.session_calls:,} of them new"
        yield "cost", dollars_or_unknown(self.cost_usd)


class SampledPair(NamedTuple):
    rollout: RolloutRecord
    candidate: Candidate

    @property
    def sides(self) -> tuple[RolloutNode, RolloutNode]:
        """The chosen and the rejected step."""
        return self.rollout.nodes[self.candidate.chosen.id], self.rollout.nodes[self.candidate.rejected.id]


class PairSample(NamedTuple):
    """pairs: ordered by lot. exportable: how many they were drawn from, in so many questions."""

    pairs: list[SampledPair]
    exportable: int
    questions: int


def sample_pairs(run: Path, found: Iterable[Candidate], size: int, *, seed: int) -> PairSample:
    """A random sample of a run's pairs: those with the smallest lots; only these are held in memory.

    A lot depends on the seed and on the pair, not on the others: a larger sample holds all of a smaller one, and the
    order of the file says nothing. Raises InputError.
    """
    exportable = questions = 0

    def drawn() -> Iterator[tuple[bytes, Candidate]]:
        nonlocal exportable
        for each in found:
            exportable += 1
            named = orjson.dumps([seed, each.state.question_id, each.chosen.id, each.rejected.id])
            yield hashlib.sha256(named).digest(), each

    trees = dict[str, RolloutRecord]()
    with explained_records():
        pairs = [each for _, each in heapq.nsmallest(size, drawn(), key=lambda each: each[0])]
        asked = {each.state.question_id for each in pairs}
        for tree in (each for each in read_rollouts(run / ROLLOUTS) if each.error is None):
            questions += 1
            if tree.question_id in asked:
                trees[tree.question_id] = tree
    if lost := len(asked - trees.keys()):
        raise InputError(f"{run} has no tree of {lost} of the sampled questions: give the run that the data set is of")
    sampled = [SampledPair(trees[each.state.question_id], each) for each in pairs]
    for pair in sampled:
        for step in (pair.candidate.chosen, pair.candidate.rejected):
            nodes = pair.rollout.nodes
            if step.id >= len(nodes) or nodes[step.id].response != step.response:
                raise InputError(f"the tree of {pair.rollout.question_id} in {run} is not the one of the data set")
    return PairSample(sampled, exportable, questions)


def exportable_pairs(run: Path, rules: PairingRules) -> Iterator[Candidate]:
    """The pairs that `pairs` would make of a run by these rules."""
    trees = (each for each in read_rollouts(run / ROLLOUTS) if each.error is None)
    return (each for tree in trees for each in candidates(tree, rules) if each.dropped is None)


def rows_of_run(data: Path, config_hash: str) -> Iterator[Candidate]:
    """The rows of a data set that are of the run, with their sides as they stand there. Raises InputError for none."""
    files, there = pairs_files(data).values(), False
    if not files or not (data / CANDIDATES).is_file():
        raise InputError(f"--data {data} holds no pairs with {CANDIDATES}; give a folder written by reasonrag pairs")
    rows = (each.value for file in files for each in read_items(file))
    sides = {(str(row.get("pair_id")), str(row.get("chosen_id"))) for row in rows if isinstance(row, dict)}
    for state in read_lines(data / CANDIDATES, StateRecord):
        for each in candidates_of(state) if state.origin.config_hash == config_hash else ():
            exchanged = Candidate(state, each.pair.swapped(), each.rejected, each.chosen)
            for found in (each, exchanged):
                if (each.pair.pair_id, str(found.chosen.id)) in sides:
                    there = True
                    yield found
    if not there:
        raise InputError(f"--data {data} has no row of this run: give the run that it was made from")


_Key: TypeAlias = tuple[str, int]
"""Of a step to be valued: its question and its node."""


class Fresh(NamedTuple):
    """Mean discounted outcome, and the same undiscounted; None if no continuation or judgement counts."""

    value: float | None = None
    outcome: float | None = None


class FreshValues:
    """`k` fresh continuations of each side of the pairs, as a `Work`; judges are asked with draws that the run has not
    used.

    agent: of the run, with any model. rule, recipe: how answers are valued, and which count. values: of the sides that
    are done, and of those whose value is known: answers that no judge values.
    """

    noun = "step"

    def __init__(
        self, agent: Agent, k: int, pairs: Sequence[SampledPair], rule: OutcomeRule, recipe: RecordedRecipe
    ) -> None:
        self._agent, self._k, self._rule, self._recipe = agent, k, rule, recipe
        self._steps, self.values = dict[_Key, tuple[RolloutRecord, RolloutNode]](), dict[_Key, Fresh]()
        for pair, node in ((each, node) for each in pairs for node in each.sides):
            key = pair.rollout.question_id, node.id
            if not node.terminal or (rule.judged and node.action_type == "answer"):
                self._steps[key] = pair.rollout, node
            else:
                self.values[key] = _mean(pair.rollout, [(node.outcome.value if node.outcome else 0.0, _depth(node))])
        self.at_once = max(1, len(self._steps))
        self._valuers: dict[tuple[str, int], AnswerValuer | None] = {}
        """One for each question and draw, whichever step is valued: two steps can come to the same answer."""

    def items(self) -> Iterable[_Key]:
        return self._steps

    def question_of(self, item: _Key) -> str:
        return item[0]

    async def do(self, item: _Key, asked: Asked) -> None:
        agent, (rollout, node) = self._agent.anew(asked.models[TEACHER], asked.models.get(READER)), self._steps[item]
        try:
            self.values[item] = _mean(rollout, await self._ends(agent, rollout, node))
        except (ModelError, RetrievalError) as error:
            asked.failure(error, "step", {"question_id": item[0], "node_id": item[1]})
            self.values[item] = Fresh()

    async def _ends(self, agent: Agent, rollout: RolloutRecord, node: RolloutNode) -> list[tuple[float | None, int]]:
        """Outcome and number of steps from the root, for each end; None where it has none. Only continuations count
        that are plain samples throughout, as in the labels; an answer has an end for each judgement."""
        after, depth = await _after(agent, rollout, node), _depth(node)
        if isinstance(after, AgentStep):
            judged = await together(*(self._outcome(agent, after, draw) for draw in range(self._k)))
            return [(outcome, depth) for outcome in judged]
        first = FRESH + STRIDE * depth
        paths = await agent.continue_from(after, range(first, first + self._k))
        repaired = self._recipe.repairs_count
        plain = [path for path in paths if all(step.plain or (step.repaired and repaired) for step in path)]
        outcomes = await together(*(self._outcome(agent, path[-1], 0) for path in plain))
        return [(outcome, depth + len(path)) for outcome, path in zip(outcomes, plain, strict=True)]

    async def _outcome(self, agent: Agent, end: AgentStep, draw: int) -> float | None:
        """Outcome of a path's last step; None if it has none, as in the labels. draw: of the judgement."""
        if not counts(end, unreadable=self._recipe.unreadable_replies, forced_answers=self._recipe.forced_answers):
            return None
        question = end.state.question
        if (question.id, draw) not in self._valuers:
            valuer = self._rule.valuer(question, gold=bool(self._recipe.judge_sees_gold), sample=FRESH + draw)
            self._valuers[question.id, draw] = valuer
        judged = await with_value(end, self._valuers[question.id, draw], agent)
        return outcome_of(judged, self._rule.name, language=agent.language)


async def _after(agent: Agent, rollout: RolloutRecord, node: RolloutNode) -> State | AgentStep:
    """The state that a step leads to, or the answer: the replies on its path are the thoughts, its queries are searched
    again, and a reader's words are those of the run. Raises InputError if the index finds other passages."""
    state = agent.start(_question_of(agent, rollout))
    for each in steps_to(rollout.nodes, node):
        step = AgentStep(
            state=state,
            prompt=tuple(each.prompt or ()),
            response=each.response or "",
            action_type=each.action_type,
            content=each.content,
            terminal=each.terminal,
        )
        if each.terminal:  # it is the last one
            return step
        child = rollout.nodes[each.children_ids[0]] if each.children_ids else None
        state = await agent.next_state(step, child.observation if child else None)
        read = child.passages if child else None
        found = [passage.id for passage in state.passages]
        if read is not None and found != (recorded := [passage.id for passage in read]):
            raise InputError(
                f"question {rollout.question_id}, node {each.id}: the index {agent.retriever.identity} finds {found}, "
                f"the run had read {recorded}. Restore the index that the run was made with"
            )
    return state


def _question_of(agent: Agent, rollout: RolloutRecord) -> Question:
    """The question of a tree, whose first prompt says which style of answers it wanted."""
    found = Question(
        id=rollout.question_id,
        question=rollout.question,
        golden_answers=rollout.golden_answers,
        metadata={"rubric": rollout.rubric, "hops": rollout.hops},
    )
    asked = next((tuple(node.prompt) for node in rollout.nodes[1:] if node.prompt), None)
    styled = (
        found.model_copy(update={"metadata": {**found.metadata, "style": style}}) for style in get_args(AnswerStyle)
    )
    return next((each for each in (found, *styled) if agent.prompt_of(agent.start(each)) == asked), found)


def _depth(node: RolloutNode) -> int:
    """Edges from the root down to the step."""
    return (node.layer or 0) + 1


def _mean(rollout: RolloutRecord, ends: Iterable[tuple[float | None, int]]) -> Fresh:
    """Mean discounted outcome over the ends that have one."""
    valid = [(outcome, steps) for outcome, steps in ends if outcome is not None]
    if not valid:
        return Fresh()
    rewards = [shortest_path_reward(outcome, steps=steps, alpha=rollout.recipe.alpha) for outcome, steps in valid]
    return Fresh(statistics.mean(rewards), statistics.mean(outcome for outcome, _ in valid))


def _revalued(pair: SampledPair, fresh: Mapping[_Key, Fresh]) -> RevaluedPair:
    (rollout, candidate), nodes = pair, pair.sides
    chosen, rejected = (fresh[rollout.question_id, node.id] for node in nodes)
    scale = rollout.recipe.alpha**candidate.state.layer if rollout.recipe.margin_by_layer else 1.0
    values = chosen.value, rejected.value
    if candidate.pair.label == "outcome":  # its margin is of outcomes
        scale, values = 1.0, (chosen.outcome, rejected.outcome)
    return RevaluedPair(
        question_id=rollout.question_id,
        chosen_id=nodes[0].id,
        rejected_id=nodes[1].id,
        action_type=str(nodes[0].action_type),
        rejected_type=str(nodes[1].action_type),
        layer=candidate.state.layer,
        confidence=candidate.pair.confidence,
        one_draw="one_draw" in candidate.pair.tags,
        margin=candidate.margin,
        fresh_margin=None if values[0] is None or values[1] is None else (values[0] - values[1]) / scale,
        chosen_fresh=chosen.value,
        rejected_fresh=rejected.value,
        chosen_outcome=chosen.outcome,
        rejected_outcome=rejected.outcome,
    )


def summarise(drawn: PairSample, values: Mapping[_Key, Fresh], run: Run, *, model: str, k: int) -> Revaluation:
    """What the values of all sides say. run: the session that got them. model: the one that continued."""
    sample = [_revalued(each, values) for each in drawn.pairs]
    decided = [each for each in sample if each.fresh_margin is not None]
    return Revaluation(
        model=model,
        k=k,
        exportable=drawn.exportable,
        pairs=len(sample),
        unvalued=len(sample) - len(decided),
        failures_by_cause=dict(run.failures.given_up.most_common()),
        failed_attempts=run.session.tally.failed_calls,
        confidence_level=LABEL_LEVEL,
        confirmed=sign_agreement(each.checked for each in decided),
        mean_margin=statistics.mean(each.margin for each in decided) if decided else None,
        mean_fresh_margin=statistics.mean(each.fresh_margin or 0.0 for each in decided) if decided else None,
        reliability=reliability([each.checked for each in decided]),
        calls=run.models.spent.calls,
        session_calls=run.session.tally.calls,
        cost_usd=run.models.cost,
        refused_parameters=run.refused,
        sample=sample,
    )
