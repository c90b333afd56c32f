"""config.json of a run: what decided its answers, and what a changed configuration is."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from preference.export.files import INDENTED, atomic_replacement
from reasonrag.errors import InputError
from reasonrag.files import CONFIG, JOURNAL, ROLLOUTS


def has_answers(directory: Path) -> bool:
    """Whether the journal of a run holds anything that was paid for."""
    journal = directory / JOURNAL
    return journal.exists() and journal.stat().st_size > 0


def keep_config(directory: Path, config: dict[str, Any], *, held: bool) -> None:
    """Write config.json. held: something was made under the one that is there, which decides answers alike then.

    Raises InputError naming every setting that does not; and for a config.json of others, a model's for instance.
    """
    path = directory / CONFIG
    before = read_config(path) if held or path.exists() else {}
    if held and (changed := changed_keys(before["decides_answers"], config["decides_answers"])):
        raise InputError(
            f"{directory} holds a run with another configuration; its trees and answers would be of no use. "
            f"Changed: {'; '.join(changed)}. Choose another --run, or the settings in {path}"
        )
    with atomic_replacement(path) as file:
        file.write(orjson.dumps(config, option=INDENTED))


def changed_keys(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """`key was x, is y` for every key whose values differ, nested ones by their path (`recipe.search.siblings`)."""
    old, new = dict(_leaves(before)), dict(_leaves(now))
    return [
        f"{key} was {old.get(key)!r}, is {new.get(key)!r}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def _leaves(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _what_is_in(directory: Path) -> str:
    return ROLLOUTS if (directory / ROLLOUTS).exists() else JOURNAL


def read_config(path: Path) -> dict[str, Any]:
    """The content of a config.json. Raises InputError where it is none."""
    try:
        config = orjson.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(
            f"{path.parent} has {_what_is_in(path.parent)} but no {CONFIG}, so nobody knows how it was made. "
            "Choose another --run"
        ) from error
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path} is not JSON: {error}. Choose another --run") from error
    if not isinstance(config, dict) or not isinstance(config.get("decides_answers"), dict):
        raise InputError(f"{path} is not a configuration of reasonrag. Choose another --run")
    return config


def config_hash(decides_answers: dict[str, Any]) -> str:
    """Names everything that decides answers, in 16 hexadecimal digits."""
    canonical = orjson.dumps(decides_answers, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).hexdigest()[:16]


def versions() -> dict[str, str]:
    """What the results were made with."""
    packages = ("reasonrag", "openai", "bm25s", "pydantic")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}
