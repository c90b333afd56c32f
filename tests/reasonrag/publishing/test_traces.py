"""Attempts as sessions for the Hub's trace viewer, held to the Hub's description of its Session Trace Simple Format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from preference.answer_scores import label_em
from preference.candidate_records import QuestionRecord, read_lines
from reasonrag.publishing import traces
from tests.helpers.command_line import Done, Reasonrag

ALLOWED = ("--allow-eval", "all", "--allow", "no_contamination_check")
KEY = "AKIA" + "ABCD2345" * 2
HEADER = {"type", "harness", "id", "name"}
MESSAGE = {"role", "content", "toolCalls", "toolCallId"}
"""Of the fields that the description names; a header may have others beside them."""


def made(reasonrag: Reasonrag, agent: str) -> None:
    """Ten trees of an agent, and their audited data set."""
    for words in (
        ("generate", "--dataset", "atlas", "--limit", 10, "--agent", agent, "--run", "runs/a"),
        ("pairs", "runs/a", "--out", "data/a"),
        ("audit", "data/a"),
    ):
        assert reasonrag(*words).status in (0, 1)


def published(reasonrag: Reasonrag, *flags: str) -> Done:
    done = reasonrag(
        *("publish", "data/a", "--repo", "org/a", "--with-trees", "runs/a", "--dry-run", "--json"), *ALLOWED, *flags
    )
    assert done.status == 0, done.err
    return done


def sessions(side: str) -> dict[str, list[dict[str, Any]]]:
    """The lines of each session of a side, by the id of its question."""
    found = {}
    for path in sorted(Path("data/a/publish/traces/a", side).iterdir()):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        found[lines[0]["question_id"]] = lines
    return found


def answer_in(lines: list[dict[str, Any]]) -> str:
    return str(lines[-1]["message"]["content"]).rpartition("<answer>")[2].partition("</answer>")[0]


@pytest.mark.parametrize("agent", ["reasonrag", "tools"])
def test_a_session_is_a_header_and_messages_in_turn(agent: str, reasonrag: Reasonrag) -> None:
    """System, user, then calls, each with its result, and an answer; the best attempt is right where any is, and the
    worst is another."""
    made(reasonrag, agent)
    told = json.loads(published(reasonrag).out)
    best, worst = sessions("best"), sessions("worst")
    assert best.keys() == worst.keys()
    assert told["traces"] == 2 * len(best)
    few = f"a has traces of {len(best)} of 10 questions: others ended alike"
    assert any(few in each for each in told["warnings"]) == (len(best) < 10)
    every = [*best.values(), *worst.values()]
    assert len({lines[0]["id"] for lines in every}) == len(every)
    for header, *turns in every:
        assert (header["type"], header["harness"], header["name"]) == ("session", "reasonrag", header["question"])
        assert header.keys() >= HEADER
        assert {each["type"] for each in turns} == {"message"}
        messages = [each["message"] for each in turns]
        assert all(each.keys() <= MESSAGE and isinstance(each["content"], str) for each in messages)
        system, user, *steps, last = messages
        assert (system["role"], user["role"], last["role"], "toolCalls" in last) == (
            *("system", "user", "assistant"),
            False,
        )
        for call, result in zip(steps[::2], steps[1::2], strict=True):
            assert (call["role"], result["role"]) == ("assistant", "tool")
            [asked] = call["toolCalls"]
            assert result["toolCallId"] == asked["id"]
            assert asked["function"]["name"] == "search"
            assert json.loads(asked["function"]["arguments"])["query"]
    for question in read_lines(Path("data/a/questions.jsonl"), QuestionRecord):
        if question.path and question.question_id in best:
            assert label_em(answer_in(best[question.question_id]), question.golden_answers)
            assert best[question.question_id][1:] != worst[question.question_id][1:]


def test_an_agent_whose_turns_are_no_conversation_has_no_traces(reasonrag: Reasonrag) -> None:
    """That is said; its trees go up all the same."""
    made(reasonrag, "react")
    told = json.loads(published(reasonrag).out)
    assert told["traces"] == 0
    assert "a has no traces: turns of the agent react are no conversation with a tool" in told["warnings"]
    assert Path("data/a/publish/trees/a/rollouts.jsonl.gz").is_file()
    assert not Path("data/a/publish/traces").exists()
    assert "traces" not in Path("data/a/publish/README.md").read_text()


def test_no_key_gets_out_and_a_run_gives_a_bounded_number(
    reasonrag: Reasonrag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key behind a line break, in a query too, where JSON within JSON would hide its start."""
    made(reasonrag, "reasonrag")
    trees = Path("runs/a/rollouts.jsonl")
    trees.write_bytes(trees.read_bytes().replace(b"<query>", b"<query>a\\n%s " % KEY.encode()))
    trees.write_bytes(
        trees.read_bytes().replace(
            b'"action_type":"query","content":"', b'"action_type":"query","content":"a\\n%s ' % KEY.encode()
        )
    )
    monkeypatch.setattr(traces, "MOST", 3)
    told = json.loads(published(reasonrag, "--allow", "secrets").out)
    assert told["traces"] == 6
    assert "a has traces of 3 of its first 3 questions; no run has more" in told["warnings"]
    texts = [path.read_text() for path in Path("data/a/publish/traces").rglob("*.jsonl")]
    assert not [each for each in texts if KEY in each]
    assert [each for each in texts if "a\\\\n[secret] " in each]
