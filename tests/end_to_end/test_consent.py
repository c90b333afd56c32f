"""Without --max-cost every command shows its estimate before it spends money, and asks in a terminal."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

import orjson
import pytest

import reasonrag as package
from reasonrag.data.questions import Question
from reasonrag.llm.offline import OfflineTeacher
from tests.helpers.command_line import Reasonrag
from tests.helpers.processes import Command, stats
from tests.helpers.shared import Shared

SMALL = ("--dataset", "atlas", "--set", "search.simulations=2", "--concurrency", 4)
COST = re.compile(r"about \$([\d,.]+) to \$([\d,.]+) for ")
ESTIMATE = re.compile(
    r"about \$([\d,.]+) to \$([\d,.]+) for [\d,]+ to [\d,]+ requests? to ([\w., -]+), and no --max-cost"
)


def in_a_terminal(*words: object, answer: bytes) -> tuple[int, str]:
    """Exit status and everything shown in a terminal, where a question gets this answer."""
    ours, theirs = os.openpty()
    with Command(*words, terminal=theirs) as running:
        os.close(theirs)
        shown, answered = b"", False
        with suppress(OSError):  # how a terminal ends
            while more := os.read(ours, 4096):
                shown += more
                if not answered and b"[y/N]" in shown:
                    os.write(ours, answer)
                    answered = True
        os.close(ours)
        return running.wait(), " ".join(shown.decode().split())


def generate(base_url: str, *more: object, limit: int | None = 3, run: str = "runs/a") -> list[object]:
    limited = [] if limit is None else ["--limit", limit]
    return ["generate", *SMALL, *limited, "--model", "gpt-4o", "--base-url", base_url, "--run", run, *more]


# -- in a terminal ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [b"what?\n", b"\x04", b"\x03"])
def test_no_spends_nothing(answer: bytes, endpoint: str) -> None:
    """Anything but y and yes; the end of the input and Ctrl-C too. Only the trial question was asked."""
    before = stats(endpoint)["requests"]
    status, shown = in_a_terminal(*generate(endpoint, limit=None), answer=answer)
    assert status == 2, shown
    assert ESTIMATE.search(shown), shown
    assert "all 768 questions of atlas/train (no --limit)" in shown
    assert "nothing was spent beyond trial requests" in shown
    assert "--max-cost" in shown
    assert "--yes" in shown
    assert not any(each.stat().st_size for each in Path("runs").rglob("*.jsonl"))
    assert stats(endpoint)["requests"] <= before + 1


def test_yes_goes_on_and_growing_a_run_asks_about_what_is_left(endpoint: str) -> None:
    """What it then costs lies between the two ends. From three questions to a whole split: the three that are done are
    not counted, and a no leaves them."""
    status, shown = in_a_terminal(*generate(endpoint), answer=b"YES\n")
    estimate = ESTIMATE.search(shown)
    assert (status, bool(estimate)) == (0, True), shown
    assert estimate
    cost = orjson.loads(Path("runs/a/summary.json").read_bytes())["cost_usd"]
    assert float(estimate[1]) <= cost <= float(estimate[2])
    kept = Path("runs/a/rollouts.jsonl").read_bytes()
    before = stats(endpoint)["requests"]
    status, shown = in_a_terminal(*generate(endpoint, limit=None), answer=b"n\n")
    assert (status, "765 left of all 768 questions of atlas/train (no --limit)" in shown) == (2, True), shown
    assert Path("runs/a/rollouts.jsonl").read_bytes() == kept
    assert stats(endpoint)["requests"] <= before + 1
    status, shown = in_a_terminal(*generate(endpoint), answer=b"n\n")
    assert (status, "[y/N]" in shown) == (0, False), shown


def test_what_a_stopped_run_has_paid_is_not_counted_again(reasonrag: Reasonrag, endpoint: str) -> None:
    """Some questions are done, some are half answered: the low end counts neither."""
    stopped = reasonrag(*generate(endpoint, "--max-calls", 40, "--json", limit=6))
    assert stopped.status == 3, stopped.err
    done = reasonrag(*generate(endpoint, "--json", limit=6))
    estimate, paid = COST.search(done.err), orjson.loads(stopped.out)["cost_usd"]
    assert estimate, done.err
    assert float(estimate[1]) <= orjson.loads(done.out)["cost_usd"] - paid <= float(estimate[2])


@pytest.mark.parametrize(
    "more", [("--yes",), ("--max-cost", 5), ("--price", "gpt-4o=0,0"), ("--dry-run",), ("--model", "mystery")]
)
def test_nothing_is_asked_where_nothing_is_open(more: tuple[object, ...], endpoint: str) -> None:
    """Consent was given, a cap holds, the model is free, nothing will be asked, or no price is known."""
    status, shown = in_a_terminal(*generate(endpoint, *more), answer=b"n\n")
    assert (status, "[y/N]" in shown, "no --max-cost limits it" in shown) == (0, False, False), shown


# -- without a terminal ----------------------------------------------------------------------------------------------


def test_an_outcome_function_is_not_called_for_an_estimate() -> None:
    """It may cost something itself: it is called as often as without an estimate."""
    calls: list[str] = []

    def is_short(_question: Question, answer: str) -> float:
        calls.append(answer)
        return float(len(answer) < 10)

    counts = []
    for run, yes in (("runs/a", False), ("runs/b", True)):
        calls.clear()
        asked = {"dataset": "atlas", "set": {"search.simulations": 2}, "limit": 2, "run": run, "yes": yes}
        package.generate(**asked, outcome=is_short, chat_model=OfflineTeacher(name="gpt-4o"))
        counts.append(len(calls))
    assert counts[0] == counts[1] > 0


def test_a_price_that_is_not_known_is_left_out_and_said(reasonrag: Reasonrag, endpoint: str) -> None:
    """What is known is asked about."""
    words = ("--dataset", "atlas", "--limit", 2, "--run", "out", "--model", "gpt-4o", "--judge", "mystery")
    done = reasonrag("evaluate", *words, "--base-url", endpoint)
    assert done.status == 0, done.err
    assert "gpt-4o and mystery (without those to mystery, whose price is not known), and no --max-cost" in done.err


# -- the other commands ----------------------------------------------------------------------------------------------

AT = ("--model", "gpt-4o", "--concurrency", 4, "--base-url")
ATLAS = ("--dataset", "atlas", "--limit", 6)
COMMANDS: dict[str, tuple[tuple[object, ...], str, str]] = {
    "evaluate": (("evaluate", *ATLAS, "--run", "out", *AT), "6 questions: ", "cost_usd"),
    "a judge of answers": (
        ("evaluate", *ATLAS, "--run", "out", "--judge", "gpt-4o-mini", *AT),
        "requests to gpt-4o and gpt-4o-mini, ",
        "cost_usd",
    ),
    "a free model with a paid judge": (
        ("evaluate", *ATLAS, "--run", "out", "--model", "offline", "--judge", "gpt-4o", "--judge-base-url"),
        "requests to offline and gpt-4o, ",
        "cost_usd",
    ),
    "labels by a judge": (
        ("pairs", "runs/offline", "--out", "out", "--label", "judge", *AT),
        " states: ",
        "judging.cost_usd",
    ),
}
"""By name: the words up to the address, what the question says of the work, and where the result says the cost."""


@pytest.fixture
def explored(shared: Shared) -> None:
    """A run that pairs can take."""
    made = shared.folder("explored", lambda: package.generate(dataset="atlas", limit=8, run="runs/offline"))
    shutil.copytree(made, ".", dirs_exist_ok=True)


@pytest.mark.usefixtures("explored")
@pytest.mark.parametrize("name", ["evaluate", "labels by a judge"])
def test_each_command_asks_and_a_no_spends_nothing(name: str, endpoint: str) -> None:
    """Only the trial questions of its models were asked. With --yes nothing is asked, and nothing is warned of."""
    words, work, _ = COMMANDS[name]
    before = stats(endpoint)["requests"]
    status, shown = in_a_terminal(*words, endpoint, answer=b"n\n")
    assert (status, work in shown, "nothing was spent beyond trial requests" in shown) == (2, True, True), shown
    assert stats(endpoint)["requests"] <= before + 2
    status, shown = in_a_terminal(*words, endpoint, "--yes", answer=b"n\n")
    assert (status, "no --max-cost" in shown) == (0, False), shown


@pytest.mark.usefixtures("explored")
@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_command_costs_lies_between_the_ends(name: str, endpoint: str, reasonrag: Reasonrag) -> None:
    """Without a terminal one line warns; what is done is neither asked again nor warned of."""
    words, work, where = COMMANDS[name]
    done = reasonrag(*words, endpoint, "--json")
    assert done.status == 0, done.err
    assert done.err.count("no --max-cost limits it") == 1, done.err
    assert work in done.err
    estimate, cost = COST.search(done.err), orjson.loads(done.out)
    for part in where.split("."):
        cost = cost[part]
    assert estimate
    assert float(estimate[1]) <= cost <= float(estimate[2])
    again = reasonrag(*words, endpoint, "--json")
    assert (again.status, "no --max-cost" in again.err) == (0, False), again.err
