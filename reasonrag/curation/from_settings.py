"""From settings of `pairs` to its judge and its critics. Does not know what they are asked about."""

from __future__ import annotations

from reasonrag.agent.prompting import load_prompts
from reasonrag.curation.labels.critic_scores import CriticWitnesses
from reasonrag.curation.labels.judge_labels import StateJudge
from reasonrag.curation.settings import PairsSettings
from reasonrag.errors import InputError
from reasonrag.llm.budget import Caps
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.critic import FoundCritic, critic_spec, find_critic
from reasonrag.llm.endpoint.endpoint import Limits
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.llm.settings import TIMEOUT_S, LimitSettings, ModelSettings
from reasonrag.run.scoring import AskedCritic


def state_judge(settings: PairsSettings, chat_model: ChatModel | None = None) -> StateJudge:
    """The judge that the settings name, at temperature 0."""
    name = chat_model.name if chat_model else settings.model
    if name is None:
        flag = "--as-published of a run of prorag" if settings.as_published else "--label judge"
        raise InputError(f"{flag} needs --model, the name of the judge; offline rehearses it for free")
    asked = {each: getattr(settings, each) for each in ModelSettings.model_fields if each != "temperature"}
    model = ModelSpec.of(
        ModelSettings.model_validate(asked | {"temperature": 0.0}),
        LimitSettings(concurrency=settings.concurrency),
        name,
    )
    caps, prompts = Caps(settings.max_cost, settings.max_calls), load_prompts(settings.prompts)
    return StateJudge(model, prompts, settings.judge_gold, settings.seed, caps, settings.yes)


def critic_witnesses(
    settings: PairsSettings, critic_model: ChatModel | None, *, judged: bool
) -> CriticWitnesses | None:
    """The critics that the settings name, and what they are to score; None without any. judged: whether a judge labels,
    whose second witness are the values. Raises InputError for settings that do not fit together."""
    found = [FoundCritic(critic_model.name)] if critic_model else [find_critic(each) for each in settings.critic]
    confirms, paths = settings.consensus and not judged, "sft" in settings.format
    if confirms and not found:
        raise InputError(
            "--consensus needs a second witness: --critic of train-critic, or --label judge, whose second witness are "
            "the values"
        )
    if not found:
        return None
    if judged and settings.consensus and not paths:
        raise InputError(
            "--critic: the second witness of a judge's labels are the values; leave it out, or add --format sft"
        )
    if not (confirms or paths):
        raise InputError("--critic goes with --consensus, or with --format sft; give one of them")
    limits = Limits(settings.concurrency, TIMEOUT_S)
    return CriticWitnesses(
        tuple(AskedCritic(each, critic_spec(each, limits), critic_model) for each in found),
        settings.rules if confirms else None,
        paths=paths,
        allowed=settings.allow_critic,
        max_calls=settings.max_calls,
    )
