"""Shared by the commands: flags generated from settings, their help, output, and exit statuses.

Decides how help looks: `--help` shows the common flags, `--help-all` every flag by panel, both as plain text that fits
80 columns. Knows no command. A flag's name, help, default and panel come from a field of the command's settings, so
that they are written once.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, Signature, cleandoc, signature
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeAlias, get_args

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.core import TyperCommand, TyperGroup

from reasonrag.errors import CapReached, Interrupted, UploadStopped
from reasonrag.redaction import redact
from reasonrag.rendering import Part
from reasonrag.settings import COMMON, Panel, Settings, Shape, arguments, flag_of, flags_of, shape_of
from reasonrag.terminal import print_shown, show

FAILED, BAD_INPUT = 1, 2
"""Exit statuses."""
Command: TypeAlias = Callable[..., None]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table")]
Config: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="CONFIG", help="Shipped configuration by its name, or a YAML file of its keys")
]
EstimateOnly: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Estimate the cost; send no request", rich_help_panel=Panel.BUDGET), COMMON
]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Print the configuration and all findings; do not train"), COMMON
]


def options(*models: type[Settings], without: Collection[str] = (), example: str = "") -> Callable[[Command], Command]:
    """Give a command that takes `**flags` a flag for each setting of the models that is not in `without`.

    A flag that is not given is None or an empty list, and leaves the setting to `settings.resolve`, which also checks
    every value. Where two models have a setting of one name, the first counts. example: for the end of the help.
    """

    def with_options(command: Command) -> Command:
        own = [each for each in signature(command, eval_str=True).parameters.values() if each.kind != each.VAR_KEYWORD]
        made: dict[str, Parameter] = {}
        common = {each.name for each in own if COMMON in get_args(each.annotation)}
        for model in models:
            for name, field in model.model_fields.items():
                if name not in without and name not in made:
                    made[name] = _parameter(name, field)
                    common |= {name} if COMMON in field.metadata else set()
        every = [each.replace(kind=each.KEYWORD_ONLY) for each in sorted([*made.values(), *own], key=_panel_number)]
        every.append(Parameter("help_all", Parameter.KEYWORD_ONLY, default=False, annotation=_HelpAll))

        @wraps(command)
        def with_flags(**given: Any) -> None:
            given.pop("help_all", None)
            with _stops():
                command(**given)

        vars(with_flags).update(__signature__=Signature(every), common=frozenset(common), example=example)
        with_flags.__annotations__ = {each.name: each.annotation for each in every}
        return with_flags

    return with_options


def _parameter(name: str, field: FieldInfo) -> Parameter:
    """A parameter as typer reads it: its range is checked with the other settings, not by typer."""
    shape, flag = shape_of(field.annotation), flag_of(name)
    kind = str if shape.kind is dict else shape.kind
    shown = field.description or ""
    if kind is bool:
        flag = "/".join(flags_of(name, field))
    elif field.is_required():
        shown += " [required]"
    elif field.default not in (None, []):
        default = f"{field.default:g}" if isinstance(field.default, float) else field.default
        default = " ".join(map(str, default)) if isinstance(default, list) else default
        shown += f" [default: {default}]"
    option = typer.Option(
        flag,
        help=shown,
        rich_help_panel=next((each for each in reversed(field.metadata) if isinstance(each, Panel)), None),
        show_default=False,
        metavar=None if kind is bool else _metavar(shape),
        autocompletion=(lambda: [*shape.words]) if shape.words else None,
    )
    given = list[kind] if shape.several else kind  # type: ignore[valid-type]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[given | None, option])


def _metavar(shape: Shape) -> str:
    """What the help writes for a value: `N` for a whole number, the choices where they are short."""
    words = "|".join(shape.words)
    if words and not shape.several and len(words) <= _LONGEST_CHOICES:
        return words
    return {int: "N", float: "NUMBER", Path: "PATH"}.get(shape.kind, "NAME" if words else "TEXT")


_LONGEST_CHOICES = 24
"""Characters; longer lists of choices stand in the help text only."""


def _panel_number(parameter: Parameter) -> int:
    """Arguments first, then the panels in their order, then flags without a panel."""
    if not get_args(parameter.annotation):  # the context
        return 0
    option = get_args(parameter.annotation)[1]
    place = [*Panel, None].index(getattr(option, "rich_help_panel", None) or None)
    return -1 if isinstance(option, type(typer.Argument())) else place


def _show_all(context: typer.Context, asked: bool) -> None:  # noqa: FBT001 - typer calls it
    if asked and not context.resilient_parsing:
        context.meta[_EVERY_FLAG] = True
        typer.echo(context.get_help())
        raise typer.Exit


_EVERY_FLAG = "reasonrag.help_all"
_HelpAll: TypeAlias = Annotated[
    bool,
    typer.Option("--help-all", help="Show every flag, by topic", callback=_show_all, is_eager=True, expose_value=False),
]
_FLAG_COLUMN = 26
"""Widest column of flags; longer ones have a line of their own."""


def _write_panels(formatter: Any, panels: dict[str, list[tuple[str, str]]]) -> None:
    for panel, rows in panels.items():
        with formatter.section(typer.style(panel, bold=True)):
            formatter.write_dl([(name, text.replace("  [", " [")) for name, text in rows], col_max=_FLAG_COLUMN)


class HelpOfCommand(TyperCommand):
    """Shows the flags by panel: the common ones, or with --help-all every one. A command that marks none shows all."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [each.replace("{", "").replace("}", "") for each in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        common: frozenset[str] = getattr(self.callback, "common", frozenset())
        parameters: list[Any] = self.get_params(ctx)
        if not common:  # --help shows all
            parameters = [each for each in parameters if each.name != "help_all"]
        elif _EVERY_FLAG not in ctx.meta:
            first = {*common, "help", "help_all"}
            parameters = [each for each in parameters if each.param_type_name == "argument" or each.name in first]
        panels: dict[str, list[tuple[str, str]]] = {}
        for each in parameters:
            panel, record = each.rich_help_panel or "Options", each.get_help_record(ctx)
            if each.param_type_name == "argument":
                required = " [required]" if each.required else ""
                several = "..." if each.nargs != 1 else ""
                panel, record = "Arguments", (f"{each.metavar}{several}", f"{each.help}{required}")
            panels.setdefault(panel, []).append(record)
        _write_panels(formatter, panels)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - its signature is click's
        formatter.write_paragraph()
        formatter.write(f"{typer.style('Example', bold=True)}:\n  {getattr(self.callback, 'example', '')}\n")


