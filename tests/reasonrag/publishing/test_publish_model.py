"""Publishing models: which files are the model, what speaks against it, and that it loads and tells nothing of here.

The Hub is a local server that the real client talks to, in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from reasonrag import publish
from reasonrag.errors import InputError
from reasonrag.publishing.publish_model import ModelPublication, is_model_file
from reasonrag.training.provenance import Provenance, TrainingConditions, read_provenance
from tests.helpers.command_line import Reasonrag
from tests.helpers.hub_server import HubServer, environment_for
from tests.helpers.processes import finished

REPO = "org/student"
BASE = "Qwen/Qwen2.5-7B-Instruct"
WEIGHTS = b"\x02\x00\x00\x00\x00\x00\x00\x00{}"
"""A safetensors file of no tensors."""
SHARED = {
    "tokenizer.json": "{}",
    "tokenizer_config.json": '{"name_or_path": "/home/me/qwen", "eos_token": "<|im_end|>"}',
    "chat_template.jinja": "{{ messages }}",
    "prompts/think.txt": "Think about /home/of/the/fox.\n",
    "metrics.json": '{"loss": 1}',
    "README.md": "---\ntags: [reasonrag]\n---\n\n# Student\n",
    "train.yaml": "model_name_or_path: /home/me/models/qwen\ndataset_dir: /scratch/data/a\n",
}
LEFT = {
    "optimizer.pt": "state",
    "training_args.bin": "pickle",
    "train.log": "/home/me/x",
    "trainer_state.json": "{}",
    "checkpoint-5/model.safetensors": "x",
    ".env": "HF_TOKEN=x",
    "prompts/notes.md": "mine",
}


def folder_of(home: Path, files: dict[str, str | bytes], provenance: Provenance | None) -> Path:
    folder = home / "saves" / "student"
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    if provenance:
        provenance.write(folder)
    return folder


def provenance_of(base: str = BASE, *splits: str) -> Provenance:
    return Provenance(
        base_model=base,
        stage="dpo",
        finetuning_type="lora",
        asked=TrainingConditions(renderer="abc123", top_k=(3,)),
        data=["/home/me/data/a"],
        splits=list(splits or ["nq/train"]),
        questions=["k1"],
        versions={"llamafactory": "0.9.5"},
    )


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    config = json.dumps({"base_model_name_or_path": BASE, "r": 8})
    files = {"adapter_config.json": config, "adapter_model.safetensors": WEIGHTS, **SHARED, **LEFT}
    return folder_of(tmp_path, files, provenance_of())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A whole one, trained from a local folder."""
    (tmp_path / "qwen").mkdir()
    base = str(tmp_path / "qwen")
    head = f"tags: [reasonrag]\nlicense: apache-2.0\nbase_model: {base}"
    card = f"---\n{head}\n---\n\n# Student\n\nOf `{base}`, by reasonrag."
    config = json.dumps({"model_type": "qwen2", "_name_or_path": base})
    files = {"config.json": config, "model.safetensors": WEIGHTS, **SHARED, **LEFT, "README.md": card}
    return folder_of(tmp_path, files, provenance_of(base))


def rehearsed(folder: Path, **flags: Any) -> ModelPublication:
    """A dry run."""
    done = publish(model=folder, repo=REPO, dry_run=True, **flags)
    assert isinstance(done, ModelPublication)
    return done


