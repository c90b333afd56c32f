"""`reasonrag evaluate-critic`: scores the steps of held-out trees, measures, and says whether the critic is offered.

Decides what is scored and writes the verdict into the critic's folder. `observations` decides what is true, `measures`
how it is counted, `report` what fails.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preference import Message
from preference.export.files import write_json
from preference.export.formats import plain_types
from preference.records import read_rollouts
from reasonrag.agent.from_settings import shown_settings
from reasonrag.concurrency import run_to_end
from reasonrag.critics.evaluation.measures import (
    Estimate,
    Key,
    clustered_mean,
    expected_best,
    expected_majority,
    grouped,
    ranked_right,
)
from reasonrag.critics.evaluation.observations import (
    WON,
    JudgedPair,
    JudgedStep,
    Observations,
    add_tree,
    fresh_values,
)
from reasonrag.critics.evaluation.report import (
    BUCKETS,
    CLEAR_GAP,
    REPORT,
    SIZES,
    BestOf,
    CriticEvaluation,
    RunResult,
    decided,
    remarks_of,
)
from reasonrag.critics.evaluation.settings import EvaluateCriticSettings
from reasonrag.data.item_files import explained_records
from reasonrag.errors import InputError
from reasonrag.files import only_writer, rollouts_in
from reasonrag.llm.budget import Caps
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.critic import (
    AskedCritic,
    CriticVerdict,
    FoundCritic,
    StepText,
    StepToScore,
    critic_spec,
    find_critic,
    score_steps,
    text_of,
)
from reasonrag.llm.endpoint.endpoint import Limits
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.rendering import counted
from reasonrag.run_config import versions
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.training.provenance import read_provenance

TIMEOUT_S = 300.0
MOST_CONTROLS = 500
"""Steps of other questions that are shown, and pairs that are shown without their state: enough for two digits."""


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

    Writes `critic_evaluation.json`, and a verdict, unless it is undecided, into the critic's folder: one that failed is
    refused by the other commands. Raises InputError before anything is asked; RunStopped where a cap or a lost endpoint
    ended it, and KeyboardInterrupt after Ctrl-C: scores are kept, and the same call goes on.

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
    if against and (against.facts is None or against.facts.labels != "outcome"):
        known = (
            f"it is labelled by {against.facts.labels}, not by outcome" if against.facts else "its labels are unknown"
        )
        raise InputError(f"--against {settings.against}: {known}; give the folder of a critic of pairs --label outcome")
    if settings.out is None and found.folder is None:
        raise InputError("--out: give a folder for the evaluation, as a server's words name none for a critic at a URL")
    out = settings.out or Path(found.folder or "") / "evaluation"
    limits = Limits(settings.concurrency, TIMEOUT_S)
    asked = [
        _Asked(AskedCritic(each, critic_spec(each, limits, price_in=settings.critic_price_in), model))
        for each, model in ((found, critic_model), (against, outcome_model))
        if each
    ]
    trees = _read([Path(each) for each in runs], asked, limit=settings.limit, enough=settings.min_observations)
    plan = _Plan(
        trees,
        asked,
        out,
        Caps(settings.max_cost, settings.max_calls),
        settings.yes,
        settings.bootstrap,
        settings.seed,
    )
    with only_writer(out, flag="--out"):
        report = run_to_end(_evaluate(plan, watcher))
        report = report.model_copy(
            update={"settings": shown_settings(settings), "versions": versions(), "out": str(out)}
        )
        write_json(out / REPORT, report.model_dump(mode="json"))
    provenance = read_provenance(found.folder) if found.folder and report.verdict != "undecided" else None
    if found.folder and provenance and provenance.critic:
        verdict = CriticVerdict(failures=tuple(report.failures), evaluation=str(out))
        facts = provenance.critic.model_copy(update={"verdict": verdict})
        provenance.model_copy(update={"critic": facts}).write(found.folder)
    elif report.verdict != "undecided":
        watcher.say(f"the verdict is in {out / REPORT} only; evaluate-critic FOLDER puts it into the critic's folder")
    return report


@dataclass
class _Asked:
    """A critic, and what it said."""

    critic: AskedCritic
    scores: dict[StepText, float] = field(default_factory=dict)

    @property
    def found(self) -> FoundCritic:
        return self.critic.found

    def score(self, step: JudgedStep) -> float | None:
        return self.scores.get(text_of(step.prompt, step.response))


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
    yes: bool
    resamples: int
    seed: int

    def mean(self, values: Sequence[float], clusters: Sequence[str]) -> Estimate:
        return clustered_mean(values, clusters, resamples=self.resamples, seed=self.seed)


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
    steps = [_to_score(step, step.prompt) for trees in plan.trees for step in _scored_steps(trees.found)]
    owed = [(each.critic, [*steps, *(controls.steps if each is plan.asked[0] else ())]) for each in plan.asked]
    told = await score_steps(owed, plan.out, plan.caps, watcher, yes=plan.yes)
    for each, scores in zip(plan.asked, told.by_critic, strict=True):
        each.scores = scores
    spent = {name: value for name, value in vars(told).items() if name != "by_critic"}
    report = decided(_measured(plan, controls).model_copy(update=spent))
    return report.model_copy(update={"remarks": remarks_of(report)})


def _to_score(step: JudgedStep, state: tuple[Message, ...]) -> StepToScore:
    return StepToScore(step.question_id, state, step.response)


def _scored_steps(found: Observations) -> Iterable[JudgedStep]:
    yield from (step for step in found.steps if step.value is not None)
    for pair in found.pairs:
        yield from (pair.better, pair.worse)
    for trajectory in found.trajectories:
        yield from trajectory.steps


@dataclass(frozen=True)
class _Controls:
    """What a critic should not like, and what it should need: right steps, each with one of its type from another
    question, shown in the same state; and pairs without the state's user turn."""

    foreign: Sequence[tuple[JudgedStep, JudgedStep]]
    stateless: Sequence[tuple[JudgedPair, tuple[Message, ...]]]

    @classmethod
    def of(cls, plan: _Plan) -> _Controls:
        dice = random.Random(f"controls {plan.seed}")
        right = [step for trees in plan.trees for step in trees.found.steps if (step.value or 0.0) >= WON]
        by_type = grouped(right, lambda step: str(step.action_type))
        foreign = []
        for step in dice.sample(right, min(MOST_CONTROLS, len(right))):
            others = [each for each in by_type[str(step.action_type)] if each.question != step.question]
            other = dice.choice(others) if others else step
            if other.response != step.response:
                foreign.append((step, other))
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
        return cls(foreign, stateless)

    @property
    def steps(self) -> list[StepToScore]:
        asked = [(other, step.prompt) for step, other in self.foreign]
        asked += [(side, prompt) for pair, prompt in self.stateless for side in (pair.better, pair.worse)]
        return [_to_score(step, prompt) for step, prompt in asked]


