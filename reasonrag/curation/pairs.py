"""`reasonrag pairs`: makes one preference data set, ready for training, from runs or earlier data sets.

Decides the order of the steps, and which settings of labels go together. `sources` gathers the candidates, `export`
writes the data set; labels, filters and formats are decided in `preference`. Labels by value cost nothing: run it as
often as you like.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from preference import PairSummary, StateRecord
from preference.best_path import Refinement
from preference.export.atomic_export import staging_folder
from preference.export.formats import CONVERSATIONS, OF_PLAIN_STEPS, plain_types
from preference.export.summary import CANDIDATES, DROPPED
from preference.labelled_runs import rewrite_lines
from preference.labelling import with_outcome_label
from reasonrag.agent.prompting import load_prompts
from reasonrag.agent.settings import OURS
from reasonrag.concurrency import run_to_end
from reasonrag.curation.audit.report import verdict_parts
from reasonrag.curation.existing_data_set import OF_AN_IMPORT, made_from, replace_data_set, replaces_other_runs
from reasonrag.curation.export import DataSetExport, keep_prompts
from reasonrag.curation.labels.critic_scores import CriticScores, CriticWitnesses, score_by_critics
from reasonrag.curation.labels.judge_labels import Judging, StateJudge, label_by_judge
from reasonrag.curation.pairs_settings import PairsSettings
from reasonrag.curation.settings import CheckSettings, DecontaminationSettings
from reasonrag.curation.sources import Sources, default_out, paths_of
from reasonrag.curation.warm_up.warm_up import warm_up_parts
from reasonrag.data.item_files import explained_records
from reasonrag.errors import InputError
from reasonrag.files import only_writer
from reasonrag.llm.budget import Caps
from reasonrag.llm.chat import ChatModel
from reasonrag.llm.critic import FoundCritic, critic_spec, find_critic
from reasonrag.llm.endpoint.endpoint import Limits
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.llm.offline import rehearsed_judge
from reasonrag.llm.settings import BudgetSettings, LimitSettings, ModelSettings
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.rendering import Line, Part, Table, counted, counts_text, depths_text, gold_rows, shows, warned
from reasonrag.run.engine import Budget
from reasonrag.run.scoring import AskedCritic
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

    Raises InputError where a source cannot be read, where sources are of several agents and `allow` does not name
    mixed_renderers, and where `out` cannot be written, is being written, or holds a data set made from other runs and
    `replace` is not given; AuditFailed where rows have errors that `allow` does not name (all files then stay as they
    were); and of a judge what `label_by_judge` does.

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
    settings, told = resolve(PairsSettings, "pairs", flags), watcher or SilentWatcher()
    out = settings.out or default_out(paths_of(runs))
    with _understood(out):
        checks, gate = settings.part(CheckSettings), settings.part(DecontaminationSettings)
        export = DataSetExport(settings.rules, checks, gate, out)
        sources = _sources(runs, out, settings)
        _one_agent_made(sources, settings.allow, told)
        by_judge = settings.label == "judge"
        if settings.as_published:
            by_judge = sources.are_judged_as_published(by_judge=by_judge)
        judge = _judge(settings, chat_model) if by_judge else None
        rehearsed = rehearsed_judge(judge.model.name, "labels", "--model") if judge else sources.rehearsed()
        witnesses = _witnesses(settings, critic_model, judged=by_judge)
        _replaces_other_runs(sources, settings)  # before the lock: a refusal leaves no file behind
        with only_writer(out, flag="--out"), staging_folder(out) as staged:
            replaced = _replaces_other_runs(sources, settings)
            sources.gather(staged, export.tokens, every_step=settings.wants_every_step)
            warnings = [*rehearsed, *keep_prompts(sources.data_sets, staged)]
            gated = export.decontaminate(staged, sources.folders)
            asked = label_by_judge(staged / CANDIDATES, out, judge, chat_model, told) if judge else None
            judging, untold = _labelled(sources, staged, asked, by_outcome=settings.label == "outcome")
            scored = run_to_end(score_by_critics(staged, out, witnesses, told)) if witnesses else None
            critics = scored.model_dump() if scored else {}
            made = PairSummary(judging=judging, critics=critics, warnings=[*warnings, *untold])
            options = settings.options(refines=witnesses is not None and witnesses.paths)
            summary = export.write(staged, sources.folders, gated, options, made)
            others = {each.resolve() for each in sources.folders} - {out.resolve()}
            replace_data_set(staged, out, told.say, obsolete=OF_AN_IMPORT if replaced or others else ())
    return summary


def _one_agent_made(sources: Sources, allow: Sequence[str], told: Watcher) -> None:
    """Raises InputError where several agents made the states, unless the user allows it."""
    if len(agents := sorted({each.agent or OURS for each in sources.origins})) > 1:
        mixed = f"these are states of the agents {' and '.join(agents)}; train takes the data of one agent"
        if "mixed_renderers" not in allow:
            raise InputError(f"{mixed}: make a data set of each agent's runs")
        told.warn(mixed)


def _labelled(
    sources: Sources, staged: Path, asked: Coroutine[Any, Any, Judging] | None, *, by_outcome: bool
) -> tuple[dict[str, Any], list[str]]:
    """How the data were judged, and warnings of that. asked: the work of a judge; None: none is asked now."""
    if asked:
        return run_to_end(asked).model_dump(), []
    if by_outcome:
        rewrite_lines(staged / CANDIDATES, StateRecord, with_outcome_label)
    return sources.judged_before(staged)


def _sources(runs: str | Path | Sequence[str | Path], out: Path, settings: PairsSettings) -> Sources:
    """Raises InputError for sources that cannot be read, or not be labelled so."""
    sources = Sources(paths_of(runs), out)
    if settings.label == "outcome" and settings.as_published:
        raise InputError("--as-published has labels of its own: leave out --label outcome")
    sources.check_labels(settings.label, as_published=settings.as_published)
    for each in OF_PLAIN_STEPS & {*settings.format}:
        sources.check_plain_steps(each)
    others = {each.agent or OURS for each in sources.origins} - {OURS, "tools"}
    if others and (asked := CONVERSATIONS & {*settings.format}):
        raise InputError(
            f"--format {min(asked)} is of the agents {OURS} and tools, whose turns are a conversation with a search "
            f"tool, and these are states of {' and '.join(sorted(others))}: explore with --agent tools, or leave it out"
        )
    return sources


def _replaces_other_runs(sources: Sources, settings: PairsSettings) -> bool:
    """Whether another data set is in `out`. Raises InputError if it must not be replaced."""
    return replaces_other_runs(sources.out, sources.folders, made_from(sources.origins), replace=settings.replace)


@contextmanager
def _understood(out: Path) -> Iterator[None]:
    """Turns errors of reading and writing into messages that a user can act on."""
    try:
        with explained_records():
            yield
    except OSError as error:
        raise InputError(f"cannot read or write {error.filename or out}: {error.strerror or error}") from error


# -- who labels ------------------------------------------------------------------------------------------------


def _judge(settings: PairsSettings, chat_model: ChatModel | None) -> StateJudge:
    """Raises InputError where it has no name."""
    if (name := chat_model.name if chat_model else settings.model) is None:
        flag = "--as-published of a run of prorag" if settings.as_published else "--label judge"
        raise InputError(f"{flag} needs --model, the name of the judge; offline rehearses it for free")
    model = ModelSpec.of(settings.part(ModelSettings), settings.part(LimitSettings), name)
    budget = Budget(Caps.of(settings.part(BudgetSettings)), settings.yes)
    return StateJudge(model, load_prompts(settings.prompts), settings.judge_gold, settings.seed, budget)


def _witnesses(settings: PairsSettings, critic_model: ChatModel | None, *, judged: bool) -> CriticWitnesses | None:
    """The critics, and what they are to score; None without any. judged: whether a judge labels, whose second witness
    are the values. Raises InputError for settings that do not fit together."""
    found = [FoundCritic(critic_model.name)] if critic_model else [find_critic(each) for each in settings.critic]
    confirms, paths = settings.consensus and not judged, "sft" in settings.format
    steps: Literal["right", "plain"] | None = "right" if settings.refine == "steps" else None
    steps = "plain" if "rl" in settings.format else steps
    if settings.refine == "steps" and not (found and paths):
        raise InputError(
            f"--refine steps needs {'--critic, which scores the steps' if paths else '--format sft, which it filters'}"
        )
    if settings.critic_share is not None and (settings.refine != "steps" or settings.critic_threshold is not None):
        raise InputError("--critic-share goes with --refine steps, and instead of --critic-threshold")
    if settings.critic_threshold is not None and not found:
        raise InputError("--critic-threshold needs --critic, whose scores it is about")
    if confirms and not found:
        raise InputError(
            "--consensus needs a second witness: --critic of train-critic, or --label judge, whose second witness are "
            "the values"
        )
    if not found:
        return None
    if not (confirms or paths or steps):
        raise InputError(
            "--critic goes with --consensus, unless a judge labels (the values are its second witness), or with "
            "--format sft or rl"
        )
    limits = Limits.of(settings.part(LimitSettings))
    asked = tuple(AskedCritic(each, critic_spec(each, limits), critic_model) for each in found)
    rules, allowed = settings.rules if confirms else None, settings.allow_critic
    return CriticWitnesses(asked, rules, paths, steps, allowed, settings.max_calls)


# -- what is shown ---------------------------------------------------------------------------------------------


@shows(PairSummary)
def pairs_parts(summary: PairSummary) -> Iterator[Part]:
    """The summary of `pairs` or `warm_up`, what was written, what the audit found, and the next commands."""
    if summary.warm_up:
        yield from warm_up_parts(summary)
        return
    rows = [*summary_rows(summary), ("decontamination", _decontaminated(summary.contamination))]
    yield from warned(summary.warnings)
    yield Table(f"preference pairs  recipe {', '.join(summary.recipes) or 'none'}", rows)
    out = Path(summary.out)
    yield from (Line(f"wrote {out / name} ({counted(count, 'row')})") for name, count in summary.files.items())
    yield Line(f"all candidates: {out / CANDIDATES}; drop reasons: {out / DROPPED}")
    yield from verdict_parts(out, summary.splits, _trains(summary))


def _trains(summary: PairSummary) -> Sequence[object] | None:
    """What the next stage is of ProRAG or of a policy; None where the pairs are what is trained on."""
    if summary.plain_steps:
        return "train-policy", "policy-qwen2.5-7b"
    if summary.refinement.get("refine") == "steps":
        return ("train", "prorag-refine") if summary.refinement["kept"] else ()
    return ("train-critic", "prorag-critic") if summary.judging and summary.recipes == ["prorag"] else None


def summary_rows(summary: PairSummary) -> Iterator[tuple[str, object]]:
    """By name, for the terminal and the card of a published data set."""
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
            yield from _refined(Refinement.model_validate(summary.refinement))
    yield "effective sample size", summary.effective
    yield "mean confidence", summary.mean_confidence
    yield "by chosen action", plain_types(counts_text(summary.pairs_by_action_type))
    yield "by depth", depths_text(summary.pairs_by_layer)
    yield "same type on both sides", summary.same_type_pairs
    yield "tagged", summary.pairs_by_tag
    if of := summary.plain_steps:
        equal, left = f"{of['equal']:,} with one outcome alone", f"{counted(of['not_plain'], 'draw')} left out"
        yield "plain steps", f"{of['steps']:,} of {counted(of['questions'], 'question')}, {equal}; {left}"
    yield from gold_rows(summary.gold_agreement)
    yield "dropped", summary.dropped


def _refined(found: Refinement) -> Iterator[tuple[str, object]]:
    best = "" if found.share is None else f", the best {found.share:.0%} of those with a score"
    seen = found.paths if found.refine == "paths" else f"{found.steps:,} of {counted(found.paths, 'right attempt')}"
    yield f"{found.refine} kept", f"{found.kept:,} of {seen}, {found.unscored:,} without a score"
    yield "kept from a score of", f"{found.threshold:.3g}{best}"
    yield "kept by action", counts_text(found.kept_by_action_type)


def _decontaminated(contamination: dict[str, Any]) -> str:
    """The evaluation splits that the questions were checked against, and how many were found."""
    if not (checked := contamination.get("checked")):
        return "not checked: no evaluation split"
    asked = counted(sum(each["questions"] for each in checked), "question")
    splits = f"{counted(len(checked), 'evaluation split')} ({asked})"
    return f"checked against {splits}: {contamination['questions']:,} found, {contamination['dropped']:,} removed"
