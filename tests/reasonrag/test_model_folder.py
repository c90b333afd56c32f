"""What a folder says is read before anything of it is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reasonrag.errors import InputError
from reasonrag.model_folder import open_model

CODE: dict[str, tuple[str, dict[str, object]]] = {
    "a module that peft would import": ("adapter_config.json", {"megatron_config": {"a": 1}, "megatron_core": "evil"}),
    "trust that an adapter grants itself": ("adapter_config.json", {"tokenizer_kwargs": {"trust_remote_code": True}}),
    "a kernel of the Hub": ("config.json", {"attn_implementation": "they/kernel"}),
    "a kernel of the Hub for a part of the model": (
        "config.json",
        {"text_config": {"_attn_implementation": {"": "they/kernel@main:attention"}}},
    ),
    "a kernel in another file": ("preprocessor_config.json", {"parts": [{"attn_implementation": "paged|they/kernel"}]}),
}


def model_in(place: Path, file: str, content: object) -> Path:
    for name in ("config.json", "tokenizer.json", "model.safetensors", "adapter_model.safetensors"):
        (place / name).write_text("{}")
    (place / file).write_text(content if isinstance(content, str) else json.dumps(content))
    return place


@pytest.mark.parametrize(("file", "content"), CODE.values(), ids=list(CODE))
def test_a_folder_that_would_have_foreign_code_run_is_not_served(
    file: str, content: dict[str, object], tmp_path: Path
) -> None:
    """Named with file and key."""
    with pytest.raises(InputError, match=rf"{file}: \w+ would run code"):
        open_model(model_in(tmp_path, file, content))


FINE: dict[str, tuple[str, dict[str, object]]] = {
    "what peft writes": ("adapter_config.json", {"megatron_config": None, "megatron_core": "megatron.core"}),
    "Python files, which nothing here runs": ("config.json", {"auto_map": {"AutoConfig": "old.Config"}}),
    "the file of another program": ("sweep_config.json", {"attn_implementation": "eager"}),
    "an attention that transformers has": ("config.json", {"attn_implementation": "flash_attention_2"}),
}


@pytest.mark.parametrize(("file", "content"), FINE.values(), ids=list(FINE))
def test_a_folder_as_the_libraries_write_it_is_opened(file: str, content: dict[str, object], tmp_path: Path) -> None:
    assert open_model(model_in(tmp_path, file, content)).path == tmp_path


@pytest.mark.parametrize(("file", "content"), [("tokenizer_config.json", "[]"), ("config.4.0.0.json", '{"a": ')])
def test_a_configuration_must_be_readable(file: str, content: str, tmp_path: Path) -> None:
    """What it would have run is not known."""
    with pytest.raises(InputError, match=file):
        open_model(model_in(tmp_path, file, content))
