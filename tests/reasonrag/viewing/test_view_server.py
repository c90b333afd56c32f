"""`reasonrag view --serve`: who is answered, what is said while a run is being read, and how it ends."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from yarl import URL

from reasonrag.errors import InputError
from reasonrag.viewing.collection import Collection, open_collection
from reasonrag.viewing.view_server import BackgroundScan, serve_page
from tests.helpers.command_line import Reasonrag
from tests.helpers.slow_run import Slow
from tests.helpers.trees import asked, run_of

QUESTIONS = 3
PATIENCE_S = 30


def some_run(folder: Path, *, behind: bytes = b"") -> Path:
    """A run directory with some questions; behind: what stands after them."""
    return run_of(folder, *map(asked, range(QUESTIONS)), torn=behind)


class Client:
    """One who asks a served page."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self.session, self.address = session, address

    async def ask(self, path: str, *, method: str = "GET", host: str | None = None) -> tuple[int, Any, dict[str, str]]:
        """Status, body (of JSON what it says), headers."""
        headers = {} if host is None else {"Host": host}
        url = URL(self.address + path, encoded=True)
        async with self.session.request(method, url, headers=headers) as answer:
            is_json = answer.content_type == "application/json"
            body = await answer.json() if is_json else await answer.text()
            return answer.status, body, dict(answer.headers)

    async def listed(self, questions: int, *, complete: bool) -> Any:
        """The list, once so much was read."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                status, found, _ = await self.ask("api/list")
                assert status == 200, found
                if found["complete"] == complete and len(found["rows"]) == questions:
                    return found
                await asyncio.sleep(0.01)


@asynccontextmanager
async def served(collection: Collection) -> AsyncIterator[Client]:
    async with serve_page(BackgroundScan(collection), port=0) as address, aiohttp.ClientSession() as session:
        yield Client(session, address)


@asynccontextmanager
async def all_read(folder: Path) -> AsyncIterator[Client]:
    async with served(open_collection(some_run(folder))) as client:
        await client.listed(QUESTIONS, complete=True)
        yield client


# -- who is answered -------------------------------------------------------------------------------------------


async def test_only_who_calls_it_by_a_name_of_this_machine_is_answered(tmp_path: Path) -> None:
    """A site that points its own name at this machine would otherwise read the run through the reader's browser."""
    async with all_read(tmp_path) as client:
        hosts = {"localhost": 200, "[::1]:8766": 200, "evil.com": 403, "127.0.0.1.evil.com:80": 403}
        found = {(host, path): await client.ask(path, host=host) for host in hosts for path in ("", "api/list")}
        assert {each: status for each, (status, *_) in found.items()} == {each: hosts[each[0]] for each in found}
        refused = [body for (host, _), (_, body, _) in found.items() if hosts[host] == 403]
        assert all(set(body) == {"error"} for body in refused)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "", 200),
        ("GET", "api/list", 200),
        ("GET", "api/pairs", 200),
        ("GET", "api/question/0", 200),
        ("GET", "nothing", 404),
        ("DELETE", "api/question/0", 405),
        ("GET", "..%2f..%2fetc%2fpasswd", 404),
        ("GET", "api/question/../../rollouts.jsonl", 404),
        ("GET", f"api/question/{QUESTIONS}", 404),
        ("GET", f"api/question/{'9' * 5_000}", 404),
        ("GET", "assets/app.js", 404),
        ("GET", "api/judging", 404),
        *(("GET", f"{each}?of=another.1", 410) for each in ("api/pairs", "api/question/0")),
    ],
)
async def test_nothing_but_the_page_and_its_questions_is_served(
    tmp_path: Path, method: str, path: str, status: int
) -> None:
    """No path leads to a file, nothing can be sent, what is missing, or is of a page of other files, is said in JSON.
    Browsers keep, guess at and frame none of the answers."""
    async with all_read(tmp_path) as client:
        found, body, headers = await client.ask(path, method=method)
        assert found == status
        if status >= 400:
            assert set(body) == {"error"}
        names = "Cache-Control", "X-Content-Type-Options", "X-Frame-Options"
        assert [headers.get(each) for each in names] == ["no-store", "nosniff", "DENY"]


