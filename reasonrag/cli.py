"""The command line: mounts the commands of the rooms, and turns what they raise into messages and exit statuses.

Results go to stdout, progress and errors to stderr. Exit status: 0 every question has a rollout, 1 some question has an
error, the endpoint was lost or the trees teach nothing, 2 bad input and nothing started, 3 stopped by a cap, 130
interrupted. A command parses its flags, calls one function, and shows the result. Nothing heavy is imported before a
command needs it.
"""

from __future__ import annotations

import sys
import traceback
from typing import Annotated, Any

import typer

from reasonrag import __version__
from reasonrag.curation.commands import audit, import_published, pairs, review
from reasonrag.data import commands as corpus
from reasonrag.errors import InputError, ReasonragError
from reasonrag.evaluation.commands import ask, compare, evaluate
from reasonrag.exploration.commands import generate
from reasonrag.llm.commands import simulate_endpoint
from reasonrag.options import BAD_INPUT, FAILED
from reasonrag.options import arguments as arguments_of_this
from reasonrag.publishing.commands import publish
from reasonrag.redaction import redact
from reasonrag.retrieval import commands as index
from reasonrag.studies.commands import calibrate, tune
from reasonrag.terminal import print_shown
from reasonrag.training.commands import doctor, train
from reasonrag.viewing.commands import show, stats, view

app = typer.Typer(
    name="reasonrag",
    help="From questions and a corpus to step-level preference data for agentic RAG.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
corpus_app = typer.Typer(help="Corpora from your own documents.", no_args_is_help=True)
index_app = typer.Typer(help="Indexes over a corpus.", no_args_is_help=True)


def _version(asked: bool) -> None:  # noqa: FBT001 - typer calls it
    if asked:
        print_shown(f"reasonrag {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version")
    ] = False,
) -> None:
    """From questions and a corpus to step-level preference data for agentic RAG."""


for command in (generate, pairs, review):
    app.command()(command)
app.command("import")(import_published)
for command in (audit, calibrate, tune, publish, simulate_endpoint, train, evaluate, compare, ask, show, stats, doctor):
    app.command()(command)
app.command()(view)
app.add_typer(corpus_app, name="corpus")
corpus_app.command()(corpus.build)
app.add_typer(index_app, name="index")
for command in (index.build, index.info, index.check, index.serve):
    index_app.command()(command)


def run(arguments: list[str]) -> int:
    """Run the command line and return the exit status."""
    arguments_of_this.set(arguments)
    try:
        status = app(arguments, standalone_mode=False)
        return status if isinstance(status, int) else 0
    except SystemExit as end:  # standard output was closed
        return end.code if isinstance(end.code, int) else 0
    except InputError as error:
        print_shown(f"error: {redact(str(error))}", file=sys.stderr)
        return BAD_INPUT
    except (ReasonragError, OSError) as error:
        print_shown(f"error: {redact(str(error))}", file=sys.stderr)
        return FAILED
    except Exception as error:  # noqa: BLE001 - a bug: print the whole traceback, without secrets
        if hasattr(error, "format_message"):  # of typer, or of click in its older versions: a wrong flag
            return _refused_flag(error)
        print_shown(redact(traceback.format_exc()), file=sys.stderr)
        return FAILED


def _refused_flag(error: Any) -> int:
    """Say what is wrong with the command line, and return the exit status."""
    if not error.format_message():  # a command without arguments, whose help was shown
        return BAD_INPUT
    if error.ctx:
        print_shown(error.ctx.get_usage(), file=sys.stderr)
        print_shown(f"Try '{error.ctx.command_path} --help' for help.", file=sys.stderr)
    print_shown(f"error: {redact(error.format_message())}", file=sys.stderr)
    return BAD_INPUT


def main() -> None:
    """Entry point of the `reasonrag` script."""
    sys.exit(run(sys.argv[1:]))