def front_matter(card: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(card.split("---\n")[1])
    return loaded


# -- which files ---------------------------------------------------------------------------------------------------


def test_only_files_of_the_model_go_up(adapter: Path) -> None:
    """An allow-list: weights, configuration, tokenizer, prompts, what says how it was made, and a card. Never
    optimizer states, checkpoints, pickles, logs or anything unknown."""
    done = rehearsed(adapter)
    assert [each.path for each in done.files] == [
        *("adapter_config.json", "adapter_model.safetensors", "chat_template.jinja", "metrics.json"),
        *("prompts/think.txt", "reasonrag.json", "tokenizer.json", "tokenizer_config.json", "train.yaml", "README.md"),
    ]
    assert (done.kind, done.base_model) == ("adapter", BASE)
    assert "the card names no licence" in done.warnings[0]
    shards = ("model-00001-of-00004.safetensors", "model.safetensors.index.json", "value_head.safetensors")
    assert all(map(is_model_file, (*shards, "generation_config.json")))
    assert not any(map(is_model_file, ("optimizer.safetensors", "pytorch_model.bin", "prompts/../secret.txt")))


def test_weights_and_prompts_stay_what_they_are_and_nothing_else_names_this_machine(
    model: Path, tmp_path: Path
) -> None:
    """Bytes that decide replies are not touched; paths elsewhere become names. The folder itself stays as it was. What
    only sounds like the base model keeps its name: a folder beside it, and a template."""
    before = {path: path.read_bytes() for path in model.rglob("*") if path.is_file()}
    done = rehearsed(model)
    staged = Path(done.folder)
    for name in ("model.safetensors", "prompts/think.txt", "chat_template.jinja", "tokenizer.json"):
        assert (staged / name).read_bytes() == (model / name).read_bytes()
    for path in staged.rglob("*"):
        if path.is_file() and path.name != "think.txt":
            assert b"/home/" not in path.read_bytes(), path
            assert str(tmp_path).encode() not in path.read_bytes(), path
    assert (staged / "train.yaml").read_text() == "model_name_or_path: qwen\ndataset_dir: a\n"
    assert json.loads((staged / "config.json").read_bytes()) == {"model_type": "qwen2"}
    assert Provenance.model_validate_json((staged / "reasonrag.json").read_bytes()).base_model == "qwen"
    assert {path: path.read_bytes() for path in before} == before
    base = tmp_path / "qwen"
    (model / "train.yaml").write_text(f"model_name_or_path: {base}\ntemplate: qwen\ndataset_dir: {base}-pairs\n")
    staged = Path(rehearsed(model, base_model=BASE).folder) / "train.yaml"
    assert staged.read_text() == f"model_name_or_path: {BASE}\ntemplate: qwen\ndataset_dir: qwen-pairs\n"


# -- the card ------------------------------------------------------------------------------------------------------


def test_the_card_of_the_training_goes_up_with_what_was_asked_for(model: Path) -> None:
    """Its text stays; base model and licence are those of the flags."""
    done = rehearsed(model, base_model=BASE, license="mit")
    card = (Path(done.folder) / "README.md").read_text()
    assert front_matter(card) == {"tags": ["reasonrag"], "license": "mit", "base_model": BASE}
    assert card.endswith(f"# Student\n\nOf `{BASE}`, by reasonrag.")
    assert (done.licence, done.warnings) == ("mit", [])
    unnamed = rehearsed(model)
    card = (Path(unnamed.folder) / "README.md").read_text()
    assert front_matter(card) == {"tags": ["reasonrag"], "license": "apache-2.0"}
    assert "does not name the base model" in unnamed.warnings[0]


def test_a_checkpoint_goes_up_with_what_its_training_says(adapter: Path) -> None:
    """So that whoever loads it is told how it must be asked."""
    checkpoint = adapter.rename(adapter.with_name("checkpoint-20"))
    (checkpoint / "reasonrag.json").rename(checkpoint.parent / "reasonrag.json")
    done = rehearsed(checkpoint)
    assert read_provenance(Path(done.folder)) is not None
    assert "reasonrag.json" in [each.path for each in done.files]
    assert done.set_aside == []


# -- what speaks against it ----------------------------------------------------------------------------------------

BOMB = "\n".join(["---", "a0: &a0 x", *(f"a{i}: &a{i} [{f'*a{i - 1},' * 9}]" for i in range(1, 10)), "---"])
"""Metadata of 400 million values, which huggingface_hub would expand."""


def test_a_model_that_was_trained_on_evaluation_questions_is_not_published(tmp_path: Path) -> None:
    """Unless that is meant, split by split."""
    files = {"config.json": "{}", "model.safetensors": WEIGHTS, **SHARED}
    folder = folder_of(tmp_path, files, provenance_of(BASE, "nq/train", "hotpotqa/dev"))
    with pytest.raises(InputError, match=r"trained on questions of hotpotqa/dev.*`allow_eval` hotpotqa/dev$"):
        rehearsed(folder)
    assert rehearsed(folder, allow_eval=["hotpotqa/dev"]).set_aside == ["--allow-eval hotpotqa/dev"]
    assert not (folder / "publish" / "optimizer.pt").exists()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("reasonrag.json", None, "reasonrag.json is missing.*`allow` no_provenance"),
        ("reasonrag.json", "{", "is damaged"),
        ("metrics.json", '{\n"key": "sk-abcdefghijklmnop12345"}', "metrics.json, line 2 holds a possible key"),
        (
            "tokenizer.json",
            '{"added_tokens": [\n"sk-abcdefghijklmnop12345"]}',
            "tokenizer.json, line 2 holds a possible",
        ),
        ("tokenizer.model", "\udcff sk-abcdefghijklmnop12345", "tokenizer.model, line 1 holds a possible key"),
        ("adapter_model.safetensors", None, "has no weights"),
        ("adapter_config.json", '{"base_model_name_or_path": "/home/me/qwen"}', "names /home/me/qwen.*`base_model`"),
        ("adapter_config.json", "{}", None),
        ("train.yaml", "\udcff", "not UTF-8 text"),
        ("README.md", None, "README.md is missing or not filled in"),
        ("README.md", "# Model Card for Model ID\n[More Information Needed]", "README.md is missing or not filled in"),
        ("README.md", BOMB, r"cannot be read: line 2: \*a0: aliases are not read"),
    ],
)
def test_what_speaks_against_a_model(name: str, content: str | None, said: str | None, adapter: Path) -> None:
    """Each with what to do; nothing is written before."""
    if content is None:
        (adapter / name).unlink()
    else:
        (adapter / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    if said is None:
        assert rehearsed(adapter).base_model == BASE
        return
    with pytest.raises(InputError, match=f"(?s){said}"):
        rehearsed(adapter)
    assert not (adapter / "publish").exists()


# -- links ---------------------------------------------------------------------------------------------------------


def linked(folder: Path, name: str, target: Path) -> None:
    """The file is a link to the target, which has its content."""
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    content = place.read_bytes() if place.is_file() else b"of another model"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    place.unlink(missing_ok=True)
    place.symlink_to(target)


@pytest.mark.parametrize(
    "name",
    ["README.md", "adapter_model.safetensors", "tokenizer.json", "prompts/read.txt", "reasonrag.json", "metrics.json"],
)
def test_a_link_out_of_the_folder_is_not_followed(name: str, adapter: Path, tmp_path: Path) -> None:
    """What it leads to was never meant to be published; the message names the link and what to do."""
    target = tmp_path / "elsewhere" / Path(name).name
    linked(adapter, name, target)
    with pytest.raises(InputError, match=r"is a link to .*elsewhere.*Put a copy in its place") as error:
        rehearsed(adapter)
    assert str(adapter / name) in str(error.value)
    assert not (adapter / "publish").exists()
    assert target.stat().st_nlink == 1


def test_links_within_a_folder_and_within_the_hub_s_cache_are_followed(adapter: Path, tmp_path: Path) -> None:
    """The Hub's client keeps a model as links from its snapshot to its blobs; another model's are not, nor a folder of
    prompts that lies elsewhere."""
    cache = tmp_path / "hub" / "models--org--student"
    snapshot = cache / "snapshots" / "0123abc"
    snapshot.parent.mkdir(parents=True)
    adapter.rename(snapshot)
    linked(snapshot, "adapter_model.safetensors", cache / "blobs" / "b1")
    linked(snapshot, "chat_template.jinja", snapshot / "template.txt")
    assert "adapter_model.safetensors" in [each.path for each in rehearsed(snapshot).files]
    linked(snapshot, "tokenizer.json", tmp_path / "hub" / "models--org--other" / "blobs" / "b2")
    with pytest.raises(InputError, match=r"tokenizer\.json is a link to"):
        rehearsed(snapshot)
    (snapshot / "prompts").rename(tmp_path / "elsewhere")
    (snapshot / "prompts").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    with pytest.raises(InputError, match=r"prompts.* is a link to .*elsewhere"):
        rehearsed(snapshot)


def test_pickled_weights_are_refused_with_the_way_out(adapter: Path) -> None:
    """They run code where they are loaded."""
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with pytest.raises(InputError, match=r"pickled weights only \(adapter_model\.bin\).*save_pretrained"):
        rehearsed(adapter)


def test_an_adapter_of_a_local_model_goes_up_under_the_name_that_its_base_has_there(adapter: Path) -> None:
    """In adapter_config.json, which is what loads it."""
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "/home/me/qwen", "r": 8}')
    done = rehearsed(adapter, base_model="org/warm")
    config = json.loads((Path(done.folder) / "adapter_config.json").read_bytes())
    assert config == {"base_model_name_or_path": "org/warm", "r": 8}
    assert json.loads((adapter / "adapter_config.json").read_bytes())["base_model_name_or_path"] == "/home/me/qwen"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "publish takes a data set"),
        (["data", "--model", "m"], "publish takes a data set"),
        (["--model", "m"], "the model m is not there"),
        (["--model", "m", "--with-trees", "r"], "--with-trees is for data sets"),
        (["data", "--base-model", "a/b"], "--base-model is for --model"),
    ],
)
def test_wrong_flags_are_told(arguments: list[str], said: str, reasonrag: Reasonrag) -> None:
    """Exit status 2."""
    done = reasonrag("publish", *arguments, "--repo", REPO, "--dry-run")
    assert done.status == 2
    assert said in done.err


def published(hub: HubServer, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = os.environ | environment_for(hub.endpoint, folder.parent)
    return finished("publish", "--model", folder, "--repo", REPO, *arguments, environment=variables)


def test_a_model_becomes_public_when_everything_is_up(hub: HubServer, adapter: Path) -> None:
    """A repository of kind model, private until its one commit is made; a file that an earlier
    version had and this one has not goes."""
    done = published(hub, adapter, "--public", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["url"], told["private"], told["kind"]) == (f"{hub.endpoint}/{REPO}", False, "adapter")
    repository = hub.repositories[REPO]
    assert not repository.private
    staged = {str(path.relative_to(adapter / "publish")): path.read_bytes() for path in adapter.glob("publish/**/*.*")}
    assert {path: each for path, each in repository.files.items() if path != ".gitattributes"} == staged
    switched = next(i for i, seen in enumerate(hub.seen) if seen.path == f"/api/models/{REPO}/settings")
    assert not any(seen.public for seen in hub.seen[: switched + 1])
    (adapter / "metrics.json").unlink()
    again = published(hub, adapter)
    assert again.returncode == 0, again.stderr
    assert "metrics.json" not in repository.files
    assert f"vllm serve {BASE} --enable-lora" in again.stdout
