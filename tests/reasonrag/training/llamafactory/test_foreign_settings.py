"""What a configuration, a model's folder or a data set of another author would have a training do.

Nothing of them is loaded before it was objected to: most tests end with the complaint that LLaMA-Factory is nowhere.
The last ones train for real, on a folder whose file would write a marker.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from reasonrag.training.llamafactory.config_files import find_config
from reasonrag.training.llamafactory.foreign_settings import foreign_settings
from tests.helpers.command_line import Done, Reasonrag
from tests.helpers.shared import Shared
from tests.helpers.training_world import NOTHING_OBJECTED, SMALL, World, edited, make_world

CONFIG = "smoke-cpu-dpo-full"


@pytest.fixture
def train(reasonrag: Reasonrag, data: Path) -> Callable[..., Done]:
    """`reasonrag train their.yaml --data data ..`; their.yaml is a shipped one with changes."""

    def run(*words: object, **changes: object) -> Done:
        return reasonrag("train", written(**changes), "--data", data, "--out", "saves/x", *words)

    return run


def written(config: str = CONFIG, **changes: object) -> Path:
    values = find_config(config).values | {"model_name_or_path": "base"} | changes
    Path("their.yaml").write_text(yaml.safe_dump({name: value for name, value in values.items() if value is not None}))
    return Path("their.yaml")


def allowed(names: str) -> list[str]:
    return [word for name in names.split() for word in ("--allow", name)]


# -- settings ------------------------------------------------------------------------------------------------------

SETTINGS: dict[str, tuple[dict[str, object], str]] = {
    "code of a folder runs": ({"trust_remote_code": True}, "trust_remote_code"),
    "so it does where false is a text, which LLaMA-Factory takes for true": (
        {"trust_remote_code": "false"},
        "trust_remote_code",
    ),
    "it is switched off": ({"trust_remote_code": False, "push_to_hub": False, "hub_model_id": ""}, ""),
    "a key is spelled as on a command line": ({"trust-remote-code": True}, "trust_remote_code"),
    "the model is pushed": ({"push_to_hub": True, "hub_model_id": "they/mine"}, "hub_model_id push_to_hub"),
    "it is pushed under an older key": ({"push_to_hub_model_id": "mine"}, "push_to_hub_model_id"),
    "when it would be pushed": ({"hub_strategy": "end"}, ""),
    "a service is reported to": ({"report_to": "wandb"}, "report_to"),
    "a service is reported to in a list": ({"report_to": ["tensorboard", "wandb"]}, "report_to"),
    "a log on this machine": ({"report_to": "tensorboard"}, ""),
    "no log": ({"report_to": ["none"], "use_swanlab": False}, ""),
    "SwanLab is reported to by a key of its own": ({"use_swanlab": True}, "use_swanlab"),
    "a space is reported to": ({"trackio_space_id": "they/space"}, "trackio_space_id"),
    "another cluster trains": ({"ray_init_kwargs": {"address": "ray://host:10001"}}, "ray_init_kwargs address"),
    "another machine is the first": ({"master_addr": "host"}, "master_addr"),
    "rows are taken as tokens from elsewhere": ({"tokenized_path": "tokens"}, "tokenized_path"),
    "downloads are kept at an address": ({"cache_dir": "hf://buckets/they/cache"}, "cache_dir"),
    "downloads are kept in a folder": ({"cache_dir": "/data/hf", "ray_storage_path": "./saves"}, ""),
    "results go to storage of others": ({"ray_storage_filesystem": "s3"}, "ray_storage_filesystem"),
    "pictures are read elsewhere": ({"media_dir": "/"}, "media_dir"),
    "an adapter comes from the Hub": ({"adapter_name_or_path": "they/adapter"}, "adapter_name_or_path"),
    "an adapter is here": ({"adapter_name_or_path": "adapter", "generation_config": "base"}, ""),
    "the reference comes from the Hub": ({"ref_model": "they/model"}, "ref_model"),
    "a reward is asked at an address": ({"reward_model": "http://host/score"}, "reward_model"),
    "one of several logs goes to an address": ({"logging_dir": ["logs", ["gs://bucket/x"]]}, "logging_dir"),
    "a key is in a list of lists": ({"accelerator_config": {"inner": [[{"push_to_hub": True}]]}}, "push_to_hub"),
    "DeepSpeed reports to a service": ({"deepspeed": "zero.json"}, "wandb"),
    "DeepSpeed could": ({"deepspeed": "off.json"}, ""),
}


@pytest.mark.parametrize(("changes", "names"), SETTINGS.values(), ids=list(SETTINGS))
@pytest.mark.usefixtures("data")
def test_a_setting_that_runs_code_or_sends_data_out_takes_an_explicit_allow(
    changes: dict[str, object], names: str
) -> None:
    """At any depth, and in the files that it names."""
    Path("adapter").mkdir()
    Path("adapter/adapter_config.json").write_text('{"peft_type": "LORA", "megatron_core": "megatron.core"}')
    Path("adapter/adapter_model.safetensors").write_bytes(b"")
    for name, enabled in (("zero", True), ("off", False)):
        Path(f"{name}.json").write_bytes(orjson.dumps({"wandb": {"enabled": enabled}}))
    found = foreign_settings({"model_name_or_path": "base"} | changes)
    assert {each.name for each in found} == set(names.split())


def test_every_such_key_is_named_at_once_and_each_allow_sets_one_aside(train: Callable[..., Done]) -> None:
    """`--set` is no consent of its own, as reasonrag.toml may hold it, too."""
    changes = {"trust_remote_code": True, "report_to": "wandb"}
    done = train(**changes)
    assert (done.status, NOTHING_OBJECTED in done.err) == (2, False), done.err
    assert all(f"--allow {name}" in done.err for name in changes)
    assert "--allow report_to" in train(*allowed("trust_remote_code"), **changes).err
    assert NOTHING_OBJECTED in train(*allowed("trust_remote_code report_to"), **changes).err
    assert "--allow report_to" in train("--set", "report_to=wandb").err
    assert not Path("saves").exists()


# -- folders of models -----------------------------------------------------------------------------------------------

FOLDERS: dict[str, tuple[str, object, dict[str, object], str]] = {
    "Python files that config.json names, where folders are trusted": (
        "base/config.json",
        {"model_type": "qwen2", "auto_map": {"AutoConfig": "evil.Config"}},
        {"trust_remote_code": True},
        "auto_map trust_remote_code",
    ),
    "Python files of a model that transformers knows by now, where they are not": (
        "base/config.json",
        {"model_type": "qwen2", "auto_map": {"AutoConfig": "old.Config"}},
        {},
        "",
    ),
    "Python files that the tokenizer names": (
        "base/tokenizer_config.json",
        {"auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}},
        {"trust_remote_code": True},
        "auto_map trust_remote_code",
    ),
    "a kernel of the Hub": (
        "base/config.json",
        {"model_type": "qwen2", "attn_implementation": "they/kernel"},
        {},
        "attn_implementation",
    ),
    "a module that an adapter has imported": (
        "adapter/adapter_config.json",
        {"peft_type": "LORA", "megatron_config": {"a": 1}, "megatron_core": "evil"},
        {"adapter_name_or_path": "adapter"},
        "megatron_core",
    ),
    "trust that an adapter grants itself": (
        "adapter/adapter_config.json",
        {"peft_type": "PROMPT_TUNING", "tokenizer_kwargs": {"trust_remote_code": True}},
        {"adapter_name_or_path": "adapter"},
        "trust_remote_code",
    ),
    "a part of a pickled base model": ("base/pytorch_model-00001-of-00002.bin", None, {}, "pickled_weights"),
    "a pickled adapter": ("adapter/adapter_model.bin", None, {"adapter_name_or_path": "adapter"}, "pickled_weights"),
    "a pickled value head": ("base/value_head.bin", None, {}, "pickled_weights"),
    "a pickled reference": ("other/pytorch_model.bin", None, {"ref_model": "other"}, "pickled_weights"),
}


@pytest.mark.parametrize(("file", "content", "changes", "names"), FOLDERS.values(), ids=list(FOLDERS))
@pytest.mark.usefixtures("data")
def test_a_folder_that_brings_code_or_a_pickle_takes_an_explicit_allow(
    file: str, content: object, changes: dict[str, object], names: str
) -> None:
    """Named with its file."""
    for folder in ("adapter", "other"):
        Path(folder).mkdir()
    Path("adapter/adapter_config.json").write_text("{}")
    Path("base/model-of-another.safetensors").write_bytes(b"")
    Path(file).write_bytes(b"cos\nsystem\n" if content is None else orjson.dumps(content))
    found = foreign_settings({"model_name_or_path": "base"} | changes)
    assert {each.name for each in found} == set(names.split())
    assert any(Path(file).name in each.what for each in found) is bool(names)


def test_doctor_says_what_train_would_object_to(reasonrag: Reasonrag, data: Path) -> None:
    """By the same names."""
    Path("base/pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    Path("other_rows.json").write_bytes((data / "RAG_ProGuide.json").read_bytes())
    described(data, lambda info: info["rag_proguide"].update(file_name="../other_rows.json"))
    written(trust_remote_code=True, report_to="wandb")
    found = json.loads(reasonrag("doctor", "their.yaml", "--data", data, "--json").out)["findings"]
    names = {each["name"] for each in found if each["severity"] == "error"}
    assert names >= {"trust_remote_code", "report_to", "pickled_weights", "unaudited_rows"}


def test_an_adapter_that_is_merged_is_looked_into_too(reasonrag: Reasonrag, data: Path) -> None:  # noqa: ARG001
    """And so is the base model that it names."""
    Path("adapter").mkdir()
    Path("adapter/adapter_config.json").write_text('{"base_model_name_or_path": "base"}')
    Path("adapter/adapter_model.bin").write_bytes(b"cos\nsystem\n")
    Path("base/config.json").write_text('{"attn_implementation": "they/kernel"}')
    words, names = ["train", "--merge", "adapter"], "pickled_weights attn_implementation export_hub_model_id"
    done = reasonrag(*words, "--set", "export_hub_model_id=x")
    assert "not merged: " in done.err
    assert all(f"--allow {name}" in done.err for name in names.split())
    assert NOTHING_OBJECTED in reasonrag(*words, "--set", "export_hub_model_id=x", *allowed(names)).err


@pytest.mark.parametrize("given", [["their.yaml"], ["--recipe", "sft-dpo"], ["--dry-run"], ["--nodes", "2"]])
def test_merging_takes_nothing_that_is_of_trainings(reasonrag: Reasonrag, given: list[str]) -> None:
    done = reasonrag("train", "--merge", "adapter", *given)
    assert done.status == 2
    assert "--merge trains nothing: it takes no " in done.err


def test_a_critics_training_objects_to_the_same(reasonrag: Reasonrag, data: Path) -> None:
    """Its keys are TRL's."""
    Path("pickled").mkdir()
    Path("pickled/config.json").write_text("{}")
    Path("pickled/pytorch_model.bin").write_bytes(b"cos\nsystem\n")
    settings = {"push_to_hub": True, "hub_model_id": "they/mine", "resume_from_checkpoint": "theirs"}
    settings |= {"chat_template_path": "they/model", "model_init_kwargs": {"trust_remote_code": True}}
    Path("their.yaml").write_text(yaml.safe_dump({"model_name_or_path": "pickled"} | settings))
    words = ["train-critic", "their.yaml", "--data", data, "--out", "critics/x"]
    done, shown = reasonrag(*words), reasonrag(*words, "--dry-run", "--json").out
    assert done.status == 2
    for name in (*settings.keys() - {"model_init_kwargs"}, "trust_remote_code", "pickled_weights"):
        assert f"--allow {name}" in done.err
        assert f"--allow {name}" in shown
    assert not Path("critics").exists()


