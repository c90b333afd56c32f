"""What errors mean, in the forms that endpoints are known to send, whatever the status they come with."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.errors import InputError
from reasonrag.llm.chat import ChatRequest, Completion
from reasonrag.llm.endpoint.error_objects import end_of_draws, error_in, status_of
from reasonrag.llm.endpoint.http_client import BadAnswerError, HttpAnswer, completions_of, error_of
from tests.reasonrag.llm.endpoint.test_endpoint import answer, client_at, client_of, endpoint_of, request_for

SLOW = "Rate limit exceeded"
IN_A_200: dict[str, tuple[Any, int]] = {
    "a number": ({"error": {"message": SLOW, "code": 429}, "user_id": "u"}, 429),
    "a code": ({"error": {"message": "wait", "code": "rate_limit_exceeded"}}, 429),
    "a type": ({"error": {"message": "wait", "type": "rate_limit_error", "code": None}}, 429),
    "a plain string": ({"error": "Too many requests, slow down"}, 429),
    "Gemini's list": ([{"error": {"code": 429, "message": "q", "status": "RESOURCE_EXHAUSTED"}}], 429),
    "Gemini's status alone": ([{"error": {"message": "q", "status": "RESOURCE_EXHAUSTED"}}], 429),
    "vLLM": ({"object": "error", "message": "wait", "type": "TooManyRequests", "param": None, "code": 429}, 429),
    "FastChat": ({"object": "error", "message": "wait", "code": 42901}, 429),
    "a detail": ({"detail": "Too Many Requests"}, 429),
    "the frame itself": ({"code": 429, "message": "wait"}, 429),
    "the frame's code beside a sentence": ({"error": "Quota of this minute is used up", "code": 429}, 429),
    "the frame's code beside an object": ({"error": {"message": "wait"}, "status": 429, "choices": []}, 429),
    "the frame's code of an account": ({"error": {"message": "no"}, "code": 401}, 401),
    "a number alone": ({"error": 429}, 429),
    "a number with a point": ({"error": {"code": 429.0, "message": "wait"}}, 429),
    "a status of HTTP": ({"error": {"http_status": 429, "message": "wait"}}, 429),
    "the frame's message": ({"message": "API rate limit exceeded"}, 429),
    "several": ({"success": False, "errors": [{"code": 429, "message": "wait"}]}, 429),
    "in a choice": ({"choices": [{"error": {"code": 429, "message": SLOW}, "finish_reason": "error"}]}, 429),
    "in a choice with a beginning": (
        {"choices": [{"message": {"content": "So"}, "error": {"code": 502, "message": "x"}, "finish_reason": None}]},
        502,
    ),
    "beside an empty choice": ({"error": {"code": 503}, "choices": [{"message": {"content": ""}}]}, 503),
    "Bedrock": ({"__type": "x", "type": "ThrottlingException", "message": "Too many tokens"}, 429),
    "overloaded": ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, 529),
    "overloaded in words": ({"error": "The model is currently overloaded. Please try again later."}, 529),
    "no server": ({"error": {"type": "service_unavailable", "message": "x"}}, 529),
    "a server error": ({"error": {"type": "server_error", "message": "x"}}, 500),
    "of no kind": ({"error": {"message": "hm"}}, 500),
    "too late": ({"error": {"code": 504, "message": "x"}}, 504),
    "no money in words": ({"error": "Insufficient Balance"}, 402),
    "no balance": ({"error": {"message": "Your account balance is insufficient"}}, 402),
    "no quota": ({"error": {"code": "quota_exhausted", "message": "x"}}, 402),
    "no billing": ({"error": {"code": "billing_hard_limit_reached", "message": "x"}}, 402),
    "a wrong key": ({"error": {"type": "invalid_request_error", "code": "invalid_api_key", "message": "x"}}, 401),
    "a wrong key at Anthropic": ({"error": {"type": "authentication_error", "message": "x"}}, 401),
    "a wrong key at Gemini": (
        [{"error": {"code": 400, "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}],
        401,
    ),
    "no credits": ({"error": "You have run out of credits"}, 402),
    "no key": ({"error": "You didn't provide an API key."}, 401),
    "no credentials": ({"error": {"message": "No auth credentials found"}}, 401),
    "a quota of a minute": ({"error": "Quota exceeded for requests per minute"}, 429),
    "a model that loads": ({"error": "Model x is currently loading", "estimated_time": 20.0}, 529),
    "beside a beginning": (
        {"error": {"code": 502}, "choices": [{"message": {"content": "<query>Alpha Ba"}, "finish_reason": "stop"}]},
        502,
    ),
    "no such model": ({"error": {"code": "model_not_found", "message": "x"}}, 404),
    "a bad request": ({"error": {"type": "invalid_request_error", "message": "x"}}, 400),
}


@pytest.mark.parametrize("case", IN_A_200)
def test_an_error_in_a_200_means_what_its_code_means(case: str) -> None:
    """It is no completion, and the error has the status that the same error has elsewhere."""
    body, status = IN_A_200[case]
    content = orjson.dumps(body)
    with pytest.raises(BadAnswerError):
        completions_of(content, (), prompt_size=0)
    error = error_of(HttpAnswer(content, {"retry-after": "7"}))
    assert error is not None
    assert (error.status_code, error.response.headers["retry-after"]) == (status, "7")


NO_ERRORS: dict[str, Any] = {
    "an empty object": {},
    "no choices": {"id": "x", "object": "chat.completion", "choices": []},
    "another server": {"status": "ok", "message": "hello"},
    "a list of models": {"object": "list", "data": [{"id": "rate limit", "object": "model"}]},
    "the older completions": {"choices": [{"text": "so the rate limit is", "finish_reason": "stop"}]},
    "a text": "Too many requests",
}


@pytest.mark.parametrize("case", NO_ERRORS)
def test_what_says_no_error_is_a_bad_answer(case: str) -> None:
    assert error_in(NO_ERRORS[case]) is None


def test_a_whole_reply_beside_an_error_is_kept() -> None:
    """It is paid for."""
    body = {
        "error": {"code": 429},
        "choices": [{"message": {"content": "<answer>a</answer>"}, "finish_reason": "stop"}],
    }
    [reply] = completions_of(orjson.dumps(body), (), prompt_size=0)
    assert reply.text == "<answer>a</answer>"


FILTERED_CHOICE = {"content_filter_results": {"hate": {"filtered": True, "severity": "high"}}}


@pytest.mark.parametrize("reason", [None, "stop", ""])
@pytest.mark.parametrize("said", [None, {"content": None}, {"content": ""}, {"role": "assistant"}])
def test_a_choice_without_text_whose_filter_says_so_is_withheld(said: Any, reason: str | None) -> None:
    """As Azure's, whose reason may say nothing."""
    body = {"choices": [{"message": said, "finish_reason": reason} | FILTERED_CHOICE]}
    [reply] = completions_of(orjson.dumps(body), (), prompt_size=0)
    assert (reply.text, reply.finish_reason) == ("", "content_filter")


