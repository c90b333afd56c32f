"""A search tool in Hermes' text form, which is what the chat templates of Qwen2.5, Qwen3 and Qwen3-Instruct-2507 render
of native tools and their calls, byte for byte; and the way between the two.

Decides the notation alone. Knows no agent, and what a search finds only as text.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Final

_FILES = resources.files("reasonrag").joinpath("prompts", "agents", "tools")
SEARCH: Final = "search"
TOOL: Final = json.loads(_FILES.joinpath("search.json").read_text("utf-8"))
SIGNATURE: Final = "\n\n" + _FILES.joinpath("signature.txt").read_text("utf-8").replace("{tool}", json.dumps(TOOL))
"""What the templates put behind the text of the system turn."""


def call_text(thought: str, name: object, arguments: object) -> str:
    """An assistant's turn that calls a tool."""
    said = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"{thought}\n<tool_call>\n{said}\n</tool_call>".removeprefix("\n")