class HelpOfGroup(TyperGroup):
    """Shows the commands by panel, each with its first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands: dict[str, Any] = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        width = max(map(len, commands))  # one for all panels
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in commands.items():
            first, *_ = cleandoc(command.help or "").split("\n\n")
            panels.setdefault(command.rich_help_panel or "Commands", []).append((name.ljust(width), first))
        _write_panels(formatter, panels)


def print_result(result: BaseModel, parts: Iterable[Part], *, as_json: bool) -> None:
    """The result of a command on stdout: as JSON, or for people. parts: what it shows."""
    if as_json:
        print(result.model_dump_json())  # noqa: T201 - JSON escapes its controls
    else:
        show(parts)


@contextmanager
def _stops() -> Iterator[None]:
    """Turn Ctrl-C, a cap and a lost upload into an exit status and the command that continues, with a higher cap."""
    try:
        yield
    except KeyboardInterrupt:
        _stop("interrupted; finished work and received answers are kept", Interrupted.exit_status)
    except (CapReached, UploadStopped) as stopped:
        _stop(f"stopped: {redact(str(stopped))}", stopped.exit_status, stopped.raised)


def _stop(said: str, status: int, changed: dict[str, str] | None = None) -> NoReturn:
    print_shown(said, file=sys.stderr)
    print_shown(f"continue with: {this_command(changed)}", file=sys.stderr)
    raise typer.Exit(status) from None


def this_command(changed: dict[str, str] | None = None) -> str:
    """The command as it was given, some flags with other values, ready to be pasted."""
    given = arguments.get()
    words = [] if given is None else ["reasonrag", *given]  # a call from Python has the flags only
    for flag, value in (changed or {}).items():
        words = [word for i, word in enumerate(words) if word != flag and words[i - 1] != flag]
        words = [word for word in words if not word.startswith(f"{flag}=")] + [flag, value]
    return redact(shlex.join(words))
