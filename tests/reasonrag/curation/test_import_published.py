"""`reasonrag import` end to end: published files in, run directories and data sets out, bad input refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reasonrag as library
from preference import read_rollouts
from preference.candidate_records import StateRecord, read_lines
from preference.export.atomic_export import UNFINISHED
from preference.export.json_stream import LONGEST_ITEM
from preference.published.repairs import REFUSALS, REPAIRS
from reasonrag.agent.imported_prompts import is_rendered_by
from reasonrag.agent.prompting import load_prompts
from reasonrag.agent.protocols.known import renderer_hash
from tests.helpers.command_line import Reasonrag
from tests.helpers.processes import finished
from tests.helpers.published_rows import published_row, published_rows
from tests.helpers.trees import rows as lines

Json = dict[str, Any]
TURNS = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Question: Who was Ada?"}]


def tree(item_id: str | None = "dev_1", right: str = "a mathematician", asked: str = "", **more: Any) -> Json:
    """Two answers, one of them right. asked: by the prompts, if it is not the question."""
    user = f"Question: {asked or more.get('question') or 'Who was Ada?'}"
    turns = [TURNS[0], {"role": "user", "content": user}]
    answers = {1: right, 2: "a [bold]queen"}
    output: Json = {"intermediate_node_0": {"Q": 0.5, "N": 4, "step": 0, "parent_id": -1, "children_ids": [1, 2]}}
    for i, answer in answers.items():
        output[f"intermediate_node_{i}"] = {
            "action_name": "begin_reasoning", "input_prompt": turns, "response": f"So <answer>{answer}</answer>",
            "answer": answer, "next_query": None, "id": i, "parent_id": 0, "Q": 0.5, "N": 2, "step": 1,
            "children_ids": [],
        }  # fmt: skip
    item = {"question": "Who was Ada?", "golden_answers": ["mathematician"], "output": output}
    return ({"id": item_id} if item_id else {}) | item | more


def row(**changed: Any) -> Json:
    answered = "<answer>mathematician</answer>", "Answer Generation", "mathematician"
    asked = "<query>Ada</query>", "Query Generation", "Ada"
    return published_row("Be brief.", "Question: Who was Ada?", 0, answered, asked) | changed


def saved(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2), "utf-8")
    return path


def read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())


# -- trees -----------------------------------------------------------------------------------------------------


def test_trees_become_a_run_that_gives_pairs(tmp_path: Path, reasonrag: Reasonrag) -> None:
    """The commands that the import names work as they are printed. `generate` refuses to continue the run, as it would
    overwrite the trees."""
    saved(tmp_path / "trees.json", [tree(), tree("dev_2", question="Who was Ada Lovelace?")])
    done = reasonrag("import", "trees.json", "--out", "runs/a", "--dataset", "toy", "--split", "train")
    assert (done.status, done.err) == (0, "")
    assert "2 of 2" in done.out
    commands = [line.removeprefix("next: ").split() for line in done.out.splitlines() if line.startswith("next: ")]
    assert [" ".join(each[:2]) for each in commands] == ["reasonrag pairs"] * 2
    ours, published = commands
    assert reasonrag(*ours[1:]).status == 0
    assert reasonrag(*published[1:], "--validation", "0").status == 0
    rows = read_json(tmp_path / "data/a-as-published/RAG_ProGuide.json")
    assert [each["chosen_content"] for each in rows] == ["a mathematician"] * 2
    summary = read_json(tmp_path / "data/a-as-published/summary.json")
    assert (summary["recipes"], summary["splits"], summary["teachers"]) == (["released"], ["toy/train"], ["unknown"])
    assert summary["usage"]["cost_usd"] is None
    for says, *words in (("was imported", "calibrate", "runs/a"), ("another conf", "generate", "--run", "runs/a")):
        refused = reasonrag(*words)
        assert (refused.status, says in refused.err) == (2, True)
    assert len(lines(tmp_path / "runs/a/rollouts.jsonl")) == 2


def test_every_record_says_where_it_is_from(tmp_path: Path) -> None:
    """The file's SHA-256 is in rollouts and rows; the configuration has all of them, and the teacher if it is told."""
    one, other = saved(tmp_path / "a.json", [tree()]), saved(tmp_path / "b.json", tree("dev_2", question="Who?"))
    report = library.import_published([one, other], out="runs/a", teacher="gpt-4o")
    hashes = [source.sha256 for source in report.sources]
    assert [record.revision for record in read_rollouts(Path("runs/a/rollouts.jsonl"))] == hashes
    config = read_json(Path("runs/a/config.json"))
    assert config["decides_answers"]["model"] == "gpt-4o"
    assert [each["sha256"] for each in config["operational"]["imported"]] == hashes
    assert config["config_hash"] == report.config_hash
    library.pairs("runs/a", out="data/a", min_confidence=0, allow_ungrounded=True, validation=0)
    rows = read_json(Path("data/a/RAG_ProGuide.json"))
    assert [each["revision"] for each in rows] == hashes
    assert {each["teacher"] for each in rows} == {"gpt-4o"}


