"""`reasonrag compare`: what may be compared, how sure a difference is, and what it may be called."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from preference.export.private_files import write_json
from preference.records import QuestionError
from reasonrag.errors import InputError
from reasonrag.evaluation.comparability import read_conditions
from reasonrag.evaluation.compare import compare, default_out
from reasonrag.evaluation.comparison_report import Comparison, PairedComparison
from reasonrag.evaluation.methods.choice import MethodChoice
from reasonrag.evaluation.methods.opening import conditions_of_method
from reasonrag.evaluation.predictions import PredictedStep, Prediction
from reasonrag.evaluation.report import EvaluationConditions, Report
from reasonrag.evaluation.significance import (
    MetricDelta,
    Values,
    detectable,
    equivalence,
    mcnemar,
    paired_differences,
    quantile,
)
from reasonrag.files import PREDICTIONS
from tests.helpers.command_line import Reasonrag

HOSTILE = "[b]x[/b] <script>alert(1)</script> |\x1b[31m ![i](http://e.vil)\n# no heading `"
MakeRun = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """An evaluation's directory: answers by question, each `Ann` (right), `it is Ann` (right but for its style) or
    something else, or None."""

    def make(name: str, answers: Sequence[str | None], **changes: Any) -> Path:
        asked = EvaluationConditions(renderer="r", top_k=3, retriever="bm25", max_steps=7)
        asked = conditions_of_method(
            MethodChoice(changes.get("method", "agent"), 7), asked.model_copy(update=changes.pop("asked", {}))
        )
        config = {"method": "agent", "seed": 0, "top_k": asked.top_k} | changes.pop("config", {})
        update = changes.pop("line", lambda _: {})
        lines = [_line(number, answer).model_copy(update=update(number)) for number, answer in enumerate(answers)]
        report = Report(
            run=name,
            dataset="atlas",
            split="dev",
            questions_sha256="0",
            questions=len(lines),
            answered=len(lines),
            failed=0,
            method="agent",
            model="m",
            asked=asked,
            repair=True,
            config_hash="c",
            seed=0,
            confidence=0.95,
            bootstrap=10,
            bootstrap_seed=0,
            metrics={},
        ).model_copy(update=changes)
        folder = tmp_path / name
        folder.mkdir()
        (folder / PREDICTIONS).write_bytes(b"".join(each.to_line() for each in lines))
        write_json(folder / "report.json", report.model_dump(mode="json"))
        (folder / "config.json").write_bytes(orjson.dumps({"decides_answers": config}))
        return folder

    return make


def _line(number: int, answer: str | None) -> Prediction:
    right = answer == "Ann"
    return Prediction(
        question_id=f"q{number:03d}",
        question=f"Who is number {number}?",
        golden_answers=["Ann"],
        type=("bridge", "comparison")[number % 2],
        hops=2 + number % 2,
        answer=answer,
        em=float(right),
        f1=1.0 if right else 0.5 if answer and "Ann" in answer else 0.0,
        cover_em=float(bool(answer) and "Ann" in str(answer)),
        searches=number % 3,
        calls=2,
        prompt_tokens=100 + number,
        completion_tokens=10,
        steps=[PredictedStep(action="think", response=f"said {answer}", content=answer)],
    )


def pair_of(*runs: Path, **flags: Any) -> Any:
    """The only pair of a comparison."""
    [pair] = compare(runs, **flags).pairs
    return pair


RIGHT, STYLE, WRONG = "Ann", "it is Ann", "Bob"


# -- how sure a difference is ----------------------------------------------------------------------------------


def found(one: Values, other: Values, seed: int = 0) -> MetricDelta:
    [difference] = paired_differences([(one, other)], resamples=200, seed=seed, confidence=0.9)
    return difference


SHARES = st.floats(0, 1, width=16)
QUESTION_VALUES = arrays.arrays(np.float64, st.tuples(st.just(1), st.integers(1, 30)), elements=SHARES)


@given(values=QUESTION_VALUES, dice=st.randoms(use_true_random=False))
def test_exchanging_the_sides_turns_the_sign(values: Values, dice: random.Random) -> None:
    """The same questions are drawn for both, so the interval is mirrored."""
    other = np.array([dice.sample(list(values[0]), values.shape[1])])
    there, back = found(values, other), found(other, values)
    assert there.value == pytest.approx(-(back.value or 0))
    assert (there.low, there.high) == pytest.approx((-(back.high or 0), -(back.low or 0)))
    assert mcnemar(values, other) == mcnemar(other, values)


def test_the_interval_is_that_of_all_resamplings() -> None:
    """Of three questions all 27 resamplings can be listed; their quantiles are the interval's."""
    one, other = np.array([[0.0, 0.0, 1.0]]), np.array([[1.0, 0.0, 1.0]])
    change = (other - one)[0]
    every = [np.mean([change[each] for each in drawn]) for drawn in product(range(3), repeat=3)]
    [difference] = paired_differences([(one, other)], resamples=20_000, seed=0, confidence=0.5)
    expected = np.quantile(every, [0.25, 0.75], method="inverted_cdf")
    assert (difference.low, difference.high) == pytest.approx(tuple(expected))


