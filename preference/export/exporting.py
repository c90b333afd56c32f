"""Candidates as files: rows in every format, what LLaMA-Factory needs to know, what was dropped and why, a summary.

Reads `candidates.jsonl` and `questions.jsonl` twice, question by question, so that memory does not grow with the texts:
once to decide, once to write. Every file appears whole or not at all. Knows neither how labels came about nor the
rules by which pairs are chosen.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import orjson
from pydantic import BaseModel

from preference.candidates import Ends, QuestionRecord, StateRecord, is_training_split, question_key, read_lines
from preference.certainty import independent_cases
from preference.export.files import INDENTED, replacing
from preference.export.formats import (
    ACTION_TYPE_NAMES,
    FORMATS,
    FormatName,
    Row,
    SplitName,
    dataset_info,
    proguide_row,
    sft_rows,
)
from preference.export.parquet import ParquetRows
from preference.records import Usage
from preference.selection import DROP_REASONS, Candidate, DropReason, Kept, PairingRules, beyond_shares, lot, select

CANDIDATES, QUESTIONS, DROPPED = "candidates.jsonl", "questions.jsonl", "dropped.jsonl"
DATASET_INFO_FILE, SUMMARY = "dataset_info.json", "summary.json"
VALIDATION_SHARE = 0.05
"""Of the questions that have a pair; ours."""


class GoldAgreement(BaseModel):
    """How often the chosen step of a pair has more gold passages than the rejected one, fewer, or as many."""

    right: int
    wrong: int
    ties: int


class EffectiveSize(BaseModel):
    """How many independent pairs the data set is worth at least, if pairs of one cluster said the same (Kish)."""

    states: int
    questions: int
    by_state: float | None
    """(sum n)**2 / sum n**2 over states with n pairs each; null without pairs."""
    by_question: float | None


class PairSummary(BaseModel):
    """What an export wrote and what it left out; the content of its `summary.json`."""

    out: str = ""
    sources: list[str] = []
    questions: int = 0
    failed_questions: int = 0
    questions_with_a_pair: int = 0
    without_a_pair: dict[str, int] = {}
    """Questions whose tree gave none, by reason: `all_right` and `all_wrong`, where every continuation came to the
    same; `dropped`, where outcomes differed or are not known."""
    states: int = 0
    candidates: int = 0
    pairs: int = 0
    validation_pairs: int = 0
    """Among the pairs, those in the validation files."""
    validation_questions: int = 0
    flipped: int = 0
    pairs_by_label: dict[str, int] = {}
    pairs_by_action_type: dict[str, int] = {}
    pairs_by_layer: dict[str, int] = {}
    pairs_by_tag: dict[str, int] = {}
    mean_confidence: float | None = None
    """Of the pairs that have one: the share that is expected to be right (`preference.confidence`)."""
    mean_margin: float | None = None
    same_type_pairs: int = 0
    effective: EffectiveSize = EffectiveSize(states=0, questions=0, by_state=None, by_question=None)
    gold_agreement: dict[str, GoldAgreement] = {}
    """By action type, queries and evidence; only where gold passages are known."""
    dropped: dict[str, int] = {}
    files: dict[str, int] = {}
    """Rows by file."""
    sha256: dict[str, str] = {}
    """By file, so that a row that was changed afterwards is noticed before it is published."""
    recipes: list[str] = []
    splits: list[str] = []
    teachers: list[str] = []
    renderers: list[str] = []
    """Of the pairs; `unknown` where the rollouts do not say."""
    token_counter: str | None = None
    usage: Usage | None = None
    """What the answers in all trees cost; null where that is not known."""
    rules: dict[str, Any] = {}
    options: dict[str, Any] = {}
    judging: dict[str, Any] = {}
    """What a judge said, and cost, where labels are a judge's."""
    contamination: dict[str, Any] = {}
    versions: dict[str, str] = {}
    warnings: list[str] = []


@dataclass(frozen=True)
class ExportOptions:
    """What is written of the pairs that were chosen.

    formats: beside RAG_ProGuide, which is always written. validation: share of the questions with a pair that go to
    validation files; of several questions one at least, and not all. flip: share of the training pairs whose sides are
    exchanged. seed: of both choices.
    """

    formats: tuple[FormatName, ...] = ("proguide",)
    validation: float = VALIDATION_SHARE
    flip: float = 0.0
    seed: int = 0