async def test_the_list_does_not_wait_for_the_table_of_pairs(tmp_path: Path) -> None:
    """Which has a dozen columns for each candidate, and would be most of the answer."""
    async with all_read(tmp_path) as client:
        _, found, _ = await client.ask("api/list")
        _, pairs, _ = await client.ask("api/pairs")
        assert "pairs" not in found
        assert sorted(pairs["question"]) == list(range(QUESTIONS))
        assert {len(column) for column in pairs.values()} == {found["overview"]["candidates"]}


# -- while it is read ------------------------------------------------------------------------------------------


async def test_questions_can_be_seen_while_others_are_read(tmp_path: Path) -> None:
    """They come one by one; who has seen all there is is told how far the reading is, and no more."""
    collection = Slow(some_run(tmp_path) / "rollouts.jsonl")
    async with served(collection) as client:
        try:
            for number in range(QUESTIONS):
                await client.listed(number, complete=False)
                assert (await client.ask(f"api/question/{number}"))[0] == 404
                collection.allowed.release()
                found = await client.listed(number + 1, complete=False)
                assert found["overview"]["questions"] == number + 1
                assert [row["id"] for row in found["rows"]] == [f"q{each}" for each in range(number + 1)]
                _, again, _ = await client.ask(f"api/list?of={found['version']}")
                assert again == {name: found[name] for name in ("version", "complete", "read", "run")}
                status, view, _ = await client.ask(f"api/question/{number}")
                assert (status, view["id"], len(view["pairs"])) == (200, f"q{number}", 1)
            collection.allowed.release()
            last = await client.listed(QUESTIONS, complete=True)
            assert last["version"] != again["version"]  # it is known now what caps drop
        finally:
            collection.allowed.release(QUESTIONS + 1)


async def test_a_line_that_cannot_be_read_is_told_and_not_waited_for(tmp_path: Path) -> None:
    """With file and line; what was read before can still be looked at."""
    behind = b'{"schema_version": "reasonrag.rollouts/1", "question_id": 3}\n' + asked(9).to_line()
    async with served(open_collection(some_run(tmp_path, behind=behind))) as client, asyncio.timeout(PATIENCE_S):
        while (found := await client.ask("api/list"))[0] == 200:
            assert not found[1]["complete"]
            await asyncio.sleep(0.01)
        assert found[0] == 500
        assert f"rollouts.jsonl, line {QUESTIONS + 1}" in found[1]["error"]
        assert (await client.ask("api/question/0"))[0] == 200


# -- the command -----------------------------------------------------------------------------------------------


async def test_a_port_that_is_taken_is_refused_with_the_flag(tmp_path: Path) -> None:
    async with all_read(tmp_path) as client:
        port = urlsplit(client.address).port
        assert port
        with pytest.raises(InputError, match=rf"127\.0\.0\.1:{port}.*--port"):
            async with serve_page(BackgroundScan(open_collection(tmp_path)), port=port):
                pass


def test_what_belongs_to_the_other_way_of_looking_is_refused(tmp_path: Path, reasonrag: Reasonrag) -> None:
    """A port is for a server, a file for a page."""
    run = some_run(tmp_path)
    for flags in (("--port", 0), ("--serve", "--out", "a.html")):
        assert reasonrag("view", run, *flags).status == 2


def test_it_says_where_it_is_and_ends_well_when_it_is_interrupted(tmp_path: Path) -> None:
    """Ctrl-C is the way it is meant to end: status 0, nothing on stderr, and nothing was written."""
    command = [sys.executable, "-m", "reasonrag", "view", str(some_run(tmp_path)), "--serve", "--port", "0"]

    async def look(address: str) -> None:
        async with aiohttp.ClientSession() as session:
            await Client(session, address).listed(QUESTIONS, complete=True)

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            said = [server.stdout.readline(), server.stdout.readline()]
            found = re.search(r"http://127\.0\.0\.1:(\d+)/", said[0])
            assert found, said
            assert f"ssh -L {found[1]}:127.0.0.1:{found[1]} " in said[1]
            asyncio.run(look(found[0]))
            server.send_signal(signal.SIGINT)
            _, complaints = server.communicate(timeout=PATIENCE_S)
        finally:
            server.kill()
        assert (server.returncode, complaints) == (0, "")
    assert [each.name for each in tmp_path.iterdir()] == ["rollouts.jsonl"]
