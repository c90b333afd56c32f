"""A small Hub on the loopback, for the real clients: repositories of data sets, models and Spaces in memory.

Speaks what huggingface_hub and datasets ask (whoami, create, preupload, LFS batch, PUT, verify, commit, tree, revision,
resolve, settings), writes every request down with what strangers could see at that moment, and fails where it is told
to. Runs in a thread of its own, so that tests need no event loop.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.helpers.endpoints import Served

TOKEN = "hf_" + "testing0" * 5
"""Looks like a real one, so that tests can look for it where it must not be."""
LARGE = (".parquet", ".gz", ".safetensors")
"""What the Hub's .gitattributes keep out of Git."""


@dataclass
class Repository:
    """Files by path, for each commit; the newest last."""

    private: bool
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def commit(self, files: dict[str, bytes]) -> str:
        name = hashlib.sha1(f"{len(self.commits)} {sorted(files)}".encode(), usedforsecurity=False).hexdigest()
        self.commits[name] = files
        return name

    @property
    def head(self) -> str:
        return next(reversed(self.commits))

    @property
    def files(self) -> dict[str, bytes]:
        return self.commits[self.head]


@dataclass(frozen=True)
class Seen:
    """A request, and the files that anybody could have read when it came."""

    method: str
    path: str
    authorized: bool
    public: tuple[str, ...]


@dataclass
class Fault:
    """The status that requests of a method get whose path has a part. `times`: how many."""

    method: str
    part: str
    status: int
    after: int = 0
    times: int = 1_000


