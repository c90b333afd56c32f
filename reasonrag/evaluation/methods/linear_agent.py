"""The agent as a method: one attempt at one question, or several that vote. Knows neither files nor metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from preference.answer_scores import normalize_answer
from preference.records import shared_fields
from reasonrag.agent.agent import Agent, AgentStep
from reasonrag.agent.model_calls import Spending
from reasonrag.concurrency import together
from reasonrag.data.multiple_choice import in_words
from reasonrag.data.questions import Question
from reasonrag.evaluation.methods.method import Attempt
from reasonrag.evaluation.predictions import PredictedStep
from reasonrag.llm.critic import Critic


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
        return await self.anew().attempt(question)

    def anew(self) -> LinearAgent:
        """For another question, or the same again: nothing was read yet, so that all of it is counted."""
        return replace(self, agent=self.agent.anew(self.agent.model))

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
        state, taken, searches = agent.start(question), list[PredictedStep](), 0
        while True:
            searches += state.reads
            drafts = await agent.sample(state, range(self.draws) if self.critic else [sample])
            step, recorded = await self._chosen(drafts)
            taken.append(recorded)
            told(step, recorded)
            if step.terminal:
                break
            state = await agent.next_state(step)
        return Attempt(answer=step.content, steps=tuple(taken), searches=searches, read=step.state.read)

    async def _chosen(self, drafts: Sequence[AgentStep]) -> tuple[AgentStep, PredictedStep]:
        """The best of the drafts, with what is recorded of it."""
        chosen, parsed = drafts[0], [each for each in drafts if not each.parse_error]
        if self.critic is None:
            return chosen, _recorded(chosen)
        drawn: dict[str, float] = {"drafts": len(drafts)}
        if parsed:
            said, question = [each.response for each in parsed], chosen.state.question
            scores = await self.critic.scores(chosen.prompt, said, question_id=question.id)
            chosen, drawn["score"] = parsed[scores.index(max(scores))], max(scores)
        return chosen, _recorded(chosen).model_copy(update=drawn)


@dataclass(frozen=True)
class MajorityVote:
    """Self-consistency: of several attempts the answer on which most agree, but for case, articles, punctuation and the
    letter of an option; the earliest of equals. Its attempt is recorded, with the searches of all."""

    agent: LinearAgent
    votes: int

    async def answer(self, question: Question) -> Attempt:
        agent = self.agent.anew()
        attempts = await together(*(agent.attempt(question, sample=number) for number in range(self.votes)))
        votes = tuple(each.answer for each in attempts)
        said = [None if each is None else normalize_answer(in_words(question.question, each)) for each in votes]
        agreed = Counter(each for each in said if each is not None).most_common(1)  # of equals the one given first
        chosen = attempts[said.index(agreed[0][0])] if agreed else attempts[0]
        return replace(chosen, searches=sum(each.searches for each in attempts), votes=votes)


def _recorded(step: AgentStep) -> PredictedStep:
    error = step.parse_error.cause if step.parse_error else None
    return PredictedStep(
        **shared_fields(step, PredictedStep) | {"parse_error": error},
        action=step.state.action,
        passages=step.passage_refs or [],
        observation=step.observation,
    )
