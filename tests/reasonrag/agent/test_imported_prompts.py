"""Prompts come out of rows as they went in, byte for byte, or it is said that they did not."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import AgentAction, Message
from preference.candidate_records import Origin, StateRecord, StepRecord
from preference.export.sanitize import plain_text
from preference.records import state_key
from reasonrag.agent.imported_prompts import imported_prompts, is_rendered_by
from reasonrag.agent.prompting import Prompts, load_prompts, render_prompt
from reasonrag.agent.protocols.known import renderer_hash
from reasonrag.data.corpus import Passage

OURS = load_prompts()
THEIRS = OURS.changed(
    begin='  You begin. End with <query>query</query>"\n',
    think="You go on.\nEnd with <query>query</query> or <answer>answer</answer>.\n    ",
    read="You read: <evidence>evidence</evidence>.\n",
    conclude="You end: <answer>answer</answer>\n\n",
)
TEXT = st.text(min_size=1, max_size=80).map(plain_text)
ACTIONS = st.sampled_from(get_args(AgentAction))
PASSAGES = st.lists(st.builds(Passage, st.just("p"), TEXT.map(lambda title: " ".join(title.split())), TEXT), max_size=3)


def state(
    prompts: Prompts,
    action: AgentAction,
    question: str = "Who?",
    thoughts: tuple[str, ...] = (),
    passages: tuple[Passage, ...] = (),
    replies: tuple[str, ...] = ("answer",),
) -> StateRecord:
    prompt = list(render_prompt(prompts, action, question=question, thoughts=thoughts, passages=passages))
    steps = [StepRecord(id=i, action_type=each, content="x", response="x") for i, each in enumerate(replies)]
    return StateRecord(
        state_id=state_key(prompt),
        question_id=question,
        question=question,
        golden_answers=[],
        origin=Origin(dataset="unknown", split="unknown"),
        layer=len(thoughts),
        prompt=prompt,
        steps=steps,
        pairs=[],
    )


def every_turn(prompts: Prompts) -> list[StateRecord]:
    said = ("So the next query is <query>q</query>", "<evidence>e</evidence>")
    return [
        state(prompts, "think", replies=("query",)),
        state(prompts, "read", thoughts=said[:1], passages=(Passage("p", "T", "text"),), replies=("evidence",)),
        state(prompts, "think", thoughts=said, replies=("query", "answer")),
        state(prompts, "conclude", thoughts=(*said, *said)),
    ]


@pytest.mark.parametrize("begins", [True, False], ids=["a first turn of its own", "one turn for all thoughts"])
def test_every_system_turn_is_found_byte_for_byte(begins: bool) -> None:
    """First, later, reading and concluding turn; what is not in rows stays ours, and a state without a prompt, as the
    root, tells of none. Without a turn that reads there are no prompts; a first turn serves for later ones."""
    theirs = THEIRS if begins else replace(THEIRS, texts={name: THEIRS[name] for name in OURS.texts})
    bare = state(theirs, "think", question="Bare?").model_copy(update={"prompt": []})
    found = imported_prompts(lambda: [*every_turn(theirs), bare], OURS)
    assert found is not None
    assert found.prompts == theirs
    assert (found.states, found.fitting_states, found.unseen) == (5, 4, ())
    assert found.fitting == {"Who?"}
    assert imported_prompts(lambda: every_turn(theirs)[:1], OURS) is None
    some = imported_prompts(lambda: every_turn(THEIRS)[:2], OURS)
    assert some is not None
    assert some.unseen == ("think", "conclude")
    assert "begin" not in some.prompts.texts
    assert (some.prompts["think"], some.prompts["conclude"]) == (THEIRS["begin"], OURS["conclude"])


def test_our_own_prompts_are_known_again() -> None:
    """In either style, with the place for it; also where rows do not show every turn."""
    for prompts in (OURS, replace(OURS, style="long")):
        for states in (every_turn(prompts), every_turn(prompts)[:2]):
            found = imported_prompts(states.copy, OURS)
            assert found is not None
            assert found.prompts == prompts
            assert renderer_hash(found.prompts) == renderer_hash(OURS)


def test_rows_in_other_words_or_another_layout_are_not_claimed() -> None:
    """Only questions all of whose states are given byte for byte name the renderer."""
    other = state(THEIRS.changed(begin="Other words: <query>"), "think", question="Other?")
    laid_out = state(THEIRS, "think", question="Third?")
    user = Message(role="user", content="Q: Third?")
    states = [*every_turn(THEIRS), other, laid_out.model_copy(update={"prompt": [laid_out.prompt[0], user]})]
    found = imported_prompts(states.copy, OURS)
    assert found is not None
    assert found.prompts == THEIRS
    assert found.fitting == {"Who?"}
    assert (found.states, found.fitting_states) == (6, 4)


@given(
    question=TEXT,
    thoughts=st.lists(TEXT, max_size=3).map(tuple),
    passages=PASSAGES,
    action=st.sampled_from(["think", "read", "conclude"]),
)
def test_any_state_of_the_published_layout_is_rendered_again(
    question: str, thoughts: tuple[str, ...], passages: list[Passage], action: AgentAction
) -> None:
    """Whatever stands in questions, thoughts and passages."""
    shown = tuple(passages) if action == "read" else ()
    assert is_rendered_by(THEIRS, state(THEIRS, action, question, thoughts, shown))
    unlike = THEIRS.changed(begin="b", think="t", read="r", conclude="c")
    assert not is_rendered_by(unlike, state(THEIRS, action, question, thoughts, shown))


def test_a_hostile_reference_is_read_in_one_pass() -> None:
    """Millions of titles without a text: trying each of them against all that follows would take hours."""
    shown = Passage("p", "x\n" + "Wikipedia Title: x\n" * 500_000, "x")
    assert is_rendered_by(THEIRS, state(THEIRS, "read", passages=(shown,)))
