"""The client against real HTTP: a local endpoint that can be told to behave badly."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import chain, count, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
from aiohttp import web

from reasonrag.agent.prompting import load_prompts, render_prompt
from reasonrag.errors import EndpointLost, InputError, Interrupted, ModelError, UnexpectedError
from reasonrag.llm.budget import Caps, Ledger
from reasonrag.llm.chat import ChatRequest, Completion, Sampling
from reasonrag.llm.endpoint.address_behaviour import DISPENSABLE
from reasonrag.llm.endpoint.endings import ending_of
from reasonrag.llm.endpoint.endpoint import MAX_GIVEN_UP, MAX_REJECTED, CallFailure, EndpointModel, Limits
from reasonrag.llm.endpoint.prompt_window import recorded_cut
from reasonrag.llm.endpoint.trouble import MAX_ATTEMPTS
from reasonrag.llm.journal import Journal, JournaledModel
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.llm.reasoning import without_reasoning
from reasonrag.run.session import Models
from reasonrag.settings import fields_of_a_body
from reasonrag.web.server import listening
from tests.endpoints.behaviour import EndpointBehaviour
from tests.endpoints.simulator import serving

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def request_for(draws: int, *, question: str = "Where was the author of The Iron Bell born?") -> ChatRequest:
    system, user = render_prompt(load_prompts(), "think", question=question, thoughts=[])
    return ChatRequest(
        messages=(system, user),
        sampling=Sampling(temperature=1.0, top_p=1.0, max_tokens=64, stop=("</query>", "</answer>")),
        samples=tuple(range(draws)),
        seeds=tuple(100 + each for each in range(draws)),
    )


@asynccontextmanager
async def endpoint_of(chat: Handler, models: Handler | None = None) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    if models:
        app.router.add_get("/v1/models", models)
    async with listening(app) as address:
        yield f"{address}/v1"


@asynccontextmanager
async def client_of(
    *base_urls: str, model: str = "offline", concurrency: int = 8, **limits: float
) -> AsyncIterator[tuple[EndpointModel, list[CallFailure]]]:
    failures: list[CallFailure] = []
    given = Limits(concurrency, **{"timeout": 60.0, "first_wait": 0.01} | limits)  # the waits of a second are as 10 ms
    client = EndpointModel(model, given, base_urls=base_urls)
    client.on_failure = failures.append
    try:
        yield client, failures
    finally:
        await client.close()


@dataclass
class At:
    """A client of an endpoint; the bodies it was sent, the client's failures, and what the user was told."""

    client: EndpointModel
    failures: list[CallFailure]
    bodies: list[dict[str, Any]]
    said: list[str]

    @property
    def lessons(self) -> list[str]:
        return [line.partition("/v1 ")[2] for line in self.said]


@asynccontextmanager
async def client_at(say: Callable[[dict[str, Any]], web.Response], **limits: Any) -> AsyncIterator[At]:
    """A client of an endpoint that answers each body as `say` says."""
    bodies, said = list[dict[str, Any]](), list[str]()

    async def chat(request: web.Request) -> web.Response:
        bodies.append(orjson.loads(await request.read()))
        return say(bodies[-1])

    async with endpoint_of(chat) as base_url, client_of(base_url, **limits) as (client, failures):
        client.say = said.append
        yield At(client, failures, bodies, said)


async def all_of(client: EndpointModel, request: ChatRequest) -> Sequence[Completion]:
    """Every draw of a request, as the agent gets them: what one answer leaves out is asked for singly."""
    with TemporaryDirectory() as place:
        async with Journal(Path(place) / "journal.jsonl") as journal:
            return await JournaledModel(client, journal, name=client.name, ledger=Ledger()).complete(request)


def answer(*texts: str, finish_reason: str = "stop") -> web.Response:
    choices = [{"message": {"content": text}, "finish_reason": finish_reason} for text in texts]
    return web.json_response({"choices": choices, "usage": {"prompt_tokens": 400, "completion_tokens": 15}})


def refusal(status: int, message: str, **headers: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status, headers=headers)


