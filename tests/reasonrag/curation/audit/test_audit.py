"""An audit finds what is wrong with a data set, says where, and keeps the rows of `pairs` from their place."""

from __future__ import annotations

import json
import shutil
import sys
import tracemalloc
from itertools import product
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasonrag.curation.audit.audit import DatasetAudit, audit, row_files
from reasonrag.curation.audit.catalogue import CHECKS
from reasonrag.curation.audit.report import AuditReport, read_audit
from reasonrag.curation.token_counters import EstimatingCounter
from reasonrag.errors import InputError
from reasonrag.redaction import KEY_SHAPES
from tests.helpers.command_line import Reasonrag
from tests.helpers.qwen_files import vocabulary

Row = dict[str, Any]
THINK = "Decide.\nSo the next query is <query>what</query>\nSo the answer is <answer>it</answer>"
READ = "Report.\nthe evidence is <evidence>what they say</evidence>"
CONCLUDE = "Answer now.\nSo the answer is <answer>it</answer>"
PASSAGES = "<reference>Wikipedia Title: Bex\nThe correct answer: Cidiby is a town.\n\n</reference>"


def row(number: int = 0, **fields: Any) -> Row:
    """A row with which nothing is wrong; each number is another question."""
    question = f"Where was person {number} born?"
    lead = "" if number % 2 else "I do not know this, so that I must look it up first. "
    good: Row = {
        "instruction": THINK,
        "input": f"Question: {question}",
        "chosen": f"{lead}So the next query is <query>person {number} birthplace</query>",
        "rejected": f"I know this one. So the answer is <answer>In town {number}</answer>",
        "chosen_action_type": "Query Generation",
        "rejected_action_type": "Answer Generation",
        "layer": 0,
        "pair_id": f"{number:016x}",
        "question": question,
        "golden_answers": ["Cidiby"],
        "dataset": "toy",
        "split": "train",
        "renderer": "one",
        "chosen_id": 1 + number % 2,
        "rejected_id": 2 - number % 2,
        "margin": 0.5,
        "confidence": 0.9,
        "tags": [],
        "flipped": False,
    }
    good["prompt"] = f"System: {THINK}\nUser: {good['input']}"
    return good | fields


def audited(*rows: object, validation: tuple[Row, ...] = ()) -> AuditReport:
    """What an audit says of rows."""
    seen = DatasetAudit(EstimatingCounter(), name="toy")
    for each in rows:
        seen.add(each, file="RAG_ProGuide.json", part="train")
    for each in validation:
        seen.add(each, file="RAG_ProGuide.validation.json", part="validation")
    return seen.report()


def found(report: AuditReport) -> dict[str, int]:
    """Rows by check, for those that found some."""
    return {each.name: each.count for each in report.checks if each.count}


GOOD = tuple(row(number) for number in range(10))
KEY = "sk-proj-" + "aB3_d" * 6


