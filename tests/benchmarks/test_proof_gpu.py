"""The proof on a GPU: what it refuses, which seeds it drops, which questions it asks, and that its trainer's first step
is LLaMA-Factory's."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from loop_student import make_tokenizer
from phases import Phases, Timed
from proof_gpu import GpuPlan, GpuProof, evaluated, train
from proof_train import SIDES, batch_of, sides_of
from reporting import ROOT

from reasonrag.training.llamafactory.config_files import find_config
from reasonrag.training.preflight_checks import Permissions
from tests.end_to_end.test_llamafactory import work
from tests.helpers.jsonl import write_rows
from tests.helpers.shared import Shared
from tests.helpers.training_world import environment, make_world
from tests.helpers.trees import rows
from tests.reasonrag.training.stages.test_trl_backend import CASES, ONE_STEP

STATE = [{"role": "user", "content": "Which river"}]
SAID = {side: f"the {side} one" for side in SIDES}


def test_without_a_gpu_it_says_so_and_names_all_that_is_lacking(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "proof_gpu.py"), "--work", str(tmp_path / "work")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment(tmp_path, None))
    assert (done.returncode, done.stdout) == (2, "")
    assert "no GPU is seen here; --quick rehearses on a CPU" in done.stderr
    assert "--data-dir is needed" in done.stderr
    assert not (tmp_path / "work").exists()


def test_a_seed_that_is_late_is_dropped_and_one_that_was_evaluated_is_not(tmp_path: Path) -> None:
    """A phase that is done needs no time; one that fails costs its own seed alone."""
    Phases(tmp_path).once("seed0 evaluated", lambda: None)
    phases = Timed(tmp_path, until=time.time() - 1)
    begun: list[int] = []

    def run_seed(seed: int) -> None:
        if seed == 2:
            raise ValueError("it has no pairs")
        phases.once(f"seed{seed} evaluated", lambda: begun.append(seed))

    dropped = evaluated(run_seed, range(3), workers=2)
    assert dropped == {1: "seed1 evaluated would begin after the last minute", 2: "it has no pairs"}
    assert begun == []


def test_a_command_is_ended_at_the_last_minute(tmp_path: Path) -> None:
    phases = Timed(tmp_path, until=time.time() + 0.5)
    with pytest.raises(SystemExit, match="exit status 124"):
        phases.command("long", sys.executable, "-c", "import time; time.sleep(60)")


def made_sets(folder: Path) -> Path:
    """Two data sets with the same ids."""
    for name in ("one", "two"):
        splits = {"corpus": 3, "dev": 4, "train": 2} if name == "one" else {"corpus": 3, "test": 4}
        for split, count in splits.items():
            what = "contents" if split == "corpus" else "question"
            write_rows(folder / name / f"{split}.jsonl", [{"id": str(n), what: f"{name} {n}"} for n in range(count)])
    return folder


def test_questions_of_all_sets_are_held_out_or_shared_by_splits(tmp_path: Path) -> None:
    plan = replace(GpuPlan(), questions={"warmup": 2, "deep": 1, "wide": 2, "heldout": 5})
    proof = GpuProof(plan, tmp_path / "work", data=made_sets(tmp_path / "qa"))
    proof.write_questions()
    found = {split: [row["id"] for row in rows(proof.world / f"{split}.jsonl")] for split in plan.questions}
    assert {split: len(ids) for split, ids in found.items()} == plan.questions
    assert len({each for ids in found.values() for each in ids}) == 10
    assert len({row["id"] for row in rows(proof.world / "corpus.jsonl")}) == 6
    proof.plan = replace(plan, questions=plan.questions | {"wide": 3})
    with pytest.raises(SystemExit, match="has 8 questions to hold out, 5 others"):
        proof.write_questions()


@pytest.mark.parametrize(
    ("row", "learned"),
    [
        (
            {"prompt": STATE, "completion": [{"role": "assistant", "content": "the chosen one"}]},
            ["the chosen one <|im_end|>"],
        ),
        ({"prompt": STATE} | SAID, [f"{said} <|im_end|>" for said in SAID.values()]),
        (
            {"state": STATE} | SAID,
            [f"user Which river <|im_end|> assistant {said} <|im_end|>" for said in SAID.values()],
        ),
    ],
    ids=["sft", "dpo", "critic"],
)
def test_of_a_row_the_reply_is_learned_and_a_critic_reads_all(row: dict[str, Any], learned: list[str]) -> None:
    """In the tokens of the chat template, with the end of its turn."""
    pytest.importorskip("torch", reason="the embed extra is not installed")
    tokenizer = make_tokenizer(["user assistant Which river the chosen rejected one"])
    found = sides_of(row, tokenizer)
    own = [tokenizer.decode(each["input_ids"][-each["own"] :]) for each in found]
    assert [" ".join(each.replace("<|im_start|>", " ").split()) for each in own] == learned
    batch = batch_of([found, found], tokenizer.pad_token_id, "dpo")
    assert [len(batch["input_ids"]), len(batch["old"])] == [2 * len(found)] * 2


def test_the_first_step_is_llamafactorys(train_python: Path, shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss and norm of the gradient over the same 20 rows differ by less than 1 %, of all weights and by LoRA."""
    if find_spec("peft") is None:
        pytest.skip("peft is not installed: pip install 'reasonrag[rl]'")
    world = make_world(shared, train_python)
    theirs = {}
    for name, (config, changes) in CASES.items():
        values = yaml.safe_load(find_config(config).text) | ONE_STEP | changes
        values |= {"dataset_dir": "data/a", "output_dir": f"saves/factory {name}", "plot_loss": False}
        theirs[name] = [word for key, value in values.items() if value is not None for word in (f"--{key}", str(value))]
    work(train_python, {"train": theirs}, world.place)
    monkeypatch.chdir(world.place)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for name, (config, changes) in CASES.items():
        out = world.saved(f"plain {name}")
        told = {"model_name_or_path": str(world.tiny), **ONE_STEP, **changes}
        train(config, world.data, out, told, fold=None, permitted=Permissions())
        first, ours = (
            world.json(f"{whose} {name}", "trainer_state.json")["log_history"][0] for whose in ("factory", "plain")
        )
        assert ours["loss"] == pytest.approx(first["loss"], rel=0.01), name
        assert ours["grad_norm"] == pytest.approx(first["grad_norm"], rel=0.01), name
