"""Trainings over each other, rounds and critics: what their folders hold, in a real browser, and what they lack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

import reasonrag
from preference.export.private_files import write_json
from preference.statistics import COMPARISON_LEVEL, share_of
from reasonrag.critics.evaluation.measures import Estimate
from reasonrag.critics.evaluation.report import CriticEvaluation
from reasonrag.errors import InputError
from reasonrag.training.metrics import TRAINER_STATE, read_metrics
from reasonrag.training.policy.round_measures import Round
from reasonrag.training.policy.rounds import RECIPE
from reasonrag.training.stages.runner import StageRecord, StagesRecord
from reasonrag.viewing.collection import open_collection
from reasonrag.viewing.evaluations import trainings
from tests.helpers.hostile import ATTACKS, MARK
from tests.helpers.pages import NARROW, WIDE, Visit, barriers, did_run, overflow

STEPS = range(1, 101)
FEW, MANY = (Estimate(value=value, low=value, high=value, n=9, questions=of) for value, of in ((1.0, 5), (0.8, 40)))


def logged(folder: Path, *names: str, stage: str = "dpo", over: bool = True) -> Path:
    """A training that logged these numbers, by the trainer's own words; not over: up to a checkpoint."""
    history = [{"step": step, **{name: step / len(names) for name in names}} for step in STEPS]
    place = folder if over else folder / "checkpoint-100"
    write_json_of_a_trainer(place, history)
    if over:
        write_json(folder / "metrics.json", read_metrics(folder, stage).model_dump(mode="json"))
    else:
        (folder / "training.json").write_text("{}")
    return folder


def write_json_of_a_trainer(folder: Path, history: list[dict[str, float]]) -> None:
    folder.mkdir(parents=True)
    (folder / TRAINER_STATE).write_text(json.dumps({"global_step": len(history), "log_history": history}))


def a_round(number: int, em: float, *, known: bool = True) -> Round:
    shares = {"unreadable": 0.1, "loops": 0.0, "searches": 1.5, "tokens": 40.0}
    found = Round(round=number, model="m", outcome=em, failed=0, cost=None, **shares)
    return found.model_copy(update={"em": share_of(em * 20, 20, COMPARISON_LEVEL)}) if known else found


def rounds_of(folder: Path, *rounds: Round) -> Path:
    folder.mkdir(parents=True)
    done = [StageRecord(name="r", state="done", decides={}, result=each.model_dump()) for each in rounds]
    StagesRecord(recipe=RECIPE, stages=[*done, StageRecord(name="r", decides={})]).write(folder)
    return folder


def evaluated(folder: Path, name: str = "m", **more: object) -> Path:
    """A critic that was evaluated."""
    report = CriticEvaluation(
        critic=name, against=None, runs=[], questions=9, accuracy=FEW, by_margin={"above .3": MANY}
    )
    scores = {"golden": [0.5, 1.5], "shuffled": [-0.5, 0.25], "won": [0.1, 0.3], "lost": [-0.2, -0.2]}
    (folder / "evaluation").mkdir(parents=True)
    told = report.model_copy(update={"chain_scores": scores, "gaps": [0.5, 1.0, -0.25], **more})
    (folder / "evaluation" / "critic_evaluation.json").write_text(told.model_dump_json())
    return folder


def test_models_of_rounds_follow_their_folder_and_few_questions_have_wilsons_interval(tmp_path: Path) -> None:
    """A bootstrap of five questions that were all right would say that nothing else is possible."""
    rounds = rounds_of(tmp_path / "rl", a_round(1, 0.4), a_round(2, 0.6))
    logged(rounds / "round-1" / "policy-1", "loss", "grad_norm", stage="policy")
    logged(rounds / "round-1" / "adapter", "loss")  # its model has the same numbers
    first, model, critic = trainings([rounds, evaluated(tmp_path / "critic")])
    assert [each.em.share for each in first.rounds] == [0.4, 0.6]
    assert (model.name, model.stage, len(model.series["loss"])) == ("rl, round 1", "policy", 100)
    assert critic.critic["all pairs"].low == pytest.approx(0.57, abs=0.01)
    assert (critic.critic["true gap above .3"].low, critic.critic["true gap above .3"].of) == (0.8, 9)


