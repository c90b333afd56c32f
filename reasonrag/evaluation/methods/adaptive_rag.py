"""Adaptive-RAG, prompted: one reply says how much a question needs, and another method answers it (arXiv 2403.14403).

Decides which one; knows no golden answer and no score. Departures from the publication: there a T5 model, trained on
which method answered which question, chooses, here the evaluated model itself is asked, as the name tells; the methods
behind it depart from their own publications as they say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from reasonrag.agent.parsing import ParseError, TaggedReply
from reasonrag.evaluation.methods.baseline import BaselineAttempt
from reasonrag.evaluation.methods.baseline_prompts import ROUTES


async def adaptive_rag(
    methods: Mapping[str, Callable[[BaselineAttempt], Awaitable[str | None]]], at: BaselineAttempt
) -> str | None:
    """methods: by name. A route that cannot be read ends the attempt without an answer."""
    reply = await at.ask("route", at.prompt("adaptive-rag-prompted"), ("route",), check=_known)
    if isinstance(reply.content, ParseError):
        return None
    return await methods[ROUTES[reply.content.content.casefold()]](at)


def _known(reply: TaggedReply) -> TaggedReply | ParseError:
    if reply.content.casefold() in ROUTES:
        return reply
    return ParseError("wrong_tag", f"expected {', '.join(ROUTES)} inside <route>; found {reply.content!r}")