class Inspector(Protocol):
    """Someone who sees every row before any file takes its place, and may object."""

    def see(self, row: Row, split: SplitName) -> None: ...

    def conclude(self) -> None:
        """All rows were seen. What this raises keeps the files from being written."""
        ...


class _Unconcerned:
    def see(self, row: Row, split: SplitName) -> None:
        """Nothing to look for."""

    def conclude(self) -> None:
        """Nothing to object to."""


@dataclass(frozen=True)
class Facts:
    """What the summary says that the candidates do not. contaminated: keys of questions that an evaluation split has,
    and that are to be left out."""

    sources: tuple[str, ...] = ()
    judging: dict[str, Any] = field(default_factory=dict)
    token_counter: str | None = None
    contaminated: Collection[str] = frozenset()
    contamination: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)


def export_pairs(
    source: Path,
    out: Path,
    rules: PairingRules,
    options: ExportOptions = ExportOptions(),
    facts: Facts = Facts(),
    *,
    inspector: Inspector | None = None,
) -> PairSummary:
    """Write the rows of `source`, a folder with `candidates.jsonl` and `questions.jsonl`, below `out`.

    Raises OSError if `out` cannot be written, MalformedCandidatesError for a broken line, and what the inspector
    raises; files of an earlier export then stay as they were, because none is replaced before all are written.
    """
    out.mkdir(parents=True, exist_ok=True)
    earlier = _files_of_formats(out)
    plan = _decide(source / CANDIDATES, rules, options, facts)
    tally = _Tally()
    inspector = inspector or _Unconcerned()
    with ExitStack() as files:
        # the last one opened takes its place first, the summary last
        about, info, dropped = (
            files.enter_context(replacing(out / name)) for name in (SUMMARY, DATASET_INFO_FILE, DROPPED)
        )
        writers = _Writers(files, out, options)
        for states in questions_of(read_lines(source / CANDIDATES, StateRecord)):
            chosen = plan.choose(states)
            for each in chosen:
                if each.dropped is not None:
                    dropped.write(_dropped_line(each))
            split = plan.split_of(states[0])
            rows = [_row(each, split, options) for each in chosen if each.dropped is None]
            tally.add(chosen, rows, split)
            for row in rows:
                inspector.see(row, split)
            writers.write_pairs(rows, split)
        for question in read_lines(source / QUESTIONS, QuestionRecord):
            tally.add_question(question)
            if question_key(question.question) not in facts.contaminated:
                writers.write_path(question, plan.split_of(question))
        inspector.conclude()
        written = writers.finish()
        info.write(orjson.dumps(dataset_info(writers.kinds), option=INDENTED))
        summary = tally.summary(rules, options, facts).model_copy(
            update={"out": str(out), "files": written, "sha256": writers.digests}
        )
        about.write(orjson.dumps(summary.model_dump(), option=INDENTED))
    for name in earlier.difference(written):  # they hold other pairs
        (out / name).unlink(missing_ok=True)
    return summary


def _files_of_formats(out: Path) -> set[str]:
    """The files that an earlier export wrote, as its summary says; nothing else below `out` is ours to remove."""
    splits: tuple[SplitName, ...] = ("train", "validation")
    try:
        files = set(orjson.loads((out / SUMMARY).read_bytes())["files"])
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return set()
    return {each.file_name(split) for each in FORMATS.values() for split in splits} & files


def questions_of(states: Iterable[StateRecord]) -> Iterator[list[StateRecord]]:
    """The states question by question; those of a question stand together."""
    for _, group in groupby(states, key=lambda state: question_key(state.question)):
        yield list(group)


def _dropped_line(each: Candidate) -> bytes:
    line = {"pair_id": each.pair.pair_id, "question_id": each.state.question_id, "reason": each.dropped}
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def _row(each: Candidate, split: SplitName, options: ExportOptions) -> Row:
    if split == "train" and lot(f"flip:{each.pair.pair_id}", seed=options.seed) < options.flip:
        turned = replace(each, pair=each.pair.turned(), chosen=each.rejected, rejected=each.chosen)
        return proguide_row(turned, flipped=True)
    return proguide_row(each)


