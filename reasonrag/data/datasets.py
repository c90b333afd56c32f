"""The questions and the corpus that settings name: of a directory, FlashRAG's collection on the Hub, atlas, or a file.

Decides that PopQA, which has a test file only, gets the partition of the paper. Hub files are fetched at a resolved
commit, which the run records, into the Hub client's cache, and then read like local question files. The Hub needs the
`hub` extra.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

import orjson

from reasonrag.data.atlas import SPLITS, write_world
from reasonrag.data.compressed import Say, fetched, kept
from reasonrag.data.dataset_fields import passages_with
from reasonrag.data.popqa_partition import POPQA, TRAIN, WHOLE, is_whole, part_of
from reasonrag.data.questions import Check, QuestionFile, Sample, open_questions, require_golden_answers
from reasonrag.data.settings import ATLAS, DATASETS, HUB_SPLITS, QuestionSettings, canonical_dataset
from reasonrag.errors import InputError, choices
from reasonrag.files import numbered_lines, reading, writing
from reasonrag.rendering import counted

REPOSITORY = "RUC-NLPIR/FlashRAG_datasets"


def fetch_questions(dataset: str, split: str, *, flag: str = "--data-dir") -> tuple[Path, str | None]:
    """A question file of the collection, fetched from the Hub, and its commit. flag: what takes a folder instead.
    Raises InputError if the Hub cannot be used."""
    otherwise = f"give {flag} DIR with <dataset>/<split>.jsonl"
    return fetched(REPOSITORY, f"{dataset}/{split}.jsonl", otherwise=otherwise)


def find_questions(
    dataset: str,
    split: str,
    data_dir: Path | None,
    *,
    home: Path,
    check: Check = require_golden_answers,
    sample: Sample | None = None,
    say: Say = lambda _: None,
) -> QuestionFile:
    """The questions of a named data set, from `data_dir` or else from the Hub.

    home: where the parts of a partition are kept. say: as in `open_questions`. Raises InputError for unknown names,
        listing the known ones.
    """
    name, commit, partition = canonical_dataset(dataset), None, None
    if data_dir is None:
        if name not in HUB_SPLITS:
            raise InputError(f"there is no data set {name!r}; {choices(name, HUB_SPLITS)}")
        if split not in HUB_SPLITS[name]:
            raise InputError(f"{name} has no split {split!r}; {choices(split, HUB_SPLITS[name])}")
        path, commit = fetch_questions(name, "test" if name == POPQA else split)
    else:
        folder = folder_of(dataset, data_dir)
        path = folder / f"{split}.jsonl"
        if (name, split) == (POPQA, "train") and not path.is_file():
            path = folder / "test.jsonl"
        if not path.is_file():
            splits = [each.stem for each in folder.glob("*.jsonl") if each.stem != "corpus"]
            if not splits:
                raise InputError(f"{folder} has no questions; put them at {folder / split}.jsonl")
            raise InputError(f"{dataset} in {data_dir} has no split {split!r}; {choices(split, splits)}")
        name = dataset if folder.name == dataset else name
    if is_whole(path):
        path, partition = part_of(path, split, home)
    elif path.stem != split:
        raise InputError(
            f"{name} has no split {split!r}: {TRAIN:,} of the {WHOLE:,} questions of PopQA's test file are for "
            f"training, and {path} has another number of questions. Choose --split test, or give your own with "
            "--questions FILE"
        )
    found = open_questions(path, dataset=name, split=split, check=check, sample=sample, say=say)
    return replace(found, revision=commit, partition=partition)


def folder_of(dataset: str, data_dir: Path) -> Path:
    """The folder of a data set: of exactly that name, else of another spelling. Raises InputError if there is none."""
    present = data_sets(data_dir)
    if (data_dir / dataset).is_dir():
        return data_dir / dataset
    known = [each for each in present if canonical_dataset(each) == canonical_dataset(dataset)]
    if not known:
        raise InputError(f"{data_dir} has no data set {dataset!r}; {choices(dataset, present)}")
    return data_dir / min(known, key=lambda each: (each != canonical_dataset(dataset), each))


def data_sets(data_dir: Path) -> list[str]:
    """Data sets of a directory: folders with a corpus or a split of a usual name. Raises InputError without any."""
    if not data_dir.is_dir():
        raise InputError(f"there is no data directory {data_dir}")
    usual = ("corpus", "train", "dev", "test", "validation")
    files = {each for name in usual for each in data_dir.glob(f"[!.]*/{name}.jsonl")}
    if not files:
        raise InputError(
            f"{data_dir} has no data sets; put them at <dataset>/<split>.jsonl, with corpus.jsonl beside them unless "
            "the questions came with passages"
        )
    return sorted({each.parent.name for each in files})


# -- what settings name --------------------------------------------------------------------------------------------


def check_names(settings: QuestionSettings) -> None:
    """Raises InputError if the settings name no questions, or none that are known, before anything is fetched."""
    if settings.data_dir and not (settings.dataset or settings.questions):
        raise InputError(f"--data-dir {settings.data_dir} needs --dataset; {choices('', data_sets(settings.data_dir))}")
    if settings.questions and settings.dataset:
        raise InputError("give --questions or --dataset, not both; reasonrag.toml and the environment count, too")
    for given in settings.dataset:
        name = canonical_dataset(given)
        if settings.data_dir and name != ATLAS:
            folder_of(given, settings.data_dir)
        elif name not in DATASETS:
            raise InputError(f"there is no data set {name!r}; {choices(name, DATASETS)}")


def find_data(
    settings: QuestionSettings, check: Check, home: Path, *, seed: int, needs_corpus: bool = True, say: Say
) -> tuple[QuestionFile, Path | None]:
    """The questions, and the corpus that belongs to them; None where none is needed and none is known.

    check: what every question must pass. home: the folder of what is made of them. seed: of a sample. needs_corpus:
        whether their passages are searched, and not an index or a server that has its own. say: told of a corpus that
        is made of the passages that came with the questions, of columns that are not read, and of a data set that is
        smaller than its sample.
    """
    check_names(settings)
    sample = Sample(settings.sample, seed) if settings.sample else None
    file = _questions(settings, check, home, sample=sample, say=say)
    if settings.sample and file.total < settings.sample:
        has = counted(file.total, "question")
        say(f"{file.name} has {has}, fewer than --sample {settings.sample:,}: all are used")
    corpus = settings.corpus or _corpus_beside(settings, home)
    if corpus is None and needs_corpus:
        file = replace(file, has_gold_ids=False)
        corpus = corpus_of_contexts(file, home, say=say)
    return file, corpus


def _questions(
    settings: QuestionSettings, check: Check, home: Path, *, sample: Sample | None, say: Say
) -> QuestionFile:
    split = settings.split
    if path := settings.questions:
        return open_questions(path, dataset=path.stem, split=split, check=check, sample=sample, home=home, say=say)
    if settings.of_atlas:
        if split not in SPLITS:
            raise InputError(f"atlas has no split {split!r}; {choices(split, SPLITS)}")
        return open_questions(_world(home) / f"{split}.jsonl", dataset=ATLAS, split=split, check=check, sample=sample)
    return find_questions(settings.dataset[0], split, settings.data_dir, home=home, check=check, sample=sample, say=say)


def _corpus_beside(settings: QuestionSettings, home: Path) -> Path | None:
    """The corpus that a data set has, apart from the passages that came with its questions."""
    if settings.questions:
        return None
    if settings.of_atlas:
        return _world(home) / "corpus.jsonl"
    beside = folder_of(settings.dataset[0], settings.data_dir) / "corpus.jsonl" if settings.data_dir else None
    return beside if beside and beside.is_file() else None


def find_corpus(settings: QuestionSettings, home: Path, *, needed: bool) -> Path | None:
    """The corpus for a question that is asked, by default atlas' (None: that of --index, or of the server). needed: see
    `find_data`. Raises InputError like it."""
    if settings.corpus or not needed:
        return settings.corpus
    corpus = _corpus_beside(settings.model_copy(update={"questions": None}), home)
    if corpus is None:
        [dataset] = settings.dataset
        where = f"{dataset} in {settings.data_dir}" if settings.data_dir else f"--dataset {dataset} without --data-dir"
        raise InputError(needs_passages(where))
    return corpus


def _world(home: Path) -> Path:
    with writing(f"atlas below {home}"):
        return write_world(home)


def corpus_of_contexts(file: QuestionFile, home: Path, *, say: Say) -> Path:
    """The corpus of all passages that came with the questions of a file: those that hold the answers, and distractors.

    Written once below `home`, of all questions of the file, so that `--limit` and `--sample` change nothing. Raises
    InputError where there are none, naming the other ways.
    """
    rows = file.rows or file.path
    if next(_all_passages(rows), None) is None:
        raise InputError(needs_passages(file.name, ", and its questions came without any"))
    said = f"the passages that came with the questions of {file.name}"

    def write(target: IO[bytes]) -> None:
        seen: set[bytes] = set()
        for title, text in _all_passages(rows):
            contents = f"{title}\n{text}"
            digest = hashlib.sha256(contents.encode()).digest()[:16]
            if digest not in seen:
                seen.add(digest)
                passage = {"id": f"{file.dataset}_{len(seen) - 1}", "contents": contents}
                target.write(orjson.dumps(passage, option=orjson.OPT_APPEND_NEWLINE))

    name = f"{file.dataset}-{file.split}-passages"
    corpus = kept(home, name, {"source": file.sha256}, write, say=say, doing=f"writing {said}")
    say(f"distractor setting: searching {said} (all of Wikipedia: --corpus wiki-18)")
    return corpus


def needs_passages(what: str, why: str = "") -> str:
    """The message for questions without passages to search, with all ways to give some."""
    return (
        f"{what} needs passages to search{why}: give --corpus wiki-18 (Wikipedia 2018 from the Hub: 21 million "
        'passages, 14 GB unpacked), --corpus FILE (JSONL, one {"id", "contents": "title\\ntext"} per line), --index '
        "DIR of a built index, or --retriever http://host:port"
    )


def _all_passages(path: Path) -> Iterator[tuple[str, str]]:
    with reading(f"the questions {path}"), path.open("rb") as lines:
        for _, line in numbered_lines(path, lines):
            yield from passages_with(orjson.loads(line))
