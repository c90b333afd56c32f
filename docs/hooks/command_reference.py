"""Pages of the site that are made at build time: one for each command, one for each public call of Python.

Flags, defaults and texts come from the commands as they are installed, so a page cannot differ from `--help-all`.
"""

from __future__ import annotations

from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import reasonrag
from reasonrag.cli import app


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to those of `docs/`."""
    for name, command in commands_of(typer.main.get_command(app)):
        page = f"reference/commands/{name.replace(' ', '-')}.md"
        files.append(File.generated(config, page, content=command_page(name, command)))
    for name in reasonrag.__all__:
        if not name.startswith("__"):
            files.append(File.generated(config, f"reference/python/{name}.md", content=f"::: reasonrag.{name}\n"))
    return files


def commands_of(group: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Every command by the words that call it, those of groups too."""
    found = []
    for name, command in group.commands.items():
        words = f"{prefix}{name}"
        found += commands_of(command, f"{words} ") if hasattr(command, "commands") else [(words, command)]
    return found


def command_page(name: str, command: Any) -> str:
    """Usage, description, and a table of the flags for each panel of the help."""
    context = command.make_context(f"reasonrag {name}", [], resilient_parsing=True)
    usage = " ".join(command.get_usage(context).removeprefix("Usage:").split())
    lines = [f"# reasonrag {name}", "", paragraphs(command.help), "", "```text", usage, "```", ""]
    panels: dict[str, list[Any]] = {}
    for each in command.params:
        if not each.hidden:
            kind = "Arguments" if each.param_type_name == "argument" else "Options"
            panels.setdefault(each.rich_help_panel or kind, []).append(each)
    for panel, parameters in panels.items():
        lines += [f"## {panel}", "", "| | |", "|---|---|"]
        lines += [f"| `{spelling(each, context)}` | {cell(each.help)} |" for each in parameters] + [""]
    return "\n".join(lines)


def paragraphs(text: str | None) -> str:
    return "\n\n".join(cell(each) for each in (text or "").split("\n\n"))


def spelling(parameter: Any, context: Any) -> str:
    """As it is typed, with the kind of value that it takes."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    written, _ = parameter.get_help_record(context)
    return str(written).replace("|", "\\|")


def cell(text: str | None) -> str:
    """Plain text in a table: rich's backslashes taken out, Markdown's own marks escaped."""
    plain = " ".join((text or "").replace("\\[", "[").split())
    return "".join(f"&#{ord(each)};" if each in "<>[]|*_`" else each for each in plain)
