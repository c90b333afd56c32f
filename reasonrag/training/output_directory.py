"""A training's output directory: what it holds beside the model, and whether a command may resume there.

    train.yaml        what LLaMA-Factory reads
    training.json     how that was resolved, what was launched, and how far it got
    reasonrag.json    what the model was trained on and how to prompt it (`reasonrag.training.provenance`)
    prompts/          the prompts it needs
    train.log         the full output of LLaMA-Factory
    checkpoint-N/, model files, trainer_log.jsonl, trainer_state.json, ..   LLaMA-Factory's own
    metrics.json, README.md   written at the end

Decides what counts as a changed configuration and which checkpoint a training resumes from. Knows no processes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from preference.export.private_files import write_json
from reasonrag.errors import InputError
from reasonrag.files import locked, only_writer, read_record
from reasonrag.run_config import changed_keys
from reasonrag.training.metrics import TRAINER_STATE, read_logged
from reasonrag.training.provenance import CHECKPOINT

TRAINING, TRAIN_YAML, TRAIN_LOG = "training.json", "train.yaml", "train.log"
_CHILD_LOCK = ".training"
_MODEL_FILES = ("model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors", "adapter_config.json")


def utc_now() -> str:
    """The time as records have it: UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class TrainingRecord(BaseModel):
    """Content of `training.json`."""

    schema_version: Literal["reasonrag.training/1"] = "reasonrag.training/1"
    state: Literal["started", "trained", "finished"] = "started"
    """started: possibly interrupted. trained: LLaMA-Factory succeeded. finished: metrics and card are written."""
    config: str
    """Name of the configuration file."""
    decides: dict[str, Any]
    """The identity of this training: with another value for any of these it is another training."""
    config_hash: str
    resolved: dict[str, Any]
    """What LLaMA-Factory reads, as in `train.yaml`."""
    settings: dict[str, Any]
    data: dict[str, Any]
    lengths: dict[str, Any] = {}
    notes: list[str]
    set_aside: list[str] = []
    """Blockers that were set aside, as flags."""
    command: list[str] = []
    environment: dict[str, str]
    """Environment variables set for LLaMA-Factory's launcher."""
    python: str
    versions: dict[str, str]
    gpus: list[str]
    started: str = Field(default_factory=utc_now)
    ended: str | None = None
    resumed_from: list[str] = []
    """Checkpoints it was resumed from, in order."""


class OutputDirectory:
    """An output directory, locked while it is held. rank: of this machine; all but 0 write into folders of theirs."""

    def __init__(self, folder: Path, *, rank: int = 0) -> None:
        self.folder, self.is_first = folder, rank == 0
        self.own = folder if rank == 0 else folder / f"node-{rank}"

    @contextmanager
    def held(self) -> Iterator[int]:
        """Lock the folder; gives a descriptor that the child inherits, so a child that outlives us keeps the lock.

        Raises InputError if another process trains there or the folder cannot be written.
        """
        child_lock = self.own / _CHILD_LOCK
        with only_writer(self.own, flag="--out"), locked(child_lock, self.own, self._still_trains) as lock:
            yield lock.fileno()

    def _still_trains(self) -> None:
        raise InputError(
            f"the trainer of a reasonrag that was killed still writes to {self.own}; wait for it or stop it, then run "
            "this again"
        )

    def record(self) -> TrainingRecord | None:
        """The record in the folder; None if no training has started there. Raises InputError if it is damaged."""
        return read_record(self.folder / TRAINING, TrainingRecord, "Choose another --out")

    def check(self, decides: Mapping[str, Any]) -> TrainingRecord | None:
        """The record of this training, if there is one. Raises InputError if the folder holds another training."""
        found = self.record()
        if found:
            refuse_another(self.folder, changed_keys(found.decides, dict(decides)))
            return found
        for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            if path.name in _MODEL_FILES or CHECKPOINT.fullmatch(path.name):
                raise InputError(
                    f"{self.folder} holds {path.name}, which no training of reasonrag wrote; choose another --out"
                )
        return None

    def last_checkpoint(self) -> Path | None:
        """The newest checkpoint that was written completely."""
        found = [
            (int(match[1]), path)
            for path in self.folder.glob("checkpoint-*")
            if (match := CHECKPOINT.fullmatch(path.name)) and read_logged(path / TRAINER_STATE)
        ]
        return max(found)[1] if found else None

    def write_record(self, record: TrainingRecord) -> None:
        write_json(self.own / TRAINING, record.model_dump(mode="json"), shared=True)


def refuse_another(folder: Path, changed: Sequence[str], *, flag: str = "--out") -> None:
    """Raises InputError if anything is `changed`, in words, from what the folder holds. flag: that chose the folder."""
    if changed:
        more = f", and {len(changed) - 6} more" if len(changed) > 6 else ""  # noqa: PLR2004 - enough to see what it is
        raise InputError(
            f"{folder} holds another training: {'; '.join(changed[:6])}{more}. Choose another {flag}, or remove the "
            "folder to start over"
        )
