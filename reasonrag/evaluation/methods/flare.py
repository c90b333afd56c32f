"""FLARE direct: it searches with the sentence that it is about to write, where it is not sure of it (arXiv 2305.06983,
section 3.2).

Decides when it searches and with what; knows no golden answer and no score. Of the published code
(https://github.com/jzbjyb/FLARE, `configs/2wikihop_flare_config.json` and what reads it) it has the thresholds, the
first search with the question, queries without the question, and prompts with the passages of the last search, where
the paper's text writes drafts without passages. Departures:

1. There the model continues a text after demonstrations, and the sentence is what it wrote up to the first full stop.
   Here the instruction alone says what is wanted, and each sentence is a reply of its own in a tag. Only the tokens
   inside the tag count.
2. There a query is cut at 64 tokens and a search gives 2 passages; here the length of a query is every retriever's,
   and --top-k says how many.
3. There a sentence whose tokens are all masked makes no query; here it is searched with as it stands.
4. There each uncertain sentence is searched with, as far as 256 tokens of text; here searches and replies are those of
   the common budget. A sentence that is uncertain when the searches are spent is kept, and the last reply must answer.

The thresholds are those for 2WikiMultiHopQA; for WikiAsp the code searches with every sentence (0.0) and keeps the
passages of the first search. Not verified: the paper's other data sets, and what ReasonRAG's Table 2 was measured with.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from preference.export.sanitize import plain_text
from reasonrag.agent.model_calls import ModelCaller
from reasonrag.agent.parsing import TaggedReply
from reasonrag.agent.prompting import folded
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question
from reasonrag.errors import ModelError
from reasonrag.evaluation.methods.baseline_prompts import FLARE_ANSWER, BaselinePrompts, in_style, render_baseline
from reasonrag.evaluation.methods.choice import BaselineName, StepBudget
from reasonrag.evaluation.methods.method import Attempt
from reasonrag.evaluation.methods.replies import Tagged, answered, as_query, asked, step_of
from reasonrag.evaluation.predictions import PredictedStep
from reasonrag.llm.chat import NO_LOGPROBS, TokenLogprob, tokens_within
from reasonrag.retrieval.retriever import Retriever

THETA = 0.8
"""A sentence with a token below this probability is searched with (`look_ahead_filter_prob` for 2WikiMultiHopQA)."""
BETA = 0.4
"""Tokens below this probability are left out of the query (`look_ahead_mask_prob`)."""


@dataclass(frozen=True)
class Flare:
    """Drafts the next sentence; if it is certain, keeps it, else searches with it and writes it anew from what was
    found, until a sentence is the answer or one reply is left, which must be it.

    A sentence that is written anew is kept, certain or not. One that cannot be read is followed by the last reply.
    """

    caller: ModelCaller
    prompts: BaselinePrompts
    retriever: Retriever
    top_k: int
    budget: StepBudget
    name: BaselineName = "flare"

    async def answer(self, question: Question) -> Attempt:
        prompts = in_style(self.prompts, self.caller.prompts, question.style)
        steps, sentences, searches = list[PredictedStep](), list[str](), 0
        read: dict[str, Passage] = {}
        query, shown = question.question, tuple[Passage, ...]()
        while True:
            if query:
                shown = tuple(await self.retriever.retrieve(as_query(query), self.top_k))
                searches += 1
                read |= {each.id: each for each in shown if each.id not in read}
            if len(steps) >= self.budget.completions - 1 or (steps and steps[-1].parse_error):
                messages = render_baseline(prompts, FLARE_ANSWER, question.question, shown, sentences)
                step, answer = await answered(self.caller, question, messages, shown, sample=len(steps))
                return Attempt(answer, (*steps, step), searches, tuple(read.values()))
            messages = render_baseline(prompts, self.name, question.question, shown, sentences)
            # a search that finds the same passages makes the same prompt, whose next draw must be another one
            reply = await asked(self.caller, question, messages, ("sentence", "answer"), sample=len(steps))
            anew = bool(steps) and bool(query)
            step, query = step_of("rewrite" if anew else "draft", reply, shown), ""
            if isinstance(reply.content, TaggedReply):
                said = tokens_of(reply, reply.content)
                doubtful = [each for each in said if math.exp(each.logprob) < THETA]
                if doubtful and not anew and searches < self.budget.searches:
                    query = masked(said) or reply.content.content
                step = step.model_copy(update={"uncertain": list(map(_shown, doubtful)), "query": query})
            steps.append(step)
            if isinstance(reply.content, TaggedReply) and not query:
                if reply.content.tag == "answer":
                    return Attempt(reply.content.content, tuple(steps), searches, tuple(read.values()))
                sentences.append(reply.content.content)


def tokens_of(reply: Tagged, read: TaggedReply) -> Sequence[TokenLogprob]:
    """The tokens inside the tag. Raises ModelError where the model gave none."""
    said = reply.completion
    if said.logprobs is None:
        raise ModelError(f"the model gives {NO_LOGPROBS}", cause="no_logprobs")
    inside = re.split(rf"<\s*/\s*{read.tag}\s*>", said.text, maxsplit=1, flags=re.IGNORECASE)[0].rstrip()
    opened = [each.end() for each in re.finditer(rf"<\s*{read.tag}\s*>\s*", inside, re.IGNORECASE)]
    # without one, the tag held a control character, which is read as a space
    return tokens_within(said.logprobs, opened[-1] if opened else 0, len(inside))


def masked(tokens: Sequence[TokenLogprob]) -> str:
    """The sentence without its least likely tokens; empty where no word is left."""
    left = folded("".join(each.text if math.exp(each.logprob) >= BETA else " " for each in tokens))
    return plain_text(left).strip() if re.search(r"\w", left) else ""


def _shown(token: TokenLogprob) -> tuple[str, float]:
    return plain_text(token.text), round(math.exp(token.logprob), 3)