async def alone(refused: Callable[[], web.Response]) -> tuple[ModelError, list[CallFailure]]:
    """What becomes of a request whose prompt alone gets this, while others are answered."""
    async with client_at(lambda body: refused() if "poison" in str(body) else answer("<answer>x</answer>")) as at:
        poisoned = asyncio.create_task(at.client.complete(request_for(1, question="poison?")))
        while not poisoned.done():
            await at.client.complete(request_for(1))
        with pytest.raises(ModelError) as raised:
            await poisoned
    return raised.value, at.failures


async def test_missing_siblings_are_asked_for_singly_and_that_is_remembered() -> None:
    """An endpoint that ignores n gives one choice; the others follow one by one, and after two such answers n is not
    tried again: the user is told, because each sibling now pays for its prompt."""
    async with client_at(lambda _: answer("So the answer is <answer>x</answer>")) as at:
        for _ in range(3):
            assert len(await all_of(at.client, request_for(3))) == 3
    assert [each.get("n") for each in at.bodies] == [3, None, None, 3, None, None, None, None, None]
    assert at.lessons == [f"returns one choice per request: {DISPENSABLE['n']}"]


async def test_what_is_refused_is_left_out_from_then_on_and_said_once() -> None:
    """Each refusal names one parameter; the fourth attempt is answered, and the next request needs no other."""
    refused = ("max_tokens", "stop", "temperature")

    def picky(body: dict[str, Any]) -> web.Response:
        named = next((name for name in refused if name in body), "")
        said = f"Unsupported parameter: '{named}' is not supported with this model"
        return refusal(400, said) if named else answer("<answer>x</answer>")

    async with client_at(picky) as at:
        await at.client.complete(request_for(1))
        await at.client.complete(request_for(1))
        assert at.client.refused == [*refused]
    assert len(at.bodies) == 5
    assert at.bodies[-1].keys() == {"model", "messages", "max_completion_tokens", "seed"}
    assert at.lessons == [f"does not accept {name}: {DISPENSABLE[name]}" for name in refused]
    assert at.failures == []


@pytest.mark.parametrize(
    ("profile", "given"),
    [(None, True), ("qwen3-think", True), ("vllm-reasoning", True), ("gpt-5", False), ("anthropic", False)],
)
async def test_log_probabilities_are_of_the_reply_or_the_check_says_that_there_are_none(
    profile: str | None, *, given: bool
) -> None:
    """Where an endpoint refuses or ignores them, what needs them starts nothing; reasoning has none."""
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=640, logprobs=True)
    async with serving(EndpointBehaviour(profile=profile)) as (base_url, _):
        client = EndpointModel("offline", Limits(8, timeout=60), sampling=sampling, base_urls=[base_url])
        if given:
            await client.check()
        else:
            with pytest.raises(InputError, match=r"offline at .* gives no log-probabilities .* use an endpoint that"):
                await client.check()
        [reply] = await client.complete(replace(request_for(1), sampling=sampling))
        await client.close()
    read = without_reasoning(reply)
    assert read.text.startswith("Nothing is known yet.")
    assert [each.text for each in read.logprobs or ()][:5] == (
        ["Nothing", " is", " known", " yet", "."] if given else []
    )
    assert "".join(each.text for each in read.logprobs or ()) == (read.text if given else "")


async def test_a_refusal_that_leaving_out_did_not_help_teaches_nothing() -> None:
    """The sentence mentions a parameter, but that was not it: the request fails with it, and others are sent whole."""
    async with client_at(lambda _: refusal(400, "the seed of all evil is in this prompt")) as at:
        with pytest.raises(ModelError, match="the seed of all evil"):
            await at.client.complete(request_for(1))
        assert at.client.refused == []
    assert ["seed" in each for each in at.bodies] == [True, False]


@pytest.mark.parametrize("message", ["Unsupported value: 'n' must be 1", "n: Input should be 1", "Bad request"])
async def test_several_choices_are_refused_also_without_a_name(message: str) -> None:
    """After such a refusal the request is asked once with one choice; after two, no other asks for several."""
    async with client_at(lambda body: refusal(400, message) if "n" in body else answer("<answer>x</answer>")) as at:
        for _ in range(3):
            assert len(await all_of(at.client, request_for(2))) == 2
        assert at.client.refused == ["n"]
    assert [each.get("n") for each in at.bodies] == [2, None, None, 2, None, None, None, None]
    assert at.failures == []


