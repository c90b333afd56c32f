"""Pages of HTML: templates in which every text is escaped, and every name that is missing an error. Knows no page."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined


def html_templates() -> Environment:
    """The package's templates, for pages."""
    return Environment(
        loader=PackageLoader("reasonrag"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
