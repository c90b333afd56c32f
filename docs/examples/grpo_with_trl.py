"""GRPO by TRL on the agent `tools`: rows of `pairs --format prompts`; searches, step budget and outcome are ours.

reasonrag pairs runs/first --format prompts --out data/first-prompts
reasonrag index serve --corpus corpus.jsonl --port 8001 &
python grpo_with_trl.py models/student data/first-prompts/prompts.jsonl http://127.0.0.1:8001 saves/grpo 100
"""

import json
import sys
import urllib.request

import torch
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

import reasonrag
from reasonrag.data.corpus import Passage

MOST_STEPS = 4  # replies, the answer included


class Served:
    def __init__(self, url):
        self.url = self.identity = url

    async def retrieve(self, query, top_k):
        asked, kind = json.dumps({"queries": [query], "topk": top_k}).encode(), {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/retrieve", asked, kind)) as answer:
            [found] = json.load(answer)["result"]
        return [Passage(each["id"], each["title"], each["contents"].partition("\n")[2]) for each in found]


class Attempt:
    """What TRL's loop of tools asks: one attempt at a row's question after another."""

    def __init__(self):
        self.world = reasonrag.Environment(retriever=Served(sys.argv[3]), agent="tools", max_steps=MOST_STEPS)

    def reset(self, extra_info, reward_model, **_):
        self.world.reset(extra_info["question"], reward_model["ground_truth"]["target"])
        self.done = False

    def search(self, query: str):
        """Search the collection of documents.

        Args:
            query: What to search for
        """
        call = json.dumps({"name": "search", "arguments": {"query": query}})
        found, _, self.done = ([], 0, True) if self.done else self.world.step(f"<tool_call>{call}</tool_call>")
        return "No search is left." if self.done else found[-1]["content"].split("\n", 1)[1].rpartition("\n")[0]


def outcome(completions, environments, **_):
    ended = zip(completions, environments, strict=True)
    return [0.0 if each.done else each.world.step(turns[-1]["content"]).reward for turns, each in ended]


def main(model, rows, _url, out, steps):
    data = load_dataset("json", data_files=rows, split="train").remove_columns("tools")  # the attempts' own is rendered
    told = GRPOConfig(
        out,
        max_steps=int(steps),
        per_device_train_batch_size=8,
        num_generations=8,
        max_completion_length=2048,  # with what was found
        max_tool_calling_iterations=MOST_STEPS - 1,
        bf16=torch.cuda.is_available(),
        report_to="none",
    )
    GRPOTrainer(model, outcome, args=told, train_dataset=data, environment_factory=Attempt).train()


if __name__ == "__main__":
    main(*sys.argv[1:])
