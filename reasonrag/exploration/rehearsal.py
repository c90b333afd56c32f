"""A rehearsal of a run: the offline teacher explores some of its questions with the real recipe, prompts and passages.

Sends no request and writes no file; the retriever is the run's. Decides what the high end of a tree is. A user's
outcome function is not called: it may cost something itself.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from mcts import Recipe
from reasonrag.agent.agent import Agent
from reasonrag.agent.outcomes import OutcomeRule
from reasonrag.concurrency import work_off
from reasonrag.data.questions import Question
from reasonrag.errors import ReasonragError
from reasonrag.exploration.explorer import Explorer
from reasonrag.llm.expected_usage import ExpectedUsage
from reasonrag.llm.offline import STUDENT, OfflineTeacher

_AT_ONCE = 4
LONGEST_S = 120.0
"""No question is begun after so many seconds of a rehearsal; a search of a large index may take one."""


@dataclass(frozen=True)
class UsagePerQuestion:
    """Of the teacher, the value model and the reader, as far as there are any; on how many questions it was measured,
    and how many of their searches found nothing."""

    by_model: list[ExpectedUsage]
    questions: int
    searches: int
    empty_searches: int


async def rehearse(
    questions: Sequence[Question], recipe: Recipe, agent: Agent, value_agent: Agent | None, rule: OutcomeRule
) -> UsagePerQuestion | None:
    """What the trees of these questions use, with the offline teacher for the models of the agents. None if none could
    be explored."""
    if rule.function is not None:
        rule, recipe = OutcomeRule("f1"), recipe.model_copy(update={"outcome": "f1"})
    explored: list[Explorer] = []
    began = time.monotonic()

    async def explore(question: Question) -> None:
        if time.monotonic() - began > LONGEST_S:
            return
        explorer = Explorer(
            agent.anew(OfflineTeacher(), OfflineTeacher()),
            question,
            recipe,
            value_agent=value_agent and value_agent.anew(OfflineTeacher(name=STUDENT)),
            valuer=rule.valuer(question, gold=recipe.judge_sees_gold),
        )
        try:
            await explorer.run()
        except ReasonragError:  # of the retriever: the run will meet it, and tell
            return
        explored.append(explorer)

    await work_off(questions, explore, at_once=_AT_ONCE)
    if not explored:
        return None
    own = [each.agent.spending for each in explored]
    values = [each.value_agent.spending for each in explored if each.value_agent]
    reads = [each.agent.reader.spending for each in explored if each.agent.reader]
    searched = statistics.mean([each.search.calls for each in explored])
    path = statistics.mean([each.search.calls_per_value for each in explored])
    scale = max(1.0, explored[0].search.call_budget(path=path) / searched)
    steps = [end.steps for each in explored for node in each.search.tree.nodes for end in node.rollouts]
    thoughts = (statistics.mean(steps) - 1) / 2 if steps else 0.0  # in a prompt: half of those on a whole path
    shown = {
        (tree, node.parent_id): node.payload.state.passages
        for tree, each in enumerate(explored)
        for node in each.search.tree.nodes[1:]
        if node.payload.state.reads
    }
    return UsagePerQuestion(
        [
            ExpectedUsage.rehearsed([each.tokens for each in asked], scale=scale, thoughts=thoughts)
            for asked in (own, values, reads)
            if asked
        ],
        len(explored),
        len(shown),
        sum(not passages for passages in shown.values()),
    )
