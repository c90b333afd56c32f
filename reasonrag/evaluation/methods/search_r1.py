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

from dataclasses import replace
from functools import partial

from preference import Message
from reasonrag.agent.parsing import ParseError, TaggedReply
from reasonrag.agent.prompting import render_repair
from reasonrag.data.corpus import Passage
from reasonrag.evaluation.methods.baseline import BaselineAttempt
from reasonrag.evaluation.methods.baseline_prompts import search_r1_found, search_r1_rethink, search_r1_start


async def search_r1(at: BaselineAttempt) -> str | None:
    """Think, search, read, until there is an answer or the searches are spent (arXiv 2503.09516, algorithm 1).

    The reply after the last search must answer. The published four are --max-steps 9.
    """
    at.caller = replace(at.caller, think_in_format=True)
    messages, shown = search_r1_start(at.prompts, at.question.question), tuple[Passage, ...]()
    while True:
        reply = await at.ask(
            "think",
            messages,
            ("search", "answer"),
            shown=shown,
            check=_must_answer if at.searches == at.choice.most_searches else lambda said: said,
            repair_turn=partial(_repair_turn, at, messages),
        )
        found = reply.content
        if isinstance(found, ParseError) or found.tag == "answer":
            return at.steps[-1].content
        shown = await at.search(found.content)
        messages = reply.messages + search_r1_found(found.response, shown)


def _repair_turn(
    at: BaselineAttempt, messages: tuple[Message, ...], said: str, error: ParseError
) -> tuple[Message, ...]:
    if error.cause == "wrong_tag":
        return render_repair(at.caller.prompts, messages, reply=said, detail=error.detail)
    return messages + search_r1_rethink(at.prompts, said)


def _must_answer(reply: TaggedReply) -> TaggedReply | ParseError:
    if reply.tag == "answer":
        return reply
    return ParseError("wrong_tag", f"no search is left, expected <answer>..</answer>; found <{reply.tag}>")
