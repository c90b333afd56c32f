"""ProRAG's agent (arXiv 2601.21912, code c7a64110): a thought and a subquery, a thought and a subanswer, in the end an
answer; everything that was retrieved stays in sight.

Departures: one user turn holds the history, where ProRAG goes on in one assistant turn; the program decides whose turn
it is, by what the last step was; the last step must answer, unless the recipe (`prorag`) forces no answer.
"""

from __future__ import annotations

import re

from preference import ActionType, AgentAction, Message
from reasonrag.agent.parsing import ParsedReply, ParseError, parse_tagged
from reasonrag.agent.prompting import Prompts, as_thought, one_line
from reasonrag.agent.state import State
from reasonrag.llm.endpoint.endings import Ending
from reasonrag.retrieval.passage_length import in_order
from reasonrag.retrieval.settings import PassageOrder

TYPES: dict[str, ActionType] = {"subquery": "query", "subanswer": "evidence", "answer": "answer"}
TAGS: dict[AgentAction, tuple[str, ...]] = {
    "think": ("subquery", "answer"),
    "read": ("subanswer",),
    "conclude": ("answer",),
}
"""What each turn may say."""
_RETRIEVAL = re.compile(r"<\s*(/?)\s*(retrieval)\s*>", re.IGNORECASE)
_OWN = re.compile(r"<\s*(/?)\s*(retrieval|step|subquery|subanswer)\s*>", re.IGNORECASE)


def parse_step(text: str, may: tuple[str, ...], ending: Ending) -> ParsedReply | ParseError:
    """The step of a reply that may end with one of these tags; one with a tag of another turn is none."""
    found = parse_tagged(text, tags=may, ending=ending, others=tuple(TYPES))
    return found if isinstance(found, ParseError) else ParsedReply(found.response, TYPES[found.tag], found.content)


class ProRag:
    """Steps are `<step>thought</step>`, with what the step says in a tag behind it."""

    reads_at_once, has_reader = False, False

    def messages(self, prompts: Prompts, state: State, order: PassageOrder) -> tuple[Message, ...]:
        shown = [f"Question: {_inert(state.question.question)}"]
        for thought, seen in zip(state.thoughts, state.observed, strict=True):
            shown.append(_RETRIEVAL.sub(r"(\1\2)", as_thought(thought)))
            if seen is not None:
                found = enumerate(in_order(seen.passages, order), start=1)
                documents = [f"Doc {number}(Title: {_inert(each.title)}) {_inert(each.text)}" for number, each in found]
                shown += ["<retrieval>", *documents, "</retrieval>"]
        system = prompts.system(state.action, first=not state.thoughts, style=state.question.style)
        return Message(role="system", content=system), Message(role="user", content="\n".join(shown))

    def stops(self, state: State) -> tuple[str, ...]:
        return tuple(f"</{tag}>" for tag in TAGS[state.action])

    def parse(self, text: str, state: State, ending: Ending) -> ParsedReply | ParseError:
        return parse_step(text, TAGS[state.action], ending)

    def reply(self, action_type: ActionType, thought: str, content: str) -> str:
        tag = next(each for each, means in TYPES.items() if means == action_type)
        return f"<step>{_inert(thought)}</step>\n<{tag}>{_inert(content)}</{tag}>"


def _inert(text: str) -> str:
    """Untrusted text on one line that opens none of these tags."""
    return _OWN.sub(r"(\1\2)", one_line(text))
