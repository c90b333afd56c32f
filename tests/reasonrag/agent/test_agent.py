"""The agent: its turns, its budget, and what becomes of replies that are no steps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from preference import ActionType, Usage
from reasonrag.agent.agent import Agent, AgentStep, Judgement
from reasonrag.agent.parsing import ParseCause
from reasonrag.agent.prompting import load_prompts, render_judgement, render_prompt, render_repair
from reasonrag.agent.state import State
from reasonrag.data.corpus import Passage
from reasonrag.errors import ModelError
from reasonrag.llm.chat import ChatModel, ChatRequest, Completion, Sampling, sample_seed
from reasonrag.llm.prices import Price
from reasonrag.retrieval.retriever import IndexRetriever
from tests.helpers.command_line import QUESTION
from tests.helpers.scripted_model import Script, ScriptedModel, turn

PROMPTS = load_prompts()
QUERY = "So the next query is <query>capital of France</query>"
EVIDENCE = "<evidence>Paris is the capital of France.</evidence>"
ANSWER = "So the answer is <answer>Seine</answer>"
NO_TAG = "The Seine, I think."


@pytest.fixture
def agent_of(retriever: IndexRetriever) -> Callable[..., Agent]:
    """An agent with some model."""

    def make(model: ChatModel, **changes: Any) -> Agent:
        agent = Agent(
            model=model,
            retriever=retriever,
            prompts=PROMPTS,
            sampling=Sampling(temperature=0.7, top_p=0.9, max_tokens=64),
            top_k=2,
            max_steps=7,
            seed=5,
        )
        return replace(agent, **changes)

    return make


def by_turn(**replies: str) -> Script:
    """The same reply in every turn of a kind."""
    return lambda request, _: replies[turn(request)]


def taken(state: State, response: str, action_type: ActionType, content: str) -> AgentStep:
    """A step as if it had been sampled in this state."""
    return AgentStep(state, (), response, action_type, content, terminal=False)


# -- turns -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hops", "by_hops", "most"),
    [(1, True, 6), (2, True, 7), (4, True, 11), (10**9, True, 19), (None, True, 6), (4, False, 6)],
)
def test_a_question_may_have_the_steps_that_its_hops_need(
    hops: int | None, by_hops: bool, most: int, agent_of: Callable[..., Agent]
) -> None:
    """One search more than hops, and the conclusion; never fewer than the agent's own number."""
    question = QUESTION.model_copy(update={"metadata": {"hops": hops}})
    agent = replace(agent_of(ScriptedModel([]), max_steps=6), steps_by_hops=by_hops)
    assert agent.most_steps(question) == most


async def test_a_query_leads_to_reading_what_it_finds_and_evidence_back_to_thinking(
    agent_of: Callable[..., Agent],
) -> None:
    """The best passages for the query, at most top_k, are the next state's; then they are put away, and that they were
    read is remembered. Finding nothing is something the agent has to see; a record says null where there was nothing
    to read, and an empty list where nothing was found."""
    agent = agent_of(ScriptedModel([]))
    start = agent.start(QUESTION)
    assert start == State(QUESTION, "think", layer=0)
    reading = await agent.next_state(taken(start, QUERY, "query", "capital of France"))
    assert (reading.action, reading.layer, reading.thoughts) == ("read", 1, (QUERY,))
    assert [passage.id for passage in reading.passages] == ["paris", "france"]
    assert reading.read == reading.passages
    assert reading.passages[0].score > reading.passages[1].score > 0
    state = await agent.next_state(taken(reading, EVIDENCE, "evidence", "Paris is the capital of France."))
    assert (state.action, state.layer, state.thoughts, state.passages) == ("think", 2, (QUERY, EVIDENCE), ())
    assert state.read == reading.passages
    nothing = await agent.next_state(taken(start, QUERY, "query", "zebra"))
    assert (nothing.action, nothing.passages) == ("read", ())
    refs = [taken(each, EVIDENCE, "evidence", "Paris").passage_refs for each in (start, nothing)]
    assert refs == [None, []]


@pytest.mark.parametrize(
    ("max_steps", "actions"),
    [
        (1, "conclude"),
        (2, "think conclude"),
        (3, "think read conclude"),
        (6, "think read think read think conclude"),
        (7, "think read think read think read conclude"),
    ],
)
async def test_the_last_step_of_the_budget_is_always_a_conclusion(
    max_steps: int, actions: str, agent_of: Callable[..., Agent]
) -> None:
    """An agent that would search for ever answers in time; a query in the last step but one is not read any more."""
    model = ScriptedModel(by_turn(think=QUERY, read=EVIDENCE, conclude=ANSWER))
    agent = agent_of(model, max_steps=max_steps)
    [path] = await agent.continue_from(agent.start(QUESTION), [0])
    assert [step.state.action for step in path] == actions.split()
    assert [step.state.layer for step in path] == list(range(max_steps))
    assert [turn(request) for request in model.requests] == actions.split()
    assert [step.terminal for step in path] == [False] * (max_steps - 1) + [True]
    assert "<reference>" not in path[-1].prompt[1].content


