"""`reasonrag compare`: paired comparison of evaluations on the same questions.

Decides what is compared with what (every condition with the first), and how a difference is put into a sentence. What
may be compared is decided in `comparability`, intervals and tests in `significance`, the files in `comparison_report`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from preference.export.private_files import write_file, write_json
from preference.statistics import COMPARISON_LEVEL
from reasonrag.agent.prompting import load_prompts
from reasonrag.concurrency import run_to_end
from reasonrag.errors import InputError
from reasonrag.evaluation.comparability import Condition, common_questions, comparability_warnings, read_conditions
from reasonrag.evaluation.comparison_report import (
    OF_PARTS,
    PAGE,
    Comparison,
    ComparisonPart,
    ComparisonVerdict,
    ConditionSummary,
    PairedComparison,
    WinLossCounts,
    render_comparison,
)
from reasonrag.evaluation.judges.pairwise import PairwiseJudge, PairwiseJudgements, Preferences, judge_pairs
from reasonrag.evaluation.predictions import Prediction
from reasonrag.evaluation.reported_metrics import METRICS, capitalized
from reasonrag.evaluation.settings import CompareSettings
from reasonrag.evaluation.significance import (
    EQUIVALENCE_LEVEL,
    POWER,
    RESAMPLES,
    RESAMPLING_SEED,
    Equivalence,
    MetricDelta,
    changes,
    detectable,
    equivalence,
    mcnemar,
    mcnemar_text,
    paired_differences,
)
from reasonrag.files import COMPARISON
from reasonrag.llm.budget import Caps
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.endpoint.endpoint import JUDGE_KEY_VARIABLE
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.llm.offline import rehearsed_judge
from reasonrag.llm.settings import BudgetSettings, LimitSettings, ModelSettings
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.redaction import mask_secrets_in, secrets
from reasonrag.rendering import interval_text, percent
from reasonrag.run.engine import Budget
from reasonrag.run_config import versions
from reasonrag.settings import flag_of, resolve
from reasonrag.signatures import public_call

TESTED = ("em", "cover_em")
"""Metrics that decide the verdict, unless a judge's is known of more questions, or no answer equals a gold one."""


@public_call(CompareSettings)
def compare(
    runs: Sequence[str | Path] = (),
    *,
    out: str | Path | None = None,
    judge_chat_model: ChatModel | None = None,
    watcher: Watcher | None = None,
    **flags: Any,
) -> Comparison:
    """Compare evaluations with the first of them, and write `compare.json` and `compare.md`.

    Raises InputError for evaluations that are not comparable; with a judge also RunStopped, and KeyboardInterrupt after
    Ctrl-C: what was judged is kept, and the same call goes on.

    Example:
        >>> comparison = reasonrag.compare(["evals/rag", "evals/agent"], out="evals/compared")
        >>> comparison.questions
        5

    Args:
        runs: directories of `evaluate`; the first is compared with the others.
        out: where to write; none: `compare-A-B` beside the first.
        judge_chat_model: used instead of the judge that the settings would open.
        watcher: is told what happens while answers are judged; none: silent.
    """
    return compare_into(runs, flags | {"out": out}, judge_chat_model, watcher)[0]


