"""What a data set offers a training: the entries of dataset_info.json by stage, their files and their questions.

Decides which entry a stage trains on; `preflight_checks` decides what rules a training out. Data sets come from
`reasonrag pairs` or `reasonrag import`; of others only what their dataset_info.json says is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from preference.candidate_records import question_key
from preference.export.formats import CONVERSATIONS, FORMATS, PAIRS, SPLITS, FormatName, dataset_info, dataset_name
from preference.export.summary import DATASET_INFO_FILE, QUESTIONS, SUMMARY, PairSummary
from reasonrag.curation.audit.audit import find_row_files
from reasonrag.curation.dataset_directory import read_summary
from reasonrag.data.item_files import explained_records
from reasonrag.errors import InputError, choices
from reasonrag.files import ROLLOUTS, check_finished, file_digest
from reasonrag.model_folder import read_json
from reasonrag.training.llamafactory.foreign_settings import foreign_keys
from reasonrag.training.llamafactory.inspection import RowsToCount
from reasonrag.training.provenance import question_keys

FORMAT_OF_STAGE: Final[dict[str, FormatName]] = {"dpo": "proguide", "kto": "kto", "sft": "sft", "rm": "reward"}
"""The format of `pairs` for each stage."""
RANKED_STAGES = ("dpo", "rm")
"""Stages that train on two replies to one prompt."""


@dataclass(frozen=True)
class DatasetEntry:
    """An entry of dataset_info.json. file: its rows; None if they are not in the folder."""

    name: str
    description: Mapping[str, Any]
    file: Path | None

    @property
    def ranked(self) -> bool:
        return self.description.get("ranking") is True

    @property
    def columns(self) -> Mapping[str, Any]:
        """LLaMA-Factory's name of each column that is read, and its own."""
        columns = self.description.get("columns")
        return columns if isinstance(columns, Mapping) else {}

    @property
    def of_tools(self) -> bool:
        """Whether its rows are conversations with a tool, whichever agent made the data."""
        return "tools" in self.columns

    @property
    def as_pairs_writes_it(self) -> bool:
        """Whether the description is the one `pairs` writes for this name and this file; True if it writes neither."""
        file, turns = self.file.name if self.file else None, bool(self.countable and self.countable.history)
        kinds = [(name, split) for name in FORMATS if name != PAIRS[not turns] for split in SPLITS]
        ours = dataset_info(kinds, turns=turns).items()
        known = [each for name, each in ours if name == self.name or each["file_name"] == file]
        return not self.description or all(each == self.description for each in known)

    @property
    def countable(self) -> RowsToCount | None:
        """Its rows, if they are columns of text whose tokens can be counted."""
        columns = self.columns
        if self.file is None or self.file.suffix != ".json":
            return None
        replies = [columns[name] for name in ("chosen", "rejected", "response") if name in columns]
        if self.description.get("formatting", "alpaca") != "alpaca" or "query" in columns or not replies:
            return None
        if not {"system", "prompt"} <= columns.keys():
            return None
        return RowsToCount(
            files=[str(self.file.resolve())],
            replies=replies,
            **{name: columns[name] for name in ("system", "prompt", "history") if name in columns},
        )


@dataclass
class TrainingData:
    """A data set directory. summary: None without summary.json. sha256: of the row files as they are now."""

    directory: Path
    entries: dict[str, DatasetEntry]
    summary: PairSummary | None
    sha256: dict[str, str] = field(default_factory=dict)

    def hashes(self, entries: Iterable[DatasetEntry]) -> dict[str, str]:
        """The SHA-256 of the row files of entries, by their places in the directory."""
        found = {}
        for file in filter(None, (entry.file for entry in entries)):
            name = str(file.relative_to(self.directory) if file.is_relative_to(self.directory) else file)
            found[name] = self.sha256[name] = self.sha256.get(name) or file_digest(file)
        return dict(sorted(found.items()))

    def objection(self, entry: DatasetEntry) -> tuple[str, str] | None:
        """Why the rows are not those that were audited, with the objection's name: by their content where the data set
        has a summary, else by whether an audit of the folder reads the file."""
        if self.summary is None:
            audited = [path.resolve() for path, _ in find_row_files(self.directory)]
            if entry.file and entry.file.resolve() not in audited:
                return "unaudited_rows", f"no audit of {self.directory} reads {entry.file}"
            return None
        for name, digest in self.hashes([entry]).items():
            if name not in self.summary.sha256:
                return "unaudited_rows", f"{entry.file} is none of the files that were written and audited"
            if digest != self.summary.sha256[name]:
                return "changed_rows", f"{entry.file} has changed since it was written and audited"
        return None