# -- what is decided before anything is written ----------------------------------------------------------------


@dataclass
class _Plan:
    """Which candidates are kept and which questions are for validation. Must be asked in the order of the file."""

    rules: PairingRules
    contaminated: Collection[str]
    beyond: dict[int, DropReason]
    """By position among the pairs that the rules of their question let pass."""
    validation: frozenset[str]
    _position: int = 0

    def choose(self, states: Sequence[StateRecord]) -> list[Candidate]:
        chosen = []
        contaminated = question_key(states[0].question) in self.contaminated
        for each in select(states, self.rules, contaminated=contaminated):
            if each.dropped is None:
                reason = self.beyond.get(self._position)
                self._position += 1
                chosen.append(each if reason is None else replace(each, dropped=reason))
            else:
                chosen.append(each)
        return chosen

    def split_of(self, one: StateRecord | QuestionRecord) -> SplitName:
        return "validation" if question_key(one.question) in self.validation else "train"


def _decide(candidates: Path, rules: PairingRules, options: ExportOptions, facts: Facts) -> _Plan:
    kept, ends, keys = Kept(), [0], []
    for states in questions_of(read_lines(candidates, StateRecord)):
        key = question_key(states[0].question)
        for each in select(states, rules, contaminated=key in facts.contaminated):
            if each.dropped is None:
                kept.add(each)
        if len(kept) > ends[-1]:
            ends.append(len(kept))
            keys.append(key)
    beyond = beyond_shares(kept, rules)
    with_a_pair = [
        key
        for key, first, end in zip(keys, ends, ends[1:], strict=False)
        if any(i not in beyond for i in range(first, end))
    ]
    with_a_pair.sort(key=lambda key: lot(f"validation:{key}", seed=options.seed))
    held_out = max(1, round(options.validation * len(with_a_pair))) if options.validation else 0
    return _Plan(rules, facts.contaminated, beyond, frozenset(with_a_pair[:-1][:held_out]))


# -- files -----------------------------------------------------------------------------------------------------


class _RowFile(Protocol):
    rows: int

    def write(self, row: Row) -> None: ...

    def finish(self) -> None: ...


class _JsonRows:
    """A JSON list with one row a line, or one row a line without the list."""

    def __init__(self, file: BinaryIO, *, listed: bool) -> None:
        self.rows = 0
        self._file = file
        self._listed = listed

    def write(self, row: Row) -> None:
        if self._listed:
            self._file.write((b",\n" if self.rows else b"[\n") + orjson.dumps(row))
        else:
            self._file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
        self.rows += 1

    def finish(self) -> None:
        if self._listed:
            self._file.write(b"\n]\n" if self.rows else b"[]\n")


