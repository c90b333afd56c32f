"""What a terminal shows: hostile text, sentences, tables and progress, at any width."""

from __future__ import annotations

import io
import os
import re
import signal
import unicodedata
from pathlib import Path
from threading import Timer

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from preference.statistics import share_of
from reasonrag.progress import SessionTally
from reasonrag.rendering import (
    Aside,
    Line,
    Outline,
    Table,
    Verdict,
    counts_text,
    depths_text,
    dollars,
    html_of,
    markdown_page,
    written,
)
from reasonrag.terminal import (
    ProgressBar,
    TerminalMessages,
    TerminalWatcher,
    print_prose,
    reading_progress,
    show,
    shown,
)

WIDTHS = (60, 80, 120)
MANY = SessionTally(
    questions=1_234, failed_questions=12, failed_calls=345, calls=98_765, cached_calls=4_321, tokens=123_456_789,
    in_flight=512, seconds=3_600, cost=1_234.5, waiting_for="waiting for the rate limit",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("plain text, ünïcode 漢字 [bold]", "plain text, ünïcode 漢字 [bold]"),
        ("\x1b[2J\x07\x00", "␛[2J␇␀"),
        ("\x9b31m\x7f", "⟨U+009B⟩31m␡"),
        ("a\u202eb\u2066c\u200e", "a⟨U+202E⟩b⟨U+2066⟩c⟨U+200E⟩"),
        ("zero\u200bwidth\ufeff \U000e0041", "zero⟨U+200B⟩width⟨U+FEFF⟩ ⟨U+E0041⟩"),
        ("half \ud800", "half ⟨U+D800⟩"),
        ("one\r\ntwo\rthree\u2028four\tfive", "one\ntwo␍three\nfour    five"),
        ("👨\u200d👩", "👨\u200d👩"),
    ],
)
def test_what_moves_the_cursor_or_hides_is_named(text: str, harmless: str) -> None:
    """And everything else stays as it is, joiners of emoji too."""
    assert shown(text) == harmless


@given(st.text(st.characters()))
def test_nothing_of_a_terminals_language_is_left(text: str) -> None:
    """But line breaks, and the two joiners; it can be encoded, and is shown alike once more."""
    found = shown(text)
    assert {unicodedata.category(each) for each in found if each not in "\n\u200c\u200d"}.isdisjoint(
        {"Cc", "Cf", "Cs", "Zl", "Zp"}
    )
    assert shown(found) == found
    found.encode()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    ("done", "total", "number"), [(0, 9, "0/9"), (20_000_123, 21_015_324, "20,000,123/21,015,324")]
)
def test_a_progress_bar_fits_and_has_done_total_and_the_time_left(
    width: int, done: int, total: int, number: str
) -> None:
    """Only the bar shrinks; what stands below is wrapped between words, and complete."""
    drawn = io.StringIO()
    terminal = Console(file=drawn, force_terminal=True, width=width, color_system=None)
    bar = ProgressBar(terminal)
    bar.below = MANY.shown
    bar.add_task("encoding", total=total, completed=done)
    for each in bar.get_renderables():
        terminal.print(each)
    first, *below = drawn.getvalue().splitlines()
    assert re.fullmatch(rf"encoding [━╸ ]+ {number} \d:\d\d:\d\d -:--:-- left", first)
    assert max(len(each.rstrip()) for each in (first, *below)) <= width
    assert " ".join(map(str.strip, below)) == MANY.shown
    assert "$1,234.50, 345 failed attempts, waiting for" in MANY.shown


