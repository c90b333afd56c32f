"""An agent's states for a policy of your own, in a trainer of reinforcement for instance.

Decides nothing of its own: prompts, parser, step budget, searches and rewards are those of `generate` and `evaluate`.
Knows no model, so that a reply which cannot be read has no repair turn, and agents with a reader are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from reasonrag.agent.agent import Agent
from reasonrag.agent.outcomes import OF_GOLDEN_ANSWERS, outcome_of
from reasonrag.agent.prompting import load_prompts
from reasonrag.agent.settings import AGENTS, OURS, AgentName
from reasonrag.agent.state import State
from reasonrag.concurrency import run_to_end
from reasonrag.data.questions import Question
from reasonrag.errors import InputError, choices
from reasonrag.llm.chat import Sampling
from reasonrag.llm.offline import OfflineTeacher
from reasonrag.retrieval.opening import open_index
from reasonrag.retrieval.retriever import Retriever

Messages = list[dict[str, str]]


class Turn(NamedTuple):
    """What a reply leads to.

    observation: the next messages; none at the end. reward: in [0, 1], of the answer; 0 before it, and for a reply that
        is no step.
    """

    observation: Messages
    reward: float
    done: bool


class Environment:
    """One question after another, a reply at a time: the states, budget and outcomes of an agent.

    Works inside a running event loop, too. Raises InputError for an agent with a reader, whose words a model gives; and
    RetrievalError where a search fails.

    Example:
        >>> world = reasonrag.Environment(retriever="indexes/handbook", max_steps=3)
        >>> asked = world.reset("How long is the leave of parents?", ["14 months"])
        >>> asked[0]["role"], asked[-1]["content"]
        ('system', 'Question: How long is the leave of parents?')
        >>> found = world.step("So the next query is <query>leave of parents</query>")
        >>> "Up to 14 months together." in found.observation[-1]["content"]
        True
        >>> world.step("<evidence>14 months</evidence>").done
        False
        >>> world.step("So the answer is <answer>14 months</answer>")
        Turn(observation=[], reward=1.0, done=True)

    Args:
        retriever: an object with `identity` and a coroutine `retrieve(query, top_k)`, or the folder of an index.
        agent: its name, as `--agent` takes it.
        prompts: folder of prompts in place of the package's.
        top_k: passages of a search.
        max_steps: most replies, the conclusion included.
        outcome: measure of an answer against gold answers, as `--outcome` takes it.
    """

    def __init__(
        self,
        *,
        retriever: Retriever | Path | str,
        agent: AgentName = OURS,
        prompts: Path | str | None = None,
        top_k: int = 3,
        max_steps: int = 7,
        outcome: str = "f1",
    ) -> None:
        if outcome not in OF_GOLDEN_ANSWERS:
            raise InputError(f"outcome {outcome!r}: {choices(outcome, OF_GOLDEN_ANSWERS)}")
        if agent not in AGENTS:
            raise InputError(f"agent {agent!r}: {choices(agent, AGENTS)}")
        opened = open_index(Path(retriever)) if isinstance(retriever, Path | str) else retriever
        told = load_prompts(Path(prompts) if prompts else None, agent=agent)
        sampling = Sampling(temperature=1, top_p=1, max_tokens=1)
        self._agent = Agent(OfflineTeacher(), opened, told, sampling, top_k, max_steps, 0)  # its model is never asked
        if self._agent.protocol.has_reader:
            raise InputError(f"the agent {agent} has a reader, which needs a model: choose another one")
        self._outcome = outcome
        self._state: State | None = None
        """None before the first question and after an end."""

    def reset(self, question: str, golden_answers: Sequence[str] = (), question_id: str = "question") -> Messages:
        """Begin a question; its first messages."""
        asked = Question(id=question_id, question=question, golden_answers=list(golden_answers))
        self._state = self._agent.start(asked)
        return self._shown(self._state)

    def step(self, reply: str) -> Turn:
        """Take the step of a whole reply. Raises InputError before `reset`, and after an end."""
        if self._state is None:
            raise InputError("the question has ended, or none was begun: call reset")
        step = self._agent.step_of(self._state, reply)
        after = None if step.terminal else run_to_end(self._agent.next_state(step))
        self._state = None if after is None or after.ended else after
        if self._state is None:
            return Turn([], outcome_of(step, self._outcome, language=self._agent.language) or 0.0, done=True)
        return Turn(self._shown(self._state), 0.0, done=False)

    def _shown(self, state: State) -> Messages:
        return [each.model_dump() for each in self._agent.prompt_of(state)]
