"""The plan of `proof.py` with a real language model and real questions, in half an hour of one GPU.

    python benchmarks/proof_gpu.py --data-dir qa --model models/smollm2-135m-instruct --results results
    python benchmarks/proof_gpu.py --quick             a tiny model and a closed world, on any machine: no figures

Asks no network; README.md says what is fetched beforehand. What differs from `proof.py`: the student is warmed up once,
on paths of the offline teacher, and every seed begins with it; rates are not tuned; SFT, DPO and critics are trained by
`proof_train.py`.

Several seeds run at a time, and a phase that is done is not repeated. None begins after --minutes, counted from the
first start of --work, and commands are ended then; a seed that is not evaluated is dropped whole, as the report says.
--results: after each phase `progress.json`; of each seed `seed-N.json`, as `proof.py` writes it; last `report.md`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from loop import BEFORE, HERE, NO_FILTERS, PROMPTS
from loop_world import write_lines
from lucky_world import Size, write_world
from phases import Timed, say
from proof import CRITICS, DEEP, OF, WIDE, Proof, ProofPlan, same_plan
from proof_report import read_seeds, report
from reporting import ROOT, gpus, publish

from preference.export.formats import pairs_files
from preference.export.private_files import write_json
from reasonrag.critics.train import Fold, read_rows
from reasonrag.errors import ReasonragError
from reasonrag.llm.critic import CriticFacts
from reasonrag.model_folder import PROVENANCE
from reasonrag.progress import SilentWatcher
from reasonrag.serving.local_server import count_gpus
from reasonrag.training.llamafactory.config_files import find_config
from reasonrag.training.llamafactory.config_resolution import base_settings, resolve_config
from reasonrag.training.llamafactory.dataset_info import read_training_data
from reasonrag.training.preflight_checks import Permissions
from reasonrag.training.stages import trl_backend
from reasonrag.training.stages.training import TrainingResult
from reasonrag.training.stages.trl import CRITIC, POLICY, Plan, Rows, train_plan

CONFIGS = HERE / "real_configs"
PLAIN: Mapping[str, Any] = {"module": "benchmarks.proof_train", "packages": POLICY.packages, "trainer": POLICY.trainer}
"""Of a kind of training by transformers alone."""


@dataclass(frozen=True)
class GpuPlan(ProofPlan):
    """All numbers of the experiment; none was tuned. passage_chars: of a passage in a prompt. dollars: of `deep` at
    most, which is to end before."""

    questions: dict[str, int] = field(default_factory=lambda: {"warmup": 250, DEEP: 128, WIDE: 1000, "heldout": 1000})
    bed: str = "real questions, one student"
    seeds: int = 6
    top_k: int = 3
    max_steps: int = 5
    passage_chars: int = 300
    warmup_epochs: float = 2.0
    warmup_rate: float = 1.5e-4
    warmup_batch: int = 4
    critic_rate: float = 2.0e-5
    temperature: float = 0.8
    dollars: float = 40.0
    reply_tokens: int = 96
    concurrency: int = 128
    pairs: int = 320
    steps: int = 60
    rates: dict[str, tuple[float, float]] = field(
        default_factory=lambda: dict.fromkeys(OF, (1e-5, 0.1)) | {"sft": (5e-5, 0.0)}
    )
    revalued: int = 50

    def quick(self) -> GpuPlan:
        """That everything runs, with a student of random weights."""
        few = replace(self, questions={"warmup": 60, DEEP: 20, WIDE: 80, "heldout": 20}, seeds=2, concurrency=16)
        few = replace(
            few, sure=NO_FILTERS, most_replies={DEEP: 64, WIDE: 16}, max_steps=8, pairs=20, steps=4, revalued=4, draws=2
        )
        return replace(few, warmup_epochs=20.0, warmup_rate=3e-3, warmup_batch=16, critic_rate=5e-4)


@dataclass
class GpuProof(Proof):
    """One run of it in `work`. model: of the student before its warm-up; None: a tiny one is made."""

    plan: GpuPlan
    data: Path = Path()
    model: Path | None = None

    def prepare(self) -> None:
        """Questions, passages and the warm-up, which all seeds share."""
        self.phases.once("world", self.write_questions)
        super(Proof, self).prepare()
        base = self.model or self.work / "blank"
        if self.model is None:
            words = [str(self.work / "words.txt"), *map(str, sorted(self.prompts.glob("*.txt")))]
            self.phases.command("blank", sys.executable, str(HERE / "loop_student.py"), str(base), "--texts", *words)
        told = {"num_train_epochs": self.plan.warmup_epochs, "learning_rate": self.plan.warmup_rate}
        told["per_device_train_batch_size"] = self.plan.warmup_batch
        self.trained("before", "sft", base, self.work / "warmup", self.work / BEFORE, **told)
        if self.model is None:  # it explores what it was taught, or it had no pairs; its critics are to judge these
            known = json.loads((self.work / BEFORE / PROVENANCE).read_bytes())
            write_json(self.work / BEFORE / PROVENANCE, known | {"questions": []})

    def write_questions(self) -> None:
        """Of all data sets: those that are held out, of dev.jsonl or test.jsonl; and others, in disjoint splits."""
        sets = [each.parent for each in sorted(self.data.glob("*/corpus.jsonl"))]
        dev = in_order(each for name in sets for each in rows_of(name, "dev") or rows_of(name, "test"))
        wanted, heldout = dict(self.plan.questions), self.plan.questions["heldout"]
        rest = in_order([*dev[heldout:], *(each for name in sets for each in rows_of(name, "train"))])
        if len(dev) < heldout or len(rest) < sum(wanted.values()) - heldout:
            raise SystemExit(f"{self.data} has {len(dev)} questions to hold out, {len(rest)} others; wanted: {wanted}")
        write_lines(self.world / "heldout.jsonl", dev[:heldout])
        for split in (each for each in wanted if each != "heldout"):
            write_lines(self.world / f"{split}.jsonl", [rest.pop() for _ in range(wanted[split])])
        write_lines(self.world / "corpus.jsonl", (each for name in sets for each in rows_of(name, "corpus")))

    def asked(self, split: str) -> tuple[str, ...]:
        words = [*super().asked(split), "--max-passage-chars", str(self.plan.passage_chars)]
        if self.model:  # it reads the package's prompts
            del words[(place := words.index("--prompts")) : place + 2]
        return tuple(words)

    def warm_up(self, seed: int, **_: Any) -> None:
        self.of(seed).mkdir(exist_ok=True)
        if not (self.of(seed) / BEFORE).exists():
            (self.of(seed) / BEFORE).symlink_to(self.work / BEFORE)

    def evaluate(self, seed: int, name: str, student: str, *flags: str) -> None:
        told = ("--concurrency", str(self.plan.concurrency), "--max-reply-tokens", str(self.plan.reply_tokens))
        super().evaluate(seed, name, student, *flags, *told)

    # -- trainings -----------------------------------------------------------------------------------------------

    def train(self, seed: int, name: str, config: str, model: Path, data: Path, /, **changes: Any) -> None:
        self.trained(f"seed{seed} {name}", config, model, data, self.of(seed) / name, seed=seed, **changes)

    def train_critics(self, seed: int) -> None:
        home, plan = self.of(seed), self.plan
        told = {"learning_rate": plan.critic_rate, "max_steps": plan.steps, "max_length": 2048, "seed": seed}
        for number in (1, 2):
            place = home / "critics" / f"fold-{number}"
            where = home / BEFORE, home / "data" / "values-all", place
            self.trained(f"seed{seed} critic {number}", str(CRITICS), *where, fold=Fold(number, 2), **told)
        took = sum(self.phases.took.pop(f"seed{seed} critic {number}") for number in (1, 2))
        self.phases.took[f"seed{seed} critics"] = took

    def trained(
        self, name: str, config: str, model: Path, data: Path, out: Path, *, fold: Fold | None = None, **changes: Any
    ) -> None:
        """A phase that trains. config: a file, or the name of one of ours."""
        file = config if config.endswith(".yaml") else str(CONFIGS / f"{config}.yaml")
        told = {"model_name_or_path": str(model), "use_cpu": not count_gpus(), "bf16": bool(count_gpus())}
        if fold is None:
            told |= {"cutoff_len": 2048, "disable_gradient_checkpointing": None, "gradient_accumulation_steps": 1}
            told |= {"per_device_train_batch_size": self.plan.batch}
        changes.pop("train_on_prompt", None)  # no configuration of ours does
        permitted = Permissions(None if self.model else self.prompts, changes.pop("allow", ()))
        self.phases.once(name, lambda: train(file, data, out, told | changes, fold=fold, permitted=permitted))


def train(
    name: str, data: Path, out: Path, changes: Mapping[str, Any], *, fold: Fold | None, permitted: Permissions
) -> None:
    """One training by `proof_train.py`, with the checks of `train` and `train-critic`. Raises InputError before it is
    started, TrainingFailed and KeyboardInterrupt."""
    found, file, facts = read_training_data(data), find_config(name), dict[str, str]()
    if "stage" in file.values:
        resolution = resolve_config(file, changes, found, out=out)
        config, entry = resolution.config, resolution.entries[0]
        words = trl_backend.in_words_of_trl(config, resolution.name, bounded=resolution.chosen_cutoff)
        kind = trl_backend.KINDS[resolution.stage]
        kind = replace(kind, ours=(*kind.ours, "beta"), **PLAIN)
        taken = trl_backend.read_rows(entry, data, words.get("max_samples"))
        rows = Rows(taken, [], [each for each in [entry.file] if each], entries=[entry])
    else:
        kind, words, of_critic = replace(CRITIC, **PLAIN), base_settings(file, changes), read_rows(data, "train", fold)
        facts, decides = {"labels": "+".join(sorted(of_critic.labels))}, {"fold": fold and [fold.number, fold.count]}
        rows = Rows(of_critic.rows, [], [*pairs_files(data).values()], of_critic.questions, facts, decides)
    plan = Plan(kind, words, file.name, found, out.resolve(), permitted)

    def conclude(record: Any) -> dict[str, Any]:
        of_it = {name: value for name, value in record.lengths.items() if name in CriticFacts.model_fields}
        return {"critic": CriticFacts(**facts, **of_it)} if facts else {}

    train_plan(plan, rows, SilentWatcher(), TrainingResult, conclude=conclude, dry_run=False)


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    """Of a file of a data set, with ids that no other file has; none if there is no such file."""
    file = folder / f"{name}.jsonl"
    rows = [json.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else []
    return [row | {"id": f"{folder.name} {name} {row['id']}"} for row in rows]


def in_order(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One that says nothing: by a hash of their ids."""
    return sorted(rows, key=lambda row: hashlib.sha256(row["id"].encode()).hexdigest())


