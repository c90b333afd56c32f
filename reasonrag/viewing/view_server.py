"""`reasonrag view --serve`: the page, and the questions as they are asked for. Listens on loopback only.

Reads a run in the background, so that the page opens at once, and grows as long as the run does. Of a folder of several
each has an address of its own below. Knows nothing of the page's design.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeAlias

import orjson
from aiohttp import web
from pydantic import BaseModel, ValidationError

from preference.export.summary import SUMMARY, PairSummary
from preference.labelled_runs import rare_garbage_collection
from preference.records import first_error
from reasonrag.errors import InputError
from reasonrag.exploration.run_state import changed_at, lines_of, run_state
from reasonrag.files import EVALUATION_REPORT, is_written, read_record, readable
from reasonrag.redaction import redact
from reasonrag.viewing.collection import Collection, files_of, kind_of, listed_in, open_collection
from reasonrag.viewing.evaluations import Evaluations, predictions_in
from reasonrag.viewing.judging import Judging, Said, WrongRequest
from reasonrag.viewing.overview import OverviewCounts
from reasonrag.viewing.page import listing, made_from, pair_columns, served_page
from reasonrag.viewing.question_view import question_view
from reasonrag.web.client import LOOPBACK
from reasonrag.web.server import listening

_MADE_AGAIN = "it was made again, or served again, since this page was opened: load the page again"
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MOST_LISTED = 500
LOOK_S = 1.0
"""How often files are looked at that may have grown."""


class _Progress:
    """How far a run or an evaluation is, and from where on its pace is told."""

    def __init__(self) -> None:
        self._since: tuple[float, int, int] | None = None

    def of(self, path: Path, done: int, calls: int, *, complete: bool) -> dict[str, Any]:
        """done, calls: its questions and completions. complete: whether these are all there are now."""
        found, now = run_state(path, done)[0], time.monotonic()
        if found.state != "running" or not complete:
            self._since = None
        else:
            self._since = self._since or (now, done, calls)
            found.since = now - self._since[0], *self._since[1:]
        return found.model_dump(mode="json")


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
        self._progress = _Progress()
        self._answers: dict[str, bytes] = {}
        """Those of this version."""

    def stop(self) -> None:
        self._ending.set()
        self._thread.join()

    def _read(self) -> None:
        try:
            self._scan()
            while not self._ending.wait(LOOK_S):
                if found := self._later():
                    if found is not self.collection:
                        with self._lock:
                            self._begin(found)
                    self._scan()
        except Exception as error:  # noqa: BLE001 - told to the page, which would wait for ever
            self.error = redact(str(error) or type(error).__name__)

    def _later(self) -> Collection | None:
        with suppress(InputError, OSError):  # it is being written
            return self.collection.later()
        return None

    def _scan(self) -> None:
        with rare_garbage_collection():
            for explored in self.collection.scan():
                if self._ending.is_set():
                    return
                with self._changed():
                    self.counts.add(explored)
        with self._changed():
            self.complete = True  # it is known what is capped

    @contextmanager
    def _changed(self) -> Iterator[None]:
        """Around what makes another version of the list."""
        with self._lock:
            self._answers.clear()
            self._changes += 1
            yield

    def listed(self, seen: str) -> bytes:
        """The listing; for those who have seen this state of it, only how far it is."""
        with self._lock:
            version = f"{self.made}.{self._changes}"
            told = {"version": version, "complete": self.complete, "read": self.collection.scanned, "run": self._run()}
            if seen == version:
                return orjson.dumps(told)
            whole = self._answer("list", lambda: listing(self.counts, [made_from(self.collection.path)]))
        return whole[:-1] + b"," + orjson.dumps(told)[1:]

    def pairs(self) -> bytes:
        """The table of pairs."""
        with self._lock:
            return self._answer("pairs", lambda: pair_columns(self.counts))

    def _answer(self, name: str, made: Callable[[], dict[str, Any]]) -> bytes:
        if name not in self._answers:
            self._answers[name] = orjson.dumps(made())
        return self._answers[name]

    def _run(self) -> dict[str, Any] | None:
        """How far a run is; None of a data set."""
        if self.collection.kind == "data set":
            return None
        questions, calls = len(self.counts.by_number), self.counts.run.usage.calls
        return self._progress.of(self.collection.path, questions, calls, complete=self.complete)

    def scan(self, _name: str) -> BackgroundScan:
        return self

    def page(self, _name: str) -> bytes:
        return served_page(self.collection.path)

    def question(self, number: int) -> dict[str, Any]:
        """Raises HTTPNotFound."""
        if number not in self.counts.by_number:
            raise web.HTTPNotFound(reason=f"question {number} is not here")
        found = self.collection.at(number)
        return question_view(found, self.collection.rules, caps_known=self.complete).model_dump(mode="json")


class GrowingEvaluation:
    """An evaluation, read again when its file has changed, with the methods of `BackgroundScan`. A question keeps its
    number."""

    error: str | None = None
    judging: Judging | None = None

    def __init__(self, path: Path) -> None:
        """Raises InputError."""
        self.path, self.made, self._changes = path, f"{time.time_ns():x}", 0
        self._lock, self._progress = threading.Lock(), _Progress()
        self._read()

    def _read(self, known: Sequence[tuple[str, str]] = ()) -> None:
        now, found = self._now(), Evaluations([self.path], known)
        listing = found.listing()
        listing.about.append(made_from(self.path))
        self._seen, self._found, self._listing = now, found, listing

    def _now(self) -> tuple[Path, int, int]:
        file = predictions_in(self.path)
        of = file.stat()
        return file, of.st_mtime_ns, of.st_size

    def listed(self, seen: str) -> bytes:
        with self._lock:
            try:
                if self._now() != self._seen:
                    self._read(self._found.keys)
                    self._changes += 1
                self.error = None
            except (InputError, OSError) as error:  # while it is written a file may take the place of another
                self.error = None if is_written(self.path) else redact(str(error))
            version, found = f"{self.made}.{self._changes}", self._listing
            counts = [score["calls"] for row in found.rows for score in row.scores if score]
            calls = sum(each for each in counts if isinstance(each, int))
            run = self._progress.of(self.path, len(found.rows), calls, complete=True)
        whole = {} if seen == version else found.model_dump(mode="json")
        return orjson.dumps({"version": version, "complete": True, "run": run} | whole)

    def question(self, number: int) -> dict[str, Any]:
        try:
            return {"attempts": self._found.attempts(number)}
        except KeyError:
            raise web.HTTPNotFound(reason=f"question {number} is not here") from None

    def pairs(self) -> bytes:
        raise web.HTTPNotFound

    def scan(self, _name: str) -> GrowingEvaluation:
        return self

    def page(self, _name: str) -> bytes:
        return served_page(self.path)

    def stop(self) -> None:
        """It reads only when it is asked."""


Shown: TypeAlias = BackgroundScan | GrowingEvaluation


class Several:
    """The runs, data sets and evaluations right below a folder. Each is read once it is asked for, or goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._scans: dict[str, Shown] = {}

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
            of["changed"] = changed_at(files_of(folder)[kind][0])
            if name in self._scans or (kind == "run" and is_written(folder)):
                if (scan := self.scan(name)).error is not None:
                    return of | {"why": scan.error}
                counts = scan.counts if isinstance(scan, BackgroundScan) and scan.complete else None
            return of | entry_of(folder, kind, counts)
        except (InputError, OSError, ValueError) as error:
            return of | {"why": redact(str(error))}

    def scan(self, name: str) -> Shown:
        """Raises HTTPNotFound for a name that is not listed, InputError for what cannot be opened."""
        if isinstance(self._scans.get(name), BackgroundScan):  # whose files are open
            return self._scans[name]
        if name not in listed_in(self.path):
            raise web.HTTPNotFound
        if name not in self._scans:
            made = shown_alone(self.path / name)
            if self._scans.setdefault(name, made) is not made:
                made.stop()
        return self._scans[name]

    def page(self, name: str) -> bytes:
        """Of one in the folder; without a name, of the folder. Raises HTTPNotFound, InputError."""
        if not name:
            return served_page(self.path)
        return self.scan(name).page(name).replace(b"<html ", b'<html data-home="1" ', 1)

    def stop(self) -> None:
        for each in self._scans.values():
            each.stop()