async def test_fields_of_the_user_are_sent_and_change_the_key_of_an_answer() -> None:
    """`--extra-body`: a request with it is another request; one without it has the key that it always had."""
    plain = request_for(1)
    thinking = plain.sampling.model_copy(update={"extra_body": {"reasoning_effort": "low"}})
    asked = replace(plain, sampling=thinking)
    async with client_at(lambda _: answer("<answer>x</answer>")) as at:
        await at.client.complete(asked)
    assert at.bodies[0].pop("reasoning_effort") == "low"
    for own in at.bodies[0]:
        with pytest.raises(ValueError, match=f"'{own}' is a field that reasonrag sets itself"):
            fields_of_a_body({own: 1})
    assert asked.keys(model="m")[0] != plain.keys(model="m")[0]
    assert "extra_body" not in plain.sampling.model_dump()


async def test_passing_trouble_is_survived_and_written_down() -> None:
    """A garbled body, 503 and 429 with Retry-After are asked again; those that say when to come back last, as the
    others wait longer each time."""
    garbled, well = web.Response(text="<html>bad gateway</html>"), answer("<answer>x</answer>")
    busy = refusal(503, "overloaded", **{"Retry-After": "0"}), refusal(429, "slow down", **{"Retry-After": "0.01"})
    said = iter((garbled, *busy, well))
    async with client_at(lambda _: next(said)) as at:
        [completion] = await at.client.complete(request_for(1))
    assert completion.text == "<answer>x</answer>"
    assert [failure.cause for failure in at.failures] == ["bad_answer", "http_503", "http_429"]
    assert not any(failure.final for failure in at.failures)


async def test_never_more_requests_are_in_flight_than_allowed() -> None:
    """--concurrency bounds HTTP requests, also where one request for siblings becomes several. Rates are learned from
    headers."""
    async with (
        serving(EndpointBehaviour(latency=0.01, ignore_n=True, rpm=6000)) as (base_url, traffic),
        client_of(base_url, concurrency=3) as (client, _),
    ):
        await asyncio.gather(*(all_of(client, request_for(4, question=f"Who is {i}?")) for i in range(5)))
        [pace] = client.scheduler.paces
    assert (traffic.requests, pace.requests.limit) == (20, 6000)
    assert traffic.most_in_flight == 3


@pytest.mark.parametrize(
    ("status", "error", "told"),
    [
        (401, {"message": "Incorrect API key"}, "refuses the API key .*Check OPENAI_API_KEY"),
        (
            200,
            {"message": "Incorrect API key", "code": "invalid_api_key"},
            "refuses the API key .*Check OPENAI_API_KEY",
        ),
        (429, {"message": "no money left", "code": "insufficient_quota"}, "has no credit or quota left .*Add some"),
        (200, {"message": "Insufficient Balance", "code": 402}, "has no credit or quota left .*Add some"),
        (402, {"message": "Payment required"}, "has no credit or quota left .*Add some"),
    ],
)
async def test_an_account_that_is_shut_ends_the_run(status: int, error: dict[str, Any], told: str) -> None:
    """No other question would fare better: a revoked key or an empty account is no failure of this one. The first
    request is told the same."""
    async with client_at(lambda _: web.json_response({"error": error}, status=status)) as at:
        with pytest.raises(EndpointLost, match=rf"{told}, then run the same command") as raised:
            await at.client.complete(request_for(1))
        with pytest.raises(InputError, match=f"{told}$"):
            await at.client.check()
    assert error["message"] in str(raised.value)
    assert [failure.final for failure in at.failures] == [True]


async def test_no_request_is_given_up_for_faults_that_strike_by_chance() -> None:
    """5 % of all attempts get the same error; one request four times in a row."""
    dice, broken = random.Random(504), {"retry-after": "0"}

    def fickle(_: object) -> web.Response:
        fails = dice.random() < 0.05
        return refusal(500, "The server had an error", **broken) if fails else answer("<answer>x</answer>")

    async with client_at(fickle) as at:
        for _ in range(400):
            await at.client.complete(request_for(1))
    assert max(each.attempt for each in at.failures) == 4
    assert not any(each.final for each in at.failures)


