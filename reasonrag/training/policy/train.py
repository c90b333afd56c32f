"""`reasonrag train-policy`: a model learns from its own plain steps by policy gradients.

Decides what a policy learns from: of `rl.jsonl`, the rows that the wanted advantage is defined for. The training itself
is `stages.trl`'s, the loss `training_script`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from pathlib import Path
from typing import Any, Final, Literal, get_args

from preference.candidate_records import question_key
from preference.export.formats import FORMATS
from reasonrag.data.item_files import read_rows
from reasonrag.errors import InputError, NothingToLearn
from reasonrag.progress import JobWatcher, SilentWatcher
from reasonrag.rendering import counted
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.training.output_directory import TrainingRecord
from reasonrag.training.policy.training_script import Loss
from reasonrag.training.settings import TrainPolicySettings
from reasonrag.training.stages.training import TrainingResult, given
from reasonrag.training.stages.trl import POLICY, Rows, plan_training, train_plan

AdvantageName = Literal["outcome", "prorag", "sibling", "tree-grpo"]
ADVANTAGE_NAMES: Final = get_args(AdvantageName)
OF_ATTEMPTS: Final = ("outcome", "prorag", "tree-grpo")
"""They compare whole attempts, which a search does not draw fairly."""
DEFAULTS: Final = {"advantage": "outcome", "beta": 0.3} | Loss().model_dump()


@public_call(TrainPolicySettings)
def train_policy(
    config: str | Path | None = None, *, dry_run: bool = False, watcher: JobWatcher | None = None, **flags: Any
) -> TrainingResult:
    """Train a model on the plain steps that it took itself (`pairs --format rl`), by policy gradients.

    Raises InputError before anything is started, TrainingFailed if the training exits with an error, KeyboardInterrupt
    after its process has ended: the same call resumes.

    Example:
        >>> reasonrag.train_policy("policy-qwen2.5-7b", data="data/attempts", out="policies/first")  # doctest: +SKIP

    Args:
        config: a YAML file, or the bare name of a shipped one. None: `config` of reasonrag.toml.
        dry_run: report the configuration and what would be refused, start nothing.
        watcher: is told what happens while it goes on; none: silent.
    """
    settings = resolve(TrainPolicySettings, "train-policy", given(config, flags))
    plan = plan_training(POLICY, settings, Path("policies"))
    plan.config.update(with_defaults(plan.config))
    file = plan.data.directory / FORMATS["rl"].file_name("train")
    if not file.is_file():
        raise InputError(
            f"{plan.data.directory} has no {file.name}, which a policy is trained on: reasonrag pairs RUN --format rl "
            "--validation 0"
        )
    advantage = plan.config["advantage"]
    rows, questions, without = read_policy_rows(file, advantage, str(plan.config["model_name_or_path"]))
    groups = {row["group"] for row in rows}
    equal = len(groups - {row["group"] for row in rows if row["advantage"]})  # whose rows have the advantage 0
    scores_differ = len({(row["group"], row["score"]) for row in rows}) > len(groups)  # within some group
    by_scores = advantage == "prorag" and plan.config["beta"] and scores_differ
    if equal == len(groups) and not plan.config["kl"] and not by_scores:
        raise NothingToLearn(
            f"{file}: attempts at a question all came to the same, which teaches nothing by {advantage}"
        )
    notes = [f"{counted(without, 'row')} left out, which {advantage} is not defined for"] if without else []
    if equal:
        but = ", but by the critic's scores" if advantage == "prorag" else ""
        notes.append(f"{counted(equal, 'question')} with no advantage teach nothing{but}")
    found = Rows(rows, [], [file], questions, {"labels": advantage}, notes=notes)
    return train_plan(plan, found, watcher or SilentWatcher(), TrainingResult, conclude=_facts, dry_run=dry_run)


def with_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with all of a policy's own keys. Raises InputError for a wrong value of one."""
    found = {**DEFAULTS, **config}
    if found["advantage"] not in ADVANTAGE_NAMES:
        raise InputError(f"advantage {found['advantage']!r}: choose from {', '.join(ADVANTAGE_NAMES)}")
    for name in ("beta", "clip", "kl"):
        value: Any = found[name]
        if type(value) not in (int, float) or value < 0:
            raise InputError(f"{name} must be a number of 0 or more (got {value!r})")
    return found


def _facts(record: TrainingRecord) -> dict[str, Any]:
    for name, which in (("empty", "without a word"), ("untaught", "of advantage 0")):
        if count := record.lengths[name]:
            record.notes.append(f"{counted(count, 'row')} {which} taught nothing")
    return {}


def read_policy_rows(
    file: Path, advantage: AdvantageName, base: str
) -> tuple[list[dict[str, Any]], frozenset[str], int]:
    """The rows as `training_script` takes them, the keys of their questions, and how many rows lack this advantage.

    base: the model that is trained, which must have said what is in the rows. Raises InputError for rows of another
    model, of a search or without scores where the advantage needs others, and for a damaged file.
    """
    if not (rows := [*read_rows(file)]):
        raise NothingToLearn(f"{file} has no rows; summary.json beside it says what was left out")
    try:
        _check(rows, file, advantage, base)
        found = [each for row in rows if (each := _wanted(row, advantage))["advantage"] is not None]
        keys = frozenset(question_key(row["question"]) for row in rows)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file}: a row has no {error}; make it again: reasonrag pairs RUN --format rl") from error
    if not found:
        raise NothingToLearn(f"{file}: no row has an advantage {advantage}: it needs states with several steps")
    return found, keys, len(rows) - len(found)


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


def _wanted(row: Mapping[str, Any], advantage: AdvantageName) -> dict[str, Any]:
    """Its advantage is None where this one is not defined for it."""
    return {
        **{name: row[name] for name in ("prompt", "completion", "draws")},
        "group": f"{row['config_hash']} {row['seed']} {row['question_id']}",
        "advantage": row["advantages"]["outcome" if advantage == "prorag" else advantage],
        "score": 1 / (1 + exp(-row["score"])) if advantage == "prorag" else None,
    }
