"""The answer metrics: scores of one attempt (`score_attempt`), and their means over questions (`METRICS`).

A question without an answer scores 0; one that failed at the model or retriever is in no mean. A metric that not every
question has (options, gold passages, a judgement) is averaged over those that have it. An answer that names an option
is scored as that option's text. Knows no model and no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from preference import cover_em, exact_match, f1_score, token_precision, token_recall
from preference.records import QuestionError, shared_fields
from reasonrag.agent.outcomes import RIGHT_FROM, judge_agrees
from reasonrag.data.multiple_choice import choice_accuracy, in_words
from reasonrag.data.questions import Question
from reasonrag.evaluation.methods.method import Attempt
from reasonrag.evaluation.predictions import AnswerSupport, CriticUsage, Prediction
from reasonrag.evaluation.report import MetricMean, QuestionGroup
from reasonrag.evaluation.significance import mean_interval
from reasonrag.llm.budget import Tokens


class Metric(NamedTuple):
    """name: as it is shown. value: for a prediction; None where it has none. of_groups: shown by type and hops, too.
    counts: a number per question; others are in [0, 1] and shown in percent."""

    name: str
    value: Callable[[Prediction], float | None]
    of_groups: bool = False
    counts: bool = False


def _share(prediction: Prediction, part: str, whole: str) -> float | None:
    """Of a long answer whose support was judged, and that has any of these."""
    found = prediction.support
    return getattr(found, part) / getattr(found, whole) if found and getattr(found, whole) else None


METRICS = {
    "accuracy": Metric(
        "accuracy", lambda each: choice_accuracy(each.question, each.golden_answers, each.answer), of_groups=True
    ),
    "em": Metric("EM", lambda each: each.em, of_groups=True),
    "f1": Metric("F1", lambda each: each.f1, of_groups=True),
    "precision": Metric("precision", lambda each: _of_answer(token_precision, each)),
    "recall": Metric("recall", lambda each: _of_answer(token_recall, each)),
    "cover_em": Metric("cover-EM", lambda each: each.cover_em, of_groups=True),
    "judged_right": Metric(
        "judged right", lambda each: None if each.judged is None else float(each.judged >= RIGHT_FROM), of_groups=True
    ),
    "judge_score": Metric("judge's score", lambda each: each.judged),
    "preference": Metric("preferred by the judge", lambda _: None),
    "judge_agrees": Metric(
        "judge agrees with gold",
        lambda each: judge_agrees(each.judged, each.answer, each.golden_answers),
        of_groups=True,
    ),
    "faithfulness": Metric("sentences supported", lambda each: _share(each, "supported", "sentences"), of_groups=True),
    "citation_recall": Metric("sentences rightly cited", lambda each: _share(each, "cited", "sentences")),
    "citation_precision": Metric("citations right", lambda each: _share(each, "right_citations", "citations")),
    "gold_recall": Metric("gold passages found", lambda each: each.gold_recall, of_groups=True),
    "no_answer": Metric("no answer", lambda each: float(each.answer is None), of_groups=True),
    "malformed": Metric("unreadable reply", lambda each: float(each.malformed)),
    "repaired": Metric("repaired reply", lambda each: float(any(step.repaired for step in each.steps))),
    "searches": Metric("searches", lambda each: float(each.searches), of_groups=True, counts=True),
    "calls": Metric("completions", lambda each: float(each.calls), counts=True),
    "prompt_tokens": Metric("prompt tokens", lambda each: float(each.prompt_tokens), counts=True),
    "completion_tokens": Metric("completion tokens", lambda each: float(each.completion_tokens), counts=True),
    "critic_calls": Metric(
        "scores of the critic", lambda each: each.critic.calls if each.critic else None, counts=True
    ),
    "critic_prompt_tokens": Metric(
        "tokens read by the critic", lambda each: each.critic.prompt_tokens if each.critic else None, counts=True
    ),
}
"""By their names in records, in the order shown. preference: of two answers, by compare --judge; no answer has it by
itself. judge_agrees: see `agent.outcomes`. no_answer (nothing to score), malformed (a reply could not be parsed, even
after its repair turn) and repaired (that mended a reply) average to shares of questions."""


def capitalized(name: str) -> str:
    """A metric's name at the beginning of a sentence."""
    return name[0].upper() + name[1:]


