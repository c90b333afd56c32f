"""The content of a model's folder: weights or an adapter, a configuration, a tokenizer.

Decides what counts as a loadable model. Reads file names and small JSON files, without torch or transformers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from reasonrag.errors import InputError
from reasonrag.files import read_small

CONFIG, ADAPTER_CONFIG = "config.json", "adapter_config.json"
PROVENANCE = "reasonrag.json"
"""What reasonrag says of a model that it trained, `training.provenance`."""
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "tokenizer.model")
"""One of them is enough here; a tokenizer that needs more reports it when loaded."""
_SMALL = (
    *(CONFIG, ADAPTER_CONFIG, "generation_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
)
"""Files that say, beside the weights, what a model answers."""
_BLOCK, _BLOCKS = 1 << 16, 64
_BY_TRUST = ("auto_map", "custom_generate", "custom_pipelines", "trust_remote_code")  # run Python files if trusted


@dataclass(frozen=True)
class ModelFolder:
    """A folder with a model. base_model: of an adapter, a folder or a name on the Hub; None for a whole model, or if
    the adapter does not name it."""

    path: Path
    is_adapter: bool
    base_model: str | None
    weights: tuple[str, ...]
    """File names: safetensors, else pickled weights."""
    has_tokenizer: bool

    @property
    def name(self) -> str:
        return self.path.resolve().name or "model"

    @property
    def is_classifier(self) -> bool:
        """Whether it gives scores instead of text. Raises InputError where its configuration cannot be read."""
        kinds = {} if self.is_adapter else read_model_config(self.path).get("architectures") or []
        return any(str(each).endswith("ForSequenceClassification") for each in kinds)


def open_model(folder: str | Path) -> ModelFolder:
    """Inspect a folder. Raises InputError, naming what is missing, if it is not a model."""
    path = Path(folder)
    if not path.is_dir():
        kind = "is a file" if path.exists() else "is not there"
        raise InputError(f"the model {path} {kind}; give the folder that train, or save_pretrained, wrote")
    is_adapter = (path / ADAPTER_CONFIG).is_file()
    if not is_adapter and not (path / CONFIG).is_file():
        nested = sorted(each.parent.name for each in path.glob(f"*/{CONFIG}"))
        hint = f". There are models below it: {', '.join(nested[:5])}" if nested else ""
        raise InputError(f"{path} is not a model: it has neither {CONFIG} nor {ADAPTER_CONFIG}{hint}")
    weights = _weights(path, "adapter_model" if is_adapter else "")
    if not weights:
        wanted = "adapter_model.safetensors" if is_adapter else "model.safetensors (or its shards)"
        raise InputError(f"{path} has no weights: {wanted} is missing. Did the training end?")
    base = base_model_of(path) if is_adapter else None
    for file, key in [*code_in(path, trusted=False), *(code_in(Path(base), trusted=False) if base else ())]:
        raise InputError(f"{file}: {key} would run code that is not the model's; remove it from the file")
    has_tokenizer = any((path / each).is_file() for each in _TOKENIZERS)
    if not is_adapter and not has_tokenizer:
        raise InputError(f"{path} has no tokenizer: {_TOKENIZERS[0]} is missing; copy it from the base model")
    return ModelFolder(path, is_adapter, base, weights, has_tokenizer)


def fingerprint(model: ModelFolder, base_model: str | None = None) -> str:
    """Names a model's configuration, tokenizer and weights, in 12 hexadecimal digits, wherever the folder lies.

    base_model: of an adapter, whose answers are that model's, too: a folder, of which the same is read, or a name on
    the Hub. Of weights it reads names, sizes and blocks spread over each file: training moves all of them. Raises
    InputError for a base model in a folder that is no model.
    """
    digest = hashlib.sha256()
    if base_model is not None:
        folder = Path(base_model).expanduser()
        here = folder.exists() or folder.is_absolute()
        digest.update(f"{fingerprint(open_model(folder)) if here else base_model}\0".encode())
    for name in _SMALL:
        if (model.path / name).is_file():
            digest.update(f"{name}\0".encode() + (model.path / name).read_bytes() + b"\0")
    for name in sorted(model.weights):
        size = (model.path / name).stat().st_size
        digest.update(f"{name}\0{size}\0".encode())
        with (model.path / name).open("rb") as file:
            for block in range(_BLOCKS):
                file.seek(max(0, size - _BLOCK) * block // (_BLOCKS - 1))
                digest.update(file.read(_BLOCK))
                if size <= _BLOCK:
                    break
    return digest.hexdigest()[:12]


def read_model_config(folder: Path) -> dict[str, Any]:
    """config.json of a whole model. Raises InputError."""
    try:
        return read_json(folder / CONFIG)
    except InputError as error:
        raise InputError(f"{folder} is not a model: it has no readable {CONFIG}") from error


def base_model_of(adapter: Path) -> str | None:
    """The base model that an adapter's configuration names. Raises InputError if it cannot be read."""
    base = read_json(adapter / ADAPTER_CONFIG).get("base_model_name_or_path")
    return base if isinstance(base, str) and base else None


def code_in(folder: Path, *, trusted: bool) -> list[tuple[Path, str]]:
    """Files of a folder, and the key in each by which loading it runs code: a module to import (peft), a kernel of the
    Hub (transformers), and where folders are trusted the Python files that they name. Raises InputError for a
    configuration that cannot be read: what it would run is not known."""
    return [
        (path, key)
        for path in sorted(folder.glob("*config*.json"))
        for key in _code_keys(read_json(path), trusted=trusted or path.name == ADAPTER_CONFIG)
    ]


def _code_keys(values: Any, *, trusted: bool) -> Iterator[str]:
    for key, value in values.items() if isinstance(values, dict) else ():
        module = key == "megatron_core" and value not in (None, "megatron.core")
        kernel = key in ("attn_implementation", "_attn_implementation") and "/" in str(value)
        if module or kernel or (trusted and key in _BY_TRUST and value):
            yield key
        for each in value if isinstance(value, list) else [value]:
            yield from _code_keys(each, trusted=trusted)


def pickles_in(folder: Path) -> list[Path]:
    """Weights of a model, an adapter or a value head that would be read from a pickle."""
    kinds = {"pytorch_model": "model", "adapter_model": "adapter_model", "value_head": "value_head"}
    read = [kind for kind, safe in kinds.items() if not any(folder.glob(f"{safe}.safetensors*"))]
    return [path for kind in read for path in sorted(folder.glob(f"{kind}*.bin"))]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises InputError for anything else."""
    try:
        found = orjson.loads(read_small(path))
    except (OSError, orjson.JSONDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} does not hold a JSON object")
    return found


def _weights(path: Path, prefix: str) -> tuple[str, ...]:
    for endings in ((".safetensors",), (".bin", ".pt", ".pth")):
        found = sorted(each.name for each in path.iterdir() if each.is_file() and each.suffix in endings)
        named = [each for each in found if each.startswith(prefix or ("model", "pytorch_model"))]
        if named:
            return tuple(named)
    return ()
