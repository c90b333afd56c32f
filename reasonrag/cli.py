"""The command line: a command parses its flags, calls one function, and shows the result.

Results go to stdout, progress and errors to stderr. Exit status: 0 every question has a rollout, 1 some question has an
error, the endpoint was lost or the trees teach nothing, 2 bad input and nothing started, 3 stopped by a cap, 130
interrupted. Nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from reasonrag import __version__
from reasonrag.curation.settings import AuditSettings, ImportSettings, PairingSettings, PairsSettings, ReviewSettings
from reasonrag.errors import InputError, Interrupted, ReasonragError, UploadStopped
from reasonrag.evaluation.commands import ask, compare, evaluate
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.options import (
    AGENT,
    BAD_INPUT,
    DATA,
    FAILED,
    JSON,
    MACHINE,
    MONEY,
    PASSAGES,
    SEARCH,
    caps,
    flag,
    interrupts,
    leave,
    switch,
    this_command,
    with_flags_of,
)
from reasonrag.options import arguments as arguments_of_this
from reasonrag.publishing.settings import PublishSettings
from reasonrag.redaction import redact
from reasonrag.retrieval.settings import IndexSettings, ServeSettings
from reasonrag.studies.settings import CalibrateSettings, TuneSettings
from reasonrag.terminal import shown
from reasonrag.training.commands import train
from reasonrag.training.doctor_commands import doctor
from reasonrag.viewing.commands import show, stats, view

app = typer.Typer(
    name="reasonrag",
    help="From questions and a corpus to step-level preference data for agentic RAG.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
index_app = typer.Typer(help="Indexes over a corpus.", no_args_is_help=True)
app.add_typer(index_app, name="index")


OF_A_VALUE_MODEL = [name for name in GenerateSettings.model_fields if name.startswith("value_")]
OF_A_DATA_SET = ("runs", "as_json", "dry_run", *(set(PairsSettings.model_fields) - set(PairingSettings.model_fields)))
"""Flags of `pairs` that trials have no use for."""


def _generate_flag(name: str, panel: str) -> Any:
    return flag(GenerateSettings, name, panel)


def _generate_switch(name: str, panel: str) -> Any:
    return switch(GenerateSettings, name, panel)


TRIALS = "What is tried"


def _version(asked: bool) -> None:
    if asked:
        print(f"reasonrag {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version")
    ] = False,
) -> None:
    """From questions and a corpus to step-level preference data for agentic RAG."""


@app.command()
def generate(
    run: Annotated[Optional[Path], _generate_flag("run", MACHINE)] = None,
    dataset: Annotated[Optional[str], _generate_flag("dataset", DATA)] = None,
    split: Annotated[Optional[str], _generate_flag("split", DATA)] = None,
    limit: Annotated[Optional[int], _generate_flag("limit", DATA)] = None,
    data_dir: Annotated[Optional[Path], _generate_flag("data_dir", DATA)] = None,
    questions: Annotated[Optional[Path], _generate_flag("questions", DATA)] = None,
    corpus: Annotated[Optional[Path], _generate_flag("corpus", DATA)] = None,
    retriever: Annotated[Optional[str], _generate_flag("retriever", PASSAGES)] = None,
    index: Annotated[Optional[list[Path]], _generate_flag("index", PASSAGES)] = None,
    index_home: Annotated[Optional[Path], _generate_flag("index_home", PASSAGES)] = None,
    encoder: Annotated[Optional[str], _generate_flag("encoder", PASSAGES)] = None,
    index_type: Annotated[Optional[str], _generate_flag("index_type", PASSAGES)] = None,
    reranker: Annotated[Optional[str], _generate_flag("reranker", PASSAGES)] = None,
    gpu: Annotated[Optional[bool], _generate_switch("gpu", PASSAGES)] = None,
    top_k: Annotated[Optional[int], _generate_flag("top_k", PASSAGES)] = None,
    model: Annotated[Optional[str], _generate_flag("model", AGENT)] = None,
    base_url: Annotated[Optional[list[str]], _generate_flag("base_url", AGENT)] = None,
    value_model: Annotated[Optional[str], _generate_flag("value_model", AGENT)] = None,
    value_base_url: Annotated[Optional[list[str]], _generate_flag("value_base_url", AGENT)] = None,
    value_temperature: Annotated[Optional[float], _generate_flag("value_temperature", AGENT)] = None,
    prompts: Annotated[Optional[Path], _generate_flag("prompts", AGENT)] = None,
    temperature: Annotated[Optional[float], _generate_flag("temperature", AGENT)] = None,
    top_p: Annotated[Optional[float], _generate_flag("top_p", AGENT)] = None,
    max_reply_tokens: Annotated[Optional[int], _generate_flag("max_reply_tokens", AGENT)] = None,
    recipe: Annotated[Optional[str], _generate_flag("recipe", SEARCH)] = None,
    outcome: Annotated[Optional[str], _generate_flag("outcome", SEARCH)] = None,
    rubric: Annotated[Optional[Path], _generate_flag("rubric", SEARCH)] = None,
    reward: Annotated[Optional[str], _generate_flag("reward", SEARCH)] = None,
    judge_weight: Annotated[Optional[float], _generate_flag("judge_weight", SEARCH)] = None,
    judge_gold: Annotated[Optional[bool], _generate_switch("judge_gold", SEARCH)] = None,
    siblings: Annotated[Optional[int], _generate_flag("siblings", SEARCH)] = None,
    continuations: Annotated[Optional[int], _generate_flag("continuations", SEARCH)] = None,
    simulations: Annotated[Optional[int], _generate_flag("simulations", SEARCH)] = None,
    max_calls_per_question: Annotated[Optional[int], _generate_flag("max_calls_per_question", SEARCH)] = None,
    max_steps: Annotated[Optional[int], _generate_flag("max_steps", SEARCH)] = None,
    alpha: Annotated[Optional[float], _generate_flag("alpha", SEARCH)] = None,
    exploration: Annotated[Optional[float], _generate_flag("exploration", SEARCH)] = None,
    seed: Annotated[Optional[int], _generate_flag("seed", SEARCH)] = None,
    concurrency: Annotated[Optional[int], _generate_flag("concurrency", MACHINE)] = None,
    rpm: Annotated[Optional[int], _generate_flag("rpm", MACHINE)] = None,
    tpm: Annotated[Optional[int], _generate_flag("tpm", MACHINE)] = None,
    timeout: Annotated[Optional[float], _generate_flag("timeout", MACHINE)] = None,
    abort_degenerate: Annotated[Optional[float], _generate_flag("abort_degenerate", MACHINE)] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Ask nothing: answers come from the run's journal", rich_help_panel=MACHINE)
    ] = False,
    max_cost: Annotated[Optional[float], _generate_flag("max_cost", MONEY)] = None,
    max_calls: Annotated[Optional[int], _generate_flag("max_calls", MONEY)] = None,
    max_tokens: Annotated[Optional[int], _generate_flag("max_tokens", MONEY)] = None,
    price_in: Annotated[Optional[float], _generate_flag("price_in", MONEY)] = None,
    price_out: Annotated[Optional[float], _generate_flag("price_out", MONEY)] = None,
    value_price_in: Annotated[Optional[float], _generate_flag("value_price_in", MONEY)] = None,
    value_price_out: Annotated[Optional[float], _generate_flag("value_price_out", MONEY)] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would cost, and ask nothing", rich_help_panel=MONEY)
    ] = False,
    pilot: Annotated[
        int,
        typer.Option(
            min=0,
            help="With --dry-run: explore so many questions for real first, in the run directory, and measure them",
            rich_help_panel=MONEY,
        ),
    ] = 0,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Explore questions with a teacher and write step-level rollouts."""
    flags = {name: value for name, value in locals().items() if name not in ("as_json", "dry_run", "pilot")}
    if pilot and not dry_run:
        raise InputError("--pilot goes with --dry-run")
    if replay and dry_run:
        raise InputError("--replay asks nothing, so there is nothing to estimate; leave out --dry-run")
    if dry_run:
        _estimate(flags, pilot=pilot, as_json=as_json)
        return
    from reasonrag.exploration.display import show_run
    from reasonrag.exploration.generate import generate as generate_run
    from reasonrag.terminal import TerminalWatcher

    with interrupts():
        summary = generate_run(watcher=TerminalWatcher(), **flags)
    if as_json:
        print(summary.model_dump_json())
    else:
        show_run(summary)
    leave(summary.stopped, failed=summary.failed)


