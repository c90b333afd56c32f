"""The data set that already stands in `--out`: from which runs it was made, and what may take its place.

Decides whether `pairs` may write there, and which derived files go together with the data they were made from: the
prompts and the page of its rows, and the files of an import. What paid models said, the journal in `judging/`, stays in
any case. Knows neither how labels come about nor how rows are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import orjson

from preference.candidate_records import Origin
from preference.export.atomic_export import LAST, UNFINISHED, is_unfinished, put_in_place
from preference.export.formats import FORMATS, SPLITS
from preference.export.summary import CANDIDATES, DATASET_INFO_FILE, DROPPED, QUESTIONS, SUMMARY
from reasonrag.agent.prompting import PROMPTS
from reasonrag.curation.audit.report import AUDIT, AUDIT_PAGE
from reasonrag.curation.decontamination import CONTAMINATION
from reasonrag.errors import InputError
from reasonrag.files import VIEW_PAGE

IMPORT_REPORT = "import.json"
REJECTED = "rejected_rows.jsonl"
OF_AN_IMPORT = (IMPORT_REPORT, REJECTED)
"""Files of an import, removed when other rows replace the imported ones."""
STAGED = "publish"
"""Where `reasonrag publish` puts its copy together."""
_SHOWN = 5
"""Runs that a message names."""
_OF_FORMATS = tuple(form.file_name(split) for form in FORMATS.values() for split in SPLITS)
_OF_PAIRS = (DATASET_INFO_FILE, QUESTIONS, DROPPED, CONTAMINATION, AUDIT, AUDIT_PAGE, SUMMARY)
"""What `pairs` writes beside rows and candidates."""


def made_from(origins: Iterable[Origin]) -> dict[str, str]:
    """The runs that a data set was made from, as people are told, by what is equal for all states of a run, however far
    it had come, and for imported rows of a file."""
    named = ((f"{each.dataset}/{each.split}", each.config_hash or each.revision) for each in origins)
    return {known or name: f"{name} ({(known or name)[:16]})" for name, known in named}


def origins_in(data_set: Path) -> set[Origin]:
    """Where the questions of a data set come from, as its lines say. Lines that cannot be read are passed over: the
    command that needs them says what is wrong. Raises OSError."""
    found: set[Origin] = set()
    for path in (data_set / QUESTIONS, data_set / CANDIDATES):
        if path.is_file() and not found:
            with path.open("rb") as lines:
                for line in lines:
                    with suppress(ValueError, KeyError, TypeError):
                        found.add(Origin.model_validate(orjson.loads(line)["origin"]))
    return found


def replaces_other_runs(out: Path, sources: Sequence[Path], given: Mapping[str, str], *, replace: bool) -> bool:
    """Whether the data set in `out` was made from other runs than those given, which only `replace` allows.

    sources: where the runs are; one that is `out` itself is taken in, so that nothing is lost. Raises InputError for
    other runs without `replace`, and for a folder whose files are not of a data set; OSError.
    """
    if not (out / CANDIDATES).is_file() and not is_unfinished(out):
        taken = [name for name in (*_OF_PAIRS, *_OF_FORMATS, PROMPTS) if (out / name).exists()]
        if taken:
            raise InputError(
                f"--out {out} is taken: it holds {taken[0]} but no {CANDIDATES}, so it is not a whole data set of "
                "reasonrag and would be replaced; give a directory of its own"
            )
        return False
    if out.resolve() in [each.resolve() for each in sources]:
        return False
    there = made_from(origins_in(out))
    if not there and any((out / name).is_file() and (out / name).stat().st_size for name in (QUESTIONS, CANDIDATES)):
        there = {"": "its lines do not say which"}
    if not there or there.keys() == given.keys() or replace:
        return bool(there) and there.keys() != given.keys()
    raise InputError(
        f"--out {out} holds a data set made from other runs: {_listed(there)}. Given: {_listed(given) or 'no question'}"
        ". Nothing was changed. Choose another --out, or put the new data set in its place with --replace"
    )


def _listed(runs: Mapping[str, str]) -> str:
    more = f" and {len(runs) - _SHOWN:,} more" if len(runs) > _SHOWN else ""
    return f"{', '.join(sorted(runs.values())[:_SHOWN])}{more}"


def takes_in_what_is_there(out: Path) -> bool:
    """Whether a killed command kept all questions of the data set in `out`: it can be a source. Raises OSError."""
    coming, there = out / UNFINISHED, out / QUESTIONS
    if not (coming.is_file() and there.is_file()):
        return False
    with coming.open("rb") as new, there.open("rb") as old:
        known = set(map(hash, new))
        return bool(known) and all(hash(line) in known for line in old)


def replace_data_set(
    staged: Path, out: Path, say: Callable[[str], None], *, obsolete: Sequence[str] = (), last: Sequence[str] = LAST
) -> None:
    """Move the files of `staged` to `out`; the page of what was there goes, and the prompts of earlier rows. obsolete,
    last: as of `put_in_place`. Raises OSError."""
    page = out / VIEW_PAGE
    shown = page.is_file()
    gone = [VIEW_PAGE] * shown + [PROMPTS] * ((staged / CANDIDATES).exists() and not (staged / PROMPTS).exists())
    if others := put_in_place(staged, out, obsolete=[*gone, *obsolete], last=last):
        say(f"removed from {out} what the earlier export wrote and this one does not: {', '.join(others)}")
    if shown:
        say(f"removed {page}, which showed the previous rows; make it again with: reasonrag view {out}")
