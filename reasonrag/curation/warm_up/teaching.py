"""What a teacher writes for a question with sub-questions, and the steps of an agent that are made of it.

Decides both requests and how replies are read. The agent renders every state from the whole history, as at evaluation;
`decompositions` decides what may not be said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from preference import ActionType, Message, QuestionError, Usage
from preference.candidate_records import PathStep, question_key
from preference.export.sanitize import plain_text
from reasonrag.agent.agent import Agent
from reasonrag.agent.parsing import ParseError, parse_tagged
from reasonrag.agent.prompting import Prompts, one_line
from reasonrag.curation.left_out import LeftOut, needed
from reasonrag.curation.warm_up.decompositions import CAUSES, SubQuestion, gold_is_apart, refuse_later_answers
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.errors import ModelError
from reasonrag.llm.endpoint.endings import Ending
from reasonrag.llm.expected_usage import ExpectedUsage
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.rendering import counted
from reasonrag.run.engine import Asked

TEACHER = "model"
_SHORT_LINE_TOKENS = 10
_NUMBER = r"[ \t]*(\d+)[ \t]*[.):][ \t]*"
_NUMBERED = re.compile(rf"^{_NUMBER}(\S.*(?:\n(?!{_NUMBER}).*\S.*)*)$", re.MULTILINE)
"""A number, then a text, which may go on in further lines."""
_DOES: dict[ActionType, str] = {"query": "search", "evidence": "report", "answer": "answer"}


class Taught(NamedTuple):
    """path: the agent's steps; None where there are none, which `error` explains."""

    usage: Usage = Usage(cost_usd=0.0)
    path: list[PathStep] | None = None
    error: QuestionError | None = None


class Decomposed(NamedTuple):
    question: Question
    subs: list[SubQuestion]

    def steps(self, queries: Iterable[str]) -> list[tuple[ActionType, str]]:
        """2n + 1 of them: a search and a report for each sub-question, then the answer."""
        found = list[tuple[ActionType, str]]()
        for query, each in zip(queries, self.subs, strict=True):
            found += [("query", query), ("evidence", each.names[0])]
        return [*found, ("answer", self.question.golden_answers[0])]

    def request(self, prompts: Prompts, queries: Sequence[str] | None = None) -> tuple[Message, Message]:
        """For a line for each sub-question; with queries, for one for each step. They are listed after the question."""
        lines = [f"Question: {one_line(self.question.question)}"]
        for number, each in enumerate(self.subs if queries is None else (), start=1):
            lines.append(f"Sub-question {number}: {one_line(each.question)}")
        for number, (kind, said) in enumerate(() if queries is None else self.steps(queries), start=1):
            lines.append(f"Step {number}, {_DOES[kind]}: {one_line(said)}")
        system = prompts["rephrase" if queries is None else "narrate"]
        return Message(role="system", content=system), Message(role="user", content="\n".join(lines))


@dataclass
class Chosen:
    """A retriever that finds what was chosen, in its order."""

    passages: Iterator[Sequence[Passage]]
    identity: str = ""

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:  # noqa: ARG002 - every query is known
        return list(next(self.passages))[:top_k]