def read_training_data(directory: Path | None) -> TrainingData:
    """Raises InputError for a folder that LLaMA-Factory cannot read either, and for None: --data was not given."""
    if directory is None:
        raise InputError("--data is needed: a folder that reasonrag pairs wrote")
    if not directory.is_dir():
        raise InputError(f"there is no {directory}; --data takes a folder that reasonrag pairs wrote")
    if (directory / ROLLOUTS).is_file() and not (directory / DATASET_INFO_FILE).is_file():
        raise InputError(
            f"{directory} is a run, not a data set. First: reasonrag pairs {directory} --out "
            f"data/{directory.resolve().name}"
        )
    check_finished(directory)
    path = directory / DATASET_INFO_FILE
    if not path.exists():
        raise InputError(
            f"{directory} has no {DATASET_INFO_FILE}, so LLaMA-Factory cannot find its rows{_again(directory)}"
        )
    described = read_json(path)
    if not all(isinstance(each, dict) for each in described.values()):
        raise InputError(f"{path} must map names to descriptions{_again(directory)}")
    if several := [name for name in described if "," in name or name != name.strip()]:
        raise InputError(f"{path}: LLaMA-Factory would read {several[0]!r} as other names; rename it")
    entries = {name: DatasetEntry(name, each, _file_of(directory, each)) for name, each in described.items()}
    return TrainingData(directory, entries, read_summary(directory) if (directory / SUMMARY).exists() else None)


def _file_of(directory: Path, description: Mapping[str, Any]) -> Path | None:
    name = description.get("file_name")
    return directory / name if isinstance(name, str) and not any(foreign_keys(description)) else None


def _again(directory: Path) -> str:
    """What to do for a data set of ours that is not whole."""
    return f". Make it again: reasonrag pairs {directory} --out {directory}"


def entry_for(data: TrainingData, stage: str, wanted: str | None) -> DatasetEntry:
    """The entry a stage trains on: the one wanted by name, else the one `pairs` writes for the stage.

    Raises InputError if it is missing or does not suit the stage.
    """
    form = FORMAT_OF_STAGE.get(stage)
    name = wanted or (dataset_name(form) if form else None)
    if name is None:
        raise InputError(f"stage {stage}: name the data with --set dataset=NAME; {', '.join(data.entries)} are there")
    if name not in data.entries and stage == "rm" and not wanted and dataset_name("proguide") in data.entries:
        name = dataset_name("proguide")  # the same rows under other column names
    entry = data.entries.get(name)
    there = {dataset_name(each): each for each in FORMATS if each not in PAIRS}
    written = data.summary.options.get("formats", ()) if data.summary else ()
    flags = [f" --format {each}" for entry, each in there.items() if entry == name or each in written]
    source = "RUN" if there.get(name) in CONVERSATIONS else data.directory  # of a data set more are left out
    write = f"reasonrag pairs {source}{''.join(flags)} --out {data.directory}"  # or it removes those there
    if entry is None:
        if name not in {dataset_name(each) for each, known in FORMATS.items() if known.info}:
            raise InputError(f"{data.directory} has no {name}: {choices(name, data.entries)}")
        raise InputError(f"{data.directory} has no {name}, which stage {stage} trains on. Write it: {write}")
    _refuse_without_rows(data, entry)
    if entry.file is not None and not entry.file.is_file():
        file = data.directory / DATASET_INFO_FILE
        raise InputError(f"{file} names {entry.file}, which is not there. Make it again: {write}")
    if stage in RANKED_STAGES and not entry.ranked:
        what = f"{name} has no `ranking: true`, so LLaMA-Factory would refuse it in stage {stage}"
        raise InputError(f"{data.directory / DATASET_INFO_FILE}: {what}{_again(data.directory)}")
    if stage not in RANKED_STAGES and entry.ranked:
        raise InputError(f"{name} holds pairs (`ranking: true`), which stage {stage} cannot read")
    return entry


def validation_entry(data: TrainingData, entry: DatasetEntry) -> DatasetEntry | None:
    """The held-out rows of an entry; None if the data set has none. Raises InputError if it does not say where."""
    found = data.entries.get(f"{entry.name}_validation")
    if found:
        _refuse_without_rows(data, found)
    return found if found and (found.file is None or found.file.is_file()) else None


def _refuse_without_rows(data: TrainingData, entry: DatasetEntry) -> None:
    """Raises InputError for a description by which LLaMA-Factory finds no rows, so that no audit can be of them."""
    if entry.file is None and not any(foreign_keys(entry.description)):
        raise InputError(
            f"{data.directory / DATASET_INFO_FILE}: {entry.name} has no `file_name` that is a text, so LLaMA-Factory "
            f"cannot find its rows{_again(data.directory)}"
        )


def read_questions(data: TrainingData, entry: DatasetEntry) -> tuple[list[str], dict[str, int]]:
    """The `question_key` of each question, and counts by dataset/split: from questions.jsonl, else from the rows.
    Raises InputError for a damaged file."""
    with explained_records(data.directory):
        keys, splits = question_keys(data.directory)
        if not (data.directory / QUESTIONS).is_file() and entry.file is not None and entry.file.suffix == ".json":
            rows = [row for row in rows_in(entry.file) if isinstance(row.get("question"), str)]
            texts = {(row["question"], f"{row.get('dataset')}/{row.get('split')}") for row in rows}
            keys, splits = [question_key(text) for text, _ in texts], Counter(split for _, split in texts)
    return sorted(set(keys)), dict(sorted(splits.items()))


def count_rows(entry: DatasetEntry) -> int | None:
    """The number of rows; None if they cannot be counted here. Raises InputError for a file that is not a list."""
    if entry.file is None or entry.file.suffix != ".json":
        return None
    return len(rows_in(entry.file))


def rows_in(file: Path) -> list[dict[str, Any]]:
    """Raises InputError for a file that is no list of JSON objects."""
    try:
        rows = orjson.loads(file.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{file} is not a list of rows; make it again: reasonrag pairs")
    return rows
