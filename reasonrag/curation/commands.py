"""The commands that turn trees into preference data: `reasonrag pairs`, `review`, `import` and `audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from reasonrag.curation.pairs_settings import PairsSettings
from reasonrag.curation.settings import (
    CheckSettings,
    ImportSettings,
    QuestionWritingSettings,
    ReviewSettings,
    WarmUpSettings,
)
from reasonrag.errors import InputError
from reasonrag.files import bytes_of
from reasonrag.options import FAILED, EstimateOnly, Json, options, print_result
from reasonrag.rendering import Line
from reasonrag.settings import resolve
from reasonrag.terminal import LARGE, reading_progress


@options(PairsSettings, example="reasonrag pairs runs/hotpotqa-train-economy --format sft")
def pairs(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Run directories of generate, or data sets to filter again")
    ],
    *,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Turn the sibling steps of runs into preference pairs, ready for LLaMA-Factory.

    Writes RAG_ProGuide.json, the formats of --format, and candidates.jsonl with every candidate pair, kept or
    dropped. A data set can be given in place of its runs, to filter it again.
    """
    from reasonrag.curation.pairs import pairs as make_pairs
    from reasonrag.curation.pairs import pairs_parts
    from reasonrag.terminal import TerminalWatcher

    watcher, size = TerminalWatcher(), sum(map(bytes_of, runs))
    if size >= LARGE:
        watcher.say(f"labelling the steps of {size / 10**6:,.0f} MB")
    summary = make_pairs(runs, watcher=watcher, **flags)
    print_result(summary, pairs_parts(summary), as_json=as_json)
    if summary.judging.get("given_up"):
        raise typer.Exit(FAILED)


@options(
    WarmUpSettings,
    without=("max_wait",),
    example="reasonrag warm-up --questions musique.jsonl --agent prorag --model gpt-4o",
)
def warm_up(*, dry_run: EstimateOnly = False, as_json: Json = False, **flags: Any) -> None:
    """Make rows to fine-tune on of questions that come with sub-questions and their answers, as MuSiQue's do.

    A teacher writes each sub-question as a sentence and a thought for each step. The same command continues
    what was stopped. Exit status 1 if the teacher failed on some question.
    """
    from reasonrag.curation.warm_up.warm_up import warm_up as make_rows
    from reasonrag.curation.warm_up.warm_up import warm_up_parts
    from reasonrag.terminal import TerminalWatcher

    made = make_rows(watcher=TerminalWatcher(), dry_run=dry_run, **flags)
    print_result(made, warm_up_parts(made), as_json=as_json)
    if made.warm_up["failed"]:
        raise typer.Exit(FAILED)


@options(
    QuestionWritingSettings,
    without=("corpus", "max_wait"),
    example="reasonrag corpus questions corpora/handbook.jsonl --count 300 --model gpt-4o",
)
def questions(
    corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help="File that corpus build wrote")],
    *,
    dry_run: EstimateOnly = False,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Write questions from a corpus: some to explore and train on, some held out to evaluate on.

    A teacher writes a question, its answer and the passages it rests on. What a search alone or a reader without them
    answers is left out, with its cause. The same command continues what was stopped. Exit status 1 if the teacher
    failed on some question.
    """
    from reasonrag.curation.question_writing.writing import corpus_questions
    from reasonrag.terminal import TerminalWatcher

    made = corpus_questions(corpus, watcher=TerminalWatcher(), dry_run=dry_run, **flags)
    print_result(made, made.shown(), as_json=as_json)
    if made.failed:
        raise typer.Exit(FAILED)


@options(ReviewSettings, example="reasonrag review data/hotpotqa-train-economy --out sample.csv")
def review(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Data set made by pairs or import")],
    *,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Have a sample of pairs judged without their labels, and measure how often people agree with them.

    --out writes the sample, for a spreadsheet or Label Studio; --judgements reads what was said of it.
    """
    from reasonrag.curation.review import review_parts, review_report, review_sample

    asked = resolve(ReviewSettings, "review", flags)
    if asked.out and not asked.judgements:
        sample = review_sample(directory, asked.out, sample=asked.sample, seed=asked.seed)
        print_result(sample, sample.shown(), as_json=as_json)
    elif asked.judgements and not asked.out:
        found = review_report(directory, asked.judgements)
        print_result(found, review_parts(found), as_json=as_json)
    else:
        raise InputError("give --out FILE to write a sample, or --judgements FILE to read what was said of it")


@options(ImportSettings, example="reasonrag import RAG_ProGuide.json --out data/published")
def import_published(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE",
            help="File of published trees or pairs (RAG_ProGuide): JSON, JSON lines or Parquet, compressed or not, or "
            "hf://datasets/ORG/NAME/FILE",
        ),
    ],
    *,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Import trees or pairs that ReasonRAG has published, and report what was repaired.

    Trees become a run, from which `pairs` makes a data set. Pairs become a data set ready for training.
    """
    from reasonrag.curation.import_published import import_published as read
    from reasonrag.terminal import TerminalMessages

    size, anew = sum(bytes_of(Path(each)) for each in sources), "; the same command starts anew"
    with reading_progress(Path(sources[0]), size, instead=anew):
        report = read(sources, say=TerminalMessages().say, **flags)
    print_result(report, report.shown(), as_json=as_json)


@options(CheckSettings, example="reasonrag audit data/hotpotqa-train-economy")
def audit(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Data set, run whose data set is in data/, or a file with rows of RAG_ProGuide"
        ),
    ],
    *,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Check a data set before training: token lengths, malformed and leaking rows, biases, keys.

    Writes audit.json and audit.html. Exit status 1 if an error was found that no --allow accepts.
    """
    from reasonrag.curation.audit.audit import audit as audit_rows
    from reasonrag.curation.audit.audit import audited_place, page_path

    with reading_progress(directory, bytes_of(directory)):
        found = audit_rows(directory, **flags)
    page = page_path(audited_place(directory))
    print_result(found, [*found.shown(), Line(f"wrote {page} and {page.with_suffix('.json').name}")], as_json=as_json)
    if found.errors:
        raise typer.Exit(FAILED)
