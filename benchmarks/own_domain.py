"""From a folder of 40 files in three languages to a compared evaluation, by the commands of the tutorial.

The files are those of `made_documents.py`, every kind in every language. Measured: the seconds of each command with the
offline teacher, the passages that are boilerplate, and how many of 10 questions in each language find their passage
among the first three (BM25). The questions are in other words than the passages, but for the name of the product:

    python benchmarks/own_domain.py

Not measured: questions that a language model writes, and what its answers are worth.
"""

# ruff: noqa: RUF001 - Chinese
from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import made_documents
import typer
from reporting import publish, table

import reasonrag

FILES, ASKED, TOP = 40, 10, 3
QUESTIONS = {
    "en": {
        "can be ended with notice": "How long before New Year must I write if I want to leave {}?",
        "Report damage under": "Whom do I call, and by when, if something broke and I have {}?",
        "you pay the first": "{}: how much of a loss do I have to carry myself?",
        "pays for damage of up to": "What is the most that {} gives me for one accident?",
        "heads the team of": "Who is the boss of the people who work on {}?",
    },
    "de": {
        "mit einer Frist von": "Bis wann muss ich bei {} den Vertrag kündigen?",
        "Melden Sie Schäden": "Wo und bis wann melde ich einen Schaden bei {}?",
        "tragen Sie je Fall": "Wie hoch ist bei {} mein eigener Anteil?",
        "zahlt je Schadenfall": "Wie viel zahlt die Versicherung {} höchstens?",
        "leitet das Team": "Wer ist Leiter des Teams {}?",
    },
    "zh": {
        "合同可提前": "{}合同怎样解约，要提前几周？",
        "的损失须在": "{}出险后几天内、打哪个分机报案？",
        "自行承担前": "{}保险我自己要承担多少？",
        "每次事故最多赔付": "{}保险一次事故最多赔多少？",
        "团队": "{}团队由谁负责？",
    },
}
"""By what the sentence that answers it has, each with a place for the product."""
_DATA = "--corpus corpora/handbook.jsonl --model offline"
_HELD_OUT = f"evaluate --questions held-out.jsonl {_DATA} --judge offline"
COMMANDS = (
    "corpus build handbook",
    "corpus questions corpora/handbook.jsonl --count 60 --model offline",
    f"generate --questions questions.jsonl {_DATA} --run runs/own",
    "pairs runs/own --eval held-out.jsonl",
    f"{_HELD_OUT} --run evals/base",
    f"{_HELD_OUT} --max-steps 9 --run evals/own",
    "compare evals/base evals/own --judge offline",
)


def quiet(_: str) -> None:
    """Says nothing of the index that is built."""


def made(folder: Path) -> list[made_documents.Made]:
    """40 of the 60 files: of each language and kind the first, then the next ones in turns."""
    with tempfile.TemporaryDirectory() as every:
        files, taken = made_documents.make(Path(every)), list[made_documents.Made]()
        seen: Counter[tuple[str, str]] = Counter()
        turns = []
        for each in files:
            kind = (each.language, each.path.rpartition("-")[0])
            turns.append((seen[kind], each))
            seen[kind] += 1
        taken = [each for _, each in sorted(turns, key=lambda each: each[0])][:FILES]
        for each in taken:
            (folder / each.path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(every, each.path), folder / each.path)
    return taken


def asked(files: list[made_documents.Made], language: str) -> list[tuple[str, str, str]]:
    """Questions, with the title and what the sentence has that answers each: two of every kind, of different files."""
    found = list[tuple[str, str, str]]()
    for place, (told, question) in enumerate(QUESTIONS[language].items()):
        holders = [each for each in files if each.language == language and any(told in text for text in each.content)]
        for each in [holders[place % len(holders)], holders[(place + 3) % len(holders)]]:
            found.append((question.format(each.title), each.title, told))
    return found[:ASKED]


def _report(work: Path) -> Iterator[str]:
    files = made(work / "handbook")
    seconds = list[str]()
    for command in COMMANDS:
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "reasonrag", *command.split()], cwd=work, capture_output=True, text=True, check=False
        )
        seconds.append(f"{time.perf_counter() - started:.1f}" if done.returncode == 0 else f"status {done.returncode}")
    passages = [json.loads(line) for line in (work / "corpora/handbook.jsonl").read_text("utf-8").splitlines()]
    by_id = {each["id"]: each["contents"] for each in passages}
    marks = {mark for each in files for mark in each.boilerplate if len(mark) > 8}  # noqa: PLR2004 - not `page 1`
    left = sum(any(mark in each["contents"] for mark in marks) for each in passages)
    yield f"\n{len(files)} files, {len(passages)} passages, {left} of them with boilerplate."
    yield from table("The commands, with the offline teacher", {"command": list(COMMANDS), "s": seconds})
    found, corpus = dict[str, str](), work / "corpora/handbook.jsonl"
    for language in QUESTIONS:
        hits = 0
        questions = asked(files, language)
        for question, title, told in questions:
            given = reasonrag.search(corpus, question, top_k=TOP, index_home=work / "indexes", say=quiet)
            texts = [by_id[each.id] for each in given.passages]
            hits += any(told in text and title in text for text in texts)
        found[language] = f"{hits} of {len(questions)}"
    yield from table(f"Questions whose passage is among the first {TOP}", {each: [found[each]] for each in found})


def main(append: Annotated[Path | None, typer.Option()] = None) -> None:
    with tempfile.TemporaryDirectory() as work:
        publish(_report(Path(work)), append)


if __name__ == "__main__":
    typer.run(main)
