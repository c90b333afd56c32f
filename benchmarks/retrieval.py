"""Retrieval measured: building, memory, searching and what is found.

Prints Markdown with date, commit and machine; `--append FILE` adds it to a file as well. Ratios come from one run on
one machine. Every build and search has a process of its own. What is measured against what:

- `build`: `build_dense` against the same encoder over the same texts in the same slices, nothing else done.
- `memory`: the most resident memory of every kind of build, at two sizes. The passages are those of atlas and the
  encoder is the hashing one: how much a model holds is not measured, what an index holds is.
- `search`: opening and searching those indexes.
- `recall`: gold passages found by the questions as they stand, on real data sets and on atlas.

Not measured: accelerators, disks that are slower than this one, corpora larger than memory.
"""

# ruff: noqa: PLC0415 - a process loads what it measures, and nothing else
from __future__ import annotations

import gc
import itertools
import math
import multiprocessing
import os
import random
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, TypeAlias, TypeVar, get_args

import typer
from reporting import ROOT, publish, table

from reasonrag.errors import InputError
from reasonrag.retrieval.dense.faiss_index import STREAMED
from reasonrag.retrieval.settings import IndexType

if TYPE_CHECKING:
    from reasonrag.retrieval.dense.encoders import Encoder
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
SEARCH_S, AT = 5.0, 10
"""Seconds of searching per rate; passages that a search finds."""
BATCHES = (1, 32)
RECALL_QUERIES = 200
ATLAS_QUESTIONS = 500
DATA_SETS = ("hotpotqa", "2wikimultihopqa", "musique", "popqa", "bamboogle")
RECALL_AT = (3, 5)
PACKAGES = ("numpy", "faiss-cpu", "torch", "transformers", "sentence-transformers", "aiohttp")


def main(  # noqa: PLR0917 - flags of a command line
    data_dir: Annotated[Path, typer.Option(help="Directory that holds the data sets")] = ROOT.parent
    / "shared"
    / "data",
    part: Annotated[list[str] | None, typer.Option(help="build, memory, search or recall; repeatable")] = None,
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

    from reasonrag.retrieval.dense.vector_pieces import PIECE, row_ranges

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
    from reasonrag.retrieval.dense.vector_pieces import VECTORS

    return (bench.place(world, HASHING) / VECTORS).stat().st_size


def _build_measured(kind: Kind, corpus: Path, directory: Path) -> _Built:
    """Build a BM25 index, or a dense one of a type; what was there is built again or added to."""
    from reasonrag.retrieval.dense.build import BuildOptions, build_dense
    from reasonrag.retrieval.dense.encoders import EncoderChoice
    from reasonrag.retrieval.lexical.bm25 import build_bm25

    if kind == BM25:
        begun = time.perf_counter()
        passages = build_bm25(corpus, directory).passages
        seconds = time.perf_counter() - begun
        return _Built(passages, _peak_bytes(), sum(each.stat().st_size for each in directory.iterdir()), seconds)
    meter = _BuildMeter()
    options = BuildOptions(encoder=EncoderChoice(model=HASHING), index_type=kind)
    manifest = build_dense(corpus, directory, options, meter)
    file = manifest.file
    return _Built(
        manifest.passages,
        _peak_bytes(),
        manifest.files[file.file].bytes,
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


def _search(bench: _Bench) -> Iterator[str]:
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
        f"{AT} passages and scored by their stored vectors; recall against the flat index by {RECALL_QUERIES} of them "
        "(own MB: neither shared nor given back when memory is short)",
        columns,
    )


def _search_type(directory: Path, index_type: IndexType, questions: list[str], seconds: float) -> _Searched:
    from reasonrag.retrieval.dense.faiss_index import FaissIndex, import_faiss
    from reasonrag.retrieval.dense.index import DenseIndex, open_encoder

    manifest = read_dense(directory)
    file = manifest.indexes[index_type]
    encoder = open_encoder(manifest)
    vector = encoder.queries(questions[:1])
    import_faiss()
    _forget(directory / file.file)
    begun = time.perf_counter()
    opened = FaissIndex(directory / file.file, file.plan)
    open_s = time.perf_counter() - begun
    opened.search(vector, AT)
    first_s = time.perf_counter() - begun - open_s
    del opened
    gc.collect()
    index = DenseIndex(directory, manifest.model_copy(update={"searched": index_type}), encoder)
    rates = {batch: _rate(lambda asked: index.rank(asked, AT), questions, batch, seconds) for batch in BATCHES}
    held = _memory_bytes("status", "VmRSS", "RssAnon")
    flat = DenseIndex(directory, manifest.model_copy(update={"searched": "flat"}), encoder)
    exact = flat.rank(questions[:RECALL_QUERIES], AT)
    found = index.rank(questions[:RECALL_QUERIES], AT)
    hits = sum(len({*one.rows} & {*other.rows}) for one, other in zip(found, exact, strict=True))
    recall = hits / sum(map(len, exact))
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
    from recall import measure_recall

    from reasonrag.data.questions import open_questions
    from reasonrag.retrieval.opening import open_index

    retriever = open_index(*directories)
    asked = list(open_questions(questions, dataset=data_set, split="dev").read())
    recall = measure_recall(retriever, asked, RECALL_AT)
    return _Found(len(asked), {each.k: (each.gold, each.all_gold, each.answer) for each in recall})


PARTS: dict[str, Callable[[_Bench], Iterator[str]]] = {
    "build": _build,
    "memory": _memory,
    "search": _search,
    "recall": _recall,
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
        self._search_s = max(0.5, scale * SEARCH_S)
        self.build_passages = max(300, round(scale * BUILD_PASSAGES))
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
    from reasonrag.retrieval.dense.manifest import DenseManifest, current_manifest

    manifest = current_manifest(directory, corpus)
    types: Iterable[str | None] = manifest.indexes if isinstance(manifest, DenseManifest) else (None,)
    return manifest is not None and index_type in types


def _build_dense(corpus: Path, directory: Path, model: str, index_type: IndexType) -> None:
    from reasonrag.progress import PlainBuildWatcher
    from reasonrag.retrieval.dense.build import BuildOptions, build_dense
    from reasonrag.retrieval.dense.encoders import EncoderChoice

    options = BuildOptions(encoder=EncoderChoice(model=model), index_type=index_type)
    build_dense(corpus, directory, options, PlainBuildWatcher(_say))


def _build_bm25(corpus: Path, directory: Path) -> None:
    from reasonrag.progress import PlainBuildWatcher
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
