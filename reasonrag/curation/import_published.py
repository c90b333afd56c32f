"""`reasonrag import`: data published by ReasonRAG, as a run directory (trees) or as a data set (pairs).

Finds the files, has `preference.published.trees` and `preference.published.rows` interpret them, and writes the result
with a report of every repair and refusal. Knows no repair itself. What neither the files nor a flag tells stays null:
teacher, data set, golden answers of pairs.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal

import orjson
from pydantic import BaseModel, Field

from preference import NO_FILTERS, ExportOptions, PairSummary
from preference.candidate_records import question_key
from preference.export.atomic_export import LAST, UNFINISHED, staging_folder
from preference.export.formats import PAIRS_FILE, TURNS_FILE
from preference.export.private_files import atomic_replacement, write_file, write_json
from preference.export.summary import CANDIDATES, DATASET_INFO_FILE, QUESTIONS, SUMMARY
from preference.labelled_runs import recount_tokens
from preference.published.repairs import ImportRules, KnownQuestion, Notes, RepairCount, Unusable, count
from preference.published.rows import PublishedRowReader, is_row
from preference.published.trees import RECIPE, is_tree, read_tree
from reasonrag.agent.prompting import PROMPTS
from reasonrag.agent.protocols.known import renderer_hash
from reasonrag.curation.audit.catalogue import ERRORS
from reasonrag.curation.existing_data_set import IMPORT_REPORT, REJECTED, replace_data_set
from reasonrag.curation.export import DataSetExport, take_prompts
from reasonrag.curation.settings import CheckSettings, DecontaminationSettings, ImportSettings
from reasonrag.data.compressed import Say, on_the_hub, plain_file
from reasonrag.data.item_files import read_items
from reasonrag.data.questions import open_questions
from reasonrag.errors import InputError
from reasonrag.files import CONFIG, FAILURES, ROLLOUTS, file_digest, only_writer, reading, writing
from reasonrag.rendering import Line, Part, Shown, Table, counted, counts_text, next_command, warned
from reasonrag.run_config import RunConfig, versions
from reasonrag.settings import resolve
from reasonrag.signatures import public_call

UNKNOWN = "unknown"
_WRITTEN = (
    *(ROLLOUTS, FAILURES, CONFIG, CANDIDATES, QUESTIONS, PAIRS_FILE, TURNS_FILE, DATASET_INFO_FILE, SUMMARY),
    *(IMPORT_REPORT, REJECTED, PROMPTS),
)
"""Files that an import, or the commands after it, would replace."""
_SPLITS = ("train", "dev", "validation", "val", "test")
ImportKind = Literal["trees", "pairs"]


class ImportSource(BaseModel):
    """A file that was read. name: as given. path: where it was on this machine, unpacked or downloaded."""

    name: str
    sha256: str
    bytes: int
    items: int = 0
    path: Path = Field(exclude=True)


class FoundPrompts(BaseModel):
    """The prompts of the rows. renderer: their hash. folder: where they were written; None for those of the package."""

    renderer: str
    folder: str | None


class ImportReport(BaseModel, Shown):
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
    versions: dict[str, str] = {}

    def shown(self) -> Iterator[Part]:
        """What was read and written, each kind of repair and refusal, and the next commands."""
        yield from warned(self.warnings)
        yield Table(f"imported {self.kind}", self._rows())
        for title, counts in (("repaired", self.repairs), ("rejected", self.refusals)):
            if counts:
                rows = [
                    (name.replace("_", " "), each.count, each.meaning, each.examples[0])
                    for name, each in counts.items()
                ]
                yield Table(title, rows, ("", "", "meaning", "first"))
        yield Line(f"wrote {self.out}")
        name = Path(self.out).name
        if self.kind == "trees":
            yield next_command("pairs", self.out, "--out", f"data/{name}")
            yield next_command("pairs", self.out, "--out", f"data/{name}-as-published", "--as-published")
        else:
            yield next_command("audit", self.out)
            yield next_command("train", "qwen2.5-7b-dpo-full", "--data", self.out, "--out", f"saves/{name}")
            yield next_command("pairs", self.out, "--out", f"{self.out}-filtered")

    def _rows(self) -> Iterator[tuple[str, object]]:
        trees = self.kind == "trees"
        yield "read", [f"{each.name} ({each.items:,})" for each in self.sources]
        yield "trees" if trees else "rows", f"{self.kept:,} of {self.items:,}"
        yield "questions", f"{self.questions:,} ({self.without_golden_answers:,} without gold answers)"
        if trees:
            yield "steps", self.steps
        else:
            yield "states", self.states
            if (found := self.prompts) and found.folder:
                yield "prompts", f"{found.folder} (renderer {found.renderer})"
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
    places = [sources] if isinstance(sources, str | Path) else list(sources)
    out = settings.out
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; give a directory")
    with writing(out), only_writer(out, flag="--out"), staging_folder(out) as staged:
        with tempfile.TemporaryDirectory(dir=staged) as unpacked:
            found = _find_sources(places, Path(unpacked), say)
            kind = _common_kind(found)
            if not _check_place(out, kind, found, settings.questions) and not settings.replace:
                raise InputError(
                    f"--out {out} holds an import of other files. Nothing was changed. Choose another --out, or put "
                    "the new import in its place with --replace"
                )
            known = _known_questions(settings.questions, settings.dataset, settings.split, Path(unpacked), say)
            dataset, split = settings.dataset or UNKNOWN, settings.split or UNKNOWN
            given = _Import(found, out, ImportRules(dataset, split, settings.teacher, questions=known))
            facts = _import_pairs(given, staged) if kind == "pairs" else _import_trees(given, staged)
        report = ImportReport(
            kind=kind,
            out=str(out),
            sources=found,
            dataset=settings.dataset,
            split=settings.split,
            teacher=settings.teacher,
            items=sum(source.items for source in found),
            repairs=_most_frequent_first(given.repairs),
            refusals=_most_frequent_first(given.refusals),
            versions=versions(),
            **facts,
        )
        write_json(staged / IMPORT_REPORT, report.model_dump())
        replace_data_set(staged, out, say, last=(*LAST, IMPORT_REPORT))
    return report


@dataclass(frozen=True)
class _Import:
    """What is imported: files, what is known of them beside, and what is repaired and refused."""

    found: Sequence[ImportSource]
    out: Path
    rules: ImportRules
    repairs: dict[str, RepairCount] = field(default_factory=dict)
    refusals: dict[str, RepairCount] = field(default_factory=dict)

    def read(self, refused: BinaryIO, take: Callable[..., None], *, keep: bool) -> None:
        """Have every item taken, with its place and the SHA-256 of its file. What is unusable goes to `refused` with
        its cause; the item too, where `keep`."""
        for source, item in ((each, item) for each in self.found for item in read_items(each.path)):
            source.items += 1
            note = Notes(f"{Path(source.name).name}:{item.number}")
            try:
                if item.too_long:
                    raise Unusable("too_long")  # noqa: TRY301 - refused like others
                take(item.value, note, revision=source.sha256)
            except Unusable as error:
                count(self.refusals, error.cause, note.where)
                line = {"item": note.where, "revision": source.sha256, "cause": error.cause, "message": str(error)}
                line |= {"row": item.value} if keep else {}
                refused.write(orjson.dumps(line, default=str, option=orjson.OPT_APPEND_NEWLINE))
            else:
                if item.repaired:
                    note("unreadable_characters")
                for name, where in note.found:
                    count(self.repairs, name, where)

    def nothing_usable(self, what: str) -> InputError:
        reasons = "; ".join(f"{each.count:,}: {each.meaning}" for each in self.refusals.values())
        return InputError(f"no usable {what} in {', '.join(source.name for source in self.found)}. {reasons}")


def _known_questions(
    files: Sequence[Path], dataset: str | None, split: str | None, home: Path, say: Say
) -> dict[str, KnownQuestion]:
    """The questions of --questions by key; the first file with a question wins. home: for rows as JSONL."""
    known: dict[str, KnownQuestion] = {}
    alone = len(files) == 1
    for path in files:
        in_layout = path.stem in _SPLITS and path.absolute().parent.name
        its_dataset = (alone and dataset) or in_layout or path.stem
        its_split = (alone and split) or (path.stem if in_layout else split or UNKNOWN)
        source = open_questions(path, dataset=its_dataset, split=its_split, home=home, say=say)
        for each in source.read():
            about = KnownQuestion(each.id, each.golden_answers, its_dataset, its_split, source.sha256)
            known.setdefault(question_key(each.question), about)
    return known


def _check_place(out: Path, kind: ImportKind, found: Sequence[ImportSource], asked: Sequence[Path]) -> bool:
    """Whether `out` may be written without --replace: it holds an earlier import of the same files, or nothing. Raises
    InputError if it holds a file that is read, or anything but an import of this kind. asked: files of questions."""
    for path in (*(source.path for source in found), *asked):
        if path.resolve().parent == out.resolve():
            raise InputError(f"--out {out} contains the source {path}, which could be overwritten; give another")
    taken = [name for name in (*_WRITTEN, UNFINISHED) if (out / name).exists()]
    killed = (out / UNFINISHED).is_file()
    earlier = _hashes_in(out / (UNFINISHED if killed else IMPORT_REPORT), kind)
    if taken and earlier is None:
        raise InputError(f"--out {out} is taken: it has {taken[0]}; choose another directory")
    return not taken or earlier == {source.sha256 for source in found}


def _hashes_in(report: Path, kind: ImportKind) -> set[str] | None:
    """SHA-256 of the imported files; None without a report of an import of this kind."""
    try:
        earlier = orjson.loads(report.read_bytes())
        return {str(each["sha256"]) for each in earlier["sources"]} if earlier["kind"] == kind else None
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return None


def _most_frequent_first(found: dict[str, RepairCount]) -> dict[str, RepairCount]:
    return dict(sorted(found.items(), key=lambda each: (-each[1].count, each[0])))


def _without_gold(count: int, what: str) -> list[str]:
    advice = "give --questions FILE, such as FlashRAG's DATASET/SPLIT.jsonl"
    return [f"{counted(count, what)} without gold answers: {advice}"] if count else []


# -- the files ------------------------------------------------------------------------------------------------


def _find_sources(given: Sequence[str | Path], scratch: Path, say: Say) -> list[ImportSource]:
    if not given:
        raise InputError("give at least one file to import")
    files: list[ImportSource] = []
    for each in given:
        source = Path(each)
        if source.is_dir():
            raise InputError(f"{each} is a folder; name its files, such as {each}/chunk_*/reward_*.json")
        if not on_the_hub(source) and not source.is_file():
            raise InputError(f"there is no {each} to import")
        path = plain_file(source, scratch, say=say)
        with reading(path):
            size, digest = path.stat().st_size, file_digest(path)
        files.append(ImportSource(name=str(each), sha256=digest, bytes=size, path=path))
    return files


def _common_kind(found: Sequence[ImportSource]) -> ImportKind:
    """Raises InputError for a file that holds neither kind, and for files of both."""
    kinds = {_kind_of(source): source.name for source in found}
    if len(kinds) > 1:
        raise InputError(
            f"{kinds['trees']} holds trees and {kinds['pairs']} pairs; import them one after the other, each with its "
            "--out"
        )
    return next(iter(kinds))


def _kind_of(source: ImportSource) -> ImportKind:
    """The kind of the first item that is recognised."""
    for item in read_items(source.path):
        if is_row(item.value):
            return "pairs"
        if is_tree(item.value):
            return "trees"
    raise InputError(
        f"{source.name} holds neither trees (objects with question, golden_answers and output of "
        "intermediate_node_*) nor pairs (with chosen and rejected), as a JSON list or as JSON lines"
    )


# -- trees -----------------------------------------------------------------------------------------------------


def _import_trees(given: _Import, staged: Path) -> dict[str, Any]:
    """Facts for the report. Each tree is written once, under an id of its own."""
    config, counts = _config(given), Counter[str]()
    rules = replace(given.rules, config_hash=config.config_hash)
    ids, questions, seen = set[str](), set[str](), set[bytes]()
    with atomic_replacement(staged / ROLLOUTS) as rollouts, atomic_replacement(staged / FAILURES) as failures:

        def take(item: object, note: Notes, *, revision: str) -> None:
            record = read_tree(item, rules, note, revision=revision)
            mark = hashlib.sha256(record.model_copy(update={"revision": None}).to_line()).digest()
            if mark in seen:
                raise Unusable("duplicate_tree")
            seen.add(mark)
            name, number = record.question_id, 2
            while name in ids:
                name, number = f"{record.question_id}-{number}", number + 1
            if name != record.question_id:
                Notes(name, note.found)("id_taken")
                record = record.model_copy(update={"question_id": name})
            ids.add(name)
            questions.add(question_key(record.question))
            counts["kept"] += 1
            counts["steps"] += len(record.nodes) - 1
            counts["without_golden_answers"] += not record.golden_answers
            counts["without_rewards"] += all(node.reward is None for node in record.nodes)
            rollouts.write(record.to_line())

        given.read(failures, take, keep=False)
        if not questions:
            raise given.nothing_usable("tree")
    write_file(staged / CONFIG, config.to_bytes())
    warnings = _without_gold(counts["without_golden_answers"], "tree")
    if unrewarded := counts.pop("without_rewards"):
        warnings.append(
            f"{counted(unrewarded, 'tree')} without rewards will yield no pairs: no answer was reached, or no gold "
            "answer is known"
        )
    return {**counts, "config_hash": config.config_hash, "questions": len(questions), "warnings": warnings}


def _config(given: _Import) -> RunConfig:
    """The configuration of a run whose trees another system explored."""
    rules, hashes = given.rules, [each.sha256 for each in given.found]
    decides: dict[str, Any] = {
        "imported": "trees of the published ReasonRAG pipeline",
        "dataset": rules.dataset,
        "split": rules.split,
        "questions_sha256": hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest(),
        "golden_answers_sha256": sorted({each.revision for each in rules.questions.values() if each.revision}),
        "recipe": RECIPE.model_dump(mode="json"),
    }
    if rules.teacher:
        decides["model"] = rules.teacher
    return RunConfig.of(
        decides, {"imported": [each.model_dump(include={"name", "sha256", "bytes"}) for each in given.found]}
    )


# -- pairs -----------------------------------------------------------------------------------------------------


def _import_pairs(given: _Import, staged: Path) -> dict[str, Any]:
    """Facts for the report."""
    reader = PublishedRowReader(given.rules)
    with ExitStack() as opened:
        questions, candidates, rejected = (
            opened.enter_context(atomic_replacement(staged / name)) for name in (QUESTIONS, CANDIDATES, REJECTED)
        )
        given.read(rejected, reader.add, keep=True)
        if not reader.rows:
            raise given.nothing_usable("pair")
        states, asked = list(reader.states()), list(reader.questions())
        candidates.writelines(each.to_line() for each in states)
        questions.writelines(each.to_line() for each in asked)
    imported, prompts = take_prompts(staged), None
    if imported:
        folder = str(given.out / PROMPTS) if (staged / PROMPTS).exists() else None
        prompts = FoundPrompts(renderer=renderer_hash(imported.prompts), folder=folder)
    # every candidate that parsed: users filter later, and `reasonrag audit`, the next command, tells of errors
    export = DataSetExport(NO_FILTERS, CheckSettings(allow=list(ERRORS)), DecontaminationSettings(), given.out)
    recount_tokens(staged, export.tokens)
    summary = export.write(staged, [given.out], export.decontaminate(staged, [staged]), ExportOptions(), PairSummary())
    without = sum(not each.golden_answers for each in asked)
    told = (
        "the renderer reproduces none of the prompts of these rows, so no prompts were extracted. Ask a model trained "
        "on these rows with the words of their system turns: --prompts DIR"
    )
    return {
        "kept": reader.rows,
        "questions": len(asked),
        "without_golden_answers": without,
        "states": len(states),
        "prompts": prompts,
        "exported": summary.pairs,
        "not_exported": {reason: count for reason, count in summary.dropped.items() if count},
        "warnings": [
            *summary.warnings,
            *_without_gold(without, "question"),
            *(imported.warnings if imported else [told]),
        ],
    }
