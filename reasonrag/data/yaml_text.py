"""Reads YAML from untrusted files within limits of size and depth, without aliases.

Knows neither files nor the meaning of keys. Changes of single keys (`--set`) are read here, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from reasonrag.errors import InputError

MOST_CHARACTERS = 1 << 16
"""Limit per text. The longest configuration among LLaMA-Factory's examples has 2,000."""
_SHOWN = 200
"""Characters of a change in a message about it."""


class BoundedLoader(yaml.SafeLoader):
    """A SafeLoader that reads no aliases, a few of which expand to millions of values; duplicate keys are errors."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if type(event) is yaml.AliasEvent:
            where: Any = event.start_mark
            what = f"*{event.anchor}: aliases are not read; write the value itself"
            raise yaml.composer.ComposerError(None, None, what, where)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        seen: set[Any] = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if name.__hash__ is not None and name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key {name!r}", key.start_mark)
            seen |= {name} if name.__hash__ is not None else set()
        return super().construct_mapping(node, deep)


def read_yaml(text: str, loader: type[BoundedLoader] = BoundedLoader) -> Any:
    """The value of one document. Raises ValueError with the line and what is wrong there."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"it has {len(text):,} characters, more than {MOST_CHARACTERS:,}")
    try:
        return yaml.load(text, loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"{where}{error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    # PyYAML lets these through for numbers too long, impossible dates, and tags that do not fit their value
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"a value cannot be read ({error})") from error


def parse_changes(
    words: Iterable[str], loader: type[BoundedLoader] = BoundedLoader, *, example: str = "search.siblings=4"
) -> dict[str, Any]:
    """`KEY=VALUE` words of --set as values by key, each read as YAML; without a value an empty text. example: of such a
    word. Raises InputError."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        key = key.strip()
        if not equals or not key.replace(".", "_").isidentifier():
            raise InputError(f"--set {word[:_SHOWN]}: it takes KEY=VALUE, as in --set {example}")
        if key in found:
            raise InputError(f"--set {key} is given twice")
        try:
            found[key] = read_yaml(text, loader) if text.strip() else ""
        except ValueError as error:
            raise InputError(
                f"--set {word[:_SHOWN]}: the value is not valid YAML ({error}); quote it, as in --set 'key=\"a: b\"'"
            ) from error
    return found
