"""`reasonrag generate`: many questions explored, written to a run directory as they finish.

Resolves settings into parts (questions, retriever, prompts, model, journal, caps) and says what the run's configuration
is. What a tree is, how a session goes, how files look and how an endpoint is asked are decided elsewhere.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson

from mcts import RECIPES, Recipe
from reasonrag.agent import Agent
from reasonrag.chat import ChatModel, Sampling
from reasonrag.concurrency import run_to_end
from reasonrag.endpoints import EndpointModel, shown_url
from reasonrag.errors import CapReached, InputError, Interrupted, RunStopped, StorageError, choices
from reasonrag.exploration import RunIdentity
from reasonrag.journal import JournaledModel, open_journal
from reasonrag.ledger import Caps, Ledger
from reasonrag.offline import NAME as OFFLINE
from reasonrag.offline import OfflineTeacher
from reasonrag.prices import PRICES_AS_OF, Price, find_price
from reasonrag.prompting import Prompts, load_prompts
from reasonrag.questions import (
    ATLAS,
    DATASETS,
    QuestionSource,
    data_sets,
    find_questions,
    open_questions,
)
from reasonrag.retrieval import MANIFEST, BM25Retriever, Retriever, index_place, is_built, open_index, open_or_build
from reasonrag.runs import JOURNAL, RunDirectory
from reasonrag.session import Session, SilentWatcher, Watcher
from reasonrag.settings import MAX_STEPS, GenerateSettings, resolve
from reasonrag.summaries import RunSummary, SessionNumbers, StopReason, count_run, versions


def generate(
    *,
    chat_model: ChatModel | None = None,
    retriever: Retriever | None = None,
    watcher: Watcher | None = None,
    replay: bool | str | Path = False,
    **flags: Any,
) -> RunSummary:
    """Explore questions and write rollouts; the keyword arguments are the command's flags (`data_dir`: `--data-dir`).

    chat_model, retriever: used instead of what the settings would build.
    replay: nothing is asked; answers come from the run's journal, or from the journal that is named.
    Works inside a running event loop too. Raises InputError before anything is started and StorageError where nothing
    can be written any more; failed questions and what stopped a run early are in the summary. After a Ctrl-C it saves
    the state, then raises KeyboardInterrupt.
    """
    settings = resolve(GenerateSettings, "generate", flags)
    return run_to_end(explore(settings, chat_model, retriever, watcher or SilentWatcher(), replay=replay))


async def explore(
    settings: GenerateSettings,
    chat_model: ChatModel | None,
    retriever: Retriever | None,
    watcher: Watcher,
    *,
    replay: bool | str | Path = False,
) -> RunSummary:
    """`generate` for settings that are resolved already, inside an event loop."""
    source, corpus = find_data(settings)
    prompts = load_prompts(settings.prompts)
    name = chat_model.name if chat_model else model_name(settings)
    price = _price(settings, name)
    async with AsyncExitStack() as opened:
        teacher = None if replay else chat_model or _open_model(settings)
        if teacher is not None and teacher is not chat_model:
            opened.push_async_callback(teacher.close)
        if retriever is None:
            retriever = await _open_retriever(settings, corpus, teacher, watcher)
        identity, config = _identify(settings, source, retriever, prompts, name=name, price=price)
        with RunDirectory(settings.run, config, say=watcher.say) as run:
            journal_path = settings.run / JOURNAL if replay is True or not replay else Path(replay)
            journal = await opened.enter_async_context(
                open_journal(journal_path, wanted=lambda question_id: not run.is_done(question_id), writable=not replay)
            )
            caps = Caps(settings.max_cost, settings.max_calls, settings.max_tokens)
            ledger = Ledger(price, caps, spent=journal.delivered)
            model = JournaledModel(teacher, journal, name=name, ledger=ledger)
            agent = _make_agent(settings, model, retriever, prompts)
            session, questions = Session(run, identity, model, teacher, watcher), source.limited(settings.limit)
            await session.explore_all(agent, questions, at_once=settings.concurrency)
            if isinstance(session.stopped, StorageError):
                raise session.stopped
            if session.stopped is None:
                run.put_in_order(question.id for question in questions)
            summary = _summarise(run, session, source, settings, total=len(questions))
            run.write_summary(summary.model_dump())
    if isinstance(session.stopped, Interrupted):
        raise KeyboardInterrupt
    return summary


def _make_agent(settings: GenerateSettings, model: ChatModel, retriever: Retriever, prompts: Prompts) -> Agent:
    """The agent that the settings describe."""
    return Agent(
        model=model,
        retriever=retriever,
        prompts=prompts,
        sampling=_sampling(settings),
        top_k=settings.top_k,
        max_steps=_max_steps(settings),
        seed=settings.seed,
    )


def _sampling(settings: GenerateSettings) -> Sampling:
    return Sampling(temperature=settings.temperature, top_p=settings.top_p, max_tokens=settings.max_reply_tokens)


def _max_steps(settings: GenerateSettings) -> int:
    return settings.max_steps or MAX_STEPS[settings.recipe]


def _identify(
    settings: GenerateSettings,
    source: QuestionSource,
    retriever: Retriever,
    prompts: Prompts,
    *,
    name: str,
    price: Price | None,
) -> tuple[RunIdentity, dict[str, Any]]:
    """What every record says about the run, and the content of its config.json."""
    recipe = resolve_recipe(settings)
    decides_answers = {
        "dataset": source.dataset,
        "split": source.split,
        "questions_sha256": source.sha256,
        "retriever": retriever.identity,
        "top_k": settings.top_k,
        "prompts": prompts.hash,
        "model": name,
        "sampling": _sampling(settings).model_dump(mode="json", exclude={"stop"}),
        "recipe": recipe.model_dump(mode="json"),
        "max_steps": _max_steps(settings),
        "seed": settings.seed,
    }
    identity = RunIdentity(
        dataset=source.dataset,
        split=source.split,
        config_hash=config_hash(decides_answers),
        seed=settings.seed,
        recipe=recipe,
        price=price,
    )
    config = {
        "config_hash": identity.config_hash,
        "decides_answers": decides_answers,
        "operational": _operational(settings, source),
        "versions": versions(),
    }
    return identity, config


def _price(settings: GenerateSettings, name: str) -> Price | None:
    price = find_price(name, tokens_in=settings.price_in, tokens_out=settings.price_out)
    if price is None and settings.max_cost is not None:
        raise InputError(
            f"--max-cost needs the price of {name}, which is not in the table of {PRICES_AS_OF}: "
            "give --price-in and --price-out, in dollars per million tokens"
        )
    return price


def _summarise(
    run: RunDirectory, session: Session, source: QuestionSource, settings: GenerateSettings, *, total: int
) -> RunSummary:
    ledger, tally = session.model.ledger, session.tally
    return count_run(
        run.rollouts_path,
        SessionNumbers(
            run=str(run.path),
            config_hash=session.identity.config_hash,
            recipe=session.identity.recipe.name,
            model=session.model.name,
            dataset=source.dataset,
            split=source.split,
            seed=settings.seed,
            questions=total,
            cost_usd=ledger.cost,
            session_questions=tally.questions,
            session_seconds=round(session.seconds, 2),
            session_failed_calls=tally.failed_calls,
            session_cached_calls=session.model.cached_calls,
            session_seconds_per_request=session.seconds_per_request,
            stopped=_stop_reason(session.stopped, settings),
        ),
    )


def _stop_reason(stopped: RunStopped | None, settings: GenerateSettings) -> StopReason | None:
    if stopped is None:
        return None
    raised = {}
    if isinstance(stopped, CapReached):
        enough = 2 * max(getattr(settings, stopped.cap), stopped.needed)
        raised[f"--{stopped.cap.replace('_', '-')}"] = f"{enough:.2f}" if stopped.cap == "max_cost" else f"{enough:.0f}"
    return StopReason(cause=stopped.cause, message=str(stopped), raise_cap=raised)


# -- from settings to parts ------------------------------------------------------------------------------------


def find_data(settings: GenerateSettings) -> tuple[QuestionSource, Path | None]:
    """The questions, and the corpus that belongs to them (None: the one of --index)."""
    if settings.data_dir and not (settings.dataset or settings.questions):
        raise InputError(f"--data-dir {settings.data_dir} needs --dataset; {choices('', data_sets(settings.data_dir))}")
    if settings.questions:
        if settings.dataset:
            raise InputError("give --questions or --dataset, not both")
        source = open_questions(settings.questions, dataset=settings.questions.stem, split=settings.split)
        return source, _own_corpus(settings, "--questions")
    dataset = settings.dataset or ATLAS
    if dataset not in DATASETS and settings.data_dir is None:
        raise InputError(f"there is no data set {dataset!r}; {choices(dataset, DATASETS)}")
    if dataset == ATLAS:
        return _atlas(settings)
    source = find_questions(dataset, settings.split, settings.data_dir)
    if settings.data_dir is None:
        return source, _own_corpus(settings, f"--dataset {dataset} without --data-dir")
    return source, settings.corpus or settings.data_dir / dataset / "corpus.jsonl"


def _own_corpus(settings: GenerateSettings, what: str) -> Path | None:
    if settings.corpus is None and settings.index is None:
        raise InputError(
            f"{what} needs passages to search: give --corpus FILE (JSONL, one "
            '{"id", "contents": "title\\ntext"} per line) or --index DIR of a built index'
        )
    return settings.corpus


def _atlas(settings: GenerateSettings) -> tuple[QuestionSource, Path | None]:
    from reasonrag.atlas import SPLITS, write_world

    if settings.split not in SPLITS:
        raise InputError(f"atlas has no split {settings.split!r}; {choices(settings.split, SPLITS)}")
    try:
        world = write_world(settings.index_home)
    except OSError as error:
        raise InputError(f"cannot write atlas below {settings.index_home}: {error.strerror}") from error
    source = open_questions(world / f"{settings.split}.jsonl", dataset=ATLAS, split=settings.split)
    return source, settings.corpus or world / "corpus.jsonl"


async def _open_retriever(
    settings: GenerateSettings, corpus: Path | None, teacher: ChatModel | None, watcher: Watcher
) -> BM25Retriever:
    """The index that the settings name, built if it is missing; the teacher is tried before that."""
    place = settings.index
    if place is not None and (place / MANIFEST).exists():
        found = open_index(place)  # never built over: it may have taken hours
        if settings.corpus and str(settings.corpus.resolve()) != found.manifest.corpus:
            raise InputError(
                f"{place} is the index of {found.manifest.corpus}, not of {settings.corpus}; "
                "leave out --corpus or choose another --index"
            )
        return found
    if corpus is None:
        raise InputError(f"{place} holds no finished index; give --corpus FILE to have it built there")
    place = place or index_place(corpus, settings.index_home)
    if teacher is not None and not is_built(place, corpus):
        await teacher.check()  # nobody should wait for an index only to learn that the key is wrong
    return open_or_build(place, corpus, say=watcher.say)


def model_name(settings: GenerateSettings) -> str:
    if settings.model:
        return settings.model
    if settings.questions is None and (settings.dataset or ATLAS) == ATLAS:
        return OFFLINE
    raise InputError(
        "give --model: a model of your endpoint (gpt-4o, or what --base-url serves), or offline for the "
        "extractive teacher that costs nothing"
    )


def _open_model(settings: GenerateSettings) -> ChatModel:
    name = model_name(settings)
    if name == OFFLINE and not settings.base_url:
        return OfflineTeacher()
    return EndpointModel(
        name,
        base_urls=settings.base_url,
        concurrency=settings.concurrency,
        rpm=settings.rpm,
        tpm=settings.tpm,
        timeout=settings.timeout,
    )


def resolve_recipe(settings: GenerateSettings) -> Recipe:
    """The named recipe with the widths and budgets that were set explicitly."""
    recipe = RECIPES[settings.recipe]
    overrides = {
        "siblings": settings.siblings,
        "continuations": settings.continuations,
        "simulations": settings.simulations,
        "max_calls": settings.max_calls_per_question,
    }
    changed = {name: value for name, value in overrides.items() if value is not None}
    return recipe.model_copy(update={"search": recipe.search.model_copy(update=changed)})


def config_hash(decides_answers: dict[str, Any]) -> str:
    """Names everything that decides answers, in 16 hexadecimal digits."""
    canonical = orjson.dumps(decides_answers, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).hexdigest()[:16]


def _operational(settings: GenerateSettings, source: QuestionSource) -> dict[str, Any]:
    """Settings that may change between sessions of a run."""
    base_urls = settings.base_url or [os.environ.get("OPENAI_BASE_URL", "")]
    return {
        "limit": settings.limit,
        "concurrency": settings.concurrency,
        "base_url": [shown_url(each) for each in base_urls if each],
        "rpm": settings.rpm,
        "tpm": settings.tpm,
        "caps": {"cost": settings.max_cost, "calls": settings.max_calls, "tokens": settings.max_tokens},
        "questions": str(source.path),
        "hub_revision": source.revision,
    }