class _Hashed:
    """A file that is written in one go, and the SHA-256 of what was."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def write(self, content: bytes) -> int:
        self._digest.update(content)
        return self._file.write(content)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)  # whatever else pyarrow asks a file for


class _Apart:
    """A file in which rows of one state stand apart, as far as that can be: each waits until another one was written.

    KTO trainers (LLaMA-Factory and TRL) take the reply of the row before as the one that does not belong to a prompt,
    to estimate how far the policy has moved; a sibling's reply does belong to it.
    """

    def __init__(self, file: _RowFile) -> None:
        self.rows = 0
        self._file = file
        self._waiting: list[Row] = []
        self._last: str | None = None

    def write(self, row: Row) -> None:
        self.rows += 1
        self._waiting.append(row)
        while (another := self._first_of_another_state()) is not None:
            self._waiting.remove(another)
            self._file.write(another)
            self._last = another["state_id"]

    def finish(self) -> None:
        for row in self._waiting:
            self._file.write(row)
        self._waiting.clear()
        self._file.finish()

    def _first_of_another_state(self) -> Row | None:
        return next((row for row in self._waiting if row["state_id"] != self._last), None)


class _Writers:
    """The files of all formats and both parts; those of the validation part only where there is one."""

    def __init__(self, files: ExitStack, out: Path, options: ExportOptions) -> None:
        self._open: dict[tuple[FormatName, SplitName], _RowFile] = {}
        self._hashed: dict[str, _Hashed] = {}
        self._taught: tuple[str, set[tuple[str, str, str]]] = "", set()
        splits: tuple[SplitName, ...] = ("train", "validation") if options.validation else ("train",)
        for name in dict.fromkeys(("proguide", *options.formats)):
            for split in splits:
                path = out / FORMATS[name].file_name(split)
                self._hashed[path.name] = _Hashed(files.enter_context(replacing(path)))
                file = cast("BinaryIO", self._hashed[path.name])
                rows: _RowFile
                if path.suffix == ".parquet":
                    rows = ParquetRows(file)
                    files.callback(rows.close)
                else:
                    rows = _JsonRows(file, listed=path.suffix == ".json")
                self._open[name, split] = _Apart(rows) if name == "kto" else rows

    @property
    def kinds(self) -> list[tuple[FormatName, SplitName]]:
        """Those that have rows: no trainer loads a file without any."""
        return [kind for kind, file in self._open.items() if file.rows]

    def write_pairs(self, rows: Sequence[Row], split: SplitName) -> None:
        for (name, part), file in self._open.items():
            convert = FORMATS[name].convert
            if part == split and convert is not None:
                for row in convert(rows):
                    file.write(row)

    def write_path(self, question: QuestionRecord, split: SplitName) -> None:
        """Steps that the trees of a question, one after the other, have in common are written once."""
        if ("sft", split) not in self._open:
            return
        key = question_key(question.question)
        if key != self._taught[0]:
            self._taught = key, set()
        for row in sft_rows(question):
            step = row["instruction"], row["input"], row["output"]
            if step not in self._taught[1]:
                self._taught[1].add(step)
                self._open["sft", split].write(row)

    def finish(self) -> dict[str, int]:
        for file in self._open.values():
            file.finish()
        return {FORMATS[name].file_name(split): file.rows for (name, split), file in self._open.items()}

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 by file; complete after `finish`."""
        return {name: file.hexdigest() for name, file in self._hashed.items()}


# -- what is counted -------------------------------------------------------------------------------------------


