"""`reasonrag evaluate`: answers a split with one method, scores it, and writes a run directory with intervals.

Resolves settings into parts and decides the run's configuration. The model's provenance is checked against questions
and conditions before anything is asked. `methods` decide how a question is answered, `reasonrag.run` how a run
proceeds, `reported_metrics` what is measured.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from preference.candidate_records import is_training_split
from preference.export.private_files import atomic_replacement, open_private, write_json
from preference.statistics import COMPARISON_LEVEL
from reasonrag.agent.model_calls import ModelCaller
from reasonrag.agent.outcomes import poor_judge, rubric_identity
from reasonrag.agent.prompting import style_identity
from reasonrag.concurrency import run_to_end
from reasonrag.data.datasets import find_data
from reasonrag.data.questions import Question, QuestionFile, read_rubric, require_golden_answers
from reasonrag.data.settings import QuestionSettings
from reasonrag.errors import InputError
from reasonrag.evaluation.answering import CRITIC, JUDGE, MODEL, READER, Answering, QuestionOutcome
from reasonrag.evaluation.judges.answer_judge import EvaluationJudge
from reasonrag.evaluation.methods.baseline_prompts import BaselinePrompts, load_baseline_prompts
from reasonrag.evaluation.methods.choice import MethodChoice
from reasonrag.evaluation.methods.method import Method
from reasonrag.evaluation.methods.opening import NoRetriever, conditions_of_method, method_for, method_identity
from reasonrag.evaluation.plan import AskedModel, Parts, find_step_critic, judge_spec, with_temperature
from reasonrag.evaluation.report import REPORT, ConditionCheck, EvaluationConditions, EvaluationUsage, Report
from reasonrag.evaluation.report_page import write_page
from reasonrag.evaluation.reported_metrics import grouped_means, metric_means
from reasonrag.evaluation.settings import EvaluateSettings
from reasonrag.evaluation.significance import RESAMPLES, RESAMPLING_SEED
from reasonrag.exploration.summary import states_that_ended
from reasonrag.files import ANSWERED, PASSAGES, PREDICTIONS, ROLLOUTS, storing
from reasonrag.llm.budget import Caps, Tokens
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.critic import Critic
from reasonrag.llm.model_spec import LazyModel, ModelSpec, check_prices, model_name
from reasonrag.llm.offline import rehearsed_judge
from reasonrag.llm.reasoning import too_little_room
from reasonrag.llm.settings import BudgetSettings, ModelSettings
from reasonrag.progress import SilentWatcher, Watcher, warn_all
from reasonrag.retrieval.opening import object_or_name
from reasonrag.retrieval.passage_length import reading_identity
from reasonrag.retrieval.retriever import Retriever
from reasonrag.retrieval.settings import RetrievalSettings
from reasonrag.run.engine import Budget, Role, Run, claimed, open_run
from reasonrag.run.scoring import AskedCritic
from reasonrag.run_config import RunConfig, has_answers, recorded_effort, shown_settings, shown_urls, versions
from reasonrag.settings import resolve
from reasonrag.signatures import public_call


@public_call(EvaluateSettings)
def evaluate(
    *,
    chat_model: ChatModel | None = None,
    judge_chat_model: ChatModel | None = None,
    critic_model: ChatModel | None = None,
    retriever: Retriever | str | None = None,
    watcher: Watcher | None = None,
    **flags: Any,
) -> Report:
    """Answer the questions of a split with a model, and measure the answers.

    Works inside a running event loop too. Failed questions are in the report. Raises InputError before anything is
    asked; RunStopped where a cap, a lost endpoint or a full disk ended it, and KeyboardInterrupt after Ctrl-C: what
    was answered is kept, and the same call goes on.

    Example:
        >>> agent = reasonrag.evaluate(dataset="atlas", split="dev", limit=5, model="offline", run="evals/agent")
        >>> same = {"dataset": "atlas", "split": "dev", "limit": 5, "model": "offline"}
        >>> rag = reasonrag.evaluate(**same, method="rag", run="evals/rag")
        >>> agent.questions
        5

    Args:
        chat_model: used instead of the model that the settings would open: any object with `name`, and coroutines
            `complete(request)` and `check()` (`reasonrag.llm.chat.ChatModel`).
        judge_chat_model: used instead of the judge that the settings would open.
        critic_model: used instead of the critic that the settings would open; its replies are numbers.
        retriever: used instead of the one that the settings would build, or its name, as `retriever` in
            reasonrag.toml.
        watcher: is told what happens while it goes on; none: silent.
    """
    retriever, named = object_or_name(retriever)
    settings, told = resolve(EvaluateSettings, "evaluate", flags | named), watcher or SilentWatcher()

    async def evaluated() -> Report:
        async with AsyncExitStack() as opened:
            parts = Parts(opened, told.say, chat_model, judge_chat_model, retriever, critic_model)
            return await _evaluate(settings, parts, told)

    return run_to_end(evaluated())


async def _evaluate(settings: EvaluateSettings, parts: Parts, watcher: Watcher) -> Report:
    folder = settings.run
    if folder is None:
        of_atlas = settings.part(QuestionSettings).of_atlas
        named = parts.chat_model and parts.chat_model.name
        name = named or model_name(settings.part(ModelSettings), of_atlas=of_atlas)
        folder = settings.default_run(name)
        settings = settings.model_copy(update={"run": folder})
        watcher.say(f"run directory: {folder}")
    if (folder / ROLLOUTS).exists():
        raise InputError(f"{folder} is a run of generate; choose another --run for its evaluation")
    judged = bool(settings.judge or parts.judge_chat_model)
    if settings.rubric and not judged:
        raise InputError(f"--rubric {settings.rubric} is for a judge: add --judge MODEL, or leave it out")
    settings = with_temperature(settings, critic=bool(settings.critic or parts.critic_model))
    searched = settings.chosen_method.searches
    if parts.retriever is None and not searched:
        parts.retriever = NoRetriever()
    retrieval = settings.part(RetrievalSettings)
    source, corpus = find_data(
        settings.part(QuestionSettings),
        (lambda question: question.rubric) if judged else require_golden_answers,
        retrieval.index_home,
        seed=settings.seed,
        needs_corpus=searched and not retrieval.has_corpus,
        say=watcher.say,
    )
    questions = list(source.limited(settings.limit))
    model = AskedModel.of(settings, parts, settings.allow)
    settings, lineage = model.settings, model.lineage
    settings.chosen_method.check()
    judge = judge_spec(model.spec, settings, parts.judge_chat_model)
    capped = settings.max_cost is not None
    check_prices(watcher.say, model.spec, judge, model.reader, given=settings.price, capped=capped)
    critic, found = find_step_critic(settings, parts.critic_model, model, [each.question for each in questions])
    checks = [lineage.seen(questions, f"{source.dataset}/{source.split}", settings.allow)]
    if settings.chosen_method.of_agent:
        checks += lineage.held_against(model.asked, settings.allow)
    model = await model.opened(parts, corpus, begun=has_answers(folder), effort=recorded_effort(folder))
    asked = conditions_of_method(settings.chosen_method, model.asked)
    rubric = read_rubric(settings.rubric) if settings.rubric else ()
    setup = _Setup(folder, model, source, questions, judge, rubric, critic, found, asked, checks)
    warn_all(setup.warnings, watcher)
    return await _carried_out(setup, parts, watcher)


@dataclass(frozen=True)
class _Setup:
    """Models, questions, conditions and checks of an evaluation, resolved."""

    folder: Path
    model: AskedModel[EvaluateSettings]
    source: QuestionFile
    questions: list[Question]
    judge: ModelSpec | None
    rubric: tuple[str, ...]
    critic: AskedCritic | None
    critic_warnings: list[str]
    asked: EvaluationConditions
    checks: list[ConditionCheck]

    @property
    def settings(self) -> EvaluateSettings:
        return self.model.settings

    @property
    def method(self) -> MethodChoice:
        return self.settings.chosen_method

    @property
    def most_replies(self) -> int:
        """Of the model to one question, with what it reads for itself."""
        reads = self.method.steps * (self.method.vote or 1) if self.asked.reader == self.model.spec.name else 0
        return self.method.most_replies + reads

    @property
    def warnings(self) -> list[str]:
        found = [each.message for each in self.checks if each.outcome == "allowed"]
        found += self.critic_warnings
        found += rehearsed_judge(self.judge.name, "judge scores", "--judge") if self.judge else []
        if self.judge and not any(each.golden_answers for each in self.questions):
            found.append(
                "no question has gold answers, so nothing tells how often the judge is right: give some of them gold "
                "answers, and the report shows how often it agrees with these"
            )
        found += [self.model.lineage.unknown] if self.model.lineage.unknown else []
        if is_training_split(self.source.split):
            found.append(
                f"{self.source.dataset}/{self.source.split} is a training split: results on it say little about a "
                "model trained on its questions"
            )
        return found

    @cached_property
    def config(self) -> RunConfig:
        decides_answers = {
            **self.source.identity,
            "retriever": self.asked.retriever,
            "top_k": self.asked.top_k,
            "model": self.model.spec.name,
            "sampling": self.model.spec.sampling.shown,
            "seed": self.settings.seed,
            **reading_identity(self.asked.max_passage_chars, self.asked.passage_order),
            **style_identity(self.settings.style),
        } | method_identity(
            self.method, self.model.prompts, self.baseline_prompts, self.critic.found.name if self.critic else None
        )
        if reader := self.model.reader:
            decides_answers["reader"] = {"name": reader.name, "sampling": reader.sampling.shown}
        return RunConfig.of(decides_answers, {"questions": str(self.source.path), "settings": self.shown_settings})

    @property
    def shown_settings(self) -> dict[str, Any]:
        """Resolved settings; addresses without users, passwords and queries."""
        here = self.model.subject.served_here or self.model.spec.in_process
        addresses = self.settings.base_url or ([] if here else [os.environ.get("OPENAI_BASE_URL", "")])
        return shown_settings(self.settings) | {"base_url": shown_urls(addresses)}

    def roles(self, parts: Parts) -> dict[str, Role]:
        """The models, and what opens them."""
        subject, judge, critic, reader = self.model.subject, self.judge, self.critic, self.model.reader
        found = {MODEL: Role(self.model.spec, lambda: parts.open_model(subject, self.model.spec))}
        for role, spec, given in ((JUDGE, judge, parts.judge_chat_model), (READER, reader, None)):
            if spec:
                found[role] = Role(spec, LazyModel(spec, parts.opened, parts.say, given))
        if critic:
            found[CRITIC] = Role(critic.spec, lambda: parts.open_critic(critic, beside=subject.served_here))
        return found

    @cached_property
    def baseline_prompts(self) -> BaselinePrompts:
        """Read once, as config.json has their hash."""
        return load_baseline_prompts(self.settings.prompts)

    def method_of(self, model: ChatModel, critic: ChatModel | None, reader: ChatModel | None) -> Method:
        agent = self.model.agent(model, reader, repair=self.settings.repair)
        return method_for(self.method, agent, self.baseline_prompts, Critic(critic) if critic else None)

    @cached_property
    def judge_sees_gold(self) -> bool:
        """Only where every question of the file has gold answers: all answers are judged alike, whatever --limit is."""
        return all(each.golden_answers for each in self.source.limited(None))

    def judge_of(self, model: ChatModel) -> EvaluationJudge:
        assert self.judge is not None  # noqa: S101 - there is a model of it
        caller = ModelCaller(model, self.model.prompts, self.judge.sampling, self.settings.seed)
        return EvaluationJudge(caller, self.judge_sees_gold, self.rubric, self.settings.style)


async def _carried_out(setup: _Setup, parts: Parts, watcher: Watcher) -> Report:
    """Answer every question, from the journal or by asking, and write the report. Raises RunStopped; KeyboardInterrupt
    for Ctrl-C."""
    settings, folder = setup.settings, setup.folder

    def keep(lines: bytes, mode: str = "ab") -> None:
        with storing(folder / ANSWERED), open_private(folder / ANSWERED, mode, buffering=-1) as file:
            file.write(lines)

    work = Answering(
        setup.questions,
        setup.method_of,
        setup.judge_of,
        settings.concurrency,
        setup.most_replies,
        lambda owed: setup.source.described(owed, len(setup.questions), limited=settings.limit is not None),
        lambda prediction: keep(prediction.to_line()),
    )
    with claimed(folder, setup.config):
        keep(b"", "wb")  # for who looks before the first answer; the journal gives those of a stopped session again
        budget = Budget(Caps.of(settings.part(BudgetSettings)), settings.yes)
        async with open_run(folder, setup.roles(parts), watcher, budget, recorded_in=folder) as run:
            await run.complete(work, work)
        outcomes = [work.outcomes[each.id] for each in setup.questions]
        report = _report(setup, outcomes, run)
        warn_all(report.warnings[len(setup.warnings) :], watcher)  # the others were said before the first request
        shown = (each.id for of in outcomes for step in of.prediction.steps for each in step.passages)
        with atomic_replacement(folder / PASSAGES) as file:
            file.writelines(work.read[each].to_line() for each in dict.fromkeys(shown) if each in work.read)
        with atomic_replacement(folder / PREDICTIONS) as file:
            file.writelines(each.prediction.to_line() for each in outcomes)
        write_json(folder / REPORT, report.model_dump(mode="json"))
        write_page(folder, report)
        (folder / ANSWERED).unlink(missing_ok=True)
    return report


def _report(setup: _Setup, outcomes: Sequence[QuestionOutcome], run: Run) -> Report:
    settings = setup.settings
    predictions = [each.prediction for each in outcomes]
    causes = Counter(each.error.cause for each in predictions if each.error)
    answered = [each for each in predictions if each.error is None]
    unjudged = Counter(cause for each in outcomes for cause in each.unjudged)
    parse_errors = Counter(step.parse_error for each in answered for step in each.steps if step.parse_error is not None)
    unreadable = dict(parse_errors.most_common())
    only_reasoning = unreadable.get("reasoning_cut", 0) + unjudged["reasoning_cut"]
    metrics = metric_means(predictions)
    agrees = metrics.get("judge_agrees")
    return Report(
        run=str(setup.folder),
        dataset=setup.source.dataset,
        split=setup.source.split,
        questions_sha256=setup.source.sha256,
        questions=len(predictions),
        answered=len(answered),
        failed=causes.total(),
        failures_by_cause=dict(causes.most_common()),
        unjudged_by_cause=dict(unjudged.most_common()),
        method=settings.method,
        model=setup.model.spec.name,
        judge=setup.judge.name if setup.judge else None,
        judge_saw_gold=setup.judge_sees_gold if setup.judge else None,
        rubric_sha256=rubric_identity(setup.rubric).get("rubric_sha256"),
        best_of=settings.best_of,
        critic=setup.critic.found.name if setup.critic else None,
        vote=settings.vote,
        asked=setup.asked,
        repair=settings.repair,
        config_hash=setup.config.config_hash,
        seed=settings.seed,
        confidence=COMPARISON_LEVEL,
        bootstrap=RESAMPLES,
        bootstrap_seed=RESAMPLING_SEED,
        metrics=metrics,
        by_type=grouped_means(predictions, lambda each: each.type),
        by_hops=grouped_means(predictions, lambda each: each.hops),
        parse_failures_by_cause=unreadable,
        usage=_spent(outcomes),
        cost_usd=None if run.models.cost is None else round(run.models.cost, 8),
        checks=setup.checks,
        refused_parameters=run.refused,
        provenance=setup.model.lineage.trained,
        warnings=setup.warnings
        + (
            poor_judge(setup.judge.name, round(agrees.n * (agrees.value or 0)), agrees.n)
            if setup.judge and agrees
            else []
        )
        + too_little_room(only_reasoning, max_tokens=setup.model.spec.sampling.max_tokens)
        + states_that_ended(unreadable, len(answered), "which counts as no answer"),
        settings=setup.shown_settings,
        versions=versions(),
    )


def _spent(outcomes: Sequence[QuestionOutcome]) -> EvaluationUsage:
    judgements = sum((each.judge for each in outcomes), start=Tokens())
    scored = [each.prediction.critic for each in outcomes if each.prediction.critic]
    answers = ("calls", "prompt_tokens", "completion_tokens", "reasoning_tokens")
    return EvaluationUsage(
        **{name: sum(getattr(each.prediction, name) for each in outcomes) for name in answers},
        judge_calls=judgements.calls,
        judge_prompt_tokens=judgements.prompt_tokens,
        judge_completion_tokens=judgements.completion_tokens,
        critic_calls=sum(each.calls for each in scored),
        critic_prompt_tokens=sum(each.prompt_tokens for each in scored),
    )
