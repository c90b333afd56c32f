"""What critics are good for, where every value is known: in the world with lucky answers.

    python benchmarks/critics.py --append benchmarks/RESULTS.md     all of it; a phase that is done is not repeated
    python benchmarks/critics.py --quick        a few questions: that the path holds, no figures

The policy is `gold_teacher`, which guesses early and errs, and whose steps have exactly known values (the oracle). A
Qwen2 of some 0.6 million parameters is warmed up by SFT on right paths, and becomes a critic in several ways, from the
same weights and the same trees:

- values, judge, consensus: pairs labelled by the values of the search (confidence .8 or more), by a judge that knows
  the expected outcome of a step up to an error of .15 and sees no gold answers, or by both (the judge's, where the
  values prefer the same step).
- outcome: as many pairs labelled by the outcome of one trajectory: the outcome model; `outcome-all` draws on all.
- quarter: those of `consensus` of a quarter of the questions. flip-30, flip-50: its pairs with so many percent of the
  labels exchanged.
- folds: two of `values`, each without half of the questions.

Measured on held-out questions: how they rank steps (`evaluate-critic`, with the oracle's values as the truth), what
the policy answers with their help (`evaluate --best-of`), which right answers they keep to fine-tune on (`pairs
--format sft --critic`), and whether they confirm labels (`pairs --consensus --critic`). Rewards are not discounted
(alpha 1), as the oracle's values are not.
Decides the experiment; `critics_report` decides what its tables say.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

from critics_report import (
    answer_figures,
    critic_figures,
    label_figures,
    read_json,
    refined_figures,
    report,
)
from gold_teacher import GoldQuestion, GoldTeacher, Skill, World, open_world
from loop import CONFIGS, NO_FILTERS, PROMPTS, drawn, lines_of, rows_of, write_only
from lucky_world import Size, write_world
from phases import Phases
from reporting import ROOT, publish

import reasonrag
from preference import RolloutRecord
from preference.candidate_records import PathStep
from preference.export.formats import PAIRS_FILE
from preference.export.private_files import atomic_replacement
from preference.records import ActionType, read_rollouts
from reasonrag.data.questions import open_questions
from reasonrag.errors import ModelError
from reasonrag.files import CONFIG, ROLLOUTS
from reasonrag.llm.chat import ChatRequest, Completion
from reasonrag.llm.extraction.parsed_prompt import parse_prompt
from reasonrag.llm.offline import as_completions
from reasonrag.processes.children import find_python

EXACT = 1e6
"""Observations of a value that is known exactly."""
CONFIDENCE = 0.8
"""Of the pairs that critics are trained on, at least."""
SAID = re.compile(r"<(query|evidence|answer)>(.*?)</\1>", re.DOTALL)


SKILL = Skill("guesses", good=0.6, right=0.9, early=0.15)
OTHER_SKILL = Skill("poorer", good=0.4, right=0.8, early=0.3)


@dataclass(frozen=True)
class Plan:
    """All numbers of the experiment; those of training are in critics.yaml."""

    size: Size = field(default_factory=Size)
    questions: dict[str, int] = field(
        default_factory=lambda: {"warmup": 1500, "explore": 900, "dev": 300, "heldout": 500}
    )
    skill: Skill = SKILL
    other_skill: Skill = OTHER_SKILL
    explored: int = 120
    """Held-out questions that are explored, and of which pairs are valued by fresh continuations."""
    scored: int = 60
    """Of them, those whose steps critics score."""
    answered: int = 200
    """Held-out questions that are answered."""
    witnessed: int = 150
    """Questions of `explore` whose pairs cross-fitted critics confirm."""
    other_world: int = 100
    max_steps: int = 12
    """Four searches, each with its reading, an answer, and room for one error."""
    top_k: int = 2
    calls: int = 128
    warmup_epochs: float = 4.0
    draws: tuple[int, ...] = (2, 4, 8)

    def quick(self) -> Plan:
        """That everything runs: no figure of it means anything."""
        return replace(
            self,
            size=Size(towns=30, people=60, works=80, organisations=20),
            questions={"warmup": 60, "explore": 40, "dev": 12, "heldout": 20},
            explored=12,
            scored=12,
            answered=20,
            witnessed=20,
            other_world=12,
            calls=64,
            warmup_epochs=2.0,
            draws=(4,),
        )


@dataclass
class Oracle:
    """A critic that knows: its score of a step is the step's true value; of a step without its question, a half."""

    questions: Mapping[str, GoldQuestion]
    """By their text."""
    name: str = "oracle"

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        *state, step = request.messages
        said = SAID.search(step.content)
        if said is None:
            raise ModelError(f"the oracle cannot read the step {step.content[:80]!r}", cause="unreadable")
        known = self.questions.get(parse_prompt(state).question)
        if known is None:
            return as_completions(request, ["0.5"])
        kind: ActionType = said[1]  # type: ignore[assignment]
        taken = PathStep(layer=0, action_type=kind, prompt=state, response=step.content, content=said[2].strip())
        return as_completions(request, [repr(known.worth(taken))])

    async def check(self) -> None:
        """It is always there."""


