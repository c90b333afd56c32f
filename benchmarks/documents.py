"""What is read of an office's files: by `corpus build`, and by libraries that read documents.

Of the 60 files of `made_documents.py`: content kept, boilerplate kept, right titles and seconds. With --pages real web
pages too, of which --truth says what each must keep and what it must not. Each reader runs where it is installed beside
reasonrag:

    python benchmarks/documents.py reasonrag
    python benchmarks/documents.py trafilatura
    python benchmarks/documents.py markitdown
    python benchmarks/documents.py docling

Not measured: scans, PDF of other programs than reportlab, files over 100 kB, and what a model makes of the passages.
"""

# ruff: noqa: PLC0415 - what is measured loads what it needs, and nothing else
from __future__ import annotations

import json
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import made_documents
import typer
from reporting import publish, table

Read = Callable[[Path], tuple[str, str] | None]
"""Title and text of a file; None for a kind that is not read."""


@dataclass
class Score:
    files: int = 0
    kept: int = 0
    content: int = 0
    left: int = 0
    boilerplate: int = 0
    titles: int = 0
    seconds: float = 0.0

    def add(self, content: Sequence[str], boilerplate: Sequence[str], text: str) -> None:
        folded = _folded(text)
        self.files += 1
        self.kept += sum(_folded(each) in folded for each in content)
        self.content += len(content)
        self.left += sum(_folded(each) in folded for each in boilerplate)
        self.boilerplate += len(boilerplate)

    def cells(self) -> dict[str, str]:
        return {
            "number": str(self.files),
            "content kept": f"{self.kept:,} of {self.content:,}",
            "boilerplate kept": f"{self.left:,} of {self.boilerplate:,}",
            "titles": str(self.titles),
            "ms each": f"{1000 * self.seconds / max(1, self.files):.0f}",
        }


def _folded(text: str) -> str:
    """Without white space, and without the marks of Markdown that readers escape differently."""
    return re.sub(r"[\s*\\]+", "", text).casefold()


def reasonrag(root: Path) -> Read:
    from reasonrag.data.documents.document import UnreadableError
    from reasonrag.data.documents.reader import KINDS, reading

    answer = reading(str(root), 1000)

    def read(path: Path) -> tuple[str, str] | None:
        found = answer(path.relative_to(root).as_posix()) if path.suffix in KINDS else {"cause": UnreadableError}
        texts = ("\n".join([*each["headings"], each["text"]]) for each in found.get("sections", ()))
        return None if "cause" in found else (found["title"], "\n".join(texts))

    return read


def trafilatura(_root: Path) -> Read:
    from trafilatura import extract, extract_metadata

    def read(path: Path) -> tuple[str, str] | None:
        page = path.read_bytes()
        text = extract(page, output_format="markdown", include_comments=False)
        return (extract_metadata(page).title or "", text or "") if path.suffix == ".html" else None

    return read


def markitdown(_root: Path) -> Read:
    from markitdown import MarkItDown

    converter = MarkItDown(enable_plugins=False)

    def read(path: Path) -> tuple[str, str]:
        found = converter.convert(str(path))
        return found.title or "", found.text_content

    return read


def docling(_root: Path) -> Read:
    from docling.document_converter import DocumentConverter

    converter = DocumentConverter()

    def read(path: Path) -> tuple[str, str] | None:
        if path.suffix in (".pdf", ".txt"):  # its PDF takes models of the Hub
            return None
        found = converter.convert(path).document
        return found.name, found.export_to_markdown()

    return read


READERS: dict[str, Callable[[Path], Read]] = {
    each.__name__: each for each in (reasonrag, trafilatura, markitdown, docling)
}


def of_made(reader: str, root: Path) -> dict[str, Score]:
    """By kind of file and design."""
    scores, read = defaultdict[str, Score](Score), READERS[reader](root)
    for made in made_documents.make(root):
        score = scores[re.sub(r"-\d+", "", Path(made.path).name)]
        start = time.perf_counter()
        title, text = read(root / made.path) or ("", "")
        score.seconds += time.perf_counter() - start
        score.add(made.content, made.boilerplate, text)
        score.titles += _folded(title) == _folded(made.title)
    return scores


def of_passages(root: Path) -> tuple[int, int, int]:
    """Passages of `corpus build`, those with boilerplate, and content that none has."""
    from reasonrag import corpus_build

    made = {each.path: each for each in made_documents.make(root / "files")}
    corpus_build(root / "files", out=root / "corpus.jsonl")
    texts, marked = defaultdict[str, str](str), 0
    with (root / "corpus.jsonl").open("rb") as lines:
        passages = [json.loads(line) for line in lines]
    for passage in passages:
        path, contents = passage["id"].partition("#")[0], _folded(passage["contents"])
        texts[path] += contents
        marked += any(_folded(each) in contents for each in made[path].boilerplate)
    lost = sum(_folded(each) not in texts[path] for path, file in made.items() for each in file.content)
    return len(passages), marked, lost


def of_pages(reader: str, pages: Path, truth: Path) -> Score:
    score, read = Score(), READERS[reader](pages)
    for each in json.loads(truth.read_text("utf-8")).values():
        start = time.perf_counter()
        title, text = read(pages / each["file"]) or ("", "")
        score.seconds += time.perf_counter() - start
        score.add(each["with"], each["without"], f"{title}\n{text}")
    return score


def main(
    reader: Annotated[str, typer.Argument(help=f"One of {', '.join(READERS)}")],
    pages: Annotated[Path | None, typer.Option(help="Folder of real web pages")] = None,
    truth: Annotated[Path | None, typer.Option(help="What they must keep, and must not")] = None,
    append: Annotated[Path | None, typer.Option(help="Add the report to this file")] = None,
) -> None:
    publish(report(reader, pages, truth), append)


def report(reader: str, pages: Path | None, truth: Path | None) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        scores = dict(sorted(of_made(reader, Path(folder) / "made").items()))
        if pages and truth:
            scores["real web pages"] = of_pages(reader, pages, truth)
        rows = [score.cells() for score in scores.values()]
        columns = {"files": list(scores)} | {name: [row[name] for row in rows] for name in rows[0]}
        yield from table(f"Documents read by {reader}", columns)
        if reader == reasonrag.__name__:
            passages, marked, lost = of_passages(Path(folder) / "built")
            yield f"\n`corpus build`: {passages} passages, {marked} with boilerplate; {lost} texts are in none."


if __name__ == "__main__":
    typer.run(main)
