"""Steps scored by critics, one after the other, with their scores in a journal.

Does not know which steps a critic may score, nor what the scores are used for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from preference import Message
from reasonrag.errors import ModelError
from reasonrag.llm.budget import Caps
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.critic import Critic, FoundCritic, StepText, open_critic, text_of
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.progress import Watcher
from reasonrag.rendering import counted
from reasonrag.run.engine import Asked, Budget, Role, open_run

_CRITIC = "critic"


@dataclass(frozen=True)
class AskedCritic:
    """A critic and how it is asked. model: asked instead of opening its server."""

    found: FoundCritic
    spec: ModelSpec
    model: ChatModel | None = None


@dataclass(frozen=True)
class StepToScore:
    """A step, and the state it was taken in."""

    question_id: str
    state: tuple[Message, ...]
    step: str

    @property
    def text(self) -> StepText:
        return text_of(self.state, self.step)


@dataclass
class Scores:
    """What critics said. by_critic: of each, the scores by text, without those that failed. scores: how many were
    wanted of all critics, different steps each. given_up: how many of them failed. calls: of all sessions."""

    by_critic: list[dict[StepText, float]] = field(default_factory=list)
    scores: int = 0
    given_up: int = 0
    calls: int = 0
    session_calls: int = 0


@dataclass(frozen=True)
class _Scoring:
    """The work of one critic; see `Work`. scores: by text, of those that are done."""

    steps: Collection[StepToScore]
    at_once: int
    scores: dict[StepText, float] = field(default_factory=dict)
    noun: str = "step"

    def items(self) -> Collection[StepToScore]:
        return self.steps

    def question_of(self, item: StepToScore) -> str:
        return item.question_id

    async def do(self, item: StepToScore, asked: Asked) -> None:
        critic = Critic(asked.models[_CRITIC])
        try:
            [self.scores[item.text]] = await critic.scores(item.state, [item.step], question_id=item.question_id)
        except ModelError as error:
            asked.failure(error, "score", {"question_id": item.question_id})


async def score_steps(
    asked: Iterable[tuple[AskedCritic, Iterable[StepToScore]]], folder: Path, max_calls: int | None, watcher: Watcher
) -> Scores:
    """Have steps scored by one critic after the other, with the journal and the failures in `folder`.

    max_calls: of all critics together. Raises InputError where a critic cannot be asked, RunStopped where the cap or a
    lost endpoint ended it, KeyboardInterrupt where Ctrl-C did; the same call goes on, by the scores in the journal.
    """
    found = Scores()
    for critic, wanted in asked:
        steps = {each.text: each for each in wanted}
        work = _Scoring(steps.values(), critic.spec.limits.concurrency)
        async with AsyncExitStack() as opened:  # its server ends before the next one starts

            async def open_one(critic: AskedCritic = critic, opened: AsyncExitStack = opened) -> ChatModel:
                return critic.model or await open_critic(critic.found, critic.spec, opened, say=watcher.say)

            caps = Caps(calls=None if max_calls is None else max(0, max_calls - found.calls))
            roles = {_CRITIC: Role(critic.spec, open_one)}
            watcher.say(f"{critic.found.name}: {counted(len(steps), work.noun)} to score")
            async with open_run(folder, roles, watcher, Budget(caps)) as run:
                await run.complete(work)
        found.by_critic.append(work.scores)
        found.scores += len(steps)
        found.given_up += run.failures.given_up.total()
        found.calls += run.models.spent.calls
        found.session_calls += run.session.tally.calls
    return found