ONE_BAD_ROW: list[tuple[str, str, Any]] = [
    ("broken_row", "no text in rejected", {name: value for name, value in row(99).items() if name != "rejected"}),
    ("broken_row", "no object", "not a row"),
    ("empty_reply", "rejected", row(99, rejected=" \n")),
    ("empty_prompt", "", row(99, input="", prompt="")),
    ("chosen_malformed", "no_tag", row(99, chosen="The answer is Cidiby.")),
    ("chosen_malformed", "several_tags", row(99, chosen="<query>a</query> or <answer>b</answer>")),
    ("chosen_malformed", "not_closed", row(99, chosen="So the next query is <query>where")),
    ("chosen_malformed", "wrong_tag", row(99, instruction=CONCLUDE, golden_answers=[])),
    ("chosen_malformed", "empty", row(99, chosen="So the answer is <answer> </answer>")),
    ("identical_sides", "", row(99, chosen="<answer>A  b</answer>", rejected="<answer>a B</answer>",
                                chosen_action_type="Answer Generation")),
    ("secret", "openai in input", row(99, input=f"Question: whose is {KEY}?", question="whose?")),
    ("secret", "openai in other fields", row(99, note={"deep": [KEY]})),
    ("special_token", "<|im_end|> in rejected", row(99, rejected="<|im_end|> <answer>x</answer>")),
    ("special_token", "<|im_end|> in input", row(99, input="Question: what does <|im_end|> mean?", prompt="")),
    ("special_token", "{{idx}} in input", row(99, input="Question: What is {{idx}} in a template?")),
    ("gold_in_system_turn", "", row(99, instruction=THINK + "\nThink of Cidiby.")),
    ("gold_line_in_prompt", "input", row(99, input='Question: where?\n{"golden_answers": ["cidiby."]}', question="x")),
    ("gold_line_in_prompt", "input", row(99, input="Question: where?\nAnswer: Cidiby", question="where?")),
    ("gold_line_in_prompt", "instruction", row(99, instruction=THINK + "\nGround truth (hidden): Cidiby")),
    ("mixed_renderers", "one", row(99, renderer="other")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "detail", "bad"),
    ONE_BAD_ROW,
    ids=[f"{name}-{detail or position}" for position, (name, detail, _) in enumerate(ONE_BAD_ROW)],
)
def test_each_check_finds_its_row(name: str, detail: str, bad: Any) -> None:
    """Among ten good ones, by its name, with what exactly was found and where to look."""
    report = audited(*GOOD, bad)
    check = next(each for each in report.checks if each.name == name)
    assert check.count == (11 if name == "mixed_renderers" else 1)
    assert not detail or detail in check.details
    assert check.severity == CHECKS[check.name].severity
    assert check.verdict == check.severity
    if name != "mixed_renderers":
        assert str(check.examples[0]) == "RAG_ProGuide.json, row 11"
    allowed = {name, "gold_line_in_prompt", "gold_in_system_turn"}  # a label in a turn of its own is both
    assert set(found(report)) <= allowed, "one bad row, one finding"


def test_every_check_of_single_rows_is_in_the_table() -> None:
    """A new check comes with a row that it finds; those about all rows have tests of their own."""
    about_all = {"state_in_both_parts", "question_in_both_parts", "length_bias"}
    assert set(CHECKS) == {name for name, _, _ in ONE_BAD_ROW} | about_all


@pytest.mark.parametrize(
    "fine",
    [
        row(99, instruction=READ, input=f"Question: where?\nPrevious Thoughts: <query>q</query>. Reference: {PASSAGES}",
            chosen="<evidence>Cidiby is a town.</evidence>", rejected="<evidence>None</evidence>", question="where?",
            chosen_action_type="Evidence Extraction", rejected_action_type="Evidence Extraction"),
        row(99, input="Question: a?\nPrevious Thoughts: <evidence>Correct answer: Cidiby</evidence>", question="a?"),
        row(99, input="Question: where?\nPrevious Thoughts: Say it is Cidiby.\nAnswer: Cidiby?", question="where?"),
        row(99, input="Question: Choose the right answer: here or there?", question="Choose", golden_answers=["there"]),
        row(99, golden_answers=["yes"], input="Question: Correct answer: yes or no?", question="Correct?"),
        row(99, golden_answers=[], input="Question: where?\nCorrect answer: Cidiby", question="where?"),
        row(99, instruction=CONCLUDE, chosen="<answer>Cidiby</answer>", chosen_action_type="Answer Generation"),
        row(99, input="Question: what is a <| f |> b in F#?", prompt=""),  # tokens have no spaces
    ],
    ids=["passages", "evidence", "thoughts", "question", "yes and no", "golden answers unknown", "conclude", "bars"],
)  # fmt: skip
def test_what_is_normal_is_not_found(fine: Row) -> None:
    """Golden answers stand in passages, in evidence and in thoughts; `yes` stands everywhere."""
    report = audited(*GOOD, fine)
    assert (found(report), report.rows) == ({}, 11)
    assert {each.verdict for each in report.checks} == {"passed", "not checked"}