async def test_continuations_from_one_state_share_their_first_request(agent_of: Callable[..., Agent]) -> None:
    """Each goes on with the sample number it began with, to an end of its own."""

    def script(request: ChatRequest, position: int) -> str:
        if turn(request) == "think" and len(request.messages[1].content.splitlines()) == 1:
            return ANSWER if request.samples[position] == 1 else QUERY
        return EVIDENCE if turn(request) == "read" else ANSWER

    model = ScriptedModel(script)
    agent = agent_of(model)
    paths = await agent.continue_from(agent.start(QUESTION), [0, 1, 2])
    assert [len(path) for path in paths] == [3, 1, 3]
    assert model.requests[0].samples == (0, 1, 2)
    assert sorted(request.samples for request in model.requests[1:]) == [(0,), (0,), (2,), (2,)]


# -- requests --------------------------------------------------------------------------------------------------


async def test_siblings_are_asked_for_in_one_request(agent_of: Callable[..., Agent]) -> None:
    """With the state's own prompt, the turn's stop strings, and a seed of its own for every draw."""
    model = ScriptedModel([QUERY, ANSWER, QUERY])
    agent = agent_of(model)
    steps = await agent.sample(agent.start(QUESTION), [4, 5, 6])
    prompt = render_prompt(PROMPTS, "think", question=QUESTION.question, thoughts=())
    assert model.requests == [
        ChatRequest(
            messages=prompt,
            sampling=Sampling(temperature=0.7, top_p=0.9, max_tokens=64, stop=("</query>", "</answer>")),
            samples=(4, 5, 6),
            seeds=tuple(sample_seed(5, "q1", prompt, sample) for sample in (4, 5, 6)),
            question_id="q1",
        )
    ]
    assert [step.response for step in steps] == [QUERY, ANSWER, QUERY]
    assert {step.prompt for step in steps} == {prompt}


def test_a_record_marks_another_paragraph_of_a_gold_title() -> None:
    """Who reads the record has titles, and no texts."""
    near = [("Seine", "The Seine flows through Paris."), ("Seine", "Seine was a department until 1968.")]
    paragraphs = [{"title": title, "paragraph_text": text} for title, text in near]
    about = {"paragraphs": [paragraphs[0] | {"is_supporting": True}, paragraphs[1]]}
    passages = tuple(Passage(str(number), title, text) for number, (title, text) in enumerate(near))
    state = State(QUESTION.model_copy(update={"metadata": about}), "read", 1, (QUERY,), passages)
    refs = taken(state, EVIDENCE, "evidence", "Paris").passage_refs or []
    assert [each.not_gold for each in refs] == [False, True]
    assert ["not_gold" in each.model_dump() for each in refs] == [False, True]


# -- steps -----------------------------------------------------------------------------------------------------


async def test_a_reply_that_copies_its_instructions_is_no_step(agent_of: Callable[..., Agent]) -> None:
    """SmolLM2-135M, as it comes, fills the tag with the placeholder of the prompt, and then with the repair turn."""
    placeholder = "The answer is:\n<answer>the answer</answer>"
    copied = "<answer>Give the same reply again in the required form and write nothing after the closing tag.</answer>"
    agent = agent_of(ScriptedModel([placeholder, copied]))
    [step] = await agent.sample(agent.start(QUESTION), [0])
    assert step.parse_error is not None
    assert (step.parse_error.cause, step.parse_error.repair, step.content) == ("copied", copied, None)
    agent = agent_of(ScriptedModel([placeholder, ANSWER]))
    [step] = await agent.sample(agent.start(QUESTION), [0])
    assert (step.content, step.repaired) == ("Seine", True)


