"""The teacher of real questions: what it says is readable, repeatable, and worth what it is said to be worth."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from gold_teacher import GoldQuestion, GoldTeacher, Skill, State, World, open_world
from search_economy_real import measure

from mcts import RECIPES
from reasonrag.agent.agent import Agent, AgentStep
from reasonrag.agent.parsing import ParsedReply, parse_reply
from reasonrag.agent.prompting import load_prompts
from reasonrag.data.questions import Question, open_questions
from reasonrag.llm.chat import Sampling

DATA_SETS = ("hotpotqa", "2wikimultihopqa", "musique")
PLAIN = Skill("good .6")
GUESSES = Skill("guesses", good=0.85, early=0.3, luck=0.4)
ALPHA, MAX_STEPS = 0.9, 7
SAMPLING = Sampling(temperature=1, top_p=1, max_tokens=512)

Worlds = Callable[[str], World]


@cache
def _world(folder: Path, index_home: Path) -> World:
    return open_world(folder, index_home)


@pytest.fixture
def worlds(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    """Data sets by name; each index is built once."""
    return lambda name: _world(shared_data / name, tmp_path_factory.getbasetemp() / "gold-indexes")


def dev(data: Path, name: str, count: int) -> list[Question]:
    return list(open_questions(data / name / "dev.jsonl", dataset=name, split="dev").read(count))


def known(question: Question, world: World, skill: Skill) -> GoldQuestion:
    return GoldQuestion(question, world, skill, max_steps=MAX_STEPS, alpha=ALPHA)


def agent(world: World, *questions: GoldQuestion) -> Agent:
    """The real agent, taught by the teacher."""
    return Agent(
        GoldTeacher(questions), world.retriever, load_prompts(), SAMPLING, top_k=3, max_steps=MAX_STEPS, seed=1
    )


def reachable(question: GoldQuestion) -> set[State]:
    seen, ahead = set[State](), [question.start()]
    while ahead:
        state = ahead.pop()
        if state not in seen:
            seen.add(state)
            steps = [each for each in question.options(state) if each.type != "answer"]
            ahead += [question.after(state, each.type, each.content) for each in steps]
    return seen


def mean_reward(paths: list[list[AgentStep]]) -> tuple[float, float]:
    """Mean discounted F1 of real continuations, and four standard errors."""
    rewards = [(path[-1].f1 or 0.0) * ALPHA ** len(path) for path in paths]
    return statistics.fmean(rewards), 4 * statistics.stdev(rewards) / len(rewards) ** 0.5


@pytest.mark.parametrize("skill", [PLAIN, GUESSES], ids=lambda each: each.name)
@pytest.mark.parametrize("name", DATA_SETS)
async def test_a_question_is_worth_what_the_real_agent_gets_on_average(
    name: str, skill: Skill, worlds: Worlds, shared_data: Path
) -> None:
    """The mean discounted F1 of many sampled runs, within four standard errors; every reply parses."""
    world = worlds(name)
    question = next(
        each
        for each in (known(question, world, skill) for question in dev(shared_data, name, 20))
        if len(each.facts) == 2 and each.value(each.start()) > 0
    )
    explorer = agent(world, question)
    paths = await explorer.continue_from(explorer.start(question.question), range(700))
    assert not any(step.parse_error for path in paths for step in path)
    mean, error = mean_reward(paths)
    assert question.value(question.start()) == pytest.approx(mean, abs=error)


@pytest.mark.parametrize("name", DATA_SETS)
def test_chances_of_a_state_s_replies_sum_to_one_and_all_parse(name: str, worlds: Worlds, shared_data: Path) -> None:
    """In every state that can be reached; what a reply means is what the process says it means."""
    world = worlds(name)
    for question in dev(shared_data, name, 10):
        process = known(question, world, GUESSES)
        for state in reachable(process):
            options = process.options(state)
            assert sum(each.chance for each in options) == pytest.approx(1)
            assert state.layer < MAX_STEPS
            for each in options:
                parsed = parse_reply(each.reply, action=state.turn, ending="stopped")
                assert isinstance(parsed, ParsedReply)
                assert (parsed.action_type, parsed.content) == (each.type, each.content)


def test_every_kept_pair_gets_a_verdict_and_a_measurement_can_be_repeated(worlds: Worlds, shared_data: Path) -> None:
    """Right, wrong and ties, by type and by layer, are the same pairs; the same seed finds them again."""
    world, questions = worlds("hotpotqa"), dev(shared_data, "hotpotqa", 3)
    first, again = (measure(world, questions, RECIPES["economy"], GUESSES, seed=5) for _ in range(2))
    assert first == again
    assert sum(each.pairs for each in first) > 0
    for each in first:
        assert each.right + each.wrong + each.ties == each.pairs == each.by_layer.total()
        assert each.requests <= each.replies
        assert each.dollars > 0
