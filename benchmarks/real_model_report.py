"""What the real model did: figures with intervals, differences, habits, and what they do not show.

Reads the files of runs, evaluations and comparisons; `real_model` writes them.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reporting import table

from preference import normalize_answer
from preference.answer_scores import cover_em
from reasonrag.evaluation.predictions import PredictedStep, Prediction, read_predictions
from reasonrag.exploration.degeneracy import PAGE

if TYPE_CHECKING:
    from real_model import Experiment

BASE, SFT, ARMS = "base", "sft", ("dpo", "dpo-sft", "more-sft")
MODELS = (BASE, SFT, *ARMS)
METHODS = ("agent", "rag")
HELD_OUT = ("popqa", "2wikimultihopqa")
METRICS = {
    "EM": "em",
    "F1": "f1",
    "cover-EM": "cover_em",
    "gold passages found": "gold_recall",
    "unreadable": "malformed",
}


@dataclass(frozen=True)
class Asked:
    """A model that answered the held-out questions of a data set by a method."""

    model: str
    method: str
    data_set: str

    def __str__(self) -> str:
        return f"{self.model} {self.method} {self.data_set}"


def compared(data_set: str) -> list[tuple[Asked, Asked]]:
    """Each model with the one that it was trained from, and each agent with `rag` of the same model."""
    agent = {model: Asked(model, "agent", data_set) for model in MODELS}
    return [
        (agent[BASE], agent[SFT]),
        *((agent[SFT], agent[arm]) for arm in ARMS),
        *((Asked(model, "rag", data_set), agent[model]) for model in MODELS),
    ]


def report(experiment: Experiment) -> Iterator[str]:
    plan = experiment.plan
    yield (
        f"\nSmolLM2-135M-Instruct (134.5 M parameters, from 4 bits) on {plan.heldout} held-out questions of each set, "
        f"greedy, BM25 over the set's small corpus, 3 passages of at most {plan.passage_chars} characters, at most "
        f"{plan.max_steps} steps: scores cannot be compared with published ones. One model and one seed: 95 % "
        "intervals are over questions, are not corrected for the number of comparisons, and say nothing about the "
        "method; two seeds would not either. No training setting was tuned. The warm-up teaches the offline teacher's "
        "habits along with the format, titles in evidence among them."
    )
    if preloaded := os.environ.get("LD_PRELOAD"):
        yield f"\nRun with LD_PRELOAD={Path(preloaded).name}, which changes speed."
    done = experiment.phases.took
    yield from training(experiment, [model for model in (SFT, *ARMS) if model in done])
    if "explore" in done:
        yield from exploration([experiment.explored(name) for name in plan.explore])
    for name in HELD_OUT:
        if f"{BASE} {METHODS[0]} {name}" not in done:
            yield f"\nOn {name} no model was asked."
            continue
        asked = [Asked(model, method, name) for method in METHODS for model in MODELS]
        evaluated = [each for each in asked if str(each) in done]
        yield from scores(name, {each: read_json(experiment.evaluation(each) / "report.json") for each in evaluated})
        if missing := [f"{each.model} {each.method}" for each in asked if each not in evaluated]:
            yield f"\nNot asked on {name}: {', '.join(missing)}."
        pairs = [(one, other) for one, other in compared(name) if {str(one), str(other)} <= done.keys()]
        yield from differences(
            name, {pair: read_json(experiment.comparison(*pair) / "compare.json")["pairs"][0] for pair in pairs}
        )
        yield from habits(
            name,
            {each.model: read_predictions(experiment.evaluation(each)) for each in evaluated if each.method == "agent"},
        )
    seconds = ", ".join(f"{name} {took:.0f}" for name, took in done.items() if took >= 1)
    yield f"\nSeconds (a phase of several commands contains theirs): {seconds}."


def training(experiment: Experiment, names: Sequence[str]) -> Iterator[str]:
    logs = [read_log(experiment.work / name / "trainer_log.jsonl") for name in names]
    yield from table(
        "Training",
        {
            "model": list(names),
            "rows": [f"{len(experiment.rows(name)):,}" for name in names],
            "optimizer steps": [str(log[-1]["total_steps"]) for log in logs],
            "loss, first and last tenth": [
                f"{mean_loss(log[: max(1, len(log) // 10)]):.3f} to {mean_loss(log[-max(1, len(log) // 10) :]):.3f}"
                for log in logs
            ],
            "seconds": [f"{experiment.phases.took[name]:.0f}" for name in names],
        },
    )


def exploration(runs: Sequence[Path]) -> Iterator[str]:
    """The warmed-up model as a teacher."""
    summaries = [read_json(run / "summary.json") for run in runs]
    names = [run.name.removeprefix("explored-") for run in runs]
    yield from table(
        f"Its own exploration (signs: {PAGE})",
        {
            "questions": [f"{each['done']} of {name}" for name, each in zip(names, summaries, strict=True)],
            "completions": [f"{each['calls']:,}" for each in summaries],
            "completions/s": [speed(each) for each in summaries],
            "repair turns": [f"{each['repair_turns']:,}" for each in summaries],
            "unreadable, by cause": [counted(each["parse_failures_by_cause"]) for each in summaries],
            "questions with mixed outcomes": [str(each["questions_mixed"]) for each in summaries],
            "signs": [counted(each["degenerate"]) for each in summaries],
        },
    )


def speed(summary: dict[str, Any]) -> str:
    """Known only of a run that was not stopped: completions are of all its sessions, seconds of the last one."""
    whole = summary["session_questions"] == summary["questions"] and not summary["session_cached_calls"]
    return f"{summary['calls'] / summary['session_seconds']:.1f}" if whole else "-"


def scores(name: str, found: dict[Asked, dict[str, Any]]) -> Iterator[str]:
    rows = [each["metrics"] for each in found.values()]
    columns = {title: [shown(metrics.get(metric)) for metrics in rows] for title, metric in METRICS.items()}
    yield from table(
        f"{name}, % (95 % interval)",
        {
            "model": [each.model for each in found],
            "method": [each.method for each in found],
            **columns,
            "searches": [f"{metrics['searches']['value']:.2f}" for metrics in rows],
            "prompt tokens": [f"{metrics['prompt_tokens']['value']:,.0f}" for metrics in rows],
        },
    )


def differences(name: str, found: dict[tuple[Asked, Asked], dict[str, Any]]) -> Iterator[str]:
    pairs = found.values()
    yield from table(
        f"{name}, differences in points, paired by question",
        {
            "of": [f"{other.method} of {other.model}" for _, other in found],
            "from": [f"{reference.method} of {reference.model}" for reference, _ in found],
            **{
                title: [shown(pair["metrics"][metric], sign="+") for pair in pairs]
                for title, metric in (("EM", "em"), ("F1", "f1"), ("cover-EM", "cover_em"))
            },
            "p (EM)": [p_value(pair["tests"]["em"]) for pair in pairs],
            "verdict": [pair["verdict"].replace("_", " ") for pair in pairs],
        },
    )


# -- habits ------------------------------------------------------------------------------------------------------


def habits(name: str, replies: dict[str, list[Prediction]]) -> Iterator[str]:
    """How often each model did what small models tend to do."""
    yield from table(
        f"{name}, habits of the agent",
        {
            "": [title for title, _ in HABITS],
            **{model: [measured(predictions) for _, measured in HABITS] for model, predictions in replies.items()},
        },
    )


def share(case: Callable[[PredictedStep], bool | None]) -> Callable[[list[Prediction]], str]:
    """How many of the steps for which `case` is not None."""

    def measured(predictions: list[Prediction]) -> str:
        return ratio(case(step) for each in predictions for step in each.steps)

    return measured


def ratio(cases: Iterable[bool | None]) -> str:
    known = [case for case in cases if case is not None]
    return f"{sum(known)} of {len(known)}"


def causes(predictions: list[Prediction]) -> str:
    return counted(Counter(step.parse_error for each in predictions for step in each.steps if step.parse_error))


def repeats_itself(text: str) -> bool:
    """Whether some four words occur three times in it."""
    words, times = text.split(), 3
    runs = Counter(zip(*(words[start:] for start in range(4)), strict=False))
    return max(runs.values(), default=0) >= times


def repeated_queries(predictions: list[Prediction]) -> str:
    """Queries after the first that repeat one."""
    cases: list[bool] = []
    for each in predictions:
        asked = [normalize_answer(step.content) for step in each.steps if "<query>" in step.response and step.content]
        cases += [query in asked[:place] for place, query in enumerate(asked) if place]
    return ratio(cases)


def question_as_query(predictions: list[Prediction]) -> str:
    firsts = [(each, next((step for step in each.steps if "<query>" in step.response), None)) for each in predictions]
    return ratio(
        normalize_answer(step.content or "") == normalize_answer(each.question) for each, step in firsts if step
    )


def title_copied(step: PredictedStep) -> bool | None:
    if step.action != "read" or step.content is None:
        return None
    return any(step.content.startswith(passage.title) for passage in step.passages if passage.title)


def nothing_found(step: PredictedStep) -> bool | None:
    return None if step.action != "read" or step.content is None else normalize_answer(step.content) == "none"


def answer_without_evidence(predictions: list[Prediction]) -> str:
    """Answers, yes and no apart, that no evidence holds."""
    return ratio(
        not any(cover_em(step.content or "", [each.answer]) for step in each.steps if step.action == "read")
        for each in predictions
        if each.answer and normalize_answer(each.answer) not in ("yes", "no")
    )


def forced(predictions: list[Prediction]) -> str:
    return ratio(each.steps[-1].action == "conclude" for each in predictions if each.steps)


def wordy(predictions: list[Prediction]) -> str:
    return ratio(bool(each.cover_em and not each.em) for each in predictions if each.cover_em)


HABITS: tuple[tuple[str, Callable[[list[Prediction]], str]], ...] = (
    ("replies that could not be read, after the repair turn", share(lambda step: step.parse_error is not None)),
    ("their causes", causes),
    ("replies that the repair turn mended", share(lambda step: step.repaired)),
    ("replies that say some four words three times", share(lambda step: repeats_itself(step.response))),
    ("first queries that are the question", question_as_query),
    ("queries that repeat an earlier one", repeated_queries),
    ("evidence that is none", share(nothing_found)),
    ("evidence that begins with a passage's title", share(title_copied)),
    ("questions whose last step had to be the answer", forced),
    ("answers that no evidence holds", answer_without_evidence),
    ("right answers among other words (cover-EM without EM)", wordy),
)


# -- files -------------------------------------------------------------------------------------------------------


def shown(metric: dict[str, Any] | None, *, sign: str = "") -> str:
    if metric is None:
        return "-"
    low, high = (f"{100 * metric[end]:{sign}.1f}" for end in ("low", "high"))
    return f"{100 * metric['value']:{sign}.1f} ({low} to {high})"


def counted(counts: dict[str, int]) -> str:
    return (
        ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in sorted(counts.items(), key=lambda each: -each[1]))
        or "-"
    )


def p_value(p: float) -> str:
    return "<0.001" if (shown := f"{p:.3f}") == "0.000" else shown


def read_json(file: Path) -> Any:
    return json.loads(file.read_bytes())


def read_log(file: Path) -> list[dict[str, Any]]:
    return [row for line in file.read_text("utf-8").splitlines() if "loss" in (row := json.loads(line))]


def mean_loss(rows: Sequence[dict[str, Any]]) -> float:
    return sum(row["loss"] for row in rows) / len(rows)
