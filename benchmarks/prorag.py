"""ProRAG's four stages on a laptop (arXiv 2601.21912): a tiny student is warmed up, searches, gets a critic, learns the
steps of its own right attempts that the critic likes, and then from rounds of attempts by outcome and critic.

    make prorag-smoke                       all of it; what is done is not repeated
    python benchmarks/prorag.py --quick     a few questions: that the path holds, no figures

Every stage is a command of reasonrag, printed as it runs; docs/how-to/prorag.md has each beside the published number.
The world is that of the loop, whose questions say their steps, and so does the student of 0.6 million parameters with
random weights. As every fact is known, an oracle says which steps are right. Decides the sizes and the tables.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from agents_table import AgentLoop, TablePlan
from loop import BEFORE, lines_of, rows_of
from loop_report import METRICS, figures, shown
from loop_world import Size, write_world
from reporting import ROOT, interval, publish, table

from preference.answer_scores import normalize_answer
from preference.best_path import Refinement
from preference.candidate_records import QuestionRecord, question_key, read_lines
from preference.export.summary import QUESTIONS, held_out_keys
from preference.records import RolloutNode, read_rollouts
from preference.statistics import COMPARISON_LEVEL
from reasonrag.agent.protocols.prorag import TYPES
from reasonrag.evaluation.predictions import read_predictions
from reasonrag.rendering import percent
from reasonrag.training.policy.rounds import PAGE

SHARES = {"refined": "0.33", "unfiltered": "1"}
"""Of the steps of right attempts that a student learns in stage 3, by its name."""
STAGES = {
    BEFORE: "1 warm-up",
    "best": "2 best of 4 steps, by the critic",
    "refined": "3 refinement",
    "unfiltered": "3 without the critic",
    "reinforced": "4 reinforcement",
}
"""By the name of the evaluation."""


@dataclass(frozen=True)
class StagesPlan(TablePlan):
    """All numbers of the stages; those of training are the loop's."""

    size: Size = field(default_factory=lambda: Size(towns=10, people=24, works=100, organisations=16))
    questions: dict[str, int] = field(
        default_factory=lambda: {"warmup": 300, "search": 150, "refine": 150, "reinforce": 100, "heldout": 200}
    )
    warmup_rows: int = 10_500
    simulations: int = 32
    group: int = 8
    """Attempts at a question of the refinement, and of a round."""
    rounds: int = 3
    beside: frozenset[str] = frozenset({"best", "unfiltered"})
    """Of `STAGES`, those that no other one builds on."""

    def quick(self) -> StagesPlan:
        """That everything runs: no figure of it means anything."""
        few = {"warmup": 60, "search": 20, "refine": 16, "reinforce": 8, "heldout": 20}
        return replace(
            self,
            size=Size(towns=5, people=8, works=12, organisations=2),
            questions=few,
            warmup_rows=4_500,
            simulations=6,
            group=8,
            critic_steps=5,
            beside=frozenset(),
        )


