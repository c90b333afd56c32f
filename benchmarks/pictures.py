"""`make pictures`: the pictures of the README, taken of a real run in a real browser.

Explores the demo's questions with the offline teacher, opens the page of the data set that comes of them, and takes the
overview, the tree of the question with the most pairs, and the pair of queries with the widest margin in it.
"""

from __future__ import annotations

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
from reasonrag.viewing.sources import Explored, open_collection

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
WIDTH, HEIGHT = 1440, 860
COLORS = 128
"""Enough for a page, and a fifth of the bytes."""

sys.path.insert(0, str(ROOT / "tests"))
from get_browser import start  # noqa: E402 - the tests' own way to a browser

if TYPE_CHECKING:
    from playwright.sync_api import Page


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        run, data = Path(scratch) / "runs" / "demo", Path(scratch) / "data" / "demo"
        reasonrag.generate(dataset="atlas", limit=40, run=run)
        reasonrag.pairs(run, out=data)
        page = reasonrag.view(data, out=Path(scratch) / "view.html")
        explored = _most_pairs(data)
        pair = _widest(explored)
        place = f"#/q/{quote(explored.question.question_id, safe='')}"
        with sync_playwright() as playwright:
            browser = start(playwright)
            if browser is None:
                sys.exit("no browser is here: python tests/get_browser.py gets one")
            tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
            for name, where in (("overview", "#/"), ("tree", place), ("pair", f"{place}/pair/{pair.pair.pair_id}")):
                tab.goto("about:blank")
                tab.goto(f"{page.as_uri()}{where}")
                tab.wait_for_selector("#stage h2")
                _keep(tab, PICTURES / f"{name}.png")
            browser.close()


def _most_pairs(data: Path) -> Explored:
    """The question with the most pairs, the first among equals."""
    return max(open_collection(data).scan(), key=lambda each: sum(pair.dropped is None for pair in each.candidates))


def _widest(explored: Explored) -> Candidate:
    """Its pair of two queries with the widest margin."""
    kept = [each for each in explored.candidates if each.dropped is None and each.types == ("query", "query")]
    return max(kept, key=lambda each: each.margin)


def _keep(tab: Page, path: Path) -> None:
    """Take what is seen, in few colours."""
    path.parent.mkdir(exist_ok=True)
    picture = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
    picture.quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
