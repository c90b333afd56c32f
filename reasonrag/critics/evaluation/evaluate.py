"""`reasonrag evaluate-critic`: scores the steps of held-out trees, measures, and says whether the critic is offered.

Decides what is scored and writes the verdict into the critic's folder. `observations` decides what is true, `measures`
how it is counted, `report` what fails.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preference import Message
from preference.answer_scores import normalize_answer
from preference.export.files import write_json
from preference.export.formats import plain_types
from preference.records import read_rollouts
from reasonrag.agent.from_settings import shown_settings
from reasonrag.concurrency import run_to_end
from reasonrag.critics.evaluation.measures import (
    Estimate,
    area_under_curve,
    brier_skill,
    clustered_mean,
    earliest_error_f1,
    expected_best,
    expected_majority,
    grouped,
    ranked_right,
    spread_at_equal_outcomes,
)
from reasonrag.critics.evaluation.observations import (
    WON,
    JudgedPair,
    JudgedStep,
    Observations,
    Trajectory,
    add_tree,
    fresh_values,
)
from reasonrag.critics.evaluation.report import (
    BUCKETS,
    REPORT,
    SIZES,
    BestOf,
    Calibration,
    CriticEvaluation,
    RunResult,
    failures_of,
    remarks_of,
)
from reasonrag.critics.evaluation.settings import EvaluateCriticSettings
from reasonrag.data.item_files import explained_records
from reasonrag.errors import InputError, ModelError
from reasonrag.files import FAILURES, JOURNAL, only_writer, rollouts_in
from reasonrag.llm.budget import Caps
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.critic import Critic, CriticVerdict, FoundCritic, critic_spec, find_critic, open_critic
from reasonrag.llm.endpoint.endpoint import Limits
from reasonrag.llm.endpoint.score_endpoint import chance
from reasonrag.llm.failure_log import FailureLog
from reasonrag.llm.journal import open_journal
from reasonrag.llm.models import Models
from reasonrag.llm.servers.model_folder import PROVENANCE, read_json
from reasonrag.llm.session import Session
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.rendering import counted
from reasonrag.run_config import versions
from reasonrag.settings import resolve
from reasonrag.signatures import public_call

TIMEOUT_S = 300.0
MOST_CONTROLS = 500
"""Right steps that are shown in another state, and pairs that are shown without one: enough for two digits."""
BETTER_BY = 0.3
"""Gap to the better sibling of a liked error."""

_Text = tuple[tuple[str, ...], str]
"""A state's turns and a step."""


@public_call(EvaluateCriticSettings)
def evaluate_critic(
    critic: str | Path,
    *runs: str | Path,
    critic_model: ChatModel | None = None,
    outcome_model: ChatModel | None = None,
    watcher: Watcher | None = None,
    **flags: Any,
) -> CriticEvaluation:
    """Measure how well a critic judges the steps of trees that it was not trained on.

    Writes `critic_evaluation.json`, and the verdict into the critic's folder: one that failed is refused by the other
    commands. Raises InputError before anything is asked; RunStopped where a cap or a lost endpoint ended it, and
    KeyboardInterrupt after Ctrl-C: scores are kept, and the same call goes on.

    Example:
        >>> reasonrag.evaluate_critic("critics/first", "runs/held-out")  # doctest: +SKIP

    Args:
        critic: its folder, or the URL of a server.
        runs: run directories, of other questions than it was trained on, or with some others.
        critic_model: asked instead of opening the critic; its replies are numbers.
        outcome_model: asked instead of opening the one of `against`.
        watcher: is told what happens while it goes on; none: silent.
    """
    settings = resolve(EvaluateCriticSettings, "evaluate-critic", flags)
    watcher = watcher or SilentWatcher()
    found = find_critic(str(critic))
    against = find_critic(settings.against) if settings.against else None
    if against and against.facts and against.facts.labels != "outcome":
        raise InputError(f"--against {settings.against}: it is labelled by {against.facts.labels}, not by outcome")
    out = settings.out or (found.folder or Path("critics") / found.name) / "evaluation"
    asked = [_Asked(found, critic_model), *([_Asked(against, outcome_model)] if against else [])]
    trees = _read([Path(each) for each in runs], asked, limit=settings.limit, enough=settings.min_observations)
    plan = _Plan(
        trees,
        asked,
        out,
        Caps(settings.max_cost, settings.max_calls),
        Limits(settings.concurrency, TIMEOUT_S),
        settings.critic_price_in,
        settings.bootstrap,
        settings.seed,
    )
    with only_writer(out, flag="--out"):
        report = run_to_end(_evaluate(plan, watcher))
        report = report.model_copy(
            update={"settings": shown_settings(settings), "versions": versions(), "out": str(out)}
        )
        write_json(out / REPORT, report.model_dump(mode="json"))
    if found.folder:
        told = read_json(found.folder / PROVENANCE)
        verdict = CriticVerdict(failures=tuple(report.failures), evaluation=str(out))
        told["critic"]["verdict"] = verdict.model_dump(mode="json")
        write_json(found.folder / PROVENANCE, told, shared=True)
    return report


