"""Uploads a staged folder to a data set or model repository on the Hub, private unless it is asked to be public.

A new repository is created private. The Hub's client sends large files first, without those that the Hub already has;
one commit then makes all of them visible, the card included, so readers never see a partial upload, in a public
repository either. The commit is compared with the folder file by file, and only then can a private repository
become public. The Hub's client handles tokens; its messages are redacted.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from preference.export.formats import FORMATS, SPLITS
from reasonrag.errors import InputError, ReasonragError, UploadStopped
from reasonrag.files import file_digest
from reasonrag.publishing.staging import TREES
from reasonrag.redaction import redact
from reasonrag.rendering import Line, Part, Table, counted, warned
from reasonrag.training.model_card import CARD

_OF_THE_HUB = ".gitattributes"
_SHARD = re.compile(r"[a-z]+/(?:train|validation)-\d{5}-of-\d{5}\.parquet")
_NAMES = {form.file_name(split) for form in FORMATS.values() for split in SPLITS}


@dataclass(frozen=True)
class RepositoryKind:
    """A kind of repository. name: the Hub's term; shown: ours; path: URL prefix of the repository's name; what: for
    the commit title. is_ours: whether an earlier `publish`, of any version, put a file there."""

    name: str
    shown: str
    path: str
    what: str
    is_ours: Callable[[str], bool]


def _is_of_a_data_set(path: str) -> bool:
    return path in _NAMES or _SHARD.fullmatch(path) is not None or path.startswith(f"{TREES}/")


DATA_SET = RepositoryKind("dataset", "data set", "datasets/", "preference pairs", _is_of_a_data_set)


class UploadResult(BaseModel):
    """What was done on the Hub so far."""

    url: str | None = None
    private: bool | None = None
    """Whether the repository is private now; null if nothing was uploaded."""
    commit: str | None = None
    """Null if nothing had to be committed."""
    removed: list[str] = []
    """Files of an earlier version that this one lacks."""


def check_name(repo: str, *, shown: str = DATA_SET.shown) -> None:
    """Raises InputError for an invalid repository name. shown: what the repository holds."""
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    if not re.fullmatch(r"[^/\s]+/[^/\s]+", repo):
        raise InputError(f"--repo {repo!r} is not a name for a {shown} on the Hub; give it as organisation/name")
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise InputError(f"--repo {repo!r} is not a name for a {shown} on the Hub: {error}") from error


def check_access() -> None:
    """Raises InputError if the Hub is switched off or there is no token; sends no request."""
    from huggingface_hub import constants, get_token

    if constants.HF_HUB_OFFLINE:
        raise InputError("HF_HUB_OFFLINE is set, so nothing can be published; unset it, or use --dry-run")
    if not get_token():
        raise InputError(
            "there is no token for the Hub. Set HF_TOKEN to a write token from huggingface.co/settings/tokens, or run: "
            "hf auth login. --dry-run needs none"
        )


def upload(
    folder: Path,
    paths: Sequence[str],
    repo: str,
    *,
    private: bool | None,
    say: Callable[[str], None],
    kind: RepositoryKind,
) -> UploadResult:
    """Make `repo` hold these files of `folder`, the card last; then make it public if `private` is False.

    private: None leaves a repository as visible as it is; a new one is private.

    Raises UploadStopped if the upload fails, with what is there and who can see it; ReasonragError if the repository
    is unsuitable.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    api, done = HfApi(), UploadResult()
    with _explained_errors(repo, done, kind, "opening the repository"):
        api.whoami()
        done.private, parent, created = _open_repository(api, repo, kind, private=bool(private), say=say)
        done.url = f"{api.endpoint}/{kind.path}{repo}"
        there = _listing(api, repo, kind, parent)
    if done.private and private is False and not created:
        _check_fit(repo, kind, there, paths)
    gone = [path for path in there if kind.is_ours(path) and path not in paths]
    operations = [*(CommitOperationAdd(each, folder / each) for each in paths), *map(CommitOperationDelete, gone)]
    say(f"sending what {repo} lacks of {counted(len(paths), 'file')}")
    with _explained_errors(repo, done, kind, "sending"), _quiet():
        commit = api.create_commit(  # which leaves out files that are there
            repo,
            operations,
            commit_message=f"Publish {kind.what} with reasonrag",
            repo_type=kind.name,
            parent_commit=parent,
        ).oid
    done.commit, done.removed = commit if commit != parent else None, gone
    with _explained_errors(repo, done, kind, "checking the upload"):
        there = _listing(api, repo, kind, commit)
    missing = [path for path in paths if not _is_there(folder / path, there.get(path))]
    if missing:
        raise UploadStopped(f"{repo}: {missing[0]} on the Hub differs from the local file; {_visibility(done, kind)}")
    if done.private and private is False:
        with _explained_errors(repo, done, kind, "making it public"):
            api.update_repo_settings(repo, private=False, repo_type=kind.name)
            done.private = bool(api.repo_info(repo, repo_type=kind.name).private)
        say(f"upload complete; {repo} is public now")
    elif done.private:
        say(f"upload complete; {repo} is private. --public makes it public")
    return done


