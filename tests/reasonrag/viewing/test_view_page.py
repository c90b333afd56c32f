"""The page of a run in a real browser: what a reader does there, and what hostile text does not."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from statistics import median
from typing import Any
from urllib.parse import parse_qs, quote

import orjson
import pytest
from aiohttp import web
from playwright.sync_api import Browser, Page, expect

import reasonrag
from reasonrag.curation.audit.report import RowExample, rows_in_view
from reasonrag.viewing.collection import open_collection
from reasonrag.viewing.overview import read_all
from reasonrag.viewing.question_rows import PairRow, QuestionRow
from reasonrag.viewing.question_view import QuestionView, question_view
from tests.endpoints.weak_teacher import WeakTeacher
from tests.helpers.endpoints import Served
from tests.helpers.hostile import ATTACKED, ATTACKS, FAILED, MARK, Hostile, add_mishaps, make
from tests.helpers.pages import NARROW, PATIENCE_MS, WIDE, Visit, barriers, did_run, keep, overflow
from tests.helpers.processes import Command
from tests.helpers.slow_run import Slow, slowly_served
from tests.helpers.trees import answer, branch, query, rollouts_of, run_of, siblings
from tests.reasonrag.curation.audit.test_page import report

QUESTIONS, MANY, LARGE_MB, LONG_REPLY = 8, 1_500, 1, 19_000
TREE = ".frame svg.tree"
HIDDEN = "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe]"
"""What turns text around, or is there without being seen; joiners are spelling."""


# -- what is looked at -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run with mixed questions, to which a failed one and replies that nobody could read were added."""
    place = tmp_path_factory.mktemp("view")
    with contextlib.chdir(place):
        weak = WeakTeacher()
        reasonrag.generate(
            dataset="atlas", limit=QUESTIONS, chat_model=weak, run="run", set={"search.max_calls": 24}, seed=6
        )
        add_mishaps(place / "run" / "rollouts.jsonl")
    return place / "run"


@pytest.fixture(scope="module")
def demo_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of trees as the demo's: the offline teacher and the default recipe."""
    place = tmp_path_factory.mktemp("demo")
    with contextlib.chdir(place):
        reasonrag.generate(dataset="atlas", limit=12, model="offline", run="run", yes=True)
    return reasonrag.view(place / "run")


@pytest.fixture(scope="module")
def page_of_run(run: Path) -> Path:
    return reasonrag.view(run)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    return make(tmp_path_factory.mktemp("hostile"))


@contextlib.contextmanager
def serving(path: Path) -> Iterator[str]:
    """The address of `reasonrag view --serve`, a command of its own."""
    with Command("view", path, "--serve", "--port", 0) as server:
        said = server.first_line()
        found = re.search(r"http://127\.0\.0\.1:\d+/\S*", said)
        assert found, said
        yield found.group()


def rows_of(path: Path) -> list[QuestionRow]:
    return read_all(open_collection(path), watch=lambda _: None).rows()


def view_of(path: Path, question_id: str) -> QuestionView:
    collection = open_collection(path)
    found = collection.find(question_id)
    assert found
    return question_view(found, collection.rules)


def address(page: str | Path, *parts: object) -> str:
    """Of a view in a page: `q`, a question, and `tree`, `step` or `pair`."""
    base = page.resolve().as_uri() if isinstance(page, Path) else page
    return f"{base}#/{'/'.join(quote(str(part), safe='') for part in parts)}"


def wait_for_list(page: Page, questions: int) -> None:
    expect(page.locator("#found")).to_have_text(f"{questions:,} questions")


def shown(page: Page) -> list[str]:
    """The questions of the list, in order."""
    return page.locator("#questions .asked").all_inner_texts()


def step_in(page: Page, number: int) -> Any:
    return page.locator(f".node[data-step='{number}']")


# -- reading ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["from a file", "from its own server"])
def test_a_run_opens_and_lists_its_questions(visit: Visit, page_of_run: Path, run: Path, way: str) -> None:
    """The list is whole, the overview has charts, a click leads to the tree, and nothing was asked of anybody else."""
    with serving(run) if "server" in way else contextlib.nullcontext(page_of_run) as home:
        page = visit(home)
        wait_for_list(page, QUESTIONS)
        rows = rows_of(run)
        assert shown(page) == [row.question for row in rows]
        assert page.locator("main figure svg").count() > 3
        drawn = page.locator("main figure", has=page.get_by_role("heading", name="Failed questions"))
        expect(drawn.locator("svg text", has_text="refused")).to_have_count(1)
        keep(page, f"{run.name}-overview")
        row = next(row for row in rows if row.kept)
        page.get_by_role("link", name=row.question).click()
        page.locator(TREE).wait_for()
        page.get_by_role("button", name="Whole tree").click()
        assert page.locator(".node").count() == (row.steps or 0) + 1
        assert page.locator("main h2").inner_text() == row.question


