"""Named data sets and where their questions are: a directory, FlashRAG's collection on the Hub, or atlas.

Decides that PopQA, which has a test file only, gets the partition of the paper. Hub files are fetched at a resolved
commit, which the run records, into the Hub client's cache, and then read like local question files. The Hub needs the
`hub` extra.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reasonrag.data.names import HUB_SPLITS, canonical_dataset
from reasonrag.data.partition import POPQA, TRAIN, WHOLE, is_whole, part_of
from reasonrag.data.questions import Check, QuestionFile, Sample, open_questions, require_golden_answers
from reasonrag.errors import InputError, choices, needs_extra

REPOSITORY = "RUC-NLPIR/FlashRAG_datasets"
_USUAL_SPLITS = ("train", "dev", "test", "validation")


def fetch_questions(
    dataset: str, split: str, *, flag: str = "--data-dir", revision: str = "main"
) -> tuple[Path, str | None]:
    """A question file of the collection, fetched from the Hub, and its commit. flag: what takes a folder instead.
    Raises InputError if the Hub cannot be used."""
    otherwise = f"give {flag} DIR with <dataset>/<split>.jsonl"
    with needs_extra("hub", f"fetching {dataset} from the Hub", f". Or {otherwise}"):
        from huggingface_hub import HfApi, hf_hub_download
    try:
        commit = HfApi().dataset_info(REPOSITORY, revision=revision).sha
        file = hf_hub_download(REPOSITORY, f"{dataset}/{split}.jsonl", repo_type="dataset", revision=commit)
    except Exception as error:
        said = " ".join(str(error).split()).rstrip(".")  # some have several lines
        raise InputError(
            f"cannot fetch {dataset}/{split}.jsonl of {REPOSITORY} from the Hub: {said}. "
            f"Check the network, or {otherwise}"
        ) from error
    return Path(file), commit


def download_questions(
    dataset: str, split: str, *, home: Path, check: Check = require_golden_answers, sample: Sample | None = None
) -> QuestionFile:
    """The questions of one split of the collection; see `find_questions`."""
    dataset = canonical_dataset(dataset)
    if dataset not in HUB_SPLITS:
        raise InputError(f"there is no data set {dataset!r}; {choices(dataset, HUB_SPLITS)}")
    if split not in HUB_SPLITS[dataset]:
        raise InputError(f"{dataset} has no split {split!r}; {choices(split, HUB_SPLITS[dataset])}")
    path, commit = fetch_questions(dataset, "test" if dataset == POPQA else split)
    return _open(path, dataset, split, home, revision=commit, check=check, sample=sample)


def find_questions(
    dataset: str,
    split: str,
    data_dir: Path | None,
    *,
    home: Path,
    check: Check = require_golden_answers,
    sample: Sample | None = None,
) -> QuestionFile:
    """The questions of a named data set, from `data_dir` or else from the Hub.

    home: where the parts of a partition are kept. Raises InputError for unknown names, listing the known ones.
    """
    if data_dir is None:
        return download_questions(dataset, split, home=home, check=check, sample=sample)
    folder = folder_of(dataset, data_dir)
    name = dataset if folder.name == dataset else canonical_dataset(dataset)
    path, whole = folder / f"{split}.jsonl", folder / "test.jsonl"
    if (canonical_dataset(dataset), split) == (POPQA, "train") and not path.is_file():
        path = whole
    if not path.is_file():
        splits = [each.stem for each in folder.glob("*.jsonl") if each.stem != "corpus"]
        if not splits:
            raise InputError(f"{folder} has no questions; put them at {folder / split}.jsonl")
        raise InputError(f"{dataset} in {data_dir} has no split {split!r}; {choices(split, splits)}")
    return _open(path, name, split, home, check=check, sample=sample)


def _open(
    path: Path,
    dataset: str,
    split: str,
    home: Path,
    *,
    revision: str | None = None,
    check: Check,
    sample: Sample | None,
) -> QuestionFile:
    """The questions of a split: a file, or its part of a file that is partitioned."""
    partition = None
    if is_whole(path):
        path, partition = part_of(path, split, home)
    elif path.stem != split:
        raise InputError(
            f"{dataset} has no split {split!r}: {TRAIN:,} of the {WHOLE:,} questions of PopQA's test file are for "
            f"training, and {path} has another number of questions. Choose --split test, or give your own with "
            "--questions FILE"
        )
    found = open_questions(path, dataset=dataset, split=split, check=check, sample=sample)
    return replace(found, revision=revision, partition=partition)


def folder_of(dataset: str, data_dir: Path) -> Path:
    """The folder of a data set: of exactly that name, else of another spelling of it. Raises InputError if there is
    none."""
    present = data_sets(data_dir)
    if (data_dir / dataset).is_dir():
        return data_dir / dataset
    known = [each for each in present if canonical_dataset(each) == canonical_dataset(dataset)]
    if not known:
        raise InputError(f"{data_dir} has no data set {dataset!r}; {choices(dataset, present)}")
    return data_dir / min(known, key=lambda each: (each != canonical_dataset(dataset), each))


def data_sets(data_dir: Path) -> list[str]:
    """Names of the data sets in a directory: folders with a corpus, or a split of a usual name. Raises InputError if
    there are none."""
    if not data_dir.is_dir():
        raise InputError(f"there is no data directory {data_dir}")
    files = {each for name in ("corpus", *_USUAL_SPLITS) for each in data_dir.glob(f"[!.]*/{name}.jsonl")}
    if not files:
        raise InputError(
            f"{data_dir} has no data sets; put them at <dataset>/<split>.jsonl, with corpus.jsonl beside them unless "
            "the questions came with passages"
        )
    return sorted({each.parent.name for each in files})
