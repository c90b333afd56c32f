"""What determines an answer: the key of a draw, its seed, and what a reply may hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import Message
from reasonrag.llm.chat import ChatRequest, Completion, Sampling, sample_seed

SAMPLING = Sampling(temperature=1.0, top_p=1.0, max_tokens=64, stop=("</answer>",))


def asked(text: str = "Where?", *, role: Any = "user") -> tuple[Message, ...]:
    return (Message(role="system", content="Answer."), Message(role=role, content=text))


def request(**changes: Any) -> ChatRequest:
    """Three draws of a reply to one question, apart from the changes."""
    usual: dict[str, Any] = {"messages": asked(), "sampling": SAMPLING, "samples": (4, 5, 6), "seeds": (14, 15, 16)}
    return ChatRequest(**usual | changes)


# -- keys ------------------------------------------------------------------------------------------------------


def test_a_draw_has_the_same_key_whichever_others_share_its_request() -> None:
    """Asked alone, with others, at another position or time: the answer that was paid for is found."""
    together = request()
    alone = request(samples=(5,), seeds=(15,))
    reordered = request(samples=(6, 5), seeds=(16, 15))
    key = together.keys(model="m")[1]
    assert [alone.keys(model="m")[0], reordered.keys(model="m")[1], request(priority=7).keys(model="m")[1]] == [key] * 3
    assert together.keys(model="other")[1] != key  # two teachers may share a recording


OTHER_REQUESTS: dict[str, dict[str, Any]] = {
    "message": {"messages": asked("When?")},
    "role": {"messages": asked(role="assistant")},
    "further turn": {"messages": (*asked(), Message(role="user", content=""))},
    "turns split elsewhere": {"messages": (Message(role="system", content="Answer.Where?"),)},
    "temperature": {"sampling": SAMPLING.model_copy(update={"temperature": 0.5})},
    "top_p": {"sampling": SAMPLING.model_copy(update={"top_p": 0.5})},
    "max_tokens": {"sampling": SAMPLING.model_copy(update={"max_tokens": 65})},
    "stop": {"sampling": SAMPLING.model_copy(update={"stop": ("</query>", "</answer>")})},
    "logprobs": {"sampling": SAMPLING.model_copy(update={"logprobs": True})},
    "sample": {"samples": (7, 5, 6)},
    "seed": {"seeds": (24, 15, 16)},
}


@pytest.mark.parametrize("change", OTHER_REQUESTS)
def test_everything_that_determines_an_answer_is_in_its_key(change: str) -> None:
    """A recorded answer is never given to another question, sampling, sample or seed."""
    assert request(**OTHER_REQUESTS[change]).keys(model="m")[0] != request().keys(model="m")[0]


@given(start=st.integers(0, 3), length=st.integers(0, 3))
def test_a_part_of_a_request_asks_for_the_same_draws(start: int, length: int) -> None:
    """Missing choices are asked for with their own sample numbers and seeds."""
    part = request(priority=3).draws(start, start + length)
    assert part.samples == (4, 5, 6)[start : start + length]
    assert part.seeds == (14, 15, 16)[start : start + length]
    assert replace(part, samples=(4, 5, 6), seeds=(14, 15, 16)) == request(priority=3)


# -- seeds -----------------------------------------------------------------------------------------------------


@given(
    run_seed=st.integers(0, 2**63 - 1), question_id=st.text(max_size=9), text=st.text(max_size=9), n=st.integers(0, 99)
)
def test_a_seed_is_a_pure_function_that_fits_31_bits(run_seed: int, question_id: str, text: str, n: int) -> None:
    """Every endpoint takes it, and every run with the same settings sends the same."""
    seed = sample_seed(run_seed, question_id, asked(text), n)
    assert 0 <= seed < 2**31
    assert seed == sample_seed(run_seed, question_id, asked(text), n)


def test_seeds_differ_by_run_question_state_and_sample() -> None:
    """Draws that share any three of the four are independent."""
    seeds = [
        sample_seed(run_seed, question_id, asked(text), sample)
        for run_seed in range(4)
        for question_id in ("a", "b", "c", "1")
        for text in ("Where?", "When?", "")
        for sample in range(8)
    ]
    assert len(set(seeds)) == len(seeds)


def test_keys_and_seeds_are_the_same_in_every_release() -> None:
    """Another one would orphan every answer that was paid for and recorded."""
    assert sample_seed(7, "q1", asked(), 4) == 243_446_231
    assert request().keys(model="gpt-4o")[0] == "2f500be029f22e6b0b6b654498c1cbafbe603ac45ce2e2fc7c03d117b2628c57"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Zürich 東京 😀", "Zürich 東京 😀"),
        ("half \ud83d a pair", "half ? a pair"),
        ("\udcff", "?"),
        ("a\x00b", "a\x00b"),
    ],
)
def test_a_reply_can_be_written_to_a_file(text: str, kept: str) -> None:
    """Lone surrogates become question marks; everything else is kept as it came."""
    completion = Completion(text=text, finish_reason="stop")
    assert completion.text == kept
    assert Completion.model_validate_json(completion.model_dump_json()) == completion
