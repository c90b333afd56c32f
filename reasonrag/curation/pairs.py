"""`reasonrag pairs`: makes one preference data set, ready for training, from runs or earlier data sets.

Finds the sources and reads their configurations; labels, filters and formats are decided in `preference`. Labels by
value cost nothing: run it as often as you like.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from preference import Origin, PairSummary, RolloutRecord
from preference.candidates import QuestionRecord, StateRecord, read_lines
from preference.export.export_pairs import write_export
from preference.export.files import atomic_replacement
from preference.export.formats import plain_types
from preference.export.staging import put_in_place, staging_folder
from preference.export.summary import CANDIDATES, DROPPED, QUESTIONS, SUMMARY, ExportFacts, Refinement
from preference.labelled_runs import label_by_outcome, merge_candidates, recount_tokens, write_candidates
from preference.labelling import TokenCounter, origin_of
from preference.published.pair_rules import SYSTEM_OF_RECIPE
from preference.records import read_rollouts
from reasonrag.agent.imported_prompts import imported_prompts, with_prompts
from reasonrag.agent.outcomes import answers_rehearsed
from reasonrag.agent.prompting import PROMPTS, load_prompts, prompts_beside, renderer_hash, save_prompts
from reasonrag.concurrency import run_to_end
from reasonrag.curation.audit.audit import DatasetAudit, parse_allowed, write_audit
from reasonrag.curation.audit.catalogue import CheckName
from reasonrag.curation.audit.report import verdict_parts
from reasonrag.curation.decontamination import Decontamination, decontaminate
from reasonrag.curation.existing_data_set import (
    OF_AN_IMPORT,
    earlier_sources,
    has_own_prompts,
    kept_from_before,
    lines_in,
    made_from,
    origins_in,
    pages_of,
    refuse_foreign_prompts,
    replaces_other_runs,
    takes_in_what_is_there,
)
from reasonrag.curation.from_settings import critic_witnesses, state_judge
from reasonrag.curation.labels.critic_scores import CriticScores, score_by_critics
from reasonrag.curation.labels.judge_labels import Judging, StateJudge, label_by_judge
from reasonrag.curation.settings import PairsSettings
from reasonrag.curation.token_counters import token_counter
from reasonrag.data.eval_splits import EvalSplits, add_named, add_referenced
from reasonrag.data.item_files import explained_records
from reasonrag.errors import InputError
from reasonrag.files import CONFIG, ROLLOUTS, check_finished, data_set_of, link_or_copy, only_writer, rollouts_in
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.endpoint.prompt_window import recorded_cut
from reasonrag.llm.offline import rehearsed_judge
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.rendering import Line, Part, Table, counted, counts_text, depths_text, gold_rows, warned
from reasonrag.run_config import find_config, versions
from reasonrag.settings import resolve
from reasonrag.signatures import public_call


@public_call(PairsSettings)
def pairs(
    runs: str | Path | Sequence[str | Path],
    *,
    chat_model: ChatModel | None = None,
    critic_model: ChatModel | None = None,
    watcher: Watcher | None = None,
    **flags: Any,
) -> PairSummary:
    """Turn the sibling steps of runs into a preference data set.

    Raises InputError where a source cannot be read, and where `out` cannot be written, is being written, or holds a
    data set made from other runs and `replace` is not given; AuditFailed where rows have errors that `allow` does
    not name (all files then stay as they were); and of a judge what `label_by_judge` does.

    Example:
        >>> data = reasonrag.pairs("runs/first", out="data/first")
        >>> data.pairs > 0
        True

    Args:
        runs: run directories, rollouts files, and directories of data sets, which have candidates.jsonl.
        chat_model: the judge of `label="judge"`, used instead of the one that the settings would open.
        critic_model: a critic that was trained on none of the questions, used instead of those that the settings name;
            its replies are numbers.
        watcher: is told what happens while it goes on; none: silent.
    """
    settings = resolve(PairsSettings, "pairs", flags)
    told = watcher or SilentWatcher()
    return _pairs(runs, settings, told, chat_model=chat_model, critic_model=critic_model)


def _pairs(
    runs: str | Path | Sequence[str | Path],
    settings: PairsSettings,
    watcher: Watcher,
    *,
    chat_model: ChatModel | None = None,
    critic_model: ChatModel | None = None,
) -> PairSummary:
    """`pairs` by these settings."""
    out = settings.out or _default_out(runs)
    with _understood(out):
        export = DataSetExport(settings, out)
        sources = _sources(runs, out)
        _check_labels(sources, settings.label, as_published=settings.as_published)
        by_judge = settings.label == "judge"
        if settings.as_published:
            by_judge = _is_judged_as_published(sources, by_judge=by_judge)
        judge = state_judge(settings, chat_model) if by_judge else None
        rehearsed = _rehearsed(sources, judge)
        witnesses = critic_witnesses(settings, critic_model, judged=by_judge)
        _replaces_other_runs(out, sources, replace=settings.replace)  # before the lock: a refusal leaves no file behind
        with only_writer(out, flag="--out"), staging_folder(out) as staged:
            replaced = _replaces_other_runs(out, sources, replace=settings.replace)
            kept = kept_from_before(out, settings.options, judged=judge is not None) if replaced else []
            gather(sources, staged, export.tokens, out=out)
            kept += _keep_prompts(sources, staged, out)
            gated = export.decontaminate(staged, sources)
            if judge:
                labelling = label_by_judge(staged / CANDIDATES, out, judge, chat_model, watcher)
                judging, untold = run_to_end(labelling).model_dump(), list[str]()
            else:
                if settings.label == "outcome":
                    label_by_outcome(staged)
                judging, untold = _judged_before(sources, staged, out)
            scored = run_to_end(score_by_critics(staged, out, witnesses, watcher)) if witnesses else None
            summary = export.write(
                staged,
                sources,
                gated,
                judging=judging,
                critics=scored.model_dump() if scored else {},
                warnings=[*rehearsed, *untold, *kept],
            )
            pages = pages_of(out)
            if not (staged / PROMPTS).exists() and has_own_prompts(out):
                shutil.rmtree(out / PROMPTS)  # of the rows that are replaced
            put_in_place(staged, out, obsolete=[*pages, *(OF_AN_IMPORT if replaced else ())])
            for removed in pages.values():
                watcher.say(removed)
    return summary


def _rehearsed(sources: Sequence[Path], judge: StateJudge | None) -> list[str]:
    """A warning where the offline teacher makes the labels, or made the outcomes of a run."""
    if judge:
        return rehearsed_judge(judge.model.name, "labels", "--model")
    made = [find_config((each.parent if each.is_file() else each) / CONFIG) for each in sources]
    answers = [(each.decides_answers.model, each.decides_answers.recipe) for each in made if each]
    found = [answers_rehearsed(name, of.outcome, support=of.support, reward=of.reward) for name, of in answers]
    return found[0] if found else []


class DataSetExport:
    """Turns gathered candidates into a data set by the settings of `pairs`. Raises InputError for an unusable setting
    or file, before anything is labelled."""

    def __init__(self, settings: PairsSettings, out: Path) -> None:
        self._settings, self._out = settings, out
        self._rules = settings.rules
        self.tokens, self._warnings = token_counter(settings.tokenizer)
        name = out.resolve().name
        allowed = [*settings.allow, *(_ERRORS_OF_BUILDER if settings.as_published else ())]
        self._inspector = DatasetAudit(self.tokens, allow=parse_allowed(allowed), name=name, trusted=True)
        self._splits = EvalSplits()
        add_named(self._splits, settings.eval)

    def decontaminate(self, staged: Path, sources: Sequence[Path]) -> Decontamination:
        """Find the questions to leave out because they are in an evaluation split. Raises InputError."""
        add_referenced(self._splits, sources, allowed=self._settings.allow_eval)
        return decontaminate(staged, self._splits, allowed=self._settings.allow_eval)

    def write(
        self,
        staged: Path,
        sources: Sequence[Path],
        gated: Decontamination,
        *,
        judging: dict[str, Any],
        warnings: Sequence[str],
        critics: Mapping[str, Any] | None = None,
    ) -> PairSummary:
        """Write all files of the data set but its candidates. Raises AuditFailed, OSError."""
        settings = self._settings
        facts = ExportFacts(
            sources=tuple(dict.fromkeys(self._named(sources))),
            judging=judging,
            critics=dict(critics or {}),
            token_counter=self.tokens.name,
            contaminated=gated.contaminated,
            contamination=gated.summary.model_dump(),
            warnings=(*self._warnings, *warnings, *gated.warnings),
            versions=versions(),
        )
        options = settings.options
        if critics and "sft" in options.formats:
            options = dataclasses.replace(options, critic_threshold=settings.critic_threshold)
        summary = write_export(staged, staged, self._rules, options, facts, inspector=self._inspector, out=self._out)
        gated.write(staged)
        write_audit(self._inspector.report(), staged)
        return summary

    def _named(self, sources: Sequence[Path]) -> Iterator[str]:
        """The sources, those that the data set had before instead of itself; some of the others twice, after a kill."""
        for each in sources:
            itself = each.resolve() == self._out.resolve()
            yield from (earlier_sources(each) if itself else []) or [str(each)]


def _keep_prompts(sources: Sequence[Path], staged: Path, out: Path) -> list[str]:
    """Take the prompts of imported rows along, unless there are several, and those of imported trees out of the states;
    returns what these do not cover.

    Raises InputError where `out` has other prompts than its own.
    """
    folders = (prompts_beside(each) for each in sources if is_data_set(each))
    warnings = list[str]()
    found = {renderer_hash(prompts): prompts for prompts in map(load_prompts, filter(None, folders))}
    if len(found) == 1:
        [prompts] = found.values()
        save_prompts(prompts, staged / PROMPTS)
    elif not any(each.origin.renderer for each in read_lines(staged / QUESTIONS, QuestionRecord)):
        warnings = _take_prompts(staged)
    if (staged / PROMPTS).exists() and out.resolve() not in [each.resolve() for each in sources]:
        refuse_foreign_prompts(out)
    return warnings


class _StatesIn:
    """The states of a file, read again each time: there may be too many to hold."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[StateRecord]:
        return read_lines(self._path, StateRecord)


