"""Pairs as files: rows, their description for the trainer, the summary; whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from preference import PairingRules, RolloutRecord, export_pairs

VERSIONS = {"reasonrag": "0.0.0"}

PROGUIDE_FIELDS = [
    "instruction",
    "input",
    "prompt",
    "chosen",
    "rejected",
    "chosen_action_type",
    "chosen_content",
    "rejected_action_type",
    "rejected_content",
    "layer",
]

THINK = "Think, then ask or answer."
READ = "Extract what is relevant."
QUESTION = "Were Ada Lovelace and Émile Zola born in the same country?"
THOUGHTS = f"Question: {QUESTION}\nPrevious Thoughts: So the next query is <query>Ada Lovelace birthplace</query>"


def prompt(system: str, user: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def record(nodes: list[dict[str, Any]], **fields: Any) -> RolloutRecord:
    return RolloutRecord.model_validate(
        {
            "question_id": "q1",
            "question": QUESTION,
            "golden_answers": ["no"],
            "dataset": "toy",
            "split": "train",
            "config_hash": "0f1e",
            "seed": 7,
            "recipe": {"name": "paper", "alpha": 0.9, "margin_by_layer": True},
            "usage": {},
            "nodes": nodes,
        }
        | fields
    )


def tree(**fields: Any) -> RolloutRecord:
    """A query (one path right, one wrong) before two guesses and an unparsed reply; evidence before none."""
    first = prompt(THINK, f"Question: {QUESTION}")
    passage = "<reference>Wikipedia Title: Ada Lovelace\nBorn in London.\n\n</reference>"
    second = prompt(READ, f"{THOUGHTS}. Reference: {passage}")
    steps: list[dict[str, Any]] = [
        {
            "parent_id": 0,
            "children_ids": [5, 6],
            "layer": 0,
            "prompt": first,
            "response": "So the next query is <query>Ada Lovelace birthplace</query>",
            "action_type": "query",
            "content": "Ada Lovelace birthplace",
            "reward": 0.3645,
            "rollouts": [{"f1": 1.0, "em": 1.0, "steps": 3}, {"f1": 0.0, "em": 0.0, "steps": 3}],
        },
        {
            "parent_id": 0,
            "layer": 0,
            "prompt": first,
            "response": "So the answer is <answer>no</answer>",
            "action_type": "answer",
            "content": "no",
            "terminal": True,
            "reward": 0.9,
            "rollouts": [{"f1": 1.0, "em": 1.0, "steps": 1}],
        },
        {
            "parent_id": 0,
            "layer": 0,
            "prompt": first,
            "response": "So the answer is <answer>yes</answer>",
            "action_type": "answer",
            "content": "yes",
            "terminal": True,
            "reward": 0.0,
            "rollouts": [{"f1": 0.0, "em": 0.0, "steps": 1}],
        },
        {
            "parent_id": 0,
            "layer": 0,
            "prompt": first,
            "response": "I would rather not say.",
            "terminal": True,
            "parse_error": {"cause": "no_tag", "detail": "neither <query> nor <answer>"},
            "reward": 0.0,
            "rollouts": [{"f1": 0.0, "em": 0.0, "steps": 1}],
        },
        {
            "parent_id": 1,
            "layer": 1,
            "prompt": second,
            "response": "<evidence>Born in London.</evidence>",
            "action_type": "evidence",
            "content": "Born in London.",
            "grounded": True,
            "reward": 0.729,
            "rollouts": [{"f1": 1.0, "em": 1.0, "steps": 3}],
            "observations": 1,
        },
        {
            "parent_id": 1,
            "layer": 1,
            "prompt": second,
            "response": "<evidence>None</evidence>",
            "action_type": "evidence",
            "content": "None",
            "grounded": False,
            "reward": 0.0,
            "rollouts": [{"f1": 0.0, "em": 0.0, "steps": 3}],
        },
    ]
    root = {"id": 0, "parent_id": None, "children_ids": [1, 2, 3, 4], "layer": None}
    return record([root, *({"id": i, "children_ids": []} | step for i, step in enumerate(steps, start=1))], **fields)


def failure() -> RolloutRecord:
    return record([], question_id="q2", error={"cause": "timeout", "message": "no answer after 600 s"})


def rows(out: Path) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = json.loads((out / "RAG_ProGuide.json").read_bytes())
    return content


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# -- rows ---------------------------------------------------------------------------------------------------------


def test_an_export_is_recorded_whole(tmp_path: Path, golden: Callable[[str, bytes], None]) -> None:
    """The pairs of one tree as RAG_ProGuide rows, to the byte."""
    export_pairs([tree()], tmp_path, PairingRules(), versions=VERSIONS)
    golden("RAG_ProGuide.json", (tmp_path / "RAG_ProGuide.json").read_bytes())


def test_a_row_begins_with_the_ten_fields_of_rag_proguide(tmp_path: Path) -> None:
    """In its order and spelling; ours follow. The prompt is system and user turn under their names."""
    export_pairs([tree()], tmp_path, PairingRules(), versions=VERSIONS)
    for row in rows(tmp_path):
        assert list(row)[:10] == PROGUIDE_FIELDS
        assert row["prompt"] == f"System: {row['instruction']}\nUser: {row['input']}"
    (best, *_) = rows(tmp_path)
    assert {field: best[field] for field in PROGUIDE_FIELDS} == {
        "instruction": THINK,
        "input": f"Question: {QUESTION}",
        "prompt": f"System: {THINK}\nUser: Question: {QUESTION}",
        "chosen": "So the answer is <answer>no</answer>",
        "rejected": "So the answer is <answer>yes</answer>",
        "chosen_action_type": "Answer Generation",
        "chosen_content": "no",
        "rejected_action_type": "Answer Generation",
        "rejected_content": "yes",
        "layer": 0,
    }


def test_every_row_says_where_it_comes_from_and_why(tmp_path: Path) -> None:
    """Question, data set, split, recipe, configuration; both steps with rewards and numbers of continuations."""
    export_pairs([tree()], tmp_path, PairingRules(), versions=VERSIONS)
    row = rows(tmp_path)[-1]
    assert {field: row[field] for field in row if field not in PROGUIDE_FIELDS} == {
        "question_id": "q1",
        "dataset": "toy",
        "split": "train",
        "recipe": "paper",
        "reward": None,
        "chosen_id": 5,
        "rejected_id": 6,
        "chosen_reward": 0.729,
        "rejected_reward": 0.0,
        "margin": pytest.approx(0.81),
        "confidence": pytest.approx(0.88, abs=0.01),  # of a draw of Beta(1.4, .6) against one of Beta(.5, 1.5)
        "tags": [],
        "chosen_grounded": True,
        "rejected_grounded": False,
        "chosen_gold": None,
        "rejected_gold": None,
        "chosen_rollouts": 1,
        "rejected_rollouts": 1,
        "chosen_observations": 1,
        "rejected_observations": None,
        "config_hash": "0f1e",
    }


def test_a_malformed_rejected_step_is_of_type_other_without_content(tmp_path: Path) -> None:
    """Where the user allows it, the reply stands whole on the rejected side; chosen is never one."""
    rules = PairingRules(allow_malformed=True, max_pairs_per_state=None)
    export_pairs([tree()], tmp_path, rules, versions=VERSIONS)
    others = [row for row in rows(tmp_path) if row["rejected_action_type"] == "Other"]
    assert [(row["chosen_content"], row["rejected"], row["rejected_content"]) for row in others] == [
        ("no", "I would rather not say.", ""),
        ("Ada Lovelace birthplace", "I would rather not say.", ""),
    ]
    assert all(row["chosen_action_type"] != "Other" for row in rows(tmp_path))


def test_rows_stand_in_the_order_of_rollouts(tmp_path: Path) -> None:
    """Question by question as they were read, so the same rollouts give the same file."""
    records = [tree(question_id=name) for name in ("b", "a", "c")]
    export_pairs(records, tmp_path, PairingRules(), versions=VERSIONS)
    asked = [row["question_id"] for row in rows(tmp_path)]
    assert asked == sorted(asked, key="bac".index)
    before = contents(tmp_path)
    export_pairs(records, tmp_path, PairingRules(), versions=VERSIONS)
    assert contents(tmp_path) == before


def test_the_file_has_one_row_a_line(tmp_path: Path) -> None:
    """A JSON list that can also be read by line, or compared by diff."""
    export_pairs([tree()], tmp_path, PairingRules(), versions=VERSIONS)
    first, *lines, last = (tmp_path / "RAG_ProGuide.json").read_text().splitlines()
    assert (first, last) == ("[", "]")
    assert [json.loads(line.removesuffix(",")) for line in lines] == rows(tmp_path)


def test_no_rollouts_make_an_empty_list(tmp_path: Path) -> None:
    """Still three whole files: an empty JSON list, its description, and a summary of zeros."""
    summary = export_pairs([], tmp_path, PairingRules(), versions=VERSIONS)
    assert (tmp_path / "RAG_ProGuide.json").read_bytes() == b"[]\n"
    assert (summary.questions, summary.candidates, summary.pairs) == (0, 0, 0)
    assert set(contents(tmp_path)) == {"RAG_ProGuide.json", "dataset_info.json", "summary.json"}


# -- what stands beside the rows ----------------------------------------------------------------------------------


def test_the_trainer_is_told_which_column_is_which(tmp_path: Path) -> None:
    """system is the instruction and prompt the user turn; anything else would glue one into the other."""
    export_pairs([tree()], tmp_path, PairingRules(), versions=VERSIONS)
    assert json.loads((tmp_path / "dataset_info.json").read_bytes()) == {
        "rag_proguide": {
            "file_name": "RAG_ProGuide.json",
            "ranking": True,
            "columns": {"system": "instruction", "prompt": "input", "chosen": "chosen", "rejected": "rejected"},
        }
    }


def test_the_summary_counts_what_was_kept_and_what_was_left_out(tmp_path: Path) -> None:
    """Two questions, one failed. Layer 0: six candidates, three malformed; no > yes (.9) and no > query (.5355) are the
    surest two and are kept, query > yes is not. Layer 1: one. They are sure to .905, .81 and .88."""
    rules = PairingRules(min_margin=0.02, min_confidence=0.6, max_pairs_per_state=2)
    summary = export_pairs([tree(), failure()], tmp_path, rules, versions=VERSIONS)
    assert summary.model_dump() == {
        "out": str(tmp_path),
        "questions": 2,
        "failed_questions": 1,
        "questions_with_a_pair": 1,
        "without_a_pair": {},
        "candidates": 7,
        "pairs": 3,
        "pairs_by_action_type": {"Answer Generation": 2, "Evidence Extraction": 1},
        "pairs_by_layer": {"0": 2, "1": 1},
        "pairs_by_tag": {},
        "mean_confidence": pytest.approx(0.865, abs=0.005),
        "same_type_pairs": 2,
        "gold_agreement": {},
        "dropped": {
            "malformed": 3,
            "unvalued": 0,
            "same_content": 0,
            "small_margin": 0,
            "uncertain": 0,
            "not_surest": 1,
        },
        "recipes": ["paper"],
        "splits": ["toy/train"],
        "rules": {"min_margin": 0.02, "min_confidence": 0.6, "max_pairs_per_state": 2, "allow_malformed": False},
        "versions": VERSIONS,
        "warnings": [],
    }
    assert json.loads((tmp_path / "summary.json").read_bytes()) == summary.model_dump()


def test_the_summary_counts_how_often_gold_passages_agree(tmp_path: Path) -> None:
    """By action type, over pairs of two queries or two pieces of evidence; a type without any is not named."""

    def with_gold(*, chosen: int, rejected: int) -> RolloutRecord:
        whole = tree()
        gold = {5: chosen, 6: rejected}
        nodes = [node.model_copy(update={"gold": gold.get(node.id)}) for node in whole.nodes]
        return whole.model_copy(update={"nodes": nodes, "gold_passages": ["Ada Lovelace"]})

    counts = [(1, 0), (2, 1), (0, 1), (0, 0)]
    records = [with_gold(chosen=chosen, rejected=rejected) for chosen, rejected in counts]
    summary = export_pairs([tree(), *records], tmp_path, PairingRules(), versions=VERSIONS)
    agreement = {name: each.model_dump() for name, each in summary.gold_agreement.items()}
    assert agreement == {"Evidence Extraction": {"right": 2, "wrong": 1, "ties": 1}}
    evidence = [row for row in rows(tmp_path) if row["chosen_action_type"] == "Evidence Extraction"]
    assert [(row["chosen_gold"], row["rejected_gold"]) for row in evidence] == [(None, None), *counts]


@pytest.mark.parametrize("allow_malformed", [False, True])
@pytest.mark.parametrize("most", [1, 3, None])
@pytest.mark.parametrize(("min_margin", "min_confidence"), [(0.0, 0.0), (0.5, 0.5), (0.0, 0.9), (2.0, 0.0)])
def test_kept_and_dropped_add_up_to_the_candidates(
    *, allow_malformed: bool, most: int | None, min_margin: float, min_confidence: float, tmp_path: Path
) -> None:
    """Every candidate is counted exactly once, and every kept one is a row."""
    rules = PairingRules(min_margin, min_confidence, most, allow_malformed)
    summary = export_pairs([tree(), failure(), tree(question_id="q3")], tmp_path, rules, versions=VERSIONS)
    assert summary.candidates == 2 * (6 + 1) == summary.pairs + sum(summary.dropped.values())
    assert summary.pairs == len(rows(tmp_path)) == sum(summary.pairs_by_layer.values())
    assert summary.pairs == sum(summary.pairs_by_action_type.values())


def test_the_summary_names_every_recipe_and_split(tmp_path: Path) -> None:
    """So that a mixture of runs is seen."""
    released = {"name": "released", "alpha": 0.9, "margin_by_layer": False}
    records = [tree(split="dev"), tree(recipe=released, dataset="other"), tree()]
    summary = export_pairs(records, tmp_path, PairingRules(), versions=VERSIONS)
    assert summary.recipes == ["paper", "released"]
    assert summary.splits == ["other/train", "toy/dev", "toy/train"]


def test_a_failed_question_that_was_explored_after_all_counts_once(tmp_path: Path) -> None:
    """An unfinished run may hold an error line and, below it, the tree of the same question."""
    summary = export_pairs([failure(), tree(question_id="q2")], tmp_path, PairingRules(), versions=VERSIONS)
    assert (summary.questions, summary.failed_questions) == (1, 0)


@pytest.mark.parametrize(
    ("records", "warnings"),
    [
        ([], ["no pair was made"]),
        ([failure()], ["no pair was made"]),
        ([tree(split="dev")], ["made of toy/dev questions: keep these pairs out of training"]),
        ([tree()], []),
    ],
)
def test_an_export_warns_of_what_would_be_regretted(
    records: list[RolloutRecord], warnings: list[str], tmp_path: Path
) -> None:
    """Pairs of evaluation questions, and no pairs at all."""
    summary = export_pairs(records, tmp_path, PairingRules(), versions=VERSIONS)
    assert len(summary.warnings) == len(warnings)
    assert all(said.startswith(expected) for said, expected in zip(summary.warnings, warnings, strict=True))


# -- whole or not at all ------------------------------------------------------------------------------------------


def broken_after(records: list[RolloutRecord], error: BaseException) -> Iterator[RolloutRecord]:
    yield from records
    raise error


@pytest.mark.parametrize("error", [ValueError("line 2 is torn"), OSError("gone"), KeyboardInterrupt()])
def test_a_failed_export_leaves_the_earlier_one_as_it_was(error: BaseException, tmp_path: Path) -> None:
    """When reading stops half-way, the files of the last good export stay, and no others lie about."""
    export_pairs([tree()], tmp_path, PairingRules(), versions=VERSIONS)
    before = contents(tmp_path)
    with pytest.raises(type(error)):
        export_pairs(broken_after([tree(), tree()], error), tmp_path, PairingRules(), versions={})
    assert contents(tmp_path) == before


def test_a_failed_first_export_leaves_nothing(tmp_path: Path) -> None:
    """No half a list, no temporary file: nothing that could be taken for an export."""
    out = tmp_path / "new" / "pairs"
    with pytest.raises(ValueError, match="torn"):
        export_pairs(broken_after([tree()], ValueError("torn")), out, PairingRules(), versions=VERSIONS)
    assert list(out.iterdir()) == []


def test_an_export_that_cannot_write_its_pairs_writes_no_summary(tmp_path: Path) -> None:
    """A new summary never stands beside pairs it does not describe."""
    export_pairs([tree()], tmp_path, PairingRules(), versions=VERSIONS)
    (tmp_path / "RAG_ProGuide.json").unlink()
    (tmp_path / "RAG_ProGuide.json").mkdir()
    before = (tmp_path / "summary.json").read_bytes()
    with pytest.raises(OSError, match=r"RAG_ProGuide\.json"):
        export_pairs([tree(), tree()], tmp_path, PairingRules(), versions=VERSIONS)
    assert (tmp_path / "summary.json").read_bytes() == before


def test_a_step_without_its_two_turns_stops_the_export(tmp_path: Path) -> None:
    """A row without a prompt would train on nothing; it is an error, and no file appears."""
    whole = tree()
    bare = [node.model_copy(update={"prompt": None}) for node in whole.nodes]
    with pytest.raises(ValueError, match="one system turn and one user turn"):
        export_pairs([whole.model_copy(update={"nodes": bare})], tmp_path, PairingRules(), versions=VERSIONS)
    assert list(tmp_path.iterdir()) == []


def test_rows_are_written_while_rollouts_are_read(tmp_path: Path) -> None:
    """Memory does not grow with the run: with long replies, what is on disk grows between one record and the next."""
    written: list[int] = []

    def records() -> Iterator[RolloutRecord]:
        for number in range(5):
            written.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
            long = tree(question_id=f"q{number}")
            nodes = [node.model_copy(update={"response": f"{node.response} {'x' * 200_000}"}) for node in long.nodes]
            yield long.model_copy(update={"nodes": nodes})

    export_pairs(records(), tmp_path, PairingRules(), versions=VERSIONS)
    growth = [after - before for before, after in pairwise(written)]
    assert len(growth) == 4
    assert all(each > 200_000 for each in growth)
