"""Publishing: what speaks against it, what goes up, and that nothing is public before everything is up.

The Hub is a local server that the real clients talk to; they read their environment when they are imported, so whatever
asks it runs in a process of its own.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from preference.export.export_pairs import export_pairs
from preference.export.summary import CANDIDATES, ExportOptions
from preference.filters import PairingRules
from reasonrag.agent.prompting import load_prompts, save_prompts
from reasonrag.agent.protocols.known import renderer_hash
from reasonrag.curation.audit.audit import DatasetAudit
from reasonrag.curation.dataset_directory import read_dataset_directory
from reasonrag.curation.pairs import pairs
from reasonrag.curation.token_counters import EstimatingCounter
from reasonrag.exploration.explore import generate
from reasonrag.files import file_digest
from reasonrag.publishing.staging import stage_files
from tests.helpers.command_line import Reasonrag
from tests.helpers.hub_server import TOKEN, HubServer, environment_for
from tests.helpers.processes import Command, completed

REPO = "org/atlas"
ROOT = Path(__file__).parents[3]
"""Read before `own_settings` clears it."""
FORMATS = ("kto", "sft", "sft-chosen", "sharegpt", "trl")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the offline teacher and its data set, audited and compared with evaluation sets."""
    home = tmp_path_factory.mktemp("made")
    generate(dataset="atlas", model="offline", limit=12, run=home / "run", index_home=home / "indexes")
    pairs(home / "run", out=home / "data", format=FORMATS, validation=0.2)
    tell(home / "data", contamination={"checked": [{"name": "nq/dev", "questions": 9, "path": "/home/me/dev.jsonl"}]})
    audited(home / "data")
    return home


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    """A copy of the data set that a test may spoil."""
    shutil.copytree(made / "data", tmp_path / "data")
    return tmp_path / "data"


def tell(data: Path, **facts: Any) -> None:
    """Change what the summary says."""
    summary = json.loads((data / "summary.json").read_text())
    (data / "summary.json").write_text(json.dumps(summary | facts))


def audited(data: Path, **found: int) -> None:
    """An audit that found so many rows by check."""
    report = DatasetAudit(EstimatingCounter()).report()
    checks = [each.model_copy(update={"count": found.get(each.name, 0)}) for each in report.checks]
    told = report.model_copy(update={"checks": checks, "advised_cutoff": 1536})
    (data / "audit.json").write_text(told.model_dump_json())


