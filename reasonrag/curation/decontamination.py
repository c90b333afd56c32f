"""Which questions of a data set stand in an evaluation split, and which are therefore left out.

Decides what is dropped (`decontaminate`) and what is reported of it. `question_matching` decides when two questions are
the same, `data.eval_splits` which splits they are compared with. The questions of the data set are held,
some 4 KB each, and the evaluation splits stream past them. `publish`, training and evaluation ask
`find_contaminated`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
from pydantic import BaseModel

from preference.candidate_records import Origin, QuestionRecord, is_training_split, question_key, read_lines
from preference.export.private_files import atomic_replacement
from preference.export.summary import QUESTIONS
from reasonrag.curation.question_matching import RULES, QuestionIndex, Rule
from reasonrag.data.eval_splits import ALL, EvalSplit, EvalSplits, Unchecked
from reasonrag.errors import InputError, choices
from reasonrag.rendering import counted

CONTAMINATION = "contamination.jsonl"


class EvalMatch(BaseModel):
    """The question of one evaluation split that is most similar to a question of the data set."""

    rule: Rule
    eval: str
    """The evaluation split, as dataset/split."""
    eval_id: str
    similarity: float
    """1 for rule `question`; else the Jaccard index of word stems, in [0, 1]."""
    own_split: bool
    """Whether the question was drawn from this split."""


class ContaminatedQuestion(BaseModel):
    """A question of the data set with its matches, at most one per split: a line of contamination.jsonl."""

    question_id: str
    dataset: str
    split: str
    question_key: str
    dropped: bool = False
    """Whether its candidates are left out: it stands in a split that is not its own and not allowed."""
    matches: list[EvalMatch]


def find_contaminated(data_set: Path, splits: Iterable[EvalSplit]) -> list[ContaminatedQuestion]:
    """The questions of a data set that stand in evaluation splits, in order; none is dropped here.

    data_set: a folder with questions.jsonl, which is not read if there are no splits. Raises InputError for a split
        that cannot be read, MalformedCandidatesError for a bad line of the data set, OSError if the data set is
        missing.
    """
    every = list(splits)
    held, asked = QuestionIndex(), list[tuple[str, str, Origin]]()
    for record in read_lines(data_set / QUESTIONS, QuestionRecord) if every else ():
        asked.append((record.question_id, question_key(record.question), record.origin))
        held.add(record.question, record.golden_answers)
    found = defaultdict[int, dict[str, EvalMatch]](dict)
    for split in every:
        for other in split.read():
            for number, (rule, similarity) in held.same_as(other.question, other.answers).items():
                match = EvalMatch(
                    rule=rule,
                    eval=split.name,
                    eval_id=other.id,
                    similarity=round(similarity, 4),
                    own_split=_is_drawn_from(asked[number][2], split),
                )
                found[number][split.name] = min(found[number].get(split.name, match), match, key=_closest_first)
    told: dict[tuple[str, ...], ContaminatedQuestion] = {}  # several runs may have asked it
    for number, by_split in sorted(found.items()):
        name, key, origin = asked[number]
        known = {"question_id": name, "dataset": origin.dataset, "split": origin.split, "question_key": key}
        matches = [match for _, match in sorted(by_split.items())]
        told.setdefault(tuple(known.values()), ContaminatedQuestion(**known, matches=matches))
    return list(told.values())


def _is_drawn_from(origin: Origin, split: EvalSplit) -> bool:
    """By name, or because the files are the same."""
    named = split.name == f"{origin.dataset}/{origin.split}" and not is_training_split(origin.split)
    return named or origin.revision == split.sha256


def _closest_first(match: EvalMatch) -> tuple[bool, int, float, str]:
    return match.own_split, RULES.index(match.rule), -match.similarity, match.eval_id


class ContaminationSummary(BaseModel):
    """What was compared, and the result: `contamination` in the summary of `pairs`. All counts are questions."""

    checked: list[EvalSplit] = []
    unchecked: list[Unchecked] = []
    """Known splits that were not compared."""
    questions: int = 0
    """Questions that stand in a split other than their own."""
    matched_by_split: dict[str, int] = {}
    """These questions by split; one that stands in two splits counts in both."""
    own_split: dict[str, int] = {}
    """Questions drawn from an evaluation split and found in it; not dropped for that."""
    allowed: list[str] = []
    """Splits named by --allow-eval."""
    kept: int = 0
    """Questions that stand only in allowed splits."""
    dropped: int = 0
    """Questions whose candidates are left out as `contaminated`."""


@dataclass(frozen=True)
class Decontamination:
    """The result of decontamination. contaminated: keys of the questions to drop."""

    summary: ContaminationSummary
    flagged: list[ContaminatedQuestion]
    warnings: list[str]

    @property
    def contaminated(self) -> frozenset[str]:
        return frozenset(each.question_key for each in self.flagged if each.dropped)

    def write(self, out: Path) -> None:
        """Write `contamination.jsonl` below `out`; empty if nothing was found. Raises OSError."""
        with atomic_replacement(out / CONTAMINATION) as file:
            file.writelines(orjson.dumps(each.model_dump(), option=orjson.OPT_APPEND_NEWLINE) for each in self.flagged)


def decontaminate(data_set: Path, splits: EvalSplits, *, allowed: Sequence[str] = ()) -> Decontamination:
    """Compare a data set with evaluation splits and decide which questions are left out.

    allowed: names of splits whose questions are kept, or ALL. Raises InputError for an unknown name, and what
    `find_contaminated` raises.
    """
    splits.found.sort(key=lambda each: (each.name, each.sha256))
    splits.missing.sort(key=lambda each: (each.name, each.path))
    _check_names(allowed, splits, data_set)
    flagged = find_contaminated(data_set, splits.found)
    for each in flagged:
        others = {match.eval for match in each.matches if not match.own_split}
        each.dropped = ALL not in allowed and not others <= {*allowed}
    summary = _summary(flagged, splits, allowed)
    return Decontamination(summary, flagged, list(_warnings(summary, flagged)))


def _check_names(allowed: Sequence[str], splits: EvalSplits, data_set: Path) -> None:
    if not set(allowed) - {ALL}:
        return
    origins = {(each.origin.dataset, each.origin.split) for each in read_lines(data_set / QUESTIONS, QuestionRecord)}
    own = {"/".join(each) for each in origins if not is_training_split(each[1])}
    known = {each.name for each in splits.found} | {each.name for each in splits.missing} | own | {ALL}
    if unknown := [name for name in allowed if name not in known]:
        raise InputError(f"--allow-eval {unknown[0]}: no such split was checked; {choices(unknown[0], known)}")


def _summary(
    flagged: Sequence[ContaminatedQuestion], splits: EvalSplits, allowed: Sequence[str]
) -> ContaminationSummary:
    by_split, own = (defaultdict[str, set[str]](set) for _ in range(2))
    for each in flagged:
        for match in each.matches:
            (own if match.own_split else by_split)[match.eval].add(each.question_key)
    found = set[str]().union(*by_split.values())
    dropped = {each.question_key for each in flagged if each.dropped}
    return ContaminationSummary(
        checked=splits.found,
        unchecked=splits.missing,
        questions=len(found),
        matched_by_split={name: len(keys) for name, keys in sorted(by_split.items())},
        own_split={name: len(keys) for name, keys in sorted(own.items())},
        allowed=sorted(set(allowed)),
        kept=len(found - dropped),
        dropped=len(dropped),
    )


def _warnings(summary: ContaminationSummary, flagged: Sequence[ContaminatedQuestion]) -> Iterator[str]:
    if not summary.checked:
        yield (
            "no evaluation split was available, so overlap with evaluation sets is unknown: give --eval FILE, a "
            "folder with <dataset>/<split>.jsonl, or hub"
        )
    for each in summary.unchecked:
        yield f"not checked against {each.name}: {each.reason}. Give --eval FILE if you have it elsewhere"
    by_name = {f"{each.dataset}/{each.split}" for each in flagged}  # the summary already warns about these
    for name, count in summary.own_split.items():
        if name not in by_name:
            yield f"{counted(count, 'question')} from {name} itself: train on none of them, or never evaluate on it"
    if summary.dropped:
        where = ", ".join(f"{name} {count}" for name, count in summary.matched_by_split.items())
        yield (
            f"removed {counted(summary.dropped, 'question')} found in evaluation splits ({where}); see "
            f"{CONTAMINATION}. --allow-eval NAME keeps those of a split that you will never evaluate on"
        )
    if summary.kept:
        yield (
            f"kept {counted(summary.kept, 'question')} found in evaluation splits, because of --allow-eval "
            f"{', '.join(summary.allowed)}; never evaluate on these"
        )
