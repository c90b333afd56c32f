"""A search tool in Hermes' text form, which is what the chat templates of Qwen2.5, Qwen3 and Qwen3-Instruct-2507 render
of native tools and their calls, byte for byte; and the way between the two.

Decides the notation alone. Knows no agent, and what a search finds only as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib import resources
from itertools import zip_longest
from typing import Any, Final

from preference import Message

_FILES = resources.files("reasonrag").joinpath("prompts", "agents", "tools")
SEARCH: Final = "search"
TOOL: Final = json.loads(_FILES.joinpath("search.json").read_text("utf-8"))
SIGNATURE: Final = "\n\n" + _FILES.joinpath("signature.txt").read_text("utf-8").replace("{tool}", json.dumps(TOOL))
"""What the templates put behind the text of the system turn."""
_CALLED = re.compile(r"(.*?)\n?<tool_call>\n(.*)\n</tool_call>", re.DOTALL)
_RESPONSE = re.compile(r"<tool_response>\n(.*)\n</tool_response>", re.DOTALL)


def call_text(thought: str, name: object, arguments: object) -> str:
    """An assistant's turn that calls a tool."""
    said = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"{thought}\n<tool_call>\n{said}\n</tool_call>".removeprefix("\n")


def native_fields(messages: Sequence[Message]) -> dict[str, Any]:
    """A conversation with native tools, as fields of a request's body; none for one that has no tools."""
    if messages[0].role == "system" and not messages[0].content.endswith(SIGNATURE):
        return {}
    turns: list[dict[str, Any]] = []
    for turn, after in zip_longest(messages, messages[1:]):
        call = _CALLED.fullmatch(turn.content) if after and _RESPONSE.fullmatch(after.content) else None
        response = _RESPONSE.fullmatch(turn.content)
        if call:
            said = json.loads(call[2])
            function = {"name": said["name"], "arguments": json.dumps(said["arguments"], ensure_ascii=False)}
            calls = [{"id": f"call_{len(turns)}", "type": "function", "function": function}]
            turns.append({"role": "assistant", "content": call[1], "tool_calls": calls})
        elif response and turns[-1]["role"] == "assistant":
            turns.append({"role": "tool", "tool_call_id": f"call_{len(turns) - 1}", "content": response[1]})
        else:
            turns.append({"role": turn.role, "content": turn.content.removesuffix(SIGNATURE)})
    return {"messages": turns, "tools": [TOOL]}


def with_calls(text: str, calls: object) -> str:
    """A reply's text with its native calls behind it, which may be anything."""
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        function = function if isinstance(function, dict) else {}
        try:
            text = call_text(text, function.get("name"), json.loads(function.get("arguments") or ""))
        except (TypeError, ValueError, RecursionError):
            text = call_text(text, function.get("name"), None)
    return text