def test_each_tree_has_an_id_of_its_own(tmp_path: Path) -> None:
    """One that was read before is refused; one without golden answers has no rewards that could be recomputed."""
    again = tree("dev_1", right="mathematician")
    saved(tmp_path / "trees.json", [tree(), tree("dev_1", question="Who was Grace?"), again, tree()])
    report = library.import_published("trees.json", out="runs/a")
    written = [(each["question_id"], each["question"]) for each in lines(Path("runs/a/rollouts.jsonl"))]
    assert written == [("dev_1", "Who was Ada?"), ("dev_1-2", "Who was Grace?"), ("dev_1-3", "Who was Ada?")]
    assert (report.kept, report.questions) == (3, 2)
    assert report.refusals["duplicate_tree"].count == 1
    assert report.repairs["id_taken"].count == 2
    saved(tmp_path / "trees.json", [tree(golden_answers=[])])
    warnings = library.import_published("trees.json", out="runs/b").warnings
    for begins in ("1 tree without rewards will yield no pairs", "1 tree without gold answers"):
        assert any(each.startswith(begins) for each in warnings)


def test_trees_that_cannot_be_used_are_failures_and_counted(tmp_path: Path, reasonrag: Reasonrag) -> None:
    """The others are not lost with them. One that is too long has no question that could be named."""
    items = [tree(), tree("dev_2", output=None, error="a [red]fault"), {"output": {"intermediate_node_1": {"id": 1}}}]
    saved(tmp_path / "trees.json", [*items, tree("dev_3", note="x" * LONGEST_ITEM)])
    done = reasonrag("import", "trees.json", "--out", "runs/a", "--json")
    report = json.loads(done.out)
    assert (done.status, report["items"], report["kept"]) == (0, 4, 1)
    assert {name: each["count"] for name, each in report["refusals"].items()} == {
        "no_tree": 1,
        "broken_tree": 1,
        "too_long": 1,
    }
    assert report == read_json(tmp_path / "runs/a/import.json")
    failures = lines(tmp_path / "runs/a/failures.jsonl")
    assert [(each["item"], each["cause"]) for each in failures] == [
        ("trees.json:2", "no_tree"),
        ("trees.json:3", "broken_tree"),
        ("trees.json:4", "too_long"),
    ]
    assert "[red]fault" in failures[0]["message"]
    assert [each["question_id"] for each in lines(tmp_path / "runs/a/rollouts.jsonl")] == ["dev_1"]


@pytest.mark.parametrize("item", [tree(), row()])
def test_characters_that_no_text_may_have_are_replaced_and_counted(item: Json, tmp_path: Path) -> None:
    """Of trees and of rows, which are kept."""
    path = saved(tmp_path / "items.json", [item])
    path.write_bytes(path.read_bytes().replace(b"mathematician", b"mathematician\xff"))
    report = library.import_published(path, out="out")
    assert (report.kept, report.repairs["unreadable_characters"].count) == (1, 1)


def test_the_real_trees_give_the_real_rows_by_the_commands_that_are_named(
    shared_data: Path, tmp_path: Path, reasonrag: Reasonrag
) -> None:
    """Import, then the printed command for the published rule: all ten fields of all three rows."""
    source = shared_data / "rollouts" / "reasonrag_gpt4o_mcts_trees.json"
    assert reasonrag("import", source, "--out", "runs/real").status == 0
    assert reasonrag("pairs", "runs/real", "--out", "data/real", "--validation", "0", "--as-published").status == 0
    rows = [dict(list(each.items())[:10]) for each in read_json(tmp_path / "data/real/RAG_ProGuide.json")]
    assert rows == read_json(shared_data / "rollouts" / "ragproguide_format_pairs_from_real_trees.json")
    states = list(read_lines(tmp_path / "data/real/candidates.jsonl", StateRecord))
    prompts = load_prompts(tmp_path / "data/real/prompts")
    assert all(is_rendered_by(prompts, each) for each in states)
    assert {each.origin.renderer for each in states} == {renderer_hash(prompts)}
    warnings = read_json(tmp_path / "data/real/summary.json")["warnings"]
    assert "no row shows the prompt of: conclude (ours is used)" in warnings


