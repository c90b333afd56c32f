"""What a method's name stands for, and what of a method decides its answers. Knows neither files nor metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from reasonrag.agent.agent import Agent
from reasonrag.agent.prompting import Prompts
from reasonrag.agent.protocols.known import renderer_hash
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.evaluation.methods.adaptive_rag import adaptive_rag
from reasonrag.evaluation.methods.baseline import BaselineAttempt
from reasonrag.evaluation.methods.baseline_prompts import BaselinePrompts, baseline_hash, in_style
from reasonrag.evaluation.methods.choice import MethodChoice
from reasonrag.evaluation.methods.flare import flare
from reasonrag.evaluation.methods.ircot import ircot
from reasonrag.evaluation.methods.iter_retgen import iter_retgen
from reasonrag.evaluation.methods.linear_agent import LinearAgent, MajorityVote
from reasonrag.evaluation.methods.method import Attempt, Method
from reasonrag.evaluation.methods.search_r1 import search_r1
from reasonrag.evaluation.report import EvaluationConditions
from reasonrag.llm.critic import Critic


class NoRetriever:
    """The retriever of methods that do not search: no index is opened for it."""

    identity = "none"

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:  # noqa: ARG002 - a retriever's
        return []


_WITHOUT_ROUTES: dict[str, Callable[[BaselineAttempt], Awaitable[str | None]]] = {
    "direct": lambda at: at.answered("direct"),
    "cot": lambda at: at.answered("cot"),
    "rag": partial(iter_retgen, "rag"),
    "iter-retgen": partial(iter_retgen, "iter-retgen"),
    "search-r1": search_r1,
    "ircot": ircot,
    "flare": flare,
}
_BASELINES = _WITHOUT_ROUTES | {"adaptive-rag-prompted": partial(adaptive_rag, _WITHOUT_ROUTES)}


@dataclass(frozen=True)
class Baseline:
    """A baseline as a method. agent: whose model it asks and whose retriever it searches."""

    choice: MethodChoice
    agent: Agent
    prompts: BaselinePrompts

    async def answer(self, question: Question) -> Attempt:
        agent, caller = self.agent, self.agent.caller
        prompts = in_style(self.prompts, caller.prompts, question.style)
        at = BaselineAttempt(question, caller, prompts, agent.retriever, agent.top_k, self.choice)
        answer = await _BASELINES[self.choice.name](at)
        return Attempt(answer, tuple(at.steps), at.searches, tuple(at.read.values()))


def method_for(choice: MethodChoice, agent: Agent, prompts: BaselinePrompts, critic: Critic | None = None) -> Method:
    """The method. agent: the one that is evaluated; a baseline asks its model and searches its retriever. critic:
    chooses among draws."""
    if choice.name != "agent":
        return Baseline(choice, agent, prompts)
    return MajorityVote(LinearAgent(agent), choice.vote) if choice.vote else LinearAgent(agent, critic, choice.draws)


def conditions_of_method(method: MethodChoice, asked: EvaluationConditions) -> EvaluationConditions:
    """The conditions that apply to a method: only the agent has its prompts and an order of passages, and a method
    without search has no retriever."""
    if method.of_agent:
        return asked
    none = ["renderer", "passage_order", "agent", "reader"]  # the baselines show the best first, as published
    none += [] if method.searches else ["top_k", "retriever", "max_passage_chars"]
    return asked.model_copy(update=dict.fromkeys(none))


def method_identity(
    method: MethodChoice, prompts: Prompts, baselines: BaselinePrompts, critic: str | None = None
) -> dict[str, Any]:
    """What decides a method's answers beside questions, retriever, model, sampling and seed: for the configuration.
    critic: its name."""
    asked: dict[str, Any] = {"max_steps": method.steps} | ({} if method.repair else {"repair": False})
    asked |= {"vote": method.vote} if method.vote else {}
    asked |= {"best_of": method.best_of, "critic": critic} if critic else {}
    if method.name == "agent":
        asked |= prompts.agent_identity
        return {"method": method.name, "renderer": renderer_hash(prompts), "prompts": prompts.hash_with()} | asked
    return {"method": method.name, "baseline_prompts": baseline_hash(baselines, method.name, prompts)} | asked
