"""Re2Search of RAG-Gym (arXiv 2502.13957, section 3.3): it answers first, then asks for what the history does not hold.

The history is that of Search-o1: queries and a reader's short answers. Of a reply the query counts where there is one;
without, and in the last turn, its answer does.
"""

from __future__ import annotations

from preference import Message
from reasonrag.agent.parsing import ParsedReply, ParseError
from reasonrag.agent.prompting import Prompts
from reasonrag.agent.protocols.json_reply import ANSWER, QUERY, answers, as_step, read_object, turns
from reasonrag.agent.state import State
from reasonrag.llm.endpoint.endings import Ending
from reasonrag.retrieval.settings import PassageOrder


class Re2Search:
    """An answer is wanted in every reply: one without is unreadable, whatever it asks for."""

    reads_at_once, has_reader = True, True

    def messages(self, prompts: Prompts, state: State, order: PassageOrder) -> tuple[Message, ...]:  # noqa: ARG002
        return turns(prompts, state, answers(state))

    def stops(self, state: State) -> tuple[str, ...]:  # noqa: ARG002 - the protocol's
        return ()

    def parse(self, text: str, state: State, ending: Ending) -> ParsedReply | ParseError:
        found = read_object(text, ending, (ANSWER, QUERY))
        if isinstance(found, ParseError):
            return found
        response, said = found
        if ANSWER not in said:
            return ParseError("no_answer", 'expected a JSON object with "answer", and with "query" if a claim is open')
        return as_step(response, said, QUERY if QUERY in said and state.action != "conclude" else ANSWER)
