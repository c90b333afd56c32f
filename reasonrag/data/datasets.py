"""Named data sets and where their questions are: a directory, FlashRAG's collection on the Hub, or atlas.

Hub files are fetched at a resolved commit, which the run records, into the Hub client's cache, and then read like local
question files. The Hub needs the `hub` extra.
"""

from __future__ import annotations

from pathlib import Path

from reasonrag.data.questions import Check, QuestionSource, open_questions, require_golden_answers
from reasonrag.errors import InputError, choices, needs_extra

REPOSITORY = "RUC-NLPIR/FlashRAG_datasets"
HUB_SPLITS: dict[str, tuple[str, ...]] = {
    "2wikimultihopqa": ("train", "dev"),
    "bamboogle": ("test",),
    "hotpotqa": ("train", "dev"),
    "musique": ("train", "dev"),
    "nq": ("train", "dev", "test"),
    "popqa": ("test",),
    "triviaqa": ("train", "dev", "test"),
}
"""Data sets and splits of FlashRAG's collection that reasonrag names."""

ATLAS = "atlas"
DATASETS = (ATLAS, *sorted(HUB_SPLITS))


def download_questions(
    dataset: str, split: str, *, revision: str = "main", check: Check = require_golden_answers
) -> QuestionSource:
    """The questions of one split. Raises InputError for unknown names and if the Hub cannot be used."""
    if dataset not in HUB_SPLITS:
        raise InputError(f"there is no data set {dataset!r}; {choices(dataset, HUB_SPLITS)}")
    if split not in HUB_SPLITS[dataset]:
        raise InputError(f"{dataset} has no split {split!r}; {choices(split, HUB_SPLITS[dataset])}")
    otherwise = ". Or give --data-dir DIR with <dataset>/<split>.jsonl"
    with needs_extra("hub", f"{dataset} would be fetched from the Hub, which", otherwise):
        from huggingface_hub import HfApi, hf_hub_download
    try:
        commit = HfApi().dataset_info(REPOSITORY, revision=revision).sha
        file = hf_hub_download(REPOSITORY, f"{dataset}/{split}.jsonl", repo_type="dataset", revision=commit)
    except Exception as error:
        raise InputError(
            f"cannot fetch {dataset}/{split}.jsonl of {REPOSITORY} from the Hub: {error}. "
            "Check the network, or give --data-dir DIR with <dataset>/<split>.jsonl"
        ) from error
    return open_questions(Path(file), dataset=dataset, split=split, revision=commit, check=check)


def find_questions(
    dataset: str, split: str, data_dir: Path | None, *, check: Check = require_golden_answers
) -> QuestionSource:
    """The questions of a named data set, from `data_dir` or else from the Hub.

    Raises InputError for unknown names, listing the known ones.
    """
    if data_dir is None:
        return download_questions(dataset, split, check=check)
    folder = data_dir / dataset
    if not folder.is_dir():
        raise InputError(f"{data_dir} has no data set {dataset!r}; {choices(dataset, data_sets(data_dir))}")
    path = folder / f"{split}.jsonl"
    if not path.is_file():
        splits = [each.stem for each in folder.glob("*.jsonl") if each.stem != "corpus"]
        if not splits:
            raise InputError(f"{folder} has no questions; put them at {path}")
        raise InputError(f"{dataset} in {data_dir} has no split {split!r}; {choices(split, splits)}")
    return open_questions(path, dataset=dataset, split=split, check=check)


def data_sets(data_dir: Path) -> list[str]:
    """Names of the data sets in a directory. Raises InputError if there are none."""
    if not data_dir.is_dir():
        raise InputError(f"there is no data directory {data_dir}")
    present = sorted(each.name for each in data_dir.iterdir() if (each / "corpus.jsonl").exists())
    if not present:
        raise InputError(f"{data_dir} has no data sets; put them at <dataset>/<split>.jsonl and corpus.jsonl")
    return present
