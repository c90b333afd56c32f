"""`report.md`: an evaluation for people, with examples. Text of questions and models is untrusted and escaped.

Decides what is shown and how numbers are formatted; computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from preference.export.files import write_file
from reasonrag.evaluation.methods.method import StepBudget
from reasonrag.evaluation.metrics import PER_QUESTION
from reasonrag.evaluation.predictions import Prediction
from reasonrag.evaluation.report import MetricMean, QuestionGroup, Report
from reasonrag.redaction import mask_secrets, secrets
from reasonrag.rendering import counted, markdown_templates, of_which_reasoning, percent
from reasonrag.terminal import dollars

PAGE = "report.md"
EXAMPLES = 3
"""Examples of each kind."""
LONGEST = 300
"""Characters shown of a text."""
METRIC_NAMES = {
    "accuracy": "accuracy",
    "em": "EM",
    "f1": "F1",
    "precision": "precision",
    "recall": "recall",
    "cover_em": "cover-EM",
    "judged_right": "judged right",
    "judge_score": "judge's score",
    "gold_recall": "gold passages found",
    "no_answer": "no answer",
    "malformed": "unreadable reply",
    "repaired": "repaired reply",
    "searches": "searches",
    "calls": "completions",
    "prompt_tokens": "prompt tokens",
    "completion_tokens": "completion tokens",
    "critic_calls": "scores of the critic",
    "critic_prompt_tokens": "tokens read by the critic",
}
"""Display names of the metrics, in display order. Those of questions are means per question, the others shares."""
COLUMN_METRICS = {
    "accuracy": "acc.",
    "em": "EM",
    "f1": "F1",
    "cover_em": "cover-EM",
    "judged_right": "judged",
    "gold_recall": "gold",
    "searches": "searches",
    "no_answer": "none",
}
"""Metrics shown by type and hops, as columns."""


def write_page(folder: Path, report: Report, predictions: Sequence[Prediction]) -> None:
    """Write `report.md` atomically."""
    write_file(folder / PAGE, render_report(report, predictions).encode())


def render_report(report: Report, predictions: Sequence[Prediction]) -> str:
    templates = markdown_templates()
    templates.filters["count"] = lambda value: f"{value:,}"
    causes = ", ".join(f"{cause} {count:,}" for cause, count in report.failures_by_cause.items())
    level = percent(report.confidence)
    text = templates.get_template("evaluation.md.j2").render(
        report=report,
        questions=counted(report.questions, "question"),
        failed_because=f" ({causes})" if causes else "",
        percent=level,
        rows=[_row(name, report.metrics[name]) for name in METRIC_NAMES if name in report.metrics],
        groups=[*_groups("type", report.by_type, level), *_groups("hops", report.by_hops, level)],
        costs=list(cost_rows(report)),
        examples=list(_examples(predictions)),
        budget=budget_sentence(report),
        training=training_sentence(report),
        settings=[(name, _setting(value)) for name, value in report.settings.items() if value not in (None, [], "")],
    )
    return mask_secrets(text, secrets())


# -- numbers -----------------------------------------------------------------------------------------------------------


def metric_name(name: str) -> str:
    """The name with its unit: `EM (%)`, `searches`."""
    shown = METRIC_NAMES.get(name, name)
    return shown if name in PER_QUESTION else f"{shown} (%)"


def number(name: str, value: float | None) -> str:
    """A metric, or a difference of two: shares and scores in percent, counts per question as they are."""
    if value is None:
        return "-"
    digits = 2 if name in ("searches", "calls", "critic_calls") else 1
    shown = round(value if name in PER_QUESTION else 100 * value, digits) + 0.0  # no -0.0
    return f"{shown:,.{digits}f}"


def interval(name: str, metric: MetricMean) -> str:
    return "-" if metric.low is None else f"{number(name, metric.low)} to {number(name, metric.high)}"


def _row(name: str, metric: MetricMean) -> dict[str, Any]:
    return {
        "name": metric_name(name),
        "value": number(name, metric.value),
        "interval": interval(name, metric),
        "n": metric.n,
    }


def _groups(title: str, groups: Mapping[str, QuestionGroup], level: str) -> Iterator[dict[str, Any]]:
    """The table by type or hops, none with fewer than two groups. level: of the intervals."""
    if len(groups) > 1:
        columns = [name for name in COLUMN_METRICS if any(name in each.metrics for each in groups.values())]
        rows = [
            {
                "name": name,
                "questions": each.questions,
                "cells": [_cell(metric, each.metrics.get(metric)) for metric in columns],
            }
            for name, each in groups.items()
        ]
        headings = [
            COLUMN_METRICS[name] if name in PER_QUESTION else f"{COLUMN_METRICS[name]}, % ({level} CI)"
            for name in columns
        ]
        yield {"title": title, "columns": headings, "rows": rows}


def _cell(name: str, metric: MetricMean | None) -> str:
    if metric is None:
        return "-"
    return (
        number(name, metric.value)
        if name in PER_QUESTION
        else f"{number(name, metric.value)} ({interval(name, metric)})"
    )


def cost_rows(report: Report) -> Iterator[tuple[str, str]]:
    """The cost of the answers, as rows."""
    usage = report.usage
    yield "completions", f"{usage.calls:,}"
    reasoning = of_which_reasoning(usage.reasoning_tokens)
    yield "tokens", f"{usage.prompt_tokens:,} in, {usage.completion_tokens:,} out{reasoning}"
    if report.judge:
        tokens = f"{usage.judge_prompt_tokens:,} tokens in, {usage.judge_completion_tokens:,} out"
        yield f"judged by {report.judge}", f"{usage.judge_calls:,} completions, {tokens}{_unjudged(report)}"
    if report.critic:
        yield (
            f"scored by {report.critic}",
            f"{counted(usage.critic_calls, 'step')}, {usage.critic_prompt_tokens:,} tokens in",
        )
    yield "cost", "unknown" if report.cost_usd is None else dollars(report.cost_usd)


def _unjudged(report: Report) -> str:
    shown = ", ".join(f"{cause} {count:,}" for cause, count in report.unjudged_by_cause.items())
    return f"; without a score: {shown}" if shown else ""


def budget_sentence(report: Report) -> str:
    """What an answer might use, whatever the method, and what became of an unreadable reply."""
    repaired = "one repair turn" if report.repair else "no repair turn"
    budget, attempts = StepBudget.of(report.asked.max_steps), report.vote or 1
    most = attempts * budget.searches
    searches = f"{most:,} {'search' if most == 1 else 'searches'}"
    completions = counted((report.best_of or attempts) * budget.completions, "completion")
    several = f", in {attempts} attempts that vote" if report.vote else ""
    several = f", {report.best_of} of them in every state, of which the best is taken" if report.best_of else several
    return f"at most {completions} and {searches} a question{several}; {repaired} for an unreadable reply"


def training_sentence(report: Report) -> str:
    """How and on what the model was trained, in a sentence."""
    known = report.provenance
    if known is None:
        return "No training provenance found for this model."
    how = " ".join(filter(None, [known.stage, known.finetuning_type]))
    began = f" of {known.base_model}" if known.base_model else ""
    data = f" on {', '.join(known.data)}" if known.data else ""
    return f"{how or 'trained'}{began}{data}, {counted(known.questions, 'question')}, as {known.source} records."


# -- examples ----------------------------------------------------------------------------------------------------------


def _examples(predictions: Sequence[Prediction]) -> Iterator[dict[str, Any]]:
    """The first few right, wrong, unanswered and failed questions."""
    kinds = {
        "Right": [each for each in predictions if each.em],
        "Wrong": [each for each in predictions if each.error is None and each.answer is not None and not each.em],
        "No answer": [each for each in predictions if each.error is None and each.answer is None],
        "Failed": [each for each in predictions if each.error is not None],
    }
    for kind, found in kinds.items():
        for each in found[:EXAMPLES]:
            yield {
                "title": f"{kind} ({each.question_id})",
                "question": shortened(each.question),
                "golden": shortened(" or ".join(each.golden_answers)),
                "answer": shortened(_answer(each)),
                "steps": [shortened(_step(each, place)) for place in range(len(each.steps))],
            }


def _answer(prediction: Prediction) -> str:
    if prediction.error is not None:
        return f"none: {prediction.error.cause}: {prediction.error.message}"
    return "none" if prediction.answer is None else prediction.answer


def _step(prediction: Prediction, place: int) -> str:
    step = prediction.steps[place]
    titles = f" [{', '.join(each.title for each in step.passages)}]" if step.passages else ""
    searched = f" (uncertain, so it was searched with: {step.query})" if step.query else ""
    cause = f"{step.parse_error}: " if step.parse_error else ""
    return f"{step.action}{titles}{choice_text(step.drafts, step.score)}: {cause}{step.response}{searched}"


def choice_text(drafts: int, score: float | None) -> str:
    """Of how many drafts a step was taken, and with which score; nothing without a critic."""
    if not drafts:
        return ""
    return f" (none of {drafts} drafts takes a step)" if score is None else f" (best of {drafts}: {score:.3f})"


def shortened(text: str, longest: int = LONGEST) -> str:
    """One line of the text without secrets, which are hidden before it is cut."""
    text = " ".join(mask_secrets(text, secrets()).split())
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _setting(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