def test_a_link_to_a_question_waits_for_the_part_of_the_page_that_has_it(
    browser: Browser, page_of_run: Path, run: Path
) -> None:
    """A large page is shown before all of it has arrived."""
    begin, mark, rest = page_of_run.read_bytes().partition(b'<script type="application/octet-stream" id="question-')
    asked = threading.Event()

    async def slowly(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/html"})
        await response.prepare(request)
        await response.write(begin)
        await asyncio.to_thread(asked.wait, PATIENCE_MS / 1000)
        await response.write(mark + rest)
        return response

    app = web.Application()
    app.router.add_get("/", slowly)
    row = next(row for row in rows_of(run) if row.kept)
    with Served(app, "").open() as served, contextlib.closing(browser.new_page()) as page:
        page.goto(address(f"{served.base_url}/", "q", row.id), wait_until="commit")
        page.locator("body[data-route=question]").wait_for()
        expect(page.locator("#stage")).to_have_text("Reading…")
        asked.set()
        page.locator(TREE).wait_for()


def test_each_filter_leaves_the_questions_it_names(visit: Visit, page_of_run: Path, run: Path) -> None:
    """What the list shows is what the rows say, filter by filter, and clearing them brings all back."""
    page = visit(page_of_run)
    wait_for_list(page, QUESTIONS)
    rows = rows_of(run)

    def words(row: QuestionRow) -> set[str]:
        return set(re.findall(r"\w+", row.question))

    cases: list[tuple[str, Callable[[], object], Callable[[QuestionRow], object]]] = [
        ("text", lambda: page.fill("#filter-find", "BORN traecel"), lambda row: {"born", "Traecel"} <= words(row)),
        ("golden", lambda: page.fill("#filter-find", rows[1].golden_answers[0]), lambda row: row is rows[1]),
        ("id", lambda: page.fill("#filter-find", rows[3].id), lambda row: row is rows[3]),
        ("ends", lambda: page.select_option("#filter-ends", "mixed"), lambda row: row.ends == "mixed"),
        ("unreadable", lambda: page.check("#filter-unreadable"), lambda row: row.unreadable),
        ("nothing", lambda: page.fill("#filter-find", "no such words"), lambda _: False),
    ]
    for name, act, passes in cases:
        act()
        expected = [row.question for row in rows if passes(row)]
        expect(page.locator("#questions a")).to_have_count(len(expected))
        assert shown(page) == expected, name
        page.click("#clear")
        wait_for_list(page, QUESTIONS)


def pairs_shown(page: Page) -> list[str]:
    """Ids of the rows of the table of pairs, in order."""
    return page.locator("#pairs-table tbody tr").evaluate_all("all => all.map(each => each.dataset.pair)")


def test_the_table_of_pairs_has_those_that_its_address_names(visit: Visit, page_of_run: Path, run: Path) -> None:
    """In its order, of all questions; a reload shows the same ones, and what a reader chooses stands in the address."""
    every = [each for row in rows_of(run) for each in row.candidates]
    reason = next(each.dropped for each in every if each.dropped)
    cases: dict[str, Callable[[PairRow], object]] = {
        "": lambda each: each.dropped is None,
        "status=all": lambda _: True,
        f"status={reason}": lambda each: each.dropped == reason,
        "status=all&type=evidence": lambda each: each.type == "evidence",
        "depth=1": lambda each: each.layer == 1 and each.dropped is None,
        "status=all&gold=right": lambda each: each.gold == "right",
        "status=all&review=1": lambda each: each.review,
        "margin=0.3..0.5": lambda each: each.dropped is None and 0.3 <= (each.margin or 0) <= 0.5,
        "status=all&confidence=..0.8": lambda each: each.confidence is not None and each.confidence <= 0.8,
        "status=all&draws=2..": lambda each: each.draws is not None and each.draws >= 2,
        **{
            f"text=confidence%3C0.8%7Cmargin%3E0.5{deep}": lambda each: (
                each.dropped is None and ((each.confidence or 1) < 0.8 or (each.margin or 0) > 0.5)
            )
            for deep in ("", "&deep=1")
        },
    }
    page = visit(f"{address(page_of_run)}pairs")
    for asked, fits in cases.items():
        page.goto(f"{address(page_of_run)}pairs?{asked}")
        wanted = [each.id for each in every if fits(each)]
        assert asked in ("", "status=all") or 0 < len(wanted) < len(every), asked
        expect(page.locator("#pairs-found")).to_have_text(f"{len(wanted):,} of {len(every):,} candidates")
        assert pairs_shown(page) == wanted[:100]
    page.goto(f"{address(page_of_run)}pairs")
    page.select_option("#pairs-type", "answer")
    page.click("[data-sort=confidence]")
    page.click("[data-sort=confidence]")
    expect(page.locator("th[aria-sort=descending]")).to_have_text("confidence \u25bc")
    answers = [each for each in every if each.dropped is None and each.type == "answer"]
    wanted = [each.id for each in sorted(answers, key=lambda each: -(each.confidence or 0))]
    assert pairs_shown(page) == wanted
    page.reload()
    expect(page.locator("#pairs-table tbody tr")).to_have_count(len(wanted))
    assert pairs_shown(page) == wanted


def test_the_rows_of_an_audit_are_found_in_the_page(visit: Visit, grown: Path) -> None:
    """By their numbers in the file, as its links say them."""
    rows = rows_of(grown.parent)
    kept = {f"{each.part}:{each.row}": each.id for row in rows for each in row.kept}
    wanted = rows_in_view(RowExample(file="RAG_ProGuide.json", row=number) for number in (1, 3))
    assert wanted == "train:1,train:3"
    page = visit(f"{address(grown)}pairs?status=all&rows={wanted}")
    expect(page.locator("#pairs-table tbody tr")).to_have_count(2)
    assert set(pairs_shown(page)) == {kept[each] for each in wanted.split(",")}
    written = [each["pair_id"] for each in orjson.loads((grown.parent / "RAG_ProGuide.json").read_bytes())]
    assert [kept[f"train:{number}"] for number in range(1, len(written) + 1)] == written


def test_words_are_found_in_rows_and_in_prompts_replies_and_passages(
    visit: Visit, page_of_run: Path, run: Path
) -> None:
    """The question, and what differs, at once; all that was read and said when it is asked for."""
    row = next(row for row in rows_of(run) if row.kept)
    view = view_of(run, row.id)
    pair = next(each for each in view.pairs if not each.dropped)
    text = view.texts[view.states[pair.state].user or 0]
    word = next(each for each in re.findall(r"[A-Za-z]{5,}", text) if each not in row.question)
    page = visit(f"{address(page_of_run)}pairs")
    page.fill("#pairs-text", f"{row.id} {row.question}")
    page.locator("#pairs-found", has_text=f"{len(row.kept)} of").wait_for()
    assert pairs_shown(page) == [each.id for each in row.kept]
    page.fill("#pairs-text", f"{word} {MARK}")
    expect(page.locator("#pairs-found")).to_have_text(re.compile("^0 of"))
    page.fill("#pairs-text", word)
    page.check("#pairs-deep")
    expect(page.locator(f"tr[data-pair='{pair.id}']")).to_be_visible()
    assert {"text", "deep"} <= parse_qs(page.url.partition("?")[2]).keys()
    page.locator(f"tr[data-pair='{pair.id}'] a").click()
    expect(page.locator("#detail mark").first).to_have_text(re.compile(re.escape(word), re.IGNORECASE))
    expect(page.locator("#detail mark").first).to_be_in_viewport()
    expect(page.locator("#detail .walk")).to_be_in_viewport()


def test_pairs_are_walked_over_questions_in_the_order_of_the_table(visit: Visit, page_of_run: Path, run: Path) -> None:
    """By key and by link, and the browser's own button leads back to the same table."""
    every = [each for row in rows_of(run) for each in row.kept]
    order = [each.id for each in sorted(every, key=lambda each: each.confidence or 0)]
    page = visit(f"{address(page_of_run)}pairs?sort=confidence", size=(1280, 400))
    page.locator("#pairs-table tbody a").nth(6).click()
    page.locator("#detail .walk").wait_for()
    page.go_back()
    page.locator("#pairs-table tbody tr").first.wait_for()
    assert page.locator("#stage").evaluate("each => each.scrollTop") > 0
    page.locator("#pairs-table tbody a").first.click()
    detail = page.locator("#detail")
    for place, step in enumerate((lambda: page.keyboard.press("n"), lambda: page.keyboard.press("n"), None)):
        expect(detail.locator(".walk")).to_contain_text(f"{place + 1} of {len(order)}")
        assert page.url.partition("/pair/")[2] == f"{order[place]}?sort=confidence"
        if step:
            step()
    detail.get_by_role("link", name="previous").click()
    expect(detail.locator(".walk")).to_contain_text(f"2 of {len(order)}")
    page.go_back()
    expect(detail.locator(".walk")).to_contain_text(f"3 of {len(order)}")
    detail.get_by_role("link", name=f"3 of {len(order)}").click()
    expect(page.locator("#pairs-table tbody tr").first).to_have_attribute("data-pair", order[0])
    page.locator("#pairs-status").select_option("all")
    page.locator("[data-sort=confidence]").click()
    for status in ("all", "kept"):  # what was chosen is taken back, too
        page.go_back()
        expect(page.locator("#pairs-status")).to_have_value(status)
        assert page.url.endswith("sort=confidence")


CHARTS = """all => all.map(each => {
  const cell = one => [one.innerText.replaceAll(',', ''), one.querySelector('a')?.hash ?? ''];
  const [names, ...rows] = [...each.querySelectorAll('tr')].map(row => [...row.cells].map(cell));
  const ways = rows.flatMap(([[label, all], ...cells]) => [
    [names[0][0], label, cells.reduce((sum, [number]) => sum + Number(number), 0), all],
    ...cells.map(([number, where], i) => [names[i + 1][0], label, Number(number), where])
  ].filter(([, , number, where], i) => where || (i && number && !all)));
  const bars = [...each.querySelectorAll('svg a')].map(bar => bar.href.baseVal);
  return [each.querySelector('h3').innerText, ways, bars];
})"""
"""Of each chart its title; column, label, count and address of each number; the addresses of its bars."""
SEEN = """all => all.filter(bar => {
  bar.scrollIntoView({ block: 'center' });
  const { left, right, top, bottom } = bar.getBoundingClientRect();
  return document.elementFromPoint((left + right) / 2, (top + bottom) / 2)?.closest('a') !== bar;
}).map(bar => bar.textContent)"""
"""Bars that are not hit in their middle."""


BARS_OF = {
    *("Candidates", "Pairs by depth", "Rewards of steps", "Margin of pairs", "Confidence of pairs"),
    "Length of replies",
}
"""Charts of pairs, or of their steps."""


def fitting(chart: str, column: str, label: str, edges: dict[str, float]) -> Callable[[PairRow], object]:
    """What a bar of a chart of pairs, or of their steps, counts. edges: the last ones, which are in their bins."""
    ends = re.fullmatch(r"(\S+) to (\S+)", label)
    low, high = map(float, ends.groups()) if ends else (0.0, 0.0)

    def within(name: str, value: float | None) -> bool:
        return value is not None and (low <= value < high or value == high == edges[name])

    def steps(each: PairRow) -> list[tuple[str | None, float | None]]:
        return list(zip((each.type, each.rejected_type), each.rewards, strict=True))

    fits: dict[str, Callable[[PairRow], object]] = {
        "Candidates": lambda each: (each.dropped or "kept").replace("_", " ") == label,
        "Pairs by depth": lambda each: str(each.layer) == label and column in ("depth", each.type),
        "Rewards of steps": lambda each: any(
            kind == column and within(f"reward_{kind}", reward) for kind, reward in steps(each)
        ),
        "Margin of pairs": lambda each: within("margin", each.margin),
        "Confidence of pairs": lambda each: within("confidence", each.confidence),
        "Length of replies": lambda each: within(column, each.words[column == "rejected"]),
    }
    return fits[chart]


@pytest.mark.parametrize("what", ["run", "data set"])
def test_a_bar_leads_to_the_rows_that_it_counts(
    visit: Visit, page_of_run: Path, run: Path, grown: Path, what: str
) -> None:
    """All of them and no other, and so does its number below the chart. Of steps: to the candidates that have one."""
    home, source = (page_of_run, run) if what == "run" else (grown, grown.parent)
    counts = read_all(open_collection(source), watch=lambda _: None)
    every = [each for row in counts.rows() for each in row.candidates]
    edges = {name: each.edges[-1] for name, each in counts.overview().histograms.items()}
    page = visit(home)
    page.locator("figure svg").first.wait_for()
    page.evaluate("document.querySelectorAll('figure details').forEach(each => { each.open = true })")
    charts, tried = page.locator("figure:has(svg)").evaluate_all(CHARTS), list[str]()
    assert len(charts) > 6
    for title, ways, bars in charts:
        assert sorted(bars) == sorted(each[3] for each in ways if each[0] != "depth"), title  # whose bars are stacked
        for column, label, number, where in ways:
            assert where, (title, label)
            page.goto(f"{address(home).partition('#')[0]}{where}")
            if title not in BARS_OF:
                questions = number
                if title == "Unreadable replies":  # which it counts, not their questions
                    unread = [
                        {each.replace("_", " "): many for each, many in row.unreadable.items()} for row in counts.rows()
                    ]
                    assert number == sum(each.get(label, 0) for each in unread)
                    questions = sum(label in each for each in unread)
                expect(page.locator("#found")).to_have_text(re.compile(rf"^{questions or 'none'}\b"))
                continue
            tried.append(title)
            among = (
                every if title in ("Candidates", "Rewards of steps") else [each for each in every if not each.dropped]
            )
            wanted = [each.id for each in among if fitting(title, column, label, edges)(each)]
            expect(page.locator("#pairs-found")).to_have_text(f"{len(wanted):,} of {len(every):,} candidates")
            assert pairs_shown(page) == wanted[:100], (title, label)
            assert len(wanted) == number or title == "Rewards of steps", (title, label)
    assert set(tried) == BARS_OF
    assert len(tried) > 15


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_bars_are_hit_where_they_are_seen_and_by_keys(visit: Visit, page_of_run: Path, size: tuple[int, int]) -> None:
    """However small; the filter that they lead to stands in the form."""
    page = visit(page_of_run, size=size)
    wait_for_list(page, QUESTIONS)
    assert page.locator("figure svg a").evaluate_all(SEEN) == []
    rewards = page.locator("figure", has=page.get_by_role("heading", name="Rewards of steps"))
    bar = rewards.locator("svg a", has_text="answer, 0 to 0.05")
    bar.click()
    page.wait_for_url(re.compile("/pairs.*&reward=0..%3C0.05&side=answer$"))
    expect(page.get_by_label("reward to")).to_have_value("0.05")
    expect(page.get_by_label("reward to")).to_be_in_viewport()
    expect(page.get_by_label("Type of the step with this reward")).to_have_value("answer")
    expect(page.locator("[data-sort=reward]")).to_be_attached()
    page.go_back()
    expect(bar).to_be_in_viewport()
    lengths = page.locator("figure", has=page.get_by_role("heading", name="Length of replies"))
    lengths.locator("svg a[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    said = lengths.locator("svg a:focus").text_content() or ""
    low, high, many = re.findall(r"\d+", said)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(f"/pairs.chosen_length={low}..%3C{high}$"))
    expect(page.locator("#pairs-found")).to_have_text(re.compile(rf"^{many} of"))
    page.go_back()
    if size == WIDE:  # where the list stands beside the charts, which stay as they are
        chart = page.locator("figure", has=page.locator("svg a", has_text="mixed outcomes"))
        chart.get_by_text("Numbers").click()
        chart.locator("svg a", has_text="mixed outcomes").focus()
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("ends=mixed$"))
        expect(chart.locator("svg a:focus")).to_contain_text("mixed outcomes")
        expect(chart.locator("table")).to_be_visible()


