"""`reasonrag doctor`: what `train` would object to, what is wrong with the machine, and whether it fits."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from reasonrag.curation.audit.report import read_audit
from reasonrag.errors import InputError
from reasonrag.processes.children import PYTHON_VARIABLE
from reasonrag.training.doctor.doctor import Diagnosis, Finding, check_gpus, doctor
from reasonrag.training.doctor.memory import GB
from reasonrag.training.llamafactory.config_files import find_config
from reasonrag.training.llamafactory.inspection import Gpu, TrainingEnvironment
from reasonrag.training.preflight_checks import PreflightFindings, check_packages
from tests.helpers.command_line import Reasonrag
from tests.helpers.training_world import edited

A100 = Gpu(name="A100", memory=80 * GB, capability=(8, 0))
BASE = ["model_name_or_path=base"]
T4 = Gpu(name="T4", memory=15 * GB, capability=(7, 5))


@pytest.fixture(autouse=True)
def without_llama_factory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that answers at once, where a test names no other: there is none."""
    monkeypatch.setenv(PYTHON_VARIABLE, "/nowhere/python")


def environment(devices: list[Gpu], **versions: str) -> TrainingEnvironment:
    known = {name.replace("_", "-"): version for name, version in versions.items()}
    return TrainingEnvironment(python="3.11.9", versions={"llamafactory": "0.9.5"} | known, devices=devices)


def of(found: Diagnosis) -> dict[str, Finding]:
    return {each.name: each for each in found.findings}


def wrong(found: Diagnosis) -> list[str]:
    """Names of errors, but for LLaMA-Factory's, which is nowhere."""
    return [each.name for each in found.errors if each.name != "llamafactory"]


# -- packages and machine --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "there", "objection"),
    [
        ({"deepspeed": "z.json"}, {}, "no_deepspeed"),
        ({"deepspeed": "z.json"}, {"deepspeed": "0.19.8"}, "deepspeed_version"),
        ({"deepspeed": "z.json"}, {"deepspeed": "0.18.4"}, ""),
        ({"deepspeed": "z.json"}, {"deepspeed": "0.9.5"}, "deepspeed_version"),
        ({}, {"deepspeed": "0.19.8"}, ""),
        ({"quantization_bit": 4}, {}, "no_bitsandbytes"),
        ({"enable_liger_kernel": True}, {}, "no_liger_kernel"),
        ({"flash_attn": "fa2"}, {}, "no_flash_attn"),
        ({"flash_attn": "fa2"}, {"flash_attn": "2.8"}, ""),
        ({"flash_attn": "sdpa"}, {}, ""),
    ],
    ids=str,
)
def test_a_package_that_a_configuration_needs_is_missed(
    config: dict[str, Any], there: dict[str, str], objection: str
) -> None:
    """And it is one that LLaMA-Factory is made for, which `pip install deepspeed` does not bring."""
    found = PreflightFindings()
    check_packages(config, environment([], **there), found)
    assert [each.name for each in found.objections] == [objection] * bool(objection)


@pytest.mark.parametrize(
    ("seen", "config", "expected"),
    [
        ([A100], {"bf16": True}, {}),
        ([T4], {"bf16": True}, {"bf16": "error"}),
        ([T4], {"pure_bf16": True}, {"bf16": "error"}),
        ([T4], {"fp16": True}, {}),
        ([], {}, {"none": "warning"}),
    ],
)
def test_gpus_are_those_that_torch_sees(seen: list[Gpu], config: dict[str, Any], expected: dict[str, str]) -> None:
    """None, or bf16 that a card does not have."""
    assert {each.name: each.severity for each in check_gpus(seen, config)} == expected