STATUSES: dict[str, tuple[int, Any, int]] = {
    "a code before a status": (500, {"code": 429}, 429),
    "a type before a status": (400, {"type": "rate_limit_error"}, 429),
    "no money with 429": (429, {"code": "insufficient_quota"}, 402),
    "no money with 429 by its type": (429, {"type": "insufficient_quota", "code": None}, 402),
    "no money with 403": (403, {"code": "insufficient_user_quota"}, 402),
    "a common type says nothing": (401, {"type": "invalid_request_error", "code": None}, 401),
    "nor does it with 429": (429, {"type": "invalid_request_error"}, 429),
    "a sentence says nothing": (400, {"message": "rate limit must be a number"}, 400),
    "nor does a parameter": (400, {"message": "Unsupported parameter: timeout", "param": "timeout"}, 400),
    "a parameter in a code": (400, {"code": "invalid_timeout"}, 400),
    "a model in a code": (400, {"code": "unavailable_model"}, 400),
    "a field in a code": (400, {"code": "invalid_rate_limit_field"}, 400),
    "a wrong key with 400": (400, {"code": "invalid_api_key"}, 401),
    "no money with 400, in words": (
        400,
        {"type": "invalid_request_error", "message": "Your credit balance is too low"},
        402,
    ),
    "no word of money with 400": (400, {"message": "billing is no field"}, 400),
    "a private number": (401, {"code": 40000}, 401),
    "nor a success": (503, {"code": 200}, 503),
    "nor a text": (418, "Rate limit exceeded", 418),
    "a validation error": (422, [{"type": "missing", "loc": ["body", "messages"], "msg": "Field required"}], 422),
}


