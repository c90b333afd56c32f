"""An index in shards on several servers: what it finds is what the whole index finds, whichever servers die.

Real FAISS, real HTTP; where servers are killed, real processes.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasonrag.data.corpus import Passage
from reasonrag.errors import InputError
from reasonrag.retrieval.dense.build import BuildOptions, build_dense
from reasonrag.retrieval.dense.encoders import EncoderChoice
from reasonrag.retrieval.from_settings import open_index, open_or_build, open_retriever
from reasonrag.retrieval.remote import RemoteRetriever, open_remote
from reasonrag.retrieval.retriever import Retriever, RetrieverUnavailable
from reasonrag.retrieval.server import ServeLimits, serving
from reasonrag.retrieval.settings import ServeSettings
from reasonrag.retrieval.sharded import ShardedRetriever, open_sharded
from tests.helpers.command_line import Reasonrag
from tests.helpers.processes import Command

pytest.importorskip("faiss", reason="the index extra is not installed")
WORDS = "river town film director capital north".split()
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
"""So few that many passages are equal, and more have equal scores."""
TOKEN = "k33p-0ut"  # noqa: S105 - of this test


def build(home: Path, texts: Sequence[str], index_type: Any = "flat") -> Path:
    """An index of passages with these texts."""
    home.mkdir(exist_ok=True)
    corpus = home / "corpus.jsonl"
    passages = [{"id": f"p{row}", "contents": f"{row}\n{text}"} for row, text in enumerate(texts)]
    corpus.write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in passages))
    build_dense(corpus, home / "index", BuildOptions(encoder=EncoderChoice(model="hashing-64"), index_type=index_type))
    return home / "index"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 passages: every text of three words, and many of them again."""
    every = [f"{first} {second} {third}" for first in WORDS for second in WORDS for third in WORDS]
    return build(tmp_path_factory.mktemp("sharded"), (3 * every)[:600])


def unheard(_: str) -> None:
    pass


@asynccontextmanager
async def served(retriever: Retriever, token: str | None = None) -> AsyncIterator[str]:
    passages = getattr(retriever, "passages", None)
    async with serving(retriever, limits=ServeLimits(), token=token, passages=passages, drain_s=0) as url:
        yield url


async def shard_of(index: Path, shard: str, opened: AsyncExitStack, token: str | None = None) -> str:
    """Address of a server of this shard."""
    retriever = await open_retriever(ServeSettings(index=[index], shard=shard), None, opened, say=unheard)
    return await opened.enter_async_context(served(retriever, token))


async def shards_of(index: Path, count: int, opened: AsyncExitStack) -> list[str]:
    return [await shard_of(index, f"{number}/{count}", opened) for number in range(count)]


async def sharded(urls: Sequence[str], opened: AsyncExitStack, token: str | None = None) -> ShardedRetriever:
    retriever = await open_sharded(urls, token=token, say=unheard)
    opened.push_async_callback(retriever.close)
    return retriever


async def client_of(retriever: Retriever, opened: AsyncExitStack) -> RemoteRetriever:
    """What a run has: a client of a server over this retriever."""
    client = await open_remote(
        await opened.enter_async_context(served(retriever)), token=None, timeout=60, first_wait_s=0.001
    )
    opened.push_async_callback(client.close)
    return client


