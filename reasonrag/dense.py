"""Dense indexes: passages encoded once, faiss indexes of any type built from the stored vectors, and searched.

Decides how a build survives a kill, what of an index must agree with what (corpus, vectors, encoder, faiss file), and
how candidates get their final scores. Does not know models (`encoders`), bytes of vectors (`vectors`) or faiss
(`neighbours`).
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson
from pydantic import BaseModel, ConfigDict

from reasonrag.building import BuildWatcher, SilentBuild
from reasonrag.corpora import Corpus, CorpusScan, Passage, scan_corpus
from reasonrag.durable import building, unwritable
from reasonrag.encoders import PROBE, Encoder, EncoderChoice, EncoderSpec, Precision, load_encoder
from reasonrag.errors import InputError
from reasonrag.manifests import (
    MANIFEST,
    OFFSETS,
    DenseManifest,
    FaissFile,
    put_in_place,
    read_manifest,
    write_manifest,
)
from reasonrag.neighbours import (
    FLASHRAG_NAMES,
    FaissVectors,
    build_index,
    file_digest,
    open_neighbours,
    plan_index,
)
from reasonrag.rankings import Ranked, best
from reasonrag.settings import IndexType
from reasonrag.vectors import ENCODED, VECTORS, StoredVectors, VectorRows, VectorWriter, digest_of, stretches

BUILD = "build.json"
SPARE = 8
"""Candidates beyond those asked for: matrix products differ in their last digits from one batch to the next, and what
stands at the cut must not. The final scores are computed one passage at a time."""
TIED = 2e-6
"""Scores that differ by less may change places between batches."""
MOST_CANDIDATES = 65_536
"""Passages of one score beyond which nobody looks for the first of them."""
AGREES = 0.99
"""Cosine of the same query encoded twice: bf16 gives .998; another pooling, instruction or model far less."""
ADOPTION_SAMPLE = 32
"""Passages encoded again to see whether somebody else's index is of this corpus and this encoder."""


@dataclass(frozen=True)
class BuildOptions:
    """How a dense index is built.

    devices, precision, batch_size: as `load_encoder` takes them. from_faiss: somebody else's Flat or SQ index of the
    corpus, adopted instead of encoding. index_type: by default flat, or what is adopted. gpu: faiss trains on the GPUs.
    """

    encoder: EncoderChoice = field(default_factory=EncoderChoice)
    index_type: IndexType | None = None
    devices: Sequence[str] = ()
    precision: Precision | None = None
    batch_size: int = 64
    from_faiss: Path | None = None
    gpu: bool = False


class _Unfinished(BaseModel):
    """What an interrupted build was encoding: it goes on only if all of it is still the same."""

    model_config = ConfigDict(frozen=True)

    corpus_sha256: str
    encoder: EncoderSpec
    precision: str


def build_dense(
    corpus: Path, directory: Path, options: BuildOptions, watcher: BuildWatcher | None = None
) -> DenseManifest:
    """Build a dense index of `corpus` in `directory`, or add a type to the one that is there, without encoding again.

    A build that was killed goes on where it was. Memory does not grow with the corpus while encoding, nor for the
    streamed types. Raises InputError for a bad corpus, encoder or place.
    """
    with building(directory):
        return build_dense_alone(corpus, directory, options, watcher or SilentBuild())


def build_dense_alone(corpus: Path, directory: Path, options: BuildOptions, watcher: BuildWatcher) -> DenseManifest:
    """The same for who has the right to build already."""
    if not corpus.is_file():
        raise InputError(f"there is no corpus {corpus}")
    build = _Build(corpus, directory, options, watcher)
    try:
        build.put_finished_in_place()
        return build.run()
    except OSError as error:
        raise unwritable(directory, error) from error
    finally:
        watcher.ended()


