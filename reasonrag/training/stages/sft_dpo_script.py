"""The process of `train --backend trl`: `python -m reasonrag.training.stages.sft_dpo_script JOB`, with TRL.

Decides that rows are rendered by the base model's chat template, or refused where that leaves something out. Knows no
settings, no data set and no checks.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from reasonrag.serving.chat_template import open_tokenizer
from reasonrag.training.stages.trl import ProcessJob, arguments_of, base_of, train_rows, write_facts


def main(job_file: Path) -> None:
    """Train, and save a whole model."""
    job = ProcessJob.model_validate_json(job_file.read_bytes())
    from transformers import AutoModelForCausalLM
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    kind, config = (DPOTrainer, DPOConfig) if job.ours["stage"] == "dpo" else (SFTTrainer, SFTConfig)
    arguments, tokenizer = arguments_of(job, config, max_length=None), open_tokenizer(job.base)
    with Path(job.rows).open("rb") as rows:
        if tools := json.loads(rows.readline()).get("tools"):
            _try_template(tokenizer, job.base, json.loads(tools))
    model = base_of(job, AutoModelForCausalLM, arguments)
    parts = {"model": model, "args": arguments, "processing_class": tokenizer}
    trained, facts = train_rows(job, kind, partial(_measured, tokenizer, job.base), task="CAUSAL_LM", **parts)
    if trained is not None:
        write_facts(job, facts)


def _measured(tokenizer: Any, base: str, row: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """A row, which TRL renders itself, and its tokens: of a pair's longer side. Raises ValueError for refused turns."""
    from jinja2 import TemplateError

    tools = {"tools": json.loads(row["tools"])} if "tools" in row else {}
    sides = [row["prompt"] + row[name] for name in ("chosen", "rejected", "completion") if name in row]
    try:
        ids = [tokenizer.apply_chat_template(each, **tools, return_dict=False) for each in sides]
    except (TemplateError, TypeError, ValueError) as error:
        raise ValueError(f"the chat template of {base} refuses its turns: {error}") from error
    return row, max(map(len, ids))


def _try_template(tokenizer: Any, base: str, tools: list[Any]) -> None:
    """Ends the process where the template leaves out a call of a tool, or what it found."""
    call = {"type": "function", "function": {"name": "search", "arguments": {"query": "ASKED"}}}
    turns = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": "FOUND"}]
    with suppress(Exception):  # the rows say then what is refused
        asked = [{"role": "user", "content": "question"}, *turns]
        text = tokenizer.apply_chat_template(asked, tools=tools, tokenize=False)
        if not ("ASKED" in text and "FOUND" in text):
            raise SystemExit(f"the chat template of {base} leaves out calls of tools, or what they found")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
