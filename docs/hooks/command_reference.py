"""Pages of the site that are made at build time: one for each command, one for each public call of Python.

Flags, defaults and texts come from the commands as they are installed, so a page cannot differ from `--help-all`.
"""

from __future__ import annotations

import inspect
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import reasonrag
from reasonrag.cli import app


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to those of `docs/`."""
    commands = commands_of(typer.main.get_command(app))
    pages = {f"commands/{page_of(name)}": command_page(name, command) for name, _, command in commands}
    pages |= {f"python/{name}.md": f"---\ntitle: {name}\n---\n::: reasonrag.{name}\n" for name in PUBLIC}
    pages |= {"commands/index.md": command_index(commands), "python/index.md": python_index()}
    for place, content in pages.items():
        files.append(File.generated(config, f"reference/{place}", content=content))
    return files


PUBLIC = [name for name in reasonrag.__all__ if not name.startswith("__")]


def commands_of(group: Any, prefix: str = "", panel: str = "") -> list[tuple[str, str, Any]]:
    """Every command by the words that call it and the group it stands in, in the order of the help."""
    found = []
    for name, command in group.commands.items():
        words, of = f"{prefix}{name}", panel or command.rich_help_panel
        below = hasattr(command, "commands")
        found += commands_of(command, f"{words} ", of) if below else [(words, of, command)]
    return found


def page_of(name: str) -> str:
    return f"{name.replace(' ', '-')}.md"


def command_index(commands: list[tuple[str, str, Any]]) -> str:
    """The commands by group, each with the first sentence of its help."""
    lines = ["# Commands", "", "`reasonrag COMMAND --help` shows the flags that matter, `--help-all` every one."]
    for panel in dict.fromkeys(panel for _, panel, _ in commands):
        lines += ["", f"## {panel}", "", "| command | what it does |", "|---|---|"]
        lines += [
            f"| [{name}]({page_of(name)}) | {cell(first(command.help))} |"
            for name, of, command in commands
            if of == panel
        ]
    return "\n".join(lines)


def python_index() -> str:
    """The public calls, each with the first line of its docstring."""
    lines = [
        "# Python",
        "",
        "Keyword arguments are the settings of the command of the same name.",
        "",
        "| | |",
        "|---|---|",
    ]
    for name in PUBLIC:
        says = inspect.getdoc(getattr(reasonrag, name))
        lines.append(f"| [reasonrag.{name}]({name}.md) | {cell(first(says))} |")
    return "\n".join(lines)


def command_page(name: str, command: Any) -> str:
    """Usage, description, and a table of the flags for each panel of the help."""
    context = command.make_context(f"reasonrag {name}", [], resilient_parsing=True)
    usage = " ".join(command.get_usage(context).removeprefix("Usage:").split())
    example = getattr(command.callback, "example", "")
    lines = [f"# reasonrag {name}", "", paragraphs(command.help), "", "```text", usage, "", example, "```", ""]
    panels: dict[str, list[Any]] = {}
    for each in command.params:
        if not each.hidden:
            kind = "Arguments" if each.param_type_name == "argument" else "Options"
            panels.setdefault(each.rich_help_panel or kind, []).append(each)
    for panel, parameters in panels.items():
        lines += [f"## {panel}", "", f"| {'argument' if panel == 'Arguments' else 'flag'} | meaning |", "|---|---|"]
        lines += [f"| `{spelling(each, context)}` | {cell(each.help)} |" for each in parameters] + [""]
    return "\n".join(lines)


def first(text: str | None) -> str:
    """Its first paragraph."""
    return (text or "").partition("\n\n")[0]


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
