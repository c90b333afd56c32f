"""What `reasonrag train` refuses before anything is started, what it fills in, and what it would start.

None of this asks LLaMA-Factory: a training that nothing speaks against ends here with the complaint that its
environment is nowhere.
"""

from __future__ import annotations

import math
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from preference.export.private_files import write_json
from reasonrag.errors import InputError
from reasonrag.run_config import config_hash
from reasonrag.training.llamafactory.config_files import as_yaml, changes_of, find_config, shipped_names
from reasonrag.training.llamafactory.config_resolution import describe_batch, resolve_config
from reasonrag.training.llamafactory.dataset_info import read_questions, read_training_data
from reasonrag.training.llamafactory.inspection import ConfigCheck
from reasonrag.training.llamafactory.launcher import Launch, launch_variables, run_child
from reasonrag.training.metrics import (
    TrainingProgress,
    failure_hint,
    find_warnings,
    read_metrics,
)
from reasonrag.training.model_card import render_model_card
from reasonrag.training.output_directory import OutputDirectory, TrainingRecord
from reasonrag.training.preflight_checks import PreflightFindings, check_rows, resolve_cutoff
from reasonrag.training.prepare import Startable, identity_of
from reasonrag.training.provenance import Provenance, TrainingConditions
from reasonrag.training.stages.slurm import SlurmScript, write_script
from tests.helpers.command_line import Done, Reasonrag
from tests.helpers.listener import Listener
from tests.helpers.processes import until
from tests.helpers.training_world import NOTHING_OBJECTED, edited

FULL = "smoke-cpu-dpo-full"
QWEN = "Qwen/Qwen2.5-7B-Instruct"


@pytest.fixture
def train(reasonrag: Reasonrag, data: Path) -> Callable[..., Done]:
    """`reasonrag train smoke-cpu-dpo-full --data data ..` on that model."""

    def run(*words: object, config: str = FULL) -> Done:
        base = [] if any(str(each).startswith("model_name_or_path=") for each in words) else BASE
        where = [] if "--data" in words else ["--data", data]
        return reasonrag("train", config, *where, "--out", "saves/x", *base, *words)

    return run


BASE = ["--set", "model_name_or_path=base"]


def test_what_pairs_wrote_is_not_objected_to(train: Callable[..., Done]) -> None:
    """Data, prompts and a model that go together."""
    done = train()
    assert (done.status, NOTHING_OBJECTED in done.err) == (2, True), done.err
    assert "`reasonrag doctor CONFIG` checks the rest" in done.err
    assert not Path("saves").exists()


WORDS: dict[str, tuple[list[str], str]] = {
    "a folder that is not there": (["--data", "nowhere"], "there is no nowhere"),
    "the template of another model": (["--set", "template=llama3"], "template llama3 is not that of Qwen2.5"),
    "packing of pairs": (["--set", "packing=true"], "packing is for stage sft only"),
    "random validation": (["--set", "val_size=0.1", "--set", "eval_dataset=null"], "--allow val_size"),
    "a model path that is not there": (["--set", "model_name_or_path=./saves/sft"], "there is no model at ./saves/sft"),
    "no stage": (["--set", "stage=null"], "has no stage"),
    "deepspeed that is not there": (["--set", "deepspeed=z9.json"], "deepspeed names z9.json"),
    "an entry that is not there": (["--set", "dataset=rag_proguid"], "did you mean 'rag_proguide'"),
    "pairs for a stage that takes none": (["--set", "stage=sft", "--set", "dataset=rag_proguide"], "holds pairs"),
    "no weight of the preferences": (["--set", "pref_beta=0"], "pref_beta: 0 compares no replies"),
    "a value that is no number": (["--set", "pref_beta=.nan"], "pref_beta must be a finite number"),
    "no weight where it has no part": (
        ["--set", "stage=rm", "--set", "pref_loss=null", "--set", "pref_beta=0"],
        NOTHING_OBJECTED,
    ),
    "something like a secret": (["--set", "run_name=hf_" + 30 * "x"], "what looks like a key"),
    "machines without the first": (["--nodes", "2", "--node-rank", "0"], "--nodes needs --master"),
    "a number too high": (["--nodes", "2", "--node-rank", "2", "--master", "h"], "of 2 machines the last is 1"),
    "an address that is none": (["--nodes", "2", "--node-rank", "1", "--master", "h:0"], "HOST or HOST:PORT"),
    "more positions than the model has": (["--set", "cutoff_len=40000"], "--allow beyond_context"),
}


