"""Rounds of reinforcement that are killed at random moments: is anything sampled again, and does it end the same?

    .venv/bin/python benchmarks/rounds_killed.py --append benchmarks/RESULTS.md       some ten minutes

Three rounds of twelve questions x eight attempts, whose replies come of a script, slowly, and a tiny Qwen2 that is
trained on them with one thread. The process is killed (SIGKILL, with all it started) after a random time, and started
again, until it has been killed so often; then it ends by itself. Rows and weights are held against those of
undisturbed rounds.
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

from reporting import ROOT, publish, table

import reasonrag
from reasonrag.llm.chat import ChatRequest, Completion

ROUNDS, QUESTIONS, GROUP = 3, 12, 8
ASKED = Path("asked.txt")
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
    async def close(self) -> None: ...


def note(lines: str) -> None:
    with ASKED.open("a") as file:
        file.write(lines)


def work() -> None:
    """What is killed: the rounds, in this folder."""
    reasonrag.rounds(
        "policy-smoke-cpu", model="student", questions="mine.jsonl", corpus="corpus.jsonl", rounds=ROUNDS, group=GROUP,
        concurrency=2, run="rl", chat_model=Script, set=["train.save_steps=2", "train.max_steps=12"],
    )  # fmt: skip


def prepare(folder: Path) -> None:
    make = (
        "import pathlib, sys; from tests.helpers.tiny_qwen import make_tiny_qwen as of; of(pathlib.Path(sys.argv[1]))"
    )
    subprocess.run(
        [sys.executable, "-c", make, str(folder / "student")], cwd=ROOT, check=True, stderr=subprocess.DEVNULL
    )
    asked = ({"id": str(n), "question": f"Where is number {n}?", "golden_answers": ["Oslo"]} for n in range(QUESTIONS))
    (folder / "mine.jsonl").write_text("".join(json.dumps(each) + "\n" for each in asked))
    (folder / "corpus.jsonl").write_text(json.dumps({"id": "1", "contents": "Number 1\nNumber 1 is in Oslo."}) + "\n")


def run(folder: Path, seconds: float | None) -> bool:
    """Start it in the folder, and kill it after so many seconds; whether it ended by itself."""
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    process = subprocess.Popen(
        [sys.executable, __file__, "--work"],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=(folder / "log.txt").open("ab"),
    )
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return False
    if status:
        raise SystemExit((folder / "log.txt").read_text()[-3000:])
    return True


def phase(folder: Path) -> str:
    """Where it was killed, by what lies in the newest round."""
    newest = max(folder.glob("rl/round-*"), key=lambda each: int(each.name.partition("-")[2]), default=None)
    if newest is None:
        return "before the first round"
    if not (newest / "data" / "summary.json").is_file():
        return "sampling" if not (newest / "run" / "summary.json").is_file() else "export"
    policy = newest / newest.name.replace("round", "policy")
    done = (policy / "reasonrag.json").is_file()
    return "between rounds" if done else "training" if (policy / "training.json").is_file() else "before a training"


def digests(folder: Path) -> dict[str, str]:
    """Of the rows and the weights of every round."""
    rounds = [folder / "rl" / f"round-{n}" for n in range(1, ROUNDS + 1)]
    files = [each / "data" / "rl.jsonl" for each in rounds]
    files += [each / each.name.replace("round", "policy") / "model.safetensors" for each in rounds]
    return {str(each.relative_to(folder)): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


def report(kills: int, seed: int) -> Iterator[str]:
    dice, killed, starts = random.Random(seed), Counter[str](), 0
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as often:
        for folder in map(Path, (whole, often)):
            prepare(folder)
        began = time.monotonic()
        run(Path(whole), None)
        undisturbed = time.monotonic() - began
        done = False
        while not done:
            starts += 1
            seconds = dice.uniform(3, 0.6 * undisturbed) if killed.total() < kills else None
            done = run(Path(often), seconds)
            killed.update([] if done else [phase(Path(often))])
        before, after = digests(Path(whole)), digests(Path(often))
        differ = sum(before[name] != after[name] for name in before)
        asked = Counter((Path(often) / ASKED).read_text().split("\n")[:-1])
        wanted = set((Path(whole) / ASKED).read_text().split("\n")[:-1])
    yield "\n**Rounds that are killed** (benchmarks/rounds_killed.py)"
    yield (
        f"\n{ROUNDS} rounds of {QUESTIONS} questions x {GROUP}, scripted replies, one thread; undisturbed "
        f"{undisturbed:.0f} s. Killed {killed.total()} times in {starts} starts, after 3 to {0.6 * undisturbed:.0f} s."
    )
    yield from table("Where it was killed", {"phase": list(killed), "kills": [str(each) for each in killed.values()]})
    yield (
        f"\nDraws: {len(wanted)} different ones undisturbed, {len(asked)} when killed, the same: "
        f"{'yes' if set(asked) == wanted else 'no'}; asked again (in flight at a kill): {asked.total() - len(asked)}. "
        f"Files of rows and weights that differ: {differ} of {len(before)}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="how often [%(default)s]")
    parser.add_argument("--seed", type=int, default=0, help="of the moments [%(default)s]")
    parser.add_argument("--append", type=Path, help="add the report to this file")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        work()
    else:
        publish(report(asked.kills, asked.seed), asked.append)


if __name__ == "__main__":
    main()