# -- rows ------------------------------------------------------------------------------------------------------------


def described(data: Path, change: Callable[[Any], object]) -> None:
    edited(data / "dataset_info.json", change)


EXCHANGED = {"system": "instruction", "prompt": "input", "chosen": "rejected", "rejected": "chosen"}
ROWS: dict[str, tuple[str, dict[str, object], str]] = {
    "elsewhere": ("rag_proguide", {"file_name": "../other_rows.json"}, "unaudited_rows description"),
    "below, by the name of audited rows": (
        "rag_proguide",
        {"file_name": "more/RAG_ProGuide.json"},
        "unaudited_rows description",
    ),
    "held out, below": (
        "rag_proguide_validation",
        {"file_name": "more/RAG_ProGuide.json"},
        "unaudited_rows description",
    ),
    "held-out rows": ("rag_proguide", {"file_name": "RAG_ProGuide.validation.json"}, "description"),
    "sides exchanged": ("rag_proguide", {"columns": EXCHANGED}, "description"),
    "one row many times": ("rag_proguide", {"split": "train[:1]", "num_samples": 500}, "description"),
    **{
        key: ("rag_proguide", {key: "they/rows"}, f"{key} description")
        for key in ("hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name")
    },
    "a link": ("rag_proguide", {}, "changed_rows"),
}


