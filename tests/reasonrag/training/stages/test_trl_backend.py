"""`train --backend trl`: LLaMA-Factory's configurations in TRL's words, the same first step, and what is refused."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

import reasonrag
from reasonrag.errors import InputError
from reasonrag.training.llamafactory.config_files import find_config, shipped_names
from reasonrag.training.llamafactory.config_resolution import resolve_config
from reasonrag.training.llamafactory.dataset_info import read_training_data
from reasonrag.training.stages.trl_backend import in_words_of_trl, read_rows
from tests.end_to_end.test_llamafactory import work
from tests.end_to_end.test_trainers_of_conversations import chat_template
from tests.helpers.command_line import Reasonrag
from tests.helpers.processes import until
from tests.helpers.shared import Shared
from tests.helpers.training_world import edited, ended, make_world

OURS = [name for name in shipped_names() if "-dpo-" in name or name.endswith("-sft")]
QLORA = "quantization_bit, quantization_method, double_quantization, upcast_layernorm"
LACKING = {"qwen2.5-7b-dpo-qlora": f"--backend trl has no word for {QLORA}"} | dict.fromkeys(
    ("prorag-sft", "qwen2.5-7b-dpo-full", "qwen2.5-7b-dpo-full-offload", "qwen2.5-7b-sft"), "does not know deepspeed"
)
"""Of shipped configurations those that are not trained, and why."""


@pytest.mark.parametrize("name", OURS)
def test_shipped_configurations_are_said_in_trls_words_or_refused_by_name(name: str, data: Path) -> None:
    """No key is lost: each is TRL's, ours or says what TRL does in any case."""
    resolution = resolve_config(find_config(name), {"model_name_or_path": "base"}, read_training_data(data), out=None)
    if name in LACKING:
        with pytest.raises(InputError, match=LACKING[name]):
            in_words_of_trl(resolution.config, resolution.name, bounded=resolution.chosen_cutoff)
        return
    found, given = (
        in_words_of_trl(resolution.config, resolution.name, bounded=resolution.chosen_cutoff),
        resolution.config,
    )
    assert found["learning_rate"] == given["learning_rate"]
    assert found.get("warmup_steps") == given.get("warmup_ratio")
    assert found.get("beta") == given.get("pref_beta")
    assert found.get("lora_rank") == given.get("lora_rank")


def test_what_a_configuration_leaves_out_is_llamafactorys(data: Path) -> None:
    """LoRA is its usual kind of training, of rank 8 and all linear layers, scaled by twice the rank."""
    changes = {"model_name_or_path": "base", **dict.fromkeys(LORA), "learning_rate": None, "max_samples": 9}
    made = resolve_config(find_config("smoke-cpu-dpo-lora"), changes, read_training_data(data), out=None)
    found = in_words_of_trl(made.config, made.name, bounded=made.chosen_cutoff)
    assert [found[name] for name in ("lora_rank", "lora_alpha", "lora_target", "learning_rate")] == [8, 16, "all", 5e-5]
    assert (found["max_samples"], found["dataset"]) == (9, "rag_proguide")


