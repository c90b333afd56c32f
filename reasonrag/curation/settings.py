"""Settings of `pairs`, `audit`, `review` and `import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from mcts import RECIPES
from preference import ExportOptions, PairingRules
from preference.export.formats import FormatName
from preference.export.summary import VALIDATION_SHARE
from preference.published.trees import TreeRecipe
from reasonrag.settings import (
    SEVERAL,
    CompletionPrice,
    Concurrency,
    Limit,
    MaxCalls,
    MaxCost,
    Opposite,
    Panel,
    Places,
    PromptPrice,
    Seed,
    Settings,
    Share,
    Words,
    list_of_places,
)

_RULES = PairingRules()


class PairingSettings(Settings):
    """What makes a pair, as far as one question goes."""

    min_margin: Annotated[float, Panel.PAIRING] = Field(
        default=_RULES.min_margin, ge=0, allow_inf_nan=False, description="Minimum difference of rewards"
    )
    min_confidence: Annotated[Share, Panel.PAIRING] = Field(
        default=_RULES.min_confidence, description="Minimum probability that the chosen step is truly better"
    )
    max_similarity: Annotated[Share, Panel.PAIRING] = Field(
        default=_RULES.max_similarity, description="Maximum share of words that the two steps have in common; 1: any"
    )
    max_per_combination: Annotated[Limit, Panel.PAIRING] = Field(
        default=_RULES.max_per_combination or 0,
        description="Pairs per state and pair of action types, widest margins first; 0: all",
    )
    max_per_state: Annotated[Limit, Panel.PAIRING] = Field(
        default=_RULES.max_per_state or 0, description="Pairs per state, most confident first; 0: all"
    )
    max_per_question: Annotated[Limit, Panel.PAIRING] = Field(
        default=_RULES.max_per_question or 0, description="Pairs per question, most confident first; 0: all"
    )
    same_type: Annotated[bool, Panel.PAIRING, Opposite("--any-type")] = Field(
        default=_RULES.same_type, description="Pair only steps of the same action type, or steps of any types"
    )
    allow_malformed: Annotated[bool, Panel.PAIRING, Opposite(None)] = Field(
        default=_RULES.allow_malformed, description="Let replies that did not parse be the rejected side"
    )
    allow_ungrounded: Annotated[bool, Panel.PAIRING, Opposite(None)] = Field(
        default=_RULES.allow_ungrounded, description="Let steps that no passage supports be the chosen side"
    )

    @property
    def rules(self) -> PairingRules:
        given: dict[str, Any] = {
            name: getattr(self, name) for name in PairingRules.__dataclass_fields__ if name in type(self).model_fields
        }
        return PairingRules(**given | {name: given.get(name) or None for name in _NO_LIMIT})


_NO_LIMIT = ("max_per_combination", "max_per_state", "max_per_question", "max_tokens")
"""Rules of which 0 as a setting means none."""


_TOKENIZER = (
    "Tokenizer that counts tokens: qwen2.5, estimate, a folder with a tokenizer.json, or a model on the Hub "
    "[default: qwen2.5 if the tokens extra is installed, else estimate]"
)


class AuditSettings(Settings):
    """Settings of `audit`."""

    tokenizer: str | None = Field(default=None, description=_TOKENIZER)
    allow: Words = Field(default=[], description="Accept this error, by its name; repeatable")
    out: Path | None = Field(
        default=None, description="Directory for audit.json and audit.html [default: beside the data]"
    )


def _splits(value: object) -> object:
    """Paths, as text: a split may also be `hub`."""
    found = list_of_places(value)
    return [str(each) for each in found] if isinstance(found, list | tuple) else found


class PairsSettings(PairingSettings):
    """Settings of `pairs`."""

    out: Annotated[Path, Panel.OUTPUT] = Field(
        description="Directory for the data set: RAG_ProGuide.json, candidates.jsonl, summary.json, .."
    )
    replace: Annotated[bool, Panel.OUTPUT] = Field(default=False, description="Replace a data set made from other runs")
    format: Annotated[list[FormatName], SEVERAL, Panel.OUTPUT] = Field(
        default=[],
        description="Also write this format, beside RAG_ProGuide; repeatable: alpaca, sharegpt, kto, reward, sft, trl, "
        "parquet",
    )
    validation: Annotated[float, Panel.OUTPUT] = Field(
        default=VALIDATION_SHARE,
        ge=0,
        lt=1,
        description="Share of the questions with a pair that are held out for validation; 0: none",
    )
    balance: Annotated[bool, Panel.PAIRING] = Field(
        default=_RULES.balance, description="Keep as many pairs of each action type as there are of the rarest"
    )
    max_efficiency_only: Annotated[Share, Panel.PAIRING] = Field(
        default=_RULES.max_efficiency_only,
        description="Maximum share of pairs whose sides differ only in the number of steps to the answer; 1: any",
    )
    max_style_only: Annotated[Share, Panel.PAIRING] = Field(
        default=_RULES.max_style_only,
        description="Maximum share of pairs of two answers that cover-EM cannot tell apart; 1: any",
    )
    max_tokens: Annotated[Limit, Panel.PAIRING] = Field(
        default=_RULES.max_tokens or 0, description="Maximum length of prompt and reply together, in tokens; 0: any"
    )
    eval: Annotated[list[str], BeforeValidator(_splits), Panel.DECONTAMINATION] = Field(
        default=[],
        description="Leave out questions found in this evaluation split: a question file, a folder with "
        "<dataset>/<split>.jsonl, or hub for FlashRAG's; repeatable [default: those beside the data of the runs]",
    )
    allow_eval: Annotated[Words, Panel.DECONTAMINATION] = Field(
        default=[], description="Keep questions found in this evaluation split, as dataset/split, or all; repeatable"
    )
    flip: Annotated[Share, Panel.OUTPUT] = Field(
        default=0.0, description="Share of the training pairs whose sides are swapped, to study label noise"
    )
    seed: Annotated[Seed, Panel.OUTPUT] = Field(
        default=0,
        description="Seed of the validation split, of --flip, and of the order in which a judge sees steps: another "
        "seed asks the judge again",
    )
    tokenizer: Annotated[str | None, Panel.CHECKS] = Field(default=None, description=_TOKENIZER)
    allow: Annotated[Words, Panel.CHECKS] = Field(
        default=[], description="Write the files in spite of this error of the audit, by its name; repeatable"
    )

    label: Annotated[Literal["value", "judge"], Panel.LABELS] = Field(
        default="value",
        description="Where labels come from: value (continuations; free), or judge (--model sees the steps of a state "
        "and picks a better one and a worse one, or none)",
    )
    model: Annotated[str | None, Panel.LABELS] = Field(
        default=None, description="The judge: a model name of the endpoint, or offline"
    )
    base_url: Annotated[Words, Panel.LABELS] = Field(
        default=[],
        description="OpenAI-compatible endpoint of the judge; repeat to share the load among several "
        "[default: OPENAI_BASE_URL, else OpenAI's]",
    )
    judge_gold: Annotated[bool, Panel.LABELS] = Field(default=False, description="Show the judge the gold answers")
    prompts: Annotated[Path | None, Panel.LABELS] = Field(
        default=None, description="Directory of your own prompts; the judge's is pick.txt"
    )
    concurrency: Annotated[Concurrency, Panel.LABELS] = 32
    max_cost: MaxCost = Field(default=None, description="Stop before the judge costs more than this, in dollars")
    max_calls: MaxCalls = Field(default=None, description="Stop before the judge uses more completions than this")
    price_in: PromptPrice = None
    price_out: CompletionPrice = None

    @property
    def options(self) -> ExportOptions:
        return ExportOptions(
            formats=tuple(dict.fromkeys(("proguide", *self.format))),
            validation=self.validation,
            flip=self.flip,
            seed=self.seed,
        )


class ReviewSettings(Settings):
    """Settings of `review`."""

    pairs: int = Field(default=50, ge=1, description="Size of the sample; a larger sample contains every smaller one")
    seed: Seed = Field(default=0, description="Seed of the sample, and of which side is shown as A")
    reviewer: str | None = Field(
        default=None, description="Name of the reviewer, and of the file of judgements [default: your user name]"
    )


class ImportSettings(Settings):
    """Settings of `import`."""

    out: Path = Field(description="Directory for the result: a run directory from trees, or a data set from pairs")
    replace: bool = Field(default=False, description="Replace an import of other files")
    recipe: Annotated[TreeRecipe, Panel.REWARDS] = Field(
        default="released",
        description="Rewards of trees: released (the published builder's, weighted by visits) or paper (mean over the "
        "answers below a step, margins by layer)",
    )
    keep_rewards: Annotated[bool, Panel.REWARDS] = Field(
        default=False, description="Label trees by the rewards in the published files"
    )
    alpha: Annotated[float | None, Panel.REWARDS] = Field(
        default=None,
        gt=0,
        le=1,
        description="Discount per step of the rewards of trees [default: the recipe's, "
        f"{RECIPES['released'].search.alpha}]",
    )
    dataset: Annotated[str | None, Panel.ORIGIN] = Field(
        default=None, description="Data set of the questions [default: unknown]"
    )
    split: Annotated[str | None, Panel.ORIGIN] = Field(
        default=None, description="Split of the questions [default: unknown]"
    )
    questions: Annotated[Places, Panel.ORIGIN] = Field(
        default=[],
        description="Question file (FlashRAG's JSONL) with ids and gold answers; repeatable. If it is called "
        "DATASET/SPLIT.jsonl, it names data set and split too",
    )
    teacher: Annotated[str | None, Panel.ORIGIN] = Field(
        default=None, description="Model that wrote the replies [default: unknown]"
    )

    @property
    def discount(self) -> float:
        return RECIPES[self.recipe].search.alpha if self.alpha is None else self.alpha