@pytest.mark.parametrize(("words", "why"), WORDS.values(), ids=list(WORDS))
def test_words_that_cannot_be_meant(words: list[str], why: str, train: Callable[..., Done]) -> None:
    """Exit status 2, why, and nothing written."""
    done = train(*words)
    assert done.status == 2
    assert why in done.err
    assert not Path("saves").exists()


def each_line(path: Path, change: Callable[[Any], object]) -> None:
    lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    for line in lines:
        change(line)
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


def changed(file: str, change: Callable[[Any], object]) -> Callable[[Path], object]:
    """Spoils a JSON file of the data set, or each line of one."""
    return lambda data: (each_line if file.endswith("l") else edited)(data / file, change)


def mixed(data: Path) -> None:
    first, *rest = (data / "questions.jsonl").read_bytes().splitlines()
    other = orjson.loads(first)
    other["origin"]["renderer"] = OTHER
    (data / "questions.jsonl").write_bytes(b"\n".join([orjson.dumps(other), *rest]) + b"\n")


def base_of_other_prompts(data: Path) -> None:
    asked = TrainingConditions(renderer=OTHER)
    told = Provenance(base_model=QWEN, stage="sft", finetuning_type="full", asked=asked)
    told.write(data.with_name("base"))


def occupied(data: Path) -> None:
    saves = data.with_name("saves") / "x"
    saves.mkdir(parents=True)
    (saves / "model.safetensors").write_bytes(b"")


OTHER = "0123456789abcdef"
"""A renderer that nobody has."""
DATA: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "no description": (lambda data: (data / "dataset_info.json").unlink(), "has no dataset_info.json", ""),
    "no rows": (lambda data: (data / "RAG_ProGuide.json").unlink(), "RAG_ProGuide.json, which is not there", ""),
    "pairs without a rank": (
        changed("dataset_info.json", lambda info: info["rag_proguide"].pop("ranking")),
        "has no `ranking: true`",
        "",
    ),
    "an empty list of rows": (lambda data: (data / "RAG_ProGuide.json").write_text("[]"), "so there is nothing to", ""),
    "rows that changed": (
        changed("RAG_ProGuide.json", lambda rows: rows.pop()),
        "--allow changed_rows",
        "--allow changed_rows",
    ),
    "questions of an evaluation split": (
        changed("questions.jsonl", lambda question: question["origin"].update(split="dev")),
        "it contains 16 questions of atlas/dev, not a training split",
        "--allow-eval atlas/dev",
    ),
    "prompts of two renderers": (mixed, "mixes prompts of 2 renderers", ""),
    "other prompts": (
        changed("questions.jsonl", lambda question: question["origin"].update(renderer=OTHER)),
        f"has prompts of renderer {OTHER}, but the model would be prompted by",
        "--allow renderer",
    ),
    "a base of other prompts": (
        base_of_other_prompts,
        f"was trained (sft) on prompts of renderer {OTHER}",
        "--allow base_renderer",
    ),
    "a damaged base": (
        lambda data: (data.with_name("base") / "reasonrag.json").write_text("{}"),
        "reasonrag.json is damaged",
        "",
    ),
    "an adapter as the base": (
        lambda data: (data.with_name("base") / "config.json").rename(data.with_name("base") / "adapter_config.json"),
        "is an adapter, not a whole model",
        "",
    ),
    "a folder of another model": (occupied, "holds model.safetensors, which no training of reasonrag wrote", ""),
}


