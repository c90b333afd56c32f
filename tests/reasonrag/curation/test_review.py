"""`reasonrag review`: a blind sample goes out, verdicts come back, by a spreadsheet and by Label Studio's forms."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reasonrag as package
from preference.review_sample import read_pairs
from tests.helpers.command_line import Reasonrag

HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07[bold red]loud[/bold red] [link=file:///etc/passwd]x[/link] :skull: "
    "\u202edrow\u2066 NUL\x00 back\x08\x08 \x9b31m cr\rover \ud800 zero\u200bwidth"
)
LABELS = ("name", "0.8125", "0.1875", "0.625", "0.9375", "style_only", "Golden", "chosen", "rejected")


def row(number: int, **fields: Any) -> dict[str, Any]:
    """Of RAG_ProGuide, with our own fields. Two of three rows have the better reply first in the alphabet."""
    better, worse = (f"<query>{'ba'[number % 3 == 0]} of book {number}</query>", f"<query>aa of book {number}</query>")
    usual = {
        "instruction": f"Decide on the next step of {number}.",
        "input": f"Question: Who wrote book {number}?\nPrevious Thoughts: Nothing is known yet.",
        "chosen": better,
        "rejected": worse,
        "chosen_action_type": "Query Generation",
        "rejected_action_type": "Query Generation",
        "layer": 1,
    }
    ours = {
        "pair_id": f"pairname{number:08x}",
        "state_id": f"statename{number}",
        "golden_answers": [f"Golden Author {number}"],
        "chosen_reward": 0.8125,
        "rejected_reward": 0.1875,
        "margin": 0.625,
        "confidence": 0.9375,
        "tags": ["style_only"],
        "teacher": "teachername",
    }
    return usual | ours | fields


@pytest.fixture
def data_set(tmp_path: Path) -> Callable[..., Path]:
    """A directory with these rows."""

    def make(*rows: Any) -> Path:
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / "RAG_ProGuide.json").write_text(json.dumps(rows))
        return tmp_path / "data"

    return make


def sample_of(folder: Path, name: str = "sample.csv", **flags: Any) -> list[dict[str, str]]:
    """The rows of the sample that is written beside a data set."""
    path = folder.parent / name
    package.review_sample(folder, path, **flags)
    if path.suffix == ".json":
        return [task["data"] for task in json.loads(path.read_text("utf-8"))]
    return list(csv.DictReader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")))


def by_label(folder: Path, row: dict[str, str], *, wrong: bool = False) -> str:
    """The verdict that agrees with the label."""
    pair = next(each for each in read_pairs(folder) if row["pair"].startswith(each.pair))
    return "ab"[(row["a"] != pair.chosen) != wrong]


def judged(path: Path, rows: list[dict[str, Any]], delimiter: str = ",") -> Path:
    file = io.StringIO(newline="")
    table = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
    table.writeheader()
    table.writerows(rows)
    path.write_text(file.getvalue(), "utf-8", newline="")
    return path


# -- out -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sample.csv", "tasks.json"])
def test_the_sample_says_nothing_of_the_labels(data_set: Callable[..., Path], name: str) -> None:
    """Neither by a field nor by an order: with the labels exchanged it is the same, byte for byte."""
    rows = [row(number) for number in range(30)]
    folder = data_set(*rows)
    found = sample_of(folder, name, sample=20)
    before = (folder.parent / name).read_bytes()
    assert len(found) == 20
    assert not [each for each in LABELS if each in before.decode("utf-8")]
    (folder.parent / name).unlink()
    exchanged = [
        each | {"chosen": each["rejected"], "rejected": each["chosen"], "chosen_reward": 0.0, "tags": []}
        for each in rows
    ]
    assert sample_of(data_set(*exchanged), name, sample=20) == found
    assert (folder.parent / name).read_bytes() == before


def test_the_command_says_how_to_go_on(reasonrag: Reasonrag, data_set: Callable[..., Path]) -> None:
    """With the command that reads the verdicts. Rows that show no choice are no pairs. No file is replaced."""
    folder = data_set(row(1), row(1), row(2, rejected=row(2)["chosen"]), {"chosen": 1}, row(3))
    out = folder.parent / "sample.csv"
    done = reasonrag("review", folder, "--out", out)
    assert "2 of 2 pairs" in " ".join(done.out.split())
    assert f"next: reasonrag review {folder} --judgements {out}" in done.out
    for_label_studio = reasonrag("review", folder, "--out", "tasks.json")
    assert f"next: reasonrag review {folder} --judgements ITS_EXPORT.csv" in for_label_studio.out
    before = out.read_bytes()
    again = reasonrag("review", folder, "--out", out)
    assert (again.status, out.read_bytes()) == (2, before)
    assert "is there already, perhaps with verdicts in it" in again.err


FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "  =1", "\uff1d1", '=HYPERLINK("http://x","y")')


def test_no_text_is_a_formula_in_a_spreadsheet(data_set: Callable[..., Path]) -> None:
    """An apostrophe stands before it; other texts, and those of tasks, are as they were."""
    folder = data_set(*(row(n, input=text, chosen=text, rejected="plain") for n, text in enumerate(FORMULAS)))
    for found in sample_of(folder):
        assert found["prompt"].startswith("'")
        assert sorted([found["a"], found["b"]]) == sorted(["plain", found["prompt"]])
    assert {each["prompt"] for each in sample_of(folder, "tasks.json")} == set(FORMULAS)


def test_hostile_text_is_data_and_comes_back(reasonrag: Reasonrag, data_set: Callable[..., Path]) -> None:
    """Quotes, line breaks, control characters, halves of surrogates; in names, notes and verdicts nothing moves."""
    text = f'{HOSTILE} "quoted", a;b\nnew\r\nline,'
    folder = data_set(row(1, input=text, chosen=text, rejected=text + "!", pair_id=text))
    [found] = sample_of(folder)
    assert found["a"].removesuffix("!") == text.replace("\ud800", "\ufffd")
    path = judged(
        folder.parent / "\u202e[bold]ana.csv", [found | {"verdict": " A ", "note": HOSTILE.replace("\ud800", "")}]
    )
    done = reasonrag("review", folder, "--judgements", path)
    assert done.status == 0, done.err
    refused = reasonrag("review", folder, "--judgements", judged(path, [found | {"verdict": HOSTILE[:-20]}]))
    assert refused.status == 2
    assert not {"\x1b", "\x07", "\x08", "\u202e", "\x9b"} & {*done.out, *done.err, *refused.err}
    assert "[bold]ana" in done.out


# -- in --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_spreadsheet_comes_back_as_agreement(
    reasonrag: Reasonrag, data_set: Callable[..., Path], delimiter: str
) -> None:
    """Somebody who reads the labels: all alike. Columns may move, go and be added; case does not matter."""
    folder = data_set(*(row(number) for number in range(20)))
    rows = [
        {"mine": 1, "verdict": by_label(folder, each).upper(), "pair": each["pair"], "b": each["b"]}
        for each in sample_of(folder)
    ]
    path = judged(folder.parent / "ana.csv", rows, delimiter)
    report = package.review_report(folder, path)
    [found] = report.reviewers
    assert (report.pairs, found.reviewer, found.judged) == (20, "ana", 20)
    assert (found.agreement.confirmed.share, found.disagreements) == (1.0, [])
    done = reasonrag("review", folder, "--judgements", path)
    shown = " ".join(done.out.replace("│", " ").split())
    assert "agreement with labels 20 right, 0 wrong, 0 ties: 1.00 (90 % CI 0.88 to 1.00) of 20" in shown
    assert json.loads(reasonrag("review", folder, "--judgements", path, "--json").out) == report.model_dump()


def test_what_is_not_judged_does_not_count(reasonrag: Reasonrag, data_set: Callable[..., Path]) -> None:
    """Ties are counted, skips only as such; a note stands with its pair."""
    folder = data_set(*(row(number) for number in range(6)))
    rows = sample_of(folder)
    for each, verdict in zip(rows, ("right", "wrong", "tie", "skip", "", " "), strict=True):
        known = verdict in ("right", "wrong")
        each["verdict"] = by_label(folder, each, wrong=verdict == "wrong") if known else verdict
    rows[1]["note"] = "both\nbad"
    done = reasonrag("review", folder, "--judgements", judged(folder.parent / "ana.csv", rows))
    [found] = package.review_report(folder, folder.parent / "ana.csv").reviewers
    assert (found.judged, found.ties, found.skipped) == (3, 1, 1)
    assert (found.agreement.confirmed.of, found.agreement.wrong) == (2, 1)
    assert [each.note for each in found.disagreements] == ["both bad"]
    assert "judged 3 pairs, 1 of them a tie, 1 skipped" in " ".join(done.out.replace("│", " ").split())
    assert "disagreements with labels 1 pair: --json has them" in " ".join(done.out.replace("│", " ").split())


def test_people_are_compared_with_each_other(reasonrag: Reasonrag, data_set: Callable[..., Path]) -> None:
    """Each by a file, also where they saw the sides of another seed."""
    folder = data_set(*(row(number) for number in range(12)))
    for name, seed in (("ana", 0), ("bob", 1)):
        rows = [each | {"verdict": by_label(folder, each)} for each in sample_of(folder, f"{name}.csv", seed=seed)]
        judged(folder.parent / f"{name}.csv", rows)
    files = [folder.parent / "ana.csv", folder.parent / "bob.csv"]
    [between] = package.review_report(folder, files).between
    assert (between.one, between.other, between.alike.of, between.alike.share) == ("ana", "bob", 12, 1.0)
    done = reasonrag("review", folder, "--judgements", files[0], "--judgements", files[1])
    assert "agreement between reviewers" in done.out


@pytest.mark.parametrize("name", ["min.json", "min.csv"])
def test_label_studio_comes_back_as_agreement(data_set: Callable[..., Path], name: str) -> None:
    """JSON-MIN and CSV have data, verdict and annotator side by side, and an `id` of their own. Annotators are told
    apart, in one task too."""
    folder = data_set(*(row(number) for number in range(5)))
    rows = [
        each | {"id": 3, "annotator": by, "verdict": by_label(folder, each), "lead_time": 2.5}
        for each in sample_of(folder, "tasks.json")
        for by in (4, "ana@x.org")
    ]
    path = folder.parent / name
    if name == "min.csv":
        judged(path, rows)
    else:
        path.write_text(json.dumps(rows))
    found = package.review_report(folder, path).reviewers
    told = {each.reviewer: (each.judged, each.agreement.confirmed.share) for each in found}
    assert told == {"4": (5, 1.0), "ana@x.org": (5, 1.0)}


# -- bad input -------------------------------------------------------------------------------------------------

PAIR = "0123456789abcdef-0"
FILES = {
    "no column": ("s.csv", "pair,prompt\nx,y\n", "s.csv has no column verdict"),
    "not judged": ("s.csv", f"pair,verdict\n{PAIR},\n", "no verdict in .*s.csv: write a, b, tie, skip into the column"),
    "a verdict that is none": (
        "s.csv",
        f"pair,verdict\n{PAIR},a\n{PAIR},A or B\n",
        "row 3: the verdict 'A or B' is none",
    ),
    "a pair that is none": ("s.csv", "pair,verdict\n1.2E+15,a\n", r"row 2: '1.2E\+15' names no pair"),
    "an unknown pair": ("s.csv", f"pair,verdict\n{PAIR},a\n", "row 2: .*data has no such pair; give the data set"),
    "judged twice": ("s.csv", f"pair,verdict\n{PAIR},a\n{PAIR},a\n", "row 3: this pair was judged at .*row 2 already"),
    "an open quote": ("s.csv", f'pair,verdict\n{PAIR},"a\n', "s.csv, after row 1: unexpected end of data"),
    "a workbook": ("s.xlsx", "PK", r"s.xlsx must end in .csv, for a spreadsheet, or .json"),
    "no JSON": ("s.json", "{", "s.json is not JSON"),
    "deep JSON": ("s.json", "[" * 100_000, "s.json is not JSON"),
    "an object": ("s.json", "{}", "s.json, task 1 names no pair; export from Label Studio as JSON-MIN or CSV"),
}


@pytest.mark.parametrize(("name", "content", "says"), FILES.values(), ids=list(FILES))
def test_a_file_that_cannot_be_understood_is_refused_with_its_place(
    reasonrag: Reasonrag, data_set: Callable[..., Path], name: str, content: str, says: str
) -> None:
    """Status 2, without a traceback."""
    folder = data_set(row(1))
    (folder.parent / name).write_text(content)
    done = reasonrag("review", folder, "--judgements", folder.parent / name)
    assert (done.status, done.out) == (2, "")
    assert "Traceback" not in done.err
    assert re.search(says, done.err), done.err


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "give --out FILE to write a sample, or --judgements FILE"),
        (["--out", "a.csv", "--judgements", "b.csv"], "give --out FILE to write a sample, or --judgements FILE"),
        (["--out", "a.txt"], "--out a.txt must end in .csv"),
        (["--judgements", "gone.csv"], "cannot read gone.csv"),
    ],
)
def test_wrong_flags_are_refused(
    reasonrag: Reasonrag, data_set: Callable[..., Path], flags: list[str], says: str
) -> None:
    """Status 2, and nothing is written."""
    done = reasonrag("review", data_set(row(1)), *flags)
    assert done.status == 2
    assert says in done.err
    assert not Path("a.csv").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('[{"chosen": 1}]', "has no pair that can be shown: none of its rows has a prompt and two different replies"),
        ('[{"a": 1}, {', "RAG_ProGuide.json is cut off: it ends after 1 whole items"),
        (None, "there is no RAG_ProGuide.json in {}. Make one with: reasonrag pairs RUN"),
    ],
)
def test_what_is_no_data_set_of_pairs_is_refused(
    reasonrag: Reasonrag, tmp_path: Path, content: str | None, says: str
) -> None:
    """Status 2, with the file and what is wrong in it; the file itself is no data set."""
    rows = tmp_path / "RAG_ProGuide.json"
    (tmp_path / "s.csv").write_text(f"pair,verdict\n{PAIR},a\n")
    if content:
        rows.write_text(content)
    done = reasonrag("review", tmp_path, "--out", tmp_path / "sample.csv")
    assert (done.status, says.format(tmp_path) in " ".join(done.err.split())) == (2, True), done.err
    if content is None:
        assert reasonrag("review", tmp_path, "--judgements", tmp_path / "s.csv").status == 2
    else:
        assert "give the directory" in reasonrag("review", rows, "--out", "o.csv").err