class HubServer:
    """The Hub's state; tests look into it and change it between requests."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.repositories: dict[str, Repository] = {}
        self.stored: dict[str, bytes] = {}
        """Large files that were sent, by SHA-256, in a commit or not."""
        self.seen: list[Seen] = []
        self.faults: list[Fault] = []

    def put(self, name: str, files: dict[str, bytes], *, private: bool = False) -> str:
        """A repository with these files; its commit."""
        repository = self.repositories.setdefault(name, Repository(private))
        return repository.commit(files)

    def fail(self, method: str, part: str, status: int, *, after: int = 0, times: int = 1_000) -> None:
        self.faults.append(Fault(method, part, status, after, times))

    def sent(self) -> list[str]:
        """SHA-256 of the large files that arrived, in order."""
        return [each.path.rpartition("/")[2] for each in self.seen if each.method == "PUT" and "/lfs/" in each.path]

    # -- requests ----------------------------------------------------------------------------------------------

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._noted], client_max_size=1 << 30)
        app.router.add_get("/api/whoami-v2", self._whoami)
        app.router.add_post("/api/repos/create", self._create)
        app.router.add_post("/api/validate-yaml", self._validate)
        app.router.add_put("/lfs/{sha}", self._store)
        app.router.add_post("/lfs/{sha}/verify", self._verify)
        for kind, place in (("datasets", "/datasets"), ("spaces", "/spaces"), ("models", "")):
            repo, files = f"/api/{kind}/{{space}}/{{name}}", f"{place}/{{space}}/{{name}}"
            app.router.add_put(f"{repo}/settings", self._settings)
            app.router.add_get(repo, self._info)
            app.router.add_get(f"{repo}/revision/{{revision}}", self._info)
            app.router.add_get(f"{repo}/tree/{{revision}}", self._tree)
            app.router.add_get(f"{repo}/tree/{{revision}}/{{path:.*}}", self._tree)
            app.router.add_post(f"{repo}/preupload/{{revision}}", self._preupload)
            app.router.add_post(f"{repo}/commit/{{revision}}", self._commit)
            app.router.add_post(f"{files}.git/info/lfs/objects/batch", self._batch)
            app.router.add_get(f"{files}/resolve/{{revision}}/{{path:.*}}", self._file)
        return app

    @web.middleware
    async def _noted(self, request: web.Request, handler: Any) -> web.StreamResponse:
        public = tuple(
            f"{name}/{path}" for name, each in self.repositories.items() if not each.private for path in each.files
        )
        self.seen.append(Seen(request.method, request.path, self._knows(request), public))
        for fault in self.faults:
            if fault.method == request.method and fault.part in request.path and fault.times:
                if fault.after:
                    fault.after -= 1
                    continue
                fault.times -= 1
                return web.json_response({"error": "as it was told to"}, status=fault.status)
        if not self._may(request):
            headers = {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}
            return web.json_response({"error": "Repository not found"}, status=404, headers=headers)
        response: web.StreamResponse = await handler(request)
        return response

    def _knows(self, request: web.Request) -> bool:
        return request.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _may(self, request: web.Request) -> bool:
        """Strangers read public repositories, and nothing else."""
        if self._knows(request) or request.path.startswith(("/lfs/", "/api/whoami")):  # /lfs/: addresses are secret
            return True
        repository = self.repositories.get(_name(request))
        return request.method != "PUT" and repository is not None and not repository.private

    async def _whoami(self, request: web.Request) -> web.Response:
        if not self._knows(request):
            return web.json_response({"error": "Invalid user token"}, status=401)
        return web.json_response({"type": "user", "name": "owner", "orgs": [{"name": "org"}]})

    async def _create(self, request: web.Request) -> web.Response:
        asked = await request.json()
        space = asked.get("type") == "space"
        name = f"{'spaces/' * space}{asked.get('organization') or 'owner'}/{asked['name']}"
        begun = {"index.html": b"Welcome", "style.css": b"body {}"} if space and asked["sdk"] == "static" else {}
        if name in self.repositories:
            return web.json_response({"error": "You already created this repo"}, status=409)
        private = asked.get("private") is True or asked.get("visibility") == "private"
        self.put(name, {".gitattributes": b"*.parquet filter=lfs\n", **begun}, private=private)
        return web.json_response({"url": f"{self.endpoint}/{'' if space else 'datasets/'}{name}", "name": name})

    async def _validate(self, request: web.Request) -> web.Response:
        content = (await request.json())["content"]
        good = content.startswith("---\n")
        return web.json_response(
            {"errors": [] if good else [{"message": "no front matter"}], "warnings": []}, status=200 if good else 400
        )

    async def _settings(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.repositories[_name(request)].private = asked.get("private", asked.get("visibility") == "private")
        return web.json_response(asked)

    async def _info(self, request: web.Request) -> web.Response:
        repository = self.repositories.get(_name(request))
        if repository is None:
            return web.json_response({"error": "gone"}, status=404, headers={"X-Error-Code": "RepoNotFound"})
        commit, files = self._at(request, repository)
        listed = [{"rfilename": path} for path in files]
        return web.json_response(
            {"id": _name(request), "sha": commit, "private": repository.private, "siblings": listed, "tags": []}
        )

    def _at(self, request: web.Request, repository: Repository) -> tuple[str, dict[str, bytes]]:
        revision = request.match_info.get("revision", "main")
        commit = repository.head if revision == "main" else revision
        return commit, repository.commits[commit]

    async def _tree(self, request: web.Request) -> web.Response:
        _, files = self._at(request, self.repositories[_name(request)])
        below = request.match_info.get("path", "")
        prefix = f"{below}/" if below else ""
        paths = [path for path in files if path.startswith(prefix)]
        if prefix and not paths:
            return web.json_response({"error": "gone"}, status=404, headers={"X-Error-Code": "EntryNotFound"})
        folders = {path[: at + 1] for path in paths for at, letter in enumerate(path) if letter == "/"}
        entries = [_entry(path, files[path]) for path in paths]
        entries += [_folder(each) for each in sorted(folders) if each.startswith(prefix) and each != prefix]
        if request.query.get("recursive", "").lower() != "true":
            entries = [each for each in entries if "/" not in each["path"].removeprefix(prefix)]
        return web.json_response(entries)

    async def _preupload(self, request: web.Request) -> web.Response:
        _, files = self._at(request, self.repositories[_name(request)])
        told = [
            {
                "path": each["path"],
                "uploadMode": "lfs" if each["path"].endswith(LARGE) else "regular",
                "shouldIgnore": False,
                "oid": _content_hash(each["path"], files[each["path"]]) if each["path"] in files else None,
            }
            for each in (await request.json())["files"]
        ]
        return web.json_response({"files": told})

    async def _batch(self, request: web.Request) -> web.Response:
        told: list[dict[str, Any]] = []
        for each in (await request.json())["objects"]:
            place = f"{self.endpoint}/lfs/{each['oid']}"
            actions = {"upload": {"href": place}, "verify": {"href": f"{place}/verify"}}
            told.append(each if each["oid"] in self.stored else each | {"actions": actions})
        return web.json_response({"transfer": "basic", "objects": told})

    async def _store(self, request: web.Request) -> web.Response:
        content = await request.read()
        if hashlib.sha256(content).hexdigest() != request.match_info["sha"]:
            return web.json_response({"error": "other bytes"}, status=400)
        self.stored[request.match_info["sha"]] = content
        return web.Response()

    async def _verify(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if request.match_info["sha"] in self.stored else 404)

    async def _commit(self, request: web.Request) -> web.Response:
        repository = self.repositories[_name(request)]
        files = dict(repository.files)
        for line in (await request.text()).splitlines():
            operation = json.loads(line)
            value = operation["value"]
            if operation["key"] == "header" and value.get("parentCommit") not in (None, repository.head):
                return web.json_response({"error": "A commit has happened since"}, status=412)
            if operation["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif operation["key"] == "lfsFile":
                files[value["path"]] = self.stored[value["oid"]]
            elif operation["key"] == "deletedFile":
                del files[value["path"]]
        commit = repository.commit(files)
        place = request.path.removeprefix("/api/").partition("/commit/")[0]
        address = f"{self.endpoint}/{place}/commit/{commit}"
        return web.json_response({"commitUrl": address, "commitOid": commit, "success": True})

    async def _file(self, request: web.Request) -> web.Response:
        commit, files = self._at(request, self.repositories[_name(request)])
        body = files.get(request.match_info["path"])
        headers = {"X-Repo-Commit": commit}
        if body is None:
            return web.Response(status=404, headers=headers | {"X-Error-Code": "EntryNotFound"})
        headers["ETag"] = f'"{hashlib.sha256(body).hexdigest()}"'
        return web.Response(body=body, headers=headers)


def _name(request: web.Request) -> str:
    """Spaces have names of their own; those of models and data sets differ in these tests."""
    space = "spaces/" * request.path.startswith(("/api/spaces/", "/spaces/"))
    return f"{space}{request.match_info.get('space')}/{request.match_info.get('name')}"


def _folder(path: str) -> dict[str, Any]:
    return {"type": "directory", "path": path.rstrip("/"), "size": 0, "oid": "0" * 40}


def _content_hash(path: str, content: bytes) -> str:
    """Of the content, not of Git's pointer to a large file."""
    entry = _entry(path, content)
    return str(entry.get("lfs", entry)["oid"])


def _entry(path: str, content: bytes) -> dict[str, Any]:
    blob = hashlib.sha1(f"blob {len(content)}\0".encode() + content, usedforsecurity=False).hexdigest()
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(content), "oid": blob}
    if path.endswith(LARGE):
        entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
    return entry


@contextmanager
def running_hub() -> Iterator[HubServer]:
    """A hub that answers while the block runs."""
    hub = HubServer()
    with Served(hub.application(), "").open() as served:
        hub.endpoint = served.base_url
        yield hub


def environment_for(endpoint: str, home: object) -> dict[str, str]:
    """What the Hub's clients read when they are imported, for a process of their own."""
    return {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": f"{home}/hf",
        "HF_HUB_OFFLINE": "0",  # other tests of this process may have set it
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DOWNLOAD_TIMEOUT": "5",
        "HF_TOKEN": TOKEN,
    }


async def run_python(code: str, *, endpoint: str, home: Path) -> subprocess.CompletedProcess[str]:
    """The Hub's client reads its environment at import, so the code gets a process of its own."""
    environment = os.environ | environment_for(endpoint, home)
    return await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
