"""Candidates as files: rows in every format, LLaMA-Factory's `dataset_info.json`, dropped candidates, a summary.

Reads `candidates.jsonl` and `questions.jsonl` twice, question by question, so that memory does not grow with the texts:
once to decide, once to write. Knows neither how labels are made nor how pairs are filtered.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Literal, Protocol, TypeAlias

import orjson

from preference.best_path import Refinement
from preference.candidate_records import QuestionRecord, StateRecord, parse_line, question_key, read_lines
from preference.export.formats import (
    FORMATS,
    PAIRS,
    PAIRS_FILE,
    SPLITS,
    TURNS_FILE,
    FormatName,
    JsonRows,
    Row,
    SpacedByState,
    SplitName,
    dataset_info,
    proguide_row,
    rl_rows,
    sft_rows,
)
from preference.export.private_files import INDENTED, atomic_replacement
from preference.export.summary import (
    CANDIDATES,
    DATASET_INFO_FILE,
    DROPPED,
    HELD_OUT,
    QUESTIONS,
    SUMMARY,
    ExportOptions,
    ExportTally,
    PairSummary,
)
from preference.filters import Candidate, DropReason, PairingRules, PassedPair, candidates_of, dropped_by_caps, select
from preference.stratified_sample import seeded_uniform

_TWO_TURNS = len(("system", "user"))
_MANY_TURNS = f"prompts have many turns, which {PAIRS_FILE}'s columns cannot hold: see history in {TURNS_FILE}"


LeftOut: TypeAlias = Mapping[str, Literal["contaminated", "held_out"]]
"""Keys of questions without rows, and why: an evaluation split has them, or a source keeps them for reinforcement."""
_NewFile: TypeAlias = Callable[[str], BinaryIO]


class ConversationMaker(Protocol):
    """Makes the rows of formats whose searches are calls of a tool. left_out: how many pairs, paths and attempts have
    none, as what stands before them cannot be told."""

    @property
    def left_out(self) -> int: ...
    def of_pairs(
        self, asked: Iterable[QuestionRecord], kept: Iterable[tuple[StateRecord, Row]]
    ) -> Iterable[tuple[FormatName, Row]]:
        """asked: the records of a question. kept: its states with a pair, and the row of it."""

    def of_question(self, question: QuestionRecord) -> Iterable[tuple[FormatName, Row]]: ...


def export_pairs(
    source: Path,
    folder: Path,
    rules: PairingRules,
    options: ExportOptions = ExportOptions(),
    *,
    facts: PairSummary | None = None,
    left_out: LeftOut = MappingProxyType({}),
    inspect: Callable[[Row, str, SplitName], object] = lambda *_: None,
    conversations: ConversationMaker | None = None,
) -> PairSummary:
    """Write the rows of `source`, a folder with `candidates.jsonl` and `questions.jsonl`, into a folder without an
    earlier export. facts: what the candidates do not tell. inspect: is shown every row of pairs, and its file.
    conversations: makes the rows of formats that need one.

    Raises OSError, MalformedCandidatesError for a broken line, and what `inspect` raises; no file is written then.
    """
    refined = _refinement((each for each, why in _questions(source, options, left_out) if why is None), options)
    reasons, for_validation, turns = _decide(source, rules, options, left_out, refined)
    told = {"rules": rules.flags, "options": asdict(options)}
    tally = ExportTally((facts or PairSummary(out=str(folder))).model_copy(update=told, deep=True))
    tally.found.warnings += [_MANY_TURNS] * turns

    def split_of(one: StateRecord | QuestionRecord) -> SplitName:
        return "validation" if question_key(one.question) in for_validation else "train"

    with ExitStack() as files:

        def new(name: str) -> BinaryIO:
            return files.enter_context(atomic_replacement(folder / name))

        about, info, dropped = map(new, (SUMMARY, DATASET_INFO_FILE, DROPPED))
        writers = _Writers(new, options, conversations, turns=turns)
        if options.hold_out > 0 or "held_out" in left_out.values():
            writers.named[HELD_OUT] = JsonRows(new(HELD_OUT), listed=False)
        records = _Records(source / QUESTIONS)
        for states in questions_of(read_lines(source / CANDIDATES, StateRecord)):
            found = (each for state in states for each in candidates_of(state, as_published=rules.as_published))
            chosen = [replace(each, dropped=next(reasons)) for each in found]
            dropped.writelines(_dropped_line(each) for each in chosen if each.dropped is not None)
            split = split_of(states[0])
            kept = [each for each in chosen if each.dropped is None]
            rows = [_row(each, split, options, turns=turns) for each in kept]
            tally.add(chosen, rows, split)
            for row in rows:
                inspect(row, FORMATS[PAIRS[turns]].file_name(split), split)
            writers.write_pairs(records, kept, rows, split)
        for question, why in _questions(source, options, left_out):
            tally.add_question(question)
            if why == "held_out":
                writers.hold_out(question)
            elif why is None:
                tally.add_plain_steps(question)
                writers.write_steps(question, refined, split_of(question))
        made = {"refinement": refined.model_dump() if refined else {}} | writers.finish()
        tally.found.warnings += _left_behind(refined, conversations)
        info.write(orjson.dumps(dataset_info(writers.kinds, turns=turns), option=INDENTED))
        summary = tally.summary(options, **made)
        about.write(orjson.dumps(summary.model_dump(), option=INDENTED))
    return summary


def _left_behind(refined: Refinement | None, conversations: ConversationMaker | None) -> Iterator[str]:
    if conversations and conversations.left_out:
        yield (
            f"{conversations.left_out:,} pairs, paths or attempts have no row as conversations: what an earlier search "
            "found is in none of their question's prompts. A few are usual; of a run itself they are fewest"
        )
    if refined and refined.steps and not refined.kept:
        none = f"the critics left none of the {refined.refine}: none scores {refined.threshold:g} or more throughout"
        yield f"{none}; --refine steps --critic-share keeps the best"


def _dropped_line(each: Candidate) -> bytes:
    line = {"pair_id": each.pair.pair_id, "question_id": each.state.question_id, "reason": each.dropped}
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def _why_left_out(key: str, options: ExportOptions, left_out: LeftOut) -> DropReason | None:
    """Why no row is made of a question."""
    drawn = seeded_uniform(f"hold-out:{key}", seed=options.seed) < options.hold_out
    return left_out.get(key, "held_out" if drawn else None)


def _questions(
    source: Path, options: ExportOptions, left_out: LeftOut
) -> Iterator[tuple[QuestionRecord, DropReason | None]]:
    for each in read_lines(source / QUESTIONS, QuestionRecord):
        yield each, _why_left_out(question_key(each.question), options, left_out)


def _refinement(questions: Iterable[QuestionRecord], options: ExportOptions) -> Refinement | None:
    """What critics leave of the questions that rows are made of; None where they are not asked."""
    if options.critic_share is not None:
        return Refinement.of_share(options.critic_share, questions)
    threshold = options.critic_threshold
    return None if threshold is None else Refinement(refine=options.refine, threshold=threshold)


def questions_of(states: Iterable[StateRecord]) -> Iterator[list[StateRecord]]:
    """The states grouped by question; they are stored that way."""
    return (list(group) for _, group in groupby(states, key=lambda state: question_key(state.question)))


def _row(each: Candidate, split: SplitName, options: ExportOptions, *, turns: bool) -> Row:
    if split == "train" and seeded_uniform(f"flip:{each.pair.pair_id}", seed=options.seed) < options.flip:
        swapped = replace(each, pair=each.pair.swapped(), chosen=each.rejected, rejected=each.chosen)
        return proguide_row(swapped, flipped=True, turns=turns)
    return proguide_row(each, turns=turns)


# -- decisions, before anything is written ----------------------------------------------------------------


def _decide(
    source: Path, rules: PairingRules, options: ExportOptions, left_out: LeftOut, refined: Refinement | None
) -> tuple[Iterator[DropReason | None], frozenset[str], bool]:
    """Why each candidate is dropped (None: kept), in file order; the keys of the questions for validation, of those
    that critics leave a step of, else with a pair, or if none has one, with a path; and whether some prompt has many
    turns."""
    reasons: list[DropReason | None] = []
    turns = False
    passed = list[PassedPair]()
    places = list[tuple[int, str]]()
    """Of the passed ones: the place among all candidates, and the question's key."""
    for states in questions_of(read_lines(source / CANDIDATES, StateRecord)):
        key = question_key(states[0].question)
        turns = turns or any(len(each.prompt) > _TWO_TURNS for each in states)
        for each in select(states, rules, left_out=_why_left_out(key, options, left_out)):
            if each.dropped is None:
                passed.append(PassedPair.of(each))
                places.append((len(reasons), key))
            reasons.append(each.dropped)
    for number, reason in dropped_by_caps(passed, rules).items():
        reasons[places[number][0]] = reason
    rows = Counter(key for place, key in places if reasons[place] is None)
    if refined or (not rows and {"sft", "rl"} & {*options.formats}):
        rows, kept = Counter[str](), refined and refined.model_copy(deep=True)
        for asked in (each for each, why in _questions(source, options, left_out) if why is None):
            steps = kept.steps_of(asked) if kept else [*(asked.path or ()), *asked.plain_steps]
            rows[question_key(asked.question)] += len(steps)
            turns = turns or any(len(each.prompt) > _TWO_TURNS for each in steps)
        rows = +rows  # without those of no step
    return iter(reasons), validation_questions(rows, share=options.validation, seed=options.seed), turns


