"""Labels by a judge: who is shown what, what a pick makes of a state, and that nothing is paid for twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reasonrag
from preference import PairSummary, StateRecord, read_rollouts
from preference.candidate_records import read_lines
from preference.labelling import distinct_steps
from reasonrag.agent.parsing import parse_pick
from reasonrag.errors import ModelError
from reasonrag.llm.chat import ChatRequest
from tests.endpoints.weak_teacher import WeakTeacher
from tests.helpers.command_line import Reasonrag
from tests.helpers.scripted_model import ScriptedModel


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six questions."""
    home = tmp_path_factory.mktemp("run")
    reasonrag.generate(dataset="atlas", chat_model=WeakTeacher(), limit=6, run=home / "run")
    return home / "run"


@pytest.fixture(scope="module")
def twin(run: Path) -> Path:
    """The same trees by another seed."""
    records = [record.model_copy(update={"seed": 99}) for record in read_rollouts(run / "rollouts.jsonl")]
    (run.parent / "another.jsonl").write_bytes(b"".join(record.to_line() for record in records))
    return run.parent / "another.jsonl"


def judged(run: Path, out: Path, script: Any, **flags: Any) -> tuple[PairSummary, ScriptedModel]:
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    return reasonrag.pairs(run, out=out, label="judge", chat_model=model, **flags), model


def always(reply: str) -> Callable[[ChatRequest, int], str]:
    return lambda _request, _position: reply


def states(out: Path) -> list[StateRecord]:
    return list(read_lines(out / "candidates.jsonl", StateRecord))


def test_prorags_tree_by_its_agent_is_labelled_in_a_rehearsal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The offline judge reads the agent's tags; search and reading are a step each, so the longest path has ten."""
    monkeypatch.chdir(tmp_path)
    small = {"search.simulations": 20}
    run = reasonrag.generate(dataset="atlas", limit=3, recipe="prorag", agent="prorag", set=small, run="run").run
    made = [*read_rollouts(tmp_path / run / "rollouts.jsonl")]
    assert max(end.steps for each in made for end in each.ends) <= 10
    assert all(node.action != "conclude" for each in made for node in each.nodes)
    assert reasonrag.pairs(run, out="data", label="judge", model="offline").pairs > 0


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Because. So the pick is <pick>2 1</pick>", (2, 1)),
        ("So the pick is <pick>3, 1", (3, 1)),
        ("So the pick is <PICK> None </PICK>", "none"),
        ("<pick>1 1</pick>", None),
        ("<pick>4 1</pick>", None),
        ("<pick>0 1</pick>", None),
        ("<pick>1</pick>", None),
        ("<pick>1 2 3</pick>", None),
        ("<pick>-1 2</pick>", None),
        ("2 is better than 1", None),
    ],
)
def test_a_pick_is_two_different_numbers_or_none(reply: str, expected: object) -> None:
    """Anything else cannot be read; a closing tag that the endpoint dropped is not missed."""
    assert parse_pick(reply, "stopped", candidates=3) == expected


def test_a_pick_is_the_only_label_of_its_state(run: Path, tmp_path: Path) -> None:
    """In every state in which different things were said one pair is the judge's, the others have no label. A judge
    that contradicts the values gives pairs with margins below 0; agreement counts them."""
    summary, model = judged(run, tmp_path, always("So the pick is <pick>1 2</pick>"))
    for state in states(tmp_path):
        labelled = [pair for pair in state.pairs if pair.label == "judge"]
        assert len(labelled) == (len(distinct_steps(state)) > 1)
        assert all(pair.label is None for pair in state.pairs if pair not in labelled)
        assert all(pair.confidence is None and "efficiency_only" not in pair.tags for pair in labelled)
    assert summary.judging["picked"] == summary.judging["states"] == len(model.requests) > 0
    assert summary.pairs_by_label == {"judge": summary.pairs}
    margins = [pair.margin or 0.0 for state in states(tmp_path) for pair in state.pairs if pair.label == "judge"]
    agrees = summary.judging["agrees_with_values"]
    assert agrees["of"] == sum(abs(each) > 1e-9 for each in margins) > 0
    assert agrees["share"] == sum(each > 1e-9 for each in margins) / agrees["of"]
    assert min(margins) < 0 < max(margins)