async def test_server_errors_after_an_endpoint_was_down_are_an_answer_too() -> None:
    """What it says once it is back counts: no request is tried for ever because the breaker had opened."""
    said = chain([(503, "starting")] * 6, repeat((500, "list index out of range")))
    async with client_at(lambda _: refusal(*next(said), **{"retry-after": "0"})) as at:
        with pytest.raises(ModelError) as raised:
            await at.client.complete(request_for(1))
    assert raised.value.cause == "http_500"
    assert len(at.bodies) <= 6 + MAX_ATTEMPTS


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_request_that_alone_gets_an_error_is_tried_to_the_end(status: int) -> None:
    """It may have had bad luck, or be too much for a limit by itself; but however long others are answered meanwhile,
    it is given up."""
    error, failures = await alone(lambda: refusal(status, "worker died", **{"retry-after": "0.01"}))
    assert re.search("attempts: .*worker died", str(error))
    assert {failure.cause for failure in failures} == {f"http_{status}"}
    assert len(failures) >= MAX_ATTEMPTS


GONE = {"error": {"message": "The model `gpt-4o` does not exist", "code": "model_not_found"}}


@pytest.mark.parametrize(
    ("status", "body", "times"),
    [
        (404, GONE, 1),
        *((each, {"error": {"message": "your project was archived"}}, MAX_REJECTED) for each in (400, 403)),
    ],
    ids=["a model that is gone", "a fault of every request", "a key that was disabled"],
)
async def test_a_refusal_that_no_other_question_would_escape_ends_the_run(status: int, body: Any, times: int) -> None:
    """At once, but for what may be about a prompt: then the trial fails, too."""
    said = chain([answer("yes")], (web.json_response(body, status=status) for _ in count()))
    async with client_at(lambda _: next(said), model="gpt-4o") as at:
        await at.client.complete(request_for(1))
        for _ in range(times - 1):
            with pytest.raises(ModelError, match="archived"):
                await at.client.complete(request_for(1))
        with pytest.raises(EndpointLost, match=r"(does not exist|archived).*Fix that, then run the same command"):
            await at.client.complete(request_for(1))


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 0}}),
        (200, {"choices": [{"message": None, "finish_reason": "stop"}]}),
        (200, {"choices": [{"message": None, "finish_reason": "content_moderation"}]}),
        (451, {"error": {"message": "not here"}}),
        (400, {"error": {"message": "not allowed: 'This model was discontinued in 1998'"}}),
    ],
    ids=["no choices", "a null message", "null for an unknown reason", "451", "words of the prompt"],
)
async def test_what_one_prompt_alone_gets_is_about_the_prompt(status: int, body: Any) -> None:
    """Where others are answered meanwhile."""
    error, _ = await alone(lambda: web.json_response(body, status=status))
    assert error.of_prompt is True


async def test_many_prompts_that_are_rejected_in_a_row_end_no_run_whose_trial_is_answered() -> None:
    """As when a run goes on, and asks first what was rejected before."""

    def particular(body: dict[str, Any]) -> web.Response:
        return answer("yes") if "Say yes." in str(body) else refusal(400, "not this prompt")

    async with client_at(particular) as at:
        for _ in range(MAX_REJECTED + 2):
            with pytest.raises(ModelError, match="not this prompt") as raised:
                await at.client.complete(request_for(1))
            assert raised.value.of_prompt


async def test_an_endpoint_that_answers_nothing_but_errors_is_waited_for() -> None:
    """One request that fails may be wrong itself; after five in a row it is the endpoint, and nobody else is given
    up until it is back."""
    errors = {"retry-after": "0"}
    async with client_at(
        lambda _: refusal(500, "out of memory", **errors) if errors else answer("<answer>x</answer>")
    ) as at:
        for _ in range(MAX_GIVEN_UP):
            with pytest.raises(ModelError):
                await at.client.complete(request_for(1))
        others = [asyncio.create_task(at.client.complete(request_for(1))) for _ in range(6)]
        while not at.client.waiting_for.startswith("answers with errors (status 500): "):  # noqa: ASYNC110 - the state is what is tested
            await asyncio.sleep(0.02)
        errors.clear()
        assert all(each[0].text for each in await asyncio.wait_for(asyncio.gather(*others), timeout=100))