async def health(url: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/health") as answer:
        return await answer.json()


# -- what is found -----------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    texts=st.lists(TEXTS, min_size=5, max_size=120),
    queries=st.lists(TEXTS, min_size=1, max_size=8),
    shards=st.integers(1, 5),
    top_k=st.integers(1, 130),
)
async def test_shards_find_together_what_the_whole_index_finds(
    texts: list[str], queries: list[str], shards: int, top_k: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The same passages with the same scores to the last digit, ties in corpus order; in whatever order they are
    given."""
    index = build(tmp_path_factory.mktemp("law"), texts)
    whole = open_index(index)
    async with AsyncExitStack() as opened:
        front = await sharded((await shards_of(index, shards, opened))[::-1], opened)
        found = await asyncio.gather(*(front.retrieve(each, top_k) for each in queries))
        assert found == [whole.search(each, top_k) for each in queries]


async def test_a_run_over_the_shards_is_a_run_over_the_index(index: Path) -> None:
    """The identity, which goes into the configuration, is that of the index, and so is everything else that is told."""
    whole = open_index(index)
    async with AsyncExitStack() as opened:
        front = await sharded(await shards_of(index, 3, opened), opened)
        client = await client_of(front, opened)
        assert (client.identity, client.passages, client.warning) == (whole.identity, 600, None)
        assert await client.retrieve("town film", 7) == whole.search("town film", 7)


async def test_a_shard_alone_does_not_pass_for_the_index(index: Path) -> None:
    """A run over it has an identity of its own, and is warned."""
    whole = open_index(index)
    async with AsyncExitStack() as opened:
        url = await shard_of(index, "1/3", opened)
        client = await open_remote(url, token=None)
        opened.push_async_callback(client.close)
        assert client.identity == f"{whole.identity}:rows=200-400"
        assert "serves only rows 200 to 399 of 600" in str(client.warning)
        found = await client.retrieve("town film", 600)
        assert found == [each for each in whole.search("town film", 600) if 200 <= int(each.id[1:]) < 400]
        assert (await health(url))["shard"] == {"identity": whole.identity, "rows": [200, 400, 600]}


async def test_servers_of_a_whole_index_of_any_kind_stand_in_for_each_other(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text(
        '{"id": "a", "contents": "cats\\npurr"}\n{"id": "b", "contents": "dogs\\n."}\n'
    )
    whole = open_or_build(tmp_path / "bm25", tmp_path / "corpus.jsonl", say=unheard)
    async with AsyncExitStack() as opened, AsyncExitStack() as first:
        urls = [await first.enter_async_context(served(whole)), await opened.enter_async_context(served(whole))]
        front = await sharded([",".join(urls)], opened)
        assert (front.identity, front.passages) == (whole.identity, 2)
        await first.aclose()
        assert await front.retrieve("cats", 2) == whole.search("cats", 2)


def test_a_shard_needs_its_vectors_and_no_faiss_file(tmp_path: Path) -> None:
    """Which is twice as large, and need not be on its machine; nor are other rows read."""
    index = build(tmp_path, ["town film"] * 40)
    [file] = index.glob("*.index")
    file.unlink()

    async def rows() -> list[str]:
        async with AsyncExitStack() as opened:
            retriever = await open_retriever(ServeSettings(index=[index], shard="3/4"), None, opened, say=unheard)
            return [each.id for each in await retriever.retrieve("town", 40)]

    assert asyncio.run(rows()) == [f"p{row}" for row in range(30, 40)]


# -- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([["0/3"], ["2/3"]], "rows 200 to 399 of 600 are on no server; start one"),
        ([["0/2"]], "rows 300 to 599 of 600 are on no server"),
        ([["1/2"]], "rows 0 to 299 of 600 are on no server"),
        ([["0/2"], ["0/2"], ["1/2"]], "rows 0 to 299 of 600 are on URL0 and on URL1: give servers of one shard in one"),
        ([["0/2"], ["1/2"], ["1/3"]], "rows 200 to 299 of 600 are on URL0 and on URL2"),
        (
            [["0/2", "1/2"]],
            "URL0 serves IDENTITY:rows=0-300 and URL1 serves IDENTITY:rows=300-600: servers separated by",
        ),
        ([["0/2"], ["other"]], "URL0 has rows of IDENTITY and URL1 of OTHER; give the shards of one index"),
        ([["0/2"], ["nobody"]], "no server of a shard answers: URL1: Cannot connect .* Check the address"),
        ([["0/2"], ["foreign"]], "URL1 does not say which index it serves: it is not reasonrag index serve"),
    ],
)
async def test_servers_that_do_not_make_up_one_index_are_refused(
    given: list[list[str]], message: str, index: Path, tmp_path: Path
) -> None:
    """Nothing is searched over a part of the passages, or over some of them twice."""
    other = open_index(build(tmp_path / "other", ["cats", "dogs"]))
    async with AsyncExitStack() as opened, asyncio.timeout(60):

        async def url_of(what: str) -> str:
            if what == "foreign":
                return await opened.enter_async_context(served(Foreign()))
            if what == "other":
                return await opened.enter_async_context(served(other))
            if what == "nobody":
                async with served(other) as gone:
                    return gone
            return await shard_of(index, what, opened)

        groups = [[await url_of(each) for each in group] for group in given]
        for number, url in enumerate(chain.from_iterable(groups)):
            message = message.replace(f"URL{number}", url)
        message = message.replace("IDENTITY", open_index(index).identity).replace("OTHER", other.identity)
        with pytest.raises(InputError, match=message):
            await open_sharded([",".join(group) for group in groups], token=None, say=unheard)


class Foreign:
    """A retriever without an identity."""

    identity = ""

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        raise NotImplementedError


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index of each kind over four passages."""
    home = tmp_path_factory.mktemp("kinds")
    for kind in ("flat", "sq8"):
        build(home / f"of-{kind}", ["cats", "dogs", "cats", "mice"], kind).rename(home / kind)
    open_or_build(home / "bm25", home / "of-flat" / "corpus.jsonl", say=unheard)
    return home


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--index flat --shard 2/2", "--shard: must be i/n, the i-th of n"),
        ("--index flat --shard one", "--shard: must be i/n, the i-th of n"),
        ("--index flat --shard 0/100", "4 passages cannot be divided into 100 shards"),
        ("--index bm25 --shard 0/2", "a BM25 index has no shards, as its word statistics are of the whole"),
        ("--index sq8 --shard 0/2", "sq8 has no flat index, only sq8. .* --type flat"),
        ("--index flat --shard 0/2 --index-type sq8", "make up a flat index and no other"),
        ("--index flat --shard 0/2 --retriever hybrid", "of one dense index, without --retriever hybrid"),
        ("--index flat --shard 0/2 --reranker any", "of one dense index, without --retriever hybrid and --reranker"),
        ("--corpus of-flat/corpus.jsonl --shard 0/2", "give --index of one dense index that is built"),
        ("--index flat --shard-url http://127.0.0.1:1", "--index is for a local index; leave it out"),
        ("--shard 0/2 --shard-url http://127.0.0.1:1", "--shard is for a local index; leave it out"),
        ("--retriever dense --shard-url http://127.0.0.1:1", "--retriever is for a local index; leave it out"),
        ("--shard-url http://127.0.0.1:1,http://127.0.0.1:1", "http://127.0.0.1:1 is given twice"),
        ("--shard-url 127.0.0.1:1", "'127.0.0.1:1' is not a retriever's address"),
    ],
)
def test_what_cannot_be_a_shard_is_refused(
    flags: str, message: str, kinds: Path, reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is served, with what to do."""
    monkeypatch.chdir(kinds)
    done = reasonrag("index", "serve", "--port", 0, *flags.split())
    assert done.status == 2
    assert re.search(message, done.err)


async def test_a_server_that_is_down_at_the_beginning_is_told_and_stood_in_for(index: Path) -> None:
    said: list[str] = []
    async with AsyncExitStack() as opened:
        async with AsyncExitStack() as first:
            gone = await shard_of(index, "0/1", first)
        there = await shard_of(index, "0/1", opened)
        front = await open_sharded([f"{gone},{there}"], token=None, say=said.append)
        opened.push_async_callback(front.close)
        assert await front.retrieve("town", 3) == open_index(index).search("town", 3)
        [shard] = front.health()["shards"]
        assert [(each["url"], each["up"]) for each in shard["servers"]] == [(gone, False), (there, True)]
    assert len(said) == 1
    assert f"warning: {gone} does not answer (Cannot connect" in said[0]


async def test_shards_may_want_a_token(index: Path) -> None:
    async with AsyncExitStack() as opened:
        urls = [await shard_of(index, f"{number}/2", opened, TOKEN) for number in range(2)]
        front = await sharded(urls, opened, TOKEN)
        assert await front.retrieve("town", 3) == open_index(index).search("town", 3)
        for token in (None, "another"):
            with pytest.raises(InputError, match="REASONRAG_RETRIEVER_TOKEN"):
                await open_sharded(urls, token=token, say=unheard)


# -- servers that die --------------------------------------------------------------------------------------------


class ShardProcess:
    """`reasonrag index serve --shard` in a process of its own, which can be started again at its address."""

    def __init__(self, index: Path, shard: str) -> None:
        self._words = ("index", "serve", "--index", index, "--shard", shard)
        self._process = Command(*self._words, "--port", 0)
        self.url = ""

    def listening(self) -> str:
        self.url = self._process.first_line().split()[2]
        return self.url

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def start_again(self) -> None:
        self.close()
        self._process = Command(*self._words, "--port", self.url.rpartition(":")[2])
        self.listening()

    def close(self) -> None:
        self._process.__exit__()


QUERIES = [f"{first} {second} {third}" for first in WORDS for second in WORDS for third in WORDS]


async def test_whatever_dies_nothing_that_is_found_is_missing(index: Path) -> None:
    """A replica that is killed in the middle of searches is stood in for; the only server of a shard is an error that
    names the shard, until it is back."""
    whole = open_index(index)
    async with AsyncExitStack() as opened:
        processes = [ShardProcess(index, shard) for shard in ("0/2", "0/2", "1/2")]
        for each in processes:
            opened.callback(each.close)
        first, second, only = processes
        urls = [f"{first.listening()},{second.listening()}", only.listening()]
        front = await sharded(urls, opened)
        client = await client_of(front, opened)

        async def search(query: str) -> None:
            assert await client.retrieve(query, 5) == whole.search(query, 5)

        running = [asyncio.create_task(search(each)) for each in QUERIES]
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        first.kill()
        await asyncio.gather(*running)
        await search("the first server is gone")
        shard, _ = front.health()["shards"]
        assert [each["up"] for each in shard["servers"]] == [False, True]

        only.kill()
        with pytest.raises(
            RetrieverUnavailable, match=f"shard of rows 300 to 599 of 600: .* {only.url} gave no passages"
        ):
            await front.retrieve("and the only one of a shard", 5)
        waiting = asyncio.create_task(search("and the only one of a shard"))
        async with aiohttp.ClientSession() as session:
            body = {"queries": ["and the only one of a shard"]}
            async with session.post(f"{client.url}/retrieve", json=body) as answer:
                assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
                assert f"shard of rows 300 to 599 of 600: the retriever {only.url}" in (await answer.json())["error"]
        first.start_again()
        only.start_again()
        await waiting  # who was told to ask again is answered

        async with asyncio.timeout(60):
            while not front.health()["shards"][0]["servers"][0]["up"]:  # noqa: ASYNC110 - it tells no one
                await asyncio.sleep(0.01)
        second.kill()
        await search("and the second one")


def test_the_commands_serve_shards_and_a_front(index: Path) -> None:
    """And Ctrl-C ends a front."""
    shards = [ShardProcess(index, f"{number}/2") for number in range(2)]
    urls = [each.listening() for each in shards]
    with Command("index", "serve", "--port", 0, *(word for url in urls for word in ("--shard-url", url))) as front:
        url = front.first_line().split()[2]

        async def first_found() -> tuple[str, list[Passage]]:
            client = await open_remote(url, token=None)
            try:
                return client.identity, await client.retrieve("town film", 4)
            finally:
                await client.close()

        whole = open_index(index)
        assert asyncio.run(first_found()) == (whole.identity, whole.search("town film", 4))
        told = asyncio.run(health(url))
        assert [each["rows"] for each in told["shards"]] == [[0, 300], [300, 600]]
        front.send_signal(signal.SIGINT)
        assert front.wait() in (0, 130)
    for each in shards:
        each.kill()
        each.close()
