"""A staged folder as a repository on the Hub, of a data set or a model: nothing is public before everything is up.

A new repository is created private. Large files are sent one after the other; what the Hub has already, by SHA-256, is
not sent again. Then one commit puts all of them, the card included, where readers look, so that nobody ever sees half a
thing, in a public repository either. The commit is compared with the folder file by file, and only then does a
private repository become public. Keys are the Hub client's business; what it says is redacted.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from preference.export.formats import FORMATS, SPLITS
from reasonrag.errors import InputError, ReasonragError, UploadStopped
from reasonrag.publishing.staging import TREES
from reasonrag.redaction import redact

_BLOCK = 1 << 20
_OF_THE_HUB = ".gitattributes"
_SHARD = re.compile(r"[a-z]+/(?:train|validation)-\d{5}-of-\d{5}\.parquet")
_NAMES = {form.file_name(split) for form in FORMATS.values() for split in SPLITS}


@dataclass(frozen=True)
class RepositoryKind:
    """Of a repository. name: the Hub's; shown: ours; path: between the Hub's address and the repository's name; what:
    for the title of the commit. is_ours: whether a file was put there by an earlier `publish`, perhaps of another
    version."""

    name: str
    shown: str
    path: str
    what: str
    is_ours: Callable[[str], bool]


def _is_of_a_data_set(path: str) -> bool:
    return path in _NAMES or _SHARD.fullmatch(path) is not None or path.startswith(f"{TREES}/")


DATA_SET = RepositoryKind("dataset", "data set", "datasets/", "preference pairs", _is_of_a_data_set)


@dataclass
class UploadResult:
    """What was done on the Hub."""

    url: str = ""
    commit: str | None = None
    """Null where everything was there already."""
    private: bool = True
    wanted: int = 0
    """Files that the Hub did not have."""
    sent: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


def check_name(repo: str, *, shown: str = DATA_SET.shown) -> None:
    """Raises InputError for what cannot be the name of a repository. shown: what it is of."""
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    if not re.fullmatch(r"[^/\s]+/[^/\s]+", repo):
        raise InputError(f"--repo {repo!r} is no name of a {shown} on the Hub; give it as organisation/name")
    try:
        for part in repo.split("/"):
            validate_repo_id(part)
        validate_repo_id(repo)
    except HFValidationError as error:
        raise InputError(f"--repo {repo!r} is no name of a {shown} on the Hub: {error}") from error


def check_access() -> None:
    """Raises InputError where the Hub must not, or cannot, be asked; asks nothing."""
    from huggingface_hub import constants, get_token

    if constants.HF_HUB_OFFLINE:
        raise InputError("HF_HUB_OFFLINE is set, so nothing can be published; unset it, or use --dry-run")
    if not get_token():
        raise InputError(
            "there is no token for the Hub. Set HF_TOKEN to one that may write, from huggingface.co/settings/tokens, "
            "or run: hf auth login. --dry-run needs none"
        )


def upload(
    folder: Path,
    paths: Sequence[str],
    repo: str,
    *,
    private: bool | None,
    say: Callable[[str], None],
    kind: RepositoryKind = DATA_SET,
) -> UploadResult:
    """Make `repo` hold these files of `folder`, the last one being the card; then public, unless `private`.

    private: None leaves a private repository as it is if it has a card already, for somebody published it so.

    Raises UploadStopped where something went wrong on the way, with what is there and who can see it; ReasonragError
    where the repository is not fit for it.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    api, done = HfApi(), UploadResult()
    with _explained_errors(repo, done, kind, "asking for it"):
        api.whoami()
        done.private, parent, created = _open_repository(api, repo, kind, private=bool(private), say=say)
        done.url = f"{api.endpoint}/{kind.path}{repo}"
        there = _listing(api, repo, kind, parent)
    if private is None:
        private = bool(done.private) and paths[-1] in there
    if done.private and not private and not created:
        _check_fit(repo, kind, there, paths)
    wanted = [path for path in paths if not _is_there(folder / path, there.get(path))]
    done.unchanged = [path for path in paths if path not in wanted]
    done.wanted = len(wanted)
    additions = [CommitOperationAdd(path, folder / path) for path in wanted]
    gone = [path for path in there if kind.is_ours(path) and path not in paths]
    with _quiet():
        for number, addition in enumerate(additions, start=1):
            path = addition.path_in_repo
            with _explained_errors(repo, done, kind, f"sending {path}"):
                api.preupload_lfs_files(repo, [addition], repo_type=kind.name, free_memory=False)
            done.sent.append(path)
            say(f"{number} of {len(additions)}: {path}")
        if additions or gone:
            with _explained_errors(repo, done, kind, "committing"):
                done.commit = api.create_commit(
                    repo,
                    [*additions, *(CommitOperationDelete(path) for path in gone)],
                    commit_message=f"Publish {kind.what} with reasonrag",
                    repo_type=kind.name,
                    parent_commit=parent,
                ).oid
            done.removed = gone
    with _explained_errors(repo, done, kind, "comparing what is there"):
        there = _listing(api, repo, kind, done.commit or parent)
    missing = [path for path in paths if not _is_there(folder / path, there.get(path))]
    if missing:
        raise UploadStopped(f"{repo}: the Hub does not have {missing[0]} as it was sent; {_visibility(done, kind)}")
    if done.private and not private:
        with _explained_errors(repo, done, kind, "making it public"):
            api.update_repo_settings(repo, private=False, repo_type=kind.name)
            done.private = bool(api.repo_info(repo, repo_type=kind.name).private)
        say(f"everything is up; {repo} is public now")
    elif done.private:
        say(f"everything is up; {repo} is private. --public makes it public")
    return done


