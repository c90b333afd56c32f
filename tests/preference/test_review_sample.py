"""What a review is, without files: which pairs are shown and how, and what judgements come to."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from preference.review_sample import Judgement, ReviewPair, ReviewReport, digest, read_pairs, report_of
from preference.statistics import SignAgreement

TYPES = ("Query Generation", "Evidence Extraction", "Answer Generation")


def row(number: int, **fields: Any) -> dict[str, Any]:
    """Of RAG_ProGuide's ten fields, and what is asked for of ours."""
    usual = {
        "instruction": "Decide on the next step.",
        "input": f"Question: Question {number}?",
        "prompt": f"System: Decide on the next step.\nUser: Question: Question {number}?",
        "chosen": f"So the next query is <query>good {number}</query>",
        "rejected": f"So the next query is <query>bad {number}</query>",
        "chosen_action_type": TYPES[number % 3],
        "chosen_content": f"good {number}",
        "rejected_action_type": "Query Generation",
        "rejected_content": f"bad {number}",
        "layer": number % 5,
    }
    return usual | fields


def data_set(folder: Path, *rows: Any, validation: list[Any] | None = None) -> Path:
    (folder / "RAG_ProGuide.json").write_text(json.dumps(rows))
    if validation is not None:
        (folder / "RAG_ProGuide.validation.json").write_text(json.dumps(validation))
    return folder


def pairs_of(folder: Path) -> list[ReviewPair]:
    return list(read_pairs(folder))


def shown(pair: ReviewPair, seed: int) -> tuple[str, str]:
    return pair.sides(exchanged=pair.exchanged(seed))


def test_both_parts_of_a_data_set_are_read(tmp_path: Path) -> None:
    """Rows are counted from 1 in each file."""
    found = pairs_of(data_set(tmp_path, row(1), row(2), validation=[row(3)]))
    assert [(each.file, each.row) for each in found] == [
        ("RAG_ProGuide.json", 1),
        ("RAG_ProGuide.json", 2),
        ("RAG_ProGuide.validation.json", 1),
    ]


@pytest.mark.parametrize(
    ("fields", "known"),
    [
        ({}, ("Evidence Extraction", None, None, False)),  # the ten fields are enough
        ({"pair_id": "0123", "confidence": 0.85, "flipped": True}, ("Evidence Extraction", 0.85, "0123", True)),
        ({"confidence": math.nan}, ("Evidence Extraction", None, None, False)),
        ({"confidence": True, "flipped": 1}, ("Evidence Extraction", None, None, False)),
        ({"confidence": "high"}, ("Evidence Extraction", None, None, False)),
        ({"confidence": 1}, ("Evidence Extraction", 1.0, None, False)),
        ({"chosen_action_type": ["y"], "pair_id": 7}, ("Other", None, None, False)),
        ({"chosen_action_type": "\x1b[31m", "pair_id": "\x1b[31m"}, ("Other", None, None, False)),
        ({"pair_id": "x" * 1000}, ("Evidence Extraction", None, None, False)),
    ],
)
def test_our_fields_are_used_where_they_make_sense(tmp_path: Path, fields: dict[str, Any], known: object) -> None:
    """A review file from elsewhere may hold anything: odd values count as missing, and stop no review."""
    [pair] = pairs_of(data_set(tmp_path, row(1, **fields)))
    assert (pair.action_type, pair.confidence, pair.pair_id, pair.flipped) == known


def test_rows_that_show_no_choice_are_left_out(tmp_path: Path) -> None:
    """No reply, no prompt, no object; equal replies; a pair once more, and once more the other way round."""
    exchanged = row(1, chosen=row(1)["rejected"], rejected=row(1)["chosen"])
    no_prompt = row(2, input="", prompt="")
    same = row(2, rejected=row(2)["chosen"])
    found = pairs_of(data_set(tmp_path, row(1), row(1), exchanged, None, 3, row(2, chosen=None), no_prompt, same))
    assert [each.row for each in found] == [1]


def test_texts_are_told_apart_wherever_one_ends() -> None:
    """Halves of surrogate pairs have a name too."""
    assert digest("ab", "c") != digest("a", "bc") != digest("abc")
    assert len(digest("\ud800")) == 16


def test_a_fair_coin_decides_what_stands_as_a(tmp_path: Path) -> None:
    """Another one for every seed."""
    pairs = pairs_of(data_set(tmp_path, *(row(n) for n in range(400))))
    chosen_first = [shown(pair, 0)[0] == pair.chosen for pair in pairs]
    assert sum(chosen_first) == pytest.approx(200, abs=40)
    assert sum(shown(pair, 0) == shown(pair, 1) for pair in pairs) == pytest.approx(200, abs=40)


