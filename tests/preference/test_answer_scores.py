"""Answers against golden answers: SQuAD normalisation, EM, F1 with the yes/no rule, cover-EM."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import cover_em, exact_match, f1_score, normalize_answer, token_precision, token_recall
from preference.answer_scores import builder_f1, comparable, holds, label_cover_em, label_em, label_f1, prorag_f1

words = st.sampled_from(["the", "a", "Paris", "paris!", "in", "1974", "yes", "no", "noanswer", "São", "...", ""])
phrases = st.lists(words, max_size=6).map(" ".join) | st.text(max_size=20)
golds = st.lists(phrases, min_size=1, max_size=3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Eiffel Tower", "eiffel tower"),
        ("  U.S.  Ambassador ", "us ambassador"),
        ("an apple a day, the end", "apple day end"),
        ("Chief-of-Protocol", "chiefofprotocol"),  # punctuation goes without leaving a space
        ("t.he end", "end"),  # punctuation goes before articles
        ("İstanbul ÉCOLE", "i̇stanbul école"),
        ("1974–1976", "1974–1976"),  # noqa: RUF001  a dash that is not ASCII stays
        ("...", ""),
        ("", ""),
    ],
)
def test_answers_are_normalised_as_in_squad(text: str, expected: str) -> None:
    """Lower case, no ASCII punctuation, no English articles, single spaces."""
    assert normalize_answer(text) == expected


@pytest.mark.parametrize(
    ("answer", "golden_answers", "em", "f1", "covers"),
    [
        ("The Beatles band", ["The Beatles"], 0, 2 / 3, 1),
        ("NYC", ["New York", "nyc"], 1, 1, 1),
        ("ecole", ["école"], 0, 0, 0),  # accents are letters
        ("東京 都", ["東京"], 0, 2 / 3, 1),
        ("president Barack Obama of the US", ["Barack Obama"], 0, 4 / 7, 1),  # precision 2/5, recall 1
        ("Barack H. Obama", ["Barack Obama"], 0, 4 / 5, 0),  # words that are covered stand together
        ("Obamacare", ["Obama"], 0, 0, 0),  # whole words only
        ("New York New York", ["New York"], 0, 2 / 3, 1),  # repeated words count once each: precision 2/4, recall 1
        ("Paris", ["London", "Paris, France", "Paris"], 1, 1, 1),  # best over all golden answers
        ("Yes!", ["yes"], 1, 1, 1),
        ("yes", ["no"], 0, 0, 0),
        ("yes it is", ["yes"], 0, 0, 1),  # a verdict scores only whole
        ("noanswer", ["noanswer at all"], 0, 0, 0),
        ("yes sir", ["yes madam"], 0, 0.5, 0),  # neither side is a verdict by itself
        ("", ["Paris"], 0, 0, 0),
        ("Paris", [""], 0, 0, 0),  # nothing is covered by everything
        ("the", ["a"], 1, 0, 0),  # both normalise to nothing
        ("Paris", [], 0, 0, 0),
    ],
)
def test_an_answer_is_the_same_shares_words_or_holds_a_golden_answer(
    answer: str, golden_answers: list[str], em: float, f1: float, covers: float
) -> None:
    """All over normalised words: EM is equality; F1 is 2PR / (P + R), where yes, no and noanswer score only against
    themselves; cover-EM finds the words of a golden answer next to each other."""
    assert (exact_match(answer, golden_answers), cover_em(answer, golden_answers)) == (em, covers)
    assert f1_score(answer, golden_answers) == pytest.approx(f1)


@pytest.mark.parametrize(
    ("answer", "golden_answers", "precision", "recall"),
    [
        ("president Barack Obama of the US", ["Barack Obama"], 2 / 5, 1.0),
        ("Paris in France", ["Paris, the capital of France", "Paris"], 2 / 3, 1.0),  # each of its own best gold answer
        ("yes it is", ["yes"], 0.0, 0.0),
    ],
)
def test_precision_is_of_the_answer_and_recall_of_a_golden_answer(
    answer: str, golden_answers: list[str], precision: float, recall: float
) -> None:
    """Shares of tokens that both have; the best golden answer may differ between the two, as in FlashRAG."""
    assert token_precision(answer, golden_answers) == pytest.approx(precision)
    assert token_recall(answer, golden_answers) == pytest.approx(recall)


@pytest.mark.parametrize(
    ("answer", "gold", "by_builder", "by_prorag"),
    [
        ("The Seine", "Seine", 2 / 3, 2 / 3),  # an article is a word
        ("seine!", "Seine", 1.0, 0.0),  # to ProRAG, so is punctuation
        ("yes it is", "yes", 0.0, 0.5),  # which has no rule for verdicts
        ("Yes", "yes", 1.0, 1.0),
        ("", "Seine", 0.0, 0.0),
        ("Seine", "", 0.0, 0.0),
    ],
)
def test_published_codes_normalise_less(answer: str, gold: str, by_builder: float, by_prorag: float) -> None:
    """The best of all gold answers, here as everywhere."""
    for score, expected in ((builder_f1, by_builder), (prorag_f1, by_prorag)):
        assert score(answer, [gold]) == score(answer, ["Tiber", gold]) == pytest.approx(expected)
        assert score(answer, []) == 0.0


@given(answer=phrases, golden_answers=golds)
def test_scores_go_together(answer: str, golden_answers: list[str]) -> None:
    """All in [0, 1]. F1 sees a bag of words: it is 1 exactly if some golden answer has the same words, and against one
    it does not matter which side is which. EM 1 implies F1 1 and cover-EM 1, except where both sides normalise to
    nothing. A normalised text is its own normal form, and case, punctuation, articles and white space change no
    score."""
    f1, em, covers = (score(answer, golden_answers) for score in (f1_score, exact_match, cover_em))
    assert 0.0 <= f1 <= 1.0
    assert {em, covers} <= {0.0, 1.0}
    bags = [sorted(normalize_answer(gold).split()) for gold in golden_answers]
    bag = sorted(normalize_answer(answer).split())
    assert (f1 == 1.0) == (bool(bag) and bag in bags)
    assert all(f1_score(answer, [gold]) == f1_score(gold, [answer]) for gold in golden_answers)
    if em:
        assert f1 == covers == float(bool(bag))
    normalised = normalize_answer(answer), [*map(normalize_answer, golden_answers)]
    assert normalize_answer(normalised[0]) == normalised[0]
    assert [score(*normalised) for score in (f1_score, exact_match, cover_em)] == [f1, em, covers]


@given(answer=phrases, golden_answers=golds, more=phrases)
def test_another_golden_answer_never_lowers_a_score(answer: str, golden_answers: list[str], more: str) -> None:
    """Every score is the best over all golden answers, in any order."""
    for score in (exact_match, f1_score, cover_em, token_precision, token_recall):
        alone, together = score(answer, golden_answers), score(answer, [*golden_answers, more])
        assert together == max(alone, score(answer, [more])) == score(answer, [more, *golden_answers])


# -- for labels -----------------------------------------------------------------------------------------------------

MEANT: dict[str, list[tuple[str, str, str]]] = {
    "letters that are articles elsewhere": [
        ("A", "A", "Leeds"),
        ("A", "the A", "an A or B"),
        ("The The", "the the", "The Who"),
    ],
    "decimals": [
        ("2.5", "2.5", "25"),
        ("2.5", "2,50", "2.05"),
        ("25 mg", "25 mg", "2.5 mg"),
        ("0.5", ".5", "5"),
        ("0,5", "0.5", "05"),
        ("3.11.7", "3.11.7", "3117"),
    ],
    "thousands": [
        ("1,450", "1450", "1.45"),
        ("1.450.000", "1,450,000", "1450"),
        ("1.450", "1.45", "1450"),
        ("14,5", "14.5", "145"),
        ("12,345.60", "12.345,6", "12345.06"),
        ("12345", "12\u202f345", "12 345"),
        ("007", "007", "7"),
    ],
    "signs": [
        ("-5", "\u22125", "5"),
        ("-5 °C", "-5°C", "5 °C"),
        ("+5", "5", "-5"),
        ("C++", "c++", "C"),
        ("A+", "A+", "A-"),
        ("1990-1995", "1990\u20131995", "1990-1996"),
    ],
    "money and shares": [
        ("145 EUR", "145 EUR", "1.45 EUR"),
        ("145 EUR", "€145", "14,5 EUR"),
        ("US$1,450.50", "1450.5 usd", "1450 USD"),
        ("-£20", "-20 GBP", "20 GBP"),
        ("25%", "25 percent", "2.5%"),
    ],
    "spelling": [
        ("Sean O'Brien", "Sean O\u2019Brien", "1988"),
        ("Leeds", r"\boxed{Leeds}", "A"),
        ("Paris\u2013Roubaix", "Paris-Roubaix", "Roubaix"),
        ("\uff21\uff22\uff23", "ABC", "AB"),
        ("Stra\u00dfe", "STRASSE", "Strand"),
        ("\u00bd", "1/2", "2"),
        ("The Beatles", "\u00abBeatles\u00bb", "The Kinks"),
    ],
    "scripts": [
        ("王丽华", "《王丽华》", "李明"),
        ("3,776 m", "3776m", "富士山"),
        ("हिन्दी", "हिन्दी।", "हिन्दु"),
        ("กรุงเทพ", "กรุงเทพ", "ภูเก็ต"),
        ("🇦🇹", "🇦🇹", "🇧🇪"),
    ],
}


@pytest.mark.parametrize(
    ("gold", "same", "other"), [case for kind in MEANT.values() for case in kind], ids=lambda each: each
)
def test_labels_go_by_what_an_answer_means(gold: str, same: str, other: str) -> None:
    """EM and F1 are 1 for one spelling, and EM is 0 for another thing; F1 is 0, too, where no word is the same."""
    assert (label_em(same, [gold]), label_f1(same, [gold]), label_cover_em(same, [gold])) == (1, 1, 1)
    assert label_em(other, [gold]) == 0
    numbers = [each for each in comparable(gold).split() if each.lstrip("-").replace(".", "").isdigit()]
    if len(numbers) == 1:
        assert (label_f1(other, [gold]) == 0) == (numbers[0] not in comparable(other).split())


@pytest.mark.parametrize(
    ("gold", "answer", "f1", "covers"),
    [
        ("王丽华", "王丽华医生", 0.75, 1),
        ("25 mg", "25 mg a day", 0.8, 1),
        ("12 May 1990", "May 1990", 0.8, 0),
        ("Apollo 11", "Apollo 13", 0, 0),
        ("yes", "yes, it is", 0, 1),
        ("Leeds", "it is Leeds, England", 0.4, 1),
        ("?!", "?!", 0, 0),
        ("Leeds", "", 0, 0),
    ],
)
def test_labels_score_what_is_partly_right(gold: str, answer: str, f1: float, covers: int) -> None:
    """By words, or letters of scripts without spaces; of what is marks alone nothing is compared."""
    assert label_f1(answer, [gold]) == pytest.approx(f1)
    assert label_cover_em(answer, [gold]) == covers


@pytest.mark.parametrize(
    ("answer", "text", "found"),
    [
        ("A", "His blood type is A and hers is B.", True),
        ("A", "It was a hot day", False),
        ("2.5 mg", "She takes 25 mg.", False),
        ("25 mg", "takes 25mg daily", True),
        ("C", "written in C++ and C#", False),
        ("1420年", "北京故宫建于1420年。", True),
        ("?!", "What?!", False),
    ],
)
def test_a_text_holds_an_answer_whose_words_stand_in_it(answer: str, text: str, found: bool) -> None:
    assert holds(text, answer) is found


spellings = st.sampled_from(
    ["A", "the", "2.5", "25", "-5", "1,450", "1.450", "€145", "mg", "C++", "王丽", "O\u2019Brien", "!"]
)
said = st.lists(spellings, max_size=4).map(" ".join) | phrases


@given(answer=said, gold=said)
def test_what_is_exactly_right_for_labels_is_wholly_right(answer: str, gold: str) -> None:
    """EM is 1 only with F1 1, both ways round, and of all but what is marks alone."""
    assert label_em(answer, [gold]) == label_em(gold, [answer]) <= label_f1(answer, [gold]) <= 1
    assert label_em(answer, [answer]) == label_f1(answer, [answer]) == (comparable(answer) != "")
