"""Building dense indexes: passages are encoded once, faiss indexes of any type are made from the stored vectors.

Decides how a build survives a kill at any moment, what is kept, and what is refused before hours are spent. Does not
know models (`encoders`), the vector files (`vector_pieces`), faiss (`faiss_index`) or how an index is searched
(`index`).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from preference.export.private_files import write_file
from reasonrag.data.corpus import Corpus, CorpusScan, scan_corpus
from reasonrag.errors import InputError
from reasonrag.files import read_record, unwritable
from reasonrag.progress import BuildWatcher, SilentWatcher
from reasonrag.retrieval.dense.encoders import (
    AGREES,
    Encoder,
    EncoderChoice,
    EncoderSpec,
    cosines,
    load_encoder,
    resolved,
    short_name,
)
from reasonrag.retrieval.dense.faiss_index import FLASHRAG_NAMES, FaissVectors, build_index, plan_index
from reasonrag.retrieval.dense.index import stored_vectors
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
from reasonrag.retrieval.dense.vector_pieces import (
    ENCODED,
    PIECE,
    VECTORS,
    Piece,
    StoredVectors,
    VectorRows,
    VectorWriter,
    row_ranges,
)
from reasonrag.retrieval.settings import IndexType, Precision
from reasonrag.run_config import installed_versions

BUILD = "build.json"
ADOPTION_SAMPLE = 32
"""Passages re-encoded to check that an adopted index matches this corpus and encoder."""
_PACKAGES = "numpy faiss-cpu faiss-gpu torch transformers sentence-transformers FlagEmbedding".split()
"""Whose versions an index records."""


class EncodedPiece(NamedTuple):
    """The vectors of a piece, and the devices that encoded it."""

    piece: Piece
    vectors: npt.NDArray[np.float16]
    devices: tuple[str, ...]


Encoding: TypeAlias = Callable[
    [Encoder, Iterable[Piece], Callable[[Piece], list[str]], Callable[[int], None]], Iterator[EncodedPiece]
]
"""Encodes pieces of a corpus, in any order. Takes the encoder, the pieces, what gives the passages of one, and what is
told how many passages of a piece are encoded, before it is returned."""


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
        see `load_encoder`. from_faiss: an external Flat index of the corpus, adopted instead of encoding. index_type:
        by default flat. gpu: faiss trains on the GPUs. encoding: where passages are encoded.
    """

    encoder: EncoderChoice = field(default_factory=EncoderChoice)
    index_type: IndexType | None = None
    devices: Sequence[str] = ()
    precision: Precision | None = None
    batch_size: int = 64
    from_faiss: Path | None = None
    gpu: bool = False
    encoding: Encoding = encode_here


