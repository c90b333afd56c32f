"""faiss indexes: their types, their parameters by corpus size, and their files.

Files are faiss' own, so that FlashRAG and other tools can read them: row i is line i of the corpus, the metric is the
inner product. Flat and scalar-quantised indexes are written as a stream. Files are memory-mapped, with pages shared by
all processes; only the codes of ivf-pq are loaded into each. Does not know encoders or passages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from reasonrag.errors import InputError, needs_extra
from reasonrag.redaction import excerpt
from reasonrag.retrieval.dense.vector_pieces import VectorRows, row_ranges
from reasonrag.retrieval.settings import IndexType

FLASHRAG_NAMES: dict[IndexType, str] = {
    "flat": "Flat", "sq8": "SQ8", "hnsw": "HNSW", "ivf-sq": "IVF-SQ", "ivf-pq": "IVF-PQ",
}  # fmt: skip
"""The second half of `{method}_{type}.index`."""
_SEED = 1234
STREAMED: tuple[IndexType, ...] = ("flat", "sq8")
"""Types built in constant memory; the others hold the whole index during the build."""
SMALLEST_IVF = 1000
"""Smallest corpus for trained cells; below it a flat index is instant anyway."""
_TRAINED_PER_CELL = 64
"""Training vectors per k-means cell; faiss wants 39 to 256."""
_SAMPLE_FOR_RANGES = 100_000
"""Vectors sampled for the ranges of 8-bit codes."""
_BLOCK_ROWS = 32_768
"""Vectors per block of faiss' matrix product; its default of 1,024 makes threads synchronise thirty times as often."""


class IndexPlan(BaseModel, frozen=True, extra="forbid"):
    """How a faiss index is built and searched, chosen by the number of passages."""

    type: IndexType
    factory: str
    """The string for `faiss.index_factory`."""
    training_rows: int = 0
    seed: int = _SEED
    """Seed of the training sample and of the initial centres."""
    nprobe: int | None = None
    """Cells searched per query."""
    ef_search: int | None = None
    ef_construction: int | None = None
    refine: int
    """Candidates per requested passage, rescored by their stored vectors."""


