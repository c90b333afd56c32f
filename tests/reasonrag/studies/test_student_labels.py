"""Labels by the student: its own continuations decide where they can tell steps apart, and nowhere else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

import reasonrag
from preference.candidates import Origin, PairRecord, StateRecord, StepRecord, read_lines
from preference.confidence import confidence
from preference.export.summary import CANDIDATES
from preference.records import Message, RecipeRef
from reasonrag.curation.pairs import make_data_set
from reasonrag.curation.settings import PairsSettings
from reasonrag.errors import InputError
from reasonrag.llm.servers.behaviour import EndpointBehaviour
from reasonrag.progress import SilentWatcher
from reasonrag.studies.student_labels import (
    CONTINUATIONS,
    FreshValue,
    Student,
    StudentLabels,
    as_valued_by,
    check_runs,
    held_out,
    label_by_student,
    runs_of,
    verdict,
)
from tests.helpers.endpoints import Stage
from tests.helpers.shared import Shared

RECIPE = RecipeRef(name="economy", reward="spre_even", alpha=0.9, margin_by_layer=True)


def state(layer: int = 1) -> StateRecord:
    """Three steps that the search values .9, .5 and .1, and their pairs."""
    rewards = {1: 0.9, 2: 0.5, 3: 0.1}
    steps = [
        StepRecord(id=id_, action_type="query", content=f"{id_}", response=f"{id_}", reward=reward, observations=8.0)
        for id_, reward in rewards.items()
    ]
    pairs = [
        PairRecord(
            pair_id=f"{chosen}{rejected}",
            chosen=chosen,
            rejected=rejected,
            label="value",
            margin=rewards[chosen] - rewards[rejected],
            confidence=0.9,
            similarity=0.0,
            same_type=True,
            tags=["efficiency_only", "style_only"],
            gold="right",
        )
        for chosen, rejected in ((1, 2), (1, 3), (2, 3))
    ]
    return StateRecord(
        state_id="s",
        question_id="q",
        question="Why?",
        golden_answers=["so"],
        origin=Origin(dataset="d", split="train", config_hash="c"),
        layer=layer,
        prompt=[Message(role="system", content="s"), Message(role="user", content="u")],
        steps=steps,
        pairs=pairs,
    )


def counted(values: dict[int, float], ends: int = CONTINUATIONS) -> dict[int, FreshValue]:
    return {step: FreshValue(value, ends) for step, value in values.items()}


TABLE = {
    "it agrees": ({1: 0.6, 2: 0.3, 3: 0.0}, {"12": (1, 0.3), "13": (1, 0.6), "23": (2, 0.3)}),
    "it disagrees": ({1: 0.0, 2: 0.6}, {"12": (2, 0.6), "13": (1, None), "23": (2, None)}),
    "it sees no difference in one pair": ({1: 0.6, 2: 0.6, 3: 0.0}, {"12": (1, 0.0), "13": (1, 0.6), "23": (2, 0.6)}),
}


@pytest.mark.parametrize(("values", "expected"), TABLE.values(), ids=list(TABLE))
def test_what_the_student_tells_apart_is_labelled_by_it(
    values: dict[int, float], expected: dict[str, tuple[int, float | None]]
) -> None:
    """Rewards, margins divided by alpha per layer, directions; a step that it did not value makes no pair."""
    found = as_valued_by(state(), counted(values), RECIPE, "pupil")
    assert found is not None
    assert found.origin.value_model == "pupil"
    assert {step.id: step.reward for step in found.steps} == {id_: values.get(id_) for id_ in (1, 2, 3)}
    for pair in found.pairs:
        chosen, margin = expected[pair.pair_id]
        assert pair.chosen == chosen
        assert pair.margin == (None if margin is None else pytest.approx(margin / 0.9))
        assert (pair.confidence is None) == (margin is None)
        assert pair.tags == ["style_only"]
    flipped = next(each for each in found.pairs if each.pair_id == "12")
    assert flipped.gold == ("right" if flipped.chosen == 1 else "wrong")


VERDICTS = {
    "it agrees": {"12": "confirmed", "13": "confirmed", "23": "confirmed"},
    "it disagrees": {"12": "reversed", "13": "unvalued", "23": "unvalued"},
    "it sees no difference in one pair": {"12": "tied", "13": "confirmed", "23": "confirmed"},
}


@pytest.mark.parametrize("case", TABLE)
def test_what_became_of_every_pair_is_counted(case: str) -> None:
    """By what the student made of it; where it tells nothing of the state, the label is the search's still."""
    anew = as_valued_by(state(), counted(TABLE[case][0]), RECIPE, "pupil")
    assert {pair.pair_id: verdict(pair, anew) for pair in state().pairs} == VERDICTS[case]
    assert {verdict(pair, None) for pair in state().pairs} == {"untold"}


