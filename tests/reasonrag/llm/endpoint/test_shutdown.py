"""Models that are shut down: which values are a day, when it is told of, and what is named instead."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web

from reasonrag.errors import EndpointLost, InputError, ModelError
from reasonrag.llm.endpoint.endpoint import MAX_REJECTED
from reasonrag.llm.endpoint.error_objects import lacks_model
from reasonrag.llm.endpoint.http_client import HttpAnswer, error_of
from reasonrag.llm.endpoint.shutdown import instead, shutdown_day, warning
from tests.reasonrag.llm.endpoint.test_endpoint import Handler, answer, client_of, endpoint_of, request_for

DAY, TODAY = date(2027, 1, 14), date(2026, 11, 27)


@pytest.mark.parametrize(
    "said",
    [
        "2027-01-14",
        " 2027-01-14\n",
        "20270114",
        "2027-01-14T00:00:00Z",
        "2027-01-14T23:59:59.999+00:00",
        "2027-01-14 12:00:00",
        1799884800,
        1799884800.5,
    ],
)
def test_a_day_is_read_by_iso_8601_and_in_seconds(said: object) -> None:
    assert shutdown_day(said) == DAY


NONSENSE: list[Any] = [
    None,
    "",
    "soon",
    "2027",
    "0000-99-99",
    "2027-02-30",
    "14.01.2027",
    "9" * 5000,
    -1,
    0,
    True,
    False,
]
NONSENSE += [1e300, -1e300, 10**400, [], ["2027-01-14"], {"date": "2027-01-14"}, "1970-01-01", "0001-01-01T00:00:00Z"]
NONSENSE += [float("nan"), float("inf"), 1799884800000, "2027-01-14 or later"]


@pytest.mark.parametrize("said", NONSENSE, ids=lambda each: repr(each)[:30])
def test_what_names_no_day_is_absent(said: object) -> None:
    assert shutdown_day(said) is None
    assert warning("m", {"m": {"shutdown_date": said}}, date(2100, 1, 1)) == ""


@pytest.mark.parametrize(
    ("today", "told"),
    [
        (DAY - timedelta(days=61), ""),
        (DAY - timedelta(days=60), "shutdown date 2027-01-14, in 60 days"),
        (DAY - timedelta(days=1), "shutdown date 2027-01-14, in 1 day"),
        (DAY, "shutdown date 2027-01-14, in 0 days"),
        (DAY + timedelta(days=1), "shutdown date 2027-01-14, 1 day ago"),
        (date(2100, 1, 1), "shutdown date 2027-01-14, 26,650 days ago"),
    ],
)
def test_a_day_is_told_from_sixty_days_before_it_on(today: date, told: str) -> None:
    assert warning("m", {"m": {"shutdown_date": "2027-01-14"}, "n": {}}, today) == told
    assert warning("n", {"m": {"shutdown_date": "2027-01-14"}, "n": {}}, today) == ""
    assert warning("absent", {"m": {"shutdown_date": "2027-01-14"}}, today) == ""


LEAVES = {"shutdown_date": "2027-01-14"}


@pytest.mark.parametrize(
    ("model", "listed", "found", "words"),
    [
        (
            "gpt-4o",
            {},
            "gpt-6-luna",
            "27 October 2026, not verified: shutdown of gpt-4o on 14 January 2027, followed by",
        ),
        ("gpt-4o", {"a": {}, "gpt-6-luna": {}}, "gpt-6-luna", "; it serves a, gpt-6-luna. Reported"),
        ("gpt-4o", {"gpt-6.1-sol": {}}, "gpt-6.1-sol", ", followed by gpt-6.1-sol"),
        ("gpt-4o", {"gpt-6-luna": LEAVES, "gpt-6.1-sol": {}}, "gpt-6.1-sol", "; it serves gpt-6.1-sol. Reported"),
        ("gpt-4o", {"a": {}, "b": LEAVES, "gpt-4o": LEAVES}, "", "; it serves a. Reported"),
        ("gpt-4o", {"gpt-4o": LEAVES}, "", "not verified: shutdown of gpt-4o on 14 January 2027"),
        ("gpt-4.1-mini", {"gpt-6.1-sol": {}}, "", "; it serves gpt-6.1-sol. Reported"),
        ("gpt-4o-2024-08-06", {}, "gpt-6-luna", "shutdown of gpt-4o-2024-08-06"),
        ("openai/gpt-4o", {"openai/gpt-6-luna": {}}, "openai/gpt-6-luna", ", followed by openai/gpt-6-luna"),
        ("openai/gpt-4o", {"gpt-6-luna": {}}, "", "; it serves gpt-6-luna. Reported"),
        ("o3", {}, "gpt-6-luna", "shutdown of o3 on 11 December 2026"),
        ("gpt-4o-audio-preview", {"gpt-6-luna": {}}, "", "; it serves gpt-6-luna"),
        ("mistral-large-2411", {}, "", ""),
        ("m", {f"m{i:02}": {} for i in range(30)}, "", "; it serves m00, m01, m02, m03, m04, m05, m06, m07, m08, m09"),
    ],
)
def test_a_successor_is_one_that_may_be_there(model: str, listed: dict[str, Any], found: str, words: str) -> None:
    """One that the list holds, and that does not leave itself; else what the list holds."""
    told, named = instead(model, listed, TODAY)
    assert named == found
    assert words in told
    assert ("followed by" in told) == bool(found)
    assert bool(told) == bool(words)


def error(status: int, body: object) -> Any:
    return error_of(HttpAnswer(web.json_response(body).body or b"", {}), status)  # type: ignore[arg-type]


def of_openai(message: str, code: object = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


GONE = of_openai("The model `gpt-4o` does not exist or you do not have access to it.", "model_not_found")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, GONE),
        (404, of_openai("The model `gpt-4o` does not exist or you do not have access to it.")),
        (404, of_openai("The model `gpt-4o` has been deprecated, learn more here: https://example.com")),
        (404, of_openai("no", "model_not_found")),
        (403, of_openai("Project `p` does not have access to model `gpt-4o`", "model_not_found")),
        (
            400,
            of_openai("The model `gpt-4o` has been decommissioned and is no longer supported", "model_decommissioned"),
        ),
        (
            404,
            {"object": "error", "message": "The model `gpt-4o` does not exist.", "type": "NotFoundError", "code": 404},
        ),
        (404, {"error": {"message": "model 'gpt-4o' not found", "type": "not_found_error"}}),
        (400, {"error": {"message": "gpt-4o is not a valid model ID", "code": 400}}),
        (410, {"error": "gpt-4o was shut down"}),
        (404, {"error": {"code": "DeploymentNotFound", "message": "The API deployment does not exist"}}),
        (400, {"detail": "Invalid model name passed in model=gpt-4o. Call `/v1/models` to view available models"}),
        (404, {"message": "No endpoints found for gpt-4o."}),
    ],
)
def test_a_model_that_is_not_there_is_known_by_a_code_or_a_sentence(status: int, body: Any) -> None:
    assert lacks_model(error(status, body), "gpt-4o")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, {"detail": "Not Found"}),
        (404, {"error": "the requested page does not exist"}),
        (400, of_openai("Unsupported value: 'stop' is not supported with this model.", "unsupported_value")),
        (400, of_openai("This model's maximum context length is 8192 tokens", "context_length_exceeded")),
        (400, of_openai("Input validation error: model gpt-4o takes no tools")),
        (403, of_openai("You are not allowed to sample from this model", "forbidden")),
        (429, of_openai("The model `gpt-4o` does not exist", "model_not_found")),
        (401, of_openai("Incorrect API key provided", "invalid_api_key")),
        (404, {"detail": "/openai/deployments/gpt-4o was not found"}),
        (404, {"detail": "No route /v1/foo not found"}),
        (400, of_openai("Invalid model parameters: top_p")),
    ],
)
def test_other_errors_are_not_about_a_model_that_is_gone(status: int, body: Any) -> None:
    assert not lacks_model(error(status, body), "gpt-4o")
    assert not lacks_model(error(status, body), "2027")
    assert not lacks_model(error(status, body), "o3")


def listing(**models: object) -> Handler:
    """A list of these models with their shutdown dates."""

    async def models_of(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": name, "shutdown_date": said} for name, said in models.items()]})

    return models_of


async def yes(_: web.Request) -> web.Response:
    return answer("yes")


async def told_of(models: Handler | None, name: str = "m") -> list[str]:
    async with endpoint_of(yes, models) as base_url, client_of(base_url, model=name, timeout=0.5) as (client, _):
        said = list[str]()
        client.say = said.append
        for _ in range(2):
            await client.check()
        return said


def in_days(days: int) -> str:
    return str(datetime.now(UTC).date() + timedelta(days=days))


async def test_the_check_warns_once() -> None:
    [line] = await told_of(listing(**{"gpt-4o": in_days(30), "gpt-6-luna": None}), "gpt-4o")
    assert line.startswith("warning: http://127.0.0.1:")
    assert f"lists gpt-4o with shutdown date {in_days(30)}, in 30 days; it serves gpt-6-luna. Reported on" in line
    assert line.endswith("by gpt-6-luna. To try it: --model gpt-6-luna, and another --run, as a run keeps its model")
    [line] = await told_of(listing(m=in_days(-3), n="never"))
    assert line.endswith(f"lists m with shutdown date {in_days(-3)}, 3 days ago; it serves n")


async def broken(_: web.Request) -> web.Response:
    return web.Response(body=b'{"data": [{"id": "m", "shutdown_date": 1e400}, {"id": 7}, "m", {"shutdown_date": 0}]}')


async def forbidden(_: web.Request) -> web.Response:
    return web.json_response({"error": {"message": "no"}}, status=403)


async def late(_: web.Request) -> web.Response:
    await asyncio.sleep(0.7)
    return web.Response()


@pytest.mark.parametrize("models", [None, broken, forbidden, late, listing(m=in_days(61)), listing(n=in_days(3))])
async def test_a_list_that_names_no_near_day_is_no_news(
    models: Handler | None,
) -> None:
    assert await told_of(models) == []


async def test_a_model_that_is_gone_names_what_to_try() -> None:
    async def gone(_: web.Request) -> web.Response:
        return web.json_response(GONE, status=404)

    for models, given in (
        (None, "gpt-6-luna"),
        (listing(a=None), None),
        (listing(**{"gpt-6.1-sol": 7}), "gpt-6.1-sol"),
    ):
        async with endpoint_of(gone, models) as base_url, client_of(base_url, model="gpt-4o") as (client, _):
            client.name_flag = "--judge"
            with pytest.raises(InputError, match=r"does not answer for the model gpt-4o .*not verified") as refused:
                await client.check()
        assert refused.value.instead == ({"--judge": given} if given else None)


async def test_a_model_that_goes_during_a_run_ends_it() -> None:
    """Once so many requests in a row were told so; a run of any length would lose all its questions otherwise."""
    asked = 0

    async def leaving(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return answer("yes") if asked == 1 else web.json_response(GONE, status=404)

    async with endpoint_of(leaving) as base_url, client_of(base_url, model="gpt-4o") as (client, _):
        await client.complete(request_for(1))
        for _ in range(MAX_REJECTED - 1):
            with pytest.raises(ModelError, match="does not exist"):
                await client.complete(request_for(1))
        with pytest.raises(EndpointLost, match=r"does not exist.*run the same command to continue"):
            await client.complete(request_for(1))
