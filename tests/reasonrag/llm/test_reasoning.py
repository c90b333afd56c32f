"""Reasoning is taken off a reply before it is read, whatever it holds, and a reply without any stays as it is."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import Message
from reasonrag.llm.chat import ChatRequest, Completion, Sampling, TokenLogprob
from reasonrag.llm.reasoning import (
    as_read,
    gave_all_as_reasoning,
    is_only_reasoning,
    reasons,
    split_reasoning,
    stopped_in_reasoning,
    stops_may_cut,
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
        (f"A <query>?\nOr <answer>.\n</reasoning>\n{QUERY}", "A <query>?\nOr <answer>.", QUERY),
        ("A <query>?</think>Rhine</query>", "A <query>?", "Rhine</query>"),
        # what a model without reasoning says for it (Qwen3 with enable_thinking false)
        (f"<think>\n\n</think>\n\n{QUERY}", "", QUERY),
        # no leading block
        (QUERY, "", QUERY),
        (f"  {QUERY}\n", "", f"  {QUERY}\n"),
        ("", "", ""),
        ("I <think>so</think> too", "", "I <think>so</think> too"),
    ],
)  # fmt: skip
def test_reasoning_is_what_leads_a_reply_in_think_tags(said: str, reasoning: str, rest: str) -> None:
    """In whatever spelling, as often as it comes, cut, or opened by the template."""
    assert split_reasoning(said) == (reasoning, rest)


WRONG = "We could try <query>wrong thing</query>."
FINAL = "<|start|>assistant<|channel|>final<|message|>"
MARKED = {
    "gpt-oss: its channels": f"<|channel|>analysis<|message|>{WRONG}<|end|>{FINAL}{QUERY}",
    "gpt-oss: the template opened the channel": f"{WRONG}<|end|>{FINAL}{QUERY}",
    "gpt-oss: a constrained final message": f"<|channel|>analysis<|message|>{WRONG}<|end|>"
    f"<|start|>assistant<|channel|>final <|constrain|>json<|message|>{QUERY}",
    "gpt-oss: only commentary": f"<|channel|>commentary<|message|>{WRONG}<|end|>{FINAL}{QUERY}",
    "gpt-oss: the server took the special tokens off": f"analysis{WRONG}assistantfinal{QUERY}",
    "gpt-oss: and the reasoning begins in small letters": f"analysis{WRONG.lower()}assistantfinal{QUERY}",
    "gpt-oss: and the template opened the channel": f"{WRONG}assistantfinal{QUERY}",
    "Magistral": f"[THINK]{WRONG}[/THINK]{QUERY}",
    "Granite": f"Here is my thought process:\n{WRONG}\nHere is my response:\n{QUERY}",
    "Granite, as people say it": f"Here's my thought process:\n{WRONG}\nHere's my response:\n{QUERY}",
    "HuatuoGPT-o1": f"## Thinking\n\n{WRONG}\n\n## Final Response\n\n{QUERY}",
    "behind a token of the template": f"<|assistant|>\n<think>{WRONG}</think>{QUERY}",
    "behind a byte order mark": f"\ufeff<think>{WRONG}</think>{QUERY}",
    "Seed-OSS": f"<seed:think>\n{WRONG}\n</seed:think>\n{QUERY}",
    "Kimi-VL": f"◁think▷{WRONG}◁/think▷{QUERY}",
    "EXAONE Deep": f"<thought>\n{WRONG}\n</thought>\n\n{QUERY}",
    "Claude, asked to": f"<thinking>{WRONG}</thinking>\n\n{QUERY}",
    "the template opened it, and nothing but a sentence ends": f"{WRONG}</reasoning>{QUERY}",
    "corner brackets": f"「think」{WRONG}「/think」{QUERY}",
    "bars, full-width, otherwise": f"<\uff5cthink\uff5c>{WRONG}<\uff5c/think\uff5c>{QUERY}",
    **{
        f"<{word}>": f"<{word}>\n{WRONG}\n</{word}>\n{QUERY}"
        for word in "scratchpad rationale cot chain_of_thought Thought_Process self_reflection query_analysis".split()
    },
    "square brackets around a longer word": f"[inner_thoughts]{WRONG}[/inner_thoughts]{QUERY}",
    "Open WebUI": f'<details type="reasoning" done="true" duration="3">\n{WRONG}\n</details>\n{QUERY}',
    "Ollama's command line": f"Thinking...\n{WRONG}\n...done thinking.\n\n{QUERY}",
    "OpenThinker": f"<|begin_of_thought|>\n\n{WRONG}\n\n<|end_of_thought|>\n\n<|begin_of_solution|>\n\n{QUERY}",
    "OpenThinker: the solution alone is marked": f"{WRONG}<|begin_of_solution|>{QUERY}",
    "Command A": f"<|START_THINKING|>{WRONG}<|END_THINKING|><|START_RESPONSE|>{QUERY}",
    "Apertus": f"<|inner_prefix|>{WRONG}<|inner_suffix|>{QUERY}",
    "MedGemma": f"<unused94>thought\n{WRONG}<unused95>{QUERY}",
    "Gemma 4": f"<|channel>thought\n{WRONG}<channel|>{QUERY}",
    "two kinds, one after the other": f"<think></think>\n<reasoning>{WRONG}</reasoning>{QUERY}",
}
CUT = {
    "gpt-oss": f"<|channel|>analysis<|message|>{WRONG}",
    "gpt-oss without its tokens": f"analysis{WRONG}",
    "Magistral": f"[THINK]{WRONG}",
    "OpenThinker": f"<|begin_of_thought|>{WRONG}",
    "Gemma 4": f"<|channel>thought\n{WRONG}",
    "Open WebUI": f'<details type="reasoning">{WRONG}',
}


@pytest.mark.parametrize("said", MARKED.values(), ids=MARKED)
def test_the_step_is_what_follows_reasoning_in_any_marks(said: str) -> None:
    """Every way that a known model or server has of showing it."""
    reasoning, rest = split_reasoning(said)
    assert (reasoning.casefold(), rest) == (WRONG.casefold(), QUERY)
    read = without_reasoning(
        Completion(text=said, finish_reason="stop", logprobs=tuple(TokenLogprob(c, -1.0) for c in said))
    )
    assert "".join(token.text for token in read.logprobs or ()) == read.text == QUERY


@pytest.mark.parametrize("said", MARKED.values(), ids=MARKED)
def test_no_stop_string_is_sent_once_a_reply_shows_marks_in_which_it_could_cut_unseen(said: str) -> None:
    """Where only the closing mark tells: without it, the reasoning would be a step."""
    opening = said.partition(WRONG)[0] if WRONG in said else said.partition(WRONG.lower())[0]
    cut_is_seen = stopped_in_reasoning(request(), Completion(text=opening + "I ask <query>x", finish_reason="stop"))
    assert cut_is_seen or stops_may_cut(request(), Completion(text=said, finish_reason="stop"))


@pytest.mark.parametrize("said", CUT.values(), ids=CUT)
def test_reasoning_in_any_marks_may_be_cut(said: str) -> None:
    """Then nothing else was said, and a stop string within it is seen."""
    assert split_reasoning(said) == (WRONG, "")
    assert stopped_in_reasoning(request(), Completion(text=said, finish_reason="stop"))
    assert is_only_reasoning(without_reasoning(Completion(text=said, finish_reason="length")))


@pytest.mark.parametrize(
    "said",
    [
        f"I use <thought>marks</thought> late. {QUERY}",
        f"The analysis is easy. {QUERY}",
        f"analysis of the passages: {QUERY}",
        f"[Thought] Paris lies on a river. {QUERY}",
        f"Here is my thought process: Paris lies on a river. {QUERY}",
        "So the next query is <query>what does </reasoning> mean in HTML</query>",
        "So the next query is <query>assistantfinal in gpt-oss</query>",
        "A tag such as </thinking> is odd. So the next query is <query>x</query>",
        "1/think/2 and/or thought",
        f"<details>\n<summary>Paris</summary>\nIt lies on a river.\n</details>\n{QUERY}",
        f"Thinking... Paris lies on a river. {QUERY}",
        "Based on the query, the relevant evidence is <Evidence>\n</thoughts>\n[/think] </evidence>",
        "So the next query is <query>lyrics of [/think] album</query>",
        "<query>one</query> <answer>[/THINK]</answer>",
        f"<cottage>Paris</cottage>\n{QUERY}",
    ],
)
def test_a_reply_that_uses_the_words_of_marks_is_unchanged(said: str) -> None:
    """As a headline, in prose, or after the step began."""
    assert split_reasoning(said) == ("", said)


@pytest.mark.parametrize(
    "piece",
    ["<think>", "</think>", "<think></think>", "[thought]", "[thought][/thought]", "</thought>x", "analysis", " ", "</",
     "<|channel|>analysis ", "<|start|>assistant", "assistantfinal", ".\n</reason> </thinking>y", "<|\n", "a/",
     "Here is my thought process:", "Thinking...", "Thinking......done thinking.",
     "<details ", "<a>", "<a>[/think]", "<a>[/think]</a>",
     "< ", "<think> </think>", "<a></b>/think", "</a_", "<a:", "<seed:", "<thought></think>"],
)  # fmt: skip
def test_hostile_replies_take_time_in_proportion_to_their_length(piece: str) -> None:
    """A megabyte at sixteen times the work of a sixteenth of it: reading each part once is 16, once a part is 256."""

    def work(size: int) -> float:
        said, times = piece * (size // len(piece)), []
        for _ in range(3):
            began = time.process_time()
            split_reasoning(said)
            times.append(time.process_time() - began)
        return min(times)

    assert work(1 << 20) < 80 * work(1 << 16) + 0.02


ANSWERED = f"Paris lies on the Seine. {QUERY}"


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        (Completion(text="", reasoning=ANSWERED, finish_reason="stop"), ANSWERED),
        (Completion(text=" \n", reasoning=f"{ANSWERED}\n\n", finish_reason="stop"), ANSWERED),
        (Completion(text="", reasoning=f"<think>\n\n</think>\n\n{ANSWERED}", finish_reason="stop"), ANSWERED),
        # what it was thinking when it ended: no step ends it, or more than one is named
        (Completion(text="", reasoning=f"{WRONG} Or not?", finish_reason="stop"), ""),
        (Completion(text="", reasoning=f"{WRONG} Rather: {QUERY}", finish_reason="stop"), ""),
        (Completion(text="", reasoning="I could ask <query>Seine", finish_reason="stop"), ""),
        (Completion(text="", reasoning=ANSWERED, finish_reason="length"), ""),
        (Completion(text="", reasoning=ANSWERED, finish_reason="content_filter"), ""),
        (Completion(text="So", reasoning=ANSWERED, finish_reason="stop"), "So"),
        (Completion(text=f"<think>{ANSWERED}", finish_reason="stop"), ""),
    ],
)
def test_a_reply_given_as_reasoning_is_read_where_it_ends_as_a_step(completion: Completion, text: str) -> None:
    """And was not cut there, by a stop string or otherwise: then it is not asked again."""
    stops = request(stop=("</query>", "</answer>"))
    assert as_read(stops, completion).text == text
    assert as_read(request(stop=()), completion) == without_reasoning(completion)
    if text == ANSWERED:
        assert as_read(stops, completion).reasoning == ""
        assert gave_all_as_reasoning(completion)
        assert not stopped_in_reasoning(stops, completion)


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


def test_reasoning_of_both_kinds_is_kept_together() -> None:
    """What came apart from the text first; the rest of the completion is as it was."""
    said = Completion(text=f"<think>Two.</think>{QUERY}", finish_reason="stop", reasoning="One.", completion_tokens=9)
    read = without_reasoning(said)
    assert (read.reasoning, read.text, read.completion_tokens) == ("One.\n\nTwo.", QUERY, 9)
    assert without_reasoning(read) == read


@pytest.mark.parametrize(
    ("text", "reasoning", "end", "shown", "only", "cut"),
    [
        ("<think>Paris", "", "length", True, True, False),
        ("<think>", "", "length", True, True, False),
        ("", "Paris", "length", True, True, False),
        ("", "", "length", True, True, False),  # hidden reasoning, as GPT-5's
        (" \n", "", "length", True, True, False),
        ("<think>Paris</think>So the", "", "length", True, False, False),
        ("So the", "", "length", False, False, False),
        ("<think>I could ask <query>Seine", "", "stop", True, False, True),
        ("", "I could ask <query>Seine", "stop", True, False, True),  # at a server with a parser, stop strings see all
        ("<think>Paris</think>So the next query is <query>Seine", "", "stop", True, False, False),
        ("yes", "They want a yes.", "stop", True, False, False),
        ("<think>\n\n</think>\n\nyes", "", "stop", False, False, False),
        ("<query>Seine", "", "stop", False, False, False),
        ("yes", "", "stop", False, False, False),
        ("", "", "stop", False, False, False),
        ("", "", "content_filter", False, False, False),
    ],
)
def test_what_a_reply_shows_of_reasoning(
    text: str, reasoning: str, end: str, *, shown: bool, only: bool, cut: bool
) -> None:
    """That its model reasons; that the limit was reached before anything else was said, seen or unseen; that a stop
    string cut it, but only where there was one, and where think tags are not what the prompt asks for."""
    said = Completion(text=text, finish_reason=end, reasoning=reasoning)
    assert (reasons(said), is_only_reasoning(without_reasoning(said))) == (shown, only)
    assert reasons(said.model_copy(update={"reasoning_tokens": 64}))
    assert stopped_in_reasoning(request(), said) == cut
    assert not stopped_in_reasoning(request(stop=()), said)
    assert not stopped_in_reasoning(request(think_in_format=True), said)


@pytest.mark.parametrize(("count", "begins"), [(1, "1 reply was"), (1200, "1,200 replies were")])
def test_a_warning_names_the_flags_that_help(count: int, begins: str) -> None:
    """With the limit as it is; none where nothing was cut."""
    [warning] = too_little_room(count, max_tokens=2048)
    assert warning.startswith(f"{begins} nothing but reasoning, cut at --max-reply-tokens 2048: raise it, or ")
    assert "ask for less reasoning with --reasoning-effort low (Qwen3: --extra-body '{" in warning
    assert too_little_room(0, max_tokens=2048) == []