def _estimate(flags: dict[str, Any], *, pilot: int, as_json: bool) -> None:
    from reasonrag.exploration.cost_estimate import NothingMeasured, estimate
    from reasonrag.exploration.display import show_estimate
    from reasonrag.terminal import TerminalWatcher

    flags.pop("replay")
    with interrupts():
        try:
            found = estimate(watcher=TerminalWatcher(), pilot=pilot, **flags)
        except NothingMeasured as nothing:
            print(f"stopped: {redact(str(nothing))}", file=sys.stderr)
            leave(nothing.stopped, failed=pilot)
            return
    if as_json:
        print(found.model_dump_json())
    else:
        show_estimate(found)
    leave(found.stopped, failed=found.failed)


def _pairs_flag(name: str, panel: str | None = None) -> Any:
    return flag(PairsSettings, name, panel)


PAIRED, WRITTEN, LABELS = "What makes a pair", "What is written", "Who says which step is better"
GATE = "What must not be trained on"
CHECKED = "What is checked"


def _allowance(name: str) -> Any:
    """A flag that takes a filter back; not given, the setting stays as it is."""
    help_text = PairsSettings.model_fields[name].description
    return typer.Option(f"--{name.replace('_', '-')}", help=help_text, rich_help_panel=PAIRED, show_default=False)