@dataclass
class Experiment:
    """One run of it in `work`."""

    plan: Plan
    work: Path

    def __post_init__(self) -> None:
        # One thread for each process: two wait for each other longer than they work.
        self.phases = Phases(self.work, {"OMP_NUM_THREADS": "1"})
        self.world_of = cache(lambda seed: open_world(self.world(seed), self.work / "indexes"))
        self.known = cache(self._known)

    # -- what is known -------------------------------------------------------------------------------------------

    def world(self, seed: int = 0) -> Path:
        return self.work / f"world{seed}"

    def _known(self, split: str, skill: Skill, seed: int = 0) -> dict[str, GoldQuestion]:
        """All questions of a split, by id, with undiscounted values."""
        world: World = self.world_of(seed)
        source = open_questions(self.world(seed) / f"{split}.jsonl", dataset="lucky", split=split)
        return {
            each.id: GoldQuestion(each, world, skill, max_steps=self.plan.max_steps, alpha=1.0, top_k=self.plan.top_k)
            for each in source.read(None)
        }

    def asked(self, split: str, seed: int = 0) -> dict[str, Any]:
        """Settings of a call that has the agent answer."""
        return {
            "questions": self.world(seed) / f"{split}.jsonl",
            "corpus": self.world(seed) / "corpus.jsonl",
            "index_home": self.work / "indexes",
            "prompts": PROMPTS,
            "top_k": self.plan.top_k,
            "max_steps": self.plan.max_steps,
            "model": "gold teacher",
            "concurrency": 64,
        }

    # -- phases --------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """The worlds, the trees and the weights that all critics begin with."""
        plan = self.plan
        self.phases.once("world", lambda: write_world(self.world(), plan.size, plan.questions, seed=0))
        other = {"heldout": plan.other_world}
        self.phases.once("other world", lambda: write_world(self.world(1), plan.size, other, seed=1))
        perfect = Skill("perfect", good=1.0, right=1.0)
        self.explore("warmup", "warmup", skill=perfect, set={"search.max_calls": 24})  # for short paths
        self.phases.once("warmup pairs", partial(self.pairs, "warmup", "warmup", format=["sft"]))
        self.phases.once("words", self.write_words)
        self.explore("explore", "explore")
        self.explore("dev", "dev")
        self.explore("heldout", "heldout", limit=plan.explored)
        self.explore("other policy", "heldout", skill=plan.other_skill, limit=plan.explored)
        self.explore("other world", "heldout", seed=1)
        for name, skill, seed in (
            ("heldout", plan.skill, 0),
            ("other policy", plan.other_skill, 0),
            ("other world", plan.skill, 1),
        ):
            known = self.known("heldout", skill, seed)
            self.phases.once(
                f"{name} oracle", partial(with_true_values, self.run(name), self.run(f"{name} oracle"), known)
            )
        words = [str(self.work / "words.txt"), *map(str, sorted(PROMPTS.glob("*.txt")))]
        blank, student = self.work / "blank", self.work / "student"
        self.phases.command(
            "blank", str(find_python()), str(Path(__file__).with_name("loop_student.py")), str(blank), "--texts", *words
        )
        self.phases.reasonrag(
            "student",
            *("train", str(CONFIGS / "sft.yaml"), "--data", str(self.work / "data" / "warmup")),
            *("--prompts", str(PROMPTS), "--out", str(student), "--set", f"model_name_or_path={blank}"),
            *("--set", f"num_train_epochs={plan.warmup_epochs}"),
        )

    def run(self, name: str) -> Path:
        return self.work / "runs" / name.replace(" ", "-")

    def explore(self, name: str, split: str, *, skill: Skill | None = None, seed: int = 0, **flags: Any) -> None:
        """`generate`."""
        known = self.known(split, skill or self.plan.skill, seed)
        settings = self.asked(split, seed) | {
            "outcome": "f1",
            "set": {"search.alpha": 1.0, "search.max_calls": self.plan.calls},
        }
        run = partial(
            reasonrag.generate, chat_model=GoldTeacher(known.values()), run=self.run(name), abort_degenerate=0
        )
        self.phases.once(f"{name} explored", lambda: run(**settings | flags))

    def pairs(self, run: str, name: str, **flags: Any) -> None:
        reasonrag.pairs(self.run(run), out=self.work / "data" / name, **{"validation": 0} | flags)

    def write_words(self) -> None:
        """Everything that a prompt or a reply can be made of, in both worlds, for the vocabulary."""
        texts = ["system user assistant", "found no tag ; expected or nothing stands inside", "yes no None"]
        for seed, splits in ((0, list(self.plan.questions)), (1, ["heldout"])):
            texts += [json.loads(line)["contents"] for line in lines_of(self.world(seed) / "corpus.jsonl")]
            for split in splits:
                texts += [json.loads(line)["question"] for line in lines_of(self.world(seed) / f"{split}.jsonl")]
        for row in rows_of(self.work / "data" / "warmup" / "sft.json"):
            texts += [row["instruction"], row["input"], row["output"]]
        texts += [
            option.reply
            for each in self.known("dev", self.plan.skill).values()
            for option in each.options(each.start())
        ]
        (self.work / "words.txt").write_text("\n".join(dict.fromkeys(texts)), "utf-8")

    # -- critics -------------------------------------------------------------------------------------------------

    def critic(self, name: str) -> Path:
        return self.work / "critics" / name

    def write_arms(self) -> None:
        """The data sets that critics are trained on."""
        self.phases.once("labelled", partial(self.pairs, "explore", "labelled", min_confidence=CONFIDENCE))
        self.phases.once("outcomes labelled", partial(self.pairs, "explore", "outcomes", label="outcome"))
        known = self.known("explore", self.plan.skill)
        judging = {"label": "judge", "model": "gold teacher", "chat_model": GoldTeacher(known.values()), "yes": True}
        self.phases.once("judged", partial(self.pairs, "explore", "judged", concurrency=64, **judging))
        agreed = {"consensus": True, "min_confidence": 0.5}
        self.phases.once("agreed", partial(self.pairs, "explore", "agreed", concurrency=64, **judging, **agreed))
        self.phases.once("arms", self._write_arms)

    def _write_arms(self) -> None:
        data = self.work / "data"
        sources = {"values": "labelled", "judge": "judged", "consensus": "agreed", "outcome": "outcomes"}
        rows = {name: rows_of(data / source / PAIRS_FILE) for name, source in sources.items()}
        count = min(map(len, rows.values()))
        chosen = {name: drawn((row["pair_id"] for row in found), count, seed=0) for name, found in rows.items()}
        for name, ids in chosen.items():
            self._write_arm(data / sources[name], ids, name)
        few = set(sorted({row["question_id"] for row in rows[MAIN]})[::4])
        kept = {row["pair_id"] for row in rows[MAIN] if row["question_id"] in few} & chosen[MAIN]
        self._write_arm(data / sources[MAIN], kept, "quarter")
        for share in FLIPS:
            self.unfiltered_pairs(f"{MAIN}-chosen", f"flip-{share}", flip=share / 100)

    def _write_arm(self, source: Path, pair_ids: Collection[str], name: str) -> None:
        write_only(source, pair_ids, self.work / "data" / f"{name}-chosen")
        self.unfiltered_pairs(f"{name}-chosen", name)

    def unfiltered_pairs(self, source: str, name: str, **flags: Any) -> None:
        reasonrag.pairs(self.work / "data" / source, out=self.work / "data" / name, **unfiltered(), **flags)

    def train(self, name: str, data: str, *flags: str) -> None:
        self.phases.reasonrag(
            f"critic {name}",
            *("train-critic", str(Path(__file__).with_suffix(".yaml")), "--data", str(self.work / "data" / data)),
            *("--prompts", str(PROMPTS), "--out", str(self.critic(name)), *flags),
            *("--set", f"model_name_or_path={self.work / 'student'}"),
        )

    def train_all(self, workers: ThreadPoolExecutor) -> None:
        done = [workers.submit(self.train, "folds", "values", "--folds", "2")]
        data = {"outcome-all": "outcomes"}
        done += [workers.submit(self.train, name, data.get(name, name)) for name in ARMS]
        for each in done:
            each.result()

    # -- measured ------------------------------------------------------------------------------------------------

    def judge_critics(self, workers: ThreadPoolExecutor) -> None:
        """`evaluate-critic`: transfer first, as the last evaluation is the verdict that a critic keeps."""
        self.phases.once("fresh continuations", self._revalue)
        for run in ("other policy", "other world"):
            self._judge(MAIN, f"transfer-{run.replace(' ', '-')}", run=f"{run} oracle")
        self._judge(MAIN, "fresh", run="heldout")
        list(workers.map(self._judge, ARMS))

    def _judge(self, name: str, out: str = "evaluation", run: str = "heldout oracle") -> None:
        compared = name in ("values", "judge", MAIN)
        against = str(self.critic("outcome")) if compared else None
        runs = self.critic(name), self.run(run)
        judged = partial(reasonrag.evaluate_critic, *runs, out=self.critic(name) / out, limit=self.plan.scored)
        self.phases.once(f"critic {name} {out}", lambda: judged(**{"against": against} if against else {}))

    def _revalue(self) -> None:
        known = self.known("heldout", self.plan.skill)
        count = 4 * self.plan.explored
        reasonrag.calibrate(
            self.run("heldout"), chat_model=GoldTeacher(known.values()), revalue=count, min_confidence=0.0, yes=True
        )

    def answer(self) -> None:
        """`evaluate` of the policy: alone, with critics, and by majority."""
        for name, (critic, flags) in self.ways.items():
            self.phases.once(f"answered {name}", partial(self._answer, name, critic, flags))
        self.phases.once("answers compared", self._compare)

    @property
    def ways(self) -> dict[str, tuple[str | None, dict[str, Any]]]:
        """How the policy answers: its critic, and flags of `evaluate`."""
        alone = {"temperature": 1.0}
        found: dict[str, tuple[str | None, dict[str, Any]]] = {"alone": (None, alone)}
        found |= {f"{MAIN} best-of-{n}": (MAIN, {"best_of": n}) for n in self.plan.draws}
        found |= {f"{name} best-of-4": (name, {"best_of": 4}) for name in ("values", "outcome", "flip-50", "oracle")}
        return found | {f"vote {n}": (None, {"vote": n, **alone}) for n in self.plan.draws}

    def _answer(self, name: str, critic: str | None, flags: Mapping[str, Any]) -> None:
        known = self.known("heldout", self.plan.skill)
        if critic:
            folder = self.critic(MAIN if critic == "oracle" else critic)
            flags = {**flags, "critic": str(folder), "allow_critic": True}
        if critic == "oracle":
            flags = {**flags, "critic_model": Oracle({each.question.question: each for each in known.values()})}
        settings = self.asked("heldout") | {"split": "heldout", "limit": self.plan.answered}
        settings["run"] = self.evaluation(name)
        reasonrag.evaluate(chat_model=GoldTeacher(known.values()), **settings, **flags)

    def evaluation(self, name: str) -> Path:
        return self.work / "evals" / name.replace(" ", "-")

    def _compare(self) -> None:
        for reference, other in self.comparisons:
            runs = [self.evaluation(reference), self.evaluation(other)]
            reasonrag.compare(runs, out=self.comparison(reference, other))

    def comparison(self, reference: str, other: str) -> Path:
        return self.work / "compared" / f"{reference}-{other}".replace(" ", "-")

    @property
    def comparisons(self) -> list[tuple[str, str]]:
        """Which evaluations are held against each other."""
        found = [(reference, f"{MAIN} best-of-{n}") for n in self.plan.draws for reference in ("alone", f"vote {n}")]
        return found + [(f"{name} best-of-4", f"{MAIN} best-of-4") for name in ("values", "outcome", "flip-50")]

    def witness(self) -> None:
        """`pairs --consensus --critic`, and `--format sft --critic`."""
        self.phases.once("part", self._write_part)
        for least in WITNESSED:
            self.phases.once(f"alone {least}", partial(self.pairs, "part", f"alone-{least}", min_confidence=least))
            folds = [str(self.critic("folds") / f"fold-{number}") for number in (1, 2)]
            agreed = {"consensus": True, "critic": folds, "allow_critic": True}
            self.phases.once(
                f"agreed {least}", partial(self.pairs, "part", f"agreed-{least}", min_confidence=least, **agreed)
            )
        for name in REFINING:
            flags = {"format": ["sft"], "critic": [str(self.critic(name))], "allow_critic": True}
            self.phases.once(f"refined {name}", partial(self.pairs, "dev", f"refined-{name}", **flags))

    def _write_part(self) -> None:
        """The first questions of `explore`, as a run."""
        run, part = self.run("explore"), self.run("part")
        part.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run / CONFIG, part / CONFIG)
        with (run / ROLLOUTS).open("rb") as whole, atomic_replacement(part / ROLLOUTS) as file:
            file.writelines(islice(whole, self.plan.witnessed))


