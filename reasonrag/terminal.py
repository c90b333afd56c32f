"""Terminal output: untrusted text made harmless, tables, progress, and number formats.

Decides which characters are shown by name, so that nothing moves the cursor, reverses a line or hides; and how shares,
counts and dollars are written. Knows no command.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
import unicodedata
from collections.abc import Iterable, Mapping
from typing import TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from preference.statistics import LABEL_LEVEL, Share
from reasonrag.progress import SessionTally
from reasonrag.rendering import interval_text

_KEPT = "\n\u200c\u200d"
"""Line breaks, and the two joiners needed by Persian, Hindi and emoji."""
_AS_A_LINE_BREAK = "\u0085\u2028\u2029"
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories: controls, direction marks and other invisible characters, lone surrogates, line separators."""
TAB = "    "


def shown(text: str) -> str:
    """The text with line breaks kept, tabs as spaces, and every other control or invisible character by name: ESC as
    `␛`, U+202E as `⟨U+202E⟩`."""
    text = text.replace("\r\n", "\n")
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(map(_shown, text))


def on_one_line(text: str) -> str:
    """`shown`, with line breaks and runs of spaces as one space."""
    return " ".join(shown(text).split())


def _shown(character: str) -> str:
    if character in _KEPT:
        return character
    if character in _AS_A_LINE_BREAK:
        return "\n"
    if character == "\t":
        return TAB
    if unicodedata.category(character) not in _HIDDEN:
        return character
    code = ord(character)
    if code < 0x20:  # noqa: PLR2004 - the controls of ASCII, each of which has a picture
        return chr(0x2400 + code)
    return "␡" if character == "\x7f" else f"⟨U+{code:04X}⟩"


def print_shown(text: object = "", *, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """`print`, with the text as `shown` gives it."""
    print(shown(str(text)), end=end, file=file, flush=flush)


def dollars(amount: float) -> str:
    """A dollar amount; small ones with four decimals."""
    return f"${amount:,.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"


PLAIN_LINE_EVERY_S = 10.0
"""How often progress is written if stderr is not a terminal."""


class TerminalMessages:
    """Messages on stderr."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)

    def say(self, message: str) -> None:
        self._console.print(escape(shown(message)), soft_wrap=True)


class TerminalWatcher(TerminalMessages):
    """Progress of a run on stderr: a live bar in a terminal, else a plain line every PLAIN_LINE_EVERY_S seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._bar: Progress | None = None
        self._total = 0
        self._done_before = 0
        self._last_line = time.monotonic()

    def warn(self, message: str) -> None:
        self.say(f"warning: {message}")

    def confirm(self, question: str) -> bool:
        """Ask in a terminal; anything but y or yes, and Ctrl-C, is a no."""
        in_main_thread = threading.current_thread() is threading.main_thread()  # only it is told of Ctrl-C
        if not (in_main_thread and sys.stdin.isatty() and self._console.is_terminal):
            self.warn(question)
            return True
        # asyncio would only note a Ctrl-C, and wait on for the line
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            self.say(f"{question}. Go on? [y/N]")
            return sys.stdin.readline().strip().casefold() in ("y", "yes")
        except KeyboardInterrupt:
            return False
        finally:
            signal.signal(signal.SIGINT, before)

    def started(self, *, total: int, done: int) -> None:
        self._total, self._done_before = total, done
        if done == total:
            self.say(f"all {total:,} questions are done; nothing left to ask")
        elif done:
            self.say(f"{done:,} of {total:,} questions are done; continuing with the rest")
        if self._console.is_terminal and done < total:
            self._bar = Progress(
                TextColumn("questions"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rates]}"),
                TimeElapsedColumn(),
                console=self._console,
            )
            self._bar.add_task("questions", total=total, completed=done, rates="")
            self._bar.start()

    def advanced(self, tally: SessionTally) -> None:
        completed = self._done_before + tally.questions
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=completed, rates=standing(tally))
        elif time.monotonic() - self._last_line >= PLAIN_LINE_EVERY_S:
            self._last_line = time.monotonic()
            owed = self._total - completed
            self.say(f"{completed - tally.failed_questions:,} done, {owed:,} left, {standing(tally)}")

    def ended(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def share_with_interval(share: Share) -> str:
    """`0.90 (90 % CI 0.80 to 0.95) of 40`."""
    if share.share is None or share.low is None or share.high is None:
        return "- of 0"
    return f"{share.share:.2f} {interval_text(f'{share.low:.2f}', f'{share.high:.2f}', LABEL_LEVEL)} of {share.of:,}"


def print_table(title: str, rows: Iterable[tuple[str, str]]) -> None:
    table = Table(title=escape(shown(title).replace("\n", " ")), title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, escape(shown(value)))
    Console(highlight=False).print(table)


def warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print_shown(f"warning: {on_one_line(warning)}", file=sys.stderr)


def standing(tally: SessionTally) -> str:
    """The state of a session, in one line."""
    rate = tally.calls / tally.seconds if tally.seconds else 0.0
    parts = [f"{tally.failed_questions:,} failed", f"{tally.in_flight:,} in flight", f"{rate:,.1f} calls/s"]
    answered = tally.calls + tally.cached_calls
    if tally.cached_calls:
        parts.append(f"{100 * tally.cached_calls / answered:.0f} % cached")
    parts.append(f"{tally.tokens:,} tokens")
    if tally.cost:
        projected = f" (about {dollars_or_unknown(tally.projected_cost)} in all)" if tally.projected_cost else ""
        parts.append(f"{dollars_or_unknown(tally.cost)}{projected}")
    if tally.failed_calls:
        parts.append(f"{tally.failed_calls:,} failed attempts")
    if tally.waiting_for:
        parts.append(tally.waiting_for)
    return ", ".join(parts)


def dollars_or_unknown(amount: float | None) -> str:
    return "unknown" if amount is None else dollars(amount)


def counts_text(counts: Mapping[str, int]) -> str:
    """`all wrong 3, mixed 1` of keys as in files, without zeros; a dash if nothing is left."""
    named = ((on_one_line(name).replace("_", " "), count) for name, count in counts.items())
    return ", ".join(f"{name} {count:,}" for name, count in named if count) or "-"


def shares_text(shares: dict[str, float], what: str) -> str:
    """`depth 0 0.62, 1 0.80`; a dash if there are none."""
    return f"{what} " + ", ".join(f"{name} {value:.2f}" for name, value in shares.items()) if shares else "-"


def share_text(value: float | None, *, digits: int = 3, unknown: str = "-") -> str:
    return unknown if value is None else f"{value:.{digits}f}"
