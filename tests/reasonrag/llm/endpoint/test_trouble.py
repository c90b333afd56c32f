"""Models that are shut down: how they are known, and what is named instead."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from reasonrag.errors import InputError
from reasonrag.llm.endpoint.error_objects import lacks_model
from reasonrag.llm.endpoint.http_client import HttpAnswer, error_of
from reasonrag.llm.endpoint.trouble import instead_of
from tests.reasonrag.llm.endpoint.test_endpoint import client_of, endpoint_of


@pytest.mark.parametrize(
    ("model", "listed", "found", "words"),
    [
        (
            "gpt-4o",
            [],
            "gpt-6-luna",
            "27 October 2026, not verified: shutdown of gpt-4o on 14 January 2027, followed by",
        ),
        ("gpt-4o", ["a", "gpt-6-luna"], "gpt-6-luna", "; it serves a, gpt-6-luna. Reported"),
        ("gpt-4o", ["gpt-6.1-sol"], "gpt-6.1-sol", ", followed by gpt-6.1-sol"),
        ("gpt-4.1-mini", ["gpt-6.1-sol"], "", "; it serves gpt-6.1-sol. Reported"),
        ("gpt-4o-2024-08-06", [], "gpt-6-luna", "shutdown of gpt-4o-2024-08-06"),
        ("openai/gpt-4o", ["openai/gpt-6-luna"], "openai/gpt-6-luna", ", followed by openai/gpt-6-luna"),
        ("openai/gpt-4o", ["gpt-6-luna"], "", "; it serves gpt-6-luna. Reported"),
        ("o3", [], "gpt-6-luna", "shutdown of o3 on 11 December 2026"),
        ("gpt-4o-audio-preview", ["gpt-6-luna"], "", "; it serves gpt-6-luna"),
        ("mistral-large-2411", [], "", ""),
        ("m", [f"m{i:02}" for i in range(30)], "", "; it serves m00, m01, m02, m03, m04, m05, m06, m07, m08, m09"),
    ],
)
def test_a_successor_is_one_that_may_be_there(model: str, listed: list[str], found: str, words: str) -> None:
    """One that the list holds; else what the list holds."""
    told, named = instead_of(model, listed)
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
        (404, of_openai("The model `gpt-4o` does not exist or you do not have access to it.")),
        (404, of_openai("The model `gpt-4o` has been deprecated, learn more here: https://example.com")),
        (404, of_openai("no", "model_not_found")),
        (403, of_openai("Project `p` does not have access to model `gpt-4o`", "model_not_found")),
        (
            400,
            of_openai("The model `gpt-4o` has been decommissioned and is no longer supported", "model_decommissioned"),
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


@pytest.mark.parametrize(("listed", "given"), [([], "gpt-6-luna"), (["a"], None), (["gpt-6.1-sol"], "gpt-6.1-sol")])
async def test_a_model_that_is_gone_names_what_to_try(listed: list[str], given: str | None) -> None:
    async def gone(_: web.Request) -> web.Response:
        return web.json_response(GONE, status=404)

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": each} for each in listed]}, status=200 if listed else 403)

    async with endpoint_of(gone, models) as base_url, client_of(base_url, model="gpt-4o") as (client, _):
        client.name_flag = "--judge"
        with pytest.raises(InputError, match=r"does not answer for the model gpt-4o .*not verified") as refused:
            await client.check()
    assert refused.value.instead == ({"--judge": given} if given else None)