def test_questions_without_a_value_are_left_out_of_that_metric_alone() -> None:
    """A pair needs a value on both sides, in all seeds."""
    one = np.array([[1.0, np.nan, 0.0, 0.0]])
    other = np.array([[1.0, 1.0, 1.0, np.nan]])
    whole = np.array([[1.0, 1.0, 1.0, 1.0]])
    some, all_ = paired_differences([(one, other), (whole, whole)], resamples=50, seed=0, confidence=0.9)
    assert (some.n, some.reference, some.other, some.value) == (2, 0.5, 1.0, 0.5)
    assert all_.n == 4
    assert found(np.full((1, 3), np.nan), whole[:, :3]) == MetricDelta(n=0)
    assert mcnemar(np.full((1, 3), np.nan), whole[:, :3]) is None


def test_seeds_that_disagree_widen_the_interval() -> None:
    """Two seeds, one always right, one always wrong: resampled questions alone would show no spread at all."""
    reference = np.full((2, 50), 0.5)
    alike, unlike = np.full((2, 50), 0.5), np.array([[1.0] * 50, [0.0] * 50])
    assert (found(reference, alike).low, found(reference, alike).high) == (0, 0)
    assert (found(reference, unlike).low, found(reference, unlike).high) == (-0.5, 0.5)


@pytest.mark.parametrize(
    ("wins", "losses", "p"), [(0, 0, 1.0), (1, 1, 1.0), (5, 0, 2 / 32), (6, 1, 16 / 128), (3, 3, 1.0), (2000, 0, 0.0)]
)
def test_only_questions_that_change_count_in_the_test(wins: int, losses: int, p: float) -> None:
    """By hand: 2 * (1 + 7) / 2**7 of six to one. Of several seeds it is the mean that changes, by however much.
    Questions that change against the mean of all are no evidence for it."""
    one = np.array([[0.0] * wins + [1.0] * losses + [1.0] * 5])
    other = np.array([[1.0] * wins + [0.0] * losses + [1.0] * 5])
    assert mcnemar(one, other) == pytest.approx(p, abs=1e-12)
    assert mcnemar(one, np.concatenate([one, other])) == pytest.approx(p, abs=1e-12)
    assert mcnemar(np.zeros((1, 60)), np.array([[1.0] * 20 + [-0.3] * 40])) == 1


# -- paired seeds, what is detectable, and what is equivalent ----------------------------------------------------


def by_chance(seeds: int, questions: int, effects: Values, dice: np.random.Generator) -> Values:
    """Answers right with a chance of a half, and that of its seed's effect more."""
    right: Values = (dice.random((seeds, questions)) < 0.5 + effects[:, None]).astype(np.float64)
    return right


