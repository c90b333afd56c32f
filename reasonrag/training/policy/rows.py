"""The rows that a policy is trained on: of `rl.jsonl`, those that the wanted advantage is defined for.

Decides which rows an advantage takes, and what makes them unusable. Knows no trainer and no tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import exp
from pathlib import Path
from typing import Any, Final, Literal, get_args

import orjson

from preference.candidate_records import question_key
from preference.export.formats import FORMATS
from reasonrag.errors import InputError, NothingToLearn

AdvantageName = Literal["outcome", "prorag", "sibling", "tree-grpo"]
ADVANTAGE_NAMES: Final = get_args(AdvantageName)
OF_ATTEMPTS: Final = ("outcome", "prorag", "tree-grpo")
"""They compare whole attempts, which a search does not draw fairly."""
_KEPT = ("prompt", "completion", "draws")


def policy_file(data: Path) -> Path:
    """Raises InputError where it is missing."""
    file = data / FORMATS["rl"].file_name("train")
    if not file.is_file():
        raise InputError(
            f"{data} has no {file.name}, which a policy is trained on: reasonrag pairs RUN --format rl --validation 0"
        )
    return file


def read_policy_rows(
    file: Path, advantage: AdvantageName, base: str
) -> tuple[list[dict[str, Any]], frozenset[str], int]:
    """The rows as `training_script` takes them, the keys of their questions, and how many rows do not have this
    advantage.

    base: the model that is trained, which must have said what is in the rows. Raises InputError for rows of another
    model, of a search or without scores where the advantage needs others, and for a damaged file.
    """
    rows = [*_rows(file)]
    if not rows:
        raise NothingToLearn(f"{file} has no rows; summary.json beside it says what was left out")
    try:
        _check(rows, file, advantage, base)
        found = [dict(_wanted(row, advantage)) for row in rows if _advantage(row, advantage) is not None]
        keys = frozenset(question_key(row["question"]) for row in rows)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file}: a row has no {error}; make it again: reasonrag pairs RUN --format rl") from error
    if not found:
        raise NothingToLearn(f"{file}: no row has an advantage {advantage}: it needs states with several steps")
    return found, keys, len(rows) - len(found)


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise InputError(f"{file}, line {number} is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise InputError(f"{file}, line {number} is no row")
            yield row


def _check(rows: list[dict[str, Any]], file: Path, advantage: AdvantageName, base: str) -> None:
    """Raises InputError."""
    if any(row["value_model"] for row in rows):
        raise InputError(f"{file} is of a run with a value model: the steps of one model, continued by another")
    said_by = {str(row["teacher"]) for row in rows}
    if others := {each for each in said_by if Path(each).name != Path(base).name}:
        raise InputError(
            f"{file} holds what {', '.join(sorted(others))} said, and {base} is to learn: a policy learns from its own "
            "steps. Draw them from it, served under the name of its folder: reasonrag generate --recipe chains --model "
            f"{Path(base).name} --base-url URL"
        )
    groups = {row["group"] for row in rows}
    if advantage in OF_ATTEMPTS and None in groups:
        raise InputError(
            f"advantage {advantage} compares whole attempts, and {file} has steps of a searched tree, which are no "
            "fair draws: take a run of --recipe chains, or advantage sibling"
        )
    if advantage in OF_ATTEMPTS and min(groups) < 2:  # noqa: PLR2004 - two can differ
        raise InputError(f"{file} has one attempt a question, which has nothing to be compared with: search.group=8")
    lacking = sum(row["score"] is None for row in rows)
    if advantage == "prorag" and lacking:
        raise InputError(
            f"advantage prorag needs a critic's score of every step, and {lacking:,} of {len(rows):,} rows of {file} "
            "have none: reasonrag pairs RUN --format rl --critic CRITIC, of other questions"
        )


def _advantage(row: Mapping[str, Any], advantage: AdvantageName) -> float | None:
    found: float | None = row["advantages"]["outcome" if advantage == "prorag" else advantage]
    return found


def _wanted(row: Mapping[str, Any], advantage: AdvantageName) -> Iterator[tuple[str, Any]]:
    yield from ((name, row[name]) for name in _KEPT)
    yield "group", f"{row['config_hash']} {row['seed']} {row['question_id']}"
    yield "advantage", _advantage(row, advantage)
    yield "score", 1 / (1 + exp(-row["score"])) if advantage == "prorag" else None


def scores_differ(rows: list[dict[str, Any]]) -> bool:
    """Whether the critic's scores differ within some group, without which they teach nothing."""
    return len({(row["group"], row["score"]) for row in rows}) > len({row["group"] for row in rows})


def equal_groups(rows: list[dict[str, Any]]) -> int:
    """Questions whose rows all have the advantage 0: they teach nothing by it."""
    seen = defaultdict[str, set[bool]](set)
    for row in rows:
        seen[row["group"]].add(row["advantage"] != 0)
    return sum(found == {False} for found in seen.values())
