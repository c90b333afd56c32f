"""`make pictures`: the pictures of the README, taken of a real run in a real browser.

Explores the demo's questions with the offline teacher, opens the page of the data set that comes of them, and takes the
overview, a pair of second queries that both follow the evidence but only one rightly, and the smallest of the trees
with several pairs.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import sync_playwright

import reasonrag
from preference import Candidate
from reasonrag.viewing.collection import ExploredQuestion, open_collection

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
WIDTH, HEIGHT = 1440, 860
COLORS = 256
"""Enough for a page, and a fourth of the bytes."""
SEVERAL = 4
SECOND_QUERY = 2
"""Its depth: a query and its evidence come before it."""

sys.path.insert(0, str(ROOT / "tests" / "helpers"))
from get_browser import start  # noqa: E402 - the tests' own way to a browser

if TYPE_CHECKING:
    from playwright.sync_api import Page


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        run, data = Path("runs/demo"), Path("data/demo")
        reasonrag.generate(dataset="atlas", limit=40, run=run)
        reasonrag.pairs(run, out=data)
        page = reasonrag.view(data).resolve()
        explored = list(open_collection(data).scan())
        pairs = [(each, pair) for each in explored for pair in _kept(each) if _follows_evidence(each, pair)]
        question, pair = max(pairs, key=lambda found: found[1].confidence)
        small = min((each for each in explored if len(_kept(each)) >= SEVERAL), key=lambda each: len(each.candidates))
        places = {
            "overview": "#/",
            "tree": _place(small),
            "pair": f"{_place(question)}/pair/{pair.pair.pair_id}",
        }
        with sync_playwright() as playwright:
            browser = start(playwright)
            if browser is None:
                sys.exit("no browser is here: python tests/helpers/get_browser.py gets one")
            tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
            for name, where in places.items():
                tab.goto("about:blank")
                tab.goto(f"{page.as_uri()}{where}")
                tab.wait_for_selector("#stage h2")
                if name == "tree":
                    tab.click("[data-size=fit]")
                width = tab.locator("#list").evaluate("each => each.getBoundingClientRect().right")
                _keep(tab, PICTURES / f"{name}.png", left=0 if name == "overview" else width)
            browser.close()


def _kept(explored: ExploredQuestion) -> list[Candidate]:
    return [each for each in explored.candidates if each.dropped is None]


def _place(explored: ExploredQuestion) -> str:
    """The address of a question in the page."""
    return f"#/q/{quote(explored.question.question_id, safe='')}"


def _follows_evidence(explored: ExploredQuestion, pair: Candidate) -> bool:
    """Whether both sides are second queries for names that the question does not have, and the better one also says
    what the question wants to know of it."""
    chosen, rejected = ((each.content or "").split() for each in (pair.chosen, pair.rejected))
    asked = set(re.findall(r"\w+", explored.question.question))
    second = pair.types == ("query", "query") and pair.layer == SECOND_QUERY
    return second and chosen[-1] in asked and chosen[0] not in asked | set(rejected) and not asked & set(rejected)


def _keep(tab: Page, path: Path, *, left: float) -> None:
    """Save a screenshot in few colours. left: pixels left out at the left side."""
    path.parent.mkdir(exist_ok=True)
    picture = Image.open(
        io.BytesIO(tab.screenshot(clip={"x": left, "y": 0, "width": WIDTH - left, "height": HEIGHT}))
    ).convert("RGB")
    picture.quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
