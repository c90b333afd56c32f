"""The loop on a laptop: a tiny student explores as its own teacher, learns from its own pairs, and is measured.

    make loop                             all of it; a phase that is done is not repeated
    python benchmarks/loop.py --quick     a few questions, one seed: that the path holds, no figures
    python benchmarks/loop.py --split dev --seeds 2     what settings are chosen by

For every training seed: a Qwen2 with random weights is warmed up by SFT on the best paths of the offline teacher;
explores questions with `generate`, served over HTTP, its own replies sampled, golden answers kept from it; and is
trained by DPO on the pairs of its own trees. Beside it, from the same trees and at equal data:

- process: pairs by `reasonrag pairs` as it stands, labelled by SPRE over all continuations of a step.
- outcome: as many pairs of the same trees, a step being worth what the one trajectory came to in which it was
  first drawn (`pairs --label outcome`).
- sft: further SFT on the best paths of the same trees, for as many tokens as DPO read.
- placebo: the pairs of `process` with the sides of half of them exchanged at random.

All are held against the student as it was before, on held-out questions, by `reasonrag evaluate` and `compare`.
Settings were chosen on the questions of `dev`, which no published table is of. Decides the experiment; what its table
says is decided in `loop_report`. Every step of it is a command of reasonrag, printed as it runs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from loop_report import differences, figures, report, verdict
from loop_student import WORDS
from loop_world import Size, write_world
from phases import Phases, say
from reporting import ROOT, publish

from preference.candidate_records import StateRecord, read_lines
from preference.export.formats import messages_of, pairs_files
from preference.export.private_files import atomic_replacement
from preference.export.summary import CANDIDATES, QUESTIONS
from preference.records import read_rollouts
from reasonrag.processes.children import find_python
from reasonrag.serving.local_server import served

HERE = Path(__file__).parent
PROMPTS, CONFIGS = HERE / "loop_prompts", HERE / "loop_configs"
BEFORE, ARMS = "before", ("process", "outcome", "sft", "placebo")
NO_FILTERS = (
    *("--min-margin", "0", "--min-confidence", "0", "--max-similarity", "1"),
    *(
        "--max-efficiency-only",
        "1",
        "--max-style-only",
        "1",
        "--allow-ungrounded",
        "--allow-repeated-query",
        "--validation",
        "0",
    ),
)
"""Of a data set whose pairs were chosen already."""


@dataclass(frozen=True)
class Plan:
    """All numbers of the experiment. Those of training were chosen on `dev` (RESULTS.md says how)."""

    size: Size = field(default_factory=lambda: Size(towns=80, people=150, works=300, organisations=50))
    questions: dict[str, int] = field(
        default_factory=lambda: {"warmup": 900, "explore": 900, "dev": 300, "heldout": 600}
    )
    seeds: int = 3
    top_k: int = 1
    max_steps: int = 8
    teacher_temperature: float = 0.7
    teacher_calls: int | None = None
    """Replies of the teacher to a question at most; None: the recipe's."""
    temperature: float = 1.0
    """Of the student while it explores."""
    calls: int = 48
    """Replies to a question at most, of the student that explores."""
    warmup_epochs: float = 10.0
    dpo_epochs: float = 3.0
    dpo_rate: float = 5.0e-5
    beta: float = 0.1
    sft_rate: float = 3.0e-4

    def quick(self) -> Plan:
        """That everything runs: no figure of it means anything."""
        return replace(
            self,
            size=Size(towns=6, people=12, works=12, organisations=4),
            questions={"warmup": 60, "explore": 40, "dev": 10, "heldout": 30},
            seeds=1,
            warmup_epochs=30.0,
            dpo_epochs=1.0,
        )


