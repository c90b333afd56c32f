"""When two questions are the same: a table for each rule, near-misses, and laws."""

from __future__ import annotations

import string
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.curation.question_matching import QuestionIndex, Rule

Asked = tuple[str, Sequence[str]]


def rule(one: Asked, other: Asked) -> Rule | None:
    """The rule by which the other question is the first one; the same whichever of them is held."""
    found = []
    for held, asked in ((one, other), (other, one)):
        questions = QuestionIndex()
        questions.add(*held)
        found.append(questions.same_as(*asked).get(0, (None, 0.0)))
    assert found[0] == found[1]
    return found[0][0]


SAME_BY: dict[Rule | None, list[tuple[str, str, list[str], list[str]]]] = {
    # equal after SQuAD normalisation, whatever the golden answers say
    "question": [
        ("Who was the director of Up!?", "who was director of up", ["this"], ["that"]),
        ("  What is the capital\tof Chad? ", "What is the capital of Chad", ["this"], ["that"]),
        ("Is A Beautiful Mind a film?", "is beautiful mind film", ["this"], ["that"]),
    ],
    # telling words agree, and most others
    "near_duplicate": [
        ("Who directed Pelé\u2019s film?", "Who directed Pele film?", ["x y"], ["x"]),
        ("Which film did Ada Byron make?", "What film did Ada Byron make?", [], []),
        ("If Gallu is a demon Lilu is what?", "What is Lilu, if Gallu is a demon?", ["a spirit"], ["spirit"]),
        ("who plays jacob black in twilight?", "Who played Jacob Black in Twilight?", ["T L"], ["T L"]),
        (
            "When did the first large winter carnival take place in the city where CIMI-FM is licensed to broadcast?",
            "When did the first large winter carnival take place in the city where CIMI-FM is licensed?",
            ["1894"],
            ["1894"],
        ),
        (
            "According to the 2010 census, how many people live in the old town of Ystad in Skåne county today?",
            "According to the 2010 census how many people do live in the old town of Ystad in Skåne county today?",
            [],
            ["18,350"],
        ),
    ],
    # near-misses of all rules: what tells them apart is one word, or that the answers contradict each other
    None: [
        ("Who directed Jaws?", "Who directed Alien?", [], []),
        ("Who directed Jaws?", "Who directed Alien?", ["Ann Lee"], ["Ann Lee"]),
        ("who directed jaws", "who directed alien", ["ann lee"], ["ann lee"]),
        ("Who won the World Series in 2016?", "Who won the World Series in 2017?", ["Cubs"], ["Cubs"]),
        ("Who is the mother of Henry of England?", "Who is Henry I Of England's mother?", [], []),
        ("Which towns in Norway have an airport?", "Which towns in Norway have no airport?", ["Ås"], ["Ås"]),
        ("Where did the painter Ann Lee die?", "When did the painter Ann Lee die?", ["Rome"], ["1901"]),
        ("Where did the painter Ann Lee die?", "When did the painter Ann Lee die?", [], []),
        ("When did the developer of iFrame found it?", "When did the developer of iWork found it?", ["1976"], ["1976"]),
        ("What is Delhi the capital of?", "What is the capital of Delhi?", ["Sur Empire"], ["New City"]),
        ("Who was the director of The Sea?", "Who was the director of By the Sea?", [], []),
        ("Who was the screenwriter for Désiré?", "Who was the screenwriter for Desire?", ["S. Guitry"], ["E. Mayer"]),
        ("Are Ann Lee and Bo Ek both painters?", "Were Ann Lee and Bo Ek both sailors?", ["yes"], ["yes"]),
    ],
}


@pytest.mark.parametrize(
    ("by", "one", "other", "answers", "others"), [(by, *row) for by, table in SAME_BY.items() for row in table]
)
def test_a_question_is_the_same_by_a_rule_or_another_one(
    by: Rule | None, one: str, other: str, answers: list[str], others: list[str]
) -> None:
    """Case, punctuation, articles, spaces and some other words make no other question; another name, year, negation or
    question word does."""
    assert rule((one, answers), (other, others)) == by


FOUR = "Which drug helps? Options: (A) Heparin (B) Aspirin (C) Iron (D) Zinc"


