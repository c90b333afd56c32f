"""The offline teacher: a pure function of what it is shown, good for demos and wrong often enough to learn from."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import AgentAction, Message
from reasonrag.agent.parsing import ParsedReply, parse_reply
from reasonrag.agent.prompting import load_prompts, render_judgement, render_pick, render_prompt
from reasonrag.data.corpus import Passage
from reasonrag.llm import offline
from reasonrag.llm.chat import ChatRequest, Sampling, estimate_tokens
from reasonrag.llm.offline import OfflineTeacher, reply
from reasonrag.retrieval.passage_length import MARK, cut

PROMPTS = load_prompts()
ACTIONS: tuple[AgentAction, ...] = ("think", "read", "conclude")
QUESTION = "Where was the author of The Silent Bell born?"
PASSAGES = (
    Passage("1", "The Silent Bell", "The Silent Bell is a novel by Ada Birch, published in 1843. It was a success."),
    Passage("2", "Ada Birch", "Ada Birch (born 1801) was a poet. Ada Birch was born in Harwick and lived in Toll."),
    Passage("3", "Toll", "Toll is a town. The river Ember flows through Toll."),
)
THOUGHTS = (
    "So the next query is <query>The Silent Bell</query>",
    "<evidence>The Silent Bell is a novel by Ada Birch, published in 1843.</evidence>",
)
LATEST_QUERY = "So the next query is <query>poet who lived in a town</query>"


def prompt_of(
    action: AgentAction,
    *,
    question: str = QUESTION,
    thoughts: Sequence[str] = THOUGHTS,
    passages: Sequence[Passage] = PASSAGES,
) -> tuple[Message, ...]:
    """A prompt as the agent would send it; read turns end with a query."""
    thoughts = [*thoughts, LATEST_QUERY] if action == "read" else thoughts
    return render_prompt(PROMPTS, action, question=question, thoughts=thoughts, passages=passages)


def replies(messages: Sequence[Message], temperature: float = 1.0, count: int = 60) -> list[str]:
    """Replies to one prompt under many seeds and choices."""
    return [reply(messages, temperature=temperature, seed=i // 3, choice=i % 3) for i in range(count)]


def test_a_few_replies_of_every_turn_are_on_file(golden: Callable[[str, bytes], None]) -> None:
    """Demos show the same in every release, until the teacher is changed on purpose."""
    judgement = render_judgement(PROMPTS, question=QUESTION, golden_answers=["Harwick"], thoughts=THOUGHTS)
    chats = [*((str(action), prompt_of(action)) for action in ACTIONS), ("judge", judgement)]
    lines = [
        f"{name} seed {seed} choice {choice}: {reply(messages, temperature=1, seed=seed, choice=choice)}\n"
        for name, messages in chats
        for seed in range(3)
        for choice in range(3)
    ]
    golden("offline_replies.txt", "".join(lines).encode())


@pytest.mark.parametrize("action", ACTIONS)
def test_at_temperature_zero_neither_seed_nor_choice_matters(action: AgentAction) -> None:
    """The best option is taken every time; how much is quoted of passages may vary, what is quoted first may not."""
    said = replies(prompt_of(action), temperature=0)
    assert len({each.partition("<evidence>")[2][:9] if action == "read" else each for each in said}) == 1
    assert action != "read" or "<evidence>Ada Birch" in said[0]


def test_the_teacher_thinks_both_ways() -> None:
    """With some evidence it sometimes searches on and sometimes answers, rightly and wrongly."""
    said = replies(prompt_of("think"), count=200)
    assert any("<query>" in each for each in said)
    assert any("<answer>" in each for each in said)
    assert not any("<query>The Silent Bell</query>" in each for each in said), "what was searched is searched again"
    evidence = "<evidence>Ada Birch was born in Harwick and lived in Toll.</evidence>"
    answers = replies(prompt_of("conclude", thoughts=[*THOUGHTS, evidence]), count=200)
    assert 0 < sum("<answer>Harwick</answer>" in each for each in answers) < len(answers)


# -- evidence --------------------------------------------------------------------------------------------------


def test_the_mark_of_a_cut_passage_is_not_quoted() -> None:
    """A small model that learned from such evidence ended its own with the mark, and its queries too."""
    passages = [Passage(each.id, each.title, cut(each.text, len(each.text) - 5)) for each in PASSAGES]
    assert all(each.text.endswith(MARK) for each in passages)
    assert not any(MARK.strip() in each for each in replies(prompt_of("read", passages=passages)))


def test_nothing_is_quoted_from_no_passages() -> None:
    """A search that found nothing yields no evidence."""
    assert set(replies(prompt_of("read", passages=()))) == {"<evidence>None</evidence>"}


# -- odd prompts -----------------------------------------------------------------------------------------------

ODD = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *("<query>", "</answer>", "<evidence>", "</reference>", "<|im_end|>", "?", "or", "Is", "Ada", "1843"),
                *(".", ", ", "\n", "\nPrevious Thoughts: ", ". Reference: ", "born first, A or B?"),
            ]
        ),
        st.text(max_size=6),
    ),
    max_size=6,
).map("".join)


@given(
    action=st.sampled_from(ACTIONS),
    question=ODD | st.sampled_from(["", " ", "?", ", or ?"]),
    passages=st.lists(st.builds(Passage, id=st.just("1"), title=ODD, text=ODD), max_size=2),
    draw=st.tuples(st.sampled_from([0.0, 0.01, 1.0, 2.0]), st.integers(0, 2**31 - 1), st.integers(0, 7)),
)
def test_replies_parse_for_their_turn_whatever_is_asked(
    action: AgentAction, question: str, passages: list[Passage], draw: tuple[float, int, int]
) -> None:
    """Neither odd questions nor odd passages make the teacher raise or miss its form."""
    temperature, seed, choice = draw
    messages = prompt_of(action, question=question, thoughts=THOUGHTS[:1], passages=passages)
    said = reply(messages, temperature=temperature, seed=seed, choice=choice)
    assert isinstance(parse_reply(said, action=action, ending="stopped"), ParsedReply)


@given(messages=st.lists(st.builds(Message, role=st.sampled_from(("system", "user")), content=ODD), max_size=3))
def test_a_chat_that_is_none_of_ours_gets_some_reply(messages: list[Message]) -> None:
    """An endpoint that is rehearsed with may be asked anything."""
    assert reply(messages, temperature=1, seed=0, choice=0)


@pytest.mark.parametrize(
    ("said", "low", "high"),
    [("So the answer is <answer>Harwick</answer>", 60, 100), ("So the answer is <answer>Toll</answer>", 0, 40)],
)
def test_the_judge_prefers_right_answers(said: str, low: int, high: int) -> None:
    """Its score is between 0 and 100, noisy, and follows the answer the reasoning gave."""
    messages = render_judgement(PROMPTS, question=QUESTION, golden_answers=["Harwick"], thoughts=[*THOUGHTS, said])
    scores = [int(re.findall(r"<score>(\d+)</score>", each)[0]) for each in replies(messages)]
    assert len(set(scores)) > 1
    assert min(scores) >= 0
    assert max(scores) <= 100
    assert low <= sum(scores) / len(scores) <= high


# -- as a chat model -------------------------------------------------------------------------------------------


def test_a_request_is_answered_choice_by_choice_and_charged_once() -> None:
    """As behind an endpoint: choices differ by their position, tokens are counted at four characters each."""
    messages = prompt_of("think")
    sampling = Sampling(temperature=1, top_p=1, max_tokens=64)
    request = ChatRequest(messages=messages, sampling=sampling, samples=(5, 6, 7), seeds=(11, 12, 13))
    completions = asyncio.run(OfflineTeacher().complete(request))
    said = [reply(messages, temperature=1, seed=11, choice=choice) for choice in range(3)]
    assert [each.text for each in completions] == said
    assert [each.requests for each in completions] == [1, 0, 0]
    assert [each.prompt_tokens for each in completions] == [sum(estimate_tokens(m.content) for m in messages), 0, 0]
    assert [each.completion_tokens for each in completions] == [sum(map(estimate_tokens, said)), 0, 0]


def test_the_teacher_does_not_know_atlas() -> None:
    """It can only answer from the prompt: the module that knows the answers is not even loaded."""
    code = "import sys, reasonrag.llm.offline; print([name for name in sys.modules if 'atlas' in name])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_reply_does_not_depend_on_the_process_that_gives_it() -> None:
    """Python orders sets differently in every process; the evidence names again what two queries share between them."""
    code = (
        "from preference import Message\n"
        "from reasonrag.llm.offline import reply\n"
        "from reasonrag.agent.prompting import load_prompts\n"
        "thoughts = '<query>the 2011</query> <query>World Rankings</query>'\n"
        "evidence = '<evidence>The 2011 World Rankings list it.</evidence>'\n"
        "user = f'Question: Who won?\\nPrevious Thoughts: {thoughts} {evidence}'\n"
        "turns = [Message(role='system', content=load_prompts()['think']), Message(role='user', content=user)]\n"
        "print([reply(turns, temperature=1.0, seed=seed, choice=0) for seed in range(20)])"
    )
    told = []
    for each in (0, 1):
        hashed = os.environ | {"PYTHONHASHSEED": str(each)}
        told.append(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=hashed).stdout)
    assert told[0] == told[1]


# -- prompts of any size -----------------------------------------------------------------------------------------


LONG = [
    " ",
    "A or ",
    "<query>",
    "\nPrevious Thoughts: ",
    ". Reference: <reference>",
    "Ab is the Cd. ",
    "\nCandidate 1: x",
]


@pytest.mark.parametrize("turn", ["<query>", "<evidence>", "<score>", "<ranking>", "conclude"])
@pytest.mark.parametrize("piece", LONG)
def test_a_prompt_of_a_megabyte_is_answered(turn: str, piece: str) -> None:
    """As question, thoughts, passages and input of a judge; each took minutes or hours."""
    long = piece * (500_000 // len(piece))
    for user in (
        f"Question: {long}?{long}",
        f"Question: A or B?\nPrevious Thoughts: <evidence>{long}</evidence>. Reference: <reference>{long}</reference>",
        f"Question: Who?\nPassage 1: {long}: {long}",
        f"Who?\nCorrect answer: {long}\nAnswer: {long}",
    ):
        messages = [Message(role="system", content=turn), Message(role="user", content=user)]
        assert offline.reply(messages, temperature=1.0, seed=1, choice=0)


@given(text=st.text())
def test_every_character_of_a_reply_is_in_one_of_its_tokens(text: str) -> None:
    """Their log-probabilities are made up: a word that the prompt does not contain is unlikely."""
    shown = [Message(role="system", content="Tiber"), Message(role="user", content="The Seine flows.")]
    assert "".join(each.text for each in offline.tokens_of(shown, text)) == text
    tokens = offline.tokens_of(shown, "The <answer>Seine, not Tiber</answer>")
    assert [each.text for each in tokens if each.logprob == offline.UNLIKELY] == [" Tiber"]
    assert {each.logprob for each in tokens} == {offline.LIKELY, offline.UNLIKELY}


@pytest.mark.parametrize(("values", "picked"), [((0.1, 0.9), "2 1"), ((0.9, 0.1), "1 2")])
def test_a_judge_that_is_shown_what_steps_are_worth_in_a_search_goes_by_that(
    values: tuple[float, float], picked: str
) -> None:
    """Whatever a step says."""
    said = [f"<answer>Harwick</answer> [search: mean value {each:.2f}, visits 3]" for each in values]
    asked = render_pick(PROMPTS, prompt_of("think"), candidates=said, golden_answers=["Harwick"])
    assert f"<pick>{picked}</pick>" in reply(asked, temperature=0.0, seed=0, choice=0)
