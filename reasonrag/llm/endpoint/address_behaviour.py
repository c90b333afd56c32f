"""One address of a model: the bodies that it is sent, and what it was found to refuse or not to do.

Decides what is left out of its requests: what it refuses, several choices where it gives one, and stop strings that
may cut reasoning or leave a reply open. That changes neither draws nor seeds, but costs the run something, which is
said once. Endpoints name a refused parameter in a dict or a list of errors, by `param`, `field` or `loc`, or only in a
sentence, quoted or not; with status 400 or 422. Knows no other address.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from reasonrag.llm.chat import ChatRequest, Completion
from reasonrag.llm.endpoint.endings import closes_a_tag, ending_of
from reasonrag.llm.endpoint.error_objects import decoded, is_refusal, leaves
from reasonrag.llm.endpoint.http_client import Connection, clean
from reasonrag.llm.endpoint.rate_limits import Pace
from reasonrag.llm.hermes import native_fields
from reasonrag.llm.reasoning import (
    ALL_AS_REASONING,
    gave_all_as_reasoning,
    parser_advice,
    reasons,
    stops_may_cut,
    without_reasoning,
)

if TYPE_CHECKING:
    from openai import APIStatusError

SHORT_ANSWERS = 2
"""After this many answers in a row with one choice instead of several, the endpoint does not support `n`."""
STRANGE_ENDS = 3
"""Open replies in a row without a known reason, after which replies have to close their tags themselves."""
DISPENSABLE: dict[str, str] = {
    "top_logprobs": "the model's replies then have none",
    "logprobs": "the model's replies then have none",
    "top_p": "replies are sampled with the model's own top_p",
    "seed": "the same request may get another reply",
    "stop": "text after the closing tag is cut off here, but paid for",
    "n": "each sibling is a request of its own and pays for its prompt",
    "temperature": "replies are sampled at the model's own temperature",
    "max_tokens": "max_completion_tokens is sent instead",
}
"""Parameters that a request can do without, least missed first, and what leaving them out means."""
RENAMED = {"max_tokens": "max_completion_tokens"}
"""What is sent instead of a refused parameter. A request always has a limit, as its cost is bounded by it."""
_NAMING = ("param", "field", "loc")
"""Keys under which an error names a parameter, perhaps as a path: `body.seed`, `["body", "seed"]`."""
_OUT_OF_RANGE = re.compile(r"\b(large|small|range|exceeds?|at (most|least)|(less|greater|more) than)\b", re.IGNORECASE)
_UNSUPPORTED = re.compile(r"\b(unsupported|not (supported|permitted|allowed)|un(known|recognized))\b", re.IGNORECASE)
"""Of a parameter, not of its value. A token limit that is too large under one name is so under the other, which some
endpoints ignore: no request would have a limit any more."""
_BARE = {
    "n": r"(?<![\w'-])n(?=\s*(?:[:=>.,)]|$|(?:must|should|is|greater|larger)\b))",
    "stop": r"(?<![\w'-])stop(?=\s*(?:[:=.,)]|$|(?:is|are|must|should|sequences?|strings?|tokens?|parameter)\b))",
}
"""Patterns of names that could be ordinary words, too."""


class Answer(NamedTuple):
    """The answer to a request. without: the parameters of the request that the endpoint refused."""

    completions: list[Completion]
    headers: Mapping[str, str]
    without: Sequence[str]


@dataclass
class OneAddress:
    """What was learned is said to the user once: the methods that learn give the lessons, in words."""

    connection: Connection
    pace: Pace
    refused: set[str] = field(default_factory=set)
    """Parameters that it refuses, and is not sent any more."""
    reasons: bool = False
    """Whether its trial reply had reasoning."""
    counts_bytes: bool = False
    """Whether some tokens were counted as bytes."""
    short_answers: int = 0
    """Number in a row; from SHORT_ANSWERS on, `n` is not used any more."""
    strange_ends: int = 0
    """Number of replies in a row that were left open and ended for no known reason."""
    stop_cuts_reasoning: bool = False
    """Whether stop strings could cut the model's reasoning: then it is sent none, unless think tags are its format."""
    trouble: str = ""
    """What keeps it from answering; empty after an answer."""
    told_until: float = 0.0
    """The end of the wait that the user was told of."""

    @cached_property
    def mark(self) -> str:
        """Tells this server from others in a journal, which names none."""
        return hashlib.blake2b(self.connection.base_url.encode(), digest_size=4).hexdigest()

    @property
    def gives_one_choice(self) -> bool:
        return self.short_answers >= SHORT_ANSWERS

    @property
    def left_out(self) -> set[str]:
        """Parameters that it is not sent, `n` among them where it gives one choice whatever is asked."""
        found = {"stop": self.stop_cuts_reasoning, "n": self.gives_one_choice}
        return self.refused | {name for name, left_out in found.items() if left_out}

    def body(self, model: str, request: ChatRequest, *, without: Collection[str]) -> dict[str, Any]:
        """The request's body, without the parameters that this endpoint refuses and those in `without`."""
        sampling = request.sampling
        body: dict[str, Any] = {
            **(sampling.extra_body or {}),
            "model": model,
            "messages": request.wire_messages,
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_tokens,
            "seed": request.seeds[0],
        }
        if sampling.native_tools:
            body |= native_fields(request.messages)
        if sampling.top_p != 1:
            body["top_p"] = sampling.top_p
        if sampling.stop and (request.think_in_format or not self.stop_cuts_reasoning):
            body["stop"] = list(sampling.stop)
        if len(request.samples) > 1:
            body["n"] = len(request.samples)
        if sampling.logprobs:
            body["logprobs"] = True
        if sampling.reasoning_effort:
            body["reasoning_effort"] = sampling.reasoning_effort
        for parameter in self.refused.union(without).intersection(body):
            value = body.pop(parameter)
            if parameter in RENAMED:
                body[RENAMED[parameter]] = value
        return body

    def learn(self, answer: Answer, request: ChatRequest) -> Iterator[str]:
        """Learn from an answer what it does, refuses and allows."""
        for parameter in answer.without:
            if parameter != "n" and parameter not in self.refused:  # n: by the answers, as it may be too high only
                self.refused.add(parameter)
                yield f"does not accept {parameter}: {DISPENSABLE[parameter]}"
        self.pace.learn(answer.headers)
        if len(request.samples) > 1 and not self.gives_one_choice:
            self.short_answers = self.short_answers + 1 if len(answer.completions) == 1 else 0
            if self.gives_one_choice:
                yield f"returns one choice per request: {DISPENSABLE['n']}"
        if any(stops_may_cut(request, each) for each in answer.completions):
            yield from self._go_without_stop()
        yield from self._learn_of_ends(answer.completions)
        if answer.completions[0].tokens_bounded and not self.counts_bytes:
            self.counts_bytes = True
            yield (
                "reports no token counts, or fewer than its replies have; bytes are counted instead, about four times "
                "as many"
            )

    def learn_of_trial(self, reply: Completion, *, flags: str) -> Iterator[str]:
        """Learn from the trial reply how the model reasons. flags: prefix of the model's flags."""
        self.reasons |= reasons(reply)
        if without_reasoning(reply).reasoning:
            yield from self._go_without_stop()
        if gave_all_as_reasoning(reply):
            yield f"gave {ALL_AS_REASONING}: {parser_advice(flags)}"

    def _learn_of_ends(self, replies: Sequence[Completion]) -> Iterator[str]:
        """Send no stop strings after several open replies for no known reason, so that a whole one closes its tag."""
        for reply in replies:
            if ending_of(reply) != "unknown":
                self.strange_ends = 0
            elif reply.text and not closes_a_tag(reply.text):
                self.strange_ends += 1
        if self.strange_ends >= STRANGE_ENDS and "stop" not in self.refused:
            self.refused.add("stop")
            reason = clean(replies[-1].finish_reason)
            given = f"the finish_reason {reason!r}" if reason else "no finish_reason"
            yield (
                f"gives {given}, which does not say whether a reply is whole (unknown_end), and is sent no stop "
                f"strings now, so that replies close their tags: {DISPENSABLE['stop']}. A server or gateway that "
                "says stop and length mends it"
            )

    def _go_without_stop(self) -> Iterator[str]:
        if not self.stop_cuts_reasoning and "stop" not in self.refused:
            self.stop_cuts_reasoning = True
            yield f"is sent no stop strings, which could cut its reasoning: {DISPENSABLE['stop']}"