async def test_requests_that_break_an_endpoint_do_not_always_go_first() -> None:
    """Whoever found it down goes behind the others: they prove that it is back, and the culprit is given up."""
    down_until = 0.0

    def fragile(body: dict[str, Any]) -> web.Response:
        nonlocal down_until
        now, broken = asyncio.get_running_loop().time(), "poison" in str(body)
        down_until = now + 0.3 if broken else down_until
        return refusal(503, f"restarting {now}", **{"retry-after": "0"}) if now < down_until else answer("<answer>x")

    async with client_at(fragile, concurrency=2) as at:
        poisoned = asyncio.create_task(at.client.complete(request_for(1, question="poison?")))
        others = [at.client.complete(replace(request_for(1, question=f"{i}?"), priority=1)) for i in range(20)]
        assert all(each[0].text for each in await asyncio.wait_for(asyncio.gather(*others), timeout=100))
        poisoned.cancel()


def test_a_client_serves_several_event_loops(endpoint: str) -> None:
    """One run after the other, also after a stop."""
    client = EndpointModel("offline", Limits(concurrency=2, timeout=60), base_urls=[endpoint])

    async def once() -> str:
        client.begin()
        [completion] = await client.complete(request_for(1))
        client.stop(Interrupted("Ctrl-C"))
        await client.close()
        return completion.text

    assert asyncio.run(once()) == asyncio.run(once())


@pytest.mark.parametrize(("status", "headers"), [(500, {}), (429, {"retry-after": "7200"})])
async def test_an_endpoint_that_only_fails_is_left_alone_while_another_answers(
    status: int, headers: dict[str, str]
) -> None:
    """It is up, and useless: its errors are its own as long as the other one shows that the requests are fine. Neither
    its wait nor max_wait stops a run that goes on elsewhere."""

    async def useless(_: web.Request) -> web.Response:
        return refusal(status, "CUDA error", **headers)

    async with (
        endpoint_of(useless) as bad,
        serving(EndpointBehaviour(latency=0.01)) as (good, traffic),
        client_of(bad, good, concurrency=4, max_wait=60.0) as (client, _),
    ):
        await client.check()
        for _ in range(10):
            requests = [request_for(1, question=f"Where was {i}?") for i in range(4)]
            completions = await asyncio.gather(*map(client.complete, requests))
            assert all(each[0].text for each in completions)
    assert traffic.requests == 40 + 1  # the trial


async def test_a_request_that_waits_to_be_tried_again_ends_with_the_run() -> None:
    """Nobody sits out a minute of waiting after Ctrl-C."""
    async with client_at(lambda _: refusal(500, "busy", **{"retry-after": "30"})) as at:
        failed = asyncio.Event()
        at.client.on_failure = lambda _: failed.set()
        waiting = asyncio.create_task(at.client.complete(request_for(1)))
        await failed.wait()
        await asyncio.sleep(0.05)
        assert at.client.waiting_for.startswith("retrying 1 request in ")
        at.client.stop(Interrupted("Ctrl-C"))
        with pytest.raises(Interrupted):
            await asyncio.wait_for(waiting, timeout=20)  # of the 30 that it would wait


async def test_a_question_stays_at_its_address_and_leaves_it_when_it_dies() -> None:
    """The servers then have its prompts in their caches; no request fails with the address."""
    questions, dead = [f"q{number}" for number in range(12)], set[str]()

    async def chat(request: web.Request) -> web.Response:
        return refusal(503, "down") if request.host in dead else answer(f"<answer>{request.host}</answer>")

    async with (
        endpoint_of(chat) as first,
        endpoint_of(chat) as second,
        client_of(first, second, concurrency=24) as (client, _),
    ):

        async def place_of(question: str) -> str:
            [reply] = await client.complete(replace(request_for(1), question_id=question))
            return reply.text

        home = {each: await place_of(each) for each in questions}
        assert len(set(home.values())) == 2
        assert {each: await place_of(each) for each in questions} == home
        dead.add(urlsplit(first).netloc)
        assert set(await asyncio.gather(*map(place_of, questions))) == {f"<answer>{urlsplit(second).netloc}</answer>"}


