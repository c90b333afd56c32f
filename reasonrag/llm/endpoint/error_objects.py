"""What an error says: which status it means, whatever the status it came with, and whether it is about the prompt.

Decides by codes and types, wherever they stand in the body; by sentences only where an error has neither. An error
about the prompt itself is an answer: asked again, the endpoint says the same. Knows no connection and raises nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import orjson

from reasonrag.llm.endings import FILTERED, TOO_LONG, ending_of_code

if TYPE_CHECKING:
    from openai import APIStatusError

MOST_DEPTH = 8
"""Levels of an error body that are read."""
_MOST_READ = 4000
"""Characters of a body in which sentences are looked for."""
_NAMES = frozenset({"code", "type", "status", "reason", "error_type", "error_code", "status_code", "statusCode"})
"""Keys of what names an error."""
_SAYING = frozenset({"", "message", "detail", "msg", "error", "errors", "error_msg", "error_message", "status_msg"})
"""Keys of sentences; the error itself may be one."""
_WORDS = {
    402: r"insufficient(user)?(quota|balance|credits?|funds)|billing.*|.*paymentrequired|arrearage|creditsexhausted",
    401: r"(invalid|incorrect|missing|expired|no)(api|access)(key|token).*|apikeyinvalid|unauthenticated"
    r"|unauthori[sz]ed|(invalid)?auth(entication)?(error|failed)?",
    429: r".*ratelimit.*|toomanyrequests.*|resourceexhausted|.*throttl.*|(requests|tokens)perminute.*|limitrequests",
    529: r".*overload(ed)?(error)?|.*capacity(error|exceeded)?|(model|service)?(temporarily)?unavailable(error)?",
    504: r".*timeout(error)?|timedout|deadlineexceeded",
    404: r".*notfound(error)?",
    403: r"permission(error|denied).*|forbidden|accessdenied",
}
"""Which codes and types, by their letters, mean a status whatever the status of the answer."""
_COMMON_WORDS = {
    400: r"badrequest(error)?|invalidrequest(error)?|invalidargument|validation(error)?|invalidparameter.*",
    500: r"(internal|server|api)+(error)?|upstreamerror|provider(error)?",
}
"""Those that many servers give to any error: they count where the answer's status says nothing, and so do sentences."""
_SENTENCES = {
    402: r"insufficient.?(quota|balance|credit|funds)|exceeded your current quota|payment required|billing",
    401: r"(invalid|incorrect|missing|expired|no) (\w+ )?(api.?key|token|credential)|unauthori[sz]ed|authenticat",
    429: r"rate.?limit|too many requests|limit reached|throttl|requests per|slow down",
    529: r"overload|at capacity|unavailable|try again later|\bbusy\b",
}
_TOO_LONG = re.compile(
    r"(maximum|model'?s|available|loaded with|supported|exceed\w*( the)?) (\w+ )?(context|prompt|sequence) ?"
    r"(length|size|window)|context[_ ]?(length|window|size)[\w ]{0,20} exceed|contextwindowexceeded|too long to fit"
    r"|(prompt|input|request|message)s?( is| are)? too (long|large)|too large for model|too many (input )?tokens"
    r"|(input|prompt) (token count|length)\b.{0,60}\bexceed|longer than the (maximum )?model|reduce the length of"
    r"|inputs`? (tokens \+|must have less than)|range of input length",
    re.IGNORECASE,
)
_FILTERED = re.compile(
    r"content.?(management|policy|filter|moderation)|(input|prompt|request) (was|has been|is) (flagged|blocked)"
    r"|flagged as potentially|guardrail\w* (intervened|blocked)|blocked by .{0,20}guardrail|inappropriate content"
    r"|content exists risk|responsible.?ai|considered high risk",
    re.IGNORECASE,
)
_CONTEXT = re.compile(r"context (?:length|size|window)\D{0,20}(\d[\d,]*)", re.IGNORECASE)
_NOT_OF_A_PROMPT = frozenset({401, 402, 404, 408, 502, 503, 504, 529})


def decoded(body: bytes) -> Any:
    """The JSON of a body; its text if it is none."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode("utf-8", "replace")


def leaves(content: Any, key: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """All values of nested objects and lists, each with the nearest key above it."""
    if depth > MOST_DEPTH:
        return
    if isinstance(content, dict):
        for name, value in content.items():
            yield from leaves(value, name, depth + 1)
    elif isinstance(content, list):
        for value in content:
            yield from leaves(value, key, depth + 1)
    else:
        yield key, content


def error_in(body: Any) -> Any:
    """The error in a body without a valid completion; None if there is none."""
    body = body[0] if isinstance(body, list) and body else body  # Gemini's address
    if not isinstance(body, dict):
        return None
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    of_choice = first.get("error") if isinstance(first, dict) else None  # OpenRouter
    if found := body.get("error") or body.get("errors") or of_choice:
        return found
    told = body.get("object") == "error" or body.get("detail") or _is_blocked(body) or status_of(body, None)
    return body if told and not first else None


def status_of(error: Any, status: int | None) -> int | None:
    """The status that an error means; None if nothing says so. status: of its answer, None if that was a success."""
    found = list(leaves(error))
    names = [value for key, value in found if key in _NAMES]
    words = [re.sub(r"[^a-z]", "", each.casefold()) for each in names if isinstance(each, str)]
    if meant := _first(_WORDS, words, re.fullmatch):
        return meant
    for each in names:
        number = int(each) if re.fullmatch(r"[45][0-9]{2}([0-9]{2})?", str(each)) else 0
        if number:
            return int(str(number)[:3])  # FastChat adds two digits
    if status is not None:
        return status
    return _first(_COMMON_WORDS, words, re.fullmatch) or _first(_SENTENCES, [_sentences(error).lower()], re.search)


def _first(table: dict[int, str], said: list[str], matches: Callable[[str, str], object]) -> int | None:
    return next((status for status, pattern in table.items() if any(matches(pattern, each) for each in said)), None)


def end_of_draws(error: APIStatusError, *, max_tokens: int = 0) -> str:
    """FILTERED or TOO_LONG for an error that every request with this prompt gets; empty for any other.

    max_tokens: of the reply; where these alone are more than the model's context, the prompt is not to blame.
    """
    content = decoded(error.response.content)
    if error.status_code in _NOT_OF_A_PROMPT:
        return ""
    codes = {ending_of_code(value) for key, value in leaves(content) if key in _NAMES and isinstance(value, str)}
    said, slow = _sentences(content), error.status_code == HTTPStatus.TOO_MANY_REQUESTS
    if "withheld" in codes or _is_blocked(content) or not (slow or "too_long" in codes or not _FILTERED.search(said)):
        return FILTERED
    context = _CONTEXT.search(said)
    if context and int(context[1].replace(",", "")) <= max_tokens:
        return ""
    large = error.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return TOO_LONG if large or "too_long" in codes or _TOO_LONG.search(said) else ""


def _sentences(content: Any) -> str:
    """What a body says in words; not what it repeats of the prompt."""
    return "\n".join(str(value) for key, value in leaves(content) if key in _SAYING)[:_MOST_READ]


def _is_blocked(body: Any) -> bool:
    """Whether a body says that its prompt was filtered, as Gemini's and Azure's do."""
    return any(
        (key in ("blockReason", "block_reason") and bool(value)) or (key == "filtered" and value is True)
        for key, value in leaves(body)
    )
