"""The commands of indexes: `reasonrag search`, `index build`, `check` and `serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from reasonrag.options import FAILED, Json, options, print_result
from reasonrag.progress import PlainBuildWatcher
from reasonrag.rendering import Line, Table, counted
from reasonrag.retrieval.settings import MAX_TOP_K, TOP_K, IndexSettings, RetrievalSettings, ServeSettings
from reasonrag.terminal import TerminalMessages, print_shown


@options(IndexSettings, example="reasonrag index build --corpus corpus.jsonl --kind dense")
def build(context: typer.Context, *, as_json: Json = False, **flags: Any) -> None:
    """Build an index of a corpus: BM25, or dense with an encoder.

    Commands that search build a missing BM25 index themselves. The same command continues a dense build that was
    stopped.
    """
    from reasonrag.retrieval.index import index_build

    watcher = PlainBuildWatcher(TerminalMessages().say)
    directory, manifest = index_build(watcher=watcher, launch=context.obj.encoding, **flags)
    wrote = Line(f"wrote {directory} ({counted(manifest.passages, 'passage')})")
    print_result(manifest, [Table(f"{manifest.kind} index  {directory}", manifest.rows()), wrote], as_json=as_json)


@options(example="reasonrag index check indexes/wiki-bm25")
def check(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of an index")],
    *,
    as_json: Json = False,
) -> None:
    """Show what an index is; read it and its corpus in full, by their hashes."""
    from reasonrag.retrieval.index import index_check

    found = index_check(directory, watcher=PlainBuildWatcher(TerminalMessages().say))
    print_result(found, found.shown(), as_json=as_json)
    if found.faults:
        raise typer.Exit(FAILED)


@options(RetrievalSettings, without=["index", "retriever"], example="reasonrag search corpora/handbook.jsonl parking")
def search(
    place: Annotated[
        str, typer.Argument(metavar="INDEX_OR_CORPUS", help="Folder of an index, file of a corpus, or server's address")
    ],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to search for")],
    *,
    top_k: Annotated[int, typer.Option(min=1, max=MAX_TOP_K, metavar="N", help="Passages to find")] = TOP_K,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Show what a query finds, and by which words. A missing index of a corpus is built."""
    from reasonrag.retrieval.index import search as search_index

    found = search_index(place, query, top_k=top_k, say=TerminalMessages().say, **flags)
    print_result(found, found.shown(), as_json=as_json)


@options(ServeSettings, example="reasonrag index serve --index indexes/wiki-bm25 --host 0.0.0.0")
def serve(**flags: Any) -> None:
    """Serve an index over HTTP in Search-R1's protocol, for many workers and machines.

    POST /retrieve, GET /health. With REASONRAG_RETRIEVER_TOKEN set, requests without that token are
    refused.
    """
    from reasonrag.retrieval.index import index_serve

    def listening(url: str) -> None:
        print_shown(f"serving at {url}  (stop with Ctrl-C)", flush=True)
        print_shown(f"try: reasonrag search {url} 'Who wrote Hamlet?'", flush=True)

    index_serve(say=TerminalMessages().say, listening=listening, **flags)
