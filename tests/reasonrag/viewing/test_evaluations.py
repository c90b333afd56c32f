"""Evaluations beside each other: who won what, in numbers and in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import reasonrag
from reasonrag.errors import InputError
from reasonrag.viewing.evaluations import Evaluations
from tests.helpers.hostile import ATTACKS, MARK
from tests.helpers.jsonl import write_rows
from tests.helpers.pages import NARROW, WIDE, Visit, barriers, did_run, overflow

RIGHT = {"one": "110100", "other": "111000"}
"""EM of six questions, by evaluation."""


def prediction(number: int, em: int, **more: Any) -> dict[str, Any]:
    steps = [
        {"action": "think", "response": "<query>Ada</query>", "content": "Ada"},
        {
            "action": "read",
            "response": "<evidence>Ada wrote</evidence>",
            "content": "Ada wrote",
            "passages": [{"id": "p", "title": "Ada Lovelace"}],
        },
        {"action": "think", "response": "<answer>Ada</answer>", "content": "Ada"},
    ]
    return {
        "schema_version": "reasonrag.predictions/1",
        "question_id": f"q{number}",
        "question": f"Who wrote number {number}?",
        "golden_answers": ["Ada"],
        "type": "bridge" if number < 4 else "comparison",
        "hops": 2,
        "answer": "Ada" if em else "Bob",
        "em": float(em),
        "f1": float(em),
        "searches": 1,
        "calls": 3,
        "steps": steps,
    } | more


@pytest.fixture
def evaluations(tmp_path: Path) -> list[Path]:
    places = []
    for name, right in RIGHT.items():
        rows = [prediction(number, int(each)) for number, each in enumerate(right)]
        write_rows(tmp_path / name / "predictions.jsonl", rows[: 5 if name == "other" else 6])
        places.append(tmp_path / name)
    return places


def test_wins_are_counted_by_kind_over_questions_that_all_answered(evaluations: list[Path]) -> None:
    """A question that is not in all evaluations is listed and counts nowhere; small samples have Wilson's interval."""
    found = Evaluations(evaluations).listing([])
    assert (found.metric, found.models, len(found.rows)) == ("em", ["one", "other"], 6)
    assert found.rows[5].scores[1] is None
    whole, bridge, comparison = found.groups
    assert [(each.name, each.questions) for each in found.groups] == [
        ("all questions", 5),
        ("type: bridge", 4),
        ("type: comparison", 1),
    ]
    assert (whole.wins, whole.losses) == ([0, 1], [0, 1])
    assert [each.share for each in whole.means] == [0.6, 0.6]
    assert whole.means[0].low == pytest.approx(0.23, abs=0.01)
    assert [each.share for each in bridge.means] == [0.75, 0.75]
    assert [each.share for each in comparison.means] == [0.0, 0.0]
    assert found.about == ["1 of 6 questions have no score in some evaluation, and count nowhere."]


def test_evaluations_of_other_questions_and_broken_lines_are_refused(evaluations: list[Path], tmp_path: Path) -> None:
    write_rows(tmp_path / "apart" / "predictions.jsonl", [prediction(99, 1)])
    with pytest.raises(InputError, match="have no question in common"):
        reasonrag.view([evaluations[0], tmp_path / "apart"])
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "predictions.jsonl").write_text('{"question_id": "q"}\n')
    with pytest.raises(InputError, match="line 1, is no prediction: question: Field required"):
        reasonrag.view(tmp_path / "broken")
    write_rows(tmp_path / "broken" / "predictions.jsonl", [prediction(0, 1) | {"em": "yes"}])
    with pytest.raises(InputError, match="line 1, is no prediction: em: "):
        reasonrag.view(tmp_path / "broken")
    write_rows(tmp_path / "broken" / "predictions.jsonl", [prediction(0, 1)] * 2)
    with pytest.raises(InputError, match="line 2: the question q0 stands there twice"):
        reasonrag.view(tmp_path / "broken")
    with pytest.raises(InputError, match="give a run, a data set, evaluations or trainings"):
        reasonrag.view([])
    with pytest.raises(InputError, match="no evaluation and no training: only these are shown beside each other"):
        reasonrag.view([tmp_path, evaluations[0]])


def test_who_won_is_seen_first_and_attempts_stand_side_by_side(visit: Visit, evaluations: list[Path]) -> None:
    """Questions on which models differ come first; a filter, an order and a question stand in the address."""
    page = visit(reasonrag.view(evaluations))
    rows = page.locator("#attempts-table tbody tr")
    expect(rows).to_have_count(6)
    assert [text.split("\n")[0].split("\t")[0] for text in rows.all_inner_texts()[:2]] == [
        "Who wrote number 2?",
        "Who wrote number 3?",
    ]
    page.select_option("#attempts-result", "won")
    expect(page.locator("#attempts-found")).to_have_text("1 of 6 questions")
    page.select_option("#attempts-result", "lost")
    page.reload()
    expect(rows).to_have_count(1)
    rows.locator("a").click()
    sides = page.locator(".attempt")
    expect(sides).to_have_count(2)
    expect(sides.first).to_contain_text(re.compile("Answer: Ada.*EM.*1.00.*Ada wrote", re.DOTALL))
    expect(sides.last).to_contain_text("Answer: Bob")
    sides.first.get_by_text("1 passage").click()
    expect(sides.first).to_contain_text("Ada Lovelace")
    page.get_by_role("link", name="1 of 1").click()
    expect(page.locator("#attempts-found")).to_have_text("1 of 6 questions")


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "dark"), (NARROW, "light")], ids=["dark", "narrow"])
def test_evaluations_have_no_barriers_and_hostile_text_is_text(
    visit: Visit, tmp_path: Path, size: tuple[int, int], scheme: str
) -> None:
    bad = f"{MARK} {' '.join(ATTACKS)} \u202e"
    steps = [
        {"action": bad, "response": bad, "content": bad, "passages": [{"id": bad, "title": bad}], "observation": bad}
    ]
    failed = {"answer": None, "error": {"cause": bad, "message": bad}}
    rows = [
        prediction(0, 1, question=bad, type=bad, golden_answers=[bad], answer=bad, steps=steps),
        prediction(1, 0, **failed),
    ]
    for name in ("one", "other"):
        write_rows(tmp_path / name / "predictions.jsonl", rows)
    home = reasonrag.view([tmp_path / "one", tmp_path / "other"])
    page = visit(home, size=size, scheme=scheme)
    for where in ("", "q/q0", "q/q1"):
        page.goto(f"{home.resolve().as_uri()}#/{where}")
        page.locator(".attempt" if where else "#attempts-table tr").first.wait_for()
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        assert MARK in page.locator("main").inner_text()
        assert not [*did_run(page), *barriers(page)]
        assert overflow(page) <= 0
    assert json.loads(page.locator("pre").last.inner_text())[0]["question_id"] == "q1"
