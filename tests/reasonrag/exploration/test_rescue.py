"""A question that nothing answers: steps drawn with a hint, what is recorded of them, and what never sees a hint."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

import reasonrag as package
from mcts import RECIPES, Recipe
from preference import NO_FILTERS, RolloutNode, RolloutRecord, candidates
from reasonrag.agent.agent import Agent
from reasonrag.agent.prompting import load_prompts, render_hint
from reasonrag.data.questions import Question
from reasonrag.errors import InputError
from reasonrag.exploration.explore import explore
from reasonrag.exploration.explorer import Explorer, RunIdentity
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.llm.chat import ChatRequest, Sampling
from reasonrag.llm.scripted_model import ScriptedModel
from reasonrag.progress import SilentWatcher
from reasonrag.retrieval.retriever import IndexRetriever
from tests.helpers.command_line import CORPUS

PROMPTS = load_prompts()
HINT = PROMPTS.hint.partition("{hints}")[0]
QUESTION = Question(
    id="q1",
    question="Which river flows through the capital of France?",
    golden_answers=["Seine"],
    metadata={"gold_titles": ["France", "Paris", "The Seine"]},
)
SUB_QUESTIONS = "<subquestion>What is the capital of France?</subquestion>"
Teach = Callable[[ChatRequest, int], str]


def lost(request: ChatRequest, position: int, *, finds_it_from: int = 10**9) -> str:
    """A teacher that searches for cats and guesses, unless a hint tells it what to look for, or its sample number is
    high."""
    shown = request.messages[-1].content
    if request.messages[0].content == PROMPTS.decompose:
        return SUB_QUESTIONS
    if "<reference>" in shown:
        return (
            "<evidence>It lies on the Seine.</evidence>"
            if "capital of France. It" in shown
            else "<evidence>None</evidence>"
        )
    if HINT in shown or (request.samples[position] >= finds_it_from and "Previous" not in shown):
        return "So the next query is <query>capital of France</query>"
    if "Previous Thoughts" not in shown:
        return f"So the next query is <query>cats {'again ' * (request.samples[position] % 3)}</query>"
    return f"So the answer is <answer>{'Seine' if 'the Seine' in shown else 'Tiber'}</answer>"


def rescued(kind: Any, **search: Any) -> Recipe:
    base = RECIPES["economy"]
    return base.model_copy(
        update={"rescue": kind, "search": base.search.model_copy(update={"helped_states": 2, "wave": 1} | search)}
    )


Explore = Callable[..., Any]


@pytest.fixture
def explored(retriever: IndexRetriever) -> Explore:
    """The record of the question, and all that was asked."""

    async def explore(
        recipe: Recipe, teach: Teach = lost, question: Question = QUESTION
    ) -> tuple[RolloutRecord, list[ChatRequest]]:
        asked: list[ChatRequest] = []

        def heard(request: ChatRequest, position: int) -> str:
            asked.extend([request] if position == 0 else [])
            return teach(request, position)

        sampling = Sampling(temperature=1, top_p=1, max_tokens=64)
        agent = Agent(ScriptedModel(heard), retriever, PROMPTS, sampling, top_k=2, max_steps=7, seed=0)
        explorer = Explorer(agent, question, recipe)
        await explorer.run()
        identity = RunIdentity(dataset="own", split="dev", config_hash="c0", seed=0, recipe=recipe)
        return explorer.record(identity), asked

    return explore


def hinted(record: RolloutRecord) -> list[RolloutNode]:
    return [node for node in record.nodes if node.hinted]


async def test_a_hint_leads_to_a_right_answer_where_nothing_else_does(explored: Explore) -> None:
    """Without it all answers are wrong. The hint names the titles that the question names, and only those: not the one
    that is nowhere yet, nor the answer."""
    without, _ = await explored(rescued(None, helped_states=0))
    record, _ = await explored(rescued("gold-passages"))
    assert {end.quality for end in without.ends} == {0.0}
    assert {end.quality for end in record.ends} == {0.0, 1.0}
    [step] = hinted(record)
    assert step.hinted == "gold-passages"
    assert step.prompt is not None
    assert step.sampled_with == list(render_hint(PROMPTS, tuple(step.prompt), hints=["France"]))
    assert (step.names_unseen, step.plain_draws) == (False, 0)
    assert (record.nodes[0].expected_outcome, step.expected_outcome) == (0.0, 1.0)


@pytest.mark.parametrize("kind", ["gold-passages", "decompose"])
async def test_hints_stand_only_in_what_hinted_steps_were_drawn_with(kind: str, explored: Explore) -> None:
    """Every other prompt is that of a state."""
    record, asked = await explored(rescued(kind))
    sent = [each.messages for each in asked if any(HINT in message.content for message in each.messages)]
    assert {tuple(node.sampled_with or ()) for node in hinted(record)} == set(map(tuple, sent)) != set()
    assert not any(HINT in turn.content for node in record.nodes for turn in node.prompt or ())


async def test_sub_questions_are_written_once_and_are_paid_for(explored: Explore) -> None:
    """By the teacher, who is shown the question alone; gold passages are not needed."""
    question = QUESTION.model_copy(update={"metadata": {}})
    record, asked = await explored(rescued("decompose"), question=question)
    split = [each.messages for each in asked if each.messages[0].content == PROMPTS.decompose]
    assert [messages[1].content for messages in split] == [f"Question: {QUESTION.question}"]
    assert record.usage.calls == sum(len(each.samples) for each in asked)
    assert record.usage.requests == len(asked)
    assert any(end.quality == 1.0 for end in record.ends)
    assert "- What is the capital of France?" in (hinted(record)[0].sampled_with or [])[-1].content


async def test_a_teacher_that_cannot_split_a_question_is_asked_as_ever(explored: Explore) -> None:
    def teach(request: ChatRequest, position: int) -> str:
        return "I cannot." if request.messages[0].content == PROMPTS.decompose else lost(request, position)

    record, asked = await explored(rescued("decompose"), teach)
    assert hinted(record) == []
    assert all(node.plain_draws for node in record.nodes[1:] if not node.sampled_with)
    assert sum(each.messages[0].content == PROMPTS.decompose for each in asked) == 1


async def test_a_question_without_gold_passages_is_left_alone(explored: Explore) -> None:
    record, asked = await explored(rescued("gold-passages"), question=QUESTION.model_copy(update={"metadata": {}}))
    assert hinted(record) == []
    assert {end.quality for end in record.ends} == {0.0}
    assert not any(HINT in message.content for each in asked for message in each.messages)


async def test_a_plain_draw_that_comes_to_the_hinted_step_is_the_same_node(explored: Explore) -> None:
    """It says that the step can be reached without the hint."""

    def teach(request: ChatRequest, position: int) -> str:
        return lost(request, position, finds_it_from=5)

    record, _ = await explored(rescued("gold-passages", root_siblings=None, resamples=0), teach)
    [step] = hinted(record)
    assert step.plain_draws > 0
    assert step.draws > step.plain_draws


async def test_a_query_that_jumps_a_hop_at_a_hint_is_worth_much_and_is_never_chosen(explored: Explore) -> None:
    """It names Paris, which stands nowhere yet: the answer to the first hop is guessed. By values alone it would be
    preferred to the search for cats, and a plain draw comes there, too."""

    def teach(request: ChatRequest, position: int) -> str:
        reply = lost(request, position, finds_it_from=5)
        return reply.replace("capital of France", "Paris, capital of France")

    record, _ = await explored(rescued("gold-passages", root_siblings=None, resamples=0), teach)
    [step] = hinted(record)
    assert (step.names_unseen, step.plain_draws > 0) == (True, True)
    for rules, kept in ((NO_FILTERS, True), (replace(NO_FILTERS, allow_hint_only=False), False)):
        assert any(each.chosen.id == step.id and not each.dropped for each in candidates(record, rules)) is kept


# -- a run ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    """Two questions and their corpus."""
    asked = [QUESTION.model_dump() | {"id": f"q{each}"} for each in range(2)]
    (tmp_path / "questions.jsonl").write_bytes(b"\n".join(map(orjson.dumps, asked)))
    passages = [orjson.dumps({"id": each, "contents": f"{title}\n{text}"}) for each, title, text in CORPUS]
    (tmp_path / "corpus.jsonl").write_bytes(b"\n".join(passages))
    return {
        "questions": tmp_path / "questions.jsonl",
        "corpus": tmp_path / "corpus.jsonl",
        "top_k": 2,
        "abort_degenerate": 0,
        "chat_model": ScriptedModel(lost, name="lost"),
    }


@pytest.mark.parametrize("kind", ["gold-passages", "decompose"])
def test_a_run_that_was_stopped_and_resumed_has_the_same_bytes(kind: str, files: dict[str, Any]) -> None:
    """Stopped anywhere: before, at and after the first hint."""
    whole = package.generate(**files, rescue=kind, run="whole")
    expected = Path(whole.run, "rollouts.jsonl").read_bytes()
    assert b'"hinted"' in expected
    for share in (0.3, 0.4, 0.45, 0.9):
        run = f"cut-{share}"
        cut = package.generate(**files, rescue=kind, run=run, max_calls=int(share * whole.calls))
        assert cut.stopped
        resumed = package.generate(**files, rescue=kind, run=run)
        assert Path(resumed.run, "rollouts.jsonl").read_bytes().replace(run.encode(), b"") == expected


def test_a_run_without_rescue_is_the_run_it_was(files: dict[str, Any]) -> None:
    """Nothing of it is in the configuration; with it, kind and prompts are, each in the hash."""
    found = {}
    for kind in (None, "gold-passages", "decompose"):
        done = package.generate(**files, rescue=kind, run=f"run-{kind}", limit=1)
        found[kind] = json.loads(Path(done.run, "config.json").read_text())
    plain = found[None]["decides_answers"]
    assert "rescue" not in plain["recipe"]
    assert "helped_states" not in plain["recipe"]["search"]
    assert plain["prompts"] == PROMPTS.hash
    assert found["decompose"]["decides_answers"]["recipe"]["rescue"] == "decompose"
    assert len({each["config_hash"] for each in found.values()}) == len(found)
    assert len({each["decides_answers"]["prompts"] for each in found.values()}) == len(found)


def test_a_rescue_can_be_priced_before() -> None:
    price = package.estimate(dataset="atlas", limit=2, model="gpt-4o", rescue="decompose")
    assert price.dollars is not None
    assert price.calls.high > 0


def test_other_recipes_have_no_rescue(files: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="`rescue` goes with recipe economy"):
        package.generate(**files, rescue="decompose", recipe="continuation")


@pytest.mark.parametrize("kind", ["gold-passages", "decompose"])
def test_a_rescue_needs_proposals_that_are_plain(kind: str, files: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"`rescue` {kind} needs plain draws.*leave out `rescue`"):
        package.generate(**files, rescue=kind, value_chat_model=ScriptedModel(lost, name="other"))


class Heard(SilentWatcher):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


async def test_a_run_says_for_how_many_questions_there_is_no_hint(files: dict[str, Any]) -> None:
    """Gold ids are no titles. A run that is done says nothing; other rescues need no titles."""
    by_id = QUESTION.model_copy(update={"id": "by-id", "metadata": {"gold_ids": ["1"]}})
    with files["questions"].open("ab") as more:
        more.write(b"\n" + orjson.dumps(by_id.model_dump()))
    model, heard = files.pop("chat_model"), Heard()
    for kind in ("gold-passages", "gold-passages", "decompose"):
        await explore(GenerateSettings(**files, rescue=kind, run=Path(kind)), model, None, heard)
    [said] = [each for each in heard.warnings if "--rescue" in each]
    assert said.startswith("--rescue gold-passages has no hint for 1 of 3 questions, which have no titles")
