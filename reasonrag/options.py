"""What the commands of the command line share: flags made of settings, and how a command ends.

Knows no command. Modules of commands take their flags from here, so that a setting's help, default and flag are the
same wherever it occurs.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import Signature, signature
from typing import TYPE_CHECKING, Any, TypeAlias

import typer

from reasonrag.errors import CapReached, Interrupted
from reasonrag.redaction import redact
from reasonrag.settings import Settings

if TYPE_CHECKING:
    from reasonrag.exploration.summary import StopReason

FAILED, BAD_INPUT = 1, 2
"""Exit statuses."""
Command: TypeAlias = Callable[..., None]
arguments: ContextVar[list[str]] = ContextVar("arguments")
"""Of the command line that runs, without the name of the program."""

PASSAGES = "Where passages come from"
DATA, AGENT, SEARCH, MACHINE = "What is asked", "Who answers", "How it is explored", "How it runs"
MONEY = "What it may cost"
JSON = typer.Option("--json", help="One JSON object on stdout instead of a table")


def flag(model: type[Settings], name: str, panel: str | None = None) -> Any:
    """A flag whose help and default are those of the setting."""
    field = model.model_fields[name]
    shown = "" if field.default in (None, []) or field.is_required() else f" [default: {field.default}]"
    return typer.Option(
        f"--{name.replace('_', '-')}",
        help=f"{field.description}{shown}".replace("[", r"\["),  # a bracket would be markup
        rich_help_panel=panel,
        show_default=False,
    )


def switch(model: type[Settings], name: str, panel: str | None = None) -> Any:
    """A flag and its opposite; neither leaves the setting as it is."""
    flag = name.replace("_", "-")
    description = (model.model_fields[name].description or "").replace("[", r"\[")
    return typer.Option(f"--{flag}/--no-{flag}", help=description, rich_help_panel=panel, show_default=False)


def leave(stopped: StopReason | None, *, failed: int) -> None:
    """Leave with the status of a session that was stopped early, or that left questions without a tree."""
    if stopped:
        print(f"continue with: {this_command(stopped.raise_cap)}", file=sys.stderr)
        raise typer.Exit(CapReached.exit_status if stopped.cause == CapReached.cause else FAILED)
    if failed:
        raise typer.Exit(FAILED)


@contextmanager
def interrupts() -> Iterator[None]:
    """Exit status 130 and the command that goes on, after Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted; what was finished and what was answered is kept", file=sys.stderr)
        print(f"continue with: {this_command()}", file=sys.stderr)
        raise typer.Exit(Interrupted.exit_status) from None


@contextmanager
def caps() -> Iterator[None]:
    """Exit status 3 and the command that goes on, where a cap ended it."""
    try:
        yield
    except CapReached as reached:
        print(f"stopped: {reached}", file=sys.stderr)
        print(f"continue with: {this_command(reached.raised)}", file=sys.stderr)
        raise typer.Exit(CapReached.exit_status) from None


def this_command(changed: dict[str, str] | None = None) -> str:
    """The command as it was given, some flags with other values, ready to be pasted."""
    words = ["reasonrag", *arguments.get()]
    for flag, value in (changed or {}).items():
        words = [word for i, word in enumerate(words) if word != flag and words[i - 1] != flag]
        words = [word for word in words if not word.startswith(f"{flag}=")] + [flag, value]
    return redact(shlex.join(words))


def with_flags_of(other: Callable[..., None], *, without: Collection[str]) -> Callable[[Command], Command]:
    """Give a command that takes `**flags` the flags of another one, behind its own."""
    theirs = [
        each for each in signature(other, eval_str=True).parameters.values() if each.name.rstrip("_") not in without
    ]

    def with_flags(command: Command) -> Command:
        own = [each for each in signature(command, eval_str=True).parameters.values() if each.kind != each.VAR_KEYWORD]
        every = [each.replace(kind=each.KEYWORD_ONLY) for each in own + theirs]
        vars(command)["__signature__"] = Signature(every)
        command.__annotations__ = {each.name: each.annotation for each in every}
        return command

    return with_flags