@dataclass
class Loop:
    """One run of the experiment in `work`. split: whose questions the arms are measured on. prompts: of the agent."""

    plan: Plan
    work: Path
    split: str = "heldout"
    prompts: Path = PROMPTS

    def __post_init__(self) -> None:
        os.environ["REASONRAG_INDEX_HOME"] = str(self.work / "indexes")
        # One thread for each process: two wait for each other longer than they work.
        self.phases = Phases(self.work, {"OMP_NUM_THREADS": "1"})

    @property
    def world(self) -> Path:
        return self.work / "world"

    def of(self, seed: int) -> Path:
        return self.work / f"seed{seed}"

    # -- phases --------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """The world, the teacher's rollouts, and the words there are."""
        self.phases.once("world", lambda: write_world(self.world, self.plan.size, self.plan.questions, seed=0))
        teacher, calls = self.work / "teacher", self.plan.teacher_calls
        self.phases.reasonrag(
            "teacher",
            *("generate", *self.asked("warmup"), "--model", "offline"),
            *("--temperature", str(self.plan.teacher_temperature), "--run", str(teacher)),
            *(("--set", f"search.max_calls={calls}") if calls else ()),
        )
        self.phases.reasonrag(
            "warmup pairs",
            *("pairs", str(teacher), "--out", str(self.work / "warmup"), "--format", "sft", "--validation", "0"),
        )
        self.phases.once("words", self.write_words)

    def write_words(self) -> None:
        """Everything that a prompt or a reply can be made of, for the vocabulary."""
        texts = ["system user assistant", "found no tag ; expected or nothing stands inside"]
        texts += [json.loads(line)["contents"] for line in lines_of(self.world / "corpus.jsonl")]
        for split in sorted(self.world.glob("*.jsonl")):
            texts += [row["question"] for line in lines_of(split) if "question" in (row := json.loads(line))]
        for row in json.loads((self.work / "warmup" / "sft.json").read_bytes()):
            texts += [row["instruction"], row["input"], row["output"]]
        (self.work / "words.txt").write_text("\n".join(dict.fromkeys(texts)), "utf-8")

    def run_seed(self, seed: int) -> None:
        """Everything of one student."""
        self.warm_up(seed)
        drawn = "--temperature", str(self.plan.temperature), "--set", f"search.max_calls={self.plan.calls}"
        self.explore(seed, "explore", *drawn)
        self.write_arms(seed)
        for arm in ("process", "outcome", "placebo"):
            self.prefer(seed, arm, arm)
        self.imitate(seed)
        for arm in (BEFORE, *ARMS):
            self.evaluate(seed, arm, arm)

    def warm_up(self, seed: int, **changes: Any) -> None:
        """A student from random weights, which learns what the teacher says."""
        self.make_blank(seed)
        told = {"num_train_epochs": self.plan.warmup_epochs} | changes
        self.train(seed, BEFORE, "sft", self.of(seed) / "blank", self.work / "warmup", **told)

    def make_blank(self, seed: int, *flags: str) -> None:
        blank = self.of(seed) / "blank"
        words = [str(self.work / "words.txt"), *map(str, sorted(self.prompts.glob("*.txt")))]
        self.phases.command(
            f"seed{seed} blank",
            *(str(find_python()), str(HERE / "loop_student.py"), str(blank), "--texts", *words, "--seed", str(seed)),
            *flags,
        )

    def prefer(self, seed: int, arm: str, data: str) -> None:
        """DPO of the student before on these pairs."""
        plan, home = self.plan, self.of(seed)
        preferences = {"num_train_epochs": plan.dpo_epochs, "learning_rate": plan.dpo_rate, "pref_beta": plan.beta}
        self.train(seed, arm, "dpo", home / BEFORE, home / "data" / data, **preferences)

    def imitate(self, seed: int) -> None:
        """Further SFT of the student before on its best paths."""
        home = self.of(seed)
        rates = {"num_train_epochs": round(self.epochs_of_equal_tokens(seed), 3), "learning_rate": self.plan.sft_rate}
        self.train(seed, "sft", "sft", home / BEFORE, home / "data" / "labelled", **rates, train_on_prompt=False)

    def explore(self, seed: int, split: str, *flags: str) -> None:
        """Trees of the student before, which is served meanwhile."""
        home = self.of(seed)

        async def explored() -> None:
            async with served(home / BEFORE, say=say) as server:
                command = (
                    *("generate", *self.asked(split), "--model", server.name, "--base-url", server.base_url),
                    *("--max-reply-tokens", "64", "--concurrency", "64", "--seed", str(seed)),
                    *("--abort-degenerate", "0", "--run", str(home / split), *flags),
                )
                await asyncio.to_thread(self.phases.reasonrag, f"seed{seed} {split} generate", *command)

        self.phases.once(f"seed{seed} {split}", lambda: asyncio.run(explored()))

    def evaluate(self, seed: int, name: str, student: str, *flags: str) -> None:
        self.phases.reasonrag(
            f"seed{seed} {name} {self.split}",
            *("evaluate", *self.asked(self.split), "--split", self.split, "--model", str(self.of(seed) / student)),
            *("--max-reply-tokens", "64", "--concurrency", "64", "--seed", str(seed)),
            *("--run", str(self.evaluation(seed, name)), *flags),
        )

    def write_arms(self, seed: int) -> None:
        """The data sets of all arms, with as many pairs each."""
        home = self.of(seed)
        data, run = home / "data", home / "explore"
        self.phases.reasonrag(
            f"seed{seed} labelled",
            *("pairs", str(run), "--out", str(data / "labelled"), "--format", "sft", "--validation", "0"),
        )
        self.phases.reasonrag(
            f"seed{seed} outcomes labelled",
            *("pairs", str(run), "--label", "outcome", "--out", str(data / "outcomes"), "--validation", "0"),
        )
        sources = {"process": data / "labelled", "outcome": data / "outcomes"}
        self.phases.once(f"seed{seed} chosen", lambda: choose(run, sources, data, seed))
        for arm in sources:
            chosen = data / f"{arm}-chosen"
            self.phases.reasonrag(
                f"seed{seed} {arm} pairs", "pairs", str(chosen), "--out", str(data / arm), *NO_FILTERS
            )
        self.phases.reasonrag(
            f"seed{seed} placebo pairs",
            *("pairs", str(data / "process-chosen"), "--out", str(data / "placebo"), *NO_FILTERS),
            *("--flip", "0.5", "--seed", str(seed)),
        )

    def epochs_of_equal_tokens(self, seed: int) -> float:
        """Passes over the best paths that read as many words as DPO reads of the pairs of `process`."""
        data = self.of(seed) / "data"
        pairs = [
            2 * words_of(prompt_of(row)) + words_of(row["chosen"] + row["rejected"])
            for row in pairs_of(data / "process")
        ]
        steps = [words_of(prompt_of(row) + row["output"]) for row in rows_of(data / "labelled" / "sft.json")]
        return self.plan.dpo_epochs * sum(pairs) / sum(steps)

    def compare(self) -> None:
        """`compare` of all arms against the student before, and of process against the others."""
        for reference, others in ((BEFORE, ARMS), ("outcome", ("process",))):
            flags: list[str] = []
            for arm in (reference, *others):
                evaluations = ",".join(str(self.evaluation(seed, arm)) for seed in self.seeds)
                flags += ["--group", f"{arm}={evaluations}"]
            self.phases.reasonrag(
                f"against {reference} {self.split}", "compare", *flags, "--out", str(self.comparison(reference))
            )

    @property
    def seeds(self) -> range:
        return range(self.plan.seeds)

    def evaluation(self, seed: int, arm: str) -> Path:
        return self.of(seed) / f"{self.split}-{arm}"

    def comparison(self, reference: str) -> Path:
        return self.work / f"{self.split}-against-{reference}"

    # -- commands ------------------------------------------------------------------------------------------------

    def asked(self, split: str) -> tuple[str, ...]:
        """Flags of a command that has an agent answer: the same for teacher, student and evaluation."""
        return (
            *("--questions", str(self.world / f"{split}.jsonl"), "--corpus", str(self.world / "corpus.jsonl")),
            *("--prompts", str(self.prompts)),
            *("--top-k", str(self.plan.top_k), "--max-steps", str(self.plan.max_steps)),
        )

    def train(self, seed: int, name: str, config: str, model: Path, data: Path, /, **changes: Any) -> None:
        allowed = changes.pop("allow", ())
        changes = {"model_name_or_path": str(model), "seed": seed} | changes
        sets = [flag for key, value in changes.items() for flag in ("--set", f"{key}={value}")]
        self.phases.reasonrag(
            f"seed{seed} {name}",
            *("train", str(CONFIGS / f"{config}.yaml"), "--data", str(data), "--prompts", str(self.prompts)),
            *("--out", str(self.of(seed) / name), *sets, *(flag for each in allowed for flag in ("--allow", each))),
        )


