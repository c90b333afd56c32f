"""What an agent has seen: the state in which it takes a step. Knows no prompt, no reply and no tree."""

from __future__ import annotations

from typing import NamedTuple

from preference import AgentAction
from reasonrag.agent.parsing import ParseError
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question


class Observation(NamedTuple):
    """What was shown after a query. passages: best first. said: a reader's short answer, shown instead of them."""

    query: str
    passages: tuple[Passage, ...]
    said: str | None = None


class State(NamedTuple):
    """What the agent has seen. `passages`: those this turn reads, best first; `read`: all passages shown so far,
    including these; `evidence`: what earlier turns reported from them; `ended`: why no step can be taken; `observed`:
    by thought, what was shown after it, if it searched."""

    question: Question
    action: AgentAction
    layer: int
    thoughts: tuple[str, ...] = ()
    passages: tuple[Passage, ...] = ()
    read: tuple[Passage, ...] = ()
    evidence: tuple[str, ...] = ()
    ended: ParseError | None = None
    observed: tuple[Observation | None, ...] = ()

    @property
    def reads(self) -> bool:
        """Whether the last step searched, so that this turn is the first to see what was found."""
        return self.action == "read" or (bool(self.observed) and self.observed[-1] is not None)
