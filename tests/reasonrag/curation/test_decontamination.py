"""The gate of `pairs`: questions that stand in an evaluation split are left out, told, and can be let in by name."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest

import reasonrag as package
from preference import PairSummary
from preference.candidate_records import Origin, QuestionRecord
from reasonrag.curation.decontamination import CONTAMINATION, decontaminate, find_contaminated
from reasonrag.data.eval_splits import EvalSplits, open_split
from tests.helpers.command_line import Reasonrag
from tests.helpers.jsonl import write_rows
from tests.helpers.trees import rows as lines

NO_SPLIT = "no evaluation split was available"


def put(path: Path, *records: dict[str, Any]) -> Path:
    return write_rows(path, records)


def data_set(folder: Path, *questions: tuple[str, list[str]], **origin: str | None) -> Path:
    records = [
        QuestionRecord(
            question_id=f"q{number}",
            question=question,
            golden_answers=answers,
            origin=Origin.model_validate({"dataset": "mine", "split": "train"} | origin),
        )
        for number, (question, answers) in enumerate(questions)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "questions.jsonl").write_bytes(b"".join(each.to_line() for each in records))
    return folder


@pytest.fixture
def with_pairs(run: Path, tmp_path: Path) -> list[dict[str, Any]]:
    """Questions of the run that have a pair, in FlashRAG's format, two at least."""
    package.pairs(str(run), out=str(tmp_path / "all"))
    rows = orjson.loads((tmp_path / "all" / "RAG_ProGuide.json").read_bytes())
    found = {each["question_id"]: each for each in rows}
    asked = [
        {"id": f"e{number}", "question": each["question"], "golden_answers": each["golden_answers"]}
        for number, each in enumerate(found.values())
    ]
    assert len(asked) > 1
    return asked


# -- end to end ------------------------------------------------------------------------------------------------


def test_what_lies_beside_the_data_of_a_run_is_looked_at_without_being_told(run: Path, tmp_path: Path) -> None:
    """On by default: dev and test of atlas, none of whose questions are in its train split."""
    summary = package.pairs(str(run), out=str(tmp_path / "data"))
    checked = summary.contamination["checked"]
    assert [each["name"] for each in checked] == ["atlas/dev", "atlas/test"]
    assert all(each["questions"] and len(each["sha256"]) == 64 and Path(each["path"]).is_file() for each in checked)
    assert (summary.contamination["questions"], summary.warnings) == (0, [])
    assert (tmp_path / "data" / CONTAMINATION).read_bytes() == b""


def test_a_question_that_stands_in_an_evaluation_split_is_left_out_with_all_its_candidates(
    run: Path, with_pairs: list[dict[str, Any]], tmp_path: Path, reasonrag: Reasonrag
) -> None:
    """Counted as contaminated, told in contamination.jsonl, in no file of rows; the others stay as they were."""
    found = with_pairs[0] | {"question": with_pairs[0]["question"].upper() + "!"}
    put(tmp_path / "eval" / "nq" / "dev.jsonl", {"id": "x", "question": "Who else?"}, found)
    out = tmp_path / "data"
    done = reasonrag("pairs", run, "--out", out, "--eval", tmp_path / "eval", "--format", "sft", "--json")
    assert done.status == 0, done.err
    summary = PairSummary.model_validate_json(done.out)
    contamination = summary.contamination
    assert (contamination["matched_by_split"], contamination["dropped"]) == ({"nq/dev": 1}, 1)
    assert summary.dropped["contaminated"] > 0
    assert "removed 1 question found in evaluation splits (nq/dev 1)" in " ".join(summary.warnings)
    (line,) = lines(out / CONTAMINATION)
    assert line["dropped"] is True
    assert line["matches"] == [
        {"rule": "question", "eval": "nq/dev", "eval_id": "e0", "similarity": 1.0, "own_split": False}
    ]
    written = b"".join(each.read_bytes() for each in out.glob("RAG_ProGuide*")) + (out / "sft.json").read_bytes()
    text = orjson.dumps(with_pairs[0]["question"])[1:-1]
    assert text not in written
    assert orjson.dumps(with_pairs[1]["question"])[1:-1] in written
    dropped = {each["question_id"] for each in lines(out / "dropped.jsonl") if each["reason"] == "contaminated"}
    assert dropped == {line["question_id"]}


