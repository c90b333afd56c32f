"""The default recipe of an earlier version on the same real questions, beside the present one.

Runs that version's own code, from a checkout, in a process of its own. Knows only what its trees gave in numbers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gold_teacher import Skill
from verdicts import Verdicts, types_of, verdict_of

from reasonrag.llm.prices import find_price

_BEFORE = """
import json, sys
given = json.loads(sys.argv[1])
sys.path[:0] = [given["checkout"] + "/benchmarks", given["checkout"]]
from pathlib import Path
import search_economy_real as bench
folder = Path(given["folder"])
asked = [
    each
    for split in given["splits"]
    for each in bench.open_questions(folder / f"{split}.jsonl", dataset=folder.name, split=split).read(10**6)
][given["skip"] :][: given["questions"]]
world = bench.open_world(folder, Path(given["index_home"]))
rules = bench.PairingRules()
answer = []
for question, record in bench.explored(
    world, asked, bench.RECIPES["economy"], bench.Skill(**given["skill"]), seed=given["seed"]
):
    pairs = []
    for each in bench.candidates(record, rules):
        if each.dropped is None:
            steps = [record.nodes[side.id] for side in (each.chosen, each.rejected)]
            margin = question.worth(steps[0]) - question.worth(steps[1])
            pairs.append([margin, *(step.action_type for step in steps)])
    found = bench.judge(record, question, rules)
    names = ("question_id", "requests", "replies", "prompt_tokens", "completion_tokens")
    answer.append({name: getattr(found, name) for name in names} | {"pairs": pairs})
print(json.dumps(answer))
"""


@dataclass(frozen=True)
class Before(Verdicts):
    """What the default recipe of an earlier version gave of a question."""

    question_id: str
    requests: int
    replies: int
    prompt_tokens: int
    completion_tokens: int

    @property
    def dollars(self) -> float:
        return find_price("gpt-4o").cost(self.prompt_tokens, self.completion_tokens)


@dataclass(frozen=True)
class EarlierVersion:
    """A checkout, and what it is asked: `questions` of the splits of a data set's folder, after the first `skip`."""

    checkout: Path
    folder: Path
    index_home: Path
    splits: Sequence[str]
    skip: int
    questions: int
    seed: int

    def measure(self, skill: Skill) -> list[Before]:
        """One entry a question, in order. Raises CalledProcessError."""
        given = {
            "checkout": str(self.checkout.resolve()),
            "folder": str(self.folder),
            "index_home": str(self.index_home.resolve()),
            "splits": list(self.splits),
            "skip": self.skip,
            "questions": self.questions,
            "skill": {name: getattr(skill, name) for name in ("name", "good", "right", "early", "luck")},
            "seed": self.seed,
        }
        command = [sys.executable, "-c", _BEFORE, json.dumps(given)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        return [_before(**each) for each in json.loads(done.stdout)]


def _before(pairs: Sequence[tuple[float, str, str]], **numbers: Any) -> Before:
    """pairs: their true margins, and the types of the chosen and of the rejected step."""
    return Before(Counter((types_of(*types), verdict_of(margin)) for margin, *types in pairs), **numbers)
