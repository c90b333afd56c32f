"""Retrieval measured: building, memory, searching, serving and what is found, beside what others do; sizes derived.

Prints Markdown with date, commit and machine; `--append FILE` adds it to a file as well. Ratios come from one run on
one machine. Every build, search, server and all clients have processes of their own; the clients share the cores with
the server they ask. What is measured against what:

- `build`: `build_dense` against the same encoder over the same texts in the same slices, nothing else done.
- `memory`: the most resident memory of every kind of build, at two sizes. The passages are those of atlas and the
  encoder is the hashing one: how much a model holds is not measured, what an index holds is.
- `search`: opening and searching those indexes; the flat one with faiss' default setting and with ours; what two
  processes share.
- `service`: `reasonrag index serve` against a server of Search-R1's pattern over the same index file.
- `recall`: gold passages found by the questions as they stand, on real data sets and on atlas.
- `sizing`: what a Wikipedia would take. Derived from the other parts, not measured.

Not measured: accelerators, disks that are slower than this one, corpora larger than memory.
"""

# ruff: noqa: PLC0415 - a process loads what it measures, and nothing else
from __future__ import annotations

import asyncio
import gc
import itertools
import math
import multiprocessing
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, islice
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, TypeAlias, TypeVar, get_args

import typer
from reporting import ROOT, publish, table

from reasonrag.errors import InputError
from reasonrag.retrieval.dense.faiss_index import STREAMED
from reasonrag.retrieval.settings import IndexType

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier

    import numpy as np
    import numpy.typing as npt

    from reasonrag.retrieval.dense.encoders import Encoder
    from reasonrag.retrieval.dense.faiss_index import FaissIndex
    from reasonrag.retrieval.dense.manifest import DenseManifest

T = TypeVar("T")
Kind: TypeAlias = IndexType | Literal["bm25"]

BUILD_PASSAGES, BUILD_ROUNDS = 3_000, 5
SMALL, LARGE = 100_000, 1_000_000
PER_COUNTY = 11
"""Passages of an atlas county."""
HASHING, MINILM = "hashing-384", "minilm"
TYPES: tuple[IndexType, ...] = get_args(IndexType)
BM25: Literal["bm25"] = "bm25"
SEARCH_S, SEARCH_ROUNDS, AT = 5.0, 5, 10
"""Seconds of searching per rate; rounds of the comparison of settings; passages that a search finds."""
BATCHES = (1, 32)
RECALL_QUERIES = 200
CLIENTS, CLIENT_S, SETTLING_S, TOP_K = 64, 15.0, 2.0, 3
PEER_THREADS = 40
"""What FastAPI gives handlers that are no coroutines."""
COMPARED = 16
"""Queries that both servers are asked, to see that they find the same."""
ATLAS_QUESTIONS = 500
DATA_SETS = ("hotpotqa", "2wikimultihopqa", "musique", "popqa", "bamboogle")
RECALL_AT = (3, 5)
WIKI_ROWS, WIKI_DIMENSION = 21_015_324, 768
MINILM_LAYERS, MINILM_WIDTH, BASE_LAYERS = 6, 384, 12
PACKAGES = ("numpy", "faiss-cpu", "faiss-gpu", "torch", "transformers", "sentence-transformers", "aiohttp")


def main(  # noqa: PLR0917 - flags of a command line
    data_dir: Annotated[Path, typer.Option(help="Directory that holds the data sets")] = ROOT.parent
    / "shared"
    / "data",
    part: Annotated[
        list[str] | None, typer.Option(help="build, memory, search, service, recall or sizing; repeatable")
    ] = None,
    scale: Annotated[float, typer.Option(help="Of all sizes: .02 to try the script out; only 1 is a measurement")] = 1,
    scratch: Annotated[
        Optional[Path],  # noqa: UP045 - typer reads it
        typer.Option(help="Where corpora and indexes are kept for the next run [default: nowhere]"),
    ] = None,
    index_type: Annotated[
        list[str] | None, typer.Option(help="Only these types, and flat; repeatable. hnsw takes longest")
    ] = None,
    data_set: Annotated[list[str] | None, typer.Option(help="Recall on these only, or atlas; repeatable")] = None,
    append: Annotated[Optional[Path], typer.Option(help="Also append the report to this file")] = None,  # noqa: UP045
) -> None:
    """Measure retrieval and print a report."""
    parts = _chosen("part", part, tuple(PARTS))
    types = _chosen("index type", index_type, TYPES)
    data_sets = _chosen("data set", data_set, (*DATA_SETS, "atlas"))
    with nullcontext(scratch) if scratch else tempfile.TemporaryDirectory() as place:
        bench = _Bench(data_dir.resolve(), Path(place).resolve(), scale, types, data_sets)
        bench.scratch.mkdir(parents=True, exist_ok=True)
        publish(chain(_made_with(scale), *(_tried(each, bench) for each in parts)), append)


def _chosen(what: str, wanted: Sequence[str] | None, there: tuple[T, ...]) -> tuple[T, ...]:
    if unknown := set(wanted or ()) - set(there):
        sys.exit(f"there is no {what} {', '.join(unknown)}; there are {', '.join(there)}")
    return tuple(each for each in there if not wanted or each in wanted)


def _made_with(scale: float) -> Iterator[str]:
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    yield f"\nRetrieval, with {', '.join(found)}."
    if scale != 1:
        yield f"\n**Scaled by {scale:g}: the script tried out, not a measurement.**"


def _tried(name: str, bench: _Bench) -> Iterator[str]:
    """The report of a part, or why there is none."""
    begun, busy, ours = time.perf_counter(), _busy_s(), _our_cpu_s()
    try:
        yield from PARTS[name](bench)
    except (InputError, OSError, ImportError, BrokenExecutor, MemoryError) as error:
        yield f"\n**`{name}` was not measured: {type(error).__name__}: {error}**"
    seconds = time.perf_counter() - begun
    others = max(0.0, (_busy_s() - busy - (_our_cpu_s() - ours)) / seconds)
    yield f"\n`{name}` took {seconds:,.0f} s; others kept {others:.2f} of {os.cpu_count()} cores busy meanwhile."


