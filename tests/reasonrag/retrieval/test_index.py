"""`reasonrag index` and `--retriever` through the command line: built, described, checked, served, searched by runs."""

from __future__ import annotations

import gzip
import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import reasonrag as package
from tests.helpers.command_line import Reasonrag
from tests.helpers.jsonl import append_a_passage, write_passages, write_rows
from tests.helpers.processes import Command

QUESTIONS = (
    ("q0", "Which river flows through the capital of France?", ["Seine"]),
    ("q1", "Which river flows through the capital of Italy?", ["Tiber"]),
)
PASSAGES = (
    ("paris", "Paris", "Paris is the capital of France. It lies on the river Seine."),
    ("france", "France", "France is a country in Europe. Its capital is Paris."),
    ("rome", "Rome", "Rome is the capital of Italy. It lies on the river Tiber."),
    ("italy", "Italy", "Italy is a country in Europe. Its capital is Rome."),
    ("cats", "Cats", "Cats are animals."),
    ("oboe", "Oboe", "The oboe is an instrument with a double reed."),
)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Questions and a corpus, where the tests run."""
    write_passages(tmp_path / "corpus.jsonl", PASSAGES)
    asked = ({"id": each, "question": text, "golden_answers": golden} for each, text, golden in QUESTIONS)
    return write_rows(tmp_path / "questions.jsonl", asked).parent


OWN = ("--questions", "questions.jsonl", "--corpus", "corpus.jsonl")
TOKEN = "open-sesame-1234"  # noqa: S105 - of a server that lives for a second
BUILD = ("index", "build", "--corpus", "corpus.jsonl", "--out", "ix", "--encoder", "hashing")
GENERATE = ("generate", "--model", "offline", "--abort-degenerate", 0)


def rollouts(run: str) -> bytes:
    return Path(run, "rollouts.jsonl").read_bytes()


def identity(run: str) -> str:
    found: str = json.loads(Path(run, "config.json").read_text())["decides_answers"]["retriever"]
    return found


@contextmanager
def served(*arguments: object, token: str = "") -> Iterator[tuple[str, Command]]:
    """`reasonrag index serve` as a process of its own; its address."""
    environment = os.environ | ({"REASONRAG_RETRIEVER_TOKEN": token} if token else {})
    with Command("index", "serve", "--port", 0, *arguments, environment=environment) as server:
        first = server.first_line()
        assert first.startswith("serving at http://127.0.0.1:"), first + server.err
        yield first.split()[2], server


# -- runs ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("retriever", ["dense", "hybrid"])
def test_a_run_builds_the_indexes_it_needs_and_uses_them_again(retriever: str, reasonrag: Reasonrag) -> None:
    """With a message for each, the first time; the run says which it used. A Python call names its retriever alike."""
    flags = (*GENERATE, *OWN, "--retriever", retriever, "--encoder", "hashing")
    first = reasonrag(*flags, "--run", "runs/a")
    assert first.status == 0, first.err
    kinds = ["dense-hashing", "bm25"][: 1 + (retriever == "hybrid")]
    assert all(f"-{kind}-" in first.err for kind in kinds)
    again = reasonrag(*flags, "--run", "runs/b")
    assert "building" not in again.err
    files: dict[str, Any] = {"questions": "questions.jsonl", "corpus": "corpus.jsonl", "model": "offline"}
    package.generate(**files, retriever=retriever, encoder="hashing", run="runs/c", abort_degenerate=0)
    assert rollouts("runs/a") == rollouts("runs/b") == rollouts("runs/c")
    assert identity("runs/a").startswith({"dense": "dense:", "hybrid": "rrf:k=60"}[retriever])


@pytest.mark.usefixtures("world", "minilm")
def test_without_an_encoder_named_the_small_one_is_taken(reasonrag: Reasonrag) -> None:
    """It comes with the embed extra and needs no download."""
    done = reasonrag(*GENERATE, *OWN, "--retriever", "dense", "--run", "runs/a")
    assert done.status == 0, done.err
    assert "loading the encoder minilm" in done.err
    [rollout] = [json.loads(line) for line in rollouts("runs/a").splitlines()][:1]
    read = [each["id"] for node in rollout["nodes"] for each in node.get("passages") or []]
    assert {"paris", "france"} <= set(read)


@pytest.mark.usefixtures("world")
def test_a_run_through_a_server_is_the_run_through_the_index(reasonrag: Reasonrag) -> None:
    """The same bytes and the same configuration, at any concurrency: one may go on where the other stopped. SIGTERM is
    answered by status 0, as an orchestrator expects."""
    flags = ("--retriever", "hybrid", "--encoder", "hashing")
    assert reasonrag(*GENERATE, *OWN, *flags, "--run", "runs/local", "--concurrency", 1).status == 0
    indexes = [flag for each in Path("indexes").iterdir() if each.is_dir() for flag in ("--index", each)]
    with served(*indexes) as (url, server):
        with urllib.request.urlopen(f"{url}/health") as response:  # noqa: S310 - our own address
            assert json.loads(response.read())["passages"] == len(PASSAGES)
        asked = ("--questions", "questions.jsonl", "--retriever", url)
        done = reasonrag(*GENERATE, *asked, "--run", "runs/remote", "--concurrency", 32)
        assert done.status == 0, done.err
        going_on = reasonrag(*GENERATE, *asked, "--run", "runs/local")
        assert going_on.status == 0, going_on.err
        server.send_signal(signal.SIGTERM)
        assert server.wait() == 0
    assert rollouts("runs/local") == rollouts("runs/remote")
    assert identity("runs/local") == identity("runs/remote")


@pytest.mark.usefixtures("world")
def test_a_server_with_a_token_is_searched_by_who_has_it(reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the environment on both sides; it is in no file of the run."""
    reasonrag("index", "build", "--corpus", "corpus.jsonl", "--out", "ix")
    asked = (*GENERATE, "--questions", "questions.jsonl")
    with served("--index", "ix", token=TOKEN) as (url, _):
        refused = reasonrag(*asked, "--retriever", url, "--run", "runs/a")
        assert refused.status == 2
        assert "Set REASONRAG_RETRIEVER_TOKEN to the token that the server was started with" in refused.err
        monkeypatch.setenv("REASONRAG_RETRIEVER_TOKEN", TOKEN)
        assert reasonrag(*asked, "--retriever", url, "--run", "runs/a").status == 0
    assert not any(TOKEN.encode() in path.read_bytes() for path in Path("runs").rglob("*") if path.is_file())


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--retriever", "dnese"), "--retriever dnese: did you mean 'dense'?"),
        (("--retriever", "dense", "--encoder", "./nowhere"), "there is no encoder ./nowhere: no such folder"),
        (("--retriever", "bm25", "--encoder", "minilm"), "--encoder is not for --retriever bm25; leave it out"),
        (("--retriever", "http://127.0.0.1:9"), "the retriever http://127.0.0.1:9 cannot be used"),
        (("--retriever", "dense", "--language", "de"), "--language is not for --retriever dense; leave it out"),
        (("--index", "a"), "a has no manifest.json: its build did not finish, or it is not an index"),
        (("--top-k", 0), "--top-k: must be at least 1"),
        (("--top-k", 1_000_000), "--top-k: must be at most 1000"),
        ((*BUILD, "--kind", "bm25"), "--encoder is for dense indexes: give --kind dense"),
        ((*BUILD, "--type", "ivf-pq"), "an ivf-pq index needs 1,000 passages, there are 6"),
        ((*BUILD, "--from-faiss", "nowhere.index"), "nowhere.index does not exist"),
        ((*BUILD, "--out", "."), "cannot hold an index; give it a directory of its own"),
        ((*BUILD, "--gpu"), "this faiss sees no GPU"),
        ((*BUILD, "--max-length", 1), "--max-length: must be at least 8"),
    ],
)
def test_a_retriever_or_build_that_cannot_be_is_refused(
    flags: tuple[object, ...], message: str, reasonrag: Reasonrag
) -> None:
    """Exit status 2, the flag that is wrong and what to give instead; no run is begun, nothing of an index is left."""
    refused = reasonrag(*flags) if flags[0] == "index" else reasonrag(*GENERATE, *OWN, *flags, "--run", "runs/a")
    assert refused.status == 2
    assert message in refused.err
    assert not Path("runs/a").exists()
    assert not Path("ix").exists()


