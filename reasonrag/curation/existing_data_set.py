"""The data set that already stands in `--out`: from which runs it was made, and what may take its place.

Decides whether `pairs` may write there, and which derived files go together with the data they were made from: the
prompts and the page of its rows, and the files of an import. What paid models said, the journal in `judging/`, stays in
any case. Knows neither how labels come about nor how rows are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import orjson

from preference.candidates import Origin
from preference.export.formats import FORMATS, SPLITS
from preference.export.staging import UNFINISHED, is_unfinished
from preference.export.summary import CANDIDATES, DATASET_INFO_FILE, DROPPED, QUESTIONS, SUMMARY
from reasonrag.agent.prompting import PROMPTS, renderer_hash, saved_prompts
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
    """The runs that a data set was made from: by what decides whether two runs are one, how people are told."""
    return {_key(each): _described(each) for each in origins}


def _shortened(names: Iterable[str]) -> str:
    """The first few of them."""
    every = list(names)
    more = f" and {len(every) - _SHOWN:,} more" if len(every) > _SHOWN else ""
    return f"{', '.join(every[:_SHOWN])}{more}"


def _key(origin: Origin) -> str:
    """Equal for all states of one run, however far it had come; of imported rows, for those of one file."""
    return origin.config_hash or origin.revision or f"{origin.dataset}/{origin.split}"


def _described(origin: Origin) -> str:
    what = f"{origin.dataset}/{origin.split}"
    if origin.config_hash:
        return f"{what} (configuration {origin.config_hash})"
    return f"{what} (imported, file {origin.revision[:16]})" if origin.revision else what


def origins_in(data_set: Path) -> set[Origin] | None:
    """Where the questions of a data set come from, as its lines say; None where there are lines and none says it.

    Lines that cannot be read are passed over: the command that needs them says what is wrong. Raises OSError.
    """
    found: set[Origin] = set()
    lines = 0
    for name in (QUESTIONS, CANDIDATES):
        if (data_set / name).is_file() and not found:
            for origin in _origins(data_set / name):
                lines += 1
                found |= set() if origin is None else {origin}
    return None if lines and not found else found


def refuse_changed_prompts(out: Path) -> None:
    """Raises InputError for prompts of a data set that a user changed, as those of a new one would replace them."""
    if not (out / PROMPTS).exists() or is_unfinished(out):
        return
    prompts = saved_prompts(out / PROMPTS)
    if prompts is None or renderer_hash(prompts) not in {each.renderer for each in origins_in(out) or ()}:
        raise InputError(
            f"--out {out} is taken: its {PROMPTS} are not those of its questions and would be replaced; move them, or "
            "choose another directory"
        )


def _origins(path: Path) -> Iterator[Origin | None]:
    """A value per line; None if a line does not have it."""
    with path.open("rb") as lines:
        for line in lines:
            try:
                yield Origin.model_validate(orjson.loads(line)["origin"])
            except (ValueError, KeyError, TypeError):
                yield None


# -- before anything is written --------------------------------------------------------------------------------


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
    refuse_changed_prompts(out)
    origins = origins_in(out)
    there = {} if origins is None else made_from(origins)
    if origins is not None and (not there or there.keys() == given.keys()):
        return False
    if replace:
        return True
    names = _shortened(each for each in earlier_sources(out) if each != str(out))
    what = (
        "whose lines do not say from which runs it was made"
        if origins is None
        else f"made from other runs{f' ({names})' if names else ''}: {_shortened(sorted(there.values()))}"
    )
    new = _shortened(sorted(given.values())) or "no question"
    raise InputError(
        f"--out {out} holds a data set {what}. Given ({_shortened(map(str, sources))}): {new}. Nothing was changed. "
        f"Choose another --out, or put the new data set in its place with --replace"
    )


def takes_in_what_is_there(out: Path) -> bool:
    """Whether a killed command kept all questions of the data set in `out`, which may then be a source of the next one.
    Raises OSError."""
    coming, there = out / UNFINISHED, out / QUESTIONS
    if not (coming.is_file() and there.is_file()):
        return False
    with coming.open("rb") as new, there.open("rb") as old:
        known = set(map(hash, new))
        return bool(known) and all(hash(line) in known for line in old)


def earlier_sources(out: Path) -> list[str]:
    """The places of the runs when the data set was made; empty where no summary tells."""
    try:
        return [str(each) for each in orjson.loads((out / SUMMARY).read_bytes())["sources"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


# -- what goes with the data it was made from ------------------------------------------------------------------


def pages_of(out: Path) -> dict[str, str]:
    """The page of the rows that are about to be replaced, with the message about its removal."""
    page = out / VIEW_PAGE
    removed = f"removed {page}, which showed the previous rows; make it again with: reasonrag view {out}"
    return {VIEW_PAGE: removed} if page.is_file() else {}