def test_an_answer_that_was_looked_for_is_said_in_the_list_of_answers(visit: Visit, tmp_path: Path) -> None:
    """Beside the rejected reply, where the label needs review, and in the tree."""
    page_file = reasonrag.view(run_of(tmp_path, branch(0.0)))
    pair = next(each for each in view_of(tmp_path, "q1").pairs if each.chosen == 1)
    page = visit(address(page_file, "q", "q1", "pair", pair.id))
    detail = page.locator("#detail")
    counted = "1 right answer not counted: the search had looked for it"
    said = detail.locator(".side.rejected .answers")
    expect(said).to_have_text(re.compile(rf"Ada Lovelace.* \u00d71 \(right\).*; {counted}$"))
    expect(detail.locator(".verdict.warning")).to_contain_text(f"below the rejected step, {counted}")
    page.get_by_role("button", name="Whole tree").click()
    expect(step_in(page, 5)).to_have_attribute("aria-label", re.compile("not counted above"))


def test_a_reader_clicks_a_step_reads_its_prompt_and_goes_on_to_the_pair(
    visit: Visit, page_of_run: Path, run: Path
) -> None:
    """From the tree to what the model was shown and said, to both sides of the pair and why it was labelled so, and
    back by the browser's own button."""
    row = next(row for row in rows_of(run) if row.kept)
    view = view_of(run, row.id)
    pair = next(pair for pair in view.pairs if pair.dropped is None)
    chosen, rejected = (view.trees[0].steps[each] for each in (pair.chosen, pair.rejected))
    page = visit(address(page_of_run, "q", row.id))
    step_in(page, chosen.id).click()
    detail = page.locator("#detail")
    detail.get_by_role("heading", name=f"Step {chosen.id}").wait_for()
    assert {view.texts[chosen.user or 0], chosen.response} <= set(detail.locator("pre").all_inner_texts())
    keep(page, "view-step")
    detail.locator(f"a[href*='{pair.id}']").first.click()
    detail.get_by_role("heading", name="Pair").wait_for()
    assert detail.locator(".side.chosen pre").inner_text() == chosen.response
    assert detail.locator(".side.rejected pre").inner_text() == rejected.response
    assert detail.locator(".side .copy").count() == 2
    said = detail.inner_text()
    assert all(reason.text in said for reason in pair.why)
    forks = view.states[pair.state].layer + 1  # from the question to where both sides part
    expect(page.locator(".trunk.way")).to_have_count(forks)
    keep(page, "view-pair")
    page.go_back()
    detail.get_by_role("heading", name=f"Step {chosen.id}").wait_for()
    page.go_back()
    detail.wait_for(state="hidden")
    assert page.locator(TREE).is_visible()