@pytest.mark.parametrize(("spoil", "why", "flags"), DATA.values(), ids=list(DATA))
def test_data_and_models_that_would_spoil_a_training(
    spoil: Callable[[Path], object], why: str, flags: str, train: Callable[..., Done], data: Path
) -> None:
    """Refused at once, with status 2 and what to do. Who knows better says so by name, which sets that one objection
    aside."""
    spoil(data)
    done = train()
    assert (done.status, why in done.err) == (2, True), done.err
    if flags:
        assert NOTHING_OBJECTED in train(*flags.split()).err
        assert NOTHING_OBJECTED not in train("--allow", "something").err


def test_a_missing_format_is_said_with_the_line_that_writes_it(train: Callable[..., Done], data: Path) -> None:
    """KTO trains on other rows than DPO; so does SFT on chosen replies, which is asked for by name."""
    done = train("--set", "dataset=rag_proguide_sft_chosen", config="smoke-cpu-sft")
    there = "--format kto --format reward --format sft"
    assert f"Write it: reasonrag pairs {data} {there} --format sft-chosen --out {data}" in done.err
    edited(data / "dataset_info.json", lambda info: info.pop("rag_proguide_kto"))
    done = train(config="smoke-cpu-kto")
    assert f"Write it: reasonrag pairs {data} {there} --out {data}" in done.err


# -- what is filled in -----------------------------------------------------------------------------------------


def resolved(data: Path, config: str = FULL, **changes: Any) -> Any:
    return resolve_config(
        find_config(config), {"model_name_or_path": "base"} | changes, read_training_data(data), out=None
    )


@pytest.mark.parametrize("stage", ["dpo-full", "kto", "sft", "reward"])
def test_each_stage_gets_its_rows(stage: str, data: Path) -> None:
    """By the stage, trained on and held out, which counts for the cutoff too; places are absolute."""
    resolution = resolved(data, f"smoke-cpu-{stage}")
    found, rows = resolution.config, resolution.countable
    entry = "rag_proguide" + ("" if stage == "dpo-full" else f"_{stage}")
    assert (found["dataset"], found["eval_dataset"]) == (entry, f"{entry}_validation")
    assert found["dataset_dir"] == str(data)
    assert found["model_name_or_path"] == str(data.with_name("base"))
    assert Path(found["output_dir"]).is_absolute()
    counted = [".validation." in file for file in rows.files] if rows else []
    assert counted == ([] if entry == "rag_proguide_reward" else [False, True])
    assert resolved(data, stage="kto").config["dataset"] == "rag_proguide_kto"


def test_without_held_out_rows_nothing_is_evaluated(data: Path) -> None:
    """The lines of evaluation are taken out, and it is said."""
    (data / "RAG_ProGuide.validation.json").unlink()
    found = resolved(data)
    assert not {"eval_dataset", "eval_strategy", "eval_steps"} & found.config.keys()
    assert "so nothing is evaluated" in " ".join(found.notes)


def test_replies_of_earlier_turns_are_learnt_in_rows_of_their_own(data: Path) -> None:
    """Unless prompts are learnt, which LLaMA-Factory does only with the replies in them."""
    edited(data / "dataset_info.json", lambda info: info["rag_proguide_sft"]["columns"].update(history="history"))
    masked = [resolved(data, "smoke-cpu-sft", train_on_prompt=each).config["mask_history"] for each in (False, True)]
    assert masked == [True, False]


CUTOFFS: dict[str, tuple[dict[str, Any], bool, str]] = {
    "another family by its name": ({"model_name_or_path": "meta-llama/Llama-3.1-8B"}, True, "stays 8,192"),
    "a later Qwen": ({"model_name_or_path": "Qwen/Qwen3-8B"}, True, "tokenizer of Qwen/Qwen3-8B cannot be read"),
    "a folder without its tokenizer": ({"model_name_or_path": "base"}, True, "the tokenizer of base cannot be read"),
    "a model whose vocabulary is at hand": ({"model_name_or_path": QWEN}, False, "(was 8,192)"),
    "no cutoff is configured": ({"model_name_or_path": "base", "cutoff_len": None}, False, "cuts no row; tokens by"),
}


