"""A folder of pages becomes a corpus: what is in it, what is left out and told, and that it can be searched."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import orjson
import pytest

import reasonrag as calls
from reasonrag.data.corpus import Corpus, scan_corpus
from reasonrag.data.documents.document import name_of, plain_document
from reasonrag.errors import InputError
from tests.helpers.command_line import Reasonrag
from tests.helpers.documents import pdf


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    folder = tmp_path / "handbook"
    files = {
        "README.md": b"# Handbook\n\nHow we work.",
        "hr/leave.md": b"# Leave\n\nEveryone has 28 days.\n\n## Parents\n\nUp to 14 months together.",
        "hr/copy of leave.md": b"# Leave\n\nEveryone has 28  days.",
        "it/vpn.html": b"<title>VPN</title><nav>Home</nav><h2>Problems</h2><p>Restart it.</p>",
        "it/laptops.txt": b"Laptops\n\n" + b"".join(b"Laptop %d is replaced after four years. " % i for i in range(60)),
        "legal/travel.pdf": pdf([["Second class only."]], title="Travel policy"),
        "it/old.txt": "München".encode("latin-1"),
        "logo.png": b"\x89PNG",
        ".git/config.md": b"secret",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (tmp_path / "outside.md").write_text("outside")
    (folder / "link.md").symlink_to(tmp_path / "outside.md")
    (folder / "linked").symlink_to(tmp_path)
    return folder


def test_a_folder_of_pages_becomes_a_corpus_that_is_searched(pages: Path, reasonrag: Reasonrag) -> None:
    """One command, and the next one works as it is printed, but for the questions."""
    done = reasonrag("corpus", "build", pages.name)
    assert done.status == 0
    assert "unreadable: it/old.txt: not UTF-8 text; convert it" in done.out
    assert "wrote corpora/handbook.jsonl (8 passages)" in done.out
    scan = scan_corpus(Path("corpora/handbook.jsonl"))
    passages = list(Corpus(Path("corpora/handbook.jsonl"), scan.offsets))
    laptops = [each.text for each in passages if each.title == "Laptops"]
    assert [(each.id.partition("#")[0], each.title, each.text) for each in passages if each.title != "Laptops"] == [
        ("README.md", "Handbook", "How we work."),
        ("hr/copy of leave.md", "Leave", "Everyone has 28  days.".replace("  ", " ")),
        ("hr/leave.md", "Leave > Parents", "Up to 14 months together."),
        ("it/vpn.html", "VPN > Problems", "Restart it."),
        ("legal/travel.pdf", "Travel policy", "Second class only."),
    ]
    assert [text.endswith("years.") for text in laptops] == [True] * 3
    about = orjson.loads(Path("corpora/handbook.summary.json").read_bytes())
    assert about["sha256"] == scan.sha256
    assert (about["passages"], about["duplicates"]) == (8, 1)
    assert about["files"] == {"HTML": 1, "Markdown": 3, "PDF": 1, "plain text": 1}
    assert about["left_out"] == {"links": 2, "hidden": 1, ".png": 1}
    Path("q.jsonl").write_text('{"id": "q", "question": "How many months may parents take?"}\n')
    generate = ("generate", "--questions", "q.jsonl", "--corpus", "corpora/handbook.jsonl", "--outcome", "judge")
    assert reasonrag(*generate, "--model", "offline", "--run", "runs/q").status == 0
    assert "Leave > Parents" in Path("runs/q/rollouts.jsonl").read_text("utf-8")


def test_the_same_pages_give_the_same_bytes_and_a_changed_one_leaves_other_ids(pages: Path, tmp_path: Path) -> None:
    """Wherever the folder lies; gold passages that questions name by id stay true."""
    built = calls.corpus_build(pages, out=tmp_path / "a.jsonl")
    shutil.copytree(pages, tmp_path / "elsewhere", symlinks=True)
    leave = tmp_path / "elsewhere/hr/leave.md"
    calls.corpus_build(tmp_path / "elsewhere", out=tmp_path / "b.jsonl")
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    leave.write_text(leave.read_text().replace("14 months", "20 months"))
    changed = calls.corpus_build(tmp_path / "elsewhere", out=tmp_path / "b.jsonl")
    assert (built.passages, changed.passages) == (8, 8)
    lines = [set((tmp_path / name).read_bytes().splitlines()) for name in ("a.jsonl", "b.jsonl")]
    assert len(lines[0] & lines[1]) == 7


def test_what_has_no_text_or_would_replace_other_files_is_refused(pages: Path, tmp_path: Path) -> None:
    """A folder of nothing but pictures says so; --out never hits a file of the user's."""
    empty = tmp_path / "pictures"
    empty.mkdir()
    (empty / "a.png").write_bytes(b"x")
    for folder, out, message in (
        (empty, "new/c.jsonl", r"has no document \(.md, .*but 1 .png"),
        (tmp_path / "nowhere", "new/c.jsonl", "does not exist"),
        (pages / "README.md", "new/c.jsonl", "is not a folder"),
        (pages, "handbook/README.md", "is not a corpus: not replaced"),
        (pages, "handbook", "is not a file: not replaced"),
        (pages, "/dev/null", "is not a file: not replaced"),
    ):
        with pytest.raises(InputError, match=message):
            calls.corpus_build(folder, out=tmp_path / out)
    assert not (tmp_path / "new").exists()
    (empty / "b.txt").write_text(" ")
    with pytest.raises(InputError, match=r"nothing in .* could be read, of 1 document: b.txt: empty"):
        calls.corpus_build(empty, out=tmp_path / "new/c.jsonl")
    assert not list((tmp_path / "new").iterdir())