async def test_an_answer_that_cannot_be_accounted_for_is_returned_and_the_last_that_is_requested() -> None:
    """Here what the client says to the user cannot be shown: the answer was paid, whatever fails after it."""

    def failing(_: str) -> None:
        raise ValueError("I/O operation on closed file")

    bare = {"choices": [{"message": {"content": "<answer>x</answer>"}}]}
    async with client_at(lambda _: web.json_response(bare)) as at:
        at.client.say = failing
        [completion] = await at.client.complete(request_for(1))
        with pytest.raises(UnexpectedError, match=r"I/O operation on closed file.*are kept.*The same command") as stop:
            await at.client.complete(request_for(1))
    assert (completion.text, len(at.bodies), at.failures) == ("<answer>x</answer>", 1, [])
    assert (stop.value.cause, stop.value.exit_status) == ("internal", 1)


async def test_an_address_without_its_path_is_given_a_hint() -> None:
    """The most common mistake in an address is the missing /v1."""
    async with serving(EndpointBehaviour()) as (base_url, _), client_of(base_url.removesuffix("/v1")) as (client, _):
        with pytest.raises(InputError, match=r"status 404.*Most addresses end in /v1"):
            await client.check()


async def test_what_speaks_another_language_fails_the_check() -> None:
    """A web page is no endpoint; no traceback either."""
    page = "<html>It works!</html>"
    async with client_at(lambda _: web.Response(text=page, headers={"retry-after": "0"})) as at:
        with pytest.raises(InputError, match=r"does not speak OpenAI's API.*It works.*Check --base-url"):
            await at.client.check()


