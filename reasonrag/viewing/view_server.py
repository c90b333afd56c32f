"""`reasonrag view --serve`: the page, and the questions as they are asked for. Listens on loopback only.

Reads a run in the background, so that the page opens at once, and grows as long as the run does. Of a folder of several
each has an address of its own below. Knows nothing of the page's design.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
from aiohttp import web
from pydantic import BaseModel, ValidationError

from preference.export.summary import SUMMARY, PairSummary
from preference.labelled_runs import rare_garbage_collection
from preference.records import first_error
from reasonrag.errors import InputError
from reasonrag.exploration.run_state import NO_LOCK, changed_at, run_state
from reasonrag.files import EVALUATION_REPORT, VIEW_PAGE, is_written, read_record
from reasonrag.redaction import redact
from reasonrag.viewing.collection import FILES, Collection, listed_in, open_collection
from reasonrag.viewing.evaluations import Evaluations
from reasonrag.viewing.judging import Judging, Said
from reasonrag.viewing.overview import OverviewCounts
from reasonrag.viewing.page import about_page, listing, pair_columns, served_page, write_evaluations
from reasonrag.viewing.question_view import question_view
from reasonrag.web.client import LOOPBACK
from reasonrag.web.server import listening

_MADE_AGAIN = "it was made again, or served again, since this page was opened: load the page again"
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MOST_LISTED = 500
LOOK_S = 1.0
"""How often files are looked at that may have grown."""


class BackgroundScan:
    """Scans a collection in a thread of its own, and what is added to it later; what was read so far can be listed at
    any time. Where other files take the place of its own, it scans those from their start."""

    def __init__(self, collection: Collection) -> None:
        self.error: str | None = None
        """What stopped the scan."""
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._begin(collection)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _begin(self, collection: Collection) -> None:
        self.collection, self.counts, self.complete = collection, OverviewCounts(collection), False
        self.judging = Judging(collection.path) if collection.kind == "data set" else None
        self.made, self._changes = f"{time.time_ns():x}", 0
        self._since: tuple[float, int, int] | None = None
        self._answers: dict[str, tuple[str, bytes]] = {}
        """The last one of each kind, and of which version it is."""

    def stop(self) -> None:
        self._ending.set()
        self._thread.join()

    def _read(self) -> None:
        found: Collection | None = self.collection
        try:
            while found and not self._ending.is_set():
                if found is not self.collection:
                    with self._lock:
                        self._begin(found)
                self._scan()
                found = self._later()
        except Exception as error:  # noqa: BLE001 - told to the page, which would wait for ever
            self.error = redact(str(error) or type(error).__name__)

    def _scan(self) -> None:
        with rare_garbage_collection():
            for explored in self.collection.scan():
                if self._ending.is_set():
                    return
                with self._lock:
                    self.counts.add(explored)
                    self._changes += 1
        with self._lock:
            self.complete = True
            self._changes += 1  # it is known what is capped

    def _later(self) -> Collection | None:
        while not self._ending.wait(LOOK_S):
            with suppress(InputError, OSError):  # it is being written
                if found := self.collection.later():
                    return found
        return None

    def listed(self, seen: str) -> bytes:
        """The listing; for those who have seen this state of it, only how far it is."""
        with self._lock:
            version = f"{self.made}.{self._changes}"
            told = {"version": version, "complete": self.complete, "read": self.collection.scanned, "run": self._run()}
            if seen == version:
                return orjson.dumps(told)
            whole = self._answer("list", self._listing)
        return whole[:-1] + b"," + orjson.dumps(told)[1:]

    def scan(self, _name: str | None) -> BackgroundScan:
        return self

    def page(self, _name: str | None) -> bytes:
        return served_page(self.collection.path)

    def _listing(self) -> dict[str, Any]:
        found = listing(self.counts.rows(), self.counts.overview(), about_page(self.collection))
        return found.model_dump(mode="json")

    def pairs(self) -> bytes:
        """The table of pairs."""
        with self._lock:
            return self._answer("pairs", lambda: pair_columns(self.counts.rows()))

    def _answer(self, name: str, made: Callable[[], dict[str, Any]]) -> bytes:
        version = f"{self.made}.{self._changes}"
        if (known := self._answers.get(name)) is None or known[0] != version:
            known = self._answers[name] = version, orjson.dumps(made())
        return known[1]

    def _run(self) -> dict[str, Any] | None:
        """How far a run is; None of a data set."""
        if self.collection.kind == "data set":
            return None
        found, now = run_state(self.collection.path, len(self.counts.by_number))[0], time.monotonic()
        here = len(self.counts.by_number), self.counts.run.usage.calls
        if found.state != "running" or not self.complete:
            self._since = None
        else:
            self._since = self._since or (now, *here)
            found.since = now - self._since[0], *self._since[1:]
        return found.model_dump(mode="json")


class Several:
    """The runs, data sets and evaluations right below a folder. Each is read once it is asked for, or goes on."""

    def __init__(self, path: Path, most: int) -> None:
        """most: bytes of the page of evaluations."""
        self.path, self._most = path, most
        self._scans: dict[str, BackgroundScan] = {}
        self._opening = threading.Lock()

    def listed(self) -> dict[str, Any]:
        found = listed_in(self.path)
        rows = [self._row(name, kind) for name, kind in [*found.items()][:MOST_LISTED]]
        return {"kind": "folder", "path": readable(str(self.path)), "rows": rows, "found": len(found)}

    def _row(self, name: str, kind: str) -> dict[str, Any]:
        """Of what cannot be read `why`. What goes on, or was opened, tells of what was read of it."""
        of: dict[str, Any] = {"name": readable(name), "kind": kind, "state": "unknown"}
        if of["name"] != name:
            return of | {"why": "its name is not UTF-8; rename the folder to open it"}
        folder, counts = self.path / name, None
        try:
            of["changed"] = changed_at(folder / FILES[kind][0])
            if name in self._scans or (kind == "run" and is_written(folder)):
                if (scan := self._opened(name)).error is not None:
                    return of | {"why": scan.error}
                counts = scan.counts if scan.complete else None
            return of | entry_of(folder, kind, counts)
        except (InputError, OSError, ValueError) as error:
            return of | {"why": redact(str(error))}

    def scan(self, name: str | None) -> BackgroundScan:
        """Raises HTTPNotFound for a name that is not listed, InputError for what cannot be opened."""
        if name is None or (name not in self._scans and name not in listed_in(self.path)):
            raise web.HTTPNotFound
        return self._opened(name)

    def _opened(self, name: str) -> BackgroundScan:
        with self._opening:
            if name not in self._scans:
                self._scans[name] = BackgroundScan(open_collection(self.path / name))
            return self._scans[name]

    def page(self, name: str | None) -> bytes:
        """Of the folder, or of one in it. Raises HTTPNotFound, InputError."""
        if name is None:
            return served_page(self.path)
        if listed_in(self.path).get(name) != "evaluation":
            page = served_page(self.scan(name).collection.path)
        else:
            with TemporaryDirectory() as scratch:
                out = Path(scratch) / VIEW_PAGE
                write_evaluations(Evaluations([self.path / name]), out, most=self._most, watch=lambda _: None)
                page = out.read_bytes()
        return page.replace(b"<html ", b'<html data-home="1" ', 1)

    def stop(self) -> None:
        for each in self._scans.values():
            each.stop()


def readable(name: str) -> str:
    """A name of a file without bytes that are not UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


