"""`reasonrag publish`: publishes a data set or a model on the Hub, with its card.

First everything that can be checked: the name, the token, whether the files belong to one export, the audit, blockers.
Then the folder `DIR/publish` is written, which is what gets uploaded. `upload` decides when the Hub shows it to others.
What a model is made of is decided in `publish_model`, what a data set is made of in `staging`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from preference.export.summary import held_out_keys
from reasonrag.agent.prompting import prompts_beside
from reasonrag.curation.audit.report import read_audit
from reasonrag.curation.dataset_directory import dropped_keys, read_dataset_directory, secrets_in
from reasonrag.curation.existing_data_set import STAGED
from reasonrag.curation.publish_blockers import Blocker, find_blockers, refuse_unless_allowed
from reasonrag.errors import InputError, ReasonragError
from reasonrag.files import ROLLOUTS
from reasonrag.publishing.dataset_card import DatasetCardFacts, render_dataset_card
from reasonrag.publishing.licences import UNKNOWN, licence_of
from reasonrag.publishing.publish_model import MODEL, ModelPublication, ModelToPublish, places_of_keys
from reasonrag.publishing.settings import PublishSettings
from reasonrag.publishing.space import PAGE, SPACE, SPACES, check_space, public_page, runs_missing, stage_space
from reasonrag.publishing.staging import DATA_SET, TREES, runs_with_trees, stage_files, staging_directory
from reasonrag.publishing.traces import SESSIONS, TRACES, stage_traces, traces_of
from reasonrag.publishing.upload import PublicationResult, PublishedFile, UploadResult, check_access, check_name, upload
from reasonrag.rendering import Line, Part, counted
from reasonrag.settings import resolve
from reasonrag.signatures import public_call
from reasonrag.training.model_card import CARD


class Publication(PublicationResult):
    """A published data set, or what a dry run would publish; the output of `publish --json`."""

    pairs: int
    traces: int
    """Sessions."""
    page: int
    """Bytes of the page in the Space; 0 without one."""

    def shown(self) -> Iterator[Part]:
        load = f'load it: datasets.load_dataset("{self.repo}")'
        train = f"train on it: dataset_dir: REMOTE:{self.repo}, dataset: rag_proguide, template: qwen"
        yield from self.parts(counted(self.pairs, "pair"), load, train)
        if self.traces:
            yield Line(f"a second data set, for the viewer of traces: {traces_of(self.repo)}, {self.traces:,} sessions")
        if self.page:
            yield Line(f"the page, as a static Space: https://huggingface.co/spaces/{self.repo}, {self.page:,} bytes")


@public_call(PublishSettings)
def publish(
    directory: str | Path | None = None,
    *,
    dry_run: bool = False,
    view: Callable[..., Path] | None = None,
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
        view: writes the page of the Space, as `reasonrag.view`, which `--space` gives; none: no Space.
        say: receives progress.
    """
    settings = resolve(PublishSettings, "publish", flags)
    trees, sized = bool(settings.with_trees), flags.get("max_mb") is not None
    _check_call(directory, settings.model, settings.base_model, trees=trees, page=view is not None, sized=sized)
    view = view and partial(view, trees=settings.with_trees, max_mb=settings.max_mb)
    kind, repo, licence = DATA_SET if directory else MODEL, settings.repo, settings.license
    for each in (repo, traces_of(repo))[: 1 + bool(settings.with_trees)]:
        check_name(each, kind)
    if not dry_run:
        check_access(repo, kind)
        if view:
            check_space(repo)
    content = (
        _DataSetToPublish(Path(directory), repo, with_trees=settings.with_trees, licence=licence, page=bool(view))
        if directory
        else ModelToPublish(settings.model or Path(), base=settings.base_model, licence=licence)
    )
    refuse = partial(refuse_unless_allowed, allow=settings.allow, allow_eval=settings.allow_eval)
    aside = refuse(content.blockers())
    if view and isinstance(content, _DataSetToPublish):
        content.make_page(view)
        aside = refuse(content.blockers())
    place = content.place / STAGED
    say(f"writing {place}")
    with staging_directory(content.place) as folder:
        paths = content.stage(folder, aside)
    done = UploadResult()
    if not dry_run:
        done = upload(place, paths, repo, private=settings.private, say=say, kind=kind)
        _upload_beside(content, place, repo, done, say)
    return content.published(
        repo=repo,
        dry_run=dry_run,
        folder=str(place),
        files=[PublishedFile(path=each, bytes=(place / each).stat().st_size) for each in paths],
        set_aside=[f"{each.flag} {each.name}" for each in aside],
        **vars(done),
    )


