"""The experiment of the loop: its world is closed and its splits share nothing; its arms are what they are called."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from loop import NO_FILTERS, PROMPTS, Loop, Plan, by_kind, choose, words_of
from loop_student import WORDS, make_tokenizer
from loop_world import Size, things, write_world

from preference.candidate_records import StateRecord, read_lines
from preference.export.summary import CANDIDATES
from reasonrag import generate, pairs
from reasonrag.agent.parsing import ParsedReply, parse_reply
from reasonrag.serving.chat_template import open_tokenizer
from tests.helpers.trees import rows

SMALL = Size(towns=12, people=20, works=20, organisations=6)
SPLITS = {"warmup": 60, "explore": 60, "heldout": 60}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loop") / "world"
    write_world(folder, SMALL, SPLITS, seed=0)
    return folder


@pytest.fixture(scope="module")
def run(world: Path) -> Path:
    """What the offline teacher explores of it."""
    generate(
        questions=world / "explore.jsonl",
        corpus=world / "corpus.jsonl",
        index_home=world.parent / "indexes",
        model="offline",
        prompts=PROMPTS,
        top_k=1,
        max_steps=8,
        run=world.parent / "run",
    )
    return world.parent / "run"


@pytest.fixture(scope="module")
def labelled(run: Path) -> Path:
    pairs(run, out=run.parent / "labelled", validation=0)
    return run.parent / "labelled"


# -- the world ---------------------------------------------------------------------------------------------------


def test_no_question_is_in_two_splits_and_the_world_is_closed(world: Path) -> None:
    """What is held out was never asked before, in any wording: each question is there once. It has no word that stands
    in no passage and in no question of the warm-up. Names are names of one thing, or a question had two answers."""
    asked = {split: [each["question"] for each in rows(world / f"{split}.jsonl")] for split in SPLITS}
    every = [question for questions in asked.values() for question in questions]
    assert len(every) == len(set(every)) == sum(SPLITS.values())
    corpus = " ".join(each["contents"] for each in rows(world / "corpus.jsonl"))
    known = set(re.findall(WORDS, " ".join([*asked["warmup"], corpus])))
    assert set(re.findall(WORDS, " ".join(asked["heldout"]))) <= known
    names = [thing.name for thing in things(Size(), 0)]
    assert len(names) == len(set(names))


def test_whole_words_survive_the_tokenizer_that_serves_them(tmp_path: Path) -> None:
    """Whatever version of transformers serves: some put Qwen2's own rules in place of a model's tokenizer, and every
    word is unknown then. Spaces beside tags are the parser's to remove."""
    pytest.importorskip("transformers", reason="the embed extra is not installed")
    reply = "Nothing is known yet. So the next query is <query>Bal Quiorn birthplace</query>"
    make_tokenizer([reply]).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    tokenizer = open_tokenizer(tmp_path)
    ids = tokenizer(reply).input_ids
    assert tokenizer.unk_token_id not in ids
    assert len(ids) == words_of(reply)
    parsed = parse_reply(tokenizer.decode(ids, skip_special_tokens=True), action="think", ending="stopped")
    assert isinstance(parsed, ParsedReply)
    assert parsed.response == reply


# -- the arms ----------------------------------------------------------------------------------------------------


def test_arms_have_as_many_pairs_of_the_students_own_steps(run: Path, labelled: Path) -> None:
    """And the pairs that were chosen all pass `pairs` again, which adds none."""
    outcomes = run.parent / "outcomes"
    pairs(run, out=outcomes, label="outcome", validation=0)
    choose(run, {"process": labelled, "outcome": outcomes}, run.parent, seed=0)
    chosen = {
        arm: {
            each.pair_id
            for state in read_lines(run.parent / f"{arm}-chosen" / CANDIDATES, StateRecord)
            for each in state.pairs
        }
        for arm in ("process", "outcome")
    }
    assert len(chosen["process"]) == len(chosen["outcome"]) > 10
    assert chosen["process"] != chosen["outcome"]
    given = {
        flag.removeprefix("--").replace("-", "_"): True if value.startswith("--") else value
        for flag, value in pairwise(NO_FILTERS)
        if flag.startswith("--")
    }
    flags: dict[str, Any] = given | {"allow_ungrounded": True}
    summary = pairs(run.parent / "process-chosen", out=run.parent / "process", **flags)
    made = rows(run.parent / "process" / "RAG_ProGuide.json")
    assert {row["pair_id"] for row in made} == chosen["process"]
    assert summary.pairs == len(made)


def test_a_phase_that_is_done_is_not_done_again(tmp_path: Path) -> None:
    """But one that failed is."""
    done: list[str] = []
    loop = Loop(Plan(), tmp_path)
    for _ in range(2):
        loop.phases.once("seed0 explore", lambda: done.append("explored"))
        with pytest.raises(SystemExit, match="exit status 3"):
            loop.phases.command("seed0 before", sys.executable, "-c", "import sys; sys.exit(3)")
    assert done == ["explored"]
    assert set(by_kind(loop.phases.took)) == {"exploration"}
