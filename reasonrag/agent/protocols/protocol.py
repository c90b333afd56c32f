"""What makes an agent: from a state to messages, from a reply to a step. `Agent` does everything else."""

from __future__ import annotations

from typing import Protocol

from preference import ActionType, Message
from reasonrag.agent.parsing import ParsedReply, ParseError
from reasonrag.agent.prompting import Prompts
from reasonrag.agent.state import State
from reasonrag.llm.endpoint.endings import Ending
from reasonrag.retrieval.settings import PassageOrder


class AgentProtocol(Protocol):
    """Its system prompts are files, see `Prompts`.

    reads_at_once: whether the turn after a query sees what was found and goes on from there; else it reports evidence,
        and the next turn goes on. has_reader: whether it is shown a short answer to its query, which a reader finds in
        the passages (`reader.txt`), in their place.
    """

    @property
    def reads_at_once(self) -> bool: ...
    @property
    def has_reader(self) -> bool: ...

    def messages(self, prompts: Prompts, state: State, order: PassageOrder) -> tuple[Message, ...]:
        """What the model is shown in a state. order: of the passages of one search."""
        ...

    def stops(self, state: State) -> tuple[str, ...]:
        """Where a reply may be cut."""
        ...

    def parse(self, text: str, state: State, ending: Ending) -> ParsedReply | ParseError:
        """The step of a reply, which holds no reasoning any more."""
        ...

    def reply(self, action_type: ActionType, thought: str, content: str) -> str:
        """A reply that takes this step: what `parse` reads back."""
        ...
