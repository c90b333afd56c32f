"""What `reasonrag.generate` tells a caller of Python."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

import reasonrag as package
from reasonrag.agent.outcomes import poor_judge
from reasonrag.curation.pairs_settings import PairsSettings
from reasonrag.errors import InputError
from reasonrag.evaluation.settings import EvaluateSettings
from reasonrag.exploration.settings import GenerateSettings
from reasonrag.llm.chat import ChatRequest
from reasonrag.settings import resolve
from reasonrag.training.settings import TrainSettings
from tests.helpers.command_line import CORPUS, Reasonrag
from tests.helpers.jsonl import write_passages
from tests.helpers.scripted_model import ScriptedModel

ROOT = Path(__file__).parents[3]


def test_a_function_that_is_corrected_gets_the_answers_that_were_paid_for() -> None:
    def broken(_question: object, _answer: str) -> float:
        return 2.0

    def score(_question: object, answer: str) -> float:
        return float(len(answer) < 10)

    broken.__name__ = "score"
    assert package.generate(dataset="atlas", limit=1, run="runs/c", outcome=broken).failures_by_cause == {"outcome": 1}
    run = package.generate(dataset="atlas", limit=1, run="runs/c", outcome=score)
    assert (run.done, run.failed) == (1, 0)
    assert run.session_cached_calls > 0
    assert run.warnings == []


def test_a_judge_is_held_against_gold_answers_where_there_are_some() -> None:
    """And a poor one is a warning."""
    rows = [
        {"id": "a", "question": "Where does the Seine flow?", "golden_answers": ["Paris"]},
        {"id": "b", "question": "What are cats like?"},
    ]
    Path("mixed.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    corpus = write_passages(Path("corpus.jsonl"), CORPUS)

    def say(request: ChatRequest, _position: int) -> str:
        if request.sampling.stop == ("</score>",):
            return "<score>90</score>"
        return f"So the answer is <answer>{'Lyon' if 'Seine' in request.messages[1].content else 'Soft'}</answer>"

    run = package.generate(
        questions="mixed.jsonl", corpus=corpus, outcome="judge", run="runs/j", chat_model=ScriptedModel(say)
    )
    assert run.judge_agrees is not None
    assert run.judge_agrees["same"] == 0 < run.judge_agrees["other"]
    assert poor_judge("m", 7, 10) != []
    assert poor_judge("m", 8, 10) == poor_judge("m", 0, 9) == []


def test_steps_by_hops_need_hops_and_are_the_steps_that_a_model_is_asked_with(tmp_path: Path) -> None:
    """The data say how many steps each question had: any of these numbers is as in training."""
    run = package.generate(dataset="atlas", limit=6, run="runs/d", set="agent.steps_by_hops=true")
    package.pairs(run.run, out="data/d")
    decides = orjson.loads(Path(run.run, "config.json").read_bytes())["decides_answers"]
    origin = orjson.loads(Path("data/d/candidates.jsonl").read_bytes().split(b"\n")[0])["origin"]
    assert (decides["max_steps"], decides["steps_by_hops"]) == (7, True)
    assert (origin["max_steps"], origin["steps_by_hops"]) == (7, True)
    assert package.check_renderer("data/d").max_steps == (7, 9)
    (tmp_path / "own.jsonl").write_text('{"id": "a", "question": "Who?", "golden_answers": ["me"]}\n')
    (tmp_path / "corpus.jsonl").write_text('{"id": "1", "contents": "Me\\nIt was me."}\n')
    own = {"questions": tmp_path / "own.jsonl", "corpus": tmp_path / "corpus.jsonl", "model": "offline"}
    with pytest.raises(InputError, match=r"no question says how many hops it has .* leave out agent.steps_by_hops"):
        package.generate(**own, run="runs/e", set="agent.steps_by_hops=true")


def test_init_writes_the_documented_settings_file_whose_tables_the_commands_read(reasonrag: Reasonrag) -> None:
    """And it changes none that is there."""
    assert reasonrag("init").status == 0
    written, page = Path("reasonrag.toml").read_text(), ROOT / "docs/reference/index.md"
    assert f"```toml\n{written}```" in page.read_text(encoding="utf-8")
    for settings in (GenerateSettings, PairsSettings, TrainSettings, EvaluateSettings):
        command = settings.__name__.removesuffix("Settings").lower()
        assert resolve(settings, command, {}).model_dump(exclude_defaults=True)
    Path("reasonrag.toml").write_text("[generate]\nlimit = 3\n")
    again = reasonrag("init")
    assert (again.status, "is there already and was not changed" in again.err) == (2, True)
    assert Path("reasonrag.toml").read_text() == "[generate]\nlimit = 3\n"