# -- pairs -----------------------------------------------------------------------------------------------------


def test_pairs_become_a_data_set_that_trains_at_once(tmp_path: Path, reasonrag: Reasonrag) -> None:
    """Its rows are those of the file; the system turn has its own column; the label is not ours. Our settings
    for training ask for a part for validation, and the trainer would stop: of one question the import says so."""
    saved(tmp_path / "RAG_ProGuide.json", [row()])
    alone = reasonrag("import", "RAG_ProGuide.json", "--out", "data/p")
    assert "train without eval_dataset" in " ".join(alone.err.split())
    assert "rag_proguide_validation" not in read_json(tmp_path / "data/p/dataset_info.json")
    saved(tmp_path / "RAG_ProGuide.json", [row(), row(input="Question: Who was Grace?", prompt=None)])
    done = reasonrag("import", "RAG_ProGuide.json", "--out", "data/p", "--replace")
    assert (done.status, "2 of 2" in done.out, "eval_dataset" in done.err) == (0, True, False)
    rows = [each for name in ("", ".validation") for each in read_json(tmp_path / f"data/p/RAG_ProGuide{name}.json")]
    assert sorted(each["input"] for each in rows) == ["Question: Who was Ada?", "Question: Who was Grace?"]
    assert {each["label"] for each in rows} == {"imported"}
    info = read_json(tmp_path / "data/p/dataset_info.json")
    assert info["rag_proguide"]["columns"]["system"] == "instruction"
    assert "rag_proguide_validation" in info
    summary = read_json(tmp_path / "data/p/summary.json")
    assert (summary["pairs_by_label"], summary["teachers"]) == ({"imported": 2}, ["unknown"])


@pytest.mark.parametrize("rows", ["invented", "real"])
def test_prompts_come_out_of_the_rows_and_give_them_byte_for_byte(
    rows: str, shared_data: Path, reasonrag: Reasonrag
) -> None:
    """Beside the data set and those that are made of it."""
    path = shared_data / "rollouts" / "ragproguide_format_pairs_from_real_trees.json"
    source = path if rows == "real" else saved(Path("RAG_ProGuide.json"), published_rows())
    done = reasonrag("import", source, "--out", "data/a")
    assert done.status == 0, done.err
    report = read_json(Path("data/a/import.json"))["prompts"]
    given = {(each["instruction"], each["input"]) for each in read_json(source)}
    assert report["folder"] == "data/a/prompts"
    prompts = load_prompts(Path("data/a/prompts"))
    assert renderer_hash(prompts) == report["renderer"]
    states = list(read_lines(Path("data/a/candidates.jsonl"), StateRecord))
    assert {tuple(turn.content for turn in each.prompt) for each in states} == given
    assert all(is_rendered_by(prompts, each) for each in states)
    assert {each.origin.renderer for each in states} == {report["renderer"]}


def test_prompts_go_along_and_replace_no_others(reasonrag: Reasonrag) -> None:
    """A data set made of imported rows has their prompts. Rows of unknown prompts that replace others do not inherit
    theirs, which go with them and not before; of a folder only prompts are taken along."""
    saved(Path("RAG_ProGuide.json"), published_rows())
    for origin in ((), ("--dataset", "hotpotqa", "--split", "train")):  # of one file: the second replaces the first
        assert reasonrag("import", "RAG_ProGuide.json", "--out", "data/a", *origin).status == 0
        report = read_json(Path("data/a/import.json"))["prompts"]
        Path("data/a/prompts/large.bin").write_bytes(bytes(1000))
        assert reasonrag("pairs", "data/a", "--out", "data/b").status == 0
        assert renderer_hash(load_prompts(Path("data/b/prompts"))) == report["renderer"]
        assert {each.suffix for each in Path("data/b/prompts").iterdir()} == {".txt", ".json"}
    saved(Path("other.json"), [row()])
    assert reasonrag("import", "other.json", "--out", "data/other").status == 0
    killed = finished("pairs", "data/other", "--out", "data/b", "--replace", killed_at="data/b/prompts")
    assert (killed.returncode, Path("data/b", UNFINISHED).exists()) == (-9, True)
    assert reasonrag("pairs", "data/other", "--out", "data/b", "--replace").status == 0
    assert not Path("data/b/prompts").exists()
    for name in ("prompts", "turns.json"):
        Path("data/c", name).mkdir(parents=True)
        for command in (("pairs", "data/a"), ("import", "RAG_ProGuide.json")):
            taken = reasonrag(*command, "--out", "data/c")
            assert (taken.status, f"data/c is taken: it has {name}" in taken.err.replace("holds", "has")) == (2, True)
        Path("data/c", name).rmdir()


