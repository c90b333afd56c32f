"""A served page while its run goes on, and a folder of several: what is told, what stays in place, what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from playwright.sync_api import Route, expect
from yarl import URL

import reasonrag
from reasonrag.errors import InputError
from reasonrag.exploration.run_state import run_state
from reasonrag.files import only_writer
from reasonrag.viewing import view_server
from reasonrag.viewing.collection import listed_in
from reasonrag.viewing.view_server import MOST_LISTED, Several, Shown, serve_page, shown_alone
from tests.helpers.command_line import Reasonrag
from tests.helpers.endpoints import in_a_thread
from tests.helpers.hostile import ATTACKS
from tests.helpers.jsonl import write_rows
from tests.helpers.pages import NARROW, PATIENCE_MS, Visit, barriers, did_run, overflow
from tests.helpers.trees import asked, failure, run_of
from tests.reasonrag.viewing.test_evaluations import prediction

QUESTIONS, PATIENCE_S = 6, 30


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run."""
    place = tmp_path_factory.mktemp("live")
    with contextlib.chdir(place):
        reasonrag.generate(dataset="atlas", limit=QUESTIONS, model="offline", run="run", max_cost=5.0, yes=True)
    return place / "run"


@pytest.fixture
def begun(explored: Path, tmp_path: Path) -> Path:
    """The same at a moment of its session: two lines, and the begin of a third one."""
    run = tmp_path / "runs" / "begun"
    shutil.copytree(explored, run)
    (run / "summary.json").unlink()
    lines = lines_of(explored)
    (run / "rollouts.jsonl").write_bytes(lines[0] + lines[1] + lines[2][:500])
    return run


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_server, "LOOK_S", 0.02)


def lines_of(run: Path) -> list[bytes]:
    return (run / "rollouts.jsonl").read_bytes().splitlines(keepends=True)


def append(run: Path, content: bytes) -> None:
    with (run / "rollouts.jsonl").open("ab") as file:
        file.write(content)


class Client:
    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self.session, self.address = session, address

    async def ask(self, path: str) -> tuple[int, Any]:
        async with self.session.get(URL(self.address + path, encoded=True), allow_redirects=False) as answer:
            is_json = answer.content_type == "application/json"
            return answer.status, await answer.json() if is_json else await answer.text()

    async def listed(self, questions: int, at: str = "") -> Any:
        """The list, once it has so many questions."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                status, found = await self.ask(f"{at}api/list")
                assert status == 200, found
                if found["complete"] and len(found["rows"]) == questions:
                    return found
                await asyncio.sleep(0.01)

    async def gone(self, path: str) -> str:
        """Why the page is of other files, once that was seen."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                _, found = await self.ask(path)
                if said := found.get("wrong", found.get("error")):
                    return str(said)
                await asyncio.sleep(0.01)


def alone(shown: Path | Several) -> Shown | Several:
    return shown if isinstance(shown, Several) else shown_alone(shown)


@asynccontextmanager
async def served(shown: Path | Several) -> AsyncIterator[Client]:
    async with serve_page(alone(shown), port=0) as address, aiohttp.ClientSession() as session:
        yield Client(session, address)


# -- a run that goes on ----------------------------------------------------------------------------------------


async def test_a_run_grows_on_its_page_to_its_end(explored: Path, begun: Path) -> None:
    """A line that is being written is waited for. At its end the run has its lines in another order, in another file:
    the page is of the same run all the same, and every question can be opened."""
    lines = lines_of(explored)
    async with served(begun) as client:
        first = await client.listed(2)
        append(begun, lines[2][500:] + lines[3])
        found = await client.listed(4)
        assert found["overview"]["usage"]["calls"] > first["overview"]["usage"]["calls"]
        assert [row["id"] for row in found["rows"][:2]] == [row["id"] for row in first["rows"]]
        _, pairs = await client.ask("api/pairs")
        assert {*pairs["question"]} <= {*range(4)}
        assert len(pairs["id"]) == found["overview"]["candidates"]
        append(begun, b"".join(lines[4:]))
        whole = await client.listed(QUESTIONS)
        (begun / "ordered").write_bytes(b"".join(reversed(lines)))
        (begun / "ordered").replace(begun / "rollouts.jsonl")
        shutil.copy2(explored / "summary.json", begun)
        await asyncio.sleep(0.2)  # it is looked at ten times
        _, last = await client.ask(f"api/list?of={whole['version']}")
        made = [each["version"].partition(".")[0] for each in (whole, last)]
        assert (made[0], last["run"]["state"]) == (made[1], "ended")
        for number, row in enumerate(whole["rows"]):
            assert (await client.ask(f"api/question/{number}?of={whole['version']}"))[1]["id"] == row["id"]


