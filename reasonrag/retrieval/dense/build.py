"""Building dense indexes: passages are encoded once, faiss indexes of any type are made from the stored vectors.

Decides how a build survives a kill at any moment, what is kept, and what is refused before hours are spent. Does not
know models (`encoders`), the vector files (`vector_store`), faiss (`faiss_index`) or how an index is searched
(`index`).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from preference.export.files import write_file
from reasonrag.data.corpus import Corpus, CorpusScan, scan_corpus
from reasonrag.errors import InputError
from reasonrag.files import file_digest, read_record, unwritable
from reasonrag.progress import SilentWatcher
from reasonrag.retrieval.dense.build_progress import READING, BuildWatcher, row_ranges
from reasonrag.retrieval.dense.encoders import (
    Encoder,
    EncoderChoice,
    EncoderSpec,
    Vectors,
    load_encoder,
    resolved,
    short_name,
)
from reasonrag.retrieval.dense.faiss_index import FLASHRAG_NAMES, FaissVectors, build_index, plan_index
from reasonrag.retrieval.dense.index import (
    AGREES,
    cosines,
    encoded_probe,
    first_difference,
    probe_similarity,
    stored_vectors,
)
from reasonrag.retrieval.dense.manifest import (
    MANIFEST,
    OFFSETS,
    DenseManifest,
    FaissFile,
    FileDigest,
    check_replaceable,
    current_manifest,
    put_in_place,
    write_manifest,
)
from reasonrag.retrieval.dense.vector_store import (
    ENCODED,
    PIECE,
    VECTORS,
    Piece,
    StoredVectors,
    VectorRows,
    VectorWriter,
)
from reasonrag.retrieval.settings import IndexType, Precision

BUILD = "build.json"
ADOPTION_SAMPLE = 32
"""Passages re-encoded to check that an adopted index matches this corpus and encoder."""
BYTES_PER_DIMENSION: dict[IndexType, float] = {
    "flat": 4, "sq8": 1, "hnsw": 2.7, "ivf-sq": 1.04, "ivf-pq": 0.31,
}  # fmt: skip
"""Index file bytes per passage and dimension, measured over 1,000,010 passages of 384 dimensions
(benchmarks/RESULTS.md); includes the links of `hnsw` and the ids and centres of cells, which grow more slowly than the
dimension."""


class EncodedPiece(NamedTuple):
    """The vectors of a piece, and the devices that encoded it."""

    piece: Piece
    vectors: Vectors
    devices: tuple[str, ...]


class Encoding(Protocol):
    """Encodes pieces of a corpus, in any order. texts: the passages of one.
    reached: told how many passages of a piece are encoded, before it is returned."""

    def __call__(
        self,
        encoder: Encoder,
        owed: Iterable[Piece],
        texts: Callable[[Piece], list[str]],
        reached: Callable[[int], None],
    ) -> Iterator[EncodedPiece]: ...


def encode_here(
    encoder: Encoder, owed: Iterable[Piece], texts: Callable[[Piece], list[str]], reached: Callable[[int], None]
) -> Iterator[EncodedPiece]:
    """An `Encoding` of this process, and of those that the encoder has for its devices."""
    for piece in owed:
        yield EncodedPiece(piece, encoded(texts(piece), encoder, reached), encoder.devices)


@dataclass(frozen=True)
class BuildOptions:
    """How a dense index is built.

    encoder: fields set explicitly (`model_fields_set`) must match an existing index. devices, precision, batch_size:
        see `load_encoder`. from_faiss: an external Flat or SQ index of the corpus, adopted instead of encoding.
        index_type: by default flat, or the adopted index's. gpu: faiss trains on the GPUs. encoding: where passages
        are encoded.
    """

    encoder: EncoderChoice = field(default_factory=EncoderChoice)
    index_type: IndexType | None = None
    devices: Sequence[str] = ()
    precision: Precision | None = None
    batch_size: int = 64
    from_faiss: Path | None = None
    gpu: bool = False
    encoding: Encoding = encode_here


class _BuildState(BaseModel):
    """What an interrupted build was encoding; it resumes only if nothing of this has changed."""

    model_config = ConfigDict(frozen=True)

    corpus_sha256: str
    encoder: EncoderSpec
    precision: str
    piece: int = PIECE
    probe: str


def build_dense(
    corpus: Path, directory: Path, options: BuildOptions, watcher: BuildWatcher | None = None
) -> DenseManifest:
    """Build a dense index of `corpus` in `directory`, or add a type to an existing one without encoding again. The
    caller holds the build lock.

    A killed build resumes, wherever it was. Memory grows by 24 bytes per passage; types that are not streamed
    (`faiss_index.STREAMED`) are held whole while they are built. Raises InputError for a bad corpus, encoder or
    directory.
    """
    watcher = watcher or SilentWatcher()
    if not corpus.is_file():
        raise InputError(f"there is no corpus {corpus}")
    try:
        return _Build(corpus, directory, options, watcher).run()
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

    def run(self) -> DenseManifest:
        if (self.unfinished / MANIFEST).exists():  # complete, but killed before it was moved into place
            put_in_place(self.unfinished, self.directory)
        existing = self._existing()
        if existing is not None:
            return self._with_type(existing)
        check_replaceable(self.directory, self.corpus, "dense")
        encoder = self._load_encoder()
        try:
            return self._from_scratch(encoder)
        finally:
            encoder.close()

    def _load_encoder(self) -> Encoder:
        options = self.options
        self.watcher.say(f"loading the encoder {options.encoder.model}")
        return load_encoder(
            options.encoder, devices=options.devices, precision=options.precision, batch_size=options.batch_size
        )

    # -- an existing index ----------------------------------------------------------------------------

    def _existing(self) -> DenseManifest | None:
        """The finished index of this corpus in the directory, or None. Raises InputError if another encoder built
        it."""
        manifest = current_manifest(self.directory, self.corpus)
        if not isinstance(manifest, DenseManifest):
            return None  # none, or of another corpus
        if self.options.from_faiss:
            raise InputError(f"{self.directory} holds an index of {self.corpus} already; choose another --out")
        given = self.options.encoder
        wanted = {name: getattr(given, name) for name in given.model_fields_set if getattr(given, name) is not None}
        if "model" in wanted:
            wanted["model"] = resolved(wanted["model"])
        asked = manifest.encoder.model_copy(update=wanted)
        if asked != manifest.encoder:
            raise InputError(
                f"{self.directory} was built with another encoder ({first_difference(manifest.encoder, asked)}); "
                "choose another --out"
            )
        return manifest

    def _with_type(self, manifest: DenseManifest) -> DenseManifest:
        """Add a type over the same vectors; a missing or truncated file is rebuilt."""
        before = manifest
        wanted = self.options.index_type or manifest.searched
        vectors = stored_vectors(self.directory, manifest)
        manifest = self._with_offsets(manifest)
        file, files = manifest.indexes.get(wanted), manifest.files
        if file and not files[file.file].fault(self.directory / file.file, most_bytes=0):
            self.watcher.say(f"{self.directory} already has its {wanted} index")
        else:
            file, digest = self._faiss_file(vectors, self.directory, manifest.encoder, wanted)
            files = {**files, file.file: digest}
        indexes = manifest.indexes | {wanted: file}
        added = manifest.model_copy(update={"files": files, "indexes": indexes, "searched": wanted})
        if added != before:
            write_manifest(added, self.directory)
        return added

    def _with_offsets(self, manifest: DenseManifest) -> DenseManifest:
        """Find the passages again where offsets are missing or damaged."""
        before = manifest.files.get(OFFSETS)
        if before and not before.fault(self.directory / OFFSETS):
            return manifest
        self.watcher.stage(READING, total=self.stat.st_size)
        np.save(self.directory / OFFSETS, scan_corpus(self.corpus, advanced=self.watcher.reached).offsets)
        files = {**manifest.files, OFFSETS: FileDigest.of(self.directory / OFFSETS)}
        return manifest.model_copy(update={"files": files})

    def _faiss_file(
        self, vectors: VectorRows, directory: Path, spec: EncoderSpec, index_type: IndexType
    ) -> tuple[FaissFile, FileDigest]:
        plan = plan_index(index_type, rows=vectors.rows, dimension=vectors.dimension)
        name = f"{short_name(spec.model)}_{FLASHRAG_NAMES[plan.type]}.index"
        being_built = directory / f".{name}.building"
        self.watcher.stage(f"{plan.type} index", total=vectors.rows)
        begun = time.monotonic()
        try:
            sha256 = build_index(plan, vectors, being_built, advanced=self.watcher.reached, gpu=self.options.gpu)
            being_built.replace(directory / name)
        finally:
            being_built.unlink(missing_ok=True)
        digest = FileDigest(bytes=(directory / name).stat().st_size, sha256=sha256)
        return FaissFile(file=name, plan=plan, seconds=round(time.monotonic() - begun, 2)), digest

    # -- a new index -------------------------------------------------------------------------------------------------

    def _from_scratch(self, encoder: Encoder) -> DenseManifest:
        self.watcher.stage(READING, total=self.stat.st_size)
        scan = scan_corpus(self.corpus, advanced=self.watcher.reached, say=self.watcher.say)
        adopted = FaissVectors(self.options.from_faiss) if self.options.from_faiss else None
        wanted = self.options.index_type or (adopted.index_type if adopted else "flat")
        plan_index(wanted, rows=len(scan.offsets), dimension=encoder.spec.dimension)  # refuse now, not after 8 hours
        if adopted is not None:
            self._check_adopted(adopted, scan, encoder)
        probe = self._begin(scan, encoder, wanted)
        np.save(self.unfinished / OFFSETS, scan.offsets)
        if adopted is None:
            digest, seconds, devices = self._encode(scan, encoder)
            vectors: VectorRows = StoredVectors(self.unfinished / VECTORS)
            files = {VECTORS: FileDigest.of(self.unfinished / VECTORS)}
        else:
            digest, seconds, vectors = file_digest(adopted.path), 0.0, adopted
            devices = list(encoder.devices)
            files = {str(adopted.path): FileDigest(bytes=adopted.path.stat().st_size, sha256=digest)}
        [place] = files
        files[OFFSETS] = FileDigest.of(self.unfinished / OFFSETS)
        if adopted and adopted.index_type == wanted:
            plan = plan_index(wanted, rows=adopted.rows, dimension=adopted.dimension)
            file = FaissFile(file=place, plan=plan, seconds=0.0)
        else:
            file, files_digest = self._faiss_file(vectors, self.unfinished, encoder.spec, wanted)
            files[file.file] = files_digest
        manifest = DenseManifest(
            corpus=str(self.corpus.resolve()),
            corpus_sha256=scan.sha256,
            corpus_bytes=self.stat.st_size,
            corpus_mtime_ns=self.stat.st_mtime_ns,
            passages=len(scan.offsets),
            encoder=encoder.spec,
            precision="unknown" if adopted else encoder.precision,
            probe=probe,
            vectors_sha256=digest,
            vectors=place,
            indexes={file.plan.type: file},
            searched=file.plan.type,
            encoding_seconds=round(seconds, 2),
            devices=devices,
            versions=_versions(),
            files=files,
        )
        write_manifest(manifest, self.unfinished)
        for name in (BUILD, ENCODED):  # no longer needed once the manifest exists
            (self.unfinished / name).unlink(missing_ok=True)
        put_in_place(self.unfinished, self.directory)
        return manifest

    def _begin(self, scan: CorpusScan, encoder: Encoder, wanted: IndexType) -> str:
        """Resume the interrupted build, or prepare a new one; returns the encoder's probe."""
        probe = encoded_probe(encoder)
        now = _BuildState(corpus_sha256=scan.sha256, encoder=encoder.spec, precision=encoder.precision, probe=probe)
        record = self.unfinished / BUILD
        advice = f"So the unfinished build cannot be resumed; delete {self.unfinished}"
        if before := read_record(record, _BuildState, advice):
            same = before.model_copy(update={"probe": probe})
            changed = first_difference(same, now) if same != now else ""
            if not changed and probe_similarity(before.probe, encoder) < AGREES:
                changed = "the encoder's weights have changed"
            if changed:
                raise InputError(
                    f"{self.unfinished} holds an unfinished build of something else ({changed}); "
                    "delete it, or choose another --out"
                )
            return before.probe
        shutil.rmtree(self.unfinished, ignore_errors=True)
        self._check_space(len(scan.offsets), encoder.spec.dimension, wanted)
        self.unfinished.mkdir(parents=True)
        write_file(record, now.model_dump_json(indent=2).encode(), shared=True)
        return probe

    def _check_space(self, rows: int, dimension: int, wanted: IndexType) -> None:
        """Raises InputError if the disk is too small for the finished index."""
        stored = 0 if self.options.from_faiss else 2 * rows * dimension
        index = BYTES_PER_DIMENSION[wanted] * rows * dimension
        free = shutil.disk_usage(self.directory.parent).free
        if stored + index > free:
            raise InputError(
                f"{self.directory} would need {(stored + index) / 1e9:,.1f} GB (vectors {stored / 1e9:,.1f}, "
                f"{wanted} index {index / 1e9:,.1f}), and {free / 1e9:,.1f} GB are free there; "
                "choose another --out or a smaller --type"
            )

    def _encode(self, scan: CorpusScan, encoder: Encoder) -> tuple[str, float, list[str]]:
        """Encode the remaining passages; returns the digest of all vectors, the seconds spent in all sessions, and the
        devices of this one."""
        corpus, rows = Corpus(self.corpus, scan.offsets), len(scan.offsets)
        with VectorWriter(self.unfinished, rows=rows, dimension=encoder.spec.dimension) as writer:
            if done := writer.encoded:
                self.watcher.say(f"{done:,} of {rows:,} passages are encoded; continuing with the rest")
            self.watcher.stage("encoding", total=rows, done=done)

            def texts(piece: Piece) -> list[str]:
                return [each.contents for each in self._unchanged(corpus).read(piece.start, piece.stop)]

            def reached(beside: int) -> None:
                self.watcher.reached(writer.encoded + beside)

            begun, used = time.monotonic(), set[tuple[str, ...]]()
            for piece, vectors, devices in self.options.encoding(encoder, list(writer.owed()), texts, reached):
                now = time.monotonic()
                writer.write(piece.number, vectors, seconds=now - begun)
                begun = now
                used.add(devices)
            devices_used = [name for each in sorted(used or {encoder.devices}) for name in each]
            return writer.sha256, writer.seconds, devices_used

    def _unchanged(self, corpus: Corpus) -> Corpus:
        """Raises InputError if the corpus has changed since it was scanned."""
        now = self.corpus.stat()
        if (now.st_size, now.st_mtime_ns) != (self.stat.st_size, self.stat.st_mtime_ns):
            raise InputError(
                f"the corpus {self.corpus} was changed while it was encoded: restore the file and run the "
                f"same command, or delete {self.unfinished}"
            )
        return corpus

    # -- an adopted index -------------------------------------------------------------------------------------------

    def _check_adopted(self, adopted: FaissVectors, scan: CorpusScan, encoder: Encoder) -> None:
        """Raises InputError if the index is not of this corpus or not by this encoder."""
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
        sample = np.union1d(sample, [0, rows - 1])  # both ends: an extra or missing line shows in the last row
        corpus = Corpus(self.corpus, scan.offsets)
        ours = encoder.passages(corpus[int(row)].contents for row in sample)
        theirs = adopted.take(sample)
        alike = float(np.median(cosines(ours, theirs)))
        if alike < AGREES:
            raise InputError(
                f"{adopted.path} does not hold the vectors of {spec.model} for these passages (cosine {alike:.2f} "
                f"over {len(sample)} of them): another corpus, or another --encoder, --pooling or --passage-instruction"
            )
        strangers = sample[_belong_elsewhere(ours, theirs)]
        if len(strangers):
            raise InputError(
                f"{adopted.path} does not belong to {self.corpus}: {len(strangers)} of {len(sample)} vectors compared "
                f"do not match their passages, for example row {int(strangers[0]):,}; "
                "row i must be line i"
            )