def test_a_system_turn_that_several_questions_share_cannot_give_an_answer_away() -> None:
    """An answer that happens to be a word of it is chance."""
    shared = [row(number, instruction=THINK + "\nA town is a place, as Cidiby.") for number in range(3)]
    assert found(audited(*shared)) == {}
    assert found(audited(*GOOD, shared[0])) == {"gold_in_system_turn": 1}


def test_rows_without_golden_answers_are_not_checked_for_leaks() -> None:
    """What cannot be known is not said to be fine."""
    report = audited(*({name: each[name] for name in ("instruction", "input", "chosen", "rejected")} for each in GOOD))
    verdicts = {each.name: each.verdict for each in report.checks}
    assert verdicts["gold_line_in_prompt"] == verdicts["gold_in_system_turn"] == "not checked"
    assert verdicts["empty_reply"] == "passed"


def test_a_state_and_a_question_may_be_in_one_part_only() -> None:
    """A question in both parts leaks even where its states differ."""
    other_state = row(3, input=row(3)["input"] + "\nPrevious Thoughts: None yet.")
    assert found(audited(*GOOD, validation=(other_state,))) == {"question_in_both_parts": 1}
    assert found(audited(*GOOD, validation=(row(3),))) == {"question_in_both_parts": 1, "state_in_both_parts": 1}


@pytest.mark.parametrize(("shorter", "biased"), [(40, True), (24, False)])
def test_a_side_that_is_nearly_always_the_shorter_one_is_a_bias(shorter: int, biased: bool) -> None:
    """From a share of .6 on that the whole interval exceeds, of 40 rows of as many questions."""
    long = "So the answer is <answer>{}</answer>".format("very long " * 20)
    rows = [row(n, rejected=long) for n in range(shorter)]
    rows += [
        row(n, chosen=long.replace("answer>", "query>"), rejected="<answer>x</answer>") for n in range(shorter, 40)
    ]
    report = audited(*rows)
    assert ("length_bias" in found(report)) == biased
    assert report.chosen_shorter == shorter / 40


