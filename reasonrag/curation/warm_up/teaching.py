"""What a teacher writes for a question with sub-questions, and the steps of an agent that are made of it.

Decides both requests and how replies are read. The agent renders every state from the whole history, as at evaluation;
`decompositions` decides what may not be said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from preference import ActionType, Message, QuestionError, Usage
from preference.candidate_records import PathStep
from preference.export.sanitize import plain_text
from reasonrag.agent.agent import Agent
from reasonrag.agent.model_calls import Judgement, ModelCaller, Spending
from reasonrag.agent.parsing import ParseError, parse_tagged
from reasonrag.agent.prompting import folded, inert
from reasonrag.curation.warm_up.decompositions import LeftOut, SubQuestion, later_answer
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.errors import ModelError
from reasonrag.llm.chat import Completion, estimate_tokens
from reasonrag.llm.endpoint.endings import ending_of
from reasonrag.llm.expected_usage import FEWEST_TOKENS, VERBOSE_REPLY_TOKENS, ExpectedUsage, Range
from reasonrag.llm.prices import Price
from reasonrag.rendering import counted
from reasonrag.run.engine import Asked

TEACHER = "model"
_SHORT_LINE_TOKENS = 10
_NUMBERED = re.compile(r"^\s*\d+\s*[.):]\s*(\S.*)$", re.MULTILINE)
_DOES: dict[ActionType, str] = {"query": "search", "evidence": "report", "answer": "answer"}
Steps = Sequence[tuple[ActionType, str]]
"""2n + 1 of them: a search and a report for each sub-question, then the answer."""


class Decomposed(NamedTuple):
    question: Question
    subs: list[SubQuestion]

    def steps(self, queries: Iterable[str]) -> Steps:
        found = list[tuple[ActionType, str]]()
        for query, each in zip(queries, self.subs, strict=True):
            found += [("query", query), ("evidence", each.answer)]
        return [*found, ("answer", self.question.golden_answers[0])]


class Taught(NamedTuple):
    """path: the agent's steps; None where there are none, which `error` explains."""

    usage: Usage
    path: list[PathStep] | None = None
    error: QuestionError | None = None


@dataclass
class Found:
    """A retriever that finds what was chosen, by the query."""

    by_query: dict[str, Sequence[Passage]]
    identity: str = ""

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        return list(self.by_query[query][:top_k])