@pytest.mark.parametrize("python", ["/nowhere/python", sys.executable], ids=["no Python", "no LLaMA-Factory"])
def test_a_missing_llama_factory_is_a_finding(python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error, unless TRL can train it. The rest is still looked at, but for GPUs: torch was not asked for them."""
    monkeypatch.setenv(PYTHON_VARIABLE, python)
    found = doctor()
    instead = of(found)["backend_trl"].says.startswith("train --backend trl can train this here, with ")
    assert of(found)["llamafactory"].severity == ("warning" if instead else "error")
    assert of(doctor("smoke-cpu-kto"))["llamafactory"].severity == "error"
    assert "none" not in of(found)
    assert "per optimizer step" in of(found)["note"].says
    assert not [each for each in found.findings if "chat template" in each.says], "no tokenizer was looked for"


def test_whether_trl_could_train_is_said_of_what_it_trains(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Here by an older TRL, which is found before an installed one."""
    (tmp_path / "trl-0.24.0.dist-info").mkdir()
    (tmp_path / "trl-0.24.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: trl\nVersion: 0.24.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = of(doctor())["backend_trl"]
    assert (found.severity, found.says.startswith("train --backend trl needs ")) == ("note", True)
    assert "backend_trl" not in of(doctor("qwen2.5-7b-kto"))
    monkeypatch.undo()
    if find_spec("trl") and find_spec("peft"):
        assert "--backend trl does not know deepspeed" in of(doctor("qwen2.5-7b-dpo-full"))["backend_trl"].says


# -- what train would object to ----------------------------------------------------------------------------------------


def other_prompts() -> Path:
    Path("own").mkdir()
    Path("own/think.txt").write_text("Think. <query>..</query> or <answer>..</answer>")
    return Path("own")


def test_data_as_pairs_wrote_them_are_right_and_others_are_what_train_would_object_to(data: Path) -> None:
    """With the flag that says that it is meant. The files of the project leave the cutoff to train; --set is somebody's
    choice."""
    fine = {"data": data, "set": BASE}
    assert not wrong(doctor("smoke-cpu-dpo-full", **fine))
    assert wrong(doctor("smoke-cpu-dpo-full", **fine, prompts=other_prompts())) == ["renderer"]
    advised = read_audit(data).advised_cutoff
    chosen = of(doctor("qwen2.5-7b-dpo-lora", data=data, set=["cutoff_len=128"]))["truncated_prompts"]
    assert f"--set cutoff_len={advised}, or leave it out, to cut nothing" in chosen.says
    lines = (data / "questions.jsonl").read_text().splitlines()
    (data / "questions.jsonl").write_text("".join(f"{line}\n".replace('"train"', '"dev"') for line in lines))
    edited(data / "RAG_ProGuide.json", lambda rows: rows.pop())
    (data / "audit.json").unlink()
    found = doctor("smoke-cpu-dpo-full", **fine)
    assert wrong(found) == ["changed_rows", "atlas/dev"]
    assert of(found)["atlas/dev"].says.endswith("if intended: --allow-eval atlas/dev")


def test_a_machine_without_a_gpu_gets_a_plan_for_the_one_that_will_train(
    train_python: Path, data: Path, reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what really lies beside LLaMA-Factory, whose own parser is asked: it fits, at the cutoff that cuts no row.
    What LLaMA-Factory would not read is refused."""
    monkeypatch.setenv(PYTHON_VARIABLE, str(train_python))
    words = ["doctor", "qwen2.5-7b-dpo-full", "--data", data, "--gpus", 8, "--gpu-memory", 80, "--json"]
    done = reasonrag(*words)
    found = Diagnosis.model_validate_json(done.out)
    assert (done.status, found.errors) == (0, [])
    assert found.stock is not None
    assert found.stock.versions["llamafactory"].startswith("0.9.")
    asked, *others = found.plans
    assert asked.fits
    assert (asked.plan.training.name, asked.plan.training.cutoff_len) == (
        "full, ZeRO-3",
        read_audit(data).advised_cutoff,
    )
    assert {each.plan.training.name for each in others} >= {"full", "lora", "qlora"}
    refused = reasonrag(*words, "--set", "pref_bta=0.1")
    assert (refused.status, "has no argument 'pref_bta'; did you mean pref_beta?" in refused.err) == (2, True)
    here = doctor("smoke-cpu-dpo-full", data=data, set=["model_name_or_path=Qwen2.5-0.5B", "flash_attn=fa2"])
    assert (wrong(here), here.target.here) == (["no_flash_attn"], True)


# -- the memory of a configuration -------------------------------------------------------------------------------------


def test_what_does_not_fit_is_an_error_beside_what_does(reasonrag: Reasonrag) -> None:
    """One card of 24 GB: not in full, not by LoRA, but by QLoRA or offloaded. Seen by a person, exit status 1."""
    found = doctor("qwen2.5-7b-dpo-full", gpus=1, gpu_memory=24, set=["cutoff_len=1536"])
    assert wrong(found) == ["plan"]
    assert [each.plan.training.name for each in found.plans if each.fits] == ["full, ZeRO-3, offloaded", "qlora"]
    done = reasonrag("doctor", "qwen2.5-7b-dpo-full", "--gpus", 1, "--gpu-memory", 24)
    assert done.status == 1
    assert "does not fit" in done.out


@pytest.mark.parametrize(
    ("name", "gpus", "memory"),
    [
        ("qwen2.5-7b-dpo-full", 4, 80),
        ("qwen2.5-7b-dpo-full-offload", 1, 40),
        ("qwen2.5-7b-dpo-lora", 1, 48),
        ("qwen2.5-7b-dpo-qlora", 1, 24),
        ("qwen2.5-7b-sft", 2, 80),
        ("prorag-sft", 4, 80),
        ("qwen2.5-7b-reward", 1, 32),
        ("qwen2.5-7b-kto", 1, 40),
    ],
)
def test_our_configurations_fit_what_their_headers_ask_for(name: str, gpus: int, memory: int) -> None:
    """At their own cutoff_len, by the plan; and half of the GPUs, or cards of the next size down, are too little."""
    assert doctor(name, gpus=gpus, gpu_memory=memory).plans[0].fits
    less = {40: 24, 48: 40, 32: 24, 24: 16}
    assert not doctor(name, gpus=max(1, gpus // 2), gpu_memory=less.get(memory, memory)).plans[0].fits
    assert f"{memory} GB" in find_config(name).text


@pytest.mark.usefixtures("data")
def test_a_policy_is_planned_as_it_is_served_and_then_as_it_is_trained() -> None:
    """By transformers here, and with logits of the replies alone; a card that holds the model may be full by it."""
    pytest.importorskip("peft", reason="the rl extra is not installed")
    found = doctor("policy-qwen2.5-7b", gpus=1, gpu_memory=80)
    says = {each.name: each for each in found.findings}
    assert "transformers" in says["versions"].says
    assert "14.2 GB of weights in bf16: a GPU by vLLM has room for 257 attempts of 4,096 tokens" in says["served"].says
    assert [each.plan.training.name for each in found.plans] == ["lora", "full"]
    assert found.plans[0].plan.logits == 12 * 2 * 512 * 152_064
    assert [found.plans[0].plan.fits(each * GB) for each in (24, 16)] == [True, False]
    assert "one GPU of 24 GB" in find_config("policy-qwen2.5-7b", "policies").text
    accepted = ["deepspeed={}", "label_names=[]", "max_steps=1e3"]
    wrong = doctor("policy-qwen2.5-7b", set=accepted, gpus=1, gpu_memory=17).errors
    assert [each.name for each in wrong] == ["plan", "served"]
    Path("own.yaml").write_text("".join(find_config("smoke-cpu-sft").text.split("stage: sft")))
    assert "llamafactory" in of(doctor("own.yaml", set=["stage=sft", *BASE]))
    with pytest.raises(InputError, match="transformers has no argument 'lernrate'; did you mean learning_rate"):
        doctor("policy-qwen2.5-7b", set=["lernrate=1"])


def test_without_a_configuration_it_is_lora_beside_the_other_methods() -> None:
    """Of any model whose shape is known; of others there is no plan. Eight bits take a byte for each weight of the
    linear maps instead of half of one."""
    found = doctor(gpus=1, gpu_memory=80)
    fitting = [each.plan.training.name for each in found.plans if each.fits]
    assert fitting == ["lora", "full, ZeRO-3, offloaded", "lora, ZeRO-3", "qlora"]
    ways = [each.plan.training for each in found.plans]
    assert len({(each.stage, each.cutoff_len, each.batch, each.gpus) for each in ways}) == 1  # of the same rows
    none = doctor(set=["model_name_or_path=Qwen2.5-72B"], gpus=1, gpu_memory=16)
    assert not [each for each in none.plans if each.fits and not each.plan.training.zero.offloads]
    other = doctor(set=["model_name_or_path=meta-llama/Llama-3.1-8B"])
    assert (other.plans, of(other)["shape"].severity) == ([], "warning")
    four, eight = (
        doctor("qwen2.5-7b-dpo-qlora", set=[f"quantization_bit={bits}"]).plans[0].plan.weights for bits in (4, 8)
    )
    assert eight - four == pytest.approx(0.5 * 6.5e9, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["qwen2.5-7b-dpo-ful"], "did you mean"),
        (["--gpus", "0"], "--gpus"),
        (["--prompts", "nowhere", "--data", "data"], "nowhere"),
        (["--prompts", "nowhere"], "--prompts needs --data"),
        (["qwen2.5-7b-sft", "--set", "cutoff_len=-1"], "cutoff_len"),
        (["policy-qwen2.5-7b", "--data", "data"], "--dry-run checks the data"),
        (["policy-qwen2.5-7b", "--set", "clip=-1"], "clip must be a number of 0 or more"),
        (["qwen2.5-7b-dpo-full", "--set", "deepspeed=zero.json"], "zero.json"),
        (["qwen2.5-7b-dpo-full", "--set", "deepspeed=list.json"], "does not hold a JSON object"),
        (["qwen2.5-7b-dpo-full", "--set", "deepspeed=four.json"], "zero"),
    ],
)
@pytest.mark.usefixtures("data")
def test_bad_input_ends_it_with_status_2(reasonrag: Reasonrag, arguments: list[str], says: str) -> None:
    """What is asked must be there; of ZeRO the JSON is read, not its name."""
    Path("list.json").write_text("[1]")
    Path("four.json").write_text('{"zero_optimization": {"stage": 4}}')
    done = reasonrag("doctor", *arguments)
    assert done.status == 2
    assert says in done.err


def test_names_of_others_are_no_markup(reasonrag: Reasonrag) -> None:
    """A file's content reaches the terminal as text."""
    Path("own.yaml").write_text(
        "stage: dpo\ntemplate: '[red]x[/red]\\e[31m'\nmodel_name_or_path: Qwen2.5-7B\ncutoff_len: 512\n"
    )
    done = reasonrag("doctor", "own.yaml")
    assert "[red]x[/red]" in done.out
    assert "\x1b[31m" not in done.out
