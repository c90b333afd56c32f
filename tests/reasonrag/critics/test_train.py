"""`reasonrag train-critic` by TRL itself, on the CPU: from pairs and values to critics, by the command line.

The data are what `generate` and `pairs` made of atlas, the model is a tiny Qwen2. Nothing is a mock; each critic is
trained once for all tests.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import pytest

import reasonrag
from preference.candidate_records import QuestionRecord, question_key, read_lines
from reasonrag.critics.train import Fold, read_rows
from reasonrag.llm.critic import find_critic
from reasonrag.terminal import show
from reasonrag.training.provenance import read_provenance
from tests.helpers.command_line import next_commands
from tests.helpers.critic_world import CriticWorld, make_critic_world
from tests.helpers.shared import Shared, held
from tests.helpers.training_world import edited, ended, interrupted


@pytest.fixture
def world(shared: Shared) -> CriticWorld:
    return make_critic_world(shared)


def test_a_critic_of_pairs_is_a_whole_model_that_says_what_it_was_trained_on(world: CriticWorld) -> None:
    folder = world.trained("pairwise")
    rows, held_out = (read_rows(world.data, split, None) for split in ("train", "validation"))
    provenance, found = read_provenance(folder), find_critic(str(folder))
    assert provenance is not None
    assert provenance.critic is not None
    assert set(provenance.questions) == rows.questions, "the held-out ones are left to evaluate it"
    assert held_out.questions
    assert not held_out.questions & found.questions
    assert (provenance.critic.labels, provenance.critic.end_token) == ("value", "<|im_end|>")
    config = orjson.loads((folder / "config.json").read_bytes())
    assert config["architectures"] == ["Qwen2ForSequenceClassification"]
    assert config["pad_token_id"] != config["eos_token_id"]
    metrics = orjson.loads((folder / "metrics.json").read_bytes())
    assert metrics["steps"] == 4
    assert {"loss", "eval_loss", "eval_accuracy"} <= metrics["last"].keys()
    assert {"README.md", "prompts", "chat_template.jinja"} <= {path.name for path in folder.iterdir()}
    assert not {".rows", ".job.json", "facts_of_training.json"} & {path.name for path in folder.iterdir()}
    assert "This is a critic" in (folder / "README.md").read_text()


def test_a_training_that_was_interrupted_goes_on_from_its_checkpoint_and_then_is_finished(world: CriticWorld) -> None:
    words = world.training("cut", "max_steps=30", "save_steps=3", "save_total_limit=9", "eval_strategy=null")
    folder = world.critic("cut")
    with held(world.place / ".cut"):
        first = interrupted(world.start(*words), (folder / "checkpoint-3" / "trainer_state.json").exists)
        assert first.status == 130, first.err
        refused = world.run(*words, "--set", "learning_rate=0.5")
        second, third = world.run(*words, "--json"), world.run(*words, "--json")
    assert (refused.status, "holds another training: learning_rate" in refused.err) == (2, True)
    told = orjson.loads(second.out)
    assert (second.status, told["state"], told["steps"]) == (0, "trained", 30)
    assert told["record"]["resumed_from"][-1].startswith("checkpoint-")
    assert orjson.loads(third.out)["state"] == "finished already"


def test_a_training_is_not_finished_before_its_rows_are_removed(world: CriticWorld) -> None:
    """A finished one is not looked at again. This one was killed when its trainer had ended; had it been before its
    first checkpoint, it would say that it starts over."""
    folder = shutil.copytree(world.trained("pairwise"), world.critic("killed"))
    edited(folder / "training.json", lambda record: record.update(state="trained"))
    (folder / ".rows").mkdir()
    killed = ended(world.start(*world.training("killed"), killed_at="critics/killed/training.json"))
    assert (killed.status, (folder / ".rows").exists()) == (-9, False)
    edited(folder / "training.json", lambda record: record.update(state="started"))
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    again = world.run(*world.training("killed"))
    assert (again.status, "starting over: what was stopped left no checkpoint" in again.err) == (0, True)


def test_prorags_configuration_trains_all_weights_and_takes_the_best_checkpoint(world: CriticWorld) -> None:
    """But for the base, the machine and the number of steps; TRL tells the accuracy by which it chooses."""
    changes = ("model_name_or_path=models/tiny-qwen2", "bf16=false", "use_cpu=true", "gradient_accumulation_steps=1")
    command, _, *words = world.training("prorag", "eval_steps=2", *changes)
    done = world.run(command, "prorag-critic", *words, "--json")
    assert done.status == 0, done.err
    resolved = orjson.loads(done.out)["record"]["resolved"]
    assert (resolved["learning_rate"], resolved["num_train_epochs"], resolved["margin_scale"]) == (2e-5, 3.0, 0.0)
    found, held_out = read_provenance(world.critic("prorag")), read_rows(world.data, "validation", None)
    assert found is not None
    assert (found.finetuning_type, held_out.questions <= set(found.questions)) == ("full", True), "they chose the best"


def test_a_critic_is_evaluated_by_the_command_that_its_training_proposes(world: CriticWorld) -> None:
    world.trained("pairwise")
    [evaluate] = next_commands(world.run(*world.training("pairwise")).out)
    assert evaluate[::2] == ["evaluate-critic", "RUN"]
    done = world.run(*["runs/dev" if word == "RUN" else word for word in evaluate], "--out", "as-printed")
    assert done.status == 0, done.err


def test_critics_of_folds_have_each_seen_the_questions_of_the_others_only(world: CriticWorld) -> None:
    words = world.training("folds", "max_steps=1", "eval_strategy=null", "save_strategy=no")
    done = world.run(*words, "--folds", 2)
    assert done.status == 0, done.err
    asked = {question_key(each.question) for each in read_lines(world.data / "questions.jsonl", QuestionRecord)}
    for number in (1, 2):
        seen = find_critic(str(world.critic("folds") / f"fold-{number}")).questions
        assert seen
        assert seen == {key for key in asked if not Fold(number, 2).holds(key)} & seen
    [pairs] = next_commands(done.out)
    assert (pairs[:3], pairs.count("--critic")) == (["pairs", "RUN", "--consensus"], 2)
    consensus = world.run(*["runs/a" if word == "RUN" else word for word in pairs], "--out", "data/as-printed")
    assert consensus.status == 0, consensus.err


@pytest.mark.parametrize(
    ("change", "says"),
    [("learning_rat=1", "unexpected keyword argument 'learning_rat'"), ("max_length=1", "1 tokens: raise max_length")],
)
def test_a_rejected_configuration_leaves_the_folder_free_for_a_better_one(
    world: CriticWorld, change: str, says: str
) -> None:
    done = world.run(*world.training("rejected", change))
    assert done.status == 1
    assert says in done.err
    assert not (world.critic("rejected") / "training.json").exists()


def test_a_dry_run_says_which_packages_a_training_would_lack(
    world: CriticWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here an older TRL, which is found before the installed one. The configuration is shown, and no next command."""
    (tmp_path / "trl-0.24.0.dist-info").mkdir()
    (tmp_path / "trl-0.24.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: trl\nVersion: 0.24.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(world.place)
    found = reasonrag.train_critic("smoke-cpu", data="data/a", out="critics/never", set={"max_length": 7}, dry_run=True)
    assert found.record.resolved["max_length"] == 7
    assert found.objections == ["train-critic needs trl 1.16 or newer, here is 0.24.0: pip install 'reasonrag[rl]'"]
    show(found.shown())
    shown = capsys.readouterr().out
    assert ["max_length: 7" in shown, "next: " in shown] == [True, False]


REFUSALS = {
    "no data": (["smoke-cpu"], "--data is needed"),
    "no configuration": (["--data", "data/a"], "a configuration is needed"),
    "no base": (["smoke-cpu", "--data", "data/a", "--set", "model_name_or_path=null"], "no base model"),
    "LLaMA-Factory's": (["smoke-cpu", "--data", "data/a", "--set", "stage=rm"], "is LLaMA-Factory's"),
    "no such model": (["smoke-cpu", "--data", "data/a", "--set", "model_name_or_path=models/none"], "no model at"),
    "a run": (["smoke-cpu", "--data", "runs/a"], "is a run, not a data set"),
    "damaged questions": (["smoke-cpu", "--data", "data/torn"], "torn/questions.jsonl, line 1"),
}


@pytest.mark.parametrize(("words", "says"), REFUSALS.values(), ids=REFUSALS)
def test_what_cannot_be_trained_is_refused_before_anything_starts(
    world: CriticWorld, reasonrag: object, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    world.trained("pairwise")
    monkeypatch.chdir(world.place)
    shutil.copytree("data/a", "data/torn", dirs_exist_ok=True)
    Path("data/torn/questions.jsonl").write_text("{")
    done = reasonrag("train-critic", *words, "--out", "critics/never")  # type: ignore[operator]
    assert (done.status, says in done.err) == (2, True), done.err
    assert not Path("critics/never").exists()