def _take_prompts(staged: Path) -> list[str]:
    """Record the renderer of states that have none recorded, and keep its prompts unless they are ours."""
    states, ours = _StatesIn(staged / CANDIDATES), load_prompts()
    imported = imported_prompts(states, ours)
    if imported is None:
        return []
    asked = read_lines(staged / QUESTIONS, QuestionRecord)
    with atomic_replacement(staged / CANDIDATES) as lines:
        lines.writelines(with_prompts(each, imported).to_line() for each in states)
    with atomic_replacement(staged / QUESTIONS) as lines:
        lines.writelines(with_prompts(each, imported).to_line() for each in asked)
    if renderer_hash(imported.prompts) == renderer_hash(ours):
        return []
    save_prompts(imported.prompts, staged / PROMPTS)
    return imported.warnings


def _replaces_other_runs(out: Path, sources: Sequence[Path], *, replace: bool) -> bool:
    """Whether another data set is in `out`. Raises InputError if it must not be replaced."""
    origins = _origins_of(sources)

    def questions() -> int:
        return sum(lines_in(each / QUESTIONS if is_data_set(each) else rollouts_in(each)) for each in sources)

    return replaces_other_runs(out, sources, made_from(origins), questions, replace=replace)


def _origins_of(sources: Iterable[Path]) -> set[Origin]:
    origins: set[Origin] = set()
    for source in sources:
        found = origins_in(source) if is_data_set(source) else {_origin_of_run(rollouts_in(source))}
        origins |= {each for each in found or () if each is not None}
    return origins