def test_trainings_lie_over_each_other_and_what_they_do_not_log_is_named(visit: Visit, tmp_path: Path) -> None:
    """In one colour each, solid and dashed; numbers as a table; a training that goes on shows its last checkpoint."""
    one = logged(tmp_path / "one", "loss", "eval_loss", "rewards/margins", "logps/chosen", "logps/rejected")
    other = logged(tmp_path / "other", "loss", over=False)
    page = visit(reasonrag.view([one, other]))
    expect(page.locator("h2")).to_have_text("2 trainings")
    expect(page.locator("#stage")).to_contain_text("other has not ended: its curves are those of checkpoint-100.")
    expect(page.locator("#stage")).to_contain_text(
        "Not logged by any: pairs ranked as labelled, log-probability of held-out replies."
    )
    loss, margin, sides = (
        page.locator("figure", has=page.get_by_role("heading", name=name))
        for name in (*("Loss", "Margin"), "Log-probability of replies")
    )
    expect(loss.locator("svg g[stroke-width='2'] path")).to_have_count(3)
    expect(loss.locator("svg [stroke-dasharray]")).to_have_count(1)
    expect(loss).to_contain_text("From first to last: one, rows of the training 0.20 to 20.00;")
    expect(margin).to_contain_text("Nothing is logged of held-out rows.")
    expect(margin).to_contain_text("Not logged by other.")
    expect(sides).to_contain_text("Solid: chosen replies; dashed: rejected replies.")
    loss.get_by_text("Numbers").click()
    expect(loss.locator("tbody tr")).to_have_count(34)  # every third step
    assert loss.locator("tbody tr").last.inner_text().split() == ["100", "20.00", "20.00", "100.00"]


def test_rounds_show_em_with_intervals_and_a_critic_how_its_scores_lie(visit: Visit, tmp_path: Path) -> None:
    rounds = rounds_of(tmp_path / "rl", a_round(1, 0.4), a_round(2, 0.6), a_round(3, 0.5, known=False))
    critic = evaluated(logged(tmp_path / "critic", "loss", stage="critic"))
    page = visit(reasonrag.view([rounds, critic, logged(tmp_path / "new", "loss", stage="critic")]))
    em = page.locator("figure", has=page.get_by_role("heading", name="EM by round"))
    expect(em).to_contain_text("Of held-out questions nothing is recorded here")
    expect(em.locator("svg circle")).to_have_count(2)
    em.get_by_text("Numbers").click()
    assert em.locator("tbody tr").first.inner_text().split("\t") == ["1", "rl", "40 % (22 % to 61 %)", "20"]
    ranked = page.locator("figure", has=page.get_by_role("heading", name="critic: ranked right"))
    ranked.get_by_text("Numbers").click()
    assert ranked.locator("tbody tr").first.inner_text().split("\t") == ["all pairs", "100 % (57 % to 100 %)", "5"]
    for name, says in (
        ("critic: chosen less rejected", "2 of 3 pairs are above 0, and ranked right"),
        ("critic: golden and shuffled", "Mean scores of the steps to a right answer"),
        ("critic: won and lost", "less the mean of their question"),
    ):
        figure = page.locator("figure", has=page.get_by_role("heading", name=name))
        expect(figure).to_contain_text(says)
        expect(figure.locator("svg")).to_be_visible()
    expect(page.locator("#stage")).to_contain_text("new is a critic that was not evaluated")
    expect(page.locator("#stage")).to_contain_text("critic: undecided:")


def test_what_is_no_training_and_what_is_damaged_is_refused(tmp_path: Path) -> None:
    one = logged(tmp_path / "one", "loss")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        InputError, match="empty is no training: only evaluations, or only trainings, are shown beside each other"
    ):
        reasonrag.view([one, tmp_path / "empty"])
    with pytest.raises(InputError, match="one is a training: reasonrag view"):
        open_collection(one)
    (one / "metrics.json").write_text('{"series": {"loss": [["a", 1]]}}')
    with pytest.raises(InputError, match=r"metrics.json is damaged: series.loss.0.0"):
        reasonrag.view(one)


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "dark"), (NARROW, "light")], ids=["dark", "narrow"])
def test_the_page_has_no_barriers_and_hostile_text_is_text(
    visit: Visit, tmp_path: Path, size: tuple[int, int], scheme: str
) -> None:
    bad = f"{MARK} {' '.join(ATTACKS)} \u202e"
    folders = [logged(tmp_path / f"{number} <img src=x onerror=alert(1)>", "loss", "eval_loss") for number in range(6)]
    metrics = json.loads((folders[0] / "metrics.json").read_bytes())
    series = {"loss": [[1, None], [2, 1e308], [3, 0.5]], "rewards/accuracies": [[1, 7]], bad: [[1, 1]]}
    write_json(folders[0] / "metrics.json", metrics | {"warnings": [bad], "series": series})
    critic = evaluated(tmp_path / "critic", bad, by_margin={bad: MANY}, remarks=[bad], gaps=[])
    rounds = rounds_of(tmp_path / "rl", a_round(1, 0.4).model_copy(update={"stopped": bad}))
    page = visit(reasonrag.view([*folders, critic, rounds]), size=size, scheme=scheme)
    page.locator("figure").first.wait_for()
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert MARK in page.locator("main").inner_text()
    expect(page.locator("main")).to_contain_text("The evaluation holds no scores of gaps.")
    assert not [*did_run(page), *barriers(page)]
    assert overflow(page) <= 0