def validation_questions(rows: Mapping[str, int], *, share: float, seed: int) -> frozenset[str]:
    """The validation questions of those with so many rows: the share that is asked for, at least one, drawn by seed.
    All rows of a question are in one split.

    A question is passed over that would make validation larger than training, or than its share where that is above
    one half: of a small set, one question may have most rows.
    """
    if not share:
        return frozenset()
    wanted, total = max(1, round(share * len(rows))), sum(rows.values())
    room = min(max(share, 0.5) * total, total - 1)
    chosen = set[str]()
    for key in sorted(rows, key=lambda key: seeded_uniform(f"validation:{key}", seed=seed)):
        if len(chosen) < wanted and rows[key] <= room:
            chosen.add(key)
            room -= rows[key]
    return frozenset(chosen)


# -- files -----------------------------------------------------------------------------------------------------


class _Records:
    """The records of questions, read when they are asked for: failed ones may stand in another order than states."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @cached_property
    def _places(self) -> Mapping[str, Sequence[int]]:
        found, place = defaultdict[str, list[int]](list), 0
        with self._file.open("rb") as lines:
            for line in lines:
                found[question_key(parse_line(line, QuestionRecord, where=str(self._file)).question)].append(place)
                place += len(line)
        return found

    def of(self, question: str) -> Iterator[QuestionRecord]:
        with self._file.open("rb") as lines:
            for place in self._places[question_key(question)]:
                lines.seek(place)
                yield parse_line(lines.readline(), QuestionRecord, where=str(self._file))


class _Writers:
    """The files of all formats and splits; validation files only if there is a validation split. new: opens a file."""

    def __init__(
        self, new: _NewFile, options: ExportOptions, conversations: ConversationMaker | None, *, turns: bool
    ) -> None:
        self._turns, self._conversations = turns, conversations
        self._written = set[int]()
        """Hashes of what is written once: steps of paths, and questions that are held out."""
        self.named: dict[str, JsonRows] = {}
        self._open: dict[tuple[FormatName, SplitName], JsonRows] = {}
        for name in dict.fromkeys((PAIRS[turns], *(each for each in options.formats if each not in PAIRS))):
            for split in SPLITS if options.validation else SPLITS[:1]:
                file = FORMATS[name].file_name(split)
                kind = SpacedByState if name == "kto" else JsonRows
                self._open[name, split] = self.named[file] = kind(new(file), listed=file.endswith(".json"))

    @property
    def kinds(self) -> list[tuple[FormatName, SplitName]]:
        """Formats and splits with rows: trainers cannot load empty files."""
        return [kind for kind, file in self._open.items() if file.rows]

    def write_pairs(self, records: _Records, kept: Sequence[Candidate], rows: Sequence[Row], split: SplitName) -> None:
        """And their conversations. records: of all questions. kept: what the rows are made of."""
        for (name, part), file in self._open.items():
            convert = FORMATS[name].convert
            if part == split and convert is not None:
                for row in convert(rows):
                    file.write(row)
        if self._conversations and kept:
            shown = zip((each.state for each in kept), rows, strict=True)
            self._write_named(self._conversations.of_pairs(records.of(kept[0].state.question), shown), split)

    def write_steps(self, question: QuestionRecord, refined: Refinement | None, split: SplitName) -> None:
        """Of its path, as far as critics leave it, and the plain ones; and its conversations."""
        steps = refined.steps_of(question) if refined else question.path or ()
        left = question.model_copy(update={"path": steps})
        if self._conversations:
            whole = question if refined and refined.refine == "steps" else left
            self._write_named(self._conversations.of_question(whole), split)
        if file := self._open.get(("rl", split)):
            for row in rl_rows(question):
                file.write(row)
        if file := self._open.get(("sft", split)):
            for row in sft_rows(left, turns=self._turns):
                self._once(file, row, row["instruction"], str(row.get("history")) + row["input"], row["output"])

    def _write_named(self, rows: Iterable[tuple[FormatName, Row]], split: SplitName) -> None:
        for name, row in rows:
            if file := self._open.get((name, split)):
                self._once(file, row, name, str(row))

    def hold_out(self, question: QuestionRecord) -> None:
        key, name = question_key(question.question), question.question_id
        taken = hash((name,)) in self._written  # by a question of another data set
        asked = {"question": question.question, "golden_answers": question.golden_answers}
        self._once(self.named[HELD_OUT], {"id": f"{name}-{key}" if taken else name, **asked}, key)
        self._written.add(hash((name,)))

    def _once(self, file: JsonRows, row: Row, *what: str) -> None:
        if (known := hash(what)) not in self._written:
            self._written.add(known)
            file.write(row)

    def finish(self) -> dict[str, Any]:
        """What the summary says of the files."""
        for file in self.named.values():
            file.finish()
        rows = {name: file.rows for name, file in self.named.items()}
        return {"files": rows, "sha256": {name: file.digest.hexdigest() for name, file in self.named.items()}}
