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
        "prompt_tokens": 100,
        "completion_tokens": 30,
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
    found = Evaluations(evaluations).listing()
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


def test_a_page_says_how_its_evaluations_were_made_and_what_it_leaves_out(
    visit: Visit, evaluations: list[Path]
) -> None:
    """As far as configuration and report are there; alone, an evaluation neither wins nor loses. The colours that a
    reader has chosen stay."""
    made = {"config_hash": "h", "decides_answers": {"model": "qwen", "method": "agent", "max_steps": 9}}
    (evaluations[0] / "config.json").write_text(json.dumps(made))
    (evaluations[0] / "report.json").write_text(json.dumps({"cost_usd": 1.5}))
    (evaluations[1] / "report.json").write_text("torn")
    page = visit(reasonrag.view(evaluations))
    told = page.locator(".facts-of").first
    expect(told).to_contain_text(re.compile(r"one ?model qwen, agent, at most 9 steps, [\d-]{10}, 780 tokens, \$1\.50"))
    expect(told).to_contain_text(re.compile(r"other ?650 tokens, cost not known"))
    expect(page.locator("#stage")).to_contain_text("1 question of 6 has no score in some evaluation, and is left out")
    assert page.locator(".best").all_inner_texts() == []  # 3 of 5 each
    page.get_by_text("Raw JSON").click()
    records = json.loads(page.locator("details pre").inner_text())
    assert (records[0]["config.json"], records[1]) == (made, {})
    page.click("#theme")
    page.reload()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    alone = visit(reasonrag.view(evaluations[:1], out=evaluations[0] / "alone.html"))
    assert alone.locator("#attempts-result option").all_inner_texts() == ["any result", "right (3)", "wrong (3)"]


def test_any_value_can_be_shown_sorted_by_and_narrowed(visit: Visit, tmp_path: Path) -> None:
    """A link has all of it; ranges of several values are of one attempt."""
    rows = [prediction(number, 1, calls=9 - number, gold_recall=number / 4) for number in range(4)]
    write_rows(tmp_path / "one" / "predictions.jsonl", rows)
    write_rows(tmp_path / "other" / "predictions.jsonl", [prediction(number, 1, calls=8) for number in range(3)])
    page = visit(reasonrag.view([tmp_path / "one", tmp_path / "other"]))
    answers = page.locator("#attempts-table td[data-name=one]")
    page.select_option("#attempts-by", "calls")
    page.click("[data-sort='0']")
    expect(answers).to_have_text([f"\u2713 Ada completions {calls}" for calls in (6, 7, 8, 9)])
    page.get_by_text("Ranges").click()
    for field, bound in (("gold passages from", "0.25"), ("completions from", "7"), ("completions to", "8")):
        page.get_by_label(field).fill(bound)
        page.get_by_label(field).press("Enter")
    page.reload()
    expect(answers).to_have_text([f"\u2713 Ada completions {calls}" for calls in (7, 8)])
    page.select_option("#attempts-by", "gold_recall")
    expect(answers).to_have_text([f"\u2713 Ada gold passages {found}" for found in ("0.25", "0.50")])
    page.goto(page.url.partition("#")[0])
    told = page.locator("#attempts-found")
    for text, many in (
        ("calls>=8 gold_recall<0.25", 1),  # of one attempt
        ("calls=6|gold_recall<0.5", 3),
        ("-gold_recall=1", 4),
        ('calls<9 -"number 1"', 3),
        ("-calls<7", 3),  # who was not asked fits nothing
        ("fame<3", 0),  # a word
    ):
        page.fill("#attempts-text", text)
        expect(told).to_have_text(f"{many} of 4 questions")


