"""The manifest of an index: `manifest.json`, written last, so that its presence means a finished build.

Decides how an index directory is named, moved into place and recognised as current. Knows the kinds of index only by
their manifests, not how they are built or searched.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from preference.export.files import write_file
from preference.records import SparseRecord
from reasonrag.data.corpus import LongPassages
from reasonrag.errors import InputError
from reasonrag.files import file_digest
from reasonrag.retrieval.dense.encoders import EncoderSpec
from reasonrag.retrieval.dense.faiss_index import IndexPlan
from reasonrag.retrieval.settings import IndexType, Precision

MANIFEST = "manifest.json"
OFFSETS = "offsets.npy"
_OURS = re.compile(
    r"(data|indices|indptr)\.csc\.index\.npy|(vocab|params)\.index\.json|postings\.\w+"
    r"|offsets\.npy|vectors\.npy|encoded\.jsonl|(build|manifest)\.json|\..+\.(building|tmp)"
)
"""Files of an index besides those named in its manifest; a build replaces only these."""


class _CorpusManifest(SparseRecord):
    """Fields of every index: its corpus."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    ABSENT_IF_EMPTY = ("long_passages",)

    schema_version: Literal["reasonrag.index/1"] = "reasonrag.index/1"
    corpus: str
    """Absolute path of the corpus, from which passages are read."""
    corpus_sha256: str
    corpus_bytes: int
    corpus_mtime_ns: int
    passages: int
    long_passages: LongPassages | None = None
    """Also None where an older version built it, which did not look."""
    versions: dict[str, str]

    def matches(self, corpus: Path) -> bool:
        """Whether the corpus is the indexed file, by path, size and modification time."""
        if not corpus.is_file() or str(corpus.resolve()) != self.corpus:
            return False
        stat = corpus.stat()
        return (stat.st_size, stat.st_mtime_ns) == (self.corpus_bytes, self.corpus_mtime_ns)


class BM25Manifest(_CorpusManifest):
    """The manifest of a BM25 index."""

    kind: Literal["bm25"] = "bm25"
    k1: float
    b: float
    stemmer: str
    stopwords: str


class FaissFile(BaseModel):
    """One faiss index over the vectors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    """Name in the index directory; an absolute path for an adopted file."""
    bytes: int
    sha256: str
    plan: IndexPlan
    seconds: float
    """Build time."""


class DenseManifest(_CorpusManifest):
    """The manifest of a dense index: one set of vectors and one or more faiss indexes over it."""

    kind: Literal["dense"] = "dense"
    encoder: EncoderSpec
    precision: Precision | Literal["unknown"]
    """Precision of the weights that encoded the passages; queries are encoded in fp32."""
    probe: str
    """The query vector of `encoders.PROBE`, fp16 in base 64."""
    vectors_sha256: str
    vectors: str | None
    """File of the stored vectors in the directory; None if they are read back from a faiss index."""
    read_back_from: str | None = None
    """Absolute path of that faiss index."""
    indexes: dict[IndexType, FaissFile]
    searched: IndexType
    """The type searched by default: the one built last."""
    encoding_seconds: float
    """Time spent encoding, over all sessions of the build."""
    devices: list[str]

    def file_of(self, index_type: IndexType | None, directory: Path) -> FaissFile:
        """The faiss index of a type. Raises InputError if it was not built."""
        wanted = index_type or self.searched
        if wanted not in self.indexes:
            raise InputError(
                f"{directory} has no {wanted} index, only {', '.join(self.indexes)}. Its vectors are there: "
                f"{self.rebuild(directory, wanted)}"
            )
        return self.indexes[wanted]

    def rebuild(self, directory: Path, index_type: IndexType) -> str:
        """The command that builds one of its types; it needs no encoder flags."""
        return f"reasonrag index build --corpus {self.corpus} --out {directory} --type {index_type}"


IndexManifest: TypeAlias = BM25Manifest | DenseManifest
_MANIFESTS: TypeAdapter[IndexManifest] = TypeAdapter(Annotated[IndexManifest, Field(discriminator="kind")])


def read_manifest(directory: Path) -> IndexManifest:
    """The manifest of a finished index. Raises InputError if there is none."""
    path = directory / MANIFEST
    try:
        return _MANIFESTS.validate_python(orjson.loads(path.read_bytes()))
    except FileNotFoundError as error:
        raise InputError(
            f"{directory} has no {MANIFEST}: its build did not finish, or it is not an index. "
            f"Run: reasonrag index build --corpus FILE --out {directory}, for a dense one with its --encoder"
        ) from error
    except (OSError, orjson.JSONDecodeError, ValidationError) as error:
        raise InputError(f"{path} cannot be read as an index manifest: {error}") from error


def incomplete_index(directory: Path, manifest: IndexManifest, error: Exception) -> InputError:
    return InputError(
        f"the index {directory} has a manifest, but not all of its files ({error}). "
        f"Run: reasonrag index build --kind {manifest.kind} --corpus {manifest.corpus} --out {directory}"
    )


def write_manifest(manifest: IndexManifest, directory: Path) -> None:
    """Write a manifest atomically."""
    write_file(directory / MANIFEST, orjson.dumps(manifest.model_dump(mode="json"), option=orjson.OPT_INDENT_2))


def default_index_directory(corpus: Path, home: Path, kind: str = "bm25") -> Path:
    """Default directory for the index of a corpus: named after it, and after its path to avoid collisions.

    kind: `bm25`, or `dense-` and the encoder's short name.
    """
    path = corpus.resolve()
    name = path.parent.name if path.stem == "corpus" else path.stem
    return home / f"{name}-{kind}-{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def current_manifest(directory: Path, corpus: Path) -> IndexManifest | None:
    """The manifest of a finished index of the current corpus; None if there is none.

    A corpus that was moved, copied or touched, but is byte-identical, still counts as the indexed one; the manifest is
    updated with its path and time. Raises InputError for a bad manifest.
    """
    if not (directory / MANIFEST).exists():
        return None
    manifest = read_manifest(directory)
    if manifest.matches(corpus):
        return manifest
    if not corpus.is_file() or corpus.stat().st_size != manifest.corpus_bytes:
        return None
    stat = corpus.stat()
    if file_digest(corpus) != manifest.corpus_sha256:
        return None
    found = manifest.model_copy(update={"corpus": str(corpus.resolve()), "corpus_mtime_ns": stat.st_mtime_ns})
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
    named = {each.file for each in manifest.indexes.values()} if isinstance(manifest, DenseManifest) else set()
    for each in directory.iterdir():
        if each.is_dir() or not (_OURS.fullmatch(each.name) or each.name in named):
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
