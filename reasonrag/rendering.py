"""Rendering of pages and cards: templates that make untrusted text inert, and how intervals and shares are written.

Decides what is escaped in Markdown and HTML. Knows no particular page.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~$])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")


class Verbatim(str):
    """Text that is already Markdown."""

    __slots__ = ()


def one_line(value: object) -> str:
    """The text without line breaks, controls and direction marks."""
    return _CONTROL.sub(" ", str(value))


def verbatim_line(value: object) -> Verbatim:
    """One line for a code block, which only a line break could end."""
    return Verbatim(one_line(value))


def escaped(value: object) -> str:
    """Text escaped for Markdown: no markup, HTML or links, on one line."""
    text = _SPECIAL.sub(r"\\\1", one_line(value).replace("&", "&amp;"))
    return text.replace("://", ":&#47;&#47;").replace("www.", "www&#46;")


def counted(count: int, thing: str) -> str:
    """`1 pair`, `1,024 pairs`."""
    return f"1 {thing}" if count == 1 else f"{count:,} {thing}s"


def of_which_reasoning(tokens: int) -> str:
    """` (of which 1,024 reasoning)`, behind the completion tokens that include them; empty without any."""
    return f" (of which {tokens:,} reasoning)" if tokens else ""


def percent(share: float, digits: int | None = None) -> str:
    """`95 %`, `97.5 %`; with a fixed number of digits where given."""
    return f"{100 * share:.10g} %" if digits is None else f"{100 * share:.{digits}f} %"


def interval_text(low: str, high: str, level: float) -> str:
    """`(95 % CI -0.1 to 0.2)`, of two ends as they are printed; level: share of intervals that hold the truth."""
    return f"({percent(level)} CI {low} to {high})"


def code(value: object) -> Verbatim:
    """A name as a code span that also works in tables."""
    text = one_line(value).strip().replace("|", r"\|")
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return Verbatim(f"{fence}{space}{text}{space}{fence}" if text else "(empty)")


def markdown_templates() -> jinja2.Environment:
    """The package's Markdown templates: every value is escaped, unless it is `Verbatim`."""
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.PackageLoader("reasonrag"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Markdown, not HTML: `finalize` escapes
        finalize=lambda value: value if isinstance(value, Verbatim) else escaped(value),
    )
    found.filters |= {"code": code, "line": verbatim_line}
    return found


def html_templates() -> jinja2.Environment:
    """The package's HTML templates, with autoescaping."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("reasonrag"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