def _check_call(
    directory: str | Path | None, model: Path | None, base: str | None, *, trees: bool, page: bool, sized: bool
) -> None:
    """Raises InputError for flags that do not go together, and without what publishing needs."""
    if (directory is None) == (model is None):
        raise InputError("publish takes a data set, as reasonrag publish DIRECTORY, or a model, as --model FOLDER")
    if directory is None and (trees or page):
        raise InputError(f"{'--space' if page else '--with-trees'} is for data sets; a model has none")
    if directory is not None and base is not None:
        raise InputError("--base-model is for --model; a data set has none")
    if sized and not page:
        raise InputError("--max-mb is for the page of --space, which was not asked for")
    if missing := [name for name in ("huggingface_hub", "pyarrow") if find_spec(name) is None]:
        raise InputError(f"publishing needs {missing[0]}, which the hub extra installs: pip install 'reasonrag[hub]'")


def _upload_beside(
    content: _DataSetToPublish | ModelToPublish, place: Path, repo: str, rows: UploadResult, say: Callable[[str], None]
) -> None:
    """Into repositories of their own, which those see who see the rows."""
    beside = [(TRACES, traces_of(repo), SESSIONS, content.traces)] if content.traces else []
    beside += [(SPACE, repo, SPACES, [PAGE, CARD])] if content.page else []
    for folder, name, kind, files in beside:
        try:
            upload(place / folder, files, name, private=rows.private, say=say, kind=kind)
        except ReasonragError as error:
            where = f"The rows are at {rows.url}, {'private' if rows.private else 'public'}"
            raise type(error)(f"{error}. {where}") from error


class _DataSetToPublish:
    """A data set, with the trees of its runs where they are asked for."""

    def __init__(
        self,
        directory: Path,
        repo: str,
        *,
        with_trees: Sequence[Path],
        licence: str | None,
        page: bool,
    ) -> None:
        self.place = directory
        self._repo, self._licence = repo, licence
        self._inventory = read_dataset_directory(directory)
        self._trees = runs_with_trees(with_trees, self._inventory)
        for run in self._trees.values():
            self._inventory.secrets.extend(secrets_in(run / ROLLOUTS))
        if prompts := prompts_beside(directory):
            for path in sorted(prompts.glob("*.txt")):
                self._inventory.secrets.extend(places_of_keys(path))
        self._audit = read_audit(directory)
        self._shown_licence = licence or licence_of(self._inventory.datasets)
        self.traces, self._without, self.page = list[str](), list[str](), b""
        self._missing = runs_missing(self._inventory, with_trees) if page else []
        self._left_out = held_out_keys(directory) | dropped_keys(directory)

    def make_page(self, view: Callable[..., Path]) -> None:
        """Make the page of the Space; a possible key in it becomes a blocker."""
        self.page, keys = public_page(self._inventory, self._repo, view, missing=self._missing, left_out=self._left_out)
        self._inventory.secrets.extend(keys)

    def blockers(self) -> list[Blocker]:
        return find_blockers(self._inventory, self._audit)

    def stage(self, folder: Path, aside: Sequence[Blocker]) -> list[str]:
        """Write what is uploaded; returns the paths, the card last. aside: blockers that were set aside."""
        staged = stage_files(self._inventory, folder, repo=self._repo, trees=self._trees)
        origins = {each.origin.config_hash: each.origin for each in self._inventory.runs}
        self.traces, self._without = stage_traces(
            self._trees,
            origins,
            folder / TRACES,
            repo=self._repo,
            licence=self._shown_licence,
            left_out=self._left_out,
        )
        if self.page:
            stage_space(folder / SPACE, self.page, self._repo, self._shown_licence)
        staged[CARD] = "this card"
        traces = traces_of(self._repo) if self.traces else None
        facts = DatasetCardFacts(self._repo, self._inventory, self._audit, self._licence, aside, staged, traces)
        (folder / CARD).write_text(render_dataset_card(facts), "utf-8")
        return list(staged)

    def published(self, **facts: Any) -> Publication:
        summary, licence = self._inventory.summary, self._shown_licence
        warnings = [*summary.warnings, *self._without, *self._missing]
        if licence == UNKNOWN:
            warnings.append("the licence of a question set is unknown, so the card says unknown; give --license NAME")
        if not self.traces and any(path.startswith(f"{TREES}/") for path in facts["removed"]):
            warnings.append(f"{traces_of(self._repo)}, if it was published with these trees before, stays as it is")
        traces = len(self.traces) - bool(self.traces)  # without their card
        counts = {"pairs": summary.pairs, "traces": traces, "page": len(self.page)}
        return Publication(**facts, **counts, licence=licence, warnings=warnings)
