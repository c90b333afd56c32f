"""Which bad questions the filters of `corpus questions` find, and which sound ones they lose.

A made corpus of offices, heads and towns, real BM25, the real command. What is scripted are the words of the teacher:
it writes sound questions and six kinds of planted faults, by a lot for each source; as a fresh reader it answers from
what it is shown (and from what it knows of some people), and errs as often as told. So it is the filters that are
measured, and no writer:

    python benchmarks/question_filters.py

Not measured: how often a language model writes such faults, and how well it reads.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from reporting import publish, table

import reasonrag
from reasonrag.llm.chat import ChatRequest, Completion

OFFICES = 240
FAMOUS, TWO_HEADED = 4, 4
"""Every so many-th head is known to the reader without passages; every so many-th office has a second head, as a note
of its own says."""
EXPECTED = {
    "answer not in its passage": ("answer_not_in_passage",),
    "known without passages": ("known_without_passages",),
    "one search suffices": ("one_search_suffices",),
    "near-duplicate": ("duplicate",),
    "names its passage": ("names_its_passage",),
    "two right answers": ("several_answers",),
}
"""Kinds of planted faults, and the causes that name them."""
_SYLLABLES = "ba ke lo mu ni ra so ti ve wo za dre fli gro pla ster".split()


def _names(dice: random.Random, count: int, syllables: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(dice.choice(_SYLLABLES) for _ in range(syllables)).capitalize()] = None
    return list(found)


class World:
    """Offices, their heads, and the towns where these were born: a document each."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        names = _names(dice, 4 * OFFICES, 4)
        self.offices, first, last, self.towns = (names[place::4] for place in range(4))
        self.heads = [f"{one} {other}" for one, other in zip(first, last, strict=True)]
        self.second = {n: self.heads[(n + 1) % OFFICES] for n in range(0, OFFICES, TWO_HEADED)}
        self.known = {self.heads[n]: self.towns[n] for n in range(1, OFFICES, FAMOUS)}

    def write(self, path: Path) -> Path:
        rows = []
        for n, (office, head, town) in enumerate(zip(self.offices, self.heads, self.towns, strict=True)):
            rows.append(
                (f"office{n}.md#1", f"The {office} office", f"The {office} office keeps files. Its head is {head}.")
            )
            rows.append((f"head{n}.md#1", head, f"{head} was born in {town} and has been with the company for long."))
            if n in self.second:
                note = f"Note on the head of the {office} office: its head is also {self.second[n]}, since last year."
                rows.append((f"note{n}.md#1", f"Note {n}", note))
        lines = (json.dumps({"id": name, "contents": f"{title}\n{text}"}) for name, title, text in rows)
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return path