REFUSED: dict[str, tuple[str, list[str], str]] = {
    "a stage": ("smoke-cpu-reward", [], "--backend trl trains the stages sft and dpo; smoke-cpu-reward is of stage rm"),
    "another loss": ("smoke-cpu-dpo-full", ["--set", "pref_loss=orpo"], "does not know pref_loss: 'orpo'"),
    "a second loss": ("smoke-cpu-dpo-full", ["--set", "pref_ftx=0.1"], "does not know pref_ftx: 0.1"),
    "some layers": ("smoke-cpu-sft", ["--set", "finetuning_type=freeze"], "does not know finetuning_type: 'freeze'"),
    "an adapter": (
        "smoke-cpu-sft",
        ["--set", "adapter_name_or_path=a"],
        "--backend trl has no word for adapter_name_or_path",
    ),
    "a slip": ("smoke-cpu-sft", ["--set", "learnin_rate=1"], "--backend trl has no word for learnin_rate"),
    "TRL's own word": (
        "smoke-cpu-dpo-full",
        ["--set", "beta=1"],
        "--backend trl has no word for beta: write pref_beta",
    ),
    "a report": ("smoke-cpu-sft", ["--set", "report_to=tensorboard"], "does not know report_to: 'tensorboard'"),
    "no cutoff": ("smoke-cpu-sft", ["--set", "cutoff_len=0"], "does not know cutoff_len: 0"),
    "a switch for a number": ("smoke-cpu-sft", ["--set", "max_samples=true"], "does not know max_samples: True"),
    "no preference": ("smoke-cpu-dpo-full", ["--set", "pref_beta=0"], "does not know pref_beta: 0"),
    "a number of rows": ("smoke-cpu-sft", ["--set", "max_samples=few"], "does not know max_samples: 'few'"),
    "LoRA of all weights": ("smoke-cpu-sft", ["--set", "lora_rank=8"], "--backend trl has no word for lora_rank"),
    "rows of another format": (
        "smoke-cpu-dpo-full",
        ["--set", "dataset=rag_proguide_reward", "--set", "eval_dataset=null"],
        "dataset_info.json: --backend trl does not read rag_proguide_reward as that describes it",
    ),
    "more than all steps": ("smoke-cpu-sft", ["--set", "warmup_ratio=2"], "does not know warmup_ratio: 2"),
    "stages": ("smoke-cpu-dpo-full", ["--recipe", "sft-dpo"], "leave out --recipe, --slurm and --nodes"),
    "a batch script": ("smoke-cpu-dpo-full", ["--slurm", "job.sh"], "leave out --recipe, --slurm and --nodes"),
}


@pytest.mark.parametrize(("config", "words", "says"), REFUSED.values(), ids=REFUSED)
def test_what_it_cannot_train_is_refused_before_anything_starts(
    config: str, words: list[str], says: str, data: Path, reasonrag: Reasonrag
) -> None:
    asked = ("--data", data, "--backend", "trl", "--set", "model_name_or_path=base", "--out", "saves/x")
    done = reasonrag("train", config, *asked, *words)
    assert (done.status, says in done.err) == (2, True), done.err
    assert not Path("saves").exists()


def test_a_stage_is_refused_before_its_rows_are_looked_for(data: Path, reasonrag: Reasonrag) -> None:
    edited(data / "dataset_info.json", lambda entries: entries.pop("rag_proguide_kto"))
    done = reasonrag("train", "smoke-cpu-kto", "--backend", "trl", "--data", data)
    assert (done.status, "trains the stages sft and dpo; smoke-cpu-kto is of stage kto" in done.err) == (2, True)


def test_a_share_of_steps_stays_a_share(data: Path) -> None:
    """transformers 5 takes 1 and more for a number of steps, and a share first where a file has both."""
    for config, share in ({"warmup_ratio": 1.0}, 1.0), ({"warmup_ratio": 0.2, "warmup_steps": 7}, 0.2):
        changes = {"model_name_or_path": "base"} | config
        made = resolve_config(find_config("smoke-cpu-sft"), changes, read_training_data(data), out=None)
        found = in_words_of_trl(made.config, made.name, bounded=made.chosen_cutoff)
        assert found["warmup_steps"] < 1
        assert [math.ceil(steps * found["warmup_steps"]) for steps in (10, 12_345)] == [10 * share, 12_345 * share]


def test_what_trl_does_instead_of_keys_that_every_configuration_has_is_said(data: Path) -> None:
    found = reasonrag.train("smoke-cpu-sft", backend="trl", data=data, set={"model_name_or_path": "base"}, dry_run=True)
    [said] = [each for each in found.record.notes if "says nothing to TRL" in each]
    assert said.startswith("template (qwen) says nothing to TRL: the model's own chat template renders the rows; plot_")


