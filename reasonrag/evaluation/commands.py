"""The commands of this package: each parses its flags, calls one function and shows what it returns.

Loads nothing heavy before a command needs it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from reasonrag.errors import Interrupted
from reasonrag.evaluation.settings import AskSettings, CompareSettings, EvaluateSettings
from reasonrag.options import (
    AGENT,
    DATA,
    FAILED,
    JSON,
    MACHINE,
    MONEY,
    PASSAGES,
    caps,
    flag,
    interrupts,
    switch,
)

JUDGED, MEASURED, CHECKED = "Who judges answers", "What is measured", "What is held against the model's training"


def _of_evaluate(name: str, panel: str) -> Any:
    return flag(EvaluateSettings, name, panel)


def _of_ask(name: str, panel: str) -> Any:
    return flag(AskSettings, name, panel)


def evaluate(
    run: Annotated[Optional[Path], _of_evaluate("run", MACHINE)] = None,
    dataset: Annotated[Optional[str], _of_evaluate("dataset", DATA)] = None,
    split: Annotated[Optional[str], _of_evaluate("split", DATA)] = None,
    limit: Annotated[Optional[int], _of_evaluate("limit", DATA)] = None,
    data_dir: Annotated[Optional[Path], _of_evaluate("data_dir", DATA)] = None,
    questions: Annotated[Optional[Path], _of_evaluate("questions", DATA)] = None,
    corpus: Annotated[Optional[Path], _of_evaluate("corpus", DATA)] = None,
    retriever: Annotated[Optional[str], _of_evaluate("retriever", PASSAGES)] = None,
    index: Annotated[Optional[list[Path]], _of_evaluate("index", PASSAGES)] = None,
    index_home: Annotated[Optional[Path], _of_evaluate("index_home", PASSAGES)] = None,
    encoder: Annotated[Optional[str], _of_evaluate("encoder", PASSAGES)] = None,
    index_type: Annotated[Optional[str], _of_evaluate("index_type", PASSAGES)] = None,
    reranker: Annotated[Optional[str], _of_evaluate("reranker", PASSAGES)] = None,
    gpu: Annotated[Optional[bool], switch(EvaluateSettings, "gpu", PASSAGES)] = None,
    top_k: Annotated[Optional[int], _of_evaluate("top_k", PASSAGES)] = None,
    model: Annotated[Optional[str], _of_evaluate("model", AGENT)] = None,
    base_url: Annotated[Optional[list[str]], _of_evaluate("base_url", AGENT)] = None,
    base_model: Annotated[Optional[str], _of_evaluate("base_model", AGENT)] = None,
    method: Annotated[Optional[str], _of_evaluate("method", AGENT)] = None,
    prompts: Annotated[Optional[Path], _of_evaluate("prompts", AGENT)] = None,
    max_steps: Annotated[Optional[int], _of_evaluate("max_steps", AGENT)] = None,
    iterations: Annotated[Optional[int], _of_evaluate("iterations", AGENT)] = None,
    max_searches: Annotated[Optional[int], _of_evaluate("max_searches", AGENT)] = None,
    temperature: Annotated[Optional[float], _of_evaluate("temperature", AGENT)] = None,
    top_p: Annotated[Optional[float], _of_evaluate("top_p", AGENT)] = None,
    max_reply_tokens: Annotated[Optional[int], _of_evaluate("max_reply_tokens", AGENT)] = None,
    seed: Annotated[Optional[int], _of_evaluate("seed", AGENT)] = None,
    trained_on: Annotated[Optional[Path], _of_evaluate("trained_on", CHECKED)] = None,
    allow: Annotated[Optional[list[str]], _of_evaluate("allow", CHECKED)] = None,
    judge: Annotated[Optional[str], _of_evaluate("judge", JUDGED)] = None,
    judge_base_url: Annotated[Optional[list[str]], _of_evaluate("judge_base_url", JUDGED)] = None,
    bootstrap: Annotated[Optional[int], _of_evaluate("bootstrap", MEASURED)] = None,
    bootstrap_seed: Annotated[Optional[int], _of_evaluate("bootstrap_seed", MEASURED)] = None,
    confidence: Annotated[Optional[float], _of_evaluate("confidence", MEASURED)] = None,
    concurrency: Annotated[Optional[int], _of_evaluate("concurrency", MACHINE)] = None,
    rpm: Annotated[Optional[int], _of_evaluate("rpm", MACHINE)] = None,
    tpm: Annotated[Optional[int], _of_evaluate("tpm", MACHINE)] = None,
    timeout: Annotated[Optional[float], _of_evaluate("timeout", MACHINE)] = None,
    patience: Annotated[Optional[float], _of_evaluate("patience", MACHINE)] = None,
    max_cost: Annotated[Optional[float], _of_evaluate("max_cost", MONEY)] = None,
    max_calls: Annotated[Optional[int], _of_evaluate("max_calls", MONEY)] = None,
    max_tokens: Annotated[Optional[int], _of_evaluate("max_tokens", MONEY)] = None,
    price_in: Annotated[Optional[float], _of_evaluate("price_in", MONEY)] = None,
    price_out: Annotated[Optional[float], _of_evaluate("price_out", MONEY)] = None,
    judge_price_in: Annotated[Optional[float], _of_evaluate("judge_price_in", MONEY)] = None,
    judge_price_out: Annotated[Optional[float], _of_evaluate("judge_price_out", MONEY)] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Answer a split with a model and measure it: EM, F1, cover-EM, gold passages, searches, tokens, with intervals.

    Writes predictions.jsonl, report.json and report.md. A run that was stopped goes on with the same command. Exit
    status 1 where model or retriever gave nothing for some question.
    """
    flags = {name: value for name, value in locals().items() if name != "as_json"}
    from reasonrag.evaluation.evaluate import evaluate as evaluate_run
    from reasonrag.evaluation.pages.display import show_evaluation
    from reasonrag.terminal import TerminalWatcher

    with interrupts(), caps():
        report = evaluate_run(watcher=TerminalWatcher(), **flags)
    if as_json:
        print(report.model_dump_json())
    else:
        show_evaluation(report)
    if report.owed:
        raise typer.Exit(FAILED)