@pytest.mark.usefixtures("world")
def test_indexes_that_do_not_belong_together_are_refused(world: Path, reasonrag: Reasonrag) -> None:
    """Two corpora make no hybrid, an index of another corpus no search of this one."""
    other = world / "other.jsonl"
    other.write_bytes((world / "corpus.jsonl").read_bytes().replace(b"Oboe", b"Reed"))
    reasonrag("index", "build", "--corpus", "corpus.jsonl", "--out", "words")
    assert "k1 1.2, b 0.75" in reasonrag("index", "check", "words").out
    reasonrag("index", "build", "--corpus", other, "--encoder", "hashing", "--out", "vectors")
    reasonrag("index", "build", "--corpus", other, "--out", "other-words")
    asked = (*GENERATE, "--questions", "questions.jsonl", "--run", "runs/a")
    mixed = reasonrag(*asked, "--index", "words", "--index", "vectors")
    assert (mixed.status, "these indexes were built from different corpora" in mixed.err) == (2, True)
    foreign = reasonrag(*asked, "--corpus", "corpus.jsonl", "--retriever", "dense", "--index", "vectors")
    assert (foreign.status, f"vectors is the index of {other}" in foreign.err) == (2, True)
    twice = reasonrag(*asked, "--index", "words", "--index", "other-words")
    assert twice.status == 2
    assert "words (bm25) and other-words (bm25), and what is searched is one index of bm25" in twice.err
    wrong = reasonrag(*asked, "--retriever", "dense", "--index", "words")
    assert wrong.status == 2
    assert "--index was given words (bm25), and what is searched is one index of dense" in wrong.err
    encoder = reasonrag(*asked, "--index", "vectors", "--encoder", "hashing-32")
    assert (encoder.status, "the same query gets another vector (cosine 0.000)" in encoder.err) == (2, True)


