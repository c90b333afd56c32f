"""Encoders: what is known of a model, what a manifest must repeat, and that a query's vector is its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasonrag.errors import InputError
from reasonrag.retrieval.dense.encoders import MINILM, Encoder, EncoderChoice, load_encoder

WORDS = "river town film director capital north king poet born city album song team player french the of a".split()
TEXTS = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


def hashing(**changed: object) -> Encoder:
    return load_encoder(EncoderChoice.model_validate({"model": "hashing-64"} | changed))


# -- hashing ---------------------------------------------------------------------------------------------------


def test_the_hashing_encoder_is_the_same_everywhere() -> None:
    """Indexes in tests and benchmarks are comparable from machine to machine."""
    [vector] = hashing().queries(["The capital of France is Paris"])
    places = {int(i): round(float(vector[i]), 4) for i in np.flatnonzero(vector)}
    assert places == {34: -0.5774, 38: 0.5774, 52: 0.5774}
    assert hashing(model="hashing-").spec.dimension == 256


@pytest.mark.parametrize(
    ("models", "says"),
    [
        ("hashing-0 hashing-x hashing-99999 hashingx", "the hashing encoder is hashing or hashing-DIMENSION"),
        ("/nowhere/bge-base ./nowhere ~/nowhere/at/all a/b/c", r"there is no encoder .*: no such folder"),
    ],
)
def test_an_encoder_that_is_none_is_refused(models: str, says: str) -> None:
    """The message says what the name may be. It comes at once: the Hub is not asked for what must be a path."""
    for model in models.split():
        with pytest.raises(InputError, match=says):
            load_encoder(EncoderChoice(model=model))


def test_without_the_embed_extra_the_message_says_how_to_get_it() -> None:
    """Seen by a Python that cannot import torch."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from reasonrag.retrieval.dense.encoders import *\n"
        "load_encoder(EncoderChoice(model='some/model'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "needs the embed extra: pip install 'reasonrag[embed]'" in done.stderr


# -- real ones -------------------------------------------------------------------------------------------------


def test_what_the_model_says_of_itself_is_in_its_description(minilm: Encoder) -> None:
    """Pooling, length and dimension come from its files, not from a library's defaults."""
    spec = minilm.spec
    assert (spec.backend, spec.pooling, spec.normalize) == ("sentence-transformers", "mean", True)
    assert (spec.dimension, spec.max_length, spec.query_instruction) == (384, 256, "")
    assert (minilm.precision, minilm.devices) == ("fp32", ("cpu",))


@settings(max_examples=25)
@given(texts=st.lists(TEXTS, min_size=2, max_size=12))
def test_the_vector_of_a_query_does_not_depend_on_its_company(texts: list[str], minilm: Encoder) -> None:
    """To the last bit, so that a run finds the same at any concurrency."""
    together = minilm.queries(texts)
    for text, vector in zip(texts, together, strict=True):
        assert np.array_equal(minilm.queries([text])[0], vector)


def test_both_libraries_give_the_same_vectors(minilm: Encoder) -> None:
    """FlagEmbedding pools by CLS unless it is told otherwise; here it always is."""
    flag = load_encoder(EncoderChoice(model=MINILM, backend="flag", pooling="mean", max_length=256))
    texts = ["Paris\nThe capital of France.", "who directed the film"]
    assert np.allclose(flag.passages(texts), minilm.passages(texts), atol=1e-6)


def test_half_precision_barely_turns_a_vector(minilm: Encoder) -> None:
    """And never changes its length, whatever the library's own normalisation gives in bf16."""
    half = load_encoder(EncoderChoice(model=MINILM), precision="bf16")
    texts = ["Paris\nThe capital of France.", "Oboe\nA reed instrument of the orchestra."]
    vectors = half.passages(texts)
    assert ((vectors * minilm.passages(texts)).sum(axis=1) > 0.998).all()
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_a_description_loads_the_same_encoder_again(minilm: Encoder) -> None:
    """Nothing is left to be found out a second time."""
    again = load_encoder(minilm.spec.choice)
    assert again.spec == minilm.spec
    assert np.array_equal(again.queries(["a query"]), minilm.queries(["a query"]))


