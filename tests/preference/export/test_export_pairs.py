"""Pairs as files: rows, both parts, what is flipped, what was dropped, the summary; whole or not at all."""

from __future__ import annotations

import hashlib
import json
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from preference import NO_FILTERS, ExportOptions, PairingRules, PairSummary, RolloutRecord, export_pairs
from preference.candidate_records import question_key
from preference.export.atomic_export import is_unfinished, put_in_place, staging_folder
from preference.export.formats import Row, SplitName
from preference.filters import DROP_REASONS
from tests.helpers.trees import (
    Fields,
    ada,
    answer,
    asked,
    candidates_in,
    contents,
    failure,
    malformed,
    prompt,
    query,
    random_trees,
    rollouts_of,
    rows,
    siblings,
    tree,
)

DEFAULTS, NO_FACTS = PairingRules(), PairSummary()
ALL_TO_TRAIN = ExportOptions(validation=0)
COUNTED_BY = "words"
FILES = {
    "candidates.jsonl",
    "questions.jsonl",
    "dropped.jsonl",
    "RAG_ProGuide.json",
    "dataset_info.json",
    "summary.json",
}


def export(
    out: Path,
    *records: RolloutRecord,
    rules: PairingRules = DEFAULTS,
    options: ExportOptions = ALL_TO_TRAIN,
    **more: Any,
) -> PairSummary:
    return put(candidates_in(out, *records), out, rules, options, **more)


def put(source: Path, out: Path, *how: Any, facts: PairSummary = NO_FACTS, **more: Any) -> PairSummary:
    """As `pairs` does, an earlier export is replaced when all files are written."""
    told = facts.model_copy(update={"out": str(out)})
    with staging_folder(out) as staged:
        summary = export_pairs(source, staged, *how, facts=told, **more)
        put_in_place(staged, out)
    return summary


def pairs(out: Path, split: SplitName = "train") -> list[Fields]:
    return rows(out / ("RAG_ProGuide.json" if split == "train" else "RAG_ProGuide.validation.json"))


# -- rows ---------------------------------------------------------------------------------------------------------


def test_an_export_is_recorded_whole(tmp_path: Path, golden: Callable[[str, bytes], None]) -> None:
    """The pairs of one tree as RAG_ProGuide rows, to the byte."""
    export(tmp_path, ada())
    golden("RAG_ProGuide.json", (tmp_path / "RAG_ProGuide.json").read_bytes())


def test_rows_stand_in_the_order_of_candidates(tmp_path: Path) -> None:
    """Question by question as they were read, so the same candidates give the same files, to the byte."""
    records = [asked(number) for number in (2, 1, 3)]
    export(tmp_path, *records)
    assert [row["question_id"] for row in pairs(tmp_path)] == ["q2", "q1", "q3"]
    before = contents(tmp_path)
    export(tmp_path, *records)
    assert contents(tmp_path) == before


HOSTILE = '"]}\n[{"chosen": 1}, \u2028\u0085 \x00 \x1b[31m </script> ../../etc/passwd \U0001f9a7 ﷽'


def test_text_is_data_whatever_it_says(tmp_path: Path) -> None:
    """Quotes, brackets, line and record separators, escapes and NUL come out of every file as they went in."""
    record = siblings(query("a", 0.9, response=HOSTILE), query(HOSTILE, 0.0), question=HOSTILE, question_id=HOSTILE)
    options = ExportOptions(("sharegpt", "kto", "reward", "trl"), validation=0)
    export(tmp_path, record, options=options)
    (row,) = pairs(tmp_path)
    assert (row["chosen"], row["rejected_content"]) == (HOSTILE, HOSTILE)
    assert (row["question_id"], row["input"]) == (HOSTILE, f"Question: {HOSTILE}")
    (trl,) = [json.loads(line) for line in (tmp_path / "trl.jsonl").read_bytes().split(b"\n")[:-1]]
    assert trl["chosen"] == [{"role": "assistant", "content": HOSTILE}]
    assert {path.name for path in tmp_path.iterdir()} == FILES | {
        *("sharegpt.json", "kto.json", "reward.json", "trl.jsonl")
    }


