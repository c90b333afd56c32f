"""Settings of every command that runs an agent over questions."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from mcts import RecipeName
from reasonrag.retrieval.settings import MAX_TOP_K, TOP_K, SearchSettings
from reasonrag.settings import one_or_several


class AgentSettings(SearchSettings):
    """What an agent is asked, who answers, and what that may cost: of every command that runs one over questions."""

    dataset: str | None = Field(
        default=None,
        description="atlas (the default), hotpotqa, 2wikimultihopqa, musique, popqa, bamboogle, nq or triviaqa",
    )
    split: str = Field(default="train", description="Split of the data set")
    limit: int | None = Field(default=None, ge=1, description="First questions only; may grow between runs")
    data_dir: Path | None = Field(
        default=None, description="Directory with <dataset>/<split>.jsonl and <dataset>/corpus.jsonl"
    )
    questions: Path | None = Field(default=None, description="Your own questions (JSONL) instead of --dataset")
    corpus: Path | None = Field(default=None, description="Your own corpus (JSONL; .gz and .zst too)")
    run: Path = Field(description="Run directory; an interrupted run in it is continued")
    model: str | None = Field(
        default=None, description="A model name of the endpoint, or offline [default for atlas: offline]"
    )
    base_url: list[str] = Field(
        default=[],
        description="OpenAI-compatible endpoint; several share the load [default: OPENAI_BASE_URL, else OpenAI's]",
    )
    prompts: Path | None = Field(
        default=None,
        description="Directory of your own prompts, any of think.txt read.txt conclude.txt repair.txt vary.txt "
        "judge.txt rank.txt answer.txt rubric.txt",
    )
    max_steps: int | None = Field(
        default=None, ge=1, description="Steps to an answer at most, the last is always a conclusion [default: 7]"
    )
    top_k: int = Field(default=TOP_K, ge=1, le=MAX_TOP_K, description="Passages per search")
    concurrency: int = Field(default=32, ge=1, description="HTTP requests in flight, of each model")
    seed: int = Field(default=0, ge=0, lt=2**63, description="Seed of the run")
    temperature: float = Field(default=1.0, ge=0, le=2, description="Sampling temperature")  # ReasonRAG: the API's own
    top_p: float = Field(default=1.0, gt=0, le=1, description="Nucleus sampling")
    max_reply_tokens: int = Field(default=512, ge=1, description="Longest reply in tokens")
    max_cost: float | None = Field(default=None, ge=0, description="Stop before the run costs more, in dollars")
    max_calls: int | None = Field(default=None, ge=0, description="Stop before the run uses more replies")
    max_tokens: int | None = Field(default=None, ge=0, description="Stop before the run uses more tokens")
    price_in: float | None = Field(
        default=None, ge=0, description="Dollars per million prompt tokens [default: the table's]"
    )
    price_out: float | None = Field(
        default=None, ge=0, description="Dollars per million completion tokens [default: the table's]"
    )
    rpm: int | None = Field(
        default=None,
        ge=1,
        description="Requests per minute of each endpoint and each model [default: what its headers say]",
    )
    tpm: int | None = Field(
        default=None,
        ge=1,
        description="Tokens per minute of each endpoint and each model [default: what its headers say]",
    )
    timeout: float = Field(default=300.0, gt=0, description="Seconds after which a request without answer is given up")

    @field_validator("base_url", mode="before")
    @classmethod
    def _addresses(cls, value: object) -> object:
        return one_or_several(value)


MAX_STEPS: dict[RecipeName, int] = {"paper": 7, "economy": 7, "released": 8}
"""Step budgets, the conclusion included. `released`: the effective value of the published code."""
