"""What an index's manifest says of its files: damage is found and named, and two builds write the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest

import reasonrag as package
from reasonrag.errors import InputError
from reasonrag.retrieval.dense.manifest import (
    CHECKED_AT_OPENING,
    MANIFEST,
    OFFSETS,
    damaged_files,
    read_manifest,
    write_manifest,
)
from reasonrag.retrieval.opening import open_index
from tests.helpers.command_line import CORPUS, Reasonrag
from tests.helpers.jsonl import write_passages

FLAGS = {"bm25": {}, "dense": {"encoder": "hashing-64"}}
FILES = {
    "bm25": [
        *(f"{name}.csc.index.npy" for name in ("data", "indices", "indptr")),
        *("vocab.index.json", "params.index.json", "offsets.npy", "manifest.json"),
    ],
    "dense": ["hashing-64_Flat.index", "vectors.npy", "offsets.npy", "manifest.json"],
}
REMEDIES = {
    "hashing-64_Flat.index": "Its vectors are there: delete it, and run: reasonrag index build .* --type flat",
    "vectors.npy": "Put it back, or delete ix and run: .* --encoder hashing-64",
}
EVERY_FILE = [(kind, name) for kind, names in FILES.items() for name in names]


def built(kind: str) -> Path:
    """A real index of a corpus in the current folder."""
    write_passages(Path("corpus.jsonl"), CORPUS)
    return package.index_build(corpus="corpus.jsonl", out="ix", kind=kind, **FLAGS[kind])[0]


def change(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(("kind", "name"), EVERY_FILE)
def test_one_changed_bit_is_found_wherever_it_is(kind: str, name: str, reasonrag: Reasonrag) -> None:
    """By `check`, and at opening as the file is small; the message says what to do."""
    index = built(kind)
    assert {each.name for each in index.iterdir()} == set(FILES[kind])
    assert reasonrag("index", "check", index).status == 0
    whole = (index / name).read_bytes()
    for position in (0, 1, 7, len(whole) // 3, len(whole) // 2, -7, -1):
        change(index / name, position)
        checked = reasonrag("index", "check", index, "--json")
        assert checked.status == (2 if name == MANIFEST else 1), (position, checked.out)
        said = checked.err if name == MANIFEST else " ".join(json.loads(checked.out)["faults"])
        assert f"ix/{name} " in said, (position, said)
        assert "uild" in said
        with pytest.raises(InputError, match=rf"ix/{name} .* reasonrag index build"):
            open_index(index)
        (index / name).write_bytes(whole)


@pytest.mark.parametrize(("kind", "name"), [each for each in EVERY_FILE if each[1] != MANIFEST])
def test_the_size_of_a_large_file_is_checked_at_opening(kind: str, name: str) -> None:
    """A changed size is found by every opening, a changed bit by `check` alone."""
    index = built(kind)
    manifest = read_manifest(index)
    size = (index / name).stat().st_size
    change(index / name, -1)
    assert damaged_files(index, manifest, [name], most_bytes=size - 1) == {}
    assert list(damaged_files(index, manifest, [name], most_bytes=size)) == [name]
    os.truncate(index / name, size - 1)
    message = f"it has {size - 1:,} bytes and had {size:,}"
    assert message in damaged_files(index, manifest, [name], most_bytes=0)[name]
    (index / name).unlink()
    assert any(f"ix/{name} is missing" in each for each in package.index_check(index).faults)
    remedy = REMEDIES.get(name, f"Run: reasonrag index build --kind {kind}")
    with pytest.raises(InputError, match=f"ix/{name} is missing. {remedy}"):
        open_index(index)
    assert CHECKED_AT_OPENING >= 1 << 20


@pytest.mark.parametrize("kind", FLAGS)
def test_the_suggested_command_repairs_the_offsets(kind: str) -> None:
    """Without encoding again; a dense index is not given up for them."""
    index = built(kind)
    before = (index / OFFSETS).read_bytes()
    change(index / OFFSETS, -1)
    package.index_build(corpus="corpus.jsonl", out=index, kind=kind)
    assert (index / OFFSETS).read_bytes() == before
    assert package.index_check(index).faults == []


def test_a_manifest_that_does_not_name_its_files_is_refused() -> None:
    """As another program may have written it, with its digest."""
    index = built("dense")
    write_manifest(read_manifest(index).model_copy(update={"indexes": {}}), index)
    with pytest.raises(InputError, match=r"manifest\.json is damaged: .*it does not name all of its files"):
        open_index(index)


def test_an_adopted_index_is_checked_where_it_lies(reasonrag: Reasonrag, tmp_path: Path) -> None:
    """By its absolute path: it holds the vectors."""
    theirs = tmp_path / "theirs.index"
    (built("dense") / "hashing-64_Flat.index").rename(theirs)
    flags = {"from_faiss": theirs, "encoder": "hashing-64"}
    for index_type in ("flat", "sq8"):
        package.index_build(corpus="corpus.jsonl", out=index_type, type=index_type, **flags)
        assert reasonrag("index", "check", index_type).status == 0
    change(theirs, -3)
    for index_type in ("flat", "sq8"):
        with pytest.raises(InputError, match=r"/theirs\.index has changed since it was built\. Put it back"):
            open_index(Path(index_type))
        assert f"{theirs} has changed" in json.loads(reasonrag("index", "check", index_type, "--json").out)["faults"][0]


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ({}, "it has no digest, or has changed since it was written"),  # changed files would go unseen
        ({"kind": "sparse"}, "record: Input tag 'sparse' found using 'kind' does not match any of the expected tags"),
        ({"kind": "bm25"}, "bm25.corpus is missing"),
    ],
)
def test_an_unusable_manifest_is_explained_in_one_line(
    content: dict[str, str], cause: str, reasonrag: Reasonrag
) -> None:
    """In one line, with what to do."""
    Path("ix").mkdir()
    if content:
        content["manifest_sha256"] = hashlib.sha256(orjson.dumps(content)).hexdigest()
    Path("ix", MANIFEST).write_bytes(orjson.dumps(content))
    refused = reasonrag("index", "check", "ix")
    assert refused.status == 2
    assert refused.err.startswith(f"error: ix/manifest.json is damaged: {cause}")
    assert ". If ix is an index, delete it and build it again: reasonrag" in refused.err
    with pytest.raises(InputError, match="If ix is an index, delete it and build it again"):
        built("bm25")


BUILDS = """
import sys
from reasonrag import index_build
for kind, flags in (("bm25", {}), ("dense", {"encoder": "hashing-64"})):
    index_build(corpus=sys.argv[1], out=kind, kind=kind, **flags)