def _open_repository(
    api: Any, repo: str, kind: RepositoryKind, *, private: bool, say: Callable[[str], None]
) -> tuple[bool, str, bool]:
    """Whether the repository is private, its newest commit, and whether it was just created."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        info = api.repo_info(repo, repo_type=kind.name)
    except RepositoryNotFoundError:
        say(f"creating {repo}, private")
        api.create_repo(repo, repo_type=kind.name, private=True)
        info = api.repo_info(repo, repo_type=kind.name)
        if not info.private:
            raise ReasonragError(
                f"{repo} was requested as private, but the Hub made it public; nothing was uploaded"
            ) from None
        return True, str(info.sha), True
    if private and not info.private:
        raise ReasonragError(
            f"{repo} is already public, so --private would hide nothing; leave it out, or choose another name"
        )
    if not info.private:
        say(f"{repo} is public already: everyone can read the new files once all are uploaded")
    return bool(info.private), str(info.sha), False


def _check_fit(repo: str, kind: RepositoryKind, there: dict[str, Any], paths: Sequence[str]) -> None:
    """A private repository with unrelated files must not become public. Raises ReasonragError."""
    others = [path for path in there if path not in paths and not kind.is_ours(path) and path != _OF_THE_HUB]
    if others:
        raise ReasonragError(
            f"{repo} is private and holds files that do not belong to this {kind.shown} ({', '.join(others[:3])}), "
            "which would become public. Choose another name, remove them, or leave out --public"
        )


# -- the repository's content ----------------------------------------------------------------------------------


def _listing(api: Any, repo: str, kind: RepositoryKind, revision: str) -> dict[str, Any]:
    """The Hub's files by path."""
    tree = api.list_repo_tree(repo, recursive=True, revision=revision, repo_type=kind.name)
    return {entry.path: entry for entry in tree if hasattr(entry, "blob_id")}


def _is_there(file: Path, entry: Any) -> bool:
    """Whether the Hub has these bytes: by SHA-256, or by Git's hash for files kept in Git."""
    if entry is None or entry.size != file.stat().st_size:
        return False
    if entry.lfs is not None:
        return bool(entry.lfs.sha256 == file_digest(file))
    blob = hashlib.sha1(f"blob {entry.size}\0".encode(), usedforsecurity=False)
    with file.open("rb") as content:
        return bool(entry.blob_id == hashlib.file_digest(content, lambda: blob).hexdigest())


# -- messages and results --------------------------------------------------------------------------------------


@contextmanager
def _explained_errors(repo: str, done: UploadResult, kind: RepositoryKind, what: str) -> Iterator[None]:
    """Turns any error of the Hub's client into a message that a user can act on."""
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
        401: " The Hub rejects the token (HF_TOKEN, or hf auth login).",
        403: " The token may not write there: it needs the write role, and access to that organisation.",
        412: " There was another commit in the meantime.",
    }.get(status or 0, "")


def _visibility(done: UploadResult, kind: RepositoryKind) -> str:
    """What is on the Hub now, and who can see it."""
    if not done.url:
        return "Nothing was uploaded"
    if done.private:
        who = "only you can see the repository"
    else:
        who = f"readers see the {'new ' + kind.shown if done.commit else 'repository as it was'}"
    return f"Large files that have arrived will not be sent again; {who}"


@contextmanager
def _quiet() -> Iterator[None]:
    """The client's progress bars only if stderr is a terminal."""
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


class PublicationResult(UploadResult):
    """What was published, or would be in a dry run."""

    repo: str
    dry_run: bool
    folder: str
    """The local folder of the files."""
    files: list[PublishedFile]
    licence: str
    set_aside: list[str]
    """Blockers that `--allow` and `--allow-eval` set aside."""
    warnings: list[str]

    def parts(self, what: str, *used: str) -> Iterator[Part]:
        """The files with their sizes, what is beside them, and how they are used once they are there."""
        files = [(each.path, f"{each.bytes:,} bytes") for each in self.files]
        removed = [(path, "removed; was in an earlier version") for path in self.removed]
        yield Table(f"{self.repo}  {what}  licence {self.licence}", files + removed)
        yield from warned(self.warnings)
        if self.set_aside:
            yield Line(f"allowed: {', '.join(self.set_aside)}")
        yield Line(f"card: {Path(self.folder) / CARD}")
        if self.dry_run:
            yield "nothing was uploaded; the same command without --dry-run publishes these files"
        else:
            yield Line(f"{'private' if self.private else 'public'}: {self.url}")
            yield from map(Line, used)


def send(
    folder: Path,
    paths: Sequence[str],
    repo: str,
    *,
    private: bool | None,
    dry_run: bool,
    say: Callable[[str], None],
    kind: RepositoryKind = DATA_SET,
) -> dict[str, Any]:
    """Upload the files of a folder, unless it is a dry run; the fields of `PublicationResult` that tell of it."""
    done = UploadResult()
    if not dry_run:
        done = upload(folder, paths, repo, private=private, say=say, kind=kind)
    files = [PublishedFile(path=each, bytes=(folder / each).stat().st_size) for each in paths]
    return {"repo": repo, "dry_run": dry_run, "folder": str(folder), "files": files, **vars(done)}
