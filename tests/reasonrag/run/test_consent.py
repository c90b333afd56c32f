"""How much a start may cost without a terminal."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from reasonrag.errors import InputError
from reasonrag.llm.budget import Caps, Tokens
from reasonrag.llm.chat import Sampling
from reasonrag.llm.endpoint.endpoint import Limits
from reasonrag.llm.expected_usage import ExpectedUsage, Range
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.llm.prices import Price
from reasonrag.progress import SilentWatcher
from reasonrag.run.consent import get_consent
from reasonrag.terminal import TerminalWatcher


def costing(low: float, high: float, *, price: float | None = 1.0) -> tuple[ModelSpec, ExpectedUsage]:
    """A model whose work is expected to cost that many dollars: a million tokens cost a dollar."""
    one, tokens = Range(low=1, high=1), Range(low=low * 1e6, high=high * 1e6)
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=64)
    spec = ModelSpec("m", sampling, Limits(1, 1.0), price=None if price is None else Price(price, price, price))
    return spec, ExpectedUsage(one, one, tokens, Range(low=0, high=0))


CASES: dict[str, tuple[list[tuple[ModelSpec, ExpectedUsage]], Caps, bool]] = {
    "both ends are above": ([costing(1000, 90_000)], Caps(), True),
    "only the high end is above": ([costing(40, 100.01)], Caps(), True),
    "teacher and judge together are above": ([costing(30, 60), costing(30, 60)], Caps(), True),
    "a cap on tokens that is too high to help": ([costing(300, 900)], Caps(tokens=200_000_000), True),
    "the high end is the limit": ([costing(40, 100)], Caps(), False),
    "a small start": ([costing(0.1, 0.2)], Caps(), False),
    "a cap on tokens keeps it below": ([costing(300, 900)], Caps(tokens=50_000_000), False),
    "nothing could be estimated": ([], Caps(), False),
    "no price is known": ([costing(300, 900, price=None)], Caps(), False),
}


@pytest.mark.parametrize("case", CASES)
def test_above_a_hundred_dollars_nothing_starts_where_nobody_can_be_asked(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The estimate is shown, and both ways out are named; up to that a line warns."""
    expected, caps, refused = CASES[case]
    message = (
        r"not started \(it may cost more than \$100.00, and there is no terminal.*--max-cost DOLLARS limits the cost, "
        "--yes skips the question"
    )
    with pytest.raises(InputError, match=message) if refused else nullcontext():
        get_consent("9 questions", expected, TerminalWatcher(), caps=caps, spent=Tokens())
    assert ("warning: 9 questions: about $" if refused else "warning: 9 questions: ") in capsys.readouterr().err


class Asked(SilentWatcher):
    """A terminal in which the user says yes."""

    def confirm(self, question: str) -> bool:  # type: ignore[override]
        return question.startswith("9 questions: about $1,000.00 to $90,000.00")


def test_whoever_can_be_asked_may_spend_more() -> None:
    get_consent("9 questions", [costing(1000, 90_000)], Asked(), caps=Caps(), spent=Tokens())
