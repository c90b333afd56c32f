"""A real, small language model as teacher and student: SmolLM2-135M-Instruct on real questions, on two cores.

    make real-model                                       fetches and converts the model
    python benchmarks/real_model.py --data-dir qa         all of it; a phase that is done is not repeated, and after
                                                          Ctrl-C there is a report of those that are done
    python benchmarks/real_model.py --data-dir qa --quick     a few questions: that the path holds, no figures

The model as it comes (`base`) gives hardly any readable reply, so it is warmed up by SFT on the best paths of the
offline teacher (`sft`). The warmed-up model explores other questions as its own teacher: `generate` against its own
server, gold answers kept from it. It is then trained further on its own trees, in three ways:

- dpo: by DPO on the pairs of `reasonrag pairs` with default filters.
- dpo-sft: the same, with an SFT term on the chosen replies (pref_ftx 1).
- more-sft: by SFT on the best paths of the same trees, on as many sequences as DPO reads.

Each model is asked held-out questions of two data sets, greedily: as agent, and with one search and one reply
(`evaluate --method rag`). One model, one seed: intervals are over questions and say nothing about the method.
Decides the experiment; its tables are made in `real_model_report`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from phases import Phases, say
from real_model_report import BASE, HELD_OUT, METHODS, MODELS, SFT, Asked, compared, read_json, report
from reporting import ROOT, publish

from reasonrag.serving.local_server import served

CONFIGS = Path(__file__).parent / "real_configs"


@dataclass(frozen=True)
class Plan:
    """All numbers of the experiment but those of training, which are in real_configs/. None was tuned."""

    warmup: dict[str, int] = field(default_factory=lambda: {"popqa": 180, "2wikimultihopqa": 48, "hotpotqa": 36})
    explore: dict[str, int] = field(default_factory=lambda: {"popqa": 60, "2wikimultihopqa": 20})
    heldout: int = 150
    passage_chars: int = 300
    """Below 80 tokens."""
    max_steps: int = 5
    """Two searches, and an answer."""
    reply_tokens: int = 96
    temperature: float = 0.8
    """Of the student while it explores."""
    calls: int = 32
    """Replies to a question at most, of the student that explores."""
    dpo_epochs: float = 1.0
    pairs_of_warmup: bool = False
    """Whether DPO also reads pairs of the offline teacher's trees: a model after ten questions gives none."""
    concurrency: int = 128

    def quick(self) -> Plan:
        """That everything runs: no figure of it means anything."""
        few = {"popqa": 4, "2wikimultihopqa": 4, "hotpotqa": 2}
        return replace(self, warmup=few, explore=few, heldout=4, calls=12, pairs_of_warmup=True)


