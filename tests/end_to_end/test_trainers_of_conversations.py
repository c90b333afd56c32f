"""Conversations with a search tool, in the trainers that people have: LLaMA-Factory and TRL see the tokens of the chat
template, and train on them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import reasonrag
from reasonrag.llm.hermes import TOOL
from tests.end_to_end.test_llamafactory import work
from tests.helpers.tiny_qwen import make_tiny_qwen

LAYOUTS = {"qwen": "qwen2_5", "qwen3_nothink": "qwen3_instruct_2507", "qwen3": "qwen3"}
"""LLaMA-Factory's name of a model's layout, and TRL's of its chat template."""
FORMATS = ("tools", "tools-sharegpt", "messages", "messages-sharegpt")


def chat_template(name: str) -> str:
    trl = importlib.util.find_spec("trl")
    if trl is None:
        pytest.skip("TRL is not installed: pip install 'reasonrag[rl]'")
    [place] = trl.submodule_search_locations or ()
    return Path(place, "chat_templates", f"{name}.jinja").read_text("utf-8")


def read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("data/a", f"{name}.jsonl").read_text().splitlines()]


def training(stage: str, dataset: str, layout: str) -> list[str]:
    values = {
        "stage": stage,
        "do_train": True,
        "model_name_or_path": "tiny",
        "template": layout,
        "finetuning_type": "full",
        "dataset_dir": "data/a",
        "dataset": dataset,
        "cutoff_len": 8192,
        "max_steps": 3,
        "per_device_train_batch_size": 1,
        "logging_steps": 1,
        "output_dir": f"saves/{stage}-{layout}",
        "report_to": "none",
        "use_cpu": True,
    }
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def test_llamafactory_and_trl_train_on_the_tokens_of_the_chat_template(train_python: Path) -> None:
    """Pairs and whole paths, in the layouts of Qwen2.5, Qwen3 and Qwen3-Instruct-2507; LLaMA-Factory drops no row. Of
    whole paths its `qwen3` is the exception: an empty thought in every turn, where Qwen3 has it in the last alone."""
    reasonrag.generate(dataset="atlas", limit=6, run="runs/a")
    reasonrag.pairs("runs/a", out="data/a", format=FORMATS, validation=0)
    pairs, paths = read("tools"), read("messages")
    asked: dict[str, Any] = {}
    for layout, template in LAYOUTS.items():
        given = {"tools": [TOOL], "chat_template": chat_template(template)}
        for number, row in enumerate(pairs):
            prompt = {"conversation": row["prompt"], "add_generation_prompt": True}
            asked[f"{layout} {number} prompt"] = prompt | given
            for side in ("chosen", "rejected"):
                asked[f"{layout} {number} {side}"] = {"conversation": row["prompt"] + row[side]} | given
        for number, row in enumerate(paths):
            asked[f"{layout} {number} path"] = {"conversation": row["messages"]} | given
    kinds = {"dpo": "rag_proguide_tools_sharegpt", "sft": "rag_proguide_messages_sharegpt"}
    load = {
        f"{layout} {stage}": {"dataset_dir": "data/a", "dataset": dataset, "stage": stage, "template": layout}
        for layout in LAYOUTS
        for stage, dataset in kinds.items()
    }
    train = {f"{layout} {stage}": training(stage, kinds[stage], layout) for layout in LAYOUTS for stage in kinds}
    job = {"read": [{"model": "tiny", "load": load, "render": asked}], "train": train}
    done = work(train_python, job, Path.cwd())
    [found] = done["read"]
    for layout in LAYOUTS:
        seen = found["load"][f"{layout} dpo"]["rows"]
        assert len(seen) == len(pairs) > 20
        for number, row in enumerate(seen):
            for side in ("chosen", "rejected"):
                prompt, reply = row[f"{side}_prompt"]["ids"], row[f"{side}_reply"]["ids"]
                assert prompt + reply == found["render"][f"{layout} {number} {side}"], (layout, number)
                assert prompt == found["render"][f"{layout} {number} prompt"], (layout, number)
        seen = found["load"][f"{layout} sft"]["rows"]
        assert len(seen) == len(paths) > 3
        for number, (row, path) in enumerate(zip(seen, paths, strict=True)):
            if layout == "qwen3":
                turns = [turn["role"] for turn in path["messages"]].count("assistant")
                assert (row["prompt"]["text"] + row["reply"]["text"]).count("<think>\n\n</think>") == turns
            else:
                assert row["prompt"]["ids"] + row["reply"]["ids"] == found["render"][f"{layout} {number} path"]
    assert set(done["train"]) == set(train)
    assert all(Path(f"saves/{stage}-{layout}/model.safetensors").is_file() for layout in LAYOUTS for stage in kinds)


@pytest.mark.filterwarnings("default")  # of what TRL and transformers do with each other
@pytest.mark.parametrize("name", ["tools", "messages"])
def test_trl_trains_on_them(name: str) -> None:
    template = chat_template("qwen2_5")
    from datasets import load_dataset
    from transformers import AutoTokenizer
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    reasonrag.generate(dataset="atlas", limit=6, run="runs/a")
    reasonrag.pairs("runs/a", out="data/a", format=[name], validation=0)
    make_tiny_qwen(Path("tiny"))
    tokenizer = AutoTokenizer.from_pretrained("tiny")
    tokenizer.chat_template = template
    told = {"output_dir": "out", "max_steps": 3, "report_to": "none", "use_cpu": True, "logging_steps": 1}
    told |= {"per_device_train_batch_size": 2, "max_length": None, "bf16": False}
    rows = load_dataset("json", data_files=f"data/a/{name}.jsonl", split="train")
    kind: Any = DPOTrainer if name == "tools" else SFTTrainer
    config: Any = DPOConfig if name == "tools" else SFTConfig
    trainer = kind("tiny", args=config(**told), train_dataset=rows, processing_class=tokenizer)
    trainer.train()
    losses = [each["loss"] for each in trainer.state.log_history if "loss" in each]
    assert len(losses) == 3
    first = read(name)[0]
    whole = first["prompt"] + first["chosen"] if name == "tools" else first["messages"]
    seen = trainer.train_dataset[0]
    ids = seen["prompt_ids"] + seen["chosen_ids"] if name == "tools" else seen["input_ids"]
    assert ids == tokenizer.apply_chat_template(whole, tools=[TOOL], return_dict=False)
