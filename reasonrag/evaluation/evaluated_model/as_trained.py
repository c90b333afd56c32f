"""Settings that nobody gave: those of a preset, else those the evaluated model was trained with.

Decides which prompts, passages, budget and style of answers a trained model is asked with by default. Whether what is
asked in the end fits its training is decided by `provenance_check`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

from reasonrag.agent.prompting import PROMPTS, PUBLISHED, load_prompts, renderer_hash
from reasonrag.evaluation.settings import PRESETS, ModelSettings
from reasonrag.training.provenance import SHOWN_PLAINLY, Provenance

AnyModelSettings = TypeVar("AnyModelSettings", bound=ModelSettings)
_CONDITIONS = ("top_k", "max_steps", *SHOWN_PLAINLY)


def asked_as_trained(
    settings: AnyModelSettings, sources: Sequence[tuple[Path, Provenance]], allowed: Collection[str] = ()
) -> tuple[AnyModelSettings, str | None]:
    """The settings with what a preset and the training say where the user says nothing, and what was taken, in words.

    sources: what is known of the training, by the folder it was read from. allowed: conditions that may differ from it
        and so are not taken from it.
    """
    if settings.preset:
        preset = PRESETS[settings.preset]
        settings = settings.model_copy(
            update={name: value for name, value in preset.items() if name not in settings.model_fields_set}
        )
    taken = {} if "renderer" in allowed else _prompts(settings, sources)
    taken |= _conditions(settings, sources, {*_CONDITIONS} - {*settings.model_fields_set, *allowed})
    said = ", ".join(f"--{name.replace('_', '-')} {value}" for name, value in taken.items())
    if settings.preset and settings.prompts is None and "prompts" not in taken:
        taken["prompts"] = Path(PUBLISHED)
    return settings.model_copy(update=taken), f"asking as it was trained: {said}" if said else None


def _prompts(settings: ModelSettings, sources: Sequence[tuple[Path, Provenance]]) -> dict[str, Any]:
    """The folder of prompts beside the model, or of a checkpoint beside the training around it; none where they are
    those of the package, or not those of the training."""
    for folder, provenance in sources if settings.prompts is None else ():
        for place in (folder, folder.absolute().parent) if re.fullmatch(r"checkpoint-\d+", folder.name) else (folder,):
            if (place / PROMPTS).is_dir():
                renderer = renderer_hash(load_prompts(place / PROMPTS))
                fits = provenance.asked.renderer in (None, renderer)
                return {"prompts": place / PROMPTS} if fits and renderer != renderer_hash(load_prompts()) else {}
    return {}


def _conditions(
    settings: ModelSettings, sources: Sequence[tuple[Path, Provenance]], names: Collection[str]
) -> dict[str, Any]:
    """Those of the conditions of which the training had one known value, other than the usual one."""
    found = {}
    for name in (each for each in _CONDITIONS if each in names):
        values = {value for _, source in sources for value in getattr(source.asked, name)}
        usual = settings.steps if name == "max_steps" else getattr(settings, name)
        if len(values) == 1 and (value := values.pop()) not in (None, usual):
            found[name] = value
    return found
