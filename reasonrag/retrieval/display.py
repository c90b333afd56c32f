"""Terminal output about indexes: descriptions, checks and what is found."""

from __future__ import annotations

from pathlib import Path

from reasonrag.retrieval.dense.build_progress import duration
from reasonrag.retrieval.dense.manifest import BM25Manifest, DenseManifest, FaissFile, IndexManifest
from reasonrag.retrieval.index import IndexCheck, SearchResult
from reasonrag.retrieval.recall import RecallReport
from reasonrag.terminal import on_one_line, print_table


def show_index(directory: Path, manifest: IndexManifest) -> None:
    """Show an index: its corpus and how it was built."""
    print_table(f"{manifest.kind} index  {directory}", _of_index(manifest))


def _of_index(manifest: IndexManifest) -> list[tuple[str, str]]:
    rows = [("corpus", manifest.corpus), ("passages", f"{manifest.passages:,}")]
    return rows + (_of_words(manifest) if isinstance(manifest, BM25Manifest) else _of_vectors(manifest))


def _of_words(manifest: BM25Manifest) -> list[tuple[str, str]]:
    words = f"{', '.join(manifest.languages)} (analyser {manifest.analyser})"
    return [("BM25", f"k1 {manifest.k1}, b {manifest.b}"), ("language", words)]


def _of_vectors(manifest: DenseManifest) -> list[tuple[str, str]]:
    spec = manifest.encoder
    length = "length 1" if spec.normalize else "any length"
    rows = [
        ("encoder", f"{spec.model}, {spec.backend}, {manifest.precision}"),
        (
            "vectors",
            f"{spec.dimension:,} dimensions, pooling {spec.pooling}, {length}, {spec.max_length:,} tokens at most",
        ),
        ("before a query", repr(spec.query_instruction)),
        ("before a passage", repr(spec.passage_instruction)),
    ]
    if manifest.encoding_seconds:
        rate = manifest.passages / manifest.encoding_seconds
        rows.append(("encoded in", f"{duration(manifest.encoding_seconds)}, {rate:,.0f} passages/s"))
    if manifest.read_back_from:
        rows.append(("adopted from", manifest.read_back_from))
    for name, file in manifest.indexes.items():
        rows.append((f"{name}{' (searched)' if name == manifest.searched else ''}", _of_a_file(file)))
    return rows


def _of_a_file(file: FaissFile) -> str:
    plan = file.plan
    searched = [f"nprobe {plan.nprobe}"] if plan.nprobe else []
    searched += [f"efSearch {plan.ef_search}"] if plan.ef_search else []
    searched += [f"{plan.refine} candidates refined per passage"] if plan.refine > 1 else []
    trained = [f"trained on {plan.training_rows:,}"] if plan.training_rows else []
    parts = [file.file, f"{file.bytes / 1e6:,.1f} MB", plan.factory, *trained, *searched]
    return ", ".join(parts)


def show_found(found: SearchResult) -> None:
    """Show what a query finds, and by which words."""
    how = ["similar to the query's words, of which the corpus has none"] if found.fallback else []
    words = [", ".join(map(str.strip, found.tokens))] if found.tokens else []  # a server says none
    rows = [("searched for", ": ".join(how + words))] if how or words else []
    rows += [
        (f"{each.score or 0:.3f}", on_one_line(f"{each.title}: {each.snippet}  [{each.id}]")) for each in found.passages
    ]
    print_table(on_one_line(found.query), rows or [("nothing found", "the corpus has no such word, and none like it")])


def show_check(check: IndexCheck) -> None:
    """Show what an index is and a check's result."""
    rows = _of_index(check.manifest)
    rows += _of_questions(check.found) if check.found else []
    rows += [("fault", each) for each in check.faults] or [("sound", "corpus, rows and files are unchanged")]
    print_table(f"{check.manifest.kind} index  {check.directory}", rows)


def _of_questions(found: RecallReport) -> list[tuple[str, str]]:
    """Recall over a question file, at each depth."""
    rows = [("questions", f"{found.questions:,}, gold passages known for {found.gold_by_id + found.gold_by_title:,}")]
    for each in found.at:
        gold = [] if each.gold is None else [f"gold passages {each.gold:.3f} (all of a question {each.all_gold:.3f})"]
        rows.append((f"found at {each.k}", ", ".join([*gold, f"an answer in a passage {each.answer:.3f}"])))
    return rows
