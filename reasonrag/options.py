"""Shared by the commands: flags generated from settings, output, and exit statuses.

Knows no command. A flag's name, help, default and panel come from a field of the command's settings, so that they are
written once.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import Parameter, Signature, signature
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from reasonrag.errors import CapReached, Interrupted
from reasonrag.redaction import redact
from reasonrag.settings import Opposite, Panel, Settings
from reasonrag.terminal import print_shown

FAILED, BAD_INPUT = 1, 2
"""Exit statuses."""
Command: TypeAlias = Callable[..., None]
Result = TypeVar("Result", bound=BaseModel)
arguments: ContextVar[list[str]] = ContextVar("arguments")
"""Arguments of the running command line, without the program's name."""
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON object on stdout instead of a table")]


# -- flags -----------------------------------------------------------------------------------------------------


def options(*models: type[Settings], without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Give a command that takes `**flags` a flag for each setting of the models that is not in `without`.

    A flag that is not given is None or an empty list, and leaves the setting to `settings.resolve`, which also checks
    every value. Where two models have a setting of one name, the first model's counts.
    """

    def with_options(command: Command) -> Command:
        own = [each for each in signature(command, eval_str=True).parameters.values() if each.kind != each.VAR_KEYWORD]
        made: dict[str, Parameter] = {}
        for model in models:
            for name, field in model.model_fields.items():
                if name not in without:
                    made.setdefault(name, _parameter(name, field))
        every = [each.replace(kind=each.KEYWORD_ONLY) for each in sorted([*made.values(), *own], key=_panel_number)]
        vars(command)["__signature__"] = Signature(every)
        command.__annotations__ = {each.name: each.annotation for each in every}
        return command

    return with_options


def _parameter(name: str, field: FieldInfo) -> Parameter:
    """A parameter as typer reads it: its range is checked with the other settings, not by typer."""
    kind, flag = _kind(field.annotation), f"--{name.replace('_', '-')}"
    of_type = next((each for each in field.metadata if isinstance(each, Panel)), None)
    panel = str(field.json_schema_extra["panel"]) if isinstance(field.json_schema_extra, dict) else of_type
    shown = field.description or ""
    if kind is bool:
        opposite = next((each.flag for each in field.metadata if isinstance(each, Opposite)), f"--no-{flag[2:]}")
        flag = f"{flag}/{opposite}" if opposite else flag
    elif field.default not in (None, []) and not field.is_required():
        shown += f" [default: {field.default}]"
    shown = shown.replace("[", r"\[")  # a bracket would be markup
    option = typer.Option(flag, help=shown, rich_help_panel=panel, show_default=False)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option])


def _kind(annotation: Any) -> Any:
    """The type that typer converts to: without None, a Literal or JSON as the text that it is on the command line."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        [annotation] = (each for each in parts if each is not NoneType)
        return _kind(annotation)
    if origin is list:
        return list[_kind(parts[0])]  # type: ignore[misc]
    return str if origin in (Literal, dict) else annotation


def _panel_number(parameter: Parameter) -> int:
    option = get_args(parameter.annotation)[1]
    return [None, *Panel].index(getattr(option, "rich_help_panel", None) or None)


# -- how a command ends ----------------------------------------------------------------------------------------


def print_result(result: Result, show: Callable[[Result], object], *, as_json: bool) -> None:
    """The result of a command on stdout: as JSON, or by a function that prints it for people."""
    if as_json:
        print(result.model_dump_json())  # noqa: T201 - JSON escapes its controls
    else:
        show(result)


@contextmanager
def interrupts() -> Iterator[None]:
    """Turn Ctrl-C into exit status 130 and the command that continues."""
    try:
        yield
    except KeyboardInterrupt:
        print_shown("interrupted; finished work and received answers are kept", file=sys.stderr)
        print_shown(f"continue with: {this_command()}", file=sys.stderr)
        raise typer.Exit(Interrupted.exit_status) from None


@contextmanager
def caps() -> Iterator[None]:
    """Turn a cap that was reached into exit status 3 and the command that continues with a higher one."""
    try:
        yield
    except CapReached as reached:
        print_shown(f"stopped: {reached}", file=sys.stderr)
        print_shown(f"continue with: {this_command(reached.raised)}", file=sys.stderr)
        raise typer.Exit(CapReached.exit_status) from None


def this_command(changed: dict[str, str] | None = None) -> str:
    """The command as it was given, some flags with other values, ready to be pasted."""
    words = ["reasonrag", *arguments.get()]
    for flag, value in (changed or {}).items():
        words = [word for i, word in enumerate(words) if word != flag and words[i - 1] != flag]
        words = [word for word in words if not word.startswith(f"{flag}=")] + [flag, value]
    return redact(shlex.join(words))
