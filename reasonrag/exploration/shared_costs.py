"""What a run that shares a journal with others would have cost alone.

An answer paid by another run came in that run's request, together with draws this run may never need, or separate from
draws it requests together. Here every request is billed for its own draws. Decides which part of a request's tokens
belongs to one reply. Knows no price, no file and no tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from reasonrag.llm.chat import USAGE, ChatModel, ChatRequest, Completion, WrappedModel

_SPLIT = ("completion_tokens", "reasoning_tokens")
"""Numbers of a request that are split over its replies; the others are the whole request's."""


class Bill:
    """Splits usage into single answers, and combines it for draws requested together."""

    def __init__(self) -> None:
        self.replies_share_requests = False
        """Whether the endpoint returned several choices to one request."""

    def apart(self, completions: Iterable[Completion]) -> list[Completion]:
        """Each answer billed alone: the whole prompt, and its share of the request's completion tokens by the length of
        text and reasoning. Answers already alone are unchanged."""
        found: list[Completion] = []
        for request in _requests(completions):
            self.replies_share_requests |= len(request) > 1
            whole = {name: getattr(request[0], name) for name in USAGE}
            ends = [*accumulate((len(each.text) + len(each.reasoning) + 1 for each in request), initial=0)]
            for each, place in zip(request, pairwise(ends), strict=True):
                to_start, to_end = ({name: round(whole[name] * end / ends[-1]) for name in _SPLIT} for end in place)
                found.append(each.model_copy(update=whole | {name: to_end[name] - to_start[name] for name in _SPLIT}))
        return found

    def together(self, apart: Sequence[Completion]) -> list[Completion]:
        """The bill of one request for all these draws, or of one each if the endpoint returns one choice at a time."""
        if not self.replies_share_requests:
            return list(apart)
        unpaid = dict.fromkeys(USAGE, 0) | {"tokens_bounded": False}
        paid = apart[0].model_copy(update={name: sum(getattr(each, name) for each in apart) for name in _SPLIT})
        return [paid, *(each.model_copy(update=unpaid) for each in apart[1:])]


class BilledModel(WrappedModel):
    """A `ChatModel` that bills every request as if none of its draws had been requested before."""

    def __init__(self, model: ChatModel, bill: Bill) -> None:
        super().__init__(model)
        self._bill = bill

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        return self._bill.together(self._bill.apart(await self.inner.complete(request)))


def _requests(completions: Iterable[Completion]) -> list[list[Completion]]:
    """Answers grouped by the request that returned them; its tokens are on the first one."""
    found: list[list[Completion]] = []
    for each in completions:
        if each.requests or not found:
            found.append([])
        found[-1].append(each)
    return found
