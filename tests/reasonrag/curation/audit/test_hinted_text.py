"""Whether hinted rows can be told from others: found where a word gives them away, and not by what they are about."""

from __future__ import annotations

import random

import pytest

from reasonrag.curation.audit.hinted_text import FEWEST_ROWS, HintedRows
from reasonrag.curation.audit.report import HintedText
from reasonrag.curation.audit.row_checks import RowFacts, hashed_words
from tests.reasonrag.curation.audit.test_audit import audited, row

TOPICS = [f"topic{number}" for number in range(500)]
COMMON = "born wrote film river king city year song team band".split()


def compared(count: int, *, gives_away: float = 0.0, others: int = 200, types: bool = False) -> HintedText | None:
    """Hinted and other rows of two words about a topic of their own each. gives_away: the share of hinted rows with a
    word that others do not have. types: whether the two are of different action types."""
    dice, rows = random.Random(1), HintedRows()
    for number in range(count + others):
        hinted = number < count
        words = [TOPICS[number % 500], *dice.sample(COMMON, 3)]
        words += ["listed"] if hinted and dice.random() < gives_away else []
        name = "Query Generation" if hinted or not types else "Answer Generation"
        said = hashed_words(" ".join(words))
        rows.add(RowFacts(question=number // 2, chosen_type=name, hinted=hinted, chosen_words=said))
    return rows.compared()


def test_a_word_that_hinted_rows_alone_have_gives_them_away() -> None:
    found = compared(200, gives_away=0.8)
    assert found is not None
    assert found.auc is not None
    assert found.auc.low > 0.8
    assert found.auc.high >= found.auc.value >= found.auc.low


def test_what_rows_are_about_gives_nothing_away() -> None:
    """Each is judged by rows of other questions: by chance half of the time."""
    found = compared(200)
    assert found is not None
    assert found.auc is not None
    assert found.auc.low < 0.5 < found.auc.high


@pytest.mark.parametrize("found", [compared(FEWEST_ROWS - 1), compared(200, others=3), compared(200, types=True)])
def test_too_few_rows_say_nothing(found: HintedText | None) -> None:
    """Also where those of one action type are all hinted, or none is."""
    assert found is not None
    assert found.auc is None
    assert "too few to say" in found.said


def test_without_hinted_rows_nothing_is_compared() -> None:
    assert compared(0) is None


@pytest.mark.parametrize("gives_away", [True, False])
def test_an_audit_warns_of_rows_that_are_given_away(gives_away: bool) -> None:
    """And says how well they are told apart either way."""
    dice = random.Random(2)
    rows = []
    for number in range(160):
        tagged = number % 2 == 0
        words = [*dice.sample(COMMON, 3), *(["listed"] if tagged and gives_away else [])]
        chosen = f"So the next query is <query>{TOPICS[number]} {' '.join(words)}</query>"
        rows.append(row(number, chosen=chosen, tags=["hinted"] if tagged else []))
    report = audited(*rows)
    check = report.check("hinted_text")
    assert (check.count, check.checked) == (80 if gives_away else 0, 80)
    assert check.verdict == ("warning" if gives_away else "passed")
    assert report.hinted_text is not None
    assert "AUC" in report.hinted_text.said