@pytest.mark.parametrize(("entry", "changes", "names"), ROWS.values(), ids=list(ROWS))
def test_rows_that_no_audit_saw_are_objected_to(
    entry: str, changes: dict[str, object], names: str, train: Callable[..., Done], data: Path
) -> None:
    """In every way in which a dataset_info can name data; the audit beside them has no error."""
    (data / "more").mkdir()
    others = orjson.dumps(orjson.loads((data / "RAG_ProGuide.json").read_bytes())[:3])
    for place in (data / "more" / "RAG_ProGuide.json", data.parent / "other_rows.json"):
        place.write_bytes(others)
    if not changes:
        (data / "RAG_ProGuide.json").unlink()
        (data / "RAG_ProGuide.json").symlink_to(data.parent / "other_rows.json")
    described(data, lambda info: info[entry].update(changes))
    done = train()
    assert done.status == 2
    for name in names.split():
        assert f"--allow {name}" in done.err, done.err
    assert NOTHING_OBJECTED in train(*allowed(names)).err


def test_an_entry_by_another_name_has_the_same_rows_the_same_way(train: Callable[..., Done], data: Path) -> None:
    """A configuration may name it; it says `chosen` of the rejected side."""

    described(data, lambda info: info.update(ours=info["rag_proguide"] | {"columns": EXCHANGED}))
    assert "--allow description" in train(dataset="ours").err
    described(data, lambda info: info.update(ours=info["rag_proguide"]))
    assert NOTHING_OBJECTED in train(dataset="ours").err


