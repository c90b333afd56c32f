"""Which parameter a refusal is about: every form that endpoints are known to answer in."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import APIStatusError

from reasonrag.llm.endpoint.address_behaviour import DISPENSABLE, refused_parameters
from reasonrag.llm.endpoint.error_objects import is_refusal
from reasonrag.llm.endpoint.http_client import HttpAnswer
from reasonrag.web.client import MOST_ERROR_BYTES

SENT = ("model", "messages", "temperature", "max_tokens", "seed", "stop", "n", "top_p")


def refusal(body: Any, status: int = 400) -> APIStatusError:
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    response: Any = HttpAnswer(content, {}, status)
    return APIStatusError(f"status {status}: no", response=response, body=None)


def openai(message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}


def unknown_names(*names: str) -> list[dict[str, Any]]:
    """How Gemini's address refuses (Vali-98/ChatterUI#227)."""
    said = [f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.' for name in names]
    violations = [{"description": each} for each in said]
    error = {"code": 400, "message": "\n".join(said), "status": "INVALID_ARGUMENT"}
    return [{"error": error | {"details": [{"@type": "BadRequest", "fieldViolations": violations}]}}]


def forbidden(*names: str) -> list[dict[str, Any]]:
    """How pydantic refuses, behind FastAPI (langchain-ai/langchain-azure#82)."""
    message = "Extra inputs are not permitted"
    return [{"type": "extra_forbidden", "loc": ["body", each], "msg": message, "input": 1} for each in names]


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (refusal(openai("Unsupported parameter: 'stop'", "stop", "unsupported_parameter")), ["stop"]),
        (refusal(openai("'max_tokens' is not supported. Use 'max_completion_tokens' instead.")), ["max_tokens"]),
        (refusal(openai("'temperature' does not support 0", "temperature", "unsupported_value")), ["temperature"]),
        (refusal(openai("`temperature` and `top_p` cannot both be specified")), ["top_p"]),
        (refusal(unknown_names("seed")), ["seed"]),
        (refusal(unknown_names("n", "seed")), ["seed"]),
        (refusal({"detail": forbidden("seed", "n")}, 422), ["seed", "n"]),
        (refusal({"object": "error", "message": {"detail": forbidden("seed")}, "param": None}, 422), ["seed"]),
        (refusal(openai("n: Input should be 1")), ["n"]),
        (refusal(openai("Value error, n must be 1 when using greedy sampling")), ["n"]),
        (refusal(openai("O-series models don't support temperature=0.5", "None", "400")), ["temperature"]),
        (refusal(openai("Invalid value", "body.stop[0]")), ["stop"]),
        (refusal(b"temperature is not supported"), ["temperature"]),
        (refusal(b"stop sequences are not supported"), ["stop"]),
        (refusal({"error": {"message": '{"error": {"message": "Unknown name \\"seed\\""}}'}}), ["seed"]),
        # about something else
        (refusal(openai("no 'seed' in it", "messages.[0].content")), []),
        (refusal({"detail": [{"loc": ["body", "messages", 0], "msg": "the seed is missing"}]}, 422), []),
        (refusal(openai("Bad request, and nothing more in it")), []),
        (refusal(openai("Please stop sending this")), []),
        (refusal(openai("max_tokens is too large for this prompt", code="context_length_exceeded")), []),
        (refusal(openai("filtered because of 'stop'", code="content_filter")), []),
        (refusal(openai("'max_completion_tokens' is too large", "max_completion_tokens")), []),
        (refusal(openai("max_tokens is too large: 20000. This model supports at most 16384", "max_tokens")), []),
        (refusal(openai("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]")), []),
        (refusal(openai("Unknown parameter: 'top_k'", "top_k")), []),
        (refusal(openai("Unsupported parameter: 'stop'", "stop"), 500), []),
    ],
)
def test_what_a_refusal_names(error: APIStatusError, named: list[str]) -> None:
    """By a key of the error, all of them; by a sentence, one at a time, the least missed first. Only what was sent, can
    be left out, and is not about the texts."""
    assert refused_parameters(error, SENT) == named


@pytest.mark.parametrize(("status", "refuses"), [(400, True), (422, True), (401, False), (404, False), (429, False)])
def test_only_two_statuses_refuse_a_request_as_it_is(status: int, refuses: bool) -> None:
    assert is_refusal(refusal(openai("no"), status)) is refuses


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["param", "loc", "field", "code", "x"]), inner),
    )
)
def test_no_body_breaks_it(body: Any) -> None:
    """Whatever an endpoint writes, what is left out was sent and can be left out."""
    assert set(refused_parameters(refusal(body), SENT)) <= DISPENSABLE.keys() & set(SENT)


@pytest.mark.parametrize("body", [b"[" * MOST_ERROR_BYTES, b'{"a":' * 500 + b"1" + b"}" * 500, b"x" * MOST_ERROR_BYTES])
def test_a_body_that_is_deep_or_long_costs_nothing(body: bytes) -> None:
    assert refused_parameters(refusal(body), SENT) == []
