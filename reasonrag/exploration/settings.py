"""Settings of `generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from mcts import RecipeName
from preference import OutcomeName
from reasonrag.agent.settings import AgentSettings
from reasonrag.settings import Panel, Price, Share, Words

RewardName = Literal["spre", "outcome", "judge-score", "judge-rank", "spre+judge-score", "spre+judge-rank"]


class GenerateSettings(AgentSettings):
    """Settings of `generate`."""

    model: Annotated[str | None, Panel.MODEL] = Field(
        default=None, description="Teacher: a model name of the endpoint, or offline [default for atlas: offline]"
    )
    max_steps: Annotated[int | None, Panel.SEARCH] = Field(
        default=None,
        ge=1,
        description="Maximum steps to an answer; the last one must conclude [default: 7; released: 8]",
    )
    value_model: Annotated[str | None, Panel.MODEL] = Field(
        default=None,
        description="Model that continues the teacher's steps, for example the student: rewards are then those of its "
        "policy; offline for the extractive teacher [default: the teacher]",
    )
    value_base_url: Annotated[Words, Panel.MODEL] = Field(
        default=[], description="OpenAI-compatible endpoint of the value model; repeatable [default: --base-url]"
    )
    value_temperature: Annotated[float | None, Panel.MODEL] = Field(
        default=None, ge=0, le=2, description="Sampling temperature of the value model [default: --temperature]"
    )
    recipe: Annotated[RecipeName, Panel.SEARCH] = Field(default="economy", description="economy, paper or released")
    outcome: Annotated[OutcomeName | None, Panel.SEARCH] = Field(
        default=None,
        description="Score of an answer: f1, em, evident_f1 (f1, but 0 unless earlier evidence holds the answer), "
        "judge or rubric. The last two need no gold answers: the teacher scores the answer, in addition to "
        "--max-calls-per-question [default: the recipe's]",
    )
    rubric: Annotated[Path | None, Panel.SEARCH] = Field(
        default=None,
        description="Text file of criteria for an answer, one per line, for questions without metadata.rubric; "
        "with --outcome rubric",
    )
    reward: Annotated[RewardName | None, Panel.SEARCH] = Field(
        default=None,
        description="Reward of a step: spre (continuations), outcome (by visits), judge-score, judge-rank, "
        "spre+judge-score or spre+judge-rank [default: spre; released: outcome]",
    )
    judge_weight: Annotated[float | None, Panel.SEARCH] = Field(
        default=None, gt=0, lt=1, description="Weight of the judge when combined with spre [default: 0.5]"
    )
    judge_gold: Annotated[bool | None, Panel.SEARCH] = Field(
        default=None, description="Show judges the gold answers [default: no; released: yes]"
    )
    siblings: Annotated[int | None, Panel.SEARCH] = Field(
        default=None, ge=1, description="Steps sampled per state [default: the recipe's]"
    )
    continuations: Annotated[int | None, Panel.SEARCH] = Field(
        default=None, ge=1, description="Real continuations per step [default: the recipe's]"
    )
    simulations: Annotated[int | None, Panel.SEARCH] = Field(
        default=None, ge=1, description="Simulations per question [default: the recipe's]"
    )
    max_calls_per_question: Annotated[int | None, Panel.SEARCH] = Field(
        default=None,
        ge=1,
        description="Maximum completions for the search of one question; judgements of --reward and --outcome are "
        "extra [default: the recipe's]",
    )
    alpha: Annotated[float | None, Panel.SEARCH] = Field(
        default=None, gt=0, le=1, description="Discount of an answer's reward per step [default: the recipe's]"
    )
    exploration: Annotated[float | None, Panel.SEARCH] = Field(
        default=None, ge=0, description="c of UCT; for recipes paper and released [default: the recipe's]"
    )
    value_price_in: Price = Field(
        default=None,
        description="Dollars per million prompt tokens of the value model [default: from the price table, or 0 with "
        "--value-base-url]",
    )
    value_price_out: Price = Field(
        default=None,
        description="Dollars per million completion tokens of the value model [default: from the price table, or 0 "
        "with --value-base-url]",
    )
    abort_degenerate: Annotated[Share, Panel.EXECUTION] = Field(
        default=0.95,
        description="Stop when this share of the questions gives degenerate trees, which teach nothing; 0: never",
    )


JUDGE_WEIGHT = 0.5
"""Share of the judge where it is combined with continuations: ours, the plain mean of the two."""
