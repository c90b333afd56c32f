"""LLaMA-Factory's own code at work, as a script in its own environment: what it reads, and what it trains.

    python tests/helpers/llamafactory_reading.py JOB.json DONE.json

The job is a JSON object, what was done another, with the same parts:

    read        list of {model, vocabulary, load, render}: a model in the folder `model`, made if it is not there yet:
                a tiny one, or, where there is a file `vocabulary`, a tokenizer with Qwen's own
      load      name -> {dataset_dir, dataset, stage, ..}: data sets as LLaMA-Factory's get_dataset gives them
      render    name -> messages: token ids by the tokenizer's chat template, with the header of the reply; or an object
                of what apply_chat_template is given
    arguments   name -> command line arguments: the settings LLaMA-Factory understands by them, and as `warm_up` the
                steps that a training of 1,000 would warm up
    deepspeed   name -> {path, arguments}: what DeepSpeed would be given with these arguments, and what it is then
    train       name -> command line arguments: one training after another

What was done also has the version of `transformers`.

Knows nothing of ours: imports LLaMA-Factory, and of the tests only how the tiny model is made.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import tiny_qwen


def main(job: dict[str, Any]) -> dict[str, Any]:
    import transformers

    return {
        "transformers": transformers.__version__,
        "read": [_read(**each) for each in job.get("read", [])],
        "arguments": {name: _understood(each) for name, each in job.get("arguments", {}).items()},
        "deepspeed": {name: _spread(**each) for name, each in job.get("deepspeed", {}).items()},
        "train": {name: _trained(each) for name, each in job.get("train", {}).items()},
    }


def _read(
    model: str, load: dict[str, Any], render: dict[str, list[dict[str, str]]], vocabulary: str | None = None
) -> dict[str, dict[str, Any]]:
    folder = Path(model)
    if not (folder / "config.json").exists():
        if vocabulary is None:
            tiny_qwen.make_tiny_qwen(folder)
        else:
            tiny_qwen.make_real_tokenizer(folder, Path(vocabulary))
    return {"load": {name: _loaded(folder, **each) for name, each in load.items()}, "render": _rendered(folder, render)}


def _loaded(
    model: Path, *, dataset_dir: str, dataset: str, stage: str, cutoff_len: int = 30000, template: str = "qwen"
) -> dict[str, Any]:
    """The rows that a training of this stage would see."""
    from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
    from llamafactory.hparams import get_train_args
    from llamafactory.model import load_tokenizer

    values = {
        "stage": stage,
        "model_name_or_path": model,
        "template": template,
        "dataset_dir": dataset_dir,
        "dataset": dataset,
        "cutoff_len": cutoff_len,
        "do_train": True,
        "output_dir": model.with_name("unused"),
        "report_to": "none",
        "overwrite_cache": True,
    }
    flags = [str(word) for name, value in values.items() for word in (f"--{name}", value)]
    try:
        model_args, data_args, training_args, _, _ = get_train_args(flags)
        tokenizer = load_tokenizer(model_args)["tokenizer"]
        layout = get_template_and_fix_tokenizer(tokenizer, data_args)
        found = get_dataset(
            layout, model_args, data_args, training_args, stage="rm" if stage == "dpo" else stage, tokenizer=tokenizer
        )
    except (ValueError, StopIteration, RuntimeError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"rows": [_row(dict(each), tokenizer) for each in found["train_dataset"]]}


def _row(row: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
    """Prompt and replies of a row, as ids and as text; what is a reply its labels say."""
    found: dict[str, Any] = {"kto_tag": row.get("kto_tags")}
    for side in ("", "chosen_", "rejected_", "kl_"):
        if f"{side}input_ids" in row:
            ids, labels = row[f"{side}input_ids"], row[f"{side}labels"]
            start = next((i for i, label in enumerate(labels) if label != -100), len(ids))
            found[f"{side}prompt"] = {"ids": ids[:start], "text": tokenizer.decode(ids[:start])}
            found[f"{side}reply"] = {"ids": ids[start:], "text": tokenizer.decode(ids[start:])}
    return found


def _rendered(model: Path, prompts: dict[str, Any]) -> dict[str, list[int]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    given = {
        name: each if isinstance(each, dict) else {"conversation": each, "add_generation_prompt": True}
        for name, each in prompts.items()
    }
    return {name: tokenizer.apply_chat_template(**each, return_dict=False) for name, each in given.items()}


def _understood(arguments: list[str]) -> dict[str, Any]:
    from llamafactory.hparams import get_infer_args, get_train_args

    parse = get_infer_args if "--export_dir" in arguments else get_train_args
    try:
        groups = parse(arguments)
    except (ValueError, SystemExit) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    shown: dict[str, Any] = {}
    for group in groups:
        shown |= {
            name: value for name, value in vars(group).items() if isinstance(value, str | int | float | bool | list)
        }
        if hasattr(group, "get_warmup_steps"):
            shown["warm_up"] = group.get_warmup_steps(1000)
    return shown


def _spread(path: str, arguments: list[str]) -> dict[str, Any]:
    """A ZeRO configuration as transformers fills it in. It needs nothing of DeepSpeed, but only where DeepSpeed is
    installed is its class one of accelerate's: here the two are put together."""
    from accelerate.utils.deepspeed import HfDeepSpeedConfig
    from llamafactory.hparams import get_train_args
    from transformers import Qwen2Config, Qwen2Model
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    class Spread(HfTrainerDeepSpeedConfig, HfDeepSpeedConfig):  # type: ignore[misc]
        def __init__(self) -> None:
            HfDeepSpeedConfig.__init__(self, path)
            self._dtype, self.mismatches = None, []

    training_args = get_train_args(arguments)[2]
    spread = Spread()
    spread.trainer_config_process(training_args)
    small = Qwen2Config(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)
    spread.trainer_config_finalize(training_args, Qwen2Model(small), num_training_steps=10)
    return {
        "config": spread.config,
        "stage": spread.config["zero_optimization"]["stage"] if spread.is_zero3() else None,
        "offload": spread.is_offload(),
        "dtype": str(spread.dtype()),
    }


def _trained(arguments: list[str]) -> dict[str, Any]:
    from llamafactory.train.tuner import run_exp

    started = time.monotonic()
    run_exp(arguments)
    return {"seconds": round(time.monotonic() - started, 1)}


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        outcome = main(json.loads(Path(sys.argv[1]).read_text("utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(outcome), "utf-8")