def test_the_better_one_is_the_one_that_the_judge_names_first(run: Path, tmp_path: Path) -> None:
    """The numbers are those of the order that was shown, which is not the order of creation."""
    _, model = judged(run, tmp_path, always("<pick>2 1</pick>"))
    asked = [request.messages[-1].content for request in model.requests]
    shown = {each: [line for line in each.splitlines() if line.startswith("Candidate ")] for each in asked}
    in_order = 0
    for state in states(tmp_path):
        for pair in state.pairs:
            if pair.label == "judge":
                steps = {step.id: " ".join(step.response.split()) for step in state.steps}
                first, second = next(
                    lines[:2]
                    for lines in shown.values()
                    if {f"Candidate 1: {steps[pair.rejected]}", f"Candidate 2: {steps[pair.chosen]}"} <= set(lines)
                )
                assert (first, second) == (f"Candidate 1: {steps[pair.rejected]}", f"Candidate 2: {steps[pair.chosen]}")
                in_order += pair.rejected < pair.chosen
    assert 0 < in_order < len(model.requests)


def test_what_cannot_be_read_after_its_repair_is_no_label(run: Path, tmp_path: Path) -> None:
    """Asked once more, then counted, and kept with the reply; never a guess."""
    summary, model = judged(run, tmp_path, always("I like the second."))
    assert (summary.pairs, summary.judging["unreadable"]) == (0, summary.judging["states"])
    assert {reason for reason, count in summary.dropped.items() if count} <= {
        *("not_picked", "same_content", "malformed"),
    }
    assert len(model.requests) == 2 * summary.judging["states"] == summary.judging["calls"]
    lines = [json.loads(line) for line in (tmp_path / "judging" / "failures.jsonl").read_text().splitlines()]
    assert {line["kind"] for line in lines} == {"judgement"}
    assert lines[0]["message"] == "I like the second."


def test_golden_answers_are_shown_only_if_that_is_asked_for(run: Path, tmp_path: Path) -> None:
    """No line of a prompt says the correct answer, unless --judge-gold. What a step says can neither begin a line of
    ours nor close our tags."""
    summary, blind = judged(run, tmp_path / "blind", always("They are alike. So the pick is <pick>none</pick>"))
    assert (summary.pairs, summary.judging["none"]) == (0, summary.judging["states"])
    _, seeing = judged(run, tmp_path / "seeing", always("<pick>none</pick>"), judge_gold=True)
    assert any("Correct answer:" in request.messages[-1].content for request in seeing.requests)
    for request in blind.requests:
        system, user = request.messages
        assert "<pick>" in system.content
        assert not {word for word in ("<pick>", "Correct answer:") if word in user.content}
        names = [line.partition(":")[0] for line in user.content.splitlines()]
        numbered = [name for name in names if name.startswith("Candidate ")]
        assert names[0] == "Question"
        assert numbered == [f"Candidate {number}" for number in range(1, len(numbered) + 1)]
        assert set(names) <= {"Question", "Reasoning", *numbered}


def test_a_second_judging_asks_nothing(run: Path, tmp_path: Path) -> None:
    """Answers are in the journal below the data set; another filter, another format, the same labels."""
    first, _ = judged(run, tmp_path, always("<pick>1 2</pick>"))
    before = (tmp_path / "candidates.jsonl").read_bytes()
    again, silent = judged(run, tmp_path, always("<pick>2 1</pick>"), max_per_state=1, format=["kto"])
    assert not silent.requests
    assert (tmp_path / "candidates.jsonl").read_bytes() == before
    assert (first.judging["session_calls"], again.judging["session_calls"]) == (first.judging["calls"], 0)
    from_data = reasonrag.pairs(tmp_path, out=tmp_path / "elsewhere")
    assert from_data.pairs_by_label == {"judge": first.pairs}


