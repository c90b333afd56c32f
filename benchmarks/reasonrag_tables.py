"""The finished tables of reasonrag_tables.sh: the statistics of a data set, and EM/F1 of evaluations by data set.

    python benchmarks/reasonrag_tables.py data runs/tables/data/process
    python benchmarks/reasonrag_tables.py scores runs/tables/evals "popqa hotpotqa" direct rag process

Reads what `reasonrag pairs` and `reasonrag evaluate` wrote; computes nothing that they did not, means apart.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, median
from typing import Any


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table."""
    every = [list(map(str, row)) for row in (head, *rows)]
    every.insert(1, ["---"] * len(every[0]))
    return "\n".join(f"| {' | '.join(row)} |" for row in every)


ACTIONS = ("Query Generation", "Evidence Extraction", "Answer Generation")


def statistics_of(data: Path) -> str:
    """Table 1: questions with a pair by data set, pairs by the action of the chosen step, iterations.

    An iteration is a think turn with what follows it: a pair of the state at depth d is in iteration d // 2 + 1; of a
    question the deepest counts.
    """
    pairs = [pair for part in ("", ".validation") for pair in read(data / f"RAG_ProGuide{part}.json")]
    deepest: dict[tuple[str, str], int] = {}
    for pair in pairs:
        question = (pair["dataset"], pair["question_id"])
        deepest[question] = max(deepest.get(question, 0), pair["layer"] // 2 + 1)
    questions = Counter(dataset for dataset, _ in deepest)
    actions = Counter(pair["chosen_action_type"] for pair in pairs)
    depths = deepest.values()
    spread = f"{min(depths)} to {max(depths)}, median {median(depths):g}" if deepest else "none"
    rows = [*questions.items(), ("all", len(deepest)), *((f"pairs: {each}", actions[each]) for each in ACTIONS)]
    return table(("questions with a pair", "number"), [*rows, ("iterations", spread)])


def scores(evals: Path, datasets: list[str], names: list[str]) -> str:
    """EM/F1 in percent of every evaluation `NAME-DATASET`, and their means over the data sets: Tables 2 and 3, and the
    points of Figures 6 and 7."""
    rows = []
    for name in names:
        metrics = [read(evals / f"{name}-{dataset}" / "report.json")["metrics"] for dataset in datasets]
        found = [(100 * each["em"]["value"], 100 * each["f1"]["value"]) for each in metrics]
        em, f1 = zip(*found, strict=True)
        rows.append([name, *(f"{x:.1f}/{y:.1f}" for x, y in (*found, (mean(em), mean(f1))))])
    return table(("", *datasets, "mean"), rows)


if __name__ == "__main__":
    kind, folder, *more = sys.argv[1:]
    print(statistics_of(Path(folder)) if kind == "data" else scores(Path(folder), more[0].split(), more[1:]))
