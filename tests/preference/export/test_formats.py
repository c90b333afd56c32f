"""Rows: what each trainer is given of a pair or a path, and what LLaMA-Factory is told of the files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from preference import NO_FILTERS, ExportOptions, RolloutRecord, candidates, export_pairs
from preference.best_path import question_record
from preference.export.formats import (
    COLUMNS,
    CONVERSATIONS,
    FORMATS,
    FormatName,
    Row,
    SplitName,
    dataset_info,
    dataset_name,
    kto_rows,
    proguide_row,
    sft_chosen_rows,
    sft_rows,
)
from preference.export.parquet import proguide_schema, write_parquet
from tests.helpers.trees import ada, candidates_in, query, rows, siblings

NAMES: tuple[FormatName, ...] = tuple(name for name in get_args(FormatName) if name not in {"turns", *CONVERSATIONS})
"""Conversations that call a tool have tests of their own: tests/reasonrag/agent/protocols/test_conversations.py."""
SPLITS: tuple[SplitName, ...] = get_args(SplitName)
EVERYTHING = ExportOptions(NAMES, validation=0)


def proguide_rows(rollout: RolloutRecord) -> list[Row]:
    return [proguide_row(each) for each in candidates(rollout, NO_FILTERS) if each.dropped is None]


def converted(name: FormatName, pairs: list[Row]) -> list[Row]:
    convert = FORMATS[name].convert
    assert convert is not None
    return list(convert(pairs))


def test_every_format_is_recorded(tmp_path: Path, golden: Callable[[str, bytes], None]) -> None:
    """The first row of each, as the trainer reads it, and the description of all of them. `rl`, whose rows are made of
    no pairs, has tests of its own."""
    export_pairs(candidates_in(tmp_path, ada()), tmp_path, NO_FILTERS, EVERYTHING)
    recorded = {
        name: rows(tmp_path / FORMATS[name].file_name("train"))[0] for name in EVERYTHING.formats if name != "rl"
    }
    described = json.loads((tmp_path / "dataset_info.json").read_bytes())
    content = json.dumps({"rows": recorded, "dataset_info": described}, indent=2, ensure_ascii=False)
    golden("formats.json", content.encode() + b"\n")


TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "int32": (int,),
    "int64": (int,),
    "double": (float, int),
    "bool": (bool,),
    "list<string>": (list,),
}


def test_a_row_has_the_columns_in_their_order_and_values_of_their_types() -> None:
    """So that Parquet and JSON hold the same; null where nothing is known."""
    for row in proguide_rows(ada()):
        assert list(row) == list(COLUMNS)
        for column, value in row.items():
            assert value is None or isinstance(value, TYPES[COLUMNS[column]]), column


def test_a_reply_of_several_pairs_stands_once() -> None:
    """Of a state of three, KTO has the best and the worst: the one in between is preferred once and rejected once. SFT
    of chosen replies has the best and the middle one, in the order of the pairs."""
    three = proguide_rows(siblings(query("best", 0.9), query("middle", 0.5), query("worst", 0.1)))
    assert len(three) == 3
    assert [(row["output"], row["kto_tag"]) for row in kto_rows(three)] == [
        ("So <query>best</query>", True),
        ("So <query>worst</query>", False),
    ]
    found = list(sft_chosen_rows(three))
    assert [row["output"] for row in found] == ["So <query>best</query>", "So <query>middle</query>"]
    copied = ("instruction", "input", "layer", "state_id", "question_id", "dataset", "split", "config_hash")
    for row in found:
        assert {name: row[name] for name in copied} == {name: three[0][name] for name in copied}
        assert row["action_type"] == "Query Generation"


# -- what LLaMA-Factory is told -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "split", "called"),
    [
        ("proguide", "train", "rag_proguide"),
        ("proguide", "validation", "rag_proguide_validation"),
        ("sft", "validation", "rag_proguide_sft_validation"),
        ("sft-chosen", "train", "rag_proguide_sft_chosen"),
    ],
)
def test_a_data_set_is_called_by_format_and_part(name: FormatName, split: SplitName, called: str) -> None:
    """RAG_ProGuide's training part has the short name, which the shipped configurations use."""
    assert dataset_name(name, split) == called


def test_no_two_files_or_names_are_the_same() -> None:
    """Every format and part has its own file, and its own entry but for those that LLaMA-Factory does not read."""
    everything = [(name, split) for name in NAMES for split in SPLITS]
    files = [FORMATS[name].file_name(split) for name, split in everything]
    assert len(set(files)) == len(files) == 2 * len(NAMES)
    info = dataset_info(everything)
    assert len(info) == 2 * (len(NAMES) - 2)
    read = [each for each in files if not each.startswith(("trl", "rl"))]
    assert [entry["file_name"] for entry in info.values()] == read


@pytest.mark.parametrize("name", [name for name in NAMES if FORMATS[name].info is not None])
def test_every_column_that_is_described_is_in_the_rows(name: FormatName) -> None:
    """With the instruction as the system turn, never glued into the user's; preference data is marked as ranking."""
    entry: dict[str, Any] = dataset_info([(name, "train")])[dataset_name(name)]
    pairs = proguide_rows(ada())
    row = next(iter(sft_rows(question_record(ada())))) if name == "sft" else converted(name, pairs)[0]
    assert set(entry["columns"].values()) <= set(row)
    assert entry.get("ranking", False) == (name not in ("kto", "sft", "sft-chosen"))
    if entry.get("formatting") != "sharegpt":
        assert row[entry["columns"]["system"]] == pairs[0]["instruction"]
        assert row[entry["columns"]["prompt"]] == pairs[0]["input"]


def test_parquet_holds_the_rows(tmp_path: Path) -> None:
    """Every column of every row with the types that are promised, nulls included; more rows than a group of them, and
    none at all."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: the hub extra brings it")
    for count in (0, 550):
        written = proguide_rows(ada()) * count
        with (tmp_path / "rows.parquet").open("wb") as file:
            write_parquet(written, file, proguide_schema())
        table = parquet.read_table(tmp_path / "rows.parquet")
        assert table.to_pylist() == written
        assert {each.name: str(each.type).replace("element: ", "") for each in table.schema} == COLUMNS
