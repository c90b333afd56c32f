"""Settings of `pairs`, `audit`, `review` and `import`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from mcts import RECIPES
from preference import ExportOptions, PairingRules
from preference.export.formats import FormatName
from preference.export.summary import VALIDATION_SHARE
from preference.published.trees import TreeRecipe
from reasonrag.settings import Settings, list_of_places, one_or_several

_RULES = PairingRules()


class PairingSettings(Settings):
    """What makes a pair, as far as one question goes."""

    min_margin: float = Field(
        default=_RULES.min_margin,
        ge=0,
        allow_inf_nan=False,
        description="Smallest difference of rewards that makes a pair",
    )
    min_confidence: float = Field(
        default=_RULES.min_confidence, ge=0, le=1, description="Smallest chance that the chosen step is truly better"
    )
    max_similarity: float = Field(
        default=_RULES.max_similarity,
        ge=0,
        le=1,
        description="Largest share of words that what both steps say may have in common; 1: any",
    )
    max_per_combination: int = Field(
        default=_RULES.max_per_combination or 0,
        ge=0,
        lt=2**63,
        description="Pairs of a state with the same two action types, widest margins first; 0: all",
    )
    max_per_state: int = Field(
        default=_RULES.max_per_state or 0, ge=0, lt=2**63, description="Surest pairs of a state that are kept; 0: all"
    )
    max_per_question: int = Field(
        default=_RULES.max_per_question or 0,
        ge=0,
        lt=2**63,
        description="Surest pairs of a question that are kept; 0: all",
    )
    same_type: bool = Field(
        default=_RULES.same_type, description="Only pairs of two steps of one action type, or of any two"
    )
    allow_malformed: bool = Field(
        default=_RULES.allow_malformed, description="Let replies that did not parse be the rejected side"
    )
    allow_ungrounded: bool = Field(
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
    "Who counts tokens: qwen2.5, estimate, a folder with a tokenizer.json, or a model on the Hub "
    "[default: qwen2.5 where the tokens extra is installed, else estimate]"
)
_ALLOW = "Write the files although the audit finds this error, by its name; repeatable"


class AuditSettings(Settings):
    """Settings of `audit`."""

    tokenizer: str | None = Field(default=None, description=_TOKENIZER)
    allow: list[str] = Field(default=[], description="Let this error pass, by its name; repeatable")
    out: Path | None = Field(
        default=None, description="Directory for audit.json and audit.html [default: where the data are]"
    )

    @field_validator("allow", mode="before")
    @classmethod
    def _names(cls, value: object) -> object:
        return one_or_several(value)


class PairsSettings(PairingSettings):
    """Settings of `pairs`."""

    out: Path = Field(description="Directory for the data set: RAG_ProGuide.json, candidates.jsonl, summary.json, ..")
    format: list[FormatName] = Field(
        default=[],
        description="Write this beside RAG_ProGuide; repeatable: alpaca, sharegpt, kto, reward, sft, trl, parquet",
    )
    validation: float = Field(
        default=VALIDATION_SHARE,
        ge=0,
        lt=1,
        description="Share of the questions with a pair whose pairs go to a validation file; 0: none",
    )
    balance: bool = Field(
        default=_RULES.balance, description="As many pairs of each action type as there are of the rarest"
    )
    max_efficiency_only: float = Field(
        default=_RULES.max_efficiency_only,
        ge=0,
        le=1,
        description="Largest share of pairs whose steps differ in the length of the way only; 1: any",
    )
    max_style_only: float = Field(
        default=_RULES.max_style_only,
        ge=0,
        le=1,
        description="Largest share of pairs of two answers that cover-EM cannot tell apart; 1: any",
    )
    max_tokens: int = Field(
        default=_RULES.max_tokens or 0,
        ge=0,
        lt=2**63,
        description="Longest prompt and reply together, in tokens; 0: any",
    )
    eval: list[str] = Field(
        default=[],
        description="Leave out questions that stand in this evaluation split: a question file, a folder with "
        "<dataset>/<split>.jsonl, or hub for FlashRAG's; repeatable [default: those beside the data of the runs]",
    )
    allow_eval: list[str] = Field(
        default=[],
        description="Keep questions that stand in this evaluation split, as dataset/split, or all; repeatable",
    )
    flip: float = Field(
        default=0.0, ge=0, le=1, description="Share of the training pairs whose sides are exchanged, to try out noise"
    )
    seed: int = Field(
        default=0,
        ge=0,
        lt=2**63,
        description="Seed of what goes to validation and what is flipped; of what a judge is shown first, so that "
        "another one asks it anew",
    )
    tokenizer: str | None = Field(default=None, description=_TOKENIZER)
    allow: list[str] = Field(default=[], description=_ALLOW)

    label: Literal["value", "judge"] = Field(
        default="value",
        description="Who says which step is better: value (continuations, and free), or judge (--model sees the steps "
        "of a state and picks a better one and a worse one, or none)",
    )
    model: str | None = Field(default=None, description="The judge: a model name of the endpoint, or offline")
    base_url: list[str] = Field(
        default=[],
        description="Its OpenAI-compatible endpoint; several share the load [default: OPENAI_BASE_URL, else OpenAI's]",
    )
    judge_gold: bool = Field(default=False, description="Whether the judge sees the golden answers")
    prompts: Path | None = Field(default=None, description="Directory of your own prompts, pick.txt for the judge")
    concurrency: int = Field(default=32, ge=1, description="HTTP requests in flight")
    max_cost: float | None = Field(default=None, ge=0, description="Stop before the judging costs more, in dollars")
    max_calls: int | None = Field(default=None, ge=0, description="Stop before it uses more replies")
    price_in: float | None = Field(
        default=None, ge=0, description="Dollars per million prompt tokens [default: the table's]"
    )
    price_out: float | None = Field(
        default=None, ge=0, description="Dollars per million completion tokens [default: the table's]"
    )

    @field_validator("format", "base_url", "allow", mode="before")
    @classmethod
    def _several(cls, value: object) -> object:
        """The environment separates them by white space."""
        return one_or_several(value)

    @field_validator("eval", mode="before")
    @classmethod
    def _splits(cls, value: object) -> object:
        """Paths are as good as their spelling."""
        found = list_of_places(value)
        return [str(each) for each in found] if isinstance(found, list | tuple) else found

    @field_validator("allow_eval", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        return one_or_several(value)

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

    pairs: int = Field(default=50, ge=1, description="Size of the sample; a larger one holds all pairs of a smaller")
    seed: int = Field(default=0, ge=0, lt=2**63, description="Seed of the sample, and of which side is shown as A")
    reviewer: str | None = Field(
        default=None, description="Who judges; names the file of the judgements [default: the user's name]"
    )


class ImportSettings(Settings):
    """Settings of `import`."""

    out: Path = Field(description="Directory for what is made: a run directory of trees, or a data set of pairs")
    recipe: TreeRecipe = Field(
        default="released",
        description="Rewards of trees: released (the published builder's, weighted by visits) or paper (mean over the "
        "answers below a step, margins by layer)",
    )
    keep_rewards: bool = Field(default=False, description="Label trees by the rewards that stand in the files")
    alpha: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Discount per step of the rewards of trees [default: the recipe's, "
        f"{RECIPES['released'].search.alpha}]",
    )
    dataset: str | None = Field(default=None, description="Data set that the questions are of [default: unknown]")
    split: str | None = Field(default=None, description="Split that the questions are of [default: unknown]")
    questions: list[Path] = Field(
        default=[],
        description="Question file (FlashRAG's JSONL) that tells ids and golden answers; repeatable. If it is called "
        "DATASET/SPLIT.jsonl it tells these too",
    )
    teacher: str | None = Field(default=None, description="Model that made the replies [default: unknown]")

    @field_validator("questions", mode="before")
    @classmethod
    def _files(cls, value: object) -> object:
        return list_of_places(value)

    @property
    def discount(self) -> float:
        return RECIPES[self.recipe].search.alpha if self.alpha is None else self.alpha
