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

import reasonrag
from preference.candidate_records import question_key
from reasonrag.errors import InputError
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


def unpacked(page: bytes, count: int = 6) -> str:
    """The page, and everything that is packed in it: the list, the pairs, and so many questions."""
    parts = re.findall(rb'<script type="application/octet-stream" id="[\w-]+">([\w+/=]+)', page)
    assert len(parts) == count
    return "\n".join([page.decode(), *(gzip.decompress(base64.b64decode(each)).decode() for each in parts)])


def test_a_dry_run_writes_the_space_and_sends_nothing(
    hub: HubServer, data: Path, visit: Visit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would go up can be looked at: all pairs with their trees, no path and no address of here, also where the
    data set is the working directory."""
    monkeypatch.chdir(data)
    done = published(hub, Path(), "--dry-run", "--json", "--with-trees", tmp_path / "run")
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


@pytest.mark.parametrize("there", [True, False])
def test_relative_paths_stay_here_as_absolute_ones_do(
    there: bool, hub: HubServer, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of runs that are at hand, with a report of their calibration, and of those that are not, which is said."""
    elsewhere = data.parent / "acme" / "secret-client"
    summary = json.loads((data / "summary.json").read_bytes())
    moved = summary | {"sources": ["../acme/secret-client/run"], "out": "../secret-client/data"}
    (data / "summary.json").write_bytes(orjson.dumps(moved))
    lacks = "run is not here, so the page lacks its trees; give its directory with --with-trees DIR"
    if there:
        share = {"share": 1.0, "low": 0.5, "high": 1.0, "count": 2, "of": 2}
        signs = {"confirmed": share, "right": share, "ties": 0, "wrong": 0}
        told = {"settings": {}, "revaluation": {"k": 4, "pairs": 2, "confirmed": signs, "reliability": []}}
        elsewhere.mkdir(parents=True)
        (data.parent / "run").rename(elsewhere / "run")
        (elsewhere / "run" / "calibration").mkdir()
        (elsewhere / "run" / "calibration" / "report.json").write_bytes(orjson.dumps(told))
    above = data.parent / "works"
    above.mkdir()
    monkeypatch.chdir(above)
    done = published(hub, data, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    text = unpacked((data / "publish" / "space" / "index.html").read_bytes())
    assert "secret-client" not in text
    assert "secret-client" not in (data / "publish" / "summary.json").read_text()
    assert ('"source":"report.json"' in text) == there
    assert (lacks in text, lacks in json.loads(done.stdout)["warnings"]) == (not there, not there)


def test_the_trees_of_questions_that_were_left_out_are_not_in_the_page(
    hub: HubServer, data: Path, visit: Visit
) -> None:
    """As they are not among the traces. The page says that it has a sample, and names no command that only we can
    run."""
    lines = (data / "questions.jsonl").read_bytes().splitlines()
    (data / "held_out.jsonl").write_bytes(lines[0])
    line = json.loads(lines[1])
    left_out = {"question_id": line["question_id"], "question_key": question_key(line["question"]), "matches": []}
    (data / "contamination.jsonl").write_bytes(orjson.dumps(left_out | {"dropped": True}) + b"\n")
    summary = json.loads((data / "summary.json").read_bytes())
    summary["contamination"]["dropped"] = 1
    (data / "summary.json").write_bytes(orjson.dumps(summary))
    assert published(hub, data, "--dry-run").returncode == 0
    page = data / "publish" / "space" / "index.html"
    text = unpacked(page.read_bytes(), 4)
    assert "It embeds the trees of a sample of 2 of 4 questions" in text
    assert "Show every tree with" not in text
    shown = visit(page)
    shown.get_by_role("link", name=line["question"]).first.click()
    expect(shown.get_by_text("This page embeds a sample of the trees, and not this one.")).to_be_visible()
    expect(shown.get_by_text("reasonrag view --serve")).to_have_count(0)


def test_the_page_is_made_last_and_of_runs_that_may_be_published(data: Path, tmp_path: Path) -> None:
    """As it takes longest. A link would publish what it leads to, by the page too."""

    def unexpected(*_: object, **__: object) -> Path:
        raise AssertionError("a page was made")

    def publish() -> None:
        reasonrag.publish(data, repo=REPO, dry_run=True, view=unexpected)

    candidates = data / "candidates.jsonl"
    whole = candidates.read_bytes()
    candidates.write_bytes(whole.replace(b'"response":"', b'"response":"%s ' % KEY.encode(), 1))
    with pytest.raises(InputError, match="hold a possible key"):
        publish()
    candidates.write_bytes(whole)
    (tmp_path / "run" / "rollouts.jsonl").rename(tmp_path / "elsewhere")
    (tmp_path / "run" / "rollouts.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"rollouts\.jsonl is a link to .*elsewhere"):
        publish()


def test_a_space_that_we_did_not_write_stays(hub: HubServer, data: Path) -> None:
    """Neither are the rows sent. One that has only what the Hub begins with is taken."""
    of_others = {"README.md": b"---\nsdk: gradio\n---\n", "app.py": b"import gradio", "index.html": b"mine"}
    hub.put(f"spaces/{REPO}", of_others, private=True)
    refused = published(hub, data)
    assert refused.returncode == 1
    assert f"the Space {REPO} was not written by publish" in " ".join(refused.stderr.split())
    assert (hub.repositories[f"spaces/{REPO}"].files, REPO in hub.repositories) == (of_others, False)
    hub.put(f"spaces/{REPO}", {"README.md": b"---\nsdk: static\n---\n", "index.html": b"Hi", "style.css": b""})
    assert published(hub, data).returncode == 0
    assert b"Written by `reasonrag publish`" in hub.repositories[f"spaces/{REPO}"].files["README.md"]


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
    words = ("publish", data, "--repo", REPO, "--max-mb", "5", "--dry-run")
    assert "--max-mb is for the page of --space" in completed(Command(*words)).stderr
