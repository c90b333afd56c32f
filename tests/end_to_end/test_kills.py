"""Killed before any change to a file: no question stands in both parts, readers are told, and the same command ends as
if it had never been killed.

Real processes, which get SIGKILL right before the N-th change to their files, for every N.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

import reasonrag as package
from preference.export.atomic_export import UNFINISHED
from preference.export.formats import FORMATS, SPLITS
from tests.helpers.processes import finished
from tests.helpers.published_trees import in_published_form
from tests.helpers.shared import Shared
from tests.helpers.trees import answer, siblings

Words = tuple[object, ...]
LOOSE: Words = ("--min-confidence", 0, "--validation", 0.5)
"""Settings that leave pairs of several questions, of which half are held out."""
JUDGE: Words = ("--label", "judge", "--model", "offline")


@pytest.fixture
def sources(shared: Shared) -> Path:
    """Two runs, `a` and `b`, that differ in their seed, and the rows and trees of each as others publish them."""

    def make() -> None:
        for seed, name in enumerate("ab"):
            package.generate(dataset="atlas", model="offline", limit=6, run=name, seed=seed)
            rows = package.pairs(name, out=f"{name}-rows", min_confidence=0.0).out
            shutil.copy(Path(rows, "RAG_ProGuide.json"), f"{name}.json")
            Path(f"{name}-trees.json").write_bytes(orjson.dumps([published_tree(f"{name}{each}") for each in range(3)]))

    return shared.folder("sources-to-kill", make)


def published_tree(name: str) -> dict[str, Any]:
    """A question with a right answer and a wrong one."""
    steps = (answer(said, None, action="think", visits=2) for said in ("a queen", "Ada Lovelace"))
    return in_published_form(siblings(*steps, question_id=name, question=f"Who was {name}?"))


@dataclass(frozen=True)
class Case:
    """earlier: commands whose result the killed one finds. `SOURCES` is the folder of the fixture."""

    command: Words
    earlier: tuple[Words, ...] = ()


CASES = {
    "a first data set": Case(("pairs", "SOURCES/a", "--out", "data", *LOOSE)),
    "other parts and formats": Case(
        ("pairs", "SOURCES/a", "--out", "data", *LOOSE, "--seed", 5, "--format", "sft"),
        (("pairs", "SOURCES/a", "--out", "data", *LOOSE, "--format", "kto"),),
    ),
    "other runs": Case(
        ("pairs", "SOURCES/b", "--out", "data", *LOOSE, "--replace"),
        (("import", "SOURCES/a.json", "--out", "data"), ("view", "data")),
    ),
    "a judge, in place": Case(
        ("pairs", "data", "--out", "data", *LOOSE, *JUDGE, "--seed", 5),
        (("pairs", "SOURCES/a", "--out", "data", *LOOSE),),
    ),
    "imported pairs, replaced": Case(
        ("import", "SOURCES/b.json", "--out", "data", "--replace"), (("import", "SOURCES/a.json", "--out", "data"),)
    ),
    "imported trees": Case(("import", "SOURCES/a-trees.json", "--out", "data")),
}


EVERY = 12
"""Every so many kills, and after the last, the command is repeated; after the others only its files are checked."""


@pytest.mark.parametrize("name", CASES)
def test_a_killed_export_never_mixes_parts_and_the_same_command_completes_it(
    name: str, sources: Path, tmp_path: Path
) -> None:
    """At every kill no question is in both parts; the repeated command writes the bytes of an undisturbed one."""
    case = CASES[name]
    begun, moments = prepared(case, sources, tmp_path), tmp_path / "moments"
    expected = result(case, sources, begun, tmp_path / "whole", snapshots=moments)
    left = [moments / str(number) for number in range(1, len(list(moments.iterdir())) + 1)]
    assert len(left) > 5, "there was hardly a change"
    for each in left:
        in_train, held_out = (questions_of(each / "data", split) for split in SPLITS)
        assert not in_train & held_out
    for number, each in enumerate([*left[:-1:EVERY], left[-1]]):
        assert result(case, sources, each, tmp_path / f"again-{number}") == expected


CORPUS = '{"id": "1", "contents": "Paris\\nIt lies on the Seine."}\n'
GENERATE = ("generate", "--dataset=atlas", "--model=offline", "--limit=2", "--run", "run", "--set=search.simulations=2")
LAST_CHANGES: dict[str, Words] = {
    "run/config.json": GENERATE,
    "run/rollouts.jsonl": GENERATE,
    "data/candidates.jsonl": ("pairs", "SOURCES/a", "--out", "data", *LOOSE, "--replace"),
    "data/view.html": ("view", "data"),
    "data/audit.html": ("audit", "data"),
    "index": ("index", "build", "--corpus", "corpus.jsonl", "--out", "index"),
    "data/publish": ("publish", "data", "--repo", "o/n", "--dry-run", "--allow", "no_contamination_check"),
}
"""Commands, by the file or folder before whose last change they are killed."""


@pytest.mark.parametrize("name", LAST_CHANGES)
def test_no_temporary_file_or_folder_outlives_the_next_command(name: str, sources: Path, tmp_path: Path) -> None:
    """The names below the working directory are those of a command that was never killed."""
    imported: Words = ("import", "SOURCES/a.json", "--out", "data")
    case = Case(LAST_CHANGES[name], (imported,) if "data" in LAST_CHANGES[name] else ())
    begun = prepared(case, sources, tmp_path)
    (begun / "corpus.jsonl").write_text(CORPUS)
    expected = result(case, sources, begun, tmp_path / "whole")
    place = tmp_path / "killed"
    shutil.copytree(begun, place)
    killed = finished(*words(case.command, sources), cwd=place, killed_at=name)
    assert killed.returncode == -9, killed.stderr
    found = result(case, sources, place, tmp_path / "again")
    indexes = "indexes"  # the place of a corpus is in the name of its index
    assert {each for each in found if not each.startswith(indexes)} == {
        each for each in expected if not each.startswith(indexes)
    }


def prepared(case: Case, sources: Path, home: Path) -> Path:
    """The working directory before the command."""
    begun = home / "begun"
    begun.mkdir()
    for each in case.earlier:
        done = finished(*words(each, sources), cwd=begun)
        assert done.returncode == 0, done.stderr
    return begun


def words(command: Words, sources: Path) -> list[str]:
    return [str(each).replace("SOURCES", str(sources)) for each in command]


def result(case: Case, sources: Path, begun: Path, place: Path, *, snapshots: Path | None = None) -> dict[str, bytes]:
    """Every file and folder after the command; how often a judge was asked in its last session apart."""
    shutil.copytree(begun, place)
    done = finished(*words(case.command, sources), cwd=place, snapshots=snapshots)
    assert done.returncode == 0, done.stderr
    found = {str(each.relative_to(place)): each.read_bytes() if each.is_file() else b"" for each in place.rglob("*")}
    assert {name for name in found if name.startswith(("data/.", "data/UN"))} <= {"data/.lock"}
    summary = found.get("data/summary.json")
    if summary is not None:
        content = orjson.loads(summary)
        content["judging"].pop("session_calls", None)
        found["data/summary.json"] = orjson.dumps(content)
    return found


def questions_of(data: Path, split: str) -> set[str]:
    """The questions in the files of any format."""
    return {row["question_id"] for row in rows_of(data, split)}


def rows_of(data: Path, split: Any) -> Iterator[dict[str, Any]]:
    for form in FORMATS.values():
        path = data / form.file_name(split)
        if path.is_file() and path.suffix == ".json":
            yield from orjson.loads(path.read_bytes())
        elif path.is_file():
            yield from map(orjson.loads, path.read_bytes().splitlines())


@pytest.fixture
def unfinished(sources: Path, tmp_path: Path) -> Path:
    """A data set whose new rows to train on were in place when its command was killed."""
    begun = prepared(CASES["other parts and formats"], sources, tmp_path)
    command = words(CASES["other parts and formats"].command, sources)
    assert finished(*command, cwd=begun, killed_at="data/candidates.jsonl").returncode == -9
    assert (begun / "data" / UNFINISHED).is_file()
    return begun


def test_every_command_refuses_to_read_an_unfinished_data_set(unfinished: Path) -> None:
    """With exit status 2, before it does anything."""
    readers: tuple[Words, ...] = (
        ("audit", "data"),
        ("stats", "data"),
        ("view", "data"),
        ("show", "data", "1"),
        ("review", "data", "--out", "sample.csv"),
        ("publish", "data", "--repo", "o/n", "--dry-run"),
        ("pairs", "data", "--out", "other"),
        ("train", "smoke-cpu-dpo-lora", "--data", "data", "--dry-run"),
    )
    for reader in readers:
        done = finished(*reader, cwd=unfinished)
        assert done.returncode == 2, (reader, done.stdout, done.stderr)
        assert "data is unfinished" in " ".join(done.stderr.split()), (reader, done.stderr)


def test_a_killed_replacement_is_no_source(sources: Path, tmp_path: Path) -> None:
    """Its candidates are of the new runs, its questions of the earlier ones."""
    begun = prepared(CASES["other runs"], sources, tmp_path)
    command = words(CASES["other runs"].command, sources)
    assert finished(*command, cwd=begun, killed_at="data/questions.jsonl").returncode == -9
    for others in ((), (f"{sources}/a",)):
        done = finished("pairs", "data", *others, "--out", "data", *LOOSE, cwd=begun)
        assert (done.returncode, "data is unfinished" in " ".join(done.stderr.split())) == (2, True), done.stderr
