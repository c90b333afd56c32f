"""Failures on disk: short, and without secrets."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from reasonrag.errors import OutcomeError
from reasonrag.run.failures import MOST_NOTED, FailureLog


@pytest.mark.parametrize("before", [0, MOST_NOTED - 40, MOST_NOTED - 7, MOST_NOTED])
def test_a_failure_of_megabytes_is_noted_in_short_and_without_a_key(
    before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the text is cut, no part of a key is left."""
    monkeypatch.setenv("OPENAI_API_KEY", "correct-horse-battery-staple-0123456789")
    path = tmp_path / "failures.jsonl"
    error = OutcomeError(f"{'.' * before}correct-horse-battery-staple-0123456789{'!' * 20_000_000}")
    with FailureLog(path) as log:
        log.give_up("question", error.cause, str(error), question_id="q1")
    [line] = map(orjson.loads, path.read_bytes().splitlines())
    assert (line["cause"], line["question_id"]) == ("outcome", "q1")
    assert len(line["message"]) == MOST_NOTED
    assert "correct" not in line["message"]
