"""From attempts to predictions, and from predictions to means: what is measured of a question, and over which ones.

A question without an answer scores 0; one that model or retriever gave nothing for is in no mean. A metric that not
every question has (gold passages, a judgement) is a mean over those that have it. Knows no model and no file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from preference import cover_em, exact_match, f1_score
from preference.records import QuestionError
from reasonrag.data.questions import Question
from reasonrag.evaluation.methods.method import Attempt
from reasonrag.evaluation.predictions import Prediction
from reasonrag.evaluation.report import Latency, MetricMean, QuestionGroup
from reasonrag.evaluation.significance import mean_interval
from reasonrag.llm.budget import Tokens

RIGHT_FROM = 0.5
"""Score of a judge from which an answer counts as right; 100 is right, 0 wrong, 50 half of it (prompts/answer.txt)."""

METRICS: dict[str, Callable[[Prediction], float | None]] = {
    "em": lambda each: each.em,
    "f1": lambda each: each.f1,
    "cover_em": lambda each: each.cover_em,
    "judged_right": lambda each: None if each.judged is None else float(each.judged >= RIGHT_FROM),
    "judge_score": lambda each: each.judged,
    "gold_recall": lambda each: each.gold_recall,
    "no_answer": lambda each: float(each.answer is None),
    "malformed": lambda each: float(each.malformed),
    "repaired": lambda each: float(any(step.repaired for step in each.steps)),
    "searches": lambda each: float(each.searches),
    "calls": lambda each: float(each.calls),
    "prompt_tokens": lambda each: float(each.prompt_tokens),
    "completion_tokens": lambda each: float(each.completion_tokens),
}
"""Value of a prediction by the metric's name; None where it has none. Shares of questions are no_answer (there is
nothing to score), malformed (some reply could not be read, also after its repair turn) and repaired (some reply took
it)."""

PER_QUESTION = frozenset({"searches", "calls", "prompt_tokens", "completion_tokens"})
"""Numbers per question; all others are in [0, 1]."""


# -- one question ------------------------------------------------------------------------------------------------------


def score_attempt(question: Question, attempt: Attempt, spent: Tokens, *, judged: float | None = None) -> Prediction:
    """The line of a question that was answered, or tried.

    spent: by the evaluated model for it. judged: what a judge says of the answer, where one was asked.
    """
    answer, golden_answers = attempt.answer, question.golden_answers
    em, f1, covers = 0.0, 0.0, 0.0
    if answer is not None:
        em, f1, covers = (score(answer, golden_answers) for score in (exact_match, f1_score, cover_em))
    return _of(question).model_copy(
        update={
            "answer": answer,
            "em": em,
            "f1": f1,
            "cover_em": covers,
            "judged": judged,
            "gold_recall": _gold_recall(question, attempt),
            "searches": attempt.searches,
            "calls": spent.calls,
            "prompt_tokens": spent.prompt,
            "completion_tokens": spent.completion,
            "malformed": attempt.malformed,
            "steps": list(attempt.steps),
        }
    )


def failed_prediction(question: Question, cause: str, message: str) -> Prediction:
    """The line of a question for which there was no reply to be had, or no search. It is asked again."""
    return _of(question).model_copy(update={"error": QuestionError(cause=cause, message=message)})


def _of(question: Question) -> Prediction:
    return Prediction(
        question_id=question.id,
        question=question.question,
        golden_answers=question.golden_answers,
        type=question.type,
        hops=question.hops,
    )


def _gold_recall(question: Question, attempt: Attempt) -> float | None:
    gold = question.gold
    return None if gold is None else len(gold.among(attempt.read)) / len(gold.keys)


# -- many questions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MetricAggregator:
    """How means and their intervals are computed; see `bootstrap.mean_interval`."""

    samples: int
    confidence: float
    seed: int

    def of(self, predictions: Iterable[Prediction]) -> dict[str, MetricMean]:
        """Every metric that some of the answered questions have."""
        answered = [each for each in predictions if each.error is None]
        found = {name: self.metric([value(each) for each in answered]) for name, value in METRICS.items()}
        return {name: metric for name, metric in found.items() if metric.n}

    def metric(self, values: Iterable[float | None]) -> MetricMean:
        """Of those that are not None."""
        known = [each for each in values if each is not None]
        ends = mean_interval(known, samples=self.samples, confidence=self.confidence, seed=self.seed)
        mean, low, high = (None, None, None) if ends is None else (_rounded(each) for each in ends)
        return MetricMean(value=mean, low=low, high=high, n=len(known))

    def groups(
        self, predictions: Sequence[Prediction], key: Callable[[Prediction], object]
    ) -> dict[str, QuestionGroup]:
        """The same by what `key` says, in its order; questions of which it says None are in no group."""
        answered = [each for each in predictions if each.error is None]
        keys = sorted({found for each in answered if (found := key(each)) is not None}, key=_order)
        members = {each: [one for one in answered if key(one) == each] for each in keys}
        return {str(each): QuestionGroup(questions=len(ones), metrics=self.of(ones)) for each, ones in members.items()}


def _order(key: object) -> tuple[bool, object]:
    return isinstance(key, str), key


def _rounded(value: float) -> float:
    """To ten significant digits: sums in another order differ behind them."""
    return float(f"{value:.10g}")


def latency_summary(seconds: Sequence[float], *, session: float, tokens: int, concurrency: int) -> Latency:
    """Of the questions that took so long each, in a session that gave so many tokens in its seconds."""
    if not seconds:
        return Latency()
    ordered = sorted(seconds)
    return Latency(
        questions=len(ordered),
        concurrency=concurrency,
        mean=round(math.fsum(ordered) / len(ordered), 4),
        p50=round(_quantile(ordered, 0.5), 4),
        p95=round(_quantile(ordered, 0.95), 4),
        seconds=round(session, 4),
        tokens_per_second=round(tokens / session, 1) if session > 0 else None,
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The nearest rank: the smallest value that so large a share does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
