"""RAG-Gym's agents (arXiv 2502.13957): a reply ends with a JSON object, and the history stands behind the question.

ReAct (arXiv 2210.03629) is shown the documents that its queries found. Search-o1 (arXiv 2501.05366) is shown a reader's
short answers in their place; the reader is asked once for a query and its documents, at temperature 0. Re2Search
(section 3.3) has the history of Search-o1; it answers first, then asks for what the history does not hold.

Departures: RAG-Gym gives the last turn a prompt of its own only at inference, here it has one everywhere; each document
stands on a line; RAG-Gym shows its critic and its training a Python list of a reader's answers and its agent the text,
here all are shown the text.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from preference import ActionType, Message
from reasonrag.agent.parsing import ParsedReply, ParseError
from reasonrag.agent.prompting import Prompts
from reasonrag.agent.protocols.json_reading import ANSWER, QUERY, answers, as_step, documents, read_object, turns
from reasonrag.agent.state import State
from reasonrag.llm.endpoint.endings import Ending
from reasonrag.retrieval.settings import PassageOrder


@dataclass(frozen=True)
class JsonAgent:
    """ReAct, or with a reader Search-o1: of a query and an answer in one object the query counts."""

    has_reader: bool
    reads_at_once: bool = True

    def messages(self, prompts: Prompts, state: State, order: PassageOrder) -> tuple[Message, ...]:
        return turns(prompts, state, answers(state) if self.has_reader else documents(state, order))

    def stops(self, state: State) -> tuple[str, ...]:  # noqa: ARG002 - the protocol's
        return ()

    def parse(self, text: str, state: State, ending: Ending) -> ParsedReply | ParseError:
        wanted = (ANSWER,) if state.action == "conclude" else (QUERY, ANSWER)
        found = read_object(text, ending, wanted)
        if isinstance(found, ParseError):
            return found
        response, said = found
        return as_step(response, said, next(each for each in wanted if each in said))

    def reply(self, action_type: ActionType, thought: str, content: str) -> str:
        return f"{thought} {orjson.dumps({action_type: content}).decode()}"


class Re2Search(JsonAgent):
    """An answer is wanted in every reply: one without is unreadable, whatever it asks for. The query counts where there
    is one; without, and in the last turn, the answer does."""

    def parse(self, text: str, state: State, ending: Ending) -> ParsedReply | ParseError:
        found = read_object(text, ending, (ANSWER, QUERY))
        if isinstance(found, ParseError):
            return found
        response, said = found
        if ANSWER not in said:
            return ParseError("no_answer", 'expected a JSON object with "answer", and with "query" if a claim is open')
        return as_step(response, said, QUERY if QUERY in said and state.action != "conclude" else ANSWER)
