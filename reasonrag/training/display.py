"""Terminal output of a training: a live line on stderr while it runs, the result on stdout."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Final

from rich.markup import escape
from rich.status import Status

from reasonrag.data.names import ATLAS, HUB_SPLITS
from reasonrag.redaction import redact
from reasonrag.terminal import TerminalWatcher, on_one_line, print_next, print_prose, print_shown, print_table
from reasonrag.training.llamafactory.config_files import as_yaml
from reasonrag.training.llamafactory.merge import MergeResult
from reasonrag.training.metrics import METRICS
from reasonrag.training.progress import SHOWN_METRICS, TrainingProgress
from reasonrag.training.provenance import read_provenance
from reasonrag.training.stages.training import TrainingResult

_EVERY: Final = 30.0
"""Seconds between lines when stderr is not a terminal."""
_SPLITS: Final = {**HUB_SPLITS, ATLAS: ("dev",)}


class TerminalTraining(TerminalWatcher):
    """One updating line in a terminal; elsewhere a line every `_EVERY` seconds, and the last one."""

    def __init__(self) -> None:
        super().__init__()
        self._live: Status | None = None
        self._said, self._line = 0.0, ""

    def stands(self, standing: TrainingProgress, *, logged: bool) -> None:
        line = escape(on_one_line(str(standing)))
        if self._console.is_terminal:
            if self._live is None:
                self._live = self._console.status(line)
                self._live.start()
            self._live.update(line)
        elif logged and line != self._line and time.monotonic() - self._said > _EVERY:
            self._console.print(line, soft_wrap=True)
            self._said = time.monotonic()
        self._line = line

    def ended(self) -> None:
        super().ended()
        if self._live:
            self._live.stop()
            self._live = None
        if self._line:
            self._console.print(self._line, soft_wrap=True)
        self._line = ""


def show_training(result: TrainingResult) -> None:
    """What was trained, its metrics, warnings, and the next command."""
    if result.state == "dry run":
        _show_plan(result)
        return
    for note in result.notes:
        _say(f"note: {note}")
    if result.state == "script written":
        print_shown(f"wrote {result.files[0]}; nothing was started. Submit it with: {' '.join(result.command)}")
        return
    if result.state == "finished already":
        print_shown(f"{result.out} was already trained with this configuration; nothing was started")
    rows = [("stage", f"{result.stage}, {result.finetuning_type}"), ("steps", f"{result.steps or 0:,}")]
    rows += [(shown, f"{result.results[name]:.4g}") for name, shown in SHOWN_METRICS.items() if name in result.results]
    print_table(Path(result.out).name, rows)
    for warning in result.warnings:
        _say(f"warning: {warning}")
    out = Path(result.out)
    if METRICS in result.files:
        print_shown(f"model: {out}; card: {out / 'README.md'}; numbers: {out / METRICS}")
    if result.stage == "rm":
        return
    if result.finetuning_type == "lora":
        print_next("train", "--merge", out, "--out", f"{out}-merged")
    else:
        _suggest_evaluation(out)


def _show_plan(result: TrainingResult) -> None:
    """The resolved configuration on stdout, those of earlier stages before it, notes and blockers on stderr."""
    for name, config in list(result.stages.items())[:-1]:
        print_shown(redact(as_yaml(config, f"stage {name}: what LLaMA-Factory would read")))
    print_shown(
        redact(as_yaml(result.config, f"reasonrag train would have LLaMA-Factory read this; hash {result.config_hash}"))
    )
    for note in result.notes:
        _say(f"note: {note}")
    for allowed in result.set_aside:
        _say(f"allowed: {allowed}")
    for objection in result.objections:
        _say(f"would be refused: {objection}")
    variables = " ".join(f"{name}={value}" for name, value in result.environment.items())
    _say(f"would be started: {variables}{' ' if variables else ''}{' '.join(result.command)}")


def show_merged(merged: MergeResult) -> None:
    """Where the merged model is, and the next command."""
    print_shown(f"merged {merged.adapter} into {merged.base_model}: {merged.out}")
    _suggest_evaluation(Path(merged.out))


def _suggest_evaluation(out: Path) -> None:
    """On the data set that the model was trained on, where it has a split for that; else on questions of the user."""
    known = read_provenance(out)
    names = {each.rpartition("/")[0] for each in known.splits} if known else set()
    held_back = [(name, split) for name in names for split in ("dev", "test") if split in _SPLITS.get(name, ())]
    if len(names) == 1 and held_back:
        [(name, split), *_] = held_back
        print_next("evaluate", "--model", out, "--dataset", name, "--split", split)
    else:
        print_next("evaluate", "--model", out, "--questions", "QUESTIONS.jsonl", "--corpus", "CORPUS.jsonl")


def _say(message: str) -> None:
    print_prose(redact(on_one_line(message)), file=sys.stderr)


def as_json(result: Any) -> str:
    text: str = result.model_dump_json()
    return redact(text)