def test_rows_are_read_by_the_columns_that_dataset_info_names(shared: Shared, tmp_path: Path) -> None:
    """Conversations as `tools.jsonl` has them, which need not be there; names of entries and columns are the user's."""
    made, run = tmp_path / "made", make_world(shared, None).place / "runs" / "a"
    reasonrag.pairs(run, out=made, format=["tools", "tools-sharegpt"], validation=0)
    native = [json.loads(line) for line in (made / "tools.jsonl").read_text().splitlines()]
    (made / "tools.jsonl").unlink()
    before = read_training_data(made)
    found = read_rows(before.entries["rag_proguide_tools_sharegpt"], made, None)
    assert found == [{name: row[name] for name in ("prompt", "chosen", "rejected", "tools")} for row in native]
    pairs = read_rows(before.entries["rag_proguide"], made, 3)
    (made / "mine.json").write_text((made / "RAG_ProGuide.json").read_text().replace('"instruction":', '"told":'))
    columns = before.entries["rag_proguide"].columns | {"system": "told"}
    edited(
        made / "dataset_info.json",
        lambda entries: entries.update(
            mine=entries.pop("rag_proguide") | {"file_name": "mine.json", "columns": columns}
        ),
    )
    assert read_rows(read_training_data(made).entries["mine"], made, 3) == pairs
    (made / "tools-sharegpt.json").unlink()
    asked = find_config("smoke-cpu-dpo-lora"), {"dataset": "rag_proguide_tools_sharegpt"}
    with pytest.raises(InputError, match=r"is not there\. Make it again: reasonrag pairs .* --format tools-sharegpt "):
        resolve_config(*asked, read_training_data(made), out=None)


ONE_STEP: Mapping[str, Any] = {
    "max_samples": 20,
    "per_device_train_batch_size": 20,
    "gradient_accumulation_steps": 1,
    "max_steps": 1,
    "logging_steps": 1,
    "warmup_ratio": 0,
    "save_strategy": "no",
    **dict.fromkeys(("eval_strategy", "eval_dataset", "eval_steps", "per_device_eval_batch_size", "save_steps")),
}
LORA: Mapping[str, Any] = {"finetuning_type": "lora", "lora_rank": 8, "lora_alpha": 16, "lora_target": "all"}
CASES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "dpo": ("smoke-cpu-dpo-full", {}),
    "dpo by LoRA": ("smoke-cpu-dpo-lora", {}),
    "sft": ("smoke-cpu-sft", {}),
    "sft by LoRA": ("smoke-cpu-sft", LORA),
}


def test_the_first_step_is_llamafactorys(train_python: Path, shared: Shared) -> None:
    """Loss and norm of the gradient over the same 20 rows differ by less than 1 %, of all weights and by LoRA; what is
    left is a whole model that says what trained it."""
    if find_spec("trl") is None:
        pytest.skip("TRL is not installed: pip install 'reasonrag[rl]'")
    world = make_world(shared, train_python)
    theirs = {}
    for name, (config, changes) in CASES.items():
        values = yaml.safe_load(find_config(config).text) | ONE_STEP | changes
        values |= {"dataset_dir": "data/a", "output_dir": f"saves/theirs {name}", "plot_loss": False}
        theirs[name] = [word for key, value in values.items() if value is not None for word in (f"--{key}", str(value))]
    work(train_python, {"train": theirs}, world.place)
    for name, (config, changes) in CASES.items():
        done = world.run(*world.words(config, f"trl {name}", **ONE_STEP, **changes), "--backend", "trl")
        assert done.status == 0, done.err
        first, other = (
            world.json(f"{whose} {name}", "trainer_state.json")["log_history"][0] for whose in ("theirs", "trl")
        )
        assert other["loss"] == pytest.approx(first["loss"], rel=0.01), name
        assert other["grad_norm"] == pytest.approx(first["grad_norm"], rel=0.01), name
        kept = world.json(f"trl {name}", "reasonrag.json")
        assert kept["finetuning_type"] == ("merged" if "LoRA" in name else "full")
        card = (world.saved(f"trl {name}") / "README.md").read_text()
        assert "Trained with TRL" in " ".join(card.split())


