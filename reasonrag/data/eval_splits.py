"""Evaluation splits: files a user names, those beside the data of a run, FlashRAG's on the Hub.

Decides what counts as an evaluation split, what it is called (dataset/split), and that a bad line is found before
anything is compared. Holds no questions: files are read anew for each use. Does not know how questions are compared.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from pydantic import BaseModel, ValidationError

from preference.candidate_records import is_training_split
from preference.export.json_stream import LONGEST_ITEM
from preference.export.summary import SUMMARY
from reasonrag.data.dataset_fields import question_record
from reasonrag.data.datasets import fetch_questions
from reasonrag.data.item_files import read_rows
from reasonrag.data.multiple_choice import spelled_out
from reasonrag.data.popqa_partition import is_whole, part_lines, training_lines
from reasonrag.data.settings import ATLAS, HUB_SPLITS
from reasonrag.errors import InputError
from reasonrag.files import CONFIG, file_digest, made_here, reading
from reasonrag.run_config import find_config

HUB: Final = "hub"
"""Value of `--eval` for the evaluation splits of FlashRAG's collection."""
ALL: Final = "all"
"""Value of `--allow-eval` for every split."""
_KEPT_FOR_EVALUATION = {"dev", "eval", "evaluation", "test", "val", "valid", "validation"}


class EvalSplit(BaseModel):
    """A file of questions that must not be trained on; of PopQA's whole file the part for tests.

    name: dataset/split. path: absolute. sha256: of the file, or of that part, which pins everything that was compared.
        questions: their number. revision: commit on the Hub, if it came from there.
    """

    name: str
    path: str
    sha256: str
    questions: int
    revision: str | None = None

    def read(self) -> Iterator[EvalQuestion]:
        """Its questions, one at a time. Raises InputError naming file and line."""
        with reading(f"the evaluation split {self.path}"):
            yield from _questions(Path(self.path))


class EvalQuestion(NamedTuple):
    """A question of an evaluation split. answers: empty if the file withholds them."""

    id: str
    question: str
    answers: tuple[str, ...] = ()


class Unchecked(BaseModel):
    """A known evaluation split that was not checked, and why."""

    name: str
    path: str
    reason: str


@dataclass
class EvalSplits:
    """The splits that were found, each once, and those that could not be read. Their order does not matter."""

    found: list[EvalSplit] = field(default_factory=list)
    missing: list[Unchecked] = field(default_factory=list)

    def add(self, split: EvalSplit) -> None:
        if all((each.name, each.sha256) != (split.name, split.sha256) for each in self.found):
            self.found.append(split)

    def add_missing(self, name: str, path: Path | str, reason: str) -> None:
        if all((each.name, each.path) != (name, str(path)) for each in self.missing):
            self.missing.append(Unchecked(name=name, path=str(path), reason=reason))


