"""Settings of every command that runs an agent over questions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from mcts import AgentDefaults
from reasonrag.data.questions import SHORT, AnswerStyle
from reasonrag.retrieval.settings import ReadingSettings
from reasonrag.settings import (
    EXTRA_BODY,
    CompletionPrice,
    Concurrency,
    Effort,
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
MAX_WAIT_MIN = 2 * 24 * 60.0
"""Two days: a daily limit is waited for."""


class AgentSettings(ReadingSettings):
    """Questions, corpus, model and budget of a command that runs an agent over questions."""

    dataset: Words = setting(
        "Data set: hotpotqa, 2wikimultihopqa (2wiki), musique, popqa, bamboogle, nq, triviaqa, the "
        "built-in atlas, or a folder of --data-dir; generate and tune mix several if it is repeated "
        "[default: atlas]",
        Panel.DATA,
        default=[],
        common=True,
    )
    split: str = setting("Split of the data set", Panel.DATA, default="train")
    limit: int | None = setting(
        "Use only the first N questions; a later session may raise it", Panel.DATA, ge=1, common=True
    )
    sample: int | None = setting(
        "Draw N questions per data set at random, stratified by question type; --seed decides which. "
        "A later session may raise it",
        Panel.DATA,
        ge=1,
    )
    data_dir: Path | None = setting(
        "Folder with <dataset>/<split>.jsonl and <dataset>/corpus.jsonl [default: FlashRAG's collection on the Hub]",
        Panel.DATA,
    )
    questions: Path | None = setting("Your own questions (JSONL), instead of --dataset", Panel.DATA, common=True)
    corpus: Path | None = setting(
        "Passages to search (JSONL, also .gz), or wiki-18 for Wikipedia 2018 [default: the "
        "data set's corpus, else the passages in the question file]",
        Panel.DATA,
        common=True,
    )
    model: str | None = setting(
        "Model name at the endpoint, or offline [default for atlas: offline; otherwise required]",
        Panel.MODEL,
        common=True,
    )
    base_url: Words = setting(
        "OpenAI-compatible endpoint; repeat to spread the load over several [default: OPENAI_BASE_URL, else OpenAI's]",
        Panel.MODEL,
        default=[],
        common=True,
    )
    prompts: Path | None = setting(
        "Folder with your own prompts, any of begin.txt think.txt read.txt conclude.txt short.txt "
        "long.txt repair.txt vary.txt judge.txt rank.txt answer.txt rubric.txt; or "
        "reasonrag-published, the prompts of imported data",
        Panel.MODEL,
    )
    style: AnswerStyle = setting(
        "Length of answers: short (a name, a date, yes or no) or long (sentences, which a judge "
        "scores). A question's metadata.style takes precedence",
        Panel.MODEL,
        default=SHORT,
    )
    max_steps: int | None = setting(
        "Maximum steps per answer; at the last one the agent must answer [default: 7]", Panel.MODEL, ge=1
    )
    concurrency: Concurrency = setting("HTTP requests in flight per model", default=32)
    seed: Seed = setting("Seed of the run", Panel.EXECUTION, default=0)
    temperature: float | None = setting("Sampling temperature [default: 1]", Panel.MODEL, ge=0, le=2)
    top_p: float | None = setting("Nucleus sampling probability [default: 1]", Panel.MODEL, gt=0, le=1)
    max_reply_tokens: int = setting(
        "Maximum tokens per completion, reasoning tokens included", Panel.MODEL, default=MAX_REPLY_TOKENS, ge=1
    )
    extra_body: ExtraBody = setting(
        f"JSON object of extra fields for every request to the model: '{EXTRA_BODY}', for Qwen3 "
        '\'{"chat_template_kwargs": {"enable_thinking": false}}\'',
        Panel.MODEL,
    )
    reasoning_effort: Annotated[Effort, Panel.MODEL] = None
    max_cost: MaxCost = setting("Stop before the run costs more than this many dollars", common=True)
    max_calls: MaxCalls = setting("Stop before the run uses more than this many completions")
    max_tokens: int | None = setting("Stop before the run uses more than this many tokens", Panel.BUDGET, ge=0)
    yes: Yes = False
    price_in: PromptPrice = None
    price_out: CompletionPrice = None
    rpm: int | None = setting(
        "Requests per minute for each endpoint and model [default: from response headers]", Panel.EXECUTION, ge=1
    )
    tpm: int | None = setting(
        "Tokens per minute for each endpoint and model [default: from response headers]", Panel.EXECUTION, ge=1
    )
    timeout: float = setting(
        "Seconds before an unanswered request is given up", Panel.EXECUTION, default=TIMEOUT_S, gt=0
    )
    max_wait: float = setting(
        "Minutes that endpoints may ask to wait; beyond, the run stops (status 3) and the same command continues it",
        Panel.EXECUTION,
        default=MAX_WAIT_MIN,
        gt=0,
    )

    @property
    def agent_defaults(self) -> AgentDefaults:
        """What is not given, for the recipe if the command has one."""
        return AgentDefaults()

    @property
    def parts(self) -> int:
        """Of so many equal parts of caps and rates this process uses one."""
        return 1
