"""Exploration of one question: the agent does the search's work, and the finished tree becomes a record.

The only module that connects `mcts` and the agent. Knows neither files nor other questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, pairwise
from typing import Any, Literal, TypeVar

import mcts
from mcts.rewards import ANSWER_REWARDS, REWARDS
from mcts.search import RIGHT
from preference import FinalScore, QuestionError, RolloutNode, RolloutRecord, Usage
from preference.records import OF_THE_STATE, FailedContinuation, Outcome, RecipeRef, UnreadableJudgement, shared_fields
from reasonrag.agent.agent import Agent, AgentStep
from reasonrag.agent.model_calls import Judgement
from reasonrag.agent.outcomes import AnswerValuer, counts, outcome_of, with_value
from reasonrag.agent.state import State
from reasonrag.agent.step_judge import rank_actions, scoring_prompt
from reasonrag.concurrency import together
from reasonrag.data.questions import Question
from reasonrag.errors import ModelError
from reasonrag.exploration.shared_findings import Useful, gold_found, in_common, progress, rested_on, same_step
from reasonrag.llm.chat import sample_seed
from reasonrag.llm.prices import Price

TEACHER, VALUE_MODEL, READER = "model", "value_model", "reader"
"""Roles of the models of a run."""
IN_JOURNAL = "It is not sent again in this run, whose journal holds that answer; a new --run asks anew"
_Noted = TypeVar("_Noted")


@dataclass(frozen=True)
class RunIdentity:
    """The fields about the run in every record."""

    dataset: str
    split: str
    config_hash: str
    seed: int
    recipe: mcts.Recipe
    renderer: str | None = None
    agent: str | None = None
    prices: Mapping[str, Price | None] = field(default_factory=dict)
    """By the roles of the models, for `usage.cost_usd` only."""


class Explorer:
    """Searches one question's tree with its own agent.

    value_agent: continues the agent's proposals with another policy, if given. Values are then those of that policy:
        the agent's proposals are valued, but are not plain samples of it.
    valuer: values answers when gold answers do not; it asks the agent's model, whichever model answered.
    """

    def __init__(
        self,
        agent: Agent,
        question: Question,
        recipe: mcts.Recipe,
        *,
        value_agent: Agent | None = None,
        valuer: AnswerValuer | None = None,
    ) -> None:
        self.agent = agent
        reads = agent.reader or agent.caller
        self.value_agent = value_agent and replace(value_agent, reader=reads, readings=agent.readings)
        self.valuer = valuer
        self.question = question
        self.recipe = recipe
        self._is_guided = recipe.search.selection == "mixed"  # by what steps bring to light
        self._states: dict[int, State] = {mcts.ROOT_ID: agent.start(question)}
        self._searched = searched = dict[tuple[tuple[str, ...], str], State]()
        """By thoughts and reply: the states that queries lead to, where they guide the search."""
        self._useful = useful = Useful(question.gold)

        def both(step: AgentStep, other: AgentStep) -> tuple[State | None, State | None]:
            return searched.get(_place(step)), searched.get(_place(other))

        # it refers to nothing that refers to it: a done tree is freed at once
        self.search: mcts.Search[AgentStep] = mcts.Search(
            recipe.search,
            equivalent=lambda step, other: same_step(step, other, *both(step, other)),
            in_common=lambda step, other: in_common(step, other, *both(step, other), useful),
            seed=sample_seed(agent.seed, question.id, (), mcts.ROOT_ID),
        )
        self._failed: dict[int, list[FailedContinuation]] = {}
        self._unreadable: dict[int, list[UnreadableJudgement]] = {}
        self._unjudged: dict[int, list[UnreadableJudgement]] = {}
        """Failures that are not nodes, by work, to keep them in work order."""

    async def run(self) -> None:
        """Search to the end. Raises the first ReasonragError of any piece of work; the others are cancelled."""
        while work := self.search.ask():
            await together(*(self._carry_out(item) for item in work))
            self._check_root()

    def _check_root(self) -> None:
        """Raises ModelError where nothing can be explored: the question's first state has ended."""
        steps = self.search.tree.children(self.search.tree.root)
        why = [each.payload.parse_error for each in steps]
        if (first := next(iter(why), None)) and all(each and each.cause in OF_THE_STATE for each in why):
            raise ModelError(f"the question's first prompt: {first.detail}. {IN_JOURNAL}", cause=first.cause)

    async def _carry_out(self, work: mcts.Work) -> None:
        node = self.search.tree[work.node_id]
        result: mcts.Result[AgentStep]
        if isinstance(work, mcts.Expand):
            result = await self._expanded(node, work)
        elif isinstance(work, mcts.Continue):
            paths = await self._continue(await self._state_after(node), _draws(work))
            ends = await self._valued([path[-1] for path in paths])
            self._note(paths)
            paths = [[*path[:-1], end] for path, end in zip(paths, ends, strict=True)]
            if not self.search.config.keep_continuations:
                self._failed[work.id] = [_failure(node.id, end) for end in ends if end.parse_error]
                self._unjudged[work.id] = [each for end in ends for each in _unreadable("answer", node.id, end.judged)]
            result = mcts.Continued(
                [[self._as_step(step) for step in path] for path in paths], calls=sum(_calls(path) for path in paths)
            )
        elif isinstance(work, mcts.Rank):
            result = await self._ranked(node, work)
        else:
            prompt = scoring_prompt(self.agent.prompts, node.payload, gold=self.recipe.judge_sees_gold)
            judgement = await self.agent.caller.score(self.question.id, prompt, work.sample)
            self._unreadable[work.id] = _unreadable("score", node.id, judgement)
            result = mcts.Scored(judgement.value, calls=judgement.calls)
        self.search.tell(work.id, result)

    async def _expanded(self, node: mcts.Node[AgentStep], work: mcts.Expand) -> mcts.Expanded[AgentStep]:
        said = [child.payload for child in self.search.tree.children(node)]
        drawn = await self.agent.sample(await self._state_after(node), _draws(work), attempt=work.attempt, said=said)
        steps = await self._valued(drawn)
        await self._look_up(steps)
        plain = self.value_agent is None
        return mcts.Expanded([self._as_step(step, plain=plain) for step in steps], calls=_calls(drawn))

    async def _ranked(self, node: mcts.Node[AgentStep], work: mcts.Rank) -> mcts.Ranked:
        """The steps of a state ranked, equal texts and all; those that did not parse are not shown to the judge."""
        children = self.search.tree.children(node)
        steps = {each.id: each.payload for each in children if not each.payload.parse_error}
        ranks, judgement = await rank_actions(
            self.agent, self.question, steps, sample=work.sample, gold=self.recipe.judge_sees_gold
        )
        self._unreadable[work.id] = _unreadable("rank", node.id, judgement)
        return mcts.Ranked([ranks.get(each.id) for each in children], calls=judgement.calls if judgement else 0)

    async def _valued(self, steps: Sequence[AgentStep]) -> list[AgentStep]:
        if self.valuer is None:
            return list(steps)
        return await together(*(with_value(step, self.valuer, self.agent) for step in steps))

    async def _state_after(self, node: mcts.Node[AgentStep]) -> State:
        if node.id not in self._states:
            found = self._found_by(node.payload)
            self._states[node.id] = await self.agent.next_state(node.payload) if found is None else found
        return self._states[node.id]

    def _note(self, paths: Sequence[Sequence[AgentStep]]) -> None:
        if self._is_guided:
            for step, following in (each for path in paths for each in pairwise(path)):
                if step.action_type == "query":
                    self._searched.setdefault(_place(step), following.state)

    async def _look_up(self, steps: Sequence[AgentStep]) -> None:
        if not self._is_guided:
            return
        new = {_place(step): step for step in steps if step.action_type == "query" and not self._found_by(step)}
        states = await together(*map(self.agent.next_state, new.values()))
        self._searched.update(zip(new, states, strict=True))

    def _found_by(self, step: AgentStep) -> State | None:
        return self._searched.get(_place(step))

    def _common_findings(self) -> list[dict[int, float]]:
        """`Node.in_common` by node, now that it is known what right answers rest on: the gold passages, unless none of
        them was ever shown."""
        tree, useful = self.search.tree, self._useful
        shown = (after.passages for each in tree.nodes[1:] if (after := self._seen_after(each)))
        if not any(useful.gold and useful.among(each) for each in shown):
            ends = [end for each in tree.nodes for end in (each.rollouts[:1] if each.terminal else each.unkept)]
            useful = Useful(None, rested_on([end.final.state for end in ends if end.outcome >= RIGHT]))
        found: list[dict[int, float]] = [{} for _ in tree.nodes]
        for state in tree.nodes:
            siblings = [each for each in tree.children(state) if each.same_as is None and not each.terminal]
            for other, step in combinations(siblings, 2):
                after, after_other = self._seen_after(step), self._seen_after(other)
                if share := in_common(step.payload, other.payload, after, after_other, useful):
                    found[step.id][other.id] = share
        return found

    async def _continue(self, state: State, samples: range) -> list[list[AgentStep]]:
        """Continuations by the policy that is being valued."""
        agent = self.value_agent or self.agent
        if self.recipe.greedy_continuations:
            agent = replace(agent, sampling=agent.sampling.model_copy(update={"temperature": 0.0, "top_p": 1.0}))
        paths = await agent.continue_from(state, samples)
        if self.value_agent is None:
            return paths
        return [[step._replace(sampled_by=agent.model.name) for step in path] for path in paths]

    def _as_step(self, step: AgentStep, *, plain: bool = True) -> mcts.Step[AgentStep]:
        recipe = self.recipe
        known = counts(step, unreadable=recipe.unreadable, forced_answers=recipe.forced_answers)
        return mcts.Step(
            payload=step,
            terminal=step.terminal,
            outcome=outcome_of(step, recipe.outcome, language=self.agent.language) if known else None,
            plain=plain and (step.plain or (recipe.repairs_count and step.repaired)),
            identity=None if step.parse_error else step.response,
            progress=progress(self.question, step, self._found_by(step), at_once=self.agent.protocol.reads_at_once)
            if self._is_guided
            else None,
        )

    def record(self, run: RunIdentity, error: QuestionError | None = None) -> RolloutRecord:
        """The finished tree as its line of rollouts.jsonl. error: why there is no tree."""
        askers = {TEACHER: self.agent, VALUE_MODEL: self.value_agent, READER: self.agent.reader}
        usage = {role: each.spending.as_usage(run.prices.get(role)) for role, each in askers.items() if each}
        question, known = self.question, {"recipe": RecipeRef.of(run.recipe), "nodes": [], "error": error}
        if error is None:
            steps = self.search.tree.nodes[1:]
            in_tree = [each for node in steps for each in _unreadable("answer", node.id, node.payload.judged)]
            known |= {
                "nodes": self._nodes(),
                "failed_continuations": _in_order(self._failed),
                "unreadable_judgements": [*_in_order(self._unreadable), *in_tree, *_in_order(self._unjudged)],
            }
        return RolloutRecord(
            **shared_fields(run, RolloutRecord) | shared_fields(question, RolloutRecord) | known,
            question_id=question.id,
            rubric=list(self.valuer.rubric) if self.valuer and self.valuer.rubric else None,
            gold_passages=None if question.gold is None else list(question.gold.names),
            hops=question.hops if self.agent.steps_by_hops else None,
            usage=sum(usage.values(), start=Usage(cost_usd=0.0)),
            value_usage=usage.get(VALUE_MODEL),
            reader_usage=usage.get(READER),
        )

    def _nodes(self) -> list[RolloutNode]:
        tree = self.search.tree
        common = self._common_findings()
        pooled = self.recipe.search.share_estimates and self.recipe.reward == "spre_even"
        for node, shares in zip(tree.nodes, common, strict=True):
            node.in_common = shares if pooled else {}
        known = mcts.estimates(tree, lambda end: end.outcome)
        rules = ANSWER_REWARDS | {self.recipe.reward: REWARDS[self.recipe.reward]}
        by_rule = {name: rule(tree, alpha=self.recipe.search.alpha) for name, rule in rules.items()}
        for node, shares in zip(tree.nodes, common, strict=True):
            node.in_common = shares
        ends = {id(each): each for node in tree.nodes for each in node.rollouts}
        scores = {name: _final_score(each, self.recipe.outcome) for name, each in ends.items()}
        return [
            self._as_record(node, {name: rewards[node.id] for name, rewards in by_rule.items()}, known[node.id], scores)
            for node in tree.nodes
        ]

    def _as_record(
        self,
        node: mcts.Node[AgentStep],
        rewards: dict[str, float | None],
        known: mcts.Estimate | None,
        scores: Mapping[int, FinalScore],
    ) -> RolloutNode:
        """scores: by the identity of a rollout, of which several nodes have the same."""
        found = shared_fields(node, RolloutNode) | {
            "layer": node.layer,
            "value": node.value,
            "reward": rewards[self.recipe.reward],
            "rewards": rewards,
            "observations": known.observations if known else None,
            "expected_outcome": known.mean if known else None,
            "rollouts": [scores[id(each)] for each in node.rollouts],
        }
        if node.step is not None:
            step = node.payload
            found |= shared_fields(step, RolloutNode) | {
                "action": step.state.action,
                "passages": step.passage_refs,
                "observation": step.observation,
                "outcome": Outcome(name=self.recipe.outcome, value=node.step.outcome) if step.terminal else None,
                "gold": gold_found(self.question, step, self._seen_after(node)),
            }
        return RolloutNode.model_validate(found)

    def _seen_after(self, node: mcts.Node[AgentStep]) -> State | None:
        """The state after a step, if the search continued from it."""
        children = self.search.tree.children(node)
        return children[0].payload.state if children else self._states.get(node.id, self._found_by(node.payload))