# -- measuring ---------------------------------------------------------------------------------------------------


def _measured(plan: _Plan, controls: _Controls) -> CriticEvaluation:
    critic, against = plan.asked[0], plan.asked[1] if len(plan.asked) > 1 else None
    trees = [each.found for each in plan.trees]
    pairs = [pair for found in trees for pair in found.pairs]
    return CriticEvaluation(
        critic=critic.found.name,
        against=against.found.name if against else None,
        runs=[_run_result(plan, each, critic) for each in plan.trees],
        questions=sum(found.questions for found in trees),
        accuracy=_accuracy(plan, pairs, critic),
        by_action_type=_by(plan, pairs, critic, lambda pair: plain_types(str(pair.better.action_type or "other"))),
        by_layer={str(layer): each for layer, each in _by(plan, pairs, critic, lambda pair: pair.better.layer).items()},
        by_margin={BUCKETS[place]: each for place, each in _by(plan, pairs, critic, _bucket).items()},
        outcome_model=_accuracy(plan, pairs, against) if against else None,
        advantage=_advantage(plan, pairs, critic, against) if against else None,
        best_of_steps=_best_of_steps(plan, trees, critic, against),
        own_step=_own_step(plan, controls, critic),
        step_only=_step_only(plan, controls, critic),
        shorter=plan.mean(
            [ranked_right(-len(pair.better.response), -len(pair.worse.response)) for pair in pairs],
            [pair.better.question for pair in pairs],
        ),
        liked_errors=_liked_errors(plan, trees, critic),
    )


def _run_result(plan: _Plan, trees: _Trees, critic: _Asked) -> RunResult:
    found = trees.found
    return RunResult(
        run=str(trees.run),
        questions=found.questions,
        seen=trees.seen,
        truth="fresh continuations" if found.fresh else "values of the tree",
        estimated=sum(step.estimated for step in found.steps if step.value is not None),
        pairs=len(found.pairs),
        accuracy=_accuracy(plan, found.pairs, critic),
    )


def _bucket(pair: JudgedPair) -> int:
    """Its place in `BUCKETS`."""
    return 0 if pair.margin < 0.1 else 1 if pair.margin <= CLEAR_GAP else 2  # noqa: PLR2004


def _ranked(plan: _Plan, cases: Iterable[tuple[str, float | None, float | None]]) -> Estimate:
    """How often the first of two scores is the higher one, of cases with both. cases: of each its question and both."""
    known = [(ranked_right(one, other), each) for each, one, other in cases if one is not None and other is not None]
    return plan.mean([right for right, _ in known], [question for _, question in known])


def _accuracy(plan: _Plan, pairs: Iterable[JudgedPair], critic: _Asked) -> Estimate:
    return _ranked(
        plan, ((each.better.question, critic.score(each.better), critic.score(each.worse)) for each in pairs)
    )


