"""Uploads a staged folder to a repository on the Hub, and decides when that becomes public.

A new repository is created private. The Hub's client sends large files first, without those that the Hub already has,
and the Hub compares each with its SHA-256; one commit then makes all of them visible, the card included, so readers
never see a partial upload, in a public repository either. Only then can a private repository become public. The Hub's
client handles tokens; its messages are redacted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import FORBIDDEN
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from reasonrag.errors import InputError, ReasonragError, UploadStopped
from reasonrag.redaction import redact
from reasonrag.rendering import Line, Part, Shown, Table, counted, warned
from reasonrag.training.model_card import CARD

OF_THE_HUB = ".gitattributes"


@dataclass(frozen=True)
class RepositoryKind:
    """A kind of repository. name: the Hub's term; shown: ours. is_ours: whether an earlier `publish`, of any version,
    put a file there."""

    name: Literal["dataset", "model", "space"]
    shown: str
    is_ours: Callable[[str], bool]


class UploadResult(BaseModel):
    """What was done on the Hub so far."""

    url: str | None = None
    private: bool | None = None
    """Whether the repository is private now; null if nothing was uploaded."""
    commit: str | None = None
    """Null if nothing had to be committed."""
    removed: list[str] = []
    """Files of an earlier version that this one lacks."""


class PublishedFile(BaseModel):
    path: str
    bytes: int


class PublicationResult(UploadResult, Shown):
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
        yield from warned(self.warnings)
        yield Table(f"{self.repo}  {what}  licence {self.licence}", files + removed)
        if self.set_aside:
            yield Line(f"allowed: {', '.join(self.set_aside)}")
        yield Line(f"card: {Path(self.folder) / CARD}")
        if self.dry_run:
            yield "nothing was uploaded; the same command without --dry-run publishes these files"
        else:
            yield Line(f"{'private' if self.private else 'public'}: {self.url}")
            yield from map(Line, used)


def check_name(repo: str, kind: RepositoryKind) -> None:
    """Raises InputError for an invalid repository name."""
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(repo)
        why = "" if re.fullmatch(r"[^/\s]+/[^/\s]+", repo) else "give it as organisation/name"
    except HFValidationError as error:
        why = str(error)
    if why:
        raise InputError(f"--repo {repo!r} is not a name for a {kind.shown} on the Hub: {why}")


def check_access(repo: str, kind: RepositoryKind) -> None:
    """Raises UploadStopped if the Hub is switched off, there is no token, or the Hub does not know it."""
    from huggingface_hub import HfApi

    with explained_errors(repo, UploadResult(), kind):
        HfApi().whoami()


def upload(
    folder: Path,
    paths: Sequence[str],
    repo: str,
    *,
    private: bool | None,
    say: Callable[[str], None],
    kind: RepositoryKind,
) -> UploadResult:
    """Make `repo` hold these files of `folder`; then make it public if `private` is False.

    private: None leaves a repository as visible as it is; a new one is private.

    Raises UploadStopped with what is there and who can see it; ReasonragError if the repository is unsuitable.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    api, done = HfApi(), UploadResult()
    with explained_errors(repo, done, kind):
        info = _open_repository(api, repo, kind, private=private, say=say)
        done.private = bool(info.private)
        done.url = f"{api.endpoint}/{'' if kind.name == 'model' else f'{kind.name}s/'}{repo}"
        there = api.list_repo_files(repo, revision=info.sha, repo_type=kind.name)
        gone = [path for path in there if kind.is_ours(path) and path not in paths]
        others = [path for path in there if path not in (*paths, *gone, OF_THE_HUB)]
        if others and done.private and private is False:
            raise ReasonragError(
                f"{repo} is private and holds files that do not belong to this {kind.shown} ({', '.join(others[:3])}), "
                "which would become public. Remove them there, or choose another name"
            )
        operations = [*(CommitOperationAdd(each, folder / each) for each in paths), *map(CommitOperationDelete, gone)]
        say(f"sending what {repo} lacks of {counted(len(paths), 'file')}")
        commit = api.create_commit(  # which leaves out files that are there
            repo,
            operations,
            commit_message=f"Publish a {kind.shown} with reasonrag",
            repo_type=kind.name,
            parent_commit=info.sha,
        ).oid
        done.commit, done.removed = commit if commit != info.sha else None, gone
        if done.private and private is False:
            api.update_repo_settings(repo, private=False, repo_type=kind.name)
            done.private = bool(api.repo_info(repo, repo_type=kind.name).private)
            say(f"upload complete; {repo} is public now")
        elif done.private:
            say(f"upload complete; {repo} is private. --public makes it public")
    return done


def _open_repository(
    api: Any, repo: str, kind: RepositoryKind, *, private: bool | None, say: Callable[[str], None]
) -> Any:
    """What the Hub says of the repository, which is created if there is none."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        info = api.repo_info(repo, repo_type=kind.name)
    except RepositoryNotFoundError:
        say(f"creating {repo}, private")
        space = {"space_sdk": "static"} if kind.name == "space" else {}
        api.create_repo(repo, repo_type=kind.name, private=True, **space)
        info, private = api.repo_info(repo, repo_type=kind.name), True
    if private and not info.private:
        raise ReasonragError(
            f"{repo} is already public, so nothing in it would be private; make it private on the Hub, or choose "
            "another name"
        )
    if not info.private:
        say(f"{repo} is public already: everyone can read the new files once all are uploaded")
    return info


@contextmanager
def explained_errors(repo: str, done: UploadResult, kind: RepositoryKind) -> Iterator[None]:
    """Turns any error of the Hub's client into a message with what is on the Hub now, and who can see it."""
    from huggingface_hub.errors import LocalTokenNotFoundError

    try:
        yield
    except ReasonragError:
        raise
    except Exception as error:
        causes = " ".join(str(each).split("\n\n")[-1] for each in (error, error.__cause__) if each is not None)
        if isinstance(error, LocalTokenNotFoundError):
            causes = "there is no token: set HF_TOKEN, or log in with `hf auth login`"
        answer = getattr(error, "response", None)
        if answer is not None and answer.status_code == FORBIDDEN and "/api/" in str(answer.url):
            said = getattr(error, "server_message", None) or FORBIDDEN
            causes = f"this token may not write there: take one that may, huggingface.co/settings/tokens ({said})"
        cause = redact(" ".join(causes.split())).rstrip(".") or type(error).__name__
        readers = f"readers see the {'new ' + kind.shown if done.commit else 'repository as it was'}"
        who = "only you can see the repository" if done.private else readers
        now = f"Large files that have arrived will not be sent again; {who}" if done.url else "Nothing was uploaded"
        raise UploadStopped(f"{repo}: {cause}. {now}") from error