class _Report(BaseModel):
    """What of an evaluation's report is listed."""

    questions: int
    answered: int
    failed: int
    cost_usd: float | None
    metrics: dict[str, dict[str, float | None]]


def entry_of(folder: Path, kind: str, counts: OverviewCounts | None) -> dict[str, Any]:
    """What the files of one of a folder tell of `state`, `why`, `asked`, `done`, `failed`, `em`, `pairs` and `cost`.
    counts: of a run that is being read. Raises InputError, OSError."""
    if kind == "data set":
        made = read_record(folder / SUMMARY, PairSummary, "Make the data set again") or PairSummary()
        return {"done": made.questions, "pairs": made.pairs, "cost": made.usage and made.usage.cost_usd}
    if kind == "evaluation":
        written, report = is_written(folder), read_record(folder / EVALUATION_REPORT, _Report, "Evaluate again")
        if written is None:
            of: dict[str, Any] = {"why": NO_LOCK}
        else:
            of = {"state": "running" if written else "ended" if report else "killed"}
        if report:
            of |= {"done": report.answered, "asked": report.questions, "failed": report.failed}
            of |= {"em": report.metrics.get("em", {}).get("value"), "cost": report.cost_usd}
        return of
    found, summary = run_state(folder, len(counts.by_number) if counts else None)
    told: tuple[Any, ...] = ()
    if counts:
        run, usage = counts.run, counts.usage
        told = run.done, len(run.failures), run.of_trees["mean_em"], usage and usage.cost_usd
    elif summary:
        told = summary.done, summary.failed, summary.mean_em, summary.cost_usd
    return found.model_dump(exclude={"since"}) | dict(zip(("done", "failed", "em", "cost"), told, strict=False))


@asynccontextmanager
async def serve_page(shown: Collection | Several, *, port: int) -> AsyncIterator[str]:
    """The address of the running page. port: 0 takes a free one. Raises InputError if it cannot listen."""
    reading = shown if isinstance(shown, Several) else BackgroundScan(shown)
    try:
        async with listening(make_app(reading), host=LOOPBACK, port=port) as address:
            yield f"{address}/"
    finally:
        await asyncio.to_thread(reading.stop)