class _Build:
    """One session of building one index."""

    def __init__(self, corpus: Path, directory: Path, options: BuildOptions, watcher: BuildWatcher) -> None:
        self.corpus, self.directory, self.options, self.watcher = corpus, directory, options, watcher
        self.unfinished = directory.with_name(f".{directory.name}.encoding")
        self.stat = corpus.stat()  # before reading: a change while reading must make the index stale

    def put_finished_in_place(self) -> None:
        """What an earlier session had finished, and was killed before it was put in place."""
        if (self.unfinished / MANIFEST).exists():
            put_in_place(self.unfinished, self.directory)

    def run(self) -> DenseManifest:
        encoder = self._load_encoder()
        try:
            existing = self._existing(encoder.spec)
            if existing is not None:
                return self._with_type(existing)
            return self._from_scratch(encoder)
        finally:
            encoder.close()

    def _load_encoder(self) -> Encoder:
        options = self.options
        self.watcher.say(f"loading the encoder {options.encoder.model}")
        return load_encoder(
            options.encoder, devices=options.devices, precision=options.precision, batch_size=options.batch_size
        )

    # -- an index that is there already ----------------------------------------------------------------------------

    def _existing(self, spec: EncoderSpec) -> DenseManifest | None:
        """The finished index of this corpus by this encoder, if the directory holds one."""
        if not (self.directory / MANIFEST).exists():
            return None
        manifest = read_manifest(self.directory)
        if not isinstance(manifest, DenseManifest) or not manifest.is_of(self.corpus):
            return None  # of something else, or of what the corpus was before
        if self.options.from_faiss:
            raise InputError(f"{self.directory} holds an index of {self.corpus} already; choose another --out")
        if manifest.encoder != spec:
            raise InputError(
                f"{self.directory} was built with another encoder ({_difference(manifest.encoder, spec)}); "
                "choose another --out"
            )
        return manifest

    def _with_type(self, manifest: DenseManifest) -> DenseManifest:
        """One more type over the same vectors; one that is missing or cut off is built again."""
        wanted = self.options.index_type or "flat"
        there = manifest.indexes.get(wanted)
        if there and _is_whole(self.directory / there.file, there):
            self.watcher.say(f"{self.directory} has its {wanted} index already")
            return manifest
        vectors = stored_vectors(self.directory, manifest)
        file = self._faiss_file(vectors, self.directory, manifest.encoder, wanted)
        added = manifest.model_copy(update={"indexes": manifest.indexes | {wanted: file}, "searched": wanted})
        write_manifest(added, self.directory)
        return added

    def _faiss_file(self, vectors: VectorRows, directory: Path, spec: EncoderSpec, index_type: IndexType) -> FaissFile:
        plan = plan_index(index_type, rows=vectors.rows, dimension=vectors.dimension)
        name = f"{method_name(spec)}_{FLASHRAG_NAMES[plan.type]}.index"
        being_built = directory / f".{name}.building"
        self.watcher.stage(f"{plan.type} index", total=vectors.rows)
        begun = time.monotonic()
        try:
            digest = build_index(plan, vectors, being_built, advanced=self.watcher.reached, gpu=self.options.gpu)
            being_built.replace(directory / name)
        finally:
            being_built.unlink(missing_ok=True)
        return FaissFile(
            file=name,
            bytes=(directory / name).stat().st_size,
            sha256=digest,
            plan=plan,
            seconds=round(time.monotonic() - begun, 2),
        )

    # -- a new one -------------------------------------------------------------------------------------------------

    def _from_scratch(self, encoder: Encoder) -> DenseManifest:
        self.watcher.stage("reading the corpus", total=self.stat.st_size)
        scan = scan_corpus(self.corpus, advanced=self.watcher.reached)
        rows, spec = len(scan.offsets), encoder.spec
        adopted = FaissVectors(self.options.from_faiss) if self.options.from_faiss else None
        wanted = self.options.index_type or (adopted.index_type if adopted else "flat")
        plan_index(wanted, rows=rows, dimension=spec.dimension)  # refused now, not in 8 hours
        if adopted is not None:
            self._check_adopted(adopted, scan, encoder)
        self._begin(scan, encoder, wanted)
        np.save(self.unfinished / OFFSETS, scan.offsets)
        begun = time.monotonic()
        digest = self._encode(scan, encoder) if adopted is None else file_digest(adopted.path)
        seconds = 0.0 if adopted else round(time.monotonic() - begun, 2)
        file = self._first_file(adopted, spec, digest, wanted)
        probe = encoder.queries([PROBE])[0].astype(np.float16)
        manifest = DenseManifest(
            corpus=str(self.corpus.resolve()),
            corpus_sha256=scan.sha256,
            corpus_bytes=self.stat.st_size,
            corpus_mtime_ns=self.stat.st_mtime_ns,
            passages=rows,
            encoder=spec,
            precision="unknown" if adopted else encoder.precision,
            probe=base64.b64encode(probe.tobytes()).decode(),
            vectors_sha256=digest,
            vectors=None if adopted else VECTORS,
            read_back_from=str(adopted.path) if adopted else None,
            indexes={file.plan.type: file},
            searched=file.plan.type,
            encoding_seconds=seconds,
            devices=list(encoder.devices),
            versions=_versions(),
        )
        for name in (BUILD, ENCODED):
            (self.unfinished / name).unlink(missing_ok=True)
        write_manifest(manifest, self.unfinished)
        put_in_place(self.unfinished, self.directory)
        return manifest

    def _begin(self, scan: CorpusScan, encoder: Encoder, wanted: IndexType) -> None:
        """Go on with the interrupted build, or make room for a new one."""
        now = _Unfinished(corpus_sha256=scan.sha256, encoder=encoder.spec, precision=encoder.precision)
        record = self.unfinished / BUILD
        if record.exists():
            before = _Unfinished.model_validate_json(record.read_bytes())
            if before != now:
                raise InputError(
                    f"{self.unfinished} holds an unfinished build of something else ({_difference(before, now)}); "
                    "delete it, or choose another --out"
                )
            return
        shutil.rmtree(self.unfinished, ignore_errors=True)
        self._check_space(len(scan.offsets), encoder.spec.dimension, wanted)
        self.unfinished.mkdir(parents=True)
        record.write_bytes(orjson.dumps(now.model_dump(mode="json"), option=orjson.OPT_INDENT_2))

    def _check_space(self, rows: int, dimension: int, wanted: IndexType) -> None:
        """Raises InputError where the disk would be full in the end."""
        stored = 0 if self.options.from_faiss else 2 * rows * dimension
        index = BYTES_PER_DIMENSION[wanted] * rows * dimension
        free = shutil.disk_usage(self.directory.parent).free
        if stored + index > free:
            raise InputError(
                f"{self.directory} would need {(stored + index) / 1e9:,.1f} GB (vectors {stored / 1e9:,.1f}, "
                f"{wanted} index {index / 1e9:,.1f}), and {free / 1e9:,.1f} GB are free there; "
                "choose another --out or a smaller --type"
            )

    def _encode(self, scan: CorpusScan, encoder: Encoder) -> str:
        """Encode what is owed; the digest of all vectors."""
        rows, corpus = len(scan.offsets), Corpus(self.corpus, scan.offsets)
        with VectorWriter(self.unfinished, rows=rows, dimension=encoder.spec.dimension) as writer:
            if writer.encoded:
                self.watcher.say(f"{writer.encoded:,} of {rows:,} passages are encoded; going on with the rest")
            self.watcher.stage("encoding", total=rows, done=writer.encoded)
            done = writer.encoded
            for number, start, stop in list(writer.owed()):
                self._check_unchanged()
                texts = [contents(each) for each in corpus.read(start, stop)]
                writer.write(number, self._encode_piece(encoder, texts, done))
                done += stop - start
            return writer.sha256

    def _check_unchanged(self) -> None:
        """Raises InputError where the corpus is not the file that was scanned any more."""
        now = self.corpus.stat()
        if (now.st_size, now.st_mtime_ns) != (self.stat.st_size, self.stat.st_mtime_ns):
            raise InputError(f"the corpus {self.corpus} was changed while it was encoded; what was encoded is kept")

    def _encode_piece(self, encoder: Encoder, texts: list[str], done: int) -> npt.NDArray[np.float32]:
        """Longest texts first, so that a batch holds alike ones; a few batches at a time, so that progress is seen."""
        order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
        vectors = np.empty((len(texts), encoder.spec.dimension), dtype=np.float32)
        for start, stop in stretches(len(texts), encoder.at_once):
            rows = order[start:stop]
            vectors[rows] = encoder.passages(texts[row] for row in rows)
            self.watcher.reached(done + stop)
        return vectors

    # -- somebody else's -------------------------------------------------------------------------------------------

    def _first_file(self, adopted: FaissVectors | None, spec: EncoderSpec, digest: str, wanted: IndexType) -> FaissFile:
        if adopted is None:
            return self._faiss_file(StoredVectors(self.unfinished / VECTORS), self.unfinished, spec, wanted)
        if adopted.index_type != wanted:
            return self._faiss_file(adopted, self.unfinished, spec, wanted)
        plan = plan_index(adopted.index_type, rows=adopted.rows, dimension=adopted.dimension)
        size = adopted.path.stat().st_size
        return FaissFile(file=str(adopted.path), bytes=size, sha256=digest, plan=plan, seconds=0.0)

    def _check_adopted(self, adopted: FaissVectors, scan: CorpusScan, encoder: Encoder) -> None:
        """Raises InputError where the index is not of this corpus, or not by this encoder."""
        rows, spec = len(scan.offsets), encoder.spec
        if adopted.rows != rows:
            raise InputError(
                f"{adopted.path} has {adopted.rows:,} rows and {self.corpus} {rows:,} passages; row i must be line i"
            )
        if adopted.dimension != spec.dimension:
            raise InputError(
                f"{adopted.path} has {adopted.dimension} dimensions and the encoder {spec.model} {spec.dimension}; "
                "give the --encoder it was built with"
            )
        sample = np.random.default_rng(0).choice(rows, size=min(rows, ADOPTION_SAMPLE), replace=False)
        sample = np.union1d(sample, [0, rows - 1])  # the ends: a line too many or too few shows in the last one
        corpus = Corpus(self.corpus, scan.offsets)
        ours = encoder.passages(contents(corpus[int(row)]) for row in sample)
        theirs = adopted.take(sample)
        likeness = float(np.median(_cosines(ours, theirs)))
        if likeness < AGREES:
            raise InputError(
                f"{adopted.path} does not hold what {spec.model} makes of these passages (median cosine {likeness:.2f} "
                f"over {len(sample)} of them): another corpus, or another --encoder, --pooling or --passage-instruction"
            )
        strangers = sample[_belong_elsewhere(ours, theirs)]
        if len(strangers):
            raise InputError(
                f"{adopted.path} is of another corpus than {self.corpus}: of {len(sample)} vectors that were compared "
                f"{len(strangers)} are not those of their passages, row {int(strangers[0]):,} for one; "
                "row i must be line i"
            )


