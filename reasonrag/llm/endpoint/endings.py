"""How a reply ended, by what its endpoint says of it: one table of the words that endpoints use.

Decides which words mean that the model stopped, that the reply was cut, withheld or refused, or that the prompt was too
long. Any other word is unknown. Knows no tag by name: a reply that closes its tag itself is whole, however it ended.
"""

from __future__ import annotations

import re
from functools import lru_cache
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
    "stopped": "stop stopped stopsequence stopsequences stopstring stopstrings stopstr stoptoken stopword "
    "matchedstop eos eostoken eosfound eot imend done normal natural end endturn endofturn endofsequence endoftext "
    "endofmessage endofturntoken complete completed completion finish finished",
    "cut": "length limit maxlength modellength maxtokens maxtoken maxnewtokens maxoutput maxoutputtokens "
    "maxcompletiontokens maxgeneratedtokens maximumtokens maximumlength maximumoutputtokens tokenlimit tokenslimit "
    "maxtokenslimit outputtokenlimit outputlimit lengthlimit timelimit modelcontextwindow truncate truncated "
    "incomplete repetition loop",
    "too_long": "contextlength contextwindow contextlimit contextsize contextoverflow exceedcontextsize "
    "prompttoolong inputtoolong",
    "withheld": "contentfilter contentfiltered contentfiltersafety filtered safety imagesafety contentsafety "
    "safetyfilter outputfilter promptfilter recitation imagerecitation blocklist blocked contentblocked prohibited "
    "prohibitedcontent imageprohibitedcontent spii toxic errortoxic sensitive inputsensitive outputsensitive "
    "newsensitive inputnewsensitive outputnewsensitive contentpolicy contentpolicyviolation policyviolation "
    "responsibleaipolicyviolation moderation moderationblocked guardrail guardrailintervened guardrailblocked "
    "contentexistsrisk modelarmor unsafe unsafecontent invalidprompt language harmful harmfulcontent",
    "refused": "refusal refused modelrefusal declined",
    "broken_off": "error failed failure abort aborted cancel canceled cancelled usercancel usercanceled "
    "usercancelled insufficientsystemresource network timeout interrupted disconnect disconnected",
    "called": "toolcall toolcalls tooluse functioncall functioncalls",
}
"""Letters only, without a prefix such as `FinishReason` and an end such as `reached`: `FinishReason.MAX_TOKENS` is
`maxtokens`.
Of OpenAI, Azure, Anthropic, Bedrock, Gemini, Cohere, Mistral, watsonx, xAI, TGI, vLLM, SGLang, llama.cpp and others."""
_MEANINGS: Final[dict[str, Word]] = {letters: word for word, every in _WORDS.items() for letters in every.split()}
_BEGINS, _ENDS = re.compile(r".*(finish|stop|end)reason(?=.)"), re.compile(r"(?<=.)(exceeded|reached|hit|error)$")


def ending_of(completion: Completion) -> Ending:
    """How a reply ended. One that reached the token limit was cut, whatever the endpoint says."""
    if completion.refusal and not completion.text.strip():
        return "refused"
    found = meaning_of(completion.finish_reason)
    if found == "called" or found == "broken_off":  # noqa: PLR1714 - so that mypy follows
        found = "stopped" if found == "called" and completion.called else "unknown"
    return "cut" if completion.at_limit and found in ("stopped", "unknown") else found


@lru_cache(maxsize=256)
def meaning_of(said: str) -> Word:
    """What a reason means, or a code of an error."""
    for part in (said, said.rpartition(".")[2]):
        letters = _BEGINS.sub("", letters_of(part))
        for each in (letters, _ENDS.sub("", letters)):
            if each in _MEANINGS:
                return _MEANINGS[each]
    return "unknown"


def closes_a_tag(text: str) -> bool:
    """Whether a text ends with a closing tag, whichever."""
    return bool(re.search(r"</\s*\w+\s*>$", text.rstrip()[-64:]))


def letters_of(said: str) -> str:
    """Without case, spaces, signs and digits, in which endpoints differ."""
    return re.sub(r"[^a-z]", "", said.casefold())
