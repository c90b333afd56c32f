"""Settings of searching, of building an index, and of serving one."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from reasonrag.settings import Settings, list_of_places, one_or_several
from reasonrag.web import LOOPBACK

INDEX_HOME = Path("indexes")
MAX_TOP_K = 1000
"""Passages a search gives at most; more would fill no prompt."""
TOP_K = 3
"""Passages per search: ReasonRAG's, and Search-R1's."""
RETRIEVER_PORT = 8977
MAX_WAITING = 4096
"""Queries that a retrieval server lets wait: a whole step of Search-R1's trainer, which sends 2,560 at once."""
IndexType = Literal["flat", "sq8", "sqfp16", "hnsw", "ivf-sq", "ivf-pq"]
"""Kinds of faiss index; `neighbours` says what they are."""
Library = Literal["flag", "sentence-transformers"]
Pooling = Literal["cls", "mean", "lasttoken"]
Precision = Literal["fp32", "bf16", "fp16"]
"""Of encoders; `encoders` says what they are."""


class SearchSettings(Settings):
    """Where passages come from. A field's description is the help text of its flag."""

    retriever: str | None = Field(
        default=None,
        description="bm25, dense, hybrid, or http://host:port of a retrieval server, whose token would be in "
        "REASONRAG_RETRIEVER_TOKEN [default: what --index holds, else bm25]",
    )
    index: list[Path] = Field(
        default=[],
        description="A built index, or where to keep the one that is built; twice for hybrid, which needs two",
    )
    index_home: Path = Field(default=INDEX_HOME, description="Where indexes go that have no --index")
    encoder: str | None = Field(
        default=None,
        description="Encoder of a dense index: a folder, a name on the Hub, minilm, or hashing for tests "
        "[default: the index' own, else minilm]",
    )
    index_type: IndexType | None = Field(
        default=None,
        description="flat, sq8, sqfp16, hnsw, ivf-sq or ivf-pq [default: what was built last, else flat]",
    )
    reranker: str | None = Field(
        default=None, description="Cross-encoder that orders what was found: a folder or a name on the Hub"
    )
    gpu: bool = Field(default=False, description="Search dense indexes on the GPUs; needs the index-gpu extra")

    @field_validator("index", mode="before")
    @classmethod
    def _indexes(cls, value: object) -> object:
        return list_of_places(value)


IndexKind = Literal["bm25", "dense"]


class IndexSettings(Settings):
    """Settings of `index build`."""

    corpus: Path = Field(
        description='Passages: JSONL of {"id", "contents": "title\\ntext"}, .gz and .zst too, or '
        "hf://datasets/ORG/NAME[@REVISION][/FILE]"
    )
    kind: IndexKind | None = Field(
        default=None, description="bm25 or dense [default: dense if anything of an encoder is given, else bm25]"
    )
    out: Path | None = Field(
        default=None, description="Directory of the index [default: where generate looks for it, in --index-home]"
    )
    index_home: Path = Field(default=INDEX_HOME, description="Where indexes go that have no --out")
    encoder: str | None = Field(
        default=None, description="A folder, a name on the Hub, minilm, or hashing for tests [default: minilm]"
    )
    type: IndexType | None = Field(
        default=None,
        description="flat, sq8, sqfp16, hnsw, ivf-sq or ivf-pq; of vectors that are there already, nothing is encoded "
        "again [default: flat]",
    )
    from_faiss: Path | None = Field(
        default=None,
        description="Adopt somebody's Flat or SQ index of the corpus, FlashRAG's e5_Flat.index say, and encode nothing",
    )
    backend: Library | None = Field(
        default=None, description="Library that runs the encoder [default: flag for BGE, else sentence-transformers]"
    )
    pooling: Pooling | None = Field(default=None, description="cls, mean or lasttoken [default: the model's own]")
    normalize: bool | None = Field(default=None, description="Whether vectors get length 1 [default: yes]")
    query_instruction: str | None = Field(
        default=None, description="What stands before every query [default: the model's own]"
    )
    passage_instruction: str | None = Field(
        default=None, description="What stands before every passage [default: the model's own]"
    )
    max_length: int | None = Field(
        default=None, ge=8, description="Tokens that are read of a text [default: the model's, 512 at most]"
    )
    precision: Precision | None = Field(
        default=None, description="Of the weights while passages are encoded [default: bf16 where the hardware has it]"
    )
    batch_size: int = Field(default=64, ge=1, description="Passages encoded together")
    device: list[str] = Field(
        default=[], description="Device of torch, cuda:0 say; several share the work [default: all GPUs, else the CPU]"
    )
    gpu: bool = Field(default=False, description="Let faiss train on the GPUs; needs the index-gpu extra")

    @field_validator("device", mode="before")
    @classmethod
    def _several(cls, value: object) -> object:
        return one_or_several(value)

    @property
    def of_a_dense_index(self) -> list[str]:
        """The settings that were given and that only a dense index has."""
        ours = set(IndexSettings.model_fields) - {"corpus", "kind", "out", "index_home", "batch_size"}
        return sorted(name for name in ours if getattr(self, name) not in (None, []) and (name != "gpu" or self.gpu))


class ServeSettings(SearchSettings):
    """Settings of `index serve`."""

    corpus: Path | None = Field(default=None, description="Corpus whose index is built if it is missing")
    host: str = Field(default=LOOPBACK, description="Address to listen on; 0.0.0.0 lets other machines in")
    port: int = Field(default=RETRIEVER_PORT, ge=0, le=65535, description="Port; 0 takes a free one")
    max_waiting: int = Field(
        default=MAX_WAITING,
        ge=1,
        description="Queries that may wait at a time; beyond, status 503 and when to come back",
    )
    allow_empty_queries: bool = Field(
        default=False, description="Answer empty queries with no passages: Search-R1's trainer sends some"
    )
