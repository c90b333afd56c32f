"""`reasonrag calibrate`: how far the labels of a run can be trusted, by fresh continuations.

Samples pairs that `pairs` would export, or rows of a data set, and values both sides again, by continuations that no
search has used. Those completions have their own journal below the run, so repeating a calibration asks nothing twice.
`preference.statistics` decides what agreement is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from preference import PairingRules
from preference.export.private_files import write_json
from reasonrag.agent.outcomes import OutcomeFunction, answers_rehearsed
from reasonrag.concurrency import run_to_end
from reasonrag.errors import InputError
from reasonrag.exploration.explore import Given
from reasonrag.exploration.explorer import READER, TEACHER
from reasonrag.files import CALIBRATION, CALIBRATION_REPORT, FAILURES, ROLLOUTS, ROWS_REPORT, only_writer, writing
from reasonrag.llm.budget import Caps
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.model_spec import ModelSpec, check_prices
from reasonrag.llm.settings import BudgetSettings, ModelSettings
from reasonrag.progress import SilentWatcher, Watcher, warn_all
from reasonrag.rendering import Line, Part, Shown
from reasonrag.retrieval.retriever import Retriever
from reasonrag.run.consent import needs_consent
from reasonrag.run.engine import Budget, Role, open_run
from reasonrag.run_config import shown_settings, versions
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.studies.continuing import RecordedRun
from reasonrag.studies.revaluation import (
    FreshValues,
    Revaluation,
    exportable_pairs,
    rows_of_run,
    sample_pairs,
    summarise,
)
from reasonrag.studies.settings import CalibrateSettings


class Calibration(BaseModel, Shown):
    """How far the labels of a run can be trusted; the content of `report.json`, or `rows.json`."""

    run: str
    config_hash: str
    questions: int
    teacher: str
    value_model: str | None
    """The model that continued in the run, if not the teacher."""
    revaluation: Revaluation
    settings: dict[str, Any]
    """Resolved settings; addresses without users and passwords."""
    versions: dict[str, str]
    report: str

    @property
    def gave_up(self) -> bool:
        """Whether some step could not be valued in this calibration."""
        return bool(self.revaluation.failures_by_cause)

    def shown(self) -> Iterator[Part]:
        """How many labels fresh continuations confirm, and what else they say."""
        yield from self.revaluation.shown()
        if self.gave_up:
            why = Path(self.report).parent / FAILURES
            yield Line(f"failure causes: {why}; the same command retries the failed steps")
        yield Line(f"wrote {self.report}")


@public_call(CalibrateSettings)
def calibrate(
    run: str | Path,
    *,
    chat_model: ChatModel | None = None,
    retriever: Retriever | None = None,
    watcher: Watcher | None = None,
    outcome: OutcomeFunction | None = None,
    **flags: Any,
) -> Calibration:
    """Check how far the labels of a run can be trusted, by fresh continuations.

    Raises InputError if the run cannot be read or what it was made with is missing; RunStopped if a cap or a lost
    endpoint ended it, KeyboardInterrupt after Ctrl-C. The same call then resumes it.

    Example:
        >>> checked = reasonrag.calibrate("runs/first", revalue=5, k=8)
        >>> checked.questions
        10

    Args:
        run: a run directory of `generate`.
        chat_model: used instead of the model that the settings would open: any object with `name`, and coroutines
            `complete(request)` and `check()` (`reasonrag.llm.chat.ChatModel`).
        retriever: used instead of the one of the run.
        watcher: is told what happens while it goes on; none: silent.
        outcome: the function that valued the answers of the run, if there was one; a revaluation needs it again.
    """
    settings = resolve(CalibrateSettings, "calibrate", flags)
    given = Given(chat_model, retriever=retriever, function=outcome)
    return run_to_end(_calibrate(Path(run), settings, given, watcher or SilentWatcher()))


async def _calibrate(run: Path, settings: CalibrateSettings, given: Given, watcher: Watcher) -> Calibration:
    if not (run / ROLLOUTS).is_file():
        raise InputError(f"there is no {run / ROLLOUTS}; give a run directory of reasonrag generate")
    place, made = run / CALIBRATION, RecordedRun(run)
    recipe, teacher = made.decides.recipe, made.decides.model
    warn_all(answers_rehearsed(teacher, recipe.outcome, reward=recipe.reward), watcher)
    rules = PairingRules(min_confidence=settings.min_confidence)
    data, report = settings.data, place / (ROWS_REPORT if settings.data else CALIBRATION_REPORT)
    pairs = rows_of_run(data, made.config_hash) if data else exportable_pairs(run, rules)
    sample = sample_pairs(run, pairs, settings.revalue, seed=settings.seed)
    named = ModelSettings(model=settings.model, base_url=settings.base_url, price=settings.price)
    budget = settings.part(BudgetSettings)
    caps = Caps.of(budget)
    async with AsyncExitStack() as opened:
        opened.enter_context(only_writer(place))
        model, reader = made.who_continues(named, settings.concurrency, given.chat_model)
        rule = made.rule(given.function, model=model)
        check_prices(watcher.say, model, reader, given=settings.price, capped=budget.max_cost is not None)
        agent = await made.agent(model, reader, rule, given.retriever, opened, say=watcher.say)

        async def open_model(spec: ModelSpec, own: ChatModel | None = None) -> ChatModel:
            if needs_consent([spec], caps, yes=budget.yes):
                raise InputError(f"{spec.name} costs money: give --max-cost DOLLARS, or --yes")
            return own or spec.open(opened, say=watcher.say)

        roles = {TEACHER: Role(model, partial(open_model, model, given.chat_model))}
        if reader:
            roles[READER] = Role(reader, partial(open_model, reader))
        session = await opened.enter_async_context(open_run(place, roles, watcher, Budget(caps, budget.yes)))
        work = FreshValues(agent, settings.k, sample.pairs, rule, recipe)
        await session.complete(work)
        found = Calibration(
            run=str(run),
            config_hash=made.config_hash,
            questions=sample.questions,
            teacher=teacher,
            value_model=made.decides.student,
            revaluation=summarise(sample, work.values, session, model=model.name, k=settings.k),
            settings=shown_settings(settings),
            versions=versions(),
            report=str(report),
        )
        with writing(report):
            write_json(report, found.model_dump())
    return found
