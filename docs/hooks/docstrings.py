"""How the site reads our docstrings: their examples are code, and two brackets in a row are no link."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Changes what is shown, not the docstrings themselves."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            lines = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n").split("\n")
            obj.docstring.value = "\n".join(map(_without_links, lines))


def _without_links(line: str) -> str:
    return line if line.lstrip().startswith(">>>") else re.sub(r"\](\s?)\[", r"]\1\\[", line)