def _final_score(rollout: mcts.Rollout[AgentStep], outcome: str) -> FinalScore:
    last = rollout.final
    own = (
        "conclusion" if last.state.action == "conclude" else "answer" if last.action_type == "answer" else "unanswered"
    )
    return FinalScore(
        f1=last.f1,
        em=last.em,
        steps=rollout.steps,
        end="failed" if last.parse_error else own,
        outcome=None if outcome == "f1" else rollout.outcome,
    )


def _failure(node_id: int, last: AgentStep) -> FailedContinuation:
    of_state, of_step = (shared_fields(each, FailedContinuation) for each in (last.state, last))
    return FailedContinuation(node_id=node_id, **of_state, **of_step)


def _unreadable(
    kind: Literal["score", "rank", "answer"], node_id: int, judgement: Judgement[Any] | None
) -> list[UnreadableJudgement]:
    """The judgement, if there was one that was unreadable."""
    if judgement is None or judgement.unreadable is None:
        return []
    return [UnreadableJudgement(kind=kind, node_id=node_id, response=judgement.unreadable, cause=judgement.cause)]


def _in_order(by_work: Mapping[int, Sequence[_Noted]]) -> list[_Noted]:
    """What pieces of work have noted, in the order of the work."""
    return [each for work_id in sorted(by_work) for each in by_work[work_id]]


def _place(step: AgentStep) -> tuple[tuple[str, ...], str]:
    """Equal for steps that lead to one state."""
    return step.state.thoughts, step.response


def _draws(work: mcts.Expand | mcts.Continue) -> range:
    return range(work.sample, work.sample + work.count)


def _calls(steps: Sequence[AgentStep]) -> int:
    return sum(step.calls for step in steps)
