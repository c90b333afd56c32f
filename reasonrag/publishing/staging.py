"""Builds the folder that is uploaded to the Hub: rows as Parquet, files for trainers, candidates, trees.

Decides its files, their names and their bytes, which are reproducible, so unchanged files are not uploaded again. Rows
are written by pyarrow with plain column types: `datasets` 3 (in LLaMA-Factory up to 0.9.3) cannot read what `datasets`
4 writes itself. Local paths, addresses and keys are removed.
"""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

import orjson

from preference.export.atomic_export import staging_folder
from preference.export.formats import FORMATS, PAIRS, SPLITS, TURNS_FILE, FormatName, Row, SplitName, dataset_info
from preference.export.json_stream import read_items
from preference.export.parquet import proguide_schema, schema_of, write_parquet
from preference.export.private_files import write_json
from preference.export.summary import CANDIDATES, DATASET_INFO_FILE, DROPPED, QUESTIONS, SUMMARY
from reasonrag.agent.prompting import PROMPTS, load_prompts, prompts_beside, save_prompts
from reasonrag.curation.audit.report import AUDIT, AUDIT_PAGE
from reasonrag.curation.dataset_directory import DatasetInventory
from reasonrag.curation.decontamination import CONTAMINATION
from reasonrag.curation.existing_data_set import STAGED
from reasonrag.errors import InputError
from reasonrag.files import CONFIG, ROLLOUTS, link_out_of, only_writer, writing
from reasonrag.publishing.upload import RepositoryKind
from reasonrag.redaction import mask_secrets, mask_secrets_in, secrets
from reasonrag.run_config import read_config

TREES = "trees"
_ADDRESS = re.compile(r"\w+://|^~?/")
_REMOVED = "[removed]"
_PARQUET = re.compile(r"[a-z-]+/(?:train|validation)-\d{5}-of-\d{5}\.parquet")
_OF_A_RUN = ("config_hash", "decides_answers", "versions")
"""What is published of a run's configuration."""
_ROWS = {form.file_name(split) for form in FORMATS.values() for split in SPLITS}


def is_data_set_file(path: str) -> bool:
    """Whether `publish` puts a file there, or did with other formats."""
    return path in _ROWS or _PARQUET.fullmatch(path) is not None or path.startswith(f"{TREES}/")


DATA_SET = RepositoryKind("dataset", "data set", is_data_set_file)


@dataclass(frozen=True)
class HubConfig:
    """A configuration of the data set on the Hub: its format, its name, the folder of its Parquet shards, and its files
    as JSON by split."""

    form: FormatName
    name: str
    folder: str
    files: dict[SplitName, str]


def hub_configs(inventory: DatasetInventory) -> list[HubConfig]:
    """`default` with RAG_ProGuide's rows, and one per other format. All are Parquet, because `datasets` reads all
    configurations of a repository as one file type. Splits without rows are left out, as no reader accepts them."""
    found = []
    for name, form in FORMATS.items():
        files = {split: form.file_name(split) for split in SPLITS if inventory.rows(form.file_name(split))}
        if files:
            found.append(HubConfig(name, *(("default", "data") if name in PAIRS else (name, name)), files))
    return found


def hub_dataset_info(inventory: DatasetInventory, repo: str) -> dict[str, Any]:
    """LLaMA-Factory's description for `dataset_dir: REMOTE:org/name`, with the names it has locally.

    It reads `hf_hub_url` by `load_dataset(hf_hub_url, subset, split=split)`, and would look for `file_name` on disk.
    """
    entries, turns = {}, inventory.rows(TURNS_FILE) > 0
    for config in hub_configs(inventory):
        subset = {} if config.form in PAIRS else {"subset": config.name}
        for split in config.files:
            for entry, described in dataset_info([(config.form, split)], turns=turns).items():
                del described["file_name"]
                entries[entry] = {"hf_hub_url": repo, **subset, "split": split} | described
    return entries


def runs_with_trees(runs: Sequence[Path], inventory: DatasetInventory) -> dict[str, Path]:
    """The runs whose trees are published, by the names of their folders. Raises InputError for a run that the data set
    was not made from, for two of one name, and for links out of them or of the data set."""
    known = {run.origin.config_hash for run in inventory.runs}
    trees: dict[str, Path] = {}
    refuse_links_out(inventory.directory, (each for each in inventory.directory.iterdir() if each.is_file()))
    for run in runs:
        if not (run / ROLLOUTS).is_file():
            raise InputError(f"there is no {run / ROLLOUTS}; --with-trees takes run directories of reasonrag generate")
        refuse_links_out(run, (run / CONFIG, run / ROLLOUTS))
        config = read_config(run / CONFIG)
        if config.config_hash not in known:
            raise InputError(
                f"{run} (configuration {config.config_hash}) is not one of the runs that {inventory.directory} was "
                f"made from; leave it out of --with-trees, or move it away if {SUMMARY} names it"
            )
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", run.resolve().name).strip("-.") or "run"
        if name in trees:
            raise InputError(f"--with-trees: {trees[name]} and {run} would both be {TREES}/{name}; rename one of them")
        trees[name] = run
    return trees


