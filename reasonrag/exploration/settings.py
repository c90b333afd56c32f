"""Settings of `generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from mcts import RecipeName
from preference import OutcomeName
from reasonrag.agent.settings import AgentSettings
from reasonrag.settings import one_or_several

RewardName = Literal["spre", "outcome", "judge-score", "judge-rank", "spre+judge-score", "spre+judge-rank"]


class GenerateSettings(AgentSettings):
    """Settings of `generate`. A field's description is the help text of its flag."""

    model: str | None = Field(
        default=None, description="Teacher: a model name of the endpoint, or offline [default for atlas: offline]"
    )
    max_steps: int | None = Field(
        default=None,
        ge=1,
        description="Steps to an answer at most, the last is always a conclusion [default: 7; released: 8]",
    )
    value_model: str | None = Field(
        default=None,
        description="Model that continues what the teacher proposes, the student say: steps are then worth what they "
        "are worth to it; offline for the extractive teacher [default: the teacher]",
    )
    value_base_url: list[str] = Field(
        default=[], description="OpenAI-compatible endpoint of the value model; repeatable [default: --base-url]"
    )
    value_temperature: float | None = Field(
        default=None, ge=0, le=2, description="Sampling temperature of the value model [default: --temperature]"
    )
    recipe: RecipeName = Field(default="economy", description="economy, paper or released")
    outcome: OutcomeName | None = Field(
        default=None,
        description="Quality of an answer: f1, em, evident_f1, which is f1 but 0 for an answer that no evidence before "
        "it holds, judge or rubric, which need no golden answers: the teacher scores the answer, on top of "
        "--max-calls-per-question [default: the recipe's]",
    )
    rubric: Path | None = Field(
        default=None,
        description="Text file of what an answer must do, a criterion a line, for questions without metadata.rubric; "
        "with --outcome rubric",
    )
    reward: RewardName | None = Field(
        default=None,
        description="What steps are worth: spre (continuations), outcome (by visits), judge-score, judge-rank, "
        "spre+judge-score or spre+judge-rank [default: spre; released: outcome]",
    )
    judge_weight: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Share of the judge in a combination with spre [default: 0.5]",
    )
    judge_gold: bool | None = Field(
        default=None, description="Whether judges see the golden answers [default: no; released: yes]"
    )
    siblings: int | None = Field(default=None, ge=1, description="Steps sampled per state [default: the recipe's]")
    continuations: int | None = Field(
        default=None, ge=1, description="Real continuations per step [default: the recipe's]"
    )
    simulations: int | None = Field(default=None, ge=1, description="Simulations per question [default: the recipe's]")
    max_calls_per_question: int | None = Field(
        default=None,
        ge=1,
        description="Replies used by a question's search at most; judgements of --reward and --outcome come on top "
        "[default: the recipe's]",
    )
    alpha: float | None = Field(
        default=None, gt=0, le=1, description="Discount of an answer's worth per step [default: the recipe's]"
    )
    exploration: float | None = Field(
        default=None, ge=0, description="c of UCT; recipes paper and released [default: the recipe's]"
    )
    value_price_in: float | None = Field(
        default=None, ge=0, description="The same of the value model [default: the table's, or 0 at --value-base-url]"
    )
    value_price_out: float | None = Field(
        default=None, ge=0, description="The same of the value model [default: the table's, or 0 at --value-base-url]"
    )
    abort_degenerate: float = Field(
        default=0.95,
        ge=0,
        le=1,
        description="Stop when so large a share of the questions gives trees that teach nothing; 0 never",
    )

    @field_validator("value_base_url", mode="before")
    @classmethod
    def _value_addresses(cls, value: object) -> object:
        return one_or_several(value)


JUDGE_WEIGHT = 0.5
"""Share of the judge where it is combined with continuations: ours, the plain mean of the two."""
