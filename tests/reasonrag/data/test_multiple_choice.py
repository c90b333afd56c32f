"""Multiple choice: how options are read and shown, and which of them an answer names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.data.multiple_choice import choice_accuracy, named_options, options_of
from reasonrag.data.questions import Question, open_questions, parse_question
from reasonrag.errors import InputError
from tests.helpers.jsonl import write_rows

DRUGS = ["Heparin", "Aspirin", "Warfarin", "Aspirin and clopidogrel"]
ASKED = "Which drug? Options: (A) Heparin (B) Aspirin (C) Warfarin (D) Aspirin and clopidogrel"
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]) | st.sampled_from(list("(A) B:\n")))
CHOICES = st.lists(TEXTS.filter(str.strip), min_size=2, max_size=26, unique_by=lambda each: "".join(each.split()))


def question(**fields: Any) -> Question:
    return parse_question(orjson.dumps({"id": "a", "question": "Which drug?"} | fields), where="here")


@pytest.mark.parametrize("answers", [["Aspirin"], ["B"], [1], ["b"], [" aspirin "]])
@pytest.mark.parametrize("choices", [DRUGS, dict(zip("DABC", [DRUGS[3], *DRUGS[:3]], strict=True))])
def test_every_form_of_options_and_gold_answers_is_the_same_question(choices: Any, answers: list[Any]) -> None:
    """In the metadata, or beside them as FlashRAG and MedQA have it; a letter, a position or the text is right."""
    inside = question(golden_answers=answers, metadata={"choices": choices})
    for name in ("choices", "options"):
        beside = question(golden_answers=answers, **{name: choices})
        assert (inside.question, inside.golden_answers) == (beside.question, beside.golden_answers)
    assert (inside.question, inside.golden_answers) == (ASKED, ["Aspirin"])
    again = Question.model_validate(inside.model_dump())
    assert again == inside
    assert options_of(inside.question) == DRUGS


@given(texts=CHOICES, stem=TEXTS.filter(str.strip), right=st.integers(0, 25))
def test_options_are_read_back_from_what_was_asked(texts: list[str], stem: str, right: int) -> None:
    """Whatever they and the question say, be it the mark of another option; so records need no field for them."""
    right %= len(texts)
    try:
        asked = question(question=stem, golden_answers=[right], choices=texts)
    except InputError as error:
        assert "is given twice" in str(error)  # noqa: PT017 - of a text and its harmless form
        return
    assert asked.question.startswith(stem.rstrip())
    assert len(options_of(asked.question)) == len(texts)
    letters = [chr(ord("A") + place) for place in range(len(texts))]
    scores = [choice_accuracy(asked.question, asked.golden_answers, f"({each})") for each in letters]
    assert scores == [float(place == right) for place in range(len(texts))]
    assert "\n" not in asked.question[len(stem.rstrip()) :]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("Which drug?", []),
        ("Which drug? Options: (A) Heparin", []),
        ("Which drug? Options: (A) Heparin (C) Aspirin", []),
        ("Options: (A) x (B) y Which? Options: (A) Heparin (B) Aspirin", ["Heparin", "Aspirin"]),
    ],
)
def test_only_a_list_of_options_is_one(text: str, options: list[str]) -> None:
    """At least two, lettered from A."""
    assert options_of(text) == options
    assert choice_accuracy(text, ["nothing of it"], "A") is None


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        *((each, "B") for each in ("B", "b", "(B)", "B.", "**B**", "Option B", "the answer is B.", "Answer: B")),
        *((each, "B") for each in ("B: aspirin", "B) Aspirin", "B. aspirin", "B - aspirin", "aspirin (B)")),
        *(
            (each, "B")
            for each in ("Aspirin", "the aspirin!", "low-dose aspirin", "It is B, for platelets", "I pick (B)")
        ),
        ("aspirin and clopidogrel", "D"),  # the longest text counts, not what is in it
        ("D: aspirin and clopidogrel", "D"),
        ("A heparin", "A"),
        ("A or B", "AB"),
        ("aspirin, not heparin", "AB"),
        ("B: heparin", "AB"),
        ("E", ""),
        (r"\boxed{\text{B}}", "B"),
        ("both B and C", "BC"),
        ("It is B because heparin bleeds", "AB"),
        ("aspirins", ""),
        ("", ""),
    ],
)
def test_an_answer_names_options_by_letter_or_by_text(answer: str, named: str) -> None:
    """It is right if it names the right one and no other."""
    assert named_options(answer, DRUGS) == {"ABCD".index(each) for each in named}
    assert choice_accuracy(ASKED, ["Aspirin"], answer) == float(named == "B")


@pytest.mark.parametrize(
    ("answer", "options", "named"),
    [
        ("AB", ["A", "B", "AB", "O"], {2}),
        ("B", ["A", "O", "AB", "B"], {1}),  # a letter alone is a letter
        ("-5", ["5", "-5"], {1}),  # normalisation would not tell them apart
        ("it is -5", ["5", "-5"], {0, 1}),
        ("+", ["-", "+"], {1}),
        ("aA", ["AA", "aA", "aa"], {1}),
        ("E. coli infection", ["E. coli", "S. aureus", "a virus", "a fungus", "a prion"], {0}),
        ("vitamin (C)", ["vitamin [A]", "vitamin [B]", "vitamin [C]"], {2}),
    ],
)
def test_awkward_options_are_told_apart_where_they_can_be(answer: str, options: list[str], named: set[int]) -> None:
    """Letters, signs and case are texts too."""
    assert named_options(answer, options) == named


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"choices": ["one"]}, "there must be 2 to 26 options, not 1; add, or leave choices out"),
        ({"choices": ["one", "one "]}, "the option 'one' is given twice"),
        ({"choices": ["one", 2]}, "option 2 is 2, not a text; write it in quotation marks"),
        ({"choices": "one or two"}, "must be a list of texts, or a mapping of the letters A, B, .. to texts"),
        ({"choices": {"A": "one", "C": "two"}}, "a mapping needs the keys A, B, .. without a gap, not A, C"),
        ({"choices": ["one", "two"], "golden_answers": ["three"]}, "'three' is none of the choices; write an option's"),
        ({"choices": ["one", "two"], "golden_answers": [True]}, "True is none of the choices"),
        ({"choices": ["one", "two"], "golden_answers": [2]}, r"\[2\] are positions in choices, which has only 2"),
        ({"options": {"A": "one", "C": "two"}, "golden_answers": ["C"]}, "options: a mapping needs the keys A, B"),
        ({"choices": ["B", "A"], "golden_answers": ["A"]}, "'A' names several of the choices"),
        ({"choices": ["5", "-5"], "golden_answers": ["5."]}, "'5.' names several of the choices"),
    ],
)
def test_malformed_options_are_refused_with_file_and_line(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    """Before any work starts, and with what to do."""
    fields = {"golden_answers": ["one"]} | fields
    lines = [{"id": "a", "question": "Which?", "golden_answers": ["x"]}]
    metadata = {each: fields.pop(each) for each in ("choices", "options") if each in fields}
    lines.append({"id": "b", "question": "Which?", **fields, "metadata": metadata})
    path = write_rows(tmp_path / "dev.jsonl", lines)
    with pytest.raises(
        InputError, match=rf"dev\.jsonl, line 2 is not a question \((choices: |golden_answers:? )?{message}"
    ):
        open_questions(path, dataset="own", split="dev")
