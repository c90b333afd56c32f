"""Passages that came with questions, in the forms in which data sets give them, and the corpora made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.data.corpus import Corpus, Passage, scan_corpus
from reasonrag.data.dataset_fields import passages_with
from reasonrag.data.datasets import corpus_of_contexts
from reasonrag.data.questions import QuestionFile, open_questions
from reasonrag.errors import InputError
from tests.helpers.jsonl import write_rows

HOTPOT = {"title": ["Ada", "Bee"], "sentences": [["She wrote.", " A lot. "], ["It flies."]]}
TWO = [("Ada", "She wrote. A lot."), ("Bee", "It flies.")]


def asked(folder: Path, name: str, *contexts: dict[str, Any]) -> QuestionFile:
    """A question file of a data set, with these fields in the metadata of its questions."""
    rows = (
        {"id": f"q{number}", "question": "Who?", "golden_answers": ["Ada"], "metadata": each}
        for number, each in enumerate(contexts)
    )
    path = write_rows(folder / name / "train.jsonl", rows)
    return open_questions(path, dataset=name, split="train")


def passages(corpus: Path) -> list[Passage]:
    return list(Corpus(corpus, scan_corpus(corpus).offsets))


@pytest.mark.parametrize(
    "fields",
    [
        {"context": HOTPOT},
        {"context": {"title": ["Ada", "Bee"], "content": [["She wrote.", "A lot."], "It  flies."]}},
        {"context": [["Ada", ["She wrote.", "A lot."]], ["Bee", ["It flies."]]]},
        {"paragraphs": [{"title": t, "paragraph_text": text, "is_supporting": True} for t, text in TWO]},
    ],
)
def test_every_known_form_is_read(fields: dict[str, Any]) -> None:
    """HotpotQA's, 2Wiki's two and MuSiQue's, at the top of the record or in its metadata."""
    assert list(passages_with(fields)) == list(passages_with({"metadata": fields})) == TWO


ANYTHING = st.recursive(
    st.none() | st.text(max_size=3) | st.integers(0, 2),
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(st.sampled_from(["title", "sentences", "content", "paragraph_text", "context"]), each)
    ),
    max_leaves=8,
)


@given(ANYTHING, ANYTHING)
def test_metadata_of_any_other_form_hold_no_passage_and_do_no_harm(context: object, paragraphs: object) -> None:
    """What is found is a title and a text on one line, never blank."""
    for record in (context, {"context": context, "metadata": {"context": paragraphs, "paragraphs": paragraphs}}):
        assert all(text == " ".join(text.split()) != "" for _, text in passages_with(record))


def test_a_corpus_is_the_union_of_all_questions_and_written_once(tmp_path: Path) -> None:
    """A passage that came with several questions is there once. The second time nothing is written; other questions
    have another corpus."""
    said: list[str] = []
    file = asked(tmp_path, "hotpotqa", {"context": HOTPOT}, {"context": HOTPOT}, {"context": [["Cat", ["Sleeps."]]]})
    first = corpus_of_contexts(file, tmp_path / "indexes", say=said.append)
    assert [(each.id, each.title, each.text) for each in passages(first)] == [
        ("hotpotqa_0", *TWO[0]),
        ("hotpotqa_1", *TWO[1]),
        ("hotpotqa_2", "Cat", "Sleeps."),
    ]
    assert "distractor setting: searching the passages that came with the questions of hotpotqa/train" in said[-1]
    before = first.stat().st_mtime_ns
    assert corpus_of_contexts(file, tmp_path / "indexes", say=said.append) == first
    assert (first.stat().st_mtime_ns, said[-1]) == (before, said[-2])
    other = asked(tmp_path / "other", "hotpotqa", {"context": HOTPOT})
    assert corpus_of_contexts(other, tmp_path / "indexes", say=said.append) != first
    (first.parent / "source.json").unlink()  # as a killed command leaves it
    assert len(passages(corpus_of_contexts(file, tmp_path / "indexes", say=said.append))) == 3


def test_questions_without_passages_name_the_other_ways(tmp_path: Path) -> None:
    """Nothing is left behind."""
    file = asked(tmp_path, "popqa", {"subj": "Ada"})
    with pytest.raises(InputError, match=r"^popqa/train needs passages.*--corpus wiki-18.*--corpus FILE.*--index DIR"):
        corpus_of_contexts(file, tmp_path / "indexes", say=lambda _: None)
    assert not (tmp_path / "indexes").exists()
