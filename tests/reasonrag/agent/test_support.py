"""Which answers the reported evidence supports, though it may not contain them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reasonrag.agent.support import LONGEST_PIECE, MOST_PIECES, is_in_evidence, is_supported
from reasonrag.data.corpus import Passage

NATIONALITY = "Were Scott Derrickson and Ed Wood of the same nationality?"
SCOTT, WOOD = "Scott Derrickson (born July 16, 1966) is an American director.", "Ed Wood was an American filmmaker."


@pytest.mark.parametrize(
    ("question", "evidence", "held"),
    [
        (NATIONALITY, [SCOTT, WOOD], True),
        (NATIONALITY, ["Derrickson is American.", "None", "Wood was American."], True),  # last names tell them apart
        (NATIONALITY, ["Scott Derrickson and Ed Wood are American."], True),
        (NATIONALITY, [SCOTT], False),
        (NATIONALITY, ["Paris is in France."], False),
        (NATIONALITY, ["None"], False),
        ("Are Local H and For Against both from the US?", ["Local H is a band.", "For Against is one too."], True),
        ("Are Local H and For Against both from the US?", ["Local H is a band against war."], False),
        ("Does José Ortiz (actor) have the same nationality as Ann Bo?", ["Jose Luis Ortiz ..", "Ann Bo .."], True),
        ("Do director of film Kid-Ok and director of film The Feud (1919 film) agree?", ["Kid Ok", "The Feud"], True),
        ("Did Ann Hill and Bo Hill marry?", ["Hill was a singer."], False),  # one last name tells of neither
        ("Is Paris the capital of France?", ["Rome is in Italy."], None),  # no two things: no string tells
    ],
)
def test_a_verdict_on_two_things_needs_evidence_that_names_both(
    question: str, evidence: list[str], *, held: bool | None
) -> None:
    """Whether it is yes or no: the same evidence holds for both."""
    assert [is_supported(question, each, evidence) for each in ("yes", "No.")] == [held, held]


def test_evidence_names_what_the_title_of_its_passage_names() -> None:
    """A sentence need not repeat whom it is about; the title of a passage that it is not from says nothing."""
    passages = [Passage("1", "Ed Wood", "He was an American filmmaker."), Passage("2", "Rome", "It is in Italy.")]
    for told, held in (("He was an American filmmaker.", True), ("He was born in Rome.", False)):
        assert is_supported(NATIONALITY, "yes", [SCOTT, told], passages=passages) is held
        assert is_supported(NATIONALITY, "yes", [SCOTT, told]) is False


OLDER = "Who is older, Ann Moor or Bo Lind?"


@pytest.mark.parametrize(
    ("question", "answer", "evidence", "held"),
    [
        (OLDER, "Ann Moor", ["Ann Moor (born 1950) sings.", "Bo Lind was born in 1960."], True),
        (OLDER, "Bo Lind", ["Ann Moor (born 1950) sings.", "Bo Lind was born in 1960."], True),  # covered, not right
        (OLDER, "Moor", ["Ann Moor was older than Bo Lind."], True),
        (OLDER, "Ann Moor", ["Ann Moor was born in 1950 and died in 1990."], False),  # only one is named
        (OLDER, "Ann Moor", ["Ann Moor sings.", "Bo Lind sings."], False),  # nothing to compare them by
        ("Which is larger, Oslo or Bergen?", "Oslo", ["Oslo is a city.", "Bergen is a city."], True),
        ("Was Ann Moor or Bo Lind born first?", "Ann Moor", ["Ann Moor, 1950", "Bo Lind, 1960"], True),
        (
            "Which was published first, The Key and the Hours or The Harp and the Iron?",
            "The Key and the Hours",
            ["The Key and the Hours appeared in 1900 and 1901."],
            False,  # `and` in a title joins no alternatives
        ),
        ("Which band is Swedish, Abba or Queen?", "Abba", ["Abba is a Swedish band."], True),  # no order: one is enough
        ("What is the difference between both heights?", "25", ["Ann Peak is 120 m high.", "Bo Peak is 95 m."], True),
        ("How many years after Ann Moor was Bo Lind born?", "ten", ["Ann Moor, 1950", "Bo Lind, 1960"], True),
        ("How many years after Ann Moor was Bo Lind born?", "11", ["Ann Moor, 1950", "Bo Lind, 1960"], False),
        ("How many years after Ann Moor was Bo Lind born?", "10", ["Rome, 1950", "Oslo, 1960"], False),  # of others
        ("How many people live in Moor and Lind together?", "1,500", ["Moor has 1,200.", "Lind has 300."], True),
        ("How many people live in Moor?", "1,500", ["Moor has 1,200.", "Lind has 300."], False),  # no sum asked for
        ("How many members has Abba?", "four", ["The members of Abba are Agnetha, Björn, Benny and Frida."], True),
        ("How many members has Abba?", "5", ["The members of Abba are Agnetha, Björn, Benny and Frida."], False),
        ("Where did Ann Moor live?", "10", ["Ann Moor, 1950 to 1960"], False),  # no number asked for
    ],
)
def test_a_comparison_needs_evidence_on_both_alternatives_and_a_number_may_be_calculated(
    question: str, answer: str, evidence: list[str], *, held: bool
) -> None:
    """An alternative that is named alone was named by the question already. A number that was asked for may be a
    difference, a sum or a count, of numbers in evidence that names something of the question."""
    assert is_supported(question, answer, evidence) is held


@pytest.mark.parametrize(
    ("answer", "golden", "evidence", "held"),
    [
        ("Britain", ["UK", "United Kingdom"], "He lives in the United Kingdom.", False),  # not equal to a gold answer
        ("U.K.", ["UK", "United Kingdom"], "He lives in the United Kingdom.", True),
        ("United Kingdom", ["United Kingdom", "he"], "There he lives.", False),  # an alias too short to mean anything
        ("three", [], "It has 3 doors.", True),
        ("21 doors", [], "It has twenty-one doors.", True),
        ("March 12, 1990", [], "born 12 March 1990", True),
        ("12th of March 1990", [], "born 1990-03-12", True),
        ("March 1990", [], "born March 12, 1990", True),  # less precise
        ("12 March 1990", [], "born in March 1990", False),  # more precise
        ("12 March 1990", [], "born May 12, 1990", False),
        ("May 1990", [], "It began in \u017feptember 1990.", False),  # the long s is no s here
        ("John Kennedy", [], "It was John Fitzgerald Kennedy.", True),
        ("John F. Kennedy", [], "It was John Fitzgerald Kennedy.", True),
        ("J. Kennedy", [], "It was John Kennedy.", True),
        ("John G. Kennedy", [], "It was John Fitzgerald Kennedy.", False),
        ("Robert Kennedy", [], "It was John Fitzgerald Kennedy.", False),
        ("New York", [], "From new roads to York.", False),
    ],
)
def test_an_answer_may_stand_in_evidence_in_another_form(
    answer: str, golden: list[str], evidence: str, *, held: bool
) -> None:
    """An alias among the gold answers, numbers in words, dates, and names without middle names or with initials."""
    assert is_supported("Which is it?", answer, [evidence], golden) is held
    assert is_in_evidence(answer, [evidence]) is False


words = st.sampled_from("Ann Moor older first or and both , ? 1950 March 12 ten ( ) . - é".split())
texts = st.lists(words, max_size=12).map(" ".join) | st.text(max_size=40)


@given(question=texts, answer=texts, evidence=st.lists(texts, max_size=3), golden=st.lists(texts, max_size=2))
@example(question=OLDER, answer="Ann Moor", evidence=["a" * 10**6] * 50, golden=[])
@example(question="and " * 10**5, answer="yes", evidence=["A, " * 10**5, "1 " * 10**5], golden=[])
@example(question="How many years (" * 10**4, answer="7", evidence=["12 March " * 10**5], golden=[])
def test_any_text_has_a_verdict(question: str, answer: str, evidence: list[str], golden: list[str]) -> None:
    """Soon, however long it is; nothing follows from nothing, and only verdicts are ever left open."""
    held = is_supported(question, answer, evidence, golden)
    if held is None:
        assert is_in_evidence(answer, evidence) is None
    assert not is_supported(question, answer, [], golden)


def test_only_so_much_of_the_evidence_is_looked_at() -> None:
    """What stands beyond is found literally, as ever, and in no other form."""
    late = [" " * LONGEST_PIECE + "3 doors", *["Rome."] * MOST_PIECES]
    assert (is_supported("Which?", "3 doors", late), is_supported("Which?", "three doors", late)) == (True, False)
