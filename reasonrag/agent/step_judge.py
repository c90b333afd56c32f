"""Judges of steps: what they are shown of a step or of siblings, and the values of their judgements.

Decides which text a judge sees and whether that includes gold answers, that equivalent steps are judged once, and the
value of a rank. Sends requests through the agent. Knows neither the search nor how judgements become rewards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from mcts.recipes import JudgeKind
from preference import Message
from preference.records import UnreadableJudgement
from reasonrag.agent.agent import Agent, AgentStep
from reasonrag.agent.model_calls import Judgement
from reasonrag.agent.prompting import Prompts, render_judgement, render_ranking
from reasonrag.concurrency import together
from reasonrag.data.questions import Question
from reasonrag.llm.chat import sample_seed

_FEWEST = 2
"""Steps that can be ranked."""


@dataclass(frozen=True, slots=True)
class DistinctStep:
    """A distinct step of a state, represented by the first of its equivalent nodes. node_ids: of all of them."""

    step: AgentStep
    node_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class JudgedState:
    """At least two distinct steps of one state. node_id: the step that led to the state, 0 for the question."""

    node_id: int
    options: tuple[DistinctStep, ...]


@dataclass(frozen=True, slots=True)
class StepJudgements:
    """Values of the judged steps by node id, in [0, 1]; None if the judgement was unreadable."""

    values: dict[int, float | None] = field(default_factory=dict)
    unreadable: list[UnreadableJudgement] = field(default_factory=list)


def scoring_prompt(prompts: Prompts, step: AgentStep, *, gold: bool, passages: bool) -> tuple[Message, Message]:
    """The prompt for scoring a step at the end of its path.

    gold: show the gold answers. passages: show the passages the step has read.
    """
    return render_judgement(
        prompts,
        question=step.state.question.question,
        thoughts=(*step.state.thoughts, step.response),
        golden_answers=step.state.question.golden_answers if gold else (),
        passages=step.state.passages if passages else (),
    )


async def judge_states(
    agent: Agent, question: Question, choices: Sequence[JudgedState], *, kind: JudgeKind, gold: bool
) -> StepJudgements:
    """Judge every distinct step: by a score, or by its rank within its state. All requests run at once. Raises the
    first ReasonragError; the others are cancelled."""
    judge = _rank if kind == "rank" else _score
    return await judge(agent, question, choices, gold=gold)


async def _score(agent: Agent, question: Question, choices: Sequence[JudgedState], *, gold: bool) -> StepJudgements:
    options = [option for choice in choices for option in choice.options]
    prompts = [scoring_prompt(agent.prompts, each.step, gold=gold, passages=True) for each in options]
    judged = await together(
        *(agent.score(question, prompt, sample) for prompt, sample in zip(prompts, _samples(prompts), strict=True))
    )
    verdicts = StepJudgements()
    for option, judgement in zip(options, judged, strict=True):
        verdicts.values.update(dict.fromkeys(option.node_ids, judgement.value))
        _note(agent, verdicts, judgement, kind="score", node_id=option.node_ids[0])
    return verdicts


async def _rank(agent: Agent, question: Question, choices: Sequence[JudgedState], *, gold: bool) -> StepJudgements:
    listed = [_shuffled(agent, question, choice) for choice in choices]
    prompts = [_ranking_prompt(agent.prompts, options, gold=gold) for options in listed]
    judged = await together(
        *(
            agent.rank(question, prompt, sample, candidates=len(options))
            for prompt, sample, options in zip(prompts, _samples(prompts), listed, strict=True)
        )
    )
    verdicts = StepJudgements()
    for choice, options, judgement in zip(choices, listed, judged, strict=True):
        worth = dict(zip(judgement.value or (), _value_by_rank(len(options)), strict=False))
        for number, option in enumerate(options, start=1):
            verdicts.values.update(dict.fromkeys(option.node_ids, worth.get(number)))
        _note(agent, verdicts, judgement, kind="rank", node_id=choice.node_id)
    return verdicts


async def rank_actions(
    agent: Agent, question: Question, state: JudgedState, *, sample: int, gold: bool
) -> tuple[dict[int, float], Judgement[tuple[int, ...]] | None]:
    """Values of a state's steps by node id, 1 / (1 + rank), the best having rank 0; and the judgement, if one was
    needed. All are 0 where it was unreadable, as in the published code.

    Source: RAG-Gym (arXiv 2502.13957), process data. Departure: the steps stand in a drawn order, not as sampled.
    """
    if len(state.options) < _FEWEST:
        return dict.fromkeys((each.node_ids[0] for each in state.options), 1.0), None
    options = _shuffled(agent, question, state)
    prompt = _ranking_prompt(agent.prompts, options, gold=gold)
    judgement = await agent.rank(question, prompt, sample, candidates=len(options))
    if judgement.value is None:
        return dict.fromkeys((each.node_ids[0] for each in options), 0.0), judgement
    ranked = (options[number - 1].node_ids[0] for number in judgement.value)
    return {node_id: 1 / (1 + rank) for rank, node_id in enumerate(ranked)}, judgement


def _ranking_prompt(prompts: Prompts, options: Sequence[DistinctStep], *, gold: bool) -> tuple[Message, Message]:
    state = options[0].step.state
    return render_ranking(
        prompts,
        question=state.question.question,
        thoughts=state.thoughts,
        candidates=[option.step.response for option in options],
        golden_answers=state.question.golden_answers if gold else (),
        passages=state.passages,
    )


def _shuffled(agent: Agent, question: Question, choice: JudgedState) -> list[DistinctStep]:
    """The steps in the order shown to a judge, drawn by the seed: judges have position biases, and the order of
    creation reveals how likely a step is."""
    state = choice.options[0].step.prompt
    places = [sample_seed(agent.seed, question.id, state, number) for number in range(len(choice.options))]
    return [choice.options[number] for number in sorted(range(len(places)), key=places.__getitem__)]


def _value_by_rank(candidates: int) -> list[float]:
    """Values by rank: 1 for the best, 0 for the last, evenly spaced."""
    return [1 - place / (candidates - 1) for place in range(candidates)]


def _samples(prompts: Sequence[tuple[Message, ...]]) -> list[int]:
    """Sample numbers from -1 down, which no judgement within the search has; unique among equal prompts. Paths that
    differ only in white space have equal prompts."""
    seen: Counter[tuple[Message, ...]] = Counter()
    samples = []
    for prompt in prompts:
        seen[prompt] += 1
        samples.append(-seen[prompt])
    return samples


def _note(
    agent: Agent,
    verdicts: StepJudgements,
    judgement: Judgement[float] | Judgement[tuple[int, ...]],
    *,
    kind: JudgeKind,
    node_id: int,
) -> None:
    agent.spending.judgements += judgement.calls
    if judgement.unreadable is not None:
        verdicts.unreadable.append(
            UnreadableJudgement(kind=kind, node_id=node_id, response=judgement.unreadable, cause=judgement.cause)
        )
