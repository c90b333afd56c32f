"""Settings of searching, of building an index, and of serving one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from reasonrag.data.documents.language import LANGUAGE, Languages
from reasonrag.settings import COMMON, On, Panel, Places, Port, Settings, Words, setting
from reasonrag.web.client import LOOPBACK

INDEX_HOME = Path("indexes")
MAX_TOP_K = 1000
"""Passages a search gives at most; more would fill no prompt."""
TOP_K = 3
"""Passages per search: ReasonRAG's, and Search-R1's."""
SNIPPET_CHARS = 240
MIN_PASSAGE_CHARS = 100
"""Less has no room for a sentence and the mark of a cut."""
PassageOrder = Literal["best-first", "worst-first"]
BEST_FIRST: PassageOrder = "best-first"
RETRIEVER_PORT = 8977
IndexType = Literal["flat", "sq8", "hnsw", "ivf-sq", "ivf-pq"]
"""Kinds of faiss index; `dense.faiss_index` says what they are."""
Library = Literal["flag", "sentence-transformers"]
Pooling = Literal["cls", "mean", "lasttoken"]
Precision = Literal["fp32", "bf16", "fp16"]
"""Libraries, poolings and precisions of encoders; `dense.encoders` explains them."""


class RetrievalSettings(Settings):
    """Where passages come from."""

    retriever: str | None = setting(
        "bm25, dense, hybrid, or the address of a retrieval server (http://host:port; its token is "
        "read from REASONRAG_RETRIEVER_TOKEN) [default: the kind of --index, else bm25]",
        Panel.RETRIEVAL,
        common=True,
    )
    index: Places = setting("Finished index to search; repeat for hybrid", Panel.RETRIEVAL, default=[])
    index_home: Path = setting("Folder of indexes that are built without --index", Panel.RETRIEVAL, default=INDEX_HOME)
    language: Languages = setting(LANGUAGE, Panel.RETRIEVAL, default=[])
    encoder: str | None = setting(
        "Encoder of a dense index: a folder, a name on the Hub, minilm, or hashing (for tests) "
        "[default: the index's own, else minilm]",
        Panel.RETRIEVAL,
    )
    gpu: bool = setting("Search dense indexes on GPUs; needs the index-gpu extra", Panel.RETRIEVAL, default=False)

    @property
    def is_remote(self) -> bool:
        """Whether the retriever is a server reached over HTTP."""
        return self.retriever is not None and "://" in self.retriever

    @property
    def has_corpus(self) -> bool:
        """Whether what is searched has passages of its own, so that no corpus is needed beside it."""
        return bool(self.index) or self.is_remote


class ReadingSettings(Settings):
    """What a prompt shows of the passages found."""

    top_k: int = setting("Passages per search", Panel.RETRIEVAL, default=TOP_K, ge=1, le=MAX_TOP_K)
    max_passage_chars: int | None = setting(
        f"Cut passages longer than this many characters (at least {MIN_PASSAGE_CHARS}) at a sentence end, marked with "
        "[...] [default: no cut]",
        Panel.RETRIEVAL,
        ge=MIN_PASSAGE_CHARS,
    )


IndexKind = Literal["bm25", "dense"]
OF_ANY_INDEX = {"corpus", "kind", "out", "index_home", "language", "batch_size", "on", "workers"}
"""Settings of every index, and those that `generate` has too: from the environment they may be meant for it."""


class IndexSettings(Settings):
    """Settings of `index build`."""

    corpus: Annotated[Path, COMMON] = Field(
        description='Passages: JSONL of {"id", "contents": "title\\ntext"}, .gz too, or '
        "hf://datasets/ORG/NAME[@REVISION]/FILE"
    )
    kind: IndexKind | None = setting(
        "bm25 or dense [default: dense if an encoder setting is given, else bm25]", common=True
    )
    out: Path | None = setting(
        "Folder of the index [default: a folder in --index-home, where generate finds it]", common=True
    )
    index_home: Path = setting("Folder of indexes that are built without --out", default=INDEX_HOME)
    language: Languages = setting(LANGUAGE, default=[])
    encoder: str | None = setting(
        "A folder, a name on the Hub, minilm, or hashing (for tests) [default: minilm]", Panel.ENCODER, common=True
    )
    type: IndexType | None = setting(
        "faiss index: flat, sq8, hnsw, ivf-sq or ivf-pq; vectors that exist are reused [default: flat]",
        Panel.ENCODER,
        common=True,
    )
    from_faiss: Path | None = setting(
        "Take over a Flat faiss index of the corpus, such as FlashRAG's e5_Flat.index, without encoding",
        Panel.ENCODER,
    )
    backend: Library | None = setting(
        "Library that runs the encoder [default: flag for BGE, else sentence-transformers]", Panel.ENCODER
    )
    pooling: Pooling | None = setting("cls, mean or lasttoken [default: the model's own]", Panel.ENCODER)
    normalize: bool | None = setting("Normalize vectors to length 1 [default: yes]", Panel.ENCODER)
    query_instruction: str | None = setting("Text before every query [default: the model's own]", Panel.ENCODER)
    passage_instruction: str | None = setting("Text before every passage [default: the model's own]", Panel.ENCODER)
    max_length: int | None = setting(
        "Maximum tokens read per text [default: the model's limit, at most 512]", Panel.ENCODER, ge=8
    )
    precision: Precision | None = setting(
        "Weights while passages are encoded: fp32, bf16 or fp16 [default: bf16 if the hardware has it]", Panel.ENCODER
    )
    batch_size: int = setting("Passages per batch", Panel.ENCODER, default=64, ge=1)
    device: Words = setting(
        "torch device, for example cuda:0; repeat to use several [default: all GPUs, else the CPU]",
        Panel.ENCODER,
        default=[],
        common=True,
    )
    gpu: bool = setting("Train faiss on GPUs; needs the index-gpu extra", Panel.ENCODER, default=False)
    on: On = "here"
    workers: int | None = setting(
        "Encoders at a time, with --on ray [default: one for each GPU of the cluster, else for each CPU]",
        Panel.MACHINES,
        ge=1,
    )

    @property
    def of_a_dense_index(self) -> list[str]:
        """The settings that were given and that only a dense index has."""
        return sorted(self.model_dump(exclude=OF_ANY_INDEX, exclude_defaults=True))


class ServeSettings(RetrievalSettings):
    """Settings of `index serve`."""

    index: Places = setting("Finished index to serve; repeat for hybrid", Panel.RETRIEVAL, default=[], common=True)

    corpus: Path | None = setting("Corpus to index if there is no index yet", Panel.RETRIEVAL, common=True)
    host: str = setting("Address to listen on; 0.0.0.0 accepts other machines", default=LOOPBACK, common=True)
    port: Port = setting("Port; 0 picks a free one", default=RETRIEVER_PORT, common=True)
    allow_host: Words = setting(
        "Host name by which clients reach the server, for example through a reverse proxy; repeatable. If it is given, "
        "requests for other names are refused, also with a --host beyond loopback",
        default=[],
    )
