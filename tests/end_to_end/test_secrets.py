"""A key is in nothing that a command writes or shows, whatever servers make of it.

Real processes and real HTTP; the servers echo what they were sent, as gateways and debug pages do.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import quote, unquote

import orjson
import pytest
from aiohttp import web

from tests.helpers.endpoints import Served
from tests.helpers.processes import finished

KEY = "planted/0123+4567=89-abcdefghijklmnopqrstu"
MESSAGE_CUT = 1000
"""Characters of an error's message that are kept (`http_client`)."""
ECHOES: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "URL-encoded": lambda key: quote(key, safe=""),
    "base64 of user and key": lambda key: b64encode(f"me:{key}".encode()).decode(),
}


@contextmanager
def serving(answer: Callable[[web.Request], Awaitable[web.Response]]) -> Iterator[str]:
    """The address of a server that answers every request so."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    with Served(app, "").open() as server:
        yield server.base_url


def chat(text: str) -> web.Response:
    usage = {"prompt_tokens": 9, "completion_tokens": 9}
    return web.json_response({"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": usage})


def left_behind(*words: object, status: int, **environment: str) -> str:
    """All files, stdout and stderr of a command."""
    done = finished(*words, environment=os.environ | environment)
    assert done.returncode == status, done.stderr
    written = [path.read_bytes().decode("utf-8", "replace") for path in Path().rglob("*") if path.is_file()]
    return "\n".join([done.stdout, done.stderr, *written])


def parts_of(secret: str, found: str, *, length: int = 8) -> list[str]:
    """Substrings of the secret, of this length, that the text contains."""
    parts = (secret[start : start + length] for start in range(len(secret) - length + 1))
    return [each for each in parts if each in found]


@pytest.mark.parametrize(("echoed", "command"), [("as it is", "generate"), ("URL-encoded", "evaluate")])
def test_an_error_that_is_cut_within_a_key_shows_no_part_of_it(echoed: str, command: str) -> None:
    """Wherever in the key the cut is (at every third character), in an error object and in a page."""
    said, number = ECHOES[echoed](KEY), count()
    offsets = len(said) // 3 + 1

    async def refuse(_: web.Request) -> web.Response:
        place, as_text = divmod(next(number) - 1, 2)
        if place < 0:
            return chat("yes")
        message = "." * (MESSAGE_CUT - 3 * (place % offsets)) + said + "." * 50
        body = message.encode() if as_text else orjson.dumps({"error": {"message": message}})
        return web.Response(status=400, body=body, content_type="application/json")

    with serving(refuse) as address:
        asked = ["--dataset", "atlas", "--limit", 2 * offsets, "--model", "m", "--base-url", f"{address}/v1"]
        found = left_behind(command, *asked, "--run", "runs/a", "--yes", status=1, OPENAI_API_KEY=KEY)
    assert next(number) > 2 * offsets
    assert found.count("[secret]") > offsets
    assert parts_of(said, found) == []


@pytest.mark.parametrize("echoed", ECHOES)
def test_a_key_in_the_query_of_an_address_is_sent_and_hidden(echoed: str) -> None:
    """The query is sent after the path; the command to continue with does not show it."""
    paths = []

    async def echo(request: web.Request) -> web.Response:
        paths.append(unquote(request.path_qs))
        said = ECHOES[echoed](KEY)
        good = chat(f"So the answer is <answer>{said}</answer>")
        return good if len(paths) < 4 else web.Response(status=400, text=f"bad key {said}")

    with serving(echo) as address:
        asked = ["--dataset", "atlas", "--limit", 3, "--model", "m", "--max-calls", 3]
        place = f"{address}/v1?key={quote(KEY, safe='')}"
        found = left_behind("generate", *asked, "--base-url", place, "--run", "runs/a", "--yes", status=3)
    assert set(paths) == {f"/v1/chat/completions?key={KEY}"}
    assert "continue with: reasonrag generate" in found
    assert parts_of(KEY, found) == []
    assert parts_of(ECHOES[echoed](KEY), found, length=12) == []


@pytest.mark.parametrize("echoed", ECHOES)
def test_a_token_that_a_retriever_echoes_is_in_no_file(echoed: str) -> None:
    """Neither from its identity nor from a passage, which are in every prompt."""
    said = ECHOES[echoed](KEY)

    async def answer(request: web.Request) -> web.Response:
        identity = {"identity": f"bm25:{said}"}
        if request.method == "GET":
            return web.json_response(identity | {"passages": 1})
        document = {"id": f"p {said}", "contents": f'"A {said}"\nSaid {said}.'}
        found = [[{"document": document, "score": 1.0}] for _ in (await request.json())["queries"]]
        return web.json_response(identity | {"result": found})

    with serving(answer) as address:
        asked = ["--dataset", "atlas", "--limit", 2, "--retriever", address, "--run", "runs/a"]
        found = left_behind("generate", *asked, status=0, REASONRAG_RETRIEVER_TOKEN=KEY)
    assert found.count("[secret]") > 10
    assert parts_of(said, found, length=12) == []


@pytest.mark.parametrize(
    ("flag", "address"),
    [("--base-url", "http://user:s3cr3t/pass@host/v1"), ("--retriever", "user:s3cr3t-pass@host:80/v1")],
)
def test_a_password_in_an_address_is_never_shown(flag: str, address: str) -> None:
    """With a scheme or without one; such an address is refused."""
    asked = ["--dataset", "atlas", "--limit", 1, "--run", "runs/a", "--yes"]
    model = ["--model", "m"] if flag == "--base-url" else []
    found = left_behind("generate", *asked, *model, flag, address, status=2)
    assert "Traceback" not in found
    assert "host" in found
    assert "s3cr3t" not in found


def test_a_key_in_replies_is_in_nothing_that_later_commands_make_of_them() -> None:
    """Each command asks, reads or shows what an endpoint said that puts the key into every reply."""
    said = ECHOES["base64 of user and key"](KEY)
    reply = f"<query>{said}</query> <evidence>{said}</evidence> So the answer is <answer>{said}</answer> 50 {said}"
    found = ""

    async def answer(_: web.Request) -> web.Response:
        return chat(reply)

    with serving(answer) as address:
        model = ["--model", "m", "--base-url", f"{address}/v1", "--yes"]
        atlas = ["--dataset", "atlas", "--limit", 3]
        for status, *words in (
            [0, "generate", *atlas, *model, "--run", "runs/a", "--set", "search.max_calls=12"],
            [0, "generate", *atlas, "--run", "runs/b"],
            [0, "pairs", "runs/b", "--out", "data/b", "--label", "judge", *model, "--json"],
            [0, "show", "runs/a", "atlas_train_0_0"],
            [0, "stats", "runs/a"],
            [0, "view", "runs/a", "--out", "a.html"],
            [0, "evaluate", *atlas, *model, "--run", "runs/e", "--judge", "m", "--json"],
            [0, "evaluate", *atlas, *model, "--run", "runs/f", "--judge", "m"],
            [0, "compare", "runs/e", "runs/f", "--out", "runs/c"],
            [1, "ask", "Who wrote it?", "--dataset", "atlas", *model[:-1]],
        ):
            found += left_behind(*words, status=status, OPENAI_API_KEY=KEY)
    assert found.count("[secret]") > 50
    assert parts_of(said, found, length=12) == []


@pytest.mark.parametrize("flag", ["--model", "--dataset", "--temperature", "--extra-body"])
def test_a_key_in_a_setting_is_refused_and_not_repeated(flag: str) -> None:
    """It would be written into config.json."""
    value = f'{{"x": "{KEY}"}}' if flag == "--extra-body" else KEY
    asked = ["--dataset", "atlas", "--limit", 1, "--run", "runs/a"]
    found = left_behind("generate", *asked, flag, value, status=2, OPENAI_API_KEY=KEY)
    assert flag in found
    assert parts_of(KEY, found) == []


def test_an_ordinary_word_used_as_a_key_blocks_no_setting() -> None:
    """Servers that need no key are given any word."""
    for word in ("offline", "lm-studio"):
        asked = ["--dataset", "atlas", "--limit", 1, "--model", "offline", "--run", f"runs/{word}"]
        assert finished("generate", *asked, environment=os.environ | {"OPENAI_API_KEY": word}).returncode == 0
