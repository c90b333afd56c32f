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
from dataclasses import replace

from preference.export.sanitize import plain_text
from reasonrag.agent.parsing import ParseError, TaggedReply
from reasonrag.agent.prompting import folded
from reasonrag.data.corpus import Passage
from reasonrag.errors import ModelError
from reasonrag.evaluation.methods.baseline import BaselineAttempt, Tagged
from reasonrag.evaluation.methods.baseline_prompts import FLARE_ANSWER
from reasonrag.llm.chat import NO_LOGPROBS, TokenLogprob, tokens_within

THETA = 0.8
"""A sentence with a token below this probability is searched with (`look_ahead_filter_prob` for 2WikiMultiHopQA)."""
BETA = 0.4
"""Tokens below this probability are left out of the query (`look_ahead_mask_prob`)."""


async def flare(at: BaselineAttempt) -> str | None:
    """Drafts the next sentence; if it is certain, keeps it, else searches with it and writes it anew from what was
    found, until a sentence is the answer or one reply is left, which must be it.

    A sentence that is written anew is kept, certain or not. One that cannot be read is followed by the last reply.
    """
    at.caller = replace(at.caller, sampling=at.caller.sampling.model_copy(update={"logprobs": True}))
    query, shown, sentences = at.question.question, tuple[Passage, ...](), list[str]()
    while True:
        if query:
            shown = await at.search(query)
        drawn = len(at.steps)
        if drawn >= at.choice.steps - 1 or (at.steps and at.steps[-1].parse_error):
            return await at.answered(FLARE_ANSWER, shown, sentences, sample=drawn)
        anew = bool(at.steps) and bool(query)
        action, messages = "rewrite" if anew else "draft", at.prompt("flare", shown, sentences)
        # a search that finds the same passages makes the same prompt, whose next draw must be another one
        reply = await at.ask(action, messages, ("sentence", "answer"), shown=shown, sample=drawn)
        query = ""
        if isinstance(reply.content, ParseError):
            continue
        said = tokens_of(reply, reply.content)
        doubtful = any(math.exp(each.logprob) < THETA for each in said)
        if doubtful and not anew and at.searches < at.choice.most_searches:
            query = masked(said) or reply.content.content
            at.steps[-1] = at.steps[-1].model_copy(update={"query": query})
            continue
        if reply.content.tag == "answer":
            return reply.content.content
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
