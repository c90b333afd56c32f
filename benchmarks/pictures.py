"""`make pictures`: the pictures of the README, taken of a real run in a real browser.

Explores the demo's questions with the offline teacher, opens the page of the data set that comes of them, and takes the
overview, the smallest of the trees with several pairs, and in the question with the most pairs that of two queries with
the widest margin.
"""

from __future__ import annotations

import contextlib
import io
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
        most = max(explored, key=lambda each: len(_kept(each)))
        small = min((each for each in explored if len(_kept(each)) >= SEVERAL), key=_calls)
        places = {
            "overview": "#/",
            "tree": _place(small),
            "pair": f"{_place(most)}/pair/{_widest(most).pair.pair_id}",
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
                _keep(tab, PICTURES / f"{name}.png")
            browser.close()


def _kept(explored: ExploredQuestion) -> list[Candidate]:
    return [each for each in explored.candidates if each.dropped is None]


def _calls(explored: ExploredQuestion) -> int:
    return explored.question.usage.calls if explored.question.usage else 0


def _place(explored: ExploredQuestion) -> str:
    """The address of a question in the page."""
    return f"#/q/{quote(explored.question.question_id, safe='')}"


def _widest(explored: ExploredQuestion) -> Candidate:
    """The pair of two queries with the widest margin."""
    return max((each for each in _kept(explored) if each.types == ("query", "query")), key=lambda each: each.margin)


def _keep(tab: Page, path: Path) -> None:
    """Save a screenshot in few colours."""
    path.parent.mkdir(exist_ok=True)
    picture = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
    picture.quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