@dataclass
class _Asked:
    """A critic, and what it said. model: asked instead of opening it."""

    found: FoundCritic
    model: ChatModel | None
    scores: dict[_Text, float] = field(default_factory=dict)

    def score(self, step: JudgedStep) -> float | None:
        return self.scores.get(_text(step.prompt, step.response))


@dataclass(frozen=True)
class _Trees:
    """A run's held-out trees. seen: questions left out."""

    run: Path
    found: Observations
    seen: int


@dataclass(frozen=True)
class _Plan:
    """What is evaluated, by whom, and within which limits."""

    trees: Sequence[_Trees]
    asked: Sequence[_Asked]
    out: Path
    caps: Caps
    limits: Limits
    price_in: float | None
    resamples: int
    seed: int

    def mean(self, values: Sequence[float], clusters: Sequence[str]) -> Estimate:
        return clustered_mean(values, clusters, resamples=self.resamples, seed=self.seed)


def _text(prompt: Iterable[Message], step: str) -> _Text:
    return tuple(turn.content for turn in prompt), step


def _read(runs: Sequence[Path], asked: Sequence[_Asked], *, limit: int | None, enough: float) -> list[_Trees]:
    """Raises InputError for a folder that is no run, and where no question is left."""
    if not runs:
        raise InputError(
            "give at least one run directory of generate, with questions that the critic was not trained on"
        )
    found = []
    for number, run in enumerate(runs):
        fresh, trees, seen = fresh_values(run), Observations(), 0
        if not rollouts_in(run).is_file():
            raise InputError(f"there is no {rollouts_in(run)}; give a run directory of reasonrag generate")
        with explained_records():
            for place, rollout in enumerate(read_rollouts(rollouts_in(run))):
                if limit is not None and place >= limit:
                    break
                if any(each.found.trained_on(rollout.question) for each in asked):
                    seen += 1
                elif rollout.error is None:
                    add_tree(trees, rollout, fresh, run=number, enough=enough)
        found.append(_Trees(run, trees, seen))
    if not any(each.found.pairs for each in found):
        seen = sum(each.seen for each in found)
        raise InputError(
            f"there is no pair to judge: {counted(seen, 'question')} of these runs were trained on, and the others "
            "have no two siblings with known and different values; give a run of other questions, or a smaller "
            "--min-observations"
        )
    return found


# -- asking ------------------------------------------------------------------------------------------------------


async def _evaluate(plan: _Plan, watcher: Watcher) -> CriticEvaluation:
    controls = _Controls.of(plan)
    texts = {
        _text(step.prompt, step.response): (step.question_id, step.prompt, step.response)
        for trees in plan.trees
        for step in _scored_steps(trees.found)
    }
    calls = session_calls = 0
    cost = 0.0
    for number, each in enumerate(plan.asked):
        own = texts | (controls.texts if number == 0 else {})
        async with AsyncExitStack() as opened:
            journal = await opened.enter_async_context(open_journal(plan.out / JOURNAL, say=watcher.say))
            failures = opened.enter_context(FailureLog(plan.out / FAILURES))
            spec = critic_spec(each.found, plan.limits, price_in=plan.price_in)
            model = each.model or await open_critic(each.found, spec, opened, say=watcher.say)
            models = Models.journaled(journal, _left(plan.caps, calls, cost), (spec, model))
            before = models.spent.calls
            watcher.say(f"{each.found.name}: {counted(len(own), 'step')} to score")
            await _score(each, models, own.values(), failures, watcher, at_once=plan.limits.concurrency)
            calls, cost = calls + models.spent.calls, cost + (models.cost or 0.0)
            session_calls += models.spent.calls - before
    report = _measured(plan, controls).model_copy(
        update={"calls": calls, "session_calls": session_calls, "cost_usd": cost}
    )
    return report.model_copy(update={"failures": failures_of(report), "remarks": remarks_of(report)})


