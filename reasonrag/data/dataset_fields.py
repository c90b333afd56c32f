"""Columns of published data sets, by what they mean here.

HotpotQA and 2WikiMultiHopQA (`_id`, `answer`, `supporting_facts`, `context`), MuSiQue (`answer_aliases`, `answerable`,
`paragraphs`), BEIR (`_id`, `text`) and DPR (`answers`). Decides which columns become which field of a question, which
paragraphs are gold, how a title stands beside a text, and which columns are not read. Reads no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from preference.records import title_key

_STRUCTURED = ("context", "gold_ids", "gold_titles", "paragraphs", "question_decomposition", "supporting_facts")
_ABOUT = (*_STRUCTURED, "hops", "rubric", "type")
"""Columns of a question that are read as keys of `metadata`, as FlashRAG has them."""
_ANSWERS = ("answer", "answers", "possible_answers")
_ALIASES = ("answer_aliases",)
LISTS = frozenset((*_STRUCTURED, *_ANSWERS, *_ALIASES, "golden_answers", "metadata"))
"""Columns whose cells can hold lists and mappings as JSON text, as 2WikiMultiHopQA has them."""
_QUESTION = frozenset((*_ABOUT, *_ALIASES, "id", "_id", "question", "golden_answers", "metadata"))
_QUESTION |= {"choices", "options", "answerable", "is_impossible"}
_PASSAGE = frozenset(("id", "_id", "title", "contents", "text"))
_EMPTY: tuple[object, ...] = (None, "", [], {})
_MOST_NAMED = 20


def question_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """A question's record with the columns of published data sets as FlashRAG's.

    Raises ValueError for a question that has no answer, and for answers of an unknown form.
    """
    found, metadata = dict(record), record.get("metadata")
    about: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
    for place in (record, about):
        if place.get("answerable") in (False, "false", "False") or place.get("is_impossible") is True:
            raise ValueError(
                "it is marked as one that cannot be answered, so no answer is right; leave such questions out, as by "
                "jq -c 'select(.answerable != false and .is_impossible != true)'"
            )
    if record.get("id") is None and "_id" in record:
        found["id"] = record["_id"]
    if _asks_by_text(record):
        found["question"] = record["text"]
    given = record.get("golden_answers")
    if given is None or isinstance(given, list):
        own = [each for each in given or () if not isinstance(each, str) or each.strip()]
        own = own or _answers(record, _ANSWERS)
        aliases = [*_answers(record, _ALIASES), *_answers(about, _ALIASES)]
        more = [each for each in dict.fromkeys(aliases) if each not in own]
        if own and (more or not given):
            found["golden_answers"] = [*own, *more]
    moved = {name: record[name] for name in _ABOUT if record.get(name) is not None and about.get(name) is None}
    if moved and (metadata is None or isinstance(metadata, dict)):
        found["metadata"] = about | moved
    return found


def _asks_by_text(record: Mapping[str, Any]) -> bool:
    """Whether it is a query of BEIR; a passage has a title."""
    return record.get("question") is None and "_id" in record and "text" in record and "title" not in record


def _answers(record: Mapping[str, Any], columns: Iterable[str]) -> list[str]:
    found: list[str] = []
    for name in columns:
        texts = list(_texts(record.get(name)))
        if not texts and record.get(name) not in _EMPTY:
            raise ValueError(f"{name}: an answer must be a text, or a list of texts; write it as golden_answers")
        found += [each for each in texts if each.strip()]
    return list(dict.fromkeys(found))


def _texts(given: object, deeper: int = 2) -> Iterator[str]:
    """The texts of a value and, so many times, of the values in it."""
    match given:
        case bool():
            yield "yes" if given else "no"
        case str():
            yield given
        case int() | float():
            yield str(given)
        case list() if deeper:
            for each in given:
                yield from _texts(each, deeper - 1)
        case dict() if deeper:  # TriviaQA's and SQuAD's
            for name in ("value", "text", "aliases"):
                yield from _texts(given.get(name), deeper - 1)


class UnreadColumns:
    """The columns of a file that are not read, empty ones apart."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def add_question(self, record: Mapping[str, Any]) -> None:
        asked = ("text",) if _asks_by_text(record) else ()
        self._add(record, _QUESTION.union(asked, () if record.get("golden_answers") else _ANSWERS))

    def add_passage(self, record: Mapping[str, Any]) -> None:
        columns = [name for name in ("title", "text") if "contents" in record and isinstance(record.get(name), str)]
        said = "\n".join(map(str, title_and_text(record))) if columns else ""
        self._add(record, _PASSAGE.difference(name for name in columns if record[name].strip() not in said))

    def _add(self, record: Mapping[str, Any], known: frozenset[str]) -> None:
        for name in record.keys() - known:
            if len(self._names) < _MOST_NAMED and record[name] not in _EMPTY:
                self._names[name] = None

    def notice(self, file: object) -> str | None:
        """One line that names them; None without any."""
        names = ", ".join(f"{each!r:.60}" for each in sorted(self._names))
        return f"{file}: columns that are not read: {names}" if names else None


def id_of(record: Mapping[str, Any]) -> object:
    """`id`, or BEIR's `_id`."""
    return record["_id"] if record.get("id") is None and "_id" in record else record.get("id")


def title_and_text(record: Mapping[str, Any]) -> tuple[object, object]:
    """Of `contents`, whose first line is the title unless the record has its own; else `title` and `text`."""
    title, contents = record.get("title") or "", record.get("contents")
    if not isinstance(contents, str):
        return title, record.get("text")
    first, _, rest = contents.partition("\n")
    if not isinstance(title, str) or not title.strip():
        return first, rest
    text = record.get("text")
    other = isinstance(text, str) and text.strip() not in contents  # a row that contradicts itself is FlashRAG's
    return (first, rest) if title_key(first) == title_key(title) or (other and rest) else (title, contents)


def passages_with(record: object) -> Iterator[tuple[str, str]]:
    """Title and text of the passages that came with a question; none in a form that is unknown.

    Looked for in the record and in its metadata: `context` as {"title": [..], "sentences" or "content": [..]} or as
    [[title, sentences], ..], and `paragraphs` as [{"title", "paragraph_text"}, ..].
    """
    if not isinstance(record, dict):
        return
    for place in (record, record.get("metadata")):
        if isinstance(place, dict):
            paragraphs = ((each.get("title"), each.get("paragraph_text")) for each in mappings(place.get("paragraphs")))
            for title, text in chain(of_context(place.get("context")), paragraphs):
                if said := joined(text):
                    yield joined(title), said


def of_context(context: object) -> Iterator[tuple[object, object]]:
    if isinstance(context, dict):
        titles, texts = context.get("title"), context.get("sentences") or context.get("content")
        if isinstance(titles, list) and isinstance(texts, list):
            yield from zip(titles, texts, strict=False)
    elif isinstance(context, list):
        for each in context:
            match each:
                case [title, sentences]:
                    yield title, sentences


def mappings(listed: object) -> list[dict[str, Any]]:
    """Those in a list; none of anything else, since metadata may hold anything."""
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def joined(text: object) -> str:
    """A text, or a list of sentences, on one line; empty for anything else."""
    if isinstance(text, list) and all(isinstance(each, str) for each in text):
        text = " ".join(text)
    return " ".join(text.split()) if isinstance(text, str) else ""