def choose(run: Path, sources: Mapping[str, Path], data: Path, seed: int) -> None:
    """As many pairs of each data set as the smallest one has, of steps that the student took by itself: what it says
    when `generate` shows it its own replies and asks for another one, which nobody taught it, is not its policy."""
    plain = plain_steps(run / "rollouts.jsonl")
    ids = {
        arm: [
            row["pair_id"]
            for row in pairs_of(source)
            if {(row["question_id"], row["chosen_id"]), (row["question_id"], row["rejected_id"])} <= plain
        ]
        for arm, source in sources.items()
    }
    count = min(map(len, ids.values()))
    for arm, source in sources.items():
        write_only(source, drawn(ids[arm], count, seed=seed), data / f"{arm}-chosen")


def write_only(labelled: Path, pair_ids: Collection[str], out: Path) -> None:
    """The candidates of a data set with these pairs alone, as a data set that `reasonrag pairs` takes."""
    kept = frozenset(pair_ids)
    states = (
        state.model_copy(update={"pairs": [each for each in state.pairs if each.pair_id in kept]})
        for state in read_lines(labelled / CANDIDATES, StateRecord)
    )
    out.mkdir(parents=True, exist_ok=True)
    with atomic_replacement(out / CANDIDATES) as file:
        file.writelines(state.to_line() for state in states if state.pairs)
    shutil.copyfile(labelled / QUESTIONS, out / QUESTIONS)


