"""Which models `evaluate` and `ask` use, and how they are asked: their settings, held against each other.

Decides what `--model` means, which settings make no sense together, and with which prompts, passages, budget and style
of answers a trained model is asked by default; whether that fits its training is decided by `provenance_check`. Does
not know what the models are asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from reasonrag.agent.agent import Agent
from reasonrag.agent.model_calls import ModelCaller
from reasonrag.agent.prompting import Prompts, load_prompts, prompts_beside, style_recorded
from reasonrag.agent.protocols.known import read_by, renderer_hash
from reasonrag.agent.reader import find_reader
from reasonrag.agent.settings import OURS
from reasonrag.data.settings import QuestionSettings
from reasonrag.errors import InputError
from reasonrag.evaluation.methods.opening import NoRetriever
from reasonrag.evaluation.provenance_check import EvaluatedModel, ProvenanceCheck
from reasonrag.evaluation.report import EvaluationConditions
from reasonrag.evaluation.settings import AskSettings, EvaluateSettings
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.critic import FoundCritic, check_critic, critic_spec, find_critic, open_critic
from reasonrag.llm.endpoint.endpoint import JUDGE_KEY_VARIABLE
from reasonrag.llm.hermes import check_notation
from reasonrag.llm.model_spec import ModelSpec, model_name
from reasonrag.llm.offline import NAME as OFFLINE
from reasonrag.llm.prices import SELF_HOSTED
from reasonrag.llm.settings import LimitSettings, ModelSettings
from reasonrag.model_folder import fingerprint, open_model
from reasonrag.retrieval.opening import open_retriever
from reasonrag.retrieval.passage_length import order_recorded, with_passages_cut
from reasonrag.retrieval.retriever import Retriever
from reasonrag.retrieval.settings import RetrievalSettings
from reasonrag.run.scoring import AskedCritic
from reasonrag.serving.local_server import VllmOptions, served
from reasonrag.training.provenance import SHOWN_PLAINLY, Provenance, find_provenance

AnyAskSettings = TypeVar("AnyAskSettings", bound=AskSettings)
_CONDITIONS = ("top_k", "max_steps", *(each for each in SHOWN_PLAINLY if each != "reader"))


@dataclass
class Parts:
    """What an evaluation uses: opened when it is first needed, closed with `opened`.

    chat_model, judge_chat_model, retriever, critic_model: the caller's own, in place of those that the settings name.
    """

    opened: AsyncExitStack
    say: Callable[[str], None]
    chat_model: ChatModel | None = None
    judge_chat_model: ChatModel | None = None
    retriever: Retriever | None = None
    critic_model: ChatModel | None = None

    async def open_model(self, subject: EvaluatedModel, spec: ModelSpec) -> ChatModel:
        """The evaluated model. For a folder a server of it is started, which takes time and ends with `opened`."""
        if self.chat_model is None:
            if subject.served_here and subject.folder is not None:
                serving = served(subject.folder, say=self.say, base_model=subject.base_model, vllm=subject.vllm)
                server = await self.opened.enter_async_context(serving)
                spec = replace(spec, name=server.name, addresses=(server.base_url,))
            self.chat_model = spec.open(self.opened, say=self.say)
        return self.chat_model

    async def open_critic(self, critic: AskedCritic, *, beside: bool) -> ChatModel:
        return critic.model or await open_critic(critic.found, critic.spec, self.opened, say=self.say, beside=beside)


@dataclass(frozen=True)
class AskedModel(Generic[AnyAskSettings]):
    """The model of an evaluation, or of the one question of `ask`, and how it is asked.

    settings: with what the training says where the user says nothing. asked: the conditions; no retriever until opened.
    """

    settings: AnyAskSettings
    subject: EvaluatedModel
    lineage: ProvenanceCheck
    spec: ModelSpec
    prompts: Prompts
    asked: EvaluationConditions
    retriever: Retriever
    reader: ModelSpec | None = None

    @classmethod
    def of(cls, settings: AnyAskSettings, parts: Parts, allowed: Collection[str] = ()) -> AskedModel[AnyAskSettings]:
        """By the settings, before anything is opened. allowed: conditions that may differ from the training, and so are
        not taken from it. Raises InputError."""
        subject = find_evaluated_model(settings, parts.chat_model)
        lineage = ProvenanceCheck.of(subject, settings.trained_on)
        settings, taken = asked_as_trained(
            settings, lineage.sources if settings.chosen_method.of_agent else (), allowed
        )
        if taken:
            parts.say(taken)
        prompts = load_prompts(settings.prompts, settings.style, settings.agent)
        spec, method = evaluated_spec(subject, settings), settings.chosen_method
        agent = prompts.agent if method.of_agent else method.name
        if not method.of_agent and settings.agent != OURS:
            raise InputError(f"--agent {settings.agent}: --method {method.name} has no agent; leave --agent out")
        reader = find_reader(spec, settings.beside("reader"), agent)
        if settings.native:
            spec = spec.with_native_calls(agent, served_here=subject.served_here)
        if agent == "tools":
            check_notation(str(subject.folder or subject.name), parts.say)
        asked = EvaluationConditions(
            renderer=renderer_hash(prompts),
            top_k=settings.top_k,
            max_passage_chars=settings.max_passage_chars,
            passage_order=order_recorded(settings.order),
            style=style_recorded(settings.style),
            agent=prompts.agent_identity.get("agent"),
            reader=read_by(agent, spec.name, reader.name if reader else None),
            retriever="",
            max_steps=method.steps,
        )
        return cls(settings, subject, lineage, spec, prompts, asked, NoRetriever(), reader)

    async def opened(
        self, parts: Parts, corpus: Path | None, *, begun: bool = False, effort: str | None = None
    ) -> AskedModel[AnyAskSettings]:
        """With the retriever, and how the model turned out to be asked: its server is checked before an index is built.

        begun: whether a journal may have all answers, so that the model is opened only when one is missing. effort: of
        reasoning, as an earlier session recorded it.
        """
        model = parts.chat_model
        if model is None and not (self.subject.served_here or begun):
            model = await parts.open_model(self.subject, self.spec)
        spec = await self.spec.settled(model, effort)
        if parts.retriever is None:
            checking = [model.check] if model else []
            parts.retriever = await open_retriever(
                self.settings.part(RetrievalSettings),
                corpus,
                parts.opened,
                named=bool(self.settings.corpus),
                top_k=self.settings.top_k,
                say=parts.say,
                before_building=checking,
            )
        retriever = with_passages_cut(parts.retriever, self.settings.max_passage_chars)
        asked = self.asked.model_copy(update={"retriever": retriever.identity})
        return replace(self, spec=spec, retriever=retriever, asked=asked)

    def agent(self, model: ChatModel, reader: ChatModel | None = None, *, repair: bool = True) -> Agent:
        """The agent with the models behind whatever counts their tokens."""
        settings, reads = self.settings, self.reader
        return Agent(
            model,
            self.retriever,
            self.prompts,
            self.spec.sampling,
            settings.top_k,
            settings.chosen_method.steps,
            settings.seed,
            passage_order=settings.order,
            repair=repair,
            reader=ModelCaller(reader, self.prompts, reads.sampling, settings.seed) if reads and reader else None,
        )


def find_evaluated_model(settings: AskSettings, chat_model: ChatModel | None = None) -> EvaluatedModel:
    """What --model means. Raises InputError for a path that is no model's folder, for a --base-model of no adapter,
    and for options of a server where none is started."""
    found = _found(settings, chat_model)
    adapter = found.served_here and found.folder and open_model(found.folder).is_adapter
    if settings.base_model and not adapter:
        raise InputError("--base-model is for an adapter's folder, and --model is none; leave it out")
    of_a_server = {"--tensor-parallel": settings.tensor_parallel, "--max-model-len": settings.max_model_len}
    given = next((flag for flag, value in of_a_server.items() if value is not None), None)
    if given and not found.served_here:
        raise InputError(f"{given} is for a model's folder, which is served here, and --model is none; leave it out")
    return found


def _found(settings: AskSettings, chat_model: ChatModel | None) -> EvaluatedModel:
    if chat_model is not None:
        return EvaluatedModel(chat_model.name, known=chat_model.name != OFFLINE)
    name = model_name(settings.part(ModelSettings), of_atlas=settings.part(QuestionSettings).of_atlas)
    if name == OFFLINE and not settings.base_url:
        return EvaluatedModel(name, known=False)
    folder = Path(name).expanduser()
    if settings.base_url:  # there it is a name, whatever it looks like; servers often name a model by its folder
        return EvaluatedModel(name, folder if find_provenance(folder) else None)
    if folder.exists():
        found = open_model(folder)
        base = settings.base_model or found.base_model
        if found.is_adapter and base is None:
            raise InputError(f"{folder} is an adapter that does not name its base model; give --base-model")
        critic_beside = isinstance(settings, EvaluateSettings) and settings.critic is not None
        return EvaluatedModel(
            f"{found.name}@{fingerprint(found, base)}",
            folder,
            served_here=True,
            base_model=settings.base_model,
            vllm=VllmOptions(settings.tensor_parallel, settings.max_model_len, beside=critic_beside),
        )
    if name.startswith((".", "~", os.sep)) or (os.sep in name and not os.environ.get("OPENAI_BASE_URL")):
        raise InputError(
            f"--model {name}: there is no such folder here. Check the path; or, if that is the name of a model on a "
            "server, give its --base-url"
        )
    return EvaluatedModel(name)


def evaluated_spec(subject: EvaluatedModel, settings: AskSettings) -> ModelSpec:
    """How it is asked and sampled, and what its tokens cost; those of a server of our own nothing."""
    model = settings.part(ModelSettings)
    spec = ModelSpec.of(model, settings.part(LimitSettings), subject.name, top_p=settings.top_p or 1.0)
    limits = replace(spec.limits, patience=settings.patience)
    needs_logprobs = settings.chosen_method.name == "flare"
    sampling = spec.sampling.model_copy(update={"logprobs": needs_logprobs})  # so that the trial asks for them too
    return replace(spec, sampling=sampling, limits=limits, price=SELF_HOSTED if subject.served_here else spec.price)


def with_temperature(settings: EvaluateSettings, *, critic: bool) -> EvaluateSettings:
    """The settings with the temperature at which several draws differ. critic: whether there is one. Raises InputError
    for settings that exclude each other."""
    method = settings.chosen_method
    given = {"--best-of": method.best_of, "--vote": method.vote, "--critic": critic}
    if not method.of_agent and (flag := next((flag for flag, value in given.items() if value), None)):
        raise InputError(f"{flag} goes with --method agent")
    if method.best_of and method.vote:
        raise InputError("--best-of and --vote exclude each other: compare two evaluations, one of each")
    if critic != bool(method.best_of):
        raise InputError("--critic, a folder that train-critic wrote, goes with --best-of N")
    if method.draws == 1:
        return settings
    if "temperature" not in settings.model_fields_set:
        return settings.model_copy(update={"temperature": 1.0})
    if settings.temperature == 0:
        raise InputError("--temperature 0 gives the same reply every time: leave it out, or give 1, with several draws")
    return settings


def find_step_critic(
    settings: EvaluateSettings, chat_model: ChatModel | None, model: AskedModel[EvaluateSettings], questions: list[str]
) -> tuple[AskedCritic | None, list[str]]:
    """The critic that the settings name, or the caller's own, which is not checked; and what speaks against using it.

    model: whose steps it scores. questions: what it will be shown. Raises InputError for one that may not be used.
    """
    warnings = list[str]()
    if chat_model is not None:
        found = FoundCritic(chat_model.name)
    elif settings.critic:
        found, renderer, allowed = find_critic(settings.critic), model.asked.renderer, settings.allow_critic
        check_critic(found, renderer=renderer, questions=questions, allowed=allowed, warn=warnings.append)
    else:
        return None, warnings
    return AskedCritic(found, critic_spec(found, model.spec.limits), chat_model), warnings


def judge_spec(judged: ModelSpec, settings: EvaluateSettings, chat_model: ChatModel | None) -> ModelSpec | None:
    """The judge beside the model that is judged; None where there is none.

    At its own address or that model's, each with its own key only; at temperature 0, for the likeliest judgement.
    """
    name = chat_model.name if chat_model else settings.judge
    if name is None:
        return None
    own, key = settings.beside("judge"), JUDGE_KEY_VARIABLE
    return judged.second(own, name, name_flag="--judge", key_variable=key).likeliest("judge")


def asked_as_trained(
    settings: AnyAskSettings, sources: Sequence[tuple[Path, Provenance]], allowed: Collection[str] = ()
) -> tuple[AnyAskSettings, str | None]:
    """The settings with what the training says where the user says nothing, and what was taken, in words.

    A condition is taken of which the training had one known value, other than the usual one.

    sources: what is known of the training, by folder. allowed: conditions that may differ, and so are not taken.
    """
    taken = {} if "renderer" in allowed else _prompts(settings, sources)
    for name in (each for each in _CONDITIONS if each not in (*settings.model_fields_set, *allowed)):
        values = {value for _, source in sources for value in getattr(source.asked, name)}
        usual = settings.chosen_method.steps if name == "max_steps" else getattr(settings, name)
        if len(values) == 1 and (value := values.pop()) not in (None, usual):
            taken[name] = value
    said = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in taken.items())
    return settings.model_copy(update=taken), f"asking as it was trained: {said}" if said else None


def _prompts(settings: AskSettings, sources: Sequence[tuple[Path, Provenance]]) -> dict[str, Any]:
    """The folder of prompts beside the model, or of a checkpoint beside the training around it; none where they are
    those of the package, or not those of the training."""
    for folder, provenance in sources if settings.prompts is None else ():
        for place in (folder, folder.absolute().parent) if re.fullmatch(r"checkpoint-\d+", folder.name) else (folder,):
            if beside := prompts_beside(place):
                renderer = renderer_hash(load_prompts(beside))
                fits = provenance.asked.renderer in (None, renderer)
                packaged = renderer_hash(load_prompts(agent=load_prompts(beside).agent))
                return {"prompts": beside} if fits and renderer != packaged else {}
    return {}
