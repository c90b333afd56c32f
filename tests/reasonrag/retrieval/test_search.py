# ruff: noqa: RUF001 - other scripts are what is tested
"""`reasonrag search`, and what runs say of searches that found nothing, or only similar words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

import reasonrag
from preference import read_rollouts
from reasonrag.cli import run
from reasonrag.errors import InputError
from reasonrag.retrieval.index import SearchResult
from reasonrag.retrieval.opening import open_index
from tests.helpers.jsonl import write_passages, write_rows

PASSAGES = {
    "de": ("Entlassung", "Der Krankenhausentlassungsbericht wird am Tag der Entlassung an den Hausarzt gesendet."),
    "zh": ("故宫", "北京故宫位于北京市中心，建于1420年。"),
    "ja": ("富士山", "富士山は日本で一番高い山です。標高は3776メートルです。"),
    "ar": ("القاهرة", "القَاهِرَةُ هي عاصمة مصر وأكبر مدنها."),
}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Of four languages, in the folder where the command runs."""
    return write_passages(tmp_path / "corpus.jsonl", ((name, *passage) for name, passage in PASSAGES.items()))


@pytest.mark.parametrize(
    ("query", "found", "fallback", "token"),
    [
        ("Berichte über Entlassungen", "de", False, "entlass"),
        ("Krankenhausbericht", "de", True, "krankenhausentlassungsbericht"),
        ("故宫建于哪一年", "zh", False, "故宫"),
        ("富士山の標高", "ja", False, "標高"),
        ("ما هي عاصمة مصر؟", "ar", False, "عاصم"),
    ],
)
def test_a_search_says_what_it_found_and_by_which_words(
    query: str, found: str, fallback: bool, token: str, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a corpus, whose index is built, and then on that index; for people, and as JSON."""
    assert run(["search", str(corpus), query]) == 0
    shown = capsys.readouterr()
    assert "no index of" in shown.err
    assert PASSAGES[found][0] in shown.out
    assert ("similar to the query's words" in " ".join(shown.out.replace("│", "").split())) is fallback
    [index] = Path("indexes").glob("*-bm25-????????")
    assert run(["search", str(index), query, "--json", "--top-k", "1"]) == 0
    result = SearchResult.model_validate_json(capsys.readouterr().out)
    [passage] = result.passages
    assert (passage.id, passage.title, passage.snippet) == (found, *PASSAGES[found])
    assert (result.fallback, passage.fallback) == (fallback, fallback)
    assert token in result.tokens
    assert result.retriever == open_index(index).identity


@pytest.mark.parametrize(
    ("place", "query", "says"),
    [
        ("corpus.jsonl", " ", "the query is empty; give what to search for"),
        ("corpus.jsonl", 5, "the query is empty"),
        ("nowhere", "Bericht", "nowhere does not exist: give the folder of an index, or the JSONL file of a corpus"),
        (".", "Bericht", ". is no index: give the folder of an index"),
    ],
)
def test_what_cannot_be_searched_is_refused(place: str, query: Any, says: str, corpus: Path) -> None:
    with pytest.raises(InputError, match=says):
        reasonrag.search(place, query)
    for top_k in (0, 5000, "3", 2.5):
        with pytest.raises(InputError, match=r"top_k is .*; a search gives 1 to 1,000 passages"):
            reasonrag.search(corpus, "Bericht", top_k=top_k)


def test_what_finds_nothing_is_said(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["search", str(corpus), "🎸🥁"]) == 0
    assert "nothing found" in capsys.readouterr().out


def test_a_language_is_recorded_and_another_is_refused(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`index build` prints the languages; one that is given decides, also for what `corpus build` wrote beside it."""
    assert run(["index", "build", "--corpus", str(corpus)]) == 0
    assert "(analyser 2)" in capsys.readouterr().out
    assert run(["search", str(corpus), "Entlassung", "--language", "de"]) == 2
    assert "--language de" in " ".join(capsys.readouterr().err.split())
    assert run(["index", "build", "--corpus", str(corpus), "--language", "de"]) == 0
    assert reasonrag.search(corpus, "Entlassung", language="de").retriever.endswith(":analyser=2:de")
    assert run(["search", str(corpus), "Entlassung", "--language", "german"]) == 2


def test_a_corpus_that_was_built_of_documents_brings_its_language(capsys: pytest.CaptureFixture[str]) -> None:
    Path("pages").mkdir()
    Path("pages/a.md").write_text(f"# Seite\n\n{PASSAGES['de'][1]}\n", "utf-8")
    for flags, languages in (([], ["de"]), (["--language", "nl", "--language", "en"], ["nl", "en"])):
        assert run(["corpus", "build", "pages", "--out", "pages.jsonl", *flags]) == 0
        assert ", ".join(languages) in capsys.readouterr().out
        assert orjson.loads(Path("pages.summary.json").read_bytes())["languages"] == languages
        _, manifest = reasonrag.index_build(corpus="pages.jsonl")
        assert list(manifest.languages) == languages


def explored(corpus: Path, questions: list[str], **flags: Any) -> Any:
    rows = [{"id": str(n), "question": each, "golden_answers": ["Hausarzt"]} for n, each in enumerate(questions)]
    write_rows(Path("questions.jsonl"), rows)
    return reasonrag.generate(questions="questions.jsonl", corpus=corpus, model="offline", **flags)


def test_a_read_step_says_that_its_passages_are_of_similar_words(corpus: Path) -> None:
    """The same bytes at any concurrency; passages of the query's own words say nothing."""
    questions = ["Krankenhausbericht", "Wohin wird der Bericht am Tag der Entlassung gesendet?"]
    for run_name, at_once in (("one", 1), ("eight", 8)):
        explored(corpus, questions, run=f"runs/{run_name}", concurrency=at_once)
    assert Path("runs/one/rollouts.jsonl").read_bytes() == Path("runs/eight/rollouts.jsonl").read_bytes()
    similar, own = (
        {each.fallback for node in tree.nodes for each in node.passages or ()}
        for tree in read_rollouts(Path("runs/one/rollouts.jsonl"))
    )
    assert True in similar
    assert False in own
    assert b'"fallback":false' not in Path("runs/one/rollouts.jsonl").read_bytes()


@pytest.mark.parametrize(("empty", "warned"), [(0, False), (1, False), (5, True)])
def test_many_searches_that_find_nothing_are_warned_of(
    empty: int, warned: bool, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """More than a tenth of the searches: of the rehearsal before a run, and after it of the run."""
    questions = [f"Wohin wird Bericht {n} am Tag der Entlassung gesendet?" for n in range(10 - empty)]
    questions += [f"Xylophonwürmer {'ÿ' * n}" for n in range(empty)]
    summary = explored(corpus, questions, run="runs/some")
    assert summary.searches > summary.empty_searches
    many = summary.empty_searches > 0.1 * summary.searches  # the offline teacher has queries of its own
    assert many or not warned
    assert any("searches found nothing" in each for each in summary.warnings) is many
    flags = ["--questions", "questions.jsonl", "--corpus", str(corpus), "--model", "offline", "--run", "runs/new"]
    assert run(["generate", *flags, "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert ("rehearsed searches found nothing" in said) is many