def _left(caps: Caps, calls: int, cost: float) -> Caps:
    """What the first critic left of the caps."""
    return Caps(
        None if caps.cost is None else max(0.0, caps.cost - cost),
        None if caps.calls is None else max(0, caps.calls - calls),
    )


async def _score(
    asked: _Asked,
    models: Models,
    texts: Collection[tuple[str, tuple[Message, ...], str]],
    failures: FailureLog,
    watcher: Watcher,
    *,
    at_once: int,
) -> None:
    critic = Critic(models.main)
    session = Session(
        models, watcher, failures.attempt, how_far=lambda: f"{len(asked.scores):,} of {len(texts):,} steps scored"
    )
    await models.check()

    async def score(text: tuple[str, tuple[Message, ...], str]) -> None:
        question_id, prompt, response = text
        try:
            [asked.scores[_text(prompt, response)]] = await critic.scores(prompt, [response], question_id=question_id)
        except ModelError as error:
            failures.give_up("score", error, question_id=question_id)

    await session.run_or_raise(texts, score, at_once=at_once)


def _scored_steps(found: Observations) -> Iterable[JudgedStep]:
    yield from (step for step in found.steps if step.value is not None)
    for pair in found.pairs:
        yield from (pair.better, pair.worse)
    for trajectory in found.trajectories:
        yield from trajectory.steps


@dataclass(frozen=True)
class _Controls:
    """What a critic should not like, or should not need: right steps in a state of another question, and pairs without
    the state's user turn."""

    misplaced: Sequence[tuple[JudgedStep, tuple[Message, ...]]]
    stateless: Sequence[tuple[JudgedPair, tuple[Message, ...]]]

    @classmethod
    def of(cls, plan: _Plan) -> _Controls:
        dice = random.Random(f"controls {plan.seed}")
        steps = [step for trees in plan.trees for step in trees.found.steps if (step.value or 0.0) >= WON]
        elsewhere = grouped(steps, lambda step: str(step.action_type))
        misplaced = []
        for step in dice.sample(steps, min(MOST_CONTROLS, len(steps))):
            others = [each for each in elsewhere[str(step.action_type)] if each.question != step.question]
            if others:
                misplaced.append((step, dice.choice(others).prompt))
        pairs = [pair for trees in plan.trees for pair in trees.found.pairs]
        stateless = [
            (
                pair,
                tuple(
                    turn if turn.role == "system" else Message(role="user", content="") for turn in pair.better.prompt
                ),
            )
            for pair in dice.sample(pairs, min(MOST_CONTROLS, len(pairs)))
        ]
        return cls(misplaced, stateless)

    @property
    def texts(self) -> dict[_Text, tuple[str, tuple[Message, ...], str]]:
        asked = [(step, prompt) for step, prompt in self.misplaced]
        asked += [(side, prompt) for pair, prompt in self.stateless for side in (pair.better, pair.worse)]
        return {_text(prompt, step.response): (step.question_id, prompt, step.response) for step, prompt in asked}


# -- measuring ---------------------------------------------------------------------------------------------------


def _measured(plan: _Plan, controls: _Controls) -> CriticEvaluation:
    critic, against = plan.asked[0], plan.asked[1] if len(plan.asked) > 1 else None
    trees = [each.found for each in plan.trees]
    pairs = [pair for found in trees for pair in found.pairs]
    steps = [step for found in trees for step in found.steps if step.value is not None]
    trajectories = [each for found in trees for each in found.trajectories]
    return CriticEvaluation(
        critic=critic.found.name,
        kind=critic.found.kind,
        against=against.found.name if against else None,
        runs=[_run_result(plan, each, critic) for each in plan.trees],
        questions=sum(found.questions for found in trees),
        accuracy=_accuracy(plan, pairs, critic),
        by_action_type=_by(plan, pairs, critic, lambda pair: plain_types(str(pair.better.action_type or "other"))),
        by_layer=_by(plan, pairs, critic, lambda pair: str(pair.better.layer)),
        by_margin=_by(plan, pairs, critic, _bucket),
        outcome_model=_accuracy(plan, pairs, against) if against else None,
        advantage=_advantage(plan, pairs, critic, against) if against else None,
        calibration=_calibration(steps, critic) if critic.found.kind == "value" else None,
        best_of_steps=_best_of_steps(plan, trees, critic, against),
        best_of_trajectories=_best_of_trajectories(plan, trajectories, critic, against),
        earliest_error=_earliest_error(plan, trajectories, critic),
        true_state=_true_state(plan, controls, critic),
        step_only=_step_only(plan, controls, critic),
        shorter=plan.mean(
            [ranked_right(-len(pair.better.response), -len(pair.worse.response)) for pair in pairs],
            [pair.better.question for pair in pairs],
        ),
        spread_at_equal_outcomes=_spread(trajectories, critic),
        liked_errors=_liked_errors(plan, trees, critic),
    )