@pytest.mark.parametrize(("changes", "stays", "said"), CUTOFFS.values(), ids=CUTOFFS.keys())
def test_only_the_tokenizer_of_the_student_lowers_its_cutoff(
    data: Path, changes: dict[str, Any], stays: bool, said: str
) -> None:
    """What another vocabulary counts is told, and decides nothing."""
    resolution = resolved(data)
    resolution.config |= {"cutoff_len": 8192} | changes
    before = resolution.config["cutoff_len"]
    lengths = resolve_cutoff(resolution, read_training_data(data), ConfigCheck(), PreflightFindings())
    assert (resolution.config["cutoff_len"] == before) is stays
    assert lengths["cutoff_len"] == resolution.config["cutoff_len"]
    assert lengths["longest_row"] <= lengths["advised_cutoff"] < 6000
    assert said in resolution.notes[-1]


def test_data_that_name_no_questions_are_told_of(data: Path) -> None:
    """No evaluation can tell then whether it asks what was trained on."""
    (data / "questions.jsonl").unlink()
    edited(data / "RAG_ProGuide.json", lambda rows: [row.pop("question", None) for row in rows])
    found, resolution, read = PreflightFindings(), resolved(data), read_training_data(data)
    check_rows(resolution.entries, read, *read_questions(read, resolution.entry), found)
    assert "does not record its questions" in " ".join(found.notes)


def test_operational_settings_make_no_other_training(data: Path) -> None:
    """Where it goes, how it is shown and who reports: the same hash; what is learned from: another."""
    read = read_training_data(data)

    def hashed(**changes: Any) -> str:
        return config_hash(identity_of(resolved(data, **changes), read))

    same = hashed(output_dir="elsewhere", logging_steps=50, plot_loss=True, overwrite_output_dir=True)
    assert same == hashed()
    assert hashed(learning_rate=2e-6) != same
    assert hashed(dataset="rag_proguide_validation") != same


def test_steps_that_are_asked_for_are_the_warm_up(data: Path) -> None:
    """The share in the file would win over them in transformers 5."""
    assert resolved(data).config["warmup_ratio"] == 0.2
    steps = resolved(data, warmup_steps=50).config
    assert (steps["warmup_steps"], "warmup_ratio" in steps) == (50, False)


OF_A_STEP = {"stage": "dpo", "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}
NO_BATCH = {"per_device_train_batch_size": None, "gradient_accumulation_steps": None}


@pytest.mark.parametrize(
    ("values", "processes", "says"),
    [
        ({}, 1, "8 pairs per optimizer step"),
        ({}, 0, "8 pairs per optimizer step and GPU"),  # the number of GPUs is not given
        ({"gradient_accumulation_steps": 2}, 4, "2 pairs per optimizer step and GPU, 8 on 4"),
        ({"per_device_train_batch_size": 4}, 2, "32 pairs per optimizer step and GPU, 64 on 2"),
        (NO_BATCH, 2, "8 pairs per optimizer step and GPU, 16 on 2"),
        ({"use_cpu": True, "stage": "sft"}, 8, "8 rows per optimizer step"),
    ],
)
def test_a_step_sees_the_rows_of_all_processes(values: dict[str, Any], processes: int, says: str) -> None:
    """Rows of a forward pass, times passes, times GPUs."""
    assert describe_batch(OF_A_STEP | values, processes) == says


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("key=1e-6", 1e-6),
        ("key=5E2", 500.0),
        ("key=3", 3),
        ("key=all", "all"),
        ("key=", ""),
        ("key=no", False),
        ("save_strategy=no", "no"),  # where a word is meant
    ],
)
def test_values_are_what_they_look_like(change: str, value: object) -> None:
    """`1e-6` is a number although YAML 1.1 says text, and `no` is not always false."""
    [found] = changes_of([change]).values()
    assert (found, type(found)) == (value, type(value))


SCALARS = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.text(), st.integers(), st.booleans())