def _by(
    plan: _Plan, pairs: Sequence[JudgedPair], critic: _Asked, key: Callable[[JudgedPair], Key]
) -> dict[Key, Estimate]:
    return {name: _accuracy(plan, each, critic) for name, each in grouped(pairs, key).items()}


def _advantage(plan: _Plan, pairs: Sequence[JudgedPair], critic: _Asked, against: _Asked) -> Estimate:
    differences, questions = [], []
    for pair in pairs:
        scores = [each.score(side) for each in (critic, against) for side in (pair.better, pair.worse)]
        known = [score for score in scores if score is not None]
        if len(known) == len(scores):
            differences.append(ranked_right(*known[:2]) - ranked_right(*known[2:]))
            questions.append(pair.better.question)
    return plan.mean(differences, questions)


@dataclass(frozen=True)
class _Draw:
    """One draw of several: a name by which draws agree, its true value, and the scores of critic and outcome model."""

    name: str
    value: float
    score: float
    outcome_score: float


def _best_of_steps(plan: _Plan, trees: Sequence[Observations], critic: _Asked, against: _Asked | None) -> list[BestOf]:
    """Within states: each step as often as it was drawn."""
    cases = [
        (question, [(step, step.response, step.value, step.draws) for step in steps])
        for found in trees
        for (_, question, _), steps in found.states.items()
    ]
    return _best_of(plan, cases, critic, against)


_Drawn = tuple[JudgedStep, str, float | None, int]
"""A step, the name by which draws agree, its true value, and how often it was drawn."""


def _draws(found: Iterable[_Drawn], critic: _Asked, against: _Asked | None) -> list[_Draw]:
    draws = []
    for step, name, value, times in found:
        score, outcome = critic.score(step), against.score(step) if against else 0.0
        if value is not None and score is not None and outcome is not None:
            draws += [_Draw(name, value, score, outcome)] * times
    return draws


def _best_of(
    plan: _Plan, cases: Iterable[tuple[str, Sequence[_Drawn]]], critic: _Asked, against: _Asked | None
) -> list[BestOf]:
    table = []
    drawn = [(question, _draws(found, critic, against)) for question, found in cases]
    enough = [(question, draws) for question, draws in drawn if len(draws) > 1]
    for n in SIZES if enough else ():
        taken: defaultdict[str, list[float]] = defaultdict(list)
        for place, (_, draws) in enumerate(enough):
            values = [each.value for each in draws]
            taken["random"].append(sum(values) / len(values))
            names = [each.name for each in draws]
            taken["majority"].append(expected_majority(names, values, n, seed=plan.seed + place))
            taken["critic"].append(expected_best([each.score for each in draws], values, n))
            if against:
                taken["outcome_model"].append(expected_best([each.outcome_score for each in draws], values, n))
            taken["oracle"].append(expected_best(values, values, n))
        means = {name: sum(values) / len(values) for name, values in taken.items()}
        gains = [ours - usual for ours, usual in zip(taken["critic"], taken["random"], strict=True)]
        gain = plan.mean(gains, [question for question, _ in enough])
        table.append(BestOf(**{"outcome_model": None, **means, "n": n, "cases": len(enough), "gain": gain}))
    return table


def _own_step(plan: _Plan, controls: _Controls, critic: _Asked) -> Estimate:
    found = critic.scores
    cases = ((step, text_of(step.prompt, other.response)) for step, other in controls.foreign)
    return _ranked(plan, ((step.question, critic.score(step), found.get(text)) for step, text in cases))


def _step_only(plan: _Plan, controls: _Controls, critic: _Asked) -> Estimate:
    def score(prompt: tuple[Message, ...], step: JudgedStep) -> float | None:
        return critic.scores.get(text_of(prompt, step.response))

    cases = ((pair.better, pair.worse, prompt) for pair, prompt in controls.stateless)
    return _ranked(plan, ((one.question, score(prompt, one), score(prompt, other)) for one, other, prompt in cases))


def _liked_errors(plan: _Plan, trees: Sequence[Observations], critic: _Asked) -> Estimate:
    """Of every error in a won trajectory that has a better sibling: whether it scores higher than the best of them."""
    cases, seen = [], set[StepText]()
    for found in trees:
        states = found.states
        for each in found.trajectories:
            for place in (each.errors() or ()) if each.won else ():
                step = each.steps[place]
                siblings = states.get((step.run, step.question, step.state), [])
                better = [one for one in siblings if (one.value or 0.0) >= (step.value or 0.0) + CLEAR_GAP]
                best = max(better, key=lambda one: one.value or 0.0, default=None)
                text = text_of(step.prompt, step.response)
                if best is not None and text not in seen:
                    seen.add(text)
                    cases.append((step.question, critic.score(step), critic.score(best)))
    return _ranked(plan, cases)