@pytest.mark.usefixtures("world")
def test_an_index_alone_says_how_it_is_searched(reasonrag: Reasonrag) -> None:
    """--index of a dense index needs no --retriever, and no --corpus."""
    reasonrag("index", "build", "--corpus", "corpus.jsonl", "--encoder", "hashing", "--out", "vectors")
    done = reasonrag(*GENERATE, "--questions", "questions.jsonl", "--index", "vectors", "--run", "runs/a")
    assert done.status == 0, done.err
    assert identity("runs/a").startswith("dense:")
    hybrid = reasonrag(
        *GENERATE, "--questions", "questions.jsonl", "--index", "vectors", "--retriever", "hybrid", "--run", "runs/b"
    )
    assert hybrid.status == 0, hybrid.err
    assert identity("runs/b").startswith("rrf:")


@pytest.mark.usefixtures("world")
def test_a_run_does_not_encode_a_changed_corpus_again_by_itself(reasonrag: Reasonrag) -> None:
    """What took hours is given up by the user alone, who is told how."""
    flags = (*GENERATE, *OWN, "--retriever", "dense", "--encoder", "hashing")
    assert reasonrag(*flags, "--run", "runs/a").status == 0
    append_a_passage(Path("corpus.jsonl"))
    refused = reasonrag(*flags, "--run", "runs/b")
    assert refused.status == 2
    assert "by --corpus if it was moved, or build the index again: delete the index and run" in refused.err


# -- index commands --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("world")
def test_an_index_is_built_described_and_checked(reasonrag: Reasonrag) -> None:
    """`info` says what `build` did; `check` that it still is so."""
    built = reasonrag(
        "index", "build", "--corpus", "corpus.jsonl", "--encoder", "hashing", "--out", "ix", "--type", "sq8"
    )
    assert built.status == 0, built.err
    assert "wrote ix (6 passages)" in built.out
    words = reasonrag("index", "build", "--corpus", "corpus.jsonl", "--out", "words", "--json")
    assert json.loads(words.out) == json.loads(reasonrag("index", "check", "words", "--json").out)["manifest"]
    manifest = json.loads(reasonrag("index", "check", "ix", "--json").out)["manifest"]
    assert (manifest["kind"], manifest["passages"], manifest["searched"]) == ("dense", 6, "sq8")
    checked = reasonrag("index", "check", "ix")
    assert checked.status == 0
    for word in ("hashing_SQ8.index", "dimension 256", "sq8 (searched)", "corpus.jsonl"):
        assert word in checked.out
    os.utime("corpus.jsonl", ns=(1, 1))
    assert reasonrag("index", "check", "ix").status == 0
    assert reasonrag(*GENERATE, "--questions", "questions.jsonl", "--index", "ix", "--run", "runs/a").status == 0
    Path("corpus.jsonl").write_bytes(Path("corpus.jsonl").read_bytes().replace(b"Oboe", b"Reed"))
    faulty = reasonrag("index", "check", "ix", "--json")
    assert faulty.status == 1
    assert [
        each.endswith("corpus.jsonl is not the one that was indexed") for each in json.loads(faulty.out)["faults"]
    ] == [True]


@pytest.mark.usefixtures("world")
def test_a_packed_corpus_is_searched_like_a_plain_one(reasonrag: Reasonrag) -> None:
    """The first command that needs it unpacks it below index_home; a named index is one of the unpacked file."""
    Path("corpus.jsonl.gz").write_bytes(gzip.compress(Path("corpus.jsonl").read_bytes()))
    built = reasonrag("index", "build", "--corpus", "corpus.jsonl.gz")
    assert built.status == 0, built.err
    packed = reasonrag(
        *GENERATE, "--questions", "questions.jsonl", "--corpus", "corpus.jsonl.gz", "--run", "runs/packed"
    )
    assert packed.status == 0, packed.err
    assert "building" not in packed.err
    assert reasonrag(*GENERATE, *OWN, "--run", "runs/plain").status == 0
    assert rollouts("runs/packed") == rollouts("runs/plain")
    reasonrag("index", "build", "--corpus", "corpus.jsonl.gz", "--encoder", "hashing", "--out", "ix")
    flags = ("--questions", "questions.jsonl", "--corpus", "corpus.jsonl.gz", "--index", "ix")
    assert reasonrag(*GENERATE, *flags, "--run", "runs/named").status == 0
    assert identity("runs/named").startswith("dense:")


def test_commands_without_an_index_say_how_to_get_one(reasonrag: Reasonrag) -> None:
    for command in (("index", "check", "nowhere"), ("index", "serve", "--index", "nowhere")):
        refused = reasonrag(*command)
        assert (refused.status, "Run: reasonrag index build" in refused.err) == (2, True)
    for flags in ((), ("--retriever", "http://127.0.0.1:9")):
        assert "give --index DIR of a built index" in reasonrag("index", "serve", *flags).err
