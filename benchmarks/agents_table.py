"""The table of the agents, laid out as RAG-Gym's Table 2 (arXiv 2502.13957): each in the closed world of the loop.

    python benchmarks/agents_table.py --append benchmarks/RESULTS.md     all of it; a phase that is done is not repeated

For every agent and seed, a student of the loop with random weights is

- as it comes: warmed up by SFT on the best paths of the offline teacher, which speaks as this agent does, as a student
  that was never taught to speak answers nothing;
- SFT: trained further on the best paths of its own trees, on as many words as DPO reads;
- DPO: trained on the pairs of its own trees;
- by a critic: as it comes, with the best of four steps in every state (`evaluate --best-of 4`), as RAG-Gym does; the
  critic begins with the student's weights and learns from the pairs of DPO;
- by a vote: as it comes, with the answer that most of four attempts agree on (`evaluate --vote 4`).

All are asked the same questions and may search as often. A reader stays the offline teacher, as no data set teaches a
student to read. Decides the table and which cells mean nothing; world, student and training are the loop's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from loop import BEFORE, HERE, NO_FILTERS, PROMPTS, Loop, Plan, choose, pairs_of, rows_of
from loop_report import RANGE, figures, interval, shown
from loop_world import Size
from phases import say
from reporting import ROOT, publish, table

import reasonrag
from preference.statistics import COMPARISON_LEVEL
from reasonrag.agent.prompting import load_prompts
from reasonrag.agent.protocols.known import steps_of_a_search
from reasonrag.agent.settings import AGENTS, OURS
from reasonrag.evaluation.predictions import read_predictions
from reasonrag.llm.chat import ChatRequest, Completion
from reasonrag.llm.endpoint.endpoint import EndpointModel, Limits
from reasonrag.llm.offline import OfflineTeacher
from reasonrag.rendering import percent
from reasonrag.serving.local_server import served

CELLS = {BEFORE: "as it comes", "sft": "SFT", "dpo": "DPO", "best": "best of 4, by a critic", "vote": "by a vote"}
SPLITS = {"warmup": 300, "explore": 100, "dev": 80, "heldout": 120}
SEARCHES = 4
"""That every agent has steps for."""
NO_ANSWER, FEWEST = 0.5, 50  # share of questions, and pairs: beyond them a cell means nothing
JSON = {"think": 'Think: {"query": ""} or {"answer": ""}', "conclude": 'Conclude: {"answer": ""}'}
SHORT = {
    "react": JSON,
    "search-o1": JSON,
    "re2search": JSON | {"think": 'Think: {"answer": "the answer", "query": ""}'},
    "prorag": {"think": "Think: <subquery> or <answer>", "read": "Read: <subanswer>", "conclude": "Conclude: <answer>"},
    "tools": {"think": "Think: <tool_call> or <answer>", "conclude": "No search is left: <answer>"},
}
"""Prompts of a few words, by whose shape of a reply the offline teacher knows the turn; other agents have their own."""


@dataclass(frozen=True)
class TablePlan(Plan):
    """All numbers, of a smaller world than the loop's. They were chosen on `dev` (RESULTS.md says how)."""

    size: Size = field(default_factory=lambda: Size(towns=10, people=24, works=60, organisations=16))
    questions: dict[str, int] = field(default_factory=lambda: SPLITS)
    teacher_temperature: float = 0.4
    teacher_calls: int = 16
    calls: int = 32
    warmup_rows: int = 12_000
    """That a student reads of what the teacher said, whatever number of steps its agent takes."""
    dpo_rate: float = 1.0e-4
    critic_steps: int = 60


@dataclass(frozen=True)
class Student:
    """A served student, for whom the offline teacher reads; both work in the event loop of the server."""

    model: EndpointModel
    reads: str | None
    loop: asyncio.AbstractEventLoop

    @property
    def name(self) -> str:
        return self.model.name

    async def complete(self, request: ChatRequest) -> Sequence[Completion]:
        asked = OfflineTeacher() if request.messages[0].content == self.reads else self.model
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked.complete(request), self.loop))

    async def check(self) -> None: ...  # it is served already, and others ask it, too

    close = check