def compare_into(
    runs: Sequence[str | Path],
    flags: Mapping[str, Any],
    judge: ChatModel | None = None,
    watcher: Watcher | None = None,
) -> tuple[Comparison, Path]:
    """Like `compare`; also returns where it was written."""
    settings = resolve(CompareSettings, "compare", flags)
    conditions = read_conditions([Path(each) for each in runs], settings.group)
    questions, left_out = common_questions(conditions)
    reference, *others = conditions
    first, out, judged = reference.first.report, settings.out or default_out(conditions), None
    if judge or settings.judge:
        asked = _judge(settings, judge)
        judged = run_to_end(judge_pairs(conditions, questions, asked, out, watcher or SilentWatcher()))
    elif alone := [
        name for name in ("judge_base_url", "judge_extra_body", "prompts", "price") if getattr(settings, name)
    ]:
        raise InputError(f"{flag_of(alone[0])} is for a judge: add --judge MODEL, or leave it out")
    comparison = Comparison(
        dataset=first.dataset,
        split=first.split,
        questions=len(questions),
        left_out=left_out,
        confidence=COMPARISON_LEVEL,
        bootstrap=RESAMPLES,
        seed=RESAMPLING_SEED,
        conditions=[_condition(each, questions) for each in conditions],
        pairs=[_PairComparer(reference, each, questions, judged).pair(settings.equivalent) for each in others],
        cost_usd=judged.cost_usd if judged else None,
        warnings=comparability_warnings(conditions, left_out)
        + (rehearsed_judge(judged.judge.spec.name, "preferences", "--judge") if judged else []),
        versions=versions(),
    )
    record = comparison.model_dump(mode="json")
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_file(out / PAGE, render_comparison(comparison).encode())
        write_json(out / COMPARISON, mask_secrets_in(record, secrets()))
    except OSError as error:
        raise InputError(f"cannot write the comparison to {out}: {error.strerror}; choose another --out") from error
    return comparison, out


def _judge(settings: CompareSettings, chat_model: ChatModel | None) -> PairwiseJudge:
    """The judge that the settings name, or the caller's own. Raises InputError for prompts that cannot be read."""
    own = ModelSettings(base_url=settings.judge_base_url, extra_body=settings.judge_extra_body, price=settings.price)
    name = chat_model.name if chat_model else settings.judge or ""
    spec = ModelSpec.of(own, settings.part(LimitSettings), name)
    spec = spec.second(own, name, name_flag="--judge", key_variable=JUDGE_KEY_VARIABLE).likeliest("judge")
    budget = Budget(Caps.of(settings.part(BudgetSettings)), settings.yes)
    return PairwiseJudge(spec, load_prompts(settings.prompts), budget, own.price, chat_model)


def default_out(conditions: Sequence[Condition]) -> Path:
    """`compare-A-B` beside the first evaluation; with many conditions, the first and the number of others."""
    names = ["".join(c if c.isalnum() or c in "._-" else "-" for c in each.name)[:60] for each in conditions]
    shown = names if len(names) <= 3 else [names[0], f"and-{len(names) - 1}-more"]  # noqa: PLR2004 - a name to read
    return conditions[0].first.path.parent / "-".join(["compare", *shown])


def _condition(condition: Condition, questions: Sequence[str]) -> ConditionSummary:
    report = condition.first.report
    means = dict[str, float | None]()
    for name in METRICS:
        values = condition.values(name, questions)
        known = values[:, ~np.isnan(values).any(axis=0)]
        means[name] = round(float(known.mean()), 12) if known.size else None
    return ConditionSummary(
        name=condition.name,
        runs=[str(each.path) for each in condition.seeds],
        method=report.method,
        model=report.model,
        seeds=[each.report.seed for each in condition.seeds],
        metrics=means,
    )


