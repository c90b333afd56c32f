"""ReAct as RAG-Gym has it (arXiv 2210.03629, 2502.13957): queries and the documents they found, then the next action.

Departures: RAG-Gym gives the last turn a prompt of its own only at inference, here it has one everywhere; documents
stand behind the question, each on a line.
"""

from __future__ import annotations

from preference import Message
from reasonrag.agent.parsing import ParsedReply, ParseError
from reasonrag.agent.prompting import Prompts
from reasonrag.agent.protocols.json_reply import documents, query_or_answer, turns
from reasonrag.agent.state import State
from reasonrag.llm.endpoint.endings import Ending
from reasonrag.retrieval.settings import PassageOrder


class ReAct:
    """A query and an answer in one object: the query counts."""

    reads_at_once, has_reader = True, False

    def messages(self, prompts: Prompts, state: State, order: PassageOrder) -> tuple[Message, ...]:
        return turns(prompts, state, documents(state, order))

    def stops(self, state: State) -> tuple[str, ...]:  # noqa: ARG002 - the protocol's
        return ()

    def parse(self, text: str, state: State, ending: Ending) -> ParsedReply | ParseError:
        return query_or_answer(text, state, ending)
