"""Which class a method's name stands for, and what of a method decides its answers. Knows neither files nor
metrics."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from reasonrag.agent.agent import Agent
from reasonrag.agent.model_calls import ModelCaller
from reasonrag.agent.prompting import Prompts, renderer_hash
from reasonrag.data.corpus import Passage
from reasonrag.evaluation.methods.adaptive_rag import AdaptiveRag
from reasonrag.evaluation.methods.baseline_prompts import ROUTES, BaselinePrompts, baseline_hash
from reasonrag.evaluation.methods.choice import BaselineName, MethodChoice, StepBudget
from reasonrag.evaluation.methods.closed_book import ClosedBook
from reasonrag.evaluation.methods.flare import Flare
from reasonrag.evaluation.methods.ircot import IRCoT
from reasonrag.evaluation.methods.iter_retgen import IterRetGen
from reasonrag.evaluation.methods.linear_agent import LinearAgent, MajorityVote
from reasonrag.evaluation.methods.method import Method
from reasonrag.evaluation.methods.search_r1 import SearchR1
from reasonrag.evaluation.report import EvaluationConditions
from reasonrag.llm.critic import Critic
from reasonrag.retrieval.retriever import Retriever


class NoRetriever:
    """The retriever of methods that do not search: no index is opened for it."""

    identity = "none"

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:  # noqa: ARG002 - a retriever's
        return []


def method_for(choice: MethodChoice, agent: Agent, prompts: BaselinePrompts, critic: Critic | None = None) -> Method:
    """The method. agent: the one that is evaluated; a baseline asks its model and searches its retriever. critic:
    chooses among draws."""
    if choice.name == "agent":
        return (
            MajorityVote(LinearAgent(agent), choice.vote) if choice.vote else LinearAgent(agent, critic, choice.draws)
        )
    return baseline(
        choice.name,
        caller=agent.caller,
        prompts=prompts,
        retriever=agent.retriever,
        top_k=agent.top_k,
        budget=choice.budget,
    )


def baseline(
    name: BaselineName,
    *,
    caller: ModelCaller,
    prompts: BaselinePrompts,
    retriever: Retriever,
    top_k: int,
    budget: StepBudget,
) -> Method:
    """The method of this name."""
    match name:
        case "direct" | "cot":
            return ClosedBook(name, caller, prompts)
        case "rag":
            return IterRetGen(name, caller, prompts, retriever, top_k, iterations=1)
        case "iter-retgen":
            return IterRetGen(name, caller, prompts, retriever, top_k, iterations=budget.searches)
        case "search-r1":
            return SearchR1(replace(caller, think_in_format=True), prompts, retriever, top_k, budget.searches)
        case "ircot":
            return IRCoT(caller, prompts, retriever, top_k, budget.searches)
        case "flare":
            sampling = caller.sampling.model_copy(update={"logprobs": True})
            return Flare(replace(caller, sampling=sampling), prompts, retriever, top_k, budget)
        case "adaptive-rag-prompted":
            same = partial(baseline, caller=caller, prompts=prompts, retriever=retriever, top_k=top_k, budget=budget)
            return AdaptiveRag(caller, prompts, {route: same(method) for route, method in ROUTES.items()})


def conditions_of_method(method: MethodChoice, asked: EvaluationConditions) -> EvaluationConditions:
    """The conditions that apply to a method: only the agent has its prompts and an order of passages, and a method
    without search has no retriever."""
    if method.of_agent:
        return asked
    none = ["renderer", "passage_order"]  # the baselines show the best first, as published
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
        return {"method": method.name, "renderer": renderer_hash(prompts), "prompts": prompts.hash} | asked
    return {"method": method.name, "baseline_prompts": baseline_hash(baselines, method.name, prompts)} | asked
