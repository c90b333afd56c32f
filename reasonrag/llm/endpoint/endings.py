"""How a reply ended, by what its endpoint says of it: one table of the words that endpoints use.

Decides which words mean that the model stopped, that the reply was cut, withheld or refused, or that the prompt was too
long; codes of errors are read by the same table. Knows no tag by name: a reply that closes its tag itself is whole,
however it ended.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from reasonrag.llm.chat import Completion

Ending = Literal["stopped", "cut", "withheld", "refused", "too_long", "unknown"]
"""stopped: by the model, or at a stop string. cut: at a limit of tokens or time. withheld: by a content filter, wholly
or from some point on. refused: by the model, which says no more. too_long: the prompt, so that nothing was said.
unknown: the endpoint gives no reason, or one that is not in the table."""
FILTERED, TOO_LONG, CUT = "content_filter", "context_length_exceeded", "length"
"""The finish reasons of draws that an error stands for."""

Word = Ending | Literal["broken_off", "called"]
"""broken_off: the endpoint failed in the middle. called: stopped, where there is a call."""
_WORDS: Final[dict[Word, str]] = {
    "stopped": r"stop(ped|(sequence|string|token|word|str)s?)?|matchedstop|eos(token|found)?|eot|imend|done|normal"
    r"|natural|end|endturn|endof(turn|sequence|text|message)(token)?|complet(e|ed|ion)|finish(ed)?",
    "too_long": r"(?!modelcontextwindow).*context(length|window|size|overflow|limit).*|stringabovemaxlength"
    r"|.*(prompt|input|request|string|message)s?(is|are|body)?too(long|large).*|.*too(largeformodel|longtofit).*"
    r"|.*(input|prompt)(tokencount|length).*exceed.*|.*maximumpromptlength.*|.*longerthanthe(maximum)?model.*"
    r"|.*reducethelengthof.*|.*toomany(input)?tokens.*|.*inputs(tokens|musthavelessthan).*",
    "cut": r"length|limit|.*(max|model)length.*|.*max(imum)?(new|output|completion|generated?)?tokens?.*|maxoutput"
    r"|.*(token|length|time|output)s?limit.*|modelcontextwindowexceeded|truncated?|incomplete|repetition|loop",
    "withheld": r".*(content|safety|output|prompt|response)filter.*|(content|image|filter|blocked)*safety|.*recitation"
    r"|blocklist|blocked|prohibited.*|.*(content|prompt|response|output|input)(was|hasbeen)?(blocked|flagged).*|spii"
    r"|.*toxic|(input|output)?(new)?sensitive"
    r"|.*content(management)?policy.*|.*(policyviolation|usagepolicy|responsibleai).*|.*moderation(blocked|failed)?"
    r"|.*guardrail\w*(intervened|blocked).*|.*inspectionfailed|.*inappropriatecontent.*|contentexistsrisk"
    r"|.*consideredhighrisk.*|modelarmor|unsafe(content)?|invalidprompt|language|harmful(content)?",
    "refused": r"(model)?refus(al|ed)|declined",
    "broken_off": r"error|failed|failure|abort(ed)?|(user)?cancel(l?ed)?|insufficientsystemresource|networkerror"
    r"|timeout|interrupted|disconnect(ed)?",
    "called": r"tool(call|use)s?|functioncalls?",
}
"""By the letters of what an endpoint says: `FinishReason.MAX_TOKENS` is `maxtokens`. The first that matches counts.
Of OpenAI, Azure, Anthropic, Bedrock, Gemini, Cohere, Mistral, watsonx, xAI, TGI, vLLM, SGLang, llama.cpp and others."""


def ending_of(completion: Completion) -> Ending:
    """How a reply ended. One that reached the token limit was cut, whatever the endpoint says."""
    if completion.refusal and not completion.text.strip():
        return "refused"
    found = meaning_of(completion.finish_reason)
    if found == "called" or found == "broken_off":  # noqa: PLR1714 - so that mypy follows
        found = "stopped" if found == "called" and completion.called else "unknown"
    return "cut" if completion.at_limit and found in ("stopped", "unknown") else found


def meaning_of(said: str) -> Word:
    """What a reason means, or a code or sentence of an error."""
    for part in (said, said.rpartition(".")[2]):
        letters = re.sub(r"^.*(finish|stop|end)reason", "", letters_of(part))
        for word, pattern in _WORDS.items():
            if re.fullmatch(pattern, letters):
                return word
    return "unknown"


def closes_a_tag(text: str) -> bool:
    """Whether a text ends with a closing tag, whichever."""
    return bool(re.search(r"</\s*\w+\s*>$", text.rstrip()[-64:]))


def letters_of(said: str) -> str:
    """Without case, spaces, signs and digits, in which endpoints differ."""
    return re.sub(r"[^a-z]", "", said.casefold())
