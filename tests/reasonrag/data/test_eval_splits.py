"""Which files count as evaluation splits, what they are called, what is said of bad ones, and PopQA's two parts."""

from __future__ import annotations

import random
from pathlib import Path

import orjson
import pytest

from reasonrag.data.datasets import find_questions
from reasonrag.data.eval_splits import EvalSplits, add_named, add_referenced, open_split
from reasonrag.data.popqa_partition import WHOLE
from reasonrag.errors import InputError
from tests.helpers.command_line import Reasonrag
from tests.helpers.jsonl import write_rows

QUESTION = b'{"id": "q1", "question": "Who wrote it?", "golden_answers": ["Ada"]}\n'


def put(path: Path, content: bytes = QUESTION) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def names(*given: str | Path) -> list[str]:
    splits = EvalSplits()
    add_named(splits, map(str, given))
    return [each.name for each in splits.found]


def referenced(*runs: Path, allowed: tuple[str, ...] = ()) -> EvalSplits:
    add_referenced(splits := EvalSplits(), runs, allowed=allowed)
    return splits


def test_of_a_folder_every_split_but_train_counts(tmp_path: Path) -> None:
    """<dataset>/<split>.jsonl, whatever the splits are called; corpora, runs and other files are none."""
    for name in ("nq/train", "nq/dev", "nq/hard_ones", "musique/test", ".cache/dev"):
        put(tmp_path / f"{name}.jsonl")
    put(tmp_path / "nq" / "corpus.jsonl", b'{"id": "1", "contents": "a\\nb"}\n')
    put(tmp_path / "run" / "rollouts.jsonl", b'{"schema_version": "x", "question": "Who?"}\n')
    assert names(tmp_path) == ["musique/test", "nq/dev", "nq/hard_ones"]
    assert names(tmp_path / "nq") == ["nq/dev", "nq/hard_ones"]