def encoded(texts: list[str], encoder: Encoder, reached: Callable[[int], None] = lambda _: None) -> Vectors:
    """Encode longest texts first, so that batches have similar lengths, and a few batches at a time, to show
    progress."""
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
    vectors = np.empty((len(texts), encoder.spec.dimension), dtype=np.float32)
    for start, stop in row_ranges(len(texts), encoder.at_once):
        rows = order[start:stop]
        try:
            vectors[rows] = encoder.passages(texts[row] for row in rows)
        except RuntimeError as error:  # from torch, for example out of memory
            raise InputError(
                f"passages cannot be encoded: {next(iter(str(error).splitlines()), '')}. Try a smaller "
                "--batch-size; finished vectors are kept, and the same command continues"
            ) from error
        reached(stop)
    if not np.isfinite(vectors.astype(np.float16)).all():
        raise InputError(
            f"{encoder.spec.model} produces NaN or infinite vectors in {encoder.precision}; try --precision fp32"
        )
    return vectors


def _versions() -> dict[str, str]:
    packages = ("numpy", "faiss-cpu", "faiss-gpu", "torch", "transformers", "sentence-transformers", "FlagEmbedding")
    found = {}
    for each in packages:
        try:
            found[each] = version(each)
        except PackageNotFoundError:
            continue
    return found


def _belong_elsewhere(ours: npt.NDArray[np.float32], theirs: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Which vectors differ from ours of the same row and resemble another row's more.

    A passage truncated at another length differs too, but still resembles its own row most.
    """
    own = cosines(ours, theirs)
    closest = np.max([cosines(ours, np.broadcast_to(each, ours.shape)) for each in theirs], axis=0)
    return np.asarray((own < AGREES) & (own < closest))
