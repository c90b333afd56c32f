"""What a record shows: its parts, how values are written, and the templates of pages, cards and notebooks.

Decides what is escaped in Markdown and HTML, and how shares, counts and dollars are written. Knows no particular record
and no terminal.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from preference.export.formats import plain_types
from preference.export.summary import GoldAgreement
from preference.statistics import LABEL_LEVEL, Share, SignAgreement
from reasonrag.redaction import mask_secrets, secrets

if TYPE_CHECKING:
    import jinja2

SMALL_AMOUNT = 0.1

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~$])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


class Verbatim(str):
    """Text that is already Markdown."""

    __slots__ = ()


def one_line(value: object) -> str:
    """The text without line breaks, controls and direction marks."""
    return _CONTROL.sub(" ", str(value))


def escaped(value: object) -> str:
    """Text escaped for Markdown: no markup, HTML or links, on one line."""
    text = _SPECIAL.sub(r"\\\1", one_line(value).replace("&", "&amp;"))
    return text.replace("://", ":&#47;&#47;").replace("www.", "www&#46;")


# -- what is shown ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Values under a title, as `written` gives them.

    Without a head a row is a name and its value; a row without a value is left out, unless they are texts. head: names
    of the columns. texts: whether a terminal has each value below its name. On a page a Line in a cell is a link.
    """

    title: str
    rows: Iterable[Sequence[object]]
    head: Sequence[object] = ()
    texts: bool = False

    @property
    def cells(self) -> list[list[str]]:
        rows = [[written(each) for each in row] for row in self.rows]
        return [row for row in rows if self.head or self.texts or row[1]]


@dataclass(frozen=True)
class Outline:
    """Words with what stands below them. A terminal cuts them at its width."""

    words: Sequence[str]
    below: list[Outline] = field(default_factory=list)


class Line(str):
    """Text with a path or a command, which is not broken into lines."""

    __slots__ = ()


class Aside(str):
    """Text beside the result, such as a warning."""

    __slots__ = ()


class Verdict(str):
    """What a record comes to, behind its severity: `error: `, `warning: ` or `passed: `."""

    __slots__ = ()


Part: TypeAlias = Table | Outline | str
"""Of what a record shows; a `str` that is none of the above is prose."""


class Shown:
    """A record whose `shown` gives its parts, causes and what to do first: for the terminal, and for a notebook."""

    def _repr_html_(self: Any) -> str:
        return html_of(self.shown())


Shows = TypeVar("Shows", bound=Callable[[Any], Iterable[Part]])


def shows(kind: Any) -> Callable[[Shows], Shows]:
    """Of records that do not know how they are shown: notebooks show them by the decorated function."""

    def decorated(parts: Shows) -> Shows:
        kind._repr_html_ = lambda record: html_of(parts(record))
        return parts

    return decorated


def html_of(parts: Iterable[Part], title: str = "", page: str = "page.html.j2", **more: object) -> str:
    """A page that needs no network and runs no script; without a title what a notebook shows. Without secrets."""
    template = html_templates().get_template(page if title else "parts.html.j2")
    return template.render(parts=parts, title=title, **more)


FIGURE = re.compile(r"[-+$]?\d.*|-|none|yes|no|")
"""What is aligned at the right where a whole column has it."""


def next_command(*words: object) -> Line:
    """A command to go on with, ready to be pasted."""
    return Line(f"next: {shlex.join(['reasonrag', *map(str, words)])}")


def warned(warnings: Iterable[str]) -> Iterator[Aside]:
    return (Aside(f"warning: {each}") for each in warnings)


def written(value: object) -> str:
    """A value for people: a dash if it is not known, nothing if it is empty. A tuple has a line for each entry."""
    match value:
        case None:
            return "-"
        case str():
            return " ".join(value.splitlines())
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.2f}"
        case Share():
            return share_with_interval(value)
        case SignAgreement():
            return agreement_text(value)
        case Mapping():
            return counts_text(value) if any(value.values()) else ""
        case tuple():
            return "\n".join(map(written, value))
        case Sequence():
            return ", ".join(map(written, value))
    return str(value)


def markdown_page(title: str, parts: Iterable[Part]) -> str:
    """A page in Markdown, without secrets."""
    text = markdown_templates().get_template("page.md.j2").render(title=title, parts=parts)
    return mask_secrets(text, secrets())


# -- how values are written ------------------------------------------------------------------------------------


def counted(count: int, thing: str) -> str:
    """`1 pair`, `1,024 pairs`, `2 searches`."""
    return f"1 {thing}" if count == 1 else f"{count:,} {thing}{'es' if thing.endswith('ch') else 's'}"


