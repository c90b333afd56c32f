"""Judges that guide the search: what they are shown of a step or of siblings, and the values of a ranking.

Decides which text a judge sees and whether that includes gold answers, in which order steps are shown, and the value of
a rank. Sends requests through the agent. Does not know the search.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from preference import Message
from reasonrag.agent.agent import Agent, AgentStep
from reasonrag.agent.model_calls import Judgement
from reasonrag.agent.parsing import parse_ranking
from reasonrag.agent.prompting import Prompts, render_judgement, render_ranking
from reasonrag.data.questions import Question
from reasonrag.llm.chat import sample_seed


def scoring_prompt(prompts: Prompts, step: AgentStep, *, gold: bool) -> tuple[Message, Message]:
    """The prompt for scoring a step at the end of its path. gold: show the gold answers."""
    asked, thoughts = step.state.question, (*step.state.thoughts, step.response)
    golden_answers = asked.golden_answers if gold else ()
    return render_judgement(prompts, question=asked.question, thoughts=thoughts, golden_answers=golden_answers)


async def rank_actions(
    agent: Agent, question: Question, steps: Mapping[int, AgentStep], *, sample: int, gold: bool
) -> tuple[dict[int, float], Judgement[tuple[int, ...]] | None]:
    """Values of a state's steps by node id, 1 / (1 + rank), the best having rank 0; and the judgement, if one was
    needed. All are 0 where it was unreadable, as in the published code.

    Source: RAG-Gym (arXiv 2502.13957), process data. Departure: the steps stand in an order drawn by the seed, not as
    sampled: judges have position biases, and the order of creation reveals how likely a step is.
    """
    if len(steps) <= 1:
        return dict.fromkeys(steps, 1.0), None
    first = next(iter(steps.values()))
    places = [sample_seed(agent.seed, question.id, first.prompt, number) for number in range(len(steps))]
    shown = [node_id for _, node_id in sorted(zip(places, steps, strict=True))]
    prompt = render_ranking(
        agent.prompts,
        question=question.question,
        thoughts=first.state.thoughts,
        candidates=[steps[node_id].response for node_id in shown],
        golden_answers=question.golden_answers if gold else (),
        passages=first.state.passages,
    )
    judgement = await agent.caller.judgement(
        question.id,
        prompt,
        sample,
        tag="ranking",
        wanted=f"each number from 1 to {len(shown)} once, the best first",
        read=partial(parse_ranking, candidates=len(shown)),
    )
    if judgement.value is None:
        return dict.fromkeys(shown, 0.0), judgement
    return {shown[number - 1]: 1 / (1 + rank) for rank, number in enumerate(judgement.value)}, judgement
