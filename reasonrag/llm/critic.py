"""A critic: a model that scores a step in its state, found by its folder and asked.

Decides what a request for a score is, what a critic's folder says of it, and when a critic may not be used. Its scores
are journaled and capped like the answers of any model: the reply to a state and a step is a number as text. They are
asked for at vLLM's `/pooling`, as a conversation that the critic's own chat template renders, and without the
activation that vLLM applies by default. The server is ours and on this machine, so a failed request is not tried again.
Does not know how critics are trained, nor what their scores are used for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError

from preference import Message
from preference.candidate_records import question_key
from preference.records import first_error
from reasonrag.concurrency import together
from reasonrag.errors import InputError, ModelError
from reasonrag.llm.budget import Tokens
from reasonrag.llm.chat import ChatModel, ChatRequest, Completion, Sampling
from reasonrag.llm.endpoint.endpoint import Limits
from reasonrag.llm.endpoint.http_client import BadAnswerError, Connection, score_of
from reasonrag.llm.endpoint.scheduler import RequestScheduler
from reasonrag.llm.endpoint.trouble import error_cause, error_message
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.llm.prices import SELF_HOSTED
from reasonrag.model_folder import PROVENANCE, fingerprint, open_model, read_json
from reasonrag.serving.local_server import VllmOptions, served
from reasonrag.web.client import shown_url

SCORING: Final = Sampling(temperature=0, top_p=1, max_tokens=1)
TRIAL: Final = (
    Message(role="system", content="Take the next step."),
    Message(role="user", content="Question: Which river flows through the town?"),
    Message(role="assistant", content="I need to search.\n<query>river that flows through the town</query>"),
)
"""The conversation whose score a critic's folder holds."""
TOLERANCE: Final = 0.25
"""Largest difference of that score: room for bfloat16, an estimate."""


class CriticVerdict(BaseModel, frozen=True, extra="forbid"):
    """What `evaluate-critic` found. failures: why it may not be used, in sentences; empty if it passed."""

    failures: tuple[str, ...]
    evaluation: str
    """Folder of the evaluation."""


class CriticFacts(BaseModel, frozen=True, extra="forbid"):
    """The field `critic` of `reasonrag.json` in a critic's folder."""

    labels: str
    """What it was trained on: value, judge, imported, unknown; outcome for an outcome model, which others must beat."""
    end_token: str
    """The last token of every text it reads, written by its chat template."""
    trial_score: float | None = None
    """Its score of `TRIAL` after training, by which a server is checked."""
    trial_tokens: int | None = None
    """The tokens that it read for that score, likewise."""
    verdict: CriticVerdict | None = None
    """None until it was evaluated."""


@dataclass(frozen=True)
class FoundCritic:
    """A critic as the user named it.

    name: of its scores in a journal. folder, facts: None for a model of the user's own. renderer: of the prompts it was
    trained on. questions: keys of the questions it was trained on (`preference.candidate_records.question_key`).
    """

    name: str
    folder: Path | None = None
    facts: CriticFacts | None = None
    renderer: str | None = None
    questions: frozenset[str] = frozenset()

    def trained_on(self, question: str) -> bool:
        """Whether it was trained on a question, by its text."""
        return question_key(question) in self.questions


def find_critic(named: str) -> FoundCritic:
    """The critic of a folder. Raises InputError for anything else."""
    if named.startswith(("http://", "https://")):
        raise InputError(
            f"{shown_url(named)}: give the critic's folder, which is served while the command runs; where its GPU is "
            "full, serve the model elsewhere and give --base-url"
        )
    folder = Path(named).expanduser()
    if not (folder / PROVENANCE).is_file():
        why = f"is no critic: it has no {PROVENANCE}" if folder.is_dir() else "is not there"
        raise InputError(f"the critic {folder} {why}; reasonrag train-critic makes one")
    model = open_model(folder)
    told = read_json(folder / PROVENANCE)
    if not told.get("critic"):
        raise InputError(f"{folder} is no critic, but a model of stage {told.get('stage')}; train-critic makes one")
    try:
        facts = CriticFacts.model_validate(told["critic"])
    except ValidationError as error:
        raise InputError(f"{folder / PROVENANCE}: {first_error(error)}") from error
    asked, questions = told.get("asked"), told.get("questions")
    return FoundCritic(
        f"{model.name}@{fingerprint(model)}",
        folder,
        facts=facts,
        renderer=asked.get("renderer") if isinstance(asked, dict) else None,
        questions=frozenset(map(str, questions)) if isinstance(questions, list) else frozenset(),
    )