@pytest.mark.parametrize(
    ("other", "others", "expected"),
    [
        ("Which drug helps? Options: (A) Zinc (B) Iron (C) Aspirin (D) Heparin (E) Vitamin C", ["Aspirin"], True),
        ("which drug helps", ["aspirin"], True),
        ("Which drug helps?", ["low-dose aspirin"], True),
        ("Which drug helps?", [], True),
        ("Which drug helps? Options: (A) Heparin (B) Iron", ["Heparin"], False),
        ("Which drug harms? Options: (A) Heparin (B) Aspirin (C) Iron (D) Zinc", ["Zinc"], False),
    ],
)
def test_a_multiple_choice_is_found_with_other_options_and_without(
    other: str, others: list[str], expected: bool
) -> None:
    """As MedQA has four and five of them. A question such as `which is true?` with another answer is another one."""
    assert (rule((FOUR, ["Aspirin"]), (other, others)) == "near_duplicate") is expected


@pytest.mark.parametrize(
    ("one", "other", "answer", "expected"),
    [
        (
            "What year was the inventor of Rejuvelac born?",
            "Rejuvelac is a kind of grain water invented by a practitioner born in which year?",
            "1909",
            "answer_and_entities",
        ),
        # a coincidence of one name and a common answer
        (
            "In what country is Peterson?",
            "What notes are issued by the controller of monetary policy where Peterson is the top authority?",
            "America",
            None,
        ),
        ("Is Ann Lee older than Bo Ek?", "Did Bo Ek paint more than Ann Lee?", "yes", None),
        ("Which is longer, the Odra or the Elbe?", "Which rises further south, the Elbe or the Odra?", "Odra", None),
        ("Which river is longest?", "Where is the deepest valley?", "Orinoco", None),
    ],
)
def test_the_same_names_and_the_same_telling_answer_are_the_same_fact(
    one: str, other: str, answer: str, expected: Rule | None
) -> None:
    """Rule answer_and_entities: some of them names; an answer that is yes, one digit, or a choice tells nothing. Each
    of several golden answers counts, as data sets differ in the aliases they list."""
    assert rule((one, [answer, "an alias"]), (other, ["another", answer.upper()])) == expected


@pytest.mark.parametrize("question", ["\t\u2003", "?", "the", "谁写的\uff1f", "\u202e\x1b[31m?", "a" * 300_000 + " b"])
def test_any_text_but_a_blank_one_is_the_same_as_itself(question: str) -> None:
    """One word, none, other scripts, control characters, a text that is far too long."""
    assert rule((question, []), (question, [])) == ("question" if question.strip() else None)


words = st.lists(st.text(st.sampled_from("abcdzABCXYZéñ019中"), min_size=1, max_size=6), min_size=1, max_size=9)


@given(words, st.randoms(use_true_random=False), st.lists(st.sampled_from(["Ada", "7", "yes"])))
def test_a_question_is_always_itself_under_case_punctuation_articles_and_spaces(
    spelled: list[str], random: object, answers: list[str]
) -> None:
    """The law that the first two rules rest on."""
    choose = random.choice  # type: ignore[attr-defined]
    other = " ".join(choose([str.lower, str.upper, str.title, str])(each) for each in spelled)
    other = "".join(each + choose(["", *string.punctuation]) for each in other)
    other = f"{choose(['', 'The ', 'a '])}{other.replace(' ', choose(['  ', chr(10), ' an ']))}"
    assert rule((" ".join(spelled), answers), (other, [])) is not None


@given(st.lists(words, min_size=1, max_size=12), words)
def test_what_is_found_does_not_depend_on_what_else_is_held(held: list[list[str]], asked: list[str]) -> None:
    """The index is exact: it finds what comparing one with one finds."""
    together = QuestionIndex()
    for each in held:
        together.add(" ".join(each), ["gold"])
    alone = {}
    for number, each in enumerate(held):
        single = QuestionIndex()
        single.add(" ".join(each), ["gold"])
        if found := single.same_as(" ".join(asked), ["Gold"]):
            alone[number] = found[0]
    assert together.same_as(" ".join(asked), ["Gold"]) == alone
