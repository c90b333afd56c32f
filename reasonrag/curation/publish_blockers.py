"""What blocks publishing a data set or training on it, and the flag that sets each blocker aside.

Blockers are questions from evaluation sets, errors of the audit, labels flipped on purpose and possible secrets.
Decides nothing about files or the Hub; facts come from `dataset_directory` and the audit.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from preference.candidate_records import is_training_split
from reasonrag.curation.audit.catalogue import CheckName
from reasonrag.curation.audit.report import AuditReport
from reasonrag.curation.dataset_directory import DatasetInventory
from reasonrag.data.eval_splits import ALL
from reasonrag.errors import InputError
from reasonrag.rendering import counted

Flag = Literal["--allow", "--allow-eval"]
ALLOWED_AS_PUBLISHED: tuple[CheckName, ...] = ("chosen_malformed", "identical_sides")
"""Errors of the audit in rows that published builders make: an open tag, sides that differ in case alone."""


@dataclass(frozen=True)
class Blocker:
    """A reason not to publish or train; `flag name` sets it aside."""

    flag: Flag
    name: str
    what: str

    def allowed(self, allow: Collection[str], allow_eval: Collection[str]) -> bool:
        """Whether flags set it aside. allow, allow_eval: what they name."""
        return self.name in allow if self.flag == "--allow" else not {self.name, ALL}.isdisjoint(allow_eval)


def find_blockers(inventory: DatasetInventory, audit: AuditReport) -> list[Blocker]:
    """All blockers at once, so that users need not fix them one by one. Errors that the audit was told to allow are
    among them: a name holds for the command that was given it."""
    summary, secrets = inventory.summary, inventory.secrets
    found = evaluation_blockers(inventory.candidate_questions, inventory.in_evaluation)
    if not summary.contamination.get("checked"):
        unchecked = "its questions were not checked against evaluation sets"
        found.append(Blocker("--allow", "no_contamination_check", unchecked))
    found += [
        Blocker("--allow", each.name, f"the audit has an error, {each.name} ({each.count:,})")
        for each in audit.checks
        if each.severity == "error" and each.count
    ]
    if summary.flipped:
        found.append(Blocker("--allow", "flipped", f"the sides of {summary.flipped:,} pairs are exchanged on purpose"))
    if secrets:
        more = f" and {len(secrets) - 1:,} more lines" if len(secrets) > 1 else ""
        found.append(Blocker("--allow", "secrets", f"{secrets[0]}{more} hold a possible key"))
    return found


def refuse_unless_allowed(
    found: Collection[Blocker], *, allow: Collection[str], allow_eval: Collection[str], therefore: str = "not published"
) -> list[Blocker]:
    """The blockers that flags set aside. Raises InputError for any others, with the flags that would.

    therefore: what is refused, for the message.
    """
    aside = [each for each in found if each.allowed(allow, allow_eval)]
    standing = [each for each in found if each not in aside]
    if standing:
        reasons = " ".join(f"({number}) {each.what}." for number, each in enumerate(standing, start=1))
        flags = shlex.join(word for each in standing for word in (each.flag, each.name))
        raise InputError(f"{therefore}: {reasons} If intended, add: {flags}")
    return aside


def evaluation_blockers(by_split: Mapping[str, int], in_evaluation: Mapping[str, int]) -> list[Blocker]:
    """Blockers for questions that a model must not be trained on. by_split: questions drawn from each dataset/split.
    in_evaluation: questions found in an evaluation split, by its name."""
    found = {
        name: f"it contains {counted(count, 'question')} of {name}, not a training split: never evaluate on {name}"
        for name, count in by_split.items()
        if not is_training_split(name)
    }
    for name, count in in_evaluation.items():
        found.setdefault(name, f"it contains {counted(count, 'question')} of {name}, which is an evaluation set")
    return [Blocker("--allow-eval", name, what) for name, what in found.items()]