# -- what stands beside the rows ----------------------------------------------------------------------------------


def test_the_summary_counts_what_was_kept_and_what_was_left_out(tmp_path: Path) -> None:
    """Two questions, one failed. Layer 0: six candidates, three malformed; no > yes (.9), no > query (.5355) and
    query > yes (.3645) are of three combinations, and the surest two of the state are kept. Layer 1: one. They are sure
    to .905, .81 and .88. Of 3 pairs in states of 2 and 1: 9 / 5 and, all of one question, 9 / 9."""
    rules = PairingRules(min_margin=0.02, min_confidence=0.6, max_per_state=2)
    facts = PairSummary(sources=["runs/a"], token_counter=COUNTED_BY, versions={"reasonrag": "0.0.0"})
    usage = {"calls": 7, "cost_usd": 0.5}
    summary = export(tmp_path, ada(usage=usage), failure(usage=usage), rules=rules, facts=facts)
    digest = hashlib.sha256((tmp_path / "RAG_ProGuide.json").read_bytes()).hexdigest()
    assert summary.sha256 == {"RAG_ProGuide.json": digest}
    assert summary.model_dump(exclude={"usage", "sha256"}) == {
        "out": str(tmp_path),
        "sources": ["runs/a"],
        "questions": 2,
        "failed_questions": 1,
        "questions_with_a_pair": 1,
        "without_a_pair": {},
        "states": 2,
        "candidates": 7,
        "pairs": 3,
        "validation_pairs": 0,
        "validation_questions": 0,
        "flipped": 0,
        "pairs_by_label": {"value": 3},
        "pairs_by_action_type": {"Answer Generation": 2, "Evidence Extraction": 1},
        "pairs_by_layer": {"0": 2, "1": 1},
        "pairs_by_tag": {},
        "mean_confidence": pytest.approx(0.834, abs=0.005),
        "mean_margin": pytest.approx((0.9 + 0.5355 + 0.81) / 3),
        "same_type_pairs": 2,
        "effective": {"states": 2, "questions": 1, "by_state": 1.8, "by_question": 1.0},
        "gold_agreement": {},
        "dropped": dict.fromkeys(DROP_REASONS, 0) | {"malformed": 3, "state_full": 1},
        "files": {"RAG_ProGuide.json": 3},
        "recipes": ["paper"],
        "splits": ["toy/train"],
        "teachers": ["unknown"],
        "renderers": ["unknown"],
        "token_counter": COUNTED_BY,
        "rules": rules.flags,
        "options": {"formats": ("proguide",), "validation": 0, "flip": 0.0, "seed": 0, "critic_threshold": None}
        | {"refine": "paths", "critic_share": None, "hold_out": 0.0},
        "judging": {},
        "critics": {},
        "refinement": {},
        "plain_steps": {},
        "warm_up": {},
        "contamination": {},
        "versions": {"reasonrag": "0.0.0"},
        "warnings": [],
    }
    assert summary.usage is not None
    assert (summary.usage.calls, summary.usage.cost_usd) == (14, 1.0)
    assert json.loads((tmp_path / "summary.json").read_bytes()) == json.loads(summary.model_dump_json())


def test_the_summary_counts_how_often_gold_passages_agree(tmp_path: Path) -> None:
    """By action type, of all pairs, those that cannot be compared among them; a type of which none can is not named."""
    counts: list[tuple[int | None, int | None]] = [(1, 0), (2, 1), (0, 1), (0, 0), (None, None)]
    records = []
    for number, gold in enumerate(counts):
        whole = ada(question=f"Is {number}?", question_id=str(number))
        of_step = dict(zip((5, 6), gold, strict=True))
        nodes = [node.model_copy(update={"gold": of_step.get(node.id)}) for node in whole.nodes]
        records.append(whole.model_copy(update={"nodes": nodes}))
    summary = export(tmp_path, *records)
    agreement = {name: each.model_dump() for name, each in summary.gold_agreement.items()}
    assert agreement == {"Evidence Extraction": {"right": 2, "wrong": 1, "ties": 1, "unknown": 1}}
    evidence = [row for row in pairs(tmp_path) if row["chosen_action_type"] == "Evidence Extraction"]
    assert [(row["chosen_gold"], row["rejected_gold"]) for row in evidence] == counts
    assert [row["gold"] for row in evidence] == ["right", "right", "wrong", "tie", "unknown"]


