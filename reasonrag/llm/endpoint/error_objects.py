"""What an error says: which status it means, whatever the status it came with, and whether it is about the prompt.

Decides by codes and types, wherever they stand in the body; by sentences only where an error has neither. An error
about the prompt itself is an answer: asked again, the endpoint says the same. Knows no connection and raises nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson

from reasonrag.llm.endpoint.endings import CUT, FILTERED, TOO_LONG, letters_of, meaning_of

if TYPE_CHECKING:
    from openai import APIStatusError

_MOST_LEVELS, _MOST_LEAVES, _MOST_READ = 8, 400, 2000
"""Levels and values of an error body that are read, and characters of a code or sentence."""
_NAMES = frozenset({"code", "type", "status", "reason", "error_type", "error_code", "status_code", "statusCode"})
_NAMES |= {"http_status", "httpStatus", "http_code"}
"""Keys of what names an error."""
_SAYING = frozenset({"", "message", "detail", "msg", "error", "errors", "error_msg", "error_message", "status_msg"})
"""Keys of sentences; the error itself may be one."""
_EMPTY = (
    "insufficient(user)?(quota|balance|credit|funds)|exceededyourcurrentquota|outofcredits|creditbalance(is)?toolow"
    "|balance(is)?insufficient|notenoughcredits?|spendinglimit|quotaexhausted"
)
"""What says that an account is empty, also where the status is 400."""
_MEANT = {
    402: rf"{_EMPTY}|billing|paymentrequired|arrearage",
    401: r"(invalid|incorrect|missing|expired|no)(valid)?((api|access)key|(access|auth)token|credential)|apikeyinvalid"
    r"|unauthenticated|unauthori[sz]ed|authentication|invalidauth|authcredential|provideanapikey",
    429: r"(rate|request|usage)limit|toomanyrequests|resourceexhausted|throttl|limitrequests|requestsper|slowdown"
    r"|quotaexceeded",
    529: r"overload|atcapacity|capacityexceeded|unavailable|tryagainlater|serverisbusy|iscurrentlyloading",
    504: r"timeout|timedout|deadlineexceeded",
    404: r"notfound",
    403: r"^(permission|forbidden|accessdenied)",
    400: r"badrequest|invalid(request|argument|parameter)|validation",
}
"""What the letters of a code, a type or a sentence mean. A code counts more than the status of the answer, but for 400,
which many servers give to any error, and in a refusal (`status_of`); a sentence where nothing else says it."""
_OF_AN_ACCOUNT = frozenset({401, 402, 429})
_INVALID = re.compile(r"invalid(?!api|access|auth|credential)|unknown|unsupported")
"""The beginning of a code that names what a request has wrong, perhaps a `timeout`."""
_TOO_LONG = re.compile(
    r"(?<!model)context(length|window|size|overflow|limit)|modelcontext(length|size|limit)|stringabovemaxlength"
    r"|(prompt|input|request|string|message)s?(is|are|body)?too(long|large)|too(largeformodel|longtofit)"
    r"|(input|prompt)(tokencount|length).*exceed|maximumpromptlength|longerthanthe(maximum)?model|reducethelengthof"
    r"|toomany(input)?tokens|inputs(tokens|musthavelessthan)|exceed\w*tokenlimit|inputlength(shouldbe|limit)"
    r"|inputtokensexceed|sequencelength|maxseqlen"
)
_WITHHELD = re.compile(
    r"(content|safety|output|prompt|response)filter|(content|prompt|response|output|input)(was|hasbeen)?(blocked|flagged)"
    r"|content(management)?policy|policyviolation|usagepolicy|responsibleai|guardrail\w*(intervened|blocked)"
    r"|sensitivecontent|guardrails?policy|guardrails?violat|user_?unsafe|inspectionfailed|inappropriatecontent|consideredhighrisk|(moderation(blocked|failed)?|recitation)$|^prohibited"
)
"""What the letters of a code or sentence say of the prompt, beside the words that end replies."""
_CONTEXT = re.compile(r"(?:context (?:length|size|window)\D{0,20}|tokens`? must be <= )(\d[\d,]*)", re.IGNORECASE)
_OF_THE_INPUT = re.compile(
    r"(\d[\d,]*) (?:`?inputs?`? tokens|in the (?:messages|prompt)|of text input|tokens from the input)"
)
_NOT_OF_A_PROMPT = frozenset({401, 402, 404, 408, 502, 503, 504, 529})
_OF_A_PROMPT = frozenset(
    {"", "None", "body", "messages", "prompt", "contents", "content", "input", "inputs", "input_tokens", "input_text"}
    | {"max_tokens", "max_completion_tokens"}
)
"""What an error about the prompt may name as its parameter."""
_OF_A_PARAMETER = re.compile(
    r"un(known|recognized|expected) (name|parameter|field|argument)|unsupported|invalid model"
    r"|(^|[.:] )['`\"]?\w+['`\"]? (is|are) not (supported|available|allowed)|account (has been|was|is) ",
    re.IGNORECASE,
)
_MAY_PASS = re.compile(r"out of memory|allocat|failed to|internal (server )?error", re.IGNORECASE)
_SURELY_OF_THE_PROMPT = re.compile(
    r"exceeds? the (available |maximum )?context|context (size|length|window) (was |is )?exceeded"
    r"|maximum (context|prompt) length is|(prompt|input) is too long|(prompt|input) violates"
    r"|\b(prompt|input|message|request|content) (was|were|is|has been|have been) (flagged|blocked|filtered)",
    re.IGNORECASE,
)
"""What a sentence says of a prompt where the status speaks of the server or of the account."""
_NO_MODEL = (
    r"(deployment|model{})(does|is|was|has|been|no|not|a|current|ly)*(exist|found|deprecat|decommission|retired|removed"
    r"|discontinued|shutdown|sunset|nolonger|valid(model|$))|(unknown|invalid|nosuch)model(?!param|out|conf|inp)|noendpointsfoundfor"
)
NO_CAPACITY = r"(resources?|capacity|flex\w*)(is|are|current|ly)*(un|not)available|(no|insufficient)(flex)?capacity"
"""What the letters of a code or sentence say where an address lacks the model, or room for a tier such as flex."""
_REFUSED_STATUSES = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})


def decoded(body: bytes) -> Any:
    """The JSON of a body; its text if it is none."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode("utf-8", "replace")


