"""Judging pairs blind on the served page: one key each, nothing lost, and what `reasonrag review` makes of it."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

import reasonrag
from tests.helpers.pages import Visit, barriers
from tests.helpers.processes import Command
from tests.helpers.trees import answer, query, run_of, siblings

PAIRS = 3


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of pairs of one query each."""
    place = tmp_path_factory.mktemp("judging")
    steps = query("who", 0.9), query("what", 0.0), answer("Ada", 0.8), answer("Bob", 0.1)
    records = [siblings(*steps[:2], question_id=f"q{number}", question=f"Who {number}?") for number in range(PAIRS)]
    reasonrag.pairs(run_of(place / "run", *records), out=place / "pairs", validation=0)
    return place / "pairs"


@pytest.fixture
def data_set(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "pairs"))


@contextlib.contextmanager
def serving(path: Path) -> Iterator[str]:
    with Command("view", path, "--serve", "--port", 0) as server:
        yield next(word for word in server.first_line().split() if word.startswith("http://"))


def judged(page: Page, count: int) -> None:
    expect(page.locator("#judged")).to_contain_text(f"{count} of {PAIRS} judged")


def test_verdicts_are_keys_and_outlive_the_tab(visit: Visit, data_set: Path) -> None:
    """Neither label nor reward is shown; undo takes the last one back; two people are compared; `review` reads it."""
    (data_set / "judgements").mkdir()
    (data_set / "judgements" / "my export.json").write_text("[]")
    with serving(data_set) as home:
        page = visit(home)
        page.get_by_role("link", name="Judge").click()
        page.fill("#judge-name", "ana")
        page.keyboard.press("Enter")
        judged(page, 0)
        assert not barriers(page)
        said = page.locator("main").inner_text()
        assert "who" in said
        assert not {"chosen", "rejected", "reward"} & set(said.lower().split())
        page.keyboard.press("a")
        judged(page, 1)
        page.keyboard.press("b")
        judged(page, 2)
        address = page.url
        page.goto("about:blank")
        page.goto(address)
        judged(page, 2)
        page.keyboard.press("u")
        judged(page, 1)
        for key in ("t", "s"):
            page.keyboard.press(key)
        judged(page, PAIRS)
        expect(page.locator("main table")).to_contain_text("ana")
        page.keyboard.press("a")
        assert page.url == address
        page.goto(f"{home}#/judge?who=bob")
        for number in range(PAIRS):
            judged(page, number)
            page.keyboard.press("a")
        expect(page.locator("main")).to_contain_text("ana and bob say the same of")
        between = page.locator("main p a[href*='rows=']")
        unlike = between.inner_text().split()[0]
        between.click()
        expect(page.locator("#pairs-found")).to_have_text(re.compile(rf"^{unlike} of "))
    (data_set / "judgements" / "my export.json").unlink()
    found = reasonrag.review_report(data_set, sorted((data_set / "judgements").glob("*.json")))
    ana, bob = found.reviewers
    assert str(len(found.between[0].disagreements)) == unlike
    assert (ana.judged, ana.ties, ana.skipped) == (2, 1, 1)
    assert bob.judged == PAIRS
    files = {each.name: json.loads(each.read_bytes()) for each in (data_set / "judgements").iterdir()}
    assert {name: len(rows) for name, rows in files.items()} == {"ana.json": PAIRS, "bob.json": PAIRS}


def test_another_page_cannot_judge_and_nothing_else_is_written(data_set: Path) -> None:
    """A page of another origin, a name that leads out of the folder, a pair that was not asked, a verdict that is
    none. A damaged file is no fault of the request."""
    before = sorted(data_set.rglob("*"))

    def asked(home: str, said: object = None, origin: str = "") -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"} | ({"Origin": origin} if origin else {})
        where = ("GET", "/api/judging?who=ana") if said is None else ("POST", "/api/judging")
        with contextlib.closing(http.client.HTTPConnection(urlsplit(home).netloc)) as server:
            server.request(
                *where, None if said is None else said if isinstance(said, bytes) else json.dumps(said), headers
            )
            answer = server.getresponse()
            return answer.status, json.loads(answer.read())

    with serving(data_set) as home:
        own = home.rstrip("/")
        pair = asked(home)[1]["sample"][0]["pair"]
        good = {"who": "ana", "pair": pair, "verdict": "a"}
        assert asked(home, good, "http://elsewhere.invalid")[0] == 403
        for said, why in (
            (good | {"who": "../ana"}, "a name has letters"),
            (good | {"pair": "0-0"}, "is not in the sample"),
            (good | {"verdict": "c"}, "is none of a, b, tie, skip"),
            ({}, "pair is missing"),
            ([1], "should be an object"),
            (b"no JSON", "Invalid JSON"),
        ):
            status, told = asked(home, said, own)
            assert (status, why in told["error"]) == (400, True), told
        assert sorted(data_set.rglob("*")) == before
        assert asked(home, good, own) == (200, {"verdicts": {pair: "a"}})
        (data_set / "judgements" / "ana.json").write_text("no JSON")
        for said in (None, good):
            status, told = asked(home, said, own)
            assert (status, "ana.json is damaged: it is not JSON" in told["error"]) == (500, True), told