@pytest.mark.parametrize("name", ["rag_proguide,other", " rag_proguide", "rag_proguide,"])
def test_a_name_that_llama_factory_would_split_is_refused(name: str, train: Callable[..., Done], data: Path) -> None:
    """It would read the parts."""
    described(data, lambda info: info.update({name: info["rag_proguide"]}))
    assert "would read" in train(dataset=name).err


def test_several_names_in_a_configuration_are_none_of_the_data(train: Callable[..., Done], data: Path) -> None:
    """The stage's own rows are trained on, which were audited; asked for by --set, it is refused. Nor is a folder."""
    described(data, lambda info: info.update(other={"file_name": "../x.json"}))
    assert NOTHING_OBJECTED in train(dataset="rag_proguide,other", dataset_dir="REMOTE:they/rows").err
    assert "has no rag_proguide,other" in train("--set", "dataset=rag_proguide,other").err
    (data / "more").mkdir()  # LLaMA-Factory would read every file in it
    described(data, lambda info: info["rag_proguide"].update(file_name="more"))
    assert "which is not there" in train().err


@pytest.mark.parametrize("name", ["rag_proguide", "rag_proguide_validation"])
@pytest.mark.parametrize(
    "description",
    [{}, {"load_from": "hub"}, {"FILE_NAME": "rows.json"}]
    + [{"file_name": each} for each in (["RAG_ProGuide.json"], None, 7)]
    + [{"hf_hub_url": ""}],
    ids=str,
)
def test_a_description_that_names_no_rows_is_refused(
    description: dict[str, object], name: str, train: Callable[..., Done], data: Path
) -> None:
    """LLaMA-Factory would end with an error of Python."""
    described(data, lambda info: info.update({name: {"ranking": True} | description}))
    done = train()
    assert (done.status, f"{name} has no `file_name`" in done.err) == (2, True), done.err