"""
MEASURED = {"seconds", "encoding_seconds"}
"""Of a manifest, what differs between two builds of one file on one machine."""


def test_two_builds_of_one_corpus_write_the_same_bytes(tmp_path: Path) -> None:
    """In other processes, with other hashes of strings, elsewhere; but for the measured seconds."""
    rng, words = np.random.default_rng(0), [f"word{number}" for number in range(400)]
    texts = [" ".join(rng.choice(words, size=20)) for _ in range(300)]
    corpus = write_passages(tmp_path / "corpus.jsonl", ((str(i), "t", each) for i, each in enumerate(texts)))
    homes = [tmp_path / name for name in ("one", "another")]
    for seed, home in enumerate(homes):
        home.mkdir()
        environment = os.environ | {"PYTHONHASHSEED": str(seed)}
        subprocess.run([sys.executable, "-c", BUILDS, corpus], cwd=home, env=environment, check=True)
    for kind, names in FILES.items():
        one, other = ({name: (home / kind / name).read_bytes() for name in names} for home in homes)
        manifests = [
            _without(orjson.loads(each.pop(MANIFEST)), {"manifest_sha256", *MEASURED}) for each in (one, other)
        ]
        assert one == other
        assert manifests[0] == manifests[1]


def _without(value: object, names: set[str]) -> object:
    if not isinstance(value, dict):
        return value
    return {name: _without(each, names) for name, each in value.items() if name not in names}
