"""The interface of a method, and its result: an answer or none, the steps to it, and the passages
read.

Separates methods (the agent and the baselines) from the metrics. Knows neither prompts nor scores.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.evaluation.predictions import PredictedStep


@dataclass(frozen=True, slots=True)
class Attempt:
    """How a question was answered once. answer: None where there is none.

    searches: queries that were sent to the retriever. read: distinct passages shown, in the order in which they were.
    votes: the answers of all attempts, where several voted.
    """

    answer: str | None
    steps: tuple[PredictedStep, ...]
    searches: int = 0
    read: tuple[Passage, ...] = field(default=())
    votes: tuple[str | None, ...] = ()

    @property
    def malformed(self) -> bool:
        """Whether some reply could not be read, also after its repair turn."""
        return any(step.parse_error is not None for step in self.steps)


class Method(Protocol):
    """A way to answer questions."""

    async def answer(self, question: Question) -> Attempt:
        """Raises ModelError and RetrievalError where model or retriever fail; a bad reply is no error."""
        ...