@pytest.mark.parametrize(
    ("told", "answer", "in_evidence", "grounded"),
    [
        pytest.param("Paris is the capital of France.", "Paris", True, True, id="reported"),
        pytest.param("Paris is the capital of France.", "Seine", False, True, id="read and not reported"),
        pytest.param("Paris is the capital of France.", "Thames", False, False, id="neither"),
        pytest.param("Paris is the capital of France.", "yes", None, None, id="a verdict"),
        pytest.param("Paris lies on the Seine.", "Sequana", True, True, id="an alias of what is reported"),
        pytest.param("Paris has 2 rivers.", "Sequana", True, False, id="an alias, of evidence that is made up"),
    ],
)
async def test_an_answer_is_held_against_what_was_reported_and_what_was_read(
    told: str, answer: str, *, in_evidence: bool | None, grounded: bool | None, agent_of: Callable[..., Agent]
) -> None:
    """What a passage says but no evidence reports is not in evidence: the answering turn has not seen it. Passages of
    earlier turns count, not only those of the last; evidence that was made up supports an answer, and grounds none."""
    question = QUESTION.model_copy(update={"golden_answers": ["Sequana", "Paris"]})
    evidence = f"<evidence>{told}</evidence>"
    agent = agent_of(ScriptedModel([QUERY, evidence, "<query>Italy</query>", evidence, f"<answer>{answer}</answer>"]))
    [path] = await agent.continue_from(agent.start(question), [0])
    assert [step.in_evidence for step in path] == [None] * 4 + [in_evidence]
    assert path[-1].grounded is grounded


# -- further tries ---------------------------------------------------------------------------------------------


def said_in(state: State) -> list[AgentStep]:
    """Two wordings of one query."""
    return [taken(state, said, "query", "capital of France") for said in (QUERY, f"Hm. {QUERY}")]


async def test_a_further_try_is_repaired_where_it_was_drawn(agent_of: Callable[..., Agent]) -> None:
    """The repair turn follows what was sent, at the same temperature; a failed one says how it was drawn as well. A try
    is .3 hotter than the one before, and none hotter than endpoints allow."""
    model = ScriptedModel([NO_TAG, ANSWER, NO_TAG, NO_TAG, ANSWER, ANSWER])
    agent = agent_of(model)
    state = agent.start(QUESTION)
    [repaired] = await agent.sample(state, [2], attempt=2, said=said_in(state))
    shown, repair = model.requests
    assert repair.messages[: len(shown.messages)] == shown.messages
    assert repair.sampling == shown.sampling
    assert (repaired.repaired, repaired.calls, repaired.sampled_with) == (True, 2, repair.messages)
    assert repaired.sampled_temperature == pytest.approx(1.3)
    [failed] = await agent.sample(state, [3], attempt=1, said=said_in(state))
    assert failed.parse_error is not None
    assert (failed.plain, failed.sampled_with, failed.sampled_temperature) == (False, failed.prompt, 1.0)
    for attempt, temperature in ((4, 1.9), (5, 2.0)):
        await agent.sample(state, [0], attempt=attempt, said=said_in(state))
        assert model.requests[-1].sampling.temperature == pytest.approx(temperature)


# -- replies that are no steps ---------------------------------------------------------------------------------


async def test_a_reply_that_does_not_parse_is_repaired_once(agent_of: Callable[..., Agent]) -> None:
    """The step is the repaired one; its prompt stays the state's own, and what was really sent is kept beside it."""
    model = ScriptedModel([NO_TAG, ANSWER])
    agent = agent_of(model)
    [step] = await agent.sample(agent.start(QUESTION), [4])
    detail = "expected <query>..</query> or <answer>..</answer>; found no tag"
    sent = render_repair(PROMPTS, step.prompt, reply=NO_TAG, detail=detail)
    assert step.prompt == render_prompt(PROMPTS, "think", question=QUESTION.question, thoughts=())
    assert (step.response, step.content, step.f1) == (ANSWER, "Seine", 1.0)
    assert (step.repaired, step.parse_error, step.calls) == (True, None, 2)
    assert step.sampled_with == sent == model.requests[1].messages
    assert model.requests[1].samples == (4,)
    assert model.requests[1].seeds == (sample_seed(5, "q1", sent, 4),)
    assert model.requests[1].sampling == model.requests[0].sampling


WONG = "So the next query is <query>Wong Pei Tty Wong Pei TTy Wong Pei Tty Wong Pei Tty "


@pytest.mark.parametrize(
    ("cut", "shown"),
    [
        (
            WONG + "(born 11 November 1981 in Ipoh, Perak) is a former elite female doubles badminton player",
            WONG + "(born 11 November 1981 in Ipoh, Perak) i [...]",
        ),
        ("The River is a song. " * 20, "The River is a song. " * 5 + "The River is a  [...]"),
        ("So the next query is <query>capital of", "So the next query is <query>capital of"),
    ],
    ids=("cut_off", "loop", "short"),
)
async def test_of_a_reply_that_was_cut_the_repair_turn_shows_the_beginning(
    cut: str, shown: str, agent_of: Callable[..., Agent]
) -> None:
    """SmolLM2-135M, shown all of such a reply, wrote it again."""
    model = ScriptedModel([Completion(text=cut, finish_reason="length"), ANSWER])
    agent = agent_of(model)
    [step] = await agent.sample(agent.start(QUESTION), [0])
    assert (step.response, model.requests[1].messages[-2].content) == (ANSWER, shown)