class _Tally:
    """Counts what passes through on its way to the files."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.types: Counter[str] = Counter()
        self.labels: Counter[str] = Counter()
        self.layers: Counter[int] = Counter()
        self.tags: Counter[str] = Counter()
        self.gold: Counter[tuple[str, str]] = Counter()
        self.dropped: Counter[str] = Counter()
        self.ends: dict[str, set[Ends]] = {}
        self.confidence = self.margin = 0.0
        self.squares: Counter[str] = Counter()
        self.with_a_pair: set[str] = set()
        self.failed: set[str] = set()
        self.done: set[str] = set()
        self.usage: Usage | None = Usage(cost_usd=0.0)
        self.seen: dict[str, set[str]] = {"recipes": set(), "splits": set(), "teachers": set(), "renderers": set()}

    def add(self, chosen: Sequence[Candidate], rows: Sequence[Row], split: SplitName) -> None:
        """The candidates of a question, and the rows they became."""
        self.counts["candidates"] += len(chosen)
        self.counts["states"] += len({each.state.state_id for each in chosen})
        by_state: Counter[str] = Counter()
        for each in chosen:
            if each.dropped is not None:
                self.dropped[each.dropped] += 1
                continue
            by_state[each.state.state_id] += 1
            self._count(each)
        self.counts["flipped"] += sum(row["flipped"] for row in rows)
        if rows:
            self.with_a_pair.add(question_key(chosen[0].state.question))
            self.counts["states_with_pairs"] += len(by_state)
            self.squares["state"] += sum(n * n for n in by_state.values())
            self.squares["question"] += len(rows) ** 2
        if split == "validation":
            self.counts["validation_pairs"] += len(rows)
            self.counts["validation_questions"] += 1

    def _count(self, each: Candidate) -> None:
        self.counts["pairs"] += 1
        self.counts["same_type_pairs"] += each.pair.same_type
        self.labels[str(each.pair.label)] += 1
        action_type = ACTION_TYPE_NAMES[each.chosen.action_type]
        self.types[action_type] += 1
        self.gold[action_type, each.gold] += 1
        self.layers[each.layer] += 1
        if each.confidence is not None:
            self.counts["sure_of"] += 1
            self.confidence += each.confidence
        if each.pair.margin is not None:
            self.counts["with_margin"] += 1
            self.margin += each.pair.margin
        self.tags.update(each.tags)
        self.seen["renderers"].add(each.state.origin.renderer or "unknown")

    def add_question(self, question: QuestionRecord) -> None:
        key, origin = question_key(question.question), question.origin
        if question.usage is None:
            self.usage = None
        elif self.usage is not None:
            self.usage += question.usage
        if question.error is not None:
            self.failed.add(key)
            return
        self.seen["splits"].add(f"{origin.dataset}/{origin.split}")
        self.seen["recipes"].add(origin.recipe or "unknown")
        self.seen["teachers"].add(origin.teacher or "unknown")
        self.done.add(key)
        self.ends.setdefault(key, set()).add(question.ends)

    def summary(self, rules: PairingRules, options: ExportOptions, facts: Facts) -> PairSummary:
        counts, failed = self.counts, self.failed - self.done
        return PairSummary(
            sources=list(facts.sources),
            questions=len(self.done | self.failed),
            failed_questions=len(failed),
            questions_with_a_pair=len(self.with_a_pair),
            without_a_pair=self._without_a_pair(),
            states=counts["states"],
            candidates=counts["candidates"],
            pairs=counts["pairs"],
            validation_pairs=counts["validation_pairs"],
            validation_questions=counts["validation_questions"],
            flipped=counts["flipped"],
            same_type_pairs=counts["same_type_pairs"],
            pairs_by_label=dict(sorted(self.labels.items())),
            pairs_by_action_type=dict(sorted(self.types.items())),
            pairs_by_layer={str(layer): count for layer, count in sorted(self.layers.items())},
            pairs_by_tag=dict(sorted(self.tags.items())),
            mean_confidence=self.confidence / counts["sure_of"] if counts["sure_of"] else None,
            mean_margin=self.margin / counts["with_margin"] if counts["with_margin"] else None,
            effective=self._effective(),
            gold_agreement=self._gold_agreement(),
            dropped={reason: self.dropped[reason] for reason in DROP_REASONS},
            **{name: sorted(values) for name, values in self.seen.items()},
            token_counter=facts.token_counter,
            usage=self.usage,
            rules=asdict(rules),
            options=asdict(options),
            judging=facts.judging,
            contamination=facts.contamination,
            versions=facts.versions,
            warnings=[*self._warnings(options), *facts.warnings],
        )

    def _without_a_pair(self) -> dict[str, int]:
        """Why questions gave none; of one that several runs explored, what all its trees came to."""
        why: Counter[str] = Counter()
        for key in self.ends.keys() - self.with_a_pair:
            [end, *others] = self.ends[key]
            why[end if not others and end in ("all_right", "all_wrong") else "dropped"] += 1
        return dict(sorted(why.items()))

    def _effective(self) -> EffectiveSize:
        pairs = self.counts["pairs"]
        return EffectiveSize(
            states=self.counts["states_with_pairs"],
            questions=len(self.with_a_pair),
            by_state=independent_cases(pairs, self.squares["state"]),
            by_question=independent_cases(pairs, self.squares["question"]),
        )

    def _gold_agreement(self) -> dict[str, GoldAgreement]:
        checked = sorted({action_type for action_type, verdict in self.gold if verdict != "unknown"})
        return {
            each: GoldAgreement(
                right=self.gold[each, "right"], wrong=self.gold[each, "wrong"], ties=self.gold[each, "tie"]
            )
            for each in checked
        }

    def _warnings(self, options: ExportOptions) -> list[str]:
        found = [
            f"made of {each} questions: keep these pairs out of training, or never evaluate on that split"
            for each in sorted(self.seen["splits"])
            if not is_training_split(each)
        ]
        if self.counts["pairs"] and options.validation and not self.counts["validation_pairs"]:
            found.append(
                "all pairs are of one question, so there is none for validation: a training has to do without "
                "eval_dataset and its other settings of evaluation"
            )
        if not self.counts["pairs"]:
            found.append("no pair was made: see what the candidates were dropped for, or explore more questions")
        return found
