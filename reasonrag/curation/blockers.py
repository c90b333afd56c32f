"""What speaks against publishing a data set, or training on it, and the flag that sets each objection aside.

Questions of evaluation sets, errors of the audit, labels flipped on purpose, something like a key.
Decides nothing about files or the Hub; facts come from the inventory and the audit.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from preference.candidates import is_training_split
from reasonrag.curation.dataset_directory import DatasetInventory
from reasonrag.data.eval_splits import ALL
from reasonrag.errors import InputError

Flag = Literal["--allow", "--allow-eval"]


@dataclass(frozen=True)
class Blocker:
    """Why a data set should not be published; `flag name` sets it aside."""

    flag: Flag
    name: str
    what: str


def find_blockers(inventory: DatasetInventory, audit: dict[str, Any]) -> list[Blocker]:
    """All of them, at once, so that nobody meets them one after the other. audit: the content of `audit.json`."""
    return [
        *_evaluation_blockers(inventory),
        *_audit_blockers(audit),
        *_row_blockers(inventory),
    ]


def refuse_unless_allowed(
    found: Collection[Blocker],
    *,
    allow: Collection[str],
    allow_eval: Collection[str],
    therefore: str = "not published",
) -> list[Blocker]:
    """Those that were set aside. Raises InputError for the others, with the flags that would.

    therefore: what does not happen because of them.
    """
    aside = [
        each
        for each in found
        if (each.name in allow if each.flag == "--allow" else not {each.name, ALL}.isdisjoint(allow_eval))
    ]
    standing = [each for each in found if each not in aside]
    if standing:
        reasons = " ".join(f"({number}) {each.what}." for number, each in enumerate(standing, start=1))
        flags = shlex.join(word for each in standing for word in (each.flag, each.name))
        raise InputError(f"{therefore}: {reasons} If that is meant, say so: {flags}")
    return aside


def readable_checks(audit: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The checks of an audit, as far as they can be read."""
    checks = (audit or {}).get("checks")
    return [each for each in checks if isinstance(each, dict) and "name" in each] if isinstance(checks, list) else []


def evaluation_blockers(by_split: Mapping[str, int], in_evaluation: Mapping[str, int]) -> list[Blocker]:
    """Questions that a model must not be trained on. by_split: how many were drawn from each dataset/split.
    in_evaluation: how many of all stand in a split that is kept for evaluation, by its name."""
    found = {
        name: f"questions of {name} are in it ({count:,}), which is no training split and cannot be evaluated on then"
        for name, count in by_split.items()
        if not is_training_split(name)
    }
    for name, count in in_evaluation.items():
        found.setdefault(name, f"questions of {name}, which is kept for evaluation, are in it ({count:,})")
    return [Blocker("--allow-eval", name, what) for name, what in found.items()]


def _evaluation_blockers(inventory: DatasetInventory) -> list[Blocker]:
    unchecked = (
        []
        if inventory.summary.contamination.get("checked")
        else [Blocker("--allow", "no_contamination_check", "nobody looked for its questions in evaluation sets")]
    )
    return evaluation_blockers(inventory.candidate_questions, inventory.in_evaluation) + unchecked


def _audit_blockers(audit: dict[str, Any]) -> list[Blocker]:
    return [
        Blocker("--allow", str(each["name"]), f"the audit has an error, {each['name']} ({each.get('count', '?')})")
        for each in readable_checks(audit)
        if each.get("severity") == "error" and each.get("count", 1)
    ]


def _row_blockers(inventory: DatasetInventory) -> list[Blocker]:
    found = []
    if inventory.summary.flipped:
        found.append(
            Blocker("--allow", "flipped", f"the sides of {inventory.summary.flipped:,} pairs are exchanged on purpose")
        )
    if inventory.secrets:
        more = f" and {len(inventory.secrets) - 1:,} more lines" if len(inventory.secrets) > 1 else ""
        found.append(Blocker("--allow", "secrets", f"{inventory.secrets[0]}{more} hold something like a key"))
    return found
