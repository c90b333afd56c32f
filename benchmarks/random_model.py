"""Models of Qwen2.5's shape with random weights, made on the machine that needs them: nothing is downloaded.

    python random_model.py build FOLDER SHAPE [--vocabulary FILE] [--classifier]
    python random_model.py score FOLDER CONVERSATIONS

These run in any environment with torch and transformers 5, and need no package of ours there. Decides how such a model
is made, and by which command; knows no measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reasonrag.training.doctor.model_shapes import ModelShape

Conversation = list[dict[str, str]]

HELPERS = Path(__file__).parents[1] / "tests" / "helpers"


# -- for the scripts that start it -------------------------------------------------------------------------------


def shape_of(name: str) -> ModelShape:
    """tiny, or a size of Qwen2.5. Of the tiny one logits are most of what rows take, as of the real ones."""
    from reasonrag.training.doctor.model_shapes import ModelShape, find_shape

    if name != "tiny":
        return find_shape(name)
    return ModelShape(
        vocab_size=16_384,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )


def build_command(python: Path, folder: Path, shape: ModelShape, *, classifier: bool = False) -> list[str] | None:
    """Writes a model of this shape to the folder, and says its number of parameters; None where an earlier run left it.

    classifier: a sequence classifier with one label, in place of a language model. On a GPU if it sees one: a CPU draws
    7 billion random numbers for minutes. With Qwen2.5's own vocabulary if that is installed and fits, else with
    one of 1,500 tokens.
    """
    from reasonrag.curation.token_counters import qwen_vocabulary
    from reasonrag.errors import InputError

    if (folder / "config.json").exists():
        return None
    words = [str(folder), shape.model_dump_json(), *(["--classifier"] if classifier else [])]
    if shape.vocab_size > 150_000:  # noqa: PLR2004 - Qwen2.5's has 151,643 tokens and some special ones
        try:
            words += ["--vocabulary", str(qwen_vocabulary())]
        except InputError as error:
            print(f"{error}. Until then 1,500 tokens take its place", file=sys.stderr)
    return [str(python), str(Path(__file__).absolute()), "build", *words]


def score_command(python: Path, folder: Path, conversations: Path) -> list[str]:
    """Says as JSON, under `bfloat16` and `float32`, the raw score of each conversation of a file, rendered by
    the chat template and read one at a time by transformers."""
    return [str(python), str(Path(__file__).absolute()), "score", str(folder), str(conversations)]


def environment(python: Path, *, on_cpu: bool) -> dict[str, str]:
    """For programs of that interpreter: its own packages alone, no hub."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    kept["PATH"] = f"{python.parent}{os.pathsep}{kept.get('PATH', '')}"
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "MPLBACKEND": "agg"}
    return kept | quiet | ({"CUDA_VISIBLE_DEVICES": ""} if on_cpu else {})


# -- where torch is ----------------------------------------------------------------------------------------------


def _build(folder: Path, shape: dict[str, Any], vocabulary: Path | None, *, classifier: bool) -> int:
    """Write tokenizer and model in bfloat16; the number of parameters."""
    import torch
    from tiny_qwen import make_real_tokenizer, make_tiny_qwen
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM, Qwen2ForSequenceClassification

    half = folder.with_name(f"{folder.name}.part")  # a folder of that name is whole
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    if vocabulary:
        make_real_tokenizer(half, vocabulary)
    else:
        make_tiny_qwen(half)
        (half / "model.safetensors").unlink()  # beside shards of the model it would be loaded in their place
    tokenizer = AutoTokenizer.from_pretrained(half)
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    kind = Qwen2ForSequenceClassification if classifier else Qwen2ForCausalLM
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = kind(Qwen2Config(**shape, **ids, **({"num_labels": 1} if classifier else {})))
    model.save_pretrained(half)
    half.rename(folder)
    return sum(each.numel() for each in model.parameters())


def _score(folder: Path, conversations: list[Conversation]) -> dict[str, Any]:
    import torch
    from transformers import AutoTokenizer, Qwen2ForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [tokenizer.apply_chat_template(each, tokenize=False) for each in conversations]
    model = Qwen2ForSequenceClassification.from_pretrained(folder)
    model = model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    said: dict[str, Any] = {}
    for precision in (torch.bfloat16, torch.float32):
        model.to(precision)
        with torch.no_grad():
            said[str(precision).removeprefix("torch.")] = [
                model(**tokenizer(text, return_tensors="pt").to(model.device)).logits.float().item() for text in texts
            ]
    return said


if __name__ == "__main__":
    sys.path.insert(0, str(HELPERS))
    arguments = argparse.ArgumentParser(description=__doc__)
    commands = arguments.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build")
    building.add_argument("folder", type=Path)
    building.add_argument("shape", type=json.loads)
    building.add_argument("--vocabulary", type=Path)
    building.add_argument("--classifier", action="store_true")
    scoring = commands.add_parser("score")
    scoring.add_argument("folder", type=Path)
    scoring.add_argument("conversations", type=Path)
    asked = arguments.parse_args()
    if asked.command == "build":
        answer: Any = _build(asked.folder, asked.shape, asked.vocabulary, classifier=asked.classifier)
    else:
        answer = _score(asked.folder, json.loads(asked.conversations.read_text("utf-8")))
    print(json.dumps(answer))