BYTES_PER_DIMENSION: dict[IndexType, float] = {
    "flat": 4, "sqfp16": 2, "sq8": 1, "hnsw": 2.7, "ivf-sq": 1.02, "ivf-pq": 0.27,
}  # fmt: skip
"""Of one passage's entry in an index file, measured at 384 dimensions; `hnsw` holds its links besides."""


def _is_whole(path: Path, file: FaissFile) -> bool:
    return path.exists() and path.stat().st_size == file.bytes


def contents(passage: Passage) -> str:
    """What of a passage is encoded: FlashRAG's `contents`."""
    return f"{passage.title}\n{passage.text}"


def method_name(spec: EncoderSpec) -> str:
    """The first half of `{method}_{type}.index`: the encoder's short name, as in the default place of its indexes."""
    return encoder_name(spec.model)


def encoder_name(model: str) -> str:
    """Of a folder or a name on the Hub, its last part, fit for a file name."""
    return "".join(each if each.isalnum() or each in "-." else "-" for each in Path(model).name.lower())


def _versions() -> dict[str, str]:
    packages = ("numpy", "faiss-cpu", "faiss-gpu", "torch", "transformers", "sentence-transformers", "FlagEmbedding")
    found = {}
    for each in packages:
        try:
            found[each] = version(each)
        except PackageNotFoundError:
            continue
    return found


