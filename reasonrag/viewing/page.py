"""`view.html`: one page that needs no network, made of what a run, a data set or evaluations hold.

Decides how data gets into the page and what the page may do. Model and passage text never becomes part of the HTML:
it travels as packed JSON (gzip in base 64), and the scripts make text nodes of it; a policy allows the page's own
scripts by their digests, and nothing else. Knows nothing of the design.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import orjson
from markupsafe import Markup
from pydantic import BaseModel

from preference.labelled_runs import rare_garbage_collection
from preference.stratified_sample import seeded_uniform
from reasonrag import __version__
from reasonrag.files import readable
from reasonrag.rendering import html_templates
from reasonrag.terminal import on_one_line
from reasonrag.viewing.collection import Collection
from reasonrag.viewing.evaluations import EvaluatedQuestion, Evaluations, trainings
from reasonrag.viewing.overview import OverviewCounts, read_all
from reasonrag.viewing.question_rows import QuestionRow, columns_of
from reasonrag.viewing.question_view import question_view

_LIBRARIES = ("d3", "plot", "diff")
_OWN = ["text", "address", "data", "list", "pairs", "tree", "question", "detail", "overview", "evaluations"]
_OWN += ["curves", "judging", "live", "app"]
"""Scripts of the page, in the order in which they need each other."""
MOST_PAIRS = 100_000
"""Candidates in the table of pairs; where there are more, only kept ones are in it."""


def listing(counts: OverviewCounts, about: list[str], held: list[int] | None = None) -> dict[str, Any]:
    """Everything the list and the overview need: the object of `api/list`. about: what a reader should know about this
    page. held: questions whose trees are in the page; None: all."""
    overview = counts.overview()
    if overview.candidates > MOST_PAIRS:
        about = [*about, f"The table of pairs has no dropped candidates, as there are {overview.candidates:,}."]
    return {"rows": [*map(_fields, counts.rows())], "overview": _fields(overview), "about": about, "held": held}


def pair_columns(counts: OverviewCounts) -> dict[str, list[Any]]:
    """The table of pairs by column (`question_rows.PairRow`). It is no part of the listing: a list that has to wait for
    it opens in twice the time."""
    rows = counts.rows()
    return columns_of(rows, dropped=sum(len(row.candidates) for row in rows) <= MOST_PAIRS)


@rare_garbage_collection()
def page_of(
    collection: Collection,
    *,
    most: int,
    watch: Callable[[float], None],
    title: str | None = None,
    change: Callable[[str, dict[str, Any]], dict[str, Any]] | None = None,
) -> Iterator[bytes]:
    """The page of a run or a data set.

    most: size of the page, in bytes. If the trees of all questions do not fit, it holds those of a sample, always the
    same. watch: is told the share of the work that is done. title, change: as of `view`. Raises OSError, and
    InputError for a malformed line.
    """
    change = change or (lambda _, fields: fields)
    counts = read_all(collection, watch=lambda share: watch(share / 2))
    parts, held = _sample(
        rows := counts.rows(),
        most - len(_frame(title or collection.path, b"")),
        lambda number: change(f"question-{number}", _fields(question_view(collection.at(number), collection.rules))),
        lambda share: watch(0.5 + share / 2),
    )
    about = list[str]()
    if held is not None:
        sample = f"{len(held):,} of {len(rows):,} questions"
        about.append(f"It embeds the trees of a sample of {sample}; list and numbers cover all.")
        about += [] if title else [f"Show every tree with: reasonrag view {readable(str(collection.path))} --serve"]
    whole = change("list", listing(counts, about, held))
    return _page(title or collection.path, whole, {"pairs": packed(change("pairs", pair_columns(counts)))} | parts)


def page_of_evaluations(evaluations: Evaluations, *, most: int, watch: Callable[[float], None]) -> Iterator[bytes]:
    """most, watch: as of `page_of`."""
    title, whole = " and ".join(map(str, evaluations.paths)), evaluations.listing()
    parts, held = _sample(
        whole.rows,
        most - len(_frame(title, packed(_fields(whole)))),
        lambda number: {"attempts": evaluations.attempts(number)},
        watch,
    )
    if held is not None:
        whole.about.append(f"It has the attempts of a sample of {len(held):,} questions; --max-mb makes room for more.")
    return _page(title, _fields(whole), parts)


def page_of_trainings(paths: Sequence[Path], **_: object) -> Iterator[bytes]:
    """Raises as `trainings`."""
    found = [_fields(each) for each in trainings(paths)]
    return _page(" and ".join(map(str, paths)), {"kind": "trainings", "trainings": found, "about": []}, {})


def _sample(
    rows: Sequence[QuestionRow | EvaluatedQuestion],
    most: int,
    part: Callable[[int], dict[str, Any]],
    watch: Callable[[float], None],
) -> tuple[dict[str, bytes], list[int] | None]:
    """Packed parts of as many questions as `most` bytes have room for, one at least; and whose they are, null: all.
    A question without fields is left out."""
    found, left = dict[int, bytes](), most - 200 * len(rows)
    order = sorted(rows, key=lambda row: seeded_uniform(f"view:{row.number}:{row.id}", seed=0))
    for done, row in enumerate(order):
        if not (fields := part(row.number)):
            continue
        made = packed(fields)
        left -= len(made)
        if left < 0 and found:
            break
        found[row.number] = made
        watch(done / len(order))
    held = sorted(found)
    return {f"question-{each}": found[each] for each in held}, held if len(held) < len(rows) else None


def _page(title: object, whole: dict[str, Any], parts: Mapping[str, bytes]) -> Iterator[bytes]:
    whole["about"].insert(0, made_from(title))
    yield _frame(title, packed(whole))
    for name, part in parts.items():
        yield b'<script type="application/octet-stream" id="%s">%s</script>\n' % (name.encode(), part)
    yield _END


def served_page(path: Path) -> bytes:
    """The page without data, which fetches it from its server."""
    return _frame(path, None) + _END


def made_from(title: object) -> str:
    """What the page was made of, and by which version."""
    return f"Made by reasonrag {__version__} from {readable(str(title))}."


def packed(fields: dict[str, Any]) -> bytes:
    """A part of the page: JSON, gzip, base 64; the same bytes for the same content."""
    return base64.b64encode(gzip.compress(orjson.dumps(fields), 6, mtime=0))


def _fields(record: BaseModel) -> dict[str, Any]:
    return record.model_dump(mode="json")


# -- the frame -------------------------------------------------------------------------------------------------

_END = b"</body>\n</html>\n"


def _frame(title: object, data: bytes | None) -> bytes:
    """The page up to the parts. data: of the list, packed; None: the page fetches all from its server."""
    template = html_templates().get_template("view.html.j2")
    scripts = _scripts()
    page = template.render(
        mode="served" if data is None else "packed",
        title=f"{on_one_line(str(title))} · reasonrag",
        policy=_policy(scripts, "'self'" if data is None else "'none'"),
        style=Markup(_asset("page.css")),  # noqa: S704 - ours
        scripts=[Markup(each) for each in scripts],  # noqa: S704 - ours, and libraries that hold no closing tag
        packed=None if data is None else data.decode("ascii"),
    )
    return page.encode()


def _policy(scripts: Sequence[str], connect: str) -> str:
    """Allows these scripts only, no handlers in attributes, no request except to `connect`, no markup made of text."""
    digests = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in scripts
    )
    return (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data:; connect-src {connect}; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )


@cache
def _scripts() -> tuple[str, ...]:
    own = "\n".join(_asset(f"{name}.js") for name in _OWN)
    libraries = [_asset(f"vendor/{name}.min.js") for name in _LIBRARIES]
    return (*libraries, f'(() => {{\n"use strict";\n{own}\n}})();')


def _asset(name: str) -> str:
    return resources.files("reasonrag.viewing").joinpath("assets", *name.split("/")).read_text("utf-8")
