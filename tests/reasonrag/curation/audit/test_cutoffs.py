"""What a cutoff_len cuts is what LLaMA-Factory cuts, and the advised one cuts nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.curation.audit.cutoffs import STEP, advised_cutoff, count_cut_rows, kept_tokens
from tests.helpers.command_line import AskLlamaFactory

LENGTHS = st.lists(st.tuples(st.integers(1, 40_000), st.integers(1, 40_000)), min_size=1, max_size=20)

INFER = """
import json, sys
from llamafactory.data.processor.processor_utils import infer_seqlen
print(json.dumps([infer_seqlen(*each) for each in json.load(sys.stdin)]))
"""


def columns(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    prompt, reply = zip(*rows, strict=True)
    return np.array(prompt), np.array(reply)


@pytest.mark.parametrize(
    ("prompt", "reply", "cutoff_len", "left"),
    [
        (100, 50, 149, (99, 50)),  # the reply is short: the prompt pays
        (50, 100, 149, (50, 99)),  # the prompt is short: the reply pays
        (100, 100, 150, (75, 75)),  # both are long: in proportion
    ],
)
def test_what_is_left_of_prompt_and_reply(prompt: int, reply: int, cutoff_len: int, left: tuple[int, int]) -> None:
    """Worked out by hand from the rule: a side below half of the cutoff is kept whole."""
    assert tuple(int(each[0]) for each in kept_tokens(np.array([prompt]), np.array([reply]), cutoff_len)) == left


def test_the_rule_is_that_of_llama_factory(ask_llama_factory: AskLlamaFactory) -> None:
    """Its own function says the same of every length near and far from the borders."""
    draw = np.random.default_rng(0)
    rows = [
        (int(prompt), int(reply), int(limit))
        for limit in (1, 63, 512, 1000, 2048, 4095)
        for prompt, reply in draw.integers(1, 3 * limit + 2, (400, 2))
    ]
    rows += [(limit - reply, reply, limit) for limit in (64, 100, 1000, 4096) for reply in range(1, limit, 7)]
    theirs = ask_llama_factory(INFER, rows)
    for row, wanted in zip(rows, theirs, strict=True):
        left = kept_tokens(np.array([row[0]]), np.array([row[1]]), row[2])
        assert [int(each[0]) for each in left] == wanted, row


@given(LENGTHS)
def test_the_advised_cutoff_cuts_nothing_and_a_step_less_cuts_something(rows: list[tuple[int, int]]) -> None:
    """Law: it is the smallest multiple of 64 that will do."""
    prompt, reply = columns(rows)
    advised = advised_cutoff(prompt, reply)
    assert advised % STEP == 0
    assert count_cut_rows(prompt, reply, advised).truncated == 0
    assert advised == STEP or count_cut_rows(prompt, reply, advised - STEP).truncated > 0


@given(LENGTHS, st.integers(64, 50_000))
def test_rows_are_cut_exactly_where_they_are_longer_than_the_cutoff(rows: list[tuple[int, int]], limit: int) -> None:
    """Law: and what is left always fits."""
    prompt, reply = columns(rows)
    found = count_cut_rows(prompt, reply, limit)
    assert found.truncated == int(np.count_nonzero(prompt + reply > limit))
    assert found.prompt_cut <= found.truncated
    assert all(a + b <= limit for a, b in zip(*kept_tokens(prompt, reply, limit), strict=True))
