"""The command line: mounts the commands of the rooms, and turns what they raise into messages and exit statuses.

Results go to stdout, progress and errors to stderr. Exit status: 0 every question has a rollout, 1 some question has an
error, the endpoint was lost or the trees teach nothing, 2 bad input and nothing started, 3 stopped by a cap, 130
interrupted. A command parses its flags, calls one function, and shows the result. Nothing heavy is imported before a
command needs it.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from reasonrag import __version__
from reasonrag.critics.commands import evaluate_critic, train_critic
from reasonrag.curation.commands import audit, import_published, pairs, questions, review, warm_up
from reasonrag.data import commands as corpus
from reasonrag.errors import InputError, ReasonragError, RunStopped
from reasonrag.evaluation.commands import ask, compare, evaluate
from reasonrag.exploration.commands import generate, init
from reasonrag.options import BAD_INPUT, FAILED, Command, HelpOfCommand, HelpOfGroup, this_command
from reasonrag.publishing.commands import publish
from reasonrag.redaction import redact
from reasonrag.retrieval import commands as index
from reasonrag.scale.commands import FromAbove, merge
from reasonrag.settings import SETTINGS_FILE, plain_message
from reasonrag.settings import arguments as arguments_of_this
from reasonrag.studies.commands import calibrate, tune
from reasonrag.terminal import print_prose, print_shown
from reasonrag.training.commands import doctor, rounds, train, train_policy
from reasonrag.viewing.commands import show, stats, view

_PLAIN: dict[str, Any] = {"no_args_is_help": True, "rich_markup_mode": None}
corpus_app = typer.Typer(
    cls=HelpOfGroup, help="Build a corpus from your own documents, and write questions from it.", **_PLAIN
)
index_app = typer.Typer(cls=HelpOfGroup, help="Build, check and serve an index of a corpus.", **_PLAIN)
GROUPS: dict[str, dict[str, Command | typer.Typer]] = {
    "Explore": {
        "init": init,
        "corpus": corpus_app,
        "search": index.search,
        "generate": generate,
        "merge": merge,
        "calibrate": calibrate,
        "tune": tune,
    },
    "Curate": {
        "pairs": pairs,
        "warm-up": warm_up,
        "audit": audit,
        "review": review,
        "import": import_published,
        "publish": publish,
    },
    "Train": {
        "doctor": doctor,
        "train": train,
        "train-critic": train_critic,
        "evaluate-critic": evaluate_critic,
        "train-policy": train_policy,
        "rounds": rounds,
    },
    "Evaluate": {"evaluate": evaluate, "compare": compare, "ask": ask},
    "Serve": {"index": index_app},
    "Look": {"view": view, "show": show, "stats": stats},
}
"""Commands by what they are for, in the order of use."""


class _InOrderOfUse(HelpOfGroup):
    def list_commands(self, _: Any) -> list[str]:
        return [name for commands in GROUPS.values() for name in commands]


app = typer.Typer(name="reasonrag", cls=_InOrderOfUse, pretty_exceptions_enable=False, **_PLAIN)


def _version(asked: bool) -> None:  # noqa: FBT001 - typer calls it
    if asked:
        print_shown(f"reasonrag {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit")
    ] = False,
) -> None:
    """Turn questions and a corpus into step-level preference data for agentic RAG, train on it, and evaluate.

    Start with `reasonrag init`, or try it without a key: reasonrag generate --dataset atlas
    """


def _mount(group: typer.Typer, commands: Mapping[str, Command | typer.Typer], panel: str | None = None) -> None:
    for name, command in commands.items():
        if isinstance(command, typer.Typer):
            group.add_typer(command, name=name, rich_help_panel=panel)
        else:
            group.command(name, cls=HelpOfCommand, rich_help_panel=panel)(command)


_mount(corpus_app, {"build": corpus.build, "questions": questions})
_mount(index_app, {"build": index.build, "check": index.check, "serve": index.serve})
for panel, mounted in GROUPS.items():
    _mount(app, mounted, panel)


class _Handed(FromAbove):
    """And what writes the page of `publish --space`, which is of a room beside it."""

    @property
    def view(self) -> Any:
        from reasonrag.viewing.view import view as write_page

        return write_page


def run(arguments: list[str]) -> int:
    """Run the command line and return the exit status."""
    before = arguments_of_this.set(arguments)
    try:
        status = app(arguments, prog_name="reasonrag", standalone_mode=False, obj=_Handed())
        return status if isinstance(status, int) else 0
    except SystemExit as end:  # standard output was closed, or Ctrl-C said what it ended
        return end.code if isinstance(end.code, int) else 0
    except InputError as error:
        print_prose(f"error: {redact(str(error))}", file=sys.stderr)
        if error.instead:
            print_shown(f"try: {this_command(error.instead)}", file=sys.stderr)
        return BAD_INPUT
    except (ReasonragError, OSError) as error:
        print_prose(f"error: {redact(str(error))}", file=sys.stderr)
        return error.exit_status if isinstance(error, RunStopped) else FAILED
    except Exception as error:  # noqa: BLE001 - a bug: print the whole traceback, without secrets
        if hasattr(error, "format_message"):  # of typer: a wrong flag
            return _refused_flag(error)
        print_shown(redact(traceback.format_exc()), file=sys.stderr)
        return FAILED
    finally:
        arguments_of_this.reset(before)


def _refused_flag(error: Any) -> int:
    if not error.format_message():  # a command without arguments, whose help was shown
        return BAD_INPUT
    if error.ctx:
        print_shown(error.ctx.get_usage(), file=sys.stderr)
        print_shown(f"Try '{error.ctx.command_path} --help' for help.", file=sys.stderr)
    message = plain_message(error.format_message())
    if error.ctx and error.ctx.info_name in ("generate", "tune") and getattr(error, "option_name", ""):
        message += f" Settings of generate that have no flag here may stand in its table in {SETTINGS_FILE}."
    print_prose(f"error: {redact(message)}", file=sys.stderr)
    return BAD_INPUT


def main() -> None:
    sys.exit(run(sys.argv[1:]))
