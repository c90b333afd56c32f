"""How a reply ended, by what its endpoint says of it: one table of the words that endpoints use.

Decides which words mean that the model stopped, that the reply was cut, withheld or refused, or that the prompt was too
long; codes of errors are read by the same table. Knows no tag: a reply that closes its tag itself is whole, however it
ended.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from reasonrag.llm.chat import Completion

Ending = Literal["stopped", "cut", "withheld", "refused", "too_long", "unknown"]
"""stopped: by the model, or at a stop string. cut: at a limit of tokens or time. withheld: by a content filter, wholly
or from some point on. refused: by the model, which says no more. too_long: the prompt, so that nothing was said.
unknown: the endpoint gives no reason, or one that is not in the table."""
FILTERED, TOO_LONG = "content_filter", "context_length_exceeded"
"""The finish reasons of draws whose prompt was filtered, or is too long."""

_Word = Ending | Literal["broken_off", "called"]
_WORDS: Final[dict[_Word, str]] = {
    "stopped": r"stop(ped|(sequence|string|token|word|str)s?)?|matchedstop|eos(token|found)?|eot|imend|done|normal"
    r"|natural|end|endturn|endof(turn|sequence|text|message)(token)?|complet(e|ed|ion)|finish(ed)?",
    "too_long": r"(?!modelcontextwindow).*context(length|window|size|overflow|limit).*|stringabovemaxlength"
    r"|.*(prompt|input|request|string|message)toolong.*|requesttoolarge",
    "cut": r"length|limit|.*(max|model)length.*|.*max(imum)?(new|output|completion|generated?)?tokens?.*|maxoutput"
    r"|.*(token|length|time|output)s?limit.*|modelcontextwindowexceeded|truncated?|incomplete|repetition|loop",
    "withheld": r".*(content|safety|output|prompt|response)filter.*|.*safety|.*recitation|blocklist|blocked"
    r"|(content|prompt|response|output)blocked|prohibited.*|spii|.*sensitive|.*guardrail.*|.*toxic.*|modelarmor"
    r"|.*(contentpolicy|policyviolation|usagepolicy).*|.*moderation(blocked|failed|rejected)?|.*inspectionfailed"
    r"|unsafe(content)?|invalidprompt|language|harmful(content)?",
    "refused": r"(model)?refus(al|ed)|declined",
    "broken_off": r"error|failed|failure|abort(ed)?|(user)?cancel(l?ed)?|insufficientsystemresource|networkerror"
    r"|timeout|interrupted|disconnect(ed)?",
    "called": r"tool(call|use)s?|functioncalls?",
}
"""By the letters of a reason alone, without what stands before: `FinishReason.MAX_TOKENS` is `maxtokens`. The first
that matches counts; called: stopped, where there is a call. Reasons of OpenAI, Azure, Anthropic, Bedrock, Gemini,
Cohere, Mistral, watsonx, TGI, vLLM, llama.cpp, Zhipu and DeepSeek, as their references list them."""


def ending_of(completion: Completion) -> Ending:
    """How a reply ended. One that reached the token limit was cut, whatever the endpoint says."""
    if completion.refusal and not completion.text.strip():
        return "refused"
    found = _found(completion.finish_reason)
    if found == "called":
        found = "stopped" if completion.called else "unknown"
    if completion.at_limit and found in ("stopped", "broken_off", "unknown"):
        return "cut"
    return "unknown" if found == "broken_off" else found


def ending_of_code(code: str) -> Ending:
    """What a code says, of an error or of a reply that is nothing but its reason."""
    return ending_of(Completion(text="", finish_reason=code))


def is_broken_off(reason: str) -> bool:
    """Whether the endpoint failed in the middle of a reply, which another attempt may complete."""
    return _found(reason) == "broken_off"


def _found(reason: str) -> _Word:
    for said in (reason, reason.rpartition(".")[2]):
        letters = re.sub(r".*reason", "", re.sub(r"[^a-z]", "", said.casefold()))
        for word, pattern in _WORDS.items():
            if re.fullmatch(pattern, letters):
                return word
    return "unknown"