@dataclass
class Teacher:
    """The scripted `ChatModel`. errs: share of a reader's replies that are wrong. planted: kind of each question, by
    its text."""

    world: World
    errs: float
    name: str = "scripted"
    planted: dict[str, str] = field(default_factory=dict)

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        system, shown = (each.content for each in request.messages[:2])
        dice = random.Random(f"{shown} {request.samples}")
        said = self._write(shown, dice, request.samples[0]) if "<question>" in system else self._read(shown, dice)
        return [Completion(text=said, finish_reason="stop", prompt_tokens=len(shown) // 4, completion_tokens=20)]

    async def check(self) -> None:
        """Always available."""

    async def close(self) -> None:
        """Nothing to close."""

    def _write(self, shown: str, dice: random.Random, draw: int) -> str:
        heads, born = _facts(shown)
        office, head = next(((office, each) for office, found in heads.items() for each in found), ("", ""))
        kind, several = "sound", office in {self.world.offices[each] for each in self.world.second}
        if head in born:
            kind = "two right answers" if several else dice.choice(["sound", "one search suffices"])
            who = f"the head of the {office} office"
            who = f"{head}, {who}," if kind == "one search suffices" else who
            question, answer = f"In which town was {who} born?", born[head]
        elif heads and not born and "Note" not in shown:
            question, answer = f"Who is the head of the {office} office?", head
            if several or draw:
                kind = "two right answers" if several else "near-duplicate"
                question = question if several else f"Which person works as head of the {office} office?"
            elif (lot := dice.random()) < 1 / 3:
                question, kind = (
                    f"According to the passage, who is the head of the {office} office?",
                    "names its passage",
                )
            elif lot < 2 / 3:
                answer, kind = dice.choice(self.world.heads), "answer not in its passage"
        elif born and not heads and not draw:
            head, answer = next(iter(born.items()))
            question, kind = (
                f"In which town was {head} born?",
                "known without passages" if head in self.world.known else kind,
            )
        else:
            return "<question>none</question> So the answer is <answer>none</answer>"
        self.planted.setdefault(question, kind)
        lines = shown.splitlines()
        rests = [
            n for n, line in enumerate(lines, 1) if f"The {office} office keeps" in line or f": {head} was born" in line
        ]
        said = f"<question>{question}</question>\n<passages>{rests or [1]}</passages>"
        return f"{said}\nSo the answer is <answer>{answer}</answer>"

    def _read(self, shown: str, dice: random.Random) -> str:
        asked, _, passages = shown.partition("\n")
        heads, born = _facts(passages)
        office = re.search(r"the (\w+) office", asked)
        named = [head for head in self.world.heads if head in asked]
        people = named or (heads.get(office[1], []) if office else [])
        if "born" in asked:
            known = {**self.world.known, **born} if named else born
            found = [known[each] for each in people if each in known]
        else:
            found = people
        if passages and dice.random() < self.errs:
            found = [] if dice.random() < 1 / 2 else [dice.choice(self.world.towns)]
        return "<answers>\n{}\n</answers>".format("\n".join(dict.fromkeys(found)) or "unknown")


def _facts(shown: str) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Heads by office, and towns by head, as passages say."""
    heads: dict[str, list[str]] = {}
    for line in shown.splitlines():
        if office := re.search(r"The (\w+) office keeps", line) or re.search(r"head of the (\w+) office: its", line):
            heads.setdefault(office[1], []).extend(re.findall(r"head is (?:also )?(\w+ \w+)", line))
    return heads, dict(re.findall(r": (\w+ \w+) was born in (\w+)", shown))


def measured(errs: float, seed: int) -> Iterator[tuple[str, int, int, int]]:
    """Kind, number planted, found, and found by the cause that names it."""
    world = World(seed)
    teacher = Teacher(world, errs)
    with tempfile.TemporaryDirectory() as folder:
        corpus, out = world.write(Path(folder, "corpus.jsonl")), Path(folder, "questions.jsonl")
        reasonrag.corpus_questions(
            corpus, chat_model=teacher, out=out, count=3000, held_out_share=0.0, index_home=Path(folder, "indexes")
        )
        left_out = [json.loads(line) for line in Path(folder, "questions", "filtered.jsonl").read_text().splitlines()]
        kept = [json.loads(line) for line in out.read_text().splitlines()]
    causes: dict[str, Counter[str]] = {kind: Counter() for kind in ("sound", *EXPECTED)}
    told = {_told(row) for row in kept if teacher.planted[row["question"]] == "sound"}
    for row in [*kept, *left_out]:
        if kind := teacher.planted.get(row.get("question", "")):
            cause = row.get("cause", "kept")
            if kind == "near-duplicate" and _told(row) not in told:
                continue  # what it repeats was left out
            kind = "near-duplicate" if kind == "sound" and cause == "duplicate" else kind  # of another chain
            causes[kind][cause] += 1
    for kind, found in causes.items():
        yield kind, found.total(), found.total() - found["kept"], sum(found[each] for each in EXPECTED.get(kind, ()))


def _told(row: dict[str, Any]) -> tuple[str, ...]:
    """What a question is about: its passages and its answer."""
    return *sorted(row["metadata"]["gold_ids"]), *row["golden_answers"]


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({100 * part / max(1, whole):.1f} %)"


def _report(seeds: int) -> Iterator[str]:
    yield f"\nFilters of `corpus questions`, {OFFICES} offices, real BM25, scripted teacher, {seeds} corpora."
    for errs in (0.0, 0.1):
        rows: dict[str, list[int]] = {}
        for seed in range(seeds):
            for kind, *counts in measured(errs, seed):
                rows[kind] = [one + other for one, other in zip(rows.get(kind, [0, 0, 0]), counts, strict=True)]
        faults = [sum(each) for each in zip(*(rows[kind] for kind in EXPECTED), strict=True)]
        shown = {**rows, "all faults": faults}
        yield from table(
            f"A reader who errs in {errs:.0%} of its replies",
            {
                "question": list(shown),
                "written": [f"{many:,}" for many, _, _ in shown.values()],
                "left out": [_share(out, many) for many, out, _ in shown.values()],
                "by the cause that names it": [
                    "" if kind == "sound" else _share(named, many) for kind, (many, _, named) in shown.items()
                ],
            },
        )


def main(append: Annotated[Path | None, typer.Option()] = None, seeds: int = 3) -> None:
    publish(_report(seeds), append)


if __name__ == "__main__":
    typer.run(main)