@dataclass
class AgentLoop(Loop):
    """The students of one agent."""

    plan: TablePlan
    agent: str = OURS

    def prepare(self) -> None:
        self.prompts = self.work / "prompts"
        self.plan = replace(self.plan, max_steps=SEARCHES * steps_of_a_search(self.agent) + 1)
        self.phases.once("prompts", self.write_prompts)
        super().prepare()
        self.phases.once("conversations", self.join_conversations)
        taught = sum(1 + len(row.get("history", ())) for row in rows_of(self.work / "warmup" / "sft.json"))
        self.plan = replace(self.plan, warmup_epochs=round(self.plan.warmup_rows / taught, 2))

    def write_prompts(self) -> None:
        """A layout that names the agent, its turns in a few words, and the loop's turns for repair and variation."""
        turns = {path.stem: path.read_text("utf-8") for path in PROMPTS.glob("*.txt")}
        if self.agent != OURS:
            turns = {name: turns[name] for name in ("repair", "vary")} | SHORT.get(self.agent, {})
        self.prompts.mkdir(parents=True, exist_ok=True)
        for name, text in turns.items():
            (self.prompts / f"{name}.txt").write_text(f"{text.strip()}\n", "utf-8")
        (self.prompts / "layout.json").write_text(json.dumps({"agent": self.agent}), "utf-8")

    def join_conversations(self) -> None:
        """A row for each path of `tools`, in which all its replies are learnt: a prompt holds those before, and
        LLaMA-Factory learns it only with the replies in it."""
        file = self.work / "warmup" / "sft.json"
        last = {row["question_id"]: row for row in rows_of(file)}
        if any("history" in row for row in last.values()):
            file.write_text(json.dumps(list(last.values())), "utf-8")

    def train(self, seed: int, name: str, *places: Any, **changes: Any) -> None:
        if self.agent == "tools" and name == BEFORE:  # a batch has as many replies as one of others
            changes |= {"per_device_train_batch_size": 4, "allow": ["changed_rows"]}
        super().train(seed, name, *places, **changes)

    def asked(self, split: str) -> tuple[str, ...]:
        return *super().asked(split), "--agent", self.agent

    def run_seed(self, seed: int) -> None:
        self.warm_up(seed)
        vote = partial(self.answer, seed, "vote", vote=4, temperature=self.plan.temperature)
        self.ask(seed, BEFORE, partial(self.answer, seed, BEFORE), vote, partial(self.explore_with, seed))
        self.write_pairs(seed)
        self.train_critic(seed)
        critic = {"best_of": 4, "critic": self.of(seed) / "critic", "temperature": self.plan.temperature}
        self.ask(seed, "best", partial(self.answer, seed, "best", **critic), student=BEFORE)
        self.prefer(seed, "dpo", "process")
        self.ask(seed, "dpo", partial(self.answer, seed, "dpo"))
        self.imitate(seed)
        self.ask(seed, "sft", partial(self.answer, seed, "sft"))

    def ask(self, seed: int, name: str, *works: Callable[[Student], object], student: str | None = None) -> None:
        """Serve a student while these are done."""

        async def asked() -> None:
            async with served(self.of(seed) / (student or name), say=say) as server:
                model = EndpointModel(server.name, Limits(concurrency=64, timeout=600), base_urls=[server.base_url])
                reads = load_prompts(self.prompts).texts.get("reader")
                for work in works:
                    await asyncio.to_thread(work, Student(model, reads, asyncio.get_running_loop()))
                await model.close()

        self.phases.once(f"seed{seed} {name} {self.split}", lambda: asyncio.run(asked()))

    def settings(self, split: str, seed: int) -> dict[str, Any]:
        flags = iter(self.asked(split))
        found: dict[str, Any] = {flag.removeprefix("--").replace("-", "_"): next(flags) for flag in flags}
        return found | {"max_reply_tokens": 64, "concurrency": 64, "seed": seed}

    def answer(self, seed: int, cell: str, student: Student, **flags: Any) -> None:
        flags |= self.settings(self.split, seed)
        reasonrag.evaluate(chat_model=student, split=self.split, run=self.evaluation(seed, cell), **flags)

    def explore_with(self, seed: int, student: Student) -> None:
        flags = {"set": {"search.max_calls": self.plan.calls}, "abort_degenerate": 0}
        settings = self.settings("explore", seed) | {"temperature": self.plan.temperature} | flags
        reasonrag.generate(chat_model=student, run=self.of(seed) / "explore", **settings)

    def write_pairs(self, seed: int) -> None:
        """Best paths, and the pairs of steps that the student took by itself."""
        run, data = self.of(seed) / "explore", self.of(seed) / "data"
        flags = str(run), "--out", str(data / "labelled"), "--format", "sft", "--validation", "0"
        self.phases.reasonrag(f"seed{seed} labelled", "pairs", *flags)
        self.phases.once(f"seed{seed} chosen", lambda: choose(run, {"process": data / "labelled"}, data, seed))
        flags = str(data / "process-chosen"), "--out", str(data / "process"), *NO_FILTERS
        self.phases.reasonrag(f"seed{seed} pairs", "pairs", *flags)

    def train_critic(self, seed: int) -> None:
        home = self.of(seed)
        changes = {"model_name_or_path": home / BEFORE, "max_steps": self.plan.critic_steps, "seed": seed}
        self.phases.reasonrag(
            f"seed{seed} critic",
            *("train-critic", str(HERE / "critics.yaml"), "--data", str(home / "data" / "process")),
            *("--prompts", str(self.prompts), "--out", str(home / "critic")),
            *(flag for key, value in changes.items() for flag in ("--set", f"{key}={value}")),
        )

    def row(self) -> dict[str, Any]:
        runs = {cell: [self.evaluation(seed, cell) for seed in self.seeds] for cell in CELLS}
        read = {cell: [[each.em or 0.0 for each in read_predictions(run)] for run in of] for cell, of in runs.items()}
        cells = {cell: figures(of) for cell, of in runs.items()}
        for cell, figure in cells.items():
            gains = np.array(read[cell]) - np.array(read[BEFORE])
            figure["gain"] = {"mean": float(gains.mean()), **dict(zip(("low", "high"), interval(gains), strict=True))}
        data = [self.of(seed) / "data" for seed in self.seeds]
        pairs = [len(pairs_of(each / "process")) for each in data]
        steps = [len(rows_of(each / "labelled" / "sft.json")) for each in data]
        return {"cells": cells, "pairs": pairs, "steps": steps, "seconds": self.phases.took}