FLIPS = (30, 50)
"""Percent of the labels that are exchanged."""
MAIN = "consensus"
"""The critic that is used; chosen before any critic of the full plan was measured."""
ARMS = (
    "values",
    "judge",
    MAIN,
    "outcome",
    "outcome-all",
    "quarter",
    *(f"flip-{share}" for share in FLIPS),
)
REFINING = (MAIN, "values", "outcome")
WITNESSED = (0.5, 0.8)
"""Least confidences of pairs that a second witness is asked about."""


def unfiltered() -> dict[str, Any]:
    """`NO_FILTERS` of the command line as settings."""
    flags, found = iter(NO_FILTERS), dict[str, Any]()
    for flag in flags:
        name = flag.removeprefix("--").replace("-", "_")
        found[name] = True if name.startswith("allow") else float(next(flags))
    return found


def with_true_values(run: Path, out: Path, known: Mapping[str, GoldQuestion]) -> None:
    """A copy of a run whose steps have their true values in place of those of its continuations."""
    out.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(run / CONFIG, out / CONFIG)
    with atomic_replacement(out / ROLLOUTS) as file:
        for tree in read_rollouts(run / ROLLOUTS):
            file.write(_with_true_values(tree, known[tree.question_id]).to_line())


def _with_true_values(tree: RolloutRecord, known: GoldQuestion) -> RolloutRecord:
    root, *steps = tree.nodes
    values = [known.value(known.start()), *(known.worth(each) if each.action_type else None for each in steps)]
    nodes = [
        each.model_copy(update={"expected_outcome": value, "observations": EXACT if value is not None else 0.0})
        for each, value in zip((root, *steps), values, strict=True)
    ]
    return tree.model_copy(update={"nodes": nodes})


