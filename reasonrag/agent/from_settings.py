"""From settings to the parts that an agent runs with: questions and their corpus, the model, its sampling and price.

Decides which files a data set is, and which names need an endpoint. Does not know what the agent is run for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reasonrag.agent.settings import AgentSettings
from reasonrag.data.atlas import SPLITS, write_world
from reasonrag.data.contexts import corpus_of_contexts, joined_corpus, needs_passages, passage_prefix
from reasonrag.data.datasets import data_sets, find_questions, folder_of
from reasonrag.data.names import ATLAS, DATASETS, canonical_dataset
from reasonrag.data.questions import Check, QuestionFile, QuestionSource, Sample, open_questions
from reasonrag.errors import InputError, choices
from reasonrag.files import writing
from reasonrag.llm.budget import Caps
from reasonrag.llm.chat import Sampling
from reasonrag.llm.endpoint.endpoint import Limits
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.llm.offline import NAME as OFFLINE
from reasonrag.llm.prices import find_price
from reasonrag.rendering import counted, dollars
from reasonrag.retrieval.from_settings import is_remote
from reasonrag.settings import Settings
from reasonrag.web.client import http_address, shown_url


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
        Limits(
            settings.concurrency,
            settings.timeout,
            settings.rpm,
            settings.tpm,
            parts=settings.parts,
            max_wait=60 * settings.max_wait,
        ),
        price=find_price(
            name,
            addresses=settings.base_url,
            extra_body=settings.extra_body,
            tokens_in=settings.price_in,
            tokens_out=settings.price_out,
        ),
        addresses=tuple(settings.base_url),
        in_process=name == OFFLINE and not settings.base_url,
    ).asked(settings.reasoning_effort)


def caps_of(settings: AgentSettings) -> Caps:
    """Of this process."""
    return Caps(settings.max_cost, settings.max_calls, settings.max_tokens).parts(settings.parts)


def say_parts(settings: AgentSettings, say: Callable[[str], None]) -> None:
    """Tell what part of the caps a rank has."""
    whole, part = Caps(settings.max_cost, settings.max_calls, settings.max_tokens), caps_of(settings)
    parts = [
        None if part.cost is None else f"{dollars(part.cost)} of --max-cost {whole.cost:g}",
        None if part.calls is None else f"{part.calls:,} of --max-calls {whole.calls:,}",
        None if part.tokens is None else f"{part.tokens:,} of --max-tokens {whole.tokens:,}",
    ]
    if settings.parts > 1 and any(parts):
        say(f"{', '.join(filter(None, parts))} for this rank, one of {settings.parts:,}")


def questions_left(owed: int, total: int, source: QuestionSource, *, limited: bool) -> str:
    """The questions of a session, as words; without --limit they say that it is the whole split."""
    left, questions = "" if owed == total else f"{owed:,} left of ", counted(total, "question")
    if limited or source.sample_seed is not None:
        return left + questions
    return left + f"all {questions} of {source.dataset}/{source.split} (no --limit)"


def model_name(settings: AgentSettings) -> str:
    """The model that the settings name; by default offline for atlas. Raises InputError for others."""
    if settings.model:
        return settings.model
    if is_atlas(settings):
        return OFFLINE
    raise InputError(
        "give --model: a model of your endpoint (what OpenAI or --base-url serves), or offline for the "
        "extractive teacher that costs nothing"
    )


def is_atlas(settings: AgentSettings) -> bool:
    """Whether the questions are those of the world that comes with reasonrag."""
    return settings.questions is None and all(canonical_dataset(each) == ATLAS for each in settings.dataset)


def check_names(settings: AgentSettings) -> None:
    """Raises InputError if the settings name no questions, or none that are known, before anything is fetched."""
    if settings.data_dir and not (settings.dataset or settings.questions):
        raise InputError(f"--data-dir {settings.data_dir} needs --dataset; {choices('', data_sets(settings.data_dir))}")
    if settings.questions and settings.dataset:
        raise InputError("give --questions or --dataset, not both; reasonrag.toml and the environment count, too")
    names = [canonical_dataset(each) for each in settings.dataset]
    if repeated := [each for each, count in Counter(names).items() if count > 1]:
        raise InputError(f"--dataset {repeated[0]} was given twice")
    for given, name in zip(settings.dataset, names, strict=True):
        if settings.data_dir and name != ATLAS:
            folder_of(given, settings.data_dir)
        elif name not in DATASETS:
            raise InputError(f"there is no data set {name!r}; {choices(name, DATASETS)}")


def find_data(
    settings: AgentSettings, check: Check, *, searched: bool = True, say: Callable[[str], None] = lambda _: None
) -> tuple[QuestionSource, Path | None]:
    """The questions, and the corpus that belongs to them (None: the one of --index, or of the server).

    check: what every question must pass. searched: whether passages are needed at all. say: told of a corpus that is
        made of the passages that came with the questions, and of a data set that is smaller than its sample.
    """
    check_names(settings)
    names = [None] if settings.questions else settings.dataset or [ATLAS]
    files = [_questions(settings, each, check, say) for each in names]
    for each in files:
        if each.unread:
            say(each.unread)
        if settings.sample and each.total < settings.sample:
            has = counted(each.total, "question")
            say(f"{each.name} has {has}, fewer than --sample {settings.sample:,}: all are used")
    corpora = [_corpus_beside(settings, each) for each in names]
    if settings.corpus:
        corpus: Path | None = settings.corpus
    elif settings.index or is_remote(settings) or not searched:
        corpus = corpora[0] if len(corpora) == 1 else None
    else:
        files = [
            replace(file, passage_prefix=_prefix(file, own, mixed=len(files) > 1))
            for file, own in zip(files, corpora, strict=True)
        ]
        corpus = _corpus_of(files, corpora, settings.index_home, say=say)
    return QuestionSource(tuple(files), sample_seed=settings.seed if settings.sample else None), corpus


def _questions(settings: AgentSettings, dataset: str | None, check: Check, say: Callable[[str], None]) -> QuestionFile:
    """The questions of a data set, or None: those of --questions."""
    sample = Sample(settings.sample, settings.seed) if settings.sample else None
    if dataset is None:
        path, home = settings.questions or Path(), settings.index_home
        return open_questions(
            path, dataset=path.stem, split=settings.split, check=check, sample=sample, home=home, say=say
        )
    if canonical_dataset(dataset) == ATLAS:
        if settings.split not in SPLITS:
            raise InputError(f"atlas has no split {settings.split!r}; {choices(settings.split, SPLITS)}")
        path = _world(settings) / f"{settings.split}.jsonl"
        return open_questions(path, dataset=ATLAS, split=settings.split, check=check, sample=sample)
    return find_questions(
        dataset, settings.split, settings.data_dir, home=settings.index_home, check=check, sample=sample
    )


def _corpus_beside(settings: AgentSettings, dataset: str | None) -> Path | None:
    """The corpus that a data set has, apart from the passages that came with its questions."""
    if dataset is None:
        return None
    if canonical_dataset(dataset) == ATLAS:
        return _world(settings) / "corpus.jsonl"
    beside = folder_of(dataset, settings.data_dir) / "corpus.jsonl" if settings.data_dir else None
    return beside if beside and beside.is_file() else None


def _prefix(file: QuestionFile, corpus: Path | None, *, mixed: bool) -> str | None:
    """See `QuestionFile`. corpus: None for the passages that came with the questions, which get ids of their own."""
    if corpus is None:
        return None
    return passage_prefix(file.dataset) if mixed else ""


def _corpus_of(
    files: Sequence[QuestionFile], corpora: Sequence[Path | None], home: Path, *, say: Callable[[str], None]
) -> Path:
    """The corpus of all these questions. corpora: of each file; None: the passages that came with its questions."""
    known = [(file.dataset, corpus) for file, corpus in zip(files, corpora, strict=True) if corpus]
    others = [file for file, corpus in zip(files, corpora, strict=True) if corpus is None]
    if others:
        known.append(("+".join(each.dataset for each in others), corpus_of_contexts(others, home, say=say)))
    return known[0][1] if len(known) == 1 else joined_corpus(known, home, say=say)


def find_corpus(settings: AgentSettings) -> Path | None:
    """The corpus for the user's own questions, by default atlas' (None: that of --index, or of the server). Raises
    InputError like `find_data`."""
    if settings.corpus or settings.index or is_remote(settings):
        return settings.corpus
    if not settings.dataset or is_atlas(settings):
        return _world(settings) / "corpus.jsonl"
    [dataset] = settings.dataset
    corpus = _corpus_beside(settings, dataset)
    if corpus is None:
        where = f"{dataset} in {settings.data_dir}" if settings.data_dir else f"--dataset {dataset} without --data-dir"
        raise InputError(needs_passages(where))
    return corpus


def _world(settings: AgentSettings) -> Path:
    with writing(f"atlas below {settings.index_home}"):
        return write_world(settings.index_home)


def shown_settings(settings: Settings) -> dict[str, Any]:
    """Settings as a file may hold them: addresses without users, passwords and queries."""

    def shown(value: Any) -> Any:
        if isinstance(value, list):
            return [shown(each) for each in value]
        return shown_url(value) if isinstance(value, str) and http_address(value) else value

    names = [name for name in type(settings).model_fields if name.endswith("base_url")]
    found = {name: shown(value) for name, value in settings.model_dump(mode="json").items()}
    return found | {name: shown_urls(getattr(settings, name)) for name in names}


def shown_urls(addresses: Sequence[str]) -> list[str]:
    return [shown_url(each) for each in addresses if each]