@given(st.dictionaries(st.text("abcdefgh_", min_size=1), SCALARS))
@example({"_": "\x85"})
def test_any_reader_of_yaml_reads_what_is_written(values: dict[str, Any]) -> None:
    """Numbers as numbers, texts as texts, whatever they look like."""
    assert yaml.safe_load(as_yaml(values, "a comment\nof two lines")) == (values or {})


def test_a_shipped_configuration_is_found_by_its_bare_name(reasonrag: Reasonrag) -> None:
    """And printed whole, to be edited."""
    assert reasonrag("train", "--print").out.split() == shipped_names()
    done = reasonrag("train", FULL, "--print")
    assert (done.status, done.out) == (0, find_config(FULL).text)
    Path("my.yaml").write_text(done.out)
    assert find_config("my.yaml").values == find_config(FULL).values


def test_a_configuration_of_ones_own_may_be_wrong(reasonrag: Reasonrag) -> None:
    """A list, a key twice, no YAML: said with the file's name."""
    for text in ("- a", "a: 1\na: 2", "a: [", "1: 2"):
        Path("my.yaml").write_text(text)
        with pytest.raises(InputError, match=r"my\.yaml"):
            _ = find_config("my.yaml").values
    assert "did you mean 'qwen2.5-7b-kto'" in reasonrag("train", "qwen2.5-7b-kt", "--data", "x").err


# -- what would be started -------------------------------------------------------------------------------------