def results(experiment: Experiment) -> dict[str, Any]:
    """Everything that the report says; what `critics.json` holds."""
    plan, work, critics = experiment.plan, experiment.work, experiment.work / "critics"
    explored, dev, heldout = (experiment.known(split, plan.skill) for split in ("explore", "dev", "heldout"))
    data, main_critic = work / "data", experiment.critic(MAIN)
    return {
        "plan": asdict(plan) | {"confidence": CONFIDENCE},
        "value": sum(each.value(each.start()) for each in heldout.values()) / len(heldout),
        "critics": {name: critic_figures(critics / name) for name in ARMS},
        "main": MAIN,
        "labels": {name: label_figures(data / name, explored) for name in ("values", "judge", MAIN, "outcome")},
        "transfer": {
            "the same, pairs of `calibrate --revalue`, where lucky answers count as right": critic_figures(
                main_critic, "fresh"
            ),
            f"the policy `{plan.other_skill.name}`": critic_figures(main_critic, "transfer-other-policy"),
            "another world, most of whose names are new": critic_figures(main_critic, "transfer-other-world"),
        },
        "answers": {name: answer_figures(experiment.evaluation(name), heldout) for name in experiment.ways},
        "compared": {
            f"{reference} -> {other}": read_json(experiment.comparison(reference, other) / "compare.json")["pairs"][0][
                "metrics"
            ]["em"]
            for reference, other in experiment.comparisons
        },
        "witness": {
            f"{kind}, {least:g}": label_figures(data / f"{kind}-{least}", explored)
            for least in WITNESSED
            for kind in ("alone", "agreed")
        }
        | {
            f"alone, the surest as many as agreed, {least:g}": label_figures(
                data / f"alone-{least}", explored, surest=len(rows_of(data / f"agreed-{least}" / PAIRS_FILE))
            )
            for least in WITNESSED
        },
        "refined": {name: refined_figures(data / f"refined-{name}", dev) for name in REFINING},
        "seconds": experiment.phases.took,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="where everything goes [runs/critics; with --quick critics-quick]")
    parser.add_argument("--quick", action="store_true", help="a few questions: that the path holds")
    parser.add_argument("--workers", type=int, default=2, help="trainings at a time, a core each [%(default)s]")
    parser.add_argument("--append", type=Path, help="add the report to this file")
    asked = parser.parse_args()
    plan = Plan().quick() if asked.quick else Plan()
    work = (asked.work or ROOT / "runs" / ("critics-quick" if asked.quick else "critics")).resolve()
    work.mkdir(parents=True, exist_ok=True)
    told = json.dumps(asdict(plan), indent=1)
    if (work / "plan.json").exists() and (work / "plan.json").read_text("utf-8") != told:
        raise SystemExit(f"{work} holds an experiment with other numbers; give another --work")
    (work / "plan.json").write_text(told, "utf-8")
    experiment = Experiment(plan, work)
    experiment.prepare()
    experiment.write_arms()
    with ThreadPoolExecutor(asked.workers) as workers:
        experiment.train_all(workers)
        experiment.judge_critics(workers)
    experiment.answer()
    experiment.witness()
    found = results(experiment)
    (work / "critics.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    publish(report(found), asked.append)


if __name__ == "__main__":
    main()