@pytest.mark.parametrize(("effect", "ratio"), [(0.0, (0.85, 1.15)), (0.1, (0.2, 0.5))])
def test_pairing_seeds_takes_away_what_both_sides_of_a_seed_share(effect: float, ratio: tuple[float, float]) -> None:
    """The interval is narrower where a lucky seed lifts both sides, and about as wide where seeds share nothing."""
    dice = np.random.default_rng(0)
    effects = dice.normal(0, effect, 12)
    pair = by_chance(12, 1000, effects, dice), by_chance(12, 1000, effects, dice)
    widths = []
    for paired in (True, False):
        [delta] = paired_differences([pair], paired_seeds=paired)
        widths.append((delta.high or 0) - (delta.low or 0))
    assert ratio[0] < widths[0] / widths[1] < ratio[1]


@pytest.mark.parametrize(
    ("share", "seeds", "expected"),
    [(0.975, 2, 12.706), (0.975, 3, 4.303), (0.95, 3, 2.920), (0.975, 12, 2.201), (0.8, 12, 0.876), (0.975, 0, 1.960)],
)
def test_quantiles_are_those_of_a_printed_table(share: float, seeds: int, expected: float) -> None:
    """Of Student's t with a degree of freedom less than seeds; without seeds, of the normal distribution."""
    assert quantile(share, seeds) == pytest.approx(expected, abs=6e-4)


def seeds_with(*gained: int, questions: int = 100) -> tuple[Values, Values]:
    """A reference that answers nothing, and another side that answers so many questions under each seed."""
    other = np.array([[1.0] * each + [0.0] * (questions - each) for each in gained])
    return np.zeros_like(other), other


def test_the_t_interval_is_that_of_the_differences_by_seed() -> None:
    """By hand: of 1, 3 and 2 points the mean is 2 and the standard deviation 1, so it is 2 +- 4.303 / sqrt(3). Seeds
    that all differ alike say nothing of others, and have no interval."""
    [delta] = paired_differences([seeds_with(1, 3, 2)], paired_seeds=True)
    assert (delta.by_seed, delta.value) == ((0.01, 0.03, 0.02), 0.02)
    assert (delta.t_low, delta.t_high) == pytest.approx((0.02 - 0.024841, 0.02 + 0.024841), abs=1e-6)
    [alike] = paired_differences([seeds_with(2, 2, 2)], paired_seeds=True)
    assert (alike.by_seed, alike.t_low, alike.value) == ((), None, 0.02)


@pytest.mark.parametrize(
    ("delta", "points"),
    [
        (MetricDelta(n=1000, value=0.0, low=-0.07, high=0.07), 10.006),  # 7 * (1.960 + 0.842) / 1.960
        (MetricDelta(n=1000, value=0.0, low=-0.07, high=0.07, by_seed=(0.1,) * 12, t_low=-0.014, t_high=0.014), 10.006),
        (MetricDelta(n=1000, value=0.0, low=-0.01, high=0.01, by_seed=(0.1,) * 12, t_low=-0.014, t_high=0.014), 1.957),
        (MetricDelta(n=1000, value=0.0, low=0.0, high=0.0), 0.791),  # six questions, if 7.91 are expected
        (MetricDelta(n=5, value=0.0, low=0.0, high=0.0), None),
        (MetricDelta(n=0), None),
    ],
)
def test_the_detectable_difference_has_a_power_of_80_percent(delta: MetricDelta, points: float | None) -> None:
    """The half interval, and as much as that power takes; where there are paired seeds, the larger one of that and of
    1.4 * (2.201 + 0.876) / 2.201 by t. Never less than McNemar's test needs."""
    assert detectable(delta) == (points if points is None else pytest.approx(points, abs=1e-3))


LEAST = 100 * (1 - 0.05**0.01)
"""Points that the share of a hundred cases may have of which none was seen."""


