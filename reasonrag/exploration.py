"""One question explored: the search's wishes carried out by the agent, and the finished tree as a record.

The only place where `mcts` meets the agent. Knows neither files nor other questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mcts import (
    ROOT_ID,
    Continue,
    Continued,
    Expand,
    Expanded,
    Node,
    Recipe,
    Result,
    Scored,
    Search,
    Step,
    Work,
)
from mcts.rewards import REWARDS
from preference import FinalScore, QuestionError, RolloutNode, RolloutRecord
from preference.records import FailedContinuation, Outcome, RecipeRef, UnreadableJudgement
from reasonrag.agent import Agent, AgentStep, State
from reasonrag.concurrency import together
from reasonrag.prices import Price
from reasonrag.questions import Question


@dataclass(frozen=True)
class RunIdentity:
    """What every record of a run says about the run."""

    dataset: str
    split: str
    config_hash: str
    seed: int
    recipe: Recipe
    price: Price | None = None
    """For `usage.cost_usd` only."""


class Explorer:
    """Searches one question's tree with an agent of its own."""

    def __init__(self, agent: Agent, question: Question, recipe: Recipe) -> None:
        self.agent = agent
        self.question = question
        self.search: Search[AgentStep] = Search(recipe.search)
        self._states: dict[int, State] = {ROOT_ID: agent.start(question)}
        self._failed: dict[int, list[FailedContinuation]] = {}
        self._unreadable: dict[int, UnreadableJudgement] = {}
        """Failures that are no nodes, by work, so that their order is that of the work."""

    async def run(self) -> None:
        """Search to the end. Raises the first ReasonragError of any piece of work; the others are cancelled."""
        while work := self.search.ask():
            await together(*(self._carry_out(item) for item in work))

    async def _carry_out(self, work: Work) -> None:
        node = self.search.tree[work.node_id]
        result: Result[AgentStep]
        if isinstance(work, Expand):
            steps = await self.agent.sample(await self._state_after(node), _draws(work))
            result = Expanded([_as_step(step) for step in steps], calls=_calls(steps))
        elif isinstance(work, Continue):
            paths = await self.agent.continue_from(await self._state_after(node), _draws(work))
            if not self.search.config.keep_continuations:
                self._failed[work.id] = _failures(node.id, paths)
            result = Continued(
                [[_as_step(step) for step in path] for path in paths],
                calls=sum(_calls(path) for path in paths),
            )
        else:
            step = node.payload
            thoughts = (*step.state.thoughts, step.response)
            judgement = await self.agent.judge(self.question, thoughts, work.sample)
            if judgement.unreadable is not None:
                self._unreadable[work.id] = UnreadableJudgement(node_id=node.id, response=judgement.unreadable)
            result = Scored(judgement.score, calls=judgement.calls)
        self.search.tell(work.id, result)

    async def _state_after(self, node: Node[AgentStep]) -> State:
        if node.id not in self._states:
            self._states[node.id] = await self.agent.next_state(node.payload)
        return self._states[node.id]

    def record(self, run: RunIdentity) -> RolloutRecord:
        """The finished tree as its line of rollouts.jsonl."""
        rewards = REWARDS[run.recipe.reward](self.search.tree, alpha=run.recipe.search.alpha)
        nodes = [_as_record(node, reward) for node, reward in zip(self.search.tree.nodes, rewards, strict=True)]
        failed = [each for work_id in sorted(self._failed) for each in self._failed[work_id]]
        unreadable = [self._unreadable[work_id] for work_id in sorted(self._unreadable)]
        return _record(
            self.agent,
            self.question,
            run,
            nodes=nodes,
            failed_continuations=failed,
            unreadable_judgements=unreadable,
        )

    def error_record(self, run: RunIdentity, error: QuestionError) -> RolloutRecord:
        """The line of a question that has no tree, with the reason."""
        return _record(self.agent, self.question, run, error=error)


def _record(
    agent: Agent,
    question: Question,
    run: RunIdentity,
    *,
    nodes: Sequence[RolloutNode] = (),
    failed_continuations: Sequence[FailedContinuation] = (),
    unreadable_judgements: Sequence[UnreadableJudgement] = (),
    error: QuestionError | None = None,
) -> RolloutRecord:
    return RolloutRecord(
        question_id=question.id,
        question=question.question,
        golden_answers=question.golden_answers,
        dataset=run.dataset,
        split=run.split,
        config_hash=run.config_hash,
        seed=run.seed,
        recipe=RecipeRef(
            name=run.recipe.name,
            alpha=run.recipe.search.alpha,
            margin_by_layer=run.recipe.margin_by_layer,
        ),
        usage=agent.spending.as_usage(run.price),
        nodes=list(nodes),
        failed_continuations=list(failed_continuations),
        unreadable_judgements=list(unreadable_judgements),
        error=error,
    )


def _as_record(node: Node[AgentStep], reward: float | None) -> RolloutNode:
    common = {
        "id": node.id,
        "parent_id": node.parent_id,
        "children_ids": node.children_ids,
        "layer": node.layer,
        "visits": node.visits,
        "value": node.value,
        "reward": reward,
        "rollouts": [
            FinalScore(f1=each.final.f1 or 0.0, em=each.final.em or 0.0, steps=each.steps) for each in node.rollouts
        ],
    }
    if node.step is None:
        return RolloutNode.model_validate(common)
    step = node.payload
    return RolloutNode.model_validate(
        common
        | {
            "action": step.state.action,
            "prompt": step.prompt,
            "response": step.response,
            "action_type": step.action_type,
            "content": step.content,
            "passages": step.passage_refs,
            "terminal": step.terminal,
            "parse_error": step.parse_error,
            "repaired": step.repaired,
            "f1": step.f1,
            "em": step.em,
            "outcome": Outcome(name="f1", value=step.f1 or 0.0) if step.terminal else None,
            "grounded": step.grounded,
            "sampled_with": step.sampled_with,
        }
    )


def _failures(node_id: int, paths: Sequence[Sequence[AgentStep]]) -> list[FailedContinuation]:
    return [
        FailedContinuation(
            node_id=node_id,
            layer=last.state.layer,
            action=last.state.action,
            response=last.response,
            parse_error=last.parse_error,
        )
        for last in (path[-1] for path in paths)
        if last.parse_error
    ]


def _as_step(step: AgentStep) -> Step[AgentStep]:
    return Step(
        payload=step,
        terminal=step.terminal,
        outcome=step.f1 or 0.0,
        plain=not step.repaired,
    )


def _draws(work: Expand | Continue) -> range:
    return range(work.sample, work.sample + work.count)


def _calls(steps: Sequence[AgentStep]) -> int:
    return sum(step.calls for step in steps)