def test_the_summary_says_why_questions_gave_no_pair(tmp_path: Path) -> None:
    """Every continuation right, or wrong; or outcomes differed and all candidates were dropped; or nothing is known. A
    question whose trees ended otherwise is mixed, whichever comes first."""

    def ends(number: int, *f1: float) -> RolloutRecord:
        steps = [query(f"q{n}", 0.5, rollouts=rollouts_of(each, 3)) for n, each in enumerate(f1)]
        return siblings(*steps, question=f"Number {number}?", question_id=str(number))

    records = [ends(0, 1, 1), ends(1, 0, 0), ends(2, 0, 0), ends(3, 0, 1), ends(4, 0.5), ends(5), asked(6), failure()]
    twice = [ends(7, 0), ends(7, 0.5), ends(8, 0.5), ends(8, 0)]
    summary = export(tmp_path, *records, *twice)
    assert summary.without_a_pair == {"all_right": 1, "all_wrong": 2, "dropped": 5}
    assert (summary.questions, summary.questions_with_a_pair, summary.failed_questions) == (10, 1, 1)


def test_a_step_on_the_best_paths_of_two_trees_is_taught_once(tmp_path: Path) -> None:
    """Two explorations of a question that came to the same path would teach it with twice the weight."""
    options = ExportOptions(("sft",), validation=0)
    export(tmp_path / "one", ada(), options=options)
    export(tmp_path / "two", ada(), ada(config_hash="another"), options=options)
    assert rows(tmp_path / "one" / "sft.json") == rows(tmp_path / "two" / "sft.json") != []


@pytest.mark.parametrize(
    ("scores", "kept", "unscored"), [((0.0, 2.0), 1, 0), ((3.0, -0.1), 0, 0), ((3.0, None), 0, 1), ((None, None), 0, 1)]
)
def test_critics_leave_the_best_paths_whose_every_step_scores_the_threshold(
    scores: tuple[float | None, ...], kept: int, unscored: int, tmp_path: Path
) -> None:
    """Only these become rows, and the others are counted."""
    source = candidates_in(tmp_path / "source", ada())
    [question] = rows(source / "questions.jsonl")
    question["path"] = [question["path"][-1] | {"response": f"{each}", "critic_score": each} for each in scores]
    (source / "questions.jsonl").write_text(json.dumps(question) + "\n")
    options = ExportOptions(formats=("sft",), validation=0, critic_threshold=0.0)
    summary = put(source, tmp_path / "out", PairingRules(), options)
    assert summary.refinement.items() >= {"threshold": 0.0, "paths": 1, "kept": kept, "unscored": unscored}.items()
    assert len(rows(tmp_path / "out" / "sft.json")) == 2 * kept


