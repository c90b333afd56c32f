"""The commands of this package: each parses its flags, calls one function and shows what it returns.

Loads nothing heavy before a command needs it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from reasonrag.commandline import JSON, flag
from reasonrag.errors import InputError
from reasonrag.viewing.settings import ShowSettings

SOURCE = typer.Argument(metavar="RUN|DIR", help="Run directory of generate, or data set of pairs", show_default=False)


def show(
    run: Annotated[Path, SOURCE],
    question_id: Annotated[Optional[str], typer.Argument(help="As in the question file", show_default=False)] = None,
    step: Annotated[
        Optional[int],
        typer.Option(metavar="N", help="One step whole: its prompt, passages, reply, and the pairs it is in"),
    ] = None,
    pair: Annotated[
        Optional[str], typer.Option(metavar="PAIR_ID", help="One pair: both sides, and everything that decided it")
    ] = None,
    trees: Annotated[Optional[list[Path]], flag(ShowSettings, "trees")] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Draw the search tree of one question, its preference pairs, and why they are pairs."""
    if sum((step is not None, pair is not None, as_json)) > 1:
        raise InputError("--step, --pair and --json exclude each other: --json gives all steps and pairs anyway")
    from reasonrag.viewing.showing import show as find
    from reasonrag.viewing.terminal import show_pair, show_question, show_step

    found = find(run, question_id, trees=trees)
    if as_json:
        print(found.model_dump_json())
    elif step is not None:
        show_step(found, step)
    elif pair is not None:
        show_pair(found, pair)
    else:
        show_question(found, run)


def stats(
    path: Annotated[Path, SOURCE],
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Say in numbers what a run or a data set holds: outcomes, pairs, drop reasons, diversity, cost, distributions."""
    from reasonrag.viewing.showing import stats as count
    from reasonrag.viewing.tables import show_stats
    from reasonrag.viewing.terminal import reading

    with reading() as advanced:
        found = count(path, advanced=advanced)
    if as_json:
        print(found.model_dump_json())
    else:
        show_stats(found)
