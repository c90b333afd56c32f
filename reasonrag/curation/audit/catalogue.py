"""Every check of an audit: its name, its severity, what it means and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from preference.export.sanitize import PLACEHOLDER
from preference.similarity import NEARLY_THE_SAME
from preference.statistics import LABEL_LEVEL
from reasonrag.rendering import percent

CheckSeverity = Literal["error", "warning"]

CheckName = Literal[
    "broken_row",
    "empty_reply",
    "empty_prompt",
    "chosen_malformed",
    "identical_sides",
    "secret",
    "special_token",
    "gold_in_system_turn",
    "gold_line_in_prompt",
    "mixed_renderers",
    "state_in_both_parts",
    "question_in_both_parts",
    "no_rows",
    "rejected_malformed",
    "near_identical_sides",
    "no_system_turn",
    "length_bias",
    "duplicate_row",
    "contradicting_rows",
    "gold_line_in_thoughts",
    "evaluation_split",
    "default_cutoff",
    "beyond_context",
    "estimated_lengths",
    "not_described",
]
CHECK_NAMES: tuple[CheckName, ...] = get_args(CheckName)

BIAS: Final = 0.6
"""Share of rows above which "the chosen side is shorter" counts as a bias; our choice. The whole interval must be above
it. In the published data the chosen side is the shorter one in four of five rows."""


@dataclass(frozen=True)
class CheckDescription:
    """A check. severity: an error keeps a data set from being written or published. finds: what it counts. advice: what
    to do."""

    severity: CheckSeverity
    finds: str
    advice: str


CHECKS: dict[CheckName, CheckDescription] = {
    "broken_row": CheckDescription(
        "error",
        "instruction, input, chosen or rejected is missing or not text",
        "LLaMA-Factory drops such rows silently, or stops: remove them",
    ),
    "empty_reply": CheckDescription(
        "error", "an empty chosen or rejected side", "the model would learn to say nothing: remove the row"
    ),
    "empty_prompt": CheckDescription("error", "an empty user turn", "remove the row"),
    "chosen_malformed": CheckDescription(
        "error",
        "the chosen side is not a valid step: no tag, several tags, an unclosed tag, or one this turn may not use",
        "the student imitates the chosen side: remove the row",
    ),
    "identical_sides": CheckDescription(
        "error", "both sides are the same, apart from case and spaces", "there is nothing to prefer: remove the row"
    ),
    "secret": CheckDescription(
        "error",
        "text that looks like a key or a password; it is not shown anywhere",
        "remove it from the source, revoke the key, and build the data set again",
    ),
    "special_token": CheckDescription(
        "error",
        f"text that spells a special token of a chat template, or {PLACEHOLDER} in a user turn",
        "a trainer may end the turn there, and LLaMA-Factory fills in a number for the placeholder: remove the row, or "
        "break up the token in the source, as reasonrag import does",
    ),
    "gold_in_system_turn": CheckDescription(
        "error",
        "a gold answer in a system turn that only this question has",
        "the student would learn to copy the answer: keep gold answers out of prompts",
    ),
    "gold_line_in_prompt": CheckDescription(
        "error",
        "a gold answer labelled as such in the prompt (`correct answer: ..`), outside question, thoughts and passages",
        "the student would learn to copy the answer: keep gold answers out of prompts",
    ),
    "mixed_renderers": CheckDescription(
        "error",
        "prompts from different renderers in one file",
        "the student could learn the wording of the prompt instead of the step: build one data set per renderer, or "
        "generate again with one set of prompts",
    ),
    "state_in_both_parts": CheckDescription(
        "error", "a state with rows in both training and validation", "split by question, as reasonrag pairs does"
    ),
    "question_in_both_parts": CheckDescription(
        "error", "a question with rows in both training and validation", "split by question, as reasonrag pairs does"
    ),
    "no_rows": CheckDescription("warning", "no rows", "summary.json says why candidates were dropped"),
    "rejected_malformed": CheckDescription(
        "warning",
        "the rejected side is not a valid step",
        "the model may learn the format instead of the step: leave out --allow-malformed",
    ),
    "near_identical_sides": CheckDescription(
        "warning",
        f"sides of one action type that share more than {percent(NEARLY_THE_SAME)} of the words in their tags",
        "they may differ in a comma only: lower --max-similarity",
    ),
    "no_system_turn": CheckDescription(
        "warning",
        "an empty system turn",
        "the trainer's template inserts its default: use the same at evaluation, or write a system turn",
    ),
    "length_bias": CheckDescription(
        "warning",
        f"one side is shorter in more than {percent(BIAS)} of the rows ({percent(LABEL_LEVEL)} confidence)",
        "DPO learns length too: use a wider --min-margin or a length-normalized loss (SimPO), and compare answer "
        "lengths before and after training",
    ),
    "duplicate_row": CheckDescription(
        "warning", "a row with the content of an earlier row", "keep one, as reasonrag pairs does"
    ),
    "contradicting_rows": CheckDescription(
        "warning",
        "another row prefers the opposite side",
        "keep the row with the higher confidence, or neither",
    ),
    "gold_line_in_thoughts": CheckDescription(
        "warning",
        "a gold answer labelled as such in the previous thoughts: the policy's own words, or a leak",
        "spot-check them: if the policy was given the answer, the student learns to copy it",
    ),
    "evaluation_split": CheckDescription(
        "warning",
        "a question from a split that is not for training",
        "never evaluate on that split, or remove its rows; publish refuses them",
    ),
    "default_cutoff": CheckDescription(
        "warning",
        "the trainer's default cutoff_len (2,048) would cut the end of the prompt",
        "set cutoff_len to the value advised here",
    ),
    "beyond_context": CheckDescription(
        "warning",
        "a row longer than Qwen2.5's context of 32,768 tokens",
        "drop it with pairs --max-row-tokens 32768",
    ),
    "estimated_lengths": CheckDescription(
        "warning",
        "lengths are estimates of four characters per token",
        "before you rely on a cutoff: pip install 'reasonrag[tokens]' and audit again",
    ),
    "not_described": CheckDescription(
        "warning",
        "dataset_info.json does not describe the file as pairs with a system turn",
        "LLaMA-Factory's default columns merge the instruction into the user turn: write `ranking: true` and the "
        "columns system: instruction, prompt: input, chosen, rejected",
    ),
}

ERRORS: tuple[CheckName, ...] = tuple(name for name in CHECK_NAMES if CHECKS[name].severity == "error")
TypeName: TypeAlias = Literal["Query Generation", "Evidence Extraction", "Answer Generation", "Other"]
TYPE_NAMES: tuple[TypeName, ...] = get_args(TypeName)
