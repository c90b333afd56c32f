"""`reasonrag import`: data published by ReasonRAG, as a run directory (trees) or as a data set (pairs).

Finds the files, has `preference.published.trees` and `preference.published.rows` interpret them, and writes the result
with a report of every repair and refusal. Knows no repair itself. What neither the files nor a flag tells stays null:
teacher, data set, golden answers of pairs.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from pydantic import BaseModel

from preference import NO_FILTERS, RolloutRecord
from preference.candidates import QuestionRecord, question_key
from preference.export.files import atomic_replacement, write_file, write_json
from preference.export.formats import PAIRS_FILE
from preference.export.json_stream import JsonItem
from preference.export.staging import LAST, UNFINISHED, put_in_place, staging_folder
from preference.export.summary import CANDIDATES, DATASET_INFO_FILE, QUESTIONS, SUMMARY, PairSummary
from preference.labelled_runs import recount_tokens
from preference.published.repairs import ImportRules, KnownQuestion, RepairCount, RepairLog, Unusable
from preference.published.rows import PublishedRowReader
from preference.published.trees import RECIPE, read_tree
from reasonrag.agent.imported_prompts import ImportedPrompts, imported_prompts, with_prompts
from reasonrag.agent.prompting import PROMPTS, PUBLISHED, load_prompts, renderer_hash, save_prompts, saved_prompts
from reasonrag.curation.audit.catalogue import ERRORS
from reasonrag.curation.existing_data_set import (
    IMPORT_REPORT,
    REJECTED,
    made_from,
    origins_in,
    pages_of,
    refuse_changed_prompts,
)
from reasonrag.curation.export import DataSetExport
from reasonrag.curation.import_sources import ImportFiles, ImportKind, ImportSource, Say, common_kind, find_sources
from reasonrag.curation.settings import CheckSettings, DecontaminationSettings, ImportSettings
from reasonrag.data.questions import open_questions
from reasonrag.errors import InputError
from reasonrag.files import CONFIG, FAILURES, ROLLOUTS, only_writer, writing
from reasonrag.rendering import Line, Part, Table, counted, counts_text, warned
from reasonrag.run_config import RunConfig, versions
from reasonrag.settings import resolve
from reasonrag.signatures import public_call

UNKNOWN = "unknown"
_WRITTEN = (
    ROLLOUTS,
    FAILURES,
    CONFIG,
    CANDIDATES,
    QUESTIONS,
    PAIRS_FILE,
    DATASET_INFO_FILE,
    SUMMARY,
    IMPORT_REPORT,
    REJECTED,
    PROMPTS,
)
"""Files that an import, or the commands after it, would replace."""
_SPLITS = ("train", "dev", "validation", "val", "test")


class FoundPrompts(BaseModel):
    """The prompts that the rows were made with. renderer: their hash. states, fitting_states: distinct prompts, and
    those that the renderer gives byte for byte. unseen: turns that no row shows. folders: where they were written; none
    where they are those of the package."""

    renderer: str
    states: int
    fitting_states: int
    unseen: list[str] = []
    folders: list[str] = []


class ImportReport(BaseModel):
    """What an import read, repaired, refused and wrote; the content of `import.json`."""

    kind: ImportKind
    out: str
    sources: list[ImportSource] = []
    dataset: str | None = None
    split: str | None = None
    teacher: str | None = None
    config_hash: str | None = None
    """Of trees only."""
    items: int = 0
    """Trees or rows in the files."""
    kept: int = 0
    questions: int = 0
    without_golden_answers: int = 0
    steps: int = 0
    """Steps; of trees only."""
    states: int = 0
    """This and the next two: of pairs only."""
    prompts: FoundPrompts | None = None
    """Of pairs only; None where the renderer gives no prompt of them."""
    exported: int = 0
    not_exported: dict[str, int] = {}
    """Pairs kept as candidates but not as rows, by reason as in `summary.json`."""
    repairs: dict[str, RepairCount] = {}
    refusals: dict[str, RepairCount] = {}
    warnings: list[str] = []
    next_commands: list[str] = []
    versions: dict[str, str] = {}

    def shown(self) -> Iterator[Part]:
        """What was read and written, each kind of repair and refusal, and the next commands."""
        yield Table(f"imported {self.kind}", self._rows())
        for title, counts in (("repaired", self.repairs), ("rejected", self.refusals)):
            if counts:
                rows = [
                    (name.replace("_", " "), each.count, each.meaning, each.examples[0])
                    for name, each in counts.items()
                ]
                yield Table(title, rows, ("", "", "meaning", "first"))
        yield from warned(self.warnings)
        yield Line(f"wrote {self.out}")
        yield from (Line(f"next: {each}") for each in self.next_commands)

    def _rows(self) -> Iterator[tuple[str, object]]:
        trees = self.kind == "trees"
        yield "read", [f"{each.name} ({each.items:,})" for each in self.sources]
        yield "trees" if trees else "rows", f"{self.kept:,} of {self.items:,}"
        yield "questions", f"{self.questions:,} ({self.without_golden_answers:,} without gold answers)"
        if trees:
            yield "steps", self.steps
        else:
            yield "states", self.states
            if (found := self.prompts) and found.folders:
                fitting = f"{found.fitting_states:,} of {found.states:,} states"
                yield "prompts", f"{', '.join(found.folders)} (renderer {found.renderer}; {fitting})"
            yield "written", f"{counted(self.exported, 'pair')}; dropped: {counts_text(self.not_exported)}"
        yield "teacher", self.teacher or "unknown"


@public_call(ImportSettings)
def import_published(
    sources: str | Path | Sequence[str | Path], *, say: Say = lambda _: None, **flags: Any
) -> ImportReport:
    """Read published trees or pairs, repair them, and write a run or a data set.

    Raises InputError if a source cannot be read, holds neither trees nor pairs, or nothing usable, and if `out` is
    taken; nothing is written then.

    Example:
        >>> report = reasonrag.import_published("data/first/RAG_ProGuide.json", out="data/imported")
        >>> report.kind
        'pairs'

    Args:
        sources: files, or `hf://datasets/ORG/NAME/FILE`.
        say: receives progress.
    """
    settings = resolve(ImportSettings, "import", flags)
    given = [sources] if isinstance(sources, str | Path) else list(sources)
    out = settings.out
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; give a directory")
    with writing(out), only_writer(out, flag="--out"), staging_folder(out) as staged:
        with tempfile.TemporaryDirectory(dir=staged) as unpacked:
            found = find_sources(given, Path(unpacked), say)
            kind = common_kind(found.files)
            _check_place(out, kind, found, settings.questions, replace=settings.replace)
            if kind == "pairs" and origins_in(out):
                refuse_changed_prompts(out)
            known = _known_questions(settings.questions, settings.dataset, settings.split, Path(unpacked), say)
            begun = ImportReport(
                kind=kind,
                out=str(out),
                sources=[file.source for file in found.files],
                dataset=settings.dataset,
                split=settings.split,
                teacher=settings.teacher,
                versions=versions(),
            )
            rules = ImportRules(
                settings.dataset or UNKNOWN, settings.split or UNKNOWN, settings.teacher, questions=known
            )
            if kind == "pairs":
                report = _import_pairs(found, out, staged, begun, rules)
            else:
                report = _import_trees(found, staged, begun, rules)
        write_json(staged / IMPORT_REPORT, report.model_dump())
        pages = pages_of(out)
        if kind == "pairs" and not (staged / PROMPTS).exists():
            shutil.rmtree(out / PROMPTS, ignore_errors=True)  # of the earlier import
        put_in_place(staged, out, obsolete=pages, last=(*LAST, IMPORT_REPORT))
    for removed in pages.values():
        say(removed)
    return report


# -- known questions -------------------------------------------------------------------------------------------


def _known_questions(
    files: Sequence[Path], dataset: str | None, split: str | None, home: Path, say: Say
) -> dict[str, KnownQuestion]:
    """The questions of --questions by key; the first file with a question wins. home: for rows as JSONL."""
    known: dict[str, KnownQuestion] = {}
    alone = len(files) == 1
    for path in files:
        in_layout = path.stem in _SPLITS and path.absolute().parent.name
        its_dataset = (alone and dataset) or (path.absolute().parent.name if in_layout else path.stem)
        its_split = (alone and split) or (path.stem if in_layout else split or UNKNOWN)
        source = open_questions(path, dataset=its_dataset, split=its_split, home=home, say=say)
        if source.unread:
            say(source.unread)
        for each in source.read():
            about = KnownQuestion(each.id, each.golden_answers, its_dataset, its_split, source.sha256)
            known.setdefault(question_key(each.question), about)
    return known


# -- the output directory --------------------------------------------------------------------------------------


def _check_place(out: Path, kind: ImportKind, found: ImportFiles, questions: Sequence[Path], *, replace: bool) -> None:
    """Raises InputError if `out` holds something else. An earlier import of the same files, by name or content, is
    replaced, one of other files of the same kind with --replace; a file that is being read never."""
    read = [(file.source.name, file.path) for file in found.files] + [(str(path), path) for path in questions]
    for name, path in read:
        if path.resolve().parent == out.resolve():
            raise InputError(f"--out {out} contains the source {name}, which could be overwritten; give another")
    taken = [name for name in _WRITTEN if (out / name).exists()]
    begun = _sources_in(out / UNFINISHED, kind)  # of an import that was killed
    earlier = _sources_in(out / IMPORT_REPORT, kind) if begun is None else begun
    if not taken and begun is None:
        return
    if earlier is None:
        raise InputError(f"--out {out} is taken: it has {taken[0]}; choose another directory")
    same = earlier.keys() == {file.source.sha256 for file in found.files} or (
        set(earlier.values()) == {file.source.name for file in found.files}  # whose content may have been corrected
    )
    there = made_from(origins_in(out) or ()).keys()  # of pairs; what came to them later is not in the report
    if not replace and not (same and (begun or there <= earlier.keys())):
        raise InputError(
            f"--out {out} holds an import of other files, or more than that: {', '.join(earlier.values())}. "
            "Nothing was changed. Choose another --out, or put the new import in its place with --replace"
        )


def _sources_in(report: Path, kind: ImportKind) -> dict[str, str] | None:
    """Names of the imported files by SHA-256; None without a report of an import of this kind."""
    try:
        earlier = orjson.loads(report.read_bytes())
        if earlier["kind"] != kind:
            return None
        return {str(each["sha256"]): str(each["name"]) for each in earlier["sources"]}
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return None


def _completed(begun: ImportReport, found: ImportFiles, repair_log: RepairLog, **more: Any) -> ImportReport:
    return begun.model_copy(
        update={
            "items": sum(file.source.items for file in found.files),
            "repairs": _most_frequent_first(repair_log.repairs),
            "refusals": _most_frequent_first(repair_log.refusals),
            **more,
        }
    )


def _most_frequent_first(found: dict[str, RepairCount]) -> dict[str, RepairCount]:
    return dict(sorted(found.items(), key=lambda each: (-each[1].count, each[0])))


def _nothing_usable(what: str, found: ImportFiles, repair_log: RepairLog) -> InputError:
    reasons = "; ".join(f"{each.count:,}: {each.meaning}" for each in repair_log.refusals.values())
    return InputError(f"no usable {what} in {', '.join(file.source.name for file in found.files)}. {reasons}")


# -- trees -----------------------------------------------------------------------------------------------------


class _TreeImporter:
    """Converts trees one by one and spools their lines to a file, so that trees of a question end up together."""

    def __init__(self, rules: ImportRules, lines: BinaryIO, failures: BinaryIO) -> None:
        self.repair_log = RepairLog()
        self.kept = self.steps = self.without_golden_answers = self.without_rewards = 0
        self.places: dict[str, list[tuple[int, int]]] = {}
        """Offset and length of each line, by question."""
        self._rules = rules
        self._lines = lines
        self._failures = failures
        self._ids: set[str] = set()
        self._seen: set[bytes] = set()

    def take(self, item: JsonItem, *, where: str, revision: str) -> None:
        """Keep the tree of an item, or record why it is refused."""
        try:
            record = self._read(item, where=where, revision=revision)
        except Unusable as error:
            self.repair_log.refused(error.cause, where)
            failure = {"item": where, "revision": revision, "cause": error.cause, "message": str(error)}
            self._failures.write(orjson.dumps(failure, option=orjson.OPT_APPEND_NEWLINE))
            return
        self.kept += 1
        self.steps += len(record.nodes) - 1
        self.without_golden_answers += not record.golden_answers
        self.without_rewards += all(node.reward is None for node in record.nodes)
        self._keep(record)

    def _read(self, item: JsonItem, *, where: str, revision: str) -> RolloutRecord:
        found = RepairLog()
        if item.repaired:
            found.repaired("unreadable_characters", where)
        if item.too_long:
            raise Unusable("too_long")
        record = read_tree(item.value, self._rules, found, where=where, revision=revision)
        mark = hashlib.sha256(record.model_copy(update={"revision": None}).to_line()).digest()
        if mark in self._seen:
            raise Unusable("duplicate_tree")
        self._seen.add(mark)
        self.repair_log.include(found)
        return record

    def _keep(self, record: RolloutRecord) -> None:
        """Write a line under a unique id."""
        name, number = record.question_id, 1
        while name in self._ids:
            number += 1
            name = f"{record.question_id}-{number}"
        if number > 1:
            self.repair_log.repaired("id_taken", name)
            record = record.model_copy(update={"question_id": name})
        self._ids.add(name)
        line = record.to_line()
        self.places.setdefault(question_key(record.question), []).append((self._lines.tell(), len(line)))
        self._lines.write(line)

    def write(self, target: BinaryIO) -> None:
        """Write all lines, grouped by question."""
        for places in self.places.values():
            for start, length in places:
                self._lines.seek(start)
                target.write(self._lines.read(length))


def _import_trees(found: ImportFiles, staged: Path, begun: ImportReport, rules: ImportRules) -> ImportReport:
    """begun: the report as far as it is known before anything is read."""
    config = _config(found, begun.teacher, rules)
    rules = replace(rules, config_hash=config.config_hash)
    with ExitStack() as opened:
        lines = opened.enter_context(tempfile.TemporaryFile(dir=staged))
        rollouts, failures = (opened.enter_context(atomic_replacement(staged / name)) for name in (ROLLOUTS, FAILURES))
        trees = _TreeImporter(rules, lines, failures)
        for item, where, revision in found.items():
            trees.take(item, where=where, revision=revision)
        if not trees.kept:
            raise _nothing_usable("tree", found, trees.repair_log)
        trees.write(rollouts)
    write_file(staged / CONFIG, config.to_bytes())
    return _completed(
        begun,
        found,
        trees.repair_log,
        config_hash=rules.config_hash,
        kept=trees.kept,
        questions=len(trees.places),
        without_golden_answers=trees.without_golden_answers,
        steps=trees.steps,
        warnings=_warnings_of_trees(trees, rules),
        next_commands=_next_for_trees(Path(begun.out)),
    )


def _config(found: ImportFiles, teacher: str | None, rules: ImportRules) -> RunConfig:
    """The configuration of a run whose trees another system explored."""
    hashes = [file.source.sha256 for file in found.files]
    decides: dict[str, Any] = {
        "imported": "trees of the published ReasonRAG pipeline",
        "dataset": rules.dataset,
        "split": rules.split,
        "questions_sha256": hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest(),
        "golden_answers_sha256": sorted({each.revision for each in rules.questions.values() if each.revision}),
        "recipe": RECIPE.model_dump(mode="json"),
    }
    if teacher:
        decides["model"] = teacher
    files = [file.source.model_dump(include={"name", "sha256", "bytes"}) for file in found.files]
    return RunConfig.of(decides, {"imported": files})


def _warnings_of_trees(trees: _TreeImporter, rules: ImportRules) -> list[str]:
    warnings = []
    if trees.without_rewards:
        warnings.append(
            f"{counted(trees.without_rewards, 'tree')} without rewards will yield no pairs: no answer was reached, or "
            "no gold answer is known"
        )
    if trees.without_golden_answers:
        warnings.append(
            f"{counted(trees.without_golden_answers, 'tree')} without gold answers: their rewards cannot be "
            "recomputed. Give --questions FILE"
        )
    if rules.split == UNKNOWN:
        warnings.append(_NO_SPLIT)
    return warnings


_NO_SPLIT = (
    "the split of these questions is unknown: give --dataset and --split, or --questions, and never evaluate on "
    "questions that may be among them"
)


def _next_for_trees(out: Path) -> list[str]:
    """The next commands: pairs by our rules, and by the published ones."""
    ours, published = (
        shlex.join(["reasonrag", "pairs", str(out), "--out", f"data/{out.name}{end}"]) for end in ("", "-as-published")
    )
    return [ours, f"{published} --as-published"]


# -- pairs -----------------------------------------------------------------------------------------------------


def _import_pairs(found: ImportFiles, out: Path, staged: Path, begun: ImportReport, rules: ImportRules) -> ImportReport:
    """begun: the report as far as it is known before anything is read."""
    repair_log = RepairLog()
    reader = PublishedRowReader(rules, repair_log)
    with ExitStack() as opened:
        questions, candidates, rejected = (
            opened.enter_context(atomic_replacement(staged / name)) for name in (QUESTIONS, CANDIDATES, REJECTED)
        )
        for item, where, revision in found.items():
            _take_row(reader, item, repair_log, rejected, where=where, revision=revision)
        if not reader.rows:
            raise _nothing_usable("pair", found, repair_log)
        states, asked = list(reader.states()), list(reader.questions())
        imported = imported_prompts(states, load_prompts())
        for state in states:
            candidates.write(with_prompts(state, imported).to_line())
        questions.writelines(with_prompts(question, imported).to_line() for question in asked)
    stated = any(each.origin.renderer for each in asked)
    prompts, warnings = _write_prompts(imported, staged, out, stated=stated, states=len(states))
    summary = _export(staged, out)
    return _completed(
        begun,
        found,
        repair_log,
        kept=reader.rows,
        questions=len(asked),
        without_golden_answers=sum(not each.golden_answers for each in asked),
        states=len(states),
        prompts=prompts,
        exported=summary.pairs,
        not_exported={reason: count for reason, count in summary.dropped.items() if count},
        warnings=[*_warnings_of_pairs(asked, begun.split, summary), *warnings],
        next_commands=[
            shlex.join(["reasonrag", "audit", str(out)]),
            shlex.join(["reasonrag", "train", "qwen2.5-7b-dpo-full", "--data", str(out), "--out", f"saves/{out.name}"]),
            shlex.join(["reasonrag", "pairs", str(out), "--out", f"{out}-filtered"]),
        ],
    )


def _write_prompts(
    imported: ImportedPrompts | None, staged: Path, out: Path, *, stated: bool, states: int
) -> tuple[FoundPrompts | None, list[str]]:
    """Put prompts that are not ours beside the data, and the published ones also where --prompts finds them by name;
    with warnings about what they do not cover.

    stated: whether rows name their renderer, as those of reasonrag do; the published ones do not. Nothing else in that
    place is overwritten.
    """
    if imported is None:
        unknown = (
            f"the renderer reproduces none of the {states:,} prompts of these rows, so no prompts were extracted. "
            "Ask a model trained on these rows with the words of their system turns: --prompts DIR"
        )
        return None, [unknown]
    found = FoundPrompts(
        renderer=renderer_hash(imported.prompts),
        states=imported.states,
        fitting_states=imported.fitting_states,
        unseen=list(imported.unseen),
    )
    if found.renderer == renderer_hash(load_prompts()):
        return found, imported.warnings
    save_prompts(imported.prompts, staged / PROMPTS)
    found.folders.append(str(out / PROMPTS))
    if imported.prompts.begin is None or stated:
        return found, imported.warnings
    named = Path(PROMPTS, PUBLISHED)
    if not named.exists():
        save_prompts(imported.prompts, named, shared=True)
    there = saved_prompts(named)
    if there and renderer_hash(there) == found.renderer:
        found.folders.append(str(named))
        return found, imported.warnings
    other = (
        f"{named} has different content and was not changed; --prompts {PUBLISHED} still refers to it. The prompts of "
        f"these rows are in {found.folders[0]}"
    )
    return found, [*imported.warnings, other]


def _take_row(
    reader: PublishedRowReader, item: JsonItem, repair_log: RepairLog, rejected: BinaryIO, *, where: str, revision: str
) -> None:
    try:
        if item.too_long:
            raise Unusable("too_long")  # noqa: TRY301 - refused like others
        reader.add(item.value, where=where, revision=revision)
    except Unusable as error:
        repair_log.refused(error.cause, where)
        line = {"item": where, "revision": revision, "cause": error.cause, "message": str(error), "row": item.value}
        rejected.write(orjson.dumps(line, default=str, option=orjson.OPT_APPEND_NEWLINE))
    else:
        if item.repaired:
            repair_log.repaired("unreadable_characters", where)


def _export(staged: Path, out: Path) -> PairSummary:
    """Export every candidate that parsed; filtering is left to the user, later."""
    # problems of published rows are reported by `reasonrag audit`, the next command
    export = DataSetExport(NO_FILTERS, CheckSettings(allow=list(ERRORS)), DecontaminationSettings(), out)
    recount_tokens(staged, export.tokens)
    gated = export.decontaminate(staged, [staged])
    return export.write(staged, [out], gated)


def _warnings_of_pairs(asked: Sequence[QuestionRecord], split: str | None, summary: PairSummary) -> list[str]:
    warnings = [each for each in summary.warnings if f"/{UNKNOWN} questions" not in each]
    without = sum(not each.golden_answers for each in asked)
    if without:
        warnings.append(
            f"{counted(without, 'question')} without gold answers: give --questions FILE, such as FlashRAG's "
            "DATASET/SPLIT.jsonl"
        )
    if any(each.origin.split == UNKNOWN for each in asked) and not split:
        warnings.append(_NO_SPLIT)
    return warnings
