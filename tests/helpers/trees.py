"""Finished trees, grown by hand or at random: what tests of the data set's files begin with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from hypothesis import strategies as st

from preference import Message, RolloutRecord, read_rollouts
from preference.labelled_runs import write_candidates

Fields: TypeAlias = dict[str, Any]
Pair: TypeAlias = tuple[int, int]

QUESTION = "Who wrote the first program?"
THINK = "Think, then ask or answer."
READ = "Extract what is relevant."
BORN = "Were Ada Lovelace and Émile Zola born in the same country?"
UNPARSED: Fields = {"cause": "no_tag", "detail": "no known tag"}


def query(content: str, reward: float | None, **fields: Any) -> Fields:
    return _step("query", content, reward) | fields


def evidence(content: str, reward: float | None, **fields: Any) -> Fields:
    return _step("evidence", content, reward) | fields


def answer(content: str, reward: float | None, **fields: Any) -> Fields:
    return _step("answer", content, reward) | {"terminal": True} | fields


def bare(response: str, reward: float) -> Fields:
    return {"action_type": "query", "response": response, "reward": reward}


def malformed(response: str, reward: float | None = 0.0, **fields: Any) -> Fields:
    return {"response": response, "reward": reward, "terminal": True, "parse_error": UNPARSED} | fields


def _step(action_type: str, content: str, reward: float | None) -> Fields:
    response = f"So <{action_type}>{content}</{action_type}>"
    return {"action_type": action_type, "content": content, "response": response, "reward": reward}


def four_queries() -> RolloutRecord:
    """Right after 8 continuations, right after 1, wrong after 4, wrong after 1.

    More evidence is surer, so 1 > 3 (8 and 4) before 1 > 4 (8 and 1) before 2 > 3 (1 and 4) before 2 > 4 (1 and 1);
    all four have the same margin. 1 > 2 and 3 > 4 have none; of them 1 is rather better than 2, and 3 rather worse
    than 4.
    """
    return siblings(
        query("a", 0.9, observations=8),
        query("b", 0.9, observations=1),
        query("c", 0.0, observations=4),
        query("d", 0.0, observations=1),
    )


def rollouts_of(f1: float, *steps: int) -> list[Fields]:
    return [{"f1": f1, "em": float(f1 == 1), "steps": each} for each in steps]


def prompt(user: str, system: str = THINK) -> list[Fields]:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def tree(
    parents: Sequence[int], steps: Sequence[Fields], *, alpha: float = 0.9, by_layer: bool = True, **fields: Any
) -> RolloutRecord:
    """Node i + 1 is `steps[i]`, taken in the state of node `parents[i]`; every node leads to a state of its own."""
    question = fields.get("question", QUESTION)
    depths = [0]
    for parent in parents:
        depths.append(depths[parent] + 1)
    nodes: list[Fields] = [{"id": 0, "parent_id": None, "layer": None}]
    for node_id, (parent, step) in enumerate(zip(parents, steps, strict=True), start=1):
        user = f"Question: {question}" + (f"\nPrevious Thoughts: those of {parent}" if parent else "")
        here = {"id": node_id, "parent_id": parent, "layer": depths[node_id] - 1, "prompt": prompt(user)}
        nodes.append(here | step)
    for node in nodes:
        node["children_ids"] = [child for child, parent in enumerate(parents, start=1) if parent == node["id"]]
    return RolloutRecord.model_validate(
        {
            "question_id": "q1",
            "question": question,
            "golden_answers": ["Ada Lovelace"],
            "dataset": "toy",
            "split": "train",
            "config_hash": "0f",
            "seed": 7,
            "recipe": {"name": "paper", "alpha": alpha, "margin_by_layer": by_layer},
            "usage": {},
            "nodes": nodes,
        }
        | fields
    )


def siblings(*steps: Fields, **fields: Any) -> RolloutRecord:
    """All steps taken in the root's state."""
    return tree([0] * len(steps), steps, **fields)


def branch(first: float, *, late: Fields | None = None, more: int = 0) -> RolloutRecord:
    """A good query, and one whose first answer has this F1: below it lies, by another query, a right answer that was
    looked for. late: what was found later below that query; more: draws of it that were not looking."""
    looking = query("again", 0.5, decisive_draws=1, plain_draws=1 + more, draws=1 + more)
    sought = answer("Ada Lovelace", 0.7, f1=1.0, em=1.0, rollouts=rollouts_of(1.0, 3), decisive_draws=1)
    given = answer("first", 0.0, f1=first, em=float(first == 1), rollouts=rollouts_of(first, 2))
    bad = query("what", 0.1, expected_outcome=first, rollouts=rollouts_of(first, 2))
    steps = [query("who", 0.9, expected_outcome=1.0, rollouts=rollouts_of(1.0, 2)), bad, given, looking, sought]
    return tree([0, 0, 2, 2, 4, *([4] if late else [])], [*steps, *([late] if late else [])])