@pytest.mark.parametrize(
    ("sides", "points", "shown"),
    [
        (seeds_with(1, 9, 2), 11.4, True),  # by t 4 +- 2.920 * 4.359 / sqrt(3) = -3.35 to 11.35
        (seeds_with(1, 9, 2), 11.3, False),
        (seeds_with(2, 3, 2), 6.0, True),  # t knows these questions alone, and would end at 2.9
        (seeds_with(2, 3, 2), 4.0, False),
        (seeds_with(0), 3.0, True),
        (seeds_with(0), 2.9, False),
        (seeds_with(0), round(LEAST, 12), False),  # the end itself is not within
        (seeds_with(0, questions=5), 40.0, False),  # five questions without a change show little
        (seeds_with(1), 6.0, True),
        (seeds_with(9), 6.0, False),
    ],
)
def test_sides_are_equivalent_where_the_90_percent_interval_lies_within(
    sides: tuple[Values, Values], points: float, shown: bool
) -> None:
    found = equivalence(*sides, points, paired_seeds=len(sides[0]) > 1)
    assert found is not None
    assert (found.points, found.shown) == (points, shown)
    assert found.shown == (-points < found.low and found.high < points)


def test_without_a_value_nothing_is_equivalent() -> None:
    assert equivalence(np.full((1, 3), np.nan), np.zeros((1, 3)), 5, paired_seeds=False) is None


# -- what it may be called -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "verdict", "says"),
    [
        ([WRONG] * 40, [RIGHT] * 20 + [WRONG] * 20, "gain", "b is better. Cover-EM gains: "),
        ([STYLE] * 40, [RIGHT] * 20 + [STYLE] * 20, "style_gain", "does not count as a gain"),
        ([STYLE] * 40, [RIGHT] * 20 + [WRONG] * 20, "style_gain", "Cover-EM loses: "),
        ([RIGHT] * 40, [WRONG] * 20 + [RIGHT] * 20, "loss", "b is worse. Cover-EM loses: "),
        ([RIGHT] * 40, [STYLE] * 20 + [RIGHT] * 20, "style_loss", "may be answer style"),
        ([RIGHT, WRONG] * 20, [WRONG, RIGHT] * 20, "no_difference", "With n = 40 the smallest detectable"),
        ([RIGHT, *[WRONG] * 8], [WRONG] * 9, "no_difference", "difference is about 87.9 points"),
        ([RIGHT, WRONG, WRONG], [WRONG] * 3, "no_difference", "detectable difference is above 100 points (80 % power)"),
        ([RIGHT, WRONG] * 20, [RIGHT, None] * 20, "no_difference", "EM is the same on every question"),
        ([RIGHT] * 40, [RIGHT] * 40, "identical", "the same scores on every question. With n = 40 the smallest"),
        # no resampling holds a loss, but a fair coin shows four heads in a row every so often
        ([WRONG] * 60, [RIGHT] * 4 + [WRONG] * 56, "no_difference", "p = 0.12): not significant. Too few questions"),
    ],
)
def test_a_gain_counts_only_if_cover_em_gains_too(
    before: list[str], after: list[str], verdict: str, says: str, make_run: MakeRun
) -> None:
    """The project's rule: exact match alone also rises with the style of answers. An interval with 0 shows nothing."""
    pair = pair_of(make_run("a", before), make_run("b", after))
    assert pair.verdict == verdict
    assert says in pair.sentence


def test_wins_losses_and_ties_are_counted_and_named(make_run: MakeRun) -> None:
    """Types and hops are tables of their own, with their questions, metrics and outcomes."""
    a = make_run("a", [WRONG, STYLE, RIGHT, RIGHT, WRONG])
    b = make_run("b", [RIGHT, RIGHT, WRONG, RIGHT, None])
    pair = pair_of(a, b)
    outcomes = pair.outcomes
    assert (outcomes.wins, outcomes.losses, outcomes.ties) == (2, 1, 2)
    assert (outcomes.style_wins, outcomes.style_losses) == (1, 0)
    assert (pair.wins, pair.losses) == (["q000", "q001"], ["q002"])
    assert {name: part.questions for name, part in pair.by_type.items()} == {"bridge": 3, "comparison": 2}
    assert pair.by_type["comparison"].metrics["em"].value == 0.5
    assert pair.by_hops["2"].outcomes.losses == 1


# -- what may be compared --------------------------------------------------------------------------------------