def _run_result(plan: _Plan, trees: _Trees, critic: _Asked) -> RunResult:
    found = trees.found
    known = [(score, (step.value or 0.0) >= WON) for step in found.steps if (score := critic.score(step)) is not None]
    valued = critic.found.kind == "value"
    return RunResult(
        run=str(trees.run),
        questions=found.questions,
        seen=trees.seen,
        truth="fresh continuations" if found.fresh else "values of the tree",
        pairs=len(found.pairs),
        accuracy=_accuracy(plan, found.pairs, critic),
        auc=area_under_curve([score for score, _ in known], [right for _, right in known]) if valued else None,
    )


def _bucket(pair: JudgedPair) -> str:
    return BUCKETS[0] if pair.margin < 0.1 else BUCKETS[1] if pair.margin <= BETTER_BY else BUCKETS[2]  # noqa: PLR2004


def _judgements(pairs: Iterable[JudgedPair], critic: _Asked) -> list[tuple[float, str]]:
    """Whether each pair is ranked right, and its question; without pairs that have no score."""
    found = []
    for pair in pairs:
        better, worse = critic.score(pair.better), critic.score(pair.worse)
        if better is not None and worse is not None:
            found.append((ranked_right(better, worse), pair.better.question))
    return found


def _accuracy(plan: _Plan, pairs: Iterable[JudgedPair], critic: _Asked) -> Estimate:
    known = _judgements(pairs, critic)
    return plan.mean([right for right, _ in known], [question for _, question in known])


def _by(
    plan: _Plan, pairs: Sequence[JudgedPair], critic: _Asked, key: Callable[[JudgedPair], str]
) -> dict[str, Estimate]:
    return {name: _accuracy(plan, each, critic) for name, each in grouped(pairs, key).items()}


def _advantage(plan: _Plan, pairs: Sequence[JudgedPair], critic: _Asked, against: _Asked) -> Estimate:
    differences, questions = [], []
    for pair in pairs:
        ours, theirs = _judgements([pair], critic), _judgements([pair], against)
        if ours and theirs:
            differences.append(ours[0][0] - theirs[0][0])
            questions.append(ours[0][1])
    return plan.mean(differences, questions)


def _calibration(steps: Sequence[JudgedStep], critic: _Asked) -> Calibration | None:
    known = [(chance(score), step.value or 0.0) for step in steps if (score := critic.score(step)) is not None]
    if not known:
        return None
    chances, values = [told for told, _ in known], [value for _, value in known]
    error, skill = brier_skill(chances, values)
    bins: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for told, value in known:
        bins[min(9, int(told * 10))].append((told, value))
    return Calibration(
        auc=area_under_curve(chances, [value >= WON for value in values]),
        brier=error,
        skill=skill,
        reliability=[
            (sum(told for told, _ in each) / len(each), sum(value for _, value in each) / len(each), len(each))
            for _, each in sorted(bins.items())
        ],
    )


@dataclass(frozen=True)
class _Draw:
    """One draw of several: a name by which draws agree, its true value, and the scores of critic and outcome model."""

    name: str
    value: float
    score: float
    outcome_score: float


def _best_of_steps(plan: _Plan, trees: Sequence[Observations], critic: _Asked, against: _Asked | None) -> list[BestOf]:
    """Within states: each step as often as it was drawn."""
    cases = []
    for found in trees:
        for (_, question, _), steps in found.states.items():
            cases.append(
                (question, _draws([(step, step.response, step.value, step.draws) for step in steps], critic, against))
            )
    return _best_of(plan, cases, against=against is not None)


def _best_of_trajectories(
    plan: _Plan, trajectories: Sequence[Trajectory], critic: _Asked, against: _Asked | None
) -> list[BestOf]:
    """Of a question: every complete path as often as its answer was drawn, by the score of its last step."""
    cases = [
        (
            question,
            _draws(
                [(each.steps[-1], normalize_answer(each.answer), each.outcome, each.draws) for each in paths],
                critic,
                against,
            ),
        )
        for question, paths in grouped(trajectories, lambda each: each.question).items()
    ]
    return _best_of(plan, cases, against=against is not None)


