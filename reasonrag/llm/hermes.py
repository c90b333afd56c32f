"""The search tool in Hermes' text form: what the chat templates of Qwen2.5, Qwen3 and Qwen3-Instruct-2507 render of
native tools and their calls, byte for byte.

Decides the notation alone. Knows no agent, and what a search finds only as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

SEARCH: Final = "search"
TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": SEARCH,
        "description": "Search the collection of documents.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What to search for"}},
            "required": ["query"],
        },
    },
}
SIGNATURE: Final = (
    "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n"
    f"<tools>\n{json.dumps(TOOL)}\n</tools>\n\n"
    "For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML "
    'tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)
"""What the templates put behind the text of the system turn."""


def call_text(thought: str, name: str, arguments: object) -> str:
    """An assistant's turn that calls a tool."""
    said = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"{thought}\n<tool_call>\n{said}\n</tool_call>".removeprefix("\n")


def response_text(lines: Iterable[str]) -> str:
    """The user's turn with what a call gave."""
    return "\n".join(["<tool_response>", *lines, "</tool_response>"])