@dataclass
class Stages(AgentLoop):
    """One student's way through the stages, all in `work`."""

    plan: StagesPlan
    agent: str = "prorag"

    def run_seed(self, seed: int) -> None:
        self.warm_up(seed)
        self.evaluate(seed, BEFORE, BEFORE)
        self.search(seed)
        self.refine(seed)
        self.reinforce(seed)

    def prepare(self) -> None:
        """Stage 1, the data: questions with decompositions, and the rows that a teacher makes of them."""
        plan = self.plan
        self.prompts = self.work / "prompts"
        self.phases.once("prompts", self.write_prompts)
        self.phases.once("world", lambda: write_world(self.world, plan.size, plan.questions, seed=0))
        asked = *self.asked("warmup"), "--model", "offline", "--validation", "0"
        self.phases.reasonrag("warm-up", "warm-up", *asked, "--out", str(self.work / "warmup"))
        self.phases.once("words", self.write_words)
        rows = len(rows_of(self.work / "warmup" / "sft.json"))
        self.plan = replace(plan, warmup_epochs=round(plan.warmup_rows / rows, 2))

    def search(self, seed: int) -> None:
        """Stage 2: trees of the student, the pairs that a judge picks in them, a critic of these."""
        home = self.of(seed)
        self.explore(seed, "search", "--recipe", "prorag", "--set", f"search.simulations={self.plan.simulations}")
        judged = "--label", "judge", "--model", "offline", "--validation", "0", "--yes"
        out = "--out", str(home / "data" / "process")
        self.phases.reasonrag(f"seed{seed} judged", "pairs", str(home / "search"), *judged, *out)
        self.train_critic(seed)
        if "best" in self.stages:
            best = "--best-of", "4", "--critic", str(home / "critic"), "--temperature", str(self.plan.temperature)
            self.evaluate(seed, "best", BEFORE, *best)

    def refine(self, seed: int) -> None:
        """Stage 3: plain attempts at other questions, of which the critic keeps steps; the student learns these."""
        home = self.of(seed)
        chains = "--recipe", "chains", "--set", f"search.group={self.plan.group}", "--temperature", "0.8"
        self.explore(seed, "refine", *chains)
        further = {"learning_rate": self.plan.sft_rate, "num_train_epochs": 1.0, "train_on_prompt": False}
        for name in (each for each in SHARES if each in self.stages):
            critic = "--critic", str(home / "critic"), "--refine", "steps", "--critic-share", SHARES[name]
            data = "--format", "sft", "--validation", "0", "--hold-out", "0.1", "--out", str(home / "data" / name)
            self.phases.reasonrag(f"seed{seed} {name} data", "pairs", str(home / "refine"), *critic, *data)
            self.train(seed, name, "sft", home / BEFORE, home / "data" / name, **further)
            self.evaluate(seed, name, name)

    def reinforce(self, seed: int) -> None:
        """Stage 4: rounds of plain attempts at further questions, whose outcomes and scored steps it learns from."""
        home = self.of(seed)
        self.phases.reasonrag(
            f"seed{seed} rounds",
            *("rounds", "policy-smoke-cpu", *self.asked("reinforce"), "--model", str(home / "refined")),
            *("--critic", str(home / "critic"), "--set", "train.advantage=prorag", "--group", str(self.plan.group)),
            *("--set", "train.learning_rate=3e-5", "--set", "train.per_device_train_batch_size=64"),
            *("--set", "train.max_length=512", "--rounds", str(self.plan.rounds), "--max-reply-tokens", "64"),
            *("--concurrency", "64", "--seed", str(seed), "--run", str(home / "rounds")),
        )
        self.evaluate(seed, "reinforced", "rounds/model")

    @property
    def stages(self) -> dict[str, str]:
        wanted = self.plan.beside | {BEFORE, "refined", "reinforced"}
        return {name: said for name, said in STAGES.items() if name in wanted}


# -- what came of it -----------------------------------------------------------------------------------------------


def right_steps(stages: Stages) -> dict[tuple[str, ...], bool]:
    """Whether a step of the attempts is right, by question, prompt and reply.

    A search is right if it finds a passage that the question needs and that was not found before, a report if it has
    the fact of its passage, an answer if it is a gold answer and evidence before it says so.
    """
    lines = map(json.loads, lines_of(stages.world / "refine.jsonl"))
    steps = {each["id"]: each["metadata"]["question_decomposition"] for each in lines}
    return {
        (tree.question_id, node.prompt[-1].content, node.response): _is_right(node, steps[tree.question_id])
        for tree in read_rollouts(stages.of(0) / "refine" / "rollouts.jsonl")
        for node in tree.nodes
        if node.prompt and node.response is not None
    }


def _is_right(node: RolloutNode, steps: list[dict[str, str]]) -> bool:
    if node.action_type == "query":
        return bool(node.gold)
    if node.action_type == "answer":
        return bool(node.em and node.in_evidence)
    said = normalize_answer(node.content or "")
    seen = {each.id for each in node.passages or ()}
    return any(each["support_id"] in seen and normalize_answer(each["answer"]) in said for each in steps)


