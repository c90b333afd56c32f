"""The main job measured: retrieval, recipes side by side, HTTP against in-process, start-up.

Prints Markdown with date, commit and machine; `--append FILE` adds it to a file as well. Ratios come from one run on
one machine. Costs nothing: the teacher is the offline one, whose tokens are counted at four characters each.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from recall import measure_recall
from reporting import ROOT, publish, table

import reasonrag
from mcts import RECIPES
from reasonrag.data.questions import open_questions
from reasonrag.llm.prices import find_price
from reasonrag.retrieval.lexical.bm25 import build_bm25
from reasonrag.retrieval.opening import open_index

RECALL_AT = (3, 5)
HTTP_QUESTIONS = 30
"""Enough for a steady rate; the simulated endpoint shares the machine with the client."""


def main(
    data_dir: Annotated[Path, typer.Option(help="Directory that holds hotpotqa/")] = ROOT.parent / "shared" / "data",
    limit: Annotated[int, typer.Option(help="Questions per recipe")] = 100,
    append: Annotated[Optional[Path], typer.Option(help="Also append the report to this file")] = None,  # noqa: UP045 - typer reads it
) -> None:
    """Measure the main job and print a report."""
    if not (data_dir / "hotpotqa").is_dir():
        sys.exit(f"there is no hotpotqa in {data_dir}; give --data-dir")
    with tempfile.TemporaryDirectory() as scratch:
        publish(_report(data_dir.resolve(), limit, Path(scratch)), append)


def _report(data_dir: Path, limit: int, scratch: Path) -> Iterator[str]:
    yield from _retrieval(data_dir, scratch)
    yield from _recipes(data_dir, limit, scratch)
    yield from _transport(data_dir, scratch)
    yield from _start_up()


# -- the measurements ------------------------------------------------------------------------------------------


def _retrieval(data_dir: Path, scratch: Path) -> Iterator[str]:
    """BM25 over the real passages: build, query, and how often gold passages are found."""
    place = scratch / "index"
    watch = _Stopwatch()
    manifest = build_bm25(data_dir / "hotpotqa" / "corpus.jsonl", place)
    building = watch.lap()
    retriever = open_index(place)
    dev = open_questions(data_dir / "hotpotqa" / "dev.jsonl", dataset="hotpotqa", split="dev")
    questions = list(dev.read())
    watch.lap()
    for each in questions:
        retriever.search(each.question, max(RECALL_AT))
    searching = watch.lap()
    recall = measure_recall(retriever, questions, RECALL_AT)
    yield from table(
        "BM25 over the HotpotQA passages, queries: its dev questions",
        {
            "passages": [f"{manifest.passages:,}"],
            "build s": [f"{building:.1f}"],
            "MB on disk": [f"{sum(each.stat().st_size for each in place.iterdir()) / 1e6:.1f}"],
            "ms per query": [f"{1000 * searching / len(questions):.2f}"],
            **{f"gold R@{each.k}": [f"{each.gold:.3f}"] for each in recall},
            **{f"answer R@{each.k}": [f"{each.answer:.3f}"] for each in recall},
        },
    )


def _recipes(data_dir: Path, limit: int, scratch: Path) -> Iterator[str]:
    """Every recipe on the same questions: what it asks for, what that would cost, what comes out."""
    columns: dict[str, list[str]] = {}
    for recipe in RECIPES:
        watch = _Stopwatch()
        run = reasonrag.generate(**_hotpotqa(data_dir, limit, scratch), recipe=recipe, run=scratch / recipe)
        pairs = reasonrag.pairs(scratch / recipe, out=scratch / f"{recipe}-pairs")
        seconds = watch.lap()
        dollars = find_price("gpt-4o").cost(run.prompt_tokens, run.completion_tokens)
        row = {
            "recipe": recipe,
            "requests": f"{run.requests / run.questions:.0f}",
            "replies": f"{run.calls / run.questions:.0f}",
            "tokens in": f"{run.prompt_tokens / run.questions:,.0f}",
            "tokens out": f"{run.completion_tokens / run.questions:,.0f}",
            "GPT-4o $": f"{dollars / run.questions:.2f}",
            "mixed": f"{run.questions_mixed}",
            "with a pair": f"{pairs.questions_with_a_pair}",
            "pairs": f"{pairs.pairs}",
            "by layer": " ".join(map(str, pairs.pairs_by_layer.values())),
            "by type (A E Q)": " ".join(map(str, pairs.pairs_by_action_type.values())),
            "replies per pair": f"{run.calls / max(1, pairs.pairs):.0f}",
            "s in all": f"{seconds:.1f}",
        }
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    yield from table(f"Recipes on {limit} HotpotQA train questions (requests to dollars: per question)", columns)


def _transport(data_dir: Path, scratch: Path) -> Iterator[str]:
    """The same run in this process and over HTTP, one request at a time and many."""
    common = _hotpotqa(data_dir, HTTP_QUESTIONS, scratch)
    columns: dict[str, list[str]] = {"teacher": [], "concurrency": [], "s": [], "requests/s": [], "same bytes": []}
    reference = b""
    with simulated_endpoint() as base_url:
        for teacher, url, concurrency in (("in process", None, 64), ("HTTP", base_url, 1), ("HTTP", base_url, 64)):
            place = scratch / f"{teacher}-{concurrency}"
            watch = _Stopwatch()
            run = reasonrag.generate(**common, run=place, base_url=url, concurrency=concurrency)
            seconds = watch.lap()
            content = (place / "rollouts.jsonl").read_bytes()
            reference = reference or content
            row = (teacher, concurrency, f"{seconds:.1f}", f"{run.requests / seconds:,.0f}", content == reference)
            for name, value in zip(columns, row, strict=True):
                columns[name].append(str(value))
    yield from table(f"{HTTP_QUESTIONS} questions, default recipe; endpoint and client share the machine", columns)


def _start_up() -> Iterator[str]:
    """What a user waits before the first line of help, beside what Python itself needs."""
    rows = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "reasonrag --help": [sys.executable, "-m", "reasonrag", "--help"],
    }
    medians = [f"{statistics.median(_seconds(command) for _ in range(7)):.2f}" for command in rows.values()]
    yield from table("Start-up, median of 7", {"command": list(rows), "s": medians})


# -- tools -----------------------------------------------------------------------------------------------------


class _Stopwatch:
    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last lap."""
        last, self._last = self._last, time.perf_counter()
        return self._last - last


def _hotpotqa(data_dir: Path, limit: int, scratch: Path) -> dict[str, Any]:
    return {
        "dataset": "hotpotqa",
        "data_dir": data_dir,
        "split": "train",
        "limit": limit,
        "model": "offline",
        "index": scratch / "index",
    }


@contextmanager
def simulated_endpoint(*flags: str) -> Iterator[str]:
    """The base URL of a simulated endpoint in a process of its own."""
    command = [sys.executable, "-m", "tests.endpoints", "--port", "0", *flags]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None  # noqa: S101 - for the type checker; it is a pipe
        try:
            yield server.stdout.readline().split()[2]
        finally:
            server.terminate()


def _seconds(command: Sequence[str]) -> float:
    watch = _Stopwatch()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return watch.lap()


if __name__ == "__main__":
    typer.run(main)
