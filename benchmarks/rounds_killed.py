"""Rounds of reinforcement that are killed at random moments: is anything sampled again, and does it end the same?

    .venv/bin/python benchmarks/rounds_killed.py --append benchmarks/RESULTS.md       some ten minutes
    .venv/bin/python benchmarks/rounds_killed.py --served --kills 5                   replies of a served model

Three rounds of twelve questions x eight attempts, whose replies come of a script, slowly, and a tiny Qwen2 that is
trained on them with one thread. The process is killed (SIGKILL) at a random moment of a random phase, and started
again, until it ends by itself; and so anew, until so many kills. Rows and weights are held against those of undisturbed
rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reporting import ROOT, publish, table

import reasonrag
from reasonrag.llm.chat import ChatRequest, Completion

ROUNDS, QUESTIONS, GROUP = 3, 12, 8
PHASES = ("sampling", "export", "before a training", "training", "between rounds")
LATEST = 1.5
"""Seconds from the moment when a start works in the phase that was drawn to its kill, at most."""
ASKED = Path("asked.txt")
STILL_WRITES = "the trainer of a reasonrag that was killed still writes"
SAID = (*(f"So the answer is <answer>{name}</answer>" for name in ("Oslo", "Vale", "Rom")), "what?")


class Script:
    """A model whose reply follows from the prompt and the number of the draw. Notes every draw in ASKED."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        key = hashlib.sha256("".join(each.content for each in request.messages).encode()).hexdigest()[:12]
        await asyncio.sleep(0.7)
        note("".join(f"{self.name} {key} {draw}\n" for draw in request.samples))
        words = (hashlib.sha256(f"{self.name} {key} {draw}".encode()).digest()[0] for draw in request.samples)
        return [Completion(text=SAID[each % len(SAID)], finish_reason="stop", requests=1) for each in words]

    async def check(self) -> None: ...


def note(lines: str) -> None:
    with ASKED.open("a") as file:
        file.write(lines)


def work(*, served: bool) -> None:
    """What is killed: the rounds, in this folder. served: one round, whose replies the tiny model itself samples."""
    more: dict[str, Any] = {"rounds": ROUNDS, "chat_model": Script, "concurrency": 2}
    if served:
        more = {"rounds": 1, "max_reply_tokens": 1024, "concurrency": 8}
    reasonrag.rounds(
        "policy-smoke-cpu", model="student", questions="mine.jsonl", corpus="corpus.jsonl", group=GROUP, run="rl",
        set=["train.save_steps=2", "train.max_steps=12"], **more,
    )  # fmt: skip


