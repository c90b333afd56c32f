"""Long passages are told before they are paid for, and cut where that is asked, the same everywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reasonrag as package
from preference import read_rollouts
from reasonrag.data.corpus import LONG_PASSAGE_CHARS, Passage
from reasonrag.errors import InputError
from reasonrag.llm.chat import ChatRequest
from reasonrag.retrieval.passage_length import MARK, cut
from reasonrag.retrieval.settings import MIN_PASSAGE_CHARS
from tests.helpers.command_line import Reasonrag
from tests.helpers.jsonl import write_passages, write_rows
from tests.helpers.scripted_model import ScriptedModel
from tests.reasonrag.retrieval.test_remote import Shelf

SENTENCE = "Paris is the capital of France. It lies on the Seine. "
TEXTS = st.text(st.sampled_from("ab .!?\n。」é"), max_size=900) | st.text(max_size=400).map(lambda text: text * 3)
LIMITS = st.integers(MIN_PASSAGE_CHARS, 600)


# -- where a text is cut ---------------------------------------------------------------------------------------


@given(TEXTS, LIMITS)
def test_a_cut_text_fits_and_says_so(text: str, most: int) -> None:
    """It is the beginning of the text with the mark, and at least half of what fits; a text that fits stays whole."""
    shown = cut(text, most)
    assert len(shown) <= most
    if len(text) <= most:
        assert shown == text
    else:
        assert shown.endswith(MARK)
        assert text.startswith(shown.removesuffix(MARK))
        assert len(shown) >= most // 2
    assert cut(shown, most) == shown


@given(st.lists(st.text(st.sampled_from("abc ,"), max_size=60), max_size=40), LIMITS, st.sampled_from([". ", "。"]))
def test_the_last_whole_sentence_that_fits_is_the_end(sentences: list[str], most: int, end: str) -> None:
    """No sentence is broken as long as half of what fits can be kept."""
    text = "".join(f"{each.strip()}x{end}" for each in sentences)
    shown = cut(text, most)
    if len(text) > most:
        room = most - len(MARK)
        assert shown.removesuffix(MARK).endswith(end.strip())
        rest = text[len(shown) - len(MARK) : room]
        assert not re.search(r"\.\s|。", rest + (text[room] if end == ". " else ""))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("One sentence. " * 20, "One sentence. " * 6),
        ("word " * 60, "word " * 18 + "word"),
        ("巴黎是法国的首都。" * 30, "巴黎是法国的首都。" * 10),
        ("「巴黎。」" * 30, "「巴黎。」" * 18),
        ("x" * 300, "x" * 94),
        ("Short. " + "x" * 300, "Short. " + "x" * 87),
        ("a = 3.14159, " * 30, "a = 3.14159, " * 7 + "a ="),
    ],
    ids=["sentences", "words", "Chinese", "quotes", "neither", "a sentence too early", "numbers"],
)
def test_sentences_then_words_then_anywhere(text: str, shown: str) -> None:
    assert cut(text, 100) == shown.rstrip() + MARK


@pytest.fixture
def long_world() -> dict[str, Any]:
    """Flags of a question whose passages are usual, but for two of more than 12,000 characters."""
    passages = {"paris": SENTENCE * 230, "seine": SENTENCE * 225, "rome": "Rome lies on the Tiber."}
    passages["x"] = "x" * LONG_PASSAGE_CHARS
    write_passages(Path("corpus.jsonl"), ((each, each.title(), text) for each, text in passages.items()))
    asked = {"id": "q", "question": "Which river flows through Paris?", "golden_answers": ["Seine"]}
    write_rows(Path("q.jsonl"), [asked])
    return {"questions": "q.jsonl", "corpus": "corpus.jsonl", "model": "offline"}


OWN = ("--questions", "q.jsonl", "--corpus", "corpus.jsonl", "--model", "offline")
TOLD = (
    f"2 passages with more than {LONG_PASSAGE_CHARS:,} characters; the longest, paris, is about 3,104 tokens of English"
)


@pytest.mark.usefixtures("long_world")
def test_long_passages_are_told_when_they_are_indexed(reasonrag: Reasonrag) -> None:
    """By the command that builds the index, once, and also before an estimate, which is of what will be shown."""
    dry = ("generate", *OWN, "--run", "runs/dry", "--dry-run", "--json")
    built, whole, less = (
        reasonrag(*command)
        for command in (
            ("index", "build", "--corpus", "corpus.jsonl", "--out", "index"),
            dry,
            (*dry, "--max-passage-chars", 400),
        )
    )
    assert [each.err.count(TOLD) for each in (built, whole)] == [1, 1]
    tokens = [orjson.loads(each.out)["prompt_tokens"]["low"] for each in (whole, less)]
    assert tokens[1] < tokens[0] / 4


# -- what is shown ---------------------------------------------------------------------------------------------


def shown_passages(run: str) -> list[str]:
    [tree] = read_rollouts(Path(run, "rollouts.jsonl"))
    reads = [node.prompt[-1].content for node in tree.nodes if node.action == "read"]
    return [text for each in reads for text in re.findall(r"Wikipedia Title: .*?\n(.*?)\n\n", each, re.DOTALL)]


def decides(run: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(Path(run, "config.json").read_bytes())["decides_answers"]
    return found


def test_a_cut_is_part_of_a_run_and_its_absence_is_not(long_world: dict[str, Any]) -> None:
    """Runs made before there was a cut go on: their configuration is that of today without it."""
    package.generate(**long_world, run="runs/whole")
    package.generate(**long_world, run="runs/cut", max_passage_chars=200)
    assert max(map(len, shown_passages("runs/whole"))) == 12_419
    cut_texts = {each for each in shown_passages("runs/cut") if each.endswith(MARK)}
    assert cut_texts == {SENTENCE * 3 + "Paris is the capital of France." + MARK}
    assert decides("runs/cut") == {**decides("runs/whole"), "max_passage_chars": 200}
    for run, most, change in (("runs/cut", None, "was 200, is None"), ("runs/whole", 200, "was None, is 200")):
        with pytest.raises(InputError, match=f"max_passage_chars {change}"):
            package.generate(**long_world, run=run, max_passage_chars=most)
    with pytest.raises(InputError, match="must be at least 100"):
        package.generate(**long_world, run="runs/new", max_passage_chars=10)


def test_the_order_of_passages_is_part_of_a_run_where_the_best_is_not_first(long_world: dict[str, Any]) -> None:
    """Only the prompt shows the worst first; the record keeps the passages as they were found."""
    package.generate(**long_world, run="runs/a", top_k=3, max_passage_chars=200)
    package.generate(**long_world, run="runs/b", top_k=3, max_passage_chars=200, set="agent.passage_order=worst-first")
    package.generate(**long_world, run="runs/released", recipe="released", set={"search.simulations": 2})
    assert decides("runs/b") == {**decides("runs/a"), "passage_order": "worst-first"}
    assert decides("runs/released")["passage_order"] == "worst-first"
    for run, turned in (("runs/a", False), ("runs/b", True)):
        [tree] = read_rollouts(Path(run, "rollouts.jsonl"))
        for node in (each for each in tree.nodes if each.action == "read"):
            found = [each.title for each in node.passages or []]
            assert len(found) > 1
            shown = re.findall("Wikipedia Title: (.*)", node.prompt[-1].content)
            assert shown == (found[::-1] if turned else found)
    with pytest.raises(InputError, match="passage_order was 'worst-first', is None"):
        package.generate(**long_world, run="runs/b", top_k=3, max_passage_chars=200)


def says(request: ChatRequest, _: int) -> str:
    state = request.messages[-1].content
    if "Reference:" in state:
        return "<evidence>It has a Louvre.</evidence>"
    if "Previous Thoughts" in state:
        return "So the answer is <answer>Louvre</answer>"
    return "So the next query is <query>museum</query>"


@pytest.mark.parametrize(("most", "grounded"), [(None, True), (300, False)])
def test_what_stands_behind_the_cut_grounds_nothing(most: int | None, grounded: bool) -> None:
    """A retriever handed in is cut too, and an answer rests on what was shown."""
    shelf = Shelf([Passage("paris", "Paris", SENTENCE * 10 + "It has a Louvre.", 1.0)], identity="shelf of one")
    package.generate(chat_model=ScriptedModel(says), retriever=shelf, limit=1, run="runs/a", max_passage_chars=most)
    [tree] = read_rollouts(Path("runs/a/rollouts.jsonl"))
    answers = [node for node in tree.nodes if node.action_type == "answer"]
    assert {node.grounded for node in answers} == {grounded}


def test_a_cut_is_kept_from_the_run_to_the_evaluation(reasonrag: Reasonrag) -> None:
    """Pairs record it; what was trained on them is asked in the same way, or refused; calibrate takes the run's. Data
    of whole passages record no cut and object to one."""
    for name, flags in (("cut", ("--max-passage-chars", 120)), ("whole", ())):
        assert reasonrag("generate", "--limit", 6, "--run", f"runs/{name}", *flags).status == 0
        assert reasonrag("pairs", f"runs/{name}", "--out", f"data/{name}").status == 0
    lines = Path("data/cut/questions.jsonl").read_bytes().splitlines()
    assert {orjson.loads(each)["origin"]["max_passage_chars"] for each in lines} == {120}
    assert b"max_passage_chars" not in Path("data/whole/questions.jsonl").read_bytes()
    evaluate = ("evaluate", "--limit", 2, "--json", "--trained-on")
    for name, were in (("cut", "cut at 120 characters"), ("whole", "whole")):
        refused = reasonrag(*evaluate, f"data/{name}", "--run", "evals/a", "--max-passage-chars", 200)
        assert refused.status == 2
        objection = f"passages were {were} when its data were made, and are cut at 200 characters now"
        assert objection in refused.err
    assert not Path("evals").exists()
    same = reasonrag(*evaluate, "data/cut", "--run", "evals/a")
    assert "asking as it was trained: --max-passage-chars 120" in same.err.splitlines()
    report = orjson.loads(same.out)
    assert report["asked"]["max_passage_chars"] == 120
    assert {"name": "max_passage_chars", "outcome": "same", "message": ""} in report["checks"]
    allowed = reasonrag(*evaluate, "data/cut", "--run", "evals/b", "--allow", "max-passage-chars")
    assert "max_passage_chars" not in orjson.loads(allowed.out)["asked"]
    assert "that alone may explain a difference" in reasonrag("compare", "evals/a", "evals/b").err
    assert reasonrag(*evaluate, "data/whole", "--run", "evals/c").status == 0
    assert reasonrag("calibrate", "runs/cut", "--revalue", 4, "--k", 1).status == 0
