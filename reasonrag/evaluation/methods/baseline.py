"""What the baselines share: an attempt at a question, with what it has searched, read and said so far.

They use the same model, sampling and retriever as the agent. A reply that cannot be read, even after its repair turn,
gives no answer, with a cause. Knows no method.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from preference import Message
from preference.export.sanitize import plain_text
from reasonrag.agent.model_calls import ModelCaller, ReadReply, RepairTurn
from reasonrag.agent.parsing import ParseError, TaggedReply, parse_tagged
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.evaluation.methods.baseline_prompts import BaselinePrompts, render_baseline
from reasonrag.evaluation.methods.choice import MethodChoice
from reasonrag.evaluation.predictions import PredictedStep
from reasonrag.llm.chat import Completion
from reasonrag.llm.endpoint.endings import ending_of
from reasonrag.retrieval.retriever import QUERY_BYTES, Retriever

Tagged: TypeAlias = ReadReply[TaggedReply]
Check: TypeAlias = Callable[[TaggedReply], TaggedReply | ParseError]
"""What else a reply must be than the content of a tag."""


@dataclass
class BaselineAttempt:
    """A baseline at work on a question. prompts: in the question's style. choice: says how much it may use.
    read: different passages, by id."""

    question: Question
    caller: ModelCaller
    prompts: BaselinePrompts
    retriever: Retriever
    top_k: int
    choice: MethodChoice
    steps: list[PredictedStep] = field(default_factory=list)
    searches: int = 0
    read: dict[str, Passage] = field(default_factory=dict)

    async def search(self, query: str) -> tuple[Passage, ...]:
        """Search, with at most as much of the query as a retriever takes. Raises RetrievalError."""
        cut = query.strip().encode()[:QUERY_BYTES].decode("utf-8", "ignore")
        found = tuple(await self.retriever.retrieve(cut, self.top_k))
        self.searches += 1
        self.read |= {each.id: each for each in found if each.id not in self.read}
        return found

    def prompt(self, name: str, shown: Sequence[Passage] = (), thoughts: Sequence[str] = ()) -> tuple[Message, ...]:
        return render_baseline(self.prompts, name, self.question.question, shown, thoughts)

    async def ask(
        self,
        action: str,
        messages: tuple[Message, ...],
        tags: tuple[str, ...],
        *,
        shown: Sequence[Passage] = (),
        sample: int = 0,
        check: Check = lambda reply: reply,
        repair_turn: RepairTurn | None = None,
    ) -> Tagged:
        """A reply with one of the tags, or why there is none; a step of the attempt. shown: the passages in the
        messages. Raises ModelError."""

        def parse(said: Completion) -> TaggedReply | ParseError:
            found = parse_tagged(plain_text(said.text), tags=tags, ending=ending_of(said))
            return found if isinstance(found, ParseError) else check(found)

        request = self.caller.request(self.question.id, messages, [sample], tuple(f"</{tag}>" for tag in tags))
        [completion] = await self.caller.complete(request)
        reply = await self.caller.read(request, completion, parse, sample=sample, repair_turn=repair_turn)
        read, error = (reply.content, None) if isinstance(reply.content, TaggedReply) else (None, reply.content)
        self.steps.append(
            PredictedStep(
                action=action,
                response=read.response if read else plain_text(reply.completion.text),
                reasoning=plain_text(reply.completion.reasoning),
                content=read.content if read else None,
                passages=[each.reference() for each in shown],
                parse_error=error.cause if error else None,
                repaired=reply.repaired,
            )
        )
        return reply

    async def answered(
        self, name: str, shown: Sequence[Passage] = (), thoughts: Sequence[str] = (), *, sample: int = 0
    ) -> str | None:
        """The answer of a reply that must answer. name: of its prompt. Raises ModelError."""
        await self.ask("answer", self.prompt(name, shown, thoughts), ("answer",), shown=shown, sample=sample)
        return self.steps[-1].content
