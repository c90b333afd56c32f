"""LLaMA-Factory's YAML files: which ship with the project, and how one is read, changed and written.

Decides how values are parsed, so that LLaMA-Factory gets what they look like: `1e-6` is a number (YAML 1.1 reads
text), `save_strategy: no` is a word (YAML 1.1 reads false). Knows no data and no other meaning of keys.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from reasonrag.data.yaml_text import BoundedLoader, parse_changes, read_yaml
from reasonrag.errors import InputError, choices
from reasonrag.files import read_small_text

_WORDS_NOT_TRUTHS = ("save_strategy", "eval_strategy", "logging_strategy")
"""Keys whose value `no` is a word, not false."""


class _Loader(BoundedLoader):
    """YAML with the numbers of YAML 1.2."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$"), list("-+.0123456789")
)


@dataclass(frozen=True)
class ConfigFile:
    """A YAML file of LLaMA-Factory's arguments. shipped: whether it comes with the project."""

    name: str
    text: str
    place: Path
    """Folder that its relative paths may be relative to."""
    shipped: bool

    @property
    def values(self) -> dict[str, Any]:
        """Raises InputError unless the file is a mapping of names to values."""
        try:
            values = read_yaml(self.text, _Loader)
        except ValueError as error:
            raise InputError(f"{self.name} is not valid YAML: {error}") from error
        if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
            raise InputError(f"{self.name} must hold LLaMA-Factory's arguments, one `name: value` per line")
        return {key: _meant(self.name, key, value) for key, value in values.items()}


def shipped_folder() -> Path:
    """The folder of the project's own files: inside the installed package, or at the top of a checkout."""
    package = Path(__file__).parents[2]
    return next(each / "train_configs" for each in (package, package.parent) if (each / "train_configs").is_dir())


def shipped_names(group: str = "") -> list[str]:
    """Of the shipped files, or of those in a folder of theirs."""
    return sorted(path.stem for path in (shipped_folder() / group).glob("*.yaml"))


def find_config(name: str | None, *groups: str) -> ConfigFile:
    """A file by its path, or a shipped one by its bare name. groups: see `shipped_names`. Raises InputError."""
    names = [each for group in groups or ("",) for each in shipped_names(group)]
    if not name:
        raise InputError(f"a configuration is needed: a YAML file, or one of {', '.join(names)}")
    path, folders = Path(name), [shipped_folder() / each for each in groups or ("",)]
    bare = path.name.removesuffix(path.suffix if path.suffix in (".yaml", ".yml") else "")
    places = [path, *(folder / f"{bare}.yaml" for folder in folders if str(path.parent) == ".")]
    file = next(filter(Path.is_file, places), None)
    if file is None:
        raise InputError(f"there is no configuration {name!r}, and no such file: {choices(bare, names)}")
    place = file.resolve().parent
    try:
        return ConfigFile(file.name, read_small_text(file), place, place in [each.resolve() for each in folders])
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}") from error


def changes_of(words: Iterable[str]) -> dict[str, Any]:
    """What --set changes in a configuration. Raises InputError."""
    found = parse_changes(words, _Loader, example="learning_rate=5.0e-6")
    return {key: _meant(f"--set {key}", key, value) for key, value in found.items()}


def _meant(where: str, key: str, value: Any) -> Any:
    if key in _WORDS_NOT_TRUTHS and value is False:
        return "no"
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where}: {key} must be a finite number")
    if value is not None and not isinstance(value, str | int | float | bool | list | dict):
        return str(value)  # dates and the like
    try:
        orjson.dumps(value)
    except TypeError as error:  # a number of more than 64 bits, a set, ..
        raise InputError(f"{where}: {key} cannot be passed on as JSON ({error})") from error
    return value


MODELS = (
    *("model_name_or_path", "adapter_name_or_path"),
    *("ref_model", "ref_model_adapters", "reward_model", "reward_model_adapters"),
)
"""Keys that name models: a folder, a name on the Hub, or several."""


def models_in(config: Mapping[str, Any], keys: Iterable[str] = MODELS) -> list[tuple[str, str]]:
    """The models that a configuration names, each with its key."""
    return [(key, name) for key in keys for name in listed(config.get(key))]


def listed(value: object) -> list[str]:
    """The names in a list, or in a text with commas."""
    names = value if isinstance(value, list) else str(value or "").split(",")
    return [str(each).strip() for each in names if str(each).strip()]


def as_yaml(values: dict[str, Any], header: str) -> str:
    """YAML that LLaMA-Factory and other YAML 1.1 parsers read back unchanged; ASCII, because parsers differ in what
    they take for line breaks. header: text of the comment lines."""
    comment = "".join(f"# {line}\n" for line in header.splitlines())
    return comment + yaml.safe_dump(values, sort_keys=False, allow_unicode=False, width=1000)
