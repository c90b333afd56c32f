"""The commands of evaluation: `reasonrag evaluate`, `ask` and `compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from reasonrag.errors import Interrupted
from reasonrag.evaluation.settings import AskSettings, CompareSettings, EvaluateSettings
from reasonrag.options import FAILED, Json, options, print_result
from reasonrag.rendering import Line
from reasonrag.terminal import TerminalWatcher


@options(EvaluateSettings, example="reasonrag evaluate --dataset hotpotqa --model saves/h --run evals/h")
def evaluate(*, as_json: Json = False, **flags: Any) -> None:
    """Answer the questions of a split with a model, and score the answers: EM, F1, cover-EM, with intervals.

    Also measures gold passages, searches and tokens. Writes predictions.jsonl, report.json and report.md. The same
    command continues an evaluation that was stopped. Exit status 1 if the model or the retriever failed on some
    question.
    """
    from reasonrag.evaluation.evaluate import evaluate as evaluate_run
    from reasonrag.evaluation.report_page import evaluation_parts

    report = evaluate_run(watcher=TerminalWatcher(), **flags)
    print_result(report, evaluation_parts(report), as_json=as_json)
    if report.owed:
        raise typer.Exit(FAILED)


@options(
    AskSettings,
    without=("split", "sample", "limit", "questions", "concurrency", "rpm", "tpm", "yes"),
    example='reasonrag ask "Who built the Eiffel Tower?" --corpus wiki-18 --model saves/h',
)
def ask(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question, in quotes")],
    *,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Answer one question with the agent, and show its steps, evidence and sources.

    Writes no file. Exit status 1 if there is no answer.
    """
    from reasonrag.evaluation.ask import ask as ask_once
    from reasonrag.evaluation.ask import show_step

    told: dict[str, Any] = {} if as_json else {"told": show_step}
    try:
        found = ask_once(question, watcher=TerminalWatcher(), **told, **flags)
    except KeyboardInterrupt:
        raise typer.Exit(Interrupted.exit_status) from None
    print_result(found, found.shown(), as_json=as_json)
    if found.answer is None:
        raise typer.Exit(FAILED)


@options(CompareSettings, example="reasonrag compare evals/base evals/student --judge gpt-4o")
def compare(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN", help="Folders of evaluations; the first is the reference")
    ] = None,
    *,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Compare evaluations of the same questions with the first one: differences with intervals, wins, losses.

    Writes compare.json and compare.md. A gain counts only if cover-EM gains, too. Give several seeds
    of one condition as --group NAME=RUN,RUN. Exit status 1 if some judgement failed.
    """
    from reasonrag.evaluation.compare import compare_into
    from reasonrag.evaluation.comparison_report import PAGE
    from reasonrag.files import COMPARISON

    comparison, written = compare_into(runs or [], flags, watcher=TerminalWatcher())
    wrote = Line(f"wrote {written / PAGE} and {COMPARISON}")
    print_result(comparison, [*comparison.shown(), wrote], as_json=as_json)
    if any(each.preferences and each.preferences.failed for each in comparison.pairs):
        raise typer.Exit(FAILED)
