"""`reasonrag pairs`: makes one preference data set, ready for training, from runs or earlier data sets.

Finds the sources and reads their configurations; labels, filters and formats are decided in `preference`. Labels by
value cost nothing: run it as often as you like.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from preference import (
    ExportOptions,
    Origin,
    PairSummary,
    RolloutRecord,
    export_pairs,
)
from preference.export.summary import CANDIDATES, QUESTIONS, SUMMARY, ExportFacts
from preference.labelled_runs import label_run, merge_candidates, recount_tokens
from preference.labelling import TokenCounter, origin_of
from preference.records import read_rollouts
from reasonrag.agent.prompting import load_prompts
from reasonrag.agent.settings import TIMEOUT_S
from reasonrag.concurrency import run_to_end
from reasonrag.curation.audit.audit import AuditInspector, parse_allowed, write_audit
from reasonrag.curation.decontamination import decontaminate
from reasonrag.curation.existing_data_set import (
    MadeFrom,
    kept_from_before,
    lines_in,
    origins_in,
    remove_import,
    remove_pages,
    replaces_other_runs,
)
from reasonrag.curation.judge_labels import Judging, StateJudge, label_by_judge
from reasonrag.curation.settings import PairsSettings
from reasonrag.curation.token_counters import token_counter
from reasonrag.data.eval_splits import EvalSplits, add_named, add_referenced
from reasonrag.data.item_files import explained_records
from reasonrag.errors import InputError
from reasonrag.files import CONFIG, ROLLOUTS, only_writer, rollouts_in
from reasonrag.llm.budget import Caps
from reasonrag.llm.chat import ChatModel, Sampling
from reasonrag.llm.endpoint.endpoint import Limits
from reasonrag.llm.model_spec import ModelSpec
from reasonrag.llm.offline import NAME as OFFLINE
from reasonrag.llm.prices import find_price
from reasonrag.progress import SilentWatcher, Watcher
from reasonrag.run_config import find_config, versions
from reasonrag.settings import resolve

_SCRATCH = ".sources-"
"""How folders begin that exist while sources are read."""


def pairs(
    runs: str | Path | Sequence[str | Path],
    *,
    chat_model: ChatModel | None = None,
    watcher: Watcher | None = None,
    processes: int = 1,
    **flags: Any,
) -> PairSummary:
    """Write the data set of `runs`; the keyword arguments are the command's flags (`min_margin` for `--min-margin`).

    runs: run directories, rollouts files, and directories of data sets, which have candidates.jsonl. chat_model: the
    judge of `label="judge"`, instead of the one that the settings would open. processes: how many share the trees of a
    large run; more than one only where the calling script has a main guard, as `multiprocessing` asks for.

    Raises InputError where a source cannot be read, and where `out` cannot be written, is being written, or holds a
    data set made from other runs and `replace` is not given; AuditFailed where rows have errors that `allow` does not
    name (all files but the candidates then stay as they were, and a data set of other runs altogether); and of a judge
    what `label_by_judge` does.
    """
    settings = resolve(PairsSettings, "pairs", flags)
    tokens, warnings = token_counter(settings.tokenizer)
    inspector = AuditInspector(tokens, allow=parse_allowed(settings.allow), name=settings.out.resolve().name)
    if "parquet" in settings.options.formats and find_spec("pyarrow") is None:
        raise InputError("--format parquet needs the hub extra: pip install 'reasonrag[hub]'")
    watcher = watcher or SilentWatcher()
    out, options = settings.out, settings.options
    with _understood(out):
        splits = EvalSplits()
        add_named(splits, settings.eval)  # a bad file is told before anything is labelled
        judge = _state_judge(settings, chat_model) if settings.label == "judge" else None
        sources = _sources(runs, out)
        _replaces_other_runs(out, sources, replace=settings.replace)  # before the lock: a refusal leaves no file behind
        with only_writer(out, flag="--out"), _gathering(out, sources, options, replace=settings.replace) as place:
            gather(sources, place.folder, tokens, processes=processes)
            add_referenced(splits, sources, allowed=settings.allow_eval)
            gated = decontaminate(place.folder, splits, allowed=settings.allow_eval)
            if judge:
                labelling = label_by_judge(place.folder / CANDIDATES, out, judge, chat_model, watcher)
                judging = run_to_end(labelling).model_dump()
                untold: list[str] = []
            else:
                judging, untold = _judged_before(sources, place.folder)
            facts = ExportFacts(
                sources=tuple(map(str, sources)),
                judging=judging,
                token_counter=tokens.name,
                contaminated=gated.contaminated,
                contamination=gated.summary.model_dump(),
                warnings=(*warnings, *untold, *place.kept, *gated.warnings),
                versions=versions(),
            )
            summary = export_pairs(place.folder, out, settings.rules, options, facts, inspector=inspector)
            gated.write(out)  # not before: if rows are refused, it stays that of the rows that are there
            write_audit(inspector.report, out)
            for removed in remove_pages(out):
                watcher.say(removed)
    return summary


def _replaces_other_runs(out: Path, sources: Sequence[Path], *, replace: bool) -> bool:
    """Whether another data set is in `out`. Raises InputError if it must not be replaced."""
    origins: set[Origin] = set()
    for source in sources:
        found = origins_in(source) if is_data_set(source) else {_origin_of_run(rollouts_in(source))}
        origins |= {each for each in found or () if each is not None}

    def questions() -> int:
        return sum(lines_in(each / QUESTIONS if is_data_set(each) else rollouts_in(each)) for each in sources)

    return replaces_other_runs(out, sources, MadeFrom.of(origins), questions, replace=replace)


@dataclass(frozen=True)
class _Place:
    """Where candidates are gathered: `out`, or a folder apart while a data set of other runs stands there. kept: what
    stays of that one, in sentences."""

    folder: Path
    kept: Sequence[str] = ()


@contextmanager
def _gathering(out: Path, sources: Sequence[Path], options: ExportOptions, *, replace: bool) -> Iterator[_Place]:
    """A data set of other runs stays whole until the new one is: its candidates are replaced last, at a good end."""
    for left in out.glob(f"{_SCRATCH}*"):  # of a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    if not _replaces_other_runs(out, sources, replace=replace):
        yield _Place(out)
        return
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=out, ignore_cleanup_errors=True) as scratch:
        yield _Place(Path(scratch), kept_from_before(out, options))
        remove_import(out)
        for name in (CANDIDATES, QUESTIONS):  # questions last: they say from which runs the data set is made
            Path(scratch, name).replace(out / name)


def plan_judging(runs: str | Path | Sequence[str | Path], **flags: Any) -> str:
    """What `pairs` with `label="judge"` would request and cost, in a line. Asks nothing, and leaves `out` unchanged."""
    settings = resolve(PairsSettings, "pairs", flags)
    tokens, _ = token_counter(settings.tokenizer)
    with _understood(settings.out), tempfile.TemporaryDirectory(prefix="reasonrag-") as scratch:
        sources = _sources(runs, settings.out)
        _replaces_other_runs(settings.out, sources, replace=settings.replace)
        gather(sources, Path(scratch), tokens)
        return _state_judge(settings).describe(Path(scratch) / CANDIDATES)


def _state_judge(settings: PairsSettings, chat_model: ChatModel | None = None) -> StateJudge:
    """The judge that the settings name, at temperature 0."""
    name = chat_model.name if chat_model else settings.model
    if name is None:
        raise InputError("--label judge needs --model, the name of the judge; offline rehearses it for nothing")
    model = ModelSpec(
        name,
        Sampling(temperature=0.0, top_p=1.0, max_tokens=settings.max_reply_tokens, extra_body=settings.extra_body),
        Limits(settings.concurrency, TIMEOUT_S),
        price=find_price(
            name,
            addresses=settings.base_url,
            extra_body=settings.extra_body,
            tokens_in=settings.price_in,
            tokens_out=settings.price_out,
        ),
        addresses=tuple(settings.base_url),
        in_process=name == OFFLINE and not settings.base_url,
    )
    caps = Caps(settings.max_cost, settings.max_calls)
    return StateJudge(model, load_prompts(settings.prompts), settings.judge_gold, settings.seed, caps, settings.yes)


_JUDGED = b'"label":"judge"'
"""Occurs only in lines of states that a judge labelled: text inside JSON has no bare quotes."""


def _judged_before(sources: Sequence[Path], gathered: Path) -> tuple[dict[str, Any], list[str]]:
    """The judge recorded in a source's summary, for labels in the candidates; and a warning if it is unknown or there
    were several judges."""
    with (gathered / CANDIDATES).open("rb") as lines:
        if not any(_JUDGED in line for line in lines):
            return {}, []
    told = [judging for judging in map(_judging_of, sources) if judging]
    if len(told) == 1:
        return told[0] | {"session_calls": 0}, []
    why = "several sources were judged" if told else f"no {SUMMARY} of a source tells of one"
    return {}, [f"labels are of a judge, and {why}: what it was, and what it cost, is not in this summary"]


def _judging_of(source: Path) -> dict[str, Any]:
    try:
        return Judging.model_validate(orjson.loads((source / SUMMARY).read_bytes())["judging"]).model_dump()
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, ValidationError):
        return {}  # a run, or files that were copied without it


@contextmanager
def _understood(out: Path) -> Iterator[None]:
    """Turns errors of reading and writing into messages that a user can act on."""
    try:
        with explained_records():
            yield
    except OSError as error:
        raise InputError(f"cannot read or write {error.filename or out}: {error.strerror or error}") from error


def gather(
    runs: str | Path | Sequence[str | Path], out: Path, tokens: TokenCounter, *, processes: int = 1
) -> list[Path]:
    """Write `candidates.jsonl` and `questions.jsonl` of all sources below `out`, every length by one counter; returns
    what the sources are.

    Raises InputError for a source that is neither a run nor a data set, and for an `out` that is a run.
    """
    sources = _sources(runs, out)
    if len(sources) == 1 and not is_data_set(sources[0]):
        _label(sources[0], out, tokens, processes)
        return sources
    if [each.resolve() for each in sources] == [out.resolve()]:
        recount_tokens(out, tokens)
        return sources
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=out, ignore_cleanup_errors=True) as scratch:
        folders = []
        for number, source in enumerate(sources):
            folders.append(source if is_data_set(source) else Path(scratch, str(number)))
            if not is_data_set(source):
                _label(source, folders[-1], tokens, processes)
        merge_candidates(folders, out)
        recount_tokens(out, tokens)
    return sources


def _sources(runs: str | Path | Sequence[str | Path], out: Path) -> list[Path]:
    """The source folders. Raises InputError if one cannot be read or `out` is a run."""
    if (out / ROLLOUTS).exists():
        raise InputError(f"--out {out} is a run directory, whose summary would be overwritten; choose another")
    sources = [Path(each) for each in ([runs] if isinstance(runs, str | Path) else runs)]
    if not sources:
        raise InputError("give at least one run directory of reasonrag generate")
    for source in sources:
        if not is_data_set(source) and not rollouts_in(source).is_file():
            missing = rollouts_in(source)
            raise InputError(
                f"there is no {missing}; give a run directory. Make one with: reasonrag generate --run {source}"
            )
    return sources


def is_data_set(folder: Path) -> bool:
    """Whether a folder holds what `pairs` or `import` writes."""
    return (folder / CANDIDATES).is_file() and (folder / QUESTIONS).is_file()


def _label(source: Path, out: Path, tokens: TokenCounter, processes: int) -> None:
    rollouts = rollouts_in(source)
    label_run(rollouts, out, origin=_origin_of_run(rollouts), tokens=tokens, processes=processes)


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
        raise InputError(f"{config} is not the configuration of the rollouts beside it; put back the one that is")
    decides = made.decides_answers
    return origin.model_copy(
        update={
            "revision": made.operational.hub_revision or decides.questions_sha256 or None,
            "teacher": decides.model or None,
            "value_model": decides.student,
            "retriever": decides.retriever or None,
            "top_k": decides.top_k,
            "max_steps": decides.max_steps,
            "max_passage_chars": decides.max_passage_chars,
        }
    )