@pytest.mark.parametrize(("questions", "biased"), [(1, False), (6, True)])
def test_many_rows_of_one_question_prove_no_bias(questions: int, *, biased: bool) -> None:
    """Four of five, of 60: the interval is that of the questions, unless all of several say the same."""
    long = "So the answer is <answer>{}</answer>".format("very long " * 20)
    rows = [row(n % questions, **{("chosen", "rejected")[n // questions % 5 > 0]: long}) for n in range(60)]
    rows = [each | {"input": f"{each['input']}\nPrevious Thoughts: {n}"} for n, each in enumerate(rows)]
    assert ("length_bias" in found(audited(*rows))) == biased


def test_lengths_give_cutoffs() -> None:
    """A row of 40,000 tokens loses its prompt at 2,048."""
    report = audited(*GOOD, row(99, input="Question: " + "word " * 32_000, question="long"))
    assert found(report) == {}
    assert report.advised_cutoff is not None
    by_length = {each.cutoff_len: each for each in report.cutoffs}
    assert by_length[report.advised_cutoff].truncated == 0
    assert (by_length[2048].truncated, by_length[2048].prompt_cut) == (1, 1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8) | st.sampled_from(["<query>a</query>", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from([*row(), "question_id"])


@given(st.lists(st.dictionaries(FIELDS, JSON, max_size=25).map(lambda each: row() | each) | JSON, max_size=4))
def test_anything_can_be_a_row(rows: list[Any]) -> None:
    """Law: files of others hold anything, and nothing; each row is counted once, as one that trains or as a broken
    one."""
    report = audited(*rows)
    assert rows or report.advised_cutoff is None
    assert report.data in report.page()
    assert report.rows + found(report).get("broken_row", 0) == len(rows)
    assert AuditReport.model_validate_json(report.model_dump_json()) == report


# -- keys ------------------------------------------------------------------------------------------------------

KEYS = {
    "openai": KEY,
    "huggingface": "hf_" + "AbCdEfGh" * 4,
    "aws": "AKIA" + "QWERTYUIOPASDFGH",
    "github": "ghp_" + "a1B2" * 9,
    "gitlab": "glpat-" + "a1B2c3" * 4,
    "google": "AIza" + "a1B2c" * 7,
    "slack": "xoxb-" + "1234567890-abcdef",
    "stripe": "sk_live_" + "a1B2c3D4" * 3,
    "json_web_token": "eyJhbGciOiJI." + "eyJzdWIiOiIx." + "SflKxwRJSMeKKF2",
    "private_key": "-----BEGIN RSA PRIVATE KEY-----",
    "password_in_address": "postgres://me:open-sesame@db.example.org/x",
}


@pytest.mark.parametrize("where", ["other fields", "chosen"])
def test_keys_are_found_and_shown_nowhere(where: str, tmp_path: Path, reasonrag: Reasonrag) -> None:
    """Whatever field they stand in, also one whose content is reported: not on the terminal, in no file."""
    fields = {
        "other fields": lambda key: {"renderer": key, "split": key, "tags": [key], "dataset": key, "label": key},
        "chosen": lambda key: {"chosen": f"{key} <query>q</query>"},
    }[where]
    rows = [row(number, **fields(key)) for number, key in enumerate(KEYS.values())]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    done = reasonrag("audit", tmp_path / "rows.json")
    report = json.loads((tmp_path / "rows.audit.json").read_bytes())
    [check] = [each for each in report["checks"] if each["name"] == "secret"]
    assert check["details"] == {f"{kind} in {where}": 1 for kind in KEY_SHAPES}
    shown = [done.out, done.err, *((tmp_path / f"rows.audit.{end}").read_text() for end in ("json", "html"))]
    for key, text in product(KEYS.values(), shown):
        assert key not in "".join(text.split())
        assert key.replace("&", "&amp;") not in text


def test_a_key_of_the_environment_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may look like anything; the machine that exports knows it."""
    monkeypatch.setenv("MY_SERVICE_TOKEN", "open-sesame-42")
    report = audited(*GOOD, row(99, rejected="open-sesame-42 <answer>x</answer>"))
    assert [each.details for each in report.checks if each.name == "secret"] == [{"environment in rejected": 1}]


# -- files -----------------------------------------------------------------------------------------------------


def test_files_of_others_are_found_in_a_directory(tmp_path: Path, run: Path) -> None:
    """By their first row; a name says whether it is for validation."""
    for name in ("train.json", "my-dev.jsonl", "summary.json", "notes.txt"):
        content = b"{}" if name == "summary.json" else orjson.dumps([row(1)])
        (tmp_path / name).write_bytes(content)
    assert [(path.name, part) for path, part in row_files(tmp_path)] == [
        ("my-dev.jsonl", "validation"),
        ("train.json", "train"),
    ]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no file with rows of RAG_ProGuide"):
        row_files(tmp_path / "empty")
    with pytest.raises(InputError, match=f"is a run, not a data set. First: reasonrag pairs {run} --out data/"):
        row_files(run)


def test_the_published_recipes_pairs_pass(shared_data: Path, tmp_path: Path) -> None:
    """Three pairs that ReasonRAG's own rule yields of real trees: ten fields, quoted tags, text after them."""
    name = "ragproguide_format_pairs_from_real_trees.json"
    report = audit(shutil.copy(shared_data / "rollouts" / name, tmp_path))
    assert found(report) == {}


def test_memory_holds_no_texts() -> None:
    """What is kept of a row is some hundred bytes, however long its texts are."""
    seen = DatasetAudit(EstimatingCounter())
    big = "word " * 20_000
    tracemalloc.start()
    for number in range(300):
        seen.add(row(number, input=f"Question: {number} {big}", question=f"{number}"), file="rows.json", part="train")
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 30 * len(big), "300 such texts were seen"


# -- the commands ----------------------------------------------------------------------------------------------


@pytest.fixture
def leaking_run(run: Path, tmp_path: Path) -> Path:
    """The same run, in which somebody's key stands in every reply of the model."""
    leaking = tmp_path / "leaking"
    leaking.mkdir()
    lines = (run / "rollouts.jsonl").read_bytes()
    (leaking / "rollouts.jsonl").write_bytes(lines.replace(b'"response":"', b'"response":"' + KEY.encode() + b" "))
    return leaking


def files_of(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.iterdir()) if path.is_file()}


def test_a_data_set_has_its_audit(run: Path, tmp_path: Path, reasonrag: Reasonrag) -> None:
    """`pairs` writes audit.json and audit.html; `audit` finds the same when it counts for itself."""
    out = tmp_path / "data"
    with pytest.raises(InputError, match=r"there is no .*audit\.json\. Make it with: reasonrag audit"):
        read_audit(out)
    done = reasonrag("pairs", run, "--out", out)
    assert done.status == 0, done.err
    assert "audit: 0 errors" in done.out
    written = json.loads((out / "audit.json").read_bytes())
    assert reasonrag("audit", out, "--json").status == 0
    again = json.loads((out / "audit.json").read_bytes())
    assert written == again
    assert written["parts"]["validation"] > 0
    assert written["advised_cutoff"] > 0


def test_an_error_keeps_the_rows_from_their_place(
    run: Path, leaking_run: Path, tmp_path: Path, reasonrag: Reasonrag
) -> None:
    """Exit status 1; the message names the check, where to look and the flag; all earlier files stay. By name it goes
    through, and the audit remembers."""
    out = tmp_path / "data"
    assert reasonrag("pairs", run, "--out", out, "--format", "sharegpt").status == 0
    before = files_of(out)
    asked_elsewhere = (leaking_run / "rollouts.jsonl").read_bytes().splitlines()[-1]
    question = {"question": json.loads(asked_elsewhere)["question"]}
    (tmp_path / "eval.jsonl").write_text(json.dumps(question))
    done = reasonrag("pairs", leaking_run, "--out", out, "--eval", tmp_path / "eval.jsonl")
    assert done.status == 1
    assert "secret in" in done.err
    assert "RAG_ProGuide.json, row" in done.err
    assert "--allow secret" in done.err
    assert KEY not in done.err + done.out
    assert files_of(out) == before
    done = reasonrag("pairs", leaking_run, "--out", out, "--allow", "secret")
    assert done.status == 0, done.err
    assert "1 allowed" in done.out
    wrong = reasonrag("pairs", run, "--out", tmp_path / "other", "--allow", "secrets")
    assert wrong.status == 2
    assert "secrets is not an error of the audit; did you mean 'secret'" in wrong.err
    assert not (tmp_path / "other").exists()
    report = json.loads((out / "audit.json").read_bytes())
    assert [each["name"] for each in report["checks"] if each["allowed"]] == ["secret"]
    assert KEY not in (out / "audit.json").read_text() + (out / "audit.html").read_text()
    assert reasonrag("audit", out).status == 1, "the name holds for the command that was given it"
    assert reasonrag("audit", out, "--allow", "secret").status == 0


def test_lengths_never_pass_for_those_of_another_counter(
    run: Path, tmp_path: Path, reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data set that is exported again by another counter is counted again, and says by whom."""
    pytest.importorskip("tiktoken", reason="the tokens extra is not installed")
    if vocabulary() is None:
        pytest.skip("Qwen's vocabulary cannot be had here")
    first, second = tmp_path / "first", tmp_path / "second"
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "tiktoken", None)  # not installed
        assert reasonrag("pairs", run, "--out", first).status == 0
    assert reasonrag("pairs", first, "--out", second).status == 0
    fresh = tmp_path / "fresh"
    assert reasonrag("pairs", run, "--out", fresh).status == 0
    assert (second / "candidates.jsonl").read_bytes() == (fresh / "candidates.jsonl").read_bytes()
    assert (second / "RAG_ProGuide.json").read_bytes() == (fresh / "RAG_ProGuide.json").read_bytes()
    assert reasonrag("pairs", first, "--out", first).status == 0
    assert (first / "candidates.jsonl").read_bytes() == (fresh / "candidates.jsonl").read_bytes()
    summaries = [json.loads((each / "summary.json").read_bytes())["token_counter"] for each in (first, second)]
    assert summaries == ["Qwen2.5's vocabulary, template qwen"] * 2