def _absolute(path: Path) -> Path:
    """The absolute path without following links: the Hub's cache names files by their links."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow the link


# -- splits named by the user -----------------------------------------------------------------------------------------


def add_named(splits: EvalSplits, given: Iterable[str]) -> None:
    """The splits that `--eval` names: question files, folders of them, `hub`.

    A folder holds <dataset>/<split>.jsonl, or belongs to one data set; every split except train counts, whatever its
    name. Raises InputError for a missing or empty file and for a line that is not a question.
    """
    for each in given:
        path = Path(each)
        if each == HUB and not path.exists():
            _add_hub(splits)
        elif path.is_dir():
            _add_folder(splits, path)
        elif path.is_file():
            splits.add(open_split(path))
        else:
            raise InputError(
                f"there is no evaluation split {each}; give --eval a file of questions, a folder with "
                f"<dataset>/<split>.jsonl, or {HUB} for those of FlashRAG's collection"
            )


def open_split(path: Path, *, dataset: str | None = None) -> EvalSplit:
    """Check a whole question file. dataset: its name [default: that of its folder].

    A line needs only a "question"; a blank question counts, and equals no other. Raises InputError naming the first bad
    line.
    """
    path = _absolute(path)
    with reading(f"the evaluation split {path}"):
        count = sum(1 for _ in _questions(path))
        whole = is_whole(path)
        digest = hashlib.sha256(b"".join(part_lines(path, "test"))).hexdigest() if whole else file_digest(path)
    if not count:
        raise InputError(f"the evaluation split {path} is empty; it needs one question per line")
    name = f"{dataset or path.parent.name}/{path.stem}"
    return EvalSplit(name=name, path=str(path), sha256=digest, questions=count)


def _add_folder(splits: EvalSplits, folder: Path) -> None:
    chosen = _question_files(folder, any_name=True)
    if not chosen:
        raise InputError(
            f"{folder} has no evaluation split; put them at <dataset>/<split>.jsonl, split being dev, test or any "
            "other name but train, or give --eval FILE"
        )
    for path in chosen:
        splits.add(open_split(path))


def _question_files(folder: Path, *, any_name: bool = False) -> list[Path]:
    """JSONL files of a folder and its subfolders that are named like evaluation splits; not hidden ones, and no others
    that reasonrag wrote. any_name: also those of other names that begin with a question."""
    found = []
    for path in sorted((*folder.glob("*.jsonl"), *folder.glob("*/*.jsonl"))):
        words = set(re.split(r"[^a-z]+", path.stem.lower()))
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if is_hidden or "corpus" in words or is_training_split(path.stem):
            continue
        asks = _starts_with_a_question(path)
        is_ours = asks is False and (made_here(folder) or made_here(path.parent))
        if not is_ours and (words & _KEPT_FOR_EVALUATION or (any_name and asks)):
            found.append(path)
    return found


def _starts_with_a_question(path: Path) -> bool | None:
    """Whether a file holds questions, and not records of a run or data set; None if its first line does not tell."""
    try:
        with path.open("rb") as lines:
            record = orjson.loads(lines.readline(LONGEST_ITEM) or b"{}")
    except (OSError, orjson.JSONDecodeError):
        return None
    return isinstance(record, dict) and isinstance(record.get("question"), str) and "schema_version" not in record


def _add_hub(splits: EvalSplits) -> None:
    for dataset, names in sorted(HUB_SPLITS.items()):
        for split in names:
            if not is_training_split(split):
                path, commit = fetch_questions(dataset, split, flag="--eval")
                splits.add(open_split(path, dataset=dataset).model_copy(update={"revision": commit}))


# -- splits known without being named -------------------------------------------------------------------------


def add_referenced(splits: EvalSplits, sources: Sequence[Path], *, allowed: Sequence[str] = ()) -> None:
    """Add the splits that the sources of a data set refer to.

    A run refers to all data sets of its --data-dir and to the files beside its question file named dev, test or
    validation. A data set refers to the splits it was checked against. Files that are gone are noted as missing. Raises
    InputError for a malformed file, unless its name is allowed: a broken file must not silently disable a check that
    runs by default.
    """
    for source in sources:
        _add_checked_before(splits, source / SUMMARY, allowed)
        _add_of_run(splits, (source.parent if source.is_file() else source) / CONFIG, allowed)


def _add_checked_before(splits: EvalSplits, summary: Path, allowed: Sequence[str]) -> None:
    try:
        before = orjson.loads(summary.read_bytes())["contamination"]
        nowhere: dict[str, Any] = {"path": ""}  # published data sets hold no paths
        checked = [EvalSplit.model_validate(nowhere | each) for each in before.get("checked", ())]
        missing = [Unchecked.model_validate(nowhere | each) for each in before.get("unchecked", ())]
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, AttributeError, ValidationError):
        return  # a run, or a data set that was never checked
    for each in checked:
        _add_known(splits, each.path, each.name, allowed, revision=each.revision)
    for unchecked in missing:
        _add_known(splits, unchecked.path, unchecked.name, allowed)


def _add_of_run(splits: EvalSplits, config: Path, allowed: Sequence[str]) -> None:
    made = find_config(config)
    if made is None or made.operational is None:
        return
    settings = made.operational.settings
    data_dir = settings.get("data_dir")
    folders = [Path(data_dir)] if isinstance(data_dir, str) else []
    questions = made.operational.questions
    if questions and Path(questions).parent.parent not in folders:
        folders.append(Path(questions).parent)
    dataset = ATLAS if made.decides_answers.dataset == ATLAS and not settings.get("questions") else None
    for folder in folders:
        if not folder.is_dir():
            splits.add_missing(f"{folder.name}/*", folder, "the folder of the run's questions is gone")
        for path in _question_files(folder):
            _add_known(splits, str(path), f"{dataset or _absolute(path).parent.name}/{path.stem}", allowed)


def _add_known(
    splits: EvalSplits, path: str, name: str, allowed: Sequence[str], *, revision: str | None = None
) -> None:
    if any((each.name, each.path) == (name, path) for each in splits.found):
        return
    if not path:
        reason = "the data set was published, and published data sets record no paths"
    elif not Path(path).is_file():
        reason = "the file is gone"
    else:
        try:
            splits.add(open_split(Path(path)).model_copy(update={"name": name, "revision": revision}))
        except InputError as error:
            if name not in allowed and ALL not in allowed:
                advice = f"Fix the file, or continue without this split: --allow-eval {name}"
                raise InputError(f"{error}. {advice}") from error
            reason = str(error).replace(f"{_absolute(Path(path)).parent}{os.sep}", "")  # it is published
        else:
            return
    splits.add_missing(name, path, reason)


# -- rows ------------------------------------------------------------------------------------------------------


def _questions(path: Path) -> Iterator[EvalQuestion]:
    """The questions of a file; of PopQA's whole file those that are not for training."""
    without = training_lines(path) if is_whole(path) else frozenset()
    for number, row in enumerate(read_rows(path), start=1):
        record = row
        with suppress(ValueError):  # without an answer: compared by its question
            record = question_record(row)
        if not isinstance(record.get("question"), str):
            raise InputError(f'{path}, row {number} is not a question; it needs a text "question"')
        with suppress(ValueError):  # another form of multiple choice: compared by what its question says
            record = spelled_out(record)
        if number not in without:
            yield EvalQuestion(str(record.get("id", number)), record["question"], _answers(record))


def _answers(record: dict[str, Any]) -> tuple[str, ...]:
    """Gold answers; none if their form is unknown."""
    given = record.get("golden_answers")
    answers = given if isinstance(given, list) else ()
    return tuple(str(each) for each in answers if isinstance(each, str | int | float))
