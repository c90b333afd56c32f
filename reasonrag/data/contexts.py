"""Corpora made of passages that are at hand: those that came with questions, and those of several data sets.

Questions of HotpotQA, 2WikiMultiHopQA and MuSiQue come with the passages that hold the answer and distractors. Decides
in which fields they are looked for, and that the corpus is the union over all questions of the file, so that `--limit`
and `--sample` change nothing. A corpus is written once, below `index_home`, in a folder named after what it was made
from. Does not know how passages are searched.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

import orjson

from reasonrag.data.columns import UnreadColumns, passages_with
from reasonrag.data.compressed import kept, plain_corpus
from reasonrag.data.corpus import parse_passage
from reasonrag.data.questions import QuestionFile
from reasonrag.errors import InputError
from reasonrag.files import numbered_lines, reading


def corpus_of_contexts(files: Sequence[QuestionFile], home: Path, *, say: Callable[[str], None]) -> Path:
    """The corpus of all passages that came with the questions of these files. Raises InputError for a file without any,
    naming the other ways."""
    for each in files:
        if next(_all_passages(each.rows or each.path), None) is None:
            raise InputError(needs_passages(each.name, ", and its questions came without any"))
    asked = ", ".join(each.name for each in files)
    said = f"the passages that came with the questions of {asked}"

    def write(target: IO[bytes]) -> None:
        seen: set[bytes] = set()
        for file in files:
            for title, text in _all_passages(file.rows or file.path):
                line = f"{title}\n{text}"
                digest = hashlib.sha256(line.encode()).digest()[:16]
                if digest not in seen:
                    seen.add(digest)
                    target.write(_line(f"{file.dataset}_{len(seen) - 1}", line))

    origin = {"source": "\n".join(each.sha256 for each in files)}
    name = f"{'+'.join(each.dataset for each in files)}-{files[0].split}-passages"
    corpus = kept(home, name, origin, write, say=say, doing=f"writing {said}")
    say(f"distractor setting: searching {said} (all of Wikipedia: --corpus wiki-18)")
    return corpus


def needs_passages(what: str, why: str = "") -> str:
    """The message for questions without passages to search, with all ways to give some."""
    return (
        f"{what} needs passages to search{why}: give --corpus wiki-18 (Wikipedia 2018 from the Hub: 21 million "
        'passages, 14 GB unpacked), --corpus FILE (JSONL, one {"id", "contents": "title\\ntext"} per line), --index '
        "DIR of a built index, or --retriever http://host:port"
    )


def _all_passages(path: Path) -> Iterator[tuple[str, str]]:
    with reading(f"the questions {path}"), path.open("rb") as lines:
        for _, line in numbered_lines(path, lines):
            yield from passages_with(orjson.loads(line))


def joined_corpus(corpora: Sequence[tuple[str, Path]], home: Path, *, say: Callable[[str], None]) -> Path:
    """One corpus of those of several data sets; the ids of a data set's passages begin with its `passage_prefix`.

    corpora: data set and corpus. Raises InputError for a corpus that cannot be read.
    """
    plain = [(dataset, plain_corpus(corpus, home, say=say)) for dataset, corpus in corpora]

    def write(target: IO[bytes]) -> None:
        for dataset, corpus in plain:
            unread = UnreadColumns()
            with corpus.open("rb") as lines:
                for number, line in numbered_lines(corpus, lines):
                    passage = parse_passage(line, where=f"{corpus}, line {number}", unread=unread)
                    target.write(_line(f"{passage_prefix(dataset)}{passage.id}", passage.contents))
            if notice := unread.notice(corpus):
                say(notice)

    stats = [(dataset, corpus.resolve(), corpus.stat()) for dataset, corpus in plain]
    versions = [f"{dataset} {corpus} {stat.st_size} {stat.st_mtime_ns}" for dataset, corpus, stat in stats]
    names = [dataset for dataset, _ in plain]
    doing = f"joining the corpora of {', '.join(names)}"
    return kept(home, "+".join(names), {"source": "\n".join(versions)}, write, say=say, doing=doing)


def passage_prefix(dataset: str) -> str:
    """What stands before the ids of a data set's passages in a joined corpus."""
    return f"{dataset}:"


def _line(passage_id: str, contents: str) -> bytes:
    return orjson.dumps({"id": passage_id, "contents": contents}, option=orjson.OPT_APPEND_NEWLINE)