def test_a_file_is_called_by_its_folder_and_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from where it lies, through a link, and by a name with train in it, if somebody insists."""
    file = put(tmp_path / "popqa" / "test.jsonl")
    monkeypatch.chdir(file.parent)
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "dev.jsonl").symlink_to(file)
    assert names("test.jsonl") == ["popqa/test"]
    assert names("../link/dev.jsonl") == ["link/dev"]
    assert names(put(tmp_path / "mine" / "train.jsonl")) == ["mine/train"]


def test_a_file_that_is_given_twice_counts_once(tmp_path: Path) -> None:
    """By name and content: two files of one name and other content are both compared."""
    file, other = put(tmp_path / "a" / "nq" / "dev.jsonl"), put(tmp_path / "b" / "nq" / "dev.jsonl", QUESTION * 2)
    assert names(file, file.parent, file) == ["nq/dev"]
    assert names(file, other) == ["nq/dev", "nq/dev"]


@pytest.mark.parametrize(
    ("record", "answers"),
    [
        ({"question": "Who?"}, ()),
        ({"question": "Who?", "golden_answers": "[Ada]", "context": "[1] Ada."}, ()),
        ({"question": "Who?", "golden_answers": [1, "Ada", None, {}]}, ("1", "Ada")),
        ({"question": "Who?", "golden_answers": [1], "choices": ["Ada", "Bo"]}, ("Bo",)),
        ({"question": "", "golden_answers": []}, ()),
    ],
)
def test_a_line_needs_no_more_than_a_question(
    tmp_path: Path, record: dict[str, object], answers: tuple[str, ...]
) -> None:
    """Test splits keep their answers secret; a line without an id is called by its number."""
    split = open_split(put(tmp_path / "nq" / "test.jsonl", orjson.dumps(record)))
    assert [(each.id, each.answers) for each in split.read()] == [("1", answers)]
    assert [each.question for each in split.read()] == [
        "Who? Options: (A) Ada (B) Bo" if answers == ("Bo",) else record["question"]  # as it is asked and trained on
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("dev.json", b'[{"id": "m", "question": "Who?", "answer": "Ada", "answerable": false}]'),
        ("test.jsonl", b'{"_id": "m", "text": "Who?", "metadata": {}}\n'),
    ],
)
def test_a_split_is_read_in_the_forms_in_which_it_is_published(name: str, content: bytes, tmp_path: Path) -> None:
    """As `--questions` reads them, those without an answer and BEIR's; nothing of it is written anywhere."""
    split = open_split(put(tmp_path / "nq" / name, content))
    assert [(each.id, each.question, each.answers) for each in split.read()] == [("m", "Who?", ())]
    assert (split.questions, [each.name for each in (tmp_path / "nq").iterdir()]) == (1, [name])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (QUESTION + b"{half", "is cut off: it ends after 1 whole item"),
        (QUESTION + b'{"query": 7}\n', 'row 2 is not a question; it needs a text "question"'),
        (b"[" * 100_000, "Fetch or make the file again"),
        (b'[{"question": "Who?"}, {"question": 7}]', "row 2 is not a question"),
        (b"", "is empty"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    """Nothing is compared with half a file."""
    file = put(tmp_path / "nq" / "dev.jsonl", content)
    with pytest.raises(InputError, match=message) as error:
        names(file)
    assert str(file) in str(error.value)


def test_what_is_not_there_is_refused_with_what_to_give(tmp_path: Path) -> None:
    """A file, a folder, or the Hub."""
    with pytest.raises(InputError, match=r"there is no evaluation split nowhere; give --eval a file"):
        names("nowhere")
    with pytest.raises(InputError, match=r"has no evaluation split; put them at <dataset>/<split>.jsonl"):
        names(put(tmp_path / "nq" / "train.jsonl").parent)


def test_a_known_split_that_is_bad_shuts_the_gate_unless_it_is_allowed(tmp_path: Path) -> None:
    """A gate that nobody asked for must not stand open because of a broken file."""
    put(tmp_path / "data" / "nq" / "dev.jsonl", b"{half")
    config = {"operational": {"settings": {"data_dir": str(tmp_path / "data")}}, "decides_answers": {}}
    put(tmp_path / "run" / "config.json", orjson.dumps(config))
    with pytest.raises(InputError, match=r"dev.jsonl is cut off.* --allow-eval nq/dev"):
        referenced(tmp_path / "run")
    splits = referenced(tmp_path / "run", allowed=("nq/dev",))
    assert (splits.found, [each.name for each in splits.missing]) == ([], ["nq/dev"])


def test_splits_that_a_published_data_set_was_compared_with_are_missed(tmp_path: Path) -> None:
    """It does not tell where they were, so that nothing could be compared; whoever exports it again must know."""
    told = {
        "checked": [{"name": "nq/dev", "sha256": "ab", "questions": 9}],
        "unchecked": [{"name": "nq/test", "reason": "gone"}],
    }
    put(tmp_path / "summary.json", orjson.dumps({"contamination": told}))
    splits = referenced(tmp_path)
    assert splits.found == []
    assert [each.name for each in splits.missing] == ["nq/dev", "nq/test"]
    again = {"contamination": {"unchecked": [each.model_dump() for each in splits.missing]}}
    put(tmp_path / "again" / "summary.json", orjson.dumps(again))
    assert referenced(tmp_path / "again").missing == splits.missing


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"operational": null, "decides_answers": 1}', b"{half"])
def test_a_run_that_tells_nothing_knows_no_split(tmp_path: Path, content: bytes) -> None:
    """Rollouts alone, or configurations of others."""
    put(tmp_path / "config.json", content)
    put(tmp_path / "summary.json", content)
    splits = referenced(tmp_path, tmp_path / "rollouts.jsonl")
    assert (splits.found, splits.missing) == ([], [])


MARK = '{"schema_version": "reasonrag.something/1"}'


@pytest.mark.parametrize(
    ("folder", "manifest", "name", "line"),
    [
        ("d1", "questions.jsonl", "trl.validation.jsonl", '{"prompt": []}'),
        ("e1", "report.json", "dev.jsonl", '{"schema_version": "x", "question": "Who?"}'),
        ("i1", "manifest.json", "eval.jsonl", "[1]"),
    ],
)
@pytest.mark.parametrize("place", ["beside the questions", "around the questions"])
def test_what_reasonrag_wrote_is_no_evaluation_split(
    tmp_path: Path, place: str, folder: str, manifest: str, name: str, line: str
) -> None:
    """Neither for a run that looks beside its questions, nor for a folder that is named; real splits count, also within
    a folder of ours."""
    home = tmp_path if place == "beside the questions" else tmp_path / folder
    put(tmp_path / folder / manifest, MARK.encode())
    put(tmp_path / folder / name, line.encode())
    put(home / "my_dev.jsonl")
    operational = {"settings": {}, "questions": str(home / "questions.jsonl")}
    put(tmp_path / "run" / "config.json", orjson.dumps({"operational": operational, "decides_answers": {}}))
    assert [Path(each.path).name for each in referenced(tmp_path / "run").found] == ["my_dev.jsonl"]
    assert names(home) == [f"{home.name}/my_dev"]


