"""Do process preferences beat outcome preferences at equal dollars? The experiment whose plan is `PROOF.md`.

    make proof                                     all of it once more, in runs/proof; what is done is not repeated
    python benchmarks/proof.py --bed               seed 100: whether the bed is accepted; exit status 1 if it is not
    python benchmarks/proof.py --tune              rates, on `dev`, by seeds that are not used again
    python benchmarks/proof.py --seeds 0-5         those that are not there yet; each ends with proof/seed-N.json
    python benchmarks/proof.py --report            the table of all seeds that are there
    python benchmarks/proof.py --quick             a few questions: that the path holds, no figures

A student of 0.6 million parameters is warmed up in the world with lucky answers, and explores it twice for as many
dollars at GPT-4o's list price: `deep`, some questions with up to 128 replies each, and `wide`, more questions with up
to 32. Arms, each from the same student:

- consensus: pairs of `deep` by the values of the search that cross-fitted critics confirm, the surest.
- outcome: pairs of `wide` by the one trajectory in which a step was first drawn (`pairs --label outcome`).
- sft: best paths of `wide`, as many words.
- placebo: those of `consensus`, half of them exchanged.
- values: pairs of `deep` by the values alone, the surest.

Decides the experiment; what its table says is decided in `proof_report`. Every step of it is a command of reasonrag.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from gold_teacher import GoldQuestion, GoldTeacher, Skill, open_world
from loop import (
    BEFORE,
    NO_FILTERS,
    PROMPTS,
    Loop,
    Plan,
    lines_of,
    pairs_of,
    plain_steps,
    prompt_of,
    rows_of,
    words_of,
    write_only,
)
from lucky_world import Exchanger, Size, write_world
from phases import say
from proof_report import gap_of_bed, label_share, read_seeds, report
from reporting import ROOT, commit, machine, publish

import reasonrag
from preference import Message
from preference.export.formats import ACTION_TYPE_NAMES, messages_of
from preference.export.private_files import write_json
from preference.export.summary import CANDIDATES, QUESTIONS, SUMMARY
from preference.records import read_rollouts
from reasonrag.data.questions import open_questions
from reasonrag.evaluation.predictions import read_predictions
from reasonrag.llm.extraction.parsed_prompt import parse_prompt
from reasonrag.serving.local_server import LocalServer, served

RESULTS = Path(__file__).parent / "proof"
BASE = RESULTS / "base"
"""The same training gives other weights on another machine; seeds of several machines begin as this student."""
RATES = "rates.json"
CRITICS = Path(__file__).with_name("critics.yaml")
QUICK_RATES = {
    "consensus": (1e-4, 0.1),
    "outcome": (1e-4, 0.1),
    "sft": (3e-4, 0),
    "placebo": (1e-4, 0.1),
    "values": (1e-4, 0.1),
}
LESSONS, WARM_UP, DEEP, WIDE = "lessons", "warmup", "deep", "wide"
OF = {"consensus": DEEP, "outcome": WIDE, "values": DEEP, "placebo": DEEP}
"""Arms of preferences, and whose pairs they have."""
ARMS = ("consensus", "outcome", "sft", "placebo", "values")
QUICK_ARMS = ARMS[:3]
"""The others go the way of `consensus`."""
CHECKED = ("consensus", "outcome", "values")
"""Arms whose labels are checked; those of `placebo` are half of them wrong as they are made."""
PRICE = "2.5,10"
"""Of GPT-4o, dollars per million prompt and completion tokens."""
ENDS, READS = ACTION_TYPE_NAMES["answer"], ACTION_TYPE_NAMES["evidence"]
STOPPED = 3
"""Exit status of a run that its cap ended."""
PILOT, TUNING = 100, (101, 102)
"""Seeds of the bed and of the rates, which appear in no table."""
OF_BASE = 99
"""Seed of the student that all others begin as."""


@dataclass(frozen=True)
class ProofPlan(Plan):
    """All numbers of the experiment; PROOF.md says why they are these."""

    size: Size = field(default_factory=lambda: Size(towns=90, people=200, works=300, organisations=80))  # type: ignore[assignment]
    questions: dict[str, int] = field(
        default_factory=lambda: {WARM_UP: 3000, DEEP: 400, WIDE: 2200, "dev": 500, "heldout": 2000}
    )
    seeds: int = 12
    top_k: int = 2
    max_steps: int = 10
    shares: dict[str, float] = field(
        default_factory=lambda: {"3 hops": 0.25, "4 hops": 0.1, "choice": 0.25, "choice of two": 0.4}
    )
    """Of the questions, by kind: luck answers 26 % of them."""
    worlds: int = 10
    """With other facts, in which the student learns to answer."""
    weak: tuple[str, ...] = ("teacher", "home")
    """Facts that the teacher of the warm-up mostly misreads, and so the student."""
    weak_good: float = 0.3
    copies: dict[str, int] = field(default_factory=lambda: {LESSONS: 8, WARM_UP: 2})
    """Of each step that is learned, with other names each."""
    base_steps: tuple[int, ...] = (10_000, 5_000, 5_000)
    """Of trainings that each go on with the student of the one before, from the full rate on."""
    base_rate: float = 3e-3
    warmup_steps: int = 2400
    warmup_rate: float = 1e-3
    critic_steps: int = 200
    sure: tuple[str, ...] = ("--min-confidence", "0.8")
    """Of labels by values: those that critics learn from, and those of the arms."""
    dollars: float = 40.0
    """Of `deep` at most; `wide` stops at what it cost."""
    most_replies: dict[str, int] = field(default_factory=lambda: {DEEP: 128, WIDE: 32})
    pairs: int = 600
    steps: int = 120
    batch: int = 16
    rates: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Learning rate and beta of an arm; the tuning decides them."""
    bed: str = "the world with lucky answers"
    reply_tokens: int = 64
    concurrency: int = 32
    revalued: int = 100
    """Pairs of an arm whose labels are checked, and by how many fresh continuations of both sides."""
    draws: int = 8

    def quick(self) -> ProofPlan:
        """That everything runs: no figure of it means anything. It has the world of the whole, which the base knows."""
        return replace(
            self,
            questions={WARM_UP: 40, DEEP: 12, WIDE: 60, "dev": 10, "heldout": 20},
            worlds=1,
            shares={"choice of two": 1.0},
            copies={LESSONS: 1, WARM_UP: 1},
            base_steps=(400,),
            warmup_steps=20,
            critic_steps=4,
            sure=NO_FILTERS,
            most_replies={DEEP: 64, WIDE: 16},
            concurrency=8,
            pairs=20,
            steps=4,
            revalued=6,
            draws=2,
        )