def process(code: str, hub: HubServer, home: Path, *, python: Path | str = sys.executable, **environment: str) -> str:
    """What a program with the Hub's clients prints, without a token."""
    variables = os.environ | environment_for(hub.endpoint, home) | {"HF_TOKEN": ""} | environment
    done = subprocess.run([str(python), "-c", code], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def command(hub: HubServer, data: Path, *arguments: object, **environment: str) -> Command:
    """A process that publishes."""
    variables = os.environ | environment_for(hub.endpoint, data.parent) | environment
    return Command("publish", data, "--repo", REPO, *arguments, environment=variables)


def published(hub: HubServer, data: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return completed(command(hub, data, *arguments, **environment))


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def without_attributes(files: dict[str, bytes]) -> dict[str, bytes]:
    return {path: content for path, content in files.items() if path != ".gitattributes"}


# -- nothing is public before everything is up -----------------------------------------------------------------


def test_a_data_set_becomes_public_when_everything_is_up(hub: HubServer, data: Path, tmp_path: Path) -> None:
    """Created private, and a flag that was forgotten makes no data public. One commit with all files, compared, then
    public: strangers saw nothing until the last step, and what is up is not sent again."""
    new = published(hub, data)
    assert new.returncode == 0, new.stderr
    assert f"private: {hub.endpoint}/datasets/{REPO}" in new.stdout
    head, sent = hub.repositories[REPO].head, hub.sent()
    assert hub.repositories[REPO].private
    assert f"upload complete; {REPO} is private. --public makes it public" in new.stderr
    assert not [seen for seen in hub.seen if seen.path.endswith("/settings")]
    done = published(hub, data, "--public", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    repository = hub.repositories[REPO]
    assert (repository.head, hub.sent(), repository.private) == (head, sent, False)
    assert without_attributes(repository.files) == files_of(data / "publish")
    assert len(repository.commits) == 2  # the Hub's first one, and ours
    switched = next(i for i, seen in enumerate(hub.seen) if seen.path.endswith("/settings"))
    assert not any(seen.public for seen in hub.seen[: switched + 1])
    assert told["private"] is False
    assert told["url"] == f"{hub.endpoint}/datasets/{REPO}"
    assert told["files"][-1]["path"] == "README.md"
    assert "upload complete; org/atlas is public now" in done.stderr
    # the token went to the Hub, and nowhere else
    assert TOKEN not in done.stdout + done.stderr
    assert not [path for path, content in files_of(tmp_path).items() if TOKEN.encode() in content]


def test_a_refused_upload_says_what_is_up_and_how_to_go_on(hub: HubServer, data: Path) -> None:
    """The same command goes on; what had arrived is not sent again; nobody saw half of it."""
    hub.fail("PUT", "/lfs/", 403, after=2, times=1)
    done = published(hub, data)
    assert done.returncode == 1
    assert "stopped: org/atlas: " in done.stderr
    assert "files that have arrived will not be sent again; only you can see the repository" in done.stderr
    assert f"continue with: reasonrag publish {data} --repo {REPO}" in done.stderr
    assert "Traceback" not in done.stderr
    [refused] = set(hub.sent()) - hub.stored.keys()
    assert hub.repositories[REPO].private

    again = published(hub, data, "--public", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["commit"] == hub.repositories[REPO].head
    assert sorted(hub.sent()) == sorted([*hub.stored, refused])  # each once, the refused one twice
    assert without_attributes(hub.repositories[REPO].files) == files_of(data / "publish")
    assert not hub.repositories[REPO].private


def test_readers_of_a_public_data_set_never_see_half_of_a_new_version(hub: HubServer, data: Path) -> None:
    """One commit takes the old files away and brings the new ones; what is not ours stays. --private, which would hide
    nothing, is refused."""
    old = {"README.md": b"old", "data/train-00000-of-00002.parquet": b"old", "figures/one.png": b"mine"}
    hub.put(REPO, old)
    refused = published(hub, data, "--private")
    assert (refused.returncode, hub.sent()) == (1, [])
    assert "org/atlas is already public" in refused.stderr
    done = published(hub, data)
    assert done.returncode == 0, done.stderr
    assert "org/atlas is public already: everyone can read the new files" in done.stderr
    new = {**files_of(data / "publish"), "figures/one.png": b"mine"}
    assert hub.repositories[REPO].files == new
    assert {seen.public for seen in hub.seen} == {tuple(f"{REPO}/{path}" for path in old)}  # before each request
    assert "removed; was in an earlier version" in done.stdout


def test_a_private_repository_with_other_files_is_not_made_public(hub: HubServer, data: Path) -> None:
    """Someone keeps other files there; without --public the data set can be added."""
    hub.put(REPO, {"notes.txt": b"not for everybody"}, private=True)
    done = published(hub, data, "--public")
    assert done.returncode == 1
    assert (
        "is private and holds files that do not belong to this data set (notes.txt), which would become public"
        in " ".join(done.stderr.split())
    )
    assert hub.sent() == []
    assert published(hub, data).returncode == 0
    assert hub.repositories[REPO].private


def refused(data: Path, reasonrag: Reasonrag, *flags: object, repo: str = REPO) -> str:
    """What is said against it; nothing is written."""
    done = reasonrag("publish", data, "--repo", repo, "--dry-run", *flags)
    assert (done.status, (data / "publish").exists()) == (2, False)
    return done.err


# -- refused before anything is sent ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"HF_TOKEN": ""}, "there is no token: set HF_TOKEN, or log in with `hf auth login`. Nothing"),
        ({"HF_HUB_OFFLINE": "1"}, "offline mode is enabled. To disable it, please unset"),
        ({"HF_TOKEN": "hf_" + "wrong" * 7}, "Invalid user token"),
    ],
    ids=["no token", "offline", "wrong token"],
)
def test_without_access_nothing_is_written(
    environment: dict[str, str], message: str, hub: HubServer, data: Path
) -> None:
    """The Hub's own words say the way out; no token is shown."""
    done = published(hub, data, **environment)
    said = " ".join(done.stderr.split())
    assert (done.returncode, hub.repositories) == (1, {})
    assert message in said
    assert "Nothing was uploaded" in said
    assert ".." not in said
    assert "wrongwrong" not in said
    assert not (data / "publish").exists()


@pytest.mark.parametrize("part", ["/api/repos/create", "/preupload/", "/commit/"])
def test_a_token_that_may_only_read_is_told_in_one_line(part: str, hub: HubServer, data: Path) -> None:
    """The Hub knows the token and refuses what it asks for; what is there stays as it was."""
    if there := part != "/api/repos/create":
        hub.put(REPO, {"README.md": b"old"})
    hub.fail("POST", part, 403)
    done = published(hub, data)
    assert done.returncode == 1
    [said] = [line for line in done.stderr.splitlines() if line.startswith("stopped: ")]
    why = "this token may not write there: take one that may, huggingface.co/settings/tokens (as it was told to). "
    now = "Large files that have arrived will not be sent again; readers see the repository as it was"
    assert said == f"stopped: {REPO}: {why}{now if there else 'Nothing was uploaded'}"
    assert {name: each.files for name, each in hub.repositories.items()} == (
        {REPO: {"README.md": b"old"}} if there else {}
    )


@pytest.mark.parametrize("name", ["atlas", "org/a/b", "org/at las", "org/a--b", "../etc", ""])
def test_a_name_that_cannot_be_is_refused(name: str, data: Path, reasonrag: Reasonrag) -> None:
    """Before anything is read."""
    assert "is not a name for a data set on the Hub" in refused(data, reasonrag, repo=name)


def changed(file: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """Another content of a file of the data set."""
    return lambda data: (data / file).write_bytes(change((data / file).read_bytes()))


def half_of_the_lines(content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    return b"".join(lines[: len(lines) // 2])


def become_a_run(data: Path) -> None:
    shutil.rmtree(data)
    generate(dataset="atlas", limit=1, run=data)


def leave_another_question_out(data: Path) -> None:
    left_out = {"question_id": "b", "question_key": "2", "dropped": True, "matches": []}
    (data / "contamination.jsonl").write_bytes(orjson.dumps(left_out) + b"\n")


@pytest.mark.parametrize("name", ["audit.html", "questions.jsonl", "RAG_ProGuide.json"])
def test_a_link_out_of_the_data_set_is_not_followed(
    name: str, data: Path, tmp_path: Path, reasonrag: Reasonrag
) -> None:
    """What it leads to would be published; the message names it, and nothing stays behind."""
    reasonrag("audit", data)
    (data / name).rename(tmp_path / "elsewhere")
    (data / name).symlink_to(tmp_path / "elsewhere")
    assert f"{data / name} is a link to {tmp_path / 'elsewhere'}" in refused(data, reasonrag)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda data: (data / "summary.json").unlink(), "has no summary.json, so it is not a data set"),
        (become_a_run, "is a run, not a data set. First: reasonrag pairs"),
        (lambda data: tell(data, pairs=0), "has no pairs, so there is nothing to publish"),
        (lambda data: (data / "dropped.jsonl").unlink(), "there is no"),
        (
            changed("RAG_ProGuide.json", lambda rows: rows.replace(b'"chosen":"', b'"chosen":"!', 1)),
            "has changed since summary.json was written",
        ),
        (changed(CANDIDATES, half_of_the_lines), "does not belong to the rows"),
        (changed("questions.jsonl", lambda lines: lines[:-20]), "is not a JSON object"),
        (leave_another_question_out, "contamination.jsonl does not belong to the rows (questions left out: 1"),
        (lambda data: (data / "audit.json").unlink(), "audit.json. Make it with: reasonrag audit"),
    ],
)
def test_a_directory_that_is_not_one_whole_export_is_refused(
    spoil: Callable[[Path], object], message: str, data: Path, reasonrag: Reasonrag
) -> None:
    """The card would say what is not true."""
    spoil(data)
    assert message in refused(data, reasonrag)


of_another_split = changed("questions.jsonl", lambda lines: lines.replace(b'"split":"train"', b'"split":"dev"'))
with_a_key = changed(
    "questions.jsonl", lambda lines: lines.replace(b'"question":"', b'"question":"' + TOKEN.encode() + b" ", 1)
)


def in_an_evaluation_set(data: Path) -> None:
    match = {"rule": "question", "eval": "musique/dev", "eval_id": "7", "similarity": 1.0}
    kept = {"question_id": "a", "question_key": "1", "dropped": False, "matches": [match]}
    left_out = {"question_id": "b", "question_key": "2", "dropped": True, "matches": [match | {"eval": "nq/test"}]}
    tell(data, contamination={"checked": [{"name": "musique/dev"}], "kept": 1, "dropped": 1})
    (data / "contamination.jsonl").write_bytes(orjson.dumps(kept) + b"\n" + orjson.dumps(left_out) + b"\n")


def never_compared(data: Path) -> None:
    tell(data, contamination={})
    (data / "contamination.jsonl").unlink()


KEYS = {
    "of a service that the Hub knows nothing of": "AKIA" + "ABCD2345" * 2,
    "behind a line break, which is two letters in JSON": "first\n" + "sk-proj-" + "aB3_d-" * 8,
}


@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
@pytest.mark.parametrize("name", ["candidates.jsonl", "questions.jsonl", "dropped.jsonl"])
def test_keys_of_any_service_are_found_in_every_file(key: str, name: str, data: Path, reasonrag: Reasonrag) -> None:
    """By the audit's own patterns, in what a line says and not in how JSON spells it."""
    first, *others = (data / name).read_bytes().splitlines(keepends=True)
    (data / name).write_bytes(orjson.dumps({**orjson.loads(first), "note": [{"of": key}]}) + b"\n" + b"".join(others))
    said = refused(data, reasonrag)
    assert f"{name}, line 1 hold a possible key" in said
    assert key not in said


@pytest.mark.parametrize(
    ("spoil", "flag", "name", "what"),
    [
        (of_another_split, "--allow-eval", "atlas/dev", "it contains 12 questions of atlas/dev, not a training split"),
        (
            in_an_evaluation_set,
            "--allow-eval",
            "musique/dev",
            "it contains 1 question of musique/dev, which is an evaluation set",
        ),
        (never_compared, "--allow", "no_contamination_check", "not checked against"),
        (
            lambda data: audited(data, empty_reply=3, length_bias=9),
            "--allow",
            "empty_reply",
            "the audit has an error, empty_reply (3). If",
        ),
        (lambda data: tell(data, flipped=4), "--allow", "flipped", "the sides of 4 pairs are exchanged on purpose"),
        (with_a_key, "--allow", "secrets", "questions.jsonl, line 1 hold a possible key"),
    ],
)
def test_an_objection_stands_until_it_is_set_aside_by_name(
    spoil: Callable[[Path], object], flag: str, name: str, what: str, data: Path, reasonrag: Reasonrag
) -> None:
    """The message has the flag, another name does not help, and the card says what was set aside."""
    spoil(data)
    said = refused(data, reasonrag, flag, "something_else")
    assert what in said
    assert said.endswith(f"{flag} {name}")
    done = reasonrag("publish", data, "--repo", REPO, "--dry-run", flag, name)
    assert done.status == 0, done.err
    assert f"allowed: {flag} {name}" in done.out
    assert f"({flag} `{name}`)" in (data / "publish" / "README.md").read_text()
    staged, source = data / "publish" / "contamination.jsonl.gz", data / "contamination.jsonl"
    assert staged.exists() == source.exists()


def test_all_objections_are_told_at_once(data: Path, reasonrag: Reasonrag) -> None:
    """Nobody meets them one after the other; `all` names every evaluation set."""
    of_another_split(data)
    tell(data, flipped=4)
    done = reasonrag("publish", data, "--repo", REPO, "--dry-run")
    assert done.err.endswith("If intended, add: --allow-eval atlas/dev --allow flipped")
    allowed = reasonrag("publish", data, "--repo", REPO, "--dry-run", "--allow-eval", "all", "--allow", "flipped")
    assert allowed.status == 0


# -- what goes up ----------------------------------------------------------------------------------------------


def test_everything_that_was_dropped_goes_up_and_what_is_of_here_stays(data: Path, reasonrag: Reasonrag) -> None:
    """Whoever unpacks the candidates can filter anew; the summary has the counts, without paths. Names of reviewers and
    whatever somebody puts beside the data set's own files stay; the licence is the one that was given."""
    unchecked = {"name": "nq/test", "path": "/home/me/test.jsonl", "reason": "it is not there"}
    checked = [{"name": "nq/dev", "questions": 9, "path": "/home/me/dev.jsonl"}]
    tell(data, contamination={"checked": checked, "unchecked": [unchecked]})
    (data / "review").mkdir()
    (data / "review" / "ana.csv").write_text("pair,verdict\n")
    (data / "notes.txt").write_text("mine")
    done = reasonrag("publish", data, "--repo", REPO, "--dry-run", "--json", "--license", "cc0-1.0")
    assert done.status == 0, done.err
    assert not [each for each in files_of(data / "publish") if "ana" in each or "notes" in each]
    assert not [each for each in json.loads(done.out)["files"] if "review" in each["path"] or "notes" in each["path"]]
    assert json.loads(done.out)["licence"] == "cc0-1.0"
    card = (data / "publish" / "README.md").read_text()
    assert "license: cc0-1.0" in card
    for name in ("candidates.jsonl", "questions.jsonl", "dropped.jsonl"):
        assert gzip.decompress((data / "publish" / f"{name}.gz").read_bytes()) == (data / name).read_bytes()
    told = json.loads((data / "publish" / "summary.json").read_text())
    here = json.loads((data / "summary.json").read_text())
    assert told["dropped"] == here["dropped"]
    assert (told["out"], told["sources"]) == ("", ["run"])
    assert "/home/me" not in card + json.dumps(told)


def test_prompts_of_their_own_go_up_with_the_data(data: Path, reasonrag: Reasonrag) -> None:
    """Whoever trains on them needs these; files that are no prompts stay here."""
    own = load_prompts().changed(think="Think as you were told.")
    save_prompts(own, data / "prompts")
    assert reasonrag("publish", data, "--repo", REPO, "--dry-run").status == 0
    assert renderer_hash(load_prompts(data / "publish" / "prompts")) == renderer_hash(own)
    save_prompts(own.changed(think=KEYS["of a service that the Hub knows nothing of"]), data / "prompts")
    assert "think.txt, line 1 hold a possible key" in reasonrag("publish", data, "--repo", REPO, "--dry-run").err
    (data / "prompts" / "layout.json").unlink(missing_ok=True)
    (data / "prompts" / "think.txt").unlink()
    (data / "prompts" / "think.txt").symlink_to(ROOT / "README.md")
    refused = reasonrag("publish", data, "--repo", REPO, "--dry-run")
    assert refused.status == 2
    assert "outside of" in refused.err


def test_a_format_without_rows_is_not_described(data: Path, tmp_path: Path) -> None:
    """No reader takes an empty split: it is in no configuration and no entry."""
    export_pairs(data, data, PairingRules(), ExportOptions(formats=("sft",), validation=0.0))
    (data / "sft.json").write_bytes(b"[]\n")
    summary = json.loads((data / "summary.json").read_text())
    files = summary["files"] | {"sft.json": 0}
    tell(data, files=files, sha256={name: file_digest(data / name) for name in files})
    staged = stage_files(read_dataset_directory(data), tmp_path / "up", repo=REPO, trees={})
    assert not [path for path in staged if "sft" in path or "validation" in path]
    assert list(json.loads((tmp_path / "up" / "dataset_info.json").read_text())) == ["rag_proguide"]


def test_trees_go_up_on_request_without_places(made: Path, data: Path, tmp_path: Path, reasonrag: Reasonrag) -> None:
    """Paths, addresses and keys of the machine that made them stay behind; what decides answers does not."""
    run = tmp_path / "my run"
    shutil.copytree(made / "run", run)
    config = json.loads((run / "config.json").read_text())
    config["operational"]["base_url"] = ["http://10.0.0.7:8000/v1"]
    key = KEYS["of a service that the Hub knows nothing of"]
    config["decides_answers"] |= {"model": "/models/teacher", "retriever": "http:http://10.0.0.7:8977"}
    config["decides_answers"] |= {"note": TOKEN, "notes": [f"a {key}"]}
    (run / "config.json").write_text(json.dumps(config))
    done = reasonrag("publish", data, "--repo", REPO, "--dry-run", "--with-trees", run)
    assert done.status == 0, done.err
    folder = data / "publish" / "trees" / "my-run"
    assert gzip.decompress((folder / "rollouts.jsonl.gz").read_bytes()) == (run / "rollouts.jsonl").read_bytes()
    public = (folder / "config.json").read_text()
    assert json.loads(public)["decides_answers"]["recipe"] == config["decides_answers"]["recipe"]
    assert "operational" not in json.loads(public)
    assert not [each for each in ("10.0.0.7", "/models", str(tmp_path), TOKEN, key) if each in public]


def test_trees_of_another_run_are_refused(made: Path, data: Path, tmp_path: Path, reasonrag: Reasonrag) -> None:
    """They would not be those of the rows; nor are two of one name joined."""
    generate(dataset="atlas", limit=1, run="other", seed=5)
    again = shutil.copytree(made / "run", tmp_path / "again" / "run")
    for runs, says in (
        (["other"], "is not one of the runs"),
        (["nowhere"], "--with-trees takes run directories"),
        ([made / "run", again], "would both be trees/run; rename one of them"),
    ):
        trees = [word for run in runs for word in ("--with-trees", run)]
        done = reasonrag("publish", data, "--repo", REPO, "--dry-run", *trees)
        assert (done.status, says in done.err) == (2, True), done.err


def test_the_address_of_a_retrieval_server_stays_behind(data: Path, reasonrag: Reasonrag) -> None:
    """It says nothing to anybody else, and something about a network."""
    for name in ("candidates.jsonl", "questions.jsonl"):
        text = (data / name).read_text()
        start = text.index('"retriever":"')
        identity = text[start : text.index('",', start) + 1]
        (data / name).write_text(text.replace(identity, '"retriever":"http:http://10.0.0.7:8977"'))
    assert reasonrag("publish", data, "--repo", REPO, "--dry-run").status == 0
    for path, content in files_of(data / "publish").items():
        plain = gzip.decompress(content) if path.endswith(".gz") else content
        assert b"10.0.0.7" not in plain, path


def test_traces_get_a_repository_of_their_own(hub: HubServer, made: Path, data: Path) -> None:
    """Private and public as the rows are, and not sent again; the card of the rows leads there. The Hub looks for
    traces where the rows of a repository are JSON, and these are Parquet."""
    done = published(hub, data, "--with-trees", made / "run", "--json")
    assert done.returncode == 0, done.stderr
    rows, traces = hub.repositories[REPO], hub.repositories[f"{REPO}-traces"]
    assert (rows.private, traces.private) == (True, True)
    staged = files_of(data / "publish" / "traces")
    assert without_attributes(traces.files) == staged
    assert not [path for path in rows.files if path.startswith("traces")]
    told = json.loads(done.stdout)
    assert told["traces"] == len(staged) - 1 > 0
    assert f"(https://huggingface.co/datasets/{REPO}-traces)" in rows.files["README.md"].decode()
    heads = rows.head, traces.head
    again = published(hub, data, "--with-trees", made / "run", "--public")
    assert again.returncode == 0, again.stderr
    beside = f"a second data set, for the viewer of traces: {REPO}-traces, {told['traces']} sessions"
    assert beside in " ".join(again.stdout.split())
    assert beside in " ".join(published(hub, data, "--with-trees", made / "run", "--dry-run").stdout.split())
    assert (rows.head, traces.head, rows.private, traces.private) == (*heads, False, False)


def test_traces_are_seen_by_those_who_see_the_rows(hub: HubServer, made: Path, data: Path) -> None:
    """Also where no flag says who that is. Without trees the traces stay, which is said."""
    hub.put(REPO, {"README.md": b"old"})
    done = published(hub, data, "--with-trees", made / "run")
    assert (done.returncode, hub.repositories[f"{REPO}-traces"].private) == (0, False), done.stderr
    said = f"{REPO}-traces, if it was published with these trees before, stays as it is"
    assert said in " ".join(published(hub, data).stderr.split())
    hub.repositories[REPO].private = True
    refused = published(hub, data, "--with-trees", made / "run")
    assert refused.returncode == 1
    assert f"{REPO}-traces is already public" in refused.stderr
    assert f"The rows are at {hub.endpoint}/datasets/{REPO}, private" in " ".join(refused.stderr.split())


# -- what readers get ------------------------------------------------------------------------------------------


def test_load_dataset_gives_the_rows_that_went_in(hub: HubServer, data: Path, tmp_path: Path) -> None:
    """By the real client, without a token, both parts and every format, as the card says."""
    assert published(hub, data, "--public").returncode == 0
    [said] = re.findall(r"```python\n(from datasets.*?)```", (data / "publish" / "README.md").read_text(), re.DOTALL)
    variables = ", ".join(f"{name!r}: {name.replace('-', '_')}" for name in FORMATS)
    code = (
        f"import json\n{said}\n"
        f"sets = {{'default': pairs, {variables}}}\n"
        "print(json.dumps({n: {s: list(rows) for s, rows in each.items()} for n, each in sets.items()}))"
    )
    got = json.loads(process(code, hub, tmp_path / "reader").splitlines()[-1])
    files = {"default": "RAG_ProGuide{}.json", "trl": "trl{}.jsonl"}
    for name in ("default", *FORMATS):
        for split, middle in (("train", ""), ("validation", ".validation")):
            text = (data / files.get(name, f"{name}{{}}.json").format(middle)).read_text()
            rows = [json.loads(line) for line in text.splitlines()] if name == "trl" else json.loads(text)
            assert got[name].get(split, []) == rows, (name, split)


def test_llama_factory_reads_it_from_the_hub(hub: HubServer, data: Path, tmp_path: Path, train_python: Path) -> None:
    """`dataset_dir: REMOTE:org/name`: its own parser and loader give the right rows in the right roles."""
    assert published(hub, data, "--public").returncode == 0
    code = (
        "import json\n"
        "from llamafactory.hparams import get_train_args\n"
        "from llamafactory.data.loader import _get_merged_dataset\n"
        "def load(stage, name):\n"
        f"    flags = dict(model_name_or_path='x', stage=stage, do_train='true', dataset_dir='REMOTE:{REPO}',\n"
        f"        dataset=name, template='qwen', report_to='none', output_dir={str(tmp_path / 'saves')!r})\n"
        "    model, data, training, _, _ = get_train_args([w for k, v in flags.items() for w in ('--' + k, v)])\n"
        "    return list(_get_merged_dataset(data.dataset, model, data, training, 'rm' if stage == 'dpo' else stage))\n"
        "stages = {'rag_proguide': 'dpo', 'rag_proguide_validation': 'dpo', 'rag_proguide_sharegpt': 'dpo',\n"
        "    'rag_proguide_kto': 'kto', 'rag_proguide_sft': 'sft',\n"
        "    'rag_proguide_sft_chosen': 'sft'}\n"
        "print('\\n' + json.dumps({name: load(stage, name) for name, stage in stages.items()}))"
    )
    got = json.loads(process(code, hub, tmp_path / "reader", python=train_python, PYTHONPATH="").splitlines()[-1])
    for name, file in {
        "rag_proguide": "RAG_ProGuide.json",
        "rag_proguide_sharegpt": "RAG_ProGuide.json",
        "rag_proguide_validation": "RAG_ProGuide.validation.json",
        "rag_proguide_kto": "kto.json",
        "rag_proguide_sft": "sft.json",
        "rag_proguide_sft_chosen": "sft-chosen.json",
    }.items():
        rows = json.loads((data / file).read_text())
        sides = ("chosen", "rejected") if "chosen" in rows[0] else ()
        assert [
            (row["_system"], row["_prompt"][0]["content"], *(side["content"] for side in row["_response"] if sides))
            for row in got[name]
        ] == [(row["instruction"], row["input"], *(row[side] for side in sides)) for row in rows], name
        assert all([turn["role"] for turn in row["_prompt"]] == ["user"] for row in got[name])