def test_a_split_can_be_let_in_by_name_and_a_wrong_name_is_told(
    run: Path, with_pairs: list[dict[str, Any]], tmp_path: Path, reasonrag: Reasonrag
) -> None:
    """--allow-eval keeps questions of that split only; what was found is recorded all the same."""
    put(tmp_path / "eval" / "nq" / "dev.jsonl", with_pairs[0])
    put(tmp_path / "eval" / "nq" / "test.jsonl", with_pairs[1])
    command = ("pairs", run, "--out", tmp_path / "data", "--eval", tmp_path / "eval")
    wrong = reasonrag(*command, "--allow-eval", "nq/dve")
    assert wrong.status == 2
    assert "did you mean 'nq/dev'? choose from all, atlas/dev, atlas/test, nq/dev, nq/test" in wrong.err
    left = {}
    for names in ((), ("nq/dev",), ("nq/dev", "nq/test"), ("all",)):
        done = reasonrag(*command, *(word for name in names for word in ("--allow-eval", name)), "--json")
        contamination = orjson.loads(done.out)["contamination"]
        assert (contamination["questions"], contamination["allowed"]) == (2, sorted(names))
        left[names] = contamination["kept"], contamination["dropped"]
    assert left == {(): (0, 2), ("nq/dev",): (1, 1), ("nq/dev", "nq/test"): (2, 0), ("all",): (2, 0)}
    assert any("kept 2" in each for each in orjson.loads(done.out)["warnings"])