@dataclass(frozen=True)
class Teaching:
    """The work of the teacher, as a `Work`. agent: whose steps are made; it is asked nothing. taught: by the question's
    id."""

    decomposed: Sequence[Decomposed]
    agent: Agent
    at_once: int
    price: Price | None
    taught: dict[str, Taught] = field(default_factory=dict)
    noun: str = "question"

    def items(self) -> Sequence[Decomposed]:
        return self.decomposed

    def question_of(self, item: Decomposed) -> str:
        return item.question.id

    async def do(self, item: Decomposed, asked: Asked) -> None:
        agent, spending, path, error = self.agent, Spending(), None, None
        caller = ModelCaller(asked.models[TEACHER], agent.prompts, agent.sampling, agent.seed, spending)
        try:
            path = await self._path(item, caller)
        except LeftOut as left:
            error = QuestionError(cause=left.cause, message=str(left))
        except ModelError as failed:
            cause, message = asked.failure(failed, "question", {"question_id": item.question.id})
            error = QuestionError(cause=cause, message=message)
        self.taught[item.question.id] = Taught(spending.as_usage(self.price), path, error)

    async def _path(self, item: Decomposed, caller: ModelCaller) -> list[PathStep]:
        """Raises LeftOut, ModelError."""
        queries = await _lines(caller, item, self._for_questions(item), "questions", len(item.subs))
        if len(set(queries)) < len(queries):
            raise LeftOut("repeated_query", "the teacher writes two sub-questions alike")
        steps = item.steps(queries)
        thoughts = await _lines(caller, item, self._for_thoughts(item, steps), "steps", len(steps))
        contents = [content for _, content in steps]
        if found := later_answer(item.question, item.subs, zip(thoughts, contents, strict=True)):
            raise LeftOut("later_answer", found)
        found_by = Found(
            {plain_text(query).strip(): each.shown for query, each in zip(queries, item.subs, strict=True)}
        )
        return await path_of(replace(self.agent, retriever=found_by), item.question, steps, thoughts)

    def _for_questions(self, item: Decomposed) -> tuple[Message, ...]:
        return self._request("rephrase", item, ("Sub-question", ((each.question, "") for each in item.subs)))

    def _for_thoughts(self, item: Decomposed, steps: Steps) -> tuple[Message, ...]:
        return self._request("narrate", item, ("Step", ((said, f", {_DOES[kind]}") for kind, said in steps)))

    def _request(
        self, prompt: str, item: Decomposed, listed: tuple[str, Iterable[tuple[str, str]]]
    ) -> tuple[Message, ...]:
        name, lines = listed
        shown = [f"Question: {_line(item.question.question)}"]
        shown += [f"{name} {number}{kind}: {_line(said)}" for number, (said, kind) in enumerate(lines, start=1)]
        system = Message(role="system", content=self.agent.prompts[prompt])
        return system, Message(role="user", content="\n".join(shown))

    def described(self, count: int) -> str:
        return counted(count, self.noun)

    async def expected(
        self,
        owed: Iterable[Decomposed],
        count: int,  # noqa: ARG002 - of the prompts
        fresh: int = 0,  # noqa: ARG002 - what a question has is two replies, which may need a repair
        roles: Sequence[str] = (),  # noqa: ARG002 - there is one
    ) -> list[ExpectedUsage]:
        """Low: replies as short as they can be; high: each is verbose, and repaired."""
        requests = prompts = lines = 0
        for item in owed:
            steps = item.steps(each.question for each in item.subs)
            turns = [*self._for_questions(item), *self._for_thoughts(item, steps)]
            requests, lines = requests + 2, lines + len(item.subs) + len(steps)
            prompts += sum(estimate_tokens(turn.content) for turn in turns)
        asked = Range(low=requests, high=2 * requests)
        replies = Range(low=_SHORT_LINE_TOKENS * lines, high=2 * VERBOSE_REPLY_TOKENS * lines)
        return [ExpectedUsage(asked, asked, Range(low=FEWEST_TOKENS * prompts, high=3 * prompts), replies)]


async def path_of(agent: Agent, question: Question, steps: Steps, thoughts: Sequence[str]) -> list[PathStep]:
    """The steps as the agent takes them. One that reads and goes on in one turn has a report's thought before the next
    one's. Raises LeftOut where a reply would be read as another step."""
    path, state, before = list[PathStep](), agent.start(question), ""
    for (kind, content), own in zip(steps, thoughts, strict=True):
        thought, before = f"{before} {own}".strip(), ""
        if kind == "evidence" and agent.protocol.reads_at_once:
            before = thought
            continue
        taken = agent.step_of(state, agent.protocol.reply(kind, thought, content))
        if taken.action_type != kind or taken.content != plain_text(content).strip():
            why = taken.parse_error.detail if taken.parse_error else f"it says {taken.content!r}"
            raise LeftOut("no_step", f"a reply at layer {state.layer} is not read as the step that it is of: {why}")
        prompt, response = list(taken.prompt), taken.response
        path.append(PathStep(layer=state.layer, action_type=kind, prompt=prompt, response=response, content=content))
        if not taken.terminal:
            state = await agent.next_state(taken)
    return path


async def _lines(
    caller: ModelCaller, item: Decomposed, messages: tuple[Message, ...], tag: str, wanted: int
) -> list[str]:
    """The numbered lines of a reply. Raises LeftOut where they are not as many as wanted, or there are none."""

    def read(reply: Completion) -> list[str] | None:
        found = parse_tagged(reply.text, tags=(tag,), ending=ending_of(reply))
        return None if isinstance(found, ParseError) else [_line(each) for each in _NUMBERED.findall(found.content)]

    said: Judgement[list[str]] = await caller.judgement(
        item.question.id, messages, 0, tag=tag, wanted=f"{wanted} numbered lines", read=read
    )
    if said.value is None:
        raise LeftOut(
            "unreadable", f"after a repair turn, too, a reply has no <{tag}>: {(said.unreadable or '')[:200]!r}"
        )
    if len(said.value) != wanted:
        raise LeftOut("counts_differ", f"<{tag}> has {counted(len(said.value), 'numbered line')}, not {wanted}")
    return said.value


def _line(text: str) -> str:
    return inert(folded(text))
