"""What trainings are refused over: a data set that a test may spoil, and a base model beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.helpers.shared import Shared
from tests.helpers.training_world import make_world


@pytest.fixture
def data(shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the data set, a folder that looks like a Qwen2, and no LLaMA-Factory."""
    shutil.copytree(make_world(shared, None).data, tmp_path / "data")
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.json").write_text('{"model_type": "qwen2", "max_position_embeddings": 32768}')
    monkeypatch.setenv("REASONRAG_TRAIN_PYTHON", "/nowhere/python")
    return tmp_path / "data"