async def test_a_question_that_failed_and_was_explored_later_is_one_row(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", failure("q1"), asked(2))
    async with served(run) as client:
        assert (await client.listed(2))["rows"][0]["ends"] == "failed"
        append(run, asked(1).to_line() + asked(3).to_line())
        found = await client.listed(3)
        assert [(row["id"], row["pairs"]) for row in found["rows"]] == [("q1", 1), ("q2", 1), ("q3", 1)]


async def test_what_was_made_again_is_not_mixed_with_what_was_there(tmp_path: Path) -> None:
    """A page that is open is told to be loaded again; one that is loaded then has the new one."""
    run = run_of(tmp_path / "run", *map(asked, range(3)))
    data = tmp_path / "data"
    reasonrag.pairs(run, out=data)
    for path, again in (
        (run, lambda: (shutil.rmtree(run), run_of(run, *map(asked, range(5))))),
        (data, lambda: reasonrag.pairs(run, out=data)),
    ):
        async with served(path) as client:
            before = await client.listed(3)
            again()
            for part in ("api/list", "api/pairs", "api/question/0"):
                assert "load the page again" in await client.gone(f"{part}?of={before['version']}")
            assert (await client.listed(5))["version"] != before["version"]


def test_a_run_says_whether_it_goes_on_ended_or_was_killed(explored: Path, begun: Path, tmp_path: Path) -> None:
    """By its lock and its summary. Trees alone say nothing."""

    def told(run: Path) -> tuple[str, int | None, float | None]:
        found, _ = run_state(run)
        return found.state, found.asked, found.max_cost

    assert told(begun) == ("killed", QUESTIONS, 5.0)
    with only_writer(begun):
        assert told(begun) == ("running", QUESTIONS, 5.0)
    assert told(explored) == ("ended", QUESTIONS, 5.0)
    summary = orjson.loads((explored / "summary.json").read_bytes())
    stopped = summary | {"done": 2, "stopped": {"cause": "max_cost", "message": "$5 of $5 are spent"}}
    (begun / "summary.json").write_bytes(orjson.dumps(stopped))
    assert told(begun)[0] == "stopped"
    assert run_state(begun)[0].why == "$5 of $5 are spent"
    append(begun, b"\n" + lines_of(explored)[3])
    os.utime(begun / "rollouts.jsonl", (2e9, 2e9))
    assert told(begun)[0] == "killed"  # in a later session
    (begun / ".lock").unlink()
    (begun / ".lock").mkdir()  # that cannot be locked
    assert told(begun)[0] == "unknown"
    assert "cannot be known" in run_state(begun)[0].why
    assert told(run_of(tmp_path / "alone", asked(1))) == ("unknown", None, None)


# -- an evaluation that goes on --------------------------------------------------------------------------------


@pytest.fixture
def answering(tmp_path: Path) -> Path:
    """An evaluation at a moment of its session: two answers, and the begin of a third one."""
    home = tmp_path / "evals" / "agent"
    home.mkdir(parents=True)
    settings = {"limit": QUESTIONS}
    made = {"config_hash": "h", "decides_answers": {"model": "qwen"}, "operational": {"settings": settings}}
    (home / "config.json").write_bytes(orjson.dumps(made))
    (home / "answered.jsonl").write_bytes(b"".join(ANSWERS[:2]) + ANSWERS[2][:50])
    return home


ANSWERS = [orjson.dumps(prediction(number, number % 2)) + b"\n" for number in (3, 1, 5, 0, 2, 4)]
"""In the order in which they come."""


def answer(home: Path, content: bytes) -> None:
    with (home / "answered.jsonl").open("ab") as file:
        file.write(content)


def end(home: Path) -> None:
    """As `evaluate` does it: predictions in the order of the questions, then its report."""
    (home / "ordered").write_bytes(b"".join(sorted(ANSWERS)))
    (home / "ordered").replace(home / "predictions.jsonl")
    report = {"questions": 6, "answered": 6, "failed": 0, "cost_usd": 0.5, "metrics": {"em": {"value": 0.5}}}
    (home / "report.json").write_bytes(orjson.dumps(report))
    (home / "answered.jsonl").unlink()


async def test_an_evaluation_grows_on_its_page_and_a_question_keeps_its_number(answering: Path) -> None:
    """From before its first answer to its end, when its answers are in another order, in another file. In a folder its
    row grows, too."""
    (answering / "answered.jsonl").write_bytes(b"")  # as `evaluate` begins
    async with served(answering) as client, served(Several(answering.parent)) as of_folder:

        async def row() -> tuple[object, ...]:
            [found] = (await of_folder.ask("api/list"))[1]["rows"]
            return found["state"], found["done"], found["asked"], found.get("em")

        await client.listed(0)
        assert await row() == ("killed", 0, 6, None)
        answer(answering, b"".join(ANSWERS[:2]) + ANSWERS[2][:50])
        first = await client.listed(2)
        assert [each["id"] for each in first["rows"]] == ["q3", "q1"]
        assert (first["run"]["state"], first["run"]["asked"], (await row())[0]) == ("killed", 6, "killed")
        with only_writer(answering):
            answer(answering, ANSWERS[2][50:] + ANSWERS[3])
            assert ((await client.listed(4))["run"]["state"], await row()) == ("running", ("running", 4, 6, None))
            answer(answering, b"".join(ANSWERS[4:]))
            whole = await client.listed(6)
            end(answering)
        last = await client.listed(6)
        assert (last["run"]["state"], last["rows"], await row()) == ("ended", whole["rows"], ("ended", 6, 6, 0.5))
        for number, each in enumerate(last["rows"]):
            _, found = await client.ask(f"api/question/{number}?of={last['version']}")
            assert found["attempts"][0]["question_id"] == each["id"]
        assert {*(await client.ask(f"api/list?of={last['version']}"))[1]} == {"version", "complete", "run"}
        for none in ("question/6", "pairs", "judging?who=ada"):
            assert (await client.ask(f"api/{none}"))[0] == 404


async def test_a_session_that_ended_early_takes_nothing_from_an_evaluation_that_has_ended(answering: Path) -> None:
    """As where questions that failed are asked again, and the endpoint is down."""
    end(answering)
    answer(answering, ANSWERS[0])
    async with served(Several(answering.parent)) as client:
        [row] = (await client.ask("api/list"))[1]["rows"]
        assert (row["state"], row["done"], row["em"]) == ("ended", 6, 0.5)
        await client.listed(6, "agent/")
        with only_writer(answering):
            await client.listed(1, "agent/")
        await client.listed(6, "agent/")


async def test_a_damaged_or_hostile_evaluation_says_so_and_takes_no_other_with_it(answering: Path) -> None:
    """Whatever another program wrote: a line that is none, numbers that are none, files that are no files, links."""
    home = answering.parent
    answer(answering, ANSWERS[2][50:])
    for name in ("limits", "pipe", "counts", "scores"):
        shutil.copytree(answering, home / name)
    hostile = {"limits": {"settings": {"limit": "x", "sample": 3}}}
    hostile["pipe"] = {"settings": {"limit": None, "seed": 0}, "questions": str(home / "pipe" / "q.jsonl")}
    os.mkfifo(home / "pipe" / "q.jsonl")
    for name, operational in hostile.items():
        (home / name / "config.json").write_bytes(
            orjson.dumps({"config_hash": "h", "decides_answers": {"model": "qwen"}, "operational": operational})
        )
    write_rows(home / "counts" / "answered.jsonl", [prediction(0, 1, calls="x"), prediction(1, 1, calls=[1])])
    async with served(Several(home)) as client, asyncio.timeout(PATIENCE_S):
        rows = {row["name"]: row for row in (await client.ask("api/list"))[1]["rows"]}
        assert {*rows} == {"agent", *hostile, "counts", "scores"}
        assert (rows["limits"]["asked"], rows["pipe"]["asked"]) == (3, None)
        await client.listed(2, "counts/")
        await client.listed(3, "agent/")
        write_rows(home / "scores" / "answered.jsonl", [prediction(0, 5)])
        status, said = await client.ask("scores/api/list")
        assert (status, "em: Input should be less than or equal to 1" in said["error"]) == (500, True)
        answer(answering, b"garbage\n")
        with only_writer(answering):
            assert (await client.ask("agent/api/list"))[0] == 200
        assert "line 4, is no prediction" in await client.gone("agent/api/list")
        (answering / "report.json").symlink_to(home.parent / "elsewhere.json")
        assert (await client.ask("agent/api/list"))[0] == 404


# -- a folder of several ---------------------------------------------------------------------------------------


@pytest.fixture
def folder(explored: Path, begun: Path) -> Path:
    """A run, one that was killed, a data set, an evaluation, and what is none of them."""
    home = begun.parent
    shutil.copytree(explored, home / "first")
    reasonrag.pairs(home / "first", out=home / "data")
    reasonrag.evaluate(dataset="atlas", limit=QUESTIONS, model="offline", run=home / "rag")
    (home / "notes").mkdir()
    (home / "notes" / "rollouts.txt").write_text("none")
    return home


async def test_a_folder_lists_what_is_in_it_and_serves_each(folder: Path) -> None:
    async with served(Several(folder)) as client:
        _, found = await client.ask("api/list")
        rows = {row["name"]: row for row in found["rows"]}
        assert (found["kind"], found["found"], [*rows]) == ("folder", 4, ["begun", "data", "first", "rag"])
        assert [rows[name]["kind"] for name in rows] == ["run", "data set", "run", "evaluation"]
        assert [rows[name]["state"] for name in rows] == ["killed", "unknown", "ended", "ended"]
        assert [rows[name]["done"] for name in ("first", "rag")] == [QUESTIONS] * 2
        report = orjson.loads((folder / "rag" / "report.json").read_bytes())
        assert 0 < rows["rag"]["em"] == report["metrics"]["em"]["value"]
        assert not any(row.get("why") for row in rows.values())
        assert rows["data"]["pairs"] == (await client.listed(QUESTIONS, "data/"))["overview"]["pairs"]
        await client.listed(QUESTIONS, "first/")
        assert (await client.ask("first/api/question/1"))[1]["id"] != (await client.ask("first/api/question/0"))[1][
            "id"
        ]
        assert (await client.ask("data/api/judging?who=ada"))[0] == 200
        for name in rows:
            status, page = await client.ask(f"{name}/")
            assert (status, "data-home" in page) == (200, True)
        with only_writer(folder / "begun"):
            await client.listed(2, "begun/")
            _, found = await client.ask("api/list")
            [row] = [row for row in found["rows"] if row["name"] == "begun"]
            assert (row["state"], row["done"], row["asked"]) == ("running", 2, QUESTIONS)
            assert (row["em"] is not None, row["cost"]) == (True, 0.0)


async def test_nothing_outside_the_folder_is_served(folder: Path, tmp_path: Path) -> None:
    """Neither by a path nor by a link: of a folder, nor of any file that is read or written in one."""
    outside = run_of(tmp_path / "outside", asked(1))
    (folder / "linked").symlink_to(outside)
    (folder / "half").mkdir()
    (folder / "half" / "rollouts.jsonl").symlink_to(outside / "rollouts.jsonl")
    (folder / "rag" / "config.json").unlink()
    (folder / "rag" / "config.json").symlink_to(outside / "rollouts.jsonl")
    (folder / "data" / "judgements").symlink_to(outside)
    (folder / "begun" / "calibration").mkdir()
    (folder / "begun" / "calibration" / "report.json").symlink_to(outside / "rollouts.jsonl")
    run_of(folder / "turning", asked(1))
    (folder / "turning" / "view.html").symlink_to("view.html")
    (folder / "first" / "copy.jsonl").symlink_to("rollouts.jsonl")
    async with served(Several(folder)) as client:
        _, found = await client.ask("api/list")
        assert [row["name"] for row in found["rows"]] == ["first"]
        ways = (
            "linked",
            "half",
            "rag",
            "data",
            "begun",
            "notes",
            "none",
            "..%2foutside",
            "%2e%2e",
            "..",
            "first%2f..%2f..%2foutside",
            "%00",
        )
        for name in ways:
            for part in ("", "api/list", "api/question/0"):
                assert (await client.ask(f"{name}/{part}"))[0] in (400, 404), (name, part)
        assert (await client.ask("first/rollouts.jsonl"))[0] == 404
        assert (await client.ask("rag/api/list"))[0] == 404  # an evaluation


async def test_what_is_damaged_is_a_row_that_says_why(folder: Path) -> None:
    """And takes no other row with it."""
    reports = {"list": "[]", "null": '{"metrics": null}', "bare": '{"metrics": {"em": 0.5}}', "torn": '{"metrics'}
    for name, report in reports.items():
        write_rows(folder / name / "predictions.jsonl", [prediction(0, 1)])
        (folder / name / "report.json").write_text(report)
    (folder / "data" / "summary.json").write_text('{"questions": "many"}')
    (folder / "begun" / "config.json").write_text("[]")
    (folder / "first" / "summary.json").write_text("{}")
    shutil.copytree(folder / "rag", os.fsdecode(os.fsencode(folder) + b"/\xff"))
    async with served(Several(folder)) as client:
        _, found = await client.ask("api/list")
    rows = {row["name"]: row for row in found["rows"]}
    assert rows.pop("\\xff")["why"] == "its name is not UTF-8; rename the folder to open it"
    assert rows.pop("rag")["em"] > 0
    assert {*rows} == {*reports, "data", "begun", "first"}
    files = {"data": "summary.json", "begun": "config.json", "first": "summary.json"}
    for name, row in rows.items():
        assert row["state"] == "unknown"
        assert f"{folder / name / files.get(name, 'report.json')} is damaged: " in row["why"]
        assert row["changed"] > 0


async def test_what_was_opened_is_listed_without_looking_at_the_folder_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    monkeypatch.setattr(view_server, "listed_in", lambda path: looks.append(path) or listed_in(path))
    async with served(Several(folder)) as client:
        for name in ("begun", "data", "first"):
            await client.ask(f"{name}/api/list")
        looks.clear()
        await client.ask("api/list")
    assert looks == [folder]


async def test_a_large_folder_is_listed_in_part_and_says_so(tmp_path: Path) -> None:
    for number in range(MOST_LISTED + 1):
        run_of(tmp_path / f"run{number:03d}")
    async with served(Several(tmp_path)) as client:
        _, found = await client.ask("api/list")
        assert (len(found["rows"]), found["found"]) == (MOST_LISTED, MOST_LISTED + 1)


def test_a_folder_needs_a_server(folder: Path) -> None:
    with pytest.raises(InputError, match="--serve"):
        reasonrag.view(folder)


def test_a_folder_of_several_takes_no_trees(folder: Path, reasonrag: Reasonrag) -> None:
    done = reasonrag("view", folder, "--serve", "--trees", folder / "first")
    assert (done.status, "--trees goes with one data set" in done.err) == (2, True)


# -- in a browser ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def serving(shown: Path | Several) -> Iterator[str]:
    with in_a_thread(serve_page(alone(shown), port=0)) as address:
        yield address


def test_a_reader_keeps_the_place_while_a_run_grows(visit: Visit, explored: Path, begun: Path) -> None:
    """The open question, the filters, the order of the table of pairs and what has the keyboard."""
    lines = lines_of(explored)
    live = "#live"
    with serving(begun) as address, contextlib.ExitStack() as session:
        session.enter_context(only_writer(begun))
        page = visit(f"{address}#/pairs?sort=confidence")
        expect(page.locator(live)).to_contain_text(f"running · 2 of {QUESTIONS} questions")
        expect(page.locator(live)).to_contain_text("of at most $5.00")
        page.locator("#pairs-table tbody tr").first.wait_for()
        link = page.locator("#pairs-table tbody a").nth(3)
        pair = link.evaluate("each => each.closest('tr').dataset.pair")
        before = page.locator("#pairs-found").inner_text()
        link.focus()
        append(begun, lines[2][500:])
        expect(page.locator("#pairs-found")).not_to_have_text(before)
        assert page.evaluate("document.activeElement.closest('tr').dataset.pair") == pair
        assert "sort=confidence" in page.url
        expect(page.locator("#pairs-table th[aria-sort=ascending]")).to_contain_text("confidence")

        page = visit(address)
        page.locator("#filter-find").fill("atlas")
        page.locator("#questions a").first.click()
        tree = page.locator(".frame svg.tree")
        tree.wait_for()
        question, tree_of = page.url, tree.element_handle()
        append(begun, lines[3])
        expect(page.locator(live)).to_contain_text(f"4 of {QUESTIONS} questions")
        expect(page.locator(live)).to_contain_text("a minute")
        expect(page.locator(live)).to_contain_text("left")
        assert page.url == question
        assert page.locator("#filter-find").input_value() == "atlas"
        assert tree_of.evaluate("each => each.isConnected")
        append(begun, b"".join(lines[4:]))
        expect(page.locator("#found")).to_have_text(f"{QUESTIONS} questions")
        shutil.copy2(explored / "summary.json", begun)
        os.utime(begun / "summary.json")
        session.close()
        expect(page.locator(live)).to_contain_text(f"ended · {QUESTIONS} of {QUESTIONS} questions")
        assert tree_of.evaluate("each => each.isConnected")


def test_a_reader_of_an_evaluation_sees_it_grow_and_stays_at_a_question(visit: Visit, answering: Path) -> None:
    """The table grows where it was scrolled to, as it is filtered; the attempts at a question stay as they are."""
    with serving(answering) as address, contextlib.ExitStack() as session:
        session.enter_context(only_writer(answering))
        page = visit(f"{address}#/?result=right&text=wrote&deep=1")
        rows, live = page.locator("#attempts-table tbody tr"), page.locator("#live")
        expect(live).to_contain_text(f"running \u00b7 2 of {QUESTIONS} questions")
        expect(page.locator(".facts-of")).to_contain_text("not finished")
        expect(rows).to_have_count(2)
        answer(answering, ANSWERS[2][50:] + ANSWERS[3])
        expect(rows).to_have_count(3)
        expect(live).to_contain_text(f"4 of {QUESTIONS} questions")
        rows.locator("a").nth(1).click()
        reply = page.get_by_text("Reply").first
        reply.click()
        shown, at = reply.element_handle(), page.url
        answer(answering, b"".join(ANSWERS[4:]))
        end(answering)
        session.close()
        expect(live).to_contain_text(f"ended \u00b7 {QUESTIONS} of {QUESTIONS} questions")
        assert (page.url, shown.evaluate("each => each.isConnected")) == (at, True)
        page.keyboard.press("Escape")
        expect(page.locator("#attempts-found")).to_contain_text(f"3 of {QUESTIONS} questions")
        expect(page.locator(".facts-of")).to_contain_text("$0.50")


def test_a_filter_that_is_set_before_the_list_has_come_counts(visit: Visit, explored: Path) -> None:
    with serving(explored) as address:
        page = visit(address)
        on_their_way = list[Route]()
        page.route("**/api/list*", lambda each: on_their_way.append(each))  # noqa: PLW0108 - it gets an attribute
        page.reload()
        page.locator("#filter-find").fill("nowhere")
        expect(page).to_have_url(re.compile("find=nowhere"))
        for each in on_their_way:
            each.continue_()
        expect(page.locator("#found")).to_have_text(f"none of {QUESTIONS} questions")


def test_a_page_of_what_was_made_again_says_so(visit: Visit, tmp_path: Path) -> None:
    """And keeps what it shows until it is loaded again."""
    run = run_of(tmp_path / "run", *map(asked, range(3)))
    with serving(run) as address:
        page = visit(f"{address}#/pairs")
        expect(page.locator("#pairs-table tbody tr")).to_have_count(3)
        shutil.rmtree(run)
        run_of(run, *map(asked, range(5)))
        expect(page.get_by_text("load the page again")).to_be_visible(timeout=6 * PATIENCE_MS)
        assert page.locator("#pairs-table tbody tr").count() == 3
        page.reload()
        expect(page.locator("#pairs-table tbody tr")).to_have_count(5)


@pytest.mark.parametrize("size", [(1280, 800), NARROW], ids=["wide", "narrow"])
def test_a_folder_is_a_table_that_leads_to_each_and_back(visit: Visit, folder: Path, size: tuple[int, int]) -> None:
    """Names are text, however they are spelled; a click on a head orders by it."""
    names = [each.replace("/", "") for each in ATTACKS[:6]]
    for name in names:
        run_of(folder / name[:200], asked(1))
    with serving(Several(folder)) as address:
        page = visit(address, size=size)
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(4 + len(names))
        shares = page.locator("td[data-name=EM]").all_inner_texts()  # a data set and a run that was begun have none
        assert all(re.fullmatch(r"\d+ %|\u2013", each) for each in shares), shares
        assert did_run(page) == []
        assert barriers(page) == []
        assert overflow(page) == 0
        if size != NARROW:
            page.get_by_role("button", name="name").click()
            shown = page.locator("tbody th").all_inner_texts()
            assert shown == sorted(shown)
        hrefs = [each.get_attribute("href") for each in page.locator("tbody a").all()]
        for href in hrefs:
            one = visit(f"{address}{href}", size=size)
            expect(one.locator("#home")).to_have_attribute("href", "../")
            expect(one.locator("#home")).to_be_visible()
            one.locator("main h2").first.wait_for()
