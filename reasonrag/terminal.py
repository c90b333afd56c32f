"""Terminal output: untrusted text made harmless, prose, what records show, and progress.

Decides which characters are shown by name, so that nothing moves the cursor, reverses a line or hides. Knows no command
and no record.
"""

from __future__ import annotations

import select
import signal
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from reasonrag import rendering
from reasonrag.errors import Interrupted
from reasonrag.redaction import redact, secrets
from reasonrag.rendering import FIGURE, Aside, Line, Outline, Part, counted, written

if TYPE_CHECKING:
    from reasonrag.progress import SessionTally

_KEPT = "\n\u200c\u200d"
"""Line breaks, and the two joiners needed by Persian, Hindi and emoji."""
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories: controls, direction marks and other invisible characters, lone surrogates, line separators."""
TAB = "    "


class _Shown(dict[int, str]):
    """What is shown for a character, for `str.translate`: its name for controls and what cannot be seen."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if unicodedata.category(character) in _HIDDEN and character not in _KEPT:
            # the controls of ASCII have a picture each
            character = chr(0x2400 + code) if code < 0x20 else f"⟨U+{code:04X}⟩"  # noqa: PLR2004
        return self.setdefault(code, character)


_SHOWN = _Shown({0x09: TAB, 0x7F: "␡"} | dict.fromkeys(map(ord, "\u0085\u2028\u2029"), "\n"))


def shown(text: str) -> str:
    """The text with line breaks kept, tabs as spaces, and every other control or invisible character by name: ESC as
    `␛`, U+202E as `⟨U+202E⟩`."""
    return text.replace("\r\n", "\n").translate(_SHOWN)


def on_one_line(text: str) -> str:
    """`shown`, with line breaks and runs of spaces as one space."""
    return " ".join(shown(text).split())


