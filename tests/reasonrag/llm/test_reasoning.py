"""Reasoning is taken off a reply before it is read, whatever it holds, and a reply without any stays as it is."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import Message
from reasonrag.llm.chat import ChatRequest, Completion, Sampling
from reasonrag.llm.reasoning import (
    is_only_reasoning,
    reasons,
    split_reasoning,
    stopped_in_reasoning,
    too_little_room,
    without_reasoning,
)

QUERY = "So the next query is <query>Seine</query>"
HOSTILE = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "< THINK >", "</ Think\n>", "<query>", "</query>", " ", "\n", "a", "<", ">"]
    ),
    max_size=12,
).map("".join)
TAGS = re.compile(r"<\s*/?\s*think\s*>", re.IGNORECASE)
WITHOUT_TAGS = HOSTILE.map(lambda text: TAGS.sub("", text)).filter(lambda text: not TAGS.search(text))


def request(*, stop: tuple[str, ...] = ("</query>",), think_in_format: bool = False) -> ChatRequest:
    return ChatRequest(
        messages=(Message(role="user", content="Where?"),),
        sampling=Sampling(temperature=1, top_p=1, max_tokens=64, stop=stop),
        samples=(0,),
        seeds=(0,),
        think_in_format=think_in_format,
    )


@pytest.mark.parametrize(
    ("said", "reasoning", "rest"),
    [
        (f"<think>Paris.</think>{QUERY}", "Paris.", QUERY),
        (f"\n <think>\nParis.\n</think>\n\n{QUERY}", "Paris.", QUERY),
        (f"<THINK>Paris.</Think>{QUERY}", "Paris.", QUERY),
        (f"< think >Paris.</ think >{QUERY}", "Paris.", QUERY),
        (f"<think>One.</think>\n<think>Two.</think>{QUERY}", "One.\n\nTwo.", QUERY),
        # tags in the reasoning are no step
        (f"<think>Perhaps <query>Rhine</query>, or <answer>no</answer>?</think>{QUERY}",
         "Perhaps <query>Rhine</query>, or <answer>no</answer>?", QUERY),
        # the token limit cut the block
        ("<think>Paris lies on the", "Paris lies on the", ""),
        ("<think>One.</think> <think>Two", "One.\n\nTwo", ""),
        # the template opened the block within the prompt
        (f"Paris, <query>Rhine</query>?\n</think>\n\n{QUERY}", "Paris, <query>Rhine</query>?", QUERY),
        (f"One.</think><think>Two.</think>{QUERY}", "One.\n\nTwo.", QUERY),
        # what a model without reasoning says for it (Qwen3 with enable_thinking false)
        (f"<think>\n\n</think>\n\n{QUERY}", "", QUERY),
        ("<think></think>", "", ""),
        # no leading block
        (QUERY, "", QUERY),
        (f"  {QUERY}\n", "", f"  {QUERY}\n"),
        ("", "", ""),
        ("I <think> so", "", "I <think> so"),
        ("I <think>so</think> too", "", "I <think>so</think> too"),
        ("<thinking>Paris.</thinking>", "", "<thinking>Paris.</thinking>"),
    ],
)  # fmt: skip
def test_reasoning_is_what_leads_a_reply_in_think_tags(said: str, reasoning: str, rest: str) -> None:
    """In whatever spelling, as often as it comes, cut, or opened by the template."""
    assert split_reasoning(said) == (reasoning, rest)


@given(WITHOUT_TAGS)
def test_a_reply_without_think_tags_is_unchanged(said: str) -> None:
    """To the byte, so that models without reasoning give the trees they gave."""
    assert split_reasoning(said) == ("", said)


@given(WITHOUT_TAGS, WITHOUT_TAGS, st.booleans())
def test_the_rest_never_depends_on_the_reasoning(reasoning: str, rest: str, opened: bool) -> None:
    """Tags inside it never count, whether the model or its template opened the block."""
    found = split_reasoning(f"{'<think>' * opened}{reasoning}</think>{rest}")
    assert found == (reasoning.strip(), rest.lstrip())


@given(HOSTILE)
def test_nothing_is_made_up(said: str) -> None:
    """Both parts are pieces of the reply, in its order; apart from tags and spaces nothing is lost."""
    reasoning, rest = split_reasoning(said)
    assert said.endswith(rest)
    assert re.sub(r"\s", "", TAGS.sub("", reasoning + rest)) == re.sub(r"\s", "", TAGS.sub("", said))


def test_a_reply_of_a_million_tags_is_read_at_once() -> None:
    """An endpoint that repeats itself costs no minutes."""
    assert split_reasoning("<think> </think>" * 50_000 + "< " * 50_000)[0] == ""


def test_reasoning_of_both_kinds_is_kept_together() -> None:
    """What came apart from the text first; the rest of the completion is as it was."""
    said = Completion(text=f"<think>Two.</think>{QUERY}", finish_reason="stop", reasoning="One.", completion_tokens=9)
    read = without_reasoning(said)
    assert (read.reasoning, read.text, read.completion_tokens) == ("One.\n\nTwo.", QUERY, 9)
    assert without_reasoning(read) == read


@pytest.mark.parametrize(
    ("text", "reasoning", "end", "only"),
    [
        ("<think>Paris", "", "length", True),
        ("", "Paris", "length", True),
        ("", "", "length", True),  # hidden reasoning, as GPT-5's
        (" \n", "", "length", True),
        ("<think>Paris</think>So the", "", "length", False),
        ("So the", "", "length", False),
        ("<think>Paris", "", "stop", False),
        ("", "", "content_filter", False),
    ],
)
def test_a_reply_of_nothing_but_reasoning_was_cut_by_the_limit(
    text: str, reasoning: str, end: str, *, only: bool
) -> None:
    """Seen or unseen: what ends by itself has another cause."""
    assert is_only_reasoning(without_reasoning(Completion(text=text, finish_reason=end, reasoning=reasoning))) == only


@pytest.mark.parametrize(
    ("text", "reasoning", "end", "cut"),
    [
        ("<think>I could ask <query>Seine", "", "stop", True),
        ("", "I could ask <query>Seine", "stop", True),  # a server with a reasoning parser, whose stop strings see all
        ("<think>Paris</think>So the next query is <query>Seine", "", "stop", False),
        ("<think>I could ask <query>Seine", "", "length", False),
        ("<query>Seine", "", "stop", False),
        ("", "", "stop", False),
    ],
)
def test_a_stop_string_may_cut_within_the_reasoning(text: str, reasoning: str, end: str, *, cut: bool) -> None:
    """Only where there was one, and where think tags are not what the prompt asks for."""
    said = Completion(text=text, finish_reason=end, reasoning=reasoning)
    assert stopped_in_reasoning(request(), said) == cut
    assert not stopped_in_reasoning(request(stop=()), said)
    assert not stopped_in_reasoning(request(think_in_format=True), said)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (Completion(text="yes", finish_reason="stop"), False),
        (Completion(text="<think>\n\n</think>\n\nyes", finish_reason="stop"), False),
        (Completion(text="<think>", finish_reason="length"), True),
        (Completion(text="<think>The user wants a yes", finish_reason="length"), True),
        (Completion(text="", finish_reason="length"), True),
        (Completion(text="yes", finish_reason="stop", reasoning="They want a yes."), True),
        (Completion(text="yes", finish_reason="stop", reasoning_tokens=64), True),
    ],
)
def test_one_reply_shows_whether_a_model_reasons(said: Completion, *, shown: bool) -> None:
    """By its text, what came beside it, the count of its tokens, or that nothing came in time."""
    assert reasons(said) == shown


@pytest.mark.parametrize(("count", "begins"), [(1, "1 reply was"), (1200, "1,200 replies were")])
def test_a_warning_names_the_flags_that_help(count: int, begins: str) -> None:
    """With the limit as it is; none where nothing was cut."""
    [warning] = too_little_room(count, max_tokens=2048)
    assert warning.startswith(f"{begins} nothing but reasoning, cut at --max-reply-tokens 2048: raise it, or ")
    assert """--extra-body '{"reasoning_effort": "low"}'""" in warning
    assert too_little_room(0, max_tokens=2048) == []