@dataclass(frozen=True)
class Teaching:
    """What the teacher does, as a `Work`. agent: whose steps are made. taught: by the question's id."""

    decomposed: list[Decomposed]
    agent: Agent
    model: ModelSpec
    taught: dict[str, Taught] = field(default_factory=dict)
    noun: str = "question"

    @property
    def at_once(self) -> int:
        return self.model.limits.concurrency

    def items(self) -> list[Decomposed]:
        return self.decomposed

    def question_of(self, item: Decomposed) -> str:
        return item.question.id

    async def do(self, item: Decomposed, asked: Asked) -> None:
        agent, path, error = self.agent.anew(asked.models[TEACHER]), None, None
        try:
            path = await _path(item, replace(agent, retriever=Chosen(each.shown for each in item.subs)))
        except LeftOut as left:
            error = left.error
        except ModelError as failed:
            error = asked.failure(failed, "question", {"question_id": item.question.id})
        self.taught[item.question.id] = Taught(agent.spending.as_usage(self.model.price), path, error)

    def of(self, model: ModelSpec, *, without: Collection[str]) -> Teaching:
        """The same with a settled model, without some questions, by their keys. It teaches into the same `taught`."""
        left = [each for each in self.decomposed if question_key(each.question.question) not in without]
        return replace(self, decomposed=left, agent=replace(self.agent, sampling=model.sampling), model=model)

    def counts(self) -> dict[str, Any]:
        """`warm_up` of the summary. gold_apart: ids of questions whose gold answer is none of the sub-answers."""
        causes = Counter(each.error.cause for each in self.taught.values() if each.error).most_common()
        return {
            "agent": self.agent.prompts.agent,
            "teacher": self.model.name,
            "questions": len(self.taught.keys() | set(map(self.question_of, self.decomposed))),
            "with_rows": sum(each.path is not None for each in self.taught.values()),
            "left_out": {cause: count for cause, count in causes if cause in CAUSES},
            "failed": {cause: count for cause, count in causes if cause not in CAUSES},
            "gold_apart": [
                each.question.id
                for each in self.decomposed
                if self.taught.get(each.question.id, Taught()).path and gold_is_apart(*each)
            ],
        }

    def described(self, count: int) -> str:
        return counted(count, self.noun)

    async def expected(self, owed: Iterable[Decomposed], *_: object, **__: object) -> list[ExpectedUsage]:
        both = [(each, queries) for each in owed for queries in (None, [sub.question for sub in each.subs])]
        asked = [each.request(self.agent.prompts, queries) for each, queries in both]
        lines = sum(user.content.count("\n") for _, user in asked)
        return [ExpectedUsage.of_replies(asked, lines=lines, shortest=_SHORT_LINE_TOKENS)]


async def _path(item: Decomposed, agent: Agent) -> list[PathStep]:
    """The steps as the agent takes them. One that reads and goes on in one turn has a report's thought before the next
    one's. Raises LeftOut, also where a reply would be read as another step; ModelError."""
    queries = await _written(agent, item, "questions")
    needed(len(set(queries)) == len(queries), "repeated_query", "the teacher writes two sub-questions alike")
    thoughts = await _written(agent, item, "steps", queries)
    told = [(*step, thought) for step, thought in zip(item.steps(queries), thoughts, strict=True)]
    refuse_later_answers(item.question, item.subs, told)
    path, state, before = list[PathStep](), agent.start(item.question), ""
    for kind, content, own in told:
        thought, before = f"{before} {own}".strip(), ""
        if kind == "evidence" and agent.protocol.reads_at_once:
            before = thought
            continue
        taken = agent.step_of(state, agent.protocol.reply(kind, thought, content))
        why = taken.parse_error.detail if taken.parse_error else f"it says {taken.content!r}"
        same = taken.action_type == kind and taken.content == plain_text(content).strip()
        needed(same, "no_step", f"a reply at layer {state.layer} is not read as the step that it is of: {why}")
        prompt, response = list(taken.prompt), taken.response
        path.append(PathStep(layer=state.layer, action_type=kind, prompt=prompt, response=response, content=content))
        state = state if taken.terminal else await agent.next_state(taken)
    return path


async def _written(agent: Agent, item: Decomposed, tag: str, queries: Sequence[str] | None = None) -> list[str]:
    """The lines of a reply, as many as were asked for. Raises LeftOut, ModelError."""
    asked = item.request(agent.prompts, queries)
    count = asked[1].content.count("\n")

    def read(reply: str, ending: Ending) -> list[tuple[str, str]] | None:
        found = parse_tagged(reply, tags=(tag,), ending=ending)
        if isinstance(found, ParseError):
            return None
        return [(each[1], one_line(each[2])) for each in _NUMBERED.finditer(found.content)]

    wanted = f"{count} numbered lines"
    said = await agent.caller.judgement(item.question.id, asked, 0, tag=tag, wanted=wanted, read=read)
    lines, last = said.value or [], (said.unreadable or "")[:200]
    needed(said.value is not None, "unreadable", f"after a repair turn, too, a reply has no <{tag}>: {last!r}")
    numbers = [number for number, _ in lines]
    counted_up = numbers == [str(each) for each in range(1, count + 1)]
    needed(counted_up, "counts_differ", f"<{tag}> has lines {', '.join(numbers)[:200]}, not 1 to {count}")
    return [line for _, line in lines]