def test_a_number_is_the_same_in_a_sentence_and_beside_it(visit: Visit, tmp_path: Path) -> None:
    """Halves are rounded to the even digit by Python, and up by a browser that is not told."""
    steps = query("who", 0.625), query("what", 0.125), query("where", 0.375)
    record = siblings(*steps, question_id="halves")
    run_of(tmp_path, record)
    [pair, *_] = view_of(tmp_path, "halves").pairs
    page = visit(address(reasonrag.view(tmp_path), "q", "halves", "pair", pair.id))
    page.get_by_role("heading", name="Pair of steps").wait_for()
    assert page.locator("#detail .sides h4").all_inner_texts()[0].endswith("reward 0.62")
    assert page.locator("#detail .sides h4").all_inner_texts()[1].endswith("reward 0.12")
    assert "Reward 0.62" in page.locator("#detail .why").inner_text()
    drawn = page.locator("svg[role=tree] tspan.reward").all_text_contents()
    assert sorted(drawn) == ["0.12", "0.62"]


# -- the tree --------------------------------------------------------------------------------------------------


def folded(page: Page) -> int:
    return sum(map(int, page.locator(".node .folded").all_text_contents()))


def test_a_tree_opens_on_its_pairs_and_unfolds(visit: Visit, page_of_run: Path, run: Path) -> None:
    """The steps of pairs and the ways to them are drawn, all others are counted where they are folded; a click and a
    key unfold them, and a step that is folded is drawn when its address is opened."""
    row = next(row for row in rows_of(run) if row.kept and (row.steps or 0) > 8)
    view = view_of(run, row.id)
    steps, kept = view.trees[0].steps, [each for each in view.pairs if not each.dropped]
    drawn = {0}
    for each in {side for pair in kept for side in (pair.chosen, pair.rejected)}:
        at: int | None = each
        while at is not None:
            drawn.add(at)
            at = steps[at].parent
    page = visit(address(page_of_run, "q", row.id))
    page.locator(TREE).wait_for()
    numbers = page.locator(".node").evaluate_all("all => all.map(each => Number(each.dataset.step))")
    assert sorted(numbers) == sorted(drawn)
    assert len(drawn) + folded(page) == len(steps)
    page.locator(".node .folded").first.click()
    expect(page.locator(".node")).not_to_have_count(len(drawn))
    assert page.locator(".node").count() + folded(page) == len(steps)
    closed = page.locator(".node[aria-expanded=false]:not(.root)").last
    before = page.locator(".node").count()
    closed.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".node")).not_to_have_count(before)
    hidden = next(step.id for step in reversed(steps) if step.id not in drawn)
    page.goto(address(page_of_run, "q", row.id, "step", 0, hidden))
    expect(step_in(page, hidden)).to_have_class(re.compile(r"\bhere\b"))


