"""A taskset for `verifiers`: questions of `pairs --format prompts`, searches on our retrieval server, our scores.

reasonrag index serve --corpus corpus.jsonl --port 8001 &
PYTHONPATH=. vf-eval verifiers_taskset --env.taskset.questions data/first/prompts.jsonl \
    --env.taskset.task.search.server http://127.0.0.1:8001 --env.agent.harness.id null \
    --env.agent.runtime.type subprocess --env.agent.max-turns 4 --no-push \
    --model student --client.base-url http://127.0.0.1:8000/v1 --client.api-key-var OPENAI_API_KEY

Without --no-push verifiers uploads what it ran. Its `null` harness needs uv, and the package registry the first time.
"""

import json
import urllib.request
from pathlib import Path

import verifiers.v1 as vf

from preference.answer_scores import exact_match, f1_score

__all__ = ["Questions"]


class SearchConfig(vf.ToolsetConfig):
    server: str = "http://127.0.0.1:8001"
    top_k: int = 3


class Search(vf.Toolset[SearchConfig]):
    TOOL_PREFIX = None  # the model calls `search`, as the prompt says

    @vf.tool
    def search(self, query: str) -> str:
        """Search the collection of documents."""
        asked = json.dumps({"queries": [query], "topk": self.config.top_k}).encode()
        kind = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{self.config.server}/retrieve", asked, kind)) as answer:
            [found] = json.load(answer)["result"]
        texts = [(each["title"], " ".join(each["contents"].partition("\n")[2].split())) for each in found]
        lines = [f"Document [{number}] (Title: {title}) {text}" for number, (title, text) in enumerate(texts, 1)]
        return "\n".join(lines) or "No document was found."


class QuestionData(vf.TaskData):
    golden_answers: list[str]


class QuestionConfig(vf.TaskConfig):
    search: SearchConfig = SearchConfig()


class Question(vf.Task[QuestionData, vf.State, QuestionConfig]):
    @classmethod
    def toolsets(cls, config: QuestionConfig) -> list[vf.Toolset]:
        return [Search(config.search)]

    @vf.reward
    async def em(self, trace: vf.Trace) -> float:
        return exact_match(answer_in(trace), self.data.golden_answers)

    @vf.metric
    async def f1(self, trace: vf.Trace) -> float:
        return f1_score(answer_in(trace), self.data.golden_answers)

    @vf.metric
    async def searches(self, trace: vf.Trace) -> float:
        return len(trace.tool_messages)


class QuestionsConfig(vf.TasksetConfig):
    questions: Path = Path("prompts.jsonl")
    task: QuestionConfig = QuestionConfig()


class Questions(vf.Taskset[Question, QuestionsConfig]):
    def load(self):
        for line in self.config.questions.read_bytes().splitlines():
            row = json.loads(line)
            system, user = (turn["content"] for turn in row["prompt"])
            about = {"id": row["extra_info"]["question_id"], "name": row["extra_info"]["question"]}
            golds = row["reward_model"]["ground_truth"]["target"]
            data = QuestionData(**about, prompt=user, system_prompt=system, golden_answers=golds)
            yield Question(data, self.config.task)


def answer_in(trace: vf.Trace) -> str:
    """Nothing, where the last reply has no answer."""
    return (
        trace.last_reply.rpartition("<answer>")[2].partition("</answer>")[0] if "<answer>" in trace.last_reply else ""
    )


if __name__ == "__main__":  # verifiers starts the toolset so, in a process of its own
    Search.run()