def _difference(before: BaseModel, now: BaseModel) -> str:
    """The first field that differs, and how."""
    was, is_now = before.model_dump(), now.model_dump()
    for name, value in was.items():
        if isinstance(value, dict) and value != is_now[name]:
            return _difference(getattr(before, name), getattr(now, name))
        if value != is_now[name]:
            return f"{name}: {value!r} there, {is_now[name]!r} now"
    return "nothing differs"


def _belong_elsewhere(ours: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Which vectors are unlike ours of the same row, and less like it than some other row's is.

    A passage that was cut off earlier is unlike as well, but still like no other.
    """
    own = _cosines(ours, theirs)
    closest = np.max([_cosines(ours, np.broadcast_to(each, ours.shape)) for each in theirs], axis=0)
    return np.asarray((own < AGREES) & (own < closest))


def _cosines(ours: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return np.asarray((ours * theirs).sum(axis=1) / np.where(norms, norms, 1))


def stored_vectors(directory: Path, manifest: DenseManifest) -> VectorRows:
    """The vectors of a finished index. Raises InputError where they are gone or cut off."""
    if manifest.vectors is None:
        return FaissVectors(Path(manifest.read_back_from or ""))
    vectors = StoredVectors(directory / manifest.vectors)
    if (vectors.rows, vectors.dimension) != (manifest.passages, manifest.encoder.dimension):
        raise InputError(
            f"{vectors.path} holds {vectors.rows:,} x {vectors.dimension} numbers, its manifest says "
            f"{manifest.passages:,} x {manifest.encoder.dimension}; build the index again"
        )
    return vectors


# -- searching -------------------------------------------------------------------------------------------------


class DenseIndex:
    """A dense index that is open.

    encoder: encodes the queries; must be the one the passages were encoded with.
    Raises InputError for files that are missing, cut off or do not belong together, and for another encoder.
    """

    instant = False

    def __init__(
        self,
        directory: Path,
        manifest: DenseManifest,
        encoder: Encoder,
        *,
        index_type: IndexType | None = None,
        gpu: bool = False,
    ) -> None:
        file = manifest.file_of(index_type, directory)
        path = directory / file.file
        if not _is_whole(path, file):
            what = "is cut off or was changed" if path.exists() else "is missing"
            remedy = (
                "It was adopted and holds the vectors: put it back, or delete the index and build it again"
                if file.file == manifest.read_back_from
                else f"Its vectors are there: reasonrag index build --corpus {manifest.corpus} --out {directory} "
                f"--encoder {manifest.encoder.model} --type {file.plan.type}"
            )
            raise InputError(f"the faiss index {path} {what}. {remedy}")
        check_encoder(directory, manifest, encoder)
        self._vectors = stored_vectors(directory, manifest)
        self._neighbours = open_neighbours(path, file.plan, gpu=gpu)
        self._plan, self._encoder = file.plan, encoder
        if (self._neighbours.rows, self._neighbours.dimension) != (manifest.passages, manifest.encoder.dimension):
            raise InputError(f"the faiss index {path} is not of these vectors; build it again")
        self.identity = ":".join(
            (
                "dense",
                manifest.corpus_sha256[:16],
                manifest.vectors_sha256[:16],
                file.plan.type,
                file.sha256[:8],
                f"nprobe={file.plan.nprobe},ef={file.plan.ef_search},refine={file.plan.refine}",
                encoder_name(encoder.spec.model),
                _digest(encoder.spec),
            )
        )

    def rank(self, queries: Sequence[str], depth: int) -> list[Ranked]:
        """Rows by inner product with the query's vector, best first, equal scores in corpus order."""
        vectors = self._encoder.queries(queries)
        asked = depth * self._plan.refine + SPARE
        candidates = self._neighbours.search(vectors, asked)
        return [self._scored(*each, depth=depth, asked=asked) for each in zip(vectors, candidates, strict=True)]

    def _scored(self, query: npt.NDArray[np.float32], rows: npt.NDArray[np.int64], *, depth: int, asked: int) -> Ranked:
        """The candidates by their stored vectors; a query of which nothing is left finds nothing.

        Where the worst candidate is as good as the last one that is kept, more are looked at: which of many equal
        passages faiss gives is not the same in every batch.
        """
        if not query.any():
            return Ranked.nothing()
        while True:
            scores = (self._vectors.take(rows) * query).sum(axis=1, dtype=np.float64)
            found = best(rows, scores, depth)
            cut = found.scores[-1] if len(found) == depth else -np.inf
            if len(rows) < min(asked, self._neighbours.rows) or scores.min() < cut - TIED or asked >= MOST_CANDIDATES:
                return found
            if len(rows) >= self._neighbours.rows:
                return found
            asked *= 4
            [rows] = self._neighbours.search(query[None], asked)


def _digest(spec: EncoderSpec) -> str:
    """What of an encoder decides a query's vector, names and weights apart."""
    described = spec.model_dump_json(exclude={"model", "backend", "revision"})
    return hashlib.sha256(described.encode()).hexdigest()[:8]


def check_encoder(directory: Path, manifest: DenseManifest, encoder: Encoder) -> None:
    """Raises InputError for an encoder that is not the one of the index, by its description or by what it does."""
    there, now = manifest.encoder, encoder.spec
    described = {"model", "backend", "revision"}  # what may have another name and yet be the same
    if there.model_dump(exclude=described) != now.model_dump(exclude=described):
        raise InputError(
            f"the encoder {now.model} is not the one {directory} was built with "
            f"({_difference(there, now.model_copy(update={name: getattr(there, name) for name in described}))})"
        )
    probe = np.frombuffer(base64.b64decode(manifest.probe), dtype=np.float16).astype(np.float32)
    likeness = float(_cosines(encoder.queries([PROBE]), probe[None])[0])
    if likeness < AGREES:
        raise InputError(
            f"the encoder {now.model} is not the one {directory} was built with: the same query gets another vector "
            f"(cosine {likeness:.3f}). Give that one by --encoder: {there.model}"
        )


def open_encoder(
    manifest: DenseManifest, choice: EncoderChoice | None = None, *, devices: Sequence[str] = ()
) -> Encoder:
    """The encoder for an index' queries: its own, or what was named instead, described as its own is."""
    wanted = manifest.encoder.choice
    if choice is not None:
        given = choice.model_dump(exclude_none=True)
        wanted = wanted.model_copy(update=given | {"backend": choice.backend or wanted.backend})
    return load_encoder(wanted, devices=devices, precision="fp32", alone=True)


# -- checking --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recall:
    """How much of what an exact search finds an index finds. queries: passages of the corpus, asked as queries."""

    index_type: IndexType
    queries: int
    at: int
    recall: float


def recall_against_exact(
    directory: Path, manifest: DenseManifest, index_type: IndexType, *, queries: int, at: int, seed: int = 0
) -> Recall:
    """Recall of the `at` best rows of an index type against all stored vectors, both as the index is searched.

    The queries are stored vectors with half as much noise in a random direction.
    """
    file, vectors = manifest.file_of(index_type, directory), stored_vectors(directory, manifest)
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(vectors.rows, size=min(queries, vectors.rows), replace=False))
    asked = vectors.take(rows)
    noise = rng.standard_normal(asked.shape).astype(np.float32)
    noise *= np.linalg.norm(asked, axis=1, keepdims=True) / np.linalg.norm(noise, axis=1, keepdims=True)
    asked = np.asarray(asked + noise / 2, dtype=np.float32)
    exact = _exact(vectors, asked, at)
    opened = open_neighbours(directory / file.file, file.plan)
    found = opened.search(asked, at * file.plan.refine + SPARE)
    hits = 0
    for query, candidates, truth in zip(asked, found, exact, strict=True):
        kept = best(candidates, (vectors.take(candidates) * query).sum(axis=1, dtype=np.float64), at)
        hits += len(np.intersect1d(kept.rows, truth))
    return Recall(index_type, len(rows), at, hits / max(1, exact.size))


