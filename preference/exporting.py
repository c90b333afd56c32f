"""Pairs as files: RAG_ProGuide rows, the `dataset_info.json` that LLaMA-Factory reads, and a summary.

Rows are written while rollouts are read, so that memory does not grow with the run. Every file appears whole or not
at all. Knows the formats, not the rules by which pairs were made.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from pydantic import BaseModel

from preference.pairing import DROP_REASONS, Candidate, GoldVerdict, PairingRules, candidates
from preference.records import ActionType, Message, RolloutRecord

PAIRS_FILE = "RAG_ProGuide.json"
_INDENTED = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE

ACTION_TYPE_NAMES: dict[ActionType | None, str] = {
    "query": "Query Generation",
    "evidence": "Evidence Extraction",
    "answer": "Answer Generation",
    None: "Other",
}
"""RAG_ProGuide's spelling of action types; `Other` is a reply that did not parse."""

DATASET_INFO: dict[str, Any] = {
    "rag_proguide": {
        "file_name": PAIRS_FILE,
        "ranking": True,
        "columns": {
            "system": "instruction",
            "prompt": "input",
            "chosen": "chosen",
            "rejected": "rejected",
        },
    }
}
"""LLaMA-Factory's description of the pairs. Its default columns would glue the instruction into the user turn."""


class GoldAgreement(BaseModel):
    """How often the chosen step of a pair has more gold passages than the rejected one, fewer, or as many."""

    right: int
    wrong: int
    ties: int


class PairSummary(BaseModel):
    """What an export wrote and what it left out; the content of its `summary.json`."""

    out: str = ""
    questions: int = 0
    failed_questions: int = 0
    questions_with_a_pair: int = 0
    without_a_pair: dict[str, int] = {}
    """Questions whose tree gave none, by reason: `all_right` and `all_wrong`, where every continuation came to the
    same; `dropped`, where outcomes differed."""
    candidates: int = 0
    pairs: int = 0
    pairs_by_action_type: dict[str, int] = {}
    pairs_by_layer: dict[str, int] = {}
    pairs_by_tag: dict[str, int] = {}
    mean_confidence: float | None = None
    """Of the pairs that have one: the share that is expected to be right (`preference.confidence`)."""
    same_type_pairs: int = 0
    gold_agreement: dict[str, GoldAgreement] = {}
    """By action type, queries and evidence; only where gold passages are known."""
    dropped: dict[str, int] = {}
    recipes: list[str] = []
    splits: list[str] = []
    rules: dict[str, Any] = {}
    versions: dict[str, str] = {}
    warnings: list[str] = []


def proguide_row(candidate: Candidate) -> dict[str, Any]:
    """One row: the ten fields of RAG_ProGuide in its order, then ours."""
    chosen, rejected, rollout = candidate.chosen, candidate.rejected, candidate.rollout
    system, user = _turns(chosen.prompt)
    return {
        "instruction": system,
        "input": user,
        "prompt": f"System: {system}\nUser: {user}",
        "chosen": chosen.response,
        "rejected": rejected.response,
        "chosen_action_type": ACTION_TYPE_NAMES[chosen.action_type],
        "chosen_content": chosen.content,
        "rejected_action_type": ACTION_TYPE_NAMES[rejected.action_type],
        "rejected_content": rejected.content or "",
        "layer": candidate.layer,
        "question_id": rollout.question_id,
        "dataset": rollout.dataset,
        "split": rollout.split,
        "recipe": rollout.recipe.name,
        "reward": rollout.recipe.reward,
        "chosen_id": chosen.id,
        "rejected_id": rejected.id,
        "chosen_reward": chosen.reward,
        "rejected_reward": rejected.reward,
        "margin": candidate.margin,
        "confidence": candidate.confidence,
        "tags": list(candidate.tags),
        "chosen_grounded": chosen.grounded,
        "rejected_grounded": rejected.grounded,
        "chosen_gold": chosen.gold,
        "rejected_gold": rejected.gold,
        "chosen_rollouts": len(chosen.rollouts),
        "rejected_rollouts": len(rejected.rollouts),
        "chosen_observations": chosen.observations,
        "rejected_observations": rejected.observations,
        "config_hash": rollout.config_hash,
    }


def export_pairs(
    rollouts: Iterable[RolloutRecord], out: Path, rules: PairingRules, *, versions: dict[str, str]
) -> PairSummary:
    """Write `RAG_ProGuide.json`, `dataset_info.json` and `summary.json` below `out`.

    Raises OSError if `out` cannot be written, and whatever reading `rollouts` raises; files of an earlier export then
    stay as they were, because none is replaced before all are written.
    """
    out.mkdir(parents=True, exist_ok=True)
    tally = _Tally()
    with ExitStack() as files:
        about, info, rows = (  # the last one opened takes its place first, the summary last
            files.enter_context(replacing(out / name)) for name in ("summary.json", "dataset_info.json", PAIRS_FILE)
        )
        write_json_list(rows, map(proguide_row, tally.kept(rollouts, rules)))
        info.write(orjson.dumps(DATASET_INFO, option=_INDENTED))
        summary = tally.summary(rules, versions).model_copy(update={"out": str(out)})
        about.write(orjson.dumps(summary.model_dump(), option=_INDENTED))
    return summary