@dataclass
class Experiment:
    """One run of it in `work`. data: folder with <data set>/{train,dev}.jsonl and corpus.jsonl."""

    plan: Plan
    work: Path
    data: Path
    base: Path

    def __post_init__(self) -> None:
        os.environ["REASONRAG_INDEX_HOME"] = str(self.work / "indexes")
        self.phases = Phases(self.work)
        self.keep_settings()

    def keep_settings(self) -> None:
        """Note what the phases of `work` are done with. Raises SystemExit where they were begun with something else."""
        configs = {file.name: file.read_text("utf-8") for file in sorted(CONFIGS.glob("*.yaml"))}
        settings = {"plan": asdict(self.plan), "data": str(self.data), "model": str(self.base), "configs": configs}
        kept = self.work / "settings.json"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(orjson.dumps(settings, option=orjson.OPT_INDENT_2))
        before = read_json(kept)
        if other := [name for name, value in settings.items() if before.get(name) != value]:
            raise SystemExit(f"{self.work} was begun with another {', '.join(other)} ({kept}): take another --work")

    # -- questions ---------------------------------------------------------------------------------------------------

    def write_questions(self) -> None:
        """Disjoint ones to warm up with, to explore and to hold out. A set without train.jsonl, as PopQA, gives all
        three from dev.jsonl or test.jsonl."""
        places = self.work / "questions"
        places.mkdir(parents=True, exist_ok=True)
        for name in dict.fromkeys([*self.plan.warmup, *self.plan.explore, *HELD_OUT]):
            dev, test, train = (_questions(self.data / name / f"{split}.jsonl") for split in ("dev", "test", "train"))
            dev = dev or test
            count = self.plan.heldout if name in HELD_OUT else 0
            heldout, rest = dev[:count], train or dev[count:]
            warmup, explore = self.plan.warmup.get(name, 0), self.plan.explore.get(name, 0)
            if len(heldout) < count or len(rest) < warmup + explore:
                raise SystemExit(
                    f"{self.data / name} has too few questions: the plan takes {count} of dev.jsonl, or of test.jsonl "
                    f"where there is none, and {warmup + explore} others of train.jsonl, or of the same file"
                )
            parts = {"heldout": heldout, "warmup": rest[:warmup], "explore": rest[warmup : warmup + explore]}
            for part, questions in parts.items():
                (places / f"{part}-{name}.jsonl").write_bytes(b"".join(orjson.dumps(q) + b"\n" for q in questions))

    def asked(self, part: str, name: str) -> tuple[str, ...]:
        """Flags of a command that has an agent answer: the same for teacher, student and evaluation."""
        return (
            *("--questions", str(self.work / "questions" / f"{part}-{name}.jsonl")),
            *("--corpus", str(self.data / name / "corpus.jsonl")),
            *("--max-passage-chars", str(self.plan.passage_chars), "--max-steps", str(self.plan.max_steps)),
        )

    # -- phases ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        self.phases.once("questions", self.write_questions)
        self.warm_up()
        self.phases.once("explore", self.explore)
        self.train_arms()
        for name, method, model in itertools.product(HELD_OUT, METHODS, MODELS):
            asked = Asked(model, method, name)
            self.phases.once(str(asked), partial(self.evaluate, asked))
            self.compare(name)

    def warm_up(self) -> None:
        for name in self.plan.warmup:
            run = str(self.taught(name))
            self.phases.reasonrag(
                f"teacher {name}", "generate", *self.asked("warmup", name), "--model", "offline", "--run", run
            )
        self.pairs("warmup pairs", [self.taught(name) for name in self.plan.warmup], self.work / "warmup")
        self.train(SFT, "sft", self.base, self.work / "warmup")

    def explore(self) -> None:
        """The warmed-up model as its own teacher."""
        commands = {
            f"explore {name}": (
                *("generate", *self.asked("explore", name), "--temperature", str(self.plan.temperature)),
                *("--concurrency", str(self.plan.concurrency), "--max-reply-tokens", str(self.plan.reply_tokens)),
                *("--set", f"search.max_calls={self.plan.calls}", "--abort-degenerate", "0"),
                *("--run", str(self.explored(name))),
            )
            for name in self.plan.explore
        }
        asyncio.run(self.with_server(self.work / SFT, commands))

    async def with_server(self, model: Path, commands: dict[str, tuple[str, ...]]) -> None:
        """Run commands, by name, that ask the model of a folder."""
        async with served(model, say=say) as server:
            for name, command in commands.items():
                flags = ("--model", server.name, "--base-url", server.base_url)
                await asyncio.to_thread(self.phases.reasonrag, name, *command, *flags)

    def taught(self, name: str) -> Path:
        return self.work / f"teacher-{name}"

    def explored(self, name: str) -> Path:
        return self.work / f"explored-{name}"

    def train_arms(self) -> None:
        data, student, epochs = self.work / "pairs", self.work / SFT, self.plan.dpo_epochs
        runs = [self.explored(name) for name in self.plan.explore]
        if self.plan.pairs_of_warmup:
            runs += [self.taught(name) for name in self.plan.warmup]
        self.pairs("pairs", runs, data)
        self.train("dpo", "dpo", student, data, num_train_epochs=epochs)
        self.train("dpo-sft", "dpo", student, data, num_train_epochs=epochs, pref_ftx=1.0)
        read = 2 * epochs * len(self.rows("dpo"))  # a pair is two sequences
        again = round(read / len(self.rows("more-sft")), 2)
        self.train("more-sft", "sft", student, data, num_train_epochs=again, learning_rate=5.0e-5)

    def rows(self, model: str) -> list[dict[str, Any]]:
        """What a model was trained on."""
        if model == SFT:
            return read_json(self.work / "warmup" / "sft.json")
        return read_json(self.work / "pairs" / ("sft.json" if model == "more-sft" else "RAG_ProGuide.json"))

    def evaluate(self, asked: Asked) -> None:
        model = self.base if asked.model == BASE else self.work / asked.model
        command = (
            *("evaluate", *self.asked("heldout", asked.data_set), "--method", asked.method),
            *(() if asked.model == BASE else ("--trained-on", str(model))),
            *("--max-reply-tokens", str(self.plan.reply_tokens), "--concurrency", str(self.plan.concurrency)),
            *("--run", str(self.evaluation(asked))),
        )
        asyncio.run(self.with_server(model, {f"evaluate {asked}": command}))

    def evaluation(self, asked: Asked) -> Path:
        return self.work / "evaluated" / str(asked).replace(" ", "-")

    def comparison(self, reference: Asked, other: Asked) -> Path:
        return self.work / "compared" / f"{reference} {other}".replace(" ", "-")

    def compare(self, data_set: str) -> None:
        """Paired differences, of what has been evaluated."""
        for reference, other in compared(data_set):
            if {str(reference), str(other)} <= self.phases.took.keys():
                evaluations = [str(self.evaluation(each)) for each in (reference, other)]
                out = str(self.comparison(reference, other))
                self.phases.reasonrag(f"{other} against {reference}", "compare", *evaluations, "--out", out)

    def pairs(self, name: str, runs: Sequence[Path], out: Path) -> None:
        """Questions that are held out would be found and removed."""
        heldout = [("--eval", str(self.work / "questions" / f"heldout-{each}.jsonl")) for each in HELD_OUT]
        self.phases.reasonrag(
            name,
            *("pairs", *map(str, runs), "--out", str(out), "--format", "sft", "--validation", "0"),
            *(flag for each in heldout for flag in each),
        )

    def train(self, name: str, config: str, model: Path, data: Path, **changes: Any) -> None:
        changes = {"model_name_or_path": str(model)} | changes
        sets = [flag for key, value in changes.items() for flag in ("--set", f"{key}={value}")]
        self.phases.reasonrag(
            name, "train", str(CONFIGS / f"{config}.yaml"), "--data", str(data), "--out", str(self.work / name), *sets
        )