def print_shown(text: object = "", *, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """`print`, with the text as `shown` gives it."""
    print(shown(str(text)), end=end, file=file, flush=flush)


def print_prose(text: str, *, file: TextIO | None = None) -> None:
    """A sentence for people: a terminal breaks it between words, a pipe or file gets one line."""
    console = Console(file=file, highlight=False, markup=False, emoji=False)
    console.print(shown(text), soft_wrap=not console.is_terminal)


PLAIN_LINE_EVERY_S = 10.0
"""How often progress is written if stderr is not a terminal."""
LARGE = 10**8
"""Bytes that take some ten seconds to read."""
CTRL_C_SEEN_WITHIN_S = 0.5
WHOLE_JOB_S = 7 * 24 * 3600.0
"""The remaining time is estimated from this much of the job: all of it, since single questions differ widely."""


class ProgressBar(Progress):
    """Description, bar, done of total, elapsed and remaining time on one line, which fits 60 columns, as only the bar
    shrinks; `below` is wrapped under it."""

    def __init__(self, console: Console, *, transient: bool = False) -> None:
        self.below = ""
        whole = Column(no_wrap=True)
        super().__init__(
            TextColumn("{task.description}", table_column=whole),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}", table_column=whole),
            TimeElapsedColumn(table_column=whole),
            TimeRemainingColumn(table_column=whole),
            TextColumn("left", table_column=whole),
            console=console,
            transient=transient,
            expand=True,
            speed_estimate_period=WHOLE_JOB_S,
            disable=not console.is_terminal,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.below:
            yield Text(self.below)


@contextmanager
def reading_progress(path: Path, size: int, *, instead: str = "") -> Iterator[Callable[[float], None]]:
    """A function that takes the share of the work that is done. Where much is read, draws a bar in a terminal, else
    writes a line; at Ctrl-C says what that interrupted, and exits. size: bytes to read. instead: what to do then."""
    console, megabytes = Console(stderr=True, highlight=False), size / 10**6
    what = f"reading {escape(on_one_line(path.name))}" + f" ({megabytes:,.0f} MB)" * (size >= LARGE)
    bar = ProgressBar(console, transient=True)
    bar.disable |= size < LARGE
    try:
        if size >= LARGE and not console.is_terminal:
            console.print(what, soft_wrap=True)
        with bar:
            task = bar.add_task(what, total=megabytes)
            yield lambda share: bar.update(task, completed=share * megabytes)
    except KeyboardInterrupt:
        console.print(f"interrupted while {what}{escape(shown(instead))}", soft_wrap=True)
        raise SystemExit(Interrupted.exit_status) from None


class TerminalMessages:
    """Messages on stderr."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)

    def say(self, message: str) -> None:
        self._console.print(escape(shown(message)), soft_wrap=not self._console.is_terminal)


class TerminalWatcher(TerminalMessages):
    """Progress of a run on stderr: a live bar in a terminal, else a plain line every PLAIN_LINE_EVERY_S seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._bar: ProgressBar | None = None
        self._total, self._noun = 0, ""
        self._done_before = 0
        self._last_line = time.monotonic()

    def warn(self, message: str) -> None:
        self.say(f"warning: {message}")

    def confirm(self, question: str) -> bool | None:
        """Ask in a terminal; anything but y or yes, and Ctrl-C, is a no."""
        in_main_thread = threading.current_thread() is threading.main_thread()  # only it is told of Ctrl-C
        if not (in_main_thread and sys.stdin.isatty() and self._console.is_terminal):
            self.warn(question)
            return None
        # asyncio would only note a Ctrl-C, and wait on for the line
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            self.say(f"{question}. Go on? [y/N]")
            return _typed_line().strip().casefold() in ("y", "yes")
        except KeyboardInterrupt:
            return False
        finally:
            signal.signal(signal.SIGINT, before)

    def started(self, *, total: int, done: int, noun: str = "question") -> None:
        self._total, self._done_before, self._noun = total, done, noun
        if total and done == total:
            self.say(f"{f'the {noun} is' if total == 1 else f'all {total:,} {noun}s are'} done; nothing left to ask")
        elif done:
            self.say(f"{done:,} of {counted(total, noun)} are done; continuing with the rest")
        if self._console.is_terminal and done < total:
            self._bar = ProgressBar(self._console)
            self._bar.add_task(f"{noun}s", total=total, completed=done)
            self._bar.start()

    def advanced(self, tally: SessionTally) -> None:
        completed = self._done_before + tally.questions
        if self._bar is not None:
            self._bar.below = tally.shown
            self._bar.update(self._bar.task_ids[0], completed=completed)
        elif time.monotonic() - self._last_line >= PLAIN_LINE_EVERY_S:
            self._last_line = time.monotonic()
            done = f"{completed:,} of {counted(self._total, self._noun)}"
            if tally.questions:
                seconds = round(tally.seconds / tally.questions * (self._total - completed))
                done += f", {timedelta(seconds=seconds)} left"
            self.say(f"{done}, {tally.shown}")

    def ended(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def _typed_line() -> str:
    """Raises KeyboardInterrupt even for a Ctrl-C in the moment before the wait, which a read alone would sit out."""
    with suppress(OSError):  # Windows waits for sockets only
        while not select.select([sys.stdin], [], [], CTRL_C_SEEN_WITHIN_S)[0]:
            pass
    return sys.stdin.readline()


def show(parts: Iterable[Part]) -> None:
    """Print what a record shows; asides go to stderr."""
    known = secrets()
    console = Console(highlight=False, markup=False, emoji=False)
    for part in parts:
        if isinstance(part, rendering.Table):
            _print_table(part, console)
        elif isinstance(part, Outline):
            console.print(Text(on_one_line(" ".join(part.words)), "dim"), *_branches(part), sep="\n")
        elif isinstance(part, Line):
            print_shown(redact(part, known))
        else:
            print_prose(redact(written(part), known), file=sys.stderr if isinstance(part, Aside) else None)


_STYLES = {"error": "bold red", "allowed": "magenta", "warning": "yellow", "note": "cyan", "ok": "green"}
_STYLES |= {"query": "cyan", "evidence": "yellow", "answer": "bold"}
"""Of a verdict, a severity or an action type, in a cell of its own."""
_MANY_COLUMNS = 8
"""With more, a table has no lines, so that it fits 80 columns."""
_SHORT_NAME = 24
"""Names at the beginning of a line are not broken if none is longer."""


def _branches(part: Outline, above: str = "") -> Iterator[Text]:
    """A line for each, cut where the terminal ends: seven layers take 14 columns."""
    for each in part.below:
        last = each is part.below[-1]
        words = [(f"{on_one_line(word)} ", _STYLES.get(word, "")) for word in each.words]
        yield Text.assemble((f"{above}{'└╴' if last else '├╴'}", "dim"), *words, no_wrap=True, overflow="ellipsis")
        yield from _branches(each, f"{above}{'  ' if last else '│ '}")


def _print_table(part: rendering.Table, console: Console) -> None:
    """Under its title, which may be wider than the table. Where it must be squeezed, numbers are not."""
    rows = part.cells
    console.print(Text(shown(written(part.title)), style="italic"), soft_wrap=not console.is_terminal)
    if part.texts:
        for told, value in rows:
            console.print(Text(shown(told), style="bold"))
            console.print(Padding(Text(shown(value)), (0, 0, 0, 2), expand=False))
        return
    wide = len(part.head) > _MANY_COLUMNS
    table = Table(show_header=bool(part.head), collapse_padding=wide, pad_edge=not wide)
    if wide:
        table.box = None
    for place, name in enumerate(part.head or ("", "")):
        numbers = part.head and all(FIGURE.fullmatch(row[place]) for row in rows)
        table.add_column(
            Text(shown(written(name))),
            style=None if part.head or place else "bold",
            justify="right" if numbers else "left",
            overflow="fold",
            no_wrap=not place and all(len(row[0]) <= _SHORT_NAME for row in rows),
            max_width=None if part.head or place else max(_SHORT_NAME, console.width // 3),
        )
    for row in rows:
        table.add_row(*(Text(shown(each), style=_STYLES.get(each, "")) for each in row))
    natural = console.measure(table, options=console.options.update_width(10**4)).maximum
    for place, column in enumerate(table.columns if natural > console.width else ()):
        if column.justify == "right":
            column.width = max(map(len, [*(row[place] for row in rows), *written(part.head[place]).split()]))
        elif all(each.justify == "right" for each in table.columns[1:]):
            column.no_wrap = False  # nothing else can give way
    console.print(table)