class _BuildState(BaseModel, frozen=True):
    """What an interrupted build was encoding; it resumes only if nothing of this has changed."""

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
        existing = current_manifest(self.directory, self.corpus)
        if isinstance(existing, DenseManifest):
            self._check_same_encoder(existing)
            return self._with_type(existing)
        check_replaceable(self.directory, self.corpus, "dense")
        how = self.options
        self.watcher.say(f"loading the encoder {how.encoder.model}")
        encoder = load_encoder(how.encoder, devices=how.devices, precision=how.precision, batch_size=how.batch_size)
        with closing(encoder):
            return self._from_scratch(encoder)

    # -- an existing index ----------------------------------------------------------------------------

    def _check_same_encoder(self, manifest: DenseManifest) -> None:
        """Raises InputError if the index in the directory is of other vectors than those that are asked for."""
        if self.options.from_faiss:
            raise InputError(f"{self.directory} holds an index of {self.corpus} already; choose another --out")
        given = self.options.encoder.model_dump(exclude_unset=True, exclude_none=True)
        if "model" in given:
            given["model"] = resolved(given["model"])
        asked = manifest.encoder.model_copy(update=given)
        if difference := _first_difference(manifest.encoder, asked):
            raise InputError(f"{self.directory} was built with another encoder ({difference}); choose another --out")

    def _with_type(self, manifest: DenseManifest) -> DenseManifest:
        """Add a type over the same vectors; a missing or truncated file is made again."""
        wanted, files = self.options.index_type or manifest.searched, dict(manifest.files)
        vectors = stored_vectors(self.directory, manifest)
        if files[OFFSETS].fault(self.directory / OFFSETS):
            files[OFFSETS] = self._store_offsets(self._scan(), self.directory)
        file = manifest.indexes.get(wanted)
        if file and not files[file.file].fault(self.directory / file.file, most_bytes=0):
            self.watcher.say(f"{self.directory} already has its {wanted} index")
        else:
            file, files[file.file] = self._faiss_file(vectors, self.directory, manifest.encoder, wanted)
        indexes = manifest.indexes | {wanted: file}
        added = manifest.model_copy(update={"files": files, "indexes": indexes, "searched": wanted})
        if added != manifest:
            write_manifest(added, self.directory)
        return added

    def _scan(self) -> CorpusScan:
        self.watcher.stage("reading the corpus", total=self.stat.st_size)
        return scan_corpus(self.corpus, advanced=self.watcher.reached, say=self.watcher.say)

    def _store_offsets(self, scan: CorpusScan, directory: Path) -> FileDigest:
        np.save(directory / OFFSETS, scan.offsets)
        return FileDigest.of(directory / OFFSETS)

    def _faiss_file(
        self, vectors: VectorRows, directory: Path, spec: EncoderSpec, index_type: IndexType
    ) -> tuple[FaissFile, FileDigest]:
        plan = plan_index(index_type, rows=vectors.rows, dimension=vectors.dimension)
        name = f"{short_name(spec.model)}_{FLASHRAG_NAMES[plan.type]}.index"
        being_built = directory / f".{name}.building"
        self.watcher.stage(f"{plan.type} index", total=vectors.rows)
        begun = time.monotonic()
        try:
            build_index(plan, vectors, being_built, advanced=self.watcher.reached, gpu=self.options.gpu)
            being_built.replace(directory / name)
        finally:
            being_built.unlink(missing_ok=True)
        file = FaissFile(file=name, plan=plan, seconds=round(time.monotonic() - begun, 2))
        return file, FileDigest.of(directory / name)

    # -- a new index -------------------------------------------------------------------------------------------------

    def _from_scratch(self, encoder: Encoder) -> DenseManifest:
        scan, wanted = self._scan(), self.options.index_type or "flat"
        adopted = FaissVectors(self.options.from_faiss) if self.options.from_faiss else None
        plan = plan_index(wanted, rows=len(scan.offsets), dimension=encoder.spec.dimension)  # refuses before 8 hours
        if adopted is not None:
            self._check_adopted(adopted, scan, encoder)
        probe = self._begin(scan, encoder)
        files = {OFFSETS: self._store_offsets(scan, self.unfinished)}
        vectors: VectorRows
        if adopted is None:
            digest, seconds, devices = self._encode(scan, encoder)
            place, vectors = VECTORS, StoredVectors(self.unfinished / VECTORS)
        else:
            digest, seconds, devices = "", 0.0, list(encoder.devices)
            place, vectors = str(adopted.path), adopted
        files[place] = FileDigest.of(self.unfinished / place)  # an absolute place stays itself
        if adopted is not None and wanted == "flat":
            file = FaissFile(file=place, plan=plan, seconds=0.0)
        else:
            file, files[file.file] = self._faiss_file(vectors, self.unfinished, encoder.spec, wanted)
        manifest = DenseManifest(
            corpus=str(self.corpus.resolve()),
            corpus_sha256=scan.sha256,
            corpus_bytes=self.stat.st_size,
            corpus_mtime_ns=self.stat.st_mtime_ns,
            passages=len(scan.offsets),
            encoder=encoder.spec,
            precision="unknown" if adopted else encoder.precision,
            probe=probe,
            vectors_sha256=digest or files[place].sha256,
            vectors=place,
            indexes={file.plan.type: file},
            searched=file.plan.type,
            encoding_seconds=round(seconds, 2),
            devices=devices,
            versions=installed_versions(_PACKAGES),
            files=files,
        )
        write_manifest(manifest, self.unfinished)
        for name in (BUILD, ENCODED):  # no longer needed once the manifest exists
            (self.unfinished / name).unlink(missing_ok=True)
        put_in_place(self.unfinished, self.directory)
        return manifest

    def _begin(self, scan: CorpusScan, encoder: Encoder) -> str:
        """Resume the interrupted build, or prepare a new one; returns the encoder's probe."""
        probe = encoder.probe()
        now = _BuildState(corpus_sha256=scan.sha256, encoder=encoder.spec, precision=encoder.precision, probe=probe)
        record = self.unfinished / BUILD
        advice = f"So the unfinished build cannot be resumed; delete {self.unfinished}"
        before = read_record(record, _BuildState, advice)
        if before is None:
            shutil.rmtree(self.unfinished, ignore_errors=True)
            self.unfinished.mkdir(parents=True)
            write_file(record, now.model_dump_json(indent=2).encode(), shared=True)
            return probe
        changed = _first_difference(before.model_copy(update={"probe": probe}), now)
        if not changed and encoder.similarity(before.probe) < AGREES:
            changed = "the encoder's weights have changed"
        if changed:
            raise InputError(
                f"{self.unfinished} holds an unfinished build of something else ({changed}); "
                "delete it, or choose another --out"
            )
        return before.probe

    def _encode(self, scan: CorpusScan, encoder: Encoder) -> tuple[str, float, list[str]]:
        """Encode what remains. Returns the digest of all vectors, the seconds of all sessions, this one's devices."""
        corpus, rows = Corpus(self.corpus, scan.offsets), len(scan.offsets)
        with VectorWriter(self.unfinished, rows=rows, dimension=encoder.spec.dimension) as writer:
            if done := writer.encoded:
                self.watcher.say(f"{done:,} of {rows:,} passages are encoded; continuing with the rest")
            self.watcher.stage("encoding", total=rows, done=done)

            def texts(piece: Piece) -> list[str]:
                self._check_unchanged()
                return [each.contents for each in corpus.read(piece.start, piece.stop)]

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

    def _check_unchanged(self) -> None:
        """Raises InputError if the corpus has changed since it was scanned."""
        now = self.corpus.stat()
        if (now.st_size, now.st_mtime_ns) != (self.stat.st_size, self.stat.st_mtime_ns):
            raise InputError(
                f"the corpus {self.corpus} was changed while it was encoded: restore the file and run the "
                f"same command, or delete {self.unfinished}"
            )

    def _check_adopted(self, adopted: FaissVectors, scan: CorpusScan, encoder: Encoder) -> None:
        """Raises InputError if the index is not of this corpus or not by this encoder.

        A passage that was truncated at another length has another vector, but still resembles its own row most.
        """
        rows, spec = len(scan.offsets), encoder.spec
        if (adopted.rows, adopted.dimension) != (rows, spec.dimension):
            raise InputError(
                f"{adopted.path} has {adopted.rows:,} rows of {adopted.dimension} numbers, and {self.corpus} has "
                f"{rows:,} passages, of which {spec.model} makes {spec.dimension}: row i must be line i, and --encoder "
                "the one it was built with"
            )
        sample = np.random.default_rng(0).choice(rows, size=min(rows, ADOPTION_SAMPLE), replace=False)
        sample = np.union1d(sample, [0, rows - 1])  # both ends: an extra or missing line shows in the last row
        corpus = Corpus(self.corpus, scan.offsets)
        ours, theirs = encoder.passages(corpus[int(row)].contents for row in sample), adopted.take(sample)
        own = cosines(ours, theirs)
        closest = np.max([cosines(ours, np.broadcast_to(each, ours.shape)) for each in theirs], axis=0)
        strangers = sample[(own < AGREES) & (own < closest)]
        if np.median(own) < AGREES or len(strangers):
            raise InputError(
                f"{adopted.path} does not hold the vectors of {spec.model} for the passages of {self.corpus}: the "
                f"median cosine of {len(sample)} is {np.median(own):.2f}, and {len(strangers)} resemble another "
                f"passage's more{f' (row {strangers[0]:,})' if len(strangers) else ''}. Give its corpus, in which row "
                "i is line i, and its --encoder, --pooling and --passage-instruction"
            )


def encoded(
    texts: list[str], encoder: Encoder, reached: Callable[[int], None] = lambda _: None
) -> npt.NDArray[np.float16]:
    """Encode the longest texts first, for batches of similar lengths, a few batches at a time, to show progress."""
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
    vectors = np.empty((len(texts), encoder.spec.dimension), dtype=np.float16)
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
    if not np.isfinite(vectors).all():
        raise InputError(
            f"{encoder.spec.model} produces NaN or infinite vectors in {encoder.precision}; try --precision fp32"
        )
    return vectors


def _first_difference(before: BaseModel, now: BaseModel) -> str:
    """The first field that differs, and how; empty if none does."""
    for name, was in before:
        if (found := getattr(now, name)) != was:
            nested = isinstance(was, BaseModel)
            return _first_difference(was, found) if nested else f"{name}: {was!r} there, {found!r} now"
    return ""
