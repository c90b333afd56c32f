"""Estimates beside what the runs then cost: `--dry-run` under one seed, the whole run under others.

The teacher is the offline one at GPT-4o's price: it tells whether the rehearsal of 20 questions stands for all of them,
not how another teacher replies. Prints Markdown with date, commit and machine; `--append FILE` adds it to a file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from reporting import publish, table

import reasonrag
from reasonrag.llm.prices import find_price

SPLITS = {
    "atlas": "train",
    "hotpotqa": "dev",
    "2wikimultihopqa": "dev",
    "musique": "dev",
    "popqa": "dev",
    "bamboogle": "dev",
}
RECIPES: dict[str, dict[str, Any]] = {
    "economy": {},
    "continuation": {"set": {"search.max_calls": 64}},
    "released": {"set": {"search.simulations": 8}},
}
"""The default, and small budgets of the others."""


def main(
    data_dir: Annotated[Path, typer.Option(help="Directory with <dataset>/<split>.jsonl and <dataset>/corpus.jsonl")],
    questions: Annotated[int, typer.Option(help="Questions of a run")] = 300,
    seeds: Annotated[int, typer.Option(help="Runs of each recipe and data set")] = 2,
    append: Annotated[Optional[Path], typer.Option(help="File to add the report to")] = None,  # noqa: UP045 - typer's
) -> None:
    """Print the report."""
    publish(report(data_dir, questions, seeds), append)


def report(data_dir: Path, questions: int, seeds: int) -> Iterator[str]:
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for dataset, recipe, seed in product(SPLITS, RECIPES, range(seeds)):
            flags = flags_of(dataset, recipe, data_dir) | {"limit": questions, "index_home": Path(scratch) / "indexes"}
            run = Path(scratch) / f"{dataset}-{recipe}-{seed}"
            expected = reasonrag.estimate(run=run, seed=seed + 100, **flags).dollars
            cost = reasonrag.generate(run=run, seed=seed, **flags).cost_usd
            inside = expected.low <= cost <= expected.high
            shown = f"{expected.low:.2f} to {expected.high:.2f}", f"{cost:.2f}", f"{cost / expected.low:.2f}"
            rows.append((dataset, recipe, str(seed), *shown, "yes" if inside else "no"))
    within = sum(row[-1] == "yes" for row in rows)
    names = ("data set", "recipe", "seed", "estimate $", "cost $", "cost / low", "inside")
    title = f"Estimates and costs of up to {questions} questions; {within} of {len(rows)} between low and high"
    yield from table(title, dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def flags_of(dataset: str, recipe: str, data_dir: Path) -> dict[str, Any]:
    price = find_price("gpt-4o")
    flags: dict[str, Any] = {"dataset": dataset, "split": SPLITS[dataset], "recipe": recipe, "model": "offline"}
    if dataset != "atlas":
        flags["data_dir"] = data_dir
    asked = {"price": f"offline={price.tokens_in},{price.tokens_out}", "abort_degenerate": 0.0, "yes": True}
    return flags | RECIPES[recipe] | asked


if __name__ == "__main__":
    typer.run(main)
