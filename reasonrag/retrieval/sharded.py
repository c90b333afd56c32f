"""An index whose shards are on several servers, as one retriever.

Decides which servers make up one whole index, what is refused at opening, and the order of what the shards find.
Does not know how a shard is searched, nor how its servers stand in for each other (`replicas`).

Shards are consecutive rows, and each gives its passages by score, ties in corpus order; so the whole index's order is
that of all passages by score, ties by shard. A shard that does not answer is an error: its passages are never left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from reasonrag.concurrency import together
from reasonrag.data.corpus import Passage
from reasonrag.errors import InputError, RetrievalError
from reasonrag.retrieval.ranking import IndexShard
from reasonrag.retrieval.remote import TIMEOUT_S, RemoteRetriever
from reasonrag.retrieval.replicas import Replicas
from reasonrag.retrieval.retriever import CHARACTERS_KEPT, TOKEN_VARIABLE, ResultCache, check_query
from reasonrag.retrieval.search_r1 import (
    FIRST_WAIT_S,
    SearchFailed,
    SearchServer,
    ServerInfo,
    checked_address,
    checked_token,
)


@dataclass(frozen=True)
class _OpenShard:
    rows: IndexShard
    servers: Replicas
    retriever: RemoteRetriever


class ShardedRetriever:
    """A `Retriever` over all shards of one index, opened by `open_sharded`. identity: of the whole index."""

    def __init__(self, shards: Sequence[_OpenShard]) -> None:
        whole = shards[0]
        self.identity, self.passages = whole.rows.index, whole.rows.total
        self.long_passages = whole.retriever.long_passages
        self._shards = shards

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        check_query(query, top_k)
        found = await together(*(_found(each, query, top_k) for each in self._shards))
        return sorted(chain.from_iterable(found), key=lambda each: -each.score)[:top_k]

    def health(self) -> dict[str, Any]:
        """Each shard's rows and servers. hedged: requests that were sent to a second server for being slow."""
        return {
            "shards": [
                {"rows": [each.rows.start, each.rows.stop], "hedged": each.servers.hedged}
                | {"servers": each.servers.health()}
                for each in self._shards
            ]
        }

    async def close(self) -> None:
        for each in self._shards:
            await each.retriever.close()


async def _found(shard: _OpenShard, query: str, top_k: int) -> list[Passage]:
    """The shard's passages. Raises RetrievalError that names it."""
    try:
        return await shard.retriever.retrieve(query, top_k)
    except RetrievalError as error:
        raise type(error)(f"shard of {shard.rows}: {error}") from error


# -- opening -----------------------------------------------------------------------------------------------------


async def open_sharded(
    urls: Sequence[str],
    *,
    token: str | None,
    say: Callable[[str], None],
    timeout: float = TIMEOUT_S,  # noqa: ASYNC109 - of each request, not of this call
) -> ShardedRetriever:
    """The index that these servers have together.

    urls: one for each shard, in any order; servers of the same shard are separated by commas, the preferred one first.
        One server of each must answer; others that do not are told, and asked when they do. token: see `open_remote`.
        timeout: seconds per request. Raises InputError for servers that do not make up exactly one index. Must be
        closed.
    """
    groups = [[checked_address(url) for url in each.split(",")] for each in urls]
    names = [*chain.from_iterable(groups)]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--shard-url: {name} is given twice; it can be one server of one shard")
    servers = {name: SearchServer(name, checked_token(token), timeout, FIRST_WAIT_S) for name in names}
    shards: list[_OpenShard] = []
    try:
        every = dict(zip(names, await together(*(_server_info(each) for each in servers.values())), strict=True))
        infos = [_common_info({name: every[name] for name in group}, say=say) for group in groups]
        rows = [each.shard or IndexShard(each.identity, 0, each.passages or 0, each.passages or 0) for each in infos]
        _refuse_gaps(rows, [",".join(group) for group in groups])
        for group, its_rows, info in sorted(zip(groups, rows, infos, strict=True), key=lambda each: each[1].start):
            troubles = {name: str(said) if isinstance(said := every[name], SearchFailed) else "" for name in group}
            replicas = Replicas([(servers[name], trouble) for name, trouble in troubles.items()], info.identity)
            cache = ResultCache(characters=CHARACTERS_KEPT // len(groups))
            shards.append(_OpenShard(its_rows, replicas, RemoteRetriever(replicas, info, cache=cache, lost_after=None)))
        await together(*(_probe(each) for each in shards))
    except BaseException:
        for shard in shards:
            await shard.retriever.close()
        for server in servers.values():
            await server.close()
        raise
    return ShardedRetriever(shards)


async def _server_info(server: SearchServer) -> ServerInfo | SearchFailed:
    """What a server says of itself, or why it says nothing. Raises InputError for a server that is not ours."""
    try:
        info = await server.server_info()
    except SearchFailed as failed:
        return failed
    if info is None:
        raise InputError(
            f"{server.url} does not say which index it serves: it is not reasonrag index serve, or it wants a token, "
            f"which {TOKEN_VARIABLE} must hold"
        )
    return info


def _common_info(infos: dict[str, ServerInfo | SearchFailed], *, say: Callable[[str], None]) -> ServerInfo:
    """What the servers of one shard say. Raises InputError if none of them answers, or they serve different rows."""
    down = {url: failed for url, failed in infos.items() if isinstance(failed, SearchFailed)}
    up = {url: info for url, info in infos.items() if isinstance(info, ServerInfo)}
    if not up:
        said = "; ".join(f"{url}: {failed}" for url, failed in down.items())
        raise InputError(f"no server of a shard answers: {said}. {next(iter(down.values())).advice()}")
    (url, info), *others = up.items()
    for other, its in others:
        if its.identity != info.identity:
            raise InputError(
                f"{url} serves {info.identity} and {other} serves {its.identity}: servers separated by commas must "
                "serve the same rows of one index; give each shard a --shard-url of its own"
            )
    for absent, failed in down.items():
        say(f"warning: {absent} does not answer ({failed}); it is asked once it does")
    return info


def _refuse_gaps(shards: Sequence[IndexShard], urls: Sequence[str]) -> None:
    """Raises InputError unless the shards are of one index and have each of its rows once."""
    first, *others = shards
    for shard, url in zip(others, urls[1:], strict=True):
        if (shard.index, shard.total) != (first.index, first.total):
            raise InputError(
                f"{urls[0]} has rows of {first.index} and {url} of {shard.index}; give the shards of one index"
            )
    reached, where = 0, ""
    for shard, url in sorted(zip(shards, urls, strict=True), key=lambda each: each[0].start):
        if shard.start > reached:
            raise _not_served(IndexShard(first.index, reached, shard.start, first.total))
        if shard.start < reached:
            both = IndexShard(first.index, shard.start, min(reached, shard.stop), first.total)
            raise InputError(
                f"{both} are on {where} and on {url}: give servers of one shard in one --shard-url, separated by "
                "commas, and take all shards from one division i/n"
            )
        reached, where = shard.stop, url
    if reached < first.total:
        raise _not_served(IndexShard(first.index, reached, first.total, first.total))


def _not_served(missing: IndexShard) -> InputError:
    return InputError(
        f"{missing} are on no server; start one with reasonrag index serve --shard i/n and add its --shard-url"
    )


async def _probe(shard: _OpenShard) -> None:
    try:
        await shard.retriever.probe(1)
    except SearchFailed as failed:
        raise InputError(
            f"shard of {shard.rows}: {shard.servers.url} cannot be used: {failed}. {failed.advice()}"
        ) from failed
