"""The settings that name questions and make corpora, and what data sets are called: known names, their splits, and
other spellings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pydantic import Field, field_validator

from reasonrag.data.documents.document import PASSAGE_CHARS
from reasonrag.data.documents.language import LANGUAGE, Languages
from reasonrag.settings import Panel, Settings, Words, setting

HUB_SPLITS: dict[str, tuple[str, ...]] = {
    "2wikimultihopqa": ("train", "dev"),
    "bamboogle": ("test",),
    "hotpotqa": ("train", "dev"),
    "musique": ("train", "dev"),
    "nq": ("train", "dev", "test"),
    "popqa": ("train", "test"),
    "triviaqa": ("train", "dev", "test"),
}
"""Data sets and splits that reasonrag names: files of FlashRAG's collection, and the two parts of PopQA's test file."""

ATLAS: Final = "atlas"
DATASETS = (ATLAS, *sorted(HUB_SPLITS))
_ALSO_CALLED = {
    "2wiki": "2wikimultihopqa",
    "2wikimqa": "2wikimultihopqa",
    "2wikimultihop": "2wikimultihopqa",
    "hotpot": "hotpotqa",
    "musiqueans": "musique",
    "naturalquestions": "nq",
    "naturalquestionsopen": "nq",
    "nqopen": "nq",
    "trivia": "triviaqa",
} | {name: name for name in DATASETS}
"""Usual spellings, in small letters and without punctuation."""


def canonical_dataset(dataset: str) -> str:
    """The name that reasonrag uses for a data set: `2wikimultihopqa` for `2Wiki`; other names are returned unchanged.

    Case and punctuation are ignored.
    """
    return _ALSO_CALLED.get(re.sub(r"[\W_]", "", dataset).casefold(), dataset)


class QuestionSettings(Settings):
    """Which questions are asked, and the corpus that belongs to them."""

    dataset: Words = setting(
        "Data set: hotpotqa, 2wikimultihopqa (2wiki), musique, popqa, bamboogle, nq, triviaqa, the "
        "built-in atlas, or a folder of --data-dir [default: atlas]",
        Panel.DATA,
        default=[],
        common=True,
    )
    split: str = setting("Split of the data set", Panel.DATA, default="train")
    limit: int | None = setting(
        "Use only the first N questions; a later session may raise it", Panel.DATA, ge=1, common=True
    )
    sample: int | None = setting(
        "Draw N questions at random, stratified by question type; --seed decides which. A later session may raise it",
        Panel.DATA,
        ge=1,
    )
    data_dir: Path | None = setting(
        "Folder with <dataset>/<split>.jsonl and <dataset>/corpus.jsonl [default: FlashRAG's collection on the Hub]",
        Panel.DATA,
    )
    questions: Path | None = setting("Your own questions (JSONL), instead of --dataset", Panel.DATA, common=True)
    corpus: Path | None = setting(
        "Passages to search (JSONL, also .gz), or wiki-18 for Wikipedia 2018 [default: the "
        "data set's corpus, else the passages in the question file]",
        Panel.DATA,
        common=True,
    )

    @field_validator("dataset")
    @classmethod
    def _one_data_set(cls, names: list[str]) -> list[str]:
        if len(names) > 1:
            raise ValueError("give one data set; make a run of each, and pass all runs to pairs")
        return names

    @property
    def of_atlas(self) -> bool:
        """Whether the questions are those of the world that comes with reasonrag."""
        return self.questions is None and all(canonical_dataset(each) == ATLAS for each in self.dataset)

    def named(self, *more: str) -> str:
        """A name for a folder: of questions and split, and of what else is said."""
        name = self.questions.stem if self.questions else "+".join(map(canonical_dataset, self.dataset)) or ATLAS
        return "-".join((name, self.split, *more))


CORPORA = Path("corpora")
"""Where corpora go that have no --out."""


class CorpusSettings(Settings):
    folder: Path = Field(description="Folder of web pages, PDF, Word, Excel, CSV, Markdown, text and e-mail files")
    out: Path | None = setting("File of the corpus [default: corpora/<folder>.jsonl]", Panel.OUTPUT)
    max_chars: int = setting(
        "Maximum characters per passage, without its title", default=PASSAGE_CHARS, ge=200, le=12_000
    )
    language: Languages = setting(LANGUAGE, default=[])
    keep_shared: bool = setting(
        "Keep lines that more than half of the files share, such as banners and footers", default=False
    )
