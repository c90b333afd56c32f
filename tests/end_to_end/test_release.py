"""What a release is told by: its number stands where it is cited, and the pages of the root stay short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from reasonrag import __version__

ROOT = Path(__file__).parents[2]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))


def test_the_changelog_begins_with_the_version_that_is_cited() -> None:
    """With one date."""
    [(version, date), *_] = re.findall(
        r"^## \[(.+)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE
    )
    assert (version, CITATION["version"], str(CITATION["date-released"])) == (__version__, __version__, date)


def test_the_citation_names_the_paper_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    [paper] = CITATION["references"]
    assert (paper["type"], paper["year"]) == ("conference-paper", 2025)
    assert paper["title"] in readme.replace("{", "").replace("}", "")
    named = [f"{each['family-names']}, {each['given-names']}" for each in paper["authors"]]
    assert " and ".join(named) in " ".join(readme.split())


@pytest.mark.parametrize(("page", "most"), [("AGENTS.md", 30), ("CHANGELOG.md", 40)])
def test_a_page_of_the_root_is_short(page: str, most: int) -> None:
    assert len((ROOT / page).read_text("utf-8").splitlines()) <= most


@pytest.mark.parametrize("form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").iterdir()), ids=lambda form: form.name)
def test_a_form_for_issues_is_one(form: Path) -> None:
    """By the keys without which GitHub shows none."""
    read = yaml.safe_load(form.read_text("utf-8"))
    assert all(isinstance(read[key], str) for key in ("name", "description"))
    asked = [each for each in read["body"] if each["type"] != "markdown"]
    assert asked
    assert all(each["attributes"]["label"] for each in asked)