@pytest.mark.parametrize(
    ("rule", "kept", "threshold"),
    [
        ({"critic_share": 0.5}, ["3.0", "1.0"], 1.0),
        ({"critic_share": 0.1}, ["3.0"], 3.0),
        ({"critic_share": 1}, ["3.0", "-2.0", "1.0", "0.0"], -2.0),
        ({"critic_threshold": 0.0}, ["3.0", "1.0", "0.0"], 0.0),
        ({"critic_threshold": 9.0}, [], 9.0),
        ({"critic_share": 1, "hold_out": 0.99}, [], 0.0),
    ],
)
def test_critics_leave_the_best_steps_of_right_attempts(
    rule: dict[str, Any], kept: list[str], threshold: float, tmp_path: Path
) -> None:
    """Each for itself, whatever its attempt's others score; one that attempts share is taught once. Of questions that
    are held out, which are listed, nothing is."""
    source = candidates_in(tmp_path / "source", ada())
    [question] = rows(source / "questions.jsonl")
    step = question["path"][-1]
    three, two, one, zero = (step | {"response": str(each), "critic_score": each} for each in (3.0, -2.0, 1.0, 0.0))
    attempts = [[three, two], [three, one, zero, step]]
    plain = [
        each | {"id": 10 * number + place, "parent_id": 10 * number + place - 1 if place > 1 else 0, "state_id": ""}
        | {"draws": 1, "value": 1, "right": place == len(attempt)}
        for number, attempt in enumerate(attempts)
        for place, each in enumerate(attempt, start=1)
    ]  # fmt: skip
    ways = {"path": [three, two], "plain_steps": plain}
    (source / "questions.jsonl").write_text(json.dumps(question | ways) + "\n")
    summary = put(source, tmp_path / "out", PairingRules(), ExportOptions(("sft",), 0, refine="steps", **rule))
    told, held_out = summary.refinement, "hold_out" in rule
    assert [row["output"] for row in rows(tmp_path / "out" / "sft.json")] == kept
    found = [told[name] for name in ("threshold", "paths", "steps", "kept", "unscored")]
    assert found == ([threshold, 0, 0, 0, 0] if held_out else [threshold, 2, 5, len(kept), 1])
    assert any("the critics left none" in each for each in summary.warnings) == (not kept and not held_out)
    assert held_out == (summary.dropped["held_out"] > 0) == (summary.files.get("held_out.jsonl") == 1)


def test_of_refined_steps_fewer_are_held_out_than_trained_on(tmp_path: Path) -> None:
    """Counted by what critics leave, not by the pairs or the whole paths: here four steps of one question, one of the
    other."""
    source = candidates_in(tmp_path / "source", asked(1), asked(2))
    lines = rows(source / "questions.jsonl")
    step = {"layer": 0, "action_type": "query", "prompt": prompt("Who?"), "content": "who"}
    for line, scores in zip(lines, ((9, 9, 9, 9), (9, 0, 0, 0, 0)), strict=True):
        line["path"] = [
            step | {"response": f"{line['question_id']} {n}", "critic_score": each} for n, each in enumerate(scores)
        ]
    (source / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for seed in range(4):
        options = ExportOptions(("sft",), 0.5, seed=seed, refine="steps", critic_threshold=5)
        summary = put(source, tmp_path / f"out{seed}", NO_FILTERS, options)
        assert (summary.files["sft.json"], summary.files["sft.validation.json"]) == (4, 1)


def test_the_summary_of_a_mixture_names_its_parts_and_no_cost_that_one_of_them_lacks(tmp_path: Path) -> None:
    """So that a mixture of runs is seen. The sum of what others cost is not known either; calls are."""
    released = {"name": "released", "alpha": 0.9, "margin_by_layer": False}
    records = [
        asked(1, split="dev", usage={"calls": 2, "cost_usd": 1.0}),
        asked(2, recipe=released, dataset="other", usage={"calls": 3}),
        asked(3, renderer="76dc"),
    ]
    summary = export(tmp_path, *records)
    assert summary.recipes == ["paper", "released"]
    assert summary.splits == ["other/train", "toy/dev", "toy/train"]
    assert summary.renderers == ["76dc", "unknown"]
    assert summary.usage is not None
    assert (summary.usage.calls, summary.usage.cost_usd) == (5, None)
    first, *others = rows(tmp_path / "questions.jsonl")
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, [first | {"usage": None}, *others])) + "\n")
    assert put(tmp_path, tmp_path, DEFAULTS, ALL_TO_TRAIN).usage is None


