"""From settings to the parts that an agent runs with: questions and their corpus, the model, its sampling and price.

Decides which files a data set is, and which names need an endpoint. Does not know what the agent is run for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reasonrag.agent.settings import AgentSettings
from reasonrag.data.atlas import SPLITS, write_world
from reasonrag.data.datasets import ATLAS, DATASETS, data_sets, find_questions
from reasonrag.data.questions import Check, QuestionSource, open_questions
from reasonrag.errors import InputError, choices
from reasonrag.files import writing
from reasonrag.llm.budget import Caps
from reasonrag.llm.chat import Sampling
from reasonrag.llm.endpoint.endpoint import Limits
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.llm.offline import NAME as OFFLINE
from reasonrag.llm.prices import find_price
from reasonrag.rendering import counted
from reasonrag.retrieval.from_settings import is_remote
from reasonrag.settings import Settings
from reasonrag.web import shown_url


def shown_sampling(sampling: Sampling) -> dict[str, Any]:
    return sampling.model_dump(mode="json", exclude={"stop"})


def teacher_spec(settings: AgentSettings, name: str) -> ModelSpec:
    """The model that the settings name, or another one in its place: `name` is the one its answers go by."""
    defaults = settings.agent_defaults
    return ModelSpec(
        name,
        Sampling(
            temperature=defaults.temperature if settings.temperature is None else settings.temperature,
            top_p=settings.top_p or defaults.top_p,
            max_tokens=settings.max_reply_tokens,
            extra_body=settings.extra_body,
        ),
        Limits(settings.concurrency, settings.timeout, settings.rpm, settings.tpm),
        price=find_price(
            name,
            addresses=settings.base_url,
            extra_body=settings.extra_body,
            tokens_in=settings.price_in,
            tokens_out=settings.price_out,
        ),
        addresses=tuple(settings.base_url),
        in_process=name == OFFLINE and not settings.base_url,
    )


def caps_of(settings: AgentSettings) -> Caps:
    return Caps(settings.max_cost, settings.max_calls, settings.max_tokens)


def questions_left(owed: int, total: int, source: QuestionSource, *, limited: bool) -> str:
    """The questions of a session, as words; without --limit they say that it is the whole split."""
    left, questions = "" if owed == total else f"{owed:,} left of ", counted(total, "question")
    return left + (questions if limited else f"all {questions} of {source.dataset}/{source.split} (no --limit)")


def model_name(settings: AgentSettings) -> str:
    if settings.model:
        return settings.model
    if settings.questions is None and (settings.dataset or ATLAS) == ATLAS:
        return OFFLINE
    raise InputError(
        "give --model: a model of your endpoint (gpt-4o, or what --base-url serves), or offline for the "
        "extractive teacher that costs nothing"
    )


def find_data(settings: AgentSettings, check: Check, *, searched: bool = True) -> tuple[QuestionSource, Path | None]:
    """The questions, and the corpus that belongs to them (None: the one of --index, or of the server).

    check: what every question must pass. searched: whether passages are needed at all.
    """
    if settings.data_dir and not (settings.dataset or settings.questions):
        raise InputError(f"--data-dir {settings.data_dir} needs --dataset; {choices('', data_sets(settings.data_dir))}")
    if settings.questions:
        if settings.dataset:
            raise InputError("give --questions or --dataset, not both")
        source = open_questions(settings.questions, dataset=settings.questions.stem, split=settings.split, check=check)
        return source, _own_corpus(settings, "--questions") if searched else None
    dataset = settings.dataset or ATLAS
    if dataset not in DATASETS and settings.data_dir is None:
        raise InputError(f"there is no data set {dataset!r}; {choices(dataset, DATASETS)}")
    if dataset == ATLAS:
        return _atlas(settings, check)
    source = find_questions(dataset, settings.split, settings.data_dir, check=check)
    if settings.data_dir is None:
        return source, _own_corpus(settings, f"--dataset {dataset} without --data-dir") if searched else None
    return source, settings.corpus or settings.data_dir / dataset / "corpus.jsonl"


def find_corpus(settings: AgentSettings) -> Path | None:
    """The corpus for the user's own questions, by default atlas' (None: that of --index, or of the server). Raises
    InputError like `find_data`."""
    if settings.corpus or settings.index or is_remote(settings):
        return settings.corpus
    dataset = settings.dataset or ATLAS
    if settings.data_dir is not None and settings.dataset:
        corpus = settings.data_dir / dataset / "corpus.jsonl"
        if not corpus.is_file():
            raise InputError(
                f"{settings.data_dir} has no data set {dataset!r}; {choices(dataset, data_sets(settings.data_dir))}"
            )
        return corpus
    if dataset != ATLAS:
        return _own_corpus(settings, f"--dataset {dataset} without --data-dir")
    return _world(settings) / "corpus.jsonl"


def _own_corpus(settings: AgentSettings, what: str) -> Path | None:
    if settings.corpus is None and not settings.index and not is_remote(settings):
        raise InputError(
            f"{what} needs passages to search: give --corpus FILE (JSONL, one "
            '{"id", "contents": "title\\ntext"} per line), --index DIR of a built index, or --retriever http://host:port'
        )
    return settings.corpus


def _atlas(settings: AgentSettings, check: Check) -> tuple[QuestionSource, Path | None]:
    if settings.split not in SPLITS:
        raise InputError(f"atlas has no split {settings.split!r}; {choices(settings.split, SPLITS)}")
    world = _world(settings)
    source = open_questions(world / f"{settings.split}.jsonl", dataset=ATLAS, split=settings.split, check=check)
    return source, settings.corpus or world / "corpus.jsonl"


def _world(settings: AgentSettings) -> Path:
    with writing(f"atlas below {settings.index_home}"):
        return write_world(settings.index_home)


def shown_settings(settings: Settings) -> dict[str, Any]:
    """Settings as a file may hold them: addresses without users, passwords and queries."""
    names = [name for name in type(settings).model_fields if name.endswith("base_url")]
    return settings.model_dump(mode="json") | {name: shown_urls(getattr(settings, name)) for name in names}


def shown_urls(addresses: Sequence[str]) -> list[str]:
    return [shown_url(each) for each in addresses if each]