@pytest.mark.parametrize(("more", "resumes"), [({}, True), ({"save_only_model": True}, False)])
def test_a_training_that_was_killed_ends_as_if_it_had_not_been(
    more: dict[str, Any], resumes: bool, train_python: Path, shared: Shared
) -> None:
    """It goes on from its last checkpoint; where that has no state of the optimizer, it says that it starts over."""
    if find_spec("trl") is None:
        pytest.skip("TRL is not installed: pip install 'reasonrag[rl]'")
    world = make_world(shared, train_python)
    steps = {"max_steps": 12, "save_steps": 2, "save_total_limit": 9, "eval_strategy": None} | more
    names = [f"{name} {resumes}" for name in ("whole", "killed")]
    whole, killed = ([*world.words("smoke-cpu-dpo-lora", name, **steps), "--backend", "trl"] for name in names)
    assert world.run(*whole).status == 0
    running = world.start(*killed)
    until((world.saved(names[1]) / "checkpoint-4" / "trainer_state.json").exists)
    running.send_signal(signal.SIGKILL)
    assert ended(running).status == -signal.SIGKILL
    until(lambda: (again := world.run(*killed)).status != 2 or "still writes" not in again.err)  # its trainer ends, too
    told = (world.saved(names[1]) / "training.json").read_text()
    assert bool(json.loads(told)["resumed_from"]) == resumes
    first, second = (
        [each.get("loss") for each in world.json(name, "trainer_state.json")["log_history"]] for name in names
    )
    assert first == second


def test_a_template_without_turns_of_tools_is_named(train_python: Path, shared: Shared) -> None:
    """Many have none: they raise, or leave out the calls."""
    if find_spec("trl") is None:
        pytest.skip("TRL is not installed: pip install 'reasonrag[rl]'")
    world = make_world(shared, train_python)
    made = world.run("pairs", "runs/a", "--out", "data/tools", "--format", "tools", "--format", "tools-sharegpt")
    assert made.status == 0, made.err
    tools = {"dataset": "rag_proguide_tools_sharegpt", "eval_dataset": "rag_proguide_tools_sharegpt_validation"}
    asked = (*world.words("smoke-cpu-dpo-lora", "tools", **tools), "--data", "data/tools", "--backend", "trl")
    strict = world.place / "models" / "strict"
    if not strict.exists():
        strict.mkdir()
        for file in world.tiny.iterdir():
            (strict / file.name).write_bytes(file.read_bytes())
    refusing = (
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{% endfor %}"
    )
    silent = "{% for m in messages %}{{ m.role }} {{ m.content }}{% endfor %}"
    other = chat_template("qwen3_5_nothink")
    causes = {
        refusing: "refuses its turns: no tools",
        silent: "leaves out calls of tools, or what they found",
        other: "writes calls of tools in another notation than Hermes'",
    }
    strict_model = f"model_name_or_path={json.dumps(str(strict))}"
    for template, cause in causes.items():
        (strict / "chat_template.jinja").write_text(template)
        done = world.run(*asked, "--set", strict_model)
        assert done.status == (2 if template == other else 1)
        assert f"the chat template of {strict} {cause}" in done.err
    (strict / "chat_template.jinja").write_text(chat_template("qwen2_5"))
    rows = world.place / "data" / "tools" / "tools-sharegpt.json"
    rows.write_text(rows.read_text("utf-8").replace("founded", "founde\u0301d"), "utf-8")  # which no tokenizer keeps
    done = world.run(*asked, "--set", strict_model, "--allow", "changed_rows")
    assert done.status == 0, done.err
    told = world.json("tools", "reasonrag.json")["asked"]
    assert (told["agent"], told["max_steps"]) == (["tools"], [4])
