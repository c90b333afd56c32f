"""Questions in FlashRAG's format.

A question file is JSONL, `{"id", "question", "golden_answers": [..], "metadata"}`; gold answers may be missing if the
run does not need them. A named data set comes from a directory (`<data-dir>/<dataset>/<split>.jsonl` beside
`corpus.jsonl`), from FlashRAG's collection on the Hub, or, for atlas, from the project itself. Decides that a bad line
is found before any work starts, and which metadata name gold passages, kind, hops and rubric. No other module reads
metadata. `datasets` knows where named data sets are.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from preference.records import first_error
from reasonrag.data.corpus import Passage
from reasonrag.errors import InputError
from reasonrag.files import numbered_lines, reading

_HOPS_OF_AN_ID = re.compile(r"([1-9])hop[0-9]*__")


@dataclass(frozen=True, slots=True)
class GoldPassages:
    """The passages a question's answer rests on, as named by its data set; for checks, never for a prompt."""

    by: Literal["id", "title"]
    names: tuple[str, ...]

    def found_in(self, passages: Iterable[Passage]) -> frozenset[str]:
        """Keys of the gold passages among these. Titles compare without case, spaces and quotes; several passages of
        one title count as one."""
        return self.keys & {self.key(each) for each in passages}

    @property
    def keys(self) -> frozenset[str]:
        """One key per gold passage."""
        return frozenset(self.names) if self.by == "id" else frozenset(map(_title_key, self.names))

    def key(self, passage: Passage) -> str:
        """The key this passage would have as a gold passage."""
        return passage.id if self.by == "id" else _title_key(passage.title)


def _title_key(title: str) -> str:
    return " ".join(title.split()).strip('"').casefold()


class Question(BaseModel):
    """One question. `golden_answers`, `gold` and `rubric` are for scoring only and reach no prompt of the agent.
    `golden_answers` is empty if none is known."""

    model_config = ConfigDict(frozen=True, extra="ignore", coerce_numbers_to_str=True)

    id: str = Field(min_length=1)
    question: str = Field(min_length=1)
    golden_answers: list[str] = []
    metadata: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _spelled_out(cls, record: object) -> object:
        """FlashRAG's multiple choice: gold answers given as positions in `choices` become the texts there."""
        if not isinstance(record, dict) or not (options := record.get("choices")) or not isinstance(options, list):
            return record
        answers = record.get("golden_answers")
        if not isinstance(answers, list) or not all(type(each) is int for each in answers):
            return record
        if not all(0 <= each < len(options) for each in answers):
            raise ValueError(f"golden_answers {answers} are positions in choices, which has {len(options)}")
        return record | {"golden_answers": [options[each] for each in answers]}

    @field_validator("question")
    @classmethod
    def _says_something(cls, question: str) -> str:
        if not question.strip():
            raise ValueError("the question is blank")
        return question

    @field_validator("golden_answers", "metadata", mode="before")
    @classmethod
    def _null_is_missing(cls, given: object, field: ValidationInfo) -> object:
        return cls.model_fields[field.field_name or ""].get_default() if given is None else given

    @field_validator("golden_answers")
    @classmethod
    def _silence_is_none(cls, golden_answers: list[str]) -> list[str]:
        return golden_answers if any(answer.strip() for answer in golden_answers) else []

    @property
    def gold(self) -> GoldPassages | None:
        """Gold passages by `gold_ids`, else by `gold_titles`, else by the titles of `supporting_facts` (FlashRAG's
        HotpotQA and 2WikiMultiHopQA); None if the metadata name none."""
        facts = self.metadata.get("supporting_facts")
        titles = self.metadata.get("gold_titles") or (facts.get("title") if isinstance(facts, dict) else None)
        if ids := _names(self.metadata.get("gold_ids")):
            return GoldPassages("id", ids)
        if named := _names(titles):
            return GoldPassages("title", named)
        return None

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
    def rubric(self) -> tuple[str, ...]:
        """Criteria of `metadata.rubric`; empty without one. Raises ValueError if it is neither a text nor a list of
        texts."""
        given = self.metadata.get("rubric") or []
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
            raise ValueError("metadata.rubric: must be a text, or a list of texts")
        return tuple(found for each in texts for found in criteria(each))


def criteria(rubric: str) -> tuple[str, ...]:
    """The criteria of a rubric, one per line."""
    return tuple(line.strip() for line in rubric.splitlines() if line.strip())


Check = Callable[[Question], object]
"""Raises ValueError for a question the run cannot use."""


def require_golden_answers(question: Question) -> None:
    """Raises ValueError for a question without gold answers."""
    if not question.golden_answers:
        raise ValueError(
            "golden_answers: all are blank or missing, so no answer could be right; without gold answers, let generate "
            "judge answers: --outcome judge, or --outcome rubric"
        )


def _names(listed: object) -> tuple[str, ...]:
    """The distinct names of a list, numbers as text; empty for anything else, since metadata may hold anything."""
    if not isinstance(listed, list):
        return ()
    return tuple(dict.fromkeys(str(each) for each in listed if isinstance(each, str | int) and str(each).strip()))


@dataclass(frozen=True, slots=True)
class QuestionSource:
    """A checked question file, and what identifies it in the configuration.

    revision: commit of the Hub's repository, if the file came from there. check: passed by every question. sha256: of
        the whole file, so that a larger `--limit` is the same source.
    """

    dataset: str
    split: str
    path: Path
    sha256: str
    total: int
    revision: str | None = None
    check: Check = require_golden_answers

    def limited(self, limit: int | None) -> Questions:
        """The first `limit` questions, which can be read repeatedly."""
        return Questions(self, limit)

    def read(self, limit: int | None = None) -> Iterator[Question]:
        """The first `limit` questions in file order."""
        with self.path.open("rb") as lines:
            for number, line in enumerate(islice(lines, limit), start=1):
                yield parse_question(line, where=f"{self.path}, line {number}", check=self.check)


@dataclass(frozen=True, slots=True)
class Questions:
    """The first questions of a source, read from the file on every iteration."""

    source: QuestionSource
    limit: int | None

    def __iter__(self) -> Iterator[Question]:
        return self.source.read(self.limit)

    def __len__(self) -> int:
        return min(self.source.total, self.limit or self.source.total)


def open_questions(
    path: Path, *, dataset: str, split: str, revision: str | None = None, check: Check = require_golden_answers
) -> QuestionSource:
    """Check a whole question file. Raises InputError naming the first bad line."""
    digest = hashlib.sha256()
    first_seen: dict[str, int] = {}
    with reading(f"the questions {path}"), path.open("rb") as lines:
        for number, line in numbered_lines(path, lines):
            question = parse_question(line, where=f"{path}, line {number}", check=check)
            if first_seen.setdefault(question.id, number) != number:
                raise InputError(
                    f"{path}, line {number}: question id {question.id!r} was already used in line "
                    f"{first_seen[question.id]}. Ids must be unique"
                )
            digest.update(line)
    if not first_seen:
        raise InputError(f"the question file {path} is empty; it needs one question per line")
    return QuestionSource(dataset, split, path, digest.hexdigest(), len(first_seen), revision, check)


def parse_question(line: bytes, *, where: str, check: Check = require_golden_answers) -> Question:
    """One line of a question file. Raises InputError naming `where`."""
    try:
        question = Question.model_validate(orjson.loads(line))
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
