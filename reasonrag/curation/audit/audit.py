"""`reasonrag audit`: what is wrong with a preference data set, and which cutoff_len its rows need.

Combines the checks of single rows (`row_checks`) with those of all rows together (`dataset_checks`). The same audit
runs over the rows that `reasonrag pairs` is about to write, and errors keep them from being written. Memory holds
numbers of rows, never their texts.
"""

from __future__ import annotations

import platform
from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Collection, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from preference.export.formats import SPLITS, SplitName, pairs_files
from preference.export.private_files import write_file, write_json
from preference.export.summary import CANDIDATES
from preference.labelling import TokenCounter
from reasonrag.curation.audit import dataset_checks
from reasonrag.curation.audit.catalogue import CHECKS, ERRORS, CheckName
from reasonrag.curation.audit.cutoffs import CUTOFFS, advised_cutoff, count_cut_rows
from reasonrag.curation.audit.dataset_checks import RowColumns
from reasonrag.curation.audit.report import AUDIT_PAGE, EXAMPLES, AuditReport, CheckResult, RowExample, TokenCounterName
from reasonrag.curation.audit.row_checks import TEXTS, RowChecker
from reasonrag.curation.settings import CheckSettings
from reasonrag.curation.token_counters import token_counter
from reasonrag.data.item_files import read_items
from reasonrag.errors import InputError, choices
from reasonrag.files import ROLLOUTS, check_finished, data_set_of
from reasonrag.redaction import mask_secrets, secrets
from reasonrag.settings import resolve
from reasonrag.signatures import public_call

_DETAILS = 20
"""Distinct details of a check that are counted: a file may have any number of them."""
_FOR_VALIDATION = frozenset({"validation", "valid", "val", "dev", "test", "eval"})


@public_call(CheckSettings)
def audit(directory: str | Path, **flags: Any) -> AuditReport:
    """Check a data set, or one file of it, and write `audit.json` and `audit.html` there.

    Errors in the data raise nothing: see `AuditReport.errors`. Raises InputError if there are no rows to read, and
    OSError if the report cannot be written.

    Example:
        >>> reasonrag.audit("data/first").errors
        []

    Args:
        directory: a data set, or one file of rows; a run stands for the data set that `pairs` made of it.
    """
    settings = resolve(CheckSettings, "audit", flags)
    place = audited_place(Path(directory))
    files = row_files(place)
    counter, _ = token_counter()
    seen = DatasetAudit(counter, allow=parse_allowed(settings.allow), name=place.resolve().name)
    for path, part in files:
        for item in read_items(path):
            seen.add(item.value, file=path.name, part=part)
    report = seen.report()
    write_audit(report, page_path(place))
    return report


def audited_place(place: Path) -> Path:
    """The data set that `pairs` made of a run, if a run was given and its data set is at the default place."""
    is_run = (place / ROLLOUTS).is_file() and not (place / CANDIDATES).is_file()
    return data_set_of(place) if is_run and data_set_of(place).is_dir() else place


def page_path(place: Path) -> Path:
    """The path of the audit page, beside which the report is written: `audit.html`; `NAME.audit.html` for one file."""
    return place / AUDIT_PAGE if place.is_dir() else place.with_name(f"{place.stem}.{AUDIT_PAGE}")


def write_audit(report: AuditReport, page: Path) -> None:
    """Write the page, and the report beside it. Raises OSError."""
    write_file(page, report.page().encode())
    write_json(page.with_suffix(".json"), report.model_dump(mode="json"))


def parse_allowed(names: Iterable[str]) -> list[CheckName]:
    """The error names in `--allow`. Raises InputError for any other name."""
    spelled = {name.replace("-", "_"): name for name in names}
    for name, given in spelled.items():
        if name not in ERRORS:
            raise InputError(f"--allow {given} is not an error of the audit; {choices(name, ERRORS)}")
    return [each for each in ERRORS if each in spelled]


def row_files(place: Path) -> list[tuple[Path, SplitName]]:
    """The files to audit, each with its part: `place` itself, or those of `find_row_files`.

    Raises InputError if there is none.
    """
    if place.is_file():
        return [(place, _part(place))]
    if not place.is_dir():
        raise InputError(f"there is no {place}; give a directory with RAG_ProGuide.json, or such a file")
    check_finished(place)
    found = find_row_files(place)
    if not found and (place / ROLLOUTS).is_file():
        raise InputError(
            f"{place} is a run, not a data set. First: reasonrag pairs {place} --out data/{place.resolve().name}"
        )
    if not found:
        raise InputError(
            f"{place} has no file with rows of RAG_ProGuide, a JSON list of objects with instruction, input, chosen "
            f"and rejected; make one with: reasonrag pairs RUN --out {place}"
        )
    return found


