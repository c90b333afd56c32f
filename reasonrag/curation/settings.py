"""Settings of `audit`, `review` and `import`; `pairs` audits and decontaminates by the same records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field

from preference.export.summary import VALIDATION_SHARE
from reasonrag.agent.settings import OURS, AgentName
from reasonrag.data.settings import QuestionSettings
from reasonrag.llm.settings import DEFAULT_TEACHER, MAX_REPLY_TOKENS, BudgetSettings, LimitSettings, ModelSettings
from reasonrag.retrieval.settings import TOP_K, ReadingSettings, RetrievalSettings
from reasonrag.settings import Panel, Places, Seed, Settings, Share, Words, list_of_places, setting

KeptApart: TypeAlias = Annotated[float, Field(ge=0, lt=1), Panel.OUTPUT]
"""A share of the questions."""


class CheckSettings(Settings):
    """How rows are audited: the settings of `audit`."""

    allow: Words = setting("Accept this error of the audit, by its name; repeatable", Panel.CHECKS, default=[])


def _splits(value: object) -> object:
    """Paths, as text: a split may also be `hub`."""
    found = list_of_places(value)
    return [str(each) for each in found] if isinstance(found, list | tuple) else found


class DecontaminationSettings(Settings):
    """Which evaluation splits a data set may have no question of."""

    eval: Annotated[list[str], BeforeValidator(_splits)] = setting(
        "Leave out questions found in this evaluation split: a question file, a folder with <dataset>/<split>.jsonl, "
        "or hub for FlashRAG's; repeatable [default: the splits beside the data of the runs]",
        Panel.DECONTAMINATION,
        default=[],
        common=True,
    )
    allow_eval: Words = setting(
        "Keep questions found in this evaluation split: dataset/split, or all; repeatable",
        Panel.DECONTAMINATION,
        default=[],
    )


REVIEWED = 50
"""Pairs that a review samples."""


class ReviewSettings(Settings):
    out: Path | None = setting("File to write the sample to: .csv for a spreadsheet, .json for Label Studio")
    sample: int = setting("Pairs to sample; a larger sample contains every smaller one", default=REVIEWED, ge=1)
    seed: Seed = setting("Seed of the sample and of which step is shown as A", default=0)
    judgements: Places = setting("File with verdicts in it, .csv or .json; repeatable, one for each person", default=[])


class ImportSettings(Settings):
    out: Path = Field(description="Output folder: a run if trees are imported, a data set if pairs are")
    replace: bool = setting("Replace an import of other files", default=False)
    dataset: str | None = setting("Data set that the questions come from [default: unknown]", Panel.ORIGIN)
    split: str | None = setting("Split that the questions come from [default: unknown]", Panel.ORIGIN)
    questions: Places = setting(
        "Question file (JSONL, a JSON list or Parquet) with gold answers; repeatable. DATASET/SPLIT.jsonl also sets "
        "data set and split",
        Panel.ORIGIN,
        default=[],
    )
    teacher: str | None = setting("Model that wrote the completions [default: unknown]", Panel.ORIGIN)


class WarmUpSettings(
    LimitSettings, BudgetSettings, ModelSettings, ReadingSettings, QuestionSettings, DecontaminationSettings
):
    out: Path | None = setting("Folder of the data set [default: data/<questions>-warm-up]", Panel.OUTPUT, common=True)
    replace: bool = setting("Replace a data set that was made of other questions", Panel.OUTPUT, default=False)
    validation: KeptApart = setting("Share of questions to hold out for validation; 0: none", default=VALIDATION_SHARE)
    agent: AgentName = setting(
        "Agent whose steps the rows are: reasonrag, react, prorag or tools", Panel.MODEL, default=OURS, common=True
    )
    prompts: Path | None = setting(
        "Folder with your own prompts, of the agent and of who writes (rephrase.txt, narrate.txt)", Panel.MODEL
    )
    max_steps: int = setting("Maximum steps per answer; a longer question is left out", Panel.MODEL, default=10, ge=2)
    max_reply_tokens: int = setting(
        "Maximum tokens per completion, reasoning tokens included", Panel.MODEL, default=2 * MAX_REPLY_TOKENS, ge=1
    )
    seed: Seed = setting("Seed of the requests, of the passages shown and of the validation split", default=0)


class WantedQuestionSettings(Settings):
    """Which questions `corpus questions` writes, and where."""

    corpus: Path = Field(description="File of a corpus, as corpus build writes it")
    out: Path = setting(
        "File of the questions; journal and left-out questions go to the folder of the same name",
        Panel.OUTPUT,
        default=Path("questions.jsonl"),
        common=True,
    )
    held_out: Path | None = setting(
        "File of the held-out questions [default: held-out.jsonl, or <name of --out>-held-out.jsonl]", Panel.OUTPUT
    )
    count: int = setting("Questions to keep at least, held-out ones included", default=300, ge=1, common=True)
    multi_hop: Share = setting("Share of the questions that need two to four passages", Panel.DATA, default=0.5)
    held_out_share: KeptApart = setting(
        "Share of the questions that are held out, with their documents", Panel.DATA, default=0.2
    )
    seed: Seed = setting("Seed of the requests, of the passages and of the held-out documents", default=0)

    @property
    def folder(self) -> Path:
        return self.out.with_suffix("")

    @property
    def place_of_held_out(self) -> Path:
        stem = "held-out" if self.out.stem == "questions" else f"{self.out.stem}-held-out"
        return self.held_out or self.out.with_stem(stem)


class QuestionWritingSettings(LimitSettings, BudgetSettings, ModelSettings, RetrievalSettings, WantedQuestionSettings):
    model: str | None = setting(
        f"Model that writes and reads, or offline [default: {DEFAULT_TEACHER}]", Panel.MODEL, common=True
    )
    top_k: int = setting(
        "Passages of the search that must not suffice for a question of several hops",
        Panel.RETRIEVAL,
        default=TOP_K,
        ge=1,
    )
    prompts: Path | None = setting(
        "Folder with your own prompts: question.txt writes, check.txt answers from passages", Panel.MODEL
    )
