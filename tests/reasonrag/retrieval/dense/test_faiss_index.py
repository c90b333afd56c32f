"""faiss indexes of every type: parameters by the number of passages, files, and what is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from reasonrag.errors import InputError
from reasonrag.retrieval.dense.faiss_index import STREAMED, FaissIndex, FaissVectors, build_index, plan_index
from reasonrag.retrieval.settings import IndexType

faiss = pytest.importorskip("faiss", reason="the index extra is not installed")
TYPES: tuple[IndexType, ...] = ("flat", "sq8", "hnsw", "ivf-sq", "ivf-pq")
ROWS, DIMENSION = 3000, 32


class InMemory:
    """Vectors as the builder reads them; stored in fp16 as they are on disk."""

    def __init__(self, rows: int = ROWS, dimension: int = DIMENSION, seed: int = 0) -> None:
        # a few directions with noise around them, as passages of some topics have
        rng = np.random.default_rng(seed)
        topics = rng.standard_normal((20, dimension))
        vectors = topics[rng.integers(20, size=rows)] + 0.7 * rng.standard_normal((rows, dimension))
        self.vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16).astype(np.float32)
        self.rows, self.dimension = self.vectors.shape

    def read(self, start: int, stop: int) -> npt.NDArray[np.float32]:
        return self.vectors[start:stop]

    def take(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        return self.vectors[rows]


def faiss_file(path: Path, factory: str, metric: int, vectors: InMemory) -> Path:
    """As faiss itself writes one."""
    index = faiss.index_factory(DIMENSION, factory, metric)
    index.train(vectors.vectors)
    index.add(vectors.vectors)
    faiss.write_index(index, str(path))
    return path


@pytest.mark.parametrize(
    ("index_type", "rows", "factory", "training_rows", "nprobe"),
    [
        ("flat", 1_000_000, "Flat", 0, None),
        ("sq8", 1_000_000, "SQ8", 100_000, None),
        ("sq8", 500, "SQ8", 500, None),
        ("hnsw", 1_000_000, "HNSW32,SQfp16", 0, None),
        ("ivf-sq", 1_000, "IVF16,SQ8", 1_000, 16),
        ("ivf-sq", 1_000_000, "IVF4096,SQ8", 262_144, 256),
        ("ivf-sq", 21_015_324, "IVF16384,SQ8", 1_048_576, 1024),
        ("ivf-pq", 1_000_000, "IVF4096,PQ192x4fs", 262_144, 256),
        ("ivf-pq", 20_000, "IVF512,PQ192x4fs", 20_000, 32),
    ],
)
def test_parameters_follow_from_the_number_of_passages(
    index_type: IndexType, rows: int, factory: str, training_rows: int, nprobe: int | None
) -> None:
    """Cells near 4 sqrt(n), trained on 64 vectors each as far as there are so many; a sixteenth of them is searched."""
    plan = plan_index(index_type, rows=rows, dimension=384)
    assert (plan.factory, plan.training_rows, plan.nprobe) == (factory, training_rows, nprobe)


def test_a_type_that_cannot_be_trained_is_refused() -> None:
    """Before anything is encoded, and with what to take instead."""
    with pytest.raises(InputError, match="an ivf-sq index needs 1,000 passages, there are 999; use --type flat"):
        plan_index("ivf-sq", rows=999, dimension=384)
    with pytest.raises(InputError, match="an ivf-pq index needs an even dimension, not 33; take --type ivf-sq"):
        plan_index("ivf-pq", rows=2000, dimension=33)


@pytest.mark.parametrize("index_type", STREAMED)
@pytest.mark.parametrize("rows", [1, 16_384, 16_500])
def test_a_streamed_file_is_the_one_that_faiss_writes(index_type: IndexType, rows: int, tmp_path: Path) -> None:
    """Byte for byte, though the vectors were never held together."""
    vectors = InMemory(rows)
    plan = plan_index(index_type, rows=rows, dimension=DIMENSION)
    build_index(plan, vectors, tmp_path / "ours.index")
    theirs = faiss_file(tmp_path / "theirs.index", plan.factory, faiss.METRIC_INNER_PRODUCT, vectors)
    assert (tmp_path / "ours.index").read_bytes() == theirs.read_bytes()


def test_no_more_is_found_than_there_is(tmp_path: Path) -> None:
    """A depth beyond the number of rows, or of those in the searched cells, gives no row twice and none below 0."""
    vectors = InMemory(1200)
    for index_type in TYPES:
        plan = plan_index(index_type, rows=1200, dimension=DIMENSION)
        build_index(plan, vectors, tmp_path / "x.index")
        for rows in FaissIndex(tmp_path / "x.index", plan).search(vectors.vectors[:5], 5000):
            assert len(set(rows.tolist())) == len(rows) <= 1200
            assert (rows >= 0).all()


@pytest.mark.parametrize("index_type", TYPES)
@pytest.mark.parametrize("left", [0, 3, 0.5, 0.99])
def test_an_index_file_that_is_cut_off_is_refused(index_type: IndexType, left: float, tmp_path: Path) -> None:
    """Never searched as a smaller one, and never a crash of faiss."""
    plan = plan_index(index_type, rows=ROWS, dimension=DIMENSION)
    build_index(plan, InMemory(), tmp_path / "x.index")
    content = (tmp_path / "x.index").read_bytes()
    (tmp_path / "x.index").write_bytes(content[: int(left * len(content)) if left < 1 else int(left)])
    with pytest.raises(InputError, match=r"x\.index is damaged or not an index .*build it again"):
        FaissIndex(tmp_path / "x.index", plan)


@pytest.mark.parametrize(
    ("factory", "metric"),
    [("Flat", "METRIC_L2"), ("HNSW8", "METRIC_INNER_PRODUCT"), ("SQ8", "METRIC_INNER_PRODUCT")],
)
def test_an_index_that_does_not_give_its_vectors_back_is_not_adopted(factory: str, metric: str, tmp_path: Path) -> None:
    """Flat ones do; by inner product, as FlashRAG builds them."""
    path = faiss_file(tmp_path / "x.index", factory, getattr(faiss, metric), InMemory(200))
    with pytest.raises(InputError, match="give a Flat one that compares by inner product"):
        FaissVectors(path)