def nothing(row: Mapping[str, Any], cell: str) -> str:
    """Why a cell means nothing; empty where it means something."""
    (low, high), before = RANGE, row["cells"][BEFORE]["em"]["by_seed"]
    if not all(low <= each <= high for each in before):
        return f"a student stood outside {low:.0%} to {high:.0%} EM as it came"
    if row["cells"][cell]["no_answer"] > NO_ANSWER:
        return f"more than {NO_ANSWER:.0%} of the questions had no answer"
    taught = {"dpo": "DPO", "best": "a critic"}.get(cell)
    return f"{taught} of fewer than {FEWEST} pairs" if taught and min(row["pairs"]) < FEWEST else ""


def report(rows: Mapping[str, Mapping[str, Any]], plan: TablePlan, split: str) -> Iterator[str]:
    yield "\n**The agents in the closed world** (benchmarks/agents_table.py)"
    yield (
        f"\n{plan.questions[split]} questions of `{split}`; students were taught on {plan.questions['warmup']} others "
        f"({plan.warmup_rows:,} rows) and explored {plan.questions['explore']} ({plan.calls} replies each at most, "
        f"temperature {plan.temperature:g}); {SEARCHES} searches a question at most. DPO {plan.dpo_epochs:g} passes at "
        f"{plan.dpo_rate:g}, beta {plan.beta:g}; further SFT at {plan.sft_rate:g}. Critics: {plan.critic_steps} steps. "
        f"Intervals: {percent(COMPARISON_LEVEL)}, seeds and questions resampled; differences are paired by both."
    )
    agents, cells = {"agent": list(rows)}, [row["cells"] for row in rows.values()]
    scores = {said: [_scores(row, cell) for row in rows.values()] for cell, said in CELLS.items()}
    yield from table("EM/F1; in brackets what means nothing", agents | scores)
    gains = {said: [shown(row[cell]["gain"], "mean", sign="+") for row in cells] for cell, said in CELLS.items()}
    gains[CELLS[BEFORE]] = [shown(row[BEFORE]["em"], "mean", sign="") for row in cells]
    yield from table("EM as it comes, and what the others add to it", agents | gains)
    data = {said: [" ".join(map(str, row[cell]["em"]["by_seed"])) for row in cells] for cell, said in CELLS.items()}
    data |= {name: [" ".join(map(str, row[name])) for row in rows.values()] for name in ("pairs", "steps")}
    yield from table("EM by seed; pairs of DPO, steps of further SFT", agents | data)
    reasons = {(agent, why): None for agent, row in rows.items() for cell in CELLS if (why := nothing(row, cell))}
    yield from ("", *(f"- {agent}: {why}." for agent, why in reasons))
    yield f"\nMinutes of all phases: {sum(sum(row['seconds'].values()) for row in rows.values()) / 60:.0f}."


def _scores(row: Mapping[str, Any], cell: str) -> str:
    both = "/".join(f"{100 * row['cells'][cell][metric]['mean']:.1f}" for metric in ("em", "f1"))
    return f"[{both}]" if nothing(row, cell) else both


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "agents", help="[%(default)s]")
    parser.add_argument("--agents", default=",".join(AGENTS), help="by name [%(default)s]")
    parser.add_argument("--split", choices=["dev", "heldout"], default="heldout", help="whose questions are asked")
    parser.add_argument("--seeds", type=int, default=3, help="students of each agent [%(default)s]")
    parser.add_argument("--append", type=Path, help="add the report to this file")
    asked = parser.parse_args()
    plan, work = replace(TablePlan(), seeds=asked.seeds), asked.work.resolve()
    loops = {name: AgentLoop(plan, work / name, asked.split, agent=name) for name in asked.agents.split(",")}
    for loop in loops.values():
        loop.prepare()
    for seed in range(plan.seeds):
        for loop in loops.values():
            loop.run_seed(seed)
    rows = {agent: loop.row() for agent, loop in loops.items()}
    (work / "table.json").write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    publish(report(rows, plan, asked.split), asked.append)


if __name__ == "__main__":
    main()