class _Tally:
    """Counts what passes through on its way to the file."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failed: set[str] = set()
        """Questions whose only line so far is an error; a later line of the same question may be its tree."""
        self.types: Counter[str] = Counter()
        self.layers: Counter[int] = Counter()
        self.tags: Counter[str] = Counter()
        self.gold: Counter[tuple[str, GoldVerdict]] = Counter()
        self.dropped: Counter[str] = Counter()
        self.pairless: Counter[str] = Counter()
        self.confidence = 0.0
        self.recipes: set[str] = set()
        self.splits: set[str] = set()

    def kept(self, rollouts: Iterable[RolloutRecord], rules: PairingRules) -> Iterator[Candidate]:
        for rollout in rollouts:
            if rollout.error:
                self.failed.add(rollout.question_id)
                continue
            self.failed.discard(rollout.question_id)
            self.counts["questions"] += 1
            self.recipes.add(rollout.recipe.name)
            self.splits.add(f"{rollout.dataset}/{rollout.split}")
            before = self.counts["pairs"]
            for candidate in candidates(rollout, rules):
                self.counts["candidates"] += 1
                if candidate.dropped is not None:
                    self.dropped[candidate.dropped] += 1
                    continue
                self._count(candidate)
                yield candidate
            if self.counts["pairs"] > before:
                self.counts["questions_with_a_pair"] += 1
            else:
                self.pairless[_why_pairless(rollout)] += 1

    def _count(self, candidate: Candidate) -> None:
        self.counts["pairs"] += 1
        self.counts["same_type_pairs"] += candidate.types[0] == candidate.types[1]
        action_type = ACTION_TYPE_NAMES[candidate.chosen.action_type]
        self.types[action_type] += 1
        self.gold[action_type, candidate.gold] += 1
        self.layers[candidate.layer] += 1
        if candidate.confidence is not None:
            self.counts["sure_of"] += 1
            self.confidence += candidate.confidence
        self.tags.update(candidate.tags)

    def summary(self, rules: PairingRules, versions: dict[str, str]) -> PairSummary:
        return PairSummary(
            questions=self.counts["questions"] + len(self.failed),
            failed_questions=len(self.failed),
            questions_with_a_pair=self.counts["questions_with_a_pair"],
            without_a_pair=dict(sorted(self.pairless.items())),
            candidates=self.counts["candidates"],
            pairs=self.counts["pairs"],
            same_type_pairs=self.counts["same_type_pairs"],
            pairs_by_action_type=dict(sorted(self.types.items())),
            pairs_by_layer={str(layer): count for layer, count in sorted(self.layers.items())},
            pairs_by_tag=dict(sorted(self.tags.items())),
            mean_confidence=self.confidence / self.counts["sure_of"] if self.counts["sure_of"] else None,
            gold_agreement=self._gold_agreement(),
            dropped={reason: self.dropped[reason] for reason in DROP_REASONS},
            recipes=sorted(self.recipes),
            splits=sorted(self.splits),
            rules=asdict(rules),
            versions=versions,
            warnings=self._warnings(),
        )

    def _gold_agreement(self) -> dict[str, GoldAgreement]:
        checked = sorted({action_type for action_type, verdict in self.gold if verdict != "unknown"})
        return {
            each: GoldAgreement(
                right=self.gold[each, "right"], wrong=self.gold[each, "wrong"], ties=self.gold[each, "tie"]
            )
            for each in checked
        }

    def _warnings(self) -> list[str]:
        found = [
            f"made of {each} questions: keep these pairs out of training, or never evaluate on that split"
            for each in sorted(self.splits)
            if not each.endswith("/train")
        ]
        if not self.counts["pairs"]:
            found.append("no pair was made: see what the candidates were dropped for, or explore more questions")
        return found


def _why_pairless(rollout: RolloutRecord) -> str:
    outcomes = {end.quality for end in rollout.ends}
    if outcomes in ({1.0}, {0.0}):
        return "all_right" if 1.0 in outcomes else "all_wrong"
    return "dropped"


def write_json_list(file: BinaryIO, rows: Iterable[dict[str, Any]]) -> None:
    """A JSON list with one row a line, written row by row."""
    separator = b"[\n"
    for row in rows:
        file.write(separator + orjson.dumps(row))
        separator = b",\n"
    file.write(b"[]\n" if separator == b"[\n" else b"\n]\n")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when the block ends well, and leaves no trace otherwise."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _turns(prompt: list[Message] | None) -> tuple[str, str]:
    if prompt is None or [message.role for message in prompt] != ["system", "user"]:
        raise ValueError("a step's prompt must be one system turn and one user turn")
    return prompt[0].content, prompt[1].content
