"""`reasonrag evaluate-critic`: scores the steps of held-out trees, measures, and says whether the critic is offered.

Decides what is scored and writes the verdict into the critic's folder. `observations` decides what is true, `measures`
how it is counted, `verdict` what fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from preference.export.formats import plain_types
from preference.export.private_files import write_json
from preference.records import read_rollouts
from reasonrag.concurrency import run_to_end
from reasonrag.critics.evaluation.chains import Chain, chain_figures, judged_chains, shuffled
from reasonrag.critics.evaluation.measures import Estimate, clustered_mean, pair_accuracy
from reasonrag.critics.evaluation.observations import JudgedPair, JudgedStep, fresh_values, judged_pairs
from reasonrag.critics.evaluation.report import BUCKETS, CLEAR_GAP, EVALUATION, REPORT, CriticEvaluation, RunResult
from reasonrag.critics.evaluation.verdict import decided, remarks_of
from reasonrag.critics.settings import EvaluateCriticSettings
from reasonrag.data.item_files import explained_records
from reasonrag.errors import InputError
from reasonrag.files import only_writer, rollouts_in
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.critic import CriticVerdict, StepText, critic_spec, find_critic
from reasonrag.llm.endpoint.endpoint import Limits
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.rendering import counted
from reasonrag.run.scoring import AskedCritic, score_steps
from reasonrag.run_config import shown_settings, versions
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.training.provenance import read_provenance

Key = TypeVar("Key", str, int)
MOST_CONTROLS = 500
"""Pairs that are shown without their state: enough for two digits."""


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

    Writes `critic_evaluation.json` and a verdict, unless it is undecided, into the critic's folder: one that
    failed is refused by the other commands. Raises InputError before anything is asked; RunStopped where a cap or a
    lost endpoint ended it, and KeyboardInterrupt after Ctrl-C: scores are kept, and the same call goes on.

    Example:
        >>> reasonrag.evaluate_critic("critics/first", "runs/held-out")  # doctest: +SKIP

    Args:
        critic: its folder.
        runs: run directories, of other questions than it was trained on, or with some others.
        critic_model: asked instead of opening the critic; its replies are numbers.
        outcome_model: asked instead of opening the one of `against`.
        watcher: is told what happens while it goes on; none: silent.
    """
    settings = resolve(EvaluateCriticSettings, "evaluate-critic", flags)
    watcher = watcher or SilentWatcher()
    found, against = find_critic(str(critic)), find_critic(settings.against) if settings.against else None
    if against and against.facts and against.facts.labels != "outcome":
        raise InputError(
            f"--against {settings.against}: it is labelled by {against.facts.labels}, not by outcome; give the folder "
            "of a critic of pairs --label outcome"
        )
    out = settings.out or Path(critic).expanduser() / EVALUATION
    limits = Limits(settings.concurrency, timeout=300.0)
    asked = [
        _Asked(AskedCritic(each, critic_spec(each, limits), model))
        for each, model in ((found, critic_model), (against, outcome_model))
        if each
    ]
    trees = _read([Path(each) for each in runs], asked, limit=settings.limit, enough=settings.min_observations)
    mean = partial(clustered_mean, resamples=settings.bootstrap, seed=settings.seed)
    plan = _Plan(trees, asked, out, settings.max_calls, settings.seed, mean)
    with only_writer(out, flag="--out"):
        report = run_to_end(_evaluate(plan, watcher))
        provenance = read_provenance(Path(critic).expanduser())
        known = {"settings": shown_settings(settings), "versions": versions(), "out": str(out)}
        report = report.model_copy(update=known | {"trained_on": provenance.splits if provenance else []})
        write_json(out / REPORT, report.model_dump(mode="json"))
    if report.verdict != "undecided" and provenance and provenance.critic:
        verdict = CriticVerdict(failures=tuple(report.failures), evaluation=report.out)
        facts = provenance.critic.model_copy(update={"verdict": verdict})
        provenance.model_copy(update={"critic": facts}).write(Path(critic).expanduser())
    return report


@dataclass
class _Asked:
    """A critic, and what it said."""

    critic: AskedCritic
    scores: dict[StepText, float] = field(default_factory=dict)

    def score(self, step: JudgedStep) -> float | None:
        return self.scores.get(step.text)

    def scores_of(self, pair: JudgedPair) -> tuple[float | None, float | None]:
        return self.score(pair.better), self.score(pair.worse)

    def right(self, pair: JudgedPair) -> float | None:
        """Whether the truly better step scores higher; None without both scores."""
        return pair_accuracy(*self.scores_of(pair))


@dataclass(frozen=True)
class _Trees:
    """The pairs and chains of a run's held-out trees, and what is told of them, but for the accuracy."""

    told: RunResult
    pairs: list[JudgedPair] = field(default_factory=list)
    chains: list[Chain] = field(default_factory=list)


@dataclass(frozen=True)
class _Plan:
    """What is evaluated, by whom, and within which limits."""

    trees: Sequence[_Trees]
    asked: Sequence[_Asked]
    out: Path
    max_calls: int | None
    seed: int
    mean: Callable[..., Estimate]
    """`clustered_mean`, but for the cases."""

    def over(self, pairs: Iterable[JudgedPair], value: Callable[[JudgedPair], float | None]) -> Estimate:
        """The mean of a value, of pairs that have it."""
        known = [(found, pair.better.question) for pair in pairs if (found := value(pair)) is not None]
        return self.mean([found for found, _ in known], [question for _, question in known])


