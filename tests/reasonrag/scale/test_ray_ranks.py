"""`generate --on ray`: ranks on a cluster make the run of one process, stop together, and go on."""

from __future__ import annotations

import json
import os
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest

import reasonrag as package
from reasonrag.errors import InputError
from reasonrag.files import only_writer
from reasonrag.scale.ray_ranks import explore_on_ray
from tests.helpers.command_line import Reasonrag
from tests.helpers.processes import Command, finished, simulated_endpoint, until
from tests.helpers.scripted_model import ScriptedModel
from tests.helpers.shared import Shared
from tests.helpers.trees import paid

QUESTIONS = 16
RUN = Path("runs/atlas-train-economy")
"""The default, below the working directory of the command; that of the cluster is another."""


@pytest.fixture
def whole(shared: Shared) -> bytes:
    """rollouts.jsonl of one process."""

    def make() -> None:
        package.generate(dataset="atlas", limit=QUESTIONS, model="offline", run="whole")

    return (shared.folder("ray-whole", make) / "whole/rollouts.jsonl").read_bytes()


def words(*more: object) -> list[object]:
    asked = ["generate", "--dataset", "atlas", "--limit", QUESTIONS, "--model", "offline"]
    return [*asked, "--on", "ray", "--json", *more]


def rollouts() -> bytes:
    return (RUN / "rollouts.jsonl").read_bytes()


@pytest.mark.usefixtures("ray_address")
def test_each_rank_has_its_part_of_a_cap_and_one_process_finishes_the_run(whole: bytes) -> None:
    """Both together use no more than the cap; the command that is proposed needs no cluster."""
    stopped = finished(*words("--workers", 2, "--max-calls", 800))
    assert stopped.returncode == 3, stopped.stderr
    stop = json.loads(stopped.stdout)["stopped"]
    keys = [key for each in (RUN / "ranks").glob("*/journal.jsonl") for key in paid(each.parent)]
    assert len(keys) == len(set(keys)) <= 800
    assert (stop["cause"], f"{800 - len(keys):,} of --max-calls 800 is left" in stop["message"]) == ("cap", True)
    assert f"continue with: {stop['instead']}" in stopped.stderr
    done = finished(*shlex.split(stop["instead"])[1:])
    assert done.returncode == 0, done.stderr
    assert rollouts() == whole


@pytest.mark.usefixtures("ray_address")
def test_a_run_goes_on_with_fewer_workers(whole: bytes) -> None:
    one = ["generate", "--dataset", "atlas", "--limit", QUESTIONS, "--model", "offline"]
    assert finished(*one, "--shard", "0/2").returncode == 0
    done = finished(*words("--workers", 1))
    assert done.returncode == 0, done.stderr
    assert "2 ranks, 1 worker at a time" in done.stderr
    assert json.loads(done.stdout)["done"] == QUESTIONS
    assert rollouts() == whole


@pytest.mark.usefixtures("ray_address")
def test_ctrl_c_lets_all_ranks_finish_their_requests(whole: bytes) -> None:
    with simulated_endpoint("--latency", 0.05) as url, Command(*words("--base-url", url)) as run:
        until(lambda: run.poll() is not None or len(list((RUN / "ranks").glob("*/journal.jsonl"))) == 2)
        until(lambda: run.poll() is not None or all(each.stat().st_size for each in (RUN / "ranks").glob("*/journal*")))
        run.send_signal(signal.SIGINT)
        assert run.wait() == 130, run.err
        assert "finishing the requests in flight of all ranks" in run.err
        assert "continue with: reasonrag generate" in run.err
    done = finished(*words())
    assert done.returncode == 0, done.stderr
    assert rollouts() == whole


@pytest.mark.usefixtures("ray_address")
def test_ranks_ask_where_the_process_that_starts_them_would() -> None:
    """Whatever OPENAI_BASE_URL is where they run."""
    elsewhere = dict(os.environ) | {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "any"}
    asked = ["--model", "some", "--price", "some=0,0"]
    refused = finished(*words(*asked), environment=elsewhere)
    assert refused.returncode == 2, refused.stderr
    assert "cannot reach http://127.0.0.1:9/v1" in refused.stderr


@pytest.mark.usefixtures("ray_address")
def test_when_one_rank_cannot_go_on_the_others_finish_their_requests() -> None:
    """What was sent is paid, so it is recorded."""
    with simulated_endpoint("--latency", 0.3) as url:
        asked = [*words("--workers", 2, "--base-url", url, "--concurrency", 2)]
        one = ["generate", "--dataset", "atlas", "--limit", QUESTIONS, "--model", "offline", "--run", RUN]
        assert finished(*one, "--shard", "0/3").returncode == 0
        with only_writer(RUN / "ranks/00002"):
            refused = finished(*asked)
    assert refused.returncode == 2
    assert "rank 2: " in refused.stderr
    summary = json.loads((RUN / "ranks/00001/summary.json").read_bytes())
    assert summary["stopped"]["cause"] == "interrupted"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"chat_model": ScriptedModel([])}, "ranks cannot have objects of this process"),
        ({"outcome": lambda _question, _answer: 1.0}, "models, retrievers and outcomes by settings"),
        ({"replay": True}, "nor a replay"),
        ({"shard": "0/2"}, "`shard` is one rank, `on` ray starts them all"),
        ({"launch": None}, "from Python give `launch`, too"),
        ({"model": "gpt-4o"}, "ranks cannot ask: give `max_cost` DOLLARS"),
    ],
)
def test_what_ranks_cannot_have_is_refused_before_a_cluster_is_sought(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        package.generate(dataset="atlas", limit=2, run="r", on="ray", **({"launch": explore_on_ray} | given))
    assert not Path("r").exists()


def test_a_run_of_one_process_is_not_taken_over() -> None:
    package.generate(dataset="atlas", limit=1, model="offline", run="r")
    with pytest.raises(InputError, match="r holds a run of one process; go on without `on` ray"):
        package.generate(dataset="atlas", limit=1, model="offline", run="r", on="ray", launch=explore_on_ray)


def test_workers_are_refused_without_a_cluster(reasonrag: Reasonrag) -> None:
    refused = reasonrag("generate", "--dataset", "atlas", "--limit", 1, "--run", "r", "--workers", 2)
    assert (refused.status, "--workers goes with --on ray" in refused.err) == (2, True)
    assert not Path("r").exists()