@pytest.mark.parametrize("values", [{}, {1: 0.6}, {1: 0.0, 2: 0.0, 3: 0.0}, {2: 0.5, 3: 0.5}], ids=str)
def test_what_it_cannot_tell_apart_keeps_its_labels(values: dict[int, float]) -> None:
    """A model that never comes to an answer has no say."""
    assert as_valued_by(state(), counted(values), RECIPE, "pupil") is None


def test_confidence_is_that_of_four_continuations() -> None:
    """Always right against never, and three of four against one; of fewer where only these count."""
    for values, ends, expected in (
        ({1: 0.9, 2: 0.0}, CONTINUATIONS, 0.997),
        ({1: 0.9 * 0.75, 2: 0.9 * 0.25}, CONTINUATIONS, 0.922),
        ({1: 0.9, 2: 0.0}, 1, 0.902),
    ):
        found = as_valued_by(state(0), counted(values, ends), RECIPE, "pupil")
        assert found is not None
        assert found.pairs[0].confidence == pytest.approx(expected, abs=0.002)
        assert [step.observations for step in found.steps] == [ends, ends, 8.0]
    decision = state(0)  # an answer against another type counts half, as in the search's labels
    decision.steps[0] = decision.steps[0].model_copy(update={"action_type": "answer"})
    found = as_valued_by(decision, counted({1: 0.9, 2: 0.0}), RECIPE, "pupil")
    assert found is not None
    assert found.pairs[0].confidence == confidence((1.0, CONTINUATIONS / 2), (0.0, CONTINUATIONS))


@pytest.fixture
def data_set(shared: Shared) -> Path:
    """Pairs of a run, gone through `pairs` once more, as for another format."""

    def make() -> None:
        reasonrag.generate(dataset="atlas", limit=4, run="runs/a")
        reasonrag.pairs("runs/a", out="data/a")
        reasonrag.pairs("data/a", out="data/a", format=["sft"])

    shared.copy("data-for-a-student", make)
    return Path("data/a")


def labelled(data_set: Path, base_url: str) -> StudentLabels:
    student = Student("pupil@1", base_url, "pupil")
    return asyncio.run(label_by_student(data_set, runs_of(data_set), Path("labels"), student, SilentWatcher()))


def test_every_exported_pair_is_accounted_for_and_no_answer_is_asked_for_twice(data_set: Path) -> None:
    """The student is asked over HTTP; the second time its server is down."""
    with Stage(EndpointBehaviour()).open() as served:
        first = labelled(data_set, served.base_url)
    assert first.pairs == first.confirmed + first.reversed + first.tied + first.untold + first.unvalued > 0
    assert first.confirmed > 0
    assert first.calls > 0
    states = list(read_lines(Path("labels") / CANDIDATES, StateRecord))
    assert {each.origin.value_model for each in states} == {None, "pupil@1"}
    again = labelled(data_set, served.base_url)
    assert again == first
    summary = reasonrag.pairs("labels", out="data/b")
    assert summary.pairs > 0


@pytest.mark.usefixtures("data_set")
def test_what_is_made_of_a_data_set_holds_out_its_questions() -> None:
    """Whichever would be drawn of the pairs that are left: the student has seen the others."""
    kept = held_out(Path("data/a"))
    settings = PairsSettings(out=Path("data/b"), validation=0.5, seed=1)
    make_data_set("data/a", settings, SilentWatcher())
    drawn = held_out(Path("data/b"))
    make_data_set("data/a", settings, SilentWatcher(), held_out=kept)
    assert held_out(Path("data/b")) == kept
    assert frozenset() != kept != drawn


def test_what_was_imported_has_no_run(data_set: Path) -> None:
    """Alone, gone through `pairs` again, and merged with pairs of a run, whose steps can be continued."""
    reasonrag.import_published(data_set / "RAG_ProGuide.json", out="data/imported")
    assert runs_of(Path("data/imported")) == []
    reasonrag.pairs(["data/imported", "runs/a"], out="data/merged")
    assert runs_of(Path("data/merged")) == [Path("runs/a")]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("retriever", "bm25:other", "steps of runs/a cannot be continued: .*made with the index bm25:other.* put back"),
        ("prompts", "0" * 16, "steps of runs/a cannot be continued: runs/a was made with other prompts"),
        ("outcome", "judge", "outcome of runs/a is judge, which the student cannot give"),
    ],
)
def test_a_run_that_cannot_be_continued_is_named(key: str, value: str, says: str, data_set: Path) -> None:
    """Before a student is trained for it."""
    config = orjson.loads(Path("runs/a/config.json").read_bytes())
    decides = config["decides_answers"]
    (decides["recipe"] if key == "outcome" else decides)[key] = value
    Path("runs/a/config.json").write_bytes(orjson.dumps(config))
    with pytest.raises(InputError, match=says):
        asyncio.run(check_runs(runs_of(data_set), SilentWatcher()))


def test_a_run_that_is_gone_is_named(data_set: Path) -> None:
    """Before anything is trained."""
    Path("runs/a").rename("runs/b")
    with pytest.raises(InputError, match="data/a was made of runs/a, which is not there"):
        runs_of(data_set)