def refused_parameters(error: APIStatusError, sent: Collection[str]) -> list[str]:
    """The parameters to leave out after a refusal: those it names by a key, else the least missed of those in its
    sentences; empty if it names none that was sent and can be left out."""
    if not is_refusal(error):
        return []
    found = list(leaves(decoded(error.response.content)))
    said = "\n".join(value for _, value in found if isinstance(value, str)) or str(error)
    of_a_value = _OUT_OF_RANGE.search(said) and not _UNSUPPORTED.search(said)
    dispensable = [each for each in DISPENSABLE if each in sent and not (each in RENAMED and of_a_value)]
    paths = [re.findall(r"[^.\[\]]+", value) for key, value in found if key in _NAMING and isinstance(value, str)]
    names = [[part for part in path if not part.isdigit()] for path in paths]
    if named := {path[-1] for path in names if path and path != ["None"]}:  # LiteLLM says "None", one-api ""
        return [each for each in dispensable if each in named]
    quoted = set(re.findall(r"[`'\"](\w+)\\*[`'\"]", said))  # with a backslash where one error quotes another
    mentioned = [each for each in dispensable if each in quoted] or [
        each for each in dispensable if re.search(_BARE.get(each, rf"(?<![\w-]){each}(?![\w-])"), said)
    ]
    return mentioned[:1]  # a sentence may name another that is fine, as in "temperature and top_p cannot both be set"
