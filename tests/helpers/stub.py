"""`reasonrag/__init__.pyi`, written from the signatures of the public calls: what editors and type checkers see."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections import defaultdict
from inspect import Parameter
from pathlib import Path
from typing import Any

import reasonrag

HEAD = '"""The public calls with their settings, for editors and type checkers. `make golden` makes this file."""\n'
_KNOWN = {
    "Any": "typing",
    "Literal": "typing",
    "Mapping": "collections.abc",
    "Sequence": "collections.abc",
    "Path": "pathlib",
}
_WORDS = re.compile(r"'[^']*'|\"[^\"]*\"|[A-Za-z_]\w*")


def stub() -> str:
    """The text of the stub, formatted."""
    imports: defaultdict[str, set[str]] = defaultdict(set)
    calls = [_call(name, imports) for name in reasonrag.__all__ if name != "__version__"]
    lines = [HEAD, *(f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(imports.items()))]
    names = ", ".join(f'"{name}"' for name in reasonrag.__all__)
    text = "\n".join([*lines, "", "__version__: str", f"__all__ = [{names}]", "", *calls])
    formatting = [sys.executable, "-m", "ruff", "format", "--line-length", "120", "--stdin-filename", "stub.pyi", "-"]
    return subprocess.run(formatting, input=text, capture_output=True, text=True, check=True).stdout


def _call(name: str, imports: defaultdict[str, set[str]]) -> str:
    call = getattr(reasonrag, name)
    signature = inspect.signature(call)
    places = _places(inspect.getmodule(call))
    shown, keywords = [], False
    for each in signature.parameters.values():
        if each.kind == Parameter.KEYWORD_ONLY and not keywords:
            shown, keywords = [*shown, "*"], True
        default = "" if each.default is Parameter.empty else f" = {_default(each.default)}"
        shown.append(f"{each.name}: {each.annotation}{default}")
        _note(each.annotation, places, imports)
    _note(signature.return_annotation, places, imports)
    text = inspect.getdoc(call) or ""
    quoted = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f"def {name}({', '.join(shown)}) -> {signature.return_annotation}:\n" + _indented(f'"""{quoted}\n"""')


def _default(value: Any) -> str:
    return repr(value) if value is None or type(value) in (bool, int, float, str) or value == [] else "..."


def _note(annotation: str, places: dict[str, str], imports: defaultdict[str, set[str]]) -> None:
    for word in _WORDS.findall(annotation):
        if module := places.get(word) or _KNOWN.get(word):
            imports[module].add(word)


def _places(module: Any) -> dict[str, str]:
    """The module of each name that a module imports or defines."""
    places = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and node.module:
            places |= {each.asname or each.name: node.module for each in node.names}
        elif isinstance(node, ast.ClassDef):
            places[node.name] = module.__name__
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            places |= {
                each.id: module.__name__ for each in targets if isinstance(each, ast.Name) and each.id[0].isupper()
            }
    return places


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def path() -> Path:
    return Path(reasonrag.__file__).with_suffix(".pyi")
