"""`reasonrag train` by LLaMA-Factory itself, on the CPU: from a base model to a merged policy, by the command line.

The data are what `generate` and `pairs` made of atlas, the model is a tiny Qwen2, the configurations are the shipped
twins of the real ones. Nothing is a mock; each training runs once for all tests.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from preference.candidate_records import question_key
from reasonrag.agent.prompting import load_prompts
from reasonrag.agent.protocols.known import renderer_hash
from reasonrag.errors import InputError
from reasonrag.training.llamafactory.config_files import find_config
from reasonrag.training.llamafactory.config_resolution import ResolvedConfig, resolve_config
from reasonrag.training.llamafactory.dataset_info import read_training_data
from reasonrag.training.llamafactory.inspection import Inspection, inspect_environment
from reasonrag.training.metrics import read_metrics
from reasonrag.training.preflight_checks import PreflightFindings, check_config_accepted, check_packages, resolve_cutoff
from reasonrag.training.provenance import read_provenance
from tests.helpers.command_line import Done
from tests.helpers.shared import Shared
from tests.helpers.training_world import ROOT, SMALL, World, environment, interrupted, make_world


@pytest.fixture
def world(train_python: Path, shared: Shared) -> World:
    return make_world(shared, train_python)


CUT = 2
"""Steps after which the first training is interrupted."""
OF_SFT = {"max_steps": 8, "save_steps": 2, "save_total_limit": 9, "eval_strategy": None, "eval_dataset": None}
CHANGES = {f"sft.{key}": value for key, value in OF_SFT.items()} | {"dpo.save_strategy": "no"}
SFT = "lora/stages/sft"
"""Where the warm-up goes of which saves/lora is the result."""


def words(world: World, **changes: object) -> list[object]:
    """SFT, then DPO by LoRA."""
    known = world.words("smoke-cpu-dpo-lora", "lora", **CHANGES, **changes)
    return [*known, "--data", "data/few", "--recipe", "sft-dpo"]


def broken_off(world: World) -> Done:
    """A training that somebody interrupts after its first checkpoint."""
    state = world.saved(SFT) / f"checkpoint-{CUT}" / "trainer_state.json"
    return world.once("interrupted-sft", lambda: interrupted(world.start(*words(world)), state.exists))


def lora(world: World) -> Done:
    """The same, gone on with."""
    broken_off(world)
    return world.once("train-lora", lambda: world.run(*words(world)))


def merged(world: World) -> Done:
    lora(world)
    return world.once("merge", lambda: world.run("train", "--merge", "saves/lora", "--out", "saves/merged"))


@pytest.mark.parametrize("name", [SFT, "lora"])
def test_every_stage_trains_from_what_pairs_wrote(name: str, world: World) -> None:
    """A model comes out, its losses are numbers, one a step, and its folder says what it is."""
    done = lora(world)
    assert done.status == 0, done.err
    weights = "adapter_model.safetensors" if name == "lora" else "model.safetensors"
    assert (world.saved(name) / weights).is_file()
    metrics = world.json(name, "metrics.json")
    steps = OF_SFT["max_steps"] if name == SFT else 3
    assert metrics["steps"] == steps
    assert [step for step, _ in metrics["series"]["loss"]] == list(range(1, steps + 1))
    assert all(math.isfinite(loss) and loss > 0 for _, loss in metrics["series"]["loss"])
    for file in ("train.yaml", "train.log", "training.json", "reasonrag.json", "README.md"):
        assert (world.saved(name) / file).stat().st_size > 0, file
    assert f"{steps} of {steps}" in done.err


def test_the_numbers_are_those_of_the_trainer(world: World) -> None:
    """What metrics.json, the card and the table say stands in trainer_state.json."""
    done = lora(world)
    history = world.json("lora", "trainer_state.json")["log_history"]
    metrics = world.json("lora", "metrics.json")
    for name in ("loss", "eval_loss", "eval_rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected"):
        told = [(each["step"], each[name]) for each in history if name in each]
        assert [tuple(each) for each in metrics["series"][name]] == list(dict(told).items()), name
        assert metrics["last"][name] == told[-1][1]
    card = (world.saved("lora") / "README.md").read_text()
    accuracy = metrics["last"]["eval_rewards/accuracies"]
    assert f"| validation pairs ranked as labelled | {accuracy:.4g} | {accuracy:.4g} |" in card
    assert f"{metrics['last']['eval_loss']:.4g}" in done.out


def test_a_trained_model_says_where_it_comes_from(world: World) -> None:
    """reasonrag.json: its base, how it must be asked, and every question it and its base were trained on; the prompts
    beside it. `--merge` makes a whole model of adapter and base, with the account that the adapter gave of itself."""
    done = merged(world)
    assert done.status == 0, done.err
    assert (world.saved("merged") / "model.safetensors").is_file()
    assert not (world.saved("merged") / "adapter_config.json").exists()
    assert "library_name: transformers" in (world.saved("merged") / "README.md").read_text()
    lines = (world.few / "questions.jsonl").read_bytes().splitlines()
    questions = {question_key(orjson.loads(line)["question"]) for line in lines}
    for name, base, stage in (
        (SFT, world.tiny, "sft"),
        ("lora", world.saved(SFT), "dpo"),
        ("merged", world.saved(SFT), "export"),
    ):
        told = read_provenance(world.saved(name))
        assert told is not None
        assert (Path(told.base_model), told.stage) == (base, stage), name
        assert told.stages == (["sft"] if name == SFT else ["sft", "dpo"])
        assert told.asked.renderer == renderer_hash(load_prompts(world.saved(name) / "prompts"))
        assert told.asked.renderer == renderer_hash(load_prompts())
        assert (told.asked.top_k, told.asked.max_steps) == ((3,), (7,))
        assert told.data == [str(world.few)]
        assert told.splits == ["atlas/train"]
        assert set(told.questions) == questions
        assert len(questions) == 3
        assert told.versions["llamafactory"] == "0.9.5"


def test_ctrl_c_ends_the_trainer_and_the_same_command_goes_on_from_the_last_checkpoint(world: World) -> None:
    """Exit status 130, the command that goes on, and no process left behind. No step that a checkpoint holds is trained
    again."""
    done = broken_off(world)
    assert done.status == 130
    assert "continue with: reasonrag train smoke-cpu-dpo-lora" in done.err
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert not [
        line for line in left.splitlines() if "llamafactory-cli train" in line and f"{world.saved('dpo')}/" in line
    ]
    done = lora(world)
    record = world.json(SFT, "training.json")
    [checkpoint] = record["resumed_from"]
    step = int(checkpoint.removeprefix("checkpoint-"))
    assert step >= CUT
    assert f"resuming from {world.saved(SFT)}/{checkpoint}" in done.err
    assert f"global step {step}\n" in (world.saved(SFT) / "train.log").read_text()
    assert record["state"] == "finished"


def test_a_recipe_says_what_its_stages_came_to_and_does_not_do_them_again(world: World) -> None:
    """In stages.json, in the result, and on the screen. The same command says that they are done, and touches
    nothing."""
    done = lora(world)
    assert "stage 1 of 2, sft" in done.err
    stages = {each["name"]: each for each in world.json("lora", "stages.json")["stages"]}
    assert {name: each["state"] for name, each in stages.items()} == {"sft": "done", "dpo": "done"}
    found = {name: each["result"] for name, each in stages.items()}
    assert (found["sft"]["steps"], found["dpo"]["steps"]) == (OF_SFT["max_steps"], 3)
    assert found["dpo"]["out"] == str(world.saved("lora"))
    before = {path: path.stat().st_mtime_ns for path in world.saved("lora").rglob("*") if path.is_file()}
    again = world.run(*words(world))
    assert (again.status, "stage 2 of 2, dpo: done already" in again.err) == (0, True)
    assert "was already trained with this configuration; nothing was started" in again.out
    assert json.loads(world.run(*words(world), "--json").out)["stages"] == found
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_another_configuration_does_not_go_where_a_model_is(world: World) -> None:
    """The changed keys are named, and nothing is started."""
    lora(world)
    other = world.run(*words(world, **{"dpo.learning_rate": 5e-4}))
    assert other.status == 2
    assert "holds another training: dpo: learning_rate was 0.001, is 0.0005. Choose another --out" in other.err
    alone = world.run("train", "smoke-cpu-dpo-lora", "--data", "data/few", "--out", "saves/lora")
    assert alone.status == 2
    assert "holds another training: " in alone.err


def test_llama_factory_reads_the_resolved_file(world: World) -> None:
    """train.yaml: the cutoff of these rows in this model's own tokens, absolute paths, numbers as numbers."""
    lora(world)
    settings = yaml.safe_load((world.saved("lora") / "train.yaml").read_text())
    lengths = world.json("lora", "training.json")["lengths"]
    assert settings["cutoff_len"] == lengths["advised_cutoff"] == math.ceil(lengths["longest_row"] / 64) * 64
    assert lengths["rows_cut"] == 0
    assert settings["dataset_dir"] == str(world.few)
    assert settings["model_name_or_path"] == str(world.saved(SFT))
    assert settings["learning_rate"] == 1e-3
    assert settings["save_strategy"] == "no"
    assert "resume_from_checkpoint" not in settings