MEDIAN_SEEN = [((1440, 900), 0.8), ((1280, 720), 0.6)]


@pytest.mark.parametrize(("size", "share"), MEDIAN_SEEN, ids=["1440", "1280"])
def test_the_first_view_shows_most_marks_of_the_median_question(
    visit: Visit, demo_page: Path, size: tuple[int, int], share: float
) -> None:
    """Of real trees of the default recipe. Letters have at least 11 pixels, also at the smallest size."""
    page = visit(demo_page, size=size)
    page.locator("#questions a").first.wait_for()
    seen = []
    for row in rows_of(demo_page.parent):
        if row.kept:
            page.goto(address(demo_page, "q", row.id))
            expect(page.locator("main h2")).to_have_text(row.question)
            page.locator(TREE).wait_for()
            inside = page.locator(".frame .role").evaluate_all(
                """all => { const frame = document.querySelector('.frame').getBoundingClientRect();
                  return all.map(each => each.getBoundingClientRect()).map(box => box.left >= frame.left
                    && box.right <= frame.right && box.top >= frame.top
                    && box.bottom <= Math.min(frame.bottom, innerHeight)); }"""
            )
            seen.append(sum(inside) / len(inside))
            expect(page.locator(".legend")).to_be_in_viewport(ratio=1)
    assert len(seen) > 5
    assert median(seen) >= share
    page.get_by_role("button", name="Fit").click()
    heights = page.locator(".frame text").evaluate_all(
        "all => all.map(each => parseFloat(getComputedStyle(each).fontSize) * each.getScreenCTM().d)"
    )
    assert min(heights) >= 11


def test_the_map_of_a_large_tree_covers_none_of_its_steps(visit: Visit, demo_page: Path) -> None:
    """Wherever the tree is scrolled to; where every corner has steps there is no map."""
    row = max(rows_of(demo_page.parent), key=lambda row: row.steps or 0)
    page = visit(address(demo_page, "q", row.id), size=(1280, 720))
    page.locator(TREE).wait_for()
    page.get_by_role("button", name="Whole tree").click()
    seen = 0
    for across, down in ((0, 0), (0, 1), (1, 0), (1, 1), (0.5, 0.5)):
        covered = page.locator(".frame").evaluate(
            """async (frame, [across, down]) => {
              frame.scrollTo(across * frame.scrollWidth, down * frame.scrollHeight);
              await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
              const map = document.querySelector(".minimap").getBoundingClientRect();
              return map.width ? [...frame.querySelectorAll(".node text")].map(each => each.getBoundingClientRect())
                .filter(box => box.right > map.left && box.left < map.right && box.bottom > map.top + 2
                  && box.top < map.bottom - 2).length : null; }""",
            [across, down],
        )
        assert not covered
        seen += covered is not None
    assert seen


def test_a_page_of_one_question_opens_it_and_its_overview_can_still_be_reached(visit: Visit, tmp_path: Path) -> None:
    steps = query("who", 0.9), query("what", 0.0)
    page = visit(reasonrag.view(run_of(tmp_path / "one", siblings(*steps, question="Who was it?"))))
    expect(page.locator("main h2")).to_have_text("Who was it?")
    page.get_by_role("link", name="Overview").click()
    expect(page.locator("main figure").first).to_be_visible()


def test_a_pair_that_needs_review_says_why_beside_it(visit: Visit, demo_page: Path) -> None:
    """In words, in the list of questions and in the table of pairs."""
    row = next(row for row in rows_of(demo_page.parent) if any(each.review for each in row.kept))
    page = visit(address(demo_page, "q", row.id))
    needed = sum(each.review for each in row.kept)
    expect(page.locator("#questions a[aria-current] .facts")).to_contain_text(f"⚠ {needed} to review")
    caution = next(each.cautions[0] for each in view_of(demo_page.parent, row.id).pairs if each.cautions)
    expect(page.locator("main .pair-table").first).to_contain_text(f"⚠ {caution}")