def shown_alone(path: Path, trees: Sequence[Path] = ()) -> Shown:
    """A run, a data set with these trees, or an evaluation. Raises InputError."""
    if kind_of(path) != "evaluation":
        return BackgroundScan(open_collection(path, trees))
    if trees:
        raise InputError(f"--trees goes with a data set, and {path} is an evaluation")
    return GrowingEvaluation(path)


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
    found, summary = run_state(folder, len(counts.by_number) if counts else None)
    of = found.model_dump(exclude={"since"})
    if kind == "evaluation":
        report = read_record(folder / EVALUATION_REPORT, _Report, "Evaluate again")
        if found.state in ("running", "killed"):
            of["done"] = lines_of(file := predictions_in(folder), changed_at(file))
        elif report:
            of |= {"done": report.answered, "asked": report.questions, "failed": report.failed}
            of |= {"em": report.metrics.get("em", {}).get("value"), "cost": report.cost_usd}
    elif counts:
        run, em, usage = counts.run, counts.run.of_trees["mean_em"], counts.usage
        of |= {"done": run.done, "failed": len(run.failures), "em": em, "cost": usage and usage.cost_usd}
    elif summary:
        of |= {"done": summary.done, "failed": summary.failed, "em": summary.mean_em, "cost": summary.cost_usd}
    return of