def leaves(content: Any) -> Iterator[tuple[str, Any]]:
    """The values of nested objects and lists, each with the nearest key above it; the first `_MOST_LEAVES`."""
    return islice(_leaves(content, "", 0), _MOST_LEAVES)


def _leaves(content: Any, key: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > _MOST_LEVELS:
        return
    if isinstance(content, dict):
        for name, value in content.items():
            yield from _leaves(value, name, depth + 1)
    elif isinstance(content, list):
        for value in content:
            yield from _leaves(value, key, depth + 1)
    elif key == "raw" and isinstance(content, str) and content.startswith("{"):  # OpenRouter: the provider's own error
        yield from _leaves(decoded(content[:_MOST_READ].encode()), "", depth + 1)
    else:
        yield key, content


def error_in(body: Any) -> Any:
    """The error object in a body without a valid completion; None if there is none."""
    body = body[0] if isinstance(body, list) and body else body  # Gemini's address
    if not isinstance(body, dict):
        return None
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    found = body.get("error") or body.get("errors") or (isinstance(first, dict) and first.get("error"))  # OpenRouter
    told = body.get("object") == "error" or body.get("detail") or is_blocked(body) or status_of(body, None)
    if found and (first or status_of(found, None)):
        return found
    frame = {name: value for name, value in body.items() if name not in ("choices", "usage")}
    return (frame if status_of(frame, None) else found) or (body if told and not first else None)


def status_of(error: Any, status: int | None) -> int | None:
    """The status that an error means; None if nothing says so. status: of its answer, None if that was a success.

    A refusal of a request keeps its status, unless a code says that it is one of the account or of its pace.
    """
    names, refused = _values(error, _NAMES), status is not None and status < HTTPStatus.INTERNAL_SERVER_ERROR
    names += [str(value) for key, value in leaves(error) if key == "error" and isinstance(value, int)]
    if refused:
        names = [each for each in names if not _INVALID.match(letters_of(each))]
    digits = r"[45][0-9]{2}" if status else r"[45][0-9]{2}([0-9]{2})?"  # FastChat's 42901; others number their own
    numbers, meant = (int(each[:3]) for each in names if re.fullmatch(rf"{digits}(\.0)?", each)), _meant(names)
    told = [None if meant == HTTPStatus.BAD_REQUEST else meant, next(numbers, None)]
    found = (each for each in told if each and (each in _OF_AN_ACCOUNT or not refused))
    if status == HTTPStatus.BAD_REQUEST and any(
        re.search(_EMPTY, letters_of(each)) for each in _values(error, _SAYING)
    ):
        return HTTPStatus.PAYMENT_REQUIRED
    return next(found, None) or status or meant or _meant(_values(error, _SAYING))


def _meant(said: list[str]) -> int | None:
    letters = list(map(letters_of, said))
    return next((status for status, words in _MEANT.items() if any(re.search(words, each) for each in letters)), None)


def _values(error: Any, keys: frozenset[str]) -> list[str]:
    return [str(value)[:_MOST_READ] for key, value in leaves(error) if key in keys]


def lacks_model(error: APIStatusError, model: str) -> bool:
    """Whether the address does not have this model, for whatever prompt."""
    own, said = letters_of(model), error.response.content.decode(errors="replace")
    alone = len(own) > 3 and f"/{model}" not in said  # noqa: PLR2004 - less, or a place, may be anything
    pattern = _NO_MODEL.format((f"|model{own}" if own else "") + (f"|{own}" if alone else ""))
    return error.status_code in (400, 403, 404, 410) and says(error, pattern)


def says(error: APIStatusError, pattern: str) -> bool:
    """Whether the letters of a code or sentence match."""
    said = _values(decoded(error.response.content), _NAMES | _SAYING)
    return any(re.search(pattern, letters_of(each)) for each in said)


def end_of_draws(error: APIStatusError, *, max_tokens: int = 0) -> str:
    """FILTERED or TOO_LONG for an error that every request with this prompt gets; CUT where the reasoning used the
    limit up (https://github.com/spiceai/spiceai/issues/7126); empty for any other.

    max_tokens: of the reply; where these alone are more than the model's context, the prompt is not to blame.
    """
    content, status = decoded(error.response.content), error.status_code
    codes = [each for each in _values(content, _NAMES) if " " not in each.strip()]
    said = [each for each in _values(content, _SAYING | _NAMES) if each not in codes]  # not what it repeats
    if any("Could not finish the message because max_tokens" in each for each in said):
        return CUT
    if status == HTTPStatus.TOO_MANY_REQUESTS:  # advice about a rate speaks of prompts, too
        said = [each for each in said if "request too large" in each.lower()]
    said = [each for each in said if _is_of_a_prompt(each, status)]
    meanings = {meaning_of(each) for each in [*codes, *said]}
    letters = list(map(letters_of, [*codes, *said]))
    contexts, inputs = (
        [int(each.replace(",", "")) for each in told.findall("\n".join(said))] for told in (_CONTEXT, _OF_THE_INPUT)
    )
    short = inputs and contexts and 2 * max(inputs) < min(contexts)  # then it is the limit of the reply
    if status in _NOT_OF_A_PROMPT or _names_another(content) or short or any(each <= max_tokens for each in contexts):
        return ""
    if "too_long" in meanings or any(map(_TOO_LONG.search, letters)) or status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return TOO_LONG
    return FILTERED if "withheld" in meanings or any(map(_WITHHELD.search, letters)) or is_blocked(content) else ""


def _is_of_a_prompt(sentence: str, status: int) -> bool:
    """Whether a sentence may be about the prompt: not about a parameter, nor what the server or the account lacks."""
    if status == HTTPStatus.FORBIDDEN or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return bool(_SURELY_OF_THE_PROMPT.search(sentence)) and not _MAY_PASS.search(sentence)
    return not _OF_A_PARAMETER.search(sentence)


def _names_another(content: Any) -> bool:
    """Whether an error names a parameter that is not the prompt, by `param` or by pydantic's `loc`."""
    named = {re.split(r"[.\[]", each.removeprefix("body."))[0] for each in _values(content, frozenset({"param"}))}
    places = {each for each in _values(content, frozenset({"loc"})) if not each.isdigit()}
    others = places - _OF_A_PROMPT
    return bool(named - _OF_A_PROMPT or (others and places - others <= {"body"}))


def is_blocked(body: Any) -> bool:
    """Whether a body says that its prompt was filtered, as Gemini's and Azure's do."""
    return any((key == "blockReason" and value) or (key == "filtered" and value is True) for key, value in leaves(body))


def is_refusal(error: APIStatusError) -> bool:
    """Whether the endpoint refuses the request as it is, so that another one may be answered."""
    return error.status_code in _REFUSED_STATUSES and not end_of_draws(error)