class _PairComparer:
    """Compares one condition with the reference on these questions.

    judged: what a judge said of their answers.
    """

    def __init__(
        self,
        reference: Condition,
        other: Condition,
        questions: Sequence[str],
        judged: PairwiseJudgements | None,
    ) -> None:
        self.reference, self.other, self.questions = reference, other, questions
        seeds = [[run.report.seed for run in side.seeds] for side in (reference, other)]
        self.paired_seeds = seeds[0] == seeds[1] and 1 < len(set(seeds[0])) == len(seeds[0])
        self.values = {name: (reference.values(name, questions), other.values(name, questions)) for name in METRICS}
        self.preferences: Preferences | None = None
        if judged:
            preferred, self.preferences = judged.of_condition(reference, other, questions)
            ours, theirs = (len(each.seeds) for each in (reference, other))
            rows = np.repeat(1 - preferred, ours, axis=0), np.repeat(preferred, theirs, axis=0)
            self.values["preference"] = rows  # it is of no seed, so all have it
        valued = {name: len(changes(*sides)) for name, sides in self.values.items()}  # questions with a value in both
        equal_gold = any(np.nansum(side) for side in self.values["em"])  # no long answer does
        least = valued["em"] if equal_gold else 0
        instead = [name for name in ("preference", "judged_right") if valued[name] > least]
        self.decide = (instead[0],) if instead else TESTED
        deciding = (self.values[name] for name in (self.decide[0], self.decide[-1]))
        self.change, self.second = (  # of every question; 0 where it has no value
            np.nan_to_num(np.round(theirs.mean(axis=0) - ours.mean(axis=0), 12)) for ours, theirs in deciding
        )

    def pair(self, within: float | None) -> PairedComparison:
        deltas = self._deltas(METRICS, np.arange(len(self.questions)))
        tests = {name: p for name in ("accuracy", *self.decide) if (p := mcnemar(*self.values[name])) is not None}
        verdict, deciding = self._verdict(deltas, tests), self.values[self.decide[0]]
        shown = equivalence(*deciding, within, paired_seeds=self.paired_seeds) if within else None
        return PairedComparison(
            reference=self.reference.name,
            other=self.other.name,
            verdict=verdict,
            sentence=" ".join([self._sentence(verdict, deltas, tests), *self._seen(deltas[self.decide[0]], shown)]),
            metrics=deltas,
            decided_by=self.decide[0],
            preferences=self.preferences,
            paired_seeds=self.paired_seeds,
            detectable=detectable(deltas[self.decide[0]]),
            equivalent=shown,
            tests=tests,
            outcomes=self._outcomes(np.arange(len(self.questions))),
            by_type=self._parts(lambda each: each.type),
            by_hops=self._parts(lambda each: each.hops),
            changed=self.reference.first.config.changed_to(self.other.first.config),
            wins=[id_ for id_, change in zip(self.questions, self.change, strict=True) if change > 0],
            losses=[id_ for id_, change in zip(self.questions, self.change, strict=True) if change < 0],
        )

    def _deltas(self, names: Iterable[str], columns: np.ndarray[Any, Any]) -> dict[str, MetricDelta]:
        chosen = {name: (one[:, columns], two[:, columns]) for name in names for one, two in [self.values[name]]}
        found = paired_differences([*chosen.values()], paired_seeds=self.paired_seeds)
        return {name: each for name, each in zip(chosen, found, strict=True) if each.n or name in OF_PARTS}

    def _verdict(self, deltas: dict[str, MetricDelta], tests: dict[str, float]) -> ComparisonVerdict:
        if all(np.array_equal(one, other, equal_nan=True) for one, other in self.values.values()):
            return "identical"
        em, cover = (significant_direction(name, deltas, tests) for name in (self.decide[0], self.decide[-1]))
        if em == 0:
            return "no_difference"
        if em > 0:
            return "gain" if cover > 0 else "style_gain"
        return "loss" if cover < 0 else "style_loss"

    def _outcomes(self, columns: np.ndarray[Any, Any]) -> WinLossCounts:
        em, alike = self.change[columns], self.second[columns] == 0
        return WinLossCounts(
            wins=int((em > 0).sum()),
            losses=int((em < 0).sum()),
            ties=int((em == 0).sum()),
            style_wins=int(((em > 0) & alike).sum()),
            style_losses=int(((em < 0) & alike).sum()),
        )

    def _parts(self, key: Callable[[Prediction], str | int | None]) -> dict[str, ComparisonPart]:
        """Groups by a key of the reference's first seed; questions with key None are in no group."""
        said = [key(self.reference.first.predictions[each]) for each in self.questions]
        present = sorted({each for each in said if each is not None}, key=lambda each: (isinstance(each, str), each))
        parts = {}
        for each in present:
            columns = np.flatnonzero([one == each for one in said])
            deltas = self._deltas(dict.fromkeys((*OF_PARTS, self.decide[0])), columns)
            parts[str(each)] = ComparisonPart(questions=len(columns), metrics=deltas, outcomes=self._outcomes(columns))
        return parts

    def _sentence(self, verdict: ComparisonVerdict, deltas: dict[str, MetricDelta], tests: dict[str, float]) -> str:
        """The result in a sentence that claims no more than intervals and tests support."""
        reference, other, decided_by = self.reference.name, self.other.name, self.decide[0]
        difference, p, name = deltas[decided_by], tests.get(decided_by), METRICS[decided_by].name
        said: dict[ComparisonVerdict, str] = {
            "gain": f"{other} is better",
            "style_gain": f"{other} is higher, which may be answer style and does not count as a gain",
            "loss": f"{other} is worse",
            "style_loss": f"{other} is lower, which may be answer style",
            "no_difference": f"not significant{_why_not_significant(difference, p, name)}",
        }
        if verdict == "identical":
            return f"{other} and {reference} have the same scores on every question."
        found = f"{capitalized(name)}: {other} - {reference} = {in_points(difference, p)}: {said[verdict]}."
        if decided_by != "em":
            return found
        side = significant_direction("cover_em", deltas, tests)
        verb = {0: "does not change significantly", 1: "gains", -1: "loses"}[side]
        return f"{found} Cover-EM {verb}: {in_points(deltas['cover_em'])}."

    def _seen(self, delta: MetricDelta, shown: Equivalence | None) -> Iterator[str]:
        """Whether seeds are paired, which difference is detectable, and whether the two are shown to be equivalent."""
        if delta.n:
            several = max(len(self.reference.seeds), len(self.other.seeds)) > 1
            seeds = f" and {'paired' if self.paired_seeds else 'unpaired'} seeds" if several else ""
            least = "above 100" if (found := detectable(delta)) is None else f"about {found:.1f}"
            size = f"the smallest detectable difference is {least} points ({percent(POWER)} power)"
            yield f"With n = {delta.n:,}{seeds} {size}."
        if shown:
            ends = interval_text(f"{shown.low:z.2f}", f"{shown.high:z.2f}", EQUIVALENCE_LEVEL)
            said = "equivalent" if shown.shown else "not shown to be equivalent"
            name, sides = METRICS[self.decide[0]].name, f"{self.other.name} and {self.reference.name}"
            yield f"By {name}, {sides} are {said} within {shown.points:g} points {ends}."


