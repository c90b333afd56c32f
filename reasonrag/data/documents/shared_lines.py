"""Lines at the ends of documents that most files of a folder share: banners, menus and footers answer no question.

Decides which lines are shared. What stands between lines of a document's own stays, whichever others have it: a table's
head, a label of a form. Numbers count. Headings stay where they have text. Knows no file.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from pathlib import PurePosixPath

from preference.similarity import folded
from reasonrag.data.documents.document import Document, Section

_FEWEST_FILES = 4
"""Fewer say nothing about what is usual."""
_LONGEST, _AT_ENDS = 300, 50
"""Characters of such a line, and lines at each end of a document that may be."""
_STEPS = re.compile(r"\s*[\u203a\u00bb>/\u2192]\s*")
"""What parts the steps of a path to a page, of which the last may be its title."""


@dataclass
class SharedLines:
    """The lines of the files of one kind. left_out: those that were, each with the number of files."""

    left_out: Counter[str] = field(default_factory=Counter)
    _files: Counter[str] = field(default_factory=Counter)
    """By folder; a file counts for all folders above it, and copies of one count once."""
    _having: Counter[int] = field(default_factory=Counter)
    """Files by folder and line, which are kept as one number."""
    _seen: set[int] = field(default_factory=set)

    def add(self, path: str, document: Document) -> None:
        own = tuple(map(folded, document.lines))
        if hash(own) in self._seen:
            return
        self._seen.add(hash(own))
        lines = {*own[:_AT_ENDS], *own[-_AT_ENDS:], *map(folded, document.beside)}
        for folder in PurePosixPath(path).parents:
            self._files[str(folder)] += 1
            self._having.update(hash((str(folder), line)) for line in lines if _may_be_shared(line))

    def without(self, path: str, document: Document) -> Document:
        """The document without first and last lines that more than half of the files have, of its folder or of one
        above it; as it is if it has no others."""
        folders = [str(each) for each in PurePosixPath(path).parents if self._files[str(each)] >= _FEWEST_FILES]
        title = folded(document.title)

        def is_common(line: str) -> bool:
            having = ((self._having[hash((each, line))], self._files[each]) for each in folders)
            return line == title or (_may_be_shared(line) and any(some * 2 > files for some, files in having))

        def is_shared(line: str) -> bool:
            line = folded(line)
            return not line or is_common(line) or all(map(is_common, _STEPS.split(line)))

        lines = [(number, line) for number, each in enumerate(document.sections) for line in each.text.split("\n")]
        first = next((place for place, (_, line) in enumerate(lines) if not is_shared(line)), None)
        if first is None or not folders:
            return document
        end = next(place for place in range(len(lines), 0, -1) if not is_shared(lines[place - 1][1]))
        gone = {line.strip() for _, line in (*lines[:first], *lines[end:])}
        self.left_out.update(line for line in gone if folded(line) not in ("", title))
        sections = [
            Section(document.sections[number].headings, "\n".join(line for _, line in group).strip("\n"))
            for number, group in groupby(lines[first:end], key=itemgetter(0))
        ]
        return replace(document, sections=sections)


def _may_be_shared(line: str) -> bool:
    return len(line) <= _LONGEST and any(map(str.isalnum, line))