LAUNCHES: dict[str, tuple[Launch, bool, int, dict[str, str]]] = {
    "one GPU": (Launch(), False, 1, {}),
    "several, which it finds itself": (Launch(), False, 8, {}),
    "one with DeepSpeed": (Launch(), True, 1, {"FORCE_TORCHRUN": "1"}),
    "a CPU with DeepSpeed": (Launch(), True, 0, {"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": "1"}),
    "four of eight": (Launch(gpus_per_node=4), False, 8, {"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": "4"}),
    "two machines": (
        Launch.of(2, 1, "h", None, here=True),
        True,
        8,
        {"FORCE_TORCHRUN": "1", "NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "h", "MASTER_PORT": "29500"},
    ),
}


@pytest.mark.parametrize(("launch", "deepspeed", "gpus", "expected"), LAUNCHES.values(), ids=list(LAUNCHES))
def test_the_launcher_is_told_by_variables(
    launch: Launch, deepspeed: object, gpus: int, expected: dict[str, str]
) -> None:
    """LLaMA-Factory starts torchrun by itself for several GPUs only."""
    assert launch_variables(launch, deepspeed=bool(deepspeed), gpus=gpus) == expected


def test_everything_a_child_says_is_kept_but_for_what_it_overwrites(tmp_path: Path) -> None:
    """Lines of both streams in the log, also a last one that does not end; a progress bar by its last state."""
    code = (
        "import sys, os\nprint(os.environ['A'])\n"
        "for i in range(9): sys.stderr.write(f'\\r{i}/9'); sys.stderr.flush()\n"
        "sys.stderr.write('\\n')\nprint('the end', end='')\nsys.exit(3)"
    )
    last, command, python = deque[str](maxlen=3), [sys.executable, "-c", code], Path(sys.executable)
    log = tmp_path / "log"
    assert run_child(command, python=python, environment={"A": "b"}, log=log, last=last, tick=lambda: None) == 3
    lines = log.read_text().splitlines()
    assert "b" in lines
    assert "8/9" in lines
    assert not [line for line in lines if line.startswith("7/9")]
    assert last[-1] == "the end"


def runs_child(code: str, log: Path, room: int = 10**6) -> list[str]:
    """A command that does nothing else. room: the most bytes of a file."""
    outer = (
        "import resource, sys; from collections import deque; from pathlib import Path\n"
        "from reasonrag.training.llamafactory.launcher import run_child\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))\n"
        f"run_child([sys.executable, '-c', {code!r}], python=Path(sys.executable), environment={{}}, "
        f"log=Path({str(log)!r}), last=deque(), tick=lambda: None)"
    )
    return [sys.executable, "-c", outer]


def test_a_child_whose_words_cannot_be_kept_is_ended(tmp_path: Path) -> None:
    code = "import time; print(999 * 'o ', 'o', sep='\\n', flush=True); time.sleep(60)"
    done = subprocess.run(runs_child(code, tmp_path / "log", 999), capture_output=True, check=False)
    assert b"File too large" in done.stderr


def test_a_training_stands_where_the_trainers_log_says(tmp_path: Path) -> None:
    """By LLaMA-Factory's names, and by those of a critic's trainer; steps never go back, and half a line is none yet.
    Of many lines within half a minute the first and the last are said."""
    log, heard = tmp_path / "trainer_log.jsonl", Listener()
    log.write_text('{"current_steps": 9, "total_steps": 9}\n')
    progress = TrainingProgress(log, heard)
    records: list[dict[str, object]] = [
        {"current_steps": 2, "total_steps": 4, "loss": 0.5, "accuracy": 0.75, "remaining_time": "0:09"},
        {"current_steps": 1, "total_steps": 9, "eval_accuracy": 0.5, "lr": "x"},
        {"current_steps": 3, "total_steps": 4, "eval_accuracy": 0.25, "remaining_time": "0:04"},
        {"current_steps": None, "total_steps": 4, "loss": 9.0},
        {"current_steps": 4, "total_steps": 4, "loss": 0.25},
    ]
    for record in records:
        with log.open("ab") as file:
            file.write(orjson.dumps(record))
            file.flush()
            progress.look()
            file.write(b"\n")
        progress.look()
    progress.say()
    progress.say()
    assert heard.said == [
        "step 2 of 4, loss 0.5, pairs ranked as labelled 0.75, 0:09 left",
        "step 4 of 4, loss 0.25, pairs ranked as labelled 0.75, validation pairs ranked as labelled 0.25",
    ]
    log.write_text('{"current_steps": 5, "total_steps": 6}\n')  # begun anew
    progress.look()
    assert str(progress).startswith("step 5 of 6")
    of_a_critic = TrainingProgress(None, heard)
    of_a_critic.reached({"current_steps": 1, "total_steps": 4, "loss": 0.5})
    assert str(of_a_critic) == "step 1 of 4, loss 0.5"


def test_a_child_and_its_children_end_with_us(tmp_path: Path) -> None:
    """SIGTERM, as a batch system sends it, is Ctrl-C; nobody is left behind, and last words tell no keys either."""
    mark = tmp_path / "pids"
    code = (
        "import signal, subprocess, sys, os, pathlib, time\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit('sk-' + 20 * '1'))\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(mark)!r}).write_text(f'{{os.getpid()}} {{other.pid}}')\ntime.sleep(60)"
    )
    with subprocess.Popen(runs_child(code, tmp_path / "log"), stderr=subprocess.PIPE) as running:
        until(lambda: mark.exists() and mark.read_text() != "")
        running.send_signal(signal.SIGTERM)
        running.wait(60)
    assert "[secret]" in (log := (tmp_path / "log").read_text())
    assert 20 * "1" not in log
    pids = mark.read_text().split()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(alive(pid) for pid in pids):
        time.sleep(0.05)
    assert not any(alive(pid) for pid in pids)


def alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


SAID = {
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB": "the GPU ran out of memory",
    "ValueError: Your setup doesn't support bf16/gpu.": "--set bf16=null --set fp16=true",
    "OSError: [Errno 28] No space left on device": "the disk is full",
}


@pytest.mark.parametrize(("said", "hint"), SAID.items())
def test_a_known_failure_comes_with_what_to_do(said: str, hint: str) -> None:
    """And an unknown one with nothing."""
    assert hint in (failure_hint(["Traceback", said]) or "")
    assert failure_hint(["something else"]) is None


@pytest.mark.parametrize("state", ["", '{"global_step": '], ids=["empty", "torn"])
def test_a_checkpoint_whose_state_was_half_written_is_not_gone_on_from(state: str, tmp_path: Path) -> None:
    for step, text in ((2, '{"global_step": 2}'), (4, state)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(text)
    assert OutputDirectory(tmp_path).last_checkpoint() == tmp_path / "checkpoint-2"


def test_a_batch_script_runs_the_same_command_on_every_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """bash accepts it; with Slurm's commands stood in for, each machine gets its number and the first one's address;
    names with spaces and quotes stay names."""
    here = tmp_path / "it's here"
    here.mkdir()
    script = tmp_path / "job.sh"
    monkeypatch.chdir(here)
    monkeypatch.setattr("sys.executable", "/bin/echo")
    asked = SlurmScript(script, ["my config.yaml", "--data", "d'a t$a", "--out", str(here / "x")])
    record = training_record(resolved={"output_dir": str(here / "x")}, python="/opt/a b/python", gpus=4 * ["A100"])
    told = Provenance(base_model=QWEN, stage="dpo", finetuning_type="full")
    write_script(Startable(record, told, None, []), Launch(2), asked)
    subprocess.run(["bash", "-n", str(script)], check=True)
    for name, code in (
        ("scontrol", "echo first; echo second"),
        ("srun", 'shift 2; for SLURM_NODEID in 0 1; do export SLURM_NODEID; ( "$@" ); done'),
    ):
        (tmp_path / name).write_text(f"#!/bin/bash\n{code}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["bash", str(script)],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "n[1-2]"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = f"-m reasonrag train my config.yaml --data d'a t$a --out {here / 'x'} --nodes 2 --node-rank"
    assert done.stdout.splitlines() == [f"{words} {n} --gpus-per-node 4 --master first:29500" for n in (0, 1)]
    assert {"#SBATCH --nodes=2", "#SBATCH --requeue"} <= set(script.read_text().splitlines())


# -- what the numbers warn of ----------------------------------------------------------------------------------


def line(start: float, end: float) -> list[tuple[int, float]]:
    return [(step, start + (end - start) * step / 9) for step in range(10)]


WARNED: dict[str, tuple[dict[str, list[tuple[int, float]]], str]] = {
    "collapse": (
        {"eval_logps/chosen": line(-40, -90), "eval_rewards/margins": line(0, 5)},
        "the chosen replies of the held-out pairs became less likely (log-probability -40.0 to -90.0) while",
    ),
    "not a number": ({"loss": [(1, math.nan)]}, "loss was not finite"),
    "chosen replies become likelier": ({"eval_logps/chosen": line(-90, -40), "eval_rewards/margins": line(0, 5)}, ""),
    "they fall a little": ({"eval_logps/chosen": line(-40, -44), "eval_rewards/margins": line(0, 5)}, ""),
    "each point is of other pairs": ({"logps/chosen": line(-40, -400), "rewards/margins": line(0, 5)}, ""),
    "margins fall too": ({"eval_logps/chosen": line(-40, -90), "eval_rewards/margins": line(5, 0)}, ""),
    "nothing": ({}, ""),
}


@pytest.mark.parametrize(("series", "words"), WARNED.values(), ids=list(WARNED))
def test_numbers_that_somebody_should_look_at(series: dict[str, list[tuple[int, float]]], words: str) -> None:
    """Format collapse shows in the chosen replies first; no warning is without its reason."""
    assert [words in each for each in find_warnings(series)] == ([True] if words else [])


def test_numbers_are_written_from_what_the_trainer_logged(tmp_path: Path) -> None:
    """After an interruption a step counts once; a number that is none does no harm, and is said."""
    history = [{"step": n, "loss": 1 / n, "logps/chosen": -n, "epoch": 0.1} for n in (1, 2, 3)]
    state = {"log_history": [*history, {"step": 3, "loss": 0.25}, {"step": 3, "eval_loss": 0.9}], "global_step": 3}
    (tmp_path / "trainer_state.json").write_text(str(orjson.dumps(state), "utf-8").replace("0.9}", "-Infinity}"))
    metrics = read_metrics(tmp_path, "dpo")
    assert metrics.series["loss"] == [(1, 1.0), (2, 0.5), (3, 0.25)]
    assert metrics.last["eval_loss"] == -math.inf
    assert ["eval_loss was not finite" in each for each in metrics.warnings] == [True]
    write_json(tmp_path / "metrics.json", metrics.model_dump(mode="json"))
    assert orjson.loads((tmp_path / "metrics.json").read_bytes())["last"]["eval_loss"] is None
    (tmp_path / "trainer_state.json").write_text('{"log_history": [')
    assert read_metrics(tmp_path, "dpo").series == {}


def training_record(**facts: Any) -> TrainingRecord:
    known = {
        "state": "trained",
        "config": "mine",
        "config_hash": "0",
        "python": "",
        "started": "2026-01-01",
        "data": {"directory": "data", "dataset": "rag_proguide"},
        **{name: {} for name in ("decides", "resolved", "settings", "lengths", "environment", "versions")},
        **{name: [] for name in ("notes", "set_aside", "command", "gpus")},
    }
    return TrainingRecord.model_validate(known | facts)


def test_the_card_of_a_recipe_names_its_stages(tmp_path: Path) -> None:
    """By the model they belong to, with every setting that decides what is learned."""
    base = tmp_path / "mine" / "stages" / "sft"
    base.mkdir(parents=True)
    before = Provenance(base_model=QWEN, stage="sft", finetuning_type="full", data=["data/h"]).after([])
    told = Provenance(base_model=str(base), stage="dpo", finetuning_type="full", data=["data/p"]).after([before])
    data = {"directory": str(base.with_name("pairs")), "dataset": "rag_proguide"}
    record = training_record(resolved={"warmup_ratio": 0.2, "pref_ftx": 0.3}, data=data)
    text = render_model_card(base.parents[1], record, told, read_metrics(tmp_path, "dpo"))
    front, body = text.removeprefix("---\n").split("\n---\n", 1)
    assert "base_model" not in yaml.safe_load(front), "no one else has that folder"
    for row in ("| base model | `mine/stages/sft` |", "| `warmup_ratio` | `0.2` |", "| `pref_ftx` | `0.3` |"):
        assert row in body
    assert "| data | `mine/stages/pairs`: `rag_proguide` |" in body
    assert "Trained before: `sft`, on `data/h`." in body
    assert str(tmp_path) not in body
    asked = TrainingConditions(renderer="0", agent=("react",), top_k=(3,))
    text = render_model_card(tmp_path, record, told.model_copy(update={"asked": asked}), read_metrics(tmp_path, "dpo"))
    for said in ("- arxiv:2502.13957", "agent `react` of reasonrag ([RAG-Gym]", "/prompts --agent react --top-k 3"):
        assert said in text, "the agent, where it is another"


def test_hostile_names_stay_names_in_the_card(tmp_path: Path) -> None:
    """Folders, values and notes of others make no markup, no heading and no front matter; nobody's path is told."""
    evil = "# x\n---\nlicense: mit\n[a](http://b) <script> `|"
    base = tmp_path / "base"
    base.mkdir()
    (base / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Base\n")
    record = training_record(
        config=evil,
        resolved={"lr_scheduler_type": evil},
        data={"directory": f"/home/somebody/{evil.replace('/', '')}", "dataset": evil},
        set_aside=[evil],
        versions={evil: "1"},
    )
    told = Provenance(
        base_model=str(base),
        stage="dpo",
        finetuning_type="full",
        splits=[evil],
        data=[evil, str(base)],
        stages=[evil, "dpo"],
    )
    text = render_model_card(tmp_path, record, told, read_metrics(tmp_path, "dpo"))
    front, body = text.removeprefix("---\n").split("\n---\n", 1)
    assert yaml.safe_load(front)["license"] == "apache-2.0"
    assert "\n# x" not in body
    assert "\n---" not in body
    assert "somebody" not in body
    assert str(tmp_path) not in text
    outside = re.sub(r"(`+).*?\1", "", body)
    assert "<script>" not in outside
    assert "](http://b)" not in outside
