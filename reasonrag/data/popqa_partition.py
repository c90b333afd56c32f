"""PopQA's partition: its one file of 14,267 questions becomes 3,000 to train on and 11,267 to test on, as in the paper.

Which 3,000 the paper drew is not published; ours are drawn with a fixed seed, never the run's, so that no question of
one part is ever in the other. Decides by the questions' texts, so that any copy of the file has the same parts, and two
questions of one text are in the same part. A file with another number of questions is not partitioned.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import Any, Final

from preference.candidate_records import question_key
from preference.export.private_files import write_file
from preference.stratified_sample import seeded_uniform
from reasonrag.data.questions import parse_question
from reasonrag.data.settings import canonical_dataset
from reasonrag.files import build_lock, file_digest, numbered_lines, reading, writing

POPQA: Final = "popqa"
TRAIN, WHOLE = 3_000, 14_267
"""Questions to train on, and of the whole file (arXiv 2505.14069)."""
SEED = 0


def is_whole(path: Path) -> bool:
    """Whether a file is PopQA's whole test set, with no file of training questions beside it."""
    is_test_file = canonical_dataset(path.parent.name) == POPQA and path.name == "test.jsonl" and path.is_file()
    if not is_test_file or path.with_name("train.jsonl").exists():
        return False
    with reading(f"the questions {path}"), path.open("rb") as lines:
        return sum(1 for _ in islice(numbered_lines(path, lines), WHOLE + 1)) == WHOLE


def training_lines(path: Path) -> frozenset[int]:
    """Numbers, from 1, of the lines of PopQA's whole file that are for training. Raises InputError for a bad line."""
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


def part_lines(path: Path, part: str) -> list[bytes]:
    """The lines of one part, `train` or `test`."""
    training = training_lines(path)
    with reading(f"the questions {path}"), path.open("rb") as lines:
        numbered = numbered_lines(path, lines)
        return [line for number, line in numbered if (number in training) == (part == "train")]


def part_of(path: Path, split: str, home: Path) -> tuple[Path, dict[str, Any]]:
    """The file of one part below `home`, written once beside the other; and what a run records of the partition."""
    with reading(f"the questions {path}"):
        whole = file_digest(path)
    folder = home / f"{POPQA}-partition-{whole[:8]}" / POPQA
    with build_lock(folder.parent), writing(f"the partition of {path} below {home}"):
        folder.mkdir(parents=True, exist_ok=True)
        for part in ("train", "test"):
            if not (kept := folder / f"{part}.jsonl").is_file():
                write_file(kept, b"".join(part_lines(path, part)), shared=True)
    return folder / f"{split}.jsonl", {"seed": SEED, "train": TRAIN, "test": WHOLE - TRAIN, "of_sha256": whole}
