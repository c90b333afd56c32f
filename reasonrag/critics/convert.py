"""From a reward model of LLaMA-Factory (stage rm) to a critic: its value head becomes a classifier's head.

Decides what is copied: the head's weight; its bias, a constant, changes no order and is left out with a word. The text
ends as LLaMA-Factory ends it, with a line break behind the end token, where the head was trained. The
adapter is merged into its base model. The model is in memory twice, in float32. Needs torch, transformers and, for an
adapter, peft.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from reasonrag.critics.chat_template import OF_LLAMAFACTORY, critic_tokenizer, on_trial
from reasonrag.curation.dataset_directory import read_summary
from reasonrag.errors import InputError
from reasonrag.files import only_writer
from reasonrag.llm.critic import CriticFacts
from reasonrag.model_folder import open_model
from reasonrag.redaction import excerpt
from reasonrag.serving.chat_template import open_tokenizer
from reasonrag.training.output_directory import OutputDirectory
from reasonrag.training.provenance import Provenance, read_provenance

HEADS: Final = ("value_head.safetensors", "value_head.bin")
_WEIGHT, _BIAS = "v_head.summary.weight", "v_head.summary.bias"


def convert_reward_model(folder: Path, out: Path, say: Callable[[str], None]) -> Provenance:
    """Write the critic into a new or empty folder. Raises InputError for a folder that holds no reward model, before
    anything is written."""
    came_from = read_provenance(folder)
    if came_from is None or came_from.stage != "rm":
        raise InputError(
            f"{folder} is no reward model that reasonrag train made: its reasonrag.json says "
            f"{'nothing' if came_from is None else f'stage {came_from.stage}'}"
        )
    head = next((folder / name for name in HEADS if (folder / name).is_file()), None)
    if head is None:
        raise InputError(f"{folder} has no value head: {HEADS[0]} is missing. Did the training end?")
    if out.is_dir() and any(out.iterdir()):
        raise InputError(f"{out} is not empty; choose another --out")
    model, tokenizer = _loaded(folder, _weights(head), say)
    with only_writer(out, flag="--out"):
        model.save_pretrained(out)
        tokenizer.save_pretrained(out)
        score, tokens = on_trial(model, tokenizer)
        facts = CriticFacts(
            kind="pairwise",
            labels=_labels(folder),
            end_token=f"{tokenizer.eos_token}{OF_LLAMAFACTORY}",
            trial_score=score,
            trial_tokens=tokens,
        )
        provenance = came_from.model_copy(update={"stage": "critic", "finetuning_type": "full", "critic": facts})
        provenance.write(out)
    return provenance


def _labels(folder: Path) -> str:
    """What the rows of its training were labelled by; unknown where its data set is gone or was made anew."""
    record = OutputDirectory(folder).record()
    try:
        summary = read_summary(Path(record.data["directory"])) if record else None
    except InputError:
        summary = None
    if summary is None or record is None or not record.data["sha256"].items() <= summary.sha256.items():
        return "unknown"
    return "+".join(summary.pairs_by_label)


def _weights(head: Path) -> dict[str, Any]:
    import torch
    from safetensors.torch import load_file

    try:
        found = load_file(head) if head.suffix == ".safetensors" else torch.load(head, weights_only=True)
        found[_WEIGHT].reshape(1, found[_WEIGHT].shape[-1])
    except Exception as error:  # a pickle of other things, a damaged file, several rows: nothing of it was run
        why = f"{type(error).__name__}: {excerpt(' '.join(str(error).split()), 200)}"
        raise InputError(
            f"{head} holds no {_WEIGHT} of one row in plain weights ({why}). LLaMA-Factory writes {HEADS[0]}; of a "
            "pickle make one where you trust it: safetensors.torch.save_file(torch.load(FILE, weights_only=False), NEW)"
        ) from error
    return dict(found)


def _loaded(folder: Path, head: dict[str, Any], say: Callable[[str], None]) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    opened = open_model(folder)
    source = opened.base_model if opened.is_adapter else str(folder)
    if source is None:
        raise InputError(f"{folder} is an adapter that does not name its base model")
    try:
        tokenizer = critic_tokenizer(
            open_tokenizer(str(folder) if opened.has_tokenizer else source), behind=OF_LLAMAFACTORY
        )
        if opened.is_adapter:
            from peft import PeftModel

            whole = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, trust_remote_code=False)
            body = PeftModel.from_pretrained(whole, str(folder)).merge_and_unload()
        else:
            body = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, trust_remote_code=False)
        config = body.config
        config.num_labels, config.pad_token_id = 1, tokenizer.pad_token_id
        model = AutoModelForSequenceClassification.from_config(config)
    except Exception as error:  # the libraries raise many types for damaged files and for pickles of other things
        raise InputError(f"{folder}: {type(error).__name__}: {excerpt(' '.join(str(error).split()), 500)}") from error
    getattr(model, model.base_model_prefix).load_state_dict(getattr(body, body.base_model_prefix).state_dict())
    with torch.no_grad():
        model.score.weight.copy_(head[_WEIGHT].to(model.score.weight.dtype))
    if _BIAS in head and float(head[_BIAS].float().abs().max()) > 0:
        say(f"the bias of the value head, {float(head[_BIAS][0]):+.3f}, is left out: it changes no order of steps")
    return model.eval(), tokenizer