def test_rows_of_our_own_prompts_bring_none(tmp_path: Path, reasonrag: Reasonrag) -> None:
    """They are those of this version, whatever rows say; of rows without a system turn for reading none are known."""
    ours = load_prompts()
    read = "Question: Who was Ada?\nPrevious Thoughts: <query>Ada</query>. Reference: <reference></reference>"
    rows = [
        row(instruction=ours.system("think"), prompt=None),
        row(instruction=ours["read"], input=read, prompt=None, layer=1, chosen="<evidence>a</evidence>"),
    ]
    for name, found, renderer in (("ours", rows, renderer_hash(ours)), ("others", [row()], None)):
        saved(tmp_path / f"{name}.json", found)
        assert reasonrag("import", f"{name}.json", "--out", f"data/{name}").status == 0
        prompts = read_json(Path("data", name, "import.json"))["prompts"]
        assert (prompts and prompts["renderer"], prompts and prompts["folder"]) == (renderer, None)
        assert not Path("data", name, "prompts").exists()


def test_rows_that_are_no_pairs_are_kept_apart_with_their_cause(tmp_path: Path, reasonrag: Reasonrag) -> None:
    """Every row of the file is a pair, a candidate that is none, or stands in rejected_rows.jsonl."""
    rows = [
        row(),
        row(rejected=""),
        row(),
        row(rejected="Ada"),
        row(chosen="<answer>A</answer>", rejected="<answer>a</answer>"),
    ]
    saved(tmp_path / "rows.json", rows)
    report = library.import_published("rows.json", out="data/p")
    rejected = lines(tmp_path / "data/p/rejected_rows.jsonl")
    assert [(each["item"], each["cause"]) for each in rejected] == [
        ("rows.json:2", "empty_reply"),
        ("rows.json:3", "duplicate"),
    ]
    assert rejected[0]["row"] == rows[1]
    assert (report.items, report.kept, report.exported) == (5, 3, 1)
    assert report.not_exported == {"malformed": 1, "same_content": 1}
    done = reasonrag("pairs", "data/p", "--out", "data/q", "--allow-malformed")
    assert done.status == 0
    assert read_json(tmp_path / "data/q/summary.json")["dropped"]["malformed"] == 0


def written(path: Path, rows: list[Json]) -> Path:
    """In the form that the name's end says."""
    if path.suffix == ".parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        text = "\n".join(map(json.dumps, rows)) if path.suffix == ".jsonl" else json.dumps(rows)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("form", ["json", "jsonl", "gz", "parquet"])
def test_a_row_that_is_too_long_is_refused_and_the_others_are_read(form: str, tmp_path: Path) -> None:
    """It is not held; its cause and place are kept, not its content."""
    other = row(input="Question: Who was Grace?", prompt="System: Be brief.\nUser: Question: Who was Grace?")
    path = written(tmp_path / f"rows.{form}", [row(), row(chosen="x" * (LONGEST_ITEM + 1)), other])
    report = library.import_published(path, out="data/p")
    assert (report.items, report.kept) == (3, 2)
    assert {name: each.count for name, each in report.refusals.items()} == {"too_long": 1}
    assert report.repairs == {}
    asked = [each["question"] for each in lines(tmp_path / "data/p/questions.jsonl")]
    assert asked == ["Who was Ada?", "Who was Grace?"]
    [rejected] = lines(tmp_path / "data/p/rejected_rows.jsonl")
    assert (rejected["item"], rejected["cause"], rejected["row"]) == (f"rows.{form}:2", "too_long", None)


