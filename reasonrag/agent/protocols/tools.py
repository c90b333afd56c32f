"""An agent that calls a search tool: each search is a turn, and what it found the next one (`reasonrag.llm.hermes`).

A reply calls the tool or answers; of both the call counts, and of several calls the first. What stands outside of it is
its thought. The last turn says that no search is left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from preference import ActionType, Message
from reasonrag.agent.parsing import DECODER, ParsedReply, ParseError, cut_off, parse_tagged, text_of
from reasonrag.agent.prompting import Prompts, document_lines, one_line
from reasonrag.agent.state import State
from reasonrag.llm.endpoint.endings import Ending
from reasonrag.llm.hermes import SEARCH, SIGNATURE, call_text
from reasonrag.retrieval.passage_length import in_order
from reasonrag.retrieval.settings import PassageOrder

_CALL, MOST_CALLS = re.compile(r"<tool_call>\s*+"), 64
"""A call, and how many of a reply are looked at: 10,000 are read as fast."""
_OWN = re.compile(r"<\s*(/?)\s*(tools|tool_call|tool_response|think)\s*>", re.IGNORECASE)
_EXPECTED = 'expected <tool_call>{"name": "search", "arguments": {"query": ..}}</tool_call>, or <answer>..</answer>'


class Tools:
    """See the module's docstring."""

    reads_at_once, has_reader = True, False

    def messages(self, prompts: Prompts, state: State, order: PassageOrder) -> tuple[Message, ...]:
        users = [f"Question: {without_tool_tags(one_line(state.question.question))}"]
        for seen in state.observed:
            found = document_lines(in_order(seen.passages if seen else (), order))
            users.append("\n".join(map(without_tool_tags, found)) or "No document was found.")
        if state.action == "conclude":
            users[-1] += f"\n{prompts['conclude']}"
        users[1:] = [f"<tool_response>\n{each}\n</tool_response>" for each in users[1:]]
        said = [Message(role="user", content=users[0])]
        for thought, response in zip(state.thoughts, users[1:], strict=True):
            said += [Message(role="assistant", content=thought), Message(role="user", content=response)]
        system = prompts.system("think", first=True, style=state.question.style) + SIGNATURE
        return Message(role="system", content=system), *said

    def stops(self, state: State) -> tuple[str, ...]:
        return ("</answer>",) if state.action == "conclude" else ("</tool_call>", "</answer>")

    def parse(self, text: str, state: State, ending: Ending) -> ParsedReply | ParseError:
        return parse_turn(text, ending, last=state.action == "conclude")

    def reply(self, action_type: ActionType, thought: str, content: str) -> str:
        if action_type == "query":
            return call_text(thought, SEARCH, {"query": content})
        return f"{thought}\n<answer>{content}</answer>"


def parse_turn(text: str, ending: Ending, *, last: bool = False) -> ParsedReply | ParseError:
    """The step of a reply. last: whether no search is left."""
    calls = list(islice(_CALL.finditer(text), MOST_CALLS))
    if calls and not last:
        return _as_query(text, calls, ending)
    found = parse_tagged(text, tags=("answer",), ending=ending)
    if isinstance(found, ParseError):
        return found if last or found.cause != "no_tag" else ParseError("no_tag", _EXPECTED)
    return ParsedReply(without_tool_tags(found.response), "answer", found.content)


def _as_query(text: str, calls: Sequence[re.Match[str]], ending: Ending) -> ParsedReply | ParseError:
    """The step of the first call whose JSON can be read."""
    for call in calls:
        try:
            said, end = DECODER.raw_decode(text, call.end())
        except (ValueError, RecursionError):
            continue
        if not isinstance(said, dict) or said.get("name") != SEARCH:
            return ParseError("wrong_tool", f"{_EXPECTED}; the only tool is {SEARCH}")
        arguments = said.get("arguments")
        query = text_of(arguments.get("query")) if isinstance(arguments, dict) else None
        if not query:
            return ParseError("wrong_value" if query is None else "empty", f"{_EXPECTED}; found no query")
        after, *others = _CALL.split(text[end:].lstrip().removeprefix("</tool_call>"))
        thought = "\n".join(filter(None, (without_tool_tags(each).strip() for each in (text[: call.start()], after))))
        response = call_text(thought, SEARCH, {"query": without_tool_tags(query)})
        return ParsedReply(response, "query", without_tool_tags(query), len(others))
    if ending == "cut":
        return cut_off(text, "<tool_call> is still open at the token limit")
    return ParseError("no_json", f"{_EXPECTED}; found no JSON behind <tool_call>")


def without_tool_tags(text: str) -> str:
    """Text that neither opens nor closes what a chat template writes around calls, responses and reasoning."""
    return _OWN.sub(r"(\1\2)", text)
