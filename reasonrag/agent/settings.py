"""Settings of every command that runs an agent over questions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from mcts import RecipeName
from reasonrag.retrieval.settings import MAX_TOP_K, TOP_K, SearchSettings
from reasonrag.settings import CompletionPrice, Concurrency, MaxCalls, MaxCost, Panel, PromptPrice, Seed, Words

MAX_REPLY_TOKENS, TIMEOUT_S = 512, 300.0
"""Default length limit of a reply, and default timeout of a request in seconds."""


class AgentSettings(SearchSettings):
    """Questions, corpus, model and budget of a command that runs an agent over questions."""

    dataset: Annotated[str | None, Panel.DATA] = Field(
        default=None,
        description="atlas (the default), hotpotqa, 2wikimultihopqa, musique, popqa, bamboogle, nq or triviaqa",
    )
    split: Annotated[str, Panel.DATA] = Field(default="train", description="Split of the data set")
    limit: Annotated[int | None, Panel.DATA] = Field(
        default=None, ge=1, description="Use only the first N questions; may grow between sessions of a run"
    )
    data_dir: Annotated[Path | None, Panel.DATA] = Field(
        default=None, description="Directory with <dataset>/<split>.jsonl and <dataset>/corpus.jsonl"
    )
    questions: Annotated[Path | None, Panel.DATA] = Field(
        default=None, description="Your own questions (JSONL) instead of --dataset"
    )
    corpus: Annotated[Path | None, Panel.DATA] = Field(
        default=None, description="Your own corpus (JSONL; .gz and .zst too)"
    )
    run: Annotated[Path, Panel.EXECUTION] = Field(description="Run directory; continues an interrupted run found there")
    model: Annotated[str | None, Panel.MODEL] = Field(
        default=None, description="A model name of the endpoint, or offline [default for atlas: offline]"
    )
    base_url: Annotated[Words, Panel.MODEL] = Field(
        default=[],
        description="OpenAI-compatible endpoint; repeat to share the load among several "
        "[default: OPENAI_BASE_URL, else OpenAI's]",
    )
    prompts: Annotated[Path | None, Panel.MODEL] = Field(
        default=None,
        description="Directory of your own prompts, any of think.txt read.txt conclude.txt repair.txt vary.txt "
        "judge.txt rank.txt answer.txt rubric.txt",
    )
    max_steps: Annotated[int | None, Panel.MODEL] = Field(
        default=None, ge=1, description="Maximum steps to an answer; the last one must conclude [default: 7]"
    )
    top_k: Annotated[int, Panel.RETRIEVAL] = Field(default=TOP_K, ge=1, le=MAX_TOP_K, description="Passages per search")
    concurrency: Concurrency = Field(default=32, description="HTTP requests in flight, per model")
    seed: Annotated[Seed, Panel.EXECUTION] = Field(default=0, description="Seed of the run")
    # ReasonRAG: the API's own
    temperature: Annotated[float, Panel.MODEL] = Field(default=1.0, ge=0, le=2, description="Sampling temperature")
    top_p: Annotated[float, Panel.MODEL] = Field(default=1.0, gt=0, le=1, description="Nucleus sampling")
    max_reply_tokens: Annotated[int, Panel.MODEL] = Field(
        default=MAX_REPLY_TOKENS, ge=1, description="Maximum length of a completion, in tokens"
    )
    max_cost: MaxCost = Field(default=None, description="Stop before the run costs more than this, in dollars")
    max_calls: MaxCalls = Field(default=None, description="Stop before the run uses more completions than this")
    max_tokens: Annotated[int | None, Panel.BUDGET] = Field(
        default=None, ge=0, description="Stop before the run uses more tokens than this"
    )
    price_in: PromptPrice = None
    price_out: CompletionPrice = None
    rpm: Annotated[int | None, Panel.EXECUTION] = Field(
        default=None, ge=1, description="Requests per minute, per endpoint and model [default: from response headers]"
    )
    tpm: Annotated[int | None, Panel.EXECUTION] = Field(
        default=None, ge=1, description="Tokens per minute, per endpoint and model [default: from response headers]"
    )
    timeout: Annotated[float, Panel.EXECUTION] = Field(
        default=TIMEOUT_S, gt=0, description="Seconds to wait for a response before a request is given up"
    )


MAX_STEPS: dict[RecipeName, int] = {"paper": 7, "economy": 7, "released": 8}
"""Step budgets, the conclusion included. `released`: the effective value of the published code."""
