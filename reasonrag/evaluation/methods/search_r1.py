"""Search-R1's loop of thinking, searching and reading.

Decides when it searches and stops; knows no golden answer and no score. Departures from the publication
(arXiv 2503.09516):

1. It continues one assistant turn that includes the passages found. Chat endpoints start a new turn with every request,
   so each reply is its own assistant turn, and the passages are the user turn after it: the model's words and the first
   user turn are where they were in training; what differs are the turn markers. To use its original instruction, put
   it into `--prompts DIR/baselines/search-r1.txt`.
2. There a reply that is neither a search nor an answer costs one of the actions, however many follow each other. Here
   its message about it (`rethink.txt`) is the repair turn that every method has: one for each such reply, which costs
   nothing.
3. There a search after the last action ends the attempt. Here it gets the repair turn of the agent, whose last reply
   may not search either.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from preference import Message
from reasonrag.agent.model_calls import ModelCaller
from reasonrag.agent.parsing import ParseError, TaggedReply
from reasonrag.agent.prompting import render_repair
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.evaluation.methods.baseline_prompts import (
    BaselinePrompts,
    in_style,
    search_r1_found,
    search_r1_rethink,
    search_r1_start,
)
from reasonrag.evaluation.methods.method import Attempt
from reasonrag.evaluation.methods.replies import asked, step_of
from reasonrag.evaluation.predictions import PredictedStep
from reasonrag.retrieval.retriever import Retriever


@dataclass(frozen=True)
class SearchR1:
    """Think, search, read, until there is an answer or the searches are spent (arXiv 2503.09516, algorithm 1).

    max_searches: the reply after the last one must answer. The published four are --max-steps 9.
    """

    caller: ModelCaller
    prompts: BaselinePrompts
    retriever: Retriever
    top_k: int
    max_searches: int

    async def answer(self, question: Question) -> Attempt:
        prompts = in_style(self.prompts, self.caller.prompts, question.style)
        messages = search_r1_start(prompts, question.question)
        steps: list[PredictedStep] = []
        read: dict[str, Passage] = {}
        searches, shown = 0, tuple[Passage, ...]()
        while True:
            reply = await asked(
                self.caller,
                question,
                messages,
                ("search", "answer"),
                check=_must_answer if searches == self.max_searches else lambda said: said,
                repair_turn=partial(self._repair_turn, prompts, messages),
            )
            steps.append(step_of("think", reply, shown))
            found = reply.content
            if isinstance(found, ParseError) or found.tag == "answer":
                return Attempt(steps[-1].content, tuple(steps), searches, tuple(read.values()))
            shown = tuple(await self.retriever.retrieve(found.content, self.top_k))
            searches += 1
            read |= {each.id: each for each in shown if each.id not in read}
            messages = reply.messages + search_r1_found(found.response, shown)

    def _repair_turn(
        self, prompts: BaselinePrompts, messages: tuple[Message, ...], said: str, error: ParseError
    ) -> tuple[Message, ...]:
        if error.cause == "wrong_tag":
            return render_repair(self.caller.prompts, messages, reply=said, detail=error.detail)
        return messages + search_r1_rethink(prompts, said)


def _must_answer(reply: TaggedReply) -> TaggedReply | ParseError:
    if reply.tag == "answer":
        return reply
    return ParseError("wrong_tag", f"no search is left, expected <answer>..</answer>; found <{reply.tag}>")
