"""Whatever happens to a run, nothing paid for is lost or paid for again, and it ends as if nothing had happened."""

from __future__ import annotations

import json
import random
import re
import shlex
import signal
import time
from pathlib import Path

import orjson
import pytest

import reasonrag as package
from reasonrag.data.atlas import write_world
from tests.endpoints.behaviour import EndpointBehaviour
from tests.helpers.endpoints import Stage
from tests.helpers.processes import Command, finished, simulated_endpoint, stats
from tests.helpers.shared import Shared
from tests.helpers.trees import digest, rows

QUESTIONS = 12
KILLS = 50


def command(
    base_url: str, *more: object, run: str = "runs/a", limit: int = QUESTIONS, simulations: int = 3
) -> list[object]:
    words = ["generate", "--dataset", "atlas", "--limit", limit, "--set", f"search.simulations={simulations}"]
    return [*words, "--model", "offline", "--base-url", base_url, "--run", run, *more]


@pytest.fixture
def undisturbed(shared: Shared) -> str:
    """What the run ends with when nothing happens to it."""
    whole = {"dataset": "atlas", "limit": QUESTIONS, "set": {"search.simulations": 3}, "run": "runs/undisturbed"}
    return digest(shared.folder("undisturbed", lambda: package.generate(**whole)) / "runs/undisturbed")


class Killer:
    """Kills the command at a request drawn by lot: when it arrives, when its answer has gone out, or a moment later."""

    def __init__(self) -> None:
        self._dice = random.Random(3)
        self._victim: Command | None = None
        self._wait = 0

    def aim(self, victim: Command) -> None:
        self._wait, self._victim = self._dice.randint(1, 7), victim

    def arrived(self, _: int) -> None:
        self._wait -= 1
        if self._wait == 0 and self._dice.random() < 0.5:
            self._kill()

    def answered(self, _: int) -> None:
        if self._wait <= 0 and self._victim:
            time.sleep(self._dice.choice((0.0, self._dice.uniform(0.0, 0.02))))
            self._kill()

    def _kill(self) -> None:
        if self._victim:
            self._victim.kill()
        self._victim = None


def test_a_run_killed_at_fifty_random_moments_ends_like_an_undisturbed_one(undisturbed: str) -> None:
    """SIGKILL, again and again: the same bytes in the end, and only what was in flight at a kill was asked again."""
    concurrency, killer, kills = 4, Killer(), 0
    stage = Stage(EndpointBehaviour(latency=0.005), arrived=killer.arrived, answered=killer.answered)
    with stage.open():
        words = command(stage.base_url, "--concurrency", concurrency)
        while True:
            with Command(*words) as running:
                if kills < KILLS:
                    killer.aim(running)
                status = running.wait()
            if status == 0:
                break
            assert status == -signal.SIGKILL, running.err
            kills += 1
        served = stats(stage.base_url)
    assert digest("runs/a") == undisturbed
    assert kills == KILLS
    keys = [key for line in rows(Path("runs/a/journal.jsonl")) for key in line["keys"]]
    assert len(keys) == len(set(keys)), "an answer was recorded twice"
    trials = kills + 1  # the short question of the check, once a start
    assert served["delivered"]["repeated"] <= kills * concurrency + trials


def test_a_degenerate_run_stops_at_the_same_question_after_kills() -> None:
    """A greedy endpoint: the stop falls at one question, with the same trees up to it, wherever the run was killed."""
    killer, found = Killer(), []
    stage = Stage(EndpointBehaviour(), arrived=killer.arrived, answered=killer.answered)
    with stage.open():
        for kills, concurrency in ((0, 1), (12, 16)):
            run = f"runs/{kills}"
            words = command(stage.base_url, "--concurrency", concurrency, "--temperature", 0, run=run, limit=40)
            for _ in range(kills):
                with Command(*words) as running:
                    killer.aim(running)
                    assert running.wait() == -signal.SIGKILL, running.err
            stopped = finished(*words, "--json")
            assert stopped.returncode == 1, stopped.stderr
            trees = Path(run, "rollouts.jsonl").read_bytes().splitlines()
            found.append((json.loads(stopped.stdout)["stopped"], trees[:20]))
    assert found[0] == found[1]
    assert "identical siblings in 20 of 20 questions" in found[0][0]["message"]


FAULTS = {
    "429": 0.03,
    "429-retry-after": 0.03,
    "500": 0.03,
    "reset": 0.03,
    "half-body": 0.03,
    "hang": 0.01,
    "invalid-json": 0.03,
    "empty-choices": 0.03,
    "slow-first-byte": 0.03,
}


ALL_SOON = ("--fault-seed", 690)
"""Every kind hits one of the first 22 requests."""


