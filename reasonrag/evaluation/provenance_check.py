"""Checks a model's provenance against its evaluation: no training questions, and the conditions of training.

Decides what is an error, what --allow lets pass and what is only a warning. A model that has seen the questions cannot
be measured on them; one that is prompted in other words, with other passages or budgets than in training is not the
model that was trained. Reads files only through `provenance` and `prompt_parity`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from preference.export import formats, summary
from reasonrag.data.item_files import explained_records
from reasonrag.data.questions import Question
from reasonrag.errors import InputError
from reasonrag.evaluation.methods.choice import ALLOWABLE, SEEN
from reasonrag.evaluation.report import ConditionCheck, EvaluationConditions, TrainedModel
from reasonrag.model_folder import PROVENANCE
from reasonrag.serving.local_server import VllmOptions
from reasonrag.training.prompt_parity import check_renderer
from reasonrag.training.provenance import SHOWN_PLAINLY, Provenance, TrainingConditions, question_keys, read_provenance


@dataclass(frozen=True)
class EvaluatedModel:
    """The evaluated model. name: of its answers; that of a folder names its very weights. folder: its own, where
    it is at hand. served_here: from that folder.

    base_model: what the adapter in the folder is an adapter of; None: what the folder says. vllm: how that serves it.
    known: whether there is anything to know of its training; the offline teacher had none.
    """

    name: str
    folder: Path | None = None
    served_here: bool = False
    base_model: str | None = None
    vllm: VllmOptions = field(default_factory=VllmOptions)
    known: bool = True


@dataclass(frozen=True)
class ProvenanceCheck:
    """The known provenance of a model, by the folder it was read from; empty if none is known."""

    subject: EvaluatedModel
    sources: Sequence[tuple[Path, Provenance]] = field(default=())

    @classmethod
    def of(cls, subject: EvaluatedModel, trained_on: Path | None) -> ProvenanceCheck:
        """Raises InputError for a --trained-on without provenance, for damaged files and for a reward model."""
        sources: list[tuple[Path, Provenance]] = []
        if subject.folder is not None and (own := read_provenance(subject.folder)) is not None:
            if own.stage == "rm":
                raise InputError(f"{subject.folder} is a reward model: it scores replies and writes none to evaluate")
            sources.append((subject.folder, own))
        if trained_on is not None:
            sources.append((trained_on, _read(trained_on)))
        return cls(subject, tuple(sources))

    @property
    def unknown(self) -> str | None:
        """A warning if the provenance is missing or incomplete."""
        if any(each.questions for _, each in self.sources) or not (self.sources or self.subject.known):
            return None
        if self.sources:
            return (
                f"{' '.join(str(each) for each, _ in self.sources)} does not record the training questions of "
                f"{self.subject.name}, so overlap with them was not checked; give --trained-on DIR, its data set"
            )
        return (
            f"the training of {self.subject.name} is unknown, so overlap with its training questions and its prompts "
            "were not checked; give --trained-on DIR, its folder or its data set"
        )

    def warnings(self, questions: Sequence[Question], asked: EvaluationConditions) -> list[str]:
        """All mismatches with these questions and conditions as warnings, none as an error."""
        if not self.sources:
            return [self.unknown] if self.unknown else []
        checks = [self.seen(questions, None, ALLOWABLE), *self.held_against(asked, ALLOWABLE)]
        return [each.message for each in checks if each.outcome == "allowed"]

    @property
    def trained(self) -> TrainedModel | None:
        if not self.sources:
            return None
        folder, first = self.sources[0]
        every = [each for _, each in self.sources]
        known = ("base_model", "stage", "finetuning_type", "config_hash")
        return TrainedModel(
            source=str(folder),
            **{name: getattr(first, name) or None for name in known},
            data=list(dict.fromkeys(name for each in every for name in each.data)),
            splits=sorted({name for each in every for name in each.splits}),
            questions=len({key for each in every for key in each.questions}),
        )

    def held_against(self, asked: EvaluationConditions, allowed: Iterable[str]) -> list[ConditionCheck]:
        """Checks of the conditions of training. Raises InputError for those that differ and are not allowed."""
        now = asked.model_dump(exclude={"retriever"})  # it may differ: other domains have other corpora
        found = {name: said for _, each in self.sources for name, said in each.asked.objections(**now)}
        wrong = [name for name in found if name not in (*allowed, "reader")]  # most models are their own reader
        if wrong:
            complaints = "; ".join(found[name] for name in wrong)
            spared = " ".join(f"--allow {name.replace('_', '-')}" for name in wrong)
            raise InputError(
                f"{self.subject.name} would be prompted differently than in training: {complaints}. To match training, "
                "leave out the flags that differ, or give the values of training, and as --prompts the folder of the "
                f"prompts its data were made with; or, if intended, {spared}"
            )
        known = {name for _, each in self.sources for name in _known(each.asked)}
        return [
            ConditionCheck(name=name, outcome="allowed", message=found[name])
            if name in found
            else ConditionCheck(name=name, outcome="same" if name in known else "unknown")
            for name in (*ALLOWABLE, "reader")
            if name != SEEN
            if name not in SHOWN_PLAINLY or name in found or getattr(asked, name)
        ]

    def seen(self, questions: Sequence[Question], split: str | None, allowed: Iterable[str]) -> ConditionCheck:
        """Whether the model was trained on any of these questions. Raises InputError if so, unless it is allowed.

        split: the questions' own, as dataset/split; None for a single question.
        """
        keys = [each for _, each in self.sources if each.questions]
        if not keys:
            return ConditionCheck(name=SEEN, outcome="unknown")
        texts = [each.question for each in questions]
        seen = {text for each in keys for text in each.trained_on(texts)}
        if not seen:
            return ConditionCheck(name=SEEN, outcome="same")
        of_splits = sorted({found for each in keys for found in each.splits})
        trained = f"its training questions are of {', '.join(of_splits)}" if of_splits else "split unknown"
        count = sum(text in seen for text in texts)
        which = f"{count:,} of the {len(texts):,} questions of {split}" if split else "this question"
        message = f"{self.subject.name} was trained on {which} ({trained})"
        if SEEN not in allowed:
            raise InputError(
                f"{message}: it would be evaluated on its training questions. Choose another --split or other "
                f"questions; or, if intended, --allow {SEEN.replace('_', '-')}"
            )
        return ConditionCheck(name=SEEN, outcome="allowed", message=message)


def _read(folder: Path) -> Provenance:
    """The provenance of a model's folder, or made from a data set."""
    if not folder.is_dir():
        raise InputError(f"--trained-on {folder}: there is no such folder; give a model's, or that of its data set")
    if (own := read_provenance(folder)) is not None:
        return own
    if not (folder / summary.QUESTIONS).is_file() and "train" not in formats.pairs_files(folder):
        raise InputError(
            f"--trained-on {folder}: it has no {PROVENANCE}, which reasonrag train writes, and neither "
            f"{summary.QUESTIONS} nor {formats.PAIRS_FILE}, which reasonrag pairs writes"
        )
    conditions = check_renderer(folder)
    with explained_records():
        keys, splits = question_keys(folder)
    return Provenance(
        base_model="",
        stage="",
        finetuning_type="",
        asked=conditions,
        data=[str(folder)],
        splits=list(splits),
        questions=keys,
    )


def _known(asked: TrainingConditions) -> list[str]:
    found = [] if asked.renderer is None else ["renderer"]
    found += SHOWN_PLAINLY if asked.knows_passages else []
    return found + [name for name in ("top_k", "max_steps") if any(each is not None for each in getattr(asked, name))]
