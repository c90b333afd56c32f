"""Judging pairs blind in the browser: which are asked, and what each person said, kept in the data set.

Decides where verdicts are kept: `judgements/NAME.json`, which `reasonrag review --judgements` reads, written anew after
each one. `preference.review_sample` decides the sample and what agreement is. Knows no page.
"""

from __future__ import annotations

import re
import threading
from functools import cached_property
from pathlib import Path
from typing import get_args

from pydantic import BaseModel, RootModel

from preference.export.private_files import write_json
from preference.review_sample import ReviewReport, Verdict
from reasonrag.curation.review import blind_sample, review_report
from reasonrag.curation.settings import REVIEWED
from reasonrag.errors import InputError
from reasonrag.files import read_record, writing
from reasonrag.viewing.collection import JUDGEMENTS

_NAME = re.compile(r"[\w-]{1,40}")
_MOST_BYTES = 10**8


class WrongRequest(InputError):
    """What is asked is wrong, whatever the files hold."""


class Said(BaseModel):
    """verdict: None takes it back. who: in a file its name says that."""

    pair: str
    verdict: str | None
    who: str = ""


class _File(RootModel[list[Said]]):
    pass


class Judging:
    """A sample of a data set's pairs, and the verdicts on it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writing = threading.Lock()

    @cached_property
    def sample(self) -> list[dict[str, str]]:
        """Pairs without their labels. Raises InputError for a data set without one."""
        return blind_sample(self._directory, REVIEWED, seed=0)[0]

    def verdicts(self, who: str) -> dict[str, str]:
        """What one person said, by pair. Raises WrongRequest for a name that is none, InputError for a damaged file."""
        found = read_record(self._file(who), _File, "Correct it, or move it away", most=_MOST_BYTES)
        return {each.pair: each.verdict for each in found.root if each.verdict} if found else {}

    def say(self, new: Said) -> dict[str, str]:
        """Keep a verdict, and return all of theirs. Raises WrongRequest for one that is none, and for a pair that was
        not asked."""
        if new.pair not in {each["pair"] for each in self.sample}:
            raise WrongRequest(f"{new.pair!r} is not in the sample")
        if new.verdict is not None and new.verdict not in get_args(Verdict):
            raise WrongRequest(f"{new.verdict!r} is none of {', '.join(get_args(Verdict))}")
        with self._writing:
            said = {name: each for name, each in self.verdicts(new.who).items() if name != new.pair}
            said |= {} if new.verdict is None else {new.pair: new.verdict}
            file = self._file(new.who)
            with writing(file):
                file.parent.mkdir(exist_ok=True)
                write_json(file, [{"pair": name, "verdict": each, "annotator": new.who} for name, each in said.items()])
        return said

    def agreement(self) -> ReviewReport | None:
        """Of all who have judged; None before the first verdict."""
        named = (each for each in (self._directory / JUDGEMENTS).glob("*.json") if _NAME.fullmatch(each.stem))
        files = [each for each in sorted(named) if self.verdicts(each.stem)]
        return review_report(self._directory, files) if files else None

    def _file(self, who: str) -> Path:
        if not _NAME.fullmatch(who):
            raise WrongRequest("a name has letters, digits, - and _, at most 40")
        return self._directory / JUDGEMENTS / f"{who}.json"