# -- what only has to be asked, and the other stages, in one process each ---------------------------------------------

CONFIGS = {
    "dpo": ("smoke-cpu-dpo-full", {}),
    "kto": ("smoke-cpu-kto", {}),
    "reward": ("smoke-cpu-reward", {}),
    "long": ("smoke-cpu-dpo-full", {"cutoff_len": 300}),
    "misspelt": ("smoke-cpu-dpo-full", {"pref_bta": 0.1}),
    "kind": ("smoke-cpu-dpo-full", {"pref_beta": "much"}),
    "template": ("smoke-cpu-dpo-full", {"template": "qwen9"}),
    "held out twice": ("smoke-cpu-dpo-full", {"val_size": 0.1}),
    "deepspeed": ("qwen2.5-7b-dpo-full", {"model_name_or_path": "models/tiny-qwen2"}),
}


@dataclass(frozen=True)
class Judged:
    """A configuration that LLaMA-Factory was asked about, and what came of it."""

    resolution: ResolvedConfig
    refused: str
    objections: dict[str, str]
    lengths: dict[str, Any]


@pytest.fixture
def judged(world: World, monkeypatch: pytest.MonkeyPatch) -> dict[str, Judged]:
    """All of CONFIGS, by one process of LLaMA-Factory."""
    monkeypatch.chdir(world.place)
    data = read_training_data(Path("data/a"))
    resolved = {
        name: resolve_config(find_config(config), SMALL | changes, data, out=Path(f"saves/{name}"))
        for name, (config, changes) in CONFIGS.items()
    }

    def ask() -> Done:
        asked = inspect_environment(world.python or Path(), {n: (r.config, r.countable) for n, r in resolved.items()})
        return Done(0, asked.model_dump_json(), "")

    inspection = Inspection.model_validate_json(world.once("judged", ask).out)
    found = {}
    for name, resolution in resolved.items():
        refused, findings, lengths = "", PreflightFindings(), {}
        judgement = inspection.configs[name]
        try:
            check_packages(resolution.config, inspection.stock, findings)
            check_config_accepted(resolution.config, judgement, findings)
            lengths = resolve_cutoff(resolution, data, judgement, findings)
        except InputError as error:
            refused = str(error)
        found[name] = Judged(resolution, refused, {each.name: each.what for each in findings.objections}, lengths)
    return found