@dataclass
class Proof(Loop):
    """One run of it in `work`. arms: which of them are trained and evaluated, at_once of a seed side by side. base: a
    folder with the student that all others begin as; where it is not there, that student is trained."""

    plan: ProofPlan
    arms: tuple[str, ...] = ARMS
    at_once: int = 1
    base: Path = BASE

    # -- the bed -------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """The world, what all students learn first, and the one that has learned to read and answer, once for all."""
        plan = self.plan
        asked = {split: count for split, count in plan.questions.items() if split != WARM_UP}
        self.phases.once("world", lambda: write_world(self.world, plan.size, asked, seed=0, shares=plan.shares))
        perfect = Skill("perfect", good=1.0, right=1.0)
        habits = replace(perfect, weak=plan.weak, weak_good=plan.weak_good)
        self.phases.once("habits", lambda: self.teach(WARM_UP, habits))
        if self.base.exists():
            taken = self.of(OF_BASE) / BEFORE
            self.phases.once("base", lambda: shutil.copytree(self.base, taken, dirs_exist_ok=True) and None)
            return
        self.phases.once("lessons", lambda: self.teach(LESSONS, perfect))
        self.phases.once("words", self.write_words)
        names = self.work / "names.txt"
        self.phases.once("names", lambda: names.write_text("\n".join(Exchanger(plan.size, 0).names), "utf-8") and None)
        self.make_blank(OF_BASE, "--names", str(names))
        model, last = self.of(OF_BASE) / "blank", len(plan.base_steps) - 1
        for number, steps in enumerate(plan.base_steps):
            name = BEFORE if number == last else f"{BEFORE}-{number + 1}"
            told = {"max_steps": steps, "learning_rate": plan.base_rate, "seed": OF_BASE - number}
            self.learn_steps(model, (OF_BASE, name), LESSONS, **told)
            model = self.of(OF_BASE) / name

    def warm_up(self, seed: int) -> None:  # type: ignore[override]
        """The student that can read takes on the habits of the second teacher, in an order of its own."""
        plan = self.plan
        base = self.of(OF_BASE) / BEFORE
        self.learn_steps(base, (seed, BEFORE), WARM_UP, max_steps=plan.warmup_steps, learning_rate=plan.warmup_rate)

    def learn_steps(self, model: Path, made: tuple[int, str], lesson: str, **told: Any) -> None:
        # What a passage says next cannot be known: replies alone are learned.
        self.train(*made, "sft", model, self.work / lesson, train_on_prompt=False, allow=["changed_rows"], **told)

    def teach(self, lesson: str, skill: Skill) -> None:
        """Steps of a teacher, each told several times of others (`Exchanger`), as a data set."""
        plan, out = self.plan, self.work / lesson
        runs = [self.taught(lesson, skill, told) for told in range(1, plan.worlds + 1)]
        reasonrag.pairs(runs, out=out, format=["sft"], validation=0)
        exchanger, dice = Exchanger(plan.size, 0), random.Random(f"exchanged {lesson}")
        rows = []
        for row in self.steps_said(runs):
            for _ in range(plan.copies[lesson]):
                other = exchanger.drawn(dice)
                rows.append(row | {part: other(row[part]) for part in ("instruction", "input", "output")})
        write_json(out / "sft.json", rows)

    def steps_said(self, runs: Iterable[Path]) -> Iterator[dict[str, Any]]:
        """All steps of one walk through each of the teacher's trees, good or bad, each as often as it takes it."""
        dice = random.Random("walks")
        for run in runs:
            for tree in read_rollouts(run / "rollouts.jsonl"):
                asked = {"question_id": tree.question_id, "dataset": tree.dataset, "split": tree.split}
                step = tree.nodes[0]
                while said := [each for child in step.children_ids if (each := tree.nodes[child]).plain_draws]:
                    step = dice.choices(said, [each.plain_draws for each in said])[0]
                    texts = [each.content for each in step.prompt or ()]
                    yield {"instruction": texts[0], "input": texts[1], "output": step.response} | asked

    def taught(self, lesson: str, skill: Skill, told: int) -> Path:
        """Trees of a teacher that knows the gold passages, in a world of the same things of which other facts are
        told."""
        plan, place, run = self.plan, self.work / f"world-{told}", self.work / f"{lesson}-{told}"
        rows = (json.loads(line) for file in self.world.glob("*.jsonl") for line in lines_of(file))
        asked = {row["question"] for row in rows if "question" in row}
        count = {WARM_UP: plan.questions[WARM_UP] // plan.worlds}
        write_world(place, plan.size, count, seed=0, told=told, but=asked, shares=plan.shares)
        world = open_world(place, self.work / "indexes")
        source = open_questions(place / f"{WARM_UP}.jsonl", dataset=f"lucky {told}", split=WARM_UP)
        known = [
            GoldQuestion(each, world, skill, max_steps=plan.max_steps, alpha=1.0, top_k=plan.top_k)
            for each in source.read(None)
        ]
        reasonrag.generate(
            questions=place / f"{WARM_UP}.jsonl",
            corpus=place / "corpus.jsonl",
            index_home=self.work / "indexes",
            prompts=PROMPTS,
            top_k=plan.top_k,
            max_steps=plan.max_steps,
            model="gold teacher",
            chat_model=GoldTeacher(known),
            concurrency=64,
            abort_degenerate=0,
            set={"search.max_calls": 24},
            run=run,
        )
        return run

    # -- one student ---------------------------------------------------------------------------------------------

    def run_seed(self, seed: int, results: Path = RESULTS) -> None:  # type: ignore[override]
        """Everything of one student, and what came of it in one file."""
        self.label(seed)
        jobs = [lambda: self.served(seed, "labels checked", lambda server: self.check_labels(seed, server))]
        jobs += [partial(self.learn_and_answer, seed, arm) for arm in self.arms]
        jobs += [lambda: self.evaluate(seed, BEFORE, BEFORE)]
        with ThreadPoolExecutor(self.at_once) as workers:
            list(workers.map(lambda job: job(), jobs))
        write_json(results / f"seed-{seed}.json", self.figures(seed))

    def label(self, seed: int) -> None:
        """The student, its trees, and the data sets of all arms."""
        self.warm_up(seed)
        self.served(seed, "explored", lambda server: self.explore_twice(seed, server))
        home, plain, sure = self.of(seed), ("--validation", "0"), self.plan.sure
        self.made(seed, DEEP, "values-all", *plain, *sure)
        self.train_critics(seed)
        witnesses = [word for fold in (1, 2) for word in ("--critic", str(home / "critics" / f"fold-{fold}"))]
        self.made(seed, DEEP, "consensus-all", *plain, *sure, "--consensus", *witnesses, "--allow-critic")
        self.made(seed, WIDE, "outcome-all", *plain, "--label", "outcome", "--format", "sft")
        self.phases.once(f"seed{seed} arms", lambda: self.choose(seed))
        for arm in CHECKED:
            self.made(seed, "", arm, *NO_FILTERS)
        self.made(seed, "", "placebo", *NO_FILTERS, "--flip", "0.5", "--seed", str(seed), source="consensus-chosen")

    def train_critics(self, seed: int) -> None:
        """Two, of the student before, each of the pairs of half of the questions."""
        home = self.of(seed)
        self.phases.reasonrag(
            f"seed{seed} critics",
            *("train-critic", str(CRITICS), "--data", str(home / "data" / "values-all")),
            *("--prompts", str(PROMPTS), "--out", str(home / "critics"), "--folds", "2"),
            *("--set", f"model_name_or_path={home / BEFORE}", "--set", f"seed={seed}"),
            *("--set", f"max_steps={self.plan.critic_steps}"),
        )

    def made(self, seed: int, run: str, name: str, *flags: str, source: str = "") -> None:
        """`pairs` of a run, or of pairs that were chosen from it."""
        data = self.of(seed) / "data"
        taken = self.of(seed) / run if run else data / (source or f"{name}-chosen")
        self.phases.reasonrag(f"seed{seed} {name} pairs", "pairs", str(taken), "--out", str(data / name), *flags)

    def served(self, seed: int, name: str, use: Callable[[LocalServer], None]) -> None:
        """Use the student before, served."""

        async def asked() -> None:
            async with served(self.of(seed) / BEFORE, say=say) as server:
                await asyncio.to_thread(use, server)

        self.phases.once(f"seed{seed} {name}", lambda: asyncio.run(asked()))

    def explore_twice(self, seed: int, server: LocalServer) -> None:
        """All of `deep`, then as many questions of `wide` as that cost: a cap leaves trees unfinished, here small ones.
        Raises SystemExit where `wide` has too few."""
        cost = self.explore_for(seed, DEEP, server, self.plan.dollars)
        if self.explore_for(seed, WIDE, server, cost) < 0.98 * cost:
            raise SystemExit(f"{WIDE} cost less than the {cost:.2f} dollars of {DEEP}: give the world more questions")

    def explore_for(self, seed: int, split: str, server: LocalServer, dollars: float) -> float:
        """Trees of the student before, until they have cost so much; what they did cost."""
        plan, run = self.plan, self.of(seed) / split
        self.phases.reasonrag(
            f"seed{seed} {split}",
            *("generate", *self.asked(split), "--model", server.name, "--base-url", server.base_url),
            *("--max-reply-tokens", str(plan.reply_tokens), "--concurrency", str(plan.concurrency)),
            *("--seed", str(seed), "--abort-degenerate", "0", "--temperature", str(plan.temperature)),
            *("--set", f"search.max_calls={plan.most_replies[split]}", "--run", str(run)),
            *("--outcome", "em", "--set", "search.alpha=1"),
            *("--price", f"{server.name}={PRICE}", "--max-cost", str(dollars)),
            allowed=(0, STOPPED),
        )
        return float(json.loads((run / SUMMARY).read_bytes())["cost_usd"])

    def choose(self, seed: int) -> None:
        """As many pairs for each arm, of steps that the student took by itself, and as many words of best paths."""
        data = self.of(seed) / "data"
        found = {arm: self.plain_rows(seed, arm, OF[arm]) for arm in CHECKED}
        dice = random.Random(f"proof {seed}")
        for arm, rows in found.items():
            dice.shuffle(rows)
            if arm != "outcome":
                rows.sort(key=lambda row: -row["confidence"])
        count = min(self.plan.pairs, *map(len, found.values()))
        if count < self.plan.pairs:
            lengths = ", ".join(f"{arm} {len(rows)}" for arm, rows in found.items())
            say(f"seed {seed}: all arms take {count} pairs, as one has no more: {lengths}")
        for arm, rows in found.items():
            write_only(data / f"{arm}-all", [row["pair_id"] for row in rows[:count]], data / f"{arm}-chosen")
        words = sum(map(pair_words, found["consensus"][:count]))
        steps = rows_of(data / "outcome-all" / "sft.json")
        dice.shuffle(steps)
        (data / "sft").mkdir(exist_ok=True)
        taken = list(first_words(steps, words))
        if len(taken) == len(steps):
            say(f"seed {seed}: all best paths have fewer words than the pairs of consensus")
        write_json(data / "sft" / "sft.json", taken)
        info = json.loads((data / "outcome-all" / "dataset_info.json").read_bytes())
        write_json(data / "sft" / "dataset_info.json", info)
        shutil.copyfile(data / "outcome-all" / QUESTIONS, data / "sft" / QUESTIONS)

    def plain_rows(self, seed: int, arm: str, run: str) -> list[dict[str, Any]]:
        """Pairs of steps that were drawn in their state's own prompt and go on: both ways label answers alike, by what
        they are."""
        plain = plain_steps(self.of(seed) / run / "rollouts.jsonl")
        return [
            row
            for row in pairs_of(self.of(seed) / "data" / f"{arm}-all")
            if {(row["question_id"], row["chosen_id"]), (row["question_id"], row["rejected_id"])} <= plain
            and ENDS not in (row["chosen_action_type"], row["rejected_action_type"])
        ]

    def choose_certain(self, seed: int) -> None:
        """Pairs of evidence of which the chosen side states a fact that is needed and missing, the rejected none."""
        plan, data, world = self.plan, self.of(seed) / "data", open_world(self.world, self.work / "indexes")
        source = open_questions(self.world / f"{DEEP}.jsonl", dataset=DEEP, split=DEEP)
        told = {"max_steps": plan.max_steps, "alpha": 1.0, "top_k": plan.top_k}
        known = {each.id: GoldQuestion(each, world, Skill("any"), **told) for each in source.read(None)}  # type: ignore[arg-type]

        def certain(row: Mapping[str, Any]) -> bool:
            question = known[row["question_id"]]
            prompt = parse_prompt([Message(**each) for each in messages_of(row)])  # type: ignore[arg-type]
            chosen, rejected = (question.stated(row[side]) for side in ("chosen", "rejected"))
            return bool(chosen - question.state_of(prompt).found) and not rejected - question.state_of(prompt).found

        found = [row for row in self.plain_rows(seed, CERTAIN, DEEP) if row["chosen_action_type"] == READS]
        right = sorted(row["pair_id"] for row in found if certain(row))
        random.Random(f"proof {seed}").shuffle(right)
        write_only(data / f"{CERTAIN}-all", right[: plan.pairs], data / f"{CERTAIN}-chosen")

    def learn(self, seed: int, arm: str, name: str, rates: tuple[float, float] | None = None) -> None:
        """The student before learns from the data of an arm, for as many steps as every other."""
        home, (rate, beta) = self.of(seed), rates or self.plan.rates[arm]
        steps = self.plan.steps
        told: dict[str, Any] = {"learning_rate": rate, "max_steps": steps, "logging_steps": max(1, steps // 6)}
        if arm == "sft":
            self.train(seed, name, "sft", home / BEFORE, home / "data" / "sft", **told, **self.of_sft(seed))
        else:
            self.train(seed, name, "dpo", home / BEFORE, home / "data" / arm, **told, pref_beta=beta)

    def learn_and_answer(self, seed: int, arm: str) -> None:
        self.learn(seed, arm, arm)
        self.evaluate(seed, arm, arm)

    def em_of_tries(self, seed: int) -> dict[str, list[float]]:
        """EM of a student after each try of each arm."""
        self.label(seed)
        found: dict[str, list[float]] = {arm: [] for arm in TRIED}
        for arm, tries in TRIED.items():
            for number, rates in enumerate(tries):
                name = f"{arm}-{number}"
                self.learn(seed, arm, name, rates)
                self.evaluate(seed, name, name)
                found[arm].append(em_of(self.answers(seed, name)))
        return found

    def of_sft(self, seed: int) -> dict[str, Any]:
        """A batch that reads all of its words as often as DPO reads its pairs."""
        data = self.of(seed) / "data"
        passes = self.plan.steps * self.plan.batch / len(pairs_of(data / "consensus"))
        batch = round(passes * len(rows_of(data / "sft" / "sft.json")) / self.plan.steps)
        return {"allow": ["unaudited_rows"], "train_on_prompt": False, "per_device_train_batch_size": max(1, batch)}

    # -- what came of it -----------------------------------------------------------------------------------------

    def check_labels(self, seed: int, server: LocalServer) -> None:
        """Fresh continuations of both sides of some pairs of each arm."""
        plan = self.plan
        for arm in CHECKED:
            found = reasonrag.calibrate(
                self.of(seed) / OF[arm],
                data=self.of(seed) / "data" / arm,
                revalue=plan.revalued,
                k=plan.draws,
                min_confidence=0.0,
                seed=seed,
                model=server.name,
                base_url=[server.base_url],
                price=f"{server.name}=0,0",
                concurrency=plan.concurrency,
            )
            write_json(self.of(seed) / f"labels-{arm}.json", found.model_dump(mode="json"))

    def figures(self, seed: int) -> dict[str, Any]:
        """Counts, and 0 or 1 of each held-out question in the order of its file."""
        home = self.of(seed)
        arms = {arm: self.answers(seed, arm) for arm in (BEFORE, *self.arms)}
        for arm in arms.keys() & CHECKED:
            arms[arm]["labels"] = label_share(json.loads((home / f"labels-{arm}.json").read_bytes()))
        for arm in arms.keys() & OF.keys():
            arms[arm] |= {"pairs": len(pairs_of(home / "data" / arm)), "training": trained(home / arm)}
        took = {
            name.partition(" ")[2]: each for name, each in self.phases.took.items() if name.startswith(f"seed{seed} ")
        }
        runs = {split: explored(home / split) for split in self.plan.most_replies}
        return {
            "seed": seed,
            "commit": commit(),
            "machine": machine(),
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "plan": asdict(self.plan),
            "arms": arms,
            "runs": runs,
            "seconds": took,
        }

    def answers(self, seed: int, arm: str) -> dict[str, Any]:
        found = list(read_predictions(self.evaluation(seed, arm)))
        return {
            "em": "".join(str(int(each.em == 1)) for each in found),
            "gold_found": sum(each.gold_recall or 0.0 for each in found) / len(found),
            "unreadable": sum(each.answer is None for each in found),
            "searches": sum(each.searches for each in found) / len(found),
        }


def em_of(answers: Mapping[str, Any]) -> float:
    return float(answers["em"].count("1") / len(answers["em"]))


def pair_words(row: Mapping[str, Any]) -> int:
    """What DPO reads of a pair."""
    return 2 * words_of(prompt_of(row)) + words_of(row["chosen"] + row["rejected"])


def first_words(steps: Iterable[dict[str, Any]], most: int) -> Iterator[dict[str, Any]]:
    """The first rows of so many words."""
    for row in steps:
        most -= words_of(prompt_of(row) + row["output"])
        if most < 0:
            return
        yield row


def explored(run: Path) -> dict[str, Any]:
    told = json.loads((run / SUMMARY).read_bytes())
    return {name: told[name] for name in ("done", "calls", "prompt_tokens", "completion_tokens", "cost_usd", "mean_em")}


def trained(folder: Path) -> dict[str, Any]:
    """Mean log-probability of both sides in the first and the last step that was logged."""
    told = json.loads((folder / "metrics.json").read_bytes())
    return {when: [told[when][f"logps/{side}"] for side in ("chosen", "rejected")] for when in ("first", "last")}


# -- before the first seed ---------------------------------------------------------------------------------------


CAN_READ = 0.6
"""What the student that all others begin as answers of `dev` at least: one that answers less cannot copy some names,
and neither its habit nor preferences are to teach it that."""
GAP, ROOM, TAUGHT = 0.09, (0.3, 0.7), 0.05
"""Of a bed that is accepted: how much righter the labels of consensus are at least, what the student answers, and how
much more it answers at least after it has learned from pairs that are certainly right."""
CERTAIN = "certain"
SAID = ("accepted", "exploratory", "gap", "before", "taught", "labels")
BED_PAIRS, BED_DRAWS = 400, 16
TRIES = ((2e-5, 0.1), (5e-5, 0.1), (1e-4, 0.1))
SFT_TRIES = ((1e-4, 0.0), (3e-4, 0.0), (1e-3, 0.0))
"""Learning rate and beta: as many tries for each arm."""
TRIED = {"consensus": TRIES, "outcome": TRIES, "values": TRIES, "sft": SFT_TRIES}


def bed(work: Path, plan: ProofPlan, *, least: float = CAN_READ) -> dict[str, Any]:
    """How right the labels of both arms are, and how good the student is; of a seed that is not used again. least: of
    the EM of the base. Raises SystemExit for one that answers less, before anything is explored."""
    proof = Proof(plan, work, split="dev")
    proof.prepare()
    proof.evaluate(OF_BASE, BEFORE, BEFORE)
    base = em_of(proof.answers(OF_BASE, BEFORE))
    if base < least:
        raise SystemExit(
            f"the base answers {base:.1%} of dev, less than {least:.0%}: give it another seed, or more steps"
        )
    proof.label(PILOT)
    proof.served(PILOT, "labels checked", lambda server: proof.check_labels(PILOT, server))
    proof.made(PILOT, DEEP, f"{CERTAIN}-all", *NO_FILTERS)
    proof.phases.once(f"seed{PILOT} {CERTAIN} pairs chosen", lambda: proof.choose_certain(PILOT))
    proof.evaluate(PILOT, BEFORE, BEFORE)
    home, last = proof.of(PILOT), BEFORE
    if (home / "data" / f"{CERTAIN}-chosen" / CANDIDATES).stat().st_size:  # else there is nothing to be taught
        last = CERTAIN
        proof.made(PILOT, "", CERTAIN, *NO_FILTERS)
        proof.learn(PILOT, CERTAIN, CERTAIN, TRIES[-1])
        proof.evaluate(PILOT, CERTAIN, CERTAIN)
    labels = {arm: label_share(json.loads((home / f"labels-{arm}.json").read_bytes())) for arm in CHECKED}
    return verdict(labels, *(proof.answers(PILOT, name)["em"] for name in (BEFORE, last))) | {
        "base": base,
        "pairs": {arm: len(pairs_of(home / "data" / f"{arm}-all")) for arm in CHECKED},
        "runs": {split: explored(home / split) for split in plan.most_replies},
        "plan": asdict(plan),
        "seconds": proof.phases.took,
        "commit": commit(),
        "machine": machine(),
    }


def verdict(labels: Mapping[str, Mapping[str, Any]], em: str, certain: str) -> dict[str, Any]:
    """Whether a bed is accepted, and why; or fit for seeds that are called exploratory, as only the gap is too small.
    em, certain: 0 or 1 of each question, before and after certain pairs."""
    share = {arm: each["right"] / max(1, each["right"] + each["wrong"]) for arm, each in labels.items()}
    before, after = (each.count("1") / len(each) for each in (em, certain))
    gap, taught = share["consensus"] - share["outcome"], after - before
    teaches, is_wide = ROOM[0] <= before <= ROOM[1] and round(taught, 9) >= TAUGHT, round(gap, 9) >= GAP
    told = {"accepted": teaches and is_wide, "exploratory": teaches and not is_wide}
    return told | {"gap": gap, "before": before, "taught": taught, "labels": labels}


def tune(proof: Proof, results: Path, workers: ThreadPoolExecutor) -> dict[str, Any]:
    """The best try of each arm, by its mean EM on `dev` over seeds that are not used again; each of these ends with
    `tuning-N.json`."""
    files = {seed: results / f"tuning-{seed}.json" for seed in TUNING}
    left = [seed for seed, file in files.items() if not file.exists()]
    if left:
        proof.prepare()
    for seed, found in zip(left, workers.map(proof.em_of_tries, left), strict=True):
        write_json(files[seed], {"em": found, "commit": commit(), "machine": machine()})
    by_seed = [json.loads(file.read_bytes())["em"] for file in files.values()]
    means = {arm: [sum(each) / len(each) for each in zip(*(em[arm] for em in by_seed), strict=True)] for arm in TRIED}
    best = {arm: TRIED[arm][em.index(max(em))] for arm, em in means.items()}
    return {"tries": TRIED, "em": means, "rates": best | {"placebo": best["consensus"]}, "commit": commit()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="where all goes [runs/proof; with --quick runs/proof-quick]")
    parser.add_argument("--results", type=Path, help="folder of figures [benchmarks/proof; with --quick in --work]")
    parser.add_argument("--bed", action="store_true", help="whether the bed is accepted")
    parser.add_argument("--tune", action="store_true", help="choose the rates")
    parser.add_argument("--seeds", default="0-11", help="first and last seed [%(default)s]")
    parser.add_argument("--report", action="store_true", help="only the table of the seeds that are done")
    parser.add_argument("--quick", action="store_true", help="a few questions of seed 100: that the path holds")
    parser.add_argument("--workers", type=int, default=2, help="students at work at a time, a core each [%(default)s]")
    parser.add_argument("--append", type=Path, help="add the report to this file")
    asked = parser.parse_args()
    seeds = [PILOT] if asked.quick else seeds_of(asked.seeds)
    work = (asked.work or ROOT / "runs" / ("proof-quick" if asked.quick else "proof")).resolve()
    results = (asked.results or (work / "results" if asked.quick else RESULTS)).resolve()
    rates = rates_of(results, chosen_now=asked.quick or asked.bed or asked.tune or asked.report)
    plan = replace(ProofPlan().quick() if asked.quick else ProofPlan(), rates={arm: rates[arm] for arm in ARMS})
    if not asked.report:
        tuned = not (asked.bed or asked.tune)
        plans = [each["plan"] for each in read_seeds(results)] + [asdict(plan)]
        if len({said_of(each, tuned=tuned) for each in plans}) > 1:
            raise SystemExit(f"{results} has figures of another plan; give other --results")
        same_plan(work, plan, tuned=tuned)
        results.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(asked.workers) as workers:
        if asked.bed:
            checked = plan if asked.quick else replace(plan, revalued=BED_PAIRS, draws=BED_DRAWS)
            found = bed(work, checked, least=0.0 if asked.quick else CAN_READ)
            write_json(results / "bed.json", found)
            print(json.dumps({name: found[name] for name in (*SAID, "pairs")}, indent=1))
            raise SystemExit(0 if found["accepted"] or found["exploratory"] else 1)
        if asked.tune:
            write_json(results / RATES, tune(Proof(plan, work, split="dev"), results, workers))
            return
        if not asked.report:
            left = [each for each in seeds if not (results / f"seed-{each}.json").exists()]
            told = {"arms": QUICK_ARMS if asked.quick else ARMS, "at_once": max(1, asked.workers // max(1, len(left)))}
            proof = Proof(plan, work, **told)
            if left:
                proof.prepare()
            list(workers.map(lambda seed: proof.run_seed(seed, results), left))
    done = read_seeds(results)
    if not done:
        raise SystemExit(f"{results} has no figures of a seed yet")
    publish(report(done, gap_of_bed(results, done[0]["plan"])), asked.append)


def rates_of(results: Path, *, chosen_now: bool) -> dict[str, tuple[float, float]]:
    """Those that the tuning has chosen. chosen_now: none are needed yet. Raises SystemExit where they are not there."""
    file = results / RATES
    if chosen_now:
        return QUICK_RATES
    if not file.exists():
        raise SystemExit(f"{file} is not there: choose the rates first, by --tune")
    return {arm: (each[0], each[1]) for arm, each in json.loads(file.read_bytes())["rates"].items()}


def seeds_of(said: str) -> list[int]:
    """Of `first-last`. Raises SystemExit for those that the plan was made with."""
    first, _, last = said.partition("-")
    seeds = [*range(int(first), int(last or first) + 1)]
    if reused := {PILOT, *TUNING}.intersection(seeds):
        raise SystemExit(f"seed {min(reused)} was seen before the plan; give others")
    return seeds


def said_of(plan: Mapping[str, Any], *, tuned: bool) -> str:
    return json.dumps({name: each for name, each in plan.items() if tuned or name != "rates"}, sort_keys=True)


def same_plan(work: Path, plan: ProofPlan, *, tuned: bool) -> None:
    """Raises SystemExit for a folder of another plan. tuned: whether rates are of it already."""
    parts = {"plan.json": asdict(replace(plan, rates={}))} | ({"plan-rates.json": plan.rates} if tuned else {})
    told = {work / name: json.dumps(part, indent=1) for name, part in parts.items()}
    if any(file.exists() and file.read_text("utf-8") != text for file, text in told.items()):
        raise SystemExit(f"{work} holds an experiment of another plan; give another --work")
    work.mkdir(parents=True, exist_ok=True)
    for file, text in told.items():
        file.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