def test_an_attempt_names_what_it_did_not_find_and_shows_the_words_that_were_searched(
    visit: Visit, tmp_path: Path
) -> None:
    """A gold passage by id or by title, as the data set names it; a phrase, and a word that must not occur."""
    read = {"action": "read", "content": "None", "response": "<evidence>None</evidence>"}
    found = read | {"passages": [{"id": "p7", "title": "ADA Lovelace", "score": 3.5}]}
    other = read | {
        "passages": [{"id": "p8", "title": "Byron"}, {"id": "p9", "title": "Ada lovelace", "not_gold": True}]
    }
    last = {"action": "think", "content": "Ada", "response": "It was the countess. <answer>Ada</answer>"}
    gold = {"gold_passages": ["Ada Lovelace", "Byron"]}
    write_rows(
        tmp_path / "one" / "predictions.jsonl", [prediction(0, 1, steps=[found, last], **gold), prediction(1, 0)]
    )
    write_rows(tmp_path / "other" / "predictions.jsonl", [prediction(0, 1, steps=[other], **gold), prediction(1, 0)])
    shown = {"id": "p7", "contents": "ADA Lovelace\nShe wrote the first program."}
    write_rows(tmp_path / "one" / "passages.jsonl", [shown])  # the other evaluation is older than this file
    page = visit(reasonrag.view([tmp_path / "one", tmp_path / "other"]))
    told = page.locator("#attempts-found")
    alternatives = (('nowhere|"the countess"', 1), ("nowhere|", 0), ("number -nowhere|countess", 1), ("|", 2))
    for text, many in (
        *alternatives,
        ('"countess the"', 0),
        ("number -countess", 1),
        ("-countess", 1),
        ("first program", 1),
    ):
        page.fill("#attempts-text", text)
        page.locator("#attempts-deep").set_checked(True)
        expect(told).to_have_text(f"{many} of 2 questions")
    page.fill("#attempts-text", '"THE countess"')
    expect(told).to_have_text("1 of 2 questions")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")  # out of what is typed in
    page.locator("#attempts-table tbody a").focus()
    page.keyboard.press("j")
    expect(page.locator("mark:visible")).to_have_text("the countess")
    one, two = page.locator(".attempt").all()
    expect(one.locator(".type")).to_have_text(["evidence", "answer"])
    expect(one.locator(".warning")).to_have_text("gold passages not found: Byron")
    expect(two.locator(".warning")).to_have_text("gold passages not found: Ada Lovelace")
    page.get_by_role("button", name="Unfold all").click()
    expect(one.locator("li li:visible > :not(div), li li:visible pre")).to_have_text(
        ["\u2605 gold ", "ADA Lovelace", " score 3.50", " id p7", "She wrote the first program."]
    )
    expect(two.locator("li li:visible")).to_have_text(["\u2605 gold Byron id p8", "Ada lovelace id p9"])
    page.reload()
    expect(page.locator(".walk")).to_contain_text("1 of 1")
    page.keyboard.press("Escape")
    expect(told).to_have_text("1 of 2 questions")


def test_evaluations_of_other_questions_and_broken_lines_are_refused(evaluations: list[Path], tmp_path: Path) -> None:
    write_rows(tmp_path / "apart" / "predictions.jsonl", [prediction(99, 1)])
    with pytest.raises(InputError, match="have no question in common"):
        reasonrag.view([evaluations[0], tmp_path / "apart"])
    write_rows(tmp_path / "empty" / "predictions.jsonl", [])
    with pytest.raises(InputError, match="empty holds no prediction; evaluate again"):
        reasonrag.view([evaluations[0], tmp_path / "empty"])
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
    write_rows(tmp_path / "broken" / "predictions.jsonl", [prediction(0, 1)])
    write_rows(tmp_path / "broken" / "passages.jsonl", [{"id": "p"}])
    with pytest.raises(InputError, match=r"passages\.jsonl, line 1 is not a passage"):
        reasonrag.view(tmp_path / "broken")
    with pytest.raises(InputError, match="give a run, a data set, evaluations or trainings"):
        reasonrag.view([])
    others: tuple[dict[str, Any], ...] = ({"title": "T"}, {"change": lambda _, fields: fields}, {"trees": [tmp_path]})
    for more in others:
        with pytest.raises(InputError, match="`trees`, title and change go with a run or a data set, and "):
            reasonrag.view(evaluations, **more)
    with pytest.raises(InputError, match="is no training: only evaluations, or only trainings, are shown beside"):
        reasonrag.view([tmp_path, evaluations[0]])
    with pytest.raises(InputError, match=f"{tmp_path} is no evaluation: only evaluations, or only trainings"):
        reasonrag.view([evaluations[0], tmp_path])


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
        prediction(
            0, 1, question=bad, type=bad, golden_answers=[bad], answer=bad, steps=steps, gold_passages=[bad, "x"]
        ),
        prediction(1, 0, **failed),
    ]
    for name in ("one", "other"):
        write_rows(tmp_path / name / "predictions.jsonl", rows)
        write_rows(tmp_path / name / "passages.jsonl", [{"id": bad, "contents": f"{bad}\n{bad}"}])
    home = reasonrag.view([tmp_path / "one", tmp_path / "other"])
    page = visit(home, size=size, scheme=scheme)
    for where in ("", f"q/q0?deep=1&text={MARK}", "q/q1"):
        page.goto(f"{home.resolve().as_uri()}#/{where}")
        page.locator(".attempt" if where else "#attempts-table tr").first.wait_for()
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        assert MARK in page.locator("main").inner_text()
        assert not [*did_run(page), *barriers(page)]
        assert overflow(page) <= 0
    assert json.loads(page.locator("pre").last.inner_text())[0]["question_id"] == "q1"