def test_llama_factory_itself_says_which_arguments_there_are(judged: dict[str, Judged]) -> None:
    """Unknown keys with the nearest that exists, values of the wrong kind, keys that exclude each other, templates that
    do not exist."""
    assert "has no argument 'pref_bta'; did you mean pref_beta?" in judged["misspelt"].refused
    assert "invalid float value: 'much'" in judged["kind"].refused
    assert "has no template 'qwen9'; that of Qwen2.5 is qwen" in judged["template"].refused
    assert "Cannot specify `val_size` if `eval_dataset`" in judged["held out twice"].refused
    assert not judged["kto"].refused
    assert not judged["deepspeed"].refused


def test_a_cutoff_that_would_cut_prompts_is_objected_to(judged: dict[str, Judged]) -> None:
    """How many rows, how long, and the cutoff that would not; in the model's own tokens."""
    long = judged["long"]
    rows = long.lengths
    what = long.objections["truncated_prompts"]
    assert f"cutoff_len 300 cuts the end of {rows['prompts_cut']} prompts" in what
    assert f"of {rows['rows']} rows, of up to {rows['longest_row']} tokens" in what
    assert f"--set cutoff_len={rows['advised_cutoff']}, or leave it out, to cut nothing" in what


def test_the_other_stages_train_from_their_formats(judged: dict[str, Judged], world: World) -> None:
    """DPO of all weights, KTO and the reward model, from what `pairs` wrote for them, as it was resolved."""

    def all_of_them() -> Done:
        configs = {
            name: judged[name].resolution.config | {"save_strategy": "no", "eval_strategy": "no", "eval_dataset": None}
            for name in ("dpo", "kto", "reward")
        }
        flags = {
            name: [str(word) for key, value in config.items() if value is not None for word in (f"--{key}", value)]
            for name, config in configs.items()
        }
        (world.place / "job.json").write_bytes(orjson.dumps({"train": flags}))
        script = ROOT / "tests" / "helpers" / "llamafactory_reading.py"
        done = subprocess.run(
            [str(world.python), str(script), "job.json", "done.json"],
            cwd=world.place,
            env=environment(world.place, None) | {"MPLBACKEND": "agg"},
            capture_output=True,
            text=True,
            check=False,
        )
        return Done(done.returncode, "", done.stderr[-3000:])

    done = world.once("others", all_of_them)
    assert done.status == 0, done.err
    for name in ("dpo", "kto", "reward"):
        losses = read_metrics(world.saved(name), name).series["loss"]
        assert len(losses) == 3
        assert all(0 < loss < 100 for _, loss in losses), name
    assert (world.saved("reward") / "value_head.safetensors").is_file()


def test_a_failure_shows_the_last_lines_and_where_all_of_them_are(world: World) -> None:
    """Its own words and the log; status 1; the same command may try again. Here a Python that has no LLaMA-Factory."""
    broken = world.place / "models" / "broken"
    broken.mkdir(exist_ok=True)
    (broken / "adapter_config.json").write_bytes(orjson.dumps({"base_model_name_or_path": str(world.tiny)}))
    without = World(world.place, Path(sys.executable))
    done = world.once("broken", lambda: without.run("train", "--merge", "models/broken", "--out", "saves/broken"))
    assert done.status == 1
    assert "LLaMA-Factory's export exited with status 1" in done.err
    assert "saves/broken/export.log" in done.err
    assert "No module named" in (world.saved("broken") / "export.log").read_text()
