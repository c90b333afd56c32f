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

from reasonrag.agent.parsing import ParseError
from reasonrag.evaluation.methods.baseline import BaselineAttempt
from reasonrag.evaluation.methods.baseline_prompts import IRCOT_READER

MOST_PASSAGES = 15
"""Most passages that are collected and shown (`global_max_num_paras` of the published configurations)."""


async def ircot(at: BaselineAttempt) -> str | None:
    """Searches with the question, then with each sentence; the reader answers from what was collected.

    A sentence that gives the answer ends the search, and so does one that cannot be read.
    """
    query, thoughts = at.question.question, list[str]()
    while True:
        await at.search(query)
        at.read = dict(list(at.read.items())[:MOST_PASSAGES])
        shown = tuple(at.read.values())
        if at.searches == at.choice.most_searches or len(shown) == MOST_PASSAGES:
            break
        reply = await at.ask("sentence", at.prompt("ircot", shown, thoughts), ("sentence", "answer"), shown=shown)
        if isinstance(reply.content, ParseError) or reply.content.tag == "answer":
            break
        query = reply.content.content
        thoughts.append(query)
    return await at.answered(IRCOT_READER, shown)