_ERRORS_OF_BUILDER: tuple[CheckName, ...] = ("chosen_malformed", "identical_sides")
"""Errors of the audit in rows that published builders make: an open tag, sides that differ in case alone."""


def _is_judged_as_published(sources: Sequence[Path], *, by_judge: bool) -> bool:
    """Whether a judge is to label the states as the published system's does; not if it has done so.

    by_judge: whether the user asks for one. Raises InputError where no published system has labels for a source, or two
    have different ones.
    """
    recipes = {each.recipe for each in _origins_of(sources) if each.recipe}
    if ours := sorted(each for each in recipes if each not in SYSTEM_OF_RECIPE):
        raise InputError(
            f"--as-published: no published system labels the runs of recipe {', '.join(ours)}; leave it out"
        )
    of_prorag = [each for each in sources if "prorag" in {origin.recipe for origin in _origins_of([each])}]
    judged = [is_data_set(each) and _occurs(_JUDGED, each) for each in of_prorag]
    alone = len(recipes) == 1 and len(of_prorag) == len(sources)
    if not all(judged) and (any(judged) or not alone):
        raise InputError(
            "--as-published: a judge labels the runs of prorag, and no others. Make a data set of each recipe, then "
            "one of these data sets: reasonrag pairs DATA1 DATA2 --as-published --out DATA"
        )
    if by_judge and "prorag" not in recipes:
        of = f"the runs of recipe {', '.join(sorted(recipes))}" if recipes else "imported rows"
        raise InputError(f"--as-published: no published judge labels {of}; leave out --label")
    return not all(judged)


