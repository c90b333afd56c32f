"""The page of an audit: readable by anybody, and harmless whatever the data say."""

from __future__ import annotations

import re

import pytest

from reasonrag.curation.audit.audit import DatasetAudit
from reasonrag.curation.audit.catalogue import CHECKS
from reasonrag.curation.audit.report import AuditReport
from reasonrag.curation.token_counters import EstimatingCounter
from tests.reasonrag.curation.audit.test_audit import GOOD, row

HOSTILE = "</script></style><script>alert(1)</script><img src=x onerror=alert(2)>\"'{{7*7}}{% x %}--><svg onload=a()>"

LONGER = tuple(row(number, rejected=f"{'Hm, ' * 60}<answer>x</answer>") for number in range(20, 60))


def report(*rows: object, file: str = "RAG_ProGuide.json", name: str = "toy") -> AuditReport:
    audit = DatasetAudit(EstimatingCounter(), name=name)
    for each in rows or (*GOOD, row(98, chosen="No tag."), *LONGER):
        audit.add(each, file=file, part="train")
    return audit.report()


def tags(page: str) -> set[str]:
    return set(re.findall(r"<(\w+)", page))


@pytest.fixture(scope="module")
def page() -> str:
    return report().page()


def test_text_of_others_stays_text(page: str) -> None:
    """In every field of a row, in file names and in the name of the folder: no element, no attribute, no address of
    the data's comes to be."""
    bad = {name: HOSTILE for name, value in row().items() if isinstance(value, str)}
    rows = [
        row(1) | bad,
        row(2, renderer=HOSTILE, split=HOSTILE, dataset=HOSTILE, tags=[HOSTILE], label=HOSTILE),
        row(3, renderer="another", chosen=f"<|{HOSTILE[:30]}|> <query>q</query>", chosen_action_type=HOSTILE),
    ]
    hostile = report(*GOOD, *rows, file=HOSTILE, name=HOSTILE).page()
    assert tags(hostile) <= tags(page)
    assert hostile.count("alert(1)") == hostile.count("&lt;script&gt;alert(1)") >= 4
    assert "&#34;&#39;{{7*7}}{% x %}--&gt;" in hostile
    assert not re.search(r"<[^>]*\b(?:on\w+|src|srcdoc|action)=", hostile)


def test_the_page_needs_no_network_and_runs_nothing(page: str) -> None:
    """Not one address but that of the page beside it, and a policy that would stop it."""
    assert "script" not in tags(page)
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'\"" in page
    for outside in ("http://", "https://", "@import", "url("):
        assert outside not in page
    assert {each.partition("?")[0] for each in re.findall(r"href=(\S*)", page)} == {'"view.html#/pairs'}


def test_every_check_stands_in_the_page_with_its_result_in_words(page: str) -> None:
    """Colour alone says nothing to many."""
    for said in (*CHECKS, "error</td>", "warning</td>", "passed</td>", "not checked</td>"):
        assert said in page
