"""A world of 24 words, in which a policy of random weights learns in seconds: eight questions, each of two turns.

A search shows the thing that is asked for if it is one of three words; then one of eight words is the right answer.
Tests of policies and benchmarks/process_reward.py sample it in this process.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from preference.candidate_records import Origin, PlainStep, QuestionRecord
from preference.records import Message

WORDS = "<pad> <end> system user assistant which where one two three four five six seven eight seek look find".split()
THINGS = WORDS[7:15]
QUESTIONS, ATTEMPTS = 8, 40
SYSTEM = Message(role="system", content="system")
TEMPLATE = (
    "{% for turn in messages %}{{ turn['role'] }} {{ turn['content'] }} {% if turn['role'] == 'assistant' %}<end> "
    "{% endif %}{% endfor %}{% if add_generation_prompt %}assistant {% endif %}"
)


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token=WORDS[0]))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=words, pad_token=WORDS[0], eos_token=WORDS[1])
    made.chat_template = TEMPLATE
    return made


def model(seed: int = 0) -> Any:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = Qwen2Config(vocab_size=len(WORDS), num_key_value_heads=1, max_position_embeddings=64, **sizes)
    return Qwen2ForCausalLM(config)


def drawn(policy: Any, coder: Any, states: list[list[Message]], dice: random.Random) -> list[str]:
    """A word in each state."""
    import torch

    prompts = [
        coder.apply_chat_template([turn.model_dump() for turn in each], tokenize=False, add_generation_prompt=True)
        for each in states
    ]
    with torch.inference_mode():
        ids = coder(prompts, return_tensors="pt")["input_ids"]
        chances = policy(input_ids=ids).logits[:, -1].softmax(-1).tolist()
    return [dice.choices(WORDS, each)[0] for each in chances]


def attempts_of(policy: Any, coder: Any, dice: random.Random, attempts: int = ATTEMPTS) -> list[QuestionRecord]:
    """So many of each question. Two turns: a search, which shows the thing if it is one of three words; an answer."""
    origin, found = Origin(dataset="toy", split="train", config_hash="c", seed=0, teacher="student"), []
    for number in range(QUESTIONS):
        asked = f"which {WORDS[5 + number]}"
        state = [SYSTEM, Message(role="user", content=asked)]
        searches = drawn(policy, coder, [state] * attempts, dice)
        shown = [THINGS[number] if each in WORDS[15:] else "where" for each in searches]
        read = [[SYSTEM, Message(role="user", content=f"{asked} where {each}")] for each in shown]
        answers, steps = drawn(policy, coder, read, dice), list[PlainStep]()
        below = defaultdict[str, list[float]](list)
        for search, answer in zip(searches, answers, strict=True):
            below[search].append(float(answer == THINGS[number]))
        for place, (search, prompt, answer) in enumerate(zip(searches, read, answers, strict=True)):
            right, value = float(answer == THINGS[number]), sum(below[search]) / len(below[search])
            first = {"id": 2 * place + 1, "parent_id": 0, "layer": 0, "state_id": "0", "prompt": state}
            last = {"id": 2 * place + 2, "parent_id": 2 * place + 1, "layer": 1, "state_id": prompt[-1].content}
            common: dict[str, Any] = {"action_type": None, "content": None, "draws": 1}
            steps.append(PlainStep(**first, **common, response=search, value=value))
            steps.append(PlainStep(**last, **common, prompt=prompt, response=answer, value=right, outcome=right))
        about = {"question_id": str(number), "question": f"which {number}", "golden_answers": [THINGS[number]]}
        found.append(QuestionRecord(**about, origin=origin, group=attempts, plain_steps=steps))
    return found
