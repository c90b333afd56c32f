"""`reasonrag doctor`: each thing that can be wrong is found before a training, with what to do about it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from reasonrag.curation.audit.report import read_audit
from reasonrag.processes.train_python import PYTHON_VARIABLE
from reasonrag.training.doctor.doctor import Diagnosis, doctor
from reasonrag.training.doctor.findings import Finding
from reasonrag.training.doctor.machine_checks import (
    check_disk,
    check_gpus,
    check_packages,
)
from reasonrag.training.doctor.memory import GB
from reasonrag.training.hardware import Gpu, TrainingEnvironment, host_memory
from reasonrag.training.llamafactory.config_files import find_config
from tests.helpers.command_line import Reasonrag
from tests.helpers.training_world import edited

A100 = Gpu(name="A100", memory=80 * GB, capability=(8, 0))
T4 = Gpu(name="T4", memory=15 * GB, capability=(7, 5))
STOCK = TrainingEnvironment(
    python="3.11.9",
    versions={"llamafactory": "0.9.5", "torch": "2.9.0"},
    cuda="12.8",
    devices=[A100],
    torch_error=None,
)


@pytest.fixture(autouse=True)
def without_llama_factory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that answers at once, where a test names no other: there is none."""
    monkeypatch.setenv(PYTHON_VARIABLE, "/nowhere/python")


def wrong(findings: list[Finding]) -> dict[str, str]:
    """Severities of what is not right, by name."""
    return {each.name: each.severity for each in findings if each.severity not in ("ok", "note")}


# -- packages and machine --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "package"),
    [
        ({"deepspeed": "z.json"}, "deepspeed"),
        ({"quantization_bit": 4}, "bitsandbytes"),
        ({"enable_liger_kernel": True}, "liger-kernel"),
        ({"flash_attn": "fa2"}, "flash-attn"),
    ],
)
def test_a_package_that_a_configuration_needs_is_missed(config: dict[str, Any], package: str) -> None:
    """An error on the machine that trains, a warning on another. Those that are right are named."""
    [found] = check_packages(STOCK, {}, here=True)
    assert (found.severity, "llamafactory 0.9.5" in found.says) == ("ok", True)
    assert "without deepspeed, bitsandbytes" in found.says
    missing = f"no_{package.replace('-', '_')}"
    assert wrong(check_packages(STOCK, config, here=True)) == {missing: "error"}
    assert wrong(check_packages(STOCK, config, here=False)) == {missing: "warning"}
    there = STOCK.model_copy(update={"versions": STOCK.versions | {package: "0.18.4"}})
    assert not wrong(check_packages(there, config, here=True))


@pytest.mark.parametrize(("version", "fits"), [("0.19.8", False), ("0.18.4", True), ("0.10.0", True), ("0.9.5", False)])
def test_deepspeed_is_one_that_llama_factory_is_made_for(version: str, *, fits: bool) -> None:
    """Its package does not say which, so `pip install deepspeed` brings one that is too new."""
    stock = STOCK.model_copy(update={"versions": STOCK.versions | {"deepspeed": version}})
    found = wrong(check_packages(stock, {"deepspeed": "z.json"}, here=True))
    assert found == ({} if fits else {"deepspeed_version": "error"})
    assert not wrong(check_packages(stock, {}, here=True))


