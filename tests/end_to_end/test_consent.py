"""Money that nobody has limited: every command shows its estimate before it asks a priced model, and asks in a
terminal."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import orjson
import pytest

import reasonrag as package
from reasonrag.llm.offline import OfflineTeacher
from tests.helpers.command_line import Reasonrag
from tests.helpers.processes import Command, simulated_endpoint

pytestmark = pytest.mark.slow
SMALL = ("--dataset", "atlas", "--simulations", 2, "--concurrency", 4)
ESTIMATE = re.compile(
    r"about \$([\d,.]+) to \$([\d,.]+) for [\d,]+ to [\d,]+ requests? to ([\w., -]+), and no --max-cost"
)


@pytest.fixture
def priced() -> Iterator[str]:
    """An endpoint that counts what it is asked; whatever it serves as gpt-4o has a price."""
    with simulated_endpoint() as base_url:
        yield base_url


def requests(base_url: str) -> int:
    """How many it has answered, the trial question of a session included."""
    found: int = httpx.get(base_url.removesuffix("/v1") + "/stats").json()["requests"]
    return found


def in_a_terminal(*words: object, answer: bytes) -> tuple[int, str]:
    """Exit status and everything shown, if somebody at a terminal answers so where a question is asked."""
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


@pytest.mark.parametrize("answer", [b"n\n", b"\n", b"what?\n", b"\x04", b"\x03"])
def test_no_leaves_nothing_and_spends_nothing(answer: bytes, priced: str) -> None:
    """Anything but y and yes; the end of the input and Ctrl-C too. Only the trial question was asked."""
    status, shown = in_a_terminal(*generate(priced, limit=None), answer=answer)
    assert status == 2, shown
    assert ESTIMATE.search(shown), shown
    assert "no --limit: that is all 768 questions of atlas/train" in shown
    assert "nothing was spent" in shown
    assert "--max-cost" in shown
    assert "--yes" in shown
    assert not Path("runs").exists()
    assert requests(priced) <= 1


@pytest.mark.parametrize("answer", [b"y\n", b"YES\n"])
def test_yes_goes_on(answer: bytes, priced: str) -> None:
    """And what it then costs lies between the two ends."""
    status, shown = in_a_terminal(*generate(priced, limit=6), answer=answer)
    assert status == 0, shown
    estimate = ESTIMATE.search(shown)
    assert estimate
    cost = orjson.loads(Path("runs/a/summary.json").read_bytes())["cost_usd"]
    assert float(estimate[1]) <= cost <= float(estimate[2])


def test_growing_a_run_asks_about_what_is_left(priced: str) -> None:
    """From three questions to a whole split: the three that are done are not counted, and a no leaves them."""
    assert in_a_terminal(*generate(priced), answer=b"y\n")[0] == 0
    rollouts = Path("runs/a/rollouts.jsonl").read_bytes()
    before = requests(priced)
    status, shown = in_a_terminal(*generate(priced, limit=None), answer=b"n\n")
    assert (status, "765 of 768 questions left; no --limit" in shown) == (2, True), shown
    assert Path("runs/a/rollouts.jsonl").read_bytes() == rollouts
    assert requests(priced) <= before + 1
    status, shown = in_a_terminal(*generate(priced), answer=b"n\n")
    assert (status, "[y/N]" in shown) == (0, False), shown


@pytest.mark.parametrize(
    "more", [("--yes",), ("--max-cost", 5), ("--price-in", 0, "--price-out", 0), ("--dry-run",), ("--model", "mystery")]
)
def test_nothing_is_asked_where_nothing_is_open(more: tuple[object, ...], priced: str) -> None:
    """Consent was given, a cap holds, the model is free, nothing will be asked, or no price is known."""
    status, shown = in_a_terminal(*generate(priced, *more), answer=b"n\n")
    assert (status, "[y/N]" in shown, "no --max-cost limits it" in shown) == (0, False, False), shown


def test_bad_input_is_told_before_the_question() -> None:
    """And so is an endpoint that nobody is at."""
    for more in (["--corpus", "nowhere.jsonl"], ["--siblings", 0], []):
        status, shown = in_a_terminal(*generate("http://127.0.0.1:9/v1", *more), answer=b"y\n")
        assert (status, "[y/N]" in shown) == (2, False), shown
        assert not Path("runs").exists()


# -- where nobody can answer -----------------------------------------------------------------------------------------


def test_without_a_terminal_a_line_warns_and_the_run_goes_on(reasonrag: Reasonrag, priced: str) -> None:
    """One line, on stderr. A replay asks nothing, and says nothing."""
    done = reasonrag(*generate(priced))
    assert done.status == 0, done.err
    assert done.err.count("warning: 3 questions: about $") == 1
    assert not reasonrag(*generate(priced)).err.count("no --max-cost")
    replayed = reasonrag(*generate(priced, "--replay"))
    assert (replayed.status, "no --max-cost" in replayed.err) == (0, False), replayed.err


def test_from_python_a_line_warns_and_yes_leaves_it_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the watcher; --yes may stand in the environment and in the settings file, too."""
    asked = {"dataset": "atlas", "simulations": 2, "limit": 2}
    package.generate(**asked, run="runs/a", chat_model=OfflineTeacher(name="gpt-4o"))
    assert ESTIMATE.search(capsys.readouterr().err)
    package.generate(**asked, run="runs/b", chat_model=OfflineTeacher(name="gpt-4o"), yes=True)
    Path("reasonrag.toml").write_text("[generate]\nyes = true\n")
    package.generate(**asked, run="runs/c", chat_model=OfflineTeacher(name="gpt-4o"))
    Path("reasonrag.toml").unlink()
    monkeypatch.setenv("REASONRAG_YES", "true")
    package.generate(**asked, run="runs/d", chat_model=OfflineTeacher(name="gpt-4o"))
    assert "no --max-cost" not in capsys.readouterr().err
