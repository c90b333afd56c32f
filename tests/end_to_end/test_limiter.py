"""Ranks under one limiter, all of them processes: they stay within its caps, and outlive its death."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from reasonrag.files import JOURNAL, ROLLOUTS
from tests.helpers.processes import Command, finished, simulated_endpoint, until

QUESTIONS = 12


@contextmanager
def limiter(*words: object, run: str = "run") -> Iterator[tuple[Command, str]]:
    with Command("limiter", run, *words) as running:
        yield running, running.first_line().split()[2]


def explore(endpoint: str, *words: object) -> list[object]:
    flags = ["--dataset", "atlas", "--limit", QUESTIONS, "--model", "offline", "--base-url", endpoint, "--yes"]
    return ["generate", *flags, "--concurrency", 8, *words]


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    with simulated_endpoint("--latency", 0.02) as address:
        assert finished(*explore(address, "--limit", 1, "--run", "first")).returncode == 0  # builds the index
        yield address


def lines(*runs: str) -> list[bytes]:
    return sorted(line for each in runs for line in Path(each, ROLLOUTS).read_bytes().splitlines())


def calls_in(*runs: str) -> int:
    journals = [Path(each, JOURNAL).read_bytes().splitlines() for each in runs]
    return sum(len(json.loads(line)["completions"]) for journal in journals for line in journal)


RANKS = ("run/ranks/00000", "run/ranks/00001")


def test_two_ranks_stay_within_one_cap_and_go_on_under_a_higher_one(endpoint: str) -> None:
    """Exit status 3, and what to do; whichever rank was faster has spent more. A tree is whole or not there."""
    with limiter("--port", 0, "--max-calls", 300) as (_, address), ExitStack() as stack:
        both = [
            stack.enter_context(
                Command(*explore(endpoint, "--run", "run", "--shard", f"{each}/2", "--limiter", address))
            )
            for each in range(2)
        ]
        assert [each.wait() for each in both] == [3, 3]
        said = both[0].out + both[0].err
        assert "--max-calls: " in said
        assert f"First start the limiter at {address} again with --max-calls 60" in " ".join(said.split())
        told: dict[str, Any] = json.load(urlopen(f"{address}/health"))  # noqa: S310 - our own
        assert told["spent"]["calls"] == calls_in(*RANKS)
    assert 300 - 8 < calls_in(*RANKS) <= 300
    with limiter("--port", 0) as (_, address):
        for each in range(2):
            ended = finished(*explore(endpoint, "--run", "run", "--shard", f"{each}/2", "--limiter", address))
            assert ended.returncode == 0, ended.stderr
    assert finished(*explore(endpoint, "--run", "alone")).returncode == 0
    assert lines(*RANKS) == lines("alone")
    merged = finished("merge", "run", "--verify")
    assert (merged.returncode, "verified: " in merged.stdout) == (0, True), merged.stderr


def test_a_limiter_killed_in_the_middle_goes_on_where_it_was_and_so_do_its_ranks(endpoint: str) -> None:
    """They wait for it. Where no cap binds, they write what one process writes, and nothing is paid for twice."""
    state = Path("run/limiter.jsonl")
    with ExitStack() as stack:
        first, address = stack.enter_context(limiter("--port", 0, "--max-calls", 100_000))
        both = [
            stack.enter_context(
                Command(*explore(endpoint, "--run", "run", "--shard", f"{each}/2", "--limiter", address))
            )
            for each in range(2)
        ]
        until(lambda: all(Path(each, JOURNAL).exists() and calls_in(each) > 20 for each in RANKS))
        first.kill()
        first.wait()
        held = {each["rank"]: each["allowed"] for each in map(json.loads, state.read_bytes().splitlines())}
        second, again = stack.enter_context(limiter("--port", address.rpartition(":")[2], "--max-calls", 100_000))
        assert again == address
        assert [each.wait() for each in both] == [0, 0]
        assert second.poll() is None
    now = {each["rank"]: each["allowed"] for each in map(json.loads, state.read_bytes().splitlines())}
    assert now.keys() == held.keys()
    assert finished(*explore(endpoint, "--run", "alone")).returncode == 0
    assert lines(*RANKS) == lines("alone")
    assert calls_in(*RANKS) == calls_in("alone")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--shard", "0/2", "--max-calls", "9"], "give --max-calls to `reasonrag limiter`"),
        (["--shard", "0/2", "--rpm", "9", "--max-cost", "1"], "give --max-cost and --rpm to `reasonrag limiter`"),
        ([], "give --shard i/n"),
    ],
)
def test_a_cap_stands_in_one_place(endpoint: str, flags: list[str], message: str) -> None:
    """Nothing is started where a rank has caps of its own."""
    ended = finished(*explore(endpoint, "--run", "run", "--limiter", "http://127.0.0.1:1", *flags))
    assert ended.returncode == 2
    assert message in " ".join(ended.stderr.split())


def test_without_a_limiter_a_rank_has_its_part_of_the_caps(endpoint: str) -> None:
    """Said once, at the start."""
    flags = ["--shard", "1/4", "--max-calls", 90, "--max-tokens", 4_000_000, "--max-cost", 40, "--price-in", 0]
    ended = finished(*explore(endpoint, "--run", "run", *flags, "--price-out", 0))
    said = " ".join(ended.stderr.split())
    assert said.count("$10.00 of --max-cost 40, 22 of --max-calls 90, 1,000,000 of --max-tokens 4,000,000") == 1
    assert ended.returncode == 3
    assert calls_in("run/ranks/00001") <= 22


def test_two_limiters_of_one_run_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with limiter("--port", 0):
        ended = finished("limiter", "run", "--port", 0)
    assert (ended.returncode, "running already" in ended.stderr) == (2, True)