def find_row_files(directory: Path) -> list[tuple[Path, SplitName]]:
    """The two files of `reasonrag pairs`, or every file that begins with a row; each with its part."""
    if ours := pairs_files(directory):
        return [(path, split) for split, path in ours.items()]
    places = [path for path in sorted(directory.iterdir()) if path.suffix in (".json", ".jsonl") and _begins(path)]
    return [(path, _part(path)) for path in places]


def _part(path: Path) -> SplitName:
    words = path.stem.lower().replace("-", ".").replace("_", ".").split(".")
    return "train" if _FOR_VALIDATION.isdisjoint(words) else "validation"


def _begins(path: Path) -> bool:
    try:
        first = next(iter(read_items(path)), None)
    except InputError:
        return False
    return first is not None and isinstance(first.value, dict) and {*TEXTS} <= first.value.keys()


class DatasetAudit:
    """An audit of rows given one by one, also of those of an export before they replace the old ones.

    allow: errors to let pass. name: of the data. trusted: whether the rows' own token lengths come from this counter.
    """

    def __init__(
        self, counter: TokenCounter, *, allow: Collection[CheckName] = (), name: str = "", trusted: bool = False
    ) -> None:
        self._counter = counter
        self._allow = list(allow)
        self._name = name
        self._secrets = secrets()
        self._reader = RowChecker(counter, secrets=self._secrets, trusted=trusted)
        self._columns = RowColumns()
        self._files, self._parts, self._found = Counts[str](), Counts[str](), Counts[CheckName]()
        self._with_gold = 0
        self._details: defaultdict[CheckName, Counts[str]] = defaultdict(Counts)
        self._examples: defaultdict[CheckName, list[RowExample]] = defaultdict(list)

    def add(self, row: object, file: str, part: SplitName) -> None:
        self._files[file] += 1
        facts = self._reader.facts(row)
        self._with_gold += facts.gold_known
        for name in dict.fromkeys(name for name, _ in facts.findings):
            self._found[name] += 1
            self._tell(name, [detail for check, detail in facts.findings if check == name])
            if len(examples := self._examples[name]) < EXAMPLES:
                examples.append(RowExample(file=file, row=self._files[file]))
        if facts.broken:
            return
        self._parts[part] += 1
        self._columns.add(facts, file=file, row=self._files[file], part=SPLITS.index(part))
        self._tell("mixed_renderers", [facts.renderer])

    def _tell(self, name: CheckName, details: Iterable[str | None]) -> None:
        told = self._details[name]
        told.update(each for each in details if each and (each in told or len(told) < _DETAILS))

    def report(self) -> AuditReport:
        columns = self._columns
        together = dataset_checks.check_all_rows(columns)
        if len(self._details["mixed_renderers"]) > 1:
            together["mixed_renderers"] = np.arange(len(columns))
        prompt, reply = columns.tokens("prompt"), np.maximum(columns.tokens("chosen"), columns.tokens("rejected"))
        advised = advised_cutoff(prompt, reply) if len(columns) else None
        cutoffs = sorted({*CUTOFFS, advised}) if advised else []
        return AuditReport(
            data=self._hidden(self._name),
            files={self._hidden(name): count for name, count in self._files.items()},
            rows=len(columns),
            parts={part: self._parts[part] for part in SPLITS},
            token_counter=TokenCounterName(name=self._counter.name, exact=self._counter.exact),
            cutoffs=[count_cut_rows(prompt, reply, each) for each in cutoffs],
            advised_cutoff=advised,
            chosen_shorter=dataset_checks.chosen_shorter(columns),
            checks=[self._result(name, together.get(name)) for name in CHECKS],
            versions={"python": platform.python_version(), "reasonrag": version("reasonrag")},
        )

    def _result(self, name: CheckName, positions: Any) -> CheckResult:
        checked = len(self._columns)  # the rows that it applies to
        if name in ("gold_in_system_turn", "gold_line_in_prompt"):
            checked = self._with_gold
        elif name == "broken_row":
            checked = sum(self._files.values())
        elif name in ("state_in_both_parts", "question_in_both_parts"):
            checked = self._parts["validation"]
        count, examples = self._found[name], self._examples[name]
        if positions is not None:
            count = len(positions)
            examples = [self._columns.example(int(each)) for each in positions[:EXAMPLES]]
        return CheckResult(
            name=name,
            **CHECKS[name]._asdict(),
            checked=checked,
            count=count,
            share=count / checked if checked else None,
            details=self._shown(self._details[name]) if count else {},
            examples=[each.model_copy(update={"file": self._hidden(each.file)}) for each in examples],
            allowed=count > 0 and name in self._allow,
        )

    def _shown(self, names: Counts[str]) -> dict[str, int]:
        """The most frequent names with their counts, secrets hidden."""
        shown = Counts[str]()
        for name, count in names.most_common():
            shown[self._hidden(name)] += count
        return dict(shown.most_common())

    def _hidden(self, text: str) -> str:
        return mask_secrets(text, self._secrets)
