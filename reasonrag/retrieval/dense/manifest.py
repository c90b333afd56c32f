"""The manifest of an index: `manifest.json`, written last, so that its presence means a finished build.

Decides how an index directory is named, moved into place and recognised as current. Knows the kinds of index only by
their manifests, not how they are built or searched.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

import orjson
from pydantic import BaseModel, Field, RootModel, model_validator

from preference.export.private_files import write_file
from reasonrag.errors import InputError
from reasonrag.files import file_digest, read_record
from reasonrag.retrieval.dense.encoders import MINILM, EncoderSpec, short_name
from reasonrag.retrieval.dense.faiss_index import IndexPlan
from reasonrag.retrieval.settings import IndexKind, IndexType, Precision

MANIFEST = "manifest.json"
OFFSETS = "offsets.npy"
CHECKED_AT_OPENING = 1 << 24
"""Largest file, in bytes, whose content is checked at opening: 16 MiB take about 10 ms, and hold a BM25 index of 40,000
passages. Of larger files only the size is checked; `index check` reads them."""
_DIGEST = "manifest_sha256"
"""Key of the digest of the manifest's other fields."""


class FileDigest(BaseModel, frozen=True, extra="forbid"):
    """Size and SHA-256 of a file when it was written."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> FileDigest:
        """Raises OSError."""
        return cls(bytes=path.stat().st_size, sha256=file_digest(path))

    def fault(self, path: Path, *, most_bytes: int | None = None) -> str | None:
        """What is wrong with a file now. most_bytes: largest one whose content is read; None: any. Raises OSError."""
        if not path.is_file():
            return "is missing"
        size = path.stat().st_size
        if size != self.bytes:
            return f"has changed since it was built: it has {size:,} bytes and had {self.bytes:,}"
        if (most_bytes is None or size <= most_bytes) and file_digest(path) != self.sha256:
            return "has changed since it was built"
        return None


class _CorpusManifest(BaseModel, frozen=True, extra="forbid"):
    """Fields of every index: its corpus and its files."""

    schema_version: Literal["reasonrag.index/1"] = "reasonrag.index/1"
    corpus: str
    """Absolute path of the corpus, from which passages are read."""
    corpus_sha256: str
    corpus_bytes: int
    corpus_mtime_ns: int
    passages: int
    versions: dict[str, str]
    files: Mapping[str, FileDigest]
    """The files that a search reads, by name, or absolute path if adopted."""

    def rows(self) -> Iterator[tuple[str, object]]:
        """Its corpus, and how it was built."""
        yield "corpus", self.corpus
        yield "passages", self.passages


class BM25Manifest(_CorpusManifest):
    """The manifest of a BM25 index."""

    kind: Literal["bm25"] = "bm25"
    k1: float
    b: float
    analyser: int
    """Version of what makes tokens (`lexical.analysis`)."""
    languages: tuple[str, ...]
    """Of the corpus, the commonest first."""

    def rows(self) -> Iterator[tuple[str, object]]:
        yield from super().rows()
        yield "BM25", f"k1 {self.k1}, b {self.b}"
        yield "language", f"{', '.join(self.languages)} (analyser {self.analyser})"


class FaissFile(BaseModel, frozen=True, extra="forbid"):
    """One faiss index over the vectors."""

    file: str
    """Its name in `files`."""
    plan: IndexPlan
    seconds: float
    """Build time."""

    def described(self, size: int) -> str:
        """In a line. size: bytes of the file."""
        return f"{self.file}, {size / 1e6:,.1f} MB, {_listed(self.plan)}"


class DenseManifest(_CorpusManifest):
    """The manifest of a dense index: one set of vectors and one or more faiss indexes over it."""

    kind: Literal["dense"] = "dense"
    encoder: EncoderSpec
    precision: Precision | Literal["unknown"]
    """Precision of the weights that encoded the passages; queries are encoded in fp32."""
    probe: str
    """The query vector of `encoders.PROBE`, fp16 in base 64."""
    vectors_sha256: str
    vectors: str
    """File of the stored vectors in the directory, or the absolute path of an adopted faiss index, which has them."""
    indexes: dict[IndexType, FaissFile]
    searched: IndexType
    """The type searched by default: the one built last."""
    encoding_seconds: float
    """Time spent encoding, over all sessions of the build."""
    devices: list[str]

    @model_validator(mode="after")
    def _names_its_files(self) -> Self:
        named = {OFFSETS, self.vectors, *(each.file for each in self.indexes.values())}
        if self.searched not in self.indexes or not named <= {*self.files}:
            raise ValueError("it does not name all of its files")
        return self

    def rows(self) -> Iterator[tuple[str, object]]:
        yield from super().rows()
        yield "encoder", f"{_listed(self.encoder)}, {self.precision}"
        if self.encoding_seconds:
            rate = self.passages / self.encoding_seconds
            yield "encoded in", f"{timedelta(seconds=round(self.encoding_seconds))}, {rate:,.0f} passages/s"
        yield "adopted from", self.vectors if self.adopted else ""
        for name, file in self.indexes.items():
            yield f"{name}{' (searched)' if name == self.searched else ''}", file.described(self.files[file.file].bytes)

    @property
    def adopted(self) -> bool:
        """Whether the vectors are read from an adopted faiss index."""
        return Path(self.vectors).is_absolute()

    @property
    def file(self) -> FaissFile:
        """The faiss index that is searched."""
        return self.indexes[self.searched]


def _listed(record: BaseModel) -> str:
    """Its fields that say something, in a line."""
    return ", ".join(f"{name} {value}" for name, value in record if value not in (None, "", 0))


IndexManifest: TypeAlias = BM25Manifest | DenseManifest


class _ManifestFile(RootModel[Annotated[IndexManifest, Field(discriminator="kind")]]):
    """A manifest with the digest of its other fields, which is checked."""

    @model_validator(mode="before")
    @classmethod
    def _unchanged(cls, found: object) -> object:
        if not isinstance(found, dict):
            return found
        content = {name: value for name, value in found.items() if name != _DIGEST}
        if found.get(_DIGEST) != _digest(content):
            raise ValueError("it has no digest, or has changed since it was written")
        return content


def read_manifest(directory: Path) -> IndexManifest:
    """The manifest of a finished index. Raises InputError if there is none."""
    again = f"reasonrag index build --corpus FILE --out {directory}, for a dense one with its --encoder"
    advice = f"If {directory} is an index, delete it and build it again: {again}; else choose another directory"
    found = read_record(directory / MANIFEST, _ManifestFile, advice)
    if found is None:
        raise InputError(
            f"{directory} has no {MANIFEST}: its build did not finish, or it is not an index. Run: {again}"
        )
    return found.root


def incomplete_index(directory: Path, manifest: IndexManifest, error: Exception) -> InputError:
    return InputError(
        f"the index {directory} has a manifest, but not all of its files ({error}). "
        f"Run: {build_again(manifest, directory)}"
    )


def build_again(manifest: IndexManifest, directory: Path) -> str:
    return f"reasonrag index build --kind {manifest.kind} --corpus {manifest.corpus} --out {directory}"


def damaged_files(
    directory: Path, manifest: IndexManifest, names: Iterable[str], *, most_bytes: int | None = None
) -> dict[str, str]:
    """Faults of these files, each with what to do, by name. most_bytes: see `FileDigest.fault`."""
    found = {}
    for name in names:
        try:
            fault = manifest.files[name].fault(directory / name, most_bytes=most_bytes)
        except OSError as error:
            fault = f"cannot be read ({error.strerror or error})"
        if fault:
            found[name] = f"{directory / name} {fault}. {remedy(directory, manifest, name)}"
    return found


def remedy(directory: Path, manifest: IndexManifest, name: str) -> str:
    """What to do about a damaged file. The vectors of a dense index give the others again."""
    again = build_again(manifest, directory)
    if isinstance(manifest, DenseManifest):
        if name == manifest.vectors:
            return f"Put it back, or delete {directory} and run: {again} --encoder {manifest.encoder.model}"
        for index_type, file in manifest.indexes.items():
            if name == file.file:
                return f"Its vectors are there: delete it, and run: {again} --type {index_type}"
    return f"Run: {again}"


def write_manifest(manifest: IndexManifest, directory: Path) -> None:
    """Write a manifest atomically."""
    content = manifest.model_dump(mode="json")
    with_digest = orjson.dumps(content | {_DIGEST: _digest(content)}, option=orjson.OPT_INDENT_2)
    write_file(directory / MANIFEST, with_digest, shared=True)


def _digest(content: object) -> str:
    return hashlib.sha256(orjson.dumps(content)).hexdigest()


def default_index_directory(corpus: Path, home: Path, kind: IndexKind = "bm25", encoder: str | None = None) -> Path:
    """Default directory of a corpus' index: named after it, kind and encoder, and its path, against collisions."""
    path = corpus.resolve()
    name = path.parent.name if path.stem in ("corpus", "rows") else path.stem
    made = kind if kind == "bm25" else f"{kind}-{short_name(encoder or MINILM)}"
    return home / f"{name}-{made}-{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def current_manifest(directory: Path, corpus: Path) -> IndexManifest | None:
    """The manifest of a finished index of the current corpus; None if there is none.

    A corpus that was moved, copied or touched, but is byte-identical, still counts as the indexed one; the manifest is
    updated with its path and time. Raises InputError for a bad manifest.
    """
    if not (directory / MANIFEST).exists():
        return None
    manifest = read_manifest(directory)
    if not corpus.is_file() or (stat := corpus.stat()).st_size != manifest.corpus_bytes:
        return None
    found = manifest.model_copy(update={"corpus": str(corpus.resolve()), "corpus_mtime_ns": stat.st_mtime_ns})
    if found != manifest:
        if file_digest(corpus) != manifest.corpus_sha256:
            return None
        with contextlib.suppress(OSError):  # a shared index may be read-only
            write_manifest(found, directory)
    return found