@pytest.mark.parametrize("case", STATUSES)
def test_a_status_is_that_of_the_code_or_type(case: str) -> None:
    """Where these say more than the answer's status."""
    status, error, meant = STATUSES[case]
    assert status_of(error, status) == meant


def openai(message: str, **said: object) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None} | said}


FILTERED, LONG = "content_filter", "context_length_exceeded"


def said_with_400(*messages: str, **fields: object) -> dict[str, tuple[int, Any]]:
    """Each by its own words."""
    return {message: (400, openai(message, **fields)) for message in messages}


def coded(*codes: str) -> dict[str, tuple[int, Any]]:
    return {code: (400, openai("x", code=code)) for code in codes}


WITHHELD: dict[str, tuple[int, Any]] = {
    **coded("SensitiveContentDetected", "content_filter", "invalid_prompt", "data_inspection_failed"),
    **said_with_400(
        "Violated guardrail policy: guardrails_violation",
        "Content Exists Risk",
        "The request was rejected because it was considered high risk",
        "litellm.ContentPolicyViolationError: x",
        "Bedrock guardrail intervened",
        "input new_sensitive",
    ),
    "Azure's filter": (400, openai("no", innererror={"code": "ResponsibleAIPolicyViolation"})),
    "Azure's results": (
        400,
        openai("no", innererror={"content_filter_result": {"hate": {"filtered": True, "severity": "high"}}}),
    ),
    "OpenRouter": (403, {"error": {"code": 403, "message": "Your input was flagged for violence"}}),
    "a guardrail": (400, openai("x", type="guardrail_intervened")),
    "a filter in a 200": (200, openai("x", code="content_filter")),
    "Gemini's feedback": (200, {"choices": [], "promptFeedback": {"blockReason": "OTHER"}}),
    "Gemini's feedback without choices": (200, {"promptFeedback": {"blockReason": "SAFETY"}}),
    "Azure's feedback": (
        200,
        {"choices": [], "prompt_filter_results": [{"content_filter_results": {"violence": {"filtered": True}}}]},
    ),
    "a prompt against a policy": (403, openai("Your prompt violates our content policy")),
}
TOO_LONG: dict[str, tuple[int, Any]] = {
    **coded("context_length_exceeded"),
    **said_with_400(
        "Range of input length should be [1, 30720]",
        "Your request exceeded model token limit: 8192",
        "Input Tokens Exceeded: 9000",
        "The prompt is greater than max_seq_len of 4096",
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "The input token count (9) exceeds the maximum number of tokens allowed (8)",
        "Prompt contains 9 tokens, too large for model with 8 maximum context length",
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        "Input is too long for requested model.",
        "Please reduce the length of",
        "An input with more tokens than the maximum context length of 4096 is not supported: 5000 input tokens",
    ),
    "a length at OpenRouter": (
        400,
        openai("Provider returned error", metadata={"raw": '{"error": {"code": "context_length_exceeded"}}'}),
    ),
    "vLLM's limit with the prompt": (
        400,
        openai(
            "'max_tokens' is too large: 64. This model's maximum context length is 4096 tokens and your request has "
            "4090 input tokens",
            param="max_tokens",
        ),
    ),
    "llama.cpp": (400, {"error": {"code": 400, "message": "x", "type": "exceed_context_size_error"}}),
    "an older llama.cpp": (500, openai("the request exceeds the available context size", code=500)),
    "TGI": (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096"}),
    "a gateway's": (413, "<html>Request Entity Too Large"),
    "more than a minute's tokens": (429, openai("Request too large for gpt-4o on tokens per min")),
    "a context in a 200": (200, openai("x", code="context_length_exceeded")),
    "a context exceeded with 500": (500, openai("context size exceeded", code=500)),
    "a part of the messages": (400, openai("x", param="messages[0].content", code="string_above_max_length")),
    "a place in the messages": (
        422,
        {"detail": [{"type": "string_too_long", "loc": ["body", "messages", 0, "content"], "msg": "x"}]},
    ),
    "a limit in a 200": (200, {"error": "This model's maximum context length is 4096 tokens"}),
}
ENDED = [(FILTERED, *each) for each in WITHHELD.values()] + [(LONG, *each) for each in TOO_LONG.values()]


async def draws_of(status: int, body: Any, draws: int = 3) -> tuple[list[Completion], int]:
    """Of an endpoint that always says the same, and how many requests it got."""
    requests = list[bytes]()

    async def say(request: web.Request) -> web.Response:
        requests.append(await request.read())
        content = body.encode() if isinstance(body, str) else orjson.dumps(body)
        return web.Response(body=content, status=status, content_type="application/json")

    async with endpoint_of(say) as base_url, client_of(base_url) as (client, failures):
        found = list(await client.complete(request_for(draws)))
    assert not failures
    return found, len(requests)


@pytest.mark.parametrize(("reason", "status", "body"), ENDED, ids=[*WITHHELD, *TOO_LONG])
async def test_an_error_about_the_prompt_is_the_answer_to_its_draws(reason: str, status: int, body: Any) -> None:
    """One request, and a draw without text and tokens for each that was asked for; no second request."""
    found, requests = await draws_of(status, body)
    assert (requests, [each.requests for each in found]) == (1, [1, 0, 0])
    assert {(each.text, each.finish_reason, each.completion_tokens) for each in found} == {("", reason, 0)}
    assert {each.said[:7] for each in found} == {"status "}


async def test_the_words_of_an_error_that_stands_for_a_reply_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without keys, on one line and bounded; a check ends with them."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-mine")
    error = openai("no\nviolence, sk-secret-of-mine " + "x" * 900, code="content_filter")
    [reply], _ = await draws_of(400, error, draws=1)
    assert reply.said.startswith("status 400: no violence, ")
    assert (len(reply.said), "sk-secret" in reply.said) == (300, False)
    async with client_at(passing(error, status=400)) as at:
        with pytest.raises(InputError, match="no violence"):
            await at.client.check()


