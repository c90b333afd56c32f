"""A search tool in Hermes' text form, which is what the chat templates of Qwen2.5, Qwen3 and Qwen3-Instruct-2507 render
of native tools and their calls, byte for byte; and the way between the two.

Decides the notation alone. Knows no agent, and what a search finds only as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from preference import Message
from reasonrag.errors import InputError
from reasonrag.files import read_small

_FILES = resources.files("reasonrag").joinpath("prompts", "hermes")
SEARCH: Final = "search"
TOOL: Final = json.loads(_FILES.joinpath("search.json").read_text("utf-8"))
SIGNATURE: Final = "\n\n" + _FILES.joinpath("signature.txt").read_text("utf-8").replace("{tool}", json.dumps(TOOL))
"""What the templates put behind the text of the system turn."""
_CALLED = re.compile(r"(.*?)\n?<tool_call>\n(.*)\n</tool_call>", re.DOTALL)
_RESPONSE = re.compile(r"<tool_response>\n(.*)\n</tool_response>", re.DOTALL)
_WRITES_OTHER = re.compile(r"qwen-?(3\.[5-9]|[4-9]|3-coder)", re.IGNORECASE)
"""Names of models whose chat templates write calls as `<function=..>`."""


def check_notation(model: str, say: Callable[[str], None]) -> None:
    """Raises InputError for a model's folder whose chat template writes calls otherwise; of a model that is not here
    its name tells, which is said."""
    files = [Path(model) / each for each in ("chat_template.jinja", "tokenizer_config.json")]
    other = "calls of tools in another notation than Hermes', in which the agent tools asks for them"
    if any(each.is_file() and "<function=" in read_small(each).decode(errors="replace") for each in files):
        raise InputError(f"the chat template of {model} writes {other}: take another --agent, or Qwen2.5 or Qwen3")
    if _WRITES_OTHER.search(model):
        say(f"{model}, by its name, was trained on {other}")


def call_text(thought: str, name: object, arguments: object) -> str:
    """An assistant's turn that calls a tool."""
    said = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"{thought}\n<tool_call>\n{said}\n</tool_call>".removeprefix("\n")


def native_fields(messages: Sequence[Message]) -> dict[str, Any]:
    """A conversation with native tools, as fields of a request's body; none for one that has no tools."""
    if messages[0].role == "system" and not messages[0].content.endswith(SIGNATURE):
        return {}
    return {"messages": with_call_ids(native_turns(messages)), "tools": [TOOL]}


def with_call_ids(turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Native turns, each call tied to what it found by an id, and its arguments as text; changes the turns."""
    for number, turn in enumerate(turns):
        if turn["role"] == "tool":
            turn["tool_call_id"] = f"call_{number - 1}"
        for call in turn.get("tool_calls", ()):
            call["id"] = f"call_{number}"
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    return turns


def native_turns(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """A conversation as chat templates take it: searches as `tool_calls`, whose arguments are an object, and what they
    found as turns of the role `tool`."""
    turns: list[dict[str, Any]] = []
    for turn, after in zip_longest(messages, messages[1:]):
        response = _RESPONSE.fullmatch(turn.content) if turn.role == "user" else None
        searches = turn.role == "assistant" and (not after or _RESPONSE.fullmatch(after.content))
        if searches and (call := _searched(turn.content)):
            turns.append(call)
        elif response and turns and "tool_calls" in turns[-1]:
            turns.append({"role": "tool", "content": response[1]})
        else:
            turns.append({"role": turn.role, "content": turn.content.removesuffix(SIGNATURE)})
    return turns


def _searched(text: str) -> dict[str, Any] | None:
    """The turn of a reply that searches, as `call_text` writes it; None for any other."""
    if not (call := _CALLED.fullmatch(text)):
        return None
    try:
        arguments = {"query": str(json.loads(call[2])["arguments"]["query"])}
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    if text != call_text(call[1], SEARCH, arguments):
        return None
    function = {"name": SEARCH, "arguments": arguments}
    return {"role": "assistant", "content": call[1], "tool_calls": [{"type": "function", "function": function}]}


def sharegpt_turns(messages: Sequence[Message]) -> list[dict[str, str]]:
    """User and assistant turns as LLaMA-Factory reads them: calls stay text, and what they found is an observation."""
    turns = []
    for turn in messages:
        response = _RESPONSE.fullmatch(turn.content) if turn.role == "user" else None
        name = "gpt" if turn.role == "assistant" else "observation" if response else "human"
        turns.append({"from": name, "value": response[1] if response else turn.content})
    return turns


def turns_of_sharegpt(turns: Iterable[Mapping[str, str]]) -> list[Message]:
    """The turns that `sharegpt_turns` wrote. Raises KeyError for another kind of turn."""
    roles = {"human": "user", "gpt": "assistant", "observation": "user"}
    found = []
    for turn in turns:
        role, text = roles[turn["from"]], turn["value"]
        text = f"<tool_response>\n{text}\n</tool_response>" if turn["from"] == "observation" else text
        found.append(Message.model_validate({"role": role, "content": text}))
    return found


def with_calls(text: str, calls: object) -> str:
    """A reply's text with its native calls behind it, which may be anything."""
    for call in calls if isinstance(calls, list) else ():
        try:
            text = call_text(text, call["function"]["name"], json.loads(call["function"]["arguments"]))
        except (KeyError, TypeError, ValueError, RecursionError):
            text = call_text(text, None, None)
    return text