_BY_OUTCOME, _OUTCOMES = b'"label":"outcome"', b'"own_outcome":'
"""Occur only in lines of states that are labelled by outcome, and that have the outcomes for it."""


def _check_labels(sources: Sequence[Path], label: str, *, as_published: bool) -> None:
    """Raises InputError where a source lacks what the labels are made of, or has labels that they cannot replace."""
    if label == "outcome" and as_published:
        raise InputError("--as-published has labels of its own: leave out --label outcome")
    for source in filter(is_data_set, sources):
        if label == "outcome" and not _occurs(_OUTCOMES, source) and (source / CANDIDATES).stat().st_size:
            raise InputError(
                f"--label outcome: {source} does not say how the trajectories of its steps ended, as imported rows do "
                "not. Give its runs instead: reasonrag pairs RUN --label outcome --out DATA"
            )
        if (label == "judge" or as_published) and _occurs(_BY_OUTCOME, source):
            flag = "--as-published" if as_published else "--label judge"
            raise InputError(f"{flag}: {source} is labelled by outcome. Give its runs instead, or leave out {flag}")


def _occurs(mark: bytes, folder: Path) -> bool:
    """Whether a line of the candidates has it."""
    with (folder / CANDIDATES).open("rb") as lines:
        return any(mark in line for line in lines)


def plan_judging(runs: str | Path | Sequence[str | Path], **flags: Any) -> str:
    """What `pairs` with `label="judge"` would request and cost, in a line, and a warning where the judge
    understands nothing. Asks nothing, and leaves `out` unchanged."""
    settings = resolve(PairsSettings, "pairs", flags)
    tokens, _ = token_counter(settings.tokenizer)
    out = settings.out or _default_out(runs)
    with _understood(out), tempfile.TemporaryDirectory(prefix="reasonrag-") as scratch:
        sources = _sources(runs, out)
        _check_labels(sources, "judge", as_published=settings.as_published)
        _replaces_other_runs(out, sources, replace=settings.replace)
        gather(sources, Path(scratch), tokens, out=out)
        judge = state_judge(settings)
        warnings = [f"\nwarning: {each}" for each in _rehearsed(sources, judge)]
        return "".join([judge.describe(Path(scratch) / CANDIDATES), *warnings])


_JUDGED = b'"label":"judge"'
"""Occurs only in lines of states that a judge labelled: text inside JSON has no bare quotes."""