def test_a_question_without_a_pair_says_why_at_its_top(visit: Visit, demo_page: Path) -> None:
    """How its answers ended, which passages were lacking, why candidates were dropped."""
    row = next(row for row in rows_of(demo_page.parent) if not row.kept and row.ends == "all_wrong")
    page = visit(address(demo_page, "q", row.id), size=(1280, 720))
    said = page.locator("main .verdict.warning")
    expect(said).to_contain_text(re.compile("No pair. (All|The only path) "))
    expect(said).to_contain_text("wrong, most often ")
    expect(said).to_be_in_viewport()


def calibration_in(page: Page) -> Any:
    return page.locator("figure", has=page.get_by_role("heading", name="Calibration"))


def test_a_confidence_stands_beside_its_calibration(visit: Visit, demo_page: Path) -> None:
    """A diagram and a share of pairs like it, once fresh continuations have checked some; before, that none have."""
    run = demo_page.parent
    row = next(row for row in rows_of(run) if row.kept)
    place = "q", row.id, "pair", row.kept[0].id
    page = visit(address(demo_page))
    expect(calibration_in(page)).to_contain_text("Not checked")
    page.goto(address(demo_page, *place))
    expect(page.locator("#detail")).to_contain_text("not checked by reasonrag calibrate")
    with contextlib.chdir(run.parent):
        found = reasonrag.calibrate("run", revalue=12, k=2, model="offline", yes=True).revaluation
    page = visit(address(reasonrag.view(run, out=run / "checked.html")))
    bins = [each for each in found.reliability if each.confirmed.of]
    figure = calibration_in(page)
    expect(figure).to_contain_text(f"Of {found.pairs} checked pairs, 2 fresh continuations a side confirm")
    expect(figure.locator("circle")).to_have_count(len(bins))
    low, high = bins[0].low, bins[0].high
    every = [each.confidence or 0 for row in rows_of(run) for each in row.kept]
    figure.locator("svg a").first.click()  # to all pairs of such a confidence
    expect(page.locator("#pairs-found")).to_have_text(
        re.compile(f"^{sum(low <= each < high or each == high == 1 for each in every)} of")
    )
    page.goto(address(run / "checked.html", *place))
    expect(page.locator("#detail")).to_contain_text(re.compile("right, ties apart|no pair of such a confidence"))


def test_an_address_leads_straight_to_what_it_names(visit: Visit, page_of_run: Path, run: Path) -> None:
    """What a colleague sends: the same pair, the same step, with gold passages marked; words where there is nothing."""
    row = next(row for row in rows_of(run) if row.kept)
    pair = next(pair for pair in view_of(run, row.id).pairs if pair.dropped is None)
    page = visit(address(page_of_run, "q", row.id, "pair", pair.id))
    page.get_by_role("heading", name="Pair of steps").wait_for()
    page.goto(address(page_of_run, "q", row.id, "step", 0, pair.rejected))
    page.get_by_role("heading", name=f"Step {pair.rejected}:").wait_for()
    page.goto(address(page_of_run, "q", FAILED))
    page.get_by_text("the endpoint said no").wait_for()
    page.goto(address(page_of_run, "q", "nobody"))
    page.get_by_text("There is no question nobody here").wait_for()
    page.goto(address(page_of_run, "q", row.id, "pair", "of-an-older-set"))
    page.get_by_text("The pair of this address is not here.").wait_for()
    page.goto(f"{address(page_of_run, 'judge')}?order=__proto__")
    page.get_by_text("Judgements are taken by reasonrag view DIR --serve").wait_for()
    expect(page.locator("#found")).to_have_text(f"{QUESTIONS} questions")
    step = next(
        step for step in view_of(run, ATTACKED).trees[0].steps if any(each.gold for each in step.passages or ())
    )
    page.goto(address(page_of_run, "q", ATTACKED, "step", 0, step.id))
    page.locator("#detail .passages > li").first.wait_for()
    marked = ["gold" in each for each in page.locator("#detail .passages summary").all_inner_texts()]
    assert marked == [bool(each.gold) for each in step.passages or ()]


