"""Several servers of the same rows, asked as one: what one of them does not answer, another is asked.

Decides which server is asked, when a second one is asked too (hedging), how many requests that may double, and when a
server counts as down and as up again. Does not know how searches are batched, nor what else is searched.
"""

from __future__ import annotations

import asyncio
import statistics
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from reasonrag.retrieval.remote import PROBE
from reasonrag.retrieval.search_r1 import PASSING, FailureKind, SearchFailed, SearchServer, identity_of

HEDGED_AFTER = 3.0
"""Multiple of the median time of recent answers after which a second server is asked too: few answers of a healthy
server take so long, and all of one that hangs do."""
SHORTEST_WAIT_S = 0.1
"""Shortest time before a second server is asked; below it, pauses of the interpreter would count as slowness."""
FIRST_WAIT = 10
"""Multiple of it before there was an answer: 1 s."""
ANSWERS_KEPT = 100
"""Recent answers whose times are compared."""
HEDGED_SHARE = 0.05
"""Most requests that are sent twice for being slow, as a share of all, so that slowness under load does not double the
load: the share of Dean and Barroso, The Tail at Scale, CACM 2013."""
HEDGED_AT_ONCE = 5.0
"""Requests that may be sent twice in a row before the share counts; more than it takes to find a server that hangs."""
OVERTAKEN = 3
"""Answers of another server, to requests sent to it later, in a row, after which a server counts as down."""
CHECKED_EVERY_S = 2.0
"""Seconds between two trial searches on a server that is down."""

_OF_THE_REQUEST: frozenset[FailureKind] = frozenset({"bad_request", "too_much"})
"""Failures that any server would answer with."""


@dataclass(eq=False)
class _Replica:
    """trouble: why the server counts as down; empty if it is up. overtaken: see OVERTAKEN. failed: requests so far.
    check: tries a server that is down."""

    server: SearchServer
    trouble: str
    overtaken: int = 0
    failed: int = 0
    check: asyncio.Task[None] | None = None


@dataclass(eq=False)
class _Sent:
    replica: _Replica
    at: float


