"""`reasonrag.view`, `show` and `stats`: the page of a run, a data set, evaluations or trainings, one question, and the
numbers.

Decides where the page goes and which question an id names. Knows neither the page's content nor its design.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from preference.export.private_files import atomic_replacement
from reasonrag.errors import InputError
from reasonrag.files import VIEW_PAGE
from reasonrag.rendering import counted
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.viewing import stats_tables  # noqa: F401 - notebooks show by them what is returned here
from reasonrag.viewing.collection import Collection, open_collection
from reasonrag.viewing.evaluations import Evaluations, is_evaluation, is_training
from reasonrag.viewing.overview import Overview, read_all
from reasonrag.viewing.page import page_of, page_of_evaluations, page_of_trainings
from reasonrag.viewing.question_view import QuestionView, question_view
from reasonrag.viewing.settings import ShowSettings, ViewSettings


@public_call(ViewSettings)
def view(
    path: str | Path | Sequence[str | Path],
    *,
    title: str | None = None,
    change: Callable[[str, dict[str, Any]], dict[str, Any]] | None = None,
    watch: Callable[[float], None] | None = None,
    **flags: Any,
) -> Path:
    """Write the page of a run, a data set, evaluations or trainings, and return where it is.

    Raises InputError if `path` is none of them, or if a file cannot be read or written.

    Example:
        >>> print(reasonrag.view("data/first"))
        data/first/view.html

    Args:
        path: a run directory, a data set, evaluations of the same questions, to stand beside each other, or folders of
            trainings, critics or rounds, likewise.
        title: of the page of a run or a data set, for readers elsewhere, in place of its path.
        change: is told the name and the fields of each part of such a page, and returns those that go into it; none: a
            question is left out.
        watch: is told the share of the work that is done.
    """
    settings = resolve(ViewSettings, "view", flags)
    places = [Path(each) for each in ([path] if isinstance(path, str | Path) else path)]
    if not places:
        raise InputError("view shows something: give a run, a data set, evaluations or trainings")
    place, page = places[0], _page_of(places, settings.trees, title=title, change=change)
    out = settings.out or (place if place.is_dir() else place.parent) / VIEW_PAGE
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out {out} must end in .html: it is a page, and would replace what is there")
    if out.is_dir():
        raise InputError(f"--out {out} is a directory; name a file in it, for instance {out / VIEW_PAGE}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        made = page(most=settings.max_mb * 10**6, watch=watch or (lambda _: None))
        with atomic_replacement(out) as file:
            file.writelines(made)
    except OSError as error:
        raise InputError(f"cannot read or write {error.filename or out}: {error.strerror or error}") from error
    return out


def _page_of(places: Sequence[Path], trees: Sequence[Path], **of_collection: Any) -> Callable[..., Iterator[bytes]]:
    """Raises InputError for what has no page, or none beside the others."""
    fits = is_evaluation if is_evaluation(places[0]) else is_training
    odd = next((each for each in places if not fits(each)), None)
    if odd and len(places) > 1:
        kind = "evaluation" if fits is is_evaluation else "training"
        raise InputError(f"{odd} is no {kind}: only evaluations, or only trainings, are shown beside each other")
    if odd:
        return partial(page_of, open_collection(odd, trees), **of_collection)
    if trees or any(of_collection.values()):
        raise InputError(f"--trees, title and change go with a run or a data set, and {places[0]} is neither")
    if fits is is_evaluation:
        return partial(page_of_evaluations, Evaluations(places))
    return partial(page_of_trainings, places)


_EXAMPLES = 5
_ALIKE = 0.5
"""Least similarity of an id that is suggested for a mistyped one, in [0, 1] (difflib)."""


@public_call(ShowSettings)
def show(run: str | Path, question_id: str | None, **flags: Any) -> QuestionView:
    """Everything about one question: its trees step by step, its pairs, and why each was labelled so.

    The pairs of a run are those that the default filters would keep; caps on the whole data set are not applied.
    Raises InputError if the question is not there.

    Example:
        >>> seen = reasonrag.show("runs/first", "atlas_train_0_5")
        >>> seen.question
        'Who was born first, Bam Traecel or Bex Traecel?'

    Args:
        run: a run directory, or a data set.
        question_id: as in the question file.
    """
    settings = resolve(ShowSettings, "show", flags)
    collection = open_collection(Path(run), settings.trees)
    explored = None if question_id is None else collection.find(question_id)
    if explored is None:
        raise InputError(_not_there(collection, question_id))
    return question_view(explored, collection.rules, caps_known=collection.kind == "data set")


@public_call()
def stats(path: str | Path, *, watch: Callable[[float], None] | None = None) -> Overview:
    """What a run or a data set holds, in numbers.

    The pairs of a run are those that `reasonrag pairs` makes with its default filters, without decontamination.
    Raises InputError if `path` is neither, or a line cannot be read.

    Example:
        >>> reasonrag.stats("runs/first").questions
        10

    Args:
        path: a run directory or a data set.
        watch: is told the share of the work that is done.
    """
    return read_all(open_collection(Path(path)), watch=watch or (lambda _: None)).overview()


def _not_there(collection: Collection, question_id: str | None) -> str:
    """Names similar ids; if there are none, the first ones."""
    known = list(dict.fromkeys(collection.ids()))
    where = f"{collection.path} has {counted(len(known), 'question')}"
    if not known:
        return f"{where}; nothing can be shown of it yet"
    asked = "say which question to show" if question_id is None else f"no question has the id {question_id!r}"
    similar = difflib.get_close_matches(question_id or "", known, n=_EXAMPLES, cutoff=_ALIKE)
    return f"{asked}: {where}, for instance {', '.join(similar or known[:_EXAMPLES])}"
