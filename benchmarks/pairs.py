"""The factory measured: from trees to pairs beside the published script on the same trees, and memory by the number of
trees.

The trees are those of an offline run over atlas, written once as ours and once as the published pipeline writes them.
`--script` names the published `preference_data_generatoin.py`; without it only ours is measured. Every measurement has
a process of its own. Prints Markdown with date, commit and machine; `--append FILE` adds it to a file as well.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Optional

import orjson
import typer
from reporting import ROOT, publish, table

import reasonrag

ROUNDS = 3
MEASURE = """
import json, sys, time
began = time.perf_counter()
{work}
seconds = time.perf_counter() - began
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
own = int(status["VmHWM"].split()[0])
print(json.dumps({{"seconds": seconds, "peak_mb": own / 1024, "pairs": pairs}}))
"""
"""A process that does some work after its imports and says how long that took and what it held."""
MEND = (
    ("from collections import defaultdict", "from collections import defaultdict, Counter, deque"),
    ('ENCODER = tiktoken.get_encoding("cl100k_base")', "ENCODER = None"),
    ("import tiktoken", ""),
)
"""What the published script lacks, and what it would fetch from the network and never uses."""


def main(
    script: Annotated[Optional[Path], typer.Option(help="The published preference_data_generatoin.py")] = None,  # noqa: UP045
    trees: Annotated[int, typer.Option(help="Trees that are paired")] = 1000,
    memory: Annotated[Optional[list[int]], typer.Option(help="Numbers of trees whose peak memory is compared")] = None,  # noqa: UP045
    append: Annotated[Optional[Path], typer.Option(help="Also append the report to this file")] = None,  # noqa: UP045
) -> None:
    """Measure speed and memory of `pairs`."""
    if script is not None and not script.is_file():
        sys.exit(f"there is no {script}; give the published preference_data_generatoin.py as --script")
    with tempfile.TemporaryDirectory() as scratch:
        publish(_report(script, trees, memory or [1_000, 10_000, 100_000], Path(scratch)), append)


def _report(script: Path | None, trees: int, memory: list[int], scratch: Path) -> Iterator[str]:
    yield from _speed(script, trees, scratch)
    yield from _memory(memory, scratch)


# -- speed -----------------------------------------------------------------------------------------------------


def _speed(script: Path | None, trees: int, scratch: Path) -> Iterator[str]:
    """The same trees by the published script, by `pairs`, and read only."""
    ours = _explored(scratch / "run", trees)
    published = _as_published(ours, scratch / "published")
    size = {"ours": ours.stat().st_size / 1e6, "published": published.stat().st_size / 1e6}
    ways: dict[str, tuple[str, str]] = {}
    if script is not None:
        ways["published script, imports supplied"] = ("published", _published_work(script, published, scratch))
    ways["pairs"] = ("ours", _our_work(ours, scratch / "one"))
    ways["pairs of the data set, another filter"] = ("ours", _our_work(scratch / "one", scratch / "again"))
    ways["reading the trees as JSON and nothing else"] = ("ours", _reading_work(ours))
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    for _ in range(ROUNDS):  # by turns, so that a busy moment hits all of them
        for name, (_, work) in ways.items():
            found[name].append(_measured(work, scratch))
    seconds = {name: statistics.median(each["seconds"] for each in rounds) for name, rounds in found.items()}
    slowest = next(iter(seconds.values()))
    yield from table(
        f"{trees:,} trees of an offline run over atlas ({size['ours']:,.0f} MB as ours, {size['published']:,.0f} MB as "
        f"published), median of {ROUNDS} rounds by turns, start-up apart; MB of the input that each reads",
        {
            "": list(ways),
            "s": [f"{seconds[name]:.2f}" for name in ways],
            "trees/s": [f"{trees / seconds[name]:,.0f}" for name in ways],
            "MB/s": [f"{size[form] / seconds[name]:,.0f}" for name, (form, _) in ways.items()],
            "times as fast as the first": [f"{slowest / seconds[name]:.2f}" for name in ways],
            "peak RSS MB": [_peak(found[name]) for name in ways],
            "pairs": [f"{found[name][0]['pairs']:,}" for name in ways],
        },
    )
    yield (
        "\nThe published script writes what its rule (margin .01) lets pass, in one format. `pairs` labels every "
        "candidate with confidence, similarity and token lengths, keeps them all, looks for the questions in "
        "evaluation splits, applies the default filters, audits every row, and accounts for every dropped candidate."
    )


def _peak(rounds: list[dict[str, Any]]) -> str:
    return f"{max(each['peak_mb'] for each in rounds):,.0f}"


def _explored(run: Path, trees: int) -> Path:
    reasonrag.generate(dataset="atlas", limit=min(trees, 300), run=run, concurrency=32)
    return _multiplied(run / "rollouts.jsonl", run / "many.jsonl", trees)


def _multiplied(some: Path, many: Path, trees: int) -> Path:
    """So many trees: the same ones again and again, as those of other questions; without a validation part, then, since
    their states are the same."""
    records = [orjson.loads(line) for line in some.open("rb")]
    with many.open("wb") as file:
        for number in range(trees):
            record = records[number % len(records)]
            record = record | {"question_id": f"q{number}", "question": f"{record['question']} ({number})"}
            file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
    return many


def _as_published(rollouts: Path, folder: Path) -> Path:
    """The trees as the published pipeline leaves them before its pair builder."""
    items = []
    for line in rollouts.open("rb"):
        record = orjson.loads(line)
        nodes = {f"intermediate_node_{node['id']}": _published_node(node) for node in record["nodes"]}
        wanted = ("question", "golden_answers")
        items.append({"id": record["question_id"]} | {name: record[name] for name in wanted} | {"output": nodes})
    file = folder / "chunk_0" / "intermediate_0.json"
    file.parent.mkdir(parents=True)
    with file.open("w") as target:
        json.dump(items, target, indent=2)
    return file


def _published_node(node: dict[str, Any]) -> dict[str, Any]:
    found = {
        "Q": node["value"],
        "N": node["visits"],
        "step": 0 if node["layer"] is None else node["layer"] + 1,
        "id": node["id"],
        "parent_id": -1 if node["parent_id"] is None else node["parent_id"],
        "children_ids": node["children_ids"],
    }
    if node["prompt"]:
        found |= {
            "action_name": {"think": "reasoning", "read": "document_analysis"}.get(node["action"], "answer_generation"),
            "input_prompt": node["prompt"],
            "response": node["response"],
            "next_query": node["content"] if node["action_type"] == "query" else None,
            "answer": node["content"] if node["action_type"] == "answer" else None,
        }
    return found


def _published_work(script: Path, published: Path, scratch: Path) -> str:
    text = script.read_text("utf-8")
    for lacking, supplied in MEND:
        text = text.replace(lacking, supplied)
    (scratch / "published_script.py").write_text(text)
    folder, out = str(published.parents[1]), str(scratch / "published.json")
    return (
        "import published_script\n"
        "began = time.perf_counter()\n"
        f"published_script.process_folder_and_calculate_rewards_save({folder!r})\n"
        f"published_script.process_json_files([{folder!r}], {out!r})\n"
        "pairs = None"
    )


def _our_work(source: Path, out: Path) -> str:
    return (
        "from reasonrag.curation.pairs import pairs as make\n"
        "began = time.perf_counter()\n"
        f"pairs = make({str(source)!r}, out={str(out)!r}, validation=0).pairs"
    )


def _reading_work(rollouts: Path) -> str:
    return (
        "import orjson\n"
        "began = time.perf_counter()\n"
        f"pairs = sum(orjson.loads(line) is None for line in open({str(rollouts)!r}, 'rb'))"
    )


def _measured(work: str, scratch: Path) -> dict[str, Any]:
    program = scratch / "measured.py"
    program.write_text(MEASURE.format(work=work))
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{scratch}"}
    done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if found["pairs"] is None:
        found["pairs"] = len(orjson.loads((scratch / "published.json").read_bytes()))
    return found


# -- memory ----------------------------------------------------------------------------------------------------


def _memory(counts: list[int], scratch: Path) -> Iterator[str]:
    """Peak memory by the number of trees; small ones, so that a hundred thousand fit on a disk."""
    run = scratch / "small"
    reasonrag.generate(dataset="atlas", limit=200, run=run, set={"search.max_calls": 16, "search.siblings": 2})
    rows = []
    for count in counts:
        many = _multiplied(run / "rollouts.jsonl", scratch / "many.jsonl", count)
        found = _measured(_our_work(many, scratch / "out"), scratch)
        rows.append((count, many.stat().st_size / 1e6, found))
        many.unlink()
    yield from table(
        "Peak memory of `pairs` in one process",
        {
            "trees": [f"{count:,}" for count, _, _ in rows],
            "MB of rollouts": [f"{size:,.0f}" for _, size, _ in rows],
            "peak RSS MB": [f"{found['peak_mb']:,.0f}" for _, _, found in rows],
            "MB/s": [f"{size / found['seconds']:,.0f}" for _, size, found in rows],
            "pairs": [f"{found['pairs']:,}" for _, _, found in rows],
        },
    )


if __name__ == "__main__":
    typer.run(main)
