"""The page of a data set as a static Space of the same name, for those who would rather look than read.

Decides what is taken out of the page before others see it: paths, addresses, keys, trees of questions that the rows are
not made of; and which Space `publish` may write to. What the page shows, and to how many questions its trees are
limited, the `view` that is handed in decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from preference.candidate_records import question_key
from reasonrag.curation.dataset_directory import DatasetInventory
from reasonrag.curation.sources import source_runs
from reasonrag.errors import ReasonragError
from reasonrag.files import read_small, rollouts_in
from reasonrag.publishing.staging import public_summary, runs_with_trees, without_addresses
from reasonrag.publishing.upload import OF_THE_HUB, RepositoryKind, UploadResult, explained_errors
from reasonrag.redaction import keys_in, mask_secrets_in, secrets, texts_in
from reasonrag.training.model_card import CARD

SPACE, PAGE = "space", "index.html"
_BEGUN = {PAGE, "style.css"}
"""The Hub begins a static Space with these, beside a card."""
SPACES = RepositoryKind("space", "page", {CARD, *_BEGUN}.__contains__)
_MARK = "Written by `reasonrag publish`."


def check_space(repo: str) -> None:
    """Raises ReasonragError for a Space of that name that `publish` did not write, unless it is as the Hub began it."""
    from huggingface_hub import HfApi

    api = HfApi()
    with explained_errors(repo, UploadResult(), SPACES):
        if not api.repo_exists(repo, repo_type=SPACE):
            return
        there = set(api.list_repo_files(repo, repo_type=SPACE))
        if there - {CARD, OF_THE_HUB} == _BEGUN:
            return
        if CARD in there and _MARK.encode() in read_small(Path(api.hf_hub_download(repo, CARD, repo_type=SPACE))):
            return
    raise ReasonragError(
        f"the Space {repo} was not written by publish, and would be replaced. Rename it on the Hub, choose another "
        "--repo, or leave out --space. Nothing was uploaded"
    )


def runs_missing(inventory: DatasetInventory, given: Sequence[Path]) -> list[str]:
    """What the page lacks, in words. given: runs for which the page needs no others. Raises InputError for a run that
    the page would take trees from, and that `--with-trees` would refuse."""
    missing = []
    for run in source_runs(inventory.directory, inventory.summary):
        if rollouts_in(run).is_file():
            runs_with_trees([rollouts_in(run).parent], inventory)
        elif not given:
            name = run.resolve().name
            missing.append(f"{name} is not here, so the page lacks its trees; give its directory with --with-trees DIR")
    return missing


def public_page(
    inventory: DatasetInventory,
    repo: str,
    view: Callable[..., Path],
    *,
    missing: Sequence[str],
    left_out: Collection[str],
) -> tuple[bytes, list[str]]:
    """The page as others may see it, and its parts that hold a possible key, which is masked. missing: of
    `runs_missing`. left_out: keys of questions whose trees are not shown."""
    known, keys, summary = secrets(), list[str](), public_summary(inventory)

    def public(name: str, content: dict[str, Any]) -> dict[str, Any]:
        if "trees" in content and question_key(content["question"]) in left_out:
            return {}
        if any(keys_in(text, known) for text in texts_in(content)):
            keys.append(f"{name} of the page")
        if overview := content.get("overview"):
            told = {"path": "", "records": {}, "warnings": [*summary["warnings"], *missing]}
            content["overview"] = without_addresses(overview) | told
            if calibration := content["overview"]["calibration"]:
                calibration["source"] = Path(overview["calibration"]["source"]).name
        for tree in content.get("trees", ()):
            tree["source"] = Path(tree["source"]).name
        masked: dict[str, Any] = mask_secrets_in(content, known)
        return masked

    with TemporaryDirectory() as scratch:
        return view(inventory.directory, out=Path(scratch) / PAGE, title=repo, change=public).read_bytes(), keys


def stage_space(folder: Path, page: bytes, repo: str, licence: str) -> None:
    from huggingface_hub import SpaceCardData

    folder.mkdir()
    (folder / PAGE).write_bytes(page)
    name = repo.rpartition("/")[2]
    about = SpaceCardData(title=name, sdk="static", app_file=PAGE, license=licence, datasets=[repo], tags=["reasonrag"])
    text = f"[{repo}](https://huggingface.co/datasets/{repo}) as a page: its pairs, and why each is labelled as it is."
    (folder / CARD).write_text(f"---\n{about.to_yaml()}\n---\n\n{text} {_MARK}\n", "utf-8")
