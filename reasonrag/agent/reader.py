"""The reader of agents that are shown a short answer to each query, and no passages."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from preference import Message
from preference.export.sanitize import plain_text
from reasonrag.agent.model_calls import ModelCaller
from reasonrag.agent.parsing import TaggedReply, parse_tagged
from reasonrag.agent.prompting import document_lines, one_line
from reasonrag.agent.protocols.known import read_by
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.errors import InputError
from reasonrag.llm.endpoint.endings import ending_of
from reasonrag.llm.endpoint.endpoint import READER_KEY_VARIABLE
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.llm.settings import ModelSettings

_Place: TypeAlias = tuple[str, tuple[Message, ...]]


def find_reader(model: ModelSpec, reader: ModelSettings, agent: str) -> ModelSpec | None:
    """The model that reads, beside the one that takes the steps; None: that one reads. agent: its name, or that of
    another method. Raises InputError for an agent without a reader, and for the same model."""
    if reader.model is None:
        if reader.base_url:
            raise InputError("--reader-base-url needs a reader: give --reader-model, or leave it out")
        return None
    flag, name = "--reader-model", reader.model
    if read_by(agent, name, None) is None:
        raise InputError(f"{flag} {name}: {agent} has no reader, search-o1 and re2search have; leave it out")
    if name == model.name:
        raise InputError(f"{flag} {name} is the model itself, which reads by default; leave it out")
    return model.second(reader, name, name_flag=flag, key_variable=READER_KEY_VARIABLE).likeliest("reader")


@dataclass(frozen=True)
class Readings:
    """What was read, by question and prompt: a run's agents share it, as no draw is asked for twice."""

    known: dict[_Place, str] = field(default_factory=dict)
    asking: defaultdict[_Place, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def read(self, caller: ModelCaller, question: Question, query: str, passages: Sequence[Passage]) -> str:
        """The answer to a query in the passages that it found, at temperature 0; empty where the reader's reply cannot
        be read. Raises ModelError.

        The same words in search, in training data and in evaluation, as they are part of the agent's prompt.
        """
        asked = [f"Question: {one_line(question.question)}", f"Query: {one_line(query)}"]
        told = "\n".join([*asked, *document_lines(passages)])
        messages = (Message(role="system", content=caller.prompts["reader"]), Message(role="user", content=told))
        place = question.id, messages
        async with self.asking[place]:
            if place not in self.known:
                self.known[place] = await _answer(caller, question, messages)
        return self.known[place]


async def _answer(caller: ModelCaller, question: Question, messages: tuple[Message, ...]) -> str:
    sampling = caller.sampling.model_copy(update={"temperature": 0.0, "top_p": 1.0})
    asked = caller.request(question.id, messages, [0], ("</answer>",), sampling)
    [completion] = await caller.complete(asked)
    found = await caller.read(
        asked,
        completion,
        lambda said: parse_tagged(plain_text(said.text), tags=("answer",), ending=ending_of(said)),
        sample=0,
    )
    return found.content.content if isinstance(found.content, TaggedReply) else ""
