"""The corpus of the passages that came with questions.

Questions of HotpotQA, 2WikiMultiHopQA and MuSiQue come with the passages that hold the answer and distractors. Decides
that the corpus is the union over all questions of the file, so that `--limit` and `--sample` change nothing. It is
written once, below `index_home`. Does not know how passages are searched.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import orjson

from reasonrag.data.compressed import kept
from reasonrag.data.dataset_fields import passages_with
from reasonrag.data.questions import QuestionFile
from reasonrag.errors import InputError
from reasonrag.files import numbered_lines, reading


def corpus_of_contexts(file: QuestionFile, home: Path, *, say: Callable[[str], None]) -> Path:
    """The corpus of all passages that came with the questions of a file. Raises InputError where there are none, naming
    the other ways."""
    rows = file.rows or file.path
    if next(_all_passages(rows), None) is None:
        raise InputError(needs_passages(file.name, ", and its questions came without any"))
    said = f"the passages that came with the questions of {file.name}"

    def write(target: IO[bytes]) -> None:
        seen: set[bytes] = set()
        for title, text in _all_passages(rows):
            contents = f"{title}\n{text}"
            digest = hashlib.sha256(contents.encode()).digest()[:16]
            if digest not in seen:
                seen.add(digest)
                passage = {"id": f"{file.dataset}_{len(seen) - 1}", "contents": contents}
                target.write(orjson.dumps(passage, option=orjson.OPT_APPEND_NEWLINE))

    name = f"{file.dataset}-{file.split}-passages"
    corpus = kept(home, name, {"source": file.sha256}, write, say=say, doing=f"writing {said}")
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