NOT_ENDED: dict[str, tuple[int, Any]] = {
    **said_with_400(
        "This model's maximum context length is 64 tokens",  # which no prompt fits beside
        "max_tokens is too large: 20000. This model supports at most 16384",
        "Unknown parameter: 'content_filter'.",
        "logprobs are not available with safety filter on",
        "context_window is not supported with this model",
        "Invalid model. Model names are case-sensitive.",
        "seed must be below 2**31 for safety",
        "This model's maximum context length is 4096 tokens. However, you requested 5020 tokens (20 in the messages, "
        "5000 in the completion). Please reduce the length of the messages or completion.",
        "Your account has been suspended for violating our usage policy.",
    ),
    "a prompt that is repeated": (
        422,
        {"detail": [{"loc": ["body"], "msg": "Field required", "input": {"content": "the maximum context length"}}]},
    ),
    "a model that is not there": (404, openai("no such model; see the content policy")),
    "no key": (401, openai("no key; see the content policy")),
    "a user that is too long": (
        400,
        openai("Invalid 'user': string too long", param="user", code="string_above_max_length"),
    ),
    "a stop string that is too long": (400, openai("x", param="stop[0]", code="string_above_max_length")),
    "a filter that is a parameter": (400, openai("x", param="content_filter", code="content_filter")),
    "Google's unknown name": (
        400,
        [{"error": {"code": 400, "message": 'Unknown name "context_limit": Cannot find field.', "status": "x"}}],
    ),
    "a place beside the prompt": (
        422,
        {"detail": [{"type": "string_too_long", "loc": ["body", "user"], "msg": "String is too long"}]},
    ),
    "TGI's limit beside a short prompt": (
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 20 `inputs` "
            "tokens and 5000 `max_new_tokens`"
        },
    ),
    "a suspended account": (403, openai("Your account has been suspended for violating our usage policy.")),
    "a model that is not allowed": (
        403,
        openai("Access denied by content policy of your organization: model not on the allow list"),
    ),
    "a server without memory": (500, openai("CUDA out of memory while allocating for this context size; it restarts")),
    "a filter that fails": (500, openai("internal error while running output filter")),
    "a cache that fails": (500, openai("context window cache failed to load")),
}


