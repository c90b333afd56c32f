"""Lists installed packages and GPUs and has a trainer check configurations: a script for its environment.

Reads a job as JSON from stdin, writes its findings to the file named by its only argument. A job: {name: {"config":
{key: value}, "rows": {"files", "system", "prompt", "replies"} or null, "by": a trainer}}; the trainer is imported for
these only. Knows nothing of reasonrag and imports nothing of it; contacts no hub. Configurations are checked as if
without a GPU: what needs one (DeepSpeed, half precision) is looked up, not started.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import io
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

NEEDS_A_GPU = ("deepspeed", "fsdp", "fsdp_config", "tf32", "fp16", "pure_bf16", "ddp_backend")
"""Left out when arguments are only parsed: LLaMA-Factory would look for the hardware, or for other processes."""


def main(job: dict[str, Any]) -> dict[str, Any]:
    os.environ["HF_HUB_OFFLINE"] = "1"
    found: dict[str, Any] = {"stock": _stock(), "configs": {}, "failure": None}
    try:
        found["configs"] = {name: _judged(**each) for name, each in job.items()}
    except Exception as error:  # noqa: BLE001 - any error here is the reason LLaMA-Factory does not work
        found["failure"] = f"{type(error).__name__}: {error}"
    return found


def _stock() -> dict[str, Any]:
    """Packages by lower-case names with hyphens, and GPUs."""
    named = [(each.metadata["Name"], each.version) for each in distributions()]
    versions = {name.lower().replace("_", "-"): version for name, version in named if name}
    return {"python": platform.python_version(), "versions": versions, "devices": _devices()}


def _devices() -> list[dict[str, Any]]:
    try:
        import torch
    except Exception:  # noqa: BLE001 - LLaMA-Factory imports it, too, and says why it cannot
        return []
    seen = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    return [{"name": each.name, "memory": each.total_memory, "capability": [each.major, each.minor]} for each in seen]


def _judged(config: dict[str, Any], rows: dict[str, Any] | None, by: str) -> dict[str, Any]:
    """error: why its trainer would not train with it. Else see `_tokens`."""
    ours = by != "LLaMA-Factory"
    kinds, parse = _arguments_of(by)
    known = _known_keys(kinds)
    for key in config:
        if key not in known:
            nearest = difflib.get_close_matches(key, list(known), n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            return {"error": f"{by} has no argument {key!r}{hint}"}
    if not ours:
        from llamafactory.data.template import TEMPLATES

        if (name := config.get("template")) is not None and name not in TEMPLATES:
            return {"error": f"LLaMA-Factory has no template {name!r}; that of Qwen2.5 is qwen"}
    else:  # which get values as they are: a command line has no word for some, and 1e3 is no whole number there
        config = {key: value for key, value in config.items() if value != [] and not isinstance(value, dict)}
        config |= {key: int(each) for key, each in config.items() if isinstance(each, float) and each.is_integer()}
    refused = _refused(config, known, parse)
    if refused is not None:
        return {"error": f"{by} rejects this configuration: {refused}"}
    return {} if ours else _tokens(config, rows)


def _arguments_of(by: str) -> tuple[Any, Callable[[list[str]], Any]]:
    """The dataclasses of a trainer's arguments, and what parses a command line of them."""
    if by == "LLaMA-Factory":
        from llamafactory.hparams import get_train_args
        from llamafactory.hparams.parser import _TRAIN_ARGS

        return _TRAIN_ARGS, get_train_args
    import transformers

    kind: Any = importlib.import_module("trl").RewardConfig if by == "TRL" else transformers.TrainingArguments
    return kind, transformers.HfArgumentParser(kind).parse_args_into_dataclasses


def _known_keys(kinds: Any) -> dict[str, Any]:
    """Argument names, and whether each takes several words."""
    from transformers import HfArgumentParser

    parser = HfArgumentParser(kinds)
    names = {action.dest: action.nargs == "+" for action in parser._actions if action.dest != "help"}
    return {name: several for name, several in names.items() if not name.startswith("no_") or name[3:] not in names}


def _refused(config: dict[str, Any], known: dict[str, Any], parse: Callable[[list[str]], Any]) -> str | None:
    """Why the parser rejects the arguments; None if it accepts them."""
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stderr(said):
        values = {key: value for key, value in config.items() if value is not None and key not in NEEDS_A_GPU}
        try:
            parse(_words(values | {"use_cpu": True, "output_dir": place}, known))
        except SystemExit:
            lines = [line for line in said.getvalue().splitlines() if "error:" in line]
            return lines[-1].partition("error:")[2].strip() if lines else "its parser gave up"
        except Exception as error:  # noqa: BLE001 - any error here is why the training would not start
            return f"{error}" or type(error).__name__
    return None


def _words(values: dict[str, Any], known: dict[str, Any]) -> list[str]:
    """The configuration as a command line: there the parser notices values of the wrong type, in a file it does not."""
    words = []
    for key, value in values.items():
        words.append(f"--{key}")
        if isinstance(value, dict):
            words.append(json.dumps(value))
        elif isinstance(value, list):
            words += [str(each) for each in value] if known[key] else [",".join(map(str, value))]
        else:
            words.append(str(value))
    return words


def _tokens(config: dict[str, Any], rows: dict[str, Any] | None) -> dict[str, Any]:
    """Facts of the model's own tokenizer: chat template, split special tokens, lengths of the rows."""
    from llamafactory.data import get_template_and_fix_tokenizer
    from llamafactory.hparams import DataArguments
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(config["model_name_or_path"], trust_remote_code=False)
    except Exception:  # noqa: BLE001 - there may be none here, which is reported
        return {}
    has_template = bool(tokenizer.chat_template)
    specials = ("<|im_start|>", "<|im_end|>") if config.get("template") == "qwen" else ()
    split = [each for each in specials if len(tokenizer.encode(each, add_special_tokens=False)) != 1]
    facts = {"chat_template": has_template, "split_specials": split}
    if rows is None:
        return facts
    template = get_template_and_fix_tokenizer(tokenizer, DataArguments(template=config["template"]))
    return facts | _lengths(template, tokenizer, rows)


def _lengths(template: Any, tokenizer: Any, rows: dict[str, Any]) -> dict[str, list[int]]:
    """Tokens of every row's prompt and of its longer reply, as LLaMA-Factory encodes them."""
    found: dict[str, list[int]] = {"prompt": [], "reply": []}
    seen: dict[tuple[str, str, str], int] = {}
    for row in (row for file in rows["files"] for row in json.loads(Path(file).read_text("utf-8"))):
        before = [str(text) for turn in row.get(rows["history"]) or () for text in turn]
        asked = str(row.get(rows["system"]) or ""), str(row.get(rows["prompt"]) or ""), json.dumps(before)
        longest = 0
        for name in rows["replies"]:
            said = [""] if asked in seen else [*before, asked[1]]
            turns = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(said)]
            turns.append({"role": "assistant", "content": str(row.get(name) or "")})
            shown, after = template.encode_oneturn(tokenizer, turns, asked[0] if asked not in seen else None)
            seen.setdefault(asked, len(shown))
            longest = max(longest, len(after))
        found["prompt"].append(seen[asked])
        found["reply"].append(longest)
    return found


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        outcome = main(json.load(sys.stdin))
    Path(sys.argv[1]).write_text(json.dumps(outcome), "utf-8")