def evaluated(run_seed: Callable[[int], None], seeds: Iterable[int], workers: int) -> dict[int, str]:
    """Run seeds, several at a time: why those were dropped that have not come to their end."""

    def dropped(seed: int) -> tuple[int, str]:
        try:
            run_seed(seed)
        except (SystemExit, ReasonragError, OSError, ValueError) as error:
            say(f"seed {seed} is dropped: {error}")
            return seed, str(error)
        return seed, ""

    with ThreadPoolExecutor(workers) as pool:
        return {seed: why for seed, why in pool.map(dropped, seeds) if why}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="folder with <data set>/{corpus,dev,train}.jsonl")
    parser.add_argument("--model", type=Path, help="folder of the model that is warmed up")
    parser.add_argument("--work", type=Path, help="where all goes [runs/proof-gpu; with --quick runs/proof-gpu-quick]")
    parser.add_argument("--results", type=Path, help="folder of what is kept [results in --work]")
    parser.add_argument("--seeds", type=int, help="how many, from 0 on [6; with --quick 2]")
    parser.add_argument("--workers", type=int, default=4, help="seeds at a time [%(default)s]")
    parser.add_argument(
        "--minutes", type=float, default=27, help="from the first start to the last phase [%(default)s]"
    )
    parser.add_argument("--quick", action="store_true", help="that the path holds, on any machine")
    asked = parser.parse_args()
    if not asked.quick and not (count_gpus() and asked.data_dir and asked.model):
        lacks = [] if count_gpus() else ["no GPU is seen here; --quick rehearses on a CPU"]
        needed = {"--data-dir": asked.data_dir, "--model": asked.model}
        lacks += [f"{flag} is needed" for flag, given in needed.items() if not given]
        print("\n".join(lacks), file=sys.stderr)
        raise SystemExit(2)
    work = (asked.work or ROOT / "runs" / f"proof-gpu{'-quick' if asked.quick else ''}").resolve()
    results = (asked.results or work / "results").resolve()
    data, model = (each and each.resolve() for each in (asked.data_dir, asked.model))
    os.chdir(ROOT)  # where a training's process finds proof_train.py
    plan = GpuPlan().quick() if asked.quick else GpuPlan()
    same_plan(work, plan, tuned=True)
    if data is None:
        data = work / "qa"
        few = Size(towns=30, people=60, works=80, organisations=20)
        write_world(data / "closed", few, {"dev": 20, "seen": 30}, seed=0)
        again = [row | {"id": f"{copy} {row['id']}"} for copy in range(6) for row in rows_of(data / "closed", "seen")]
        write_lines(data / "closed" / "train.jsonl", again)
    began = work / "began.json"
    if not began.exists():
        began.write_text(json.dumps(time.time()))
    results.mkdir(parents=True, exist_ok=True)
    proof = GpuProof(plan, work, prompts=PROMPTS, data=data, model=model)
    proof.phases = Timed(work, proof.phases.variables, until=json.loads(began.read_text()) + 60 * asked.minutes)
    proof.phases.told = lambda took: write_json(results / "progress.json", {"gpus": gpus("name"), "seconds": took})
    proof.prepare()
    dropped = evaluated(lambda seed: proof.run_seed(seed, results), range(asked.seeds or plan.seeds), asked.workers)
    found = [each for each in read_seeds(results) if each["seed"] not in dropped]
    told = [f"\nSeed {seed} was dropped whole: {why.splitlines()[0]}" for seed, why in dropped.items()]
    publish(chain(told, report(found) if found else ["\nNo seed was evaluated."]), results / "report.md")


if __name__ == "__main__":
    main()