def ask(
    question: Annotated[str, typer.Argument(help="What to ask, in quotes")],
    dataset: Annotated[Optional[str], _of_ask("dataset", PASSAGES)] = None,
    data_dir: Annotated[Optional[Path], _of_ask("data_dir", PASSAGES)] = None,
    corpus: Annotated[Optional[Path], _of_ask("corpus", PASSAGES)] = None,
    retriever: Annotated[Optional[str], _of_ask("retriever", PASSAGES)] = None,
    index: Annotated[Optional[list[Path]], _of_ask("index", PASSAGES)] = None,
    index_home: Annotated[Optional[Path], _of_ask("index_home", PASSAGES)] = None,
    encoder: Annotated[Optional[str], _of_ask("encoder", PASSAGES)] = None,
    index_type: Annotated[Optional[str], _of_ask("index_type", PASSAGES)] = None,
    reranker: Annotated[Optional[str], _of_ask("reranker", PASSAGES)] = None,
    gpu: Annotated[Optional[bool], switch(AskSettings, "gpu", PASSAGES)] = None,
    top_k: Annotated[Optional[int], _of_ask("top_k", PASSAGES)] = None,
    model: Annotated[Optional[str], _of_ask("model", AGENT)] = None,
    base_url: Annotated[Optional[list[str]], _of_ask("base_url", AGENT)] = None,
    base_model: Annotated[Optional[str], _of_ask("base_model", AGENT)] = None,
    trained_on: Annotated[Optional[Path], _of_ask("trained_on", AGENT)] = None,
    prompts: Annotated[Optional[Path], _of_ask("prompts", AGENT)] = None,
    max_steps: Annotated[Optional[int], _of_ask("max_steps", AGENT)] = None,
    temperature: Annotated[Optional[float], _of_ask("temperature", AGENT)] = None,
    top_p: Annotated[Optional[float], _of_ask("top_p", AGENT)] = None,
    max_reply_tokens: Annotated[Optional[int], _of_ask("max_reply_tokens", AGENT)] = None,
    seed: Annotated[Optional[int], _of_ask("seed", AGENT)] = None,
    timeout: Annotated[Optional[float], _of_ask("timeout", MACHINE)] = None,
    patience: Annotated[Optional[float], _of_ask("patience", MACHINE)] = None,
    max_cost: Annotated[Optional[float], _of_ask("max_cost", MONEY)] = None,
    max_calls: Annotated[Optional[int], _of_ask("max_calls", MONEY)] = None,
    max_tokens: Annotated[Optional[int], _of_ask("max_tokens", MONEY)] = None,
    price_in: Annotated[Optional[float], _of_ask("price_in", MONEY)] = None,
    price_out: Annotated[Optional[float], _of_ask("price_out", MONEY)] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Answer one question with the agent: its steps as they are taken, evidence, sources, answer. Writes no file.

    Exit status 1 where there is no answer.
    """
    flags = {name: value for name, value in locals().items() if name not in ("as_json", "question")}
    from reasonrag.evaluation.ask import ask as ask_once
    from reasonrag.evaluation.pages.display import show_answer, show_step
    from reasonrag.terminal import TerminalWatcher

    told: dict[str, Any] = {} if as_json else {"told": show_step}
    try:
        with caps():
            found = ask_once(question, watcher=TerminalWatcher(), **told, **flags)
    except KeyboardInterrupt:
        raise typer.Exit(Interrupted.exit_status) from None
    if as_json:
        print(found.model_dump_json())
    else:
        show_answer(found)
    if found.answer is None:
        raise typer.Exit(FAILED)


def compare(
    runs: Annotated[
        Optional[list[Path]], typer.Argument(help="Directories of evaluate; others are held against the first")
    ] = None,
    group: Annotated[Optional[list[str]], flag(CompareSettings, "group")] = None,
    out: Annotated[Optional[Path], flag(CompareSettings, "out")] = None,
    examples: Annotated[Optional[int], flag(CompareSettings, "examples")] = None,
    confidence: Annotated[Optional[float], flag(CompareSettings, "confidence")] = None,
    bootstrap: Annotated[Optional[int], flag(CompareSettings, "bootstrap")] = None,
    seed: Annotated[Optional[int], flag(CompareSettings, "seed")] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Hold evaluations of the same questions against the first: differences with intervals, wins and losses.

    Writes compare.json, compare.md and compare.svg. A gain counts only if cover-EM gains, too. Several seeds of one
    condition are one with --group NAME=RUN,RUN.
    """
    flags = {name: value for name, value in locals().items() if name not in ("as_json", "runs")}
    from reasonrag.evaluation.compare import compare_into
    from reasonrag.evaluation.pages.comparison_display import show_comparison, show_warnings

    comparison, written = compare_into(runs or [], flags)
    show_warnings(comparison)
    if as_json:
        print(comparison.model_dump_json())
    else:
        show_comparison(comparison, written)