SEVERAL = "several"


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of two runs that number different questions alike, whose replies are long and share nothing; and a
    question with two pairs."""
    place = tmp_path_factory.mktemp("grown")
    noise = Random(0)
    replies = [
        "".join(f"{noise.choice(letters)} " for _ in range(LONG_REPLY // 2)) for letters in ("abcdefg", "tuvwxyz")
    ]
    steps = [query(reply, reward) for reply, reward in zip(replies, (0.9, 0.0), strict=True)]
    records = [siblings(*steps, question_id="q1", question=f"Who was it, {name}?") for name in ("one", "other")]
    several = query("who", 0.9), query("what", 0.0), answer("Ada", 0.8), answer("Bob", 0.1)
    records.append(siblings(*several, question_id=SEVERAL, question="Who of several?"))
    runs = [run_of(place / "one", records[0]), run_of(place / "other", *records[1:])]
    reasonrag.pairs(runs, out=place / "pairs")
    return reasonrag.view(place / "pairs")


def test_the_page_can_be_used_without_a_pointer(visit: Visit, grown: Path) -> None:
    """Tab into the list, arrows along it, Enter; past the list, into the tree, arrows, Enter; from the step on to its
    pair. Escape gives the keyboard back to the step it was at; n and p go from pair to pair."""
    kept = [pair.id for pair in view_of(grown.parent, SEVERAL).pairs if pair.dropped is None]
    assert len(kept) > 1
    page = visit(grown)
    wait_for_list(page, 3)

    def tab_until(what: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("what => document.activeElement.matches(what)", what):
                return
        raise AssertionError(f"60 tabs do not lead to {what}")

    tab_until("#questions a")
    for _ in range(shown(page).index("Who of several?")):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator(TREE).wait_for()
    home = page.url
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#stage")).to_be_focused()
    assert (page.locator("main h2").inner_text(), page.url) == ("Who of several?", home)
    tab_until(".node")
    page.keyboard.press("t")
    page.keyboard.press("ArrowRight")
    number = page.evaluate("document.activeElement.dataset.step")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=f"Step {number}:").wait_for()
    page.keyboard.press("Escape")
    page.locator("#detail").wait_for(state="hidden")
    page.wait_for_url(re.compile("/tree/0$"))
    expect(step_in(page, number)).to_be_focused()
    page.keyboard.press("Enter")
    tab_until("#detail a[href*=pair]")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Pair of steps").wait_for()
    seen = [page.url.rpartition("/pair/")[2]]
    for key in ("n", "p"):
        before = page.url
        page.keyboard.press(key)
        page.wait_for_url(lambda url, before=before: url != before)
        page.get_by_role("heading", name="Pair of steps").wait_for()
        seen.append(page.url.rpartition("/pair/")[2])
    assert seen[0] == seen[2] != seen[1]
    assert set(seen) <= set(kept)
    page.keyboard.press("Escape")
    page.locator("#detail").wait_for(state="hidden")


def test_questions_with_one_id_open_each_its_own_and_long_replies_are_shown_whole(visit: Visit, grown: Path) -> None:
    """By a click, and by the address that is then sent to a colleague. What two long replies that share nothing differ
    in cannot be found out in time, so that each is marked as a whole; the page does not hang."""
    page = visit(grown)
    wait_for_list(page, 3)
    for place, question in enumerate(shown(page)):
        page.keyboard.press("Escape")
        page.locator("#questions a").nth(place).click()
        expect(page.locator("main h2")).to_have_text(question)
        page.locator(".pair-table a").first.click()
        page.get_by_role("heading", name="Pair of steps").wait_for()
        sent = page.url
        page.goto(address(grown))
        page.locator("main figure svg").first.wait_for()
        page.goto(sent)
        page.get_by_role("heading", name="Pair of steps").wait_for()
        assert page.locator("main h2").inner_text() == question
        if question == "Who was it, one?":
            said = page.locator("#detail .side pre").all_text_contents()
            assert [len(text) >= LONG_REPLY for text in said] == [True, True]


def more_of_the_list(page: Page) -> None:
    """Waits until the page was told several times how far the reading has come."""
    for _ in range(3):
        with page.expect_response("**/api/list*"):
            pass


def test_a_link_into_a_run_that_is_still_being_read_leads_there(visit: Visit, run: Path) -> None:
    """Once its question was read, without a click; it is asked for once, however long its answer and
    the others take."""
    collection = Slow(run / "rollouts.jsonl")
    rows = rows_of(run)
    row = next(row for row in rows[1:-1] if row.kept)
    with slowly_served(collection, len(rows)) as server:
        page = visit(address(server, "q", row.id))
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.get_by_text("Still reading").wait_for()
        collection.allowed.release(row.number)
        expect(page.locator("#questions a")).to_have_count(row.number)
        assert page.get_by_text("Still reading").is_visible()
        collection.answering.clear()
        with page.expect_request("**/api/question/*"):
            collection.allowed.release()
        more_of_the_list(page)
        collection.answering.set()
        page.locator(TREE).wait_for()
        assert page.locator("main h2").inner_text() == row.question
        more_of_the_list(page)
        collection.allowed.release(len(rows) - row.number)
        wait_for_list(page, len(rows))
        expect(page.locator(TREE)).to_be_visible()
        again = any(pair.tags for pair in view_of(run, row.id).pairs)  # caps are known at the end
        assert sum("/api/question/" in each for each in asked) == 1 + again


def test_the_list_marks_the_question_that_is_shown(visit: Visit, run: Path) -> None:
    """Also for those who turn back before another one was there."""
    collection = Slow(run / "rollouts.jsonl")
    collection.allowed.release(QUESTIONS + 1)
    with slowly_served(collection, QUESTIONS) as server:
        page = visit(server)
        wait_for_list(page, QUESTIONS)
        first, second = (page.locator("#questions a").nth(each) for each in (1, 2))
        first.click()
        page.locator(TREE).wait_for()
        collection.answering.clear()
        second.click()
        expect(second).to_have_attribute("aria-current", "page")
        page.go_back()
        page.locator(TREE).wait_for()
        expect(first).to_have_attribute("aria-current", "page")
        with page.expect_response("**/api/question/*"):
            collection.answering.set()
        expect(page.locator("main h2")).to_have_text(shown(page)[1])
        assert page.locator("#questions [aria-current]").count() == 1


# -- looks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "scheme"), [(WIDE, "light"), (WIDE, "dark"), (NARROW, "light")], ids=["light", "dark", "narrow"]
)
def test_every_view_can_be_read_by_everybody(
    visit: Visit, page_of_run: Path, run: Path, size: tuple[int, int], scheme: str
) -> None:
    """WCAG 2.1 A and AA as far as axe-core can tell, and no line that leaves a telephone's screen; so can an audit with
    errors and warnings, and the page of a critic."""
    row = next(row for row in rows_of(run) if row.kept)
    pair = next(pair for pair in view_of(run, row.id).pairs if pair.dropped is None)
    views: dict[str, tuple[tuple[object, ...], str]] = {
        "overview": ((), "main figure svg"),
        "tree": (("q", row.id), TREE),
        "step": (("q", row.id, "step", 0, pair.chosen), "#detail pre"),
        "pair": (("q", row.id, "pair", pair.id), "#detail .side"),
    }
    page = visit(page_of_run, size=size, scheme=scheme)
    wait_for_list(page, QUESTIONS)
    found = []
    for name, (parts, there) in views.items():
        page.goto(address(page_of_run, *parts))
        page.locator(there).first.wait_for()
        keep(page, f"view-{name}-{scheme}-{size[0]}")
        found += [f"{name}: {each}" for each in [*barriers(page), *too_wide(page)]]
    audit = run.parent / "audit.html"
    audit.write_text(report().page())
    page = visit(audit, size=size, scheme=scheme)
    found += [f"audit: {each}" for each in [*barriers(page), *too_wide(page)]]
    assert not found, "\n".join(found)


# -- hostile text ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["data set", "run, served"])
def test_hostile_text_does_nothing_and_is_shown_as_text(visit: Visit, hostile: Hostile, what: str) -> None:
    """In every view of what holds it in every field, of every pair of a question, and of every step of a run: nothing
    ran, nothing was asked for, no element came of it, tags can be read, and what is invisible or turns text around is
    named."""
    source = hostile.data_set if what == "data set" else hostile.run
    view = view_of(source, hostile.attacked)
    steps = view.trees[0].steps if "served" in what else view.trees[0].steps[:3]
    places: dict[str, tuple[object, ...]] = {
        "overview": (),
        "failed": ("q", hostile.failed),
        "long": ("q", hostile.long),
        "long-step": ("q", hostile.long, "step", 0, 1),
        "tree": ("q", hostile.attacked),
        **{f"step-{step.id}": ("q", hostile.attacked, "step", 0, step.id) for step in steps},
        **{f"pair-{i}": ("q", hostile.attacked, "pair", pair.id) for i, pair in enumerate(view.pairs)},
    }
    found: dict[str, list[str]] = {}
    with serving(source) if "served" in what else contextlib.nullcontext(reasonrag.view(source)) as home:
        page = visit(home, size=NARROW if what == "data set" else WIDE)
        wait_for_list(page, QUESTIONS)
        for name, parts in places.items():
            page.goto(address(home, *parts))
            expect(page.locator("[role=status].note")).to_have_count(0)
            if len(parts) > 2:
                page.locator("#detail h3").wait_for()
            page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
            for each in [*did_run(page), *not_text(page), *too_wide(page)]:
                found.setdefault(each, []).append(name)
            if name in ("overview", "failed", "long", "long-step", "tree", "step-2", "pair-0"):
                keep(page, f"hostile-{what}-{name}")
    assert not found, "\n".join(f"{each}: in {', '.join(where)}" for each, where in found.items())


def too_wide(page: Page) -> list[str]:
    wider = overflow(page)
    return [f"{wider} pixels wider than the window"] if wider > 0 else []


def not_text(page: Page) -> list[str]:
    """What of the attacks cannot be read as it is, and hidden characters in texts, names and titles."""
    said, hidden = page.evaluate(
        """hidden => {
          const bare = new RegExp(hidden, 'u');
          const places = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT, each =>
            each.parentElement.closest('script, style') ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
          const texts = [document.title];
          while (places.nextNode()) texts.push(places.currentNode.data);
          for (const each of document.querySelectorAll('[title], [aria-label], [placeholder], [alt]'))
            for (const name of ['title', 'aria-label', 'placeholder', 'alt']) texts.push(each.getAttribute(name) ?? '');
          return [texts.join('\\n'), texts.filter(each => bare.test(each)).map(each => {
            const at = each.search(bare);
            return `U+${each.codePointAt(at).toString(16)} in ${each.slice(Math.max(0, at - 60), at)}`;
          })];
        }""",
        HIDDEN,
    )
    missing = [] if MARK in said else ["nothing of the attacked texts is shown"]
    if MARK in page.locator("main, #detail").first.inner_text():
        missing += [f"cannot be read: {each}" for each in ATTACKS[:3] if each not in said]
    return [*missing, *hidden[:5]]


# -- size ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of 1,500 questions with the smallest trees that give a pair, of which a part has room in it."""
    place = tmp_path_factory.mktemp("large")
    steps = [
        answer(word, f1, f1=f1, em=f1, observations=4, rollouts=rollouts_of(f1, 1))
        for word, f1 in (("this", 1.0), ("that", 0.0))
    ]
    record = siblings(*steps, question="Which?", golden_answers=["this"]).model_dump(mode="json")
    with (place / "rollouts.jsonl").open("wb") as file:
        for number in range(MANY):
            file.write(
                orjson.dumps(record | {"question_id": f"q{number}", "question": f"Which of {number:,}?"}) + b"\n"
            )
    return reasonrag.view(place, max_mb=LARGE_MB)


