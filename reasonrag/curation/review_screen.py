"""The review's terminal: blind pairs on stderr, the source of keys, and the report on stdout.

Shows a pair's state and its two replies, and nothing of its label. Text of models and passages is untrusted: `terminal`
makes it harmless, and it is never read as markup.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from preference.export.formats import PAIRS_FILE, plain_types
from preference.review_statistics import (
    DataSetCounts,
    RemarkedPair,
    ReviewerReport,
    ReviewersAgreement,
    ReviewPair,
    ReviewReport,
)
from preference.statistics import LABEL_LEVEL, Bin, Kappa, Share
from reasonrag.curation.review import REPORT, REVIEW, KeySource
from reasonrag.errors import InputError
from reasonrag.rendering import counted, interval_text
from reasonrag.terminal import agreement_text, on_one_line, print_shown, print_table, share_with_interval, shown

MAX_WIDTH = 100
"""Columns; longer lines are hard to read."""
MAX_PASSAGE_LENGTH, MAX_THOUGHTS_LENGTH, MAX_REPLY_LENGTH, MAX_QUESTION_LENGTH = 600, 1200, 2400, 600
"""Characters shown of each, unless the whole is requested."""
MAX_COMPARED_WORDS = 600
"""Tokens of a reply above which differences are not marked: that takes up to cubic time, about a second here."""
MOSTLY_DIFFERENT = 0.5
"""Share of differing words above which none is marked."""
MAX_REMARKS = 20
STDIN = 0
MIN_VERDICTS = 10
"""Verdicts needed before the report points out a deviation."""
EVEN = 0.5
DEBOUNCE_S = 0.2
"""Keys within this time are ignored: too early to have read the pair, they are left over from the previous one."""
DIFFERS = "bold yellow"
KEYS = (
    ("a", "A is the better step"),
    ("b", "B is the better step"),
    ("t", "both are as good (a tie)"),
    ("s", "skip: I cannot say"),
    ("n", "add a note, one line"),
    ("u", "undo: withdraw the last judgement"),
    ("w", "show this pair in full"),
    ("i", "show the agent's instructions"),
    ("g", "show the gold answers of the previous pair"),
    ("q", "quit; everything is saved, the same command continues"),
)
_TOKEN = re.compile(r"\w+|[^\w\s]")
_END_OF_A_THOUGHT = re.compile(r"(</\s*(?:evidence|query|answer)\s*>[.\"]?)\s+")


# -- a pair ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PromptParts:
    """The parts of a user turn in RAG_ProGuide's layout; in another layout everything is `question`."""

    question: str
    thoughts: str = ""
    passages: tuple[tuple[str, str], ...] = ()
    """Title and text."""
    has_passages: bool = False


def parse_prompt_parts(user: str) -> PromptParts:
    """Parse a user turn by the layout of `prompting.render_prompt`."""
    head, found, reference = user.partition(". Reference: <reference>")
    if not head.startswith("Question: "):
        return PromptParts(user)
    question, _, thoughts = head.removeprefix("Question: ").partition("\nPrevious Thoughts: ")
    listed = reference.removesuffix("</reference>").split("Wikipedia Title: ")
    passages = [each.strip().partition("\n") for each in listed if each.strip()]
    return PromptParts(question, thoughts, tuple((title, text) for title, _, text in passages), bool(found))


def mark_differences(one: str, other: str) -> tuple[Text, Text]:
    """Both replies, made harmless, with differing words marked on both sides."""
    texts = Text(shown(one)), Text(shown(other))
    words, others = (list(_TOKEN.finditer(text.plain)) for text in texts)
    if max(len(words), len(others)) > MAX_COMPARED_WORDS:
        return texts
    matcher = difflib.SequenceMatcher(None, [each[0] for each in words], [each[0] for each in others], autojunk=False)
    if 1 - matcher.ratio() > MOSTLY_DIFFERENT:
        return texts
    for what, from_one, to_one, from_other, to_other in matcher.get_opcodes():
        if what != "equal":
            for text, found, start, end in (
                (texts[0], words, from_one, to_one),
                (texts[1], others, from_other, to_other),
            ):
                if start < end:
                    text.stylize(DIFFERS, found[start].start(), found[end - 1].end())
    return texts


