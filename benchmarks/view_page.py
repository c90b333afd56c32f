"""The page of a large run measured in a real browser: how soon its list answers, and how it scrolls.

The run is a real one of the offline teacher over atlas, its lines repeated under other question ids. `reasonrag view`
writes its page, and serves it, as commands of their own; every opening is in a fresh profile. Prints Markdown with
date, commit and machine; `--append FILE` adds it to a file as well.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Optional

import orjson
import typer
from playwright.sync_api import Browser, Page, sync_playwright
from reporting import ROOT, publish, table

import reasonrag

sys.path.insert(0, str(ROOT / "tests" / "helpers"))
from get_browser import start  # the tests' own way to a browser

EXPLORED = 40
"""Questions that are really explored."""
PATIENCE_MS = 120_000
LISTED = """
const sought = () => {
  const rows = document.querySelectorAll("#questions a").length;
  const said = document.getElementById("found")?.textContent ?? "";
  if (rows && !window.firstRows) window.firstRows = performance.now();
  if (rows && said === WHOLE) window.listed = performance.now();
  else requestAnimationFrame(sought);
};
addEventListener("DOMContentLoaded", () => requestAnimationFrame(sought));
"""
"""Notes when the first rows are in the page, and when all questions are."""
SEARCHED = """([words, left]) => new Promise((found) => {
  const began = performance.now();
  const field = document.getElementById("filter-find");
  field.value = words;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  const look = () => {
    const said = document.getElementById("found").textContent;
    if (said.startsWith(left)) found(performance.now() - began);
    else requestAnimationFrame(look);
  };
  look();
})"""
OPENED = """() => new Promise((found) => {
  const began = performance.now();
  document.querySelector("#questions a").click();
  const look = () => {
    if (document.querySelector(".frame svg.tree")) requestAnimationFrame(() => found(performance.now() - began));
    else requestAnimationFrame(look);
  };
  look();
})"""
SCROLLED = """(steps) => new Promise((found) => {
  const frame = document.getElementById("list-frame");
  const whole = frame.scrollHeight - frame.clientHeight;
  const times = [];
  let last;
  const step = (now) => {
    if (last !== undefined) times.push(now - last);
    last = now;
    if (times.length >= steps) return found(times);
    frame.scrollTop = (whole * (times.length + 1)) / steps;
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})"""
FRAMES = 600
"""In which the list is scrolled from its first row to its last one."""
SLOW_MS = 34
"""More than two frames of a screen with 60 a second."""


@dataclass(frozen=True)
class Opening:
    """Milliseconds. listed: from navigation until all questions are in the list. searched: from a key until the list
    shows what was sought. opened: from a click until a tree is drawn."""

    listed: float
    searched: float
    opened: float
    frames: Sequence[float]


def main(
    questions: Annotated[int, typer.Option(help="Questions in the list")] = 5_000,
    rounds: Annotated[int, typer.Option(help="Openings of each kind")] = 5,
    append: Annotated[Optional[Path], typer.Option(help="Also append the report to this file")] = None,  # noqa: UP045
) -> None:
    """Measure the page of `reasonrag view`, as a file and served."""
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = start(playwright)
        if browser is None:
            sys.exit("no browser is here: python tests/helpers/get_browser.py gets one")
        publish(_report(browser, questions, rounds, Path(scratch)), append)
        browser.close()


def _report(browser: Browser, questions: int, rounds: int, scratch: Path) -> Iterator[str]:
    run = _repeated(questions, scratch)
    size = (run / "rollouts.jsonl").stat().st_size / 1e6
    yield "\n**The page of a large run** (benchmarks/view_page.py)"
    yield (
        f"\n{questions:,} questions ({EXPLORED} explored by the offline teacher, repeated; {size:,.0f} MB of trees). "
        f"Chromium {browser.version} without a window or GPU, {rounds} openings each, every one in a fresh profile: "
        "median (slowest)."
    )
    page = scratch / "view.html"
    began = time.perf_counter()
    _reasonrag("view", run, "--out", page)
    wrote = time.perf_counter() - began
    found = {"file": [_open(browser, page.as_uri(), questions) for _ in range(rounds)]}
    with _serving(run) as (address, started):
        first, whole = _while_reading(browser, address, questions)
        found["served"] = [_open(browser, address, questions) for _ in range(rounds)]
    yield from table(
        "Opening",
        {
            "page": list(found),
            "all questions listed, s": [_seconds([each.listed for each in those]) for those in found.values()],
            "a search answers, ms": [_ms([each.searched for each in those]) for those in found.values()],
            "a tree is drawn, ms": [_ms([each.opened for each in those]) for those in found.values()],
        },
    )
    frames = {name: [time for each in those for time in each.frames] for name, those in found.items()}
    yield from table(
        f"Scrolling from the first row to the last in {FRAMES} frames",
        {
            "page": list(frames),
            "frame, ms": [_ms(times, worst=False) for times in frames.values()],
            "99 of 100 within, ms": [f"{sorted(times)[int(len(times) * 0.99)]:.0f}" for times in frames.values()],
            "slowest, ms": [f"{max(times):.0f}" for times in frames.values()],
            f"over {SLOW_MS} ms": [f"{sum(t > SLOW_MS for t in times) / len(times):.1%}" for times in frames.values()],
        },
    )
    yield (
        f"\nWriting the file took {wrote:.0f} s; it has {page.stat().st_size / 1e6:.1f} MB. `--serve` gave its address "
        f"after {started:.1f} s; opened at that moment the page had its first rows after {first:.1f} s and all after "
        f"{whole:.0f} s, as the run is read meanwhile; the table is of openings after that."
    )


def _repeated(questions: int, scratch: Path) -> Path:
    """A run of so many questions: real lines under other ids, and numbers in front of the questions."""
    reasonrag.generate(dataset="atlas", limit=min(EXPLORED, questions), run=scratch / "explored")
    lines = (scratch / "explored" / "rollouts.jsonl").read_bytes().splitlines()
    records: list[dict[str, Any]] = [orjson.loads(line) for line in lines]
    run = scratch / "run"
    run.mkdir()
    (run / "config.json").write_bytes((scratch / "explored" / "config.json").read_bytes())
    with (run / "rollouts.jsonl").open("wb") as file:
        for number in range(questions):
            record = records[number % len(records)]
            name = {"question_id": f"question_{number}", "question": f"{number}. {record['question']}"}
            file.write(orjson.dumps(record | name, option=orjson.OPT_APPEND_NEWLINE))
    return run


def _reasonrag(*arguments: object) -> None:
    subprocess.run(_command(*arguments), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "reasonrag", *map(str, arguments)]


@contextmanager
def _serving(run: Path) -> Iterator[tuple[str, float]]:
    """The address of the served page, and the seconds until it was told."""
    began = time.perf_counter()
    command = _command("view", run, "--serve", "--port", "0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None  # noqa: S101 - it is piped
        address = next(word for word in server.stdout.readline().split() if word.startswith("http://"))
        yield address, time.perf_counter() - began
        server.terminate()


@contextmanager
def _opened(browser: Browser, address: str, questions: int) -> Iterator[Page]:
    """The page at the moment at which all questions are in its list."""
    with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.add_init_script(LISTED.replace("WHOLE", repr(f"{questions:,} questions")))
        page.goto(address)
        page.wait_for_function("() => window.listed !== undefined", timeout=10 * PATIENCE_MS)
        yield page


def _open(browser: Browser, address: str, questions: int) -> Opening:
    with _opened(browser, address, questions) as page:
        searched = page.evaluate(SEARCHED, [f"question_{questions - 1}", "1 of"])
        page.evaluate(SEARCHED, ["", f"{questions:,} questions"])
        frames = page.evaluate(SCROLLED, FRAMES)
        page.locator("#list-frame").evaluate("frame => frame.scrollTo(0, 0)")
        page.locator("#questions [data-place='0']").wait_for()
        return Opening(page.evaluate("window.listed"), searched, page.evaluate(OPENED), frames)


def _while_reading(browser: Browser, address: str, questions: int) -> tuple[float, float]:
    """Seconds until the first rows of a page that is opened at once, and until all."""
    with _opened(browser, address, questions) as page:
        return page.evaluate("window.firstRows") / 1000, page.evaluate("window.listed") / 1000


def _seconds(times: Sequence[float]) -> str:
    return f"{statistics.median(times) / 1000:.2f} ({max(times) / 1000:.2f})"


def _ms(times: Sequence[float], *, worst: bool = True) -> str:
    return f"{statistics.median(times):.0f}" + (f" ({max(times):.0f})" if worst else "")


if __name__ == "__main__":
    typer.run(main)
