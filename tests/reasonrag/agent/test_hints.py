"""What a hint may name, and when a step names what its path has not shown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import normalize_answer
from reasonrag.agent.agent import State
from reasonrag.agent.hints import SUB_QUESTIONS, names_unseen, shown_in, sub_questions, titles_to_hint
from reasonrag.data.corpus import Passage
from reasonrag.data.questions import Question


def state(question: str = "Who directed Casablanca?", golden: str = "Michael Curtiz", **fields: Any) -> State:
    """golden: "" for no gold answer."""
    titles = fields.pop("titles", ["Casablanca (film)", "Michael Curtiz", "Warner Bros."])
    asked = Question(
        id="q", question=question, golden_answers=[golden] if golden else [], metadata={"gold_titles": titles}
    )
    return State(asked, "think", 0, **fields)


def passage(title: str, text: str = "") -> Passage:
    return Passage(id=title, title=title, text=text)


# -- what a hint may name ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "titles"),
    [
        (state(), ("Casablanca (film)",)),
        (state("Who directed the film?"), ()),
        (state("Who directed casablancas?"), ()),
        (state(thoughts=("<evidence>A film by Warner Bros, 1942.</evidence>",)), ("Casablanca (film)", "Warner Bros.")),
        (state(read=(passage("Hollywood", "Its Warner Bros. made it."),)), ("Casablanca (film)", "Warner Bros.")),
        (state(read=(passage("casablanca  (film)"),)), ()),
        (state(thoughts=("Michael Curtiz?",)), ()),
        (state(golden=""), ()),
        (state("Is Amélie or Casablanca older?", "Amelie", titles=["Amélie", "Casablanca (film)"]), ()),
        (state("Did J. K. Rowling write It?", "J.K. Rowling", titles=["J. K. Rowling", "It (novel)"]), ()),
        (state("See J. K. Rowling books", "J.K. Rowling", titles=["J. K. Rowling books"]), ()),
        (state("《苏西传》的主角是谁", "苏西", titles=["《苏西传》的主角是谁"]), ()),
        (state("Did Stephen King write Carrie?", "Stephen Edwin King", titles=["Stephen King", "Carrie"]), ()),
        (
            state("Did Stephen King write Carrie?", "1974", titles=["Stephen King", "Carrie"]),
            ("Stephen King", "Carrie"),
        ),
        (state("Is Amelie older?", "2001", titles=["Amélie"]), ("Amélie",)),
        (state(golden="a short film"), ("Casablanca (film)",)),
        (state(golden="the Casablanca"), ()),
        (state(golden="Casablanca, Morocco"), ()),
        (state(titles=["Casablanca (film)", "Who", "!?"]), ("Casablanca (film)", "Who")),
        (state(titles=None), ()),
    ],
    ids=[
        "named but for its brackets",
        "not named",
        "part of a word",
        "in a thought",
        "in a passage read",
        "was read",
        "by elimination",
        "no gold answer",
        "the answer without accents",
        "the answer with other blanks",
        "holds the answer with other blanks",
        "holds the answer in a script without capitals",
        "the answer's last word",
        "another answer",
        "named without accents",
        "only in brackets",
        "holds the answer",
        "within the answer",
        "nothing but signs",
        "no gold titles",
    ],
)
def test_a_title_is_named_if_the_path_names_it_and_has_not_read_it_and_it_is_no_answer(
    of: State, titles: tuple[str, ...]
) -> None:
    assert titles_to_hint(of) == titles


WORDS = st.lists(st.sampled_from(["Ada", "Zola", "the", "Paris", "(film)", "No", "1942", "Émile", "-"]), max_size=4)
TEXTS = WORDS.map(" ".join)


@given(question=TEXTS, golden=st.lists(TEXTS, min_size=1, max_size=3), titles=st.lists(TEXTS, max_size=4), read=TEXTS)
def test_no_gold_answer_or_alias_is_ever_in_a_hint(
    question: str, golden: list[str], titles: list[str], read: str
) -> None:
    """Whatever the question, its titles and what was read: no hint holds one or stands in one."""
    asked = Question(id="q", question=f"Q {question}", golden_answers=golden, metadata={"gold_titles": titles})
    hints = titles_to_hint(State(asked, "think", 0, read=(passage("Other", read),)))
    for said in (normalize_answer(each).replace("é", "e") for each in hints):
        assert f" {said} " in shown_in(State(asked, "think", 0, read=(passage("Other", read),))) or "film" in said
        for answer in filter(None, (normalize_answer(each).replace("é", "e") for each in golden)):
            assert f" {answer} " not in f" {said} "
            assert f" {said} " not in f" {answer} "


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ("<subquestion>Who?</subquestion>\n<subquestion> Where  was it? </subquestion>", ("Who?", "Where was it?")),
        ("<subquestion>Who?</subquestion><subquestion>Who?</subquestion>", ("Who?",)),
        ("Who? Where?", ()),
        ("<subquestion>what to look up</subquestion><subquestion></subquestion>", ()),
        (f"<subquestion>{'a' * 999}</subquestion><subquestion>Who?", ()),
        ("".join(f"<subquestion>{each}</subquestion>" for each in range(20)), tuple(map(str, range(SUB_QUESTIONS)))),
    ],
)
def test_sub_questions_are_read_each_once_and_not_without_end(reply: str, found: tuple[str, ...]) -> None:
    assert sub_questions(reply) == found


# -- what a step names ---------------------------------------------------------------------------------------------

SEEN = state(
    "Who directed Casablanca in 1942?",
    thoughts=("<evidence>Michael Jordan met Samuel Jackson at the University of Oxford.</evidence>",),
    read=(passage("Warner Bros.", "Jean-Luc O'Brien worked there."),),
)


@pytest.mark.parametrize(
    ("said", "unseen"),
    [
        ("So the next query is <query>director of Casablanca</query>", False),
        ("<query>Casablanca</query>", False),
        ("<query>casablanca's director in 1942</query>", False),
        ("<query>Casablanca's director</query>", False),
        ("<query>Michael Curtiz</query>", True),
        ("<query>director of Casablanca in 1943</query>", True),
        ("<query>Casablanca Warner Bros</query>", False),
        ("<query>Michael Jordan Samuel Jackson meeting</query>", False),
        ("<query>Michael Jackson</query>", True),
        ("<query>University of Oxford</query>", False),
        ("<query>Jean-Luc O'Brien</query>", False),
        ("<query>Curtiz</query>", True),
        ("<query>Who directed it</query>", False),
        ("Casablanca was directed by Curtiz. So the next query is <query>the director's wife</query>", True),
        ("Nothing is known. The next query is <query>the film</query>", False),
        ("So the answer is <answer>Michael Jordan</answer>", False),
        ("So the answer is <answer>ICAO</answer>", True),
        ("", False),
    ],
)
def test_a_step_names_something_unseen_if_a_name_or_number_stands_nowhere_on_its_path(said: str, unseen: bool) -> None:
    assert names_unseen(said, SEEN) is unseen


ABOUT = ["Titanic (1997 film)", "James Cameron"]


@pytest.mark.parametrize(
    ("query", "of", "unseen"),
    [
        ("who is james cameron's wife", state("who directed titanic", "Suzy Amis", titles=ABOUT), True),
        ("who is suzy married to", state("who directed titanic", "Suzy Amis", titles=ABOUT), True),
        ("who directed the film titanic", state("who directed titanic", "Suzy Amis", titles=ABOUT), False),
        ("the director's wife", state("who directed titanic", "Suzy Amis", titles=ABOUT), False),
        ("wife of the author", state("who wrote it", "The Lord of the Isles", titles=[]), False),
        ("james cameron wife", state("who?", "x", titles=ABOUT, read=(passage("James Cameron"),)), False),
        ("卡梅隆的妻子是谁", state("泰坦尼克号的导演的妻子是谁", "苏西", titles=["詹姆斯·卡梅隆"]), True),
        ("导演的妻子是谁", state("泰坦尼克号的导演的妻子是谁", "苏西", titles=["詹姆斯·卡梅隆"]), False),
    ],
    ids=["title", "answer", "brackets", "neither", "small words", "was read", "without capitals", "nothing guessed"],
)
def test_a_query_names_something_unseen_if_it_has_a_word_of_a_gold_title_or_answer_in_any_case(
    query: str, of: State, unseen: bool
) -> None:
    assert names_unseen(f"So the next query is <query>{query}</query>", of) is unseen
    assert not names_unseen(f"{query}. So the next query is <query>it</query>", of)


@given(text=st.text(), words=TEXTS)
def test_what_was_said_before_is_never_unseen(text: str, words: str) -> None:
    """Names in it, that is: a text that stands in a thought names nothing else. Any text gets a verdict."""
    assert not names_unseen(f"<query>{words}</query>", state(thoughts=(words,)))
    assert names_unseen(text, SEEN) in (True, False)
