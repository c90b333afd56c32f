"""The page of an evaluation: pictures of chains, every figure with its meaning, and harmless whatever names say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from reasonrag.critics.evaluation.measures import Estimate
from reasonrag.critics.evaluation.report import ChainKind, CriticEvaluation, RunResult, write_page
from tests.reasonrag.curation.audit.test_page import HOSTILE, tags

SHARE = Estimate(value=0.8, low=0.7, high=0.9, n=40, questions=20)
FIGURES = dict.fromkeys(("accuracy", "outcome_model", "advantage", "golden_over_shuffled"), SHARE)
SCORES: dict[ChainKind, list[float]] = {"golden": [0.5, 1, 2], "shuffled": [-1, 0, 0.5], "won": [1], "lost": [-1]}
TOLD = {"trained_on": ["atlas/train"], "settings": {"bootstrap": 2000, "seed": 0}, "versions": {"reasonrag": "1"}}


def page_of(place: Path, changes: Mapping[str, object] = TOLD, *, run: str = "runs/x") -> Path:
    told = RunResult(run=run, questions=20, seen=2, truth="values of the tree", pairs=40, datasets=[f"{run}/dev"])
    report = CriticEvaluation(critic="m", against="o", runs=[told], questions=9, accuracy=SHARE, chain_scores=SCORES)
    write_page(place, report.model_copy(update={**FIGURES, "by_margin": {"above .3": SHARE}, **TOLD, **changes}))
    return place / "critic_evaluation.html"


def test_two_distributions_lie_on_one_axis_and_figures_have_intervals(tmp_path: Path) -> None:
    page = page_of(tmp_path).read_text()
    assert "golden (blue, solid line): 3 chains, mean score 1.17" in page
    assert len(re.findall(r'<path class="(?:first|second)" d="M0 160V[\dVH.]+Z"/>', page)) == 4
    assert re.findall(r"<text [^>]*>([^<]+)</text>", page)[:3] == ["-1.00", "0.50", "2.00"]
    assert page.count("80.0% (95 % CI 70.0% to 90.0%); 40 of 20 questions") == 4
    assert "It was trained on questions of atlas/train" in page
    assert "20 questions of runs/x/dev, 2 left out as trained on" in page


def test_what_is_missing_is_said_where_it_would_stand(tmp_path: Path) -> None:
    nothing = {
        "chain_scores": {},
        "trained_on": [],
        "accuracy": Estimate(),
        **dict.fromkeys(("outcome_model", "advantage")),
    }
    page = page_of(tmp_path, nothing).read_text()
    missing = "two questions have a chain to a right answer|question has chains to right and to wrong answers"
    assert len(re.findall(f"No picture: no (?:{missing})", page)) == 2
    for said in ("<td>no cases</td>", "No outcome model was given", "trained on questions of unknown data sets"):
        assert said in page
    assert "<path" not in page


def test_text_of_others_stays_text_and_the_page_needs_no_network(tmp_path: Path) -> None:
    bad: dict[str, object] = {"critic": HOSTILE, "against": HOSTILE, "failures": [HOSTILE], "verdict": "failed"}
    bad |= {"remarks": [HOSTILE], "trained_on": [HOSTILE], "by_action_type": {HOSTILE: SHARE}}
    plain, hostile = page_of(tmp_path).read_text(), page_of(tmp_path, bad, run=HOSTILE).read_text()
    assert tags(hostile) == tags(plain)
    assert "script" not in tags(plain)
    assert hostile.count("alert(1)") == hostile.count("&lt;script&gt;alert(1)") == 9
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'\"" in plain
    assert not [outside for outside in ("http://", "https://", "@import", "url(", "href", "src=") if outside in plain]