def test_only_questions_that_all_answered_are_compared(make_run: MakeRun) -> None:
    """Others are left out, and how many is said."""
    broken = QuestionError(cause="timeout", message="no answer")
    a = make_run("a", [RIGHT] * 10)
    b = make_run("b", [WRONG] * 8, line=lambda number: {"error": broken} if number < 3 else {})
    comparison = compare([a, b])
    assert comparison.questions == 5
    assert comparison.left_out == {"missing": 2, "failed": 3}
    assert [warning[:20] for warning in comparison.warnings] == ["2 questions left out", "3 questions left out"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"dataset": "hotpotqa"}, "on atlas/dev, .* on hotpotqa/dev"),
        ({"split": "test"}, "on atlas/dev, .* on atlas/test"),
        ({"line": lambda _: {"question": "Another?"}}, "'q000' or its golden answers are not the same"),
        ({"line": lambda _: {"golden_answers": ["Eve"]}}, "'q000' or its golden answers are not the same"),
        ({"line": lambda number: {"question_id": f"other{number}"}}, "they share no question"),
    ],
)
def test_evaluations_of_different_data_do_not_compare(changes: dict[str, Any], says: str, make_run: MakeRun) -> None:
    """Another data set, other questions or other golden answers under the same id, or none in common."""
    runs = [make_run("a", [RIGHT] * 3), make_run("b", [RIGHT] * 3, **changes)]
    with pytest.raises(InputError, match=says):
        compare(runs)


RAG: dict[str, Any] = {"method": "rag"}
DIFFERENCES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "one repairs": ({}, {"repair": False}, "b used repair turns none, a one"),
    "more searches": (RAG, {"asked": {"agent": "react"}}, "b used searches (budget) 6, a 3"),
    "another budget": (RAG, {"method": "direct", "asked": {"max_steps": 9}}, "b used max-steps 9, a 7"),
    "one has no top-k and no agent": ({"method": "direct"}, {"asked": {"top_k": 5, "agent": "react"}}, ""),
    "another agent": ({}, {"asked": {"agent": "prorag"}}, "b used agent prorag, a reasonrag"),
    "a baseline has no prompts of the agent": (RAG, RAG | {"asked": {"renderer": "s"}}, ""),
    "other prompts of a baseline": (
        RAG | {"config": {"baseline_prompts": "1"}},
        RAG | {"config": {"baseline_prompts": "2"}},
        "b used baseline prompts 2, a 1",
    ),
    "another renderer": ({}, {"asked": {"renderer": "s"}}, "b used prompts (renderer) s, a r"),
    "other order": ({}, {"asked": {"passage_order": "worst-first"}}, "b used passage order worst-first, a best-first"),
    "another style": ({}, {"asked": {"style": "long"}}, "b used answer style long, a short"),
    "another judge": ({"judge": "i"}, {"judge": "j"}, "b used judge j, a i"),
    "other draws": ({"best_of": 2}, {"vote": 4}, "b used draws (--best-of or --vote) 4, a 2"),
}