def _open_repository(
    api: Any, repo: str, kind: RepositoryKind, *, private: bool, say: Callable[[str], None]
) -> tuple[bool, str, bool]:
    """Whether the repository is private, its newest commit, and whether it was created now."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        info = api.repo_info(repo, repo_type=kind.name)
    except RepositoryNotFoundError:
        say(f"creating {repo}, private")
        api.create_repo(repo, repo_type=kind.name, private=True)
        info = api.repo_info(repo, repo_type=kind.name)
        if not info.private:
            raise ReasonragError(
                f"{repo} was asked for as private, but the Hub made it public; nothing was sent"
            ) from None
        return True, str(info.sha), True
    if private and not info.private:
        raise ReasonragError(
            f"{repo} is public already, so --private would hide nothing; leave it out, or choose another name"
        )
    return bool(info.private), str(info.sha), False


def _check_fit(repo: str, kind: RepositoryKind, there: dict[str, Any], paths: Sequence[str]) -> None:
    """A private repository that somebody keeps other things in must not become public by this."""
    others = [path for path in there if path not in paths and not kind.is_ours(path) and path != _OF_THE_HUB]
    if others:
        raise ReasonragError(
            f"{repo} is private and holds files that are not of this {kind.shown} ({', '.join(others[:3])}), which "
            "would become public. Choose another name, remove them, or publish with --private"
        )


# -- what is there ---------------------------------------------------------------------------------------------


def _listing(api: Any, repo: str, kind: RepositoryKind, revision: str) -> dict[str, Any]:
    """The Hub's files by path."""
    tree = api.list_repo_tree(repo, recursive=True, revision=revision, repo_type=kind.name)
    return {entry.path: entry for entry in tree if hasattr(entry, "blob_id")}


def _is_there(file: Path, entry: Any) -> bool:
    """Whether the Hub has these bytes: by SHA-256, or by Git's hash where it keeps the file in Git."""
    if entry is None or entry.size != file.stat().st_size:
        return False
    if entry.lfs is not None:
        return bool(entry.lfs.sha256 == _digest(file, hashlib.sha256()))
    blob = hashlib.sha1(f"blob {entry.size}\0".encode(), usedforsecurity=False)
    return bool(entry.blob_id == _digest(file, blob))


def _digest(file: Path, digest: Any) -> str:
    with file.open("rb") as content:
        while block := content.read(_BLOCK):
            digest.update(block)
    return str(digest.hexdigest())


# -- what is said ----------------------------------------------------------------------------------------------


@contextmanager
def _explained_errors(repo: str, done: UploadResult, kind: RepositoryKind, what: str) -> Iterator[None]:
    """Whatever the Hub's client raises, as a user can act on it."""
    try:
        yield
    except ReasonragError:
        raise
    except Exception as error:
        causes = " ".join(str(each).split("\n\n")[-1] for each in (error, error.__cause__) if each is not None)
        cause = redact(" ".join(causes.split())) or type(error).__name__
        raise UploadStopped(f"{repo}, {what}: {cause}.{_hint(error)} {_visibility(done, kind)}") from error


def _hint(error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return {
        401: " The Hub does not know the token (HF_TOKEN, or hf auth login).",
        403: " The token may not write there: it needs the role write, and the right to that organisation.",
        412: " Somebody else committed meanwhile.",
    }.get(status or 0, "")


def _visibility(done: UploadResult, kind: RepositoryKind) -> str:
    """What is on the Hub now and who can see it."""
    if not done.url:
        return "Nothing was sent"
    what = f"{len(done.sent)} of {done.wanted} files are through, and what has arrived is not sent again"
    if done.commit is None:
        who = "readers see the repository as it was" if not done.private else "nobody else can see the repository"
    else:
        who = "nobody else can see the repository" if done.private else f"readers see the new {kind.shown}"
    return f"{what}; {who}"


@contextmanager
def _quiet() -> Iterator[None]:
    """The client's own bars only where somebody looks at them."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if sys.stderr.isatty() or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


class PublishedFile(BaseModel):
    """A file of the repository on the Hub."""

    path: str
    bytes: int


class PublicationResult(BaseModel):
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


def upload_fields(done: UploadResult, *, dry_run: bool) -> dict[str, Any]:
    """The fields that say what happened on the Hub."""
    return {
        "url": done.url or None,
        "private": None if dry_run else done.private,
        "commit": done.commit,
        "sent": done.sent,
        "unchanged": done.unchanged,
        "removed": done.removed,
    }