def check_replaceable(directory: Path, corpus: Path, kind: str) -> None:
    """Raises InputError if a build would replace the user's own files, or a dense index (which may have taken hours) of
    another corpus or by a build of another kind."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise InputError(f"{directory} is a file; choose another directory for the index")
    manifest = read_manifest(directory) if (directory / MANIFEST).exists() else None
    ours = {MANIFEST, *manifest.files} if manifest else set()
    for each in directory.iterdir():
        left = each.name.startswith(".") and each.suffix in (".building", ".tmp")  # by a build that was killed
        if each.is_dir() or not (each.name in ours or left):
            raise InputError(
                f"{directory} holds files that do not belong to an index ({each.name}); choose another directory"
            )
    if isinstance(manifest, DenseManifest) and (kind != "dense" or manifest.corpus != str(corpus.resolve())):
        raise InputError(
            f"{directory} holds a dense index of {manifest.corpus} by {manifest.encoder.model}; "
            "delete it, or choose another directory"
        )


def put_in_place(built: Path, directory: Path) -> None:
    """Move a finished build into place; processes that have the older one open keep its files.

    Raises InputError if the directory holds files of the user's own.
    """
    manifest = read_manifest(built)
    check_replaceable(directory, Path(manifest.corpus), manifest.kind)
    replaced = directory.with_name(f".{directory.name}.replaced")
    shutil.rmtree(replaced, ignore_errors=True)
    if directory.exists():
        directory.rename(replaced)
    built.rename(directory)
    shutil.rmtree(replaced, ignore_errors=True)
