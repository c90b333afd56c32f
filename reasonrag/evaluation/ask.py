"""`reasonrag ask`: one question, answered once by the agent, with its steps shown as they are taken.

Writes nothing. Built from the same parts as `evaluate`; mismatches with the model's training are only warnings here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

from pydantic import BaseModel

from preference.records import PassageRef, shared_fields
from reasonrag.agent.agent import AgentStep
from reasonrag.concurrency import run_to_end
from reasonrag.data.datasets import find_corpus
from reasonrag.data.questions import Question
from reasonrag.data.settings import QuestionSettings
from reasonrag.errors import InputError
from reasonrag.evaluation.methods.linear_agent import LinearAgent
from reasonrag.evaluation.plan import AskedModel, Parts
from reasonrag.evaluation.predictions import PredictedStep
from reasonrag.evaluation.settings import AskSettings
from reasonrag.exploration.summary import AGAINST
from reasonrag.llm.budget import Caps, Ledger, Tokens
from reasonrag.llm.chat import ChatModel, ChatRequest, Completion, WrappedModel
from reasonrag.llm.model_spec import check_prices
from reasonrag.llm.reasoning import stopped_in_reasoning
from reasonrag.llm.settings import BudgetSettings
from reasonrag.progress import SilentWatcher, Watcher, warn_all
from reasonrag.rendering import Part, Shown, counted, dollars, tokens_text
from reasonrag.retrieval.opening import object_or_name
from reasonrag.retrieval.retriever import Retriever
from reasonrag.retrieval.settings import RetrievalSettings
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.terminal import show


class _CappedModel(WrappedModel):
    """A `ChatModel` whose spending is counted and capped, without a journal."""

    def __init__(self, inner: ChatModel, ledger: Ledger) -> None:
        super().__init__(inner)
        self._ledger = ledger

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        reserved = await self._ledger.reserve(request)
        try:
            completions = list(await self.inner.complete(request))
            self._ledger.settle(completions)
        finally:
            self._ledger.give_back(reserved)
        for place, each in enumerate(completions):
            if stopped_in_reasoning(request, each):
                [completions[place]] = await self.complete(request.draws(place, place + 1).without_stop())
        return completions


class AgentAnswer(BaseModel, Shown):
    """The agent's answer to one question."""

    question: str
    answer: str | None
    """Null if a reply could not be parsed."""
    model: str
    steps: list[PredictedStep]
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
    warnings: list[str]

    def shown(self) -> Iterator[Part]:
        yield ""
        yield from (f"evidence: {each}" for each in self.evidence)
        yield from (f"source: {each.title} [{each.id}]" for each in self.sources)
        last = self.steps[-1].parse_error if self.steps else None
        helps = f"; {AGAINST[last]}" if last in AGAINST else ""
        answer = f"none: the last reply was unreadable{helps}" if self.answer is None else self.answer
        unfound = " (not found in the passages read)" if self.answer is not None and self.grounded is False else ""
        yield f"answer: {answer}{unfound}"
        asked = f"{counted(self.searches, 'search')}, {counted(self.calls, 'completion')}"
        cost = "cost unknown" if self.cost_usd is None else dollars(self.cost_usd)
        yield f"{asked}, {tokens_text(self, ' tokens')}, {cost}"


def show_step(step: AgentStep, recorded: PredictedStep) -> None:
    """A step as it is taken: the passages before it, or what a reader found in them, too; then the whole reply."""
    show(f"  {place}. {each.title} [{each.id}]" for place, each in enumerate(recorded.passages, start=1))
    show([] if recorded.observation is None else [f"  reader: {recorded.observation or 'nothing was found'}"])
    error = step.parse_error
    why = f" (unreadable: {error.cause}, {error.detail})" if error else ""
    repaired = " (repaired)" if step.repaired else ""
    show([f"{recorded.action}{why}{repaired}: {step.response}"])


@public_call(AskSettings)
def ask(
    question: str,
    *,
    chat_model: ChatModel | None = None,
    retriever: Retriever | str | None = None,
    watcher: Watcher | None = None,
    told: Callable[[AgentStep, PredictedStep], None] = lambda _, __: None,
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
            `complete(request)` and `check()` (`reasonrag.llm.chat.ChatModel`).
        retriever: used instead of the one that the settings would build, or its name, as `retriever` in
            reasonrag.toml.
        watcher: is told what happens while it goes on; none: silent.
        told: called with every step as it is taken, and what is recorded of it.
    """
    retriever, named = object_or_name(retriever)
    settings = resolve(AskSettings, "ask", flags | named)
    if not question.strip():
        raise InputError("the question is blank")
    asked = Question(id="asked", question=question.strip())
    heard = watcher or SilentWatcher()

    async def answered() -> AgentAnswer:
        async with AsyncExitStack() as opened:
            parts = Parts(opened, heard.say, chat_model, retriever=retriever)
            return await _ask(asked, settings, parts, heard, told)

    return run_to_end(answered())


async def _ask(
    question: Question,
    settings: AskSettings,
    parts: Parts,
    watcher: Watcher,
    told: Callable[[AgentStep, PredictedStep], None],
) -> AgentAnswer:
    steps: list[AgentStep] = []
    retrieval = settings.part(RetrievalSettings)
    needed = not (parts.retriever or retrieval.has_corpus)
    corpus = find_corpus(settings.part(QuestionSettings), retrieval.index_home, needed=needed)
    asked = AskedModel.of(settings, parts)
    if settings.max_cost is not None:
        check_prices(watcher.say, asked.spec, asked.reader, given=settings.price, capped=True)
    asked = await asked.opened(parts, corpus)
    chat_model = await parts.open_model(asked.subject, asked.spec)
    await chat_model.check()
    warnings = asked.lineage.warnings([question], asked.asked)
    warn_all(warnings, watcher)
    ledgers = [Ledger(asked.spec.price, Caps.of(settings.part(BudgetSettings)))]

    def hear(step: AgentStep, recorded: PredictedStep) -> None:
        steps.append(step)
        told(step, recorded)

    reader = None
    if asked.reader:
        ledgers.append(ledgers[0].beside(asked.reader.price, Tokens()))
        reader = _CappedModel(asked.reader.open(parts.opened, say=parts.say), ledgers[1])
        await reader.check()
    agent = asked.agent(_CappedModel(chat_model, ledgers[0]), reader)
    attempt = await LinearAgent(agent).attempt(question, hear)
    spent = sum((each.spent for each in ledgers), start=Tokens())
    return AgentAnswer(
        **shared_fields(attempt, AgentAnswer) | shared_fields(spent, AgentAnswer),
        question=question.question,
        model=asked.spec.name,
        evidence=[step.content for step in steps if step.action_type == "evidence" and step.content],
        sources=[each.reference() for each in attempt.read],
        grounded=steps[-1].grounded,
        cost_usd=ledgers[0].cost,
        warnings=warnings,
    )