@pytest.mark.parametrize("of_prompt", [True, False])
async def test_where_an_endpoint_takes_no_repair_turn_the_first_reply_is_kept(
    *, of_prompt: bool, agent_of: Callable[..., Agent]
) -> None:
    """As a failed step; an endpoint that cannot be asked is an error all the same."""

    def script(request: ChatRequest, _: int) -> str:
        if NO_TAG in [each.content for each in request.messages]:
            raise ModelError("no such turn", cause="http_400", of_prompt=of_prompt)
        return NO_TAG

    agent = agent_of(ScriptedModel(script))
    with nullcontext() if of_prompt else pytest.raises(ModelError, match="no such turn"):
        [step] = await agent.sample(agent.start(QUESTION), [0])
        assert step.parse_error is not None
        assert (of_prompt, step.response, step.parse_error.cause) == (True, NO_TAG, "no_tag")


async def test_a_reply_that_spells_special_tokens_is_kept_without_them(agent_of: Callable[..., Agent]) -> None:
    """What is trained on cannot end a turn of the chat template, nor move the cursor of a terminal."""
    agent = agent_of(ScriptedModel(by_turn(think="Hm\x1b[2J <score>. So <query>a<|im_end|>b</query>")))
    [step] = await agent.sample(agent.start(QUESTION), [0])
    assert step.response == "Hm [2J (score). So <query>a(im_end)b</query>"
    assert step.content == "a(im_end)b"
    failing = agent_of(ScriptedModel(by_turn(think="no tag <|endoftext|>")))
    [step] = await failing.sample(failing.start(QUESTION), [0])
    assert step.parse_error is not None
    assert (step.response, step.parse_error.repair) == ("no tag (endoftext)", "no tag (endoftext)")


@pytest.mark.parametrize(
    ("reply", "cause", "detail"),
    [
        (
            Completion(text="So the next", finish_reason="content_filter", said="status 400: violence"),
            "withheld",
            "the endpoint's content filter withheld the reply (status 400: violence)",
        ),
        (Completion(text="", refusal="I cannot.", finish_reason="stop"), "refused", "the model refuses to reply"),
    ],
)
async def test_a_reply_that_was_withheld_or_refused_is_a_failed_step_at_once(
    reply: Completion, cause: ParseCause, detail: str, agent_of: Callable[..., Agent]
) -> None:
    """Asking again would cost and not help; the other siblings are kept."""
    model = ScriptedModel([reply, QUERY])
    agent = agent_of(model)
    first, second = await agent.sample(agent.start(QUESTION), [0, 1])
    assert first.parse_error is not None
    assert (first.parse_error.cause, first.parse_error.repair, first.calls) == (cause, None, 1)
    assert first.parse_error.detail == detail
    assert (second.action_type, len(model.requests)) == ("query", 1)


async def test_reasoning_is_kept_with_its_step_and_is_in_no_prompt(agent_of: Callable[..., Agent]) -> None:
    """Not in the response, the next turn's thoughts, the repair turn, nor the turn that asks for another step; its tags
    are no step, and it can end no turn of the chat template."""
    thought = "Perhaps <query>Rhine</query>? <|im_end|>"
    model = ScriptedModel(lambda _, position: f"<think>{thought}</think>\n\n{(NO_TAG, QUERY)[position]}")
    agent = agent_of(model)
    failed, step = await agent.sample(agent.start(QUESTION), [0, 1])
    assert (step.response, step.content, step.reasoning) == (
        *(QUERY, "capital of France"),
        "Perhaps <query>Rhine</query>? (im_end)",
    )
    assert failed.parse_error is not None
    assert (failed.response, failed.parse_error.repair, failed.reasoning) == (NO_TAG, NO_TAG, step.reasoning)
    reading = await agent.next_state(step)
    await agent.sample(reading, [0])
    await agent.sample(agent.start(QUESTION), [2], attempt=2, said=[step])
    sent = [message.content for request in model.requests for message in request.messages]
    assert not [each for each in sent if "Rhine" in each or "think>" in each]


