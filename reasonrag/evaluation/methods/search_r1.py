"""Search-R1's loop of thinking, searching and reading.

Decides when it searches and stops; knows no golden answer and no score. Departure from the publication
(arXiv 2503.09516): it continues one assistant turn that includes the passages found. Chat endpoints start a new turn
with every request, so each reply is its own assistant turn, and the passages are the user turn after it: the model's
words and the first user turn are where they were in training; what differs are the turn markers. To use its original
instruction, put it into `--prompts DIR/baselines/search-r1.txt`.
"""

from __future__ import annotations

from dataclasses import dataclass

from reasonrag.agent.model_calls import ModelCaller
from reasonrag.agent.parsing import NOT_REPAIRED, ParseError, TaggedReply
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
from reasonrag.evaluation.settings import BaselineName
from reasonrag.retrieval.retriever import Retriever


@dataclass(frozen=True)
class SearchR1:
    """Think, search, read, until there is an answer or the budget is spent (arXiv 2503.09516, algorithm 1).

    max_searches: the action budget. As in the paper, a reply that is neither a search nor an answer costs one action
    too, and the model is told so. The reply after the last action must answer.
    """

    caller: ModelCaller
    prompts: BaselinePrompts
    retriever: Retriever
    top_k: int
    max_searches: int
    name: BaselineName = "search-r1"

    async def answer(self, question: Question) -> Attempt:
        prompts = in_style(self.prompts, self.caller.prompts, question.style)
        messages = search_r1_start(prompts, question.question)
        steps: list[PredictedStep] = []
        read: dict[str, Passage] = {}
        searches, shown = 0, tuple[Passage, ...]()
        for left in range(self.max_searches, -1, -1):
            reply, parsed = await asked(self.caller, question, messages, ("search", "answer"))
            steps.append(step_of("think", reply, parsed, shown))
            if isinstance(parsed, TaggedReply) and parsed.tag == "answer":
                return Attempt(parsed.content, tuple(steps), searches, tuple(read.values()))
            if left == 0:
                if isinstance(parsed, TaggedReply):
                    unfit = reply.model_copy(update={"text": parsed.response})
                    steps[-1] = step_of("think", unfit, ParseError("wrong_tag", ""), shown)
                break
            if isinstance(parsed, TaggedReply):
                shown = tuple(await self.retriever.retrieve(parsed.content, self.top_k))
                searches += 1
                read |= {each.id: each for each in shown if each.id not in read}
                messages += search_r1_found(parsed.response, shown)
            elif parsed.cause in NOT_REPAIRED:
                break
            else:
                shown = ()
                messages += search_r1_rethink(prompts, reply.text)
        return Attempt(None, tuple(steps), searches, tuple(read.values()))