def truncate(text: Text, most: int, *, keep_end: float = 0.0) -> Text:
    """At most `most` characters of a text, and how many are left out. keep_end: share of them kept from its end."""
    left_out = len(text) - most
    if left_out <= most // 8:  # not worth a fold
        return text
    end = round(most * keep_end)
    start = text.plain.rfind(" ", 0, most - end)  # not in the middle of a word, unless the text is a single one
    start = start if start > (most - end) // 2 else most - end
    gap = Text(f" [.. {len(text) - start - end:,} more characters: w ..] ", style="dim")
    return Text.assemble(text[:start], gap, text[len(text) - end :] if end else Text())


def render_pair(pair: ReviewPair, seed: int, *, whole: bool) -> RenderableType:
    """The state, then both sides; uses only the prompt and the replies of the pair."""
    return Group(*_state(parse_prompt_parts(pair.user), whole=whole), *_sides(pair, seed, whole=whole))


def _state(seen: PromptParts, *, whole: bool) -> Iterator[RenderableType]:
    def fold(text: str, most: int, keep_end: float = 0.0) -> Text:
        return Text(shown(text)) if whole else truncate(Text(shown(text)), most, keep_end=keep_end)

    yield Text("Question", style="bold")
    yield _indented(fold(seen.question, MAX_QUESTION_LENGTH))
    if seen.thoughts:
        thoughts = _END_OF_A_THOUGHT.sub(r"\1\n", seen.thoughts.strip())
        yield Text("Previous thoughts", style="bold")
        yield _indented(fold(thoughts, MAX_THOUGHTS_LENGTH, keep_end=0.75))
    if seen.has_passages:
        yield Text("Passages found for the latest query" if seen.passages else "No passage was found", style="bold")
        for number, (title, text) in enumerate(seen.passages, start=1):
            yield _indented(Text.assemble(f"{number} ", (on_one_line(title)[:MAX_PASSAGE_LENGTH], "italic")))
            yield Padding(fold(text if whole else on_one_line(text), MAX_PASSAGE_LENGTH), (0, 0, 0, 4))


def _sides(pair: ReviewPair, seed: int, *, whole: bool) -> Iterator[RenderableType]:
    for name, text in zip("AB", mark_differences(*pair.sides(seed)), strict=True):
        reply = text if whole else truncate(text, MAX_REPLY_LENGTH, keep_end=0.4)
        yield Panel(reply, title=Text(name, style="bold"), title_align="left", padding=(0, 1))


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, 2))