@pytest.mark.parametrize("key", ["sk-no-break\u00a0space", "sk-two\nlines"])
def test_a_key_with_characters_that_no_key_has_is_refused(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As is none at all for OpenAI; a copied line break at the end is forgiven; the message does not hold the key."""
    with pytest.raises(InputError, match=r"OPENAI_API_KEY.*--model offline"):
        EndpointModel("gpt-4o", Limits(concurrency=1, timeout=1))
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(InputError, match="OPENAI_API_KEY contains characters") as raised:
        EndpointModel("gpt-4o", Limits(concurrency=1, timeout=1))
    assert "sk-" not in str(raised.value)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-fine\n")
    EndpointModel("gpt-4o", Limits(concurrency=1, timeout=1))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("user:s3cret@host/v1", "not an endpoint's address"),
        ("http://user:s3/cret@host/v1", "not an endpoint's address"),
        ("http://user:s3cret@host/v1", "contains a user or password"),
        ("//user:s3cret@host", "not an endpoint's address"),
        ("s3cret@h", "not an endpoint's address"),
        ("http://host/v1?key=s3#cret", r"http://host/v1 contains a #.*%23"),
    ],
)
def test_an_address_with_a_password_is_refused_and_not_repeated(url: str, says: str) -> None:
    """With a scheme or without one, also if the password has a slash, or a key what a browser would not send."""
    with pytest.raises(InputError, match=says) as error:
        EndpointModel("m", Limits(concurrency=1, timeout=1), base_urls=[url])
    assert not any(part in str(error.value) for part in ("s3cret", "s3", "cret"))


def saying(reason: Any, text: str = "So the next query is <query>one") -> web.Response:
    return web.json_response({"choices": [{"message": {"content": text}, "finish_reason": reason}]})


STRANGE = [None, "", "OTHER", "tool_calls", "\u202egnorw", 7]


@pytest.mark.parametrize("reason", STRANGE)
async def test_after_three_replies_that_end_for_no_known_reason_no_stop_string_is_sent(reason: Any) -> None:
    """So that a reply closes its tag itself; said once."""
    async with client_at(lambda _: saying(reason)) as at:
        replies = [reply for _ in range(4) for reply in await at.client.complete(request_for(1))]
        assert at.client.refused == ["stop"]
    assert {ending_of(each) for each in replies} == {"unknown"}
    assert ["stop" in each for each in at.bodies] == [True, True, True, False]
    [told] = [each for each in at.said if "unknown_end" in each]
    assert "stop and length" in told
    assert told.isprintable()
    assert ("gives no finish_reason," in told) == (reason in ("", 7, None))


CLOSING, OPENED = "So the next query is <query>one</query>", "So the next query is <query>one"


@pytest.mark.parametrize(
    "replies",
    [
        [(None, CLOSING)] * 4,
        [(None, OPENED), ("stop", OPENED), (None, OPENED), (None, OPENED), ("stop", CLOSING), (None, OPENED)],
        [(each, OPENED) for each in ("stop", "STOP", "length", "MAX_TOKENS", "SAFETY", "refusal")],
    ],
    ids=["all closed", "no three in a row", "known reasons"],
)
async def test_a_stray_unknown_reason_costs_no_stop_strings(replies: list[tuple[Any, str]]) -> None:
    left = iter(replies)
    async with client_at(lambda _: saying(*next(left))) as at:
        for _ in replies:
            await at.client.complete(request_for(1))
        assert at.client.refused == []
    assert not any("finish_reason" in each for each in at.said)


# -- models that reason ------------------------------------------------------------------------------------------


def reasoned(text: str, reasoning: str, finish_reason: str = "stop") -> web.Response:
    message = {"content": text, "reasoning_content": reasoning}
    return web.json_response({"choices": [{"message": message, "finish_reason": finish_reason}]})


@pytest.mark.parametrize("beside", [False, True])
async def test_a_stop_string_that_cut_the_reasoning_is_not_sent_again(*, beside: bool) -> None:
    """Said once, counted among what is left out; all requests after it go without."""

    def thinking(body: dict[str, Any]) -> web.Response:
        if "stop" not in body:
            return answer("Is it <query>x</query>?\n</think>\n\n<query>y</query>")
        return reasoned("", "Is it <query>x") if beside else answer("<think>Is it <query>x")

    async with client_at(thinking) as at:
        for _ in range(2):
            [completion] = await all_of(at.client, request_for(1))
            assert completion.text.endswith("<query>y</query>")
        assert at.client.refused == ["stop"]
    assert ["stop" in each for each in at.bodies] == [True, False, False]
    assert [each for each in at.lessons if "stop" in each] == [
        f"is sent no stop strings, which could cut its reasoning: {DISPENSABLE['stop']}"
    ]


@pytest.mark.parametrize("beside", [False, True])
async def test_a_trial_that_shows_reasoning_spares_the_first_requests_their_stop_strings(*, beside: bool) -> None:
    """Before one could cut a paid reply; a prompt that asks for think tags keeps them."""

    def thinking(_: dict[str, Any]) -> web.Response:
        return reasoned("yes", "They want a yes.") if beside else answer("<think>They want a yes.</think>yes")

    async with client_at(thinking) as at:
        await at.client.check()
        await at.client.complete(request_for(1))
        await at.client.complete(replace(request_for(1), think_in_format=True))
        assert at.client.refused == ["stop"]
    assert ["stop" in each for each in at.bodies] == [True, False, True]


async def test_an_error_instead_of_a_reply_of_nothing_but_reasoning_is_that_reply() -> None:
    """As OpenAI answers it: bounded by the most it can have cost; what was refused before it is learned, and the other
    draws are asked for."""
    sentence = "Could not finish the message because max_tokens or model output limit was reached. Please try again."
    single = count(1)

    def eaten(body: dict[str, Any]) -> web.Response:
        if "max_tokens" in body:
            return refusal(400, "Unsupported parameter: 'max_tokens' is not supported with this model")
        return refusal(400, sentence) if "n" in body or next(single) == 1 else answer("<answer>x</answer>")

    asked = request_for(3)
    async with client_at(eaten) as at:
        first, *others = await all_of(at.client, asked)
        assert at.client.refused == ["max_tokens"]
    assert (first.text, first.finish_reason, first.tokens_bounded) == ("", "length", True)
    assert (first.prompt_tokens, first.completion_tokens) == (asked.size, 3 * 64)
    assert sorted(each.text for each in others) == ["", "<answer>x</answer>"]
    assert at.failures == []


@pytest.mark.parametrize(
    ("reply", "hinted", "named"),
    [
        (answer("<think>They want", finish_reason="length"), True, False),
        (answer("<think>They want a yes."), True, False),
        (answer("<think>\n\n</think>\n\nyes"), False, False),
        (reasoned("", "They want", "length"), True, False),
        (reasoned("yes", "They want a yes."), True, False),
        (reasoned("", "yes"), True, True),
        (reasoned("\n", "They want a yes. I say yes."), True, True),
        (
            refusal(400, "Could not finish the message because max_tokens or model output limit was reached."),
            True,
            False,
        ),
        (answer(""), False, False),
        (answer("yes"), False, False),
    ],
    ids="think,open,switched off,cut,beside,whole,blank content,refused,nothing at all,none".split(","),
)
@pytest.mark.parametrize("room", [512, 2048])
async def test_a_model_that_reasons_is_told_from_one_that_does_not(
    reply: web.Response, room: int, *, hinted: bool, named: bool
) -> None:
    """By the check's reply, before anything is paid: how long a reply may be, unless it is ample; and once, with the
    settings of server and client that help, of a reply that is given whole as reasoning."""

    async def trial(_: web.Request) -> web.Response:
        return web.Response(status=reply.status, body=reply.body, content_type="application/json")

    async with endpoint_of(trial) as base_url:
        sampling = Sampling(temperature=1, top_p=1, max_tokens=room)
        client = EndpointModel("o", Limits(8, timeout=60), sampling=sampling, base_urls=[base_url], flags="--judge-")
        said: list[str] = []
        client.say = said.append
        await client.check()
        await client.check()
        await client.close()
    hint = "o reasons before it answers, and --max-reply-tokens 512 limits reasoning and reply together: raise it"
    assert [hint in each for each in said if "reasons before it answers" in each] == [True] * (hinted and room < 2048)
    told = [each for each in said if "gave its whole reply as reasoning and no content" in each]
    assert ["--reasoning-parser" in each and "--judge-extra-body '{" in each for each in told] == [True] * named


def counting(window: int) -> Handler:
    """An endpoint with this context window, which it says of every longer prompt; four bytes are a token."""

    async def chat(request: web.Request) -> web.Response:
        asked = orjson.loads(await request.read())["messages"]
        tokens = min(window, sum(len(each["content"].encode()) for each in asked) // 4)
        choices = [{"message": {"content": "So the answer is <answer>x</answer>"}, "finish_reason": "stop"}]
        return web.json_response({"choices": choices, "usage": {"prompt_tokens": tokens, "completion_tokens": 9}})

    return chat


@pytest.mark.parametrize(("window", "named"), [(700, 1), (10**6, 0)], ids=["cut", "whole"])
async def test_an_address_that_cuts_prompts_is_named_once_a_session(window: int, named: int, tmp_path: Path) -> None:
    """And no other; from which length is among what is refused, for the run to keep: whatever the session was."""
    passages = [request_for(1, question="Where? " * (40 * length)) for length in range(60)]
    found, lessons = list[list[str]](), list[dict[str, list[str]]]()
    async with endpoint_of(counting(window)) as base_url, endpoint_of(counting(10**6)) as other:
        for asked in (passages[:40], passages[40:]):
            said: list[str] = []
            async with (
                client_of(other, base_url) as (client, _),
                Journal(tmp_path / "journal.jsonl", wanted=lambda _: False) as journal,
            ):
                spec = ModelSpec("m", asked[0].sampling, Limits(8, 60.0))
                models = Models.journaled(journal, Caps(), {"model": (spec, client)})
                models.begin(on_failure=lambda _: None, say=said.append)
                await models.check()
                await asyncio.gather(*(models.main.complete(each) for each in asked))
                lessons.append(models.lessons)
            found.append([each for each in said if "seems to CUT PROMPTS of" in each])
    assert [len(each) for each in found] == [named, named]
    assert all(urlsplit(base_url).netloc in each and "--max-model-len" in each for each in chain(*found))
    for cut_from in map(recorded_cut, lessons):
        assert (cut_from is None) == (not named)
        assert cut_from is None or abs(cut_from / 2800 - 1) < 0.1
