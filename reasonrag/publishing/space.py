"""The page of a data set as a static Space of the same name, for those who would rather look than read.

Decides what is taken out of the page before others see it: paths, addresses, keys. What it shows, and to how many
questions its trees are limited, the `view` that is handed in decides; of the page only its packed parts are known.
"""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
from markupsafe import escape

from reasonrag.publishing.staging import without_addresses
from reasonrag.publishing.upload import RepositoryKind
from reasonrag.redaction import keys_in, mask_secrets_in, secrets, texts_in
from reasonrag.terminal import on_one_line
from reasonrag.training.model_card import CARD

SPACE, PAGE = "space", "index.html"
SPACES = RepositoryKind("space", "page", frozenset({PAGE, CARD, "style.css"}).__contains__)
"""The Hub may begin a static Space with a page and a style of its own."""
_PART = re.compile(rb'(?<=<script type="application/octet-stream" id=")([\w-]+)">([\w+/=]+)')


def public_page(directory: Path, repo: str, view: Callable[..., Path]) -> tuple[bytes, list[str]]:
    """The page as others may see it, and its parts that hold a possible key, which is masked."""
    known, keys = secrets(), list[str]()

    def public(part: re.Match[bytes]) -> bytes:
        content = orjson.loads(gzip.decompress(base64.b64decode(part[2])))
        if any(keys_in(text, known) for text in texts_in(content)):
            keys.append(f"{part[1].decode()} of the page")
        if "overview" in content:
            content["overview"] = without_addresses(content["overview"]) | {"path": repo}
            content["about"] = [each.replace(str(directory), repo) for each in content["about"]]
        for tree in content.get("trees", ()):
            tree["source"] = Path(tree["source"]).name
        packed = gzip.compress(orjson.dumps(mask_secrets_in(content, known)), 6, mtime=0)
        return part[1] + b'">' + base64.b64encode(packed)

    with TemporaryDirectory() as scratch:
        made = view(directory, out=Path(scratch) / PAGE).read_bytes()
    title = f"{escape(on_one_line(str(directory)))} · reasonrag"
    return _PART.sub(public, made.replace(title.encode(), f"{escape(repo)} · reasonrag".encode())), keys


def stage_space(folder: Path, page: bytes, repo: str, licence: str) -> None:
    """Write the page and its card."""
    from huggingface_hub import SpaceCardData

    folder.mkdir()
    (folder / PAGE).write_bytes(page)
    name = repo.rpartition("/")[2]
    about = SpaceCardData(title=name, sdk="static", app_file=PAGE, license=licence, datasets=[repo], tags=["reasonrag"])
    text = f"[{repo}](https://huggingface.co/datasets/{repo}) as a page: its pairs, and why each is labelled as it is."
    (folder / CARD).write_text(f"---\n{about.to_yaml()}\n---\n\n{text}\n", "utf-8")
