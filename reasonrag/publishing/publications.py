"""What `publish` tells of anything that went to the Hub, or would."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from reasonrag.publishing.hub import Upload


class PublishedFile(BaseModel):
    """A file of the repository on the Hub."""

    path: str
    bytes: int


class Sent(BaseModel):
    """What was published, or would be."""

    repo: str
    dry_run: bool
    folder: str
    """Where the files lie here."""
    files: list[PublishedFile]
    licence: str
    set_aside: list[str]
    """Objections that `--allow` and `--allow-eval` set aside."""
    warnings: list[str]
    url: str | None = None
    private: bool | None = None
    """Who can see it now; null where nothing was sent."""
    commit: str | None = None
    sent: list[str] = []
    unchanged: list[str] = []
    removed: list[str] = []
    """Files of an earlier version that this one does not have."""


def published_files(folder: Path, paths: Iterable[str]) -> list[PublishedFile]:
    return [PublishedFile(path=each, bytes=(folder / each).stat().st_size) for each in paths]


def told(done: Upload, *, dry_run: bool) -> dict[str, Any]:
    """The fields that say what happened on the Hub."""
    return {
        "url": done.url or None,
        "private": None if dry_run else done.private,
        "commit": done.commit,
        "sent": done.sent,
        "unchanged": done.unchanged,
        "removed": done.removed,
    }