@pytest.mark.parametrize(("a", "b", "warned"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_what_may_explain_a_difference_is_warned_of(
    a: dict[str, Any], b: dict[str, Any], warned: str, make_run: MakeRun
) -> None:
    """Of any two methods, what a model would be credited with; what one of them does not have is no difference."""
    warnings = compare([make_run("a", [RIGHT] * 3, **a), make_run("b", [WRONG] * 3, **b)]).warnings
    assert [each.partition(":")[0] for each in warnings] == ([warned] if warned else [])


def test_seeds_of_one_condition_are_grouped(make_run: MakeRun) -> None:
    """A question's EM is the mean over seeds; questions that some seed lacks are left out. Seeds, and models trained
    with them, may differ; top-k may not."""
    a = make_run("a", [WRONG] * 6)
    runs = [make_run(f"s{seed}", [RIGHT] * 3 + [WRONG] * (3 - seed), config={"seed": seed}) for seed in range(3)]
    comparison = compare([a], group=[f"dpo={','.join(map(str, runs))}"])
    assert comparison.questions == 4
    assert comparison.conditions[1].runs == [str(each) for each in runs]
    assert comparison.pairs[0].metrics["em"].value == 0.75
    assert comparison.pairs[0].tests["em"] == 0.25
    assert comparison.warnings == ["2 questions left out: missing in an evaluation"]
    other = make_run("other", [RIGHT] * 6, config={"top_k": 9, "model": "x", "seed": 3})
    warnings = compare([a], group=[f"g={runs[0]},{other}"]).warnings
    assert warnings == ["the runs of g differ in more than seed and model: top_k"]


@pytest.mark.parametrize(
    ("ours", "theirs", "paired"),
    [
        ((0, 1, 2), (0, 1, 2), True),
        ((0, 1, 2), (2, 0, 1), True),
        ((0, 1, 2), (0, 1, 3), False),
        ((0, 1), (0, 1, 2), False),
        ((0, 0, 1), (0, 0, 1), False),
        ((0,), (0,), False),
    ],
)
def test_seeds_are_paired_where_both_sides_have_the_same(
    ours: tuple[int, ...], theirs: tuple[int, ...], paired: bool, make_run: MakeRun
) -> None:
    """Each once, and several. The order in which they are given changes nothing."""

    def group(name: str, seeds: tuple[int, ...]) -> list[Path]:
        right = {seed: 3 + 2 * seed + (seed + 1) * (name == "y") for seed in seeds}
        answers = {seed: [RIGHT] * count + [WRONG] * (20 - count) for seed, count in right.items()}
        return [make_run(f"{name}{place}", answers[seed], seed=seed) for place, seed in enumerate(seeds)]

    def found(*sides: list[Path]) -> PairedComparison:
        named = [f"{name}={','.join(map(str, runs))}" for name, runs in zip("xy", sides, strict=True)]
        return compare(group=named, out=sides[0][0].parent / "out").pairs[0]

    x, y = group("x", ours), group("y", theirs)
    pair = found(x, y)
    assert pair.paired_seeds == paired
    assert pair.metrics["em"].by_seed == ((0.05, 0.1, 0.15) if paired else ())
    assert ("by t over 3 paired seeds" in pair.sentence) == paired
    said = f" and {'paired' if paired else 'unpaired'} seeds the smallest" if len(ours) > 1 else "With n = 20 the"
    assert said in pair.sentence
    assert found(x[::-1], y[1:] + y[:1]) == pair


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ("20", "b and a are equivalent within 20 points (90 % CI "),
        ("2.5", "b and a are not shown to be equivalent within 2.5 points (90 % CI "),
    ],
)
def test_equivalence_is_told_and_is_no_failure(
    points: str, said: str, make_run: MakeRun, tmp_path: Path, reasonrag: Reasonrag
) -> None:
    """In the terminal, the page and the record; the status is 0 either way. Records without it read back."""
    a, b = make_run("a", [RIGHT, WRONG] * 40), make_run("b", [WRONG, RIGHT] + [RIGHT, WRONG] * 39)
    done = reasonrag("compare", a, b, "--equivalent", points, "--out", tmp_path / "out")
    assert done.status == 0, done.err
    for text in (done.out, (tmp_path / "out" / "compare.md").read_text()):
        assert said in " ".join(text.split())
    record = orjson.loads((tmp_path / "out" / "compare.json").read_bytes())
    [pair] = record["pairs"]
    assert pair["equivalent"]["shown"] == (points == "20")
    for new in ("equivalent", "detectable", "paired_seeds"):
        del pair[new]
    assert Comparison.model_validate(record).pairs[0].equivalent is None
    assert [reasonrag("compare", a, b, "--equivalent", wrong).status for wrong in ("0", "nan", "-1", "inf")] == [2] * 4