def score_attempt(
    question: Question,
    attempt: Attempt,
    spent: Tokens,
    *,
    judged: float | None = None,
    support: AnswerSupport | None = None,
    scored: Tokens | None = None,
) -> Prediction:
    """The prediction of a question that was answered or attempted.

    spent: tokens of the evaluated model. judged, support: what the judge says of the answer, if one was asked. scored:
    tokens of the critic, if there is one.
    """
    answered, gold = _of(question).model_copy(update={"answer": attempt.answer}), question.gold
    return answered.model_copy(
        update={
            "em": _of_answer(exact_match, answered),
            "f1": _of_answer(f1_score, answered),
            "cover_em": _of_answer(cover_em, answered),
            "judged": judged,
            "support": support,
            "gold_recall": None if gold is None else len(gold.found_in(attempt.read)) / len(gold.keys),
            "searches": attempt.searches,
            **shared_fields(spent, Prediction),
            "malformed": attempt.malformed,
            "steps": list(attempt.steps),
            "votes": list(attempt.votes),
            "critic": CriticUsage(**shared_fields(scored, CriticUsage)) if scored else None,
        }
    )


def failed_prediction(question: Question, error: QuestionError) -> Prediction:
    """The prediction of a question that failed at the model or retriever; it is asked again."""
    return _of(question).model_copy(update={"error": error})


def _of(question: Question) -> Prediction:
    return Prediction(
        question_id=question.id,
        question=question.question,
        golden_answers=question.golden_answers,
        type=question.type,
        hops=question.hops,
        gold_passages=None if question.gold is None else list(question.gold.names),
    )


def _of_answer(score: Callable[[str, Sequence[str]], float], prediction: Prediction) -> float | None:
    """A score that needs the answer and its gold answers alone; 0 without an answer, None without gold answers."""
    if not prediction.golden_answers:
        return None
    if prediction.answer is None:
        return 0.0
    return score(in_words(prediction.question, prediction.answer), prediction.golden_answers)


def metric_means(predictions: Iterable[Prediction]) -> dict[str, MetricMean]:
    """Every metric that any answered question has, with its interval; see `significance.mean_interval`."""
    answered = [each for each in predictions if each.error is None]
    found = {name: _mean_of(map(metric.value, answered)) for name, metric in METRICS.items()}
    if not found["citation_precision"].n:  # nothing is cited: our prompts do not ask for it
        del found["citation_recall"]
    return {name: metric for name, metric in found.items() if metric.n}


def _mean_of(values: Iterable[float | None]) -> MetricMean:
    """The mean of the values that are not None, in ten significant digits: in these the order of a sum is not seen."""
    known = [each for each in values if each is not None]
    ends = mean_interval(known)
    mean, low, high = (None, None, None) if ends is None else (float(f"{each:.10g}") for each in ends)
    return MetricMean(value=mean, low=low, high=high, n=len(known))


def grouped_means(predictions: Sequence[Prediction], key: Callable[[Prediction], object]) -> dict[str, QuestionGroup]:
    """The metrics of groups by `key`, sorted; questions with key None are in no group."""
    answered = [each for each in predictions if each.error is None]
    found = {each for one in answered if (each := key(one)) is not None}
    members = {
        each: [one for one in answered if key(one) == each]
        for each in sorted(found, key=lambda each: (isinstance(each, str), each))
    }
    return {str(each): QuestionGroup(questions=len(ones), metrics=metric_means(ones)) for each, ones in members.items()}
