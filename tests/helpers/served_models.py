"""Models to be served, and what transformers itself says they reply; a script in the environment of LLaMA-Factory.

    python tests/helpers/served_models.py FOLDER PROMPTS.json REPLIES.json

Makes `tiny` (a model), `adapter` (LoRA on it) and `merged` (both in one) in the folder. The prompts are a list of user
turns; the replies an object, name of model -> list of [ids of the prompt, text, number of tokens], by greedy
`generate`, one prompt at a time; under `logprobs` those of the tokens of `tiny`'s replies; and under `cast` how far the
server's `tiny` in bfloat16 is from that of transformers. Then serves `tiny`, as `python -m reasonrag.serving` does; in
this process, for torch and transformers take their time to be loaded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import tiny_qwen

MOST_TOKENS = 24


def main(folder: Path, prompts: list[str]) -> dict[str, Any]:
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tiny = folder / "tiny"
    tiny_qwen.make_tiny_qwen(tiny)
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    model = AutoModelForCausalLM.from_pretrained(tiny)
    with torch.no_grad():
        for weights in model.parameters():  # so that replies differ by what is asked
            weights.mul_(8 if weights.dim() > 1 else 1)
        model.lm_head.weight[tokenizer.eos_token_id] *= 3  # and some end by themselves
    model.save_pretrained(tiny)
    torch.manual_seed(1)
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    adapted.save_pretrained(folder / "adapter")
    model = AutoModelForCausalLM.from_pretrained(tiny)
    merged = PeftModel.from_pretrained(model, folder / "adapter").merge_and_unload()
    merged.save_pretrained(folder / "merged")
    tokenizer.save_pretrained(folder / "merged")
    tiny_again = AutoModelForCausalLM.from_pretrained(tiny)
    models = {"tiny": tiny_again, "merged": merged}
    made = {name: [_greedy(each, tokenizer, prompt) for prompt in prompts] for name, each in models.items()}
    replies = {
        name: [(ids, tokenizer.decode(reply, skip_special_tokens=True), len(reply)) for ids, reply in each]
        for name, each in made.items()
    }
    return replies | {
        "logprobs": [_logprobs(tiny_again, ids, reply) for ids, reply in made["tiny"]],
        "cast": _cast(tiny, max((ids for ids, _ in made["tiny"]), key=len)),
    }


def _cast(tiny: Path, prompt: list[int]) -> float:
    """The largest difference between logits of a model that transformers loads in bfloat16 and of one cast to it."""
    import torch
    from transformers import AutoModelForCausalLM

    from reasonrag.serving.loading import cast_weights

    loaded = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.bfloat16)
    ours = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    cast_weights(ours, torch.bfloat16)
    with torch.no_grad():
        difference = loaded(torch.tensor([prompt])).logits - ours(torch.tensor([prompt])).logits
    return float(difference.abs().max())


def _greedy(model: Any, tokenizer: Any, prompt: str) -> tuple[list[int], list[int]]:
    messages = [{"role": "user", "content": prompt}]
    asked = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True, return_tensors="pt")
    made = model.generate(**asked, do_sample=False, max_new_tokens=MOST_TOKENS)[0]
    ids = asked["input_ids"][0]
    reply = made[len(ids) :].tolist()
    if reply[-1] == tokenizer.eos_token_id:
        reply = reply[:-1]
    return ids.tolist(), reply


def _logprobs(model: Any, ids: list[int], reply: list[int]) -> list[float]:
    import torch

    with torch.no_grad():
        likely = torch.log_softmax(model(torch.tensor([ids + reply])).logits[0], -1)
    return [likely[len(ids) - 1 + place, token].item() for place, token in enumerate(reply)]


if __name__ == "__main__":
    found = main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text("utf-8")))
    Path(sys.argv[3]).write_text(json.dumps(found), "utf-8")
    from reasonrag.serving import server

    sys.exit(server.main([str(Path(sys.argv[1]) / "tiny")]))