@pytest.mark.parametrize(
    ("records", "warnings"),
    [
        ([failure()], ["no pair was kept"]),
        ([siblings(malformed("?!"), malformed("!?"))], ["no pair was kept"]),
        ([ada(split="dev")], ["made of toy/dev questions: keep these pairs out of training"]),
        ([ada(split="unknown")], ["made of toy/unknown questions: give import their --split"]),
        ([ada()], []),
    ],
)
def test_an_export_warns_of_what_would_be_regretted(
    records: list[RolloutRecord], warnings: list[str], tmp_path: Path
) -> None:
    """Pairs of evaluation questions, and no pairs at all."""
    summary = export(tmp_path, *records)
    assert len(summary.warnings) == len(warnings)
    assert all(said.startswith(expected) for said, expected in zip(summary.warnings, warnings, strict=True))


def test_contaminated_questions_are_left_out_and_counted(tmp_path: Path) -> None:
    """All their candidates, and their best paths, under whatever wording of case and punctuation."""
    right = [query("who", 0.9, rollouts=rollouts_of(1, 2)), query("what", 0.0, rollouts=rollouts_of(0, 2))]
    answered = answer("Ada Lovelace", 0.81, f1=1.0)
    seen = tree([0, 0, 1], [*right, answered], question="Who IS the first?", question_id="seen")
    new = tree([0, 0, 1], [*right, answered], question="Who is the second?", question_id="new")
    facts, known = PairSummary(contamination={"splits": ["toy/test"]}), question_key("who is first")
    options = ExportOptions(("sft",), validation=0)
    summary = export(tmp_path, seen, new, options=options, facts=facts, left_out={known: "contaminated"})
    assert summary.dropped["contaminated"] == 1
    assert summary.contamination == {"splits": ["toy/test"]}
    assert {row["question_id"] for row in pairs(tmp_path)} == {"new"}
    assert {row["question_id"] for row in rows(tmp_path / "sft.json")} == {"new"}


# -- the validation part ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("questions", "share", "held_out"),
    [
        (100, 0.05, 5),
        (2, 0.05, 1),
        (2, 0.99, 1),
        (1, 0.05, 0),
    ],
)
def test_so_many_questions_are_held_out(questions: int, share: float, held_out: int, tmp_path: Path) -> None:
    """That share of those with a pair, rounded, and at least one; at least one is left to train on. What has no pair
    left by the caps does not count."""
    records = [asked(number) for number in range(questions)]
    sides = query("who", 0.9, rollouts=rollouts_of(1, 1)), query("what", 0.1, rollouts=rollouts_of(1, 3))
    useless = siblings(*sides, question="Useless?", question_id="useless")
    rules = PairingRules(max_efficiency_only=0.0)
    summary = export(tmp_path, *records, useless, rules=rules, options=ExportOptions(validation=share))
    assert summary.dropped["efficiency_only_cap"] == 1
    assert (summary.validation_questions, summary.validation_pairs) == (held_out, held_out)
    assert summary.pairs == questions


@pytest.mark.parametrize(
    ("steps", "held_out"), [((5, 2), {1}), ((5, 3, 4), {3, 6}), ((5,), {0}), ((5, 5), {10}), ((2,) * 9, {1})]
)
def test_validation_has_no_more_rows_than_training(steps: tuple[int, ...], held_out: set[int], tmp_path: Path) -> None:
    """Questions with so many steps, each two a pair. One with most of the rows is trained on, whatever the seed."""
    for seed in range(4):
        records = [
            siblings(*(query(f"who {step}", step / 9) for step in range(count)), question=f"q{number}?")
            for number, count in enumerate(steps)
        ]
        made = export(tmp_path, *records, rules=NO_FILTERS, options=ExportOptions(validation=0.05, seed=seed))
        assert made.validation_pairs in held_out


