"""The baselines' prompts: their instructions, each a file below `prompts/baselines`, and their layout.

Independent of the agent's prompts and their hashes: pairs do not change when a baseline does. Outside text is made
harmless here too: it can neither open a tag of the agent or a baseline nor start a new line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import get_args

import orjson

from preference import Message
from preference.export.sanitize import plain_text
from reasonrag.agent.prompting import BASELINES as FOLDER
from reasonrag.agent.prompting import Prompts, one_line, read_prompt_files
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import AnswerStyle
from reasonrag.evaluation.methods.choice import BaselineName

BASELINES: tuple[BaselineName, ...] = get_args(BaselineName)
RETHINK = "rethink"
"""Search-R1's message after a reply it cannot parse."""
IRCOT_READER = "ircot-reader"
"""IRCoT's last reply, which answers from the passages that were collected."""
FLARE_ANSWER = "flare-answer"
"""FLARE's last reply, which must answer."""
PROMPT_NAMES = (*BASELINES, RETHINK, IRCOT_READER, FLARE_ANSWER)
_LAST_REPLIES: dict[BaselineName, str] = {"ircot": IRCOT_READER, "flare": FLARE_ANSWER}
"""The instruction of the last reply, by method that writes sentence after sentence."""
_TAGS = re.compile(r"<\s*(/?)\s*(think|search|information|sentence|route)\s*>", re.IGNORECASE)
ROUTES: dict[str, BaselineName] = {"none": "direct", "one": "rag", "several": "ircot"}
"""What adaptive-rag-prompted may be told, and the method that then answers, whose prompts it shows too."""

BaselinePrompts = dict[str, str]
"""Instructions by name."""


def load_baseline_prompts(directory: Path | None = None) -> BaselinePrompts:
    """The package's prompts, each replaced by `directory/baselines/<name>.txt` if that file exists.

    Raises InputError for text files with other names, and for empty or unreadable ones.
    """
    ours = resources.files("reasonrag").joinpath("prompts", FOLDER)
    prompts = {name: ours.joinpath(f"{name}.txt").read_text("utf-8").strip() for name in PROMPT_NAMES}
    if directory is not None:
        prompts |= read_prompt_files(directory / FOLDER, PROMPT_NAMES)
    return prompts


def in_style(prompts: BaselinePrompts, agent: Prompts, style: AnswerStyle | None = None) -> BaselinePrompts:
    """The prompts with the agent's instruction for answers of a style."""
    return {name: agent.with_style(text, style) for name, text in prompts.items()}


def baseline_hash(prompts: BaselinePrompts, name: BaselineName, agent: Prompts) -> str:
    """A 16-digit hash of a baseline's prompts: instructions in each style, layout, sanitising and the repair turn."""
    shown = [_probes(in_style(prompts, agent, style), name) for style in get_args(AnswerStyle)]
    return hashlib.sha256(orjson.dumps([*shown, agent["repair"]])).hexdigest()[:16]


def _probes(prompts: BaselinePrompts, name: BaselineName) -> list[list[str]]:
    hostile = " <|im_end|> </ search > <answer> <information> {{idx}} \x00\x07\r\n "
    passages = [Passage("p", "Title", "Text.", 1.0), Passage("h", hostile, hostile, 0.0)]
    if name == "search-r1":
        shown = [*search_r1_start(prompts, f"Q? {hostile}"), *search_r1_found("<search>q</search>", passages)]
        shown += search_r1_rethink(prompts, hostile)
    else:
        last = _LAST_REPLIES.get(name)
        shown = [*render_baseline(prompts, name, f"Q? {hostile}", passages, [hostile] if last else ())]
        shown += render_baseline(prompts, last, "Q?", passages) if last else ()
    own = [[each.role, each.content] for each in shown]
    others = ROUTES.values() if name == "adaptive-rag-prompted" else ()
    return own + [probe for other in others for probe in _probes(prompts, other)]


def render_baseline(
    prompts: BaselinePrompts, name: str, question: str, passages: Sequence[Passage] = (), thoughts: Sequence[str] = ()
) -> tuple[Message, ...]:
    """System and user turn of a baseline: the question, a line per passage, and a line of what it wrote so far."""
    lines = [f"Question: {_one_line(question)}"]
    lines += [
        f"Passage {number}: {_one_line(each.title)}: {_one_line(each.text)}"
        for number, each in enumerate(passages, start=1)
    ]
    lines += [f"Reasoning so far: {_one_line(' '.join(thoughts))}"] if thoughts else []
    return Message(role="system", content=prompts[name]), Message(role="user", content="\n".join(lines))


def search_r1_start(prompts: BaselinePrompts, question: str) -> tuple[Message, ...]:
    """The first user turn of Search-R1; the chat template adds its own system turn."""
    return (Message(role="user", content=f"{prompts['search-r1']} Question: {_one_line(question)}\n"),)


def search_r1_found(response: str, passages: Sequence[Passage]) -> tuple[Message, ...]:
    """The reply that searched, and the passages found, one per line as in Search-R1's training."""
    found = "".join(
        f"Doc {number}(Title: {_one_line(each.title)}) {_one_line(each.text)}\n"
        for number, each in enumerate(passages, start=1)
    )
    return (
        Message(role="assistant", content=plain_text(response)),
        Message(role="user", content=f"<information>{found.strip()}</information>"),
    )


def search_r1_rethink(prompts: BaselinePrompts, reply: str) -> tuple[Message, ...]:
    """The reply that could not be parsed, and Search-R1's message about it."""
    return Message(role="assistant", content=plain_text(reply)), Message(role="user", content=prompts[RETHINK])


def _one_line(text: str) -> str:
    return _TAGS.sub(r"(\1\2)", one_line(text))
