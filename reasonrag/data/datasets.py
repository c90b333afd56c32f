"""FlashRAG's collection of question sets on the Hugging Face Hub.

Files are fetched at a resolved commit, which is recorded with the run, into the Hub client's own cache; after that they
are read like any local question file. Needs the `hub` extra.
"""

from __future__ import annotations

from pathlib import Path

from reasonrag.data.questions import HUB_SPLITS, Check, QuestionSource, has_golden_answers, open_questions
from reasonrag.errors import InputError, choices

REPOSITORY = "RUC-NLPIR/FlashRAG_datasets"


def download_questions(
    dataset: str, split: str, *, revision: str = "main", check: Check = has_golden_answers
) -> QuestionSource:
    """The questions of one split. Raises InputError for unknown names and where the Hub cannot be used."""
    if dataset not in HUB_SPLITS:
        raise InputError(f"there is no data set {dataset!r}; {choices(dataset, HUB_SPLITS)}")
    if split not in HUB_SPLITS[dataset]:
        raise InputError(f"{dataset} has no split {split!r}; {choices(split, HUB_SPLITS[dataset])}")
    try:
        from huggingface_hub import HfApi, hf_hub_download
    except ImportError as error:
        raise InputError(
            f"{dataset} would be fetched from the Hub, which needs the hub extra: pip install 'reasonrag[hub]'. "
            "Or give --data-dir DIR with <dataset>/<split>.jsonl"
        ) from error
    try:
        commit = HfApi().dataset_info(REPOSITORY, revision=revision).sha
        file = hf_hub_download(REPOSITORY, f"{dataset}/{split}.jsonl", repo_type="dataset", revision=commit)
    except Exception as error:
        raise InputError(
            f"cannot fetch {dataset}/{split}.jsonl of {REPOSITORY} from the Hub: {error}. "
            "Check the network, or give --data-dir DIR with <dataset>/<split>.jsonl"
        ) from error
    return open_questions(Path(file), dataset=dataset, split=split, revision=commit, check=check)