def said(pair: ReviewPair, better: str, *, seed: int = 0, note: str = "") -> Judgement:
    """A judgement for `chosen` or `rejected`, or a verdict as it stands."""
    place: Any = better
    if better in ("chosen", "rejected"):
        place = "ab"[shown(pair, seed).index(getattr(pair, better))]
    return Judgement(pair.pair, exchanged=pair.exchanged(seed), verdict=place, note=note)


def reported(folder: Path, **said_by: list[Judgement]) -> ReviewReport:
    pairs = pairs_of(folder)
    said = {name: {each.pair: each for each in lines} for name, lines in said_by.items()}
    return report_of(str(folder), said, {each.pair: each for each in pairs}, pairs=len(pairs))


def shares(found: dict[str, SignAgreement]) -> dict[str, tuple[float | None, int, int]]:
    return {name: (each.confirmed.share, each.confirmed.of, each.ties) for name, each in found.items()}


def test_a_report_by_hand(tmp_path: Path) -> None:
    """Six pairs: four as labelled, one not, one tie; and a skip, which is nothing at all."""
    folder = data_set(tmp_path, *(row(n, layer=0, confidence=0.6 + n / 20) for n in range(7)))
    pairs = pairs_of(folder)
    verdicts = ["chosen", "chosen", "rejected", "tie", "chosen", "chosen", "skip"]
    lines = [said(pair, better, note=better) for pair, better in zip(pairs, verdicts, strict=True)]
    [found] = reported(folder, me=lines).reviewers
    assert (found.reviewer, found.judged, found.ties, found.skipped) == ("me", 6, 1, 1)
    assert (found.agreement.confirmed.share, found.agreement.confirmed.of, found.agreement.ties) == (0.8, 5, 1)
    assert shares(found.by_action_type) == {
        "Answer Generation": (0.5, 2, 0),
        "Evidence Extraction": (1.0, 2, 0),
        "Query Generation": (1.0, 1, 1),
    }
    assert [*found.by_action_type] == sorted(found.by_action_type)
    assert [(each.confirmed.share, each.confirmed.of, each.ties) for each in found.by_confidence] == [
        (None, 0, 0),
        (1.0, 2, 0),
        (0.0, 1, 1),
        (1.0, 2, 0),
        (None, 0, 0),
    ]
    assert [(each.row, each.note) for each in found.disagreements] == [(3, "rejected")]


def test_labels_that_were_exchanged_on_purpose_do_not_count(tmp_path: Path) -> None:
    """A person who finds the noise out does not disagree with the labels."""
    folder = data_set(tmp_path, row(1), row(2, flipped=True))
    one, flipped = pairs_of(folder)
    [found] = reported(folder, me=[said(one, "chosen"), said(flipped, "rejected")]).reviewers
    assert (found.agreement.confirmed.share, found.agreement.confirmed.of) == (1.0, 1)
    assert (found.judged, found.disagreements) == (2, [])


def test_judgements_outlive_a_changed_data_set(tmp_path: Path) -> None:
    """A pair whose label changed is judged by the new one; one that moved is found."""
    pairs = pairs_of(data_set(tmp_path, row(1), row(2), row(3)))
    lines = [said(pair, "chosen") for pair in pairs[1:]]
    exchanged = row(2, chosen=row(2)["rejected"], rejected=row(2)["chosen"], pair_id="another")
    [found] = reported(data_set(tmp_path, exchanged, row(3), row(4)), me=lines).reviewers
    assert found.judged == 2
    assert (found.agreement.confirmed.share, [each.row for each in found.disagreements]) == (0.5, [1])


def test_two_people_are_compared_on_what_both_judged(tmp_path: Path) -> None:
    """Whichever order each saw; ties are an answer, skips are none."""
    folder = data_set(tmp_path, *(row(n) for n in range(40)))
    pairs = pairs_of(folder)
    mine = [said(pair, "chosen") for pair in pairs[:30]] + [said(pairs[30], "tie"), said(pairs[31], "skip")]
    yours = [said(pair, "chosen", seed=1) for pair in pairs[3:31]] + [said(pairs[31], "chosen", seed=1)]
    found = reported(folder, me=mine, you=yours)
    [between] = found.between
    assert (between.one, between.other, between.alike.of) == ("me", "you", 28)
    assert between.alike.share == pytest.approx(27 / 28)
    assert [each.row for each in between.disagreements] == [pairs[30].row]
    assert [each.reviewer for each in found.reviewers] == ["me", "you"]
