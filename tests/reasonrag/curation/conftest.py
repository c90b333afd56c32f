"""A run that the tests of data sets share."""

from __future__ import annotations

from pathlib import Path

import pytest

from reasonrag.exploration.explore import generate


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the offline teacher over twelve questions of atlas, whose world lies beside it. No test changes it."""
    home = tmp_path_factory.mktemp("run")
    generate(dataset="atlas", model="offline", limit=12, run=home / "run", index_home=home / "indexes")
    return home / "run"
