"""What a build adds to the package: `reasonrag/__init__.pyi`, the public calls with their settings.

Made of the signatures, so reasonrag is imported, with what it needs, while a wheel or an editable install is built. Git
does not keep the file; after a change of settings, `python hatch_build.py` writes it anew.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
from collections import defaultdict
from inspect import Parameter
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))
import reasonrag  # noqa: E402 - of this folder

STUB = ROOT / "reasonrag" / "__init__.pyi"
HEAD = '"""The public calls with their settings, for editors and type checkers. The build makes this file."""\n'
_KNOWN = {
    "Any": "typing",
    "Literal": "typing",
    "Mapping": "collections.abc",
    "Sequence": "collections.abc",
    "Path": "pathlib",
}
_WORDS = re.compile(r"'[^']*'|\"[^\"]*\"|[A-Za-z_]\w*")


def stub() -> str:
    """The text of the stub."""
    imports: defaultdict[str, set[str]] = defaultdict(set)
    calls = [_call(name, imports) for name in reasonrag.__all__ if name != "__version__"]
    lines = [HEAD, *(f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(imports.items()))]
    names = ", ".join(f'"{name}"' for name in reasonrag.__all__)
    return "\n".join([*lines, "", "__version__: str", f"__all__ = [{names}]", "", *calls, ""])


def _call(name: str, imports: defaultdict[str, set[str]]) -> str:
    call = getattr(reasonrag, name)
    if not inspect.isclass(call):
        return _function(name, call, imports)
    functions = [each for each, value in vars(call).items() if inspect.isfunction(value)]
    methods = [each for each in functions if each == "__init__" or not each.startswith("_")]
    shown = "\n\n".join(_function(each, getattr(call, each), imports) for each in methods)
    return f"class {name}:\n" + _indented(f'"""{inspect.getdoc(call)}\n"""\n\n{shown}')


def _function(name: str, call: Any, imports: defaultdict[str, set[str]]) -> str:
    signature = inspect.signature(call)
    places = _places(inspect.getmodule(call))
    shown, keywords = [], False
    for each in signature.parameters.values():
        if each.kind == Parameter.KEYWORD_ONLY and not keywords:
            shown, keywords = [*shown, "*"], True
        default = "" if each.default is Parameter.empty else f" = {_default(each.default)}"
        shown.append(each.name if each.name == "self" else f"{each.name}: {each.annotation}{default}")
        _note(str(each.annotation), places, imports)
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


def write_stub() -> None:
    """At once, as a type checker may be reading it."""
    new = STUB.with_suffix(f".{os.getpid()}")
    new.write_text(stub(), "utf-8")
    new.replace(STUB)


class StubHook(BuildHookInterface[Any]):
    """Writes the stub where an editable install finds it, or takes it into the wheel, though git ignores it."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._stays = version == "editable" or STUB.exists()
        write_stub()
        build_data["artifacts"].append(f"/{STUB.relative_to(ROOT).as_posix()}")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's
        if not self._stays:
            STUB.unlink()


if __name__ == "__main__":
    write_stub()