@app.command()
def pairs(
    runs: Annotated[list[Path], typer.Argument(help="Run directories of generate, or data sets made earlier")],
    out: Annotated[Optional[Path], _pairs_flag("out", WRITTEN)] = None,
    format_: Annotated[Optional[list[str]], _pairs_flag("format", WRITTEN)] = None,
    validation: Annotated[Optional[float], _pairs_flag("validation", WRITTEN)] = None,
    flip: Annotated[Optional[float], _pairs_flag("flip", WRITTEN)] = None,
    seed: Annotated[Optional[int], _pairs_flag("seed", WRITTEN)] = None,
    min_margin: Annotated[Optional[float], _pairs_flag("min_margin", PAIRED)] = None,
    min_confidence: Annotated[Optional[float], _pairs_flag("min_confidence", PAIRED)] = None,
    max_similarity: Annotated[Optional[float], _pairs_flag("max_similarity", PAIRED)] = None,
    max_per_combination: Annotated[Optional[int], _pairs_flag("max_per_combination", PAIRED)] = None,
    max_per_state: Annotated[Optional[int], _pairs_flag("max_per_state", PAIRED)] = None,
    max_per_question: Annotated[Optional[int], _pairs_flag("max_per_question", PAIRED)] = None,
    max_tokens: Annotated[Optional[int], _pairs_flag("max_tokens", PAIRED)] = None,
    same_type: Annotated[
        Optional[bool],
        typer.Option(
            "--same-type/--any-type",
            help=PairsSettings.model_fields["same_type"].description,
            rich_help_panel=PAIRED,
            show_default=False,
        ),
    ] = None,
    balance: Annotated[Optional[bool], switch(PairsSettings, "balance", PAIRED)] = None,
    max_efficiency_only: Annotated[Optional[float], _pairs_flag("max_efficiency_only", PAIRED)] = None,
    max_style_only: Annotated[Optional[float], _pairs_flag("max_style_only", PAIRED)] = None,
    allow_malformed: Annotated[Optional[bool], _allowance("allow_malformed")] = None,
    allow_ungrounded: Annotated[Optional[bool], _allowance("allow_ungrounded")] = None,
    eval_: Annotated[Optional[list[str]], _pairs_flag("eval", GATE)] = None,
    allow_eval: Annotated[Optional[list[str]], _pairs_flag("allow_eval", GATE)] = None,
    label: Annotated[Optional[str], _pairs_flag("label", LABELS)] = None,
    model: Annotated[Optional[str], _pairs_flag("model", LABELS)] = None,
    base_url: Annotated[Optional[list[str]], _pairs_flag("base_url", LABELS)] = None,
    judge_gold: Annotated[Optional[bool], switch(PairsSettings, "judge_gold", LABELS)] = None,
    prompts: Annotated[Optional[Path], _pairs_flag("prompts", LABELS)] = None,
    concurrency: Annotated[Optional[int], _pairs_flag("concurrency", LABELS)] = None,
    max_cost: Annotated[Optional[float], _pairs_flag("max_cost", LABELS)] = None,
    max_calls: Annotated[Optional[int], _pairs_flag("max_calls", LABELS)] = None,
    price_in: Annotated[Optional[float], _pairs_flag("price_in", LABELS)] = None,
    price_out: Annotated[Optional[float], _pairs_flag("price_out", LABELS)] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Say what a judge would be asked and cost, and ask nobody", rich_help_panel=LABELS
        ),
    ] = False,
    tokenizer: Annotated[Optional[str], _pairs_flag("tokenizer", CHECKED)] = None,
    allow: Annotated[Optional[list[str]], _pairs_flag("allow", CHECKED)] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Turn the sibling steps of runs into a preference data set: candidates, RAG_ProGuide pairs, other formats.

    Every candidate is kept in candidates.jsonl; a data set can be given in place of its runs, and filtered anew.
    """
    flags = {name.rstrip("_"): value for name, value in locals().items() if name not in ("as_json", "dry_run")}
    from reasonrag.curation.audit.display import show_verdict
    from reasonrag.curation.display import show_pairs
    from reasonrag.curation.pairs import pairs as make_pairs
    from reasonrag.curation.pairs import plan_judging
    from reasonrag.terminal import TerminalWatcher

    runs = flags.pop("runs")
    if dry_run:
        print(plan_judging(runs, **flags))
        return
    with interrupts(), caps():
        summary = make_pairs(runs, watcher=TerminalWatcher(), processes=os.cpu_count() or 1, **flags)
    if as_json:
        print(summary.model_dump_json())
    else:
        show_pairs(summary)
        show_verdict(Path(summary.out))
    if summary.judging.get("given_up"):
        raise typer.Exit(FAILED)


@app.command()
def review(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of a data set, with RAG_ProGuide.json")],
    pairs: Annotated[Optional[int], flag(ReviewSettings, "pairs")] = None,
    seed: Annotated[Optional[int], flag(ReviewSettings, "seed")] = None,
    reviewer: Annotated[Optional[str], flag(ReviewSettings, "reviewer")] = None,
    report: Annotated[bool, typer.Option("--report", help="Show no pair, only what was judged so far")] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Judge pairs without seeing their labels, and see how often you agree with them.

    Every judgement is kept at once; the same command goes on where it stopped. Without a terminal, keys are read from
    stdin, one a line.
    """
    from reasonrag.curation.review import review as judge
    from reasonrag.curation.review import review_report
    from reasonrag.curation.review_screen import ReviewScreen, open_keys, show_review

    if report:
        found = review_report(directory)
    else:
        with interrupts():
            found = judge(directory, open_keys(), ReviewScreen(), pairs=pairs, seed=seed, reviewer=reviewer)
    if as_json:
        print(found.model_dump_json())
    else:
        show_review(found)