def prepare(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    make = (
        "import pathlib, sys; from tests.helpers.tiny_qwen import make_tiny_qwen as of; of(pathlib.Path(sys.argv[1]))"
    )
    subprocess.run(
        [sys.executable, "-c", make, str(folder / "student")], cwd=ROOT, check=True, stderr=subprocess.DEVNULL
    )
    asked = ({"id": str(n), "question": f"Where is number {n}?", "golden_answers": ["Oslo"]} for n in range(QUESTIONS))
    (folder / "mine.jsonl").write_text("".join(json.dumps(each) + "\n" for each in asked))
    (folder / "corpus.jsonl").write_text(json.dumps({"id": "1", "contents": "Number 1\nNumber 1 is in Oslo."}) + "\n")


def run(folder: Path, target: str | None, dice: random.Random, *, served: bool = False) -> str:
    """Start it in the folder, and kill it soon after it works in this phase; None: never. Whether it `ended`, was
    `killed`, or was `refused`, as the trainer of a killed one is still at work. served: see `work`."""
    path, began = os.pathsep.join([str(ROOT), str(Path(__file__).parent)]), time.time()
    process = subprocess.Popen(
        [sys.executable, __file__, "--work", *["--served"] * served],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=(folder / "log.txt").open("wb"),
    )
    while (status := process.poll()) is None:
        if target and phase(folder) == target and worked_on(folder, began):
            time.sleep(dice.uniform(0, LATEST))
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return "killed"
        time.sleep(0.02)
    said = (folder / "log.txt").read_text()[-3000:]
    if status and STILL_WRITES not in said:
        raise SystemExit(said)
    time.sleep(2 if status else 0)
    return "refused" if status else "ended"


def worked_on(folder: Path, began: float) -> bool:
    """Whether a file of the newest round was written since then."""
    rounds = sorted((folder / "rl").glob("round-*"), key=lambda each: each.stat().st_ctime)
    files = (path for each in rounds[-1:] for path in each.rglob("*"))
    return any(path.lstat().st_mtime > began for path in files if path.name != ".lock")


def phase(folder: Path) -> str:
    """Where it was killed, by what lies in the newest round."""
    newest = max(folder.glob("rl/round-*"), key=lambda each: int(each.name.partition("-")[2]), default=None)
    if newest is None:
        return "before the first round"
    if not (newest / "data" / "summary.json").is_file():
        return "sampling" if not (newest / "run" / "summary.json").is_file() else "export"
    try:
        state = json.loads((newest / newest.name.replace("round", "policy") / "training.json").read_bytes())["state"]
    except (OSError, ValueError):
        return "before a training"
    return "between rounds" if state == "finished" else "training"


def digests(folder: Path) -> dict[str, str]:
    """Of the rows and the weights of every round."""
    rounds = [folder / "rl" / f"round-{n}" for n in range(1, ROUNDS + 1)]
    files = [each / "data" / "rl.jsonl" for each in rounds]
    files += [each / each.name.replace("round", "policy") / "model.safetensors" for each in rounds]
    return {str(each.relative_to(folder)): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


def report(kills: int, seed: int) -> Iterator[str]:
    dice, every, missing, differ, again, lives = random.Random(seed), Counter[str](), 0, 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        began = time.monotonic()
        run(Path(folder), None, dice)
        undisturbed, made, wanted = time.monotonic() - began, digests(Path(folder)), asked_in(Path(folder))
    while sum(every[each] for each in PHASES) < kills:
        with tempfile.TemporaryDirectory() as folder:
            prepare(Path(folder))
            every += lived(Path(folder), dice, kills - sum(every[each] for each in PHASES))
            found, asked = digests(Path(folder)), asked_in(Path(folder))
            lives += 1
            differ += sum(made[name] != found[name] for name in made)
            again += asked.total() - len(asked)
            missing += asked.keys() != wanted.keys()
    yield "\n**Rounds that are killed** (benchmarks/rounds_killed.py)"
    yield (
        f"\n{ROUNDS} rounds of {QUESTIONS} questions x {GROUP}, scripted replies, one thread; undisturbed "
        f"{undisturbed:.0f} s. {kills} kills (SIGKILL, 0 to {LATEST} s after a start works in a phase drawn by lot) of "
        f"{lives} times such rounds; {every['refused']} starts found the trainer of a killed one at work, said so, and "
        "were given again."
    )
    told = {name: str(every[name]) for name in PHASES}
    yield from table("Where they were killed", {"phase": list(told), "kills": list(told.values())})
    yield (
        f"\nDraws: {len(wanted)} in each, others than undisturbed in {missing} of {lives}; asked again (in flight at a "
        f"kill): {again}. Files of rows and weights that differ: {differ} of {lives * len(made)}."
    )


def lived(folder: Path, dice: random.Random, most: int, targets: Sequence[str] = PHASES, **more: bool) -> Counter[str]:
    """Start them, and kill them at most so often, until they end: how often in each phase, and how often refused."""
    seen, state = Counter[str](), ""
    while state != "ended":
        target = dice.choice(targets) if sum(seen[each] for each in PHASES) < most else None
        state = run(folder, target, dice, **more)
        seen.update([str(target)] if state == "killed" else ["refused"] if state == "refused" else [])
    return seen


def report_served(kills: int, seed: int) -> Iterator[str]:
    """How many replies of a served model are others where it was killed: its batches are, and so is its arithmetic."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as home:
        whole, again, often = (Path(home) / each for each in ("whole", "again", "often"))
        for folder in (whole, again, often):
            prepare(folder)
        for folder in (whole, again):
            run(folder, None, dice, served=True)
        seen = lived(often, dice, kills, PHASES[:1], served=True)
        drawn, twice, killed = map(said_in, (whole, again, often))
    yield (
        f"\nA served model, one round of {QUESTIONS} x {GROUP}, killed {seen['sampling']} times while it sampled: of "
        f"{drawn.total()} replies {(drawn - killed).total()} are others than undisturbed; of two undisturbed rounds "
        f"{(drawn - twice).total()}."
    )


def said_in(folder: Path) -> Counter[str]:
    """The replies of round 1, by question."""
    rows = map(json.loads, (folder / "rl" / "round-1" / "data" / "rl.jsonl").read_text().splitlines())
    said = Counter[str]()
    for row in rows:
        said[f"{row['question_id']} {row['completion'][0]['content']}"] += row["draws"]
    return said


def asked_in(folder: Path) -> Counter[str]:
    return Counter((folder / ASKED).read_text().split("\n")[:-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="how often [%(default)s]")
    parser.add_argument("--seed", type=int, default=0, help="of the moments [%(default)s]")
    parser.add_argument("--append", type=Path, help="add the report to this file")
    parser.add_argument("--served", action="store_true", help="a served model instead of scripted replies")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        work(served=asked.served)
    else:
        told = report_served if asked.served else report
        publish(told(asked.kills, asked.seed), asked.append)


if __name__ == "__main__":
    main()
