"""The sources of a data set: runs, and data sets that were made before.

Decides what can be a source, where its lines come from, and by which labels it can be labelled anew; gathers the
candidates of all. Labels by value are decided in `preference`. Knows no settings.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from preference import Origin
from preference.export.formats import FormatName
from preference.export.summary import CANDIDATES, QUESTIONS, PairSummary, summary_of
from preference.labelled_runs import merge_candidates, recount_tokens, write_candidates
from preference.labelling import TokenCounter, origin_of
from preference.published.pair_rules import SYSTEM_OF_RECIPE
from preference.records import read_rollouts
from reasonrag.agent.outcomes import answers_rehearsed
from reasonrag.agent.protocols.known import read_by
from reasonrag.curation.existing_data_set import origins_in, takes_in_what_is_there
from reasonrag.curation.labels.judge_labels import Judging
from reasonrag.errors import InputError
from reasonrag.files import CONFIG, ROLLOUTS, check_finished, data_set_of, link_or_copy, rollouts_in
from reasonrag.llm.endpoint.prompt_window import recorded_cut
from reasonrag.run_config import Operational, RunConfig, find_config

_JUDGED, _BY_OUTCOME, _OUTCOMES = b'"label":"judge"', b'"label":"outcome"', b'"own_outcome":'
"""Occur only in lines of states that are labelled so, and that have the outcomes for it: text inside JSON has no bare
quotes."""
_PLAIN_STEPS = b'"plain_steps":[{'
"""Likewise of questions that have some."""


def is_data_set(folder: Path) -> bool:
    """Whether a folder holds what `pairs` or `import` writes."""
    return (folder / CANDIDATES).is_file() and (folder / QUESTIONS).is_file()


def paths_of(runs: str | Path | Sequence[str | Path]) -> list[Path]:
    return [Path(each) for each in ([runs] if isinstance(runs, str | Path) else runs)]


def source_runs(path: Path, summary: PairSummary) -> list[Path]:
    """The runs that a data set was made of, also through other data sets. Relative paths are tried from the working
    directory and from every folder above the data set."""
    found: list[Path] = []
    for source in () if summary.warm_up else summary.sources:  # whose rows have no trees
        above = [Path(), *path.resolve().parents]
        there = next((folder / source for folder in above if (folder / source).exists()), Path(source))
        if there.resolve() != path.resolve() and is_data_set(there):
            found += source_runs(there, summary_of(there))
        elif there.resolve() != path.resolve():
            found.append(there)
    return found


def default_out(sources: Sequence[Path]) -> Path:
    """Where the data set of one run goes. Raises InputError for several sources, and for one that is a data set."""
    if len(sources) == 1 and not is_data_set(sources[0]):
        return data_set_of(sources[0])
    what = f"{sources[0]} is a data set" if len(sources) == 1 else f"{len(sources)} sources make one data set"
    raise InputError(f"{what}: give --out DIR")


@dataclass(frozen=True)
class Sources:
    """What the data set `out` is made from. Raises InputError if one cannot be read or `out` is a run."""

    folders: Sequence[Path]
    out: Path

    def __post_init__(self) -> None:
        if (self.out / ROLLOUTS).exists():
            raise InputError(f"--out {self.out} is a run directory, whose summary would be overwritten; choose another")
        if not self.folders:
            raise InputError("give at least one run directory of reasonrag generate")
        for source in self.folders:
            if not self._is_out(source) or not takes_in_what_is_there(self.out):
                check_finished(source)
            if not is_data_set(source) and not rollouts_in(source).is_file():
                raise InputError(
                    f"there is no {rollouts_in(source)}; give a run directory. Make one with: reasonrag generate "
                    f"--run {source}"
                )

    @property
    def data_sets(self) -> list[Path]:
        return [each for each in self.folders if is_data_set(each)]

    @property
    def origins(self) -> set[Origin]:
        runs = [_origin_of_run(rollouts_in(each)) for each in self.folders if not is_data_set(each)]
        return set().union(filter(None, runs), *map(origins_in, self.data_sets))

    def _is_out(self, source: Path) -> bool:
        return source.resolve() == self.out.resolve()

    def gather(self, folder: Path, tokens: TokenCounter, *, every_step: bool = False) -> None:
        """Write `candidates.jsonl` and `questions.jsonl` of all sources into an empty folder, every length by one
        counter. every_step: with the plain steps of all trees. Where `out` is the only source, nothing is labelled or
        merged again.

        Raises OSError, and what reading the sources raises.
        """
        if len(self.folders) == 1 and not self.data_sets:
            _label(self.folders[0], folder, tokens, every_step=every_step)
            return
        if len(self.folders) == 1 and self._is_out(self.folders[0]):
            for name in (CANDIDATES, QUESTIONS):
                link_or_copy(self.out / name, folder / name)
        else:
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                folders = list(self.folders)
                for number, source in enumerate(self.folders):
                    if not is_data_set(source):
                        folders[number] = Path(scratch, str(number))
                        _label(source, folders[number], tokens, every_step=every_step)
                merge_candidates(folders, folder)
        recount_tokens(folder, tokens)

    # -- labels ------------------------------------------------------------------------------------------------

    def check_labels(self, label: str, *, as_published: bool) -> None:
        """Raises InputError where a source lacks what such labels are made of, or has others that must stay."""
        for source in self.data_sets:
            if label == "outcome" and not _occurs(_OUTCOMES, source) and (source / CANDIDATES).stat().st_size:
                raise InputError(
                    f"--label outcome: {source} does not say how the trajectories of its steps ended, as imported rows "
                    "do not. Give its runs instead: reasonrag pairs RUN --label outcome --out DATA"
                )
            if (label == "judge" or as_published) and _occurs(_BY_OUTCOME, source):
                flag = "--as-published" if as_published else "--label judge"
                raise InputError(f"{flag}: {source} is labelled by outcome. Give its runs instead, or leave out {flag}")

    def check_plain_steps(self, name: FormatName) -> None:
        """Raises InputError for a data set that was gathered without the plain steps of its trees."""
        for source in self.data_sets:
            if not _occurs(_PLAIN_STEPS, source, QUESTIONS):
                raise InputError(f"--format {name}: {source} has no plain steps; give its runs: reasonrag pairs RUN")

    def are_judged_as_published(self, *, by_judge: bool) -> bool:
        """Whether a judge is to label the states as the published system's does; not if it has done so.

        by_judge: whether the user asks for one. Raises InputError where no published system has labels for a source,
        for other sources beside those of a judge, and where a judge has been paid for some of them.
        """
        recipes = sorted({each.recipe for each in self.origins if each.recipe})
        if ours := [each for each in recipes if each not in SYSTEM_OF_RECIPE]:
            raise InputError(
                f"--as-published: no published system labels the runs of recipe {', '.join(ours)}; leave it out"
            )
        if len({each.recipe == "prorag" for each in self.origins}) > 1:
            raise InputError("--as-published: a judge labels the runs of prorag, and no others; give them alone")
        if by_judge and "prorag" not in recipes:
            of = f"the runs of recipe {', '.join(recipes)}" if recipes else "imported rows"
            raise InputError(f"--as-published: no published judge labels {of}; leave out --label")
        judged = {is_data_set(each) and _occurs(_JUDGED, each) for each in self.folders}
        if "prorag" in recipes and len(judged) > 1:
            raise InputError(
                "--as-published: a judge has labelled some of these, and would be asked again. Make a data set of each "
                "of the others, then one of these data sets: reasonrag pairs DATA1 DATA2 --as-published --out DATA"
            )
        return "prorag" in recipes and judged == {False}

    def judged_before(self, gathered: Path) -> tuple[dict[str, Any], list[str]]:
        """The judge of the labels, as summaries of the sources record it; a warning if there is no single one."""
        if not _occurs(_JUDGED, gathered):
            return {}, []
        judged = [_judging_of(each) for each in self.data_sets if _occurs(_JUDGED, each)]
        if judged and judged[0] and all(each == judged[0] for each in judged):
            return judged[0], []
        why = "several judges, or one that no summary of a source describes, made the labels"
        return {}, [f"{why}: this summary names neither a judge nor its cost"]

    def rehearsed(self) -> list[str]:
        """A warning where the offline teacher made the outcomes of a run."""
        made = [find_config((each.parent if each.is_file() else each) / CONFIG) for each in self.folders]
        answers = [(each.decides_answers.model, each.decides_answers.recipe) for each in made if each]
        found = [answers_rehearsed(name, of.outcome, reward=of.reward) for name, of in answers]
        return found[0] if found else []


def _occurs(mark: bytes, folder: Path, name: str = CANDIDATES) -> bool:
    """Whether a line of the file has it."""
    with (folder / name).open("rb") as lines:
        return any(mark in line for line in lines)


def _judging_of(source: Path) -> dict[str, Any]:
    with suppress(ValidationError):  # the files may have been copied without their summary
        return Judging.model_validate(summary_of(source).judging).model_dump() | {"session_calls": 0}
    return {}


def _label(source: Path, out: Path, tokens: TokenCounter, *, every_step: bool) -> None:
    rollouts, records = rollouts_in(source), read_rollouts(rollouts_in(source))
    write_candidates(records, out, origin=_origin_of_run(rollouts), tokens=tokens, every_step=every_step)


def _origin_of_run(rollouts: Path) -> Origin | None:
    """By records and configuration; None of a run without records."""
    first, config = next(iter(read_rollouts(rollouts)), None), rollouts.with_name(CONFIG)
    if first is None:
        return None
    origin, made = origin_of(first), find_config(config)
    if made is None or made.operational is None:
        return origin
    if made.config_hash != origin.config_hash:
        raise InputError(f"{config} does not belong to the rollouts beside it; restore the original file")
    return configured(origin, made)


def configured(origin: Origin, made: RunConfig) -> Origin:
    """The origin with what a run's configuration says of it."""
    decides, operational = made.decides_answers, made.operational or Operational()
    as_recorded = ("top_k", "max_steps", "steps_by_hops", "max_passage_chars", "passage_order", "style")
    return origin.model_copy(
        update={
            "revision": operational.hub_revision or decides.questions_sha256 or None,
            "teacher": decides.model or None,
            "value_model": decides.student,
            "reader": read_by(origin.agent, decides.model, decides.reader.name if decides.reader else None),
            "retriever": decides.retriever or None,
            "cut_from": recorded_cut(operational.refused_parameters),
            "sampled": decides.sample is not None,
            **{name: getattr(decides, name) for name in as_recorded},
        }
    )
