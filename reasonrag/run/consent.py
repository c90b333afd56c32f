"""Consent: a session that may spend money without a limit shows its estimate first, and asks in a terminal.

Decides when that is, and in which words. Does not know how an estimate is made, nor how the watcher asks.
"""

from __future__ import annotations

from collections.abc import Sequence

from reasonrag.errors import InputError
from reasonrag.llm.budget import Caps, Tokens
from reasonrag.llm.expected_usage import ExpectedUsage, sum_of_dollars
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.progress import Watcher
from reasonrag.rendering import dollars

UNASKED_DOLLARS = 100.0
"""Without a terminal to ask in, a start that may cost more is refused."""


def needs_consent(models: Sequence[ModelSpec], caps: Caps, *, yes: bool) -> bool:
    """Whether some model costs money, with no cap on the cost and no consent given (--yes)."""
    return not yes and caps.cost is None and any(each.price and each.price.cost(1, 1) for each in models)


def get_consent(
    work: str, expected: Sequence[tuple[ModelSpec, ExpectedUsage]], watcher: Watcher, *, caps: Caps, spent: Tokens
) -> None:
    """Show what the work is expected to cost, and ask if the watcher can. Raises InputError if the answer is no, and
    without a terminal if it may be more than UNASKED_DOLLARS.

    expected: of every model; empty if it could not be measured. caps: on calls and tokens; spent: of these so far.
    """
    text, most = cost_in_words(expected, caps, spent)
    agreed = watcher.confirm(f"{work}: {text}, and no --max-cost limits it")
    unasked = agreed is None and most > UNASKED_DOLLARS
    if agreed is False or unasked:
        why = f" (it may cost more than {dollars(UNASKED_DOLLARS)}, and there is no terminal to ask in)"
        raise InputError(
            f"not started{why if unasked else ''}, and nothing was spent beyond trial requests: --max-cost DOLLARS "
            "limits the cost, --yes skips the question"
        )


def cost_in_words(expected: Sequence[tuple[ModelSpec, ExpectedUsage]], caps: Caps, spent: Tokens) -> tuple[str, float]:
    """`about $0.10 to $0.25 for 40 to 80 requests to NAME`, of what the caps leave room for, and the high end."""
    if not expected:
        return "the cost could not be estimated", 0.0
    first, *others = (each for _, each in expected)
    whole = sum(others, start=first)
    left = whole.share_within(caps, spent)
    known = sum_of_dollars(part.times(*left).dollars(model.price) for model, part in expected if model.price)
    low, high = (known.low, known.high) if known else (0.0, 0.0)
    requests = whole.times(*left).requests
    unknown = [model.name for model, _ in expected if model.price is None]
    text = (
        f"about {dollars(low)} to {dollars(high)} for {requests.low:,.0f} to {requests.high:,.0f} requests to "
        f"{' and '.join(model.name for model, _ in expected)}"
        + (f" (without those to {', '.join(unknown)}, whose price is not known)" if unknown else "")
    )
    return text, high