@pytest.fixture(scope="module")
def small_bert(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two layers with random weights, without a word on how it pools."""
    request.getfixturevalue("offline")
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("models") / "small-bert"
    torch.manual_seed(0)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ":", "represent", "query", "passage", *WORDS]
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    transformers.BertModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def named(model: Path, name: str) -> str:
    """The same files under another name: families are known by their names."""
    folder = model.parent / name
    if not folder.exists():
        folder.symlink_to(model)
    return str(folder)


@pytest.mark.parametrize(
    ("name", "backend", "pooling", "query_instruction", "passage_instruction"),
    [
        ("bge-tiny-en-v1.5", "flag", "cls", "Represent this sentence for searching relevant passages: ", ""),
        ("bge-m3", "flag", "cls", "", ""),
        ("e5-tiny-v2", "sentence-transformers", "mean", "query: ", "passage: "),
        ("multilingual-e5-small", "sentence-transformers", "mean", "query: ", "passage: "),
    ],
)
def test_a_known_family_gets_what_its_card_says(
    name: str, backend: str, pooling: str, query_instruction: str, passage_instruction: str, small_bert: Path
) -> None:
    """Pooling and instructions that the model's files do not hold; leaving them out costs recall, silently."""
    encoder = load_encoder(EncoderChoice(model=named(small_bert, name)))
    spec = encoder.spec
    assert (spec.backend, spec.pooling, spec.normalize) == (backend, pooling, True)
    assert (spec.query_instruction, spec.passage_instruction) == (query_instruction, passage_instruction)
    bare = load_encoder(EncoderChoice(model=named(small_bert, name), query_instruction="", passage_instruction=""))
    assert np.allclose(encoder.queries(["king"]), bare.queries([query_instruction + "king"]), atol=1e-6)
    assert np.allclose(encoder.passages(["king"]), bare.passages([passage_instruction + "king"]), atol=1e-6)


@pytest.mark.parametrize(
    "name", ["e5-mistral-7b-instruct", "multilingual-e5-large-instruct", "bge-en-icl", "my-e5-tuned"]
)
def test_a_name_that_only_looks_like_a_family_gets_nothing_of_it(name: str, small_bert: Path) -> None:
    """Another pooling and other instructions would give wrong vectors, silently."""
    with pytest.raises(InputError, match="does not say how it pools"):
        load_encoder(EncoderChoice(model=named(small_bert, name)))


def test_a_folder_is_remembered_wherever_one_stands(small_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index is opened from other directories than it was built in."""
    monkeypatch.chdir(small_bert.parent)
    spec = load_encoder(EncoderChoice(model=f"./{small_bert.name}", pooling="mean")).spec
    assert spec.model == str(small_bert)


@pytest.mark.parametrize("backend", ["flag", "sentence-transformers"])
def test_cls_pooling_is_the_first_token_of_the_model_itself(backend: str, small_bert: Path) -> None:
    """Computed once more without either library; the description says so."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    choice = {"model": named(small_bert, "bge-tiny-en-v1.5"), "backend": backend, "query_instruction": ""}
    encoder = load_encoder(EncoderChoice.model_validate(choice))
    assert encoder.spec.pooling == "cls"
    tokenizer = transformers.AutoTokenizer.from_pretrained(small_bert)
    model = transformers.AutoModel.from_pretrained(small_bert).eval()
    with torch.no_grad():
        first = model(**tokenizer(["the king of france"], return_tensors="pt")).last_hidden_state[0, 0]
    expected = (first / first.norm()).numpy()
    assert np.allclose(encoder.queries(["the king of france"])[0], expected, atol=1e-6)


@pytest.mark.parametrize("backend", ["flag", "sentence-transformers"])
def test_a_model_that_does_not_say_how_it_pools_is_refused(backend: str, small_bert: Path) -> None:
    """Mean and CLS both give vectors, and one of them is wrong."""
    choice = EncoderChoice.model_validate({"model": str(small_bert), "backend": backend})
    with pytest.raises(InputError, match=r"does not say how it pools.*give --pooling cls or mean"):
        load_encoder(choice)
    assert load_encoder(choice.model_copy(update={"pooling": "mean"})).spec.pooling == "mean"


@pytest.mark.usefixtures("offline")
def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    """With what the library says, and what may be given."""
    (tmp_path / "modules.json").write_text("{")
    with pytest.raises(InputError, match=r"cannot load the encoder .*Give --encoder a folder with its files"):
        load_encoder(EncoderChoice(model=str(tmp_path)))


def test_several_devices_give_the_vectors_of_one(minilm: Encoder) -> None:
    """Two processes on this machine stand for two GPUs."""
    texts = [f"{WORDS[i % len(WORDS)]} {i}" for i in range(40)]
    two = load_encoder(EncoderChoice(model=MINILM), devices=["cpu", "cpu"], batch_size=8)
    try:
        assert np.allclose(two.passages(texts), minilm.passages(texts), atol=1e-6)
        assert two.devices == ("cpu", "cpu")
    finally:
        two.close()