@asynccontextmanager
async def serve_page(reading: Shown | Several, *, port: int) -> AsyncIterator[str]:
    """The address of the running page. port: 0 takes a free one. Raises InputError if it cannot listen."""
    try:
        async with listening(make_app(reading), host=LOOPBACK, port=port) as address:
            yield f"{address}/"
    finally:
        await asyncio.to_thread(reading.stop)


def make_app(reading: Shown | Several) -> web.Application:
    """Of several each is below its name."""

    async def scan_of(request: web.Request) -> Shown:
        found = await asyncio.to_thread(reading.scan, request.match_info.get("name", ""))
        if (of := request.query.get("of")) and of.partition(".")[0] != found.made:
            raise web.HTTPGone(reason=_MADE_AGAIN)
        return found

    async def show_page(request: web.Request) -> web.Response:
        page = await asyncio.to_thread(reading.page, request.match_info.get("name", ""))
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

    def shown(part: Callable[[Shown, web.Request], object]) -> _Handler:
        async def show(request: web.Request) -> web.Response:
            return _json(await asyncio.to_thread(part, await scan_of(request), request))

        return show

    async def judge(request: web.Request) -> web.Response:
        judging, said = _judged(await scan_of(request)), Said.model_validate_json(await request.read())
        return _json({"verdicts": await asyncio.to_thread(judging.say, said)})

    app, at = web.Application(middlewares=[_answered]), ""
    if isinstance(reading, Several):
        several, at = reading, "/{name:[^/]+}"

        async def show_folder(_: web.Request) -> web.Response:
            return _json(await asyncio.to_thread(several.listed))

        app.router.add_get("/", show_page)
        app.router.add_get("/api/list", show_folder)
    app.router.add_get(f"{at}/", show_page)
    app.router.add_get(f"{at}/api/list", show_list)
    app.router.add_get(f"{at}/api/pairs", shown(lambda scan, _: scan.pairs()))
    app.router.add_get(at + r"/api/question/{number:\d{1,9}}", shown(_question))
    app.router.add_get(f"{at}/api/judging", shown(_judging))
    app.router.add_post(f"{at}/api/judging", judge)
    app.router.add_get(f"{at}/api/agreement", shown(_agreement))
    return app


def _question(scan: Shown, request: web.Request) -> dict[str, Any]:
    return scan.question(int(request.match_info["number"]))


def _judged(scan: Shown) -> Judging:
    if scan.judging is None:
        raise web.HTTPNotFound
    return scan.judging


def _judging(scan: Shown, request: web.Request) -> dict[str, Any]:
    judging = _judged(scan)
    verdicts = judging.verdicts(request.query.get("who", ""))
    return {"sample": judging.sample, "verdicts": verdicts}


def _agreement(scan: Shown, _: web.Request) -> dict[str, Any]:
    report = _judged(scan).agreement()
    return report.model_dump(mode="json") if report else {"reviewers": [], "between": []}


@web.middleware
async def _answered(request: web.Request, handler: _Handler) -> web.StreamResponse:
    answer: web.StreamResponse
    try:
        answer = await handler(request)
    except web.HTTPException as none_of_ours:
        answer = _json({"error": none_of_ours.reason}, none_of_ours.status)
    except (InputError, OSError, ValueError) as error:
        why = first_error(error) if isinstance(error, ValidationError) else str(error)
        is_wrong = isinstance(error, WrongRequest | ValidationError)  # else a file cannot be read or written
        status = HTTPStatus.BAD_REQUEST if is_wrong else HTTPStatus.INTERNAL_SERVER_ERROR
        answer = _json({"error": redact(why)}, status)
    answer.headers.update({"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"})
    return answer


def _json(content: object, status: int = HTTPStatus.OK) -> web.Response:
    """content: bytes are JSON already."""
    body = content if isinstance(content, bytes) else orjson.dumps(content)
    answer = web.Response(body=body, status=status, content_type="application/json")
    answer.enable_compression()
    return answer