class ReviewScreen:
    """The reviewer's screen, on stderr: stdout is for the report."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False, markup=False, emoji=False)

    def begin(self, *, reviewer: str, contents: DataSetCounts, size: int, judged: int) -> None:
        of = f"{size:,} of {contents.pairs:,} pairs"
        self.say(f"reviewer {reviewer}: {of}, {judged:,} already judged")
        left_out = {"repeated": contents.repeated, "with equal sides": contents.same, "unreadable": contents.unreadable}
        if any(left_out.values()):
            self.say("rows left out: " + ", ".join(f"{count:,} {name}" for name, count in left_out.items() if count))
        self.say("Which step should the agent take? Labels stay hidden until the report.")
        self.keys()

    def pair(self, pair: ReviewPair, seed: int, *, number: int, size: int, whole: bool, note: str) -> None:
        self._print("")
        self._print(Rule(Text(f"pair {number:,} of {size:,}"), style="dim"))
        self._print(render_pair(pair, seed, whole=whole))
        if note:
            self.say(f"note: {note}")
        self._print(Text("a A  b B  t tie  s skip  n note  u undo  w whole  ? keys  q quit", style="dim"))

    def keys(self) -> None:
        table = Table.grid(padding=(0, 1), pad_edge=True)
        for key, meaning in KEYS:
            table.add_row(Text(key, style="bold"), Text(meaning))
        self._print(table)

    def text(self, title: str, text: str) -> None:
        self._print(Text(title, style="bold"))
        self._print(_indented(Text(shown(text))))

    def say(self, message: str) -> None:
        self._print(Text(shown(message)))

    def _print(self, shown: RenderableType) -> None:
        self._console.print(shown, width=min(self._console.width, MAX_WIDTH))


# -- keys ------------------------------------------------------------------------------------------------------


def open_keys() -> KeySource:
    """Single keys if stdin is a terminal, else lines."""
    return TerminalKeys(STDIN) if os.isatty(STDIN) else LineKeys(STDIN)


class LineKeys:
    """One key per line, from a pipe or a file; a note follows its `n`, or is on the next line."""

    def __init__(self, descriptor: int) -> None:
        try:
            self._file: IO[bytes] = os.fdopen(descriptor, "rb", closefd=False)
        except OSError:  # stdin is closed
            self._file = BytesIO()

    def key(self) -> str | None:
        while line := self._file.readline():
            if text := line.decode(errors="replace").strip():
                return text
        return None

    def note(self) -> str | None:
        line = self._file.readline()
        return line.decode(errors="replace") if line else None


class TerminalKeys:
    """Keys as they are pressed. What was pressed before a pair could be read judges nothing; what is pasted neither.

    `typer.getchar` starts listening by throwing away what was pressed since the prompt, and disables Ctrl-Z.
    """

    def __init__(self, descriptor: int) -> None:
        """Raises InputError where a terminal cannot be read by the key."""
        try:
            import termios
            import tty
        except ImportError as error:  # Windows
            raise InputError(
                "this system has no terminal whose keys can be read singly; give them as lines on standard input"
            ) from error
        self._descriptor, self._termios, self._tty = descriptor, termios, tty

    def key(self) -> str | None:
        """A key that is a character; arrows and other keys that send several are passed over."""
        termios = self._termios
        before = termios.tcgetattr(self._descriptor)
        try:
            self._tty.setcbreak(self._descriptor)
            time.sleep(DEBOUNCE_S)
            termios.tcflush(self._descriptor, termios.TCIFLUSH)
            self._prompt("> ")
            while True:
                pressed = self._read()
                if pressed is None or pressed.startswith("\x04"):
                    key = None
                    break
                if len(pressed.strip()) == 1 and pressed.isprintable():
                    key = pressed.strip()
                    break
        finally:
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, before)
        self._prompt(f"{key or ''}\n")
        return key

    def note(self) -> str | None:
        self._prompt("note: ")
        return self._read()

    def _read(self) -> str | None:
        """What is there; None at the end, or when the terminal is gone."""
        try:
            return os.read(self._descriptor, 4096).decode(errors="replace") or None
        except OSError:
            return None
        except KeyboardInterrupt:
            self._prompt("\n")
            raise

    @staticmethod
    def _prompt(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


# -- the report ------------------------------------------------------------------------------------------------


def show_review(report: ReviewReport) -> None:
    """The results of each reviewer, then the agreement between reviewers."""
    if not report.reviewers:
        print_shown(f"no pair has been judged yet; start with: reasonrag review {report.directory}")
        return
    for each in report.reviewers:
        _show_reviewer(each)
    if report.between:
        rows = [(f"{each.one}, {each.other}", _between(each)) for each in report.between]
        print_table("agreement between reviewers, ties included", rows)
    print_shown("intervals treat pairs as independent, although pairs of a question are similar")
    print_shown(f"wrote {Path(report.directory) / REVIEW / REPORT}")


def _show_reviewer(report: ReviewerReport) -> None:
    ties = f", {report.ties:,} of them {'a tie' if report.ties == 1 else 'ties'}" if report.ties else ""
    skipped = f", {report.skipped:,} skipped" if report.skipped else ""
    gone = [("no longer in the data", f"{counted(report.gone, 'judgement')}")] if report.gone else []
    flipped = [("labels exchanged", agreement_text(report.flipped))] if report.flipped.right.of else []
    rows = [
        ("judged", counted(report.judged, "pair") + ties + skipped),
        *gone,
        ("agreement with labels", agreement_text(report.agreement)),
        ("kappa", _kappa(report.kappa)),
        *((f"  {plain_types(name)}", agreement_text(each)) for name, each in report.by_action_type.items()),
        *((f"  depth {name}", agreement_text(each)) for name, each in report.by_layer.items()),
        *((f"  {name.replace('_', ' ')}", agreement_text(each)) for name, each in report.by_tag.items()),
        *(_confidence_row(each) for each in report.by_confidence if each.mean_confidence is not None),
        *flipped,
        ("A chosen", share_with_interval(report.says_a) + _side_bias(report.says_a)),
        ("median time", "-" if report.median_seconds is None else f"{report.median_seconds:.1f} s per pair"),
    ]
    print_table(f"review by {report.reviewer}", rows)
    _list("disagreements with labels", report.disagreements)
    _list("notes on other pairs", report.notes)


def _confidence_row(each: Bin) -> tuple[str, str]:
    """A bin of confidence: claimed, and confirmed by the reviewer."""
    claim, high, low = each.mean_confidence or 0.0, each.confirmed.high, each.confirmed.low
    verdict = ""
    if high is not None and low is not None and each.confirmed.of >= MIN_VERDICTS:
        verdict = "; overconfident" if high < claim else "; underconfident" if low > claim else ""
    agreed = agreement_text(each)
    return f"  confidence {each.low:.1f} to {each.high:.1f}", f"{agreed}; claimed {claim:.2f}{verdict}"


def _kappa(kappa: Kappa) -> str:
    if kappa.kappa is None or kappa.low is None or kappa.high is None:
        return "undefined: all judgements are on one side"
    ends = interval_text(f"{kappa.low:.2f}", f"{kappa.high:.2f}", LABEL_LEVEL)
    return f"{kappa.kappa:.2f} {ends}; agreement by chance would be {kappa.chance:.2f}"


def _side_bias(share: Share) -> str:
    """A note if a side was preferred regardless of content; sides are assigned at random."""
    if share.of < MIN_VERDICTS or share.low is None or share.high is None or share.low <= EVEN <= share.high:
        return ""
    return f"; biased towards {'A' if share.low > EVEN else 'B'}, although sides are assigned at random"


def _between(each: ReviewersAgreement) -> str:
    return f"{share_with_interval(each.alike)}; kappa {_kappa(each.kappa)}"


def _list(title: str, remarks: list[RemarkedPair]) -> None:
    if not remarks:
        return
    print_shown(f"{title} (rows of {PAIRS_FILE}, from 1):")
    for each in remarks[:MAX_REMARKS]:
        name = each.pair_id or each.pair
        place = f"row {each.row:,}" if each.file == PAIRS_FILE else f"{each.file} row {each.row:,}"
        over = "" if each.rejected_action_type == each.chosen_action_type else f" over {each.rejected_action_type}"
        layer = "" if each.layer is None else f", depth {each.layer}"
        sure = "" if each.confidence is None else f", confidence {each.confidence:.2f}"
        print_shown(f"  {name}  {place}: {plain_types(each.chosen_action_type + over)}{layer}{sure}")
        if each.note:
            print_shown(f"    note: {on_one_line(each.note)}")
    if len(remarks) > MAX_REMARKS:
        print_shown(f"  .. and {len(remarks) - MAX_REMARKS:,} more; all are in {REPORT}")
