"""Settings of every command that runs an agent over questions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from mcts import RecipeName
from reasonrag.retrieval.settings import PassageOrder, ReadingSettings
from reasonrag.settings import (
    EXTRA_BODY,
    CompletionPrice,
    Concurrency,
    ExtraBody,
    MaxCalls,
    MaxCost,
    Panel,
    PromptPrice,
    Seed,
    Words,
    Yes,
    setting,
)

MAX_REPLY_TOKENS, TIMEOUT_S = 512, 300.0
"""Default length limit of a reply, and default timeout of a request in seconds."""


class AgentSettings(ReadingSettings):
    """Questions, corpus, model and budget of a command that runs an agent over questions."""

    dataset: str | None = setting(
        "atlas (the default), hotpotqa, 2wikimultihopqa, musique, popqa, bamboogle, nq or triviaqa", Panel.DATA
    )
    split: str = setting("Split of the data set", Panel.DATA, default="train")
    limit: int | None = setting("Use only the first N questions; may grow between sessions of a run", Panel.DATA, ge=1)
    data_dir: Path | None = setting("Directory with <dataset>/<split>.jsonl and <dataset>/corpus.jsonl", Panel.DATA)
    questions: Path | None = setting("Your own questions (JSONL) instead of --dataset", Panel.DATA)
    corpus: Path | None = setting("Your own corpus (JSONL; .gz and .zst too)", Panel.DATA)
    run: Annotated[Path, Panel.EXECUTION] = Field(description="Run directory; continues an interrupted run found there")
    model: str | None = setting("A model name of the endpoint, or offline [default for atlas: offline]", Panel.MODEL)
    base_url: Words = setting(
        "OpenAI-compatible endpoint; repeat to share the load among several [default: OPENAI_BASE_URL, else OpenAI's]",
        Panel.MODEL,
        default=[],
    )
    prompts: Path | None = setting(
        "Directory of your own prompts, any of think.txt read.txt conclude.txt repair.txt vary.txt "
        "judge.txt rank.txt answer.txt rubric.txt",
        Panel.MODEL,
    )
    max_steps: int | None = setting(
        "Maximum steps to an answer; the last one must conclude [default: 7]", Panel.MODEL, ge=1
    )
    concurrency: Concurrency = setting("HTTP requests in flight, per model", default=32)
    seed: Seed = setting("Seed of the run", Panel.EXECUTION, default=0)
    # ReasonRAG: the API's own
    temperature: float = setting("Sampling temperature", Panel.MODEL, default=1.0, ge=0, le=2)
    top_p: float = setting("Nucleus sampling", Panel.MODEL, default=1.0, gt=0, le=1)
    max_reply_tokens: int = setting(
        "Maximum length of a completion, in tokens, reasoning included", Panel.MODEL, default=MAX_REPLY_TOKENS, ge=1
    )
    extra_body: ExtraBody = setting(
        f"Extra fields for every request to the model, as a JSON object: '{EXTRA_BODY}', for Qwen3 "
        '\'{"chat_template_kwargs": {"enable_thinking": false}}\'',
        Panel.MODEL,
    )
    max_cost: MaxCost = setting("Stop before the run costs more than this, in dollars")
    max_calls: MaxCalls = setting("Stop before the run uses more completions than this")
    max_tokens: int | None = setting("Stop before the run uses more tokens than this", Panel.BUDGET, ge=0)
    yes: Yes = False
    price_in: PromptPrice = None
    price_out: CompletionPrice = None
    rpm: int | None = setting(
        "Requests per minute, per endpoint and model [default: from response headers]", Panel.EXECUTION, ge=1
    )
    tpm: int | None = setting(
        "Tokens per minute, per endpoint and model [default: from response headers]", Panel.EXECUTION, ge=1
    )
    timeout: float = setting(
        "Seconds to wait for a response before a request is given up", Panel.EXECUTION, default=TIMEOUT_S, gt=0
    )


MAX_STEPS: dict[RecipeName, int] = {"paper": 7, "economy": 7, "released": 8}
"""Step budgets, the conclusion included. `released`: the effective value of the published code."""
PASSAGE_ORDER: dict[RecipeName, PassageOrder] = {"released": "worst-first"}
"""Order of the passages in a prompt, where it is not the best first. `released`: that of the published code."""