def significant_direction(metric: str, deltas: dict[str, MetricDelta], tests: dict[str, float]) -> int:
    """1 or -1 if a metric is significantly higher or lower, by its interval and by its test; else 0."""
    return deltas[metric].side if metric in tests and tests[metric] <= 1 - COMPARISON_LEVEL else 0


def _why_not_significant(em: MetricDelta, p: float | None, name: str) -> str:
    """Why a difference is not significant, as a further sentence, where its interval does not say it."""
    if p is None:
        return ". No question has a score in both"
    if em.value == em.low == em.high == 0:
        return f". {capitalized(name)} is the same on every question"
    return ". Too few questions change that way" if em.side else ""


def in_points(delta: MetricDelta, p: float | None = None) -> str:
    """`+7.5 points (95 % CI 0.0 to 15.0; McNemar p = 0.25)`: a difference in percentage points, with its intervals."""
    if delta.value is None or delta.low is None or delta.high is None:
        return "nothing to compare"
    ends = (delta.value, delta.low, delta.high, delta.t_low or 0, delta.t_high or 0)
    value, low, high, t_low, t_high = (round(100 * each, 1) + 0.0 for each in ends)  # no -0.0
    found = interval_text(f"{low:.1f}", f"{high:.1f}", COMPARISON_LEVEL)[:-1]
    if delta.by_seed:
        found += f"; by t over {len(delta.by_seed)} paired seeds {t_low:.1f} to {t_high:.1f}"
    return f"{value:+.1f} points {found}{'' if p is None else f'; {mcnemar_text(p)}'})"