def _busy_s() -> float:
    """CPU seconds of all processes since the start of the machine, user, nice and system; 0 where nobody says."""
    stat = Path("/proc/stat")
    ticks = map(int, stat.read_text().split(maxsplit=4)[1:4]) if stat.exists() else ()
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def _our_cpu_s() -> float:
    """CPU seconds of this process and of those it started that have ended."""
    used = [resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


# -- build -------------------------------------------------------------------------------------------------------


def _build(bench: _Bench) -> Iterator[str]:
    """What building costs beyond encoding."""
    found = bench.encoding()
    columns: dict[str, list[str]] = {}
    for name, seconds in (
        ("encoder alone", found.alone),
        ("build, its encoding stage", found.encoding),
        ("build, all but loading the encoder", found.whole),
    ):
        ratios = [alone / each for alone, each in zip(found.alone, seconds, strict=True)]
        _add_row(
            columns,
            {
                "": name,
                "passages/s, median": f"{found.passages / statistics.median(seconds):.1f}",
                "by round": " ".join(f"{found.passages / each:.1f}" for each in seconds),
                "ratio, median": f"{statistics.median(ratios):.3f}",
                "least": f"{min(ratios):.3f}",
                "most": f"{max(ratios):.3f}",
            },
        )
    yield from table(
        f"Building against the encoder alone: {found.passages:,} HotpotQA passages of {found.tokens:.0f} tokens on "
        f"average, all-MiniLM-L6-v2 in {found.precision}, flat index, {len(found.alone)} rounds by turns; loading the "
        f"encoder ({statistics.median(found.loading):.1f} s) apart",
        columns,
    )


@dataclass(frozen=True)
class _Encoding:
    """Seconds by round. tokens: of a passage, mean."""

    passages: int
    tokens: float
    precision: str
    alone: list[float]
    encoding: list[float]
    whole: list[float]
    loading: list[float]


def _encode_and_build(corpus: Path, scratch: Path, rounds: int) -> _Encoding:
    """In one process by turns, each first as often as the other."""
    from reasonrag.data.corpus import Corpus, scan_corpus
    from reasonrag.retrieval.dense.build import BuildOptions, build_dense
    from reasonrag.retrieval.dense.encoders import EncoderChoice, load_encoder

    texts = [each.contents for each in Corpus(corpus, scan_corpus(corpus).offsets)]
    encoder = load_encoder(EncoderChoice(model=MINILM), precision=None)
    encoder.passages(texts[: encoder.at_once])  # the first batch is slow
    found = _Encoding(
        len(texts),
        statistics.mean(encoder.lengths(texts)),
        encoder.precision,
        alone=[],
        encoding=[],
        whole=[],
        loading=[],
    )

    def alone() -> None:
        found.alone.append(_encode_alone(encoder, texts))

    def build() -> None:
        place, meter = scratch / "built", _BuildMeter()
        shutil.rmtree(place, ignore_errors=True)
        build_dense(corpus, place, BuildOptions(encoder=EncoderChoice(model=MINILM)), meter)
        found.encoding.append(meter.stage_seconds("encoding"))
        found.whole.append(meter.working_seconds)
        found.loading.append(meter.loading_seconds)
        shutil.rmtree(place)

    for number in range(rounds):
        for work in (alone, build) if number % 2 == 0 else (build, alone):
            work()
    return found


def _encode_alone(encoder: Encoder, texts: list[str]) -> float:
    """Seconds to encode the texts as a build slices them: longest first within a piece, so many at once."""
    import numpy as np

    from reasonrag.retrieval.dense.build_progress import row_ranges
    from reasonrag.retrieval.dense.vector_store import PIECE

    begun = time.perf_counter()
    vectors = np.empty((len(texts), encoder.spec.dimension), dtype=np.float32)
    for start, stop in row_ranges(len(texts), PIECE):
        order = sorted(range(start, stop), key=lambda row: -len(texts[row]))
        for first, end in row_ranges(len(order), encoder.at_once):
            rows = order[first:end]
            vectors[rows] = encoder.passages(texts[row] for row in rows)
    return time.perf_counter() - begun


@dataclass
class _Stage:
    """A stage of a build: when it began, and when it told first and last how far it had come."""

    name: str
    began: float
    total: int
    marks: list[tuple[float, int]] = field(default_factory=list)

    def reached(self, done: int) -> None:
        self.marks = [*self.marks[:1], (time.perf_counter(), done)]


class _BuildMeter:
    """Follows a build and times its stages."""

    def __init__(self) -> None:
        self.stages: list[_Stage] = []
        self._made = time.perf_counter()
        self._over = 0.0

    def say(self, message: str) -> None:
        """Not shown."""

    def stage(self, name: str, *, total: int, done: int = 0) -> None:  # noqa: ARG002 - the protocol's
        self.stages.append(_Stage(name, time.perf_counter(), total))

    def reached(self, done: int) -> None:
        self.stages[-1].reached(done)

    def ended(self) -> None:
        self._over = time.perf_counter()

    def stage_seconds(self, name: str) -> float:
        """0 for a stage that was not gone through."""
        ends = [each.began for each in self.stages[1:]] + [self._over]
        return sum(end - each.began for each, end in zip(self.stages, ends, strict=True) if each.name == name)

    @property
    def loading_seconds(self) -> float:
        return self.stages[0].began - self._made

    @property
    def working_seconds(self) -> float:
        return self._over - self.stages[0].began

    @property
    def training_seconds(self) -> float:
        """Of the last stage, before its first rows; 0 where that cannot be told from adding them."""
        marks, began = self.stages[-1].marks, self.stages[-1].began
        if len(marks) < 2 or marks[0] == marks[-1]:  # noqa: PLR2004 - a line has two points
            return 0.0
        (first, done), (last, all_done) = marks
        return max(0.0, first - began - done * (last - first) / (all_done - done))


# -- memory ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Built:
    """One build in a process of its own. seconds: all but loading the encoder; peak: bytes of resident memory.

    scanning, encoding, indexing, training: the parts of it; training is in indexing.
    """

    rows: int
    corpus_bytes: int
    peak: int
    bytes: int
    seconds: float
    scanning: float = 0.0
    encoding: float = 0.0
    indexing: float = 0.0
    training: float = 0.0


def _memory(bench: _Bench) -> Iterator[str]:
    """The most memory that each kind of build takes, at two sizes."""
    small, large = bench.built(bench.small), bench.built(bench.large)
    columns: dict[str, list[str]] = {}
    for kind, most in large.items():
        least = small[kind]
        per_row = most.bytes / most.rows
        _add_row(
            columns,
            {
                "index": "flat, with encoding" if kind == "flat" else kind,
                "how": "streamed" if kind in {BM25, *STREAMED} else "held in memory",
                f"peak MB at {least.rows:,}": f"{least.peak / 1e6:,.0f}",
                f"peak MB at {most.rows:,}": f"{most.peak / 1e6:,.0f}",
                "MB more": f"{(most.peak - least.peak) / 1e6:,.0f}",
                f"s at {least.rows:,}": f"{least.seconds:,.1f}",
                f"s at {most.rows:,}": f"{most.seconds:,.1f}",
                "of it encoding": f"{most.encoding:,.1f}" if most.encoding else "-",
                "of it training": f"{most.training:,.1f}" if most.training else "-",
                "MB on disk": f"{most.bytes / 1e6:,.0f}",
                "bytes a passage": f"{per_row:,.0f}",
            },
        )
    yield from table(
        f"Peak resident memory of building, a process each (VmHWM: the most at any moment); atlas passages, {HASHING}; "
        "flat encodes and stores the vectors that the other types are built from "
        f"({_stored_bytes(bench, bench.large) / 1e6:,.0f} MB besides, in fp16)",
        columns,
    )


def _stored_bytes(bench: _Bench, world: Path) -> int:
    from reasonrag.retrieval.dense.vector_store import VECTORS

    return (bench.place(world, HASHING) / VECTORS).stat().st_size


def _build_measured(kind: Kind, corpus: Path, directory: Path) -> _Built:
    """Build a BM25 index, or a dense one of a type; what was there is built again or added to."""
    from reasonrag.retrieval.dense.build import BuildOptions, build_dense
    from reasonrag.retrieval.dense.encoders import EncoderChoice
    from reasonrag.retrieval.lexical.bm25 import build_bm25

    size = corpus.stat().st_size
    if kind == BM25:
        begun = time.perf_counter()
        passages = build_bm25(corpus, directory).passages
        seconds = time.perf_counter() - begun
        return _Built(passages, size, _peak_bytes(), sum(each.stat().st_size for each in directory.iterdir()), seconds)
    meter = _BuildMeter()
    options = BuildOptions(encoder=EncoderChoice(model=HASHING), index_type=kind)
    manifest = build_dense(corpus, directory, options, meter)
    file = manifest.file_of(kind, directory)
    return _Built(
        manifest.passages,
        size,
        _peak_bytes(),
        file.bytes,
        meter.working_seconds,
        scanning=meter.stage_seconds("reading the corpus"),
        encoding=meter.stage_seconds("encoding"),
        indexing=meter.stage_seconds(f"{kind} index"),
        training=meter.training_seconds if file.plan.training_rows else 0.0,
    )


def _peak_bytes() -> int:
    """The most memory that this process ever had. Not ru_maxrss where it can be helped: that begins with what the
    parent had."""
    if Path("/proc/self/status").exists():
        return _memory_bytes("status", "VmHWM")["VmHWM"]
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _memory_bytes(file: str, *names: str) -> dict[str, int]:
    """Entries in kB of a file of /proc/self."""
    lines = Path(f"/proc/self/{file}").read_text().splitlines()
    entries = (line.partition(":") for line in lines)
    return {name: 1024 * int(value.split()[0]) for name, _, value in entries if name in names}


# -- search ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Searched:
    """An index type, opened and searched in a process of its own. rates: queries per second by batch size."""

    open_s: float
    first_s: float
    rates: dict[int, float]
    recall: float
    resident: int
    own: int
    """Of the resident bytes those that are no file's: not shared, and not given back when memory is short."""


@dataclass(frozen=True)
class _Setting:
    """faiss' threshold for products of matrices, and seconds of a search by batch size."""

    threshold: int
    seconds: dict[int, float]


def _search(bench: _Bench) -> Iterator[str]:
    yield from _types(bench)
    yield from _settings(bench)
    yield from _sharing(bench)


def _types(bench: _Bench) -> Iterator[str]:
    """Every type: how fast it opens, what it holds, how fast it finds how much."""
    columns: dict[str, list[str]] = {}
    for index_type in bench.types:
        found = bench.searched(index_type)
        _add_row(
            columns,
            {
                "index": index_type,
                "open ms": f"{1000 * found.open_s:,.1f}",
                "first search ms": f"{1000 * found.first_s:,.0f}",
                **{f"queries/s, batch {batch}": f"{rate:,.1f}" for batch, rate in found.rates.items()},
                f"recall@{AT}": f"{found.recall:.4f}",
                "RSS MB": f"{found.resident / 1e6:,.0f}",
                "of it own MB": f"{found.own / 1e6:,.0f}",
            },
        )
    yield from table(
        f"Searching {bench.rows(bench.large):,} x {_dimension(HASHING)} ({HASHING}, atlas), a process each: opening a "
        "file that is in no cache, the first search from disk; then atlas questions encoded, searched for "
        f"{AT} passages and scored by their stored vectors; recall against an exact search by {RECALL_QUERIES} stored "
        "vectors with noise (own MB: neither shared nor given back when memory is short)",
        columns,
    )


def _settings(bench: _Bench) -> Iterator[str]:
    """The flat index with faiss' default setting and with ours."""
    directory = bench.dense(bench.large, HASHING)
    default, ours = _in_own_process(_flat_settings, directory, bench.questions(bench.large, max(BATCHES)))
    yield from table(
        f"The flat index in one process, {AT} neighbours of encoded queries, median of {SEARCH_ROUNDS} rounds by turns",
        {
            "batch": [f"{batch}" for batch in BATCHES],
            f"faiss' default ms (threshold {default.threshold:,})": [
                f"{1000 * default.seconds[batch]:,.1f}" for batch in BATCHES
            ],
            f"ours ms (threshold {ours.threshold:,})": [f"{1000 * ours.seconds[batch]:,.1f}" for batch in BATCHES],
            "times as fast": [f"{default.seconds[batch] / ours.seconds[batch]:.2f}" for batch in BATCHES],
            "ours, queries/s": [f"{batch / ours.seconds[batch]:,.1f}" for batch in BATCHES],
        },
    )


def _sharing(bench: _Bench) -> Iterator[str]:
    """Two processes that search the same flat index: what each has, and what both have together."""
    directory = bench.dense(bench.large, HASHING)
    context = multiprocessing.get_context("spawn")
    both, told = context.Barrier(2), context.Queue()
    arguments = (directory, bench.questions(bench.large, max(BATCHES)), both, told)
    processes = [context.Process(target=_hold_open, args=arguments) for _ in range(2)]
    for each in processes:
        each.start()
    try:
        found = [told.get(timeout=600) for _ in processes]
    except Empty as error:
        raise InputError("two processes could not have the same index open") from error
    finally:
        for each in processes:
            each.join(timeout=60)
    size = read_dense(directory).file_of("flat", directory).bytes
    yield from table(
        f"Two processes with the same flat index open ({size / 1e6:,.0f} MB, mapped) after {max(BATCHES)} searches "
        "(PSS: a page that n processes have counts 1/n in each)",
        {
            "process": [*(f"{number}" for number, _ in enumerate(found, 1)), "both"],
            "RSS MB": _megabytes([each["Rss"] for each in found]),
            "PSS MB": _megabytes([each["Pss"] for each in found]),
            "own MB": _megabytes([each["Anonymous"] for each in found]),
        },
    )


def _megabytes(sizes: list[int]) -> list[str]:
    """Each, and their sum."""
    return [f"{each / 1e6:,.0f}" for each in (*sizes, sum(sizes))]


def _search_type(directory: Path, index_type: IndexType, questions: list[str], seconds: float) -> _Searched:
    from reasonrag.retrieval.dense.check import recall_against_exact
    from reasonrag.retrieval.dense.faiss_index import import_faiss, open_faiss_index
    from reasonrag.retrieval.dense.index import DenseIndex, open_encoder

    manifest = read_dense(directory)
    file = manifest.file_of(index_type, directory)
    encoder = open_encoder(manifest)
    vector = encoder.queries(questions[:1])
    import_faiss()
    _forget(directory / file.file)
    begun = time.perf_counter()
    opened = open_faiss_index(directory / file.file, file.plan)
    open_s = time.perf_counter() - begun
    opened.search(vector, AT)
    first_s = time.perf_counter() - begun - open_s
    del opened
    gc.collect()
    index = DenseIndex(directory, manifest, encoder, index_type=file.plan.type)
    rates = {batch: _rate(lambda asked: index.rank(asked, AT), questions, batch, seconds) for batch in BATCHES}
    held = _memory_bytes("status", "VmRSS", "RssAnon")
    recall = recall_against_exact(directory, manifest, file.plan.type, queries=RECALL_QUERIES, at=AT).recall
    return _Searched(open_s, first_s, rates, recall, held["VmRSS"], held["RssAnon"])


def _forget(path: Path) -> None:
    """Have a file's pages out of the cache, so that it is opened as after a restart of the machine."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _rate(search: Callable[[Sequence[str]], object], questions: list[str], batch: int, seconds: float) -> float:
    """Queries per second of searching batch after batch for so long, after one that does not count."""
    turns = itertools.cycle([questions[start : start + batch] for start in range(0, len(questions) - batch + 1, batch)])
    search(next(turns))
    begun, searched = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begun) < seconds or not searched:
        search(next(turns))
        searched += batch
    return searched / elapsed


def _flat_settings(directory: Path, questions: list[str]) -> tuple[_Setting, _Setting]:
    from reasonrag.retrieval.dense.faiss_index import import_faiss, open_faiss_index
    from reasonrag.retrieval.dense.index import open_encoder

    manifest, faiss = read_dense(directory), import_faiss()
    default = int(faiss.cvar.distance_compute_blas_threshold)
    file = manifest.file_of("flat", directory)
    opened = open_faiss_index(directory / file.file, file.plan)
    ours = int(faiss.cvar.distance_compute_blas_threshold)
    vectors = open_encoder(manifest).queries(questions)
    taken: dict[tuple[int, int], list[float]] = {}
    opened.search(vectors, AT)
    for batch in BATCHES * SEARCH_ROUNDS:
        for threshold in (default, ours):
            faiss.cvar.distance_compute_blas_threshold = threshold
            taken.setdefault((threshold, batch), []).append(_search_seconds(opened, vectors[:batch]))
    faiss.cvar.distance_compute_blas_threshold = ours
    medians = {each: statistics.median(seconds) for each, seconds in taken.items()}
    found = [_Setting(each, {batch: medians[each, batch] for batch in BATCHES}) for each in (default, ours)]
    return found[0], found[1]


def _search_seconds(opened: FaissIndex, vectors: npt.NDArray[np.float32]) -> float:
    begun = time.perf_counter()
    opened.search(vectors, AT)
    return time.perf_counter() - begun


def _hold_open(directory: Path, questions: list[str], both: Barrier, told: Queue[dict[str, int]]) -> None:
    """Open and search the flat index, and tell what memory that takes while another process has it open as well."""
    from reasonrag.retrieval.dense.index import DenseIndex, open_encoder

    manifest = read_dense(directory)
    index = DenseIndex(directory, manifest, open_encoder(manifest), index_type="flat")
    index.rank(questions, AT)
    both.wait(600)
    told.put(_memory_bytes("smaps_rollup", "Rss", "Pss", "Anonymous"))
    both.wait(600)


# -- service -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Load:
    """What clients got in a stretch of time. latencies: seconds of each answer. found: ids by query, for comparison."""

    seconds: float
    latencies: list[float]
    failed: int
    found: list[list[str]]

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    def quantile(self, share: float) -> float:
        """Seconds within which so many were answered."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def _service(bench: _Bench) -> Iterator[str]:
    """Our service and the published pattern, where searching and where encoding takes the time."""
    real = bench.real_corpus("hotpotqa", bench.service_passages)
    cases = (
        (bench.large, HASHING, bench.questions(bench.large, ATLAS_QUESTIONS)),
        (real, MINILM, bench.real_questions("hotpotqa")),
    )
    columns: dict[str, list[str]] = {}
    for corpus, model, questions in cases:
        directory = bench.dense(corpus, model)
        loads = {
            "reasonrag index serve": _under_load(_our_server(directory), questions, bench.client_s),
            "pattern, one request at a time": _under_load(_peer_server(directory, 1), questions, bench.client_s),
            f"pattern, {PEER_THREADS} threads": _under_load(
                _peer_server(directory, PEER_THREADS), questions, bench.client_s
            ),
        }
        ours, *_ = loads.values()
        for name, load in loads.items():
            _add_row(
                columns,
                {
                    "index": f"{model}, {bench.rows(corpus):,} passages",
                    "server": name,
                    "requests/s": f"{load.rate:,.1f}",
                    "ours, times as many": f"{ours.rate / load.rate:.1f}" if load.rate else "-",
                    "p50 ms": f"{1000 * load.quantile(0.5):,.0f}",
                    "p99 ms": f"{1000 * load.quantile(0.99):,.0f}",
                    "answers": f"{len(load.latencies):,}",
                    "failed": f"{load.failed}",
                    "found as ours": f"{_alike(load.found, ours.found):.3f}",
                },
            )
    yield from table(
        f"{CLIENTS} clients, each with one query at a time, all different, for {TOP_K} passages; flat index, "
        f"{bench.client_s:g} s, begun {SETTLING_S:g} s after every client's first answer. Pattern: Search-R1's server, "
        "each request encoded and searched as it comes, index read into memory, faiss' default setting; one at a time, "
        f"as where a coroutine searches or a lock is held, or up to {PEER_THREADS} at a time, as where FastAPI has "
        "threads do it, which is how Search-R1 has it (encoding one at a time: tokenizers are not for several "
        f"threads). Found as ours: share of our passages for {COMPARED} questions; equal scores have no common order",
        columns,
    )


def _alike(found: list[list[str]], ours: list[list[str]]) -> float:
    """Share of the passages that both found."""
    pairs = list(zip(found, ours, strict=True))
    return sum(len(set(left) & set(right)) for left, right in pairs) / max(1, sum(len(right) for _, right in pairs))


def _under_load(server: Any, questions: list[str], seconds: float) -> _Load:
    with server as url:
        return _in_own_process(_ask, url, questions, seconds)


@contextmanager
def _our_server(directory: Path) -> Iterator[str]:
    """The base URL of `reasonrag index serve` over the flat index of a directory."""
    flags = ["--index", str(directory), "--index-type", "flat", "--port", "0"]
    command = [sys.executable, "-m", "reasonrag", "index", "serve", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None  # noqa: S101 - for the type checker; it is a pipe
        try:
            said = server.stdout.readline().split()
            if not said:
                raise InputError("reasonrag index serve did not start")
            yield said[2]
        finally:
            server.terminate()


@contextmanager
def _peer_server(directory: Path, threads: int) -> Iterator[str]:
    """The base URL of a server of the published pattern over the same index file."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=_serve_as_published, args=(directory, threads, there))
    server.start()
    there.close()
    try:
        yield here.recv()
    except EOFError as error:
        raise InputError("the server of the published pattern did not start") from error
    finally:
        server.terminate()
        server.join()


def _serve_as_published(directory: Path, threads: int, listening: Connection) -> None:
    """POST /retrieve, each request's queries encoded and searched together, but never with those of another one."""
    import faiss
    import orjson
    from aiohttp import web

    from reasonrag.retrieval.dense.index import open_encoder
    from reasonrag.retrieval.from_settings import open_corpus

    manifest = read_dense(directory)
    corpus, encoder = open_corpus(directory, manifest), open_encoder(manifest)
    index = faiss.read_index(str(directory / manifest.file_of("flat", directory).file))
    encoding = threading.Lock()

    def find(queries: list[str], top_k: int) -> list[list[dict[str, Any]]]:
        with encoding:
            vectors = encoder.embed([encoder.spec.query_instruction + each for each in queries])
        scores, rows = index.search(vectors, top_k)
        passages = [[corpus[row] for row in found] for found in rows.tolist()]
        return [
            [
                {"document": {"id": each.id, "contents": f"{each.title}\n{each.text}"}, "score": score}
                for each, score in zip(found, its, strict=True)
            ]
            for found, its in zip(passages, scores.tolist(), strict=True)
        ]

    async def retrieve(request: web.Request) -> web.Response:
        asked = orjson.loads(await request.read())
        arguments = (asked["queries"], asked["topk"])
        if threads == 1:
            found = find(*arguments)
        else:
            found = await asyncio.get_running_loop().run_in_executor(pool, find, *arguments)
        return web.Response(body=orjson.dumps({"result": found}), content_type="application/json")

    async def serve() -> None:
        app = web.Application()
        app.router.add_post("/retrieve", retrieve)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        stopping = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
        listening.send(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await stopping.wait()
        await runner.cleanup()

    with ThreadPoolExecutor(threads) as pool:
        asyncio.run(serve())


def _ask(url: str, questions: list[str], seconds: float) -> _Load:
    """Clients that each wait for an answer before they ask again; counted once every one has had an answer."""
    return asyncio.run(_ask_at_once(url, questions, seconds))


async def _ask_at_once(url: str, questions: list[str], seconds: float) -> _Load:
    import orjson
    from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

    queries = (f"{question} {number}" for number, question in enumerate(itertools.cycle(questions)))
    latencies: list[float] = []
    failed = 0
    counting, unanswered = False, CLIENTS
    all_answered = asyncio.Event()

    async def answer(session: ClientSession, query: str) -> bytes:
        body = orjson.dumps({"queries": [query], "topk": TOP_K, "return_scores": True})
        async with session.post(f"{url}/retrieve", data=body, headers={"Content-Type": "application/json"}) as response:
            response.raise_for_status()
            return await response.read()

    async def client(session: ClientSession) -> None:
        nonlocal failed, unanswered
        is_first = True
        for query in queries:
            asked = time.perf_counter()
            try:
                await answer(session, query)
            except ClientError:
                failed += counting
            else:
                if counting:
                    latencies.append(time.perf_counter() - asked)
            unanswered -= is_first
            is_first = False
            if not unanswered:
                all_answered.set()

    async with ClientSession(connector=TCPConnector(limit=0), timeout=ClientTimeout(total=600)) as session:
        compared = [await answer(session, question) for question in questions[:COMPARED]]
        clients = [asyncio.create_task(client(session)) for _ in range(CLIENTS)]
        async with asyncio.timeout(600):
            await all_answered.wait()
        await asyncio.sleep(SETTLING_S)
        counting, begun = True, time.perf_counter()
        await asyncio.sleep(seconds)
        counting, elapsed = False, time.perf_counter() - begun
        for each in clients:
            each.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    found = [[each["document"]["id"] for each in orjson.loads(content)["result"][0]] for content in compared]
    return _Load(elapsed, latencies, failed, found)


# -- recall ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """What the questions of a set find by one search: (gold, all gold, answer) by depth; None where none is known."""

    questions: int
    shares: dict[int, tuple[float | None, float | None, float | None]]


def _recall(bench: _Bench) -> Iterator[str]:
    """Gold passages and answers found, by every kind of search."""
    columns: dict[str, list[str]] = {}
    for case in _recall_cases(bench):
        for search, found in _found_by_every_search(bench, case):
            row = {"questions": f"{case.data_set}, {found.questions:,}"}
            row |= {"passages": f"{bench.rows(case.corpus):,}", "search": search}
            for k, shares in found.shares.items():
                names = (f"gold@{k}", f"all gold@{k}", f"answer@{k}")
                row |= dict(zip(names, ["-" if each is None else f"{each:.3f}" for each in shares], strict=True))
            _add_row(columns, row)
    yield from table(
        "What is found for the dev questions as they stand (of atlas a sample): share of the gold passages, of "
        f"questions with all of them, and of questions with a golden answer in a passage; hybrid with the model named; "
        f"{HASHING} knows no meaning and is there for orientation",
        columns,
    )
    missing = [name for name in bench.data_sets if name != "atlas" and not (bench.data_dir / name).is_dir()]
    if missing:
        yield f"\n**Not measured, for they are not in the data directory: {', '.join(missing)}.**"


@dataclass(frozen=True)
class _Case:
    """A corpus, the questions to it, and the encoders that are compared."""

    data_set: str
    corpus: Path
    questions: Path
    models: tuple[str, ...]


def _recall_cases(bench: _Bench) -> Iterator[_Case]:
    """Data sets that are there, and atlas."""
    for name in bench.data_sets:
        if (bench.data_dir / name).is_dir():
            yield _Case(name, bench.real_corpus(name), bench.data_dir / name / "dev.jsonl", (MINILM, HASHING))
    if "atlas" in bench.data_sets:
        yield _Case("atlas", bench.small, bench.question_file(bench.small), (MINILM, HASHING))
        yield _Case("atlas", bench.large, bench.question_file(bench.large), (HASHING,))


def _found_by_every_search(bench: _Bench, case: _Case) -> Iterator[tuple[str, _Found]]:
    bm25 = bench.bm25(case.corpus)
    searches = {BM25: [bm25]}
    for model in case.models:
        dense = bench.dense(case.corpus, model)
        searches |= {f"dense, {model}": [dense], f"hybrid, {model}": [dense, bm25]}
    for search, directories in searches.items():
        yield search, _in_own_process(_measure_found, directories, case.questions, case.data_set)


def _measure_found(directories: list[Path], questions: Path, data_set: str) -> _Found:
    from reasonrag.data.questions import open_questions
    from reasonrag.retrieval.dense.manifest import read_manifest
    from reasonrag.retrieval.from_settings import open_index
    from reasonrag.retrieval.recall import measure_recall

    dense = any(read_manifest(each).kind == "dense" for each in directories)
    retriever = open_index(*directories, index_type="flat" if dense else None)
    asked = open_questions(questions, dataset=data_set, split="dev").read()
    report = measure_recall(retriever, asked, at=RECALL_AT)
    return _Found(report.questions, {each.k: (each.gold, each.all_gold, each.answer) for each in report.at})


# -- sizing ------------------------------------------------------------------------------------------------------


def _sizing(bench: _Bench) -> Iterator[str]:
    """What a Wikipedia in passages of 100 words would take, from what was measured here."""
    yield from _sizing_of_types(bench)
    yield from _sizing_of_the_rest(bench)


def _sizing_of_types(bench: _Bench) -> Iterator[str]:
    columns: dict[str, list[str]] = {}
    small, large = bench.built(bench.small), bench.built(bench.large)
    for index_type in bench.types:
        measured, size = large[index_type], _derived_size(index_type, large[index_type])
        searched = bench.searched(index_type)
        _add_row(
            columns,
            {
                "index": index_type,
                "bytes a passage, measured": f"{measured.bytes / measured.rows:,.0f}",
                "derived": f"{size.total / WIKI_ROWS:,.0f}",
                "of it growing with the dimension": f"{size.codes:,.0f}",
                "not growing": f"{size.fixed:,.0f}",
                "cells": f"{size.cells:,}" if size.cells else "-",
                "GB on disk": f"{size.total / 1e9:,.1f}",
                "GB of memory to build": f"{_memory_to_build(index_type, small, large, size.total) / 1e9:,.1f}",
                "GB to search: own": f"{(searched.own + size.cells * WIKI_DIMENSION * 4) / 1e9:,.1f}",
                "and mapped, at most": f"{(size.total - size.cells * WIKI_DIMENSION * 4) / 1e9:,.1f}",
                "hours to build": _hours(_seconds_to_build(index_type, measured, size.cells) / 3600),
            },
        )
    vectors = 2 * WIKI_ROWS * WIKI_DIMENSION / 1e9
    rows = large["flat"].rows
    yield from table(
        f"Derived, not measured: {WIKI_ROWS:,} passages x {WIKI_DIMENSION}, from {rows:,} x {_dimension(HASHING)} on "
        f"this machine. Besides, on disk and mapped: the vectors in fp16, {vectors:.1f} GB, of which a search reads "
        "some rows. Bytes: codes by dimension; links (hnsw) and ids (8 a passage, ivf) as they are; centroids by cells "
        "and dimension. Memory to build, at most and without the model: of streamed types the peak by dimension, and "
        "as much more a passage as between the two sizes; of others, beyond that, by index and training sample. "
        "Mapped pages are shared by processes and given back when memory is short; flat and sq read all of them in "
        "every search. Hours, at most: by rows and dimension, of ivf also by cells (training: cells squared), of hnsw "
        "also by the logarithm of rows; disks as fast as this one",
        columns,
    )


@dataclass(frozen=True)
class _Size:
    """Of an index over the Wikipedia: bytes a passage that grow with the dimension and that do not, and of the file."""

    codes: float
    fixed: float
    cells: int
    total: float


def _derived_size(index_type: IndexType, measured: _Built) -> _Size:
    """Centroids apart, bytes a passage as measured, those of codes scaled by dimension."""
    dimension = _dimension(HASHING)
    centroids = 4 * dimension * _cells(index_type, measured.rows, dimension)
    per_row = (measured.bytes - centroids) / measured.rows
    fixed = 0.0
    if index_type.startswith("ivf"):
        fixed = 8.0
    elif index_type == "hnsw":
        fixed = per_row - 2 * dimension  # its vectors are in fp16
    codes = (per_row - fixed) * WIKI_DIMENSION / dimension
    cells = _cells(index_type, WIKI_ROWS, WIKI_DIMENSION)
    return _Size(codes, fixed, cells, (codes + fixed) * WIKI_ROWS + 4 * WIKI_DIMENSION * cells)


def _cells(index_type: IndexType, rows: int, dimension: int) -> int:
    """Of the plan for so many rows; 0 for a type without cells."""
    return _sample(index_type, rows, dimension)[1]


def _sample(index_type: IndexType, rows: int, dimension: int) -> tuple[int, int]:
    """Rows that are trained on, and cells."""
    from reasonrag.retrieval.dense.faiss_index import plan_index

    plan = plan_index(index_type, rows=rows, dimension=dimension)
    has_cells = plan.factory.startswith("IVF")
    return plan.training_rows, int(plan.factory.removeprefix("IVF").partition(",")[0]) if has_cells else 0


def _memory_to_build(index_type: IndexType, small: dict[Kind, _Built], large: dict[Kind, _Built], size: float) -> float:
    """Peak bytes of building an index of so many bytes."""
    if index_type in STREAMED:
        return _streaming_peak(small[index_type], large[index_type])
    measured, dimension = large[index_type], _dimension(HASHING)
    held = measured.bytes + 4 * dimension * _sample(index_type, measured.rows, dimension)[0]
    to_hold = size + 4 * WIKI_DIMENSION * _sample(index_type, WIKI_ROWS, WIKI_DIMENSION)[0]
    beyond = max(0, measured.peak - large["flat"].peak)
    return _streaming_peak(small["flat"], large["flat"]) + beyond / held * to_hold


def _line(x: float, y: float, other_x: float, other_y: float, at: float) -> float:
    """The line through two points, never falling."""
    return other_y + max(0.0, (other_y - y) / (other_x - x)) * (at - other_x)


def _streaming_peak(small: _Built, large: _Built) -> float:
    """Blocks by dimension, and beyond the larger size what a passage more took."""
    growth = _line(small.rows, small.peak, large.rows, large.peak, WIKI_ROWS) - large.peak
    return large.peak * WIKI_DIMENSION / _dimension(HASHING) + growth


def _seconds_to_build(index_type: IndexType, measured: _Built, cells: int) -> float:
    """Of the faiss index alone."""
    rows, dimensions = WIKI_ROWS / measured.rows, WIKI_DIMENSION / _dimension(HASHING)
    adding = (measured.indexing - measured.training) * rows * dimensions
    if cells:
        more_cells = cells / _cells(index_type, measured.rows, _dimension(HASHING))
        return adding * more_cells + measured.training * more_cells**2 * dimensions
    if index_type == "hnsw":
        return adding * math.log(WIKI_ROWS) / math.log(measured.rows)
    return adding + measured.training


def _hours(hours: float) -> str:
    return f"{hours:,.{0 if hours >= 100 else 1 if hours >= 1 else 2}f}"  # noqa: PLR2004 - digits that say something


def _sizing_of_the_rest(bench: _Bench) -> Iterator[str]:
    """Encoding, scanning and BM25, from tokens and bytes of a few real passages."""
    sample = bench.data_dir / "samples" / "wiki18_raw_sample_corpus.jsonl"
    lines, tokens = _in_own_process(_sample_size, sample)
    corpus_bytes = WIKI_ROWS * sample.stat().st_size / lines
    found = bench.encoding()
    token_rate = found.passages * found.tokens / statistics.median(found.alone)
    factor = _weights(BASE_LAYERS, WIKI_DIMENSION) / _weights(MINILM_LAYERS, MINILM_WIDTH)
    hours = WIKI_ROWS * tokens * factor / token_rate / 3600
    small, large = bench.built(bench.small), bench.built(bench.large)
    scan_s = large["flat"].scanning / large["flat"].corpus_bytes * corpus_bytes
    words = large[BM25]
    words_s = words.seconds / words.corpus_bytes * corpus_bytes
    memory = _line(small[BM25].corpus_bytes, small[BM25].peak, words.corpus_bytes, words.peak, corpus_bytes)
    rows = (
        (
            "encoding by a base encoder on this CPU",
            hours,
            2 * WIKI_ROWS * WIKI_DIMENSION,
            "as flat above, and the model",
            (
                f"all-MiniLM-L6-v2's {token_rate:,.0f} tokens/s in {found.precision}, divided by {factor:.1f}: weights "
                f"without embeddings, {_weights(BASE_LAYERS, WIKI_DIMENSION) / 1e6:.1f} M against "
                f"{_weights(MINILM_LAYERS, MINILM_WIDTH) / 1e6:.1f} M; attention between tokens, and what larger "
                "matrices gain, left out"
            ),
        ),
        (
            "reading the corpus",
            scan_s / 3600,
            8 * WIKI_ROWS,
            "as flat above",
            f"bytes; {large['flat'].corpus_bytes / 1e6:,.0f} MB of atlas read, checked and hashed",
        ),
        (
            "BM25",
            words_s / 3600,
            words.bytes / words.corpus_bytes * corpus_bytes,
            f"{memory / 1e9:.1f}",
            f"bytes; {words.corpus_bytes / 1e6:,.0f} MB of atlas, whose words are others; memory by two sizes",
        ),
    )
    columns: dict[str, list[str]] = {}
    for work, its_hours, on_disk, in_memory, basis in rows:
        row = {"work": work, "hours": _hours(its_hours), "GB on disk": f"{on_disk / 1e9:.1f}"}
        _add_row(columns, row | {"GB of memory": in_memory, "from": basis})
    yield from table(
        f"Derived, not measured: the same corpus, {corpus_bytes / 1e9:.1f} GB, {tokens:.0f} tokens a passage, both by "
        f"{lines} passages of it",
        columns,
    )


def _weights(layers: int, width: int) -> int:
    """Of an encoder without its embeddings: four matrices of attention, and two that are four times as large."""
    return 12 * layers * width**2


def _sample_size(corpus: Path) -> tuple[int, float]:
    """Lines, and mean tokens of a passage."""
    from reasonrag.data.corpus import Corpus, scan_corpus
    from reasonrag.retrieval.dense.encoders import EncoderChoice, load_encoder

    passages = list(Corpus(corpus, scan_corpus(corpus).offsets))
    lengths = load_encoder(EncoderChoice(model=MINILM)).lengths([each.contents for each in passages])
    return len(passages), statistics.mean(lengths)


PARTS: dict[str, Callable[[_Bench], Iterator[str]]] = {
    "build": _build,
    "memory": _memory,
    "search": _search,
    "service": _service,
    "recall": _recall,
    "sizing": _sizing,
}


# -- what parts share --------------------------------------------------------------------------------------------


class _Bench:
    """Corpora and indexes, each made when it is first asked for, and what several parts look at, measured once."""

    def __init__(
        self, data_dir: Path, scratch: Path, scale: float, types: tuple[IndexType, ...], data_sets: tuple[str, ...]
    ) -> None:
        self.data_dir, self.scratch = data_dir, scratch
        self.types = tuple(each for each in TYPES if each in {"flat", *types})
        self.data_sets = data_sets
        self.client_s, self._search_s = max(3.0, scale * CLIENT_S), max(0.5, scale * SEARCH_S)
        self.build_passages = max(300, round(scale * BUILD_PASSAGES))
        self.service_passages = None if scale == 1 else self.build_passages
        self._scale = scale
        self.encoding = cache(self._encoding)
        self.built = cache(self._built)
        self.searched = cache(self._searched)
        self.rows = cache(_count_lines)

    # -- corpora and questions -----------------------------------------------------------------------------------

    @property
    def small(self) -> Path:
        return self._world(SMALL)

    @property
    def large(self) -> Path:
        return self._world(LARGE)

    def _world(self, passages: int) -> Path:
        """The corpus of an atlas of about so many passages."""
        from reasonrag.data.atlas import write_world

        return write_world(self.scratch, math.ceil(self._scale * passages / PER_COUNTY)) / "corpus.jsonl"

    def real_corpus(self, data_set: str, passages: int | None = None) -> Path:
        """A data set's corpus, or so many of its first passages. Raises InputError where it is missing."""
        whole = self.data_dir / data_set / "corpus.jsonl"
        if not whole.is_file():
            raise InputError(f"there is no {whole}; give --data-dir")
        if passages is None:
            return whole
        cut = self.scratch / f"{data_set}-{passages}" / "corpus.jsonl"
        if not cut.exists():
            cut.parent.mkdir(exist_ok=True)
            with whole.open("rb") as lines:
                cut.write_bytes(b"".join(islice(lines, passages)))
        return cut

    def question_file(self, world: Path) -> Path:
        """Some of the dev questions of an atlas, drawn once."""
        sample = world.with_name("dev-sample.jsonl")
        if not sample.exists():
            lines = world.with_name("dev.jsonl").read_bytes().splitlines(keepends=True)
            sample.write_bytes(b"".join(random.Random(0).sample(lines, min(len(lines), ATLAS_QUESTIONS))))
        return sample

    def questions(self, world: Path, count: int) -> list[str]:
        """Texts of that many of them, each once as far as there are so many."""
        texts = _question_texts([self.question_file(world)])
        return list(islice(itertools.cycle(texts), max(count, len(texts))))

    def real_questions(self, data_set: str) -> list[str]:
        return _question_texts(self.data_dir / data_set / f"{split}.jsonl" for split in ("dev", "train"))

    # -- indexes -------------------------------------------------------------------------------------------------

    def place(self, corpus: Path, name: str) -> Path:
        return self.scratch / f"{corpus.parent.name}-{name}.index"

    def dense(self, corpus: Path, model: str, index_type: IndexType = "flat") -> Path:
        """A dense index with the type, built if it is missing or of what the corpus was."""
        directory = self.place(corpus, model)
        if not _has(directory, corpus, index_type):
            _say(f"building {directory.name}: {index_type}")
            _in_own_process(_build_dense, corpus, directory, model, index_type)
        return directory

    def bm25(self, corpus: Path) -> Path:
        directory = self.place(corpus, BM25)
        if not _has(directory, corpus, None):
            _say(f"building {directory.name}")
            _in_own_process(_build_bm25, corpus, directory)
        return directory

    # -- measured once -------------------------------------------------------------------------------------------

    def _encoding(self) -> _Encoding:
        corpus = self.real_corpus("hotpotqa", self.build_passages)
        _say(f"encoding {self.build_passages:,} passages, {2 * BUILD_ROUNDS} times")
        return _in_own_process(_encode_and_build, corpus, self.scratch, BUILD_ROUNDS)

    def _built(self, world: Path) -> dict[Kind, _Built]:
        """Every kind of index over an atlas, built anew, a process each."""
        found: dict[Kind, _Built] = {}
        shutil.rmtree(self.place(world, HASHING), ignore_errors=True)
        for kind in (*self.types, BM25):
            directory = self.place(world, BM25 if kind == BM25 else HASHING)
            _say(f"building {directory.name}: {kind}, measured")
            found[kind] = _in_own_process(_build_measured, kind, world, directory)
        return found

    def _searched(self, index_type: IndexType) -> _Searched:
        directory = self.dense(self.large, HASHING, index_type)
        _say(f"searching {directory.name}: {index_type}")
        questions = self.questions(self.large, max(BATCHES))
        return _in_own_process(_search_type, directory, index_type, questions, self._search_s)


def _has(directory: Path, corpus: Path, index_type: str | None) -> bool:
    """Whether an index of the corpus, with the type, is there."""
    from reasonrag.retrieval.dense.manifest import MANIFEST, DenseManifest, read_manifest

    if not (directory / MANIFEST).exists():
        return False
    manifest = read_manifest(directory)
    types: Iterable[str | None] = manifest.indexes if isinstance(manifest, DenseManifest) else (None,)
    return manifest.matches(corpus) and index_type in types


def _build_dense(corpus: Path, directory: Path, model: str, index_type: IndexType) -> None:
    from reasonrag.retrieval.dense.build import BuildOptions, build_dense
    from reasonrag.retrieval.dense.build_progress import PlainBuildWatcher
    from reasonrag.retrieval.dense.encoders import EncoderChoice

    options = BuildOptions(encoder=EncoderChoice(model=model), index_type=index_type)
    build_dense(corpus, directory, options, PlainBuildWatcher(_say))


def _build_bm25(corpus: Path, directory: Path) -> None:
    from reasonrag.retrieval.dense.build_progress import PlainBuildWatcher
    from reasonrag.retrieval.lexical.bm25 import build_bm25

    build_bm25(corpus, directory, PlainBuildWatcher(_say))


def read_dense(directory: Path) -> DenseManifest:
    from reasonrag.retrieval.dense.manifest import DenseManifest, read_manifest

    manifest = read_manifest(directory)
    if not isinstance(manifest, DenseManifest):
        raise InputError(f"{directory} is no dense index")
    return manifest


def _question_texts(files: Iterable[Path]) -> list[str]:
    import orjson

    return [orjson.loads(line)["question"] for each in files for line in each.read_bytes().splitlines()]


def _count_lines(path: Path) -> int:
    with path.open("rb") as lines:
        return sum(1 for _ in lines)


def _dimension(model: str) -> int:
    """Of a hashing encoder, by its name."""
    return int(model.partition("-")[2])


def _say(message: str) -> None:
    """What is being done, to who waits; no part of the report."""
    print(f"[{time.strftime('%H:%M:%S')}] {message}", file=sys.stderr, flush=True)


def _in_own_process(work: Callable[..., T], *arguments: Any) -> T:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


def _add_row(columns: dict[str, list[str]], row: dict[str, str]) -> None:
    for name, value in row.items():
        columns.setdefault(name, []).append(value)


if __name__ == "__main__":
    typer.run(main)