@contextmanager
def staging_directory(directory: Path) -> Iterator[Path]:
    """A folder that becomes `DIR/publish` if the block succeeds. Raises InputError if it cannot be written, or while
    another process writes `directory`."""
    place = directory / STAGED
    with writing(f"below {directory}"), only_writer(directory, flag="folder"), staging_folder(directory) as scratch:
        new = scratch / STAGED
        new.mkdir(0o700 | (directory.stat().st_mode & 0o070))  # not more public than its source
        yield new
        if place.exists():
            place.rename(scratch / "old")
        new.rename(place)


def refuse_links_out(folder: Path, files: Iterable[Path]) -> None:
    """Raises InputError for a symbolic link out of its folder, whose target would be published."""
    if found := link_out_of(folder, files):
        path, target = found
        raise InputError(
            f"{path} is a link to {target}, outside of {folder}, and would be published. Put a copy in its place if it "
            "belongs there, else remove the link"
        )


def stage_files(inventory: DatasetInventory, folder: Path, *, repo: str, trees: Mapping[str, Path]) -> dict[str, str]:
    """Stage everything but the card. Returns what each file holds, by its path on the Hub."""
    source, staged = inventory.directory, dict[str, str]()

    def add(path: str, about: str) -> Path:
        staged[path] = about
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        return folder / path

    for each in hub_configs(inventory):
        every = chain.from_iterable(_rows_of(source / file) for file in each.files.values())
        schema = proguide_schema() if each.form == "proguide" else schema_of(every)
        for split, file in each.files.items():
            place = add(f"{each.folder}/{split}-00000-of-00001.parquet", f"{split} rows, as {each.form}")
            with place.open("wb") as rows:
                write_parquet(_rows_of(source / file), rows, schema)
            shutil.copyfile(source / file, add(file, f"the same {split} rows as JSON"))
    write_json(add(DATASET_INFO_FILE, "for LLaMA-Factory"), hub_dataset_info(inventory, repo), shared=True)
    private = {run.origin.retriever for run in inventory.runs if _is_address(run.origin.retriever)}
    removed = {orjson.dumps(each): orjson.dumps(_REMOVED) for each in private}
    _pack(source / CANDIDATES, add(f"{CANDIDATES}.gz", "every state with its steps and all candidates"), removed)
    _pack(source / QUESTIONS, add(f"{QUESTIONS}.gz", "every question with its cost and best path"), removed)
    _pack(source / DROPPED, add(f"{DROPPED}.gz", "why each other candidate was dropped"))
    if (source / CONTAMINATION).is_file():
        _pack(source / CONTAMINATION, add(f"{CONTAMINATION}.gz", "questions found in evaluation sets"))
    told = mask_secrets_in(public_summary(inventory), secrets())
    write_json(add(SUMMARY, "the numbers of this card"), told, shared=True)
    for file, about in ((AUDIT, "the audit"), (AUDIT_PAGE, "the audit as a page")):
        if (source / file).is_file():
            text = (source / file).read_text("utf-8").replace(str(source.resolve()), ".")
            add(file, about).write_text(mask_secrets(text, secrets()), "utf-8")
    if prompts := prompts_beside(source):
        save_prompts(load_prompts(prompts), folder / PROMPTS)
        staged |= {f"{PROMPTS}/{each.name}": "prompts of the agent" for each in sorted((folder / PROMPTS).iterdir())}
    for tree, run in trees.items():
        public = {each: value for each, value in read_config(run / CONFIG).model_dump().items() if each in _OF_A_RUN}
        config = mask_secrets_in(without_addresses(public), secrets())
        write_json(add(f"{TREES}/{tree}/{CONFIG}", "settings of a run"), config, shared=True)
        _pack(run / ROLLOUTS, add(f"{TREES}/{tree}/{ROLLOUTS}.gz", "its trees"))
    return staged


def public_summary(inventory: DatasetInventory) -> dict[str, Any]:
    """The summary without paths and addresses."""
    told, sources = inventory.summary.model_dump(), [Path(each).name for each in inventory.summary.sources]
    return {name: without_addresses(each) for name, each in told.items()} | {"out": "", "sources": sources}


def _rows_of(path: Path) -> Iterator[Row]:
    return (item.value for item in read_items(path))


def _pack(source: Path, target: Path, removed: dict[bytes, bytes] | None = None) -> None:
    """Compress with gzip, without name and time, so that equal lines give equal bytes."""
    with source.open("rb") as lines, target.open("wb") as file:
        packed = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0)
        with cast("BinaryIO", packed) as packed_lines:
            for line in lines:
                shown = line
                for before, after in (removed or {}).items():
                    shown = shown.replace(before, after)
                packed_lines.write(shown)


def without_addresses(value: Any) -> Any:
    """A value without fields named `path` and without texts that are addresses or absolute paths."""
    if isinstance(value, dict):
        return {key: without_addresses(each) for key, each in value.items() if key != "path"}
    if isinstance(value, list):
        return [without_addresses(each) for each in value]
    return _REMOVED if isinstance(value, str) and _is_address(value) else value


def _is_address(value: str | None) -> bool:
    """Whether a name is a URL or an absolute path."""
    return value is not None and _ADDRESS.search(value) is not None
