"""What a method's name stands for, with those methods that take a few lines, and what of a method decides its answers.

Knows neither files nor metrics; the methods know no golden answer and no score.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from reasonrag.agent.agent import Agent
from reasonrag.agent.parsing import ParseError, TaggedReply
from reasonrag.agent.prompting import Prompts
from reasonrag.agent.protocols.known import renderer_hash
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.evaluation.methods.baseline import BaselineAttempt
from reasonrag.evaluation.methods.baseline_prompts import ROUTES, BaselinePrompts, baseline_hash, in_style
from reasonrag.evaluation.methods.choice import MethodChoice
from reasonrag.evaluation.methods.flare import flare
from reasonrag.evaluation.methods.ircot import ircot
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


_ANSWER_TAG = re.compile(r"<\s*/?\s*answer\s*>", re.IGNORECASE)


async def iter_retgen(name: str, at: BaselineAttempt) -> str | None:
    """Iterates: search with the question and the last generation, generate from the passages; the last generation
    answers (arXiv 2305.15294, section 3). With one iteration: standard RAG.

    name: `iter-retgen`, or `rag`, whose instruction asks for the answer without reasoning. Departures from the
    publication: it shows demonstrations, here the instruction alone says what is wanted; its query has the generation
    before the question, here the question is first, so that a cut at the longest query takes nothing of it; the common
    budget says how many iterations there are, and --top-k how many passages each shows.
    """
    answer, generated = None, ""
    for iteration in range(1 if name == "rag" else at.choice.most_searches):
        found = await at.search(f"{at.question.question} {generated}")
        # the same passages make the same prompt, whose next draw must be another one
        answer = await at.answered(name, found, sample=iteration)
        generated = _ANSWER_TAG.sub(" ", at.steps[-1].response)
    return answer


async def adaptive_rag(at: BaselineAttempt) -> str | None:
    """Adaptive-RAG, prompted: one reply says how much a question needs, and another method answers it (arXiv
    2403.14403). A route that cannot be read ends the attempt without an answer.

    Departures: there a T5 model chooses, trained on which method answered which question, here the evaluated model
    itself, as the name tells; the methods behind it depart from their own publications as they say.
    """
    reply = await at.ask("route", at.prompt("adaptive-rag-prompted"), ("route",), check=_known_route)
    if isinstance(reply.content, ParseError):
        return None
    return await _BASELINES[ROUTES[reply.content.content.casefold()]](at)


def _known_route(reply: TaggedReply) -> TaggedReply | ParseError:
    if reply.content.casefold() in ROUTES:
        return reply
    return ParseError("wrong_tag", f"expected {', '.join(ROUTES)} inside <route>; found {reply.content!r}")


_BASELINES: dict[str, Callable[[BaselineAttempt], Awaitable[str | None]]] = {
    "direct": lambda at: at.answered("direct"),
    "cot": lambda at: at.answered("cot"),
    "rag": partial(iter_retgen, "rag"),
    "iter-retgen": partial(iter_retgen, "iter-retgen"),
    "search-r1": search_r1,
    "ircot": ircot,
    "flare": flare,
    "adaptive-rag-prompted": adaptive_rag,
}


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
    """What decides a method's answers beside questions, retriever, model, sampling and seed. critic: its name."""
    asked: dict[str, Any] = {"max_steps": method.steps} | ({} if method.repair else {"repair": False})
    asked |= {"vote": method.vote} if method.vote else {}
    asked |= {"best_of": method.best_of, "critic": critic} if critic else {}
    if method.name == "agent":
        asked |= prompts.agent_identity
        return {"method": method.name, "renderer": renderer_hash(prompts), "prompts": prompts.hash_with()} | asked
    return {"method": method.name, "baseline_prompts": baseline_hash(baselines, method.name, prompts)} | asked