def _judged_before(sources: Sequence[Path], gathered: Path, out: Path) -> tuple[dict[str, Any], list[str]]:
    """The judge recorded in a source's summary, for labels in the candidates; and a warning if it is unknown or there
    were several judges."""
    if not _occurs(_JUDGED, gathered):
        return {}, []
    told = {each: _judging_of(each) for each in sources if is_data_set(each) and _occurs(_JUDGED, each)}
    for each in [each for each in told if each.resolve() == out.resolve()]:
        if told[each] in [told[other] for other in told if other != each]:
            del told[each]  # a killed command had copied its labels from there
    [judging, *others] = told.values()
    if judging and not others:
        return judging, []
    why = "several sources were judged" if len(told) > 1 else f"no {SUMMARY} of a source describes it"
    return {}, [f"a judge made the labels, but {why}: this summary names neither the judge nor its cost"]


def _judging_of(source: Path) -> dict[str, Any]:
    try:
        told = Judging.model_validate(orjson.loads((source / SUMMARY).read_bytes())["judging"])
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, ValidationError):
        return {}  # the files were copied without their summary
    return told.model_dump() | {"session_calls": 0}


@contextmanager
def _understood(out: Path) -> Iterator[None]:
    """Turns errors of reading and writing into messages that a user can act on."""
    try:
        with explained_records():
            yield
    except OSError as error:
        raise InputError(f"cannot read or write {error.filename or out}: {error.strerror or error}") from error


def gather(sources: Sequence[Path], folder: Path, tokens: TokenCounter, *, out: Path) -> None:
    """Write `candidates.jsonl` and `questions.jsonl` of all sources into an empty folder, every length by one counter.

    out: the data set that they are for; if it is the only source, nothing is labelled or merged again. Raises OSError,
    and what reading the sources raises.
    """
    if len(sources) == 1 and not is_data_set(sources[0]):
        _label(sources[0], folder, tokens)
        return
    if [each.resolve() for each in sources] == [out.resolve()]:
        for name in (CANDIDATES, QUESTIONS):
            link_or_copy(out / name, folder / name)
        recount_tokens(folder, tokens)
        return
    folders = []
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for number, source in enumerate(sources):
            folders.append(source if is_data_set(source) else Path(scratch, str(number)))
            if not is_data_set(source):
                _label(source, folders[-1], tokens)
        merge_candidates(folders, folder)
    recount_tokens(folder, tokens)


def _default_out(runs: str | Path | Sequence[str | Path]) -> Path:
    """Where the data set of one run goes. Raises InputError for several sources, and for one that is a data set."""
    sources = _paths(runs)
    if len(sources) == 1 and not is_data_set(sources[0]):
        return data_set_of(sources[0])
    what = f"{sources[0]} is a data set" if len(sources) == 1 else f"{len(sources)} sources make one data set"
    raise InputError(f"{what}: give --out DIR")


def _paths(runs: str | Path | Sequence[str | Path]) -> list[Path]:
    return [Path(each) for each in ([runs] if isinstance(runs, str | Path) else runs)]


def _sources(runs: str | Path | Sequence[str | Path], out: Path) -> list[Path]:
    """The source folders. Raises InputError if one cannot be read or `out` is a run."""
    if (out / ROLLOUTS).exists():
        raise InputError(f"--out {out} is a run directory, whose summary would be overwritten; choose another")
    sources = _paths(runs)
    if not sources:
        raise InputError("give at least one run directory of reasonrag generate")
    for source in sources:
        if source.resolve() != out.resolve() or not takes_in_what_is_there(out):
            check_finished(source)
        if not is_data_set(source) and not rollouts_in(source).is_file():
            missing = rollouts_in(source)
            raise InputError(
                f"there is no {missing}; give a run directory. Make one with: reasonrag generate --run {source}"
            )
    return sources


def is_data_set(folder: Path) -> bool:
    """Whether a folder holds what `pairs` or `import` writes."""
    return (folder / CANDIDATES).is_file() and (folder / QUESTIONS).is_file()


