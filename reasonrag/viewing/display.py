"""What a terminal shows while a run is read: progress on stderr, where it takes long enough to be seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from reasonrag.terminal import on_one_line


@contextmanager
def reading(path: Path) -> Iterator[Callable[[float], None]]:
    """A function that is told the share of the work that is done; draws a bar in a terminal, nothing elsewhere."""
    console = Console(stderr=True, highlight=False)
    columns = TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.percentage:3.0f} %")
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(f"reading {escape(on_one_line(str(path)))}", total=1.0)
        yield lambda share: bar.update(task, completed=share)