def _questions(file: Path) -> list[dict[str, Any]]:
    """In an order that says nothing: by a hash of their ids. Empty if there is no such file."""
    if not file.exists():
        return []
    rows: list[dict[str, Any]] = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    return sorted(rows, key=lambda row: hashlib.sha256(row["id"].encode()).hexdigest())


def command_line(said: str, name: str) -> argparse.Namespace:
    """What was asked of an experiment with this model. Raises SystemExit where the model is not there."""
    parser = argparse.ArgumentParser(description=said, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True, help="folder with <data set>/{train,dev,corpus}.jsonl")
    parser.add_argument("--work", type=Path, help=f"where all goes [runs/{name}; with --quick runs/{name}-quick]")
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "smollm2-135m-instruct", help="[%(default)s]")
    parser.add_argument("--quick", action="store_true", help="a few questions: that the path holds")
    parser.add_argument("--append", type=Path, help="add the report to this file")
    asked = parser.parse_args()
    if not (asked.model / "config.json").exists():
        raise SystemExit(f"there is no model in {asked.model}: `make real-model` fetches it")
    asked.work = (asked.work or ROOT / "runs" / (f"{name}-quick" if asked.quick else name)).absolute()
    asked.data_dir, asked.model = asked.data_dir.absolute(), asked.model.absolute()
    return asked


def main() -> None:
    asked = command_line(__doc__ or "", "real-model")
    experiment = Experiment(Plan().quick() if asked.quick else Plan(), asked.work, asked.data_dir, asked.model)
    try:
        experiment.run()
    except KeyboardInterrupt:
        say("stopped: the report is of the phases that are done; the same command goes on with the next")
    publish(report(experiment), asked.append)


if __name__ == "__main__":
    main()