def _read(runs: Sequence[Path], asked: Sequence[_Asked], *, limit: int | None, enough: float) -> list[_Trees]:
    """Raises InputError for a folder that is no run, and where no question is left."""
    if not runs:
        raise InputError(
            "give at least one run directory of generate, with questions that the critic was not trained on"
        )
    found = list[_Trees]()
    for run in runs:
        fresh = fresh_values(run)
        told = RunResult(run=str(run), truth="fresh continuations" if fresh else "values of the tree")
        found.append(_Trees(told))
        if not rollouts_in(run).is_file():
            raise InputError(f"there is no {rollouts_in(run)}; give a run directory of reasonrag generate")
        with explained_records():
            for rollout in islice(read_rollouts(rollouts_in(run)), limit):
                if any(each.critic.found.trained_on(rollout.question) for each in asked):
                    told.seen += 1
                elif rollout.error is None:
                    told.questions += 1
                    told.datasets = list(dict.fromkeys([*told.datasets, f"{rollout.dataset}/{rollout.split}"]))
                    found[-1].pairs.extend(judged_pairs(rollout, fresh, enough=enough))
                    found[-1].chains.extend(judged_chains(rollout))
        told.pairs = len(found[-1].pairs)
    if not any(each.pairs for each in found):
        seen = sum(each.told.seen for each in found)
        raise InputError(
            f"there is no pair to judge: {counted(seen, 'question')} of these runs were trained on, and the others "
            "have no two siblings with known and different values; give a run of other questions, or a smaller "
            "--min-observations"
        )
    return found


async def _evaluate(plan: _Plan, watcher: Watcher) -> CriticEvaluation:
    pairs = [pair for trees in plan.trees for pair in trees.pairs]
    some = random.Random(f"controls {plan.seed}").sample(pairs, min(MOST_CONTROLS, len(pairs)))
    stateless = [JudgedPair(_without_user(each.better), _without_user(each.worse), each.margin) for each in some]
    chains = [chain for trees in plan.trees for chain in trees.chains]
    mixed = [both for trees in plan.trees for both in shuffled(trees.chains)]
    steps = [side for pair in pairs for side in pair.sides]
    controls = [side for pair in stateless for side in pair.sides]
    controls += [step for chain in (*chains, *(other for _, other in mixed)) for step in chain.steps]
    every = [[*steps, *controls], steps]  # of the critic, and of the outcome model
    owed = [(each.critic, wanted) for each, wanted in zip(plan.asked, every, strict=False)]
    told = await score_steps(owed, plan.out, plan.max_calls, watcher)
    for each, scores in zip(plan.asked, told.by_critic, strict=True):
        each.scores = scores
    spent = {name: value for name, value in vars(told).items() if name != "by_critic"}
    spent |= chain_figures(chains, mixed, plan.asked[0].score, plan.mean)
    report = decided(_measured(plan, pairs, stateless).model_copy(update=spent))
    return report.model_copy(update={"remarks": remarks_of(report)})


def _without_user(step: JudgedStep) -> JudgedStep:
    """The step in a state with empty turns after the first."""
    kept = (turn if turn.role == "system" else turn.model_copy(update={"content": ""}) for turn in step.state)
    return replace(step, state=tuple(kept))


def _measured(plan: _Plan, pairs: Sequence[JudgedPair], stateless: Sequence[JudgedPair]) -> CriticEvaluation:
    critic, against = plan.asked[0], plan.asked[1] if len(plan.asked) > 1 else None

    def ahead(pair: JudgedPair) -> float | None:
        one, other = critic.right(pair), against.right(pair) if against else None
        return None if one is None or other is None else one - other

    def by(key: Callable[[JudgedPair], Key]) -> dict[Key, Estimate]:
        keys = sorted(set(map(key, pairs)))
        return {each: plan.over([pair for pair in pairs if key(pair) == each], critic.right) for each in keys}

    return CriticEvaluation(
        critic=critic.critic.found.name,
        against=against.critic.found.name if against else None,
        runs=[each.told.model_copy(update={"accuracy": plan.over(each.pairs, critic.right)}) for each in plan.trees],
        questions=sum(each.told.questions for each in plan.trees),
        accuracy=plan.over(pairs, critic.right),
        gaps=[one - other for one, other in map(critic.scores_of, pairs) if one is not None and other is not None],
        by_action_type=by(lambda pair: plain_types(str(pair.better.action_type or "other"))),
        by_layer={str(layer): each for layer, each in by(lambda pair: pair.better.layer).items()},
        by_margin={BUCKETS[place]: each for place, each in by(_bucket).items()},
        outcome_model=plan.over(pairs, against.right) if against else None,
        advantage=plan.over(pairs, ahead) if against else None,
        step_only=plan.over(stateless, critic.right),
        shorter=plan.over(pairs, lambda pair: pair_accuracy(*(-float(len(each.step)) for each in pair.sides))),
    )


def _bucket(pair: JudgedPair) -> int:
    """Its place in `BUCKETS`."""
    return 0 if pair.margin < 0.1 else 1 if pair.margin <= CLEAR_GAP else 2  # noqa: PLR2004