def _draws(
    found: Iterable[tuple[JudgedStep, str, float | None, int]], critic: _Asked, against: _Asked | None
) -> list[_Draw]:
    draws = []
    for step, name, value, times in found:
        score, outcome = critic.score(step), against.score(step) if against else 0.0
        if value is not None and score is not None and outcome is not None:
            draws += [_Draw(name, value, score, outcome)] * min(times, SIZES[-1])
    return draws


def _best_of(plan: _Plan, cases: Sequence[tuple[str, list[_Draw]]], *, against: bool) -> list[BestOf]:
    table = []
    for n in SIZES:
        enough = [(question, draws) for question, draws in cases if len(draws) >= max(n, 2)]
        if not enough:
            continue
        taken: defaultdict[str, list[float]] = defaultdict(list)
        for place, (_, draws) in enumerate(enough):
            values = [each.value for each in draws]
            taken["random"].append(sum(values) / len(values))
            names = [each.name for each in draws]
            taken["majority"].append(expected_majority(names, values, n, seed=plan.seed + place))
            taken["critic"].append(expected_best([each.score for each in draws], values, n))
            taken["outcome"].append(expected_best([each.outcome_score for each in draws], values, n))
            taken["oracle"].append(expected_best(values, values, n))
        means = {name: sum(values) / len(values) for name, values in taken.items()}
        gains = [ours - usual for ours, usual in zip(taken["critic"], taken["random"], strict=True)]
        table.append(
            BestOf(
                n=n,
                cases=len(enough),
                random=means["random"],
                majority=means["majority"],
                critic=means["critic"],
                outcome_model=means["outcome"] if against else None,
                oracle=means["oracle"],
                gain=plan.mean(gains, [question for question, _ in enough]),
            )
        )
    return table


def _earliest_error(plan: _Plan, trajectories: Sequence[Trajectory], critic: _Asked) -> dict[str, Any]:
    """By halves of the questions: the threshold is set on one."""
    halves: dict[bool, list[tuple[list[float], int | None]]] = {True: [], False: []}
    for each in trajectories:
        errors, scores = each.errors(), [critic.score(step) for step in each.steps]
        known = [score for score in scores if score is not None]
        if errors is not None and len(known) == len(scores):
            dev = random.Random(f"half {plan.seed} {each.question}").random() < 0.5  # noqa: PLR2004 - half of them
            halves[dev].append((known, errors[0] if errors else None))
    return earliest_error_f1(halves[True], halves[False]) if halves[True] and halves[False] else {}


def _true_state(plan: _Plan, controls: _Controls, critic: _Asked) -> Estimate:
    values, questions = [], []
    for step, prompt in controls.misplaced:
        here, there = critic.score(step), critic.scores.get(_text(prompt, step.response))
        if here is not None and there is not None:
            values.append(ranked_right(here, there))
            questions.append(step.question)
    return plan.mean(values, questions)


def _step_only(plan: _Plan, controls: _Controls, critic: _Asked) -> Estimate:
    values, questions = [], []
    for pair, prompt in controls.stateless:
        better, worse = (critic.scores.get(_text(prompt, side.response)) for side in (pair.better, pair.worse))
        if better is not None and worse is not None:
            values.append(ranked_right(better, worse))
            questions.append(pair.better.question)
    return plan.mean(values, questions)


def _spread(trajectories: Sequence[Trajectory], critic: _Asked) -> float | None:
    groups: defaultdict[tuple[str, bool], list[float]] = defaultdict(list)
    for each in trajectories:
        scores = [score for step in each.steps if (score := critic.score(step)) is not None]
        if scores:
            groups[each.question, each.won].append(sum(scores) / len(scores))
    return spread_at_equal_outcomes(list(groups.values()))


def _liked_errors(plan: _Plan, trees: Sequence[Observations], critic: _Asked) -> Estimate:
    """Of every error in a won trajectory that has a better sibling: whether it scores higher than the best of them."""
    liked, questions, seen = [], [], set[_Text]()
    for found in trees:
        states = found.states
        for each in found.trajectories:
            for place in (each.errors() or ()) if each.won else ():
                step = each.steps[place]
                siblings = states.get((step.run, step.question, step.state), [])
                better = [one for one in siblings if (one.value or 0.0) >= (step.value or 0.0) + BETTER_BY]
                best = max(better, key=lambda one: one.value or 0.0, default=None)
                text = _text(step.prompt, step.response)
                if best is None or text in seen:
                    continue
                seen.add(text)
                mine, theirs = critic.score(step), critic.score(best)
                if mine is not None and theirs is not None:
                    liked.append(ranked_right(mine, theirs))
                    questions.append(step.question)
    return plan.mean(liked, questions)
