"""What a recipe of trainings trains, by which configurations, and where; decides the folders of its stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasonrag.training.llamafactory.config_files import ConfigFile
from reasonrag.training.llamafactory.dataset_info import TrainingData
from reasonrag.training.llamafactory.launcher import Launch
from reasonrag.training.prepare import Permissions
from reasonrag.training.stages.runner import FOLDER


@dataclass(frozen=True)
class RecipePlan:
    """sft_changes, dpo_changes: what --set changes in each configuration. out: folder of the final model."""

    data: TrainingData
    out: Path
    sft: ConfigFile
    dpo: ConfigFile
    sft_changes: Mapping[str, Any]
    dpo_changes: Mapping[str, Any]
    launch: Launch
    permitted: Permissions

    def folder(self, stage: str) -> Path:
        """The folder of a stage before the last."""
        return self.out / FOLDER / stage
