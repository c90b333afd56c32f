"""`reasonrag generate`: one run, from the caller's keyword arguments or resolved settings to its summary.

Puts the parts of a run together (questions, retriever, prompts, models, journal, caps) in the order of their cost.
Trees, sessions, file formats and endpoints are decided elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from preference import OutcomeName, read_rollouts
from preference.export.private_files import write_json
from preference.export.summary import SUMMARY
from preference.labelled_runs import rare_garbage_collection
from preference.records import shared_fields
from reasonrag.agent.outcomes import OutcomeFunction
from reasonrag.concurrency import run_to_end
from reasonrag.errors import DegenerateRun, InputError, Interrupted, StorageError
from reasonrag.exploration.explorer import READER, TEACHER, VALUE_MODEL
from reasonrag.exploration.exploring import Exploring
from reasonrag.exploration.plan import Plan
from reasonrag.exploration.run_directory import RunDirectory
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.exploration.shared_costs import Bill, BilledModel
from reasonrag.exploration.summary import RunFacts, RunSummary, StopReason, count_run
from reasonrag.files import JOURNAL, TRIALS, TUNING
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.journal import Journal
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.ranks import Manifest, complete, join_ranks, leave_ranks, read_manifest
from reasonrag.retrieval.opening import object_or_name
from reasonrag.retrieval.retriever import Retriever
from reasonrag.run.consent import needs_consent
from reasonrag.run.engine import Role, Run
from reasonrag.run_config import has_answers, recorded_effort
from reasonrag.settings import EffortName, resolve
from reasonrag.signatures import public_call

Launch: TypeAlias = Callable[[GenerateSettings, Watcher], Coroutine[Any, Any, RunSummary]]
"""Has a run explored by ranks elsewhere, and merges them. Raises as `explore` does."""


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
            `complete(request)` and `check()` (`reasonrag.llm.chat.ChatModel`).
        value_chat_model: likewise for the value model, which continues the teacher's steps.
        retriever: used instead of the one that the settings would build, or its name, as `retriever` in
            reasonrag.toml.
        watcher: is told what happens while it goes on; none: silent.
        replay: send no requests; answers come from the run's journal, or from the journal at this path.
        outcome: a name, or a function of a `Question` and the text of an answer that returns the answer's quality
            from 0 to 1 and is recorded under its `__name__`. It is called in the event loop's thread, once per
            distinct answer to a question; gold answers are then not needed. A question for which it fails has no
            tree: it is counted in `failed`, with the message in failures.jsonl. The same call, once it is corrected,
            takes the answers from the journal.
        launch: who carries out `on="ray"`: `reasonrag.scale.ray_ranks.explore_on_ray`, which the command line gives.
    """
    retriever, named = object_or_name(retriever)
    function, valued = (outcome, {}) if callable(outcome) else (None, {"outcome": outcome})
    settings = resolve(GenerateSettings, "generate", flags | named | valued)
    if settings.on == "here" and flags.get("workers") is not None:
        raise InputError("--workers goes with --on ray")
    given = Given(chat_model, value_chat_model, retriever, function, replay=replay)
    if settings.on == "ray":
        if launch is None or given != Given():
            raise InputError(
                "--on ray is carried out by the command line; from Python give `launch`, too, and name models, "
                "retrievers and outcomes by settings: ranks cannot have objects of this process, nor a replay"
            )
        return run_to_end(launch(settings, watcher or SilentWatcher()))
    return run_to_end(explore(settings, watcher or SilentWatcher(), given))


