"""`reasonrag ask`: one question, answered once by the agent, with its steps shown as they are taken.

Writes nothing. Built from the same parts as `evaluate`; mismatches with the model's training are only warnings here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Literal

from pydantic import BaseModel

from preference.records import ParseFailure, PassageRef
from reasonrag.agent.agent import Agent, AgentStep
from reasonrag.agent.from_settings import caps_of, find_corpus
from reasonrag.agent.prompting import load_prompts, renderer_hash, style_recorded
from reasonrag.concurrency import run_to_end
from reasonrag.data.questions import Question
from reasonrag.errors import InputError
from reasonrag.evaluation.evaluated_model.evaluated_model import open_evaluated_model
from reasonrag.evaluation.evaluated_model.provenance_check import ProvenanceCheck
from reasonrag.evaluation.from_settings import (
    asked_as_trained,
    evaluated_spec,
    find_evaluated_model,
    find_step_critic,
    with_temperature,
)
from reasonrag.evaluation.methods.from_settings import LinearAgent
from reasonrag.evaluation.predictions import PredictedStep
from reasonrag.evaluation.report import EvaluationConditions
from reasonrag.evaluation.settings import AskSettings
from reasonrag.llm.budget import Ledger, Tokens
from reasonrag.llm.chat import ChatModel, ChatRequest, Completion, WrappedModel
from reasonrag.llm.critic import Critic, open_critic
from reasonrag.llm.model_spec import check_prices
from reasonrag.llm.reasoning import stopped_in_reasoning
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.retrieval.from_settings import object_or_name, open_retriever
from reasonrag.retrieval.passage_length import order_recorded, with_passages_cut
from reasonrag.retrieval.retriever import Retriever
from reasonrag.settings import resolve
from reasonrag.signatures import public_call

QUESTION_ID = "asked"


class _CappedModel(WrappedModel):
    """A `ChatModel` whose spending is counted and capped, without a journal."""

    def __init__(self, inner: ChatModel, ledger: Ledger) -> None:
        super().__init__(inner)
        self._ledger = ledger

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        async with self._ledger.reserve(request) as reservation:
            completions = list(await self.inner.complete(request))
            reservation.settle(completions)
        for place, each in enumerate(completions):
            if stopped_in_reasoning(request, each):
                [completions[place]] = await self.complete(request.draws(place, place + 1).without_stop())
        return completions


class TakenStep(BaseModel):
    """A step on the way to the answer."""

    action: Literal["think", "read", "conclude"]
    response: str
    reasoning: str = ""
    """What the model said before its response."""
    action_type: str | None
    content: str | None
    passages: list[PassageRef] = []
    parse_error: ParseFailure | None = None
    repaired: bool = False
    drafts: int = 0
    """With --best-of: the replies that were drawn in this state, of which this is one."""
    score: float | None = None
    """With --best-of: the critic's; null if no draft took a step."""


class AgentAnswer(BaseModel):
    """The agent's answer to one question."""

    question: str
    answer: str | None
    """Null if a reply could not be parsed."""
    model: str
    steps: list[TakenStep]
    evidence: list[str]
    """Evidence reported from the passages, in order."""
    sources: list[PassageRef]
    """The passages shown, each once."""
    grounded: bool | None
    """Whether a shown passage contains the answer; null if not applicable."""
    searches: int
    calls: int
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int = 0
    """Completion tokens that are reasoning."""
    cost_usd: float | None
    critic: str | None = None
    scores: int = 0
    """Steps that the critic scored."""
    critic_prompt_tokens: int = 0
    warnings: list[str]


@public_call(AskSettings)
def ask(
    question: str,
    *,
    chat_model: ChatModel | None = None,
    critic_model: ChatModel | None = None,
    retriever: Retriever | str | None = None,
    watcher: Watcher | None = None,
    told: Callable[[TakenStep], None] = lambda _: None,
    **flags: Any,
) -> AgentAnswer:
    """Answer one question with the agent, and write no file.

    Raises InputError before any request, ModelError and RetrievalError if no answer can be obtained, CapReached if
    the next request could exceed a cap.

    Example:
        >>> found = reasonrag.ask("Who was born first, Bam Traecel or Bex Traecel?", dataset="atlas", model="offline")
        >>> type(found.answer)
        <class 'str'>

    Args:
        question: the question, in words.
        chat_model: used instead of the model that the settings would open: any object with `name`, and coroutines
            `complete(request)`, `check()` and `close()` (`reasonrag.llm.chat.ChatModel`).
        critic_model: used instead of the critic that the settings would open; its replies are numbers.
        retriever: used instead of the one that the settings would build, or its name, as `retriever` in
            reasonrag.toml.
        watcher: is told what happens while it goes on; none: silent.
        told: called with every step as it is taken.
    """
    retriever, named = object_or_name(retriever)
    settings = resolve(AskSettings, "ask", flags | named)
    if not question.strip():
        raise InputError("the question is blank")
    asked = Question(id=QUESTION_ID, question=question.strip())
    settings = with_temperature(settings, critic=bool(settings.critic or critic_model))
    models = chat_model, critic_model
    return run_to_end(_ask(asked, settings, models, retriever, watcher=watcher or SilentWatcher(), told=told))