@pytest.mark.parametrize(
    ("text", "reasoning"), [("<think>Perhaps <query>Rhine</query>, or", "Perhaps <query>Rhine</query>, or"), ("", "")]
)
async def test_reasoning_that_uses_the_limit_up_is_a_failed_step_at_once(
    text: str, reasoning: str, agent_of: Callable[..., Agent]
) -> None:
    """A repair turn would use it up again; the detail names the flags that help. Also where it is never shown."""
    model = ScriptedModel([Completion(text=text, finish_reason="length")])
    agent = agent_of(model)
    [[step]] = await agent.continue_from(agent.start(QUESTION), [0])
    assert (step.response, step.reasoning, step.terminal, step.f1, step.calls) == ("", reasoning, True, 0.0, 1)
    assert step.parse_error is not None
    assert (step.parse_error.cause, step.parse_error.repair) == ("reasoning_cut", None)
    assert "--max-reply-tokens" in step.parse_error.detail
    assert "--reasoning-effort low" in step.parse_error.detail
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("reply", "repair", "cause"),
    [
        (NO_TAG, NO_TAG, "no_tag"),
        (Completion(text="<query>capital of", finish_reason="length"), NO_TAG, "cut_off"),
        (NO_TAG, Completion(text="", finish_reason="context_length_exceeded"), "no_tag"),
    ],
)
async def test_a_reply_that_does_not_parse_twice_is_a_failed_step(
    reply: str | Completion, repair: str | Completion, cause: ParseCause, agent_of: Callable[..., Agent]
) -> None:
    """It ends its path, is worth nothing, and is kept with both texts and the first one's cause."""
    agent = agent_of(ScriptedModel([reply, repair]))
    [[step]] = await agent.continue_from(agent.start(QUESTION), [0])
    text, again = (each if isinstance(each, str) else each.text for each in (reply, repair))
    assert (step.response, step.terminal, step.f1, step.em, step.calls) == (text, True, 0.0, 0.0, 2)
    assert (step.action_type, step.content, step.grounded, step.repaired) == (None, None, None, False)
    assert step.parse_error is not None
    assert (step.parse_error.cause, step.parse_error.repair) == (cause, again)


# -- judgements ------------------------------------------------------------------------------------------------

JUDGEMENT = render_judgement(PROMPTS, question=QUESTION.question, thoughts=[QUERY, EVIDENCE])


async def test_a_judgement_that_cannot_be_read_is_repaired_once(agent_of: Callable[..., Agent]) -> None:
    """The repair turn says what is expected; two replies are used. One that was withheld or only thought is not asked
    for again: the filter would take it back again, and the limit be used up again, which is said."""
    model = ScriptedModel(["high", "<score>20</score>"])
    agent = agent_of(model)
    assert await agent.caller.score(QUESTION.id, JUDGEMENT, 0) == Judgement(0.2, calls=2)
    assert "expected <score>..</score> with a number between 0 and 100" in model.requests[1].messages[-1].content
    assert agent.spending.repairs == 1
    withheld = Completion(text="<score>50", finish_reason="content_filter")
    thought = Completion(text="<think>Is it <score>10</score>", finish_reason="length")
    agent = agent_of(ScriptedModel([withheld, thought]))
    assert await agent.caller.score(QUESTION.id, JUDGEMENT, 0) == Judgement(None, calls=1, unreadable="<score>50")
    assert await agent.caller.score(QUESTION.id, JUDGEMENT, 1) == Judgement(None, 1, "", "reasoning_cut")


# -- spending --------------------------------------------------------------------------------------------------


async def test_spending_is_the_sum_over_all_replies(agent_of: Callable[..., Agent]) -> None:
    """Steps, repairs and judgements count; tokens and requests ride on the first reply of each request."""
    numbers = count(1)

    def script(request: ChatRequest, position: int) -> Completion:
        first = position == 0
        texts = {"think": NO_TAG if len(request.messages) == 2 and position else ANSWER, "score": "<score>5</score>"}
        return Completion(
            text=texts[turn(request)],
            finish_reason="stop",
            requests=int(first),
            prompt_tokens=100 * next(numbers) if first else 0,
            completion_tokens=7 if first else 0,
        )

    agent = agent_of(ScriptedModel(script))
    await agent.sample(agent.start(QUESTION), [0, 1, 2])  # two of three are repaired
    await agent.caller.score(QUESTION.id, JUDGEMENT, 3)
    price = Price(tokens_in=2.0, tokens_out=10.0, cached_in=1.0)
    assert agent.spending.as_usage(price) == Usage(
        calls=6, requests=4, prompt_tokens=100 * (1 + 2 + 3 + 4), completion_tokens=28, repairs=2, cost_usd=0.00228
    )
    assert agent.spending.as_usage(None).cost_usd is None