def test_question_files_tell_golden_answers_and_splits(tmp_path: Path, reasonrag: Reasonrag) -> None:
    """Each of its own, in any form of `generate`: DATASET/SPLIT names both, a column that is not read is named, and
    what nobody knows stays unknown, with a warning."""
    grace = {"id": "q7", "question": "Who was Grace?", "golden_answers": ["x"]}
    saved(tmp_path / "popqa/test.jsonl", grace).write_text(json.dumps(grace), "utf-8")
    ada = {"_id": "q7", "question": "who was ada", "answer": "x", "supporting_facts": [], "level": "hard"}
    saved(tmp_path / "hotpotqa/train.json", [ada])
    saved(
        tmp_path / "rows.json",
        [row(input=f"Question: Who was {who}?", prompt=None) for who in ("Ada", "Grace", "Joan")],
    )
    files = ("--questions", "hotpotqa/train.json", "--questions", "popqa/test.jsonl")
    done = reasonrag("import", "rows.json", "--out", "data/p", *files)
    origins = [
        (each["question_id"][:2], each["golden_answers"], each["origin"]["dataset"], each["origin"]["split"])
        for each in lines(tmp_path / "data/p/questions.jsonl")
    ]
    assert origins == [
        ("q7", ["x"], "hotpotqa", "train"),
        ("q7", ["x"], "popqa", "test"),
        ("q-", [], "unknown", "unknown"),
    ]
    assert "columns that are not read: 'level'" in done.err
    assert [each.name for each in (tmp_path / "hotpotqa").iterdir()] == ["train.json"]
    assert "1 question without gold answers" in done.err
    assert "made of popqa/test questions" in done.err


# -- bad input -------------------------------------------------------------------------------------------------


BAD: list[tuple[str, Callable[[Path], object], str]] = [
    ("nothing there", lambda _: None, "there is no bad to import"),
    ("empty", lambda path: path.write_text(""), "holds neither trees"),
    ("not JSON", lambda path: path.write_text("<html>"), "comes '<html>'"),
    ("cut off", lambda path: path.write_text(json.dumps([tree()] * 2)[:-9]), "ends after 1 whole items"),
    ("something else", lambda path: path.write_text('[{"messages": []}]'), "neither trees"),
    ("nothing usable", lambda path: saved(path, [tree(output=None)]), "no usable tree in bad"),
    ("no usable row", lambda path: saved(path, [row(chosen="")]), "no usable pair in bad"),
    ("a folder", lambda path: path.mkdir(), "is a folder; name its files, such as bad/chunk_*/reward_*.json"),
    ("a damaged package", lambda path: path.write_bytes(gzip.compress(b"[]" * 99)[:-9]), "damaged or truncated"),
    ("half of Parquet", lambda path: path.write_bytes(b"PAR1 and no more"), "is damaged"),
]