def test_the_seed_alone_decides_what_is_held_out(tmp_path: Path) -> None:
    """Not the order of questions, nor what else is exported; another seed holds out others. A larger share holds out
    the same and more, so that what was held out once is not trained on by asking for more."""
    records = [asked(number) for number in range(60)]

    def held_out(*given: RolloutRecord, seed: int, rules: PairingRules = DEFAULTS, share: float = 0.2) -> set[str]:
        export(tmp_path, *given, rules=rules, options=ExportOptions(validation=share, seed=seed))
        return {row["question_id"] for row in pairs(tmp_path, "validation")}

    first = held_out(*records, seed=1)
    assert len(first) == 12
    assert held_out(*records[::-1], seed=1) == first
    assert held_out(*records, seed=1, rules=NO_FILTERS) == first
    assert held_out(*records, seed=2) != first
    assert held_out(*records, seed=1, share=0.1) < first < held_out(*records, seed=1, share=0.5)


# -- flipped labels -----------------------------------------------------------------------------------------------


def flipped(out: Path, share: float, *, seed: int = 0, questions: int = 400) -> PairSummary:
    options = ExportOptions(("sft-chosen",), validation=0.1, flip=share, seed=seed)
    return export(out, *map(asked, range(questions)), options=options)


def test_a_share_of_the_training_pairs_is_flipped_and_nothing_else_changes(tmp_path: Path) -> None:
    """About that share, all or none at the ends; more noise flips the same pairs and more. Pairs are the same in the
    same order, and the validation part keeps its labels."""
    named: list[list[str]] = []
    marked: list[set[str]] = []
    held_out = set()
    for share in (0.0, 0.1, 0.5, 1.0):
        summary = flipped(tmp_path, share)
        warned = [each for each in summary.warnings if each.startswith("--flip")]
        said = f"sides of {summary.flipped} training pairs: sft-chosen.json holds their worse replies as targets"
        assert [each.endswith(said) for each in warned] == [True] * bool(share)
        named.append([row["pair_id"] for row in pairs(tmp_path)])
        marked.append({row["pair_id"] for row in pairs(tmp_path) if row["flipped"]})
        held_out.add((tmp_path / "RAG_ProGuide.validation.json").read_bytes())
        assert len(marked[-1]) == summary.flipped
        assert summary.flipped == pytest.approx(share * 360, abs=4 * (360 * share * (1 - share)) ** 0.5)
    assert named == [named[0]] * 4
    assert marked[0] < marked[1] < marked[2] < marked[3]
    assert len(held_out) == 1


def test_a_flipped_row_is_the_pair_with_its_sides_exchanged(tmp_path: Path) -> None:
    """Everything that is said of a side moves with it; what is said of the pair is told of it as it stands: the margin
    negated, the confidence of the opposite, gold passages that now disagree. Its name stays, so that it can be found
    among the candidates."""
    record = ada()
    nodes = [node.model_copy(update={"gold": {5: 1, 6: 0}.get(node.id)}) for node in record.nodes]
    record = record.model_copy(update={"nodes": nodes})
    export(tmp_path / "a", record)
    export(tmp_path / "b", record, options=ExportOptions(validation=0, flip=1.0))
    for before, after in zip(pairs(tmp_path / "a"), pairs(tmp_path / "b"), strict=True):
        assert (before.pop("flipped"), after.pop("flipped")) == (False, True)
        assert after.pop("margin") == -before.pop("margin")
        assert after.pop("confidence") == pytest.approx(1 - before.pop("confidence"))
        assert after.pop("gold") == {"right": "wrong", "unknown": "unknown"}[before.pop("gold")]
        exchanged = {_of_other_side(name): value for name, value in before.items()}
        assert after == exchanged


def _of_other_side(name: str) -> str:
    side, line, rest = name.partition("_")
    return {"chosen": "rejected", "rejected": "chosen"}.get(side, side) + line + rest


texts = st.sampled_from(["Who?", "who", "What is it?", "Where?"])
some_rules = st.builds(
    PairingRules,
    min_margin=st.sampled_from([0.0, 0.3]),
    min_confidence=st.sampled_from([0.0, 0.7]),
    max_efficiency_only=st.sampled_from([0.0, 0.1, 1.0]),
    max_style_only=st.sampled_from([0.0, 0.5, 1.0]),
    **{name: st.booleans() for name in NO_FILTERS.flags if name.startswith("allow_")},
)


