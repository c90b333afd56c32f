"""`reasonrag publish`: publishes a data set on the Hub, with its card; models are published by `publish_model`.

First everything that can be checked locally: the name, the token, whether the files belong to one export, the audit,
blockers. Then the folder `DIR/publish` is written, which is what gets uploaded, and only then is the Hub contacted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from preference.export.formats import pairs_files
from reasonrag.curation.audit.audit import audit
from reasonrag.curation.audit.report import AUDIT, AuditReport, read_audit
from reasonrag.curation.blockers import find_blockers, refuse_unless_allowed
from reasonrag.curation.dataset_directory import DatasetInventory, read_dataset_directory, secrets_in
from reasonrag.curation.existing_data_set import STAGED
from reasonrag.errors import InputError
from reasonrag.files import ROLLOUTS
from reasonrag.publishing.dataset_card import DatasetCardFacts, render_dataset_card
from reasonrag.publishing.hub import PublicationResult, check_access, check_name, send
from reasonrag.publishing.licences import UNKNOWN, licence_of
from reasonrag.publishing.publish_model import ModelPublication, publish_model
from reasonrag.publishing.settings import PublishSettings
from reasonrag.publishing.staging import StagedFile, runs_with_trees, stage_files, staging_directory
from reasonrag.rendering import Part, counted
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.training.model_card import CARD

_MEGABYTE = 1 << 20


class Publication(PublicationResult):
    """A published data set, or what a dry run would publish; the output of `publish --json`."""

    pairs: int

    def shown(self) -> Iterator[Part]:
        load = f'load it: datasets.load_dataset("{self.repo}")'
        train = f"train on it: dataset_dir: REMOTE:{self.repo}, dataset: rag_proguide, template: qwen"
        yield from self.parts(counted(self.pairs, "pair"), load, train)


@public_call(PublishSettings)
def publish(
    directory: str | Path | None = None,
    *,
    dry_run: bool = False,
    say: Callable[[str], None] = lambda _: None,
    **flags: Any,
) -> Publication | ModelPublication:
    """Publish the data set in `directory`, or with `model=FOLDER` a model, with its card; private unless `public`.

    Raises InputError before anything is uploaded, UploadStopped if the upload fails: the same call resumes it.

    Example:
        >>> done = reasonrag.publish("data/first", repo="me/first", dry_run=True)
        >>> print(done.url)
        None

    Args:
        directory: a data set.
        dry_run: write `DIR/publish` and contact nothing.
        say: receives progress.
    """
    settings = resolve(PublishSettings, "publish", flags)
    if (directory is None) == (settings.model is None):
        raise InputError("publish takes a data set, as reasonrag publish DIRECTORY, or a model, as --model FOLDER")
    _check_extra()
    if directory is None:
        return publish_model(settings, dry_run=dry_run, say=say)
    return _publish_data_set(settings, Path(directory), dry_run=dry_run, say=say)


def _publish_data_set(
    settings: PublishSettings, directory: Path, *, dry_run: bool, say: Callable[[str], None]
) -> Publication:
    if settings.base_model is not None:
        raise InputError("--base-model is for --model; a data set has none")
    check_name(settings.repo)
    if not dry_run:
        check_access()
    inventory = read_dataset_directory(directory)
    trees = runs_with_trees(settings.with_trees, inventory)
    for tree in trees:
        inventory.secrets.extend(secrets_in(tree.directory / ROLLOUTS))
    audit = _fresh_audit(inventory, say)
    aside = refuse_unless_allowed(find_blockers(inventory, audit), allow=settings.allow, allow_eval=settings.allow_eval)
    say(f"writing {directory / STAGED}")
    with staging_directory(directory) as folder:
        staged = stage_files(
            inventory, folder, repo=settings.repo, trees=trees, shard_bytes=settings.max_shard_mb * _MEGABYTE
        )
        staged.append(StagedFile(CARD, "this card"))
        facts = DatasetCardFacts(settings.repo, inventory, audit, settings.license, aside, trees, staged)
        (folder / CARD).write_text(render_dataset_card(facts), "utf-8")
    return Publication(
        **send(
            directory / STAGED,
            [each.path for each in staged],
            settings.repo,
            private=settings.private,
            dry_run=dry_run,
            say=say,
        ),
        pairs=inventory.summary.pairs,
        licence=settings.license or licence_of(inventory.datasets),
        set_aside=[f"{each.flag} {each.name}" for each in aside],
        warnings=_warnings(settings.license, inventory),
    )


def _check_extra() -> None:
    missing = [name for name in ("huggingface_hub", "pyarrow") if find_spec(name) is None]
    if missing:
        raise InputError(f"publishing needs {missing[0]}, which the hub extra installs: pip install 'reasonrag[hub]'")


def _fresh_audit(inventory: DatasetInventory, say: Callable[[str], None]) -> AuditReport:
    """The audit of these rows, made now if it is missing or out of date."""
    path = inventory.directory / AUDIT
    newest = max(each.stat().st_mtime_ns for each in pairs_files(inventory.directory).values())
    if not path.is_file() or path.stat().st_mtime_ns < newest:
        say(f"{path} is missing or older than the rows; auditing them now")
        audit(inventory.directory, out=inventory.directory)  # regardless of where settings would put it
    return read_audit(inventory.directory)


def _warnings(licence: str | None, inventory: DatasetInventory) -> list[str]:
    """Warnings of the summary, and one for an unknown licence."""
    found = list(inventory.summary.warnings)
    if licence is None and licence_of(inventory.datasets) == UNKNOWN:
        found.append("the licence of a question set is unknown, so the card says unknown; give --license NAME")
    return found