def test_an_endpoint_that_does_everything_wrong_changes_no_byte() -> None:
    """A quarter of all requests go wrong in nine ways; n and stop are ignored: the run is that of a good endpoint."""
    faults = [word for kind, share in FAULTS.items() for word in ("--fault", f"{kind}={share}")]
    # few waits before retries stand one after another
    short = ("--limit", 6, "--max-steps", 3)
    with simulated_endpoint(*faults, *ALL_SOON, "--ignore-n", "--ignore-stop", "--hang", "60", "--slow", "0.3") as bad:
        words = command(bad, *short, "--timeout", 2, "--concurrency", 64, "--json", simulations=1)
        done = finished(*words, timeout=500)
        if done.returncode == 1:  # all eight attempts of a request failed, as they may in one run of a hundred
            done = finished(*words, timeout=500)
        assert done.returncode == 0, done.stderr
        happened = stats(bad)["faults"]
    with simulated_endpoint("--ignore-n") as good:
        assert finished(*command(good, *short, run="runs/good", simulations=1)).returncode == 0
    assert set(happened) == set(FAULTS)
    assert digest("runs/a") == digest("runs/good")
    causes = {orjson.loads(line)["cause"] for line in Path("runs/a/failures.jsonl").read_bytes().splitlines()}
    assert {"http_429", "http_500", "connection", "timeout", "bad_answer"} <= causes
    written = Path("runs/a/failures.jsonl").read_bytes().count(b'"kind":"call"')
    assert written >= sum(happened.values()) - happened["slow-first-byte"] - 5


@pytest.mark.parametrize(
    ("cap", "value", "used"),
    [("--max-calls", 100, "calls"), ("--max-tokens", 30_000, "tokens"), ("--max-cost", 0.05, "cost")],
)
def test_a_cap_stops_the_run_before_it_is_crossed(cap: str, value: float, used: str, shared: Shared) -> None:
    """Exit status 3; what was delivered stays below the cap; the closing line is the command that goes on."""
    prices = ["--price", "offline=2.5,10"]
    with simulated_endpoint() as base_url:
        stopped = finished(*command(base_url, cap, value, *prices, "--json"))
        assert stopped.returncode == 3, stopped.stderr
        summary = json.loads(stopped.stdout)
        assert summary["stopped"]["cause"] == "cap"
        tokens = delivered(base_url)
        spent = {
            "calls": sum(len(line["keys"]) for line in rows(Path("runs/a/journal.jsonl"))),
            "tokens": sum(tokens),
            "cost": (tokens[0] * 2.5 + tokens[1] * 10) / 1e6,
        }
        assert 0.3 * value < spent[used] <= value
        [line] = [line for line in stopped.stderr.splitlines() if line.startswith("continue with: ")]
        words = shlex.split(line.removeprefix("continue with: "))
        assert words[:2] == ["reasonrag", "generate"]
        assert 2 * value <= float(words[words.index(cap) + 1]) < 2.5 * value
        at = words.index(cap)
        free = [*words[1:at], *words[at + 2 :]]
        assert finished(*free).returncode == 0
    whole = {"dataset": "atlas", "limit": QUESTIONS, "set": {"search.simulations": 3}, "run": "runs/priced"}
    priced = shared.folder("priced", lambda: package.generate(**whole, price="offline=2.5,10"))
    assert digest("runs/a") == digest(priced / "runs/priced")


def delivered(base_url: str) -> tuple[int, int]:
    """Prompt and completion tokens of whole answers, the trial question's included."""
    seen = stats(base_url)
    return seen["prompt_tokens"], seen["completion_tokens"]


@pytest.mark.parametrize("room", [5_000, 120_000])
def test_a_full_disk_stops_the_run_and_spoils_nothing(room: int, undisturbed: str) -> None:
    """No file may grow beyond `room` bytes: the run stops, says so, and goes on when there is room."""

    with simulated_endpoint() as base_url:
        package.index_build(corpus=_atlas_corpus())
        stopped = finished(*command(base_url), file_limit=room)
        assert stopped.returncode == 1, stopped.stderr
        said = " ".join(stopped.stderr.split())
        assert re.search(r"cannot write runs/a/(journal|rollouts)\.jsonl: File too large", said)
        assert "Traceback" not in stopped.stderr
        assert all(line["completions"] for line in rows(Path("runs/a/journal.jsonl")))
        whole = Path("runs/a/rollouts.jsonl").read_bytes()
        assert whole == b"" or whole.endswith(b"\n")
        assert all(orjson.loads(line) for line in whole.splitlines())
        assert finished(*command(base_url)).returncode == 0
    assert digest("runs/a") == undisturbed


def _atlas_corpus() -> Path:
    """The embedded world, written while there is room."""
    return write_world(Path("indexes")) / "corpus.jsonl"


def test_a_second_process_on_the_same_run_is_refused() -> None:
    """Two writers would pay twice. The second removes nothing of the first, though neither found the folder there."""
    stage = Stage(EndpointBehaviour())
    stage.hold_from(5)
    with stage.open(), Command(*command(stage.base_url, limit=2)) as first:
        stage.held.wait()
        before = sorted(Path().rglob("*"))
        second = finished(*command(stage.base_url, limit=2))
        assert sorted(Path().rglob("*")) == before
        stage.release()
        assert first.wait() == 0, first.err
    assert second.returncode == 2
    assert "is being written by another reasonrag" in second.stderr