def make_app(reading: BackgroundScan | Several) -> web.Application:
    """Of several each is below its name."""

    async def scan_of(request: web.Request) -> BackgroundScan:
        found = await asyncio.to_thread(reading.scan, request.match_info.get("name"))
        if (of := request.query.get("of")) and of.partition(".")[0] != found.made:
            raise web.HTTPGone(reason=_MADE_AGAIN)
        return found

    async def show_page(request: web.Request) -> web.Response:
        page = await asyncio.to_thread(reading.page, request.match_info.get("name"))
        return web.Response(body=page, content_type="text/html", charset="utf-8")

    async def show_list(request: web.Request) -> web.Response:
        try:
            scan = await scan_of(request)
        except web.HTTPGone:
            return _json({"wrong": _MADE_AGAIN})  # asked for by pages that wait: no failure of theirs
        found = await asyncio.to_thread(scan.listed, request.query.get("of", ""))
        if scan.error is not None:  # checked last: a scan that is complete has not failed meanwhile
            return _json({"error": scan.error}, HTTPStatus.INTERNAL_SERVER_ERROR)
        return _json(found)

    async def show_pairs(request: web.Request) -> web.Response:
        return _json(await asyncio.to_thread((await scan_of(request)).pairs))

    async def show_question(request: web.Request) -> web.Response:
        number, scan = int(request.match_info["number"]), await scan_of(request)
        if number not in scan.counts.by_number:
            return _json({"error": f"there is no question {number} here"}, HTTPStatus.NOT_FOUND)

        def view() -> dict[str, Any]:
            of = scan.collection
            return question_view(of.at(number), of.rules, caps_known=scan.complete).model_dump(mode="json")

        return _json(await asyncio.to_thread(view))

    app, at = web.Application(middlewares=[_answered]), ""
    if isinstance(reading, Several):
        several, at = reading, "/{name:[^/]+}"

        async def show_folder(_: web.Request) -> web.Response:
            return _json(await asyncio.to_thread(several.listed))

        app.router.add_get("/", show_page)
        app.router.add_get("/api/list", show_folder)
    app.router.add_get(f"{at}/", show_page)
    app.router.add_get(f"{at}/api/list", show_list)
    app.router.add_get(f"{at}/api/pairs", show_pairs)
    app.router.add_get(at + r"/api/question/{number:\d{1,9}}", show_question)
    _add_judging(app, at, scan_of)
    return app


def _add_judging(app: web.Application, at: str, scan_of: Callable[[web.Request], Awaitable[BackgroundScan]]) -> None:
    """Of data sets."""

    async def judging_of(request: web.Request) -> Judging:
        if (found := (await scan_of(request)).judging) is None:
            raise web.HTTPNotFound
        return found

    async def show_judging(request: web.Request) -> web.Response:
        judging, who = await judging_of(request), request.query.get("who", "")
        verdicts = await asyncio.to_thread(judging.verdicts, who)
        return _json({"sample": await asyncio.to_thread(lambda: judging.sample), "verdicts": verdicts})

    async def judge(request: web.Request) -> web.Response:
        judging, said = await judging_of(request), Said.model_validate_json(await request.read())
        return _json({"verdicts": await asyncio.to_thread(judging.say, said)})

    async def show_agreement(request: web.Request) -> web.Response:
        report = await asyncio.to_thread((await judging_of(request)).agreement)
        return _json(report.model_dump(mode="json") if report else {"reviewers": [], "between": []})

    app.router.add_get(f"{at}/api/judging", show_judging)
    app.router.add_post(f"{at}/api/judging", judge)
    app.router.add_get(f"{at}/api/agreement", show_agreement)


@web.middleware
async def _answered(request: web.Request, handler: _Handler) -> web.StreamResponse:
    answer: web.StreamResponse
    try:
        answer = await handler(request)
    except web.HTTPException as none_of_ours:
        answer = _json({"error": none_of_ours.reason}, none_of_ours.status)
    except (InputError, OSError, ValueError) as error:
        why = first_error(error) if isinstance(error, ValidationError) else str(error)
        status = HTTPStatus.INTERNAL_SERVER_ERROR if isinstance(error, OSError) else HTTPStatus.BAD_REQUEST
        answer = _json({"error": redact(why)}, status)
    answer.headers.update({"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"})
    return answer


def _json(content: object, status: int = HTTPStatus.OK) -> web.Response:
    """content: bytes are JSON already."""
    body = content if isinstance(content, bytes) else orjson.dumps(content)
    answer = web.Response(body=body, status=status, content_type="application/json")
    answer.enable_compression()
    return answer
