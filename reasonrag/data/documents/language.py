"""The languages of texts: English by its commonest words, others by py3langid, whose model is in its wheel.

Decides what a text must have to be told, and which languages of a corpus count. Does not know what a language is for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator

from reasonrag.errors import choices
from reasonrag.files import read_small
from reasonrag.settings import SEVERAL

LANGUAGES = (
    "af ar az be bg bn ca cs cy da de el en eo es et eu fa fi fr ga gu he hi hr hu hy id is it ja ka kk km kn ko lo lt "
    "lv mk ml mn mr ms my ne nl no pa pl ps pt ro ru si sk sl sq sr sv sw ta te th tl tr uk ur uz vi zh"
).split()
"""Codes of ISO 639-1. Without dialects and small languages, for which a short text of a large one is easily taken."""
_ENGLISH = frozenset("the and with from by that which were has his their".split())
_ENGLISH_SHARE = 1 / 16
"""These words have no other meaning elsewhere: one of 8 in English, and none in a German page that names The Who."""
_LONG_ENOUGH, _LOOKED_AT, _SURE = 40, 1000, 0.5
"""Bytes of the shortest text that is told by itself; characters of a text that are read; the least probability."""
_SHARE = 0.01
"""A language of fewer passages is taken for an error."""


def _language(code: str) -> str:
    if code not in LANGUAGES:
        raise ValueError(f"{code!r} is no language: {choices(code, LANGUAGES)} (codes of ISO 639-1)")
    return code


Languages = Annotated[list[Annotated[str, AfterValidator(_language)]], SEVERAL]
LANGUAGE = "Language of the corpus, for BM25: a code like de; repeat for several [default: detected]"
"""What --language says, and its help."""


def language_of(text: str, *, least: int = _LONG_ENOUGH) -> str | None:
    """The language of a text; None if it is shorter than `least` bytes, or no language is likely."""
    text = text[:_LOOKED_AT]
    if len(text.encode(errors="replace")) < least:
        return None
    words = text.lower().split()
    if sum(map(_ENGLISH.__contains__, words)) > _ENGLISH_SHARE * len(words):
        return "en"
    language, likely = _identifier().classify(text)
    return str(language) if likely >= _SURE else None


@dataclass
class LanguageCounts:
    """The languages of a corpus by its passages."""

    _found: Counter[str] = field(default_factory=Counter)
    _short: str = ""

    def add(self, text: str) -> None:
        if (language := language_of(text)) is not None:
            self._found[language] += 1
        elif len(self._short) < _LOOKED_AT:
            self._short += f"{text}\n"

    @property
    def common(self) -> tuple[str, ...]:
        """The commonest first; if all passages are short, that of all together, and English if that tells nothing."""
        if not self._found:
            return (language_of(self._short, least=1) or "en",)
        return tuple(each for each, count in self._found.most_common() if count >= _SHARE * self._found.total())


def recorded_languages(corpus: Path, sha256: str) -> tuple[str, ...]:
    """What `corpus build` wrote of this corpus; nothing if another wrote it, or it has changed since."""
    try:
        summary = orjson.loads(read_small(corpus.with_suffix(".summary.json")))
    except (OSError, orjson.JSONDecodeError):
        return ()
    ours = isinstance(summary, dict) and summary.get("sha256") == sha256
    found = summary.get("languages") if ours else None
    return tuple(each for each in found if each in LANGUAGES) if isinstance(found, list) else ()


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # takes half a second

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(LANGUAGES)
    return identifier