@pytest.mark.parametrize(
    ("manifest", "name", "content", "message"),
    [
        ("notes.json", "trl.validation.jsonl", b'{"prompt": []}', "is not a question"),
        ("questions.jsonl", "dev.jsonl", b"{half", "is cut off"),
        ("config.json", "dev.jsonl", b"", "is empty"),
    ],
)
def test_a_file_that_may_be_a_split_is_not_passed_over(
    tmp_path: Path, manifest: str, name: str, content: bytes, message: str
) -> None:
    """The check runs by default, so that nothing broken may switch it off."""
    put(tmp_path / "d1" / manifest, MARK.encode() if manifest == "questions.jsonl" else b"{}")
    put(tmp_path / "d1" / name, content)
    with pytest.raises(InputError, match=message):
        names(tmp_path)


def test_a_second_data_set_is_made_beside_the_first(tmp_path: Path, reasonrag: Reasonrag) -> None:
    """Questions, corpus, run and data sets in one folder, as beginners have them."""
    world = tmp_path / "mine"
    put(world / "questions.jsonl", b"".join(QUESTION.replace(b"q1", b"q%d" % number) for number in range(4)))
    put(world / "corpus.jsonl", b'{"id": "1", "contents": "Ann Lee\\nAnn Lee was born in York."}\n')
    asked = ("--questions", world / "questions.jsonl", "--corpus", world / "corpus.jsonl", "--model", "offline")
    assert reasonrag("generate", *asked, "--run", world / "run").status == 0
    for out in ("d1", "d2", "d1"):
        done = reasonrag("pairs", world / "run", "--format", "trl", "--validation", "0.5", "--out", world / out)
        assert done.status == 0, done.err


# -- PopQA's two parts ---------------------------------------------------------------------------------------------


def popqa(folder: Path, count: int = WHOLE, *, shuffled: bool = False) -> Path:
    """A data directory whose PopQA has only a test file; each tenth question has the text of the one before."""
    rows = [
        {"id": f"test_{n}", "question": f"Who wrote book {n - (n % 10 == 0)}?", "golden_answers": [f"{n}"]}
        for n in range(1, count + 1)
    ]
    if shuffled:
        random.Random(1).shuffle(rows)
        rows = [each | {"id": f"other_{number}"} for number, each in enumerate(rows)]
    write_rows(folder / "popqa" / "test.jsonl", rows)
    return folder


def texts(data_dir: Path, split: str, home: Path) -> list[str]:
    return [each.question for each in find_questions("PopQA", split, data_dir, home=home).read()]


def test_popqa_has_the_numbers_of_the_paper_and_no_question_in_both_parts(tmp_path: Path) -> None:
    """3,000 and 11,267; also no text of one part is in the other. Another copy of the file, in another order and with
    other ids, has the same parts. A part that was deleted is written again. What a run records says how it was
    drawn."""
    data = popqa(tmp_path / "qa")
    train = texts(data, "train", tmp_path / "i")
    next(tmp_path.glob("i/*/popqa/test.jsonl")).unlink()
    test = texts(data, "test", tmp_path / "i")
    assert (len(train), len(test)) == (3_000, 11_267)
    assert not set(train) & set(test)
    assert sorted(texts(popqa(tmp_path / "copy", shuffled=True), "train", tmp_path / "i")) == sorted(train)
    identity = find_questions("popqa", "train", data, home=tmp_path / "i").identity
    assert {**identity, "questions_sha256": ""} | {"partition": {**identity["partition"], "of_sha256": ""}} == {
        "dataset": "popqa",
        "split": "train",
        "questions_sha256": "",
        "partition": {"seed": 0, "train": 3_000, "test": 11_267, "of_sha256": ""},
    }


def test_an_evaluation_split_of_popqa_is_its_test_part(tmp_path: Path) -> None:
    """Else a run on the training part would be contaminated by itself. The whole file and the part that a run keeps
    are one split."""
    data, splits = popqa(tmp_path / "qa"), EvalSplits()
    kept = find_questions("popqa", "test", data, home=tmp_path / "i").path
    add_named(splits, [str(data), str(kept)])
    [split] = splits.found
    assert (split.name, split.questions) == ("popqa/test", 11_267)
    assert [each.question for each in split.read()] == texts(data, "test", tmp_path / "i")


def test_another_file_is_not_partitioned(tmp_path: Path) -> None:
    """A part of PopQA is what it is: its test file is read as it stands, and it has no training questions; with a
    training file beside it, both are the user's own."""
    data = popqa(tmp_path / "qa", 50)
    assert len(texts(data, "test", tmp_path / "i")) == 50
    with pytest.raises(InputError, match=r"popqa has no split 'train': 3,000 of the 14,267 .* another number of"):
        texts(data, "train", tmp_path / "i")
    whole = popqa(tmp_path / "own")
    (whole / "popqa" / "train.jsonl").write_bytes(b'{"id": 1, "question": "Who?", "golden_answers": ["Ada"]}\n')
    assert (len(texts(whole, "train", tmp_path / "i")), len(texts(whole, "test", tmp_path / "i"))) == (1, WHOLE)