class Replicas:
    """Servers of one identity; the first one that is up is asked.

    A server that fails, or answers with another identity, counts as down until a trial search succeeds. If all are
    down, all are asked. Usable from the event loop in which it is made.

    servers: each with why it is down, empty if it is up. wait_s: see SHORTEST_WAIT_S.
    """

    def __init__(
        self, servers: Sequence[tuple[SearchServer, str]], identity: str, *, wait_s: float = SHORTEST_WAIT_S
    ) -> None:
        self.url = ",".join(server.url for server, _ in servers)
        self.hedged = 0
        """Requests that were sent to a second server for being slow."""
        self._identity, self._shortest_wait_s = identity, wait_s
        self._credit = HEDGED_AT_ONCE
        self._seconds = deque[float](maxlen=ANSWERS_KEPT)
        self._replicas = [_Replica(server, trouble) for server, trouble in servers]
        for each in self._replicas:
            if each.trouble:
                self._is_down(each, each.trouble)

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        attempts: Mapping[FailureKind, int],  # noqa: ARG002
    ) -> Any:
        """The first answer of a server. Each is asked once, whatever `attempts` allows: a front tells its clients at
        once, and they ask again. Raises SearchFailed if none answers."""
        self._credit = min(HEDGED_AT_ONCE, self._credit + HEDGED_SHARE)
        waiting = deque(sorted(self._replicas, key=lambda each: bool(each.trouble)))
        sent: dict[asyncio.Task[Any], _Sent] = {}
        failures: dict[str, SearchFailed] = {}
        late = False
        try:
            while sent or waiting:
                if waiting and (not sent or (late and self._may_hedge(sent.values(), waiting[0]))):
                    replica = waiting.popleft()
                    task = asyncio.create_task(self._outcome(replica, method, path, body))
                    sent[task] = _Sent(replica, asyncio.get_running_loop().time())
                done, _ = await asyncio.wait(
                    sent, timeout=self._wait_s if waiting else None, return_when=asyncio.FIRST_COMPLETED
                )
                late = not done
                for task in done:
                    answered, outcome = sent.pop(task), task.result()
                    if not isinstance(outcome, SearchFailed):
                        self._answered(answered, sent.values())
                        return outcome
                    if outcome.kind in _OF_THE_REQUEST:
                        raise outcome
                    failures[answered.replica.server.url] = outcome
                    answered.replica.failed += 1
                    self._is_down(answered.replica, str(outcome))
        finally:
            for task in sent:
                task.cancel()
        raise _one_failure(failures)

    def health(self) -> list[dict[str, Any]]:
        """Of each server: its address, whether it is up and otherwise why not, and requests that failed there."""
        return [
            {"url": each.server.url, "up": not each.trouble}
            | ({"trouble": each.trouble} if each.trouble else {})
            | {"failed": each.failed}
            for each in self._replicas
        ]

    async def close(self) -> None:
        checks = [each.check for each in self._replicas if each.check]
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)
        for replica in self._replicas:
            await replica.server.close()

    async def _outcome(self, replica: _Replica, method: str, path: str, body: bytes | None) -> Any:
        """An answer, or as a value why there is none, so that a task that is no longer awaited reports nothing."""
        try:
            answer = await replica.server.ask(method, path, body, {})
        except SearchFailed as failed:
            return failed
        if (now := identity_of(answer)) != self._identity:
            return SearchFailed("garbled", f"the server now serves {now or 'an index without an identity'}")
        return answer

    @property
    def _wait_s(self) -> float:
        """Seconds after which a request is late."""
        if not self._seconds:
            return FIRST_WAIT * self._shortest_wait_s
        return max(self._shortest_wait_s, HEDGED_AFTER * statistics.median(self._seconds))

    def _may_hedge(self, sent: Collection[_Sent], other: _Replica) -> bool:
        """Whether a late request is sent to the other server too."""
        if other.trouble:
            return False
        if all(each.replica.trouble for each in sent):
            return True  # found to be down meanwhile
        if self._credit < 1:
            return False
        self._credit -= 1
        self.hedged += 1
        return True

    def _answered(self, answered: _Sent, unanswered: Collection[_Sent]) -> None:
        answered.replica.trouble, answered.replica.overtaken = "", 0
        self._seconds.append(asyncio.get_running_loop().time() - answered.at)
        for each in unanswered:
            each.replica.overtaken += each.at < answered.at
            if each.replica.overtaken >= OVERTAKEN and not each.replica.trouble:
                self._is_down(each.replica, f"it answered none of {OVERTAKEN} requests before another server did")

    def _is_down(self, replica: _Replica, trouble: str) -> None:
        replica.trouble = trouble
        if replica.check is None or replica.check.done():
            replica.check = asyncio.create_task(self._check(replica))

    async def _check(self, replica: _Replica) -> None:
        """Try a server that is down until it answers."""
        search = orjson.dumps({"queries": [PROBE], "topk": 1, "return_scores": True})
        while replica.trouble:
            await asyncio.sleep(CHECKED_EVERY_S)
            outcome = await self._outcome(replica, "POST", "/retrieve", search)
            if isinstance(outcome, SearchFailed):
                replica.trouble = str(outcome)
            else:
                replica.trouble, replica.overtaken = "", 0


def _one_failure(failures: Mapping[str, SearchFailed]) -> SearchFailed:
    """The failures of all servers as one: a passing one if one of them may pass."""
    every = sorted(failures.values(), key=lambda each: each.kind not in PASSING)
    if len(every) == 1:
        return every[0]
    said = "; ".join(f"{url}: {failed}" for url, failed in failures.items())
    return SearchFailed(every[0].kind, said, status=every[0].status)
