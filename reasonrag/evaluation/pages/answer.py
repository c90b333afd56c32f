"""What `ask` shows: each step as it is taken, then the answer with its evidence, sources and cost."""

from __future__ import annotations

from collections.abc import Iterator

from reasonrag.agent.agent import AgentStep
from reasonrag.evaluation.ask import AgentAnswer
from reasonrag.evaluation.predictions import PredictedStep
from reasonrag.exploration.summary import AGAINST
from reasonrag.rendering import Part, counted, dollars, of_which_reasoning
from reasonrag.terminal import show


def show_step(step: AgentStep, recorded: PredictedStep) -> None:
    """A step as it is taken: the passages before it, or what a reader found in them, too; then the whole reply."""
    show(f"  {place}. {each.title} [{each.id}]" for place, each in enumerate(recorded.passages, start=1))
    show([] if recorded.observation is None else [f"  reader: {recorded.observation or 'nothing was found'}"])
    error = step.parse_error
    why = f" (unreadable: {error.cause}, {error.detail})" if error else ""
    repaired = " (repaired)" if step.repaired else ""
    show([f"{recorded.action}{why}{repaired}: {step.response}"])


def answer_parts(found: AgentAnswer) -> Iterator[Part]:
    yield ""
    yield from (f"evidence: {each}" for each in found.evidence)
    yield from (f"source: {each.title} [{each.id}]" for each in found.sources)
    last = found.steps[-1].parse_error if found.steps else None
    helps = f"; {AGAINST[last]}" if last in AGAINST else ""
    answer = f"none: the last reply was unreadable{helps}" if found.answer is None else found.answer
    unfound = " (not found in the passages read)" if found.answer is not None and found.grounded is False else ""
    yield f"answer: {answer}{unfound}"
    tokens = f"{found.prompt_tokens:,} tokens in, {found.completion_tokens:,} out"
    tokens += of_which_reasoning(found.reasoning_tokens)
    asked = f"{counted(found.searches, 'search')}, {counted(found.calls, 'completion')}"
    yield f"{asked}, {tokens}, {'cost unknown' if found.cost_usd is None else dollars(found.cost_usd)}"