def _label(source: Path, out: Path, tokens: TokenCounter) -> None:
    rollouts = rollouts_in(source)
    write_candidates(read_rollouts(rollouts), out, origin=_origin_of_run(rollouts), tokens=tokens)


def _origin_of_run(rollouts: Path) -> Origin | None:
    """None of a run without records."""
    first = next(iter(read_rollouts(rollouts)), None)
    return None if first is None else _origin(first, rollouts.with_name(CONFIG))


def _origin(first: RolloutRecord, config: Path) -> Origin:
    """The origin of a run's states, from its records and its configuration."""
    origin, made = origin_of(first), find_config(config)
    if made is None or made.operational is None:
        return origin
    if made.config_hash != origin.config_hash:
        raise InputError(f"{config} does not belong to the rollouts beside it; restore the original file")
    decides = made.decides_answers
    return origin.model_copy(
        update={
            "revision": made.operational.hub_revision or decides.questions_sha256 or None,
            "teacher": decides.model or None,
            "value_model": decides.student,
            "retriever": decides.retriever or None,
            "top_k": decides.top_k,
            "max_steps": decides.max_steps,
            "steps_by_hops": decides.steps_by_hops,
            "cut_from": recorded_cut(made.operational.refused_parameters),
            "max_passage_chars": decides.max_passage_chars,
            "passage_order": decides.passage_order,
            "style": decides.style,
            "sampled": decides.sample is not None,
        }
    )


# -- what is shown ---------------------------------------------------------------------------------------------


def pairs_parts(summary: PairSummary) -> Iterator[Part]:
    """The summary of `pairs`, what was written, what the audit found, and the next commands."""
    yield Table(f"preference pairs  recipe {', '.join(summary.recipes) or 'none'}", _rows(summary))
    yield from warned(summary.warnings)
    out = Path(summary.out)
    yield from (Line(f"wrote {out / name} ({counted(count, 'row')})") for name, count in summary.files.items())
    yield Line(f"all candidates: {out / CANDIDATES}; drop reasons: {out / DROPPED}")
    yield from verdict_parts(out, summary.splits)


def _rows(summary: PairSummary) -> Iterator[tuple[str, object]]:
    yield "questions with a pair", f"{summary.questions_with_a_pair:,} of {summary.questions:,}"
    yield "without a pair", summary.without_a_pair
    yield "pairs", f"{summary.pairs:,} of {summary.candidates:,} candidates"
    validation = counted(summary.validation_questions, "question")
    yield "validation pairs", f"{summary.validation_pairs:,} from {validation}"
    yield "sides exchanged", summary.flipped or ""
    yield "labels", summary.pairs_by_label if "outcome" in summary.pairs_by_label else ""
    if summary.judging:
        yield from Judging.model_validate(summary.judging).rows()
    if summary.critics:
        yield from CriticScores.model_validate(summary.critics).rows()
        if summary.refinement:
            kept = Refinement.model_validate(summary.refinement)
            yield "best paths kept", f"{kept.kept:,} of {kept.paths:,}, {kept.unscored:,} without a score"
    yield "effective sample size", summary.effective
    yield "mean confidence", summary.mean_confidence
    yield "by chosen action", plain_types(counts_text(summary.pairs_by_action_type))
    yield "by depth", depths_text(summary.pairs_by_layer)
    yield "same type on both sides", summary.same_type_pairs
    yield "tagged", summary.pairs_by_tag
    yield from gold_rows(summary.gold_agreement)
    yield "dropped", summary.dropped
    yield "decontamination", _decontaminated(summary.contamination)


def _decontaminated(contamination: dict[str, Any]) -> str:
    """The evaluation splits that the questions were checked against, and how many were found."""
    checked = contamination.get("checked") or []
    if not checked:
        return "not checked: no evaluation split"
    asked = counted(sum(each["questions"] for each in checked), "question")
    splits = f"{counted(len(checked), 'evaluation split')} ({asked})"
    return f"checked against {splits}: {contamination['questions']:,} found, {contamination['dropped']:,} removed"