def tokens_text(used: Any, unit: str = "", behind: str = "") -> str:
    """`4,096 in, 2,048 out (of which 1,024 reasoning)`, of a record with these counts. unit: behind the first number.
    behind: after both."""
    reasoning = f" (of which {used.reasoning_tokens:,} reasoning)" if used.reasoning_tokens else ""
    return f"{used.prompt_tokens:,}{unit} in, {used.completion_tokens:,} out{behind}{reasoning}"


def percent(share: float, digits: int | None = None) -> str:
    """`95 %`, `97.5 %`; with a fixed number of digits where given."""
    return f"{100 * share:.10g} %" if digits is None else f"{100 * share:.{digits}f} %"


def interval_text(low: str, high: str, level: float) -> str:
    """`(95 % CI -0.1 to 0.2)`, of two ends as they are printed; level: share of intervals that hold the truth."""
    return f"({percent(level)} CI {low} to {high})"


def dollars(amount: float) -> str:
    """A dollar amount; below SMALL_AMOUNT with four decimals."""
    return f"${amount:,.2f}" if amount >= SMALL_AMOUNT or amount == 0 else f"${amount:.4f}"


def dollars_or_unknown(amount: float | None) -> str:
    return "unknown" if amount is None else dollars(amount)


def share_with_interval(share: Share) -> str:
    """`0.90 (90 % CI 0.80 to 0.95) of 40`."""
    if share.share is None or share.low is None or share.high is None:
        return "- of 0"
    return f"{share.share:.2f} {interval_text(f'{share.low:.2f}', f'{share.high:.2f}', LABEL_LEVEL)} of {share.of:,}"


def agreement_text(found: SignAgreement) -> str:
    """`86 right, 4 wrong, 10 ties: 0.86 (90 % CI 0.79 to 0.91) of 100`."""
    right = found.right.of - found.wrong - found.ties
    return f"{right:,} right, {found.wrong:,} wrong, {counted(found.ties, 'tie')}: {share_with_interval(found.right)}"


def gold_rows(agreement: Mapping[str, GoldAgreement]) -> list[tuple[str, GoldAgreement]]:
    """By action type, what gold passages say of all pairs; none if they are not known."""
    return [(f"by gold passages, {plain_types(name)}", each) for name, each in agreement.items()]


def counts_text(counts: Mapping[str, int]) -> str:
    """`all wrong 3, mixed 1` of keys as in files, without zeros; a dash if nothing is left."""
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items() if count) or "-"


def depths_text(by_depth: Mapping[str, int | float]) -> str:
    """`depth 0: 12, 1: 3` of counts, `depth 0: 0.62` of shares; a dash if there are none."""
    values = (f"{name}: {f'{each:,}' if isinstance(each, int) else f'{each:.2f}'}" for name, each in by_depth.items())
    return f"depth {', '.join(values)}" if by_depth else "-"


# -- templates -------------------------------------------------------------------------------------------------


def code(value: object) -> Verbatim:
    """A name as a code span that also works in tables."""
    text = one_line(value).strip().replace("|", r"\|")
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return Verbatim(f"{fence}{space}{text}{space}{fence}" if text else "(empty)")


def markdown_table(rows: Iterable[Sequence[object]], *head: object) -> Verbatim:
    """A table in Markdown, as `written` gives its cells, or as they are where they are `Verbatim`; without a head, of
    names and values."""
    cells = [[each if isinstance(each, Verbatim) else escaped(written(each)) for each in row] for row in (head, *rows)]
    names, *lines = ("|" + "".join(f" {each} |" if each else " |" for each in row) for row in cells)
    return Verbatim("\n".join([names if head else "| | |", "|" + "---|" * (len(head) or 2), *lines]))


def _templates(*, autoescape: bool, **more: Any) -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("reasonrag"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=autoescape,  # noqa: S701 - Markdown is escaped by `finalize`
        **more,
    )


def markdown_templates() -> jinja2.Environment:
    """The package's Markdown templates: every value is escaped, unless it is `Verbatim`."""

    def final(value: object) -> Verbatim | str:
        return value if isinstance(value, Verbatim) else escaped(value)

    found = _templates(autoescape=False, keep_trailing_newline=True, finalize=final)
    # one line for a code block, which only a line break could end
    found.filters |= {"code": code, "line": lambda value: Verbatim(one_line(value)), "table": markdown_table}
    found.tests["aside"] = lambda part: isinstance(part, Aside)
    return found


def html_templates() -> jinja2.Environment:
    """The package's HTML templates, with autoescaping."""
    found, known = _templates(autoescape=True), secrets()
    found.filters["shown"] = lambda value: mask_secrets(one_line(written(value)), known)
    found.tests["figure"] = lambda value: FIGURE.fullmatch(written(value)) is not None
    found.tests["a"] = lambda part, kind: type(part).__name__ == kind
    return found
