"""Texts and queries become tokens, by script and language.

Words are stemmed by Snowball; scripts that write no spaces, and Korean, become pairs of characters. Stop words and
single letters are quiet: they are found if a query has nothing else, and count for no length. Decides what is one
token on both sides. Knows neither files nor scores.
"""

from __future__ import annotations

import re
import sys
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np

from reasonrag.data.documents.language import language_of

ANALYSER = 2
"""Changes whenever the same text could become other tokens."""
_IMPORTING = threading.Lock()
QUIET = " "
"""What a quiet token begins with, and no other."""
_SNOWBALL = dict(
    each.split("=")
    for each in (
        "ar=arabic ca=catalan cs=czech da=danish de=german el=greek en=english eo=esperanto es=spanish et=estonian "
        "eu=basque fa=persian fi=finnish fr=french ga=irish hi=hindi hu=hungarian hy=armenian id=indonesian it=italian "
        "lt=lithuanian ne=nepali nl=dutch no=norwegian pl=polish pt=portuguese ro=romanian ru=russian sr=serbian "
        "sv=swedish ta=tamil tr=turkish"
    ).split()
)
_SIGNS = (
    "\u0300-\u036f\u0483-\u0487\u0900-\u0963\u0966-\u096f\u0971-\u0df3\u0e01-\u0e4e\u0e81-\u0ece\u0f71-\u0f84"
    "\u1000-\u1049\u1056-\u109d\u1712-\u1734\u1780-\u17d3\u1a17-\u1a7f\u1b00-\u1b44"
)
"""Accents and vowel signs, which stand in words and are no letters: those of India, Thailand, Burma and others."""
_UNSPACED = (
    "\u3005\u3007\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U000323af\u1100-\u11ff\uac00-\ud7a3\u0e01-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1780-\u17d3"
)
"""Chinese characters, kana, hangul; Thai, Lao, Burmese and Khmer letters with their signs."""
_WORD = re.compile(rf"[\w{_SIGNS}]{{2,}}|(?<!['\u2019])\w(?:\+\+|#)?")
"""A word, or a single letter that ends none (`don't`); C++ and C# are not C."""
_RUN = re.compile(rf"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_PAIRED = re.compile(rf"[{_UNSPACED}]+")
_UNWRITTEN = re.compile(
    "[\u00ad\u200b-\u200f\u202a-\u202e\u2060\ufeff\u0307\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed]"
)
"""What may stand in a word or not: format characters, Hebrew and Arabic vowel signs, tatweel, the dot of a folded I."""
_ACCENTS = dict.fromkeys(range(0x300, 0x370)) | str.maketrans("łøđ", "lod")
_GRAM, _LEAST_SHARED, _SIMILAR, _MOST_SIMILAR = 3, 3, 0.4, 10
"""Characters of a piece of a word; pieces that similar words share at least, also as a share of the shorter one's; most
similar words of one."""


def folded(text: str) -> str:
    """The text in one spelling: NFKC without case and without what may be left out. ASCII only loses its capitals."""
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return _UNWRITTEN.sub("", text).replace("\u0131", "i")  # the dotless i of a Turkish word in capitals


def bm25s() -> ModuleType:
    """The library, imported as if there were no JAX: it tries JAX out, which then takes three quarters of a GPU's
    memory, and vLLM does not start beside that."""
    with _IMPORTING:
        if "bm25s" in sys.modules:
            return sys.modules["bm25s"]
        hidden = {name: sys.modules.pop(name, None) for name in ("jax", "jax.lax")}
        missing: Any = dict.fromkeys(hidden)
        sys.modules |= missing  # an import of them fails
        try:
            return import_module("bm25s")
        finally:
            for name, module in hidden.items():
                del sys.modules[name]
                sys.modules |= {name: module} if module else {}


class Analyser:
    """Tokens of passages and queries of a corpus in these languages, the commonest first."""

    def __init__(self, languages: Sequence[str]) -> None:
        import Stemmer

        stopwords = bm25s().stopwords
        self._languages = tuple(languages)
        self._stemmers = {each: Stemmer.Stemmer(_SNOWBALL[each], 0) for each in languages if each in _SNOWBALL}
        lists = ("EN" if each == "en" else _SNOWBALL.get(each, "").upper() for each in languages)
        stop = (word for each in lists for word in getattr(stopwords, f"STOPWORDS_{each}", ()))
        self._stop = frozenset(map(folded, stop))
        self._lock = threading.Lock()
        """Stemmers keep state: one thread at a time."""

    def passages(self, texts: Iterable[str]) -> tuple[list[list[int]], dict[str, int]]:
        """The tokens of each text, and the number of each token, in order of appearance."""
        numbers: dict[str, int] = {}
        known: dict[str, dict[str, list[int]]] = {each: {} for each in self._languages}
        found = []
        for text in texts:
            language = self._language(text)
            words, tokens = known[language], list[int]()
            for word in _WORD.findall(folded(text)):
                if word not in words:
                    made = self._tokens(word, language)
                    words[word] = [numbers.setdefault(each, len(numbers)) for each in made]
                tokens += words[word]
            found.append(tokens)
        return found, numbers

    def query(self, text: str) -> list[str]:
        """The tokens of a query, each word analysed in every language of the corpus."""
        with self._lock:
            each_word = (
                dict.fromkeys(token for language in self._languages for token in self._tokens(word, language))
                for word in _WORD.findall(folded(text))
            )
            return [token for tokens in each_word for token in tokens]

    def _language(self, text: str) -> str:
        """Of a passage; the corpus's commonest if it is short, or of none of the corpus's."""
        found = language_of(text) if len(self._languages) > 1 else None
        return found if found in self._languages else self._languages[0]

    def _tokens(self, word: str, language: str) -> Iterator[str]:
        for part in [word] if word.isascii() else _RUN.findall(word):
            if _PAIRED.fullmatch(part):
                yield from [part] if len(part) == 1 else map("".join, pairwise(part))
            elif len(part) == 1 or part[-1] in "+#" or part in self._stop:
                yield QUIET + part
            else:
                yield self._stem(part, language)

    def _stem(self, word: str, language: str) -> str:
        stemmer = self._stemmers.get(language)
        stem = str(stemmer.stemWord(word)) if stemmer else word
        if stem.isascii() or language == "vi":  # in Vietnamese accents tell words apart
            return stem
        return unicodedata.normalize("NFC", unicodedata.normalize("NFD", stem).translate(_ACCENTS))


class SimilarWords:
    """The words of a vocabulary that contain another or share much of it: compounds and misspellings."""

    def __init__(self, vocabulary: Iterable[str]) -> None:
        self._words = [each for each in vocabulary if each and not each.startswith(QUIET)]
        self._text = "".join(f"{each}\n" for each in self._words).encode()
        self._ends = np.flatnonzero(np.frombuffer(self._text, np.uint8) == ord("\n")) + 1
        self._pieces = np.maximum(1, np.fromiter(map(len, self._words), int) - _GRAM + 1)

    def of(self, word: str) -> dict[str, float]:
        """The most similar words, each with the share of the word that it holds."""
        if len(word) < (4 if word.isascii() else 1 if _PAIRED.match(word) else _GRAM) or not self._words:
            return {}
        pieces = {word[i : i + _GRAM] for i in range(max(1, len(word) - _GRAM + 1))}
        shared = np.zeros(len(self._words), dtype=np.int32)
        for piece in pieces:
            places = [each.start() for each in re.finditer(re.escape(piece.encode()), self._text)]
            shared[np.unique(np.searchsorted(self._ends, places, side="right"))] += 1
        enough = (shared >= _LEAST_SHARED) & (shared >= _SIMILAR * np.minimum(len(pieces), self._pieces))
        found = np.flatnonzero(enough | (shared == len(pieces)))
        best = found[np.argsort(-shared[found], kind="stable")][:_MOST_SIMILAR]
        return {self._words[each]: float(shared[each] / len(pieces)) for each in best}
