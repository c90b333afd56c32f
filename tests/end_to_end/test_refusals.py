"""A teacher that takes no temperature, no stop string and no max_tokens, as reasoning models do: every command gets its
answers, says once what was left out, and records it; the keys of answers do not change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.helpers.command_line import Reasonrag
from tests.helpers.processes import simulated_endpoint

REFUSED = ["max_tokens", "stop", "temperature"]
PICKY = ("--profile", "gpt-5")


@pytest.fixture(scope="module")
def picky() -> Iterator[str]:
    """Base URL of such an endpoint."""
    with simulated_endpoint(*PICKY) as base_url:
        yield base_url


def config_of(run: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads((Path(run) / "config.json").read_bytes())
    return found


def test_a_run_ends_clean_and_records_what_was_left_out(reasonrag: Reasonrag, picky: str) -> None:
    """In config and summary, beside the sampling that was asked for; and it stays there when nothing is left to ask."""
    asked = ("generate", "--model", "o", "--limit", 6, "--run", "runs/r", "--base-url", picky, "--temperature", 0.5)
    done = reasonrag(*asked)
    assert (done.status, done.err.count("does not accept temperature")) == (0, 1)
    assert "refused by o " in done.out
    for _ in range(2):
        summary = orjson.loads(Path("runs/r/summary.json").read_bytes())
        assert summary["refused_parameters"] == {"o": REFUSED}
        assert config_of("runs/r")["operational"]["refused_parameters"] == {"o": REFUSED}
        assert config_of("runs/r")["decides_answers"]["sampling"]["temperature"] == 0.5
        assert reasonrag(*asked).status == 0
    assert b'sampled_temperature":0.5' not in Path("runs/r/rollouts.jsonl").read_bytes()


def test_judges_that_ask_for_the_likeliest_reply_are_answered_too(reasonrag: Reasonrag, picky: str) -> None:
    """They ask at temperature 0, which such models refuse: of answers in an evaluation, and of steps in a data set."""
    model = ("--model", "o", "--base-url", picky)
    evaluated = reasonrag("evaluate", *model, "--limit", 4, "--judge", "o", "--run", "runs/e", "--json")
    report = orjson.loads(evaluated.out)
    assert (evaluated.status, report["failed"], report["unjudged_by_cause"]) == (0, 0, {})
    assert report["refused_parameters"]["o"] == REFUSED
    assert "temperature" in report["refused_parameters"]["o (judge)"]
    assert reasonrag("generate", *model, "--limit", 6, "--run", "runs/r").status == 0
    labelled = reasonrag("pairs", "runs/r", "--out", "data/r", "--label", "judge", *model, "--json")
    judging = orjson.loads(labelled.out)["judging"]
    assert (labelled.status, judging["given_up"], judging["unreadable"]) == (0, 0, 0)
    assert judging["refused_parameters"]["o"] == REFUSED


def test_a_field_that_the_endpoint_does_not_know_is_a_sentence(reasonrag: Reasonrag) -> None:
    """It was the user's own, so nothing goes on without it."""
    with simulated_endpoint("--profile", "fastapi-strict") as base_url:
        done = reasonrag(
            *("generate", "--model", "o", "--base-url", base_url, "--run", "runs/r", "--limit", 1),
            *("--extra-body", '{"reasoning_effort": "low"}'),
        )
    assert done.status == 2
    assert "reasoning_effort" in done.err
    assert "--extra-body sets reasoning_effort" in done.err