def _exact(vectors: VectorRows, queries: npt.NDArray[np.float32], at: int) -> npt.NDArray[np.int64]:
    """The rows of the best vectors of each query, [n, at], by looking at every one."""
    at = min(at, vectors.rows)
    scores: npt.NDArray[np.float32] = np.empty((len(queries), 0), dtype=np.float32)
    rows = np.empty((len(queries), 0), dtype=np.int64)
    for start, stop in stretches(vectors.rows):
        block: npt.NDArray[np.float32] = queries @ vectors.read(start, stop).T
        scores = np.hstack([scores, block])
        rows = np.hstack([rows, np.broadcast_to(np.arange(start, stop), (len(queries), stop - start))])
        kept: npt.NDArray[np.int64] = np.argpartition(-scores, at - 1, axis=1)[:, :at]
        scores, rows = np.take_along_axis(scores, kept, axis=1), np.take_along_axis(rows, kept, axis=1)
    return rows


def check_dense(
    directory: Path, manifest: DenseManifest, *, queries: int, at: int, watcher: BuildWatcher
) -> tuple[list[str], list[Recall]]:
    """What is wrong with the files of an index, one line each; and the recall of every type that is sound."""
    faults: list[str] = []
    recalls: list[Recall] = []
    if manifest.vectors is not None:
        watcher.say(f"reading {manifest.vectors}")
        try:
            if digest_of(directory / manifest.vectors) != manifest.vectors_sha256:
                faults.append(f"{manifest.vectors} is not what was encoded")
            stored_vectors(directory, manifest)
        except InputError as error:
            return [str(error)], []
    for index_type, file in manifest.indexes.items():
        path = directory / file.file
        watcher.say(f"reading {file.file}")
        if not path.exists() or file_digest(path) != file.sha256:
            faults.append(f"{file.file} is {'not what was built' if path.exists() else 'missing'}")
            continue
        opened = open_neighbours(path, file.plan)
        if (opened.rows, opened.dimension) != (manifest.passages, manifest.encoder.dimension):
            faults.append(f"{file.file} has {opened.rows:,} rows, the manifest says {manifest.passages:,}")
            continue
        recalls.append(recall_against_exact(directory, manifest, index_type, queries=queries, at=at))
    return faults, recalls
