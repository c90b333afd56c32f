"""GRPO by TRL on the agent `tools`: its states, step budget and outcome are ours, and so is the retrieval server.

reasonrag index serve --corpus corpus.jsonl --port 8001 &
python grpo_with_trl.py models/student mine.jsonl http://127.0.0.1:8001 saves/grpo 100
"""

import json
import sys
import urllib.request
from pathlib import Path

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

import reasonrag
from reasonrag.data.corpus import Passage


class Served:
    def __init__(self, url):
        self.url = self.identity = url

    async def retrieve(self, query, top_k):
        asked, kind = json.dumps({"queries": [query], "topk": top_k}).encode(), {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/retrieve", asked, kind)) as answer:
            [found] = json.load(answer)["result"]
        return [Passage(each["id"], each["title"], each["contents"].partition("\n")[2]) for each in found]


def attempt(world, question, answers, model, words):
    prompt = words.apply_chat_template(world.reset(question, answers), add_generation_prompt=True, return_dict=False)
    seen, said, chances, stops = [], [], [], ["</tool_call>", "</answer>"]
    told = {"do_sample": True, "max_new_tokens": 64, "output_logits": True, "return_dict_in_generate": True}
    told |= {
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "repetition_penalty": 1.0,
    }  # what is learned from, not better
    while True:
        ids = torch.tensor([prompt + seen], device=model.device)
        out = model.generate(ids, attention_mask=torch.ones_like(ids), stop_strings=stops, tokenizer=words, **told)
        reply = out.sequences[0, ids.shape[1] :].tolist()
        chances += [float(at[0].float().log_softmax(-1)[token]) for at, token in zip(out.logits, reply, strict=True)]
        seen, said = seen + reply, said + [1] * len(reply)
        turn = world.step(words.decode(reply, skip_special_tokens=True))
        if turn.done:
            return prompt, seen, chances, said, turn.reward
        text = words.apply_chat_template(turn.observation, add_generation_prompt=True, tokenize=False)
        shown = text.rpartition(turn.observation[-2]["content"])[2].removeprefix(words.decode(reply[-1:]))
        new = words(shown, add_special_tokens=False)["input_ids"]  # what follows the reply is not the model's own
        seen, said, chances = seen + new, said + [0] * len(new), chances + [0.0] * len(new)


def main(model, questions, url, out, steps):
    rows = map(json.loads, Path(questions).read_text("utf-8").splitlines())
    answers = {row["question"]: row["golden_answers"] for row in rows}
    world = reasonrag.Environment(retriever=Served(url), agent="tools", max_steps=4)

    def rollouts(asked, trainer):
        policy, words = trainer.accelerator.unwrap_model(trainer.model), trainer.processing_class
        found = zip(*(attempt(world, each, answers[each], policy, words) for each in asked), strict=True)
        names = "prompt_ids", "completion_ids", "logprobs", "env_mask", "outcome"
        return dict(zip(names, map(list, found), strict=True))

    told = {"bf16": torch.cuda.is_available(), "gradient_checkpointing": False, "report_to": "none"}
    told = GRPOConfig(out, max_steps=int(steps), per_device_train_batch_size=8, num_generations=8, **told)
    data = Dataset.from_list([{"prompt": each} for each in answers])
    GRPOTrainer(model, lambda outcome, **_: outcome, args=told, train_dataset=data, rollout_func=rollouts).train()


if __name__ == "__main__":
    main(*sys.argv[1:])
