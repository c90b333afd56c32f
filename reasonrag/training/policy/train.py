"""`reasonrag train-policy`: a model learns from its own plain steps by policy gradients.

Decides what a policy learns from. The training itself is `stages.trl`'s, the loss `training_script`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from reasonrag.errors import InputError, NothingToLearn
from reasonrag.progress import JobWatcher, SilentWatcher
from reasonrag.rendering import Part, counted
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.training.output_directory import TrainingRecord
from reasonrag.training.policy.rows import ADVANTAGE_NAMES, equal_groups, policy_file, read_policy_rows, scores_differ
from reasonrag.training.policy.training_script import Loss
from reasonrag.training.provenance import evaluation_of
from reasonrag.training.settings import TrainPolicySettings
from reasonrag.training.stages.training import TrainingResult, given
from reasonrag.training.stages.trl import POLICY, Rows, plan_training, prepare, train_prepared

DEFAULTS: Final = {"advantage": "outcome", "beta": 0.3} | Loss().model_dump()
HOME: Final = Path("policies")


class PolicyResult(TrainingResult):
    """What `train-policy` did; the object of `train-policy --json`."""

    def _next(self) -> Iterator[Part]:
        yield evaluation_of(Path(self.out))


@public_call(TrainPolicySettings)
def train_policy(
    config: str | Path | None = None, *, dry_run: bool = False, watcher: JobWatcher | None = None, **flags: Any
) -> PolicyResult:
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
    plan = plan_training(POLICY, settings, HOME)
    plan.config.update(with_defaults(plan.config))
    file = policy_file(plan.data.directory)
    advantage = plan.config["advantage"]
    rows, questions, without = read_policy_rows(file, advantage, str(plan.config["model_name_or_path"]))
    equal, beta = equal_groups(rows), plan.config["beta"] if advantage == "prorag" else 0
    if not any(row["advantage"] for row in rows) and not plan.config["kl"] and not (beta and scores_differ(rows)):
        raise NothingToLearn(
            f"{file}: attempts at a question all came to the same, which teaches nothing by {advantage}"
        )
    prepared = prepare(plan, Rows(rows, [], [file], questions, {"labels": advantage}, {}), strict=not dry_run)
    if without:
        prepared.record.notes.append(f"{counted(without, 'row')} left out, which {advantage} is not defined for")
    if equal:
        but = ", but by the critic's scores" if advantage == "prorag" else ""
        prepared.record.notes.append(f"{counted(equal, 'question')} with no advantage teach nothing{but}")
    return train_prepared(prepared, watcher or SilentWatcher(), _facts, PolicyResult, dry_run=dry_run)


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
    if empty := record.lengths["empty"]:
        record.notes.append(f"{counted(empty, 'row')} without a word taught nothing")
    if untaught := record.lengths["untaught"]:
        record.notes.append(f"{counted(untaught, 'row')} of advantage 0 taught nothing")
    return {}