@st.composite
def random_runs(draw: st.DrawFn) -> list[RolloutRecord]:
    return [
        draw(random_trees(question=draw(texts), question_id=str(number), config_hash=draw(st.sampled_from("ab"))))
        for number in range(draw(st.integers(0, 5)))
    ]


@example(records=[ada(question=f"{n}?", question_id=f"{n}") for n in range(4)], rules=DEFAULTS, validation=0.5, flip=0)
@given(
    records=random_runs(), rules=some_rules, validation=st.sampled_from([0, 0.05, 0.5]), flip=st.sampled_from([0, 0.5])
)
def test_kept_and_dropped_add_up_to_the_candidates(
    records: list[RolloutRecord], rules: PairingRules, validation: float, flip: float
) -> None:
    """Every candidate is counted exactly once; every kept one is a row of one part, every other one a line of
    `dropped.jsonl`; every question has a pair, a reason for having none, or failed. Shares of tags hold, and nothing of
    a question is in both parts."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        options = ExportOptions(("kto", "trl", "sft"), validation=validation, flip=flip)
        summary = export(out, *records, rules=rules, options=options)
        train = pairs(out)
        held_out = pairs(out, "validation") if validation else []
        dropped = rows(out / "dropped.jsonl")
        candidates = Counter(pair["pair_id"] for state in rows(out / "candidates.jsonl") for pair in state["pairs"])
        assert candidates == Counter(line["pair_id"] for line in (*train, *held_out, *dropped))
        assert summary.candidates == candidates.total() == summary.pairs + sum(summary.dropped.values())
        assert (summary.pairs, summary.validation_pairs) == (len(train) + len(held_out), len(held_out))
        assert Counter(line["reason"] for line in dropped) == Counter(
            {reason: count for reason, count in summary.dropped.items() if count}
        )
        assert summary.flipped == sum(row["flipped"] for row in train)
        for counts in (summary.pairs_by_action_type, summary.pairs_by_layer, summary.pairs_by_label):
            assert sum(counts.values()) == summary.pairs
        pairless = sum(summary.without_a_pair.values())
        assert summary.questions == summary.questions_with_a_pair + pairless + summary.failed_questions
        assert summary.files == {
            name: len(rows(out / name)) for name in contents(out) if name.partition(".")[0] in STEMS
        }
        assert summary.files["trl.jsonl"] == len(train)
        for tag, share in (("efficiency_only", rules.max_efficiency_only), ("style_only", rules.max_style_only)):
            assert summary.pairs_by_tag.get(tag, 0) <= share * summary.pairs + 1e-9
        keys = {record.question_id: question_key(record.question) for record in records}
        shown, hidden = (
            {keys[row["question_id"]] for name in ("RAG_ProGuide", "kto", "sft") for row in rows(out / f"{name}{part}")}
            for part in (".json", ".validation.json" if validation else ".json")
        )
        assert not validation or not shown & hidden


STEMS = {"RAG_ProGuide", "kto", "trl", "sft"}


# -- whole or not at all ------------------------------------------------------------------------------------------


def test_files_of_an_earlier_export_that_would_hold_other_pairs_are_removed(tmp_path: Path) -> None:
    """KTO rows and a validation part that this export did not write, and what a killed one left; what is not ours
    stays."""
    (tmp_path / ".sources-killed").mkdir()
    (tmp_path / "trl.jsonl").write_bytes(b"somebody's own\n")
    everything = ExportOptions(("kto", "sft"), validation=0.5)
    export(tmp_path, asked(1), asked(2), options=everything)
    assert {"kto.json", "kto.validation.json", "sft.validation.json", "RAG_ProGuide.validation.json"} <= set(
        contents(tmp_path)
    )
    export(tmp_path, asked(1), asked(2))
    assert {path.name for path in tmp_path.iterdir()} == FILES | {"trl.jsonl"}


@dataclass
class Objector:
    """Looks at every row and, if it is told to, raises at one."""

    at_row: int | None = None
    seen: list[tuple[Row, str, SplitName]] = field(default_factory=list)

    def __call__(self, row: Row, file: str, split: SplitName) -> None:
        self.seen.append((row, file, split))
        if len(self.seen) == self.at_row:
            raise PermissionError("no")


def test_an_inspector_sees_every_row_as_it_is_written(tmp_path: Path) -> None:
    """With its file and the part it goes to, and flipped where it is."""
    records = [asked(number) for number in range(20)]
    inspector = Objector()
    options = ExportOptions(validation=0.2, flip=0.5)
    put(candidates_in(tmp_path, *records), tmp_path, PairingRules(), options, inspect=inspector)
    for part, file in (("train", "RAG_ProGuide.json"), ("validation", "RAG_ProGuide.validation.json")):
        assert [row for row, *place in inspector.seen if place == [file, part]] == rows(tmp_path / file)


@pytest.mark.parametrize("objector", [Objector(at_row=1), Objector(at_row=2)])
def test_a_refused_export_leaves_the_earlier_one_as_it_was(objector: Objector, tmp_path: Path) -> None:
    """Every file, also those that the new one would have removed; and no others lie about."""
    export(tmp_path, asked(1), asked(2), options=ExportOptions(("kto", "sft", "trl"), validation=0.5))
    before = contents(tmp_path)
    for out in (tmp_path, tmp_path / "new"):
        with pytest.raises(PermissionError):
            put(tmp_path, out, NO_FILTERS, ExportOptions(("sft", "trl"), validation=0), inspect=objector)
        objector.seen.clear()
    assert (contents(tmp_path), list((tmp_path / "new").iterdir())) == (before, [])


def test_an_export_that_cannot_put_its_pairs_in_place_is_unfinished(tmp_path: Path) -> None:
    """A new summary beside pairs that it does not describe says so; the next export ends that."""
    export(tmp_path, ada())
    (tmp_path / "RAG_ProGuide.json").unlink()
    (tmp_path / "RAG_ProGuide.json").mkdir()
    with pytest.raises(OSError, match=r"RAG_ProGuide\.json"):
        put(tmp_path, tmp_path, NO_FILTERS, ALL_TO_TRAIN)
    assert is_unfinished(tmp_path)
    (tmp_path / "RAG_ProGuide.json").rmdir()
    put(tmp_path, tmp_path, NO_FILTERS, ALL_TO_TRAIN)
    assert not is_unfinished(tmp_path)


@pytest.mark.parametrize("summary", [b"", b"[]", b"{}", b'{"files": 3}', b'{"files": ["../../x", "candidates.jsonl"]}'])
def test_a_summary_that_somebody_broke_removes_nothing(summary: bytes, tmp_path: Path) -> None:
    """Only files of formats that it names are ever removed."""
    export(tmp_path, asked(1))
    (tmp_path / "kto.json").write_bytes(b"[]")
    (tmp_path / "summary.json").write_bytes(summary)
    put(tmp_path, tmp_path, PairingRules(), ALL_TO_TRAIN)
    assert set(contents(tmp_path)) == FILES | {"kto.json"}


def test_memory_does_not_grow_with_the_data_set(tmp_path: Path) -> None:
    """Four times the questions, each with replies of 100 kB, need no more memory at once."""

    def peak(questions: int) -> int:
        out = tmp_path / str(questions)
        candidates_in(out, *_long(questions))
        tracemalloc.start()
        put(out, out, NO_FILTERS, ExportOptions(("kto", "trl"), validation=0.1))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(2)  # what is loaded once
    assert peak(40) < 1.5 * peak(10)


def _long(questions: int) -> Iterator[RolloutRecord]:
    for number in range(questions):
        record = asked(number)
        nodes = [node.model_copy(update={"response": f"{node.response} {'x' * 100_000}"}) for node in record.nodes]
        yield record.model_copy(update={"nodes": nodes})
