"""ReasonRAG's agent (arXiv 2505.14069): think, read, conclude. The layout is the contract with RAG_ProGuide."""

from __future__ import annotations

from preference import ActionType, Message
from reasonrag.agent.parsing import TURN_TAGS, ParsedReply, ParseError, parse_reply
from reasonrag.agent.prompting import Prompts, render_prompt
from reasonrag.agent.state import State
from reasonrag.llm.endpoint.endings import Ending
from reasonrag.retrieval.passage_length import in_order
from reasonrag.retrieval.settings import PassageOrder

LEADS: dict[ActionType, str] = {
    "query": "So the next query is",
    "evidence": "Based on the query, the relevant evidence is",
    "answer": "So the answer is",
}


class ReasonRag:
    """Passages are shown to the one turn that reads them; what it reports stays as a thought."""

    reads_at_once, has_reader = False, False

    def messages(self, prompts: Prompts, state: State, order: PassageOrder) -> tuple[Message, ...]:
        asked, shown = state.question, in_order(state.passages, order)
        return render_prompt(
            prompts, state.action, question=asked.question, thoughts=state.thoughts, passages=shown, style=asked.style
        )

    def stops(self, state: State) -> tuple[str, ...]:
        return tuple(f"</{tag}>" for tag in TURN_TAGS[state.action])

    def parse(self, text: str, state: State, ending: Ending) -> ParsedReply | ParseError:
        return parse_reply(text, action=state.action, ending=ending)

    def reply(self, action_type: ActionType, thought: str, content: str) -> str:
        return f"{thought} {LEADS[action_type]} <{action_type}>{content}</{action_type}>"