@pytest.mark.parametrize(
    ("seen", "cuda", "driver", "visible", "config", "expected", "advice"),
    [
        ([A100], "12.8", [A100], "0", {"bf16": True}, {}, ""),
        ([T4], "12.8", [T4], "0", {"bf16": True}, {"bf16": "error"}, "--set fp16=true"),
        ([T4], "12.8", [T4], "0", {"fp16": True}, {}, ""),
        ([], None, [], "0", {}, {"none": "warning"}, "--gpus N --gpu-memory GB"),
        ([], None, [], "0", {"use_cpu": True}, {}, ""),
        ([], None, [A100], "0", {}, {"unseen": "error"}, "--force-reinstall torch"),
        ([], "12.8", [A100], "", {}, {"unseen": "error"}, "unset CUDA_VISIBLE_DEVICES"),
        ([], "12.8", [A100], "0", {}, {"unseen": "error"}, "older than torch's CUDA"),
        ([A100], "12.8", [A100.model_copy(update={"free": 20 * GB})], "0", {}, {"busy": "warning"}, "nvidia-smi names"),
    ],
)
def test_gpus_are_those_that_torch_sees(
    seen: list[Gpu],
    cuda: str | None,
    driver: list[Gpu],
    visible: str,
    config: dict[str, Any],
    expected: dict[str, str],
    advice: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A driver's GPUs that torch does not see, and why; bf16 that a card does not have; memory that somebody else
    uses."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = check_gpus(STOCK.model_copy(update={"devices": seen, "cuda": cuda}), driver, config, elsewhere=False)
    assert wrong(found) == expected
    assert advice in found[-1].advice if found else not advice
    assert check_gpus(None, [], config, elsewhere=True) == []


def test_room_on_the_disk_is_looked_for_where_the_model_would_go(tmp_path: Path) -> None:
    """Of the nearest folder that exists; no error where another machine trains."""
    place = tmp_path / "a" / "b"
    assert check_disk(place, 1, checkpoints=1, here=True).severity == "ok"
    assert check_disk(place, 10**18, checkpoints=1, here=True).severity == "error"
    assert check_disk(place, 10**18, checkpoints=1, here=False).severity == "note"


@pytest.mark.parametrize(
    ("groups", "limits", "mib"),
    [
        (None, {}, 2),
        ("0::/", {"memory.max": "max"}, 2),
        ("0::/", {"memory.max": str(2**20)}, 1),  # a container
        ("0::/slurm/job_7/step_0", {"slurm/job_7/memory.max": str(2**20), "slurm/job_7/step_0/memory.max": "max"}, 1),
        ("0::/slurm/job_7/step_0", {"slurm/job_8/memory.max": str(2**20)}, 2),
        ("9:name=systemd:/\n4:memory:/job\n1:cpu:/job", {"memory/job/memory.limit_in_bytes": str(2**20)}, 1),
        ("4:memory:/job", {"memory/memory.limit_in_bytes": "9223372036854771712"}, 2),
    ],
)
def test_memory_of_the_host_is_what_a_container_or_job_may_take(
    groups: str | None, limits: dict[str, str], mib: int, tmp_path: Path
) -> None:
    """Which MemAvailable does not know. Other systems have no /proc."""
    assert host_memory(tmp_path) is None
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 9 kB\n")  # of a kernel that does not estimate it
    assert host_memory(tmp_path) is None
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
    if groups is not None:
        (tmp_path / "proc" / "self" / "cgroup").write_text(groups + "\n")
    for name, limit in limits.items():
        place = tmp_path / "sys" / "fs" / "cgroup" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(limit + "\n")
    assert host_memory(tmp_path) == mib * 2**20


# -- data ----------------------------------------------------------------------------------------------------


def other_prompts() -> Path:
    Path("own").mkdir()
    Path("own/think.txt").write_text("Think. <query>..</query> or <answer>..</answer>")
    return Path("own")


def test_data_as_pairs_wrote_them_are_right_and_others_are_what_train_would_refuse(data: Path) -> None:
    """With the flag that says that it is meant. A model asked in other words is not the one that was trained."""
    assert of(doctor("smoke-cpu-dpo-full", data=data), "data").keys() == {"description"}

    def refused(**flags: Any) -> dict[str, str]:
        return wrong([each for each in doctor("smoke-cpu-dpo-full", **flags).findings if each.about == "data"])

    assert refused(data=data, prompts=other_prompts()) == {"renderer": "error"}
    lines = (data / "questions.jsonl").read_text().splitlines()
    (data / "questions.jsonl").write_text("".join(f"{line}\n".replace('"train"', '"dev"') for line in lines))
    edited(data / "RAG_ProGuide.json", lambda rows: rows.pop())
    (data / "audit.json").unlink()
    assert refused(data=data) == {"atlas/dev": "error", "changed_rows": "error"}
    told = of(doctor("smoke-cpu-dpo-full", data=data), "data")["atlas/dev"]
    assert told.advice == "if intended: --allow-eval atlas/dev"


# -- the whole ---------------------------------------------------------------------------------------------------------


def of(found: Diagnosis, about: str) -> dict[str, Finding]:
    return {each.name: each for each in found.findings if each.about == about}


def test_a_machine_without_a_gpu_gets_a_plan_for_the_one_that_will_train(
    train_python: Path, data: Path, reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what really lies beside LLaMA-Factory, whose own parser is asked: it fits, at the cutoff that cuts no row,
    and nothing is wrong but a key that does not exist."""
    monkeypatch.setenv(PYTHON_VARIABLE, str(train_python))
    planned = ["--gpus", 8, "--gpu-memory", 80, "--set", "pref_bta=0.1", "--json"]
    done = reasonrag("doctor", "qwen2.5-7b-dpo-full", "--data", data, *planned)
    found = Diagnosis.model_validate_json(done.out)
    assert done.status == 1
    assert [each.says for each in found.errors] == ["LLaMA-Factory has no argument 'pref_bta'; did you mean pref_beta?"]
    assert found.stock is not None
    assert found.stock.versions["llamafactory"].startswith("0.9.")
    assert "ZeRO stage 3" in of(found, "configuration")["zero"].says
    asked, *others = found.plans
    assert asked.verdict == "fits"
    assert asked.plan.training.cutoff_len == read_audit(data).advised_cutoff
    assert {each.plan.training.name for each in others} >= {"full", "lora", "qlora"}


def test_what_does_not_fit_is_an_error_with_the_nearest_that_does(reasonrag: Reasonrag) -> None:
    """One card of 24 GB: not in full, not by LoRA, but by QLoRA or offloaded. Seen by a person, exit status 1."""
    found = doctor("qwen2.5-7b-dpo-full", gpus=1, gpu_memory=24, set=["cutoff_len=1536"])
    error = of(found, "memory")["plan"]
    assert error.severity == "error"
    assert "ZeRO-3, offloaded" in error.advice
    verdicts = {each.plan.training.name: each.verdict for each in found.plans}
    assert verdicts["full, ZeRO-3"] == verdicts["lora"] == "does not fit"
    assert verdicts["qlora"] == "fits"
    done = reasonrag("doctor", "qwen2.5-7b-dpo-full", "--gpus", 1, "--gpu-memory", 24)
    assert done.status == 1
    assert "does not fit" in done.out


def test_what_is_offloaded_must_fit_into_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cards here hold what stays of 72 B parameters; the 1.3 TB that do not are an error where the machine has
    less, and an alternative that takes as much does not fit either. Of another machine it is not known."""
    listing = tmp_path / "nvidia-smi"
    listing.write_text("#!/bin/sh\nprintf 'A100, PCIe, 81920, 81920\\nA100, PCIe, 81920, 81920\\n\\n'\n")
    listing.chmod(0o755)
    asked: dict[str, Any] = {"model": "Qwen2.5-72B-Instruct", "set": ["cutoff_len=512"]}
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    here = doctor("qwen2.5-7b-dpo-full-offload", **asked)
    needed = here.plans[0].plan.host
    assert 1300 * GB < needed < 1400 * GB
    assert here.target.host is not None
    assert (here.target.gpus, here.target.memory) == (2, 80 * GB)
    enough = (host_memory() or 0) > needed
    memory = of(here, "memory")
    assert memory["plan"].severity == "ok"
    host = [] if enough else [("error", True)]
    told = [(each.severity, "of the host's memory" in each.says) for name, each in memory.items() if name == "host"]
    assert told == host
    offloaded = [each for each in doctor("qwen2.5-7b-dpo-full", **asked).plans if each.plan.training.offloads]
    assert [each.verdict for each in offloaded] == ["fits with offload" if enough else "does not fit"]
    elsewhere = of(doctor("qwen2.5-7b-dpo-full-offload", gpus=2, gpu_memory=80, **asked), "memory")
    assert "host" not in elsewhere


@pytest.mark.parametrize(
    ("name", "gpus", "memory"),
    [
        ("qwen2.5-7b-dpo-full", 4, 80),
        ("qwen2.5-7b-dpo-full-offload", 1, 40),
        ("qwen2.5-7b-dpo-lora", 1, 48),
        ("qwen2.5-7b-dpo-qlora", 1, 24),
        ("qwen2.5-7b-sft", 2, 80),
        ("qwen2.5-7b-reward", 1, 32),
        ("qwen2.5-7b-kto", 1, 40),
    ],
)
def test_our_configurations_fit_what_their_headers_ask_for(name: str, gpus: int, memory: int) -> None:
    """At their own cutoff_len, by the plan; and half of the GPUs, or cards of the next size down, are too little."""
    found = doctor(name, gpus=gpus, gpu_memory=memory)
    assert found.plans[0].verdict != "does not fit"
    less = {40: 24, 48: 40, 32: 24, 24: 16}
    smaller = doctor(name, gpus=max(1, gpus // 2), gpu_memory=less.get(memory, memory))
    assert smaller.plans[0].verdict == "does not fit"
    assert f"{memory} GB" in find_config(name).text


def test_a_cutoff_that_somebody_chose_is_held_against_the_rows(data: Path) -> None:
    """The files of the project leave it to train; --set is somebody's choice."""
    advised = read_audit(data).advised_cutoff
    assert of(doctor("qwen2.5-7b-dpo-lora", data=data), "configuration")["cutoff"].severity == "ok"
    chosen = of(doctor("qwen2.5-7b-dpo-lora", data=data, set=["cutoff_len=128"]), "configuration")["truncated_prompts"]
    assert chosen.severity == "error"
    assert f"--set cutoff_len={advised}, or leave it out, to cut nothing" in chosen.says


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file"),
        ("[1]", "does not hold a JSON object"),
        ('{"zero_optimization": {"stage": 4}}', "ZeRO stage 4; stages are 0 to 3"),
        ('{"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}', "offload_param takes stage 3"),
    ],
)
def test_zero_is_what_its_file_says(content: str | None, says: str) -> None:
    """Not what its name says: the JSON is read."""
    if content is not None:
        Path("zero.json").write_text(content)
    found = of(doctor("qwen2.5-7b-dpo-full", set=["deepspeed=zero.json"]), "configuration")["zero"]
    assert found.severity == "error"
    assert says in found.says


def test_eight_bits_take_more_than_four() -> None:
    """A byte for each weight of the linear maps instead of half of one."""
    four, eight = (
        doctor("qwen2.5-7b-dpo-qlora", set=[f"quantization_bit={bits}"]).plans[0].plan.weights for bits in (4, 8)
    )
    assert eight - four == pytest.approx(0.5 * 6.5e9, rel=0.05)


def test_without_a_configuration_it_is_lora_beside_the_other_methods() -> None:
    """Of any model whose shape is known."""
    found = doctor(gpus=1, gpu_memory=80)
    fitting = [each.plan.training.name for each in found.plans if each.verdict != "does not fit"]
    assert fitting == ["lora", "full, ZeRO-3, offloaded", "lora, ZeRO-3", "qlora"]
    none = doctor(model="Qwen2.5-72B", gpus=1, gpu_memory=16)
    assert not any(each.verdict == "fits" for each in none.plans)
    assert of(none, "memory")["plan"].advice == "a smaller model"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["qwen2.5-7b-dpo-ful"], "did you mean"),
        (["--model", "llama"], "the shape of 'llama' is unknown"),
        (["--gpus", "0"], "--gpus"),
        (["--prompts", "nowhere"], "nowhere"),
        (["qwen2.5-7b-sft", "--set", "cutoff_len=-1"], "cutoff_len"),
    ],
)
def test_bad_input_ends_it_with_status_2(reasonrag: Reasonrag, arguments: list[str], says: str) -> None:
    """What is asked must be there; everything else is a finding."""
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


@pytest.mark.parametrize(("python", "name"), [("/nowhere/python", "environment"), (sys.executable, "llamafactory")])
def test_a_missing_interpreter_or_llama_factory_is_a_finding(
    python: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is still looked at."""
    monkeypatch.setenv(PYTHON_VARIABLE, python)
    found = doctor("smoke-cpu-sft")
    assert of(found, "packages")[name].severity == "error"
    assert of(found, "configuration")["batch"].severity == "ok"