@pytest.mark.parametrize(
    ("runs", "group", "says"),
    [
        (["a"], [], "needs at least two evaluations"),
        (["a", "nowhere"], [], "there is no evaluation"),
        (["a"], ["g"], "write NAME=RUN,RUN"),
        (["a"], ["g=b,b"], "b is given twice"),
        (["a", "b", "a"], [], "a is given twice"),
        (["a"], ["a=b"], "two conditions are named 'a'"),
        (["a", "empty"], [], "run the same command to continue"),
        (["a", "torn"], [], "line 1 is not a line of"),
        (["a", "bare"], [], "has no config.json"),
    ],
)
def test_what_is_no_evaluation_is_refused(
    runs: list[str], group: list[str], says: str, make_run: MakeRun, tmp_path: Path, reasonrag: Reasonrag
) -> None:
    """Exit status 2, and what to do instead; nothing is written."""
    for name in ("a", "b", "torn", "bare"):
        make_run(name, [RIGHT] * 2)
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn" / PREDICTIONS).write_bytes(b"{}\n")
    (tmp_path / "bare" / "config.json").unlink()
    done = reasonrag("compare", *runs, *(word for each in group for word in ("--group", each)))
    assert done.status == 2
    assert says in done.err
    assert not list(tmp_path.glob("compare*"))


# -- files and terminal ----------------------------------------------------------------------------------------


def test_files_are_written_beside_the_first_evaluation(make_run: MakeRun, tmp_path: Path, reasonrag: Reasonrag) -> None:
    """`compare-A-B`, or --out; the record reads back, and the same command writes the same bytes."""
    a, b = make_run("a", [WRONG] * 20), make_run("b", [RIGHT] * 20)
    done = reasonrag("compare", a, b)
    assert done.status == 0, done.err
    assert "b is better" in " ".join(done.out.split())
    folder = tmp_path / "compare-a-b"
    assert folder == default_out(read_conditions([a, b], []))
    first = {each.name: each.read_bytes() for each in folder.iterdir()}
    assert sorted(first) == ["compare.json", "compare.md"]
    assert Comparison.model_validate_json(first["compare.json"]).pairs[0].verdict == "gain"
    printed = reasonrag("compare", a, b, "--out", tmp_path / "here", "--json").out
    assert orjson.loads(printed) == orjson.loads(first["compare.json"])
    assert {each.name: each.read_bytes() for each in (tmp_path / "here").iterdir()} == first


def test_hostile_text_is_text_everywhere(make_run: MakeRun, tmp_path: Path, reasonrag: Reasonrag) -> None:
    """Answers, questions and types are escaped in the page and the terminal."""

    def hostile(number: int) -> dict[str, Any]:
        return {"question": HOSTILE, "type": HOSTILE, "answer": f"{HOSTILE} {number}", "golden_answers": [HOSTILE]}

    a = make_run("a", [WRONG] * 4, line=hostile)
    b = make_run("b", [RIGHT] * 4, line=hostile)
    done = reasonrag("compare", a, "--group", f"{HOSTILE}={b}", "--out", tmp_path / "out")
    assert "\x1b[31m" not in done.out
    assert "[b]x[/b]" in done.out
    page = (tmp_path / "out" / "compare.md").read_text()
    assert "<script>" not in page.replace("\\<script\\>", "")
    assert "http://" not in page
    assert "\n# no heading" not in page


def test_many_conditions_stand_against_the_first(make_run: MakeRun, tmp_path: Path) -> None:
    """A pair for each; a note says that no interval is corrected for it. Without hops there is no table of hops."""
    unknown = {"line": lambda _: {"hops": None}}
    runs = [make_run(name, [RIGHT, WRONG][: 1 + place % 2] * 4, **unknown) for place, name in enumerate("abcd")]
    comparison = compare(runs)
    assert [(each.reference, each.other) for each in comparison.pairs] == [("a", "b"), ("a", "c"), ("a", "d")]
    page = (tmp_path / "compare-a-and-3-more" / "compare.md").read_text()
    assert ["not corrected" in page, "| type |" in page, "| hops |" in page] == [True, True, False]


def test_directories_of_the_same_name_are_told_apart(make_run: MakeRun, tmp_path: Path) -> None:
    """By as much of their paths as it takes."""
    for parent in ("x", "y"):
        (tmp_path / parent).mkdir()
        make_run(parent + "/run", [RIGHT])
    names = [each.name for each in read_conditions([tmp_path / "x/run", tmp_path / "y/run"], [])]
    assert names == ["x/run", "y/run"]
    assert default_out(read_conditions([tmp_path / "x/run", tmp_path / "y/run"], [])).name == "compare-x-run-y-run"