@pytest.mark.parametrize("width", WIDTHS)
def test_sentences_are_broken_between_words_in_a_terminal_and_not_in_a_pipe(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log holds each sentence on one line."""
    sentence = "all wrong in 11 of 20 questions: no continuation reaches a right answer; " * 4 + "the end"
    print_prose(sentence)
    TerminalMessages().say(sentence)
    piped = capsys.readouterr()
    assert piped.out == piped.err == f"{sentence}\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    print_prose(sentence)
    TerminalMessages().say(sentence)
    seen = capsys.readouterr()
    for lines in (seen.out.splitlines(), seen.err.splitlines()):
        assert max(map(len, lines)) <= width
        assert " ".join(map(str.rstrip, lines)) == sentence


def test_a_title_is_not_squeezed_into_a_narrow_table(capsys: pytest.CaptureFixture[str]) -> None:
    """It may be wider than the table."""
    show([Table("pairs by depth and action type of the chosen step", [], ["n"])])
    assert capsys.readouterr().out.splitlines()[0] == "pairs by depth and action type of the chosen step"


HOSTILE = "[red]\x1b[2Jx[/red]\n| <b>\u202e"
PARTS = [
    Table("of a record", [("rows", 1_234), ("known", None), ("dropped", {"small_margin": 3, "none": 0}), ("lost", {})]),
    Table(HOSTILE, [(HOSTILE, HOSTILE)], (HOSTILE, "b")),
    HOSTILE,
    Line("next: reasonrag pairs 'a  b'"),
    Aside("warning: few questions"),
]


def test_a_record_is_shown_alike_in_a_terminal_and_in_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    """Values without anything in them are left out, unknown ones are a dash, and text of others is no markup."""
    show(PARTS)
    seen = capsys.readouterr()
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in seen.out.splitlines() if "│" in line]
    assert rows[:3] == [["rows", "1,234"], ["known", "-"], ["dropped", "small margin 3"]]
    assert seen.err == "warning: few questions\n"
    assert "next: reasonrag pairs 'a  b'" in seen.out.splitlines()
    page = markdown_page("A page", PARTS)
    assert "## of a record\n\n| | |\n|---|---|\n| rows | 1,234 |\n| known | - |\n| dropped | small margin 3 |\n" in page
    assert "\n**warning: few questions**\n" in page
    for text in (seen.out, page):
        assert not {"\x1b", "\u202e"} & set(text)
        assert "[red]" in text.replace("\\", "")
    assert "<b>" not in page
    assert not [line for line in seen.out.splitlines() if line.startswith("| <b>")]


def test_of_texts_an_empty_one_is_shown_too(capsys: pytest.CaptureFixture[str]) -> None:
    """As of a pair, where a reply may be empty."""
    pair = Table("a pair", [("chosen #1", ()), ("rejected #2", ("no",))], texts=True)
    show([pair])
    for text in (capsys.readouterr().out, markdown_page("A page", [pair]), html_of([pair])):
        assert re.search("chosen .?#1.*rejected .?#2", text, re.S)


def test_a_page_and_a_notebook_have_the_same_parts_and_run_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook's has no frame; text of others stays text, and secrets are hidden. A tree is a list within a list."""
    monkeypatch.setenv("SOME_API_KEY", "sk-some-secret-of-mine")
    tree = Outline(
        ["a run"], [Outline(["#1", "query", HOSTILE], [Outline(["#2", "answer", "sk-some-secret-of-mine"])])]
    )
    parts = [Verdict("error: one row is wrong"), tree, *PARTS]
    alone, page = html_of(parts), html_of(parts, HOSTILE)
    inside = alone.partition("</style>")[2].removesuffix("</div>\n").strip()
    assert inside.replace(" ", "") in page.replace(" ", "")
    assert ("<html" in alone, "<h1>" in page) == (False, True)
    assert '<p class="verdict error">error: one row is wrong</p>' in inside
    assert re.search(r"<li>#1 query .*?<ul><li>#2 answer ", " ".join(inside.split()))
    assert "<caption>of a record</caption>" in inside
    for text in (alone, page):
        assert not re.search(r"<script|<b>|\bon\w+=|some-secret|\x1b|\u202e", text)


@pytest.mark.parametrize("names", [("prompt tokens",), ("a name of more than twenty-four letters",)])
def test_numbers_are_whole_where_a_table_is_squeezed(
    names: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names give way, an interval does not."""
    monkeypatch.setenv("COLUMNS", "80")
    rows = [(name, 1_024, "1,888.1", "12,888.1", "+1,628.7 (1,543.2 to 1,724.3)") for name in names]
    show([Table("a comparison", rows, ("metric", "questions", "reference", "other", "difference (95 % CI)"))])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "+1,628.7 (1,543.2 to 1,724.3)" in "".join(lines)


@pytest.mark.parametrize(
    ("shows", "text"),
    [
        (counts_text({"small_margin": 1_024, "uncertain": 0}), "small margin 1,024"),
        (counts_text({}), "-"),
        (depths_text({"0": 1_200, "1": 3}), "depth 0: 1,200, 1: 3"),
        (depths_text({"0": 0.625}), "depth 0: 0.62"),
        (dollars(1_234.5), "$1,234.50"),
        (dollars(0.5), "$0.50"),
        (dollars(0.0123), "$0.0123"),
        (dollars(0), "$0.00"),
        (written(["a", None, 0.5, True]), "a, -, 0.50, yes"),
        (written(("two", {"lines_of": 2})), "two\nlines of 2"),
        (written(share_of(36, 40)), "0.90 (90 % CI 0.80 to 0.95) of 40"),
    ],
)
def test_numbers_have_one_format(shows: str, text: str) -> None:
    """Thousands are separated, names are words, and a depth is not mistaken for a count."""
    assert shows == text


def test_reading_much_is_said_in_a_line_or_in_a_terminal_by_a_bar_from_the_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for size, told in ((10**6, ""), (10**8, "reading run (100 MB)\n")):
        with reading_progress(Path("runs/run"), size) as watch:
            watch(0.5)
        assert capsys.readouterr() == ("", told)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with reading_progress(Path("run"), 4 * 10**9):
        pass
    assert "reading run (4,000 MB)" in capsys.readouterr().err


def test_a_ctrl_c_that_does_not_wake_the_wait_for_an_answer_is_a_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the moment before the wait: here another thread takes the signal, so that the read goes on."""
    ours, theirs = os.openpty()
    with os.fdopen(ours, "wb", buffering=0) as keyboard, os.fdopen(theirs) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        monkeypatch.setenv("FORCE_COLOR", "1")
        timers = [Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)), Timer(30, keyboard.write, [b"y\n"])]
        for each in timers:
            each.start()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        answer = TerminalWatcher().confirm("It costs $5")
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert (answer, timers[1].is_alive()) == (False, True)
        timers[1].cancel()
