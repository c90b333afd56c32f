"""A model that no list knows: every command that asks one says so before the first request, once, with the flags that
help."""

from __future__ import annotations

from tests.helpers.command_line import Reasonrag

UNKNOWN = "no price is known for {0}, so costs are not shown and --max-cost cannot be used; give --price {0}=IN,OUT"
FEW = ("--dataset", "atlas", "--limit", 2, "--set", "search.simulations=2", "--run", "runs/a", "--model", "mystery")


def test_each_command_says_it_once(reasonrag: Reasonrag, endpoint: str) -> None:
    """Trials of one tune, and a judge that is not asked, say nothing of their own."""
    at = ("--base-url", endpoint)
    tried = ("--dataset", "atlas", "--pilot", 2, "--vary", "search.siblings=3,4,6", "--run", "tunes/a")
    labelled = ("runs/a", "--out", "data/a", "--label", "judge")
    for words in (
        ("generate", *FEW, *at),
        ("calibrate", "runs/a", "--revalue", 2, "--k", 1),
        ("tune", *tried, "--model", "mystery", *at),
        ("pairs", *labelled, "--model", "mystery", *at),
    ):
        done = reasonrag(*words)
        assert done.status == 0, done.err
        assert done.err.count("no price is known for") == 1, done.err
        assert UNKNOWN.format("mystery") in done.err
    done = reasonrag("evaluate", *FEW[:4], "--run", "evals/a", "--model", "mystery", "--judge", "strict", *at)
    assert done.status == 0, done.err
    assert done.err.count("no price is known for") == 2
    assert UNKNOWN.format("mystery") in done.err
    assert UNKNOWN.format("strict") in done.err