@dataclass(frozen=True)
class Given:
    """What the caller has in the place of what the settings name.

    function: the user's outcome function. replay: send no requests; see `generate`. shared_journal: of several runs,
    instead of the run's own. Caps then apply to all of them together, and the usage in the run's records is what it
    would have cost alone. interrupt: set from outside, it ends the session as the first Ctrl-C does.
    """

    chat_model: ChatModel | None = None
    value_chat_model: ChatModel | None = None
    retriever: Retriever | None = None
    function: OutcomeFunction | None = None
    replay: bool | str | Path = False
    shared_journal: Path | None = None
    interrupt: asyncio.Event | None = None

    def journal_of(self, run: Path) -> Path:
        """With the answers of the run."""
        own = run / JOURNAL if self.replay is True or not self.replay else Path(self.replay)
        return self.shared_journal or own


def check_whole(settings: GenerateSettings, watcher: Watcher) -> int:
    """Check a run that ranks elsewhere will explore. Returns how many questions it has. Raises InputError."""
    plan = Plan.of(settings)
    source, _ = plan.find_data(watcher.say)
    plan.say_terms(watcher)
    if needs_consent([*plan.models.values()], plan.budget.caps, yes=settings.yes):
        raise InputError("ranks cannot ask: give --max-cost DOLLARS, or --yes; generate --dry-run has an estimate")
    return len(source.limited(settings.limit))


async def explore(settings: GenerateSettings, watcher: Watcher, given: Given = Given()) -> RunSummary:
    """`generate` for resolved settings, inside an event loop. Of the settings, `on` and `workers` are the caller's."""
    folder = _check_place(settings.run_directory, settings.whole_run if settings.rank else None, given)
    plan = Plan.of(settings, given.chat_model, given.value_chat_model, given.function)
    source, corpus = plan.find_data(watcher.say, searched=given.retriever is None)
    if settings.run is None:
        watcher.say(f"run directory: {settings.run_directory}")
    if given.shared_journal is None:  # tune has said it for all its trials
        plan.say_terms(watcher)
    async with AsyncExitStack() as opened:
        roles, models = await _opened(opened, plan, given, recorded_effort(folder), say=watcher.say)
        plan = replace(plan, teacher=roles[TEACHER].spec)
        checks = [each.check for each in models]
        retriever = given.retriever or await plan.open_retriever(corpus, opened, watcher.say, checks)
        config = plan.config(settings, source, corpus, retriever)
        run = opened.enter_context(RunDirectory(settings.run_directory, config, say=watcher.say))
        bill = Bill() if given.shared_journal else None
        journal = Journal(
            given.journal_of(run.path),
            wanted=lambda question_id: not run.is_done(question_id),
            held=bill.apart if bill else list,
            writable=not given.replay,
            say=watcher.say,
        )
        engine = Run(
            await opened.enter_async_context(journal),
            run.failures,
            watcher,
            roles,
            plan.budget,
            run.path,
            wrapped=partial(BilledModel, bill=bill) if bill else lambda model: model,
            interrupt=given.interrupt or asyncio.Event(),
        )
        agent, value_agent = plan.agents(engine.models.main, retriever, engine.models.by_role.get(READER))
        work = Exploring(
            source.limited(settings.limit, settings.rank),
            run,
            plan.identity(source, config.config_hash),
            agent,
            value_agent,
            plan.rule,
            watcher,
            abort_degenerate=settings.abort_degenerate,
            at_once=settings.concurrency,
        )
        opened.enter_context(rare_garbage_collection())
        return await _explored(engine, work, settings.whole_run, given)


async def _explored(engine: Run, work: Exploring, whole: Path, given: Given) -> RunSummary:
    """Explore the questions, and write the summary. whole: the folder of the run that this may be a rank of. Raises
    StorageError, and KeyboardInterrupt for Ctrl-C."""
    run, rank, every = work.run, work.questions.shard, work.questions.source.limited(work.questions.limit)
    if reason := work.stop_before():
        engine.session.stop(reason)
    idle = bool(given.replay) or all(map(work.is_done, work.questions))

    def enter() -> None:
        """Into the run, by what all its ranks must have in common; one process goes on without the ranks of before."""
        if rank:
            ids = [each.id for each in every]
            join_ranks(whole, Manifest(ranks=rank.ranks, config_hash=work.identity.config_hash, question_ids=ids))
        elif not idle:
            leave_ranks(whole)

    agreed = bool(given.replay or given.shared_journal)
    await engine.over(work, None if agreed else work, done=work.is_done, before=enter)
    stopped = engine.session.stopped
    if isinstance(stopped, StorageError):
        raise stopped
    if stopped is None or isinstance(stopped, DegenerateRun):
        run.sort_by_question(question.id for question in work.questions)
    summary = _summarise(work, engine)
    write_json(run.path / SUMMARY, summary.model_dump())
    if rank and stopped is None:
        complete(whole, rank.rank, len(every))
    if isinstance(stopped, Interrupted):
        raise KeyboardInterrupt
    return summary