def _import_flag(name: str, panel: str | None = None) -> Any:
    return flag(ImportSettings, name, panel)


KNOWN, VALUED = "What is known of the questions", "What steps of trees are worth"


@app.command("import")
def import_(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Published trees (a file, or a folder with chunk_*/) or a published RAG_ProGuide: JSON, JSON lines, "
            "Parquet, packed or not, or hf://datasets/ORG/NAME/FILE"
        ),
    ],
    out: Annotated[Optional[Path], _import_flag("out")] = None,
    recipe: Annotated[Optional[str], _import_flag("recipe", VALUED)] = None,
    keep_rewards: Annotated[Optional[bool], switch(ImportSettings, "keep_rewards", VALUED)] = None,
    alpha: Annotated[Optional[float], _import_flag("alpha", VALUED)] = None,
    dataset: Annotated[Optional[str], _import_flag("dataset", KNOWN)] = None,
    split: Annotated[Optional[str], _import_flag("split", KNOWN)] = None,
    questions: Annotated[Optional[list[Path]], _import_flag("questions", KNOWN)] = None,
    teacher: Annotated[Optional[str], _import_flag("teacher", KNOWN)] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Read what ReasonRAG has published, repair it, and say what was done.

    Trees become a run directory, of which `pairs` makes a data set. Pairs become a data set that trains at once.
    """
    flags = {name: value for name, value in locals().items() if name not in ("sources", "as_json")}
    from reasonrag.curation.display import TerminalImport, show_import
    from reasonrag.curation.import_published import import_published

    try:
        report = import_published(sources, say=TerminalImport().say, **flags)
    except KeyboardInterrupt:
        print("interrupted; what was not finished is not there, the same command starts anew", file=sys.stderr)
        raise typer.Exit(Interrupted.exit_status) from None
    if as_json:
        print(report.model_dump_json())
    else:
        show_import(report)


@app.command()
def audit(
    directory: Annotated[Path, typer.Argument(help="Directory of a data set, or one file with rows of RAG_ProGuide")],
    tokenizer: Annotated[Optional[str], flag(AuditSettings, "tokenizer")] = None,
    allow: Annotated[Optional[list[str]], flag(AuditSettings, "allow")] = None,
    out: Annotated[Optional[Path], flag(AuditSettings, "out")] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Check a data set: token lengths and the cutoff they need, empty, malformed and leaking rows, biases, keys.

    Writes audit.json and audit.html. Exit status 1 where an error was found that no --allow names.
    """
    from reasonrag.curation.audit.audit import audit as audit_rows
    from reasonrag.curation.audit.audit import page_path
    from reasonrag.curation.audit.display import show_audit

    found = audit_rows(directory, tokenizer=tokenizer, allow=allow, out=out)
    if as_json:
        print(found.model_dump_json())
    else:
        show_audit(found, page_path(directory, out))
    if found.errors:
        raise typer.Exit(FAILED)