def ada(**fields: Any) -> RolloutRecord:
    """A query (one path right, one wrong) before two guesses and an unparsed reply; evidence before none."""
    question = fields.get("question", BORN)
    thoughts = f"Question: {question}\nPrevious Thoughts: So the next query is <query>Ada Lovelace birthplace</query>"
    first = prompt(f"Question: {question}", THINK)
    passage = "<reference>Wikipedia Title: Ada Lovelace\nBorn in London.\n\n</reference>"
    second = prompt(f"{thoughts}. Reference: {passage}", READ)
    steps = [
        query(
            *("Ada Lovelace birthplace", 0.3645),
            response="So the next query is <query>Ada Lovelace birthplace</query>",
            rollouts=[*rollouts_of(1.0, 3), *rollouts_of(0.0, 3)],
        ),
        answer("no", 0.9, response="So the answer is <answer>no</answer>", f1=1.0, rollouts=rollouts_of(1.0, 1)),
        answer("yes", 0.0, response="So the answer is <answer>yes</answer>", f1=0.0, rollouts=rollouts_of(0.0, 1)),
        malformed(
            "I would rather not say.",
            parse_error={"cause": "no_tag", "detail": "neither <query> nor <answer>"},
            rollouts=rollouts_of(0.0, 1),
        ),
        evidence(
            *("Born in London.", 0.729),
            response="<evidence>Born in London.</evidence>",
            grounded=True,
            rollouts=rollouts_of(1.0, 3),
            observations=1,
        ),
        evidence("None", 0.0, response="<evidence>None</evidence>", grounded=False, rollouts=rollouts_of(0.0, 3)),
    ]
    steps = [each | {"prompt": second if number > 3 else first} for number, each in enumerate(steps)]
    about = {"question": BORN, "golden_answers": ["no"], "config_hash": "0f1e"} | fields
    return tree([0, 0, 0, 0, 1, 1], steps, **about)


def asked(number: int, **fields: Any) -> RolloutRecord:
    """A question of its own with a single pair."""
    text = f"Who was number {number}?"
    return siblings(query("who", 0.9), query("what", 0.0), question_id=f"q{number}", question=text, **fields)


def failure(question_id: str = "q2", **fields: Any) -> RolloutRecord:
    """A question without a tree."""
    error = {"cause": "timeout", "message": "no answer after 600 s"}
    return siblings(question_id=question_id, error=error, **fields).model_copy(update={"nodes": []})


random_steps = st.fixed_dictionaries(
    {
        "action_type": st.sampled_from(["query", "evidence", "answer", None]),
        "content": st.sampled_from(["Ada Lovelace", "ada  lovelace", "Ada", "Bob", "", None]),
        "response": st.sampled_from(["one", "two", "three"]),
        "reward": st.none() | st.floats(0, 1) | st.sampled_from([0.0, 0.5, 0.505, 0.9]),
        "parse_error": st.sampled_from([None, None, None, UNPARSED]),
        "observations": st.none() | st.integers(1, 9),
        "same_as": st.sampled_from([None, None, 1]),
        "grounded": st.sampled_from([None, None, True, False]),
        "in_evidence": st.sampled_from([None, True, False]),
        "rollouts": st.lists(st.builds(lambda f1: rollouts_of(f1, 2)[0], st.sampled_from([0.0, 0.5, 1.0])), max_size=2),
    }
)


@st.composite
def random_trees(draw: st.DrawFn, **fields: Any) -> RolloutRecord:
    steps = draw(st.lists(random_steps, max_size=9))
    parents = [draw(st.integers(0, child)) for child in range(len(steps))]
    return tree(parents, steps, alpha=draw(st.sampled_from([0.5, 0.9, 1.0])), by_layer=draw(st.booleans()), **fields)


def run_of(folder: Path, *records: RolloutRecord, torn: bytes = b"") -> Path:
    """A run directory with these lines; torn: what stands behind the last line break."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rollouts.jsonl").write_bytes(b"".join(each.to_line() for each in records) + torn)
    return folder


def candidates_in(folder: Path, *records: RolloutRecord) -> Path:
    """A folder with the candidates of these trees."""
    write_candidates(records, folder)
    return folder


def rows(path: Path) -> list[Fields]:
    """What stands in a JSON list, or one a line."""
    content = path.read_text("utf-8")
    found: list[Fields] = json.loads(content) if path.suffix == ".json" else [*map(json.loads, content.splitlines())]
    return found


def digest(run: str | Path) -> str:
    """Of a run's trees."""
    return hashlib.sha256(Path(run, "rollouts.jsonl").read_bytes()).hexdigest()


def paid(run: str | Path) -> list[str]:
    """Keys of all answers in a run's journal."""
    return [key for line in Path(run, "journal.jsonl").read_bytes().splitlines() for key in json.loads(line)["keys"]]


def trees(run: str | Path = "runs/a") -> list[RolloutRecord]:
    return list(read_rollouts(Path(run) / "rollouts.jsonl"))


class WordCounter:
    """Every word a token; each turn begins with one and a reply ends with one."""

    name = "words"
    exact = False

    def prompt(self, prompt: Sequence[Message]) -> int:
        return sum(1 + len(turn.content.split()) for turn in prompt)

    def reply(self, text: str) -> int:
        return len(text.split()) + 1


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
