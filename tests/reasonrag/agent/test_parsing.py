"""Replies and the steps they take, turn by turn."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import ActionType, AgentAction
from reasonrag.agent.parsing import (
    PLACEHOLDERS,
    TURN_TAGS,
    ParseCause,
    ParsedReply,
    ParseError,
    is_copied,
    parse_reply,
    parse_score,
    parse_tagged,
    tags_of,
)
from reasonrag.agent.prompting import load_prompts
from reasonrag.llm.endpoint.endings import Ending

ACTIONS: tuple[AgentAction, ...] = ("think", "read", "conclude")
BASELINES = resources.files("reasonrag") / "prompts" / "baselines"
TAGGED = re.compile(r"<(?:query|evidence|answer|sentence)>([^<\s][^<]*)</")
TAG = re.compile(r"<\s*/?\s*(?:query|evidence|answer)\s*>", re.IGNORECASE)

STEPS: dict[str, tuple[AgentAction, Ending, str, str]] = {
    "closing tag dropped with the stop string": ("think", "stopped", "So <answer>Paris", "So <answer>Paris</answer>"),
    "closed before the token limit": (
        "read",
        "cut",
        "<evidence>Paris.</evidence> And so",
        "<evidence>Paris.</evidence>",
    ),
    "white space around everything, and tags in any case": (
        "think",
        "stopped",
        "\n  Well. < Query>\n  one \t</QUERY >  ",
        "Well. <query>one</query>",
    ),
    "foreign mark-up inside": (
        "conclude",
        "stopped",
        "<b>So</b> <answer>a < b > c</answer>",
        "<b>So</b> <answer>a < b > c</answer>",
    ),
}

SMALL_MODEL = {
    "song": "Based on the query, the relevant evidence is <evidence>Document: Written and composed by Michael Jackson, "
    "Bill Bottrell and Teddy Riley ; Written and composed by Michael Jackson, Bill Bottrell and Teddy Riley ; Written "
    "and composed by Michael Jackson",
    "list": "Based on the query, the relevant evidence is <evidence>Clarrie - Other: Clarrie Isaacs, activist ; "
    "Clarrie Earl, Australian politician ; Clarrie Harders, Australian public servant ; Clarrie Hermes, Australian",
    "search": "Based on the query, the relevant evidence is <evidence>Pachol: The evidence so far does not settle it. "
    "So the next query is <query>Patrick Mulvany's occupation",
    "anew": "The evidence so far does not settle it. So the next query is <query>The evidence so far does not settle "
    "it. So the next query is <query>Clarrie Millar",
}
"""Said by SmolLM2-135M after a warm-up on our best paths (benchmarks/real_model.py), some shortened."""

NO_STEPS: dict[str, tuple[AgentAction, Ending, str, ParseCause]] = {
    "nothing at all": ("think", "stopped", "", "no_tag"),
    "nothing but reasoning before the token limit": ("think", "cut", "", "reasoning_cut"),
    "white space after the reasoning at the token limit": ("read", "cut", " \n", "reasoning_cut"),
    "no tag": ("conclude", "stopped", "The answer is Paris.", "no_tag"),
    "no tag before the token limit": ("think", "cut", "Let me think about", "cut_off"),
    "tag still open at the token limit": ("read", "cut", "<evidence>Paris is", "cut_off"),
    "the same words up to the token limit": ("read", "cut", SMALL_MODEL["song"], "loop"),
    "a name that is said often, in a reply that goes on": (
        "think",
        "cut",
        "Is the director of the film named? The director of the film is not, so the director of the film is unknown",
        "cut_off",
    ),
    "tag of another turn": ("think", "stopped", "<evidence>Paris</evidence>", "wrong_tag"),
    "a search where evidence is due": ("read", "stopped", SMALL_MODEL["search"], "wrong_tag"),
    "a turn that begins anew inside its tag": ("think", "stopped", SMALL_MODEL["anew"], "mixed_tags"),
    "open tag of another turn at the token limit": ("read", "cut", "<query>Paris", "wrong_tag"),
    "closing tag without its opening one": ("think", "stopped", "Paris</answer>", "not_opened"),
    "opening tag only after the closing one": ("think", "stopped", "</answer><answer>Paris</answer>", "not_opened"),
    "one tag closed by another": ("think", "stopped", "<query>Paris</answer>", "mixed_tags"),
    "the same tag opened twice": ("think", "stopped", "<query>one <query>two</query>", "mixed_tags"),
    "nothing inside": ("conclude", "stopped", "So the answer is <answer></answer>", "empty"),
}


@pytest.mark.parametrize("case", STEPS)
def test_a_reply_with_one_tag_of_its_turn_is_a_step(case: str) -> None:
    """The step is what stands in the tag; the response ends with its closing tag in canonical spelling."""
    action, ending, text, response = STEPS[case]
    tag = re.search(r"<(query|evidence|answer)>(.*)</", response, re.DOTALL)
    assert tag is not None
    assert parse_reply(text, action=action, ending=ending) == ParsedReply(response, tag[1], tag[2])  # type: ignore[arg-type]


@pytest.mark.parametrize("case", NO_STEPS)
def test_every_other_reply_is_none_for_a_named_cause(case: str) -> None:
    """What cannot be read as exactly one step is an error with a named cause, never a guess."""
    action, ending, text, cause = NO_STEPS[case]
    parsed = parse_reply(text, action=action, ending=ending)
    assert isinstance(parsed, ParseError)
    assert parsed.cause == cause


@pytest.mark.parametrize(
    ("action", "text", "detail"),
    [
        ("think", "no idea", "expected <query>..</query> or <answer>..</answer>; found no tag"),
        ("read", "<answer>x</answer>", "expected <evidence>..</evidence>; found <answer>"),
        ("think", "<query>a <answer>b</answer>", "<query> <answer> opened where only <answer> is closed"),
        ("think", "a</query>", "</query> closes nothing"),
        ("conclude", "<answer></answer>", "no text inside <answer>"),
    ],
)
def test_an_error_says_what_was_expected_or_found(action: AgentAction, text: str, detail: str) -> None:
    """The detail goes to the model in the repair turn, so it names the tags."""
    parsed = parse_reply(text, action=action, ending="stopped")
    assert isinstance(parsed, ParseError)
    assert parsed.detail == detail


def test_a_reply_that_was_cut_is_asked_for_in_fewer_words() -> None:
    """Told only that its tag is open, a model says the same again and is cut again."""
    said = {name: parse_reply(SMALL_MODEL[name], action="read", ending="cut") for name in ("song", "list")}
    found = "<evidence> is still open at the token limit"
    assert said["list"] == ParseError("cut_off", f"{found}; say it in far fewer words")
    assert said["song"] == ParseError("loop", f"{found}, and the same words come again and again; say each thing once")


FRAGMENTS = st.sampled_from(
    "<query> </query> <evidence> </evidence> <answer> </answer> <ANSWER> </Answer> < / > <reference> </".split()
)
REPLIES = st.lists(st.one_of(FRAGMENTS, st.text(max_size=8)), max_size=8).map("".join)
ENDINGS: st.SearchStrategy[Ending] = st.sampled_from(("stopped", "cut"))


@given(text=st.one_of(st.text(), REPLIES), action=st.sampled_from(ACTIONS), ending=ENDINGS)
def test_any_text_is_a_step_of_its_turn_or_an_error(text: str, action: AgentAction, ending: Ending) -> None:
    """Nothing a model says can raise, and no turn yields a step of another."""
    parsed = parse_reply(text, action=action, ending=ending)
    if isinstance(parsed, ParsedReply):
        assert parsed.action_type in TURN_TAGS[action]
        assert parsed.content
        assert parsed.response.endswith(f"<{parsed.action_type}>{parsed.content}</{parsed.action_type}>")
        assert len(TAG.findall(parsed.response)) == 2


WORDS = st.text(alphabet=st.characters(exclude_characters="<>", codec="utf-8"), max_size=12)
TURNS = st.sampled_from([(action, tag) for action in ACTIONS for tag in TURN_TAGS[action]])


@given(lead=WORDS, content=WORDS, trail=REPLIES, turn=TURNS)
def test_it_does_not_matter_whether_the_endpoint_honours_the_stop_string(
    lead: str, content: str, trail: str, turn: tuple[AgentAction, ActionType]
) -> None:
    """A reply that runs on past its closing tag, one that ends with it and one that lost it are the same step."""
    action, tag = turn
    cut = f"{lead}<{tag}>{content}"
    closed = f"{cut}</{tag}>"
    steps = [parse_reply(text, action=action, ending="stopped") for text in (cut, closed, closed + trail)]
    assert steps[0] == steps[1] == steps[2]


@pytest.mark.parametrize(
    "reads",
    [
        lambda text: parse_reply(text, action="think", ending="stopped"),
        lambda text: parse_tagged(text, tags=("search", "answer"), ending="stopped"),
        lambda text: parse_score(text, "stopped"),
        tags_of,
    ],
    ids=["step", "tagged", "judgement", "count"],
)
@pytest.mark.parametrize("piece", ["<{}", "<{}/", "< /{}", "<score{}", "<query{}", "<{}x"])
def test_hostile_replies_take_time_in_proportion_to_their_length(reads: Callable[[str], object], piece: str) -> None:
    """Eight times the text, above all of spaces, at about eight times the work: in proportion to its square is 64."""

    def work(size: int) -> float:
        said, times = piece.format(" " * size), []
        for _ in range(3):
            began = time.process_time()
            reads(said)
            times.append(time.process_time() - began)
        return min(times)

    assert work(1 << 13) < 30 * work(1 << 10) + 0.02


# -- copied from the instructions --------------------------------------------------------------------------------------

REPAIR = (
    "Your reply could not be read: <answer> is still open at the token limit; say it in far fewer words. Give the same "
    "reply again in the required form and write nothing after the closing tag."
)


@pytest.mark.parametrize(
    ("content", "copied"),
    [
        ("the answer", True),  # these three said the model as it comes
        ("..", True),
        ("is still open at the token limit; say it in far fewer words. Give the same reply again", True),
        ("The  ANSWER", True),
        ("yes", False),
        ("nothing after the tag", False),  # four words may be meant
        ("the answer to everything is 42", False),
        ("the answer.", True),
        ("No relevant evidence was found here.", False),  # what a prompt of the user's own tells it to say
    ],
)
def test_what_the_instructions_say_themselves_is_no_step(content: str, copied: bool) -> None:
    own = "If no passage helps, reply <evidence>No relevant evidence was found here.</evidence> and nothing else."
    assert is_copied(content, [own, REPAIR]) is copied


def test_the_placeholders_are_those_of_our_prompts() -> None:
    prompts = load_prompts()
    baselines = [each.read_text("utf-8") for each in BASELINES.iterdir()]
    inside = [TAGGED.findall(each) for each in (*(prompts[name] for name in ("think", "read", "conclude")), *baselines)]
    assert {text for some in inside for text in some} | {".."} == PLACEHOLDERS | {"None"}