def report(stages: Stages) -> Iterator[str]:
    plan = stages.plan
    yield "\n**ProRAG, four stages** (benchmarks/prorag.py)"
    yield (
        f"\n{plan.questions['heldout']} held-out questions, greedy replies but for stage 2. Warm-up: "
        f"{plan.questions['warmup']} questions, {plan.warmup_rows:,} rows read. Search: {plan.questions['search']} "
        f"questions, {plan.simulations} simulations. Critic: {plan.critic_steps} steps. Refinement: "
        f"{plan.questions['refine']} questions, {plan.group} attempts each. Reinforcement: {plan.rounds} rounds of "
        f"{plan.questions['reinforce']} questions x {plan.group}. One training of each. Intervals: "
        f"{percent(COMPARISON_LEVEL)}, of questions."
    )
    runs = {said: stages.evaluation(0, name) for name, said in stages.stages.items()}
    read = {said: figures([run]) for said, run in runs.items()}
    steps = {said: [each for one in read_predictions(run) for each in one.steps] for said, run in runs.items()}
    clean = {said: [each.parse_error is None and not each.repaired for each in of] for said, of in steps.items()}
    scores = {name: [shown(each[key], "mean", sign="") for each in read.values()] for name, key in METRICS.items()}
    readable = {"readable replies": [f"{sum(each) / max(1, len(each)):.1%}" for each in clean.values()]}
    unanswered = {"no answer": [f"{each['no_answer']:.1%}" for each in read.values()]}
    yield from table("Students by stage", {"stage": list(runs)} | scores | readable | unanswered)
    yield from table("Rows of the refinement", _refinement(stages))
    told = [line for line in lines_of(stages.of(0) / "rounds" / PAGE) if line.startswith("|")]
    yield "\n".join(["\nRounds of the reinforcement\n", *told])
    minutes = sum(stages.phases.took[name] for name in stages.phases.took if not name.endswith(" generate")) / 60
    yield f"\nMinutes of all phases: {minutes:.1f}."


def _refinement(stages: Stages) -> dict[str, list[str]]:
    """What each rule leaves of the right attempts' steps, and how many of those are right."""
    known = right_steps(stages)
    data = stages.of(0) / "data" / "refined"
    kept_back, every_question = held_out_keys(data), read_lines(data / QUESTIONS, QuestionRecord)
    questions = [each for each in every_question if question_key(each.question) not in kept_back]
    rules: dict[str, Refinement] = {
        "all steps of right attempts": Refinement(refine="steps", threshold=-math.inf),
        "the best third of them": Refinement.of_share(0.33, questions),
        "those of 0 or more, as published": Refinement(refine="steps", threshold=0.0),
        "best paths whose every step has 0 or more": Refinement(threshold=0.0),
    }
    kept = {
        rule: [(each.question_id, step) for each in questions for step in refined.steps_of(each)]
        for rule, refined in rules.items()
    }
    every = len(next(iter(kept.values())))
    right = [[known[one, step.prompt[-1].content, step.response] for one, step in of] for of in kept.values()]
    kinds = [Counter(step.action_type for _, step in of) for of in kept.values()]
    return {
        "rule": list(rules),
        "steps": [f"{len(of):,}" for of in kept.values()],
        "kept": [f"{len(of) / every:.1%}" for of in kept.values()],
        "of them right": [_with_interval(of) for of in right],
        "query/evidence/answer": ["/".join(f"{of[kind]:,}" for kind in TYPES.values()) for of in kinds],
    }


def _with_interval(right: list[bool]) -> str:
    if not right:
        return "-"
    low, high = interval(right, lambda drawn: sum(drawn) / len(drawn))
    return f"{sum(right) / len(right):.1%} ({low:.1%} to {high:.1%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "prorag", help="where all goes [%(default)s]")
    parser.add_argument("--quick", action="store_true", help="a few questions: that the path holds")
    parser.add_argument("--append", type=Path, help="add the report to this file")
    asked = parser.parse_args()
    plan = StagesPlan(seeds=1)
    stages = Stages(plan.quick() if asked.quick else plan, asked.work.resolve())
    stages.prepare()
    stages.run_seed(0)
    publish(report(stages), asked.append)


if __name__ == "__main__":
    main()
