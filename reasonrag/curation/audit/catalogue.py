"""Every check of an audit: its name, its severity, what it means and what to do."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from preference.export.sanitize import PLACEHOLDER
from preference.statistics import LABEL_LEVEL
from reasonrag.rendering import percent

CheckSeverity = Literal["error", "warning"]

CheckName: TypeAlias = str
"""A key of CHECKS."""

BIAS: Final = 0.6
"""Share of rows above which "the chosen side is shorter" counts as a bias; our choice. The whole interval must be above
it. In the published data the chosen side is the shorter one in four of five rows."""


class Check(NamedTuple):
    """finds: what it counts. advice: what to do. severity: errors keep a data set from being written or published."""

    finds: str
    advice: str
    severity: CheckSeverity = "error"


_COPIES = "the student would learn to copy the answer: keep gold answers out of prompts"
_SPLIT = "split by question, as reasonrag pairs does"
CHECKS: Final[dict[CheckName, Check]] = {
    "broken_row": Check(
        "instruction, input, chosen or rejected is missing or not text",
        "LLaMA-Factory drops such rows silently, or stops: remove them",
    ),
    "empty_reply": Check("an empty chosen or rejected side", "the model would learn to say nothing: remove the row"),
    "empty_prompt": Check("an empty user turn", "remove the row"),
    "chosen_malformed": Check(
        "the chosen side is not a valid step: no tag, several tags, an unclosed tag, or one this turn may not use",
        "the student imitates the chosen side: remove the row",
    ),
    "identical_sides": Check(
        "both sides are the same, apart from case and spaces", "there is nothing to prefer: remove the row"
    ),
    "secret": Check(
        "text that looks like a key or a password; it is not shown anywhere",
        "remove it from the source, revoke the key, and build the data set again",
    ),
    "special_token": Check(
        f"text that spells a special token of a chat template, or {PLACEHOLDER} in a user turn",
        "a trainer may end the turn there, and LLaMA-Factory fills in a number for the placeholder: remove the row, or "
        "break up the token in the source, as reasonrag import does",
    ),
    "gold_in_system_turn": Check("a gold answer in a system turn that only this question has", _COPIES),
    "gold_line_in_prompt": Check(
        "a gold answer labelled as such in the prompt (`correct answer: ..`), outside question, thoughts and passages",
        _COPIES,
    ),
    "mixed_renderers": Check(
        "prompts from different renderers in one file",
        "the student could learn the wording of the prompt instead of the step: build one data set per renderer, or "
        "generate again with one set of prompts",
    ),
    "state_in_both_parts": Check("a state with rows in both training and validation", _SPLIT),
    "question_in_both_parts": Check("a question with rows in both training and validation", _SPLIT),
    "length_bias": Check(
        f"one side is shorter in more than {percent(BIAS)} of the rows ({percent(LABEL_LEVEL)} "
        "confidence, at the effective sample size by question)",
        "DPO learns length too: use a wider --min-margin or a length-normalized loss (SimPO), and compare answer "
        "lengths before and after training",
        "warning",
    ),
}

ERRORS: tuple[CheckName, ...] = tuple(name for name, check in CHECKS.items() if check.severity == "error")
