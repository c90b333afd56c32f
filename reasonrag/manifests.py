"""What an index says about itself: `manifest.json`, written last, so that its presence means a finished build.

Decides how an index directory is named, swapped in and recognised as current. Knows the kinds of index by their
manifests only, not how they are built or searched.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import orjson
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from reasonrag.encoders import EncoderSpec, Precision
from reasonrag.errors import InputError
from reasonrag.neighbours import IndexPlan
from reasonrag.settings import IndexType

MANIFEST = "manifest.json"
OFFSETS = "offsets.npy"
_OURS = re.compile(
    rf".*\.index\.(npy|json)|{OFFSETS}|{MANIFEST}|vectors\.npy|encoded\.jsonl|.+\.index|\..+\.index\.building|build\.json"
)
"""Files of an index; a build replaces a directory only if it holds nothing else."""


class _OfACorpus(BaseModel):
    """What every index says: the corpus it is of."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal["reasonrag.index/1"] = "reasonrag.index/1"
    corpus: str
    """Absolute path of the corpus; passages are read from there."""
    corpus_sha256: str
    corpus_bytes: int
    corpus_mtime_ns: int
    passages: int
    versions: dict[str, str]

    def is_of(self, corpus: Path) -> bool:
        """Whether the corpus is the file that was indexed, judged by path, size and time of change."""
        if not corpus.is_file() or str(corpus.resolve()) != self.corpus:
            return False
        stat = corpus.stat()
        return (stat.st_size, stat.st_mtime_ns) == (self.corpus_bytes, self.corpus_mtime_ns)


class BM25Manifest(_OfACorpus):
    """Of a BM25 index."""

    kind: Literal["bm25"] = "bm25"
    k1: float
    b: float
    stemmer: str
    stopwords: str


class FaissFile(BaseModel):
    """One faiss index over the vectors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    """Name in the index directory; an absolute path where the file is somebody else's."""
    bytes: int
    sha256: str
    plan: IndexPlan
    seconds: float
    """What building it took."""


class DenseManifest(_OfACorpus):
    """Of a dense index: one set of vectors, and one faiss index or several over it."""

    kind: Literal["dense"] = "dense"
    encoder: EncoderSpec
    precision: Precision | Literal["unknown"]
    """Of the weights the passages were encoded with; queries are encoded in fp32."""
    probe: str
    """The vector of `encoders.PROBE` as a query, fp16 in base 64."""
    vectors_sha256: str
    vectors: str | None
    """File of the stored vectors in the directory; None where they are read back from a faiss index."""
    read_back_from: str | None = None
    """That faiss index, by its absolute path."""
    indexes: dict[IndexType, FaissFile]
    searched: IndexType
    """The type that is searched unless another is asked for: the one built last."""
    encoding_seconds: float
    """Spent on encoding, interrupted sessions apart."""
    devices: list[str]

    def file_of(self, index_type: IndexType | None, directory: Path) -> FaissFile:
        """The faiss index of a type. Raises InputError where it was not built."""
        wanted = index_type or self.searched
        if wanted not in self.indexes:
            raise InputError(
                f"{directory} has no {wanted} index, only {', '.join(self.indexes)}. Its vectors are there: "
                f"reasonrag index build --corpus {self.corpus} --out {directory} --encoder {self.encoder.model} "
                f"--type {wanted}"
            )
        return self.indexes[wanted]


IndexManifest: TypeAlias = BM25Manifest | DenseManifest
_MANIFESTS: TypeAdapter[IndexManifest] = TypeAdapter(Annotated[IndexManifest, Field(discriminator="kind")])


def read_manifest(directory: Path) -> IndexManifest:
    """The manifest of a finished index. Raises InputError if there is none."""
    path = directory / MANIFEST
    try:
        return _MANIFESTS.validate_python(orjson.loads(path.read_bytes()))
    except FileNotFoundError as error:
        raise InputError(
            f"{directory} has no {MANIFEST}: its build did not finish. "
            f"Run: reasonrag index build --corpus FILE --out {directory}"
        ) from error
    except (OSError, orjson.JSONDecodeError, ValidationError) as error:
        raise InputError(f"{path} cannot be read as an index manifest: {error}") from error


def write_manifest(manifest: IndexManifest, directory: Path) -> None:
    """Put a manifest in place, at once or not at all."""
    unfinished = directory / f".{MANIFEST}.building"
    unfinished.write_bytes(orjson.dumps(manifest.model_dump(mode="json"), option=orjson.OPT_INDENT_2))
    unfinished.replace(directory / MANIFEST)


def index_place(corpus: Path, home: Path, kind: str = "bm25") -> Path:
    """Where the index of a corpus is kept by default: named after it, and after its path so that none collide.

    kind: `bm25`, or `dense-` and the encoder's short name.
    """
    path = corpus.resolve()
    name = path.parent.name if path.stem == "corpus" else path.stem
    return home / f"{name}-{kind}-{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def put_in_place(built: Path, directory: Path) -> None:
    """Move a finished build to where it belongs; processes that have the older one open keep its files.

    Raises InputError where the place holds files of the user's own.
    """
    if directory.exists():
        _remove_index(directory)
    built.rename(directory)


def _remove_index(directory: Path) -> None:
    """Delete an index, and nothing else that a user may keep in the same place."""
    files = list(directory.iterdir())
    foreign = [each.name for each in files if each.is_dir() or not _OURS.fullmatch(each.name)]
    if foreign:
        raise InputError(f"{directory} holds files that are no index ({foreign[0]}); choose another place for it")
    shutil.rmtree(directory)
