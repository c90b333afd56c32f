"""The proof: its analysis says what PROOF.md allows, it refuses what would spoil it, and its path holds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loop import BEFORE
from proof import ARMS, OF_BASE, QUICK_ARMS, QUICK_RATES, TRIED, Proof, ProofPlan, tune, verdict
from proof_report import PRIMARY, conclusion, difference, gap_of_bed, holm, read_seeds, report, two_sided
from reporting import ROOT

from tests.helpers.jsonl import write_rows
from tests.helpers.training_world import environment

QUESTIONS = 2000
BETWEEN, APART = 0.02, 0.4
"""SD of what a seed adds to the difference of two arms, beside the questions that are drawn; and the share of questions
that each arm answers by its own dice."""


def seed_of(number: int, means: Mapping[str, float], dice: np.random.Generator, count: int = QUESTIONS) -> Any:
    """Figures as `proof.py` writes them. means: shares of right answers. Six in ten questions are answered alike by all
    arms, so that two arms differ in a fifth of them."""
    alike, shared = dice.random(count) < 1 - APART, dice.random(count)
    em = {
        arm: "".join(map(str, np.where(alike, shared < mean, dice.random(count) < mean + BETWEEN * moved).astype(int)))
        for (arm, mean), moved in zip(means.items(), dice.normal(size=len(means)) / APART / np.sqrt(2), strict=True)
    }
    arms = {arm: {"em": each, "gold_found": 0.5, "unreadable": 2, "searches": 2.5} for arm, each in em.items()}
    trained = {"pairs": 600, "training": {when: [-9.0, -11.0] for when in ("first", "last")}}
    for arm in QUICK_RATES.keys() - {"sft"}:
        arms[arm] |= trained
    for arm, right in (("consensus", 86), ("outcome", 72), ("values", 85)):
        arms[arm]["labels"] = {"right": right, "wrong": 100 - right, "ties": 0, "margin": 0.2}
    run = {"done": 400, "calls": 50_000, "cost_usd": 21.0}
    plan = {"questions": {"heldout": count}, "bed": "a bed", "seeds": 12, "pairs": 600, "steps": 120}
    took = {"critics": 300.0, "deep": 1500.0}
    return {"seed": number, "plan": plan, "arms": arms, "runs": {"deep": run, "wide": run}, "seconds": took}


def seeds_of(means: Mapping[str, float], *, seeds: int = 12, dice: int = 0) -> list[Any]:
    drawn = np.random.default_rng(dice)
    return [seed_of(number, {"before": 0.3} | means, drawn) for number in range(seeds)]


ALIKE = dict.fromkeys(ARMS, 0.4)


# -- the analysis ------------------------------------------------------------------------------------------------


def test_twelve_seeds_of_2000_questions_find_two_points() -> None:
    """The must of the plan, where seeds differ by 2 points beside the questions that are drawn."""
    found = [difference(seeds_of(ALIKE, dice=dice), *PRIMARY) for dice in range(8)]
    assert np.mean([each["sd"] for each in found]) > 100 * BETWEEN
    assert np.mean([each["detectable"] for each in found]) == pytest.approx(2.0, abs=0.15)


def test_a_difference_is_the_mean_over_seeds_and_is_found_where_it_is_large() -> None:
    found = difference(seeds_of(ALIKE | {"consensus": 0.46}), *PRIMARY)
    assert 0 < found["low"] < found["value"] < found["high"]
    assert found["low"] < 6 < found["high"]
    assert found["resampled_low"] < found["value"] < found["resampled_high"]
    assert found["p"] < 1e-3
    with pytest.raises(ValueError, match="differ by the same amount in all seeds"):
        difference([seed_of(0, {"before": 0.3} | ALIKE, np.random.default_rng(0))] * 4, *PRIMARY)


@pytest.mark.parametrize(("t", "seeds", "p"), [(12.706, 2, 0.05), (2.201, 12, 0.05), (-4.437, 12, 0.001), (0, 12, 1)])
def test_p_is_that_of_students_t(t: float, seeds: int, p: float) -> None:
    """Figures of printed tables."""
    assert two_sided(t, seeds) == pytest.approx(p, rel=1e-3)


def test_holm_corrects_the_smallest_most_and_keeps_the_order() -> None:
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.6, 0.5]) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("low", "value", "high", "inner", "said"),
    [
        (0.4, 2.0, 3.6, 1.3, "Pairs by consensus teach more than pairs by outcome, in this bed: +2.0 EM (95 % CI +0.4"),
        (-3.6, -2.0, -0.4, 1.3, "Pairs by outcome teach more than pairs by consensus, in this bed"),
        (-1.0, 0.2, 1.4, 1.0, "Both teach as much within 2 points, in this bed: +0.2 EM (95 % CI -1.0 to +1.4); a"),
        (-1.0, 1.0, 3.0, 1.6, "No difference was shown, and none was excluded"),
    ],
)
def test_the_conclusion_is_the_one_that_the_plan_allows(
    low: float, value: float, high: float, inner: float, said: str
) -> None:
    """And a null names the difference that would have been seen."""
    ends = {"equivalent_low": value - inner, "equivalent_high": value + inner, "detectable": 2.34}
    primary = {"low": low, "value": value, "high": high} | ends
    transmitted = {("consensus", "placebo"): 1}
    text = conclusion(primary, transmitted)
    assert text.startswith(said)
    assert ("a difference of 2.3 points would have been found" in text) == (low <= 0 <= high)
    few = conclusion(primary, transmitted, ["few seeds", "a small gap"])
    assert few == f"Exploratory: few seeds; a small gap. {text}"
    assert conclusion(primary, {}).startswith("DPO was not shown to transmit labels in this bed")
    best = conclusion(primary, transmitted | {("sft", "consensus"): 1})
    assert best.endswith("Best paths teach more than preferences, in this bed.")


def test_the_report_has_all_arms_their_labels_and_the_tests_of_the_plan() -> None:
    text = "\n".join(report(seeds_of(ALIKE | {"consensus": 0.5, "placebo": 0.3})))
    for arm in ("before", *ARMS):
        assert f"| {arm} |" in text
    for said in (
        "86.0% of 1200",
        "| consensus - outcome |",
        "| sft - consensus |",
        "| consensus - placebo |",
        "| values - outcome |",
        "Pairs by consensus teach more than pairs by outcome, in this bed",
        "5.0 of the critics, which cost no dollars",
    ):
        assert said in text
    few = seeds_of(ALIKE, seeds=4)
    del few[2]["arms"]["values"]
    told = "\n".join(report(few))
    assert "Exploratory: fewer seeds than the plan asks for. DPO was not shown to transmit" in told
    assert "Not all seeds have both arms of values - outcome." in told


def test_seeds_of_a_bed_with_too_small_a_gap_are_called_exploratory(tmp_path: Path) -> None:
    """By the figures of the bed that they were run in, not by those of others."""
    plan: dict[str, Any] = {"warmup_steps": 2400, "rates": {}, "revalued": 400}
    for number, steps, accepted, gap in ((5, 1200, False, 0.13), (7, 2400, False, 0.051), (8, 2, True, 0.2)):
        bed = {"plan": plan | {"warmup_steps": steps}, "accepted": accepted, "gap": gap}
        write_rows(tmp_path / f"bed-{number}.json", [bed])
    seeds = {"rates": {"sft": [1e-4, 0]}, "revalued": 100}
    found = [gap_of_bed(tmp_path, plan | seeds | {"warmup_steps": steps}) for steps in (2400, 2, 3)]
    assert found == [0.051, None, None]
    text = "\n".join(report(seeds_of(ALIKE), found[0]))
    assert "Exploratory: in the bed's own seed labels of consensus were 5.1 points righter, too little a gap. " in text


# -- what would spoil it -----------------------------------------------------------------------------------------


def asked(*flags: str, home: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "proof.py"), *flags]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment(home, None))


def test_it_refuses_another_plan_and_seeds_that_were_seen(tmp_path: Path) -> None:
    other = tmp_path / "work"
    other.mkdir()
    (other / "plan.json").write_text("{}")
    write_rows(tmp_path / "seeds" / "seed-0.json", [{"seed": 0, "plan": {"pairs": 3, "rates": {}}}])
    for flags, said in (
        (("--quick", "--work", str(other)), "holds an experiment of another plan; give another --work"),
        (("--bed", "--results", str(tmp_path / "seeds")), "seeds has figures of another plan; give other --results"),
        (("--results", str(tmp_path)), "rates.json is not there: choose the rates first, by --tune"),
        (("--work", str(tmp_path / "new"), "--seeds", "99-102"), "seed 100 was seen before the plan; give others"),
        (("--report", "--results", str(tmp_path)), "has no figures of a seed yet"),
    ):
        done = asked(*flags, home=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert said in done.stderr
    assert not (tmp_path / "new").exists()
    for number in (0, 1):
        write_rows(tmp_path / f"seed-{number}.json", [{"seed": number, "plan": {"pairs": number}}])
    with pytest.raises(SystemExit, match="seeds 0 and 1 are of other plans"):
        read_seeds(tmp_path)


@pytest.mark.parametrize(
    ("consensus", "right", "taught", "accepted"),
    [(81, 30, 5, True), (80, 30, 5, False), (90, 29, 9, False), (90, 71, 9, False), (90, 50, 4, False)],
)
def test_a_bed_is_accepted_with_nine_points_and_a_student_that_answers_some_and_can_be_taught(
    consensus: int, right: int, taught: int, *, accepted: bool
) -> None:
    labels = {"consensus": {"right": consensus, "wrong": 100 - consensus}, "outcome": {"right": 72, "wrong": 28}}
    found = verdict(labels, *("1" * each + "0" * (100 - each) for each in (right, right + taught)))
    assert (found["accepted"], found["exploratory"]) == (accepted, consensus < 81)
    assert found["gap"] == pytest.approx(consensus / 100 - 0.72)
    assert (found["before"], found["taught"]) == (right / 100, pytest.approx(taught / 100))


def test_the_rates_are_those_of_the_best_mean_over_the_seeds_that_are_there_for_them(tmp_path: Path) -> None:
    for seed, sure, best_paths in ((101, [0.4, 0.5, 0.45], [0.3, 0.2, 0.6]), (102, [0.5, 0.42, 0.42], [0.3, 0.7, 0.2])):
        em = dict.fromkeys(TRIED, sure) | {"sft": best_paths}
        (tmp_path / f"tuning-{seed}.json").write_text(json.dumps({"em": em}))
    proof = Proof(ProofPlan(), tmp_path / "work")  # has nothing to do
    found = tune(proof, tmp_path, ThreadPoolExecutor(1))
    assert found["em"]["outcome"] == pytest.approx([0.45, 0.46, 0.435])
    pairs, paths = TRIED["consensus"][1], TRIED["sft"][1]
    assert found["rates"] == {"consensus": pairs, "outcome": pairs, "values": pairs, "placebo": pairs, "sft": paths}


# -- end to end --------------------------------------------------------------------------------------------------


@pytest.mark.timeout(600)
def test_a_student_that_all_others_begin_as_is_trained_where_there_is_none(tmp_path: Path) -> None:
    proof = Proof(replace(ProofPlan().quick(), base_steps=(2, 3)), tmp_path / "work", base=tmp_path / "none")
    proof.prepare()
    assert json.loads((proof.of(OF_BASE) / BEFORE / "metrics.json").read_bytes())["steps"] == 3


@pytest.mark.timeout(1200)
def test_quick_runs_a_seed_to_its_table_and_the_bed_with_what_the_seed_has_made(tmp_path: Path) -> None:
    """A bed that is refused ends with exit status 1 and its figures."""
    where = ("--quick", "--work", str(tmp_path / "work"))
    done = asked(*where, home=tmp_path)
    assert done.returncode == 0, done.stderr
    bed = asked(*where, "--bed", home=tmp_path)
    told = json.loads(bed.stdout)
    assert bed.returncode == (0 if told["accepted"] or told["exploratory"] else 1), bed.stderr
    assert told["labels"].keys() == {"consensus", "outcome", "values"}
    assert "reasonrag generate" not in bed.stdout + bed.stderr
    [seed] = read_seeds(tmp_path / "work" / "results")
    assert {*seed["arms"]} == {"before", *QUICK_ARMS}
    for arm, each in seed["arms"].items():
        assert len(each["em"]) == seed["plan"]["questions"]["heldout"], arm
        assert f"| {arm} |" in done.stdout