@pytest.mark.parametrize(("what", "make", "message"), BAD, ids=[each[0] for each in BAD])
def test_bad_input_is_said_and_nothing_is_written(
    what: str, make: Callable[[Path], object], message: str, tmp_path: Path, reasonrag: Reasonrag
) -> None:
    """Status 2, one line, no file of a data set."""
    if "Parquet" in what:
        pytest.importorskip("pyarrow")
    make(tmp_path / "bad")
    done = reasonrag("import", "bad", "--out", "out")
    assert (done.status, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err
    assert not list((tmp_path / "out").glob("*.json*"))


def test_a_place_that_is_taken_is_left_as_it_is(tmp_path: Path, reasonrag: Reasonrag) -> None:
    """Only an earlier import of the same kind is replaced. Trees become a run and pairs a data set, not both."""
    saved(tmp_path / "trees.json", [tree()])
    saved(tmp_path / "rows.json", [row()])
    both = reasonrag("import", "trees.json", "rows.json", "--out", "made")
    assert (both.status, "one after the other" in both.err) == (2, True)
    saved(tmp_path / "run/rollouts.jsonl", {})
    saved(tmp_path / "file", {})
    for place in ("run", "file"):
        done = reasonrag("import", "trees.json", "--out", place)
        assert (done.status, list((tmp_path / "run").glob("*.json*"))) == (2, [tmp_path / "run/rollouts.jsonl"])
    for source, name in (("trees.json", "summary.json"), ("rows.json", "dataset_info.json")):
        theirs = saved(tmp_path / name / name, {"mine": 1})
        assert f"is taken: it has {name}" in reasonrag("import", source, "--out", name).err
        assert read_json(theirs) == {"mine": 1}
    assert reasonrag("import", "trees.json", "--out", "made").status == 0
    assert reasonrag("import", "rows.json", "--out", "made").status == 2
    before = (tmp_path / "made/rollouts.jsonl").read_bytes()
    (tmp_path / "made/view.html").write_text("of the previous trees")
    (tmp_path / "made/prompts").mkdir()  # of a user, as trees bring none
    again = reasonrag("import", "trees.json", "--out", "made")
    assert (again.status, "removed made/view.html" in again.err) == (0, True)
    assert (tmp_path / "made/rollouts.jsonl").read_bytes() == before
    assert {each.name for each in (tmp_path / "made").iterdir()} == {
        ".lock", "config.json", "failures.jsonl", "import.json", "prompts", "rollouts.jsonl",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["mine.json", "questions.jsonl"])
def test_a_file_that_is_read_is_never_overwritten(name: str, tmp_path: Path, reasonrag: Reasonrag) -> None:
    """The data set has files of these names; beside what is read, or asked for answers, is no place for it."""
    source = saved(tmp_path / "data" / name, [row()])
    asked = ("--questions", source) if name == "questions.jsonl" else ()
    done = reasonrag("import", saved(tmp_path / "rows.json", [row()]) if asked else source, "--out", "data", *asked)
    assert (done.status, "could be overwritten" in done.err) == (2, True)
    assert read_json(source) == [row()]


def test_every_repair_and_refusal_is_described() -> None:
    """Whoever reads a name in the report finds it on the page on formats."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "formats" / "import.md").read_text("utf-8")
    assert [name for name in REPAIRS | REFUSALS if f"`{name}`" not in page] == []


# -- texts of strangers ----------------------------------------------------------------------------------------

HOSTILE = "<|im_end|> {{idx}} \x1b[31m <|start_header_id|>"
PLAIN = "(im_end) (idx)  [31m (start_header_id)"


def test_what_a_template_would_read_is_broken_up_in_pairs(tmp_path: Path, reasonrag: Reasonrag) -> None:
    """Special tokens, what LLaMA-Factory fills in and control characters, wherever they stand; the audit, the next
    command, then finds none."""
    hostile = row(
        input=f"Question: Who was Ada {HOSTILE}?",
        prompt=None,
        instruction=f"Be brief. {HOSTILE}",
        chosen=f"{HOSTILE} <answer>{HOSTILE}</answer>",
        rejected=f"<query>{HOSTILE}</query>",
        question=f"Who was Ada {HOSTILE}?",
        golden_answers=[f"x {HOSTILE}"],
    )
    saved(tmp_path / "rows.json", [hostile, row()])
    assert reasonrag("import", "rows.json", "--out", "data/p").status == 0
    assert read_json(tmp_path / "data/p/import.json")["repairs"]["made_plain"]["examples"][0] == "rows.json:1"
    rows = [each for name in ("", ".validation") for each in read_json(tmp_path / f"data/p/RAG_ProGuide{name}.json")]
    [found] = [each for each in rows if "im_end" in each["input"]]
    assert found["input"] == f"Question: Who was Ada {PLAIN}?"
    assert found["chosen"] == f"{PLAIN} <answer>{PLAIN}</answer>"
    assert (found["chosen_content"], found["golden_answers"]) == (PLAIN, [f"x {PLAIN}"])
    assert HOSTILE[:10] not in json.dumps(rows)
    audited = reasonrag("audit", "data/p", "--json")
    assert audited.status == 0
    assert [each["count"] for each in json.loads(audited.out)["checks"] if each["name"] == "special_token"] == [0]


def test_what_a_template_would_read_is_broken_up_in_trees(tmp_path: Path) -> None:
    """Prompts, replies and answers."""
    asked = "Who was Ada {{idx}} \x1b?"
    item = tree(right="a mathematician {{idx}} <|im_end|>", question=asked)
    prompt = [TURNS[0], {"role": "user", "content": f"Question: {asked}"}]
    for node in list(item["output"].values())[1:]:
        node["input_prompt"] = prompt
    saved(tmp_path / "trees.json", [item])
    report = library.import_published("trees.json", out="runs/a")
    assert report.repairs["made_plain"].count == 4  # the question, two prompts, one reply
    assert "content_from_tag" not in report.repairs
    [record] = read_rollouts(Path("runs/a/rollouts.jsonl"))
    assert [turn.content for turn in record.nodes[1].prompt or ()] == ["Be brief.", "Question: Who was Ada (idx)  ?"]
    assert (record.nodes[1].content or "").startswith("a mathematician (idx)")
    assert "{{idx}}" not in Path("runs/a/rollouts.jsonl").read_text()