async def _ask(
    question: Question,
    settings: AskSettings,
    models: tuple[ChatModel | None, ChatModel | None],
    retriever: Retriever | None,
    *,
    watcher: Watcher,
    told: Callable[[TakenStep], None],
) -> AgentAnswer:
    steps: list[AgentStep] = []
    taken_steps: list[TakenStep] = []
    chat_model, critic_model = models
    subject = find_evaluated_model(settings, chat_model)
    lineage = ProvenanceCheck.of(subject, settings.trained_on)
    settings, taken = asked_as_trained(settings, lineage.sources)
    if taken:
        watcher.say(taken)
    prompts = load_prompts(settings.prompts, settings.style)
    spec = evaluated_spec(subject, settings)
    if settings.max_cost is not None:
        check_prices(watcher.say, spec, capped=True)
    scorer = find_step_critic(
        settings, spec, critic_model, renderer=renderer_hash(prompts), questions=[question.question]
    )
    corpus = None if retriever else find_corpus(settings)
    async with AsyncExitStack() as opened:
        if chat_model is None:
            chat_model = await open_evaluated_model(subject, spec, opened, say=watcher.say)
        spec = spec if subject.served_here else await spec.settled(chat_model)
        if retriever is None:
            retriever = await open_retriever(
                settings, corpus, opened, say=watcher.say, before_building=[chat_model.check]
            )
        retriever = with_passages_cut(retriever, settings.max_passage_chars)
        await chat_model.check()
        asked = EvaluationConditions(
            renderer=renderer_hash(prompts),
            top_k=settings.top_k,
            max_passage_chars=settings.max_passage_chars,
            passage_order=order_recorded(settings.order),
            style=style_recorded(settings.style),
            retriever=retriever.identity,
            max_steps=settings.steps,
        )
        warnings = [*lineage.warnings([question], asked), *(scorer.warnings if scorer else ())]
        for warning in warnings:
            watcher.warn(warning)
        ledger = Ledger(spec.price, caps_of(settings))
        model = _CappedModel(chat_model, ledger)
        critic = None
        if scorer:
            critic_model = critic_model or await open_critic(
                scorer.found, scorer.spec, opened, say=watcher.say, beside=subject.served_here
            )
            await critic_model.check()
            scores = _CappedModel(critic_model, ledger.beside(scorer.spec.price, Tokens()))
            critic = Critic(scores)
        agent = Agent(
            model,
            retriever,
            prompts,
            spec.sampling,
            settings.top_k,
            settings.steps,
            settings.seed,
            passage_order=settings.order,
        )

        def hear(step: AgentStep, recorded: PredictedStep) -> None:
            steps.append(step)
            taken_steps.append(_taken(step, recorded))
            told(taken_steps[-1])

        attempt = await LinearAgent(agent, critic, settings.draws).attempt(question, hear)
    return AgentAnswer(
        question=question.question,
        answer=attempt.answer,
        model=spec.name,
        steps=taken_steps,
        evidence=[step.content for step in steps if step.action_type == "evidence" and step.content],
        sources=[each.reference() for each in attempt.read],
        grounded=steps[-1].grounded,
        searches=attempt.searches,
        calls=ledger.spent.calls,
        prompt_tokens=ledger.spent.prompt,
        completion_tokens=ledger.spent.completion,
        reasoning_tokens=ledger.spent.reasoning,
        cost_usd=ledger.cost,
        critic=scorer.found.name if scorer else None,
        scores=critic.spent.calls if critic else 0,
        critic_prompt_tokens=critic.spent.prompt if critic else 0,
        warnings=warnings,
    )


def _taken(step: AgentStep, recorded: PredictedStep) -> TakenStep:
    return TakenStep(
        action=step.state.action,
        response=step.response,
        reasoning=step.reasoning,
        action_type=step.action_type,
        content=step.content,
        passages=step.passage_refs or [],
        parse_error=step.parse_error,
        repaired=step.repaired,
        drafts=recorded.drafts,
        score=recorded.score,
    )
