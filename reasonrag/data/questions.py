"""Questions in FlashRAG's format.

A question file is JSONL, `{"id", "question", "golden_answers": [..], "metadata"}`; gold answers may be missing if the
run does not need them. Decides that a bad line is found before any work starts, which questions a sample draws, and
which metadata name gold passages, kind, hops, style and rubric. `datasets` knows where named data sets are, `contexts`
which passages came with questions, `dataset_fields` what published data sets call their columns.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from array import array
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self, get_args

import orjson
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from preference.records import first_error
from preference.stratified_sample import stratified_sample
from reasonrag.data.compressed import Say, as_lines
from reasonrag.data.dataset_fields import UnreadColumns, question_record
from reasonrag.data.gold_passages import GoldPassages, gold_passages
from reasonrag.data.multiple_choice import spelled_out
from reasonrag.errors import InputError
from reasonrag.files import numbered_lines, read_small_text, reading
from reasonrag.ranks import Shard
from reasonrag.rendering import counted

AnswerStyle = Literal["short", "long"]
"""What an answer is: a name, a date, a number, yes or no ..; or sentences for a reader."""
SHORT: AnswerStyle = "short"
_HOPS_OF_AN_ID = re.compile(r"([1-9])hop[0-9]*__")


class Question(BaseModel, frozen=True, extra="ignore", coerce_numbers_to_str=True):
    """One question. `golden_answers`, `gold` and `rubric` are for scoring only and reach no prompt of the agent.
    `golden_answers` is empty if none is known."""

    id: str = Field(min_length=1)
    question: str = Field(min_length=1)
    golden_answers: list[str] = []
    metadata: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _spelled_out(cls, record: object) -> object:
        """Columns of published data sets by their meaning; null is as good as missing. Multiple choice: the text names
        the options, and gold answers are the texts of options."""
        if not isinstance(record, dict):
            return record
        return {name: each for name, each in spelled_out(question_record(record)).items() if each is not None}

    @field_validator("question")
    @classmethod
    def _says_something(cls, question: str) -> str:
        if not question.strip():
            raise ValueError("the question is blank")
        return question

    @field_validator("golden_answers")
    @classmethod
    def _silence_is_none(cls, golden_answers: list[str]) -> list[str]:
        return golden_answers if any(answer.strip() for answer in golden_answers) else []

    @field_validator("metadata")
    @classmethod
    def _style_is_known(cls, metadata: dict[str, Any]) -> dict[str, Any]:
        if metadata.get("style") not in (None, *get_args(AnswerStyle)):
            raise ValueError(f"style {metadata['style']!r} is neither short nor long; correct it, or leave it out")
        return metadata

    @cached_property
    def gold(self) -> GoldPassages | None:
        """As the metadata name them; None if they name none."""
        return gold_passages(self.metadata)

    def __copy__(self) -> Self:
        copied = super().__copy__()
        copied.__dict__.pop("gold", None)  # a copy may get other metadata
        return copied

    @property
    def type(self) -> str | None:
        """Kind of question from `metadata.type` (HotpotQA, 2WikiMultiHopQA, atlas); None if missing."""
        kind = self.metadata.get("type")
        return kind if isinstance(kind, str) and kind.strip() else None

    @property
    def hops(self) -> int | None:
        """Passages that must be combined: `metadata.hops`, else the number in MuSiQue's ids (`2hop__..`, `3hop1__..`),
        else the number of gold passages; None if none of these is known."""
        given = self.metadata.get("hops")
        if isinstance(given, int) and not isinstance(given, bool) and given > 0:
            return given
        if found := _HOPS_OF_AN_ID.match(self.id):
            return int(found[1])
        return len(self.gold.keys) if self.gold else None

    @property
    def style(self) -> AnswerStyle | None:
        """The answer wanted, from `metadata.style`; None: that of the settings."""
        return self.metadata.get("style")

    @property
    def rubric(self) -> tuple[str, ...]:
        """Criteria of `metadata.rubric`; empty without one. Raises ValueError unless it is a text or a list of them."""
        given = self.metadata.get("rubric") or []
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
            raise ValueError("metadata.rubric: must be a text, or a list of texts")
        return tuple(found for each in texts for found in criteria(each))


def criteria(rubric: str) -> tuple[str, ...]:
    """The criteria of a rubric, one per line."""
    return tuple(line.strip() for line in rubric.splitlines() if line.strip())


def read_rubric(path: Path) -> tuple[str, ...]:
    """The criteria in a file. Raises InputError where there are none."""
    try:
        with reading(f"the rubric {path}"):
            found = criteria(read_small_text(path))
    except UnicodeDecodeError as error:
        raise InputError(f"the rubric {path} is not UTF-8 text: {error}") from error
    if not found:
        raise InputError(f"the rubric {path} is empty; write what an answer must do, one criterion per line")
    return found


Check = Callable[[Question], object]
"""Raises ValueError for a question the run cannot use."""


def require_golden_answers(question: Question) -> None:
    """Raises ValueError for a question without gold answers."""
    if not question.golden_answers:
        raise ValueError(
            "golden_answers: all are blank or missing, so no answer can be right; without gold answers, answers are "
            "judged: generate --outcome judge or rubric, evaluate --judge MODEL"
        )


@dataclass(frozen=True, slots=True)
class QuestionFile:
    """A checked question file, and what identifies it in the configuration.

    revision: commit of the Hub's repository, if the file came from there. check: passed by every question. sha256: of
        the whole file, so that a larger `--limit` is the same source. partition: how the file was cut out of another
        one. drawn: byte offsets of the questions of a sample, in the order in which they were drawn; None: no sample.
        sample_seed: of the sample. has_gold_ids: whether the corpus has the ids of its gold passages; else titles name
        them. rows: the file that is read, one question per line, where `path` has another form.
    """

    dataset: str
    split: str
    path: Path
    sha256: str
    total: int
    revision: str | None = None
    check: Check = require_golden_answers
    partition: dict[str, Any] | None = None
    drawn: Sequence[int] | None = None
    sample_seed: int | None = None
    has_gold_ids: bool = True
    rows: Path | None = None

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.split}"

    @property
    def identity(self) -> dict[str, Any]:
        """What `config_hash` covers of the questions."""
        found: dict[str, Any] = {"dataset": self.dataset, "split": self.split, "questions_sha256": self.sha256}
        found |= {"partition": self.partition} if self.partition else {}
        return found | ({} if self.sample_seed is None else {"sample": {"seed": self.sample_seed}})

    def described(self, owed: int, total: int, *, limited: bool) -> str:
        """The questions of a session, as words; without --limit they say that it is the whole split."""
        left, questions = "" if owed == total else f"{owed:,} left of ", counted(total, "question")
        if limited or self.sample_seed is not None:
            return left + questions
        return left + f"all {questions} of {self.name} (no --limit)"

    def limited(self, limit: int | None, shard: Shard | None = None) -> Questions:
        """The first `limit` questions, which can be read repeatedly; of these, those of the shard."""
        return Questions(self, limit, shard)

    def read(self, limit: int | None = None) -> Generator[Question]:
        """The first `limit` questions, in file order or as they were drawn."""
        with (self.rows or self.path).open("rb") as lines:
            if self.drawn is None:
                for number, line in enumerate(islice(lines, limit), start=1):
                    yield self._question(line, f"line {number}")
                return
            for place in islice(self.drawn, limit):
                lines.seek(place)
                yield self._question(lines.readline(), f"byte {place:,}")

    def _question(self, line: bytes, place: str) -> Question:
        question = parse_question(line, where=f"{self.path}, {place}", check=self.check)
        if self.has_gold_ids or not question.metadata.get("gold_ids"):
            return question
        return question.model_copy(update={"metadata": question.metadata | {"gold_ids": []}})


@dataclass(frozen=True, slots=True)
class Questions:
    """The first questions of a file, read from it on every iteration; of these, those of the shard."""

    source: QuestionFile
    limit: int | None
    shard: Shard | None = None

    def __iter__(self) -> Generator[Question]:
        with closing(self.source.read(self.limit)) as questions:
            yield from (each for each in questions if self.shard is None or self.shard.holds(each.id))

    def __len__(self) -> int:
        return min(self.source.total, self.limit or self.source.total) if self.shard is None else sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class Sample:
    """Questions to draw: `size` of them, stratified by type."""

    size: int
    seed: int


def open_questions(
    path: Path,
    *,
    dataset: str,
    split: str,
    check: Check = require_golden_answers,
    sample: Sample | None = None,
    home: Path | None = None,
    say: Say = lambda _: None,
) -> QuestionFile:
    """Check a whole question file. home: where a file that is not JSONL is written as such; without it, only JSONL is
    read. say: told of that, and of columns that are not read. Raises InputError naming the first bad line."""
    digest = hashlib.sha256()
    first_seen: dict[str, int] = {}
    unread = UnreadColumns()
    rows = path if home is None or not path.is_file() else as_lines(path, home, say=say)
    unit = "line" if rows == path else "row"
    members, places, position = list[tuple[str, str]](), array("q"), 0
    with reading(f"the questions {path}"), rows.open("rb") as lines:
        for number, line in numbered_lines(path, lines):
            question = parse_question(line, where=f"{path}, {unit} {number}", check=check, unread=unread)
            if first_seen.setdefault(question.id, number) != number:
                raise InputError(
                    f"{path}, {unit} {number}: question id {question.id!r} was already used in {unit} "
                    f"{first_seen[question.id]}. Ids must be unique"
                )
            digest.update(line)
            if sample:
                members.append((question.type or "", f"{dataset}:{question.id}"))  # ids repeat in other data sets
                places.append(position)
                position += len(line)
    if not first_seen:
        raise InputError(f"the question file {path} is empty; it needs one question per line")
    chosen = stratified_sample(members, sample.size, seed=sample.seed) if sample else ()
    drawn = [places[first_seen[each.removeprefix(f"{dataset}:")] - 1] for each in chosen] if sample else None
    if notice := unread.notice(path):
        say(notice)
    total = len(first_seen) if drawn is None else len(drawn)
    found = QuestionFile(dataset, split, path, digest.hexdigest(), total, check=check, drawn=drawn)
    return replace(found, sample_seed=sample.seed if sample else None, rows=None if rows == path else rows)


def parse_question(
    line: bytes, *, where: str, check: Check = require_golden_answers, unread: UnreadColumns | None = None
) -> Question:
    """One line of a question file. unread: collects its columns that are not read. Raises InputError naming `where`."""
    try:
        record = orjson.loads(line.removeprefix(codecs.BOM_UTF8))
        question = Question.model_validate(record)
        if unread is not None:
            unread.add_question(record)
        check(question)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{where} is not JSON ({error}); each line must be one question") from error
    except ValidationError as error:
        raise InputError(
            f'{where} is not a question ({first_error(error)}); it needs "id", "question" and a list "golden_answers"'
        ) from error
    except ValueError as error:
        raise InputError(f"{where} is not a question ({error})") from error
    return question