def test_rows_of_others_that_no_audit_reads_are_objected_to(train: Callable[..., Done], data: Path) -> None:
    """An audit of this folder reads RAG_ProGuide's rows, as they are now: without a summary nothing says that
    audit.json is of these."""
    edited(data / "RAG_ProGuide.json", lambda rows: rows[0].update(chosen=""))
    (data / "summary.json").unlink()
    assert "--allow empty_reply" in train().err
    words = {"config": "smoke-cpu-sft", "dataset": "rag_proguide_sft", "eval_dataset": None, "eval_strategy": None}
    assert "--allow unaudited_rows" in train(**words).err


# -- for real --------------------------------------------------------------------------------------------------------

EVIL = """
import os
from pathlib import Path
Path(os.environ["MARKER"]).write_text(" ".join(os.environ))
from transformers import Qwen2Config
class EvilConfig(Qwen2Config):
    model_type = "evil"
"""


@pytest.mark.parametrize("words", [["train"], ["train", "--dry-run"], ["doctor"]], ids=" ".join)
def test_the_file_of_a_folder_does_not_run(
    words: list[str], train_python: Path, shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By train, train --dry-run and doctor, whatever configuration and folder say."""
    world = make_world(shared, train_python)
    brought(world, tmp_path)
    monkeypatch.setenv("MARKER", str(tmp_path / "marker"))
    told = world.run(*words, tmp_path / "their.yaml", "--data", world.data)
    assert told.status in (1, 2)
    assert "trust_remote_code" in told.out + told.err
    assert "auto_map" in told.out + told.err
    assert not (tmp_path / "marker").exists()


def test_a_folder_that_was_allowed_to_run_code_sees_no_key(
    train_python: Path, shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It trains from a folder, so it needs none."""
    world = make_world(shared, train_python)
    brought(world, tmp_path)
    keys = {"OTHER_API_KEY": "open-sesame.42", "HF_TOKEN": "open-sesame.43", "OPENAIKEY": "open-sesame.44"}
    for name, value in (keys | {"MARKER": str(tmp_path / "marker")}).items():
        monkeypatch.setenv(name, value)
    allow = allowed("trust_remote_code auto_map")
    world.run("train", tmp_path / "their.yaml", "--data", world.data, "--out", tmp_path / "saves", *allow)
    seen = (tmp_path / "marker").read_text().split()
    assert {"PATH", "HF_HOME"} <= set(seen)
    assert not keys.keys() & set(seen)


def brought(world: World, place: Path) -> None:
    """A folder with a file, and a configuration that trusts it."""
    shutil.copytree(world.tiny, place / "model")
    config = json.loads((place / "model" / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.EvilConfig"}}
    (place / "model" / "config.json").write_text(json.dumps(config))
    (place / "model" / "evil.py").write_text(EVIL)
    values = find_config(CONFIG).values | SMALL
    values |= {"trust_remote_code": True, "model_name_or_path": str(place / "model"), "output_dir": os.devnull}
    (place / "their.yaml").write_text(yaml.safe_dump(values))