def check_critic(
    found: FoundCritic, *, renderer: str | None, questions: Iterable[str], allowed: bool, warn: Callable[[str], None]
) -> None:
    """Warn of a critic that should not be used, or of which nothing is known. Raises InputError unless allowed.
    renderer: of the prompts, and questions, that it would be shown."""
    objections = list[str]()
    if found.facts is None:
        warn(f"nothing is known of the critic {found.name}: assuming that it was not trained on these questions")
    elif found.facts.verdict is None:
        warn(f"the critic {found.name} was never evaluated; reasonrag evaluate-critic says how well it judges")
    else:
        objections += [f"it failed its evaluation: {each}" for each in found.facts.verdict.failures]
    if renderer and found.renderer and renderer != found.renderer:
        objections.append(f"it was trained on prompts of renderer {found.renderer}, and would be shown {renderer}")
    if seen := sum(map(found.trained_on, questions)):
        objections.append(f"it was trained on {seen:,} of these questions")
    for each in objections:
        if not allowed:
            raise InputError(f"the critic {found.name} may not be used: {each}. --allow-critic uses it all the same")
        warn(f"the critic {found.name}: {each}")


def critic_spec(found: FoundCritic, limits: Limits) -> ModelSpec:
    """limits: of the model whose steps it scores; rates that the user set for that one are not the critic's. Its scores
    cost nothing, as those of any server of one's own."""
    limits = replace(limits, rpm=None, tpm=None)
    return ModelSpec(found.name, SCORING, limits, price=SELF_HOSTED, recorded_as=f"{found.name} (critic)")


async def open_critic(
    found: FoundCritic, spec: ModelSpec, opened: AsyncExitStack, *, say: Callable[[str], None], beside: bool = False
) -> ChatModel:
    """The critic at a server that ends with `opened`. beside: see `VllmOptions`. Raises InputError."""
    if found.folder is None or found.facts is None:
        raise InputError(f"the critic {found.name} has no folder that could be served")
    server = await opened.enter_async_context(served(found.folder, say=say, vllm=VllmOptions(beside=beside)))
    model = ScoreEndpoint(server.name, server.base_url, spec.limits, found.facts)
    opened.push_async_callback(model.close)
    return model


class ScoreEndpoint:
    """Raw scores over HTTP. name: what the server calls the critic."""

    def __init__(self, name: str, base_url: str, limits: Limits, facts: CriticFacts) -> None:
        self.name, self._facts = name, facts
        self._connection = Connection(base_url, "none", limits.timeout)
        self._scheduler = RequestScheduler([limits.pace()], most=limits.concurrency)
        self.stop = self._scheduler.stop

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        from openai import APIError

        asked = {
            "model": self.name,
            "messages": request.wire_messages,
            "task": "classify",
            "use_activation": False,
            "add_generation_prompt": False,
        }
        slot = await self._scheduler.take(0, 0.0, "", {})
        try:
            answer = await self._connection.post(asked, "/pooling")
            return [score_of(answer.content, (), prompt_size=request.size)]
        except (APIError, BadAnswerError) as error:
            said = f"the server of {self.name} gave no score: {error_message(error)}"
            raise ModelError(said, cause=error_cause(error)) from error
        finally:
            self._scheduler.give_back(slot)

    async def check(self) -> None:
        """Raises InputError for a server that reads or scores `TRIAL` otherwise than the training did."""
        try:
            [reply] = await self.complete(ChatRequest(messages=TRIAL, sampling=SCORING, samples=(0,), seeds=(0,)))
        except ModelError as error:
            raise InputError(f"{self.name} serves no critic: {error}") from error
        score, expected, tokens = float(reply.text), self._facts.trial_score, self._facts.trial_tokens
        asks = "is it the same critic, with its own chat template and end token?"
        if tokens not in (None, reply.prompt_tokens) and not reply.tokens_bounded:
            read = f"{self.name} reads the trial step as {reply.prompt_tokens} tokens"
            raise InputError(f"{read}, the training as {tokens}: {asks}")
        if expected is not None and abs(score - expected) > TOLERANCE:
            scored = f"{self.name} scores the trial step {score:.3f}"
            raise InputError(f"{scored}, and did so by {expected:.3f} when it was trained: {asks}")

    async def close(self) -> None:
        await self._connection.close()


@dataclass
class Critic:
    """Scores steps. model: behind a journal. spent: what its scores have cost."""

    model: ChatModel
    spent: Tokens = field(default_factory=Tokens)

    async def scores(self, state: Sequence[Message], steps: Sequence[str], *, question_id: str) -> list[float]:
        """The raw score (any real number) of each step in a state. Equal steps are asked once. Raises ModelError."""
        distinct = list(dict.fromkeys(steps))
        asked = [(*state, Message(role="assistant", content=step)) for step in distinct]
        requests = (ChatRequest(each, SCORING, samples=(0,), seeds=(0,), question_id=question_id) for each in asked)
        answers = await together(*map(self.model.complete, requests))
        self.spent += Tokens.of(completion for answer in answers for completion in answer)
        known = {step: float(answer[0].text) for step, answer in zip(distinct, answers, strict=True)}
        return [known[step] for step in steps]


StepText = tuple[tuple[str, ...], str]
"""A state's turns and a step: what a score depends on."""


def text_of(state: Iterable[Message], step: str) -> StepText:
    return tuple(turn.content for turn in state), step