def test_a_data_set_is_checked_again_when_it_is_exported_again(
    run: Path, with_pairs: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Against the same files without naming them; what is gone is told, with what to do."""
    file = put(tmp_path / "eval" / "nq" / "dev.jsonl", with_pairs[0])
    package.pairs(str(run), out=str(tmp_path / "first"), eval=[str(file)])
    again = package.pairs(str(tmp_path / "first"), out=str(tmp_path / "second"))
    assert again.contamination["matched_by_split"] == {"nq/dev": 1}
    assert len(again.contamination["checked"]) == 3
    in_place = package.pairs(str(tmp_path / "second"), out=str(tmp_path / "second"), min_margin=0.3)
    assert in_place.contamination == again.contamination
    file.write_text("{}")
    broken = package.pairs(str(tmp_path / "second"), out=str(tmp_path / "fourth"), allow_eval=["nq/dev"])
    [why] = [each["reason"] for each in broken.contamination["unchecked"]]
    assert why.startswith("dev.jsonl, row 1 is not a question"), "publish shows it, so it has no path"
    file.unlink()
    gone = package.pairs(str(tmp_path / "second"), out=str(tmp_path / "third"))
    assert [(each["name"], each["reason"]) for each in gone.contamination["unchecked"]] == [
        ("nq/dev", "the file is gone")
    ]
    assert any("not checked against nq/dev" in each and "--eval FILE" in each for each in gone.warnings)
    put(file, with_pairs[0])
    assert package.pairs(str(tmp_path / "third"), out=str(tmp_path / "third")).contamination["dropped"] == 1


def test_a_data_set_that_was_compared_with_nothing_says_so(run: Path, tmp_path: Path, reasonrag: Reasonrag) -> None:
    """Rollouts alone know no evaluation split."""
    shutil.copy(run / "rollouts.jsonl", tmp_path / "rollouts.jsonl")
    done = reasonrag("pairs", tmp_path / "rollouts.jsonl", "--out", tmp_path / "data")
    assert done.status == 0
    assert f"warning: {NO_SPLIT}" in done.err
    assert "give --eval FILE" in done.err


# -- the published problem -------------------------------------------------------------------------------------


def test_popqa_has_only_a_test_split(shared_data: Path, tmp_path: Path, reasonrag: Reasonrag) -> None:
    """Drawn from popqa/test: made, told and recorded. A question that a data set beside it evaluates on is left out."""
    home = tmp_path / "data" / "popqa"
    home.mkdir(parents=True)
    (home / "corpus.jsonl").symlink_to(shared_data / "popqa" / "corpus.jsonl")
    (home / "test.jsonl").symlink_to(shared_data / "popqa" / "dev.jsonl")
    put(tmp_path / "data" / "other" / "dev.jsonl", lines(home / "test.jsonl")[1])
    asked = ("--dataset", "popqa", "--split", "test", "--data-dir", tmp_path / "data", "--limit", 2)
    assert reasonrag("generate", "--model", "offline", *asked, "--run", "drawn").status == 0
    drawn = package.pairs("drawn", out="of_its_own")
    assert [each["name"] for each in drawn.contamination["checked"]] == ["other/dev", "popqa/test"]
    assert (drawn.contamination["own_split"], drawn.contamination["dropped"]) == ({"popqa/test": 2}, 1)
    assert drawn.contamination["matched_by_split"] == {"other/dev": 1}
    assert any("made of popqa/test questions" in each for each in drawn.warnings)
    assert len(lines(Path("of_its_own") / CONTAMINATION)) == 2


def test_real_training_questions_are_not_flagged_by_chance(shared_data: Path, tmp_path: Path) -> None:
    """Train against dev of three data sets and two more test sets: 899 questions, 1,558 others, no pair is the same."""
    asked = [
        (each["question"], each["golden_answers"])
        for name in ("hotpotqa", "2wikimultihopqa", "musique")
        for each in lines(shared_data / name / "train.jsonl")
    ]
    names = ("hotpotqa", "2wikimultihopqa", "musique", "popqa", "bamboogle")
    splits = [open_split(shared_data / name / "dev.jsonl") for name in names]
    assert find_contaminated(data_set(tmp_path, *asked), splits) == []


# -- what the gate decides -------------------------------------------------------------------------------------


def splits_of(*files: Path) -> EvalSplits:
    splits = EvalSplits()
    for file in files:
        splits.add(open_split(file))
    return splits


def test_questions_of_several_runs_are_told_once_in_their_order(tmp_path: Path) -> None:
    asked = [("Who shot Bo Ek?", ["Ann Lee"]), ("Who wrote Up?", []), ("Who is Bo Ek?", []), ("Who sang Down?", [])]
    one = data_set(tmp_path / "one", *asked)
    made = data_set(tmp_path / "two", *asked)
    (made / "questions.jsonl").write_bytes(2 * (one / "questions.jsonl").read_bytes())
    found = {"id": "1", "question": "Bo Ek was shot by whom?", "golden_answers": ["Ann Lee"]}
    again = {"id": "2", "question": "who sang down", "golden_answers": []}
    splits = [open_split(put(tmp_path / name / "dev.jsonl", found, again)) for name in ("a", "b")]
    whole = find_contaminated(made, splits)
    assert [(each.question_id, len(each.matches)) for each in whole] == [("q0", 2), ("q3", 2)]


def test_the_order_of_evaluation_splits_does_not_matter(tmp_path: Path) -> None:
    """Each is compared by itself, and the nearest question of each is told."""
    made = data_set(tmp_path, ("Who shot Bo Ek?", ["Ann Lee"]), ("Who wrote Up?", []))
    files = [
        put(
            tmp_path / "a" / "dev.jsonl",
            {"id": "1", "question": "Bo Ek was shot by whom?", "golden_answers": ["Ann Lee"]},
        ),
        put(
            tmp_path / "b" / "dev.jsonl",
            {"id": "2", "question": "who wrote up"},
            {"id": "1", "question": "Who wrote Up"},
        ),
        put(tmp_path / "c" / "test.jsonl", {"question": "Who shot Bo Ek"}, {"question": "Who shot Ann Lee?"}),
    ]
    expected = decontaminate(made, splits_of(*files))
    assert [[match.eval for match in each.matches] for each in expected.flagged] == [["a/dev", "c/test"], ["b/dev"]]
    assert expected.flagged[1].matches[0].eval_id == "1"
    for order in itertools.permutations(files):
        assert decontaminate(made, splits_of(*order)) == expected


def test_the_own_split_is_told_but_shuts_nobody_out(tmp_path: Path) -> None:
    """By its name; a split that is not its own does, and so does a copy of it under another name."""
    made = data_set(tmp_path, ("Who wrote Up?", []), dataset="popqa", split="test")
    asked = {"id": "1", "question": "Who wrote Up?"}
    own, copy = (put(tmp_path / name / "test.jsonl", asked) for name in ("popqa", "copy"))
    alone, both = decontaminate(made, splits_of(own)), decontaminate(made, splits_of(own, copy))
    assert (alone.contaminated, alone.summary.own_split, alone.summary.questions) == (frozenset(), {"popqa/test": 1}, 0)
    assert (len(both.contaminated), both.summary.matched_by_split) == (1, {"copy/test": 1})
    allowed = decontaminate(made, splits_of(own, copy), allowed=["copy/test", "popqa/test"])
    assert (allowed.contaminated, allowed.summary.kept) == (frozenset(), 1)


@pytest.mark.parametrize(("name", "own"), [("popqa/test", True), ("nq/train", False)])
def test_a_file_of_questions_is_its_own_split_whatever_it_is_called(tmp_path: Path, name: str, own: bool) -> None:
    """`generate --questions popqa/test.jsonl` knows no split; the hash of the file tells, and a warning says it. A file
    called train that is given as an evaluation split is one."""
    file = put(tmp_path / f"{name}.jsonl", {"id": "1", "question": "Who wrote Up?"})
    revision = open_split(file).sha256 if own else None
    made = data_set(tmp_path, ("Who wrote Up?", ["Ann"]), dataset="nq", split="train", revision=revision)
    found = decontaminate(made, splits_of(file))
    assert (len(found.contaminated), found.summary.own_split) == ((0, {name: 1}) if own else (1, {}))
    assert (f"1 question from {name} itself" in " ".join(found.warnings)) is own
