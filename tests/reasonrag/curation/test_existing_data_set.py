"""A data set that stands in `--out`: other runs do not replace it unasked, and nothing stale stays beside a new one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import reasonrag as package
from reasonrag.errors import InputError
from tests.helpers.command_line import Reasonrag
from tests.helpers.scripted_model import ScriptedModel
from tests.reasonrag.curation.test_import_published import read_json

PICK = "So the pick is <pick>1 2</pick>"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, `a` and `b`, that differ in their seed."""
    home = tmp_path_factory.mktemp("runs")
    for seed, name in enumerate("ab"):
        package.generate(
            dataset="atlas", model="offline", limit=6, run=home / name, seed=seed, index_home=home / "indexes"
        )
    return home


def part_of(runs: Path, place: Path, questions: int) -> Path:
    """The first questions of run `a`, in another place."""
    place.mkdir()
    shutil.copy(runs / "a" / "config.json", place)
    lines = (runs / "a" / "rollouts.jsonl").read_bytes().splitlines(keepends=True)
    (place / "rollouts.jsonl").write_bytes(b"".join(lines[:questions]))
    return place


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, the lock apart."""
    return {
        str(each.relative_to(folder)): each.read_bytes()
        for each in folder.rglob("*")
        if each.is_file() and each.name != ".lock"
    }


def test_other_runs_do_not_replace_a_data_set(runs: Path, tmp_path: Path, reasonrag: Reasonrag) -> None:
    """Every byte stays, and the message names both runs and both ways out."""
    out = tmp_path / "data"
    assert reasonrag("pairs", runs / "a", "--out", out, "--format", "kto", "--format", "sft").status == 0
    assert reasonrag("view", out).status == 0
    before = contents(out)
    done = reasonrag("pairs", runs / "b", "--out", out, "--format", "kto")
    assert (done.status, done.out) == (2, "")
    a, b = (read_json(runs / name / "config.json")["config_hash"] for name in "ab")
    assert f"made from other runs: atlas/train ({a}). Given: atlas/train ({b}). Nothing was changed" in done.err
    assert "Choose another --out" in done.err
    assert "--replace" in done.err
    assert contents(out) == before
    assert reasonrag("pairs", runs / "a", runs / "b", "--out", out).status == 2, "a part of it is not the same"
    with pytest.raises(InputError, match="made from other runs"):
        package.pairs(runs / "b", out=out)
    assert contents(out) == before


def test_the_same_runs_replace_their_data_set_silently(runs: Path, tmp_path: Path, reasonrag: Reasonrag) -> None:
    """Grown, with other flags, from another place, or by way of a data set of theirs. What shows earlier rows goes with
    them: a command makes the page again, but not what a person put there. A data set without a question is replaced
    without a word."""
    out, run = tmp_path / "data", part_of(runs, tmp_path / "moved", 3)
    assert reasonrag("pairs", run, "--out", out, "--format", "kto", "--validation", 0).status == 0
    assert reasonrag("view", out).status == 0
    (out / "sample.csv").write_text("took an hour")
    done = reasonrag("pairs", runs / "a", "--out", out, "--format", "sft", "--min-margin", ".2")
    assert done.status == 0
    assert f"make it again with: reasonrag view {out}" in done.err
    assert f"removed from {out} what the earlier export wrote and this one does not: kto.json" in done.err
    assert not (out / "view.html").exists()
    assert (out / "sample.csv").read_text() == "took an hour"
    assert read_json(out / "summary.json")["questions"] == 6
    assert not (out / "kto.json").exists()
    assert reasonrag("pairs", runs / "a", "--out", tmp_path / "copy").status == 0
    assert reasonrag("pairs", tmp_path / "copy", "--out", out).status == 0
    assert reasonrag("pairs", out, "--out", out, "--min-confidence", ".8").status == 0
    assert reasonrag("pairs", out, runs / "b", "--out", out).status == 0, "what is there is taken in"
    assert reasonrag("pairs", runs / "b", runs / "a", "--out", out).status == 0
    assert reasonrag("pairs", runs / "a", "--out", out).status == 2, "what was of b would be lost"
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "rollouts.jsonl").touch()
    for source, status in ((empty, 0), (runs / "a", 0), (empty, 2)):
        assert reasonrag("pairs", source, "--out", "data-of-none").status == status


def test_a_replaced_data_set_is_as_one_made_anew(runs: Path, tmp_path: Path, reasonrag: Reasonrag) -> None:
    """What stays is what judges said."""
    out, anew = tmp_path / "data", tmp_path / "anew"
    package.pairs(runs / "a", out=out, format=["kto", "sft"], label="judge", chat_model=ScriptedModel(lambda *_: PICK))
    assert reasonrag("view", out).status == 0
    paid = (out / "judging" / "journal.jsonl").read_bytes()
    done = reasonrag("pairs", runs / "b", "--out", out, "--replace", "--format", "sharegpt")
    assert done.status == 0, done.err
    package.pairs(runs / "b", out=anew, format=["sharegpt"])
    made, expected = contents(out), contents(anew)
    assert made.pop("judging/journal.jsonl") == paid
    for files in (made, expected):
        for name in ("summary.json", "audit.json", "audit.html"):  # which say where they are
            files.pop(name)
    assert made == expected
    told = read_json(out / "summary.json")
    assert told | {"out": ""} == read_json(anew / "summary.json") | {"out": ""}
    assert package.pairs(runs / "b", out=out).out == str(out), "it is that of b from now on"


@pytest.mark.parametrize("flags", [{"allow_eval": ["nonsense"]}, {"label": "judge"}, {"eval": ["missing.jsonl"]}])
def test_a_replacement_that_comes_to_nothing_leaves_all_as_it_was(
    flags: dict[str, Any], runs: Path, tmp_path: Path
) -> None:
    """A wrong flag beside --replace costs nothing."""
    package.pairs(runs / "a", out=tmp_path / "data", format=["kto"])
    before = contents(tmp_path / "data")
    with pytest.raises(InputError):
        package.pairs(runs / "b", out=tmp_path / "data", replace=True, **flags)
    assert contents(tmp_path / "data") == before


@pytest.mark.parametrize(("name", "flags"), [("dataset_info.json", []), ("trl.jsonl", ["--replace"])])
def test_files_of_others_are_never_replaced(
    name: str, flags: list[str], runs: Path, tmp_path: Path, reasonrag: Reasonrag
) -> None:
    """A folder without candidates is no data set of ours, whatever is asked."""
    out = tmp_path / "theirs"
    out.mkdir()
    (out / name).write_text('{"mine": 1}\n')
    done = reasonrag("pairs", runs / "a", "--out", out, *flags)
    assert (done.status, f"is taken: it holds {name}" in done.err) == (2, True), done.err
    assert [each.name for each in out.iterdir()] == [name]
    assert (out / name).read_text() == '{"mine": 1}\n'


def test_candidates_that_cannot_be_read_are_replaced_on_request(
    runs: Path, tmp_path: Path, reasonrag: Reasonrag
) -> None:
    """Nobody knows from which runs they are; others tell it where someone deleted everything else."""
    out = tmp_path / "data"
    assert reasonrag("pairs", runs / "a", "--out", out).status == 0
    for each in out.iterdir():
        if each.name != "candidates.jsonl":
            each.unlink()
    assert "made from other runs" in reasonrag("pairs", runs / "b", "--out", out).err
    (out / "candidates.jsonl").write_text("of a program of my own\n")
    done = reasonrag("pairs", runs / "a", "--out", out)
    assert (done.status, "its lines do not say which" in done.err) == (2, True)
    assert (out / "candidates.jsonl").read_text() == "of a program of my own\n"
    assert reasonrag("pairs", runs / "a", "--out", out, "--replace").status == 0


def test_an_import_is_replaced_on_request(runs: Path, tmp_path: Path, reasonrag: Reasonrag) -> None:
    """And so is one that pairs of runs replace: then its report goes, too."""
    assert reasonrag("pairs", runs / "a", "--out", "a").status == 0
    assert reasonrag("pairs", runs / "b", "--out", "b").status == 0
    for _ in range(2):
        assert reasonrag("import", "a/RAG_ProGuide.json", "--out", "data").status == 0
    out = tmp_path / "data"
    before = contents(out)
    done = reasonrag("import", "b/RAG_ProGuide.json", "--out", "data")
    assert (done.status, "data holds an import of other files" in done.err, "--replace" in done.err) == (2, True, True)
    assert reasonrag("pairs", "b", "--out", "data").status == 2
    assert contents(out) == before
    assert reasonrag("import", "b/RAG_ProGuide.json", "--out", "data", "--replace").status == 0
    assert read_json(out / "import.json")["sources"][0]["name"] == "b/RAG_ProGuide.json"
    assert reasonrag("pairs", "a", "--out", "data", "--replace").status == 0
    assert not {"import.json", "rejected_rows.jsonl"} & contents(out).keys()
    assert reasonrag("import", "b/RAG_ProGuide.json", "--out", "data", "--replace").status == 2, "of runs, no import"
