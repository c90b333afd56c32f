"""The page of a data set as a static Space: what goes up, who sees it, and what is taken out of it before.

Commands are processes, as a browser looks at the page here.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import subprocess
from pathlib import Path

import orjson
import pytest
from playwright.sync_api import expect

from tests.helpers.hub_server import HubServer, environment_for
from tests.helpers.pages import Visit
from tests.helpers.processes import Command, completed
from tests.helpers.shared import Shared

REPO = "org/atlas"
KEY = "AKIA" + "ABCD2345" * 2
ADDRESS = "http://10.0.0.7:8977"


@pytest.fixture
def data(tmp_path: Path, shared: Shared, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set with its run, which names an address, and an audit."""

    def make() -> None:
        for words in (
            ("generate", "--dataset", "atlas", "--limit", "4", "--run", "run"),
            ("pairs", "run", "--out", "data"),
            ("audit", "data"),
        ):
            done = completed(Command(*words))
            assert done.returncode in (0, 1), done.stderr

    monkeypatch.chdir(tmp_path)  # the summary names the run as it was named
    shared.copy("published-as-a-page", make)
    summary = json.loads((tmp_path / "data" / "summary.json").read_bytes())
    told = {"teachers": [ADDRESS], "warnings": [f"asked {ADDRESS}"]}
    (tmp_path / "data" / "summary.json").write_bytes(orjson.dumps(summary | told))
    return tmp_path / "data"


def published(hub: HubServer, data: Path, *flags: object, **environment: str) -> subprocess.CompletedProcess[str]:
    words = ("publish", data, "--repo", REPO, "--space", "--allow", "no_contamination_check", *flags)
    variables = os.environ | environment_for(hub.endpoint, data.parent) | environment
    return completed(Command(*words, environment=variables))


def unpacked(page: bytes) -> str:
    """The page, and everything that is packed in it."""
    parts = re.findall(rb'<script type="application/octet-stream" id="[\w-]+">([\w+/=]+)', page)
    assert len(parts) == 6
    return "\n".join([page.decode(), *(gzip.decompress(base64.b64decode(each)).decode() for each in parts)])


def test_a_dry_run_writes_the_space_and_sends_nothing(hub: HubServer, data: Path, visit: Visit, tmp_path: Path) -> None:
    """What would go up can be looked at: all pairs with their trees, no path and no address of here."""
    done = published(hub, data, "--dry-run", "--json", "--with-trees", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert hub.seen == []
    page = data / "publish" / "space" / "index.html"
    told = json.loads(done.stdout)
    assert told["page"] == page.stat().st_size
    assert not [each for each in told["files"] if "space" in each["path"]]
    text = unpacked(page.read_bytes())
    assert not [each for each in (str(tmp_path), ADDRESS) if each in text]
    assert f"Made by reasonrag 0.2.0 from {REPO}." in text
    card = (data / "publish" / "space" / "README.md").read_text()
    for said in ("sdk: static", "app_file: index.html", "license: apache-2.0", f"datasets:\n- {REPO}\n"):
        assert said in card
    shown = visit(page)
    expect(shown.locator("h1")).to_have_text(f"{REPO} · reasonrag")
    shown.goto(f"{page.resolve().as_uri()}#/pairs")
    shown.locator("tr[data-pair] a").first.click()
    expect(shown.locator("#detail h3")).to_be_visible()
    expect(shown.locator(".frame svg .node").first).to_be_visible()


def test_the_page_is_seen_by_those_who_see_the_rows(hub: HubServer, data: Path) -> None:
    """Private, then public, with what the Hub had put there removed; a page that is public already is no place for
    private rows."""
    new = published(hub, data)
    assert new.returncode == 0, new.stderr
    assert f"the page, as a static Space: https://huggingface.co/spaces/{REPO}" in " ".join(new.stdout.split())
    rows, space = hub.repositories[REPO], hub.repositories[f"spaces/{REPO}"]
    staged = data / "publish" / "space"
    assert {path: content for path, content in space.files.items() if path != ".gitattributes"} == {
        each.name: each.read_bytes() for each in staged.iterdir()
    }
    assert (rows.private, space.private) == (True, True)
    assert "index.html" not in rows.files
    assert published(hub, data, "--public").returncode == 0
    assert (rows.private, space.private) == (False, False)
    rows.private = True
    refused = published(hub, data)
    assert refused.returncode == 1
    assert f"{REPO} is already public, so nothing in it would be private" in " ".join(refused.stderr.split())
    assert f"The rows are at {hub.endpoint}/datasets/{REPO}, private" in " ".join(refused.stderr.split())


def test_a_key_in_a_tree_is_an_objection_as_one_in_the_rows_is(hub: HubServer, data: Path) -> None:
    """Also of a run whose trees do not go up themselves; allowed, it is masked. A page has a size, and a model none."""
    trees = data.parent / "run" / "rollouts.jsonl"
    trees.write_bytes(trees.read_bytes().replace(b'"response":"', b'"response":"%s ' % KEY.encode(), 1))
    refused = published(hub, data, "--dry-run")
    assert (refused.returncode, (data / "publish").exists()) == (2, False)
    assert re.search(r"question-\d of the page.* hold a possible key", " ".join(refused.stderr.split()))
    assert KEY not in refused.stderr
    assert published(hub, data, "--dry-run", "--allow", "secrets").returncode == 0
    text = unpacked((data / "publish" / "space" / "index.html").read_bytes())
    assert KEY not in text
    assert "[secret] " in text
    words = ("publish", "--model", "m", "--repo", REPO, "--space", "--dry-run")
    assert "--space is for data sets; a model has none" in completed(Command(*words)).stderr
