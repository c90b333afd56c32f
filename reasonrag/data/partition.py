"""PopQA's partition: its one file of 14,267 questions becomes 3,000 to train on and 11,267 to test on, as in the paper.

Which 3,000 the paper drew is not published; ours are drawn with a fixed seed, never the run's, so that no question of
one part is ever in the other. Decides by the questions' texts, so that any copy of the file has the same parts, and two
questions of one text are in the same part. A file with another number of questions is not partitioned.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson

from preference.candidates import question_key
from preference.export.files import atomic_replacement
from preference.filters import seeded_uniform
from reasonrag.data.questions import parse_question
from reasonrag.files import build_lock, numbered_lines, reading, writing

POPQA: Final = "popqa"
TRAIN, WHOLE = 3_000, 14_267
"""Questions to train on, and of the whole file (arXiv 2505.14069)."""
SEED = 0
_PARTS = ("train", "test")


def is_whole(path: Path) -> bool:
    """Whether a file is PopQA's whole test set, with no file of training questions beside it."""
    return (
        path.name == "test.jsonl"
        and path.is_file()
        and not path.with_name("train.jsonl").exists()
        and _count(path) == WHOLE
    )


def _count(path: Path) -> int:
    """Lines of a file; no more than would be too many."""
    with reading(f"the questions {path}"), path.open("rb") as lines:
        return sum(1 for _ in islice(numbered_lines(path, lines), WHOLE + 1))


def why_not(path: Path) -> str:
    """Why a file cannot be partitioned, and what can be done."""
    return (
        f"{TRAIN:,} of the {WHOLE:,} questions of PopQA's test file are for training, and {path} has another number of "
        "questions. Choose --split test, or give your own with --questions FILE"
    )


def training_lines(path: Path) -> frozenset[int]:
    """The numbers of the lines, from 1, that are for training, of PopQA's whole file. Raises InputError for a line that
    is not a question."""
    of_text: dict[str, list[int]] = defaultdict(list)
    with reading(f"the questions {path}"), path.open("rb") as lines:
        for number, line in numbered_lines(path, lines):
            question = parse_question(line, where=f"{path}, line {number}", check=lambda _: None)
            of_text[question_key(question.question)].append(number)
    drawn: set[int] = set()
    for key in sorted(of_text, key=lambda each: (seeded_uniform(f"popqa:{each}", seed=SEED), each)):
        if len(drawn) + len(of_text[key]) <= TRAIN:
            drawn.update(of_text[key])
    return frozenset(drawn)


def part_digest(path: Path) -> tuple[str, int]:
    """SHA-256 of the file that the test part would be, and its questions."""
    training, digest, count = training_lines(path), hashlib.sha256(), 0
    with reading(f"the questions {path}"), path.open("rb") as lines:
        for number, line in numbered_lines(path, lines):
            if number not in training:
                digest.update(line)
                count += 1
    return digest.hexdigest(), count


def part_of(path: Path, split: str, home: Path) -> tuple[Path, dict[str, Any]]:
    """A file below `home` with the questions of one part, `train` or `test`, written once; and what a run records of
    the partition."""
    with reading(f"the questions {path}"), path.open("rb") as file:
        whole = hashlib.file_digest(file, "sha256").hexdigest()
    folder = home / f"{POPQA}-partition-{whole[:8]}" / POPQA
    recorded = {"seed": SEED, "train": TRAIN, "test": WHOLE - TRAIN, "of_sha256": whole}
    said = folder.parent / "partition.json"
    with build_lock(folder.parent), writing(f"the partition of {path} below {home}"):
        whole_parts = all((folder / f"{part}.jsonl").is_file() for part in _PARTS)
        if not (whole_parts and said.is_file() and said.read_bytes() == orjson.dumps(recorded)):
            folder.mkdir(parents=True, exist_ok=True)
            _write_parts(path, folder)
            with atomic_replacement(said, shared=True) as file:
                file.write(orjson.dumps(recorded))
    return folder / f"{split}.jsonl", recorded


def _write_parts(path: Path, folder: Path) -> None:
    training = training_lines(path)
    for part in _PARTS:
        with path.open("rb") as lines, atomic_replacement(folder / f"{part}.jsonl", shared=True) as kept:
            for number, line in numbered_lines(path, lines):
                if (number in training) == (part == "train"):
                    kept.write(line)
