"""The summary of an export: file names, options, facts and counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel

from preference.candidate_records import MalformedCandidatesError, QuestionRecord, is_training_split, question_key
from preference.export.formats import ACTION_TYPE_NAMES, FORMATS, FormatName, Row, SplitName
from preference.filters import DROP_REASONS, Candidate
from preference.records import Usage
from preference.statistics import effective_sample_size

CANDIDATES, QUESTIONS, DROPPED = "candidates.jsonl", "questions.jsonl", "dropped.jsonl"
HELD_OUT = "held_out.jsonl"
"""A question file of those that are kept for reinforcement; nothing is trained on them here."""
DATASET_INFO_FILE, SUMMARY = "dataset_info.json", "summary.json"
VALIDATION_SHARE = 0.05
"""Share of the questions with a pair; our choice."""


def held_out_keys(data_set: Path) -> set[str]:
    """Of the questions that a data set keeps for reinforcement. Raises MalformedCandidatesError, OSError."""
    path = data_set / HELD_OUT
    lines = path.read_bytes().splitlines() if path.is_file() else ()
    try:
        return {question_key(orjson.loads(line)["question"]) for line in lines}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        again = "make the data set again: reasonrag pairs"
        raise MalformedCandidatesError(f"{path} is damaged ({error}); {again}") from error


class GoldAgreement(BaseModel):
    """Of all pairs: how often the chosen step has more gold passages than the rejected one, fewer, or as many."""

    right: int
    wrong: int
    ties: int
    unknown: int = 0
    """Steps of different types, or of unknown gold passages."""

    def __str__(self) -> str:
        every = self.right + self.wrong + self.ties + self.unknown
        compared = f"{self.right:,} right, {self.wrong:,} wrong, {self.ties:,} as many"
        return f"{compared}, {self.unknown:,} unknown of {every:,}"


def gold_agreement(counts: Mapping[tuple[str, str], int]) -> dict[str, GoldAgreement]:
    """By action type, from counts of pairs by type and verdict; of types of which some pair can be compared."""
    types = sorted({name for (name, verdict), count in counts.items() if count and verdict != "unknown"})
    verdicts = {"right": "right", "wrong": "wrong", "tie": "ties", "unknown": "unknown"}
    of = {name: {field: counts.get((name, each), 0) for each, field in verdicts.items()} for name in types}
    return {name: GoldAgreement(**each) for name, each in of.items()}


class EffectiveSize(BaseModel):
    """Effective sample size (Kish) of the pairs, treating the pairs of one cluster as fully correlated."""

    states: int
    questions: int
    by_state: float | None
    """(sum n)**2 / sum n**2 over states with n pairs each; null without pairs."""
    by_question: float | None

    def __str__(self) -> str:
        if self.by_state is None or self.by_question is None:
            return "-"
        return f"{self.by_state:,.0f} (clustered by state), {self.by_question:,.0f} (by question)"


class PairSummary(BaseModel):
    """What an export wrote and dropped; the content of its `summary.json`."""

    out: str = ""
    sources: list[str] = []
    questions: int = 0
    failed_questions: int = 0
    questions_with_a_pair: int = 0
    without_a_pair: dict[str, int] = {}
    """Questions without a pair, by reason: `all_right` and `all_wrong` if all continuations ended alike; `dropped` if
    outcomes differed or are unknown."""
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
    """Over pairs that have one: the expected share of right pairs (`preference.margin_and_confidence`)."""
    mean_margin: float | None = None
    same_type_pairs: int = 0
    effective: EffectiveSize = EffectiveSize(states=0, questions=0, by_state=None, by_question=None)
    gold_agreement: dict[str, GoldAgreement] = {}
    """By action type, queries and evidence; only where gold passages are known."""
    dropped: dict[str, int] = {}
    files: dict[str, int] = {}
    """Rows by file."""
    sha256: dict[str, str] = {}
    """By file, so that later changes to a row are noticed before publishing."""
    recipes: list[str] = []
    splits: list[str] = []
    teachers: list[str] = []
    renderers: list[str] = []
    """Prompt renderers of the pairs; `unknown` if the rollouts do not have it."""
    token_counter: str | None = None
    usage: Usage | None = None
    """Usage of all trees; null if unknown."""
    rules: dict[str, Any] = {}
    options: dict[str, Any] = {}
    judging: dict[str, Any] = {}
    """Counts and cost of the judge, if labels come from one."""
    critics: dict[str, Any] = {}
    """Counts and cost of the critics, if there are any."""
    refinement: dict[str, Any] = {}
    """What the critics left of paths or steps (format sft), as a `Refinement`; empty without."""
    plain_steps: dict[str, int] = {}
    """Of the rows of reinforcement (format rl): `steps`; `questions`, of which `equal` have attempts of one outcome
    alone, which teaches no policy; `not_plain`, draws that are in no row. Empty without."""
    warm_up: dict[str, Any] = {}
    """Counts of `warm-up`; empty for data of runs."""
    contamination: dict[str, Any] = {}
    versions: dict[str, str] = {}
    warnings: list[str] = []


def summary_of(data_set: Path) -> PairSummary:
    """The summary there; an empty one where none can be read."""
    with suppress(OSError, ValueError):
        return PairSummary.model_validate_json((data_set / SUMMARY).read_bytes())
    return PairSummary()


@dataclass(frozen=True)
class ExportOptions:
    """What is written for the kept pairs.

    formats: besides RAG_ProGuide, which is always written. validation: share of the questions with a pair that go to
        validation files: at least one, if that leaves as many rows to train on. flip: share of the training pairs whose
        sides are exchanged. seed: of both draws. critic_threshold: lowest score that critics may have given a step of a
        best path; None: paths are not filtered. refine, critic_share: whether steps are filtered instead, and which
        share of them stays; None: those of the lowest score. hold_out: share of all questions that is kept for
        reinforcement.
    """

    formats: tuple[FormatName, ...] = ("proguide",)
    validation: float = VALIDATION_SHARE
    flip: float = 0.0
    seed: int = 0
    critic_threshold: float | None = None
    refine: Literal["paths", "steps"] = "paths"
    critic_share: float | None = None
    hold_out: float = 0.0


class ExportTally:
    """Counts during an export. found: its summary, which from the beginning has what the candidates do not tell."""

    def __init__(self, found: PairSummary) -> None:
        self.found = found
        found.usage, found.dropped = Usage(cost_usd=0.0), dict.fromkeys(DROP_REASONS, 0)
        self.counts: Counter[str] = Counter()
        self.pairs_by: defaultdict[str, Counter[Any]] = defaultdict(Counter)
        self.gold: Counter[tuple[str, str]] = Counter()
        self.plain: Counter[str] = Counter()
        self.sums: defaultdict[str, float] = defaultdict(float)
        self.squares: Counter[str] = Counter()
        self.questions: defaultdict[str, set[str]] = defaultdict(set)
        """What is known of each question: `failed`, `done`, `paired`, and how its trees ended."""
        self.seen: dict[str, set[str]] = {"recipes": set(), "splits": set(), "teachers": set(), "renderers": set()}

    def add(self, chosen: Sequence[Candidate], rows: Sequence[Row], split: SplitName) -> None:
        """Count the candidates of a question and the rows made from them."""
        found, by_state = self.found, Counter[str]()
        found.candidates += len(chosen)
        found.states += len({each.state.state_id for each in chosen})
        for each in chosen:
            self.counts["prompt_cut"] += "prompt_cut" in each.pair.tags
            if each.dropped is not None:
                found.dropped[each.dropped] += 1
                continue
            by_state[each.state.state_id] += 1
            found.same_type_pairs += each.pair.same_type
            self.pairs_by["label"][str(each.pair.label)] += 1
            action_type = ACTION_TYPE_NAMES[each.chosen.action_type]
            self.pairs_by["action_type"][action_type] += 1
            self.gold[action_type, each.pair.gold] += 1
            self.pairs_by["layer"][each.state.layer] += 1
            for name in ("confidence", "margin"):
                if (known := getattr(each.pair, name)) is not None:
                    self.counts[name] += 1
                    self.sums[name] += known
            self.pairs_by["tag"].update(each.pair.tags)
            self.seen["renderers"].add(each.state.origin.renderer or "unknown")
        found.pairs += len(rows)
        found.flipped += sum(row["flipped"] for row in rows)
        if rows:
            self.questions[question_key(chosen[0].state.question)].add("paired")
            found.effective.states += len(by_state)
            self.squares["state"] += sum(n * n for n in by_state.values())
            self.squares["question"] += len(rows) ** 2
        if split == "validation":
            found.validation_pairs += len(rows)
            found.validation_questions += 1

    def add_question(self, question: QuestionRecord) -> None:
        key, origin = question_key(question.question), question.origin
        total = self.found.usage
        self.found.usage = total + question.usage if total and question.usage else None
        if question.error is not None:
            self.questions[key].add("failed")
            return
        self.counts["paths"] += bool(question.path)
        self.seen["splits"].add(f"{origin.dataset}/{origin.split}")
        self.seen["recipes"].add(origin.recipe or "unknown")
        self.seen["teachers"].add(origin.teacher or "unknown")
        self.questions[key] |= {"done", question.ends}

    def add_plain_steps(self, question: QuestionRecord) -> None:
        outcomes = {each.outcome for each in question.plain_steps if each.outcome is not None}
        found = {"questions": 1, "equal": int(len(outcomes) == 1), "not_plain": question.not_plain}
        self.plain.update({"steps": len(question.plain_steps), **found})

    def summary(self, options: ExportOptions, **more: Any) -> PairSummary:
        """more: fields about the written files."""
        found, counts, known = self.found, self.counts, self.questions.values()
        failed = sum("failed" in each and "done" not in each for each in known)
        paired = sum("paired" in each for each in known)
        by = {f"pairs_by_{name}": sorted(counted.items()) for name, counted in self.pairs_by.items()}
        found.effective.questions = paired
        found.effective.by_state = effective_sample_size(found.pairs, self.squares["state"])
        found.effective.by_question = effective_sample_size(found.pairs, self.squares["question"])
        told = {
            "questions": failed + sum("done" in each for each in known),
            "failed_questions": failed,
            "questions_with_a_pair": paired,
            "without_a_pair": self._without_a_pair(),
            **{name: {str(each): count for each, count in counted} for name, counted in by.items()},
            **{f"mean_{name}": total / counts[name] for name, total in self.sums.items()},
            "gold_agreement": gold_agreement(self.gold),
            "plain_steps": dict(self.plain) if "rl" in options.formats else {},
            **{name: sorted(values) for name, values in self.seen.items()},
            "warnings": [*self._warnings(options), *found.warnings],
        }
        return found.model_copy(update=told | more)

    def _without_a_pair(self) -> dict[str, int]:
        """Why questions have no pair, judged over all trees of a question."""
        why: Counter[str] = Counter()
        for each in self.questions.values():
            if "done" in each and "paired" not in each:
                [*ends] = each - {"done", "failed"}
                why[ends[0] if ends in (["all_right"], ["all_wrong"]) else "dropped"] += 1
        return dict(sorted(why.items()))

    def _warnings(self, options: ExportOptions) -> list[str]:
        apart = "keep these pairs out of training, or never evaluate on that split"
        unnamed = "give import their --split or --questions, and never evaluate on questions that may be among them"
        pairs, flipped, cut = self.found.pairs, self.found.flipped, self.counts["prompt_cut"]
        told = self.found.candidates or not (self.counts["paths"] or "rl" in options.formats)
        found = {
            "all pairs come from one question, so there are none for validation: train without eval_dataset and the "
            "other evaluation settings": pairs and options.validation and not self.found.validation_pairs,
            f"--flip exchanged the sides of {flipped:,} training pairs: {FORMATS['sft-chosen'].file_name('train')} "
            "holds their worse replies as targets": flipped and "sft-chosen" in options.formats,
            f"{cut:,} candidates are of states whose prompt the endpoint seems to have cut (tag prompt_cut)": cut,
            f"no pair was kept: {DROPPED} says why each candidate was dropped, docs/troubleshooting/few-pairs.md what "
            "helps": not pairs and told and options.refine != "steps",
        }
        others = (each for each in sorted(self.seen["splits"]) if not is_training_split(each))
        of_others = [f"made of {each} questions: {unnamed if each.endswith('/unknown') else apart}" for each in others]
        return of_others + [warning for warning, holds in found.items() if holds]
