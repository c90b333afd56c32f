"""The page of an audit: readable by anybody, and harmless whatever the data say."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from reasonrag.curation.audit.audit import DatasetAudit, render_audit_page
from reasonrag.curation.audit.catalogue import CHECK_NAMES
from reasonrag.curation.audit.report import AuditReport
from reasonrag.curation.token_counters import EstimatingCounter
from tests.reasonrag.curation.audit.test_audit import GOOD, row

HOSTILE = "</script></style><script>alert(1)</script><img src=x onerror=alert(2)>\"'{{7*7}}{% x %}--><svg onload=a()>"
WCAG_TEXT, WCAG_GRAPHIC = 4.5, 3.0


def report(*rows: object, file: str = "RAG_ProGuide.json", name: str = "toy") -> AuditReport:
    audit = DatasetAudit(EstimatingCounter(), name=name)
    for each in rows or (*GOOD, row(98, chosen="No tag."), row(99, rejected="No tag.")):
        audit.add(each, file=file, part="train")
    return audit.report()


def tags(page: str) -> set[str]:
    return set(re.findall(r"<(\w+)", page))


@pytest.fixture(scope="module")
def page() -> str:
    return render_audit_page(report())


def test_text_of_others_stays_text(page: str) -> None:
    """In every field of a row, in file names and in the name of the folder: no element, no attribute, no address of
    the data's comes to be."""
    bad = {name: HOSTILE for name, value in row().items() if isinstance(value, str)}
    rows = [
        row(1) | bad,
        row(2, renderer=HOSTILE, split=HOSTILE, dataset=HOSTILE, tags=[HOSTILE], label=HOSTILE),
        row(3, renderer="another", chosen=f"<|{HOSTILE[:30]}|> <query>q</query>", chosen_action_type=HOSTILE),
    ]
    hostile = render_audit_page(report(*GOOD, *rows, file=HOSTILE, name=HOSTILE))
    assert tags(hostile) <= tags(page)
    assert hostile.count("alert(1)") == hostile.count("&lt;script&gt;alert(1)") >= 4
    assert "&#34;&#39;{{7*7}}{% x %}--&gt;" in hostile
    assert not re.search(r"<[^>]*\b(?:on\w+|src|srcdoc|action)=", hostile)


def test_the_page_needs_no_network_and_runs_nothing(page: str) -> None:
    """Not one address outside itself, and a policy that would stop it."""
    assert "script" not in tags(page)
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'\"" in page
    for outside in ("http://", "https://", "@import", "url(", "href"):
        assert outside not in page


def test_every_check_stands_in_the_page_with_its_result_in_words(page: str) -> None:
    """Colour alone says nothing to many."""
    for said in (*CHECK_NAMES, "error</td>", "warning</td>", "passed</td>", "not checked</td>"):
        assert said in page


def test_a_page_of_no_rows_is_a_page() -> None:
    """Nothing to draw is no reason to fail."""
    empty = DatasetAudit(EstimatingCounter(), name="toy").report()
    assert "No errors, no warnings" in render_audit_page(empty)


def test_the_same_report_gives_the_same_page(page: str) -> None:
    """No date, no random names: a data set that did not change shows no difference."""
    assert render_audit_page(report()) == page


# -- contrast, by WCAG 2.2 -------------------------------------------------------------------------------------

TEMPLATE = Path(__file__).parents[4] / "reasonrag" / "templates" / "audit.html.j2"


def palettes() -> dict[str, dict[str, str]]:
    """The colours of the page, for light and for dark screens."""
    blocks = re.findall(r":root \{(.*?)\}", TEMPLATE.read_text("utf-8"), re.DOTALL)
    return {
        mode: dict(re.findall(r"--(\w+): (#[0-9a-f]+)", block))
        for mode, block in zip(("light", "dark"), blocks, strict=True)
    }


def luminance(color: str) -> float:
    digits = color[1:] if len(color) == 7 else "".join(2 * each for each in color[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_everything_can_be_told_from_its_ground(mode: str) -> None:
    """Letters by 4.5 to 1, bars and lines by 3 to 1, on paper and on panels (WCAG 2.2, AA)."""
    colors = palettes()[mode]
    letters = ("ink", "faint", "error", "warning", "passed", "four")
    for name, ground in product(letters, ("paper", "panel")):
        assert contrast(colors[name], colors[ground]) >= WCAG_TEXT, (name, ground)
    for name in ("one", "four"):
        assert contrast(colors[name], colors["panel"]) >= WCAG_GRAPHIC, name