def _calibrate_flag(name: str, panel: str | None = None) -> Any:
    return flag(CalibrateSettings, name, panel)


@app.command()
def calibrate(
    run: Annotated[Path, typer.Argument(help="Run directory of generate")],
    revalue: Annotated[Optional[int], _calibrate_flag("revalue")] = None,
    k: Annotated[Optional[int], _calibrate_flag("k")] = None,
    seed: Annotated[Optional[int], _calibrate_flag("seed")] = None,
    min_confidence: Annotated[Optional[float], _calibrate_flag("min_confidence")] = None,
    model: Annotated[Optional[str], _calibrate_flag("model", AGENT)] = None,
    base_url: Annotated[Optional[list[str]], _calibrate_flag("base_url", AGENT)] = None,
    corpus: Annotated[Optional[Path], _calibrate_flag("corpus", AGENT)] = None,
    index: Annotated[Optional[list[Path]], _calibrate_flag("index", AGENT)] = None,
    prompts: Annotated[Optional[Path], _calibrate_flag("prompts", AGENT)] = None,
    concurrency: Annotated[Optional[int], _calibrate_flag("concurrency", MACHINE)] = None,
    max_cost: Annotated[Optional[float], _calibrate_flag("max_cost", MONEY)] = None,
    max_calls: Annotated[Optional[int], _calibrate_flag("max_calls", MONEY)] = None,
    price_in: Annotated[Optional[float], _calibrate_flag("price_in", MONEY)] = None,
    price_out: Annotated[Optional[float], _calibrate_flag("price_out", MONEY)] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Check how far the labels of a run can be trusted; with --revalue by fresh continuations."""
    flags = {name: value for name, value in locals().items() if name != "as_json"}
    from reasonrag.studies.calibrate import calibrate as calibrate_run
    from reasonrag.studies.display import show_calibration
    from reasonrag.terminal import TerminalWatcher

    with interrupts(), caps():
        found = calibrate_run(watcher=TerminalWatcher(), **flags)
    if as_json:
        print(found.model_dump_json())
    else:
        show_calibration(found)
    if found.gave_up:
        raise typer.Exit(FAILED)


@app.command()
@with_flags_of(pairs, without=OF_A_DATA_SET)
@with_flags_of(generate, without=("run", "limit", "replay", "dry_run", "pilot", "as_json", *OF_A_VALUE_MODEL))
def tune(
    run: Annotated[Optional[Path], flag(TuneSettings, "run", TRIALS)] = None,
    pilot: Annotated[Optional[int], flag(TuneSettings, "pilot", TRIALS)] = None,
    vary: Annotated[Optional[list[str]], flag(TuneSettings, "vary", TRIALS)] = None,
    as_json: Annotated[bool, JSON] = False,
    **flags: Any,
) -> None:
    """Try configurations on some questions, and say which one gives the most pairs for its cost."""
    from reasonrag.studies.display import show_tuning
    from reasonrag.studies.tune import tune as try_configurations
    from reasonrag.terminal import TerminalWatcher

    with interrupts():
        found = try_configurations(watcher=TerminalWatcher(), run=run, pilot=pilot, vary=vary, **flags)
    if as_json:
        print(found.model_dump_json())
    else:
        show_tuning(found)
    leave(found.stopped, failed=sum(each.failed for each in found.trials))


def _publish_flag(name: str) -> Any:
    return flag(PublishSettings, name)


@app.command()
def publish(
    directory: Annotated[Optional[Path], typer.Argument(help="Data set made by reasonrag pairs")] = None,
    repo: Annotated[Optional[str], _publish_flag("repo")] = None,
    model: Annotated[Optional[Path], _publish_flag("model")] = None,
    base_model: Annotated[Optional[str], _publish_flag("base_model")] = None,
    private: Annotated[
        Optional[bool],
        typer.Option(
            "--private/--public",
            help=(PublishSettings.model_fields["private"].description or "").replace("[", r"\["),
            show_default=False,
        ),
    ] = None,
    with_trees: Annotated[Optional[list[Path]], _publish_flag("with_trees")] = None,
    license_: Annotated[Optional[str], _publish_flag("license")] = None,
    allow: Annotated[Optional[list[str]], _publish_flag("allow")] = None,
    allow_eval: Annotated[Optional[list[str]], _publish_flag("allow_eval")] = None,
    max_shard_mb: Annotated[Optional[int], _publish_flag("max_shard_mb")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write DIR/publish with all files and the card, and ask nothing")
    ] = False,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Put a data set, or a trained model, on the Hugging Face Hub, with its card; nothing is public before everything
    is up."""
    flags = {name.rstrip("_"): value for name, value in locals().items() if name != "as_json"}
    from reasonrag.publishing.display import say, show_publication
    from reasonrag.publishing.publish import publish as publish_data_set

    with interrupts():
        try:
            done = publish_data_set(flags.pop("directory"), say=say, **flags)
        except UploadStopped as stopped:
            print(f"stopped: {redact(str(stopped))}", file=sys.stderr)
            print(f"continue with: {this_command()}", file=sys.stderr)
            raise typer.Exit(FAILED) from None
    if as_json:
        print(done.model_dump_json())
    else:
        show_publication(done)


def _index_flag(name: str, panel: str | None = None) -> Any:
    return flag(IndexSettings, name, panel)


ENCODING = "How passages are encoded"


@index_app.command("build")
def index_build(
    corpus: Annotated[Optional[Path], _index_flag("corpus")] = None,
    kind: Annotated[Optional[str], _index_flag("kind")] = None,
    out: Annotated[Optional[Path], _index_flag("out")] = None,
    index_home: Annotated[Optional[Path], _index_flag("index_home")] = None,
    encoder: Annotated[Optional[str], _index_flag("encoder", ENCODING)] = None,
    type_: Annotated[Optional[str], _index_flag("type", ENCODING)] = None,
    from_faiss: Annotated[Optional[Path], _index_flag("from_faiss", ENCODING)] = None,
    backend: Annotated[Optional[str], _index_flag("backend", ENCODING)] = None,
    pooling: Annotated[Optional[str], _index_flag("pooling", ENCODING)] = None,
    normalize: Annotated[Optional[bool], switch(IndexSettings, "normalize", ENCODING)] = None,
    query_instruction: Annotated[Optional[str], _index_flag("query_instruction", ENCODING)] = None,
    passage_instruction: Annotated[Optional[str], _index_flag("passage_instruction", ENCODING)] = None,
    max_length: Annotated[Optional[int], _index_flag("max_length", ENCODING)] = None,
    precision: Annotated[Optional[str], _index_flag("precision", ENCODING)] = None,
    batch_size: Annotated[Optional[int], _index_flag("batch_size", ENCODING)] = None,
    device: Annotated[Optional[list[str]], _index_flag("device", ENCODING)] = None,
    gpu: Annotated[Optional[bool], switch(IndexSettings, "gpu", ENCODING)] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Build an index of a corpus: BM25, or dense with an encoder; generate builds small ones by itself.

    A dense build that was interrupted goes on where it was with the same command.
    """
    flags = {name.rstrip("_"): value for name, value in locals().items() if name != "as_json"}
    from reasonrag.retrieval.display import TerminalBuild, show_index
    from reasonrag.retrieval.index import index_build as build

    with interrupts():
        directory, manifest = build(watcher=TerminalBuild(), **flags)
    if as_json:
        print(manifest.model_dump_json())
    else:
        show_index(directory, manifest)
        print(f"wrote {directory} ({manifest.passages:,} passages)")


@index_app.command("info")
def index_info(
    directory: Annotated[Path, typer.Argument(help="Directory of an index")],
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Say what an index was built from, by what, and which types it has."""
    from reasonrag.retrieval.display import show_index
    from reasonrag.retrieval.index import index_info as read

    manifest = read(directory)
    if as_json:
        print(manifest.model_dump_json())
    else:
        show_index(directory, manifest)


@index_app.command("check")
def index_check(
    directory: Annotated[Path, typer.Argument(help="Directory of an index")],
    queries: Annotated[int, typer.Option(min=1, help="Queries that recall is measured with")] = 200,
    at: Annotated[int, typer.Option(min=1, help="Passages compared per query")] = 10,
    questions: Annotated[
        Optional[Path], typer.Option(help="Ask these questions (JSONL) too: are their gold passages found?")
    ] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Read an index and its corpus whole: hashes, rows, and recall against an exact search."""
    from reasonrag.retrieval.display import TerminalBuild, show_check
    from reasonrag.retrieval.index import index_check as check

    with interrupts():
        found = check(directory, queries=queries, at=at, questions=questions, watcher=TerminalBuild())
    if as_json:
        print(found.model_dump_json())
    else:
        show_check(found)
    if found.faults:
        raise typer.Exit(FAILED)


def _serve_flag(name: str, panel: str | None = None) -> Any:
    return flag(ServeSettings, name, panel)


@index_app.command("serve")
def index_serve(
    index: Annotated[Optional[list[Path]], _serve_flag("index", PASSAGES)] = None,
    retriever: Annotated[Optional[str], _serve_flag("retriever", PASSAGES)] = None,
    corpus: Annotated[Optional[Path], _serve_flag("corpus", PASSAGES)] = None,
    index_home: Annotated[Optional[Path], _serve_flag("index_home", PASSAGES)] = None,
    encoder: Annotated[Optional[str], _serve_flag("encoder", PASSAGES)] = None,
    index_type: Annotated[Optional[str], _serve_flag("index_type", PASSAGES)] = None,
    reranker: Annotated[Optional[str], _serve_flag("reranker", PASSAGES)] = None,
    gpu: Annotated[Optional[bool], switch(ServeSettings, "gpu", PASSAGES)] = None,
    host: Annotated[Optional[str], _serve_flag("host")] = None,
    port: Annotated[Optional[int], _serve_flag("port")] = None,
    max_waiting: Annotated[Optional[int], _serve_flag("max_waiting")] = None,
    allow_empty_queries: Annotated[Optional[bool], switch(ServeSettings, "allow_empty_queries")] = None,
) -> None:
    """Serve an index over HTTP, for many workers and machines, in Search-R1's protocol.

    POST /retrieve, GET /health, GET /metrics. With REASONRAG_RETRIEVER_TOKEN set, only who sends it is let in.
    """
    flags = dict(locals())
    from reasonrag.retrieval.index import index_serve as serve

    def say(message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    def listening(url: str) -> None:
        print(f"serving at {url}  (stop with Ctrl-C)", flush=True)
        print(
            f"try: reasonrag generate --questions FILE --retriever {url} --model offline --run runs/served", flush=True
        )

    with interrupts():
        serve(say=say, listening=listening, **flags)


LIMITS, FAULTS = "Rate limits", "Faults"


@app.command("simulate-endpoint")
def simulate_endpoint(
    host: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one")] = 8765,
    latency: Annotated[float, typer.Option(min=0, help="Seconds every answer takes")] = 0.0,
    ignore_n: Annotated[bool, typer.Option("--ignore-n", help="Give one choice whatever is asked")] = False,
    ignore_stop: Annotated[bool, typer.Option("--ignore-stop", help="Run on past the stop string")] = False,
    fail_every: Annotated[
        int, typer.Option(min=0, help="Answer every so-manieth request with status 503; 0 never")
    ] = 0,
    api_key: Annotated[Optional[str], typer.Option(help="Let in only this key [default: everybody]")] = None,
    max_choices: Annotated[Optional[int], typer.Option(min=1, help="Choices per request at most")] = None,
    rpm: Annotated[
        Optional[int], typer.Option(min=1, help="Requests per minute; beyond, status 429", rich_help_panel=LIMITS)
    ] = None,
    tpm: Annotated[
        Optional[int], typer.Option(min=1, help="Tokens per minute; beyond, status 429", rich_help_panel=LIMITS)
    ] = None,
    no_retry_after: Annotated[
        bool,
        typer.Option("--no-retry-after", help="Do not say when to come back", rich_help_panel=LIMITS),
    ] = False,
    fault: Annotated[
        Optional[list[str]],
        typer.Option(
            metavar="KIND=SHARE",
            help="Do this to a share of the requests; repeatable. By the request's number: 429, 429-retry-after, 500, "
            "reset, half-body, hang, invalid-json, empty-choices, slow-first-byte. By its content, for ever: "
            "same-500, length, content-filter",
            rich_help_panel=FAULTS,
        ),
    ] = None,
    fault_seed: Annotated[int, typer.Option(help="Decides which requests are hit", rich_help_panel=FAULTS)] = 0,
    hang: Annotated[
        float, typer.Option(min=0, help="Seconds that a request with fault hang waits", rich_help_panel=FAULTS)
    ] = 600.0,
    slow: Annotated[
        float, typer.Option(min=0, help="Seconds to the answer with fault slow-first-byte", rich_help_panel=FAULTS)
    ] = 2.0,
    canned: Annotated[
        bool, typer.Option("--canned", help="Keep replies, so that the same run costs less CPU again")
    ] = False,
) -> None:
    """Serve the offline teacher as an OpenAI-compatible endpoint that behaves as badly as it is told, for free.

    What it saw is at GET /stats; POST /down {"down": true} takes it down.
    """
    import asyncio

    from reasonrag.llm.servers.simulator import Habits, parse_faults, serve_forever

    habits = Habits(
        latency_s=latency,
        ignore_n=ignore_n,
        ignore_stop=ignore_stop,
        fail_every=fail_every,
        api_key=api_key,
        rpm=rpm,
        tpm=tpm,
        retry_after=not no_retry_after,
        max_choices=max_choices,
        faults=parse_faults(fault or []),
        fault_seed=fault_seed,
        hang_s=hang,
        slow_s=slow,
        canned=canned,
    )

    def say(base_url: str) -> None:
        print(f"serving at {base_url}  (stop with Ctrl-C)", flush=True)
        print(f"try: reasonrag generate --model offline --base-url {base_url} --run runs/rehearsal", flush=True)

    try:
        asyncio.run(serve_forever(habits, host=host, port=port, say=say))
    except KeyboardInterrupt:
        raise typer.Exit from None  # the way it is meant to end
    except OSError as error:
        raise InputError(f"cannot listen on {host}:{port}: {error.strerror}") from error


app.command()(train)
app.command()(evaluate)
app.command()(compare)
app.command()(ask)
app.command()(show)
app.command()(stats)
app.command()(doctor)
app.command()(view)


def run(arguments: list[str]) -> int:
    """Run the command line and return the exit status."""
    arguments_of_this.set(arguments)
    try:
        app(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except InputError as error:
        print(f"error: {shown(redact(str(error)))}", file=sys.stderr)
        return BAD_INPUT
    except (ReasonragError, OSError) as error:
        print(f"error: {shown(redact(str(error)))}", file=sys.stderr)
        return FAILED
    except Exception:  # noqa: BLE001 - a fault of ours: the whole traceback, without secrets
        print(redact(traceback.format_exc()), file=sys.stderr)
        return FAILED
    return 0


def main() -> None:
    """Entry point of the `reasonrag` script."""
    sys.exit(run(sys.argv[1:]))
