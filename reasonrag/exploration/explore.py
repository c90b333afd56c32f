"""`reasonrag generate`: one run, from the caller's keyword arguments or resolved settings to its summary.

Puts the parts of a run together (questions, retriever, prompts, models, journal, caps) in the order of their cost.
Trees, sessions, file formats and endpoints are decided elsewhere.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from preference import OutcomeName, read_rollouts
from reasonrag.agent.from_settings import caps_of, find_data, questions_left, say_parts
from reasonrag.agent.outcomes import OutcomeFunction
from reasonrag.agent.prompting import load_prompts
from reasonrag.concurrency import run_to_end
from reasonrag.data.questions import Questions
from reasonrag.errors import DegenerateRun, InputError, Interrupted, StorageError
from reasonrag.exploration.explorer import RunIdentity
from reasonrag.exploration.from_settings import (
    find_agent,
    find_models,
    find_rule,
    function_or_name,
    judged_by_offline,
    run_identity,
)
from reasonrag.exploration.rehearsal import rehearse
from reasonrag.exploration.run_directory import RunDirectory
from reasonrag.exploration.session import ExplorationSession, rare_garbage_collection
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.exploration.shared_costs import Bill, BilledModel
from reasonrag.exploration.summary import OUTCOME_FAILED, RunSummary, SessionNumbers, StopReason, count_run
from reasonrag.files import JOURNAL, ROLLOUTS, TRIALS, TUNING
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.expected_usage import spread
from reasonrag.llm.journal import open_journal
from reasonrag.llm.model_spec import ModelSpec, check_prices
from reasonrag.llm.prices import SELF_HOSTED
from reasonrag.progress import SilentWatcher, Watcher, warn_all
from reasonrag.ranks import Manifest, Shard, complete, join_ranks, leave_ranks, read_manifest
from reasonrag.retrieval.from_settings import object_or_name, open_retriever
from reasonrag.retrieval.retriever import Retriever
from reasonrag.run.consent import get_consent, needs_consent
from reasonrag.run.models import Models
from reasonrag.run_config import recorded_effort
from reasonrag.settings import EffortName, resolve
from reasonrag.signatures import public_call


class Launch(Protocol):
    """Has a run explored by ranks elsewhere, and merges them. Raises as `explore` does."""

    async def __call__(self, settings: GenerateSettings, watcher: Watcher) -> RunSummary: ...


@public_call(GenerateSettings)
def generate(
    *,
    chat_model: ChatModel | None = None,
    value_chat_model: ChatModel | None = None,
    retriever: Retriever | str | None = None,
    watcher: Watcher | None = None,
    replay: bool | str | Path = False,
    outcome: OutcomeName | OutcomeFunction | None = None,
    launch: Launch | None = None,
    **flags: Any,
) -> RunSummary:
    """Explore questions with a teacher, and write step-level rollouts to a run directory.

    The same call continues an interrupted run. Works inside a running event loop too. Failed questions, with their
    causes, and what stopped a run early are in the summary. Raises InputError before anything is started, and
    StorageError if writing fails; after Ctrl-C it saves the state, then raises KeyboardInterrupt.

    Example:
        >>> run = reasonrag.generate(dataset="atlas", limit=10, run="runs/first")
        >>> run.done, run.failed
        (10, 0)

    Args:
        chat_model: used instead of the model that the settings would open: any object with `name`, and coroutines
            `complete(request)`, `check()` and `close()` (`reasonrag.llm.chat.ChatModel`).
        value_chat_model: likewise for the value model, which continues the teacher's steps.
        retriever: used instead of the one that the settings would build, or its name, as `retriever` in
            reasonrag.toml.
        watcher: is told what happens while it goes on; none: silent.
        replay: send no requests; answers come from the run's journal, or from the journal at this path.
        outcome: a name, or a function of a `Question` and the text of an answer that returns the answer's quality
            from 0 to 1 and is recorded under its `__name__`. It is called in the event loop's thread, once per
            distinct answer to a question; gold answers are then not needed. A question for which it fails has no
            tree: it is counted in `failed`, `warnings` says why, and Python warns.
        launch: who carries out `on="ray"`: `reasonrag.scale.ray_ranks.explore_on_ray`, which the command line gives.
    """
    retriever, named = object_or_name(retriever)
    function, valued = function_or_name(outcome)
    settings = resolve(GenerateSettings, "generate", flags | named | valued)
    for name in ("workers", "address"):
        if settings.on == "here" and flags.get(name) is not None:
            raise InputError(f"--{name} goes with --on ray")
    if settings.on == "ray":
        launch = _checked(launch, (chat_model, value_chat_model, retriever, function, replay or None))
        return run_to_end(launch(settings, watcher or SilentWatcher()))
    summary = run_to_end(
        explore(
            settings,
            chat_model,
            retriever,
            watcher or SilentWatcher(),
            value_chat_model=value_chat_model,
            replay=replay,
            function=function,
        )
    )
    for each in summary.warnings:
        if each.startswith(OUTCOME_FAILED):
            warnings.warn(each, stacklevel=3)  # names the line of the user's call
    return summary


def _checked(launch: Launch | None, objects: Sequence[object]) -> Launch:
    """Raises InputError without a launch, and for objects of this process, which ranks elsewhere cannot have."""
    if any(each is not None for each in objects):
        raise InputError(
            "on='ray': models, retrievers and functions of this process cannot be given to ranks, nor a replay; "
            "name them by settings, or leave out on"
        )
    if launch is None:
        raise InputError("--on ray is carried out by the command line; from Python give `launch`, too")
    return launch


async def explore(
    settings: GenerateSettings,
    chat_model: ChatModel | None,
    retriever: Retriever | None,
    watcher: Watcher,
    *,
    value_chat_model: ChatModel | None = None,
    replay: bool | str | Path = False,
    shared_journal: Path | None = None,
    function: OutcomeFunction | None = None,
    interrupt: asyncio.Event | None = None,
) -> RunSummary:
    """`generate` for resolved settings, inside an event loop. Of the settings, `on`, `workers` and `address` are the
    caller's.

    interrupt: set from outside, it ends the session as the first Ctrl-C does.

    function: the user's outcome function. shared_journal: of several runs, instead of the run's own. Caps then apply to
        all of them together, and the usage in the run's records is what it would have cost alone.
    """
    rule = find_rule(settings, function)
    folder = _check_place(
        settings.run_directory,
        settings.whole_run if settings.rank else None,
        shared=shared_journal is not None,
        replay=replay,
    )
    teacher, student = find_models(settings, chat_model, value_chat_model)  # first, as the questions may be large
    source, corpus = find_data(settings, rule.check, searched=retriever is None, say=watcher.say)
    _check_hops(source.limited(settings.limit), needed=settings.steps_by_hops)
    prompts = load_prompts(settings.prompts, settings.style)
    if settings.run is None:
        watcher.say(f"run directory: {settings.run_directory}")
    if shared_journal is None:  # tune has said it for all its trials
        _say_terms(
            teacher, student, judged_by_offline(settings, teacher, rule), watcher, capped=settings.max_cost is not None
        )
        say_parts(settings, watcher.say)
    async with AsyncExitStack() as opened:
        given, recorded = (chat_model, value_chat_model), recorded_effort(folder)
        teacher, chat_model, value_chat_model = await _opened(
            opened, teacher, student, given, recorded, replay=bool(replay), say=watcher.say
        )
        if retriever is None:
            checks = [each.check for each in (chat_model, value_chat_model) if each]
            retriever = await open_retriever(settings, corpus, opened, say=watcher.say, before_building=checks)
        identity, config = run_identity(
            settings, source, corpus, retriever, prompts, rule=rule, teacher=teacher, student=student
        )
        questions = source.limited(settings.limit, settings.rank)
        with RunDirectory(settings.run_directory, config, say=watcher.say) as run:
            own_journal, bill = shared_journal or settings.run_directory / JOURNAL, Bill() if shared_journal else None
            journal = await opened.enter_async_context(
                open_journal(
                    own_journal if replay is True or not replay else Path(replay),
                    wanted=lambda question_id: not run.is_done(question_id),
                    held=bill.apart if bill else list,
                    writable=not replay,
                    say=watcher.say,
                )
            )
            idle = bool(replay) or all(run.is_done(each.id) for each in questions)
            models = Models.journaled(
                journal,
                caps_of(settings),
                {"model": (teacher, chat_model)} | ({"value_model": (student, value_chat_model)} if student else {}),
            )
            billed = [BilledModel(each, bill) if bill else each for each in models.all]
            agent = find_agent(settings, billed[0], retriever, prompts, teacher.sampling)
            value_agent = replace(agent, model=billed[1], sampling=student.sampling) if student else None
            session = ExplorationSession(
                run, identity, agent, value_agent, rule, models, watcher, settings.abort_degenerate, interrupt
            )
            opened.enter_context(rare_garbage_collection())
            session.begin(questions)
            begun = None if replay or shared_journal or settings.yes else journal.questions
            await _check(session, questions, (teacher, student), begun=begun)
            if settings.rank or not idle:
                _enter(settings.whole_run, settings.rank, identity, source.limited(settings.limit))
            await session.explore_all(questions, at_once=settings.concurrency)
            if isinstance(session.stopped, StorageError):
                raise session.stopped
            if session.stopped is None or isinstance(session.stopped, DegenerateRun):
                run.sort_by_question(question.id for question in questions)
            summary = _summarise(run, session, total=len(questions))
            run.write_summary(summary.model_dump())
            if settings.rank and session.stopped is None:
                complete(settings.whole_run, settings.rank.rank, len(source.limited(settings.limit)))
    if isinstance(session.stopped, Interrupted):
        raise KeyboardInterrupt
    return summary


def _check_hops(questions: Questions, *, needed: bool) -> None:
    """Raises InputError if hops are needed and no question of the run, whatever the rank, says how many it has."""
    if needed and not any(each.hops for each in questions):
        raise InputError(
            "no question says how many hops it has (metadata.hops, a whole number above 0; a MuSiQue id; or gold "
            "passages): leave out --steps-by-hops, and give --max-steps"
        )


def _enter(run: Path, rank: Shard | None, identity: RunIdentity, every: Questions) -> None:
    """Enter a rank into its run, by what all ranks of it must have in common; or leave the ranks of a merged run, with
    which this process goes on."""
    if rank:
        ids = [each.id for each in every]
        join_ranks(run, Manifest(ranks=rank.ranks, config_hash=identity.config_hash, question_ids=ids))
    else:
        leave_ranks(run)


def _say_terms(
    teacher: ModelSpec, student: ModelSpec | None, warnings: list[str], watcher: Watcher, *, capped: bool
) -> None:
    """What prices, outcomes and rewards are worth. Raises InputError for a cap on money without a price."""
    check_prices(watcher.say, teacher, student, capped=capped)
    if student and student.price is SELF_HOSTED:
        watcher.say(f"{student.name} has no list price and its own --value-base-url: its tokens count as free")
    warn_all(warnings, watcher)


async def _opened(
    opened: AsyncExitStack,
    teacher: ModelSpec,
    student: ModelSpec | None,
    given: tuple[ChatModel | None, ChatModel | None],
    recorded: EffortName | None,
    *,
    replay: bool,
    say: Callable[[str], None],
) -> tuple[ModelSpec, ChatModel | None, ChatModel | None]:
    """The teacher as it is asked, and teacher and value model, the caller's own where given; none where the journal
    alone answers. recorded: the reasoning effort of its answers."""
    if replay:
        return teacher.resumed(recorded), None, None
    chat_model, value_chat_model = given
    if student and value_chat_model is None:
        value_chat_model = student.open(opened, say=say)
    chat_model = chat_model or teacher.open(opened, say=say)
    return await teacher.settled(chat_model, recorded), chat_model, value_chat_model


async def _check(
    session: ExplorationSession,
    questions: Questions,
    models: tuple[ModelSpec, ModelSpec | None],
    *,
    begun: Collection[str] | None,
) -> None:
    """Check the models of a session that will ask them, and get consent to the cost of the owed questions, where it
    needs that. models: teacher and value model. begun: questions of which some answers are paid; None: consent is not
    needed. Raises InputError."""
    owed = 0 if session.stopped else sum(1 for _ in session.owed(questions))
    if not owed:
        return
    await session.check()
    if begun is None or not needs_consent(
        [each for each in models if each], session.models.main.ledger.caps, yes=False
    ):
        return
    fresh = sum(each.id not in begun for each in session.owed(questions))
    some = spread(session.owed(questions), owed)
    usage = await rehearse(some, session.identity.recipe, session.agent, session.value_agent, session.rule)
    work = questions_left(owed, len(questions), questions.source, limited=questions.limit is not None)
    shares = usage.shares(*models, low=fresh, high=owed) if usage else []
    get_consent(work, shares, session.watcher, session.models)


def _check_place(run: Path, whole: Path | None, *, shared: bool, replay: bool | str | Path) -> Path:
    """The folder of the answers so far. Raises InputError for trials of tune, for a run of ranks that this is none of,
    and for a replay without recorded answers, before anything is written. whole: the folder of the whole that `run` is
    a rank of; None: it is none."""
    if whole is None and not replay and (there := read_manifest(run)) and not (run / ROLLOUTS).exists():
        raise InputError(
            f"{run} is made by {there.ranks:,} ranks: give --shard i/{there.ranks} or --on ray to go on, and "
            f"`reasonrag merge {run}` to join them; or choose another --run"
        )
    if whole and (whole / ROLLOUTS).exists() and read_manifest(whole) is None:
        raise InputError(f"{whole} holds a run of one process; go on without --shard, or choose another --run")
    if not shared and ((run / TUNING).exists() or (run / TRIALS).is_dir()):
        raise InputError(f"{run} holds the trials of a tune; choose another --run")
    journal = run / JOURNAL if replay is True else Path(replay or run)
    if replay and not journal.is_file():
        raise InputError(
            f"there is no {journal} to replay; give the --run that was explored, or leave out --replay to explore it"
        )
    return journal.parent if replay else run


def _summarise(run: RunDirectory, session: ExplorationSession, *, total: int) -> RunSummary:
    identity, models, tally = session.identity, session.models, session.session.tally
    return count_run(
        read_rollouts(run.rollouts_path),
        SessionNumbers(
            run=str(run.path),
            config_hash=identity.config_hash,
            recipe=identity.recipe.name,
            outcome=identity.recipe.outcome,
            reward=identity.recipe.reward,
            model=models.main.name,
            value_model=models.all[1].name if models.all[1:] else None,
            dataset=identity.dataset,
            split=identity.split,
            seed=identity.seed,
            max_reply_tokens=session.agent.sampling.max_tokens,
            questions=total,
            cost_usd=models.cost,
            refused_parameters=run.note_refusals(models.lessons),
            session_questions=tally.questions,
            session_seconds=round(session.session.seconds, 2),
            session_failed_calls=tally.failed_calls,
            session_cached_calls=models.cached_calls,
            stopped=StopReason.of(session.stopped, run.path) if session.stopped else None,
        ),
    )
