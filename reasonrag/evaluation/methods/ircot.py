"""IRCoT: retrieval interleaved with a chain of thought, one sentence at a time (arXiv 2212.10509).

Decides when it searches, with what, and when it reads; knows no golden answer and no score. Departures from the
publication:

1. Its model continues a text after demonstrations; here the instruction alone says what is wanted, and each sentence is
   a reply of its own in a tag. What it calls the reader is a last reply with an instruction of its own.
2. It stops after 8 sentences; here when the searches of the common budget are spent. It takes 2 to 8 passages a search;
   here --top-k. At most 15 are collected, as there, whatever --top-k is.
3. Its code (https://github.com/StonyBrookNLP/ircot, `commaqa/inference/ircot.py`) leaves question words out of queries,
   searches again with the sentence before one that begins with `So` or `Thus`, and takes near-equal passages for one;
   here a query is the sentence as it stands, and only a passage with the same id is one.
4. Its reader answers at once or after reasoning, by model; here after reasoning.
"""

from __future__ import annotations

from dataclasses import dataclass

from reasonrag.agent.model_calls import ModelCaller
from reasonrag.agent.parsing import ParseError
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.evaluation.methods.baseline_prompts import IRCOT_READER, BaselinePrompts, in_style, render_baseline
from reasonrag.evaluation.methods.choice import BaselineName
from reasonrag.evaluation.methods.method import Attempt
from reasonrag.evaluation.methods.replies import answered, as_query, asked, step_of
from reasonrag.evaluation.predictions import PredictedStep
from reasonrag.retrieval.retriever import Retriever

MOST_PASSAGES = 15
"""Most passages that are collected and shown (`global_max_num_paras` of the published configurations)."""


@dataclass(frozen=True)
class IRCoT:
    """Searches with the question, then with each sentence; the reader answers from what was collected.

    A sentence that gives the answer ends the search, and so does one that cannot be read.

    max_searches: as many replies are used at most, the reader's among them.
    """

    caller: ModelCaller
    prompts: BaselinePrompts
    retriever: Retriever
    top_k: int
    max_searches: int
    name: BaselineName = "ircot"

    async def answer(self, question: Question) -> Attempt:
        prompts = in_style(self.prompts, self.caller.prompts, question.style)
        steps: list[PredictedStep] = []
        thoughts: list[str] = []
        collected: dict[str, Passage] = {}
        query, searches = question.question, 0
        while True:
            found = await self.retriever.retrieve(as_query(query), self.top_k)
            searches += 1
            collected |= {each.id: each for each in found if each.id not in collected}
            collected = dict(list(collected.items())[:MOST_PASSAGES])
            shown = tuple(collected.values())
            if searches == self.max_searches or len(collected) == MOST_PASSAGES:
                break
            messages = render_baseline(prompts, self.name, question.question, shown, thoughts)
            reply = await asked(self.caller, question, messages, ("sentence", "answer"))
            steps.append(step_of("sentence", reply, shown))
            if isinstance(reply.content, ParseError) or reply.content.tag == "answer":
                break
            query = reply.content.content
            thoughts.append(query)
        messages = render_baseline(prompts, IRCOT_READER, question.question, shown)
        step, answer = await answered(self.caller, question, messages, shown)
        return Attempt(answer, (*steps, step), searches, shown)
