"""Settings of searching, of building an index, and of serving one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from reasonrag.settings import Panel, Places, Port, Settings, Words
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
    """Where passages come from."""

    retriever: Annotated[str | None, Panel.RETRIEVAL] = Field(
        default=None,
        description="bm25, dense, hybrid, or http://host:port of a retrieval server (its token, if any, is read from "
        "REASONRAG_RETRIEVER_TOKEN) [default: what --index holds, else bm25]",
    )
    index: Annotated[Places, Panel.RETRIEVAL] = Field(
        default=[], description="A built index, or where to put a new one; give it twice for hybrid"
    )
    index_home: Annotated[Path, Panel.RETRIEVAL] = Field(
        default=INDEX_HOME, description="Directory of the indexes that have no --index"
    )
    encoder: Annotated[str | None, Panel.RETRIEVAL] = Field(
        default=None,
        description="Encoder of a dense index: a folder, a name on the Hub, minilm, or hashing for tests "
        "[default: the index's own, else minilm]",
    )
    index_type: Annotated[IndexType | None, Panel.RETRIEVAL] = Field(
        default=None, description="flat, sq8, sqfp16, hnsw, ivf-sq or ivf-pq [default: the type built last, else flat]"
    )
    reranker: Annotated[str | None, Panel.RETRIEVAL] = Field(
        default=None, description="Cross-encoder that reranks passages: a folder or a name on the Hub"
    )
    gpu: Annotated[bool, Panel.RETRIEVAL] = Field(
        default=False, description="Search dense indexes on GPUs; needs the index-gpu extra"
    )


IndexKind = Literal["bm25", "dense"]


class IndexSettings(Settings):
    """Settings of `index build`."""

    corpus: Path = Field(
        description='Passages: JSONL of {"id", "contents": "title\\ntext"}, .gz and .zst too, or '
        "hf://datasets/ORG/NAME[@REVISION][/FILE]"
    )
    kind: IndexKind | None = Field(
        default=None, description="bm25 or dense [default: dense if a setting of an encoder is given, else bm25]"
    )
    out: Path | None = Field(
        default=None, description="Directory of the index [default: in --index-home, where generate finds it]"
    )
    index_home: Path = Field(default=INDEX_HOME, description="Directory of the indexes that have no --out")
    encoder: Annotated[str | None, Panel.ENCODER] = Field(
        default=None, description="A folder, a name on the Hub, minilm, or hashing for tests [default: minilm]"
    )
    type: Annotated[IndexType | None, Panel.ENCODER] = Field(
        default=None,
        description="flat, sq8, sqfp16, hnsw, ivf-sq or ivf-pq; existing vectors are reused, not encoded again "
        "[default: flat]",
    )
    from_faiss: Annotated[Path | None, Panel.ENCODER] = Field(
        default=None,
        description="Adopt a Flat or SQ index of the corpus (for example FlashRAG's e5_Flat.index) without encoding",
    )
    backend: Annotated[Library | None, Panel.ENCODER] = Field(
        default=None, description="Library that runs the encoder [default: flag for BGE, else sentence-transformers]"
    )
    pooling: Annotated[Pooling | None, Panel.ENCODER] = Field(
        default=None, description="cls, mean or lasttoken [default: the model's own]"
    )
    normalize: Annotated[bool | None, Panel.ENCODER] = Field(
        default=None, description="Normalize vectors to length 1 [default: yes]"
    )
    query_instruction: Annotated[str | None, Panel.ENCODER] = Field(
        default=None, description="Text put before every query [default: the model's own]"
    )
    passage_instruction: Annotated[str | None, Panel.ENCODER] = Field(
        default=None, description="Text put before every passage [default: the model's own]"
    )
    max_length: Annotated[int | None, Panel.ENCODER] = Field(
        default=None, ge=8, description="Tokens read of a text [default: the model's, at most 512]"
    )
    precision: Annotated[Precision | None, Panel.ENCODER] = Field(
        default=None,
        description="fp32, bf16 or fp16: weights while encoding passages [default: bf16 if the hardware has it]",
    )
    batch_size: Annotated[int, Panel.ENCODER] = Field(default=64, ge=1, description="Passages per batch")
    device: Annotated[Words, Panel.ENCODER] = Field(
        default=[],
        description="Device of torch, for example cuda:0; repeat to share the work [default: all GPUs, else the CPU]",
    )
    gpu: Annotated[bool, Panel.ENCODER] = Field(
        default=False, description="Train faiss on GPUs; needs the index-gpu extra"
    )

    @property
    def of_a_dense_index(self) -> list[str]:
        """The settings that were given and that only a dense index has."""
        ours = set(IndexSettings.model_fields) - {"corpus", "kind", "out", "index_home", "batch_size"}
        return sorted(name for name in ours if getattr(self, name) not in (None, []) and (name != "gpu" or self.gpu))


class ServeSettings(SearchSettings):
    """Settings of `index serve`."""

    corpus: Annotated[Path | None, Panel.RETRIEVAL] = Field(
        default=None, description="Corpus to index if its index is missing"
    )
    host: str = Field(default=LOOPBACK, description="Address to listen on; 0.0.0.0 accepts other machines")
    port: Port = Field(default=RETRIEVER_PORT, description="Port; 0 takes a free one")
    max_waiting: int = Field(
        default=MAX_WAITING, ge=1, description="Queries that may wait; further ones get status 503 with Retry-After"
    )
    allow_empty_queries: bool = Field(
        default=False, description="Answer an empty query with no passages; Search-R1's trainer sends some"
    )
