"""The settings of a model, of how fast it is asked, and of what it may cost: records that commands are made of."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import AfterValidator

from reasonrag.settings import (
    EXTRA_BODY,
    Concurrency,
    Effort,
    ExtraBody,
    MaxCalls,
    MaxCost,
    Panel,
    Settings,
    Words,
    Yes,
    setting,
)

DEFAULT_TEACHER = "gpt-4o"
"""The paper's (November 2026), where OPENAI_API_KEY is set. It is reported, not verified, to be shut down on 14 January
2027; an endpoint that has it no more says so, and the user names another."""
MAX_REPLY_TOKENS, TIMEOUT_S = 512, 300.0
"""Default length limit of a reply, and default timeout of a request in seconds."""
MAX_WAIT_MIN = 2 * 24 * 60.0
"""Two days: a daily limit is waited for."""


def _prices(words: list[str]) -> list[str]:
    for word in words:
        parse_price(word)
    return words


def parse_price(word: str) -> tuple[str, float, float]:
    """The model, and its dollars per million prompt tokens and completion tokens. Raises ValueError."""
    name, _, prices = word.rpartition("=")
    try:
        tokens_in, tokens_out = map(float, prices.split(","))
    except ValueError:
        tokens_in = tokens_out = -1.0
    if not (name and 0 <= tokens_in < float("inf") and 0 <= tokens_out < float("inf")):
        raise ValueError("it takes NAME=IN,OUT, in dollars per million tokens, as in gpt-4o=2.5,10")
    return name, tokens_in, tokens_out


Prices: TypeAlias = Annotated[Words, AfterValidator(_prices)]


class ModelSettings(Settings):
    """A model, and how it is asked."""

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
    temperature: float | None = setting("Sampling temperature [default: 1]", Panel.MODEL, ge=0, le=2)
    max_reply_tokens: int = setting(
        "Maximum tokens per completion, reasoning tokens included", Panel.MODEL, default=MAX_REPLY_TOKENS, ge=1
    )
    extra_body: ExtraBody = setting(
        f"JSON object of extra fields for every request to the model: '{EXTRA_BODY}', for Qwen3 "
        '\'{"chat_template_kwargs": {"enable_thinking": false}}\'',
        Panel.MODEL,
    )
    reasoning_effort: Annotated[Effort, Panel.MODEL] = None
    price: Prices = setting(
        "NAME=IN,OUT: price of a model of this command, in dollars per million prompt tokens and completion tokens; "
        "repeatable, once for each model [default: the list price]",
        Panel.BUDGET,
        default=[],
    )

    def beside(self, role: str) -> ModelSettings:
        """Another model of the same command, by the settings that begin with its role."""
        own = {name: getattr(self, f"{role}_{name}", None) for name in ("model", "base_url", "extra_body")}
        return ModelSettings(**own, price=self.price)


class ValueModelSettings(Settings):
    """A model that values the steps of another one, as far as it has settings of its own."""

    value_model: str | None = setting(
        "Model that continues the teacher's steps, for example the student: rewards are then the "
        "student's. offline: the extractive teacher [default: the teacher]",
        Panel.MODEL,
    )
    value_base_url: Words = setting(
        "OpenAI-compatible endpoint of the value model; repeatable [default: --base-url]", Panel.MODEL, default=[]
    )
    value_extra_body: ExtraBody = setting(
        "JSON object of extra fields for every request to the value model", Panel.MODEL
    )


class LimitSettings(Settings):
    """How fast a model is asked, and how long it is waited for."""

    concurrency: Concurrency = setting("HTTP requests in flight per model", default=32)
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


class BudgetSettings(Settings):
    """What a command may use."""

    max_cost: MaxCost = setting("Stop before the run costs more than this many dollars", common=True)
    max_calls: MaxCalls = setting("Stop before the run uses more than this many completions")
    max_tokens: int | None = setting("Stop before the run uses more than this many tokens", Panel.BUDGET, ge=0)
    yes: Yes = False
