"""What `make demo` promises a newcomer: pairs of every kind from nearly all questions, and few odd ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageStat

import reasonrag
from preference import Candidate, normalize_answer
from reasonrag.viewing.collection import ExploredQuestion, open_collection
from tests.helpers.shared import Shared

ROOT = Path(__file__).parents[2]
DEMO_QUESTIONS = 40


def demo_run(shared: Shared) -> Path:
    """Folder of the questions that `make demo` explores: `run`, and its pairs in `data`."""

    def explore() -> None:
        reasonrag.generate(dataset="atlas", limit=DEMO_QUESTIONS, run="run")
        reasonrag.pairs("run", out="data")

    return shared.folder("demo-by-python", explore)


@pytest.fixture
def demo(shared: Shared) -> list[ExploredQuestion]:
    """Its questions with their pairs."""
    return list(open_collection(demo_run(shared) / "data").scan())


def kept(question: ExploredQuestion) -> list[Candidate]:
    return [each for each in question.candidates if each.dropped is None]


def compares(question: str) -> bool:
    return " or " in question or question.startswith("Were ")


def test_most_questions_give_pairs_and_all_actions_are_learned(demo: list[ExploredQuestion]) -> None:
    """Four of five questions, and of the pairs at least a seventh for each action: queries that reveal the same are no
    pair."""
    assert sum(bool(kept(each)) for each in demo) >= 0.8 * DEMO_QUESTIONS
    chosen = [each.types[0] for question in demo for each in kept(question)]
    assert all(chosen.count(action) >= len(chosen) / 7 for action in ("query", "evidence", "answer"))


def test_pairs_of_queries_agree_with_the_gold_passages(demo: list[ExploredQuestion]) -> None:
    """Where the gold passages tell two queries apart, and for more than a handful."""
    told = [each.pair.gold for question in demo for each in kept(question) if each.types == ("query", "query")]
    right, wrong = told.count("right"), told.count("wrong")
    assert right > 9 * wrong
    assert right > 10


def test_queries_follow_the_evidence_and_do_not_repeat_the_question(demo: list[ExploredQuestion]) -> None:
    """Of the chosen ones after the first evidence, most name what the question does not name."""
    pairs = [(question.question.question, each) for question in demo for each in kept(question)]
    chosen = [(asked, each.state.layer, each.chosen.content or "") for asked, each in pairs if each.types[0] == "query"]
    repeated = [content for asked, _, content in chosen if normalize_answer(content) == normalize_answer(asked)]
    assert len(repeated) < 0.1 * len(chosen)
    later = [(asked, content) for asked, layer, content in chosen if layer and not compares(asked)]
    assert sum(content.split()[0] not in asked for asked, content in later) > 0.5 * len(later)


def test_the_demo_is_mostly_right_and_shows_no_warning(shared: Shared) -> None:
    """Answers are right more often than not, and wrong often enough to be learned from."""
    run = demo_run(shared) / "run"
    summary = json.loads((run / "summary.json").read_bytes())
    assert 0.5 <= summary["mean_f1"] <= 0.8
    assert summary["warnings"] == []


PICTURED = {
    "README.md": {"pair"},
    "docs/index.md": {"pair"},
    "docs/tutorials/reading-the-page.md": {"overview", "tree", "pair"},
}


def test_the_pictures_and_their_captions_are_the_demos(shared: Shared) -> None:
    """When the demo's numbers change, the pictures are old: `make pictures` takes new ones and prints their captions.
    A picture carries the caption with which it was taken; below it README and docs say the same."""
    from pictures import places_and_captions  # it loads Playwright

    captions = {name: each for name, (_, each) in places_and_captions(demo_run(shared) / "data").items()}
    with_captions = {each.stem: Image.open(each).text["Caption"] for each in (ROOT / "docs/pictures").glob("*.png")}
    assert with_captions == captions
    for page, names in PICTURED.items():
        found = re.findall(r"^!\[.*\]\(\S*pictures/(\w+)\.png\)\n\*(.*)\*$", (ROOT / page).read_text(), re.M)
        assert dict(found) == {name: captions[name] for name in names}, page


MOST_APART = 6.0
"""Of 255, on average, between two pictures of a 20th of the size: another font makes 2, another content 12."""


def test_pictures_taken_anew_show_what_the_kept_ones_show(tmp_path: Path) -> None:
    """By the command of `make pictures`. Compared are the texts and marks of the page, which are the same on every
    machine; fonts are not, so the pixels are only compared roughly: whether the colours and the layout are these."""
    take = [sys.executable, str(ROOT / "benchmarks/pictures.py"), str(tmp_path)]
    done = subprocess.run(take, capture_output=True, text=True, check=False)
    if "no browser is here" in done.stderr:
        pytest.skip("no browser starts (make test-all gets one)")
    assert done.returncode == 0, done.stderr
    for kept in sorted((ROOT / "docs/pictures").glob("*.png")):
        old, new = Image.open(kept), Image.open(tmp_path / kept.name)
        assert new.text == old.text, f"{kept.name} is old: run make pictures"
        assert new.size == old.size
        rough = [each.convert("L").reduce(20) for each in (old, new)]
        assert ImageStat.Stat(ImageChops.difference(*rough)).mean[0] < MOST_APART, kept.name
