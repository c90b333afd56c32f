"""Blind human review of pairs: the sample to show, what a judgement is, and agreement with the labels.

Decides what of a row is shown and what identifies a pair, which sample is drawn, and the statistics. Knows no file but
the data set's; published RAG_ProGuide rows with ten fields are enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from preference.export.formats import ACTION_TYPE_NAMES, pairs_files
from preference.export.json_stream import read_items
from preference.records import shared_fields, short_digest
from preference.statistics import (
    LABEL_LEVEL,
    Bin,
    CheckedPair,
    Share,
    SignAgreement,
    reliability,
    share_of,
    sign_agreement,
)
from preference.stratified_sample import seeded_uniform, stratified_sample

Verdict = Literal["a", "b", "tie", "skip"]
"""Which side is better. tie: both are equally good. skip: the reviewer cannot say."""

_TYPES = frozenset(ACTION_TYPE_NAMES.values())
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class ReviewPair:
    """A pair to show; None where the data set lacks a field.

    pair: identifies it by its prompt and two replies, independent of the label. row: from 1, in `file`. action_type: of
    the chosen step.
    """

    pair: str
    pair_id: str | None
    file: str
    row: int
    action_type: str
    confidence: float | None
    flipped: bool
    user: str
    chosen: str
    rejected: str

    def exchanged(self, seed: int) -> bool:
        """Whether the reply that sorts last is shown as A: a fair coin of the seed and the pair, whatever the label."""
        return seeded_uniform(f"side:{self.pair}", seed=seed) < 0.5  # noqa: PLR2004 - a fair coin

    def sides(self, *, exchanged: bool) -> tuple[str, str]:
        """The replies as A and B."""
        first, second = sorted((self.chosen, self.rejected), reverse=exchanged)
        return first, second


def read_pairs(directory: Path) -> Iterator[ReviewPair]:
    """Every pair once; of rows with one prompt and the same replies the first. Raises MalformedFileError, OSError."""
    seen: set[str] = set()
    for path in pairs_files(directory).values():
        for item in read_items(path):
            pair = _pair_of(item.value, path.name, item.number)
            if pair is not None and pair.pair not in seen:
                seen.add(pair.pair)
                yield pair


def _pair_of(row: Any, file: str, number: int) -> ReviewPair | None:
    """The pair of a row, whose other fields may be anything; None without a prompt and two different replies."""
    if not isinstance(row, dict):
        return None
    texts = {name: value for name, value in row.items() if isinstance(value, str)}
    chosen, rejected = texts.get("chosen"), texts.get("rejected")
    system, user = texts.get("instruction", ""), texts.get("input")
    if row.get("history"):  # then all turns, with their roles
        user = texts.get("prompt", "").removeprefix(f"System: {system}\n")
    if chosen is None or rejected is None or chosen == rejected or not user:
        return None
    confidence: Any = row.get("confidence")
    pair_id, action_type = texts.get("pair_id"), texts.get("chosen_action_type")
    return ReviewPair(
        pair=digest(system, user, *sorted((chosen, rejected))),
        pair_id=pair_id if pair_id and len(pair_id) <= _LONGEST_NAME and pair_id.isprintable() else None,
        file=file,
        row=number,
        action_type=action_type if action_type in _TYPES else ACTION_TYPE_NAMES[None],
        confidence=float(confidence) if type(confidence) in (int, float) and 0 <= confidence <= 1 else None,
        flipped=row.get("flipped") is True,
        user=user,
        chosen=chosen,
        rejected=rejected,
    )


def digest(*texts: str) -> str:
    """16 hexadecimal digits. The texts may hold lone surrogates."""
    contents = [text.encode("utf-8", "surrogatepass") for text in texts]
    return short_digest(b"".join(len(each).to_bytes(8) + each for each in contents))


def sample_pairs(directory: Path, size: int, *, seed: int) -> tuple[list[ReviewPair], int]:
    """`size` pairs, or all, in display order, and how many the data set has.

    Stratified by the chosen step's action type; each prefix is the sample of its size. Reads the
    data set twice, to hold only the sample's texts. Raises MalformedFileError, OSError.
    """
    members = [(pair.action_type, pair.pair) for pair in read_pairs(directory)]
    place = {key: number for number, key in enumerate(stratified_sample(members, size, seed=seed))}
    held = [pair for pair in read_pairs(directory) if pair.pair in place]
    return sorted(held, key=lambda pair: place[pair.pair]), len(members)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a person said of a pair. pair: `ReviewPair.pair`. exchanged: whether A was the reply that sorts last, which
    tells what was judged, not what the label was. place: where it is written, for messages."""

    pair: str
    exchanged: bool
    verdict: Verdict
    note: str = ""
    place: str = ""


