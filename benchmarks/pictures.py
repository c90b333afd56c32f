"""`make pictures`: the pictures of the README, taken of a real run in a real browser.

Explores the demo's questions with the offline teacher, opens the page of the data set that comes of them, and takes the
overview, a pair of second queries that both follow the evidence but only one rightly, and the smallest of the trees
with several pairs. Each picture carries its caption, with the numbers that it shows, and the texts and marks of the
page it was taken of; tests/end_to_end/test_demo.py holds that they are the demo's, and that README and docs say the
same. A folder may be named in place of docs/pictures.
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
from PIL.PngImagePlugin import PngInfo
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

sys.path.append(str(ROOT / "tests" / "helpers"))
from get_browser import start  # noqa: E402 - the tests' own way to a browser

if TYPE_CHECKING:
    from playwright.sync_api import Page


DRAWN = {
    "overview": ("#list, #stage", "#stage .charts svg"),
    "tree": ("#stage", "#stage .frame svg .node"),
    "pair": ("#stage, #detail", "#detail h3"),
}
"""By picture, what of the page is in it, and what there is once it is drawn."""
_TEXTS_AND_MARKS = """parts => [...document.querySelectorAll(parts)].flatMap(part => [
  part.innerText,
  ...[...part.querySelectorAll('svg')].map(svg => {
    const marks = {};
    for (const each of svg.querySelectorAll('path, rect, circle, line')) {
      const name = [each.tagName, ...each.classList].join('.');
      marks[name] = (marks[name] ?? 0) + 1;
    }
    const texts = [...svg.querySelectorAll('text')].map(each => each.textContent);
    return [...texts, ...Object.entries(marks).sort().map(each => each.join(' '))].join('\\n');
  }),
]).join('\\n')"""


def main(folder: Path = PICTURES) -> None:
    folder = folder.resolve()
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        run, data = Path("runs/demo"), Path("data/demo")
        reasonrag.generate(dataset="atlas", limit=40, run=run)
        reasonrag.pairs(run, out=data)
        page = reasonrag.view(data).resolve()
        with sync_playwright() as playwright:
            browser = start(playwright)
            if browser is None:
                sys.exit("no browser is here: python tests/helpers/get_browser.py gets one")
            tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
            for name, (where, caption) in places_and_captions(data).items():
                tab.goto("about:blank")
                tab.goto(f"{page.as_uri()}{where}")
                parts, drawn = DRAWN[name]
                tab.wait_for_selector(drawn)
                texts = tab.evaluate(_TEXTS_AND_MARKS, parts)
                width = tab.locator("#list").evaluate("each => each.getBoundingClientRect().right")
                told = {"Caption": caption, "Drawn": texts}
                _keep(tab, folder / f"{name}.png", told, left=0 if name == "overview" else width)
            browser.close()


def places_and_captions(data: Path) -> dict[str, tuple[str, str]]:
    """By picture: the address in the page of this data set, and the caption."""
    explored = list(open_collection(data).scan())
    pairs = [(each, pair) for each in explored for pair in _kept(each) if _follows_evidence(each, pair)]
    question, pair = max(pairs, key=lambda found: found[1].pair.confidence or 0.0)
    small = min((each for each in explored if len(_kept(each)) >= SEVERAL), key=lambda each: len(each.candidates))
    paired = sum(bool(_kept(each)) for each in explored)
    every = sum(len(_kept(each)) for each in explored)
    numbers = f"Reward {pair.chosen.reward:.2f} against {pair.rejected.reward:.2f}."
    completions = small.question.usage.calls if small.question.usage else 0
    return {
        "overview": ("#/", f"The demo: {paired} of {len(explored)} questions have a pair, {every:,} pairs in all."),
        "tree": (
            _place(small),
            f"A question of the demo: {completions} completions, {len(_kept(small))} pairs.",
        ),
        "pair": (
            f"{_place(question)}/pair/{pair.pair.pair_id}",
            f"A pair of the demo, which needs no key: the chosen query follows the evidence just read. {numbers}",
        ),
    }


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
    second = pair.types == ("query", "query") and pair.state.layer == SECOND_QUERY
    return second and chosen[-1] in asked and chosen[0] not in asked | set(rejected) and not asked & set(rejected)


def _keep(tab: Page, path: Path, told: dict[str, str], *, left: float) -> None:
    """Save a screenshot in few colours, with texts about it in the file. left: pixels left out at the left side."""
    path.parent.mkdir(exist_ok=True)
    picture = Image.open(
        io.BytesIO(tab.screenshot(clip={"x": left, "y": 0, "width": WIDTH - left, "height": HEIGHT}))
    ).convert("RGB")
    about = PngInfo()
    for name, text in told.items():
        about.add_text(name, text, zip=name == "Drawn")
    picture.quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True, pnginfo=about)
    print(f"{path.name}: {path.stat().st_size:,} bytes. {told['Caption']}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
