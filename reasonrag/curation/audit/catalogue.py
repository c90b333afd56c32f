"""Every check of an audit: its name, its severity, what it means and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from preference.export.sanitize import PLACEHOLDER
from preference.similarity import NEARLY_THE_SAME
from preference.statistics import LABEL_LEVEL
from reasonrag.rendering import percent

CheckSeverity = Literal["error", "warning", "info"]

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
    "type_mismatch",
    "no_system_turn",
    "other_template_token",
    "length_bias",
    "position_bias",
    "duplicate_row",
    "contradicting_rows",
    "gold_line_in_thoughts",
    "evaluation_split",
    "default_cutoff",
    "beyond_context",
    "estimated_lengths",
    "not_described",
    "gold_in_question",
    "unknown_renderer",
    "email",
    "flipped",
]
CHECK_NAMES: tuple[CheckName, ...] = get_args(CheckName)

BIAS: Final = 0.6
"""Share of rows above which "the chosen side is shorter", or "sampled first", counts as a bias; our choice. The whole
interval must be above it. In the published data the chosen side is the shorter one in four of five rows."""


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
        "a row without instruction, input, chosen or rejected, or with something there that is no text",
        "the trainer drops such rows without a word, or stops: take them out",
    ),
    "empty_reply": CheckDescription(
        "error", "a side that is empty", "the trainer takes it and learns about silence: take the row out"
    ),
    "empty_prompt": CheckDescription("error", "a user turn that is empty", "take the row out"),
    "chosen_malformed": CheckDescription(
        "error",
        "a chosen side that is no step: no tag, several, one that is not closed, or one that its turn may not use",
        "what is chosen is what the student will do: take the row out",
    ),
    "identical_sides": CheckDescription(
        "error", "two sides that are the same but for case and spaces", "nothing can be preferred: take the row out"
    ),
    "secret": CheckDescription(
        "error",
        "a text with what looks like a key or a password; it is shown nowhere",
        "take it out of the source, revoke the key, and make the data set again",
    ),
    "special_token": CheckDescription(
        "error",
        "a text that spells a special token of a chat template, which a trainer reads as the end of a turn, say; or a "
        f"user turn with {PLACEHOLDER}, for which LLaMA-Factory puts a number",
        "take the row out, or break up the token in the source; reasonrag import does",
    ),
    "gold_in_system_turn": CheckDescription(
        "error",
        "a golden answer in a system turn that only this question has",
        "the student would learn to copy the answer: keep golden answers out of prompts",
    ),
    "gold_line_in_prompt": CheckDescription(
        "error",
        "a golden answer labelled as one in the prompt (`correct answer: ..`), outside question, thoughts and passages",
        "the student would learn to copy the answer: keep golden answers out of prompts",
    ),
    "mixed_renderers": CheckDescription(
        "error",
        "rows whose prompts come from different renderers: what differs in the prompt may be learned for the step",
        "make one data set for each, or explore again with one set of prompts",
    ),
    "state_in_both_parts": CheckDescription(
        "error", "a state with rows for training and for validation", "split by question: reasonrag pairs does"
    ),
    "question_in_both_parts": CheckDescription(
        "error", "a question with rows for training and for validation", "split by question: reasonrag pairs does"
    ),
    "no_rows": CheckDescription("warning", "no row at all", "see what the candidates were dropped for in summary.json"),
    "rejected_malformed": CheckDescription(
        "warning",
        "a rejected side that is no step",
        "the easiest way to tell the sides apart is then their form; leave out --allow-malformed",
    ),
    "near_identical_sides": CheckDescription(
        "warning",
        f"two sides of one type that share more than {NEARLY_THE_SAME:.0%} of the words in their tags",
        "what is preferred may be a comma: lower --max-similarity",
    ),
    "type_mismatch": CheckDescription(
        "warning", "an action type in the row that is not that of the reply's tag", "trust the tag, mend the column"
    ),
    "no_system_turn": CheckDescription(
        "warning",
        "an empty system turn",
        "the trainer's template puts its own there; at evaluation do the same, or write one",
    ),
    "other_template_token": CheckDescription(
        "warning",
        "a text with a token of another model's template, [INST] say",
        "harmless to Qwen2.5; take the row out before a model of the other family is trained",
    ),
    "length_bias": CheckDescription(
        "warning",
        f"one side shorter in more than {BIAS:.0%} of the rows, sure to {percent(LABEL_LEVEL)}",
        "DPO then learns length as well: balance by --balance or a wider --min-margin, use a loss that divides by "
        "length (SimPO), and compare lengths of answers before and after",
    ),
    "position_bias": CheckDescription(
        "warning",
        f"one side sampled first in more than {BIAS:.0%} of the rows, sure to {percent(LABEL_LEVEL)}",
        "a judge or reviewer that sees the sides in that order is biased by it: shuffle them there",
    ),
    "duplicate_row": CheckDescription(
        "warning", "a row that says what an earlier one says", "keep one: reasonrag pairs does"
    ),
    "contradicting_rows": CheckDescription(
        "warning", "a row whose sides stand the other way round in another one", "keep the surer one, or neither"
    ),
    "gold_line_in_thoughts": CheckDescription(
        "warning",
        "a golden answer labelled as one in the previous thoughts: the policy's own words, or a leak",
        "look at some: thoughts that were told the answer teach to copy it",
    ),
    "evaluation_split": CheckDescription(
        "warning",
        "a row of a split that is not for training",
        "never evaluate on that split, or leave it out; publish will refuse",
    ),
    "default_cutoff": CheckDescription(
        "warning",
        "a row whose prompt would lose its end at the trainer's own cutoff_len (2,048)",
        "set cutoff_len to the one that is advised here",
    ),
    "beyond_context": CheckDescription(
        "warning", "a row longer than Qwen2.5's context of 32,768 tokens", "leave it out: pairs --max-tokens 32768"
    ),
    "estimated_lengths": CheckDescription(
        "warning",
        "a length that is estimated, four characters a token",
        "pip install 'reasonrag[tokens]' and audit again, before you rely on a cutoff",
    ),
    "not_described": CheckDescription(
        "warning",
        "a row in a file that dataset_info.json beside it does not describe as pairs with a system turn",
        "LLaMA-Factory's default columns glue the instruction into the user turn: write `ranking: true` and the "
        "columns system: instruction, prompt: input, chosen, rejected",
    ),
    "gold_in_question": CheckDescription(
        "info",
        "a golden answer that stands in the question itself",
        "no action: expected for 'A or B?' questions",
    ),
    "unknown_renderer": CheckDescription(
        "info",
        "a row that does not say what rendered its prompt",
        "evaluate with the very prompts of the file; parity cannot be checked",
    ),
    "email": CheckDescription(
        "info", "an email address", "public ones in passages are normal; look whether one is private"
    ),
    "flipped": CheckDescription(
        "info", "a row whose sides were exchanged on purpose (--flip)", "for noise experiments only"
    ),
}

ERRORS: tuple[CheckName, ...] = tuple(name for name in CHECK_NAMES if CHECKS[name].severity == "error")
TypeName: TypeAlias = Literal["Query Generation", "Evidence Extraction", "Answer Generation", "Other"]
TYPE_NAMES: tuple[TypeName, ...] = get_args(TypeName)
