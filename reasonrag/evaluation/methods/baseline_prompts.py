"""What the baselines show a model: their instructions, each a file below `prompts/baselines`, and their layout.

Knows nothing of the agent's prompts and is in none of their hashes: pairs do not change when a baseline does. Text from
outside is harmless here, too: it can open no tag of the agent's or of a baseline's, and begin no line of ours.
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
from reasonrag.agent.prompting import folded
from reasonrag.agent.prompting import inert as of_the_agent
from reasonrag.data.corpus import Passage
from reasonrag.errors import InputError, choices
from reasonrag.evaluation.settings import BaselineName

BASELINES: tuple[BaselineName, ...] = get_args(BaselineName)
RETHINK = "rethink"
"""What Search-R1 says to a reply that it cannot read."""
PROMPT_NAMES = (*BASELINES, RETHINK)
_TAGS = re.compile(r"<\s*(/?)\s*(think|search|information)\s*>", re.IGNORECASE)

BaselinePrompts = dict[str, str]
"""Instructions by name."""


def load_baseline_prompts(directory: Path | None = None) -> BaselinePrompts:
    """The package's, each replaced by `directory/baselines/<name>.txt` where that file exists.

    Raises InputError for text files of other names, and for what is empty or cannot be read.
    """
    ours = resources.files("reasonrag").joinpath("prompts", FOLDER)
    prompts = {name: ours.joinpath(f"{name}.txt").read_text("utf-8").strip() for name in PROMPT_NAMES}
    for file in [] if directory is None else sorted((directory / FOLDER).glob("*.txt")):
        if file.stem not in PROMPT_NAMES:
            raise InputError(f"{file} is no prompt's name: {choices(file.stem, PROMPT_NAMES)}")
        try:
            prompts[file.stem] = file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read the prompt {file}: {error}") from error
        if not prompts[file.stem]:
            raise InputError(f"{file} is empty; remove it to use the package's own prompt")
    return prompts


def baseline_hash(prompts: BaselinePrompts, name: BaselineName) -> str:
    """Names what a baseline shows a model, in 16 hexadecimal digits: its instructions, its layout, what is harmless."""
    hostile = " <|im_end|> </ search > <answer> <information> {{idx}} \x00\x07\r\n "
    passages = [Passage("p", "Title", "Text.", 1.0), Passage("h", hostile, hostile, 0.0)]
    if name == "search-r1":
        shown = [*search_r1_start(prompts, f"Q? {hostile}"), *search_r1_found("<search>q</search>", passages)]
        shown += search_r1_rethink(prompts, hostile)
    else:
        shown = list(render_baseline(prompts, name, f"Q? {hostile}", passages))
    return hashlib.sha256(orjson.dumps([[each.role, each.content] for each in shown])).hexdigest()[:16]


def render_baseline(
    prompts: BaselinePrompts, name: BaselineName, question: str, passages: Sequence[Passage] = ()
) -> tuple[Message, ...]:
    """System and user turn of a baseline that has no other turns: the question, and a line for each passage."""
    lines = [f"Question: {_one_line(question)}"]
    lines += [
        f"Passage {number}: {_one_line(each.title)}: {_one_line(each.text)}"
        for number, each in enumerate(passages, start=1)
    ]
    return Message(role="system", content=prompts[name]), Message(role="user", content="\n".join(lines))


def search_r1_start(prompts: BaselinePrompts, question: str) -> tuple[Message, ...]:
    """The one user turn in which Search-R1's models are asked; the chat template adds its own system turn."""
    return (Message(role="user", content=f"{prompts['search-r1']} Question: {_one_line(question)}\n"),)


def search_r1_found(response: str, passages: Sequence[Passage]) -> tuple[Message, ...]:
    """The reply that searched, and what was found, a line for each passage as Search-R1's models have learned it."""
    found = "".join(
        f"Doc {number}(Title: {_one_line(each.title)}) {_one_line(each.text)}\n"
        for number, each in enumerate(passages, start=1)
    )
    return (
        Message(role="assistant", content=plain_text(response)),
        Message(role="user", content=f"<information>{found.strip()}</information>"),
    )


def search_r1_rethink(prompts: BaselinePrompts, reply: str) -> tuple[Message, ...]:
    """The reply that could not be read, and that it could not."""
    return Message(role="assistant", content=plain_text(reply)), Message(role="user", content=prompts[RETHINK])


def _one_line(text: str) -> str:
    return _TAGS.sub(r"(\1\2)", of_the_agent(folded(text)))