BANNER, MENU, FOOTER = "We use cookies to measure our visitors.", ["Start", "Products", "Phone of help desk"], "Imprint"


def _page(title: str, text: str) -> str:
    links = "".join(f"<div><a href=/{each}>{each}</a></div>" for each in MENU)
    return (
        f"<title>{title} | ACME</title><div class=k1>{BANNER}</div><div class=k2>{links}</div>"
        f"<div class=k3>Start &rsaquo; {title}</div>"
        f"<div class=k4><h2>{title}</h2><p>{text}</p><p>Ask for form 7.</p><p>{text}</p></div>"
        f"<div class=k5>{FOOTER}</div>"
    )


def test_what_most_pages_begin_or_end_with_is_left_out_and_told(tmp_path: Path, reasonrag: Reasonrag) -> None:
    """Banners, menus, paths to a page and footers, though no element says what they are. What stands between a page's
    own lines stays, and --keep-shared keeps all."""
    for title in ("Leave", "Travel", "Laptops", "Parking", "Meals"):
        text = f"{title} is decided by the office on floor {len(title)}, in at most {len(title) * 3} days. "
        (tmp_path / "site").mkdir(exist_ok=True)
        (tmp_path / "site" / f"{title}.html").write_text(_page(title, text * 3), "utf-8")
    (tmp_path / "site/logo.png").write_bytes(b"x")
    done = reasonrag("corpus", "build", "site")
    assert done.status == 0
    assert "not read: logo.png: .png is not read" in done.out
    contents = Path("corpora/site.jsonl").read_text("utf-8")
    assert contents.count("Ask for form 7.") == contents.count("is decided by the office") / 6 == 5
    assert not [each for each in (BANNER, *MENU, FOOTER) if each in contents]
    whole = calls.corpus_build("site", out="corpora/whole.jsonl", keep_shared=True)
    assert whole.shared_lines == {}


def test_copies_and_pages_of_nothing_but_shared_lines_are_not_emptied(tmp_path: Path) -> None:
    """Copies count once; a page that has no line of its own stays as it is."""
    texts = {"a": "Rule 7 holds.", "copy of a": "Rule 7 holds.", "third": "Rule 7 holds.", "b": "Pay 5.", "c": "Pay 6."}
    texts |= {"yes 1": "Yes.", "yes 2": "Yes.", "no": "No."}
    for name, text in texts.items():
        (tmp_path / f"{name}.html").write_text(f"<h1>{name}</h1><p>{text}</p>")
    built = calls.corpus_build(tmp_path, out=tmp_path / "c.jsonl")
    assert (built.passages, built.shared_lines) == (len(texts), {})


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("leave/parental-leave.md", "parental leave"),
        ("leave/index.html", "leave"),
        ("a_b/README.md", "a b"),
        ("README.md", "README"),
        ("notes", "notes"),
    ],
)
def test_a_document_without_a_title_is_named_by_its_file(path: str, name: str) -> None:
    """Or by its folder, where the file's name says nothing."""
    assert name_of(path) == name


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Laptops\n\nNew ones.", "Laptops"),
        ("A sentence.\n\nAnother.", "n"),
        ("One\nTwo", "n"),
        ("x" * 101 + "\n\ny", "n"),
    ],
)
def test_a_plain_text_may_begin_with_its_title(text: str, title: str) -> None:
    """A short line with a blank one below."""
    assert plain_document(text.encode(), "n").title == title


def test_pages_that_reasonrag_wrote_are_no_documents(tmp_path: Path) -> None:
    """A run, a data set and an evaluation below the folder are passed over and counted; another program's are read."""
    folder = tmp_path / "all"
    for name, manifest in {
        "runs/first": ("config.json", '{"config_hash": "0"}'),
        "data/first": ("questions.jsonl", '{"schema_version":"reasonrag.questions/1"}'),
        "evals/first": ("report.json", '{"schema_version": "reasonrag.evaluation/1"}'),
        "models/first": ("reasonrag.json", '{"schema_version": "reasonrag.model/1"}'),
        "tools": ("config.json", '{"theme": "dark"}'),
        "handbook": ("manifest.json", '{"name": "pages"}'),
    }.items():
        (folder / name).mkdir(parents=True)
        (folder / name / manifest[0]).write_text(manifest[1])
        (folder / name / "README.md").write_text(f"# {name}\n\nText of {name}.")
    built = calls.corpus_build(folder, out=tmp_path / "corpus.jsonl")
    assert (built.passages, built.left_out) == (2, {"folders of reasonrag": 4, ".json": 2})


def test_names_and_texts_that_are_no_unicode_are_read_all_the_same(tmp_path: Path) -> None:
    """A name in other bytes is shown with them; half a character, which a PDF's own table of letters may give, is a
    question mark."""
    folder = tmp_path / "handbook"
    folder.mkdir()
    Path(os.fsdecode(bytes(folder) + b"/caf\xe9.txt")).write_text("Open from nine.")
    table = b"1 begincodespacerange <00> <ff> endcodespacerange 1 beginbfchar <41> <d800> endbfchar"
    (folder / "leave.pdf").write_bytes(pdf([["ABC days of leave."]], letters=table))
    built = calls.corpus_build(folder, out=tmp_path / "a.jsonl")
    assert (built.passages, built.unreadable) == (2, [])
    found = [orjson.loads(line) for line in (tmp_path / "a.jsonl").read_bytes().splitlines()]
    assert [each["id"].partition("#")[0] for each in found] == ["caf\\xe9.txt", "leave.pdf"]
    assert "?BC days of leave." in found[1]["contents"]