def test_a_data_set_that_is_filtered_anew_still_says_who_judged_it(run: Path, tmp_path: Path) -> None:
    """In place, elsewhere and merged; what several judges said has no single summary, and that is said. Of labels that
    are gone no judge is named."""
    first, _ = judged(run, tmp_path / "a", always("<pick>1 2</pick>"))
    for sources, out in (([tmp_path / "a"], "a"), ([tmp_path / "a"], "b"), ([tmp_path / "b", run], "c")):
        again = reasonrag.pairs(sources, out=tmp_path / out, min_margin=0.1)
        assert again.judging == first.judging | {"session_calls": 0}
    judged(run, tmp_path / "d", always("<pick>2 1</pick>"))
    both = reasonrag.pairs([tmp_path / "a", tmp_path / "d"], out=tmp_path / "e")
    assert both.judging == {}
    assert any("several judges" in warning for warning in both.warnings)
    candidates = tmp_path / "d" / "candidates.jsonl"
    candidates.write_text("".join(f"{json.dumps(each.model_dump())}\n" for each in states(tmp_path / "d")))
    assert reasonrag.pairs(tmp_path / "d", out=tmp_path / "e").judging == {}, "written by another program"
    reasonrag.pairs(run, out=tmp_path / "a")
    assert reasonrag.pairs(tmp_path / "a", out=tmp_path / "a").judging == {}


def test_a_state_that_two_runs_share_is_judged_once(run: Path, twin: Path, tmp_path: Path) -> None:
    """What would be the same question to the judge is one question."""
    one, _ = judged(run, tmp_path / "one", always("<pick>1 2</pick>"))
    both, model = judged([run, twin], tmp_path / "both", always("<pick>1 2</pick>"))
    assert both.judging["states"] == 2 * one.judging["states"]
    assert len(model.requests) == one.judging["states"]
    assert both.pairs == one.pairs
    assert both.dropped["duplicate"] == one.pairs + one.dropped["style_only_cap"]  # caps come last


def test_a_cap_leaves_the_data_set_and_keeps_the_answers(run: Path, tmp_path: Path, reasonrag: Reasonrag) -> None:
    """The labels are written when all judgements are there; what was answered is not asked again. Exit status 3, and a
    command with a cap that has room."""
    flags = ("--out", tmp_path, "--label", "judge", "--model", "offline")
    assert reasonrag("pairs", run, "--out", tmp_path).status == 0
    stopped = reasonrag("pairs", run, *flags, "--max-calls", "5", "--concurrency", "1")
    assert stopped.status == 3
    assert "continue with: reasonrag pairs" in stopped.err
    assert all(pair.label == "value" for state in states(tmp_path) for pair in state.pairs)
    judging = json.loads(reasonrag("pairs", run, *flags, "--json").out)["judging"]
    assert judging["calls"] == judging["session_calls"] + 5


def test_a_state_that_gets_no_judgement_is_given_up_alone(run: Path, tmp_path: Path) -> None:
    """Counted and written down with its cause; the others are labelled, and the next command asks for it again."""

    def fails_first(request: ChatRequest, _position: int) -> str:
        if not asked:
            asked.append(request)
            raise ModelError("refused", cause="http_400")
        return "<pick>1 2</pick>"

    asked: list[ChatRequest] = []
    summary, _ = judged(run, tmp_path, fails_first)
    assert (summary.judging["given_up"], summary.judging["unreadable"]) == (1, 0)
    assert summary.judging["picked"] == summary.judging["states"] - 1
    [line] = [json.loads(each) for each in (tmp_path / "judging" / "failures.jsonl").read_text().splitlines()]
    assert (line["kind"], line["cause"]) == ("state", "http_400")
    again, model = judged(run, tmp_path, always("<pick>1 2</pick>"))
    assert (again.judging["given_up"], len(model.requests)) == (0, 1)