async def _already(model: ChatModel | None) -> ChatModel | None:
    """Opens a model that is open. None: the journal alone answers."""
    return model


async def _opened(
    opened: AsyncExitStack, plan: Plan, given: Given, recorded: EffortName | None, *, say: Callable[[str], None]
) -> tuple[dict[str, Role], list[ChatModel]]:
    """The models by their roles, as they are asked; and those that are open, none where the journal alone answers.
    recorded: the reasoning effort of its answers."""
    specs, models, teacher = plan.models, dict[str, ChatModel](), plan.teacher
    if not given.replay:
        own = {TEACHER: given.chat_model, VALUE_MODEL: given.value_chat_model}
        models = {role: own.get(role) or spec.open(opened, say=say) for role, spec in specs.items()}
    specs[TEACHER] = await teacher.settled(models[TEACHER], recorded) if models else teacher.resumed(recorded)
    return {role: Role(spec, partial(_already, models.get(role))) for role, spec in specs.items()}, [*models.values()]


def _check_place(run: Path, whole: Path | None, given: Given) -> Path:
    """The folder of the answers so far. whole: of the run that `run` is a rank of, if it is one. Raises InputError for
    trials of tune, for a run of ranks, and for a replay without recorded answers, before anything is written."""
    replay = given.replay
    if whole is None and not replay and (there := read_manifest(run)) and not has_answers(run):
        raise InputError(
            f"{run} is made by {there.ranks:,} ranks: give --shard i/{there.ranks} or --on ray to go on, and "
            f"`reasonrag merge {run}` to join them; or choose another --run"
        )
    if whole and has_answers(whole) and read_manifest(whole) is None:
        raise InputError(f"{whole} holds a run of one process; go on without --shard, or choose another --run")
    if given.shared_journal is None and ((run / TUNING).exists() or (run / TRIALS).is_dir()):
        raise InputError(f"{run} holds the trials of a tune; choose another --run")
    journal = given.journal_of(run)
    if replay and not journal.is_file():
        raise InputError(
            f"there is no {journal} to replay; give the --run that was explored, or leave out --replay to explore it"
        )
    return journal.parent if replay else run


def _summarise(work: Exploring, engine: Run) -> RunSummary:
    identity, run, models, session = work.identity, work.run, engine.models, engine.session
    facts = RunFacts(
        run=str(run.path),
        **shared_fields(identity, RunFacts) | {"recipe": identity.recipe.name},
        outcome=identity.recipe.outcome,
        reward=identity.recipe.reward,
        model=models.main.name,
        value_model=models.by_role[VALUE_MODEL].name if VALUE_MODEL in models.by_role else None,
        reader=engine.roles[READER].spec.name if READER in engine.roles else None,
        max_reply_tokens=work.agent.sampling.max_tokens,
        questions=len(work.questions),
        cost_usd=models.cost,
        refused_parameters=engine.refused,
        session_questions=session.tally.questions,
        session_seconds=round(session.seconds, 2),
        session_failed_calls=session.tally.failed_calls,
        session_cached_calls=models.cached_calls,
        stopped=StopReason.of(session.stopped, run.path) if session.stopped else None,
    )
    return count_run(read_rollouts(run.rollouts_path), facts)