def test_thousands_of_questions_can_be_searched_and_scrolled(visit: Visit, large: Path) -> None:
    """All are in the list, words find one of them, its end is reached by key and by scrolling, and its order is one."""
    page = visit(large)
    wait_for_list(page, MANY)
    page.fill("#filter-find", "q1234")
    expect(page.locator("#questions a")).to_have_count(1)
    assert shown(page) == ["Which of 1,234?"]
    page.click("#clear")
    wait_for_list(page, MANY)
    page.locator("#questions a").first.focus()
    page.keyboard.press("End")
    expect(page.locator("#questions a:focus")).to_have_attribute("data-place", str(MANY - 1))
    for top in (4_000, 3_400):
        page.locator("#list-frame").evaluate("(frame, top) => frame.scrollTo(0, top)", top)
        page.wait_for_function("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    places = page.locator("#questions a").evaluate_all("all => all.map(each => Number(each.dataset.place))")
    assert places == sorted(places), "Tab goes through the list in another order than the eye"
    page.locator("#list-frame").evaluate("frame => frame.scrollTo(0, frame.scrollHeight)")
    expect(page.locator(f"#questions [data-place='{MANY - 1}']")).to_be_in_viewport()


def test_a_page_that_has_no_room_for_all_trees_says_so(visit: Visit, large: Path) -> None:
    """It keeps to its limit, lists all questions, those first whose trees it has, and names the way to the others."""
    assert large.stat().st_size <= LARGE_MB * 10**6
    assert reasonrag.view(large.parent, out=large.with_name("again.html"), max_mb=LARGE_MB).read_bytes() == (
        large.read_bytes()
    )
    page = visit(large)
    wait_for_list(page, MANY)
    page.locator("#questions a").first.click()
    page.locator(TREE).wait_for()
    assert page.locator(".pair-table tbody tr").count() == 1
    page.locator("#questions a").first.focus()
    page.keyboard.press("End")
    expect(page.locator("#questions a:focus")).to_contain_text("tree not embedded")
    page.keyboard.press("Enter")
    page.get_by_text("This page embeds a sample of the trees").wait_for()
    page.get_by_text("reasonrag view --serve").wait_for()
