"""What a run would have cost by itself, where others have bought its answers."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from reasonrag.exploration.shared_costs import Bill
from reasonrag.llm.budget import Tokens
from reasonrag.llm.chat import Completion


def answered(
    *texts: str, prompt: int = 100, completion: int = 40, reasoning: int = 0, cached: int = 0
) -> list[Completion]:
    """The answers of one request, with its tokens on the first; where it reasoned, each in reverse."""
    first = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "reasoning_tokens": reasoning,
        "cached_tokens": cached,
    }
    return [
        Completion(
            text=text,
            finish_reason="stop",
            reasoning=text[::-1] if reasoning else "",
            requests=int(i == 0),
            **(first if i == 0 else {}),
        )
        for i, text in enumerate(texts)
    ]


requests = st.builds(
    lambda texts, prompt, completion, reasoning: answered(
        *texts, prompt=prompt, completion=completion, reasoning=min(reasoning, completion)
    ),
    st.lists(st.text(max_size=30), min_size=1, max_size=6),
    st.integers(0, 5_000),
    st.integers(0, 5_000),
    st.integers(0, 5_000),
)


def test_an_answer_apart_has_the_whole_prompt_and_its_part_of_the_text() -> None:
    """Nine letters and their end are a quarter of forty."""
    found = Bill().apart(answered("a" * 9, "b" * 29, completion=40, cached=64))
    assert [each.completion_tokens for each in found] == [10, 30]
    assert [(each.requests, each.prompt_tokens, each.cached_tokens) for each in found] == [(1, 100, 64)] * 2


@given(requests)
def test_all_answers_of_a_request_together_cost_what_it_cost(request: list[Completion]) -> None:
    """No token is lost or made by rounding."""
    bill = Bill()
    assert Tokens.of(bill.together(bill.apart(request))) == Tokens.of(request)


@given(requests)
def test_answers_that_are_apart_stay_as_they_are(request: list[Completion]) -> None:
    """So it does not matter which of them came from the journal."""
    bill = Bill()
    apart = bill.apart(request)
    assert bill.apart(apart) == apart


@given(requests, st.data())
def test_fewer_draws_never_cost_more(request: list[Completion], data: st.DataObject) -> None:
    """A configuration with fewer siblings pays for one prompt as well, and for fewer replies."""
    bill = Bill()
    apart = bill.apart(request)
    costs = [Tokens.of(bill.together(apart[:count])).completion_tokens for count in range(1, len(apart) + 1)]
    assert costs == list(accumulate(each.completion_tokens for each in apart))
    assert Tokens.of(bill.together(apart[: data.draw(st.integers(1, len(apart)))])).requests == 1


def test_answers_that_were_bought_singly_are_billed_as_one_request() -> None:
    """Two siblings more than another configuration had: alone it would have asked for all of them at once."""
    bill = Bill()
    first = bill.apart(answered("one", "two", completion=8))
    more = [each for text in ("three", "four") for each in answered(text, completion=5)]
    billed = bill.together(bill.apart([*first, *more]))
    assert Tokens.of(billed) == Tokens(4, 1, 100, 18)


def test_where_an_endpoint_gives_one_reply_a_time_each_pays_for_its_prompt() -> None:
    """Whoever asks, and however often: that is what this endpoint costs."""
    bill = Bill()
    singly = [each for text in ("one", "two") for each in answered(text, completion=5)]
    assert Tokens.of(bill.together(bill.apart(singly))) == Tokens(2, 2, 200, 10)
