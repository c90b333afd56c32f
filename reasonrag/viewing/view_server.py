"""`reasonrag view --serve`: the page, and the questions as they are asked for. Listens on loopback only.

Reads the run in the background, so that the page opens at once and its list grows. Knows nothing of the page's design.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import orjson
from aiohttp import web

from preference.labelled_runs import rare_garbage_collection
from reasonrag.errors import InputError
from reasonrag.redaction import redact
from reasonrag.viewing.collection import Collection
from reasonrag.viewing.judging import Judging
from reasonrag.viewing.overview import OverviewCounts
from reasonrag.viewing.page import about_page, listing, pair_columns, served_page
from reasonrag.viewing.question_view import question_view
from reasonrag.web.client import LOOPBACK
from reasonrag.web.server import listening

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class BackgroundScan:
    """Scans a collection in a thread of its own; what has been read so far can be listed at any time."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self.counts = OverviewCounts(collection)
        self.complete = False
        self.error: str | None = None
        """What stopped the scan."""
        self._given_up = False
        self._lock = threading.Lock()
        self._answers: dict[str, tuple[tuple[int, bool], bytes]] = {}
        """The last one of each kind, and what it was of: the first row, and whether everything was read."""
        self._thread = threading.Thread(target=self._read, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._given_up = True
        self._thread.join()

    def _read(self) -> None:
        try:
            with rare_garbage_collection():
                for explored in self.collection.scan():
                    if self._given_up:
                        break
                    with self._lock:
                        self.counts.add(explored)
                        self._answers.clear()
        except Exception as error:  # noqa: BLE001 - told to the page, which would wait for ever
            self.error = redact(str(error) or type(error).__name__)
        self.complete = True

    def listed(self, first: int) -> bytes:
        """The listing, with the rows from `first` on, or all of them once everything was read."""

        def found(*, complete: bool) -> dict[str, Any]:
            rows = [each for each in self.counts.rows() if complete or each.number >= first]
            about, read = about_page(self.collection), self.collection.scanned
            whole = listing(rows, self.counts.overview(), about, complete=complete, read=read)
            return whole.model_dump(mode="json")

        return self._answer("list", 0 if self.complete else first, found)

    def pairs(self) -> bytes:
        """The table of pairs."""
        return self._answer("pairs", 0, lambda **_: pair_columns(self.counts.rows()))

    def _answer(self, name: str, first: int, made: Callable[..., dict[str, Any]]) -> bytes:
        """Made anew where something was read since the last one."""
        with self._lock:
            of = first, self.complete
            if (known := self._answers.get(name)) is None or known[0] != of:
                known = self._answers[name] = of, orjson.dumps(made(complete=self.complete))
            return known[1]


@asynccontextmanager
async def serve_page(collection: Collection, *, port: int) -> AsyncIterator[str]:
    """The address of the running page. port: 0 takes a free one. Raises InputError if it cannot listen."""
    reading = BackgroundScan(collection)
    async with listening(make_app(reading), host=LOOPBACK, port=port) as address:
        reading.start()
        try:
            yield f"{address}/"
        finally:
            await asyncio.to_thread(reading.stop)


def make_app(reading: BackgroundScan) -> web.Application:
    page = served_page(reading.collection)

    async def show_page(_: web.Request) -> web.Response:
        return web.Response(body=page, content_type="text/html", charset="utf-8")

    async def show_list(request: web.Request) -> web.Response:
        first = request.query.get("from", "0")
        if not re.fullmatch(r"[0-9]{1,9}", first):
            return _json({"error": "from must be a number of a question"}, HTTPStatus.BAD_REQUEST)
        found = await asyncio.to_thread(reading.listed, int(first))
        if reading.error is not None:  # checked last: a scan that is complete has not failed meanwhile
            return _json({"error": reading.error}, HTTPStatus.INTERNAL_SERVER_ERROR)
        return _json(found)

    async def show_pairs(_: web.Request) -> web.Response:
        return _json(await asyncio.to_thread(reading.pairs))

    async def show_question(request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        if not reading.counts.has(number):
            return _json({"error": f"there is no question {number} here"}, HTTPStatus.NOT_FOUND)
        collection = reading.collection

        def view() -> dict[str, Any]:
            found = question_view(collection.at(number), collection.rules, caps_known=reading.complete)
            return found.model_dump(mode="json")

        try:
            return _json(await asyncio.to_thread(view))
        except (InputError, OSError) as error:
            return _json({"error": redact(str(error))}, HTTPStatus.INTERNAL_SERVER_ERROR)

    app = web.Application(middlewares=[_answered])
    app.router.add_get("/", show_page)
    app.router.add_get("/api/list", show_list)
    app.router.add_get("/api/pairs", show_pairs)
    app.router.add_get(r"/api/question/{number:\d{1,9}}", show_question)
    if reading.collection.kind == "data set":
        _add_judging(app, Judging(reading.collection.path))
    return app


def _add_judging(app: web.Application, judging: Judging) -> None:
    async def show_judging(request: web.Request) -> web.Response:
        def shown() -> dict[str, Any]:
            who = request.query.get("who", "")
            return {"sample": judging.sample, "verdicts": judging.verdicts(who)}

        return await _told(shown)

    async def judge(request: web.Request) -> web.Response:
        body = await request.read()

        def kept() -> dict[str, Any]:
            said = orjson.loads(body)
            judging.say(who := str(said["who"]), str(said["pair"]), said["verdict"])
            return {"verdicts": judging.verdicts(who)}

        return await _told(kept)

    async def show_agreement(_: web.Request) -> web.Response:
        def found() -> dict[str, Any]:
            report = judging.agreement()
            return report.model_dump(mode="json") if report else {"reviewers": [], "between": []}

        return await _told(found)

    app.router.add_get("/api/judging", show_judging)
    app.router.add_post("/api/judging", judge)
    app.router.add_get("/api/agreement", show_agreement)


async def _told(work: Callable[[], dict[str, Any]]) -> web.Response:
    """What comes of work in a thread; what is refused in words."""
    try:
        return _json(await asyncio.to_thread(work))
    except (InputError, KeyError, TypeError, ValueError) as error:
        return _json({"error": redact(str(error))}, HTTPStatus.BAD_REQUEST)


@web.middleware
async def _answered(request: web.Request, handler: _Handler) -> web.StreamResponse:
    answer: web.StreamResponse
    try:
        answer = await handler(request)
    except web.HTTPException as none_of_ours:
        answer = _json({"error": none_of_ours.reason}, none_of_ours.status)
    answer.headers.update({"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"})
    return answer


def _json(content: object, status: int = HTTPStatus.OK) -> web.Response:
    """content: bytes are JSON already."""
    body = content if isinstance(content, bytes) else orjson.dumps(content)
    answer = web.Response(body=body, status=status, content_type="application/json")
    answer.enable_compression()
    return answer
