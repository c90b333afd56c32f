"""`reasonrag sweep`: evaluations repeated with other budgets of searches and other top-k, and drawn.

Decides that a point is the recorded evaluation in all but these two, that all points of an evaluation share one journal
which begins with the answers of that evaluation, and that caps hold for the whole sweep. `sweeps.points` plans the
points, `evaluate` runs each, `pages.sweep_page` draws them. Points are scored on the questions that all have answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from preference.export.files import write_file, write_json
from preference.records import first_error
from reasonrag.concurrency import run_to_end
from reasonrag.errors import CapReached, InputError, ReasonragError
from reasonrag.evaluation.comparability import Condition, EvaluationRun, common_questions, names_of, read_evaluation
from reasonrag.evaluation.evaluate import EvaluationParts, evaluate_with
from reasonrag.evaluation.from_settings import evaluated_spec, find_evaluated_model, judge_spec
from reasonrag.evaluation.metrics import MetricAggregator
from reasonrag.evaluation.pages.sweep_page import PAGE, draw_sweep, render_sweep
from reasonrag.evaluation.report import Report
from reasonrag.evaluation.settings import SEARCHLESS, EvaluateSettings, SweepSettings
from reasonrag.evaluation.significance import paired_differences
from reasonrag.evaluation.sweeps.points import ONE_SEARCH, Point, expected_usage, plan_points
from reasonrag.evaluation.sweeps.report import SCORES, SWEEP, Sweep, SweepPoint, SweptEvaluation
from reasonrag.files import CONFIG, JOURNAL, only_writer, writing
from reasonrag.llm.budget import Caps, Tokens
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.consent import ask_consent, cost_text, needs_consent
from reasonrag.llm.expected_usage import ExpectedUsage, Range
from reasonrag.llm.journal import open_journal
from reasonrag.llm.model_spec import ModelSpec, check_prices
from reasonrag.llm.models import Models
from reasonrag.progress import SessionTally, SilentWatcher, Watcher
from reasonrag.redaction import mask_secrets_in, secrets
from reasonrag.rendering import counted
from reasonrag.retrieval.from_settings import object_or_name
from reasonrag.retrieval.retriever import Retriever
from reasonrag.retrieval.settings import SearchSettings
from reasonrag.run_config import RunConfig, config_hash, versions
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.terminal import dollars

VARIED = ("max_steps", "top_k")
"""What differs between the points of an evaluation, and from the training of its model."""


@public_call(SweepSettings)
def sweep(
    runs: str | Path | Sequence[str | Path] = (),
    *,
    chat_model: ChatModel | None = None,
    judge_chat_model: ChatModel | None = None,
    retriever: Retriever | str | None = None,
    watcher: Watcher | None = None,
    **flags: Any,
) -> Sweep:
    """Repeat evaluations with other numbers of searches and other top-k, and write `sweep.json`, a table and drawings.

    The drawings are those of Figures 6 and 7 of ReasonRAG (arXiv 2505.14069). What an evaluation records is repeated,
    on the same questions; only the budget, or the top-k, of a point differs. Caps hold for all points and sessions. A
    sweep that was stopped has a `sweep.json` of the points so far; the same call goes on. Raises InputError,
    RunStopped and KeyboardInterrupt as `evaluate` does.

    Example:
        >>> swept = reasonrag.sweep(["evals/agent"], iterations=[1, 2], top_k=[3], out="evals/swept")
        >>> [point.searches for point in swept.evaluations[0].points]
        [1, 2, 3]

    Args:
        runs: directory of `evaluate`, or several.
        chat_model: used instead of the model that the evaluations record: any object with `name`, and coroutines
            `complete(request)`, `check()` and `close()` (`reasonrag.llm.chat.ChatModel`).
        judge_chat_model: used instead of the judge that they record.
        retriever: used instead of the one that they record, or its name, as `retriever` in reasonrag.toml.
        watcher: is told what happens while it goes on; none: silent.
    """
    retriever, named = object_or_name(retriever)
    settings = resolve(SweepSettings, "sweep", flags)
    folders = [Path(each) for each in ([runs] if isinstance(runs, str | Path) else runs)]
    out = settings.out or _default_out(folders)
    changed = {name: each for name in _MOVED if (each := getattr(settings, name)) not in (None, [])} | named
    varied = settings.iterations, settings.top_k
    swept = _read(folders, out, changed, varied, (chat_model, judge_chat_model))
    caps = Caps(cost=settings.max_cost, calls=settings.max_calls)
    sweeper = _Sweeper(swept, out, caps, watcher or SilentWatcher(), chat_model, judge_chat_model, retriever)
    with only_writer(out, flag="--out"):
        return run_to_end(sweeper.carry_out(yes=settings.yes))


_MOVED = ("base_url", "concurrency", "price_in", "price_out")
"""Settings of a recorded evaluation that a sweep may have anew."""


def _default_out(folders: Sequence[Path]) -> Path:
    """Beside the first evaluation."""
    first = folders[0] if folders else Path("evals")
    first = first if first.name not in ("", "..") else first.resolve()
    return first.with_name(f"{first.name}-sweep")


# -- what is swept -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Swept:
    """An evaluation, its points, and how they are asked. home: where its points and their journal are."""

    name: str
    run: EvaluationRun
    settings: EvaluateSettings
    points: Sequence[Point]
    home: Path
    spec: ModelSpec
    judge: ModelSpec | None

    @property
    def own(self) -> Point:
        return Point(self.settings.steps, self.settings.top_k)

    @cached_property
    def identity(self) -> str:
        """Names what decides its answers beside budget and top-k."""
        return config_hash(_fixed(self.run.config))

    def key(self, point: Point) -> tuple[str, int, int]:
        """Names what decides the answers of a point."""
        return self.identity, point.max_steps, point.top_k

    @property
    def opens(self) -> str:
        """Names what is opened for it: evaluations that open the same share it."""
        of_index = {*SearchSettings.model_fields, "corpus", "dataset", "data_dir"}
        return repr((self.spec, self.judge, [getattr(self.settings, name) for name in sorted(of_index)]))

    @property
    def known(self) -> Path | None:
        journal = self.run.path / JOURNAL
        return journal if journal.is_file() else None

    def searches(self, point: Point) -> int:
        return 1 if self.settings.method in ONE_SEARCH else point.searches

    def title(self, point: Point) -> str:
        return f"{self.name}, {_searches(self.searches(point))}, top-k {point.top_k}"

    def settings_of(self, point: Point, caps: Caps) -> EvaluateSettings:
        folder = self.home / f"searches-{self.searches(point)}-top-k-{point.top_k}"
        allowed = [*self.settings.allow, *VARIED] if self.run.report.provenance else self.settings.allow
        varied = {"max_steps": point.max_steps, "top_k": point.top_k, "run": folder, "allow": allowed}
        limits = {"max_cost": caps.cost, "max_calls": caps.calls, "max_tokens": None, "yes": True}
        return self.settings.model_copy(update=varied | limits)

    def check(self, config: RunConfig) -> None:
        """Raises InputError for a point that would not be this evaluation in all but budget and top-k."""
        changed = [each for each in self.run.config.changed_to(config) if each.partition(" was ")[0] not in VARIED]
        if changed:
            raise InputError(
                f"{self.run.path} cannot be repeated as it was: {'; '.join(changed)}. Restore that, or evaluate again"
            )

    async def spent(self) -> tuple[Tokens, float | None]:
        """Tokens and dollars that its points have taken in all sessions; None without a price."""
        if not (self.home / JOURNAL).exists():
            return Tokens(), 0.0
        async with open_journal(self.home / JOURNAL, wanted=lambda _: False, writable=False) as journal:
            second = (self.judge, None) if self.judge else None
            models = Models.journaled(journal, Caps(), (self.spec, None), second)
        return models.spent, models.cost


def _read(
    runs: Sequence[Path],
    out: Path,
    changed: dict[str, Any],
    varied: tuple[Iterable[int], Iterable[int]],
    models: tuple[ChatModel | None, ChatModel | None],
) -> list[_Swept]:
    """The evaluations. changed: settings that are not as recorded. varied: numbers of searches, and top-k. models: the
    caller's own, of the answers and of the judgements. Raises InputError for folders that are no evaluations, or cannot
    be swept, alone or together."""
    if not runs:
        raise InputError("give the folder of an evaluation: reasonrag sweep evals/agent")
    if (out / CONFIG).exists():
        raise InputError(f"{out} is the folder of a run or an evaluation; choose another --out for the sweep")
    found = list[_Swept]()
    for name, path in zip(names_of([each.resolve() for each in runs]), runs, strict=True):
        run = read_evaluation(path)
        settings = _recorded(run, changed)
        if settings.rank:
            raise InputError(f"{path} is rank {settings.rank} of an evaluation; give the whole, once it is joined")
        if settings.method in SEARCHLESS:
            raise InputError(f"{path} is an evaluation of {settings.method}, which does not search; leave it out")
        if settings.draws > 1:
            drawn = "--best-of" if settings.best_of else "--vote"
            raise InputError(f"{path} is an evaluation with {drawn}, and sweep draws one reply a state; leave it out")
        if not run.report.answered:
            raise InputError(f"every question of {path} failed; run its command again to retry them")
        if found and run.predictions.keys() != found[0].run.predictions.keys():
            raise InputError(
                f"{path} and {found[0].run.path} are evaluations of different questions; sweep each by itself"
            )
        subject = find_evaluated_model(settings, models[0])
        if subject.name != run.report.model:
            raise InputError(
                f"{path} was answered by {run.report.model}, but its settings now lead to {subject.name}: "
                + ("another model lies in that folder" if subject.served_here else "give the model that answered")
            )
        spec = evaluated_spec(subject, settings)
        own = Point(settings.steps, settings.top_k)
        points = plan_points(own, *varied, method=settings.method)
        swept = _Swept(name, run, settings, points, out / name, spec, judge_spec(spec, settings, models[1]))
        if same := next((each for each in found if each.key(each.own) == swept.key(own)), None):
            raise InputError(f"{path} is the same evaluation as {same.run.path}, by its settings; leave one out")
        found.append(swept)
    return found


def _recorded(run: EvaluationRun, changed: dict[str, Any]) -> EvaluateSettings:
    try:
        return EvaluateSettings.model_validate(run.report.settings | changed)
    except ValidationError as error:
        raise InputError(
            f"the settings that {run.path} records are not those of this version ({first_error(error)}). Run its "
            "command again: it asks for nothing anew, or says why its answers would be others now"
        ) from error


def _fixed(config: RunConfig) -> dict[str, Any]:
    return {name: each for name, each in config.decides_answers.model_dump().items() if name not in VARIED}


# -- the points --------------------------------------------------------------------------------------------------------


@dataclass
class _Sweeper:
    """A session of a sweep, in its locked folder."""

    swept: Sequence[_Swept]
    out: Path
    caps: Caps
    watcher: Watcher
    chat_model: ChatModel | None
    judge_chat_model: ChatModel | None
    retriever: Retriever | None

    def __post_init__(self) -> None:
        self._folders = {each.key(each.own): each.run.path for each in self.swept}
        self._watcher = _PointWatcher(self.watcher)
        self._reports: dict[Path, Report] = {}
        """Of the points that are done, by folder; of the evaluations themselves, none."""

    async def carry_out(self, *, yes: bool) -> Sweep:
        """Ask what is owed, write what is known, also where the session was stopped."""
        await self._agree(yes=yes)
        try:
            for _, group in groupby(sorted(self.swept, key=lambda each: each.opens), key=lambda each: each.opens):
                async with AsyncExitStack() as opened:
                    parts = EvaluationParts(opened, self.chat_model, self.judge_chat_model, self.retriever)
                    for each in group:
                        parts = replace(parts, home=each.home, known=each.known, check=each.check)
                        await self._run_points(each, parts)
        except (ReasonragError, KeyboardInterrupt):
            if self._reports:
                with suppress(InputError):  # no question has replies in all of them
                    self._write(await self._result())
                    self.watcher.say(f"the points so far are in {self.out / PAGE}")
            raise
        found = await self._result()
        self._write(found)
        return found

    async def _run_points(self, swept: _Swept, parts: EvaluationParts) -> None:
        left, others = await self._caps_left(swept)
        for number, point in enumerate(swept.points, start=1):
            title = f"point {number} of {len(swept.points)}: {swept.title(point)}"
            if (key := swept.key(point)) in self._folders:
                self.watcher.say(f"{title}: taken from {self._folders[key]}")
                continue
            self.watcher.say(title)
            settings = swept.settings_of(point, left)
            try:
                self._reports[settings.run] = await evaluate_with(settings, parts, self._watcher)
            except CapReached as reached:
                raise _of_all(reached, self.caps, others) from reached
            self._folders[key] = settings.run

    async def _caps_left(self, swept: _Swept) -> tuple[Caps, tuple[int, float]]:
        """The caps of the whole sweep less what the points of the other evaluations have taken, and that."""
        taken = [await each.spent() for each in self.swept if each is not swept]
        calls, cost = sum(tokens.calls for tokens, _ in taken), sum(each or 0.0 for _, each in taken)
        left = Caps(
            cost=None if self.caps.cost is None else max(0.0, self.caps.cost - cost),
            calls=None if self.caps.calls is None else max(0, self.caps.calls - calls),
        )
        return left, (calls, cost)

    async def _agree(self, *, yes: bool) -> None:
        """Say what the sweep will take, and get consent to its cost. Raises InputError."""
        expected, points, models = list[tuple[ModelSpec, ExpectedUsage]](), 0, list[ModelSpec]()
        spent, planned = Tokens(), {*self._folders}
        for each in self.swept:
            spent += (await each.spent())[0]
            check_prices(self._watcher.say, each.spec, judge=each.judge, capped=self.caps.cost is not None)
            owed = [point for point in each.points if each.key(point) not in planned and not _is_done(each, point)]
            planned |= {each.key(point) for point in owed}
            points += len(owed)
            models += [each.spec, *([each.judge] if each.judge else [])]
            if owed:
                expected += _expected(each, owed)
            if each.run.report.provenance and each.settings.of_agent:
                self.watcher.say(f"{each.name}: max-steps and top-k may differ from its training, nothing else")
        if not points:
            return
        work = f"{counted(points, 'point')} on {counted(len(self.swept[0].run.predictions), 'question')}"
        together = _by_model(expected)
        if needs_consent(models, self.caps, yes=yes):
            ask_consent(work, together, self.watcher, caps=self.caps, spent=spent)
        elif needs_consent(models, Caps(), yes=False):
            self.watcher.say(f"{work}: {cost_text(together, self.caps, spent)}")
        else:
            low, high = (sum(getattr(usage.calls, end) for _, usage in together) for end in ("low", "high"))
            self.watcher.say(f"{work}: about {low:,.0f} to {high:,.0f} completions, as points share answers")

    # -- the result ----------------------------------------------------------------------------------------------------

    async def _result(self) -> Sweep:
        finished = {path: Condition(str(path), (read_evaluation(path),)) for path in sorted(self._folders.values())}
        questions, left_out = common_questions([each for each in finished.values() if each.first.report.answered])
        first = self.swept[0].run.report
        spent = [await each.spent() for each in self.swept]
        costs = [cost for _, cost in spent]
        return Sweep(
            out=str(self.out),
            dataset=first.dataset,
            split=first.split,
            questions=len(questions),
            failed=left_out.failed,
            confidence=first.confidence,
            bootstrap=first.bootstrap,
            bootstrap_seed=first.bootstrap_seed,
            evaluations=[self._swept(each, finished, questions) for each in self.swept],
            calls=sum(tokens.calls for tokens, _ in spent),
            cost_usd=None if None in costs else round(sum(each or 0.0 for each in costs), 8),
            owed=sum(each.owed for each in self._reports.values()),
            warnings=self._warnings(),
            versions=versions(),
        )

    def _swept(self, swept: _Swept, finished: Mapping[Path, Condition], questions: Sequence[str]) -> SweptEvaluation:
        report = swept.run.report
        return SweptEvaluation(
            name=swept.name,
            run=str(swept.run.path),
            method=report.method,
            model=report.model,
            repair=swept.settings.repair,
            searches=swept.searches(swept.own),
            max_steps=swept.own.max_steps,
            top_k=swept.own.top_k,
            points=[
                self._point(swept, point, finished, questions)
                for point in sorted(swept.points, key=lambda each: (each.max_steps, each.top_k))
            ],
        )

    def _point(
        self, swept: _Swept, point: Point, finished: Mapping[Path, Condition], questions: Sequence[str]
    ) -> SweepPoint:
        folder = self._folders.get(swept.key(point))
        of_point = finished[folder] if folder else None
        report = of_point.first.report if of_point else None
        planned = SweepPoint(
            run=str(folder or swept.settings_of(point, Caps()).run),
            taken=folder in {each.run.path for each in self.swept},
            searches=swept.searches(point),
            max_steps=point.max_steps,
            top_k=point.top_k,
            figures=list(point.figures),
            finished=report is not None and report.answered > 0,
            failed=report.failed if report else 0,
        )
        if of_point is None or not planned.finished:
            return planned
        own, stated = finished[swept.run.path], self.swept[0].run.report
        means = MetricAggregator(stated.bootstrap, stated.confidence, stated.bootstrap_seed)
        pairs = [(own.values(name, questions), of_point.values(name, questions)) for name in SCORES]
        deltas = paired_differences(
            pairs, resamples=stated.bootstrap, seed=stated.bootstrap_seed, confidence=stated.confidence
        )
        return planned.model_copy(
            update={
                "metrics": means.of(of_point.first.predictions[each] for each in questions),
                "differences": dict(zip(SCORES, deltas, strict=True)),
            }
        )

    def _warnings(self) -> list[str]:
        """Those of the evaluations and points, each once; but not that budget and top-k differ from training."""
        found = [
            f"{each.run.path}: {counted(each.run.report.failed, 'question')} failed, and so are left out of every "
            "point; run its command again to retry them"
            for each in self.swept
            if each.run.report.failed
        ]
        for report in [*(each.run.report for each in self.swept), *self._reports.values()]:
            meant = {f"{each.message} (--allow)" for each in report.checks if each.name in VARIED}
            found += [each for each in report.warnings if each not in meant]
        return list(dict.fromkeys(found))

    def _write(self, found: Sweep) -> None:
        with writing(f"the sweep to {self.out}"):
            for name, drawing in draw_sweep(found).items():
                write_file(self.out / name, drawing.encode())
            write_file(self.out / PAGE, render_sweep(found).encode())
            write_json(self.out / SWEEP, mask_secrets_in(found.model_dump(mode="json"), secrets()))


def _is_done(swept: _Swept, point: Point) -> bool:
    """Whether an earlier session has finished it, as the evaluation is now."""
    try:
        found = read_evaluation(swept.settings_of(point, Caps()).run)
    except InputError:
        return False
    of_now = config_hash(_fixed(found.config)) == swept.identity and found.report.judge == swept.run.report.judge
    return of_now and not found.report.owed and found.predictions.keys() == swept.run.predictions.keys()


def _expected(swept: _Swept, owed: Sequence[Point]) -> list[tuple[ModelSpec, ExpectedUsage]]:
    """What the points are expected to take of the model, and of its judge: at most a judgement of every answer."""
    answered = [each for each in swept.run.predictions.values() if each.error is None]
    of_model = expected_usage(owed, swept.own, answered, replies_known=swept.known is not None)
    if swept.judge is None:
        return [(swept.spec, of_model)]
    usage = swept.run.report.usage
    judged = (usage.judge_calls, usage.judge_calls, usage.judge_prompt_tokens, usage.judge_completion_tokens)
    of_judge = ExpectedUsage(*(Range(low=0, high=len(owed) * each) for each in judged))
    return [(swept.spec, of_model), (swept.judge, of_judge)]


def _by_model(expected: Iterable[tuple[ModelSpec, ExpectedUsage]]) -> list[tuple[ModelSpec, ExpectedUsage]]:
    """The usage of each model, by its name and what it does."""
    found: dict[str, tuple[ModelSpec, ExpectedUsage]] = {}
    for spec, usage in expected:
        key = spec.recorded_as or spec.name
        found[key] = (spec, found[key][1] + usage if key in found else usage)
    return list(found.values())


def _of_all(reached: CapReached, caps: Caps, others: tuple[int, float]) -> CapReached:
    """A cap that was reached in the points of one evaluation, as that of the whole sweep. others: completions and
    dollars of all other evaluations."""
    calls, cost = others
    if reached.cap == "max_cost":
        return CapReached(reached.cap, f"{dollars(caps.cost or 0)} are for all points", needed=reached.needed + cost)
    return CapReached(reached.cap, f"{caps.calls:,} calls are for all points", needed=reached.needed + calls)


def _searches(count: int) -> str:
    return f"{count} {'search' if count == 1 else 'searches'}"


class _PointWatcher:
    """Shows the progress of each point; says once what all of them say, and leaves warnings to the end."""

    def __init__(self, inner: Watcher) -> None:
        self._inner, self._said = inner, set[str]()

    def say(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            self._inner.say(message)

    def warn(self, message: str) -> None: ...

    def confirm(self, question: str) -> bool:
        return self._inner.confirm(question)

    def started(self, *, total: int, done: int) -> None:
        self._inner.started(total=total, done=done)

    def advanced(self, tally: SessionTally) -> None:
        self._inner.advanced(tally)

    def ended(self) -> None:
        self._inner.ended()
