"""Search-o1 as RAG-Gym has it (arXiv 2501.05366, 2502.13957): queries and a reader's answers, then the next action.

The reader is asked once for a query and its documents, at temperature 0. Departure: RAG-Gym shows its critic and its
training a Python list of answers and its agent the text; here all are shown the text.
"""

from __future__ import annotations

from preference import Message
from reasonrag.agent.parsing import ParsedReply, ParseError
from reasonrag.agent.prompting import Prompts
from reasonrag.agent.protocols.json_reply import answers, query_or_answer, turns
from reasonrag.agent.state import State
from reasonrag.llm.endpoint.endings import Ending
from reasonrag.retrieval.settings import PassageOrder


class SearchO1:
    """A query and an answer in one object: the query counts."""

    reads_at_once, has_reader = True, True

    def messages(self, prompts: Prompts, state: State, order: PassageOrder) -> tuple[Message, ...]:  # noqa: ARG002
        return turns(prompts, state, answers(state))

    def stops(self, state: State) -> tuple[str, ...]:  # noqa: ARG002 - the protocol's
        return ()

    def parse(self, text: str, state: State, ending: Ending) -> ParsedReply | ParseError:
        return query_or_answer(text, state, ending)
