"""Policy gradients: the loss on numbers worked by hand, what has a gradient, what rows are refused, and that a policy
learns in a world of a few words."""

from __future__ import annotations

import json
import random
from math import log
from pathlib import Path
from typing import Any

import pytest

import reasonrag
from mcts.advantages import z_scores
from preference.export.formats import rl_rows
from reasonrag.errors import InputError
from reasonrag.training.policy.train import read_policy_rows
from tests.helpers.scripted_model import ScriptedModel
from tests.helpers.word_world import ATTEMPTS, QUESTIONS, WORDS, attempts_of, model, tokenizer

pytest.importorskip("torch", reason="the rl extra is not installed")
pytest.importorskip("peft", reason="the rl extra is not installed")

# -- the loss --------------------------------------------------------------------------------------------------


def batch_of(*, old: float, advantage: float) -> dict[str, Any]:
    """One row whose single own token is the last of three."""
    import torch

    return {
        "labels": torch.tensor([[-100, -100, 3]]),
        "old": torch.tensor([[0.0, old]]),
        "advantages": torch.tensor([advantage]),
    }


@pytest.mark.parametrize(
    ("now", "advantage", "kl", "by_hand"),
    [
        (0.5, 1.0, 0.0, -1.0),
        (0.55, 1.0, 0.0, -1.1),
        (0.9, 1.0, 0.0, -1.2),
        (0.9, -1.0, 0.0, 1.8),
        (0.1, -1.0, 0.0, 0.8),
        (0.25, 0.0, 0.1, 0.1 * (2 - 1 - log(2))),
    ],
)
def test_the_ratio_counts_as_far_as_the_clip_and_distance_costs(
    now: float, advantage: float, kl: float, by_hand: float
) -> None:
    """A reply that had the probability .5: a better one gains up to 1.2, a worse one loses from .8 on."""
    import torch

    from reasonrag.training.policy.training_script import Loss

    rest = (1 - now) / 3
    logits = torch.tensor([[[0.0] * 4, [log(rest)] * 3 + [log(now)], [0.0] * 4]])
    found = Loss(clip=0.2, kl=kl).of(logits, batch_of(old=log(0.5), advantage=advantage))
    assert float(found) == pytest.approx(by_hand, abs=1e-6)


def test_only_the_models_own_tokens_have_a_gradient() -> None:
    """That of every logit that predicts another token is exactly 0, whatever is in the prompt."""
    import torch

    from reasonrag.training.policy.training_script import Loss, collated

    chance = log(1 / len(WORDS))
    rows = [
        {"input_ids": [2, 5, 6, 4, 9, 10], "own": 2, "advantage": 1.0, "old": [chance] * 2},
        {"input_ids": [2, 5, 4, 11], "own": 1, "advantage": -2.0, "old": [chance]},
    ]
    batch = collated(rows, pad=0)
    logits = torch.zeros(2, 3, len(WORDS), requires_grad=True)
    Loss().of(logits, batch).backward()
    assert logits.grad is not None
    taught = logits.grad.abs().sum(-1) != 0
    assert taught.tolist() == [[True, True, False], [False, True, False]]


def test_batches_of_an_optimizer_step_count_as_one(tmp_path: Path) -> None:
    """Four rows of different lengths at once, or one after another: the weights move the same."""
    import torch
    from transformers import TrainingArguments

    from reasonrag.training.policy.training_script import Loss, policy_trainer, with_old

    moved = []
    for size, batches in ((4, 1), (1, 4)):
        policy = model()
        rows = [{"input_ids": [2, 5, *range(6, 7 + n)], "own": 1 + n, "advantage": 1.0 - n} for n in range(4)]
        arguments = TrainingArguments(
            output_dir=str(tmp_path), per_device_train_batch_size=size, gradient_accumulation_steps=batches, seed=0,
            learning_rate=0.5, optim="sgd", max_grad_norm=0, use_cpu=True, save_strategy="no", report_to="none",
            remove_unused_columns=False, num_train_epochs=1, lr_scheduler_type="constant", disable_tqdm=True,
        )  # fmt: skip
        policy_trainer(policy, arguments, with_old(rows, policy, 0, size), 0, Loss()).train()
        moved.append(torch.cat([each.detach().flatten() for each in policy.parameters()]))
    assert not torch.allclose(moved[0], torch.cat([each.detach().flatten() for each in model().parameters()]))
    assert torch.allclose(*moved, atol=1e-5)


