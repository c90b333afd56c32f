"""What the experiment of `critics.py` came to: figures by the oracle, tables, sentences.

Decides what is counted. Reads the files of evaluations, runs and data sets, and knows nothing of how they came about.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from gold_teacher import GoldQuestion
from loop import rows_of
from reporting import CONFIDENCE, interval, table

from preference import Message
from preference.candidate_records import PathStep, QuestionRecord, read_lines
from preference.export.formats import ACTION_TYPE_NAMES, PAIRS_FILE
from preference.export.summary import QUESTIONS, SUMMARY
from preference.margin_and_confidence import TOLERANCE
from preference.statistics import COMPARISON_LEVEL
from reasonrag.critics.evaluation.report import REPORT
from reasonrag.evaluation.predictions import read_predictions
from reasonrag.llm.extraction.parsed_prompt import parse_prompt
from reasonrag.rendering import percent

HARMLESS = 0.05
"""A step that lowers the true value by no more than this is right."""
Known = Mapping[str, GoldQuestion]
"""Questions by id."""


# -- figures -----------------------------------------------------------------------------------------------------


def read_json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def critic_figures(folder: Path, place: str = "evaluation") -> dict[str, Any]:
    """What `evaluate-critic` wrote, and how many rows the critic has read, some of them more than once."""
    training = read_json(folder / "training.json")
    read = training["resolved"]["max_steps"] * training["resolved"]["per_device_train_batch_size"]
    return {"rows": min(training["data"]["rows"], read), **read_json(folder / place / REPORT)}


def label_figures(data: Path, known: Known, *, surest: int | None = None) -> dict[str, Any]:
    """How many of a data set's pairs the oracle calls right, ties apart. surest: only so many, those of the highest
    confidence."""
    types = {told: kind for kind, told in ACTION_TYPE_NAMES.items()}
    verdicts: dict[str, list[int]] = {}
    margins = []
    for row in sorted(rows_of(data / PAIRS_FILE), key=lambda row: -(row["confidence"] or 0))[:surest]:
        prompt = [Message(role="system", content=row["instruction"]), Message(role="user", content=row["input"])]
        chosen, rejected = (
            known[row["question_id"]].worth(
                PathStep(
                    layer=row["layer"],
                    action_type=types[row[f"{side}_action_type"]],
                    prompt=prompt,
                    response=row[side],
                    content=row[f"{side}_content"],
                )
            )
            for side in ("chosen", "rejected")
        )
        margins.append(chosen - rejected)
        verdict = (chosen - rejected > TOLERANCE) - (rejected - chosen > TOLERANCE)
        verdicts.setdefault(row["question_id"], []).append(verdict)
    by_question = list(verdicts.values())
    low, high = interval(by_question, _right_share) if by_question else (0.0, 0.0)
    return {
        "pairs": len(margins),
        "margin": sum(margins) / max(1, len(margins)),
        "value": _right_share(by_question),
        "low": low,
        "high": high,
    }


def _right_share(verdicts: Sequence[Sequence[int]]) -> float:
    found = [each for some in verdicts for each in some]
    return found.count(1) / max(1, found.count(1) + found.count(-1))


def answer_figures(folder: Path, known: Known) -> dict[str, Any]:
    """EM of an evaluation, what a question cost, how often all facts were read, and how often the answer then was
    right."""
    found, read = read_json(folder / "report.json"), []
    for each in read_predictions(folder):
        question = known[each.question_id]
        said = [step.content or "" for step in each.steps if step.action == "read"]
        if len(frozenset[int]().union(*map(question.stated, said))) == len(question.facts):
            read.append(each.em == 1)
    usage, questions = found["usage"], found["questions"]
    return {
        "read": len(read) / questions,
        "right_of_read": sum(read) / max(1, len(read)),
        "em": found["metrics"]["em"],
        "calls": usage["calls"] / questions,
        "scores": usage.get("critic_calls", 0) / questions,
    }


def refined_figures(data: Path, known: Known) -> dict[str, Any]:
    """Best paths, all to right answers, and how right they are: those that a critic keeps, those that it leaves out,
    and the third whose lowest step scores highest, as the level of a pairwise critic's scores means nothing."""
    threshold = read_json(data / SUMMARY)["refinement"]["threshold"]
    paths: list[tuple[float, tuple[bool, list[bool]]]] = []
    for record in read_lines(data / QUESTIONS, QuestionRecord):
        if record.path:
            question = known[record.question_id]
            lowest = min(-inf if each.critic_score is None else each.critic_score for each in record.path)
            right = [step_is_right(question, each) for each in record.path]
            paths.append((lowest, (question.rests_on_facts(record.path[-1]), right)))
    paths.sort(key=lambda each: -each[0])
    return {
        "kept": _part_figures([path for lowest, path in paths if lowest >= threshold]),
        "left out": _part_figures([path for lowest, path in paths if lowest < threshold]),
        "highest third": _part_figures([path for _, path in paths[: len(paths) // 3]]),
    }


def step_is_right(question: GoldQuestion, step: PathStep) -> bool:
    """Whether it lowers the true value by no more than `HARMLESS`."""
    before = question.value(question.state_of(parse_prompt(step.prompt)))
    return question.worth(step) >= before - HARMLESS


def _part_figures(part: Sequence[tuple[bool, list[bool]]]) -> dict[str, Any]:
    steps = [each for _, right in part for each in right]
    return {
        "paths": len(part),
        "earned": sum(earned for earned, _ in part) / max(1, len(part)),
        "steps": len(steps),
        "right": sum(steps) / max(1, len(steps)),
    }


# -- the report --------------------------------------------------------------------------------------------------


def report(found: Mapping[str, Any]) -> Iterator[str]:
    """Markdown of everything that a reader needs."""
    plan, critics, main = found["plan"], found["critics"], found["critics"][found["main"]]
    policy, asked = plan["skill"], plan["questions"]
    yield "\n**Critics, where every value is known** (benchmarks/critics.py)"
    yield (
        f"\nWorld with lucky answers; policy `gold_teacher`: good {policy['good']:g}, right {policy['right']:g}, early "
        f"{policy['early']:g}, luck by the options of a question; it answers {found['value']:.1%} of the held-out "
        f"questions, by the oracle. Critics begin with one student, warmed up on {asked['warmup']:,} questions, and "
        f"learn from trees of {asked['explore']:,} (`economy`, outcome F1, alpha 1, at most {plan['calls']} replies). "
        f"Intervals: {percent(COMPARISON_LEVEL)}, over questions. One world, one training each: they say nothing "
        "of other seeds."
    )
    yield from table(
        f"Labels that critics are trained on, by the oracle ({percent(CONFIDENCE)})",
        {
            "labels": list(found["labels"]),
            **_columns(
                found["labels"].values(),
                lambda each: {
                    "pairs": f"{each['pairs']:,}",
                    "right, ties apart": _share(each),
                    "true margin": f"{each['margin']:.3f}",
                },
            ),
        },
    )
    yield from table(
        f"Sibling pairs of {plan['scored']} held-out questions ranked as the oracle does",
        {"critic": list(critics), **_columns(critics.values(), _accuracy_cells)},
    )
    yield from table(
        f"`{found['main']}` by type of the better step and by depth",
        {
            "pairs": ["type", "depth"],
            "ranked right (pairs)": [
                ", ".join(f"{name} {_plain(each)} ({each['n']:,})" for name, each in main[field].items())
                for field in ("by_action_type", "by_layer")
            ],
        },
    )
    transfer = found["transfer"]
    yield from table(
        f"`{found['main']}` elsewhere",
        {
            "questions of": list(transfer),
            "pairs": [f"{each['accuracy']['n']:,}" for each in transfer.values()],
            "ranked right": [_share(each["accuracy"]) for each in transfer.values()],
            "gap above .3": [_clear(each) for each in transfer.values()],
        },
    )
    yield from _answers(found)
    yield from _witness(found["witness"])
    yield from _refined(found["refined"])
    minutes = sum(found["seconds"].values()) / 60
    yield f"\nMinutes of all phases, several of them two at a time: {minutes:.0f}."


def _accuracy_cells(each: Mapping[str, Any]) -> dict[str, str]:
    advantage = each.get("advantage")
    return {
        "rows": f"{each['rows']:,}",
        "all": _share(each["accuracy"]),
        "gap above .3": _clear(each),
        "over the outcome model": _signed(advantage) if advantage else "-",
        "without the state": _plain(each["step_only"]),
        "by length": _plain(each["shorter"]),
        "verdict": each["verdict"],
    }


def _answers(found: Mapping[str, Any]) -> Iterator[str]:
    answers, compared = found["answers"], found["compared"]
    yield from table(
        f"The policy at temperature 1 on {found['plan']['answered']} held-out questions (`evaluate`)",
        {
            "way": list(answers),
            **_columns(
                answers.values(),
                lambda each: {
                    "EM": _share(each["em"]),
                    "all facts read": f"{each['read']:.1%}",
                    "of those right": f"{each['right_of_read']:.1%}",
                    "completions": f"{each['calls']:.1f}",
                    "scores": f"{each['scores']:.1f}",
                },
            ),
        },
    )
    yield from table(
        "Paired differences (`compare`)",
        {"from -> to": list(compared), "EM": [_signed(each) for each in compared.values()]},
    )


def _witness(witness: Mapping[str, Any]) -> Iterator[str]:
    yield from table(
        f"Labels by values alone, and those that cross-fitted critics confirm ({percent(CONFIDENCE)})",
        {
            "labels, least confidence": list(witness),
            "pairs": [f"{each['pairs']:,}" for each in witness.values()],
            "right, ties apart": [_share(each) for each in witness.values()],
        },
    )


def _refined(refined: Mapping[str, Any]) -> Iterator[str]:
    rows = [(critic, part, each) for critic, parts in refined.items() for part, each in parts.items()]
    yield from table(
        "Best paths to right answers, to fine-tune on (earned: all facts were read before the answer; right steps "
        f"lower the true value by no more than {HARMLESS:g})",
        {
            "critic": [critic for critic, _, _ in rows],
            "paths": [f"{part}: {each['paths']:,}" for _, part, each in rows],
            "earned": [f"{each['earned']:.1%}" for _, _, each in rows],
            "right steps": [f"{each['right']:.1%} of {each['steps']:,}" for _, _, each in rows],
        },
    )


def _columns(rows: Any, cells: Callable[[Any], dict[str, str]]) -> dict[str, list[str]]:
    found = [cells(each) for each in rows]
    return {name: [row[name] for row in found] for name in found[0]}


def _clear(each: Mapping[str, Any]) -> str:
    found = each["by_margin"].get("above .3")
    return _share(found) if found else "-"


def _share(each: Mapping[str, Any]) -> str:
    return f"{100 * each['value']:.1f} ({100 * each['low']:.1f} to {100 * each['high']:.1f})"


def _signed(each: Mapping[str, Any]) -> str:
    return f"{100 * each['value']:+.1f} ({100 * each['low']:+.1f} to {100 * each['high']:+.1f})"


def _plain(each: Mapping[str, Any]) -> str:
    return "-" if each["value"] is None else f"{100 * each['value']:.1f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"