def plan_index(index_type: IndexType, *, rows: int, dimension: int) -> IndexPlan:
    """The parameters for `rows` vectors. Raises InputError for a type that cannot be built from them."""
    if index_type.startswith("ivf") and rows < SMALLEST_IVF:
        raise InputError(f"an {index_type} index needs {SMALLEST_IVF:,} passages, there are {rows:,}; use --type flat")
    if index_type == "ivf-pq" and dimension % 2:
        raise InputError(f"an ivf-pq index needs an even dimension, not {dimension}; take --type ivf-sq")
    # the power of two nearest to 4 sqrt(n), as faiss recommends, limited by the training vectors per cell
    cells = min(2 ** round(np.log2(4 * np.sqrt(max(1, rows)))), 2 ** int(np.log2(max(1, rows / 39))))
    of_cells = {"training_rows": min(rows, _TRAINED_PER_CELL * cells), "nprobe": max(min(cells, 16), cells // 16)}
    by_type: dict[IndexType, dict[str, Any]] = {
        "flat": {"factory": "Flat", "refine": 1},
        "sq8": {"factory": "SQ8", "training_rows": min(rows, _SAMPLE_FOR_RANGES), "refine": 4},
        "hnsw": {"factory": "HNSW32,SQfp16", "ef_search": 128, "ef_construction": 100, "refine": 2},
        "ivf-sq": {"factory": f"IVF{cells},SQ8", "refine": 4, **of_cells},
        # two dimensions to a 4-bit code, compared in registers: 96 bytes a passage at 384 dimensions
        "ivf-pq": {"factory": f"IVF{cells},PQ{dimension // 2}x4fs", "refine": 16, **of_cells},
    }
    return IndexPlan(type=index_type, **by_type[index_type])


def build_index(
    plan: IndexPlan,
    vectors: VectorRows,
    path: Path,
    *,
    advanced: Callable[[int], object] = lambda _: None,
    gpu: bool = False,
) -> None:
    """Write the index to `path`.

    advanced: called with the number of rows done so far. gpu: train cells on the GPUs. Raises InputError without faiss,
        OSError if the file cannot be written.
    """
    faiss = import_faiss(gpu=gpu)
    index = faiss.index_factory(vectors.dimension, plan.factory, faiss.METRIC_INNER_PRODUCT)
    if plan.ef_construction:
        index.hnsw.efConstruction = plan.ef_construction
    _search_as_planned(faiss, index, plan)  # stored in the file too: FlashRAG sets nothing and would search one cell
    _train(faiss, index, plan, vectors, gpu=gpu)
    if plan.type in STREAMED:
        _stream(faiss, index, vectors, path, advanced)
        return
    for start, stop in row_ranges(vectors.rows):
        index.add(vectors.read(start, stop))
        advanced(stop)
    faiss.write_index(index, str(path))


def _train(faiss: Any, index: Any, plan: IndexPlan, vectors: VectorRows, *, gpu: bool) -> None:
    if not plan.training_rows:
        return
    rng = np.random.default_rng(plan.seed)
    rows = np.sort(rng.choice(vectors.rows, size=plan.training_rows, replace=False))
    sample = np.empty((len(rows), vectors.dimension), dtype=np.float32)
    for start, stop in row_ranges(vectors.rows):  # read the whole file in order: mapped rows would count as memory
        first, last = np.searchsorted(rows, [start, stop])
        sample[first:last] = vectors.read(start, stop)[rows[first:last] - start]
    if plan.nprobe:
        cells = faiss.extract_index_ivf(index)
        cells.cp.seed = plan.seed
        if gpu:
            cells.clustering_index = faiss.index_cpu_to_all_gpus(faiss.IndexFlatIP(vectors.dimension))
    index.train(sample)


def _stream(faiss: Any, index: Any, vectors: VectorRows, path: Path, advanced: Callable[[int], object]) -> None:
    """Write the file that `faiss.write_index` would, without holding all vectors.

    These files end with the codes, preceded by their size; the number of rows follows the dimension.
    """
    empty = bytes(faiss.serialize_index(index))
    code_size = index.sa_code_size()
    items = vectors.rows * code_size // (4 if isinstance(index, faiss.IndexFlat) else 1)
    head = empty[:8] + struct.pack("<q", vectors.rows) + empty[16:-8] + struct.pack("<Q", items)
    with path.open("wb") as file:
        file.write(head)
        for start, stop in row_ranges(vectors.rows):
            file.write(index.sa_encode(vectors.read(start, stop)).tobytes())
            advanced(stop)


# -- searching -------------------------------------------------------------------------------------------------


class FaissIndex:
    """An open index file, memory-mapped. Raises InputError if it is missing, damaged or cut off."""

    def __init__(self, path: Path, plan: IndexPlan, *, gpu: bool = False) -> None:
        faiss = import_faiss(gpu=gpu)
        # cells are mapped list by list, everything else as a whole
        index = _read(faiss, path, faiss.IO_FLAG_MMAP if plan.nprobe else faiss.IO_FLAG_MMAP_IFC)
        _search_as_planned(faiss, index, plan)
        # matrix products from 3 queries on (faiss' default: 128,000 / dimension queries), in large blocks: its threads
        # synchronise after each block, which is slow if other processes use the cores
        faiss.cvar.distance_compute_blas_threshold = 3 * index.d
        faiss.cvar.distance_compute_blas_database_bs = _BLOCK_ROWS
        self._index, self._rows = index, index.ntotal
        if gpu:
            try:
                self._index = faiss.index_cpu_to_all_gpus(index)
            except RuntimeError as error:
                raise InputError(
                    f"the {plan.type} index does not go onto the GPUs ({_reason(error)}); leave out gpu, or take an "
                    "index of type flat or ivf-sq"
                ) from error

    def search(self, queries: npt.NDArray[np.float32], depth: int) -> list[npt.NDArray[np.int64]]:
        """Rows of the nearest vectors for each query, best first, at most `depth`."""
        _, found = self._index.search(np.ascontiguousarray(queries), min(depth, self._rows))
        return [rows[rows >= 0] for rows in found]


def _search_as_planned(faiss: Any, index: Any, plan: IndexPlan) -> None:
    if plan.nprobe:
        faiss.extract_index_ivf(index).nprobe = plan.nprobe
    if plan.ef_search:
        index.hnsw.efSearch = plan.ef_search


def _read(faiss: Any, path: Path, flag: int) -> Any:
    try:
        return faiss.read_index(str(path), flag)
    except RuntimeError as error:
        what = "does not exist" if not path.exists() else f"is damaged or not an index ({_reason(error)})"
        raise InputError(f"the faiss index {path} {what}; build it again") from error


def _reason(error: RuntimeError) -> str:
    """The message without faiss' leading source location."""
    return excerpt(str(error).strip().rpartition(": ")[2], 200) or "unreadable"


class FaissVectors:
    """The vectors of an external Flat index. Raises InputError for another one."""

    def __init__(self, path: Path) -> None:
        faiss = import_faiss()
        self.path = path.resolve()
        self._index = _read(faiss, self.path, faiss.IO_FLAG_MMAP_IFC)
        self.rows, self.dimension = self._index.ntotal, self._index.d
        if not isinstance(self._index, faiss.IndexFlat) or self._index.metric_type != faiss.METRIC_INNER_PRODUCT:
            raise InputError(
                f"the faiss index {path} is a {type(self._index).__name__}, of which vectors cannot be taken; give a "
                "Flat one that compares by inner product"
            )

    def read(self, start: int, stop: int) -> npt.NDArray[np.float32]:
        return np.asarray(self._index.reconstruct_n(start, stop - start), dtype=np.float32)

    def take(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        return np.asarray(self._index.reconstruct_batch(rows), dtype=np.float32)


def import_faiss(*, gpu: bool = False) -> Any:
    with needs_extra("index", "a dense index", " (or 'reasonrag[index-gpu]', never both)"):
        import faiss
    if gpu and not faiss.get_num_gpus():
        raise InputError(
            "this faiss sees no GPU: pip uninstall faiss-cpu, pip install 'reasonrag[index-gpu]', or leave out --gpu"
        )
    return faiss
