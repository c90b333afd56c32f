"""The record of a line of `predictions.jsonl`: the answer to one question, and its scores.

Decides the file's fields, and that it holds nothing in which two equal runs differ: no time, no price, no address.
Knows no method and no means over questions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import orjson
from pydantic import Field

from preference.candidate_records import MalformedCandidatesError, read_lines
from preference.records import AbsentIfEmpty, AbsentIfNone, Items, PassageRef, QuestionError, Record
from reasonrag.errors import InputError
from reasonrag.files import PREDICTIONS, reading

WRITTEN_AT_THE_END: Final = "reasonrag evaluate writes it after the last question; run the same command to continue"
REWRITES: Final = "Run the command that made it again: it rewrites the file from its journal, without new requests"


class PredictedStep(Record):
    """One reply on the way to the answer."""

    action: str
    """think, read or conclude for the agent; a baseline's own word."""
    response: str
    reasoning: AbsentIfEmpty[str] = ""
    """What the model reasoned before the response, where that is not part of the method's format."""
    content: str | None = None
    """The text inside the tag; null if the reply could not be parsed, see `parse_error`."""
    passages: Items[PassageRef] = Field(default_factory=list)
    """The passages shown in this turn, best first."""
    observation: AbsentIfNone[str] = None
    """What a reader said of them, where the agent is shown that in their place."""
    parse_error: str | None = None
    """Cause."""
    repaired: bool = False
    """Whether the repair turn mended it."""
    query: AbsentIfEmpty[str] = ""
    """Of `flare`: what was searched because tokens inside the tag are below its threshold."""
    drafts: AbsentIfEmpty[int] = 0
    """With --best-of: the replies that were drawn in this state, of which this is one."""
    score: AbsentIfNone[float] = None
    """With --best-of: the critic's raw score; absent if no draft took a step, and so none was scored."""


class CriticUsage(Record):
    """Scores of a critic, and the tokens it read for them."""

    calls: int
    prompt_tokens: int


class AnswerSupport(Record):
    """Sentences of a long answer, and its citations, as a judge finds support for them in what was read.

    supported: sentences that some passage supports. cited: those that cite one of these. citations: names of passages
    in square brackets, of which right_citations support their sentence.
    """

    sentences: int
    supported: int
    cited: int
    citations: int
    right_citations: int


class Prediction(Record):
    """A line of `predictions.jsonl`.

    Scores are null if the question failed (`error`); 0 if there are replies but no answer. Those by gold answers are
    null where there are none.
    """

    schema_version: Literal["reasonrag.predictions/1"] = "reasonrag.predictions/1"
    question_id: str
    question: str
    golden_answers: Items[str]
    type: str | None = None
    """Question type, as named by its data set."""
    hops: int | None = None
    """Number of passages needed for the answer; null if unknown."""
    answer: str | None = None
    """Null if a reply could not be parsed or the question failed."""
    em: float | None = None
    f1: float | None = None
    cover_em: float | None = None
    judged: float | None = None
    """Score of --judge in [0, 1], 0 without an answer; null without a judge or without a readable score."""
    support: AbsentIfNone[AnswerSupport] = None
    """Of a long answer, with --judge."""
    gold_recall: float | None = None
    """Share of the gold passages that were shown; null if the question has none."""
    gold_passages: AbsentIfNone[Items[str]] = None
    """These, by id or else by title."""
    searches: int = 0
    """Queries sent to the retriever."""
    calls: int = 0
    """Completions of the evaluated model and of its reader, repair turns included, without the judge's."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: AbsentIfEmpty[int] = 0
    """Completion tokens that are reasoning."""
    malformed: bool = False
    """Whether a reply could not be parsed, even after its repair turn."""
    steps: Items[PredictedStep] = Field(default_factory=list)
    votes: AbsentIfEmpty[Items[str | None]] = Field(default_factory=list)
    """With --vote: the answers of all attempts, of which `steps` are those of the one that was taken."""
    critic: AbsentIfEmpty[CriticUsage | None] = None
    """With --best-of: what the critic's scores have cost."""
    error: QuestionError | None = None
    """Why the question failed; the same command retries it."""

    def to_line(self) -> bytes:
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_APPEND_NEWLINE)


def read_predictions(path: Path) -> list[Prediction]:
    """All records of a file, or of the run directory that holds it, in question order.

    Raises InputError for a missing file, or naming the first malformed line.
    """
    file = path / PREDICTIONS if path.is_dir() else path
    with reading(file, missing=f"there is no {file}; {WRITTEN_AT_THE_END}"):
        try:
            return list(read_lines(file, Prediction))
        except MalformedCandidatesError as error:
            raise InputError(f"{error}. {REWRITES}") from error
