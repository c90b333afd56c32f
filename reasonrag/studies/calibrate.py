"""`reasonrag calibrate`: how far the labels of a run can be trusted, by fresh continuations.

Samples pairs that `pairs` would export and values both sides again, by continuations that no search has used. Those
completions have their own journal below the run, so repeating a calibration asks nothing twice.
`preference.statistics` decides what agreement is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from preference import PairingRules, candidates, read_rollouts
from preference.export.private_files import write_json
from reasonrag.agent.outcomes import OutcomeFunction, answers_rehearsed
from reasonrag.concurrency import run_to_end
from reasonrag.data.item_files import explained_records
from reasonrag.errors import InputError
from reasonrag.files import FAILURES, ROLLOUTS, only_writer, writing
from reasonrag.llm.budget import Caps
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.model_spec import check_prices
from reasonrag.llm.settings import BudgetSettings, ModelSettings
from reasonrag.progress import SilentWatcher, Watcher, warn_all
from reasonrag.rendering import Line, Part
from reasonrag.retrieval.retriever import Retriever
from reasonrag.run.engine import Budget
from reasonrag.run_config import shown_settings, versions
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.studies.continuing import RecordedRun
from reasonrag.studies.revaluation import PLACE, REPORT, Continuing, Revaluation, SampledPair, revalue, sample_pairs
from reasonrag.studies.settings import CalibrateSettings


class Calibration(BaseModel):
    """How far the labels of a run can be trusted; the content of `report.json`."""

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
            `complete(request)`, `check()` and `close()` (`reasonrag.llm.chat.ChatModel`).
        retriever: used instead of the one of the run.
        watcher: is told what happens while it goes on; none: silent.
        outcome: the function that valued the answers of the run, if there was one; a revaluation needs it again.
    """
    settings = resolve(CalibrateSettings, "calibrate", flags)
    heard = watcher or SilentWatcher()
    calibrating = _calibrate(Path(run), settings, chat_model, retriever=retriever, function=outcome, watcher=heard)
    return run_to_end(calibrating)


async def _calibrate(
    run: Path,
    settings: CalibrateSettings,
    chat_model: ChatModel | None,
    *,
    retriever: Retriever | None,
    function: OutcomeFunction | None,
    watcher: Watcher,
) -> Calibration:
    if not (run / ROLLOUTS).is_file():
        raise InputError(f"there is no {run / ROLLOUTS}; give a run directory of reasonrag generate")
    place, made = run / PLACE, RecordedRun(run)
    recipe, teacher = made.decides.recipe, made.decides.model
    warn_all(answers_rehearsed(teacher, recipe.outcome, reward=recipe.reward), watcher)
    rules, questions = PairingRules(min_confidence=settings.min_confidence), 0

    def passing() -> Iterator[SampledPair]:
        nonlocal questions
        with explained_records():
            for rollout in (each for each in read_rollouts(run / ROLLOUTS) if each.error is None):
                questions += 1
                yield from (SampledPair(rollout, each) for each in candidates(rollout, rules) if each.dropped is None)

    sample = sample_pairs(passing(), settings.revalue, seed=settings.seed)
    with only_writer(place):
        given = ModelSettings(model=settings.model, base_url=settings.base_url, price=settings.price)
        model, reader = made.who_continues(given, settings.concurrency, chat_model)
        rule, budget = made.rule(function, model=model), settings.part(BudgetSettings)
        check_prices(watcher.say, model, reader, given=settings.price, capped=budget.max_cost is not None)
        async with AsyncExitStack() as opened:
            agent_of = await made.agent_of(model.sampling, reader, rule, retriever, opened, say=watcher.say)
            continuing = Continuing(model, chat_model, agent_of, rule, recipe, reader)
            budgeted = Budget(Caps.of(budget), budget.yes)
            revaluation = await revalue(continuing, sample, settings.k, place, budgeted, watcher=watcher)
        found = Calibration(
            run=str(run),
            config_hash=made.config_hash,
            questions=questions,
            teacher=made.decides.model or "unknown",
            value_model=made.decides.student,
            revaluation=revaluation,
            settings=shown_settings(settings),
            versions=versions(),
            report=str(place / REPORT),
        )
        with writing(place / REPORT):
            write_json(place / REPORT, found.model_dump())
    return found