def drawn(pair_ids: Iterable[str], count: int, *, seed: int) -> set[str]:
    """So many of the pairs, always the same ones."""
    return set(random.Random(f"equal data {seed}").sample(sorted(pair_ids), count))


def plain_steps(rollouts: Path) -> set[tuple[str, int]]:
    """Steps, by question and number, that were drawn in their state's own prompt at the run's own temperature."""
    return {(tree.question_id, node.id) for tree in read_rollouts(rollouts) for node in tree.nodes if node.plain_draws}


def pairs_of(data: Path) -> list[dict[str, Any]]:
    return rows_of(pairs_files(data)["train"])


def prompt_of(row: Mapping[str, Any]) -> str:
    """All turns of a row's prompt."""
    return "".join(each["content"] for each in messages_of(row))


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(path.read_bytes())
    return rows


def lines_of(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


def words_of(text: str) -> int:
    """As the student's tokenizer counts, but for the marks around turns."""
    return len(re.findall(WORDS, text))


# -- what came of it ---------------------------------------------------------------------------------------------


def results(loop: Loop) -> dict[str, Any]:
    """Everything that the report says; what `loop.json` holds."""
    arms = {arm: figures([loop.evaluation(seed, arm) for seed in loop.seeds]) for arm in (BEFORE, *ARMS)}
    against = {reference: differences(loop.comparison(reference)) for reference in (BEFORE, "outcome")}
    return {
        "split": loop.split,
        "questions": loop.plan.questions[loop.split],
        "plan": asdict(loop.plan),
        "data": {
            f"seed{seed}": {
                "pairs": len(pairs_of(loop.of(seed) / "data" / "process")),
                "best_path_steps": len(rows_of(loop.of(seed) / "data" / "labelled" / "sft.json")),
                "sft_epochs": round(loop.epochs_of_equal_tokens(seed), 3),
            }
            for seed in loop.seeds
        },
        "arms": arms,
        "against": against,
        "verdict": verdict(arms[BEFORE]["em"], against),
        "seconds": loop.phases.took,
        "seconds_by_kind": by_kind(loop.phases.took),
    }


def by_kind(took: dict[str, float]) -> dict[str, float]:
    """Seconds of all phases but those inside another one."""
    kinds = {"explore": "exploration", BEFORE: "warm-up", "dev": "evaluation", "heldout": "evaluation"}
    kinds |= dict.fromkeys(ARMS, "training")
    sums: dict[str, float] = {}
    for name, seconds in took.items():
        words = name.split()
        if words[-1] != "generate":
            kind = kinds.get(words[-1], "data")
            sums[kind] = round(sums.get(kind, 0.0) + seconds, 1)
    return sums


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "loop", help="where everything goes [%(default)s]")
    parser.add_argument("--quick", action="store_true", help="a few questions and one seed: that the path holds")
    parser.add_argument("--split", choices=["dev", "heldout"], default="heldout", help="whose questions are asked")
    parser.add_argument("--seeds", type=int, help="training seeds, each a student of its own")
    parser.add_argument("--workers", type=int, default=2, help="students at work at a time, a core each [%(default)s]")
    parser.add_argument("--append", type=Path, help="add the report to this file")
    parser.add_argument("--json", type=Path, help="write all figures here, too, beside loop.json in --work")
    asked = parser.parse_args()
    plan = Plan().quick() if asked.quick else Plan()
    if asked.seeds:
        plan = replace(plan, seeds=asked.seeds)
    loop = Loop(plan, asked.work, asked.split)
    loop.prepare()
    with ThreadPoolExecutor(asked.workers) as workers:
        list(workers.map(loop.run_seed, loop.seeds))
    loop.compare()
    found = results(loop)
    for path in filter(None, (asked.work / "loop.json", asked.json)):
        path.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    publish(report(found), asked.append)


if __name__ == "__main__":
    main()