@pytest.mark.parametrize("case", NOT_ENDED)
def test_an_error_about_something_else_is_one(case: str) -> None:
    """Its words of a context or a filter are not about the prompt."""
    status, body = NOT_ENDED[case]
    error = error_of(HttpAnswer(orjson.dumps(body), {}), status)
    assert error is not None
    assert end_of_draws(error, max_tokens=64) == ""


def passing(*first: Any, status: int = 200) -> Callable[[object], web.Response]:
    """Says these bodies, at once, then answers well."""
    said = iter(first)

    def say(_: object) -> web.Response:
        if body := next(said, None):
            return web.json_response(body, status=status, headers={"Retry-After": "0.05"})
        return answer("So the answer is <answer>x</answer>")

    return say


SLOWED = ["a number", "Gemini's list", "in a choice"]
PASSING = [*SLOWED, "overloaded", "a server error"]


@pytest.mark.parametrize("request_", [None, request_for(1)], ids=["first request", "later"])
@pytest.mark.parametrize("case", PASSING)
async def test_what_may_pass_is_waited_for_at_the_first_request_too(case: str, request_: ChatRequest | None) -> None:
    """Each failure is counted under the status that it means, and the pace learns how long it asks to wait."""
    body, status = IN_A_200[case]
    async with client_at(passing(body, body)) as at:
        await (at.client.complete(request_) if request_ else at.client.check())
        [pace] = at.client.scheduler.paces
    assert [each.cause for each in at.failures] == [f"http_{status}"] * 2
    assert len(at.bodies) == 3
    assert (pace.asked_until > 0) == (status != 500)


@pytest.mark.parametrize(
    ("body", "status", "left_out"),
    [
        (openai("n > 1 is not supported when content filter is asynchronous", param="n"), 400, "n"),
        ({"error": {"code": 400, "message": "Unsupported parameter: 'seed'", "param": "seed"}}, 200, "seed"),
    ],
)
async def test_a_parameter_is_left_out_where_a_filter_or_a_200_refuses_it(
    body: Any, status: int, left_out: str
) -> None:
    async with client_at(passing(body, status=status)) as at:
        await at.client.complete(request_for(3))
    assert ([left_out in each for each in at.bodies], at.failures) == ([True, False], [])


@pytest.mark.parametrize(
    "error",
    [
        lambda size: {"message": "stop reason " * size},
        lambda size: [{"type": f"inputlength{each}" * 9} for each in range(size // 10)],
    ],
    ids=["one long sentence", "many errors"],
)
async def test_an_error_of_megabytes_is_read_in_time_in_proportion_to_its_length(error: Callable[[int], Any]) -> None:
    """The loop of all requests waits for it. Sixteen times the text takes sixteen times the work; 256 times, if each
    part were read once for every other."""

    def work(size: int) -> float:
        content, times = orjson.dumps({"error": error(size)}), []
        for _ in range(3):
            began = time.process_time()
            found = error_of(HttpAnswer(content, {}))
            assert found is not None
            assert end_of_draws(found) == ""
            times.append(time.process_time() - began)
        return min(times)

    assert work(200_000) < 80 * work(12_500) + 0.02


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 10**6)
    | st.floats()
    | st.sampled_from(["429", "error", "rate_limit", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "code", "type", "choices", "detail", "message", "status"]), inner)
    ),
    max_leaves=8,
)


@given(body=JSON)
def test_no_body_breaks_the_reading_of_errors(body: Any) -> None:
    error = error_of(HttpAnswer(orjson.dumps(body), {}))
    assert error is None or 400 <= error.status_code < 600