class Disagreement(BaseModel):
    """A pair whose rejected side the reviewer prefers, or of which two say something else, and its location; see
    `ReviewPair`."""

    pair: str
    pair_id: str | None
    file: str
    row: int
    action_type: str
    confidence: float | None
    note: str = ""


class ReviewerReport(BaseModel):
    """Agreement of one reviewer with the labels. Skipped pairs and labels exchanged on purpose (`pairs --flip`) count
    in none of it."""

    reviewer: str
    judged: int
    """Verdicts and ties on pairs of the data set."""
    ties: int
    skipped: int
    agreement: SignAgreement
    """With the label."""
    by_action_type: dict[str, SignAgreement]
    """By the chosen step's type."""
    by_confidence: list[Bin]
    """Pairs whose label has a confidence."""
    disagreements: list[Disagreement]


class ReviewersAgreement(BaseModel):
    """Agreement of two reviewers on the pairs both judged, ties included."""

    one: str
    other: str
    alike: Share
    disagreements: list[Disagreement]


class ReviewReport(BaseModel):
    """The object of `review --json`."""

    schema_version: Literal["reasonrag.review_report/1"] = "reasonrag.review_report/1"
    directory: str
    level: float = LABEL_LEVEL
    """Level of all intervals."""
    pairs: int
    """Distinct pairs in the data set."""
    reviewers: list[ReviewerReport]
    between: list[ReviewersAgreement]


def report_of(
    directory: str, said: Mapping[str, Mapping[str, Judgement]], judged: Mapping[str, ReviewPair], *, pairs: int
) -> ReviewReport:
    """The review report. said: by person and pair. judged: all these pairs. pairs: number in the data set."""
    return ReviewReport(
        directory=directory,
        pairs=pairs,
        reviewers=[_reviewer_report(reviewer, each, judged) for reviewer, each in sorted(said.items())],
        between=[_between(one, other, said, judged) for one, other in combinations(sorted(said), 2)],
    )


def _reviewer_report(reviewer: str, said: Mapping[str, Judgement], pairs: Mapping[str, ReviewPair]) -> ReviewerReport:
    judged = [(pairs[key], each) for key, each in said.items() if each.verdict != "skip"]
    as_labelled = [(pair, each.note, _checked(pair, each)) for pair, each in judged if not pair.flipped]
    types = sorted({pair.action_type for pair, *_ in as_labelled})
    return ReviewerReport(
        reviewer=reviewer,
        judged=len(judged),
        ties=sum(each.verdict == "tie" for _, each in judged),
        skipped=len(said) - len(judged),
        agreement=sign_agreement(each for *_, each in as_labelled),
        by_action_type={
            name: sign_agreement(each for pair, _, each in as_labelled if pair.action_type == name) for name in types
        },
        by_confidence=reliability([each for *_, each in as_labelled]),
        disagreements=[
            Disagreement(**shared_fields(pair, Disagreement), note=note)
            for pair, note, each in as_labelled
            if not (each.tied or each.confirmed)
        ],
    )


def _checked(pair: ReviewPair, said: Judgement) -> CheckedPair:
    last = _prefers_last(said)
    return CheckedPair(last is None, last == (pair.chosen > pair.rejected), pair.confidence)


def _between(
    one: str, other: str, said: Mapping[str, Mapping[str, Judgement]], pairs: Mapping[str, ReviewPair]
) -> ReviewersAgreement:
    """Compared by the replies: one may have seen the sides the other way round."""
    both = {key: (said[one][key], said[other][key]) for key in said[one] if key in said[other]}
    judged = {key: each for key, each in both.items() if "skip" not in (each[0].verdict, each[1].verdict)}
    unlike = [pairs[key] for key, (here, there) in judged.items() if _prefers_last(here) != _prefers_last(there)]
    return ReviewersAgreement(
        one=one,
        other=other,
        alike=share_of(len(judged) - len(unlike), len(judged)),
        disagreements=[Disagreement(**shared_fields(pair, Disagreement)) for pair in unlike],
    )


def _prefers_last(judgement: Judgement) -> bool | None:
    """Whether the better reply is the one that sorts last; None for a tie."""
    return None if judgement.verdict == "tie" else (judgement.verdict == "a") == judgement.exchanged
