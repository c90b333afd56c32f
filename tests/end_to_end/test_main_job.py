"""The main job end to end, through the command line: questions in, rollouts and preference pairs out."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import reasonrag as package
from mcts import RECIPES
from preference import read_rollouts
from reasonrag.errors import ModelError
from reasonrag.llm.chat import ChatRequest, Completion
from reasonrag.llm.offline import reply
from tests.endpoints.behaviour import EndpointBehaviour
from tests.helpers.command_line import Reasonrag
from tests.helpers.endpoints import Stage
from tests.helpers.scripted_model import ScriptedModel
from tests.helpers.trees import digest, paid

PROGUIDE_FIELDS = (
    "instruction input prompt chosen rejected chosen_action_type chosen_content "
    "rejected_action_type rejected_content layer"
).split()
SMALL: dict[str, Any] = {"dataset": "atlas", "limit": 6, "set": {"search.simulations": 8}}


def small_flags(run: str | Path = "runs/a") -> list[object]:
    return ["generate", "--dataset", "atlas", "--limit", 6, "--set", "search.simulations=8", "--run", run]


def pairs_of(out: Path) -> list[dict[str, Any]]:
    """Of both parts."""
    files = [out / "RAG_ProGuide.json", out / "RAG_ProGuide.validation.json"]
    return [row for file in files if file.exists() for row in json.loads(file.read_text("utf-8"))]


@pytest.mark.parametrize(
    ("dataset", "split", "count"),
    [
        ("hotpotqa", "train", 10),
        ("2wikimultihopqa", "train", 10),
        ("musique", "train", 10),
        ("popqa", "dev", 40),  # the offline teacher knows little of it: few have a pair
        ("bamboogle", "dev", 10),
    ],
)
def test_real_questions_become_rollouts_and_pairs_over_http(
    dataset: str, split: str, count: int, shared_data: Path, endpoint: str, reasonrag: Reasonrag
) -> None:
    """Every question of a real data set has a rollout, and every pair the ten RAG_ProGuide fields and its origin."""
    generated = reasonrag(
        *("generate", "--dataset", dataset, "--data-dir", shared_data, "--split", split, "--limit", count),
        *("--model", "offline", "--base-url", endpoint, "--run", "runs/h", "--concurrency", 64),
    )
    assert generated.status == 0, generated.err
    made = reasonrag("pairs", "runs/h", "--out", "data/h")
    assert made.status == 0, made.err
    rollouts = list(read_rollouts(Path("runs/h/rollouts.jsonl")))
    assert len(rollouts) == count
    assert all(rollout.error is None and len(rollout.nodes) > 1 for rollout in rollouts)
    rows = pairs_of(Path("data/h"))
    assert rows
    for row in rows:
        assert list(row)[:10] == PROGUIDE_FIELDS
        assert row["chosen_reward"] > row["rejected_reward"]
        assert row["question_id"]
        assert isinstance(row["tags"], list)
        assert row["prompt"] == f"System: {row['instruction']}\nUser: {row['input']}"
    if split != "train":
        assert f"{split} split" in generated.err


# -- the same bytes, whatever happens --------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", [*RECIPES])
def test_recorded_answers_give_the_same_bytes_at_any_concurrency(recipe: str, endpoint: str, tmp_path: Path) -> None:
    """A run over HTTP is in its journal; played back with the network off at 1 and at 64 it is the same run.
    The recipe stands in the configuration, in every rollout and in every pair."""
    limit = 2 if recipe == "prorag" else 8
    flags: dict[str, Any] = {"dataset": "atlas", "limit": limit, "recipe": recipe, "model": "offline"}
    package.generate(**flags, run="recorded", base_url=[endpoint])
    journal = tmp_path / "recorded" / "journal.jsonl"
    for concurrency in (1, 64):
        package.generate(**flags, run=f"replayed-{concurrency}", concurrency=concurrency, replay=journal)
    assert digest("recorded") == digest("replayed-1") == digest("replayed-64")
    package.pairs("recorded", out="data")
    assert json.loads(Path("recorded/config.json").read_text())["decides_answers"]["recipe"]["name"] == recipe
    assert {rollout.recipe.name for rollout in read_rollouts(Path("recorded/rollouts.jsonl"))} == {recipe}
    assert {row["recipe"] for row in pairs_of(Path("data"))} == {recipe}


@pytest.mark.parametrize("recipe", ["reasonrag", "released", "prorag", "ragym"])
def test_a_search_stopped_by_a_cap_ends_like_an_undisturbed_one(recipe: str, reasonrag: Reasonrag) -> None:
    """Judgements, ranks and greedy continuations are taken from the journal: nothing is paid twice, no byte differs.
    --limit may grow on the way: done questions stay as they are."""
    command = [*small_flags("runs/whole")[:-2], "--recipe", recipe, "--run"]
    assert reasonrag(*command, "runs/whole").status == 0
    for limit, most in ((3, 13), (6, 31)):
        assert reasonrag(*command, "runs/a", "--limit", limit, "--max-calls", most).status == 3
    assert reasonrag(*command, "runs/a", "--limit", 3).status == 0
    assert reasonrag(*command, "runs/a").status == 0
    assert digest("runs/a") == digest("runs/whole")
    assert len(paid("runs/a")) == len(set(paid("runs/a"))) == len(paid("runs/whole"))


# -- failures --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "cause", "says"),
    [
        (ModelError("the endpoint has had enough", cause="http_400"), "http_400", "the endpoint has had enough"),
        (ZeroDivisionError("a fault"), "internal", "ZeroDivisionError"),
    ],
    ids=["the endpoint refuses", "a fault of ours, told with its traceback"],
)
def test_one_failing_question_stops_no_other_and_is_owed_again(error: Exception, cause: str, says: str) -> None:
    """It is an error line with its cause after twelve answers; the next run goes on from there."""
    asked: list[str] = []

    def stubborn(request: ChatRequest, position: int) -> Completion:
        question = request.messages[1].content.partition("\n")[0]
        asked.append(question)
        if question == asked[0] and asked.count(question) > 12:
            raise error
        return teacher_says(request, position)

    first = package.generate(**SMALL, run="runs/a", concurrency=1, chat_model=ScriptedModel(stubborn, name="offline"))
    assert (first.done, first.failed, first.failures_by_cause) == (5, 1, {cause: 1})
    failed = [rollout for rollout in read_rollouts(Path("runs/a/rollouts.jsonl")) if rollout.error]
    assert [says in rollout.error.message for rollout in failed if rollout.error] == [True]
    assert says.encode() in Path("runs/a/failures.jsonl").read_bytes()
    assert (b"Traceback" in Path("runs/a/failures.jsonl").read_bytes()) == (cause == "internal")
    willing, answered = ScriptedModel(teacher_says, name="offline"), len(paid("runs/a"))
    second = package.generate(**SMALL, run="runs/a", chat_model=willing)
    assert (second.done, second.failed, second.session_questions) == (6, 0, 1)
    assert second.session_cached_calls > 0
    assert sum(len(request.samples) for request in willing.requests) == len(paid("runs/a")) - answered
    package.generate(**SMALL, run="runs/b", chat_model=willing)
    assert digest("runs/a") == digest("runs/b")
    assert sorted(paid("runs/a")) == sorted(paid("runs/b"))


def teacher_says(request: ChatRequest, position: int) -> Completion:
    text = reply(request.messages, temperature=request.sampling.temperature, seed=request.seeds[0], choice=position)
    return Completion(text=text, finish_reason="stop")


def test_paid_answers_are_not_thrown_away_by_another_configuration(reasonrag: Reasonrag) -> None:
    """A run that was stopped before its first tree has answers: other settings are refused, not silently paid for."""
    stopped = reasonrag(*small_flags(), "--max-calls", 20)
    assert (stopped.status, "0 in 0 requests of finished trees" in stopped.out) == (3, True)
    changed = reasonrag(*small_flags(), "--temperature", 0.5)
    assert changed.status == 2
    assert "sampling.temperature was 1.0, is 0.5" in changed.err
    assert reasonrag(*small_flags()).status == 0


def test_unreadable_replies_are_data_with_a_cause() -> None:
    """A teacher that forgets its tags fails steps, not questions; text and cause are in rollouts and summary."""

    def forgetful(request: ChatRequest, position: int) -> Completion:
        if request.seeds[position] % 3 == 0:
            return Completion(text="I would rather not say.", finish_reason="stop")
        return teacher_says(request, position)

    model = ScriptedModel(forgetful, name="forgetful")
    summary = package.generate(dataset="atlas", limit=30, run="runs/a", recipe="continuation", chat_model=model)
    assert summary.failed == 0
    rollouts = list(read_rollouts(Path("runs/a/rollouts.jsonl")))
    in_trees = [node for rollout in rollouts for node in rollout.nodes if node.parse_error]
    outside = [step for rollout in rollouts for step in rollout.failed_continuations]
    assert in_trees
    assert outside
    assert summary.parse_failures_by_cause == {"no_tag": len(in_trees) + len(outside)}
    assert all(node.terminal and node.reward == 0 and node.response for node in in_trees)
    assert any(node.repaired and node.sampled_with for rollout in rollouts for node in rollout.nodes)
    package.pairs("runs/a", out="data/a")
    assert not any(row["chosen_action_type"] == "Other" for row in pairs_of(Path("data/a")))
    package.pairs("runs/a", out="data/b", allow_malformed=True)
    types = Counter(row["rejected_action_type"] for row in pairs_of(Path("data/b")))
    assert types["Other"] > 0


# -- bad input: exit status 2, a clear message, nothing started ------------------------------------------------


def write_data(folder: Path, *, questions: str | None = None, corpus: str | None = None) -> Path:
    """A data directory with one data set, `hotpotqa`."""
    home = folder / "hotpotqa"
    home.mkdir(parents=True)
    (home / "train.jsonl").write_text(questions if questions is not None else QUESTION)
    (home / "corpus.jsonl").write_text(corpus if corpus is not None else PASSAGE)
    return folder


QUESTION = '{"id": "q", "question": "Who?", "golden_answers": ["Ada"]}\n'
PASSAGE = '{"id": "p", "contents": "Ada\\nAda wrote it."}\n'
FROM_DIR = ["--dataset", "hotpotqa", "--data-dir", "d", "--model", "offline"]


@pytest.mark.parametrize(
    ("flags", "data", "message"),
    [
        (["--split", "validation"], {}, "atlas has no split 'validation'; choose from dev, test, train"),
        (FROM_DIR, {"questions": QUESTION + '{"id": "b"\n'}, "train.jsonl, line 2 is not JSON"),
        (FROM_DIR, {"corpus": PASSAGE + "{}\n"}, "corpus.jsonl, line 2 is not a passage"),
        (["--questions", "d/hotpotqa/train.jsonl", "--model", "offline"], {}, "train/train needs passages to search"),
        (["--dataset", "hotpotqa", "--data-dir", "d"], {}, "give --model"),
        (["--replay", "--dry-run"], {}, "--replay sends no request, so there is nothing to estimate"),
        (["--recipe", "cheap"], {}, "there is no recipe 'cheap', and no such file; choose from"),
        (["--concurrency", "many"], {}, "Invalid value for '--concurrency'"),
        (["--model", "gpt-4o"], {}, "no API key: set OPENAI_API_KEY"),
        (["--agent", "search-o1", "--model", "offline", "--reader-model", "m"], {}, "no API key for --reader-model m"),
        (["--model", "m", "--base-url", "localhost:8000"], {}, "is not an endpoint's address"),
        (["--data-dir", "d"], {}, "--data-dir d needs --dataset; choose from hotpotqa"),
        (["--run", "d/hotpotqa/train.jsonl/run"], {}, "cannot write d/hotpotqa/train.jsonl/run: Not a directory"),
    ],
)
def test_bad_input_is_refused_before_anything_is_started(
    flags: list[str], data: dict[str, str], message: str, tmp_path: Path, reasonrag: Reasonrag
) -> None:
    """Exit status 2, one error that says what and where, no traceback and no rollouts."""
    write_data(tmp_path / "d", **data)
    done = reasonrag("generate", "--run", "runs/a", *flags)
    assert done.status == 2
    assert message in done.err.replace("│ ", "").replace(" │", "")
    assert "Traceback" not in done.err
    assert not Path("runs/a/rollouts.jsonl").exists() or not Path("runs/a/rollouts.jsonl").stat().st_size


def test_an_endpoint_that_is_not_there_is_found_out_before_an_index_is_built(reasonrag: Reasonrag) -> None:
    """Building may take hours; the directory of a run that never began takes another configuration."""
    done = reasonrag(*small_flags(), "--model", "m", "--base-url", "http://127.0.0.1:9/v1")
    assert done.status == 2
    assert "cannot reach http://127.0.0.1:9/v1" in done.err
    assert "building" not in done.err
    assert not list(Path("indexes").glob("*bm25*"))
    assert reasonrag(*small_flags()).status == 0


def test_index_build_and_generate_agree_on_the_place(
    tmp_path: Path, reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the corpus is spelt, and wherever REASONRAG_INDEX_HOME points."""
    write_data(tmp_path / "d")
    monkeypatch.setenv("REASONRAG_INDEX_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "d" / "hotpotqa")
    built = reasonrag("index", "build", "--corpus", "corpus.jsonl")
    assert built.status == 0, built.err
    done = reasonrag("generate", "--dataset", "hotpotqa", "--data-dir", "..", "--model", "offline", "--run", "r")
    assert done.status == 0, done.err
    assert "building" not in done.err


NONSENSE = {"format": "csv", "validation": 1, "flip": 1.5, "max-similarity": -0.1, "max-style-only": 2}


@pytest.mark.parametrize(("flag", "value"), [*NONSENSE.items(), ("min-confidence", "nan")])
def test_a_setting_of_pairs_that_makes_no_sense_is_refused(flag: str, value: object, reasonrag: Reasonrag) -> None:
    """By its name, before anything is written."""
    done = reasonrag("pairs", "runs/a", "--out", "data/a", f"--{flag}", value)
    assert (done.status, f"--{flag}" in done.err, Path("data").exists()) == (2, True, False)


def test_pairs_refuses_what_it_cannot_read_and_what_it_would_overwrite(reasonrag: Reasonrag) -> None:
    """As --out a run, which would lose its summary. As a source a missing run, a file that is no run, and a damaged
    data set, also among others: the message has file, line and what to do. A data set made earlier stays."""
    assert reasonrag(*small_flags()).status == 0
    for data in ("data/a", "data/b"):
        assert reasonrag("pairs", "runs/a", "--out", data).status == 0
    whole = Path("data/a/candidates.jsonl").read_bytes()
    Path("data/a/candidates.jsonl").write_bytes(whole[:-9])
    Path("rollouts.jsonl").write_text("{}\n")
    number = whole.count(b"\n")
    broken = rf"data/a/candidates\.jsonl, line {number} .*reasonrag pairs RUN --out DIR"
    before = {each: each.read_bytes() for each in Path().rglob("*") if each.is_file()}
    for words in (("generate",), ("evaluate",), ("tune", "--vary", "search.siblings=3,6")):
        done = reasonrag(*words, "--dataset", "atlas", "--model", "offline", "--run", "data/b")
        assert (done.status, "data/b is a data set, whose summary would be over" in done.err) == (2, True), done.err
    for sources, out, says in (
        (["runs/a"], "runs/a", "is a run directory"),
        (["runs/none"], "data/c", "reasonrag generate --run runs/none"),
        (["rollouts.jsonl"], "data/c", r"rollouts\.jsonl, line 1 is not a rollout record"),
        (["data/a"], "data/b", broken),
        (["data/a", "runs/a"], "data/b", broken),
    ):
        done = reasonrag("pairs", *sources, "--out", out)
        assert done.status == 2
        assert re.search(says, done.err)
        assert {each: each.read_bytes() for each in Path().rglob("*") if each.is_file()} == before


# -- what is written and shown ---------------------------------------------------------------------------------


def test_an_interrupt_inside_an_event_loop_stops_the_run() -> None:
    """A notebook's stop button must stop the spending; the run goes on from there with the next call."""
    code = (
        "import asyncio, sys, reasonrag\n"
        "async def cell(): reasonrag.generate(dataset='atlas', limit=300, run='runs/a', model='offline', "
        "base_url=sys.argv[1], concurrency=2)\n"
        "asyncio.run(cell())\n"
    )
    stage = Stage(EndpointBehaviour())
    stage.hold_from(10)
    words = [sys.executable, "-c", code]
    with stage.open(), subprocess.Popen([*words, stage.base_url], stderr=subprocess.PIPE) as notebook:
        stage.held.wait()
        notebook.send_signal(signal.SIGINT)
        stage.release()
        _, errors = notebook.communicate(timeout=60)
    assert notebook.returncode != 0
    assert b"KeyboardInterrupt" in errors


def test_the_version_is_shown(reasonrag: Reasonrag) -> None:
    """--version names the package and its version."""
    assert reasonrag("--version").out == f"reasonrag {package.__version__}\n"
