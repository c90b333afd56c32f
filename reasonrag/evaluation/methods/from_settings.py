"""Which method the settings name, and the agent as a method: one attempt at one question, or several that vote.

Knows neither files nor metrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from preference.answer_scores import normalize_answer
from reasonrag.agent.agent import Agent, AgentStep
from reasonrag.agent.model_calls import ModelCaller, Spending
from reasonrag.agent.prompting import Prompts, renderer_hash
from reasonrag.concurrency import together
from reasonrag.data.corpus import Passage
from reasonrag.data.multiple_choice import in_words
from reasonrag.data.questions import Question
from reasonrag.errors import InputError
from reasonrag.evaluation.methods.adaptive_rag import AdaptiveRag
from reasonrag.evaluation.methods.baseline_prompts import ROUTES, BaselinePrompts, baseline_hash, load_baseline_prompts
from reasonrag.evaluation.methods.closed_book import ClosedBook
from reasonrag.evaluation.methods.flare import Flare
from reasonrag.evaluation.methods.ircot import IRCoT
from reasonrag.evaluation.methods.iter_retgen import IterRetGen
from reasonrag.evaluation.methods.method import Attempt, Method, StepBudget
from reasonrag.evaluation.methods.search_r1 import SearchR1
from reasonrag.evaluation.predictions import PredictedStep
from reasonrag.evaluation.report import EvaluationConditions
from reasonrag.evaluation.settings import SEARCHLESS, BaselineName, EvaluateSettings, MethodName
from reasonrag.llm.critic import Critic
from reasonrag.retrieval.retriever import Retriever


class NoRetriever:
    """The retriever of methods that do not search: no index is opened for it."""

    identity = "none"

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:  # noqa: ARG002 - a retriever's
        return []


def method_for(
    settings: EvaluateSettings, agent: Agent, prompts: BaselinePrompts, critic: Critic | None = None
) -> Method:
    """The method that the settings name. agent: the one that is evaluated; a baseline asks its model and searches its
    retriever. critic: chooses among draws."""
    if settings.method == "agent" and settings.vote:
        return MajorityVote(LinearAgent(agent), settings.vote)
    if settings.method == "agent":
        return LinearAgent(agent, critic, settings.draws)
    return baseline(
        settings.method,
        caller=agent.caller,
        prompts=prompts,
        retriever=agent.retriever,
        top_k=agent.top_k,
        budget=step_budget(settings),
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


def step_budget(settings: EvaluateSettings) -> StepBudget:
    """What an attempt may use. Raises InputError for a method that searches, with a budget for no search."""
    budget = StepBudget.of(settings.steps)
    if settings.method not in ("agent", *SEARCHLESS) and not budget.searches:
        raise InputError(
            f"--max-steps {settings.steps} leaves no search to --method {settings.method}: N steps are at most N "
            "completions and (N-1)//2 searches. Give 3 or more"
        )
    return budget


def most_replies(settings: EvaluateSettings) -> int:
    """Most replies of one attempt, repair turns apart."""
    budget = StepBudget.of(settings.steps)
    beside_searches = {"iter-retgen": 0, "search-r1": 1, "ircot": 0, "adaptive-rag-prompted": 1}
    if settings.method in ("agent", "flare"):
        return budget.completions * settings.draws
    return budget.searches + beside_searches[settings.method] if settings.method in beside_searches else 1


def conditions_of_method(method: MethodName, asked: EvaluationConditions) -> EvaluationConditions:
    """The conditions that apply to a method: only the agent has its prompts and an order of passages, and a method
    without search has no retriever."""
    if method == "agent":
        return asked
    none = ["renderer", "passage_order"]  # the baselines show the best first, as published
    none += ["top_k", "retriever", "max_passage_chars"] if method in SEARCHLESS else []
    return asked.model_copy(update=dict.fromkeys(none))


def method_identity(settings: EvaluateSettings, prompts: Prompts, critic: str | None = None) -> dict[str, Any]:
    """What decides a method's answers beside questions, retriever, model, sampling and seed: for the configuration.
    critic: its name."""
    asked: dict[str, Any] = {"max_steps": settings.steps} | ({} if settings.repair else {"repair": False})
    asked |= {"vote": settings.vote} if settings.vote else {}
    asked |= {"best_of": settings.best_of, "critic": critic} if critic else {}
    if settings.method == "agent":
        return {"method": settings.method, "renderer": renderer_hash(prompts), "prompts": prompts.hash} | asked
    shown = baseline_hash(load_baseline_prompts(settings.prompts), settings.method, prompts)
    return {"method": settings.method, "baseline_prompts": shown} | asked


@dataclass(frozen=True)
class LinearAgent:
    """The agent as a trained model is used: one step per state, without a search over steps.

    critic: chooses the step among `draws` in every state, if given (RAG-Gym, arXiv 2502.13957, Algorithm 1). Drafts
    that take no step are chosen only where all are such; of equal scores the earliest is taken. A reply that takes no
    step, even after its repair turn, ends the attempt without an answer.
    """

    agent: Agent
    critic: Critic | None = None
    draws: int = 1

    async def answer(self, question: Question) -> Attempt:
        return await self.attempt(question)

    async def attempt(
        self,
        question: Question,
        told: Callable[[AgentStep, PredictedStep], None] = lambda _, __: None,
        *,
        sample: int = 0,
    ) -> Attempt:
        """One attempt. told: called with every step as it is taken, and what is recorded of it. sample: number of its
        draws. Raises ModelError and RetrievalError."""
        agent = replace(self.agent, spending=Spending())
        state, taken = agent.start(question), list[PredictedStep]()
        while True:
            drafts = await agent.sample(state, range(self.draws) if self.critic else [sample])
            step, recorded = await self._chosen(drafts)
            taken.append(recorded)
            told(step, recorded)
            if step.terminal:
                break
            state = await agent.next_state(step)
        return Attempt(
            answer=step.content,
            steps=tuple(taken),
            searches=sum(each.action == "read" for each in taken),
            read=step.state.read,
        )

    async def _chosen(self, drafts: Sequence[AgentStep]) -> tuple[AgentStep, PredictedStep]:
        """The best of the drafts, with what is recorded of it and of the others."""
        parsed = [each for each in drafts if not each.parse_error]
        if self.critic is None:
            return drafts[0], _recorded(drafts[0])
        if not parsed:
            return drafts[0], _recorded(drafts[0]).model_copy(update={"drafts": len(drafts)})
        state = drafts[0].state
        scores = await self.critic.scores(
            drafts[0].prompt, [each.response for each in parsed], question_id=state.question.id
        )
        best = max(range(len(parsed)), key=lambda place: (scores[place], -place))
        others = {each.response: score for each, score in zip(parsed, scores, strict=True)}
        others.pop(parsed[best].response)
        recorded = _recorded(parsed[best])
        return parsed[best], recorded.model_copy(
            update={
                "drafts": len(drafts),
                "score": scores[best],
                "passed_over": sorted(others.items(), key=lambda each: -each[1]),
            }
        )


@dataclass(frozen=True)
class MajorityVote:
    """Self-consistency: several attempts at a question, and the answer on which most agree, but for case, articles,
    punctuation and the letter of an option; the earliest of equals. Its attempt is the one that is recorded, with the
    searches of all."""

    agent: LinearAgent
    votes: int

    async def answer(self, question: Question) -> Attempt:
        attempts = await together(*(self.agent.attempt(question, sample=number) for number in range(self.votes)))
        said = [None if each.answer is None else in_words(question.question, each.answer) for each in attempts]
        given = [None if each is None else normalize_answer(each) for each in said]
        counted = Counter(each for each in given if each is not None)
        most = max(counted.values(), default=0)
        agreed = (place for place, each in enumerate(given) if each is not None and counted[each] == most)
        chosen = attempts[next(agreed, 0)]
        return replace(
            chosen,
            searches=sum(each.searches for each in attempts),
            votes=tuple(each.answer for each in attempts),
        )


def _recorded(step: AgentStep) -> PredictedStep:
    return PredictedStep(
        action=step.state.action,
        response=step.response,
        reasoning=step.reasoning,
        content=step.content,
        passages=step.passage_refs or [],
        parse_error=step.parse_error.cause if step.parse_error else None,
        repaired=step.repaired,
    )