# -- rows ------------------------------------------------------------------------------------------------------


def row(**fields: Any) -> dict[str, Any]:
    """Of a model called `student`, which drew two attempts."""
    made: dict[str, Any] = {"prompt": [{"role": "user", "content": "which"}], "draws": 1, "group": 2, "score": 0.5}
    made |= {"completion": [{"role": "assistant", "content": "one"}], "question": "q", "question_id": "1", "seed": 0}
    made |= {"advantages": {"outcome": 1.0, "sibling": None, "tree-grpo": 1.0}, "teacher": "student"}
    return made | {"value_model": None, "config_hash": "c"} | fields


@pytest.mark.parametrize(
    ("fields", "advantage", "why"),
    [
        ({"teacher": "gpt-4o"}, "outcome", "holds what gpt-4o said, and models/student is to learn"),
        ({"value_model": "other"}, "outcome", "a run with a value model"),
        ({"group": None}, "outcome", "steps of a searched tree, which are no fair draws"),
        ({"group": None}, "tree-grpo", "steps of a searched tree, which are no fair draws"),
        ({"group": 1}, "prorag", "one attempt a question, which has nothing to be compared with"),
        ({"score": None}, "prorag", "needs a critic's score of every step, and 1 of 1 rows"),
        ({"advantages": {"sibling": None}}, "sibling", "no row has an advantage sibling"),
    ],
)
def test_rows_that_an_advantage_means_nothing_of_are_refused(
    fields: dict[str, Any], advantage: Any, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "rl.jsonl"
    file.write_text(json.dumps(row(**fields)) + "\n")
    with pytest.raises(InputError, match=why):
        read_policy_rows(file, advantage, "models/student")


def test_siblings_of_a_searched_tree_are_taken_and_a_broken_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rl.jsonl"
    file.write_text("".join(json.dumps(row(group=None, advantages={"sibling": each})) + "\n" for each in (None, -1.5)))
    [only], questions, without = read_policy_rows(file, "sibling", "student")
    assert (only["advantage"], len(questions), without) == (-1.5, 1, 1)
    file.write_text(file.read_text() + "{]\n")
    with pytest.raises(InputError, match="line 3: item 3 is not JSON"):
        read_policy_rows(file, "sibling", "student")


# -- a world of a few words ------------------------------------------------------------------------------------


def test_a_policy_learns_from_its_own_attempts(tmp_path: Path) -> None:
    """From below .15 to above .6 within 12 rounds, with the product's rows, advantages and loss; at this rate it then
    falls and rises, on each kind of processor in its own way."""
    from transformers import TrainingArguments

    from reasonrag.training.policy.training_script import Loss, policy_trainer, tokenized, with_old

    policy, coder, dice, outcomes = model(), tokenizer(), random.Random(0), list[float]()
    for number in range(12):
        records = attempts_of(policy, coder, dice)
        ends = [step.outcome for each in records for step in each.plain_steps if step.outcome is not None]
        outcomes.append(sum(ends) / len(ends))
        file = tmp_path / f"{number}.jsonl"
        file.write_text("".join(json.dumps(each) + "\n" for record in records for each in rl_rows(record)))
        read, _, without = read_policy_rows(file, "outcome", "student")
        rows = tokenized(read, coder)
        assert (len(rows), without) == (2 * QUESTIONS * ATTEMPTS, 0)
        arguments = TrainingArguments(
            output_dir=str(tmp_path / "out"), per_device_train_batch_size=64, learning_rate=5e-3, use_cpu=True,
            save_strategy="no", report_to="none", remove_unused_columns=False, num_train_epochs=3, seed=number,
            lr_scheduler_type="constant", disable_tqdm=True, logging_strategy="no",
        )  # fmt: skip
        policy_trainer(policy, arguments, with_old(rows, policy, 0, 64), 0, Loss()).train()
    print([round(each, 2) for each in outcomes])
    assert outcomes[0] < 0.15
    assert max(outcomes) > 0.6


def test_prorags_part_is_a_z_score_over_the_tokens_of_a_group() -> None:
    from reasonrag.training.policy.training_script import with_process_part

    rows = [
        {"group": "a", "advantage": 1.0, "score": 0.9, "own": 6, "draws": 1},
        {"group": "a", "advantage": -1.0, "score": 0.1, "own": 1, "draws": 2},
        {"group": "b", "advantage": 0.5, "score": None, "own": 1, "draws": 1},
    ]
    process = z_scores([0.9, 0.1], [6, 2])
    expected = [1.0 + 0.3 * process[0], -1.0 + 0.3 * process[1], 0.5]
    assert [each["advantage"] for each in with_process_part(rows, 0.3)] == pytest.approx(expected)


# -- the command -----------------------------------------------------------------------------------------------


@pytest.fixture
def attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set of plain attempts that a model called student made."""
    monkeypatch.chdir(tmp_path)
    said = "So the answer is <answer>Oslo</answer>", "So the answer is <answer>Gramsor Vale</answer>", "what?"
    student = ScriptedModel(lambda request, place: said[request.samples[place] % 3], name="student")
    flags: dict[str, Any] = {"dataset": "atlas", "limit": 4, "recipe": "chains", "set": {"search.group": 4}}
    run = reasonrag.generate(chat_model=student, run="run", **flags).run
    reasonrag.pairs(run, out="data", format=["rl"], validation=0)
    return tmp_path / "data"


def test_keys_that_need_held_out_rows_are_removed_and_named(attempts: Path) -> None:
    asked = {"model_name_or_path": "owner/student", "eval_strategy": "steps", "eval_steps": 2, "kl": 0.01}
    told = reasonrag.train_policy("policy-smoke-cpu", data=attempts, set=asked, dry_run=True).record
    assert "there are no held-out rows, so nothing is evaluated: removed eval_strategy, eval_steps" in told.notes
    assert not {"eval_strategy", "eval_steps"} & told.resolved.keys()
    sets = [f"{key}={value}" for key, value in asked.items()]
    found = reasonrag.doctor("policy-smoke-cpu", set=sets).findings
    assert any("removed eval_strategy, eval_steps" in each.says for each in found)


def test_a_policy_is_a_model_folder_that_says_what_it_was_trained_on(attempts: Path, tmp_path: Path) -> None:
    """Trained by a process of its own; the same call finds it done, and another advantage another training."""
    from tests.helpers.tiny_qwen import make_tiny_qwen

    make_tiny_qwen(tmp_path / "student")
    told: dict[str, Any] = {"data": attempts, "out": tmp_path / "policy"}
    base = {"model_name_or_path": str(tmp_path / "student"), "max_steps": 2, "kl": 0.01, "lora_rank": 4}
    base |= {"gradient_checkpointing": True}
    made = reasonrag.train_policy("policy-smoke-cpu", set=base, **told)
    assert made.state == "trained"
    known = json.loads((tmp_path / "policy" / "reasonrag.json").read_text("utf-8"))
    assert (known["stage"], known["finetuning_type"], len(known["questions"])) == ("policy", "merged", 4)
    assert (
        known["asked"]["renderer"]
        == json.loads((attempts / "questions.jsonl").read_text().split("\n")[0])["origin"]["renderer"]
    )
    assert "trained by reinforcement" in (tmp_path / "policy" / "README.md").read_text("utf-8")
    assert not {".rows", ".job.json", "facts_of_training.json"} & {
        each.name for each in (tmp_path / "policy").iterdir()
    }
    assert reasonrag.train_policy("policy-smoke-cpu", set=base, **told).state == "finished already"
    with pytest.raises(InputError, match="holds another training"):
        reasonrag.train_policy("policy-smoke-cpu", set=base | {"advantage": "tree-grpo"}, **told)
    with pytest.raises(InputError, match="clip must be a number of 0 or more"):
        reasonrag.train_policy("policy-smoke-cpu", set=base | {"clip": -1}, **told)
