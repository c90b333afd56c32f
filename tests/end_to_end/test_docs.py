"""The documentation site is built strictly, says all that it must, and fetches nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import reasonrag
from reasonrag.cli import app
from reasonrag.exploration.degeneracy import PAGE as SIGNS_PAGE
from reasonrag.exploration.degeneracy import SIGNS

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
MOST_WORDS = 1500


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make docs` builds it."""
    place = tmp_path_factory.mktemp("site")
    stub = ROOT / "reasonrag" / "__init__.pyi"
    stays = stub.exists()
    subprocess.run([sys.executable, ROOT / "hatch_build.py"], check=True)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(ROOT / "mkdocs.yml")]
    silent = {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    built = subprocess.run(
        [*command, "--site-dir", str(place)], check=False, capture_output=True, text=True, env=os.environ | silent
    )
    if not stays:  # mypy would read it, once it is out of date, too
        stub.unlink()
    assert built.returncode == 0, built.stderr
    return place


def test_every_command_and_every_call_has_its_page(site: Path) -> None:
    """Those of groups too; a page shows what the command's help says."""
    group = typer.main.get_command(app)
    for name, command in vars(group)["commands"].items():
        for words in (
            (f"{name}-{each}" for each in vars(command)["commands"]) if hasattr(command, "commands") else [name]
        ):
            assert (site / "reference" / "commands" / f"{words}.html").is_file(), words
    for name in set(reasonrag.__all__) - {"__version__"}:
        page = (site / "reference" / "python" / f"{name}.html").read_text("utf-8")
        assert f'id="reasonrag.{name}"' in page or f'.{name}"' in page, name
    assert "--max-cost" in (site / "reference" / "commands" / "generate.html").read_text("utf-8")


def test_a_reader_of_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    """Scripts, styles, fonts and pictures lie beside the pages."""
    for page in site.rglob("*.html"):
        fetched = re.findall(
            r"<(?:script|img|link|iframe)\b[^>]*(?:src|href)=\"(https?://[^\"]+)", page.read_text("utf-8")
        )
        assert fetched == [], page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_a_page_can_be_read_at_one_sitting(page: Path) -> None:
    """Whoever adds to a full page divides it first."""
    assert len(page.read_text("utf-8").split()) <= MOST_WORDS


def anchors(page: Path) -> set[str]:
    """Of its headings, as the site and GitHub make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings}


def test_every_page_that_code_and_messages_name_exists() -> None:
    """Also in settings, configurations, notebooks and the pages of folders; with the heading where one is named."""
    texts = [each for kind in ("py", "yaml", "md", "ipynb", "j2") for each in ROOT.glob(f"*/**/*.{kind}")]
    sources = [*ROOT.glob("*.md"), *(each for each in texts if each.parts[len(ROOT.parts)] in OURS)]
    named = {each for path in sources for each in re.findall(r"docs/[\w/-]+\.md(?:#[\w-]+)?", path.read_text("utf-8"))}
    named |= {f"{SIGNS_PAGE}#{sign.name.replace('_', '-')}" for sign in SIGNS}
    assert len(named) > len(SIGNS)
    for each in named:
        page, _, heading = each.partition("#")
        assert (ROOT / page).is_file(), each
        assert not heading or heading in anchors(ROOT / page), each


def test_every_message_that_the_page_explains_is_said() -> None:
    """In a string of the source, however its line is broken; the one of huggingface_hub apart."""
    page = (ROOT / "docs" / "troubleshooting" / "messages.md").read_text("utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    messages = [each for row in rows if "huggingface_hub" not in row for each in re.findall(r"`([^`]+)`", row)]
    assert len(messages) > 30
    modules = (path for package in ("reasonrag", "preference") for path in (ROOT / package).rglob("*.py"))
    source = "".join(path.read_text("utf-8") for path in modules)
    said = re.sub(r'"\s*f?"', "", source)
    assert [each for each in messages if each not in said] == []


OURS = {"mcts", "preference", "reasonrag", "train_configs", "deploy", "indexes", "notebooks", "benchmarks", "tests"}
