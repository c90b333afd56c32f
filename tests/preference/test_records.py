"""The rollout record: what a line holds, and how lines are read back or refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from preference import FinalScore, MalformedRolloutsError, RolloutNode, RolloutRecord, read_rollouts
from preference.candidate_records import QuestionRecord, StateRecord
from preference.records import FailedContinuation, ParseFailure, parse_rollout
from tests.helpers.trees import random_trees, tree


def node(node_id: int, parent_id: int | None = 0, children_ids: tuple[int, ...] = (), **fields: Any) -> RolloutNode:
    layer = None if parent_id is None else 0
    return RolloutNode.model_validate(
        {"id": node_id, "parent_id": parent_id, "children_ids": list(children_ids), "layer": layer} | fields
    )


def rollout(*nodes: RolloutNode, **fields: Any) -> RolloutRecord:
    of_none = tree([], [], question="Who?").model_dump()
    return RolloutRecord.model_validate(of_none | {"nodes": list(nodes)} | fields)


def as_json(record: RolloutRecord) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(record.to_line())
    return content


# -- round trips --------------------------------------------------------------------------------------------------

texts, numbers = st.text(max_size=12), st.none() | st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def random_records(draw: st.DrawFn) -> RolloutRecord:
    """Any tree, with any texts and numbers in its record and nodes, wherever their types allow them; but for a revision
    that is empty, which reads as none."""

    def redrawn(record: Any) -> Any:
        known = {name: each.annotation for name, each in type(record).model_fields.items() if name != "revision"}
        drawn: dict[Any, st.SearchStrategy[Any]] = {str: texts, str | None: st.none() | texts, float | None: numbers}
        return record.model_copy(update={name: draw(drawn[kind]) for name, kind in known.items() if kind in drawn})

    record = redrawn(draw(random_trees()))
    failed = draw(st.lists(st.builds(ParseFailure, cause=texts, detail=texts, repair=st.none() | texts), max_size=2))
    lost = [FailedContinuation(node_id=1, layer=0, action="read", response="", parse_error=each) for each in failed]
    return record.model_copy(update={"nodes": [*map(redrawn, record.nodes)], "failed_continuations": lost})


@given(record=random_records())
def test_a_record_read_back_from_its_line_is_the_same(record: RolloutRecord) -> None:
    """Every field survives the file, whatever text it holds; the line is one line and gives the same bytes again."""
    line = record.to_line()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    again = parse_rollout(line, where="line 1")
    assert again == record
    assert again.to_line() == line


def test_the_bytes_of_a_line_are_stable() -> None:
    """Fields stand in the order of their declaration, without spaces, in UTF-8: the same record, the same bytes."""
    record = rollout(node(0, None, (1,)), node(1, response="é\n", reward=0.1, visits=2))
    assert (
        record.to_line()
        == (
            '{"schema_version":"reasonrag.rollouts/1","question_id":"q1","question":"Who?",'
            '"golden_answers":["Ada Lovelace"],"rubric":null,"gold_passages":null,'
            '"dataset":"toy","split":"train","config_hash":"0f","seed":7,"renderer":null,'
            '"recipe":{"name":"paper","reward":null,"judge_sees_gold":null,"outcome":"f1","alpha":0.9,"margin_by_layer":true},'
            '"usage":{"calls":0,"requests":0,"prompt_tokens":0,"completion_tokens":0,"cached_tokens":0,"repairs":0,'
            '"judgements":0,"bounded_requests":0,"cached_calls":0,'
            '"cost_usd":null},"value_usage":null,'
            '"nodes":['
            '{"id":0,"parent_id":null,"children_ids":[1],"layer":null,"action":null,"prompt":null,"response":null,'
            '"action_type":null,"content":null,"passages":null,"terminal":false,"parse_error":null,"repaired":false,'
            '"f1":null,"em":null,"outcome":null,"grounded":null,"in_evidence":null,"gold":null,"sampled_by":null,'
            '"sampled_with":null,"sampled_temperature":null,"draws":1,"plain_draws":1,"same_as":null,'
            '"visits":0,"value":0.0,"reward":null,"rewards":{},"observations":null,"expected_outcome":null,'
            '"rollouts":[]},'
            '{"id":1,"parent_id":0,"children_ids":[],"layer":0,"action":null,"prompt":null,"response":"é\\n",'
            '"action_type":null,"content":null,"passages":null,"terminal":false,"parse_error":null,"repaired":false,'
            '"f1":null,"em":null,"outcome":null,"grounded":null,"in_evidence":null,"gold":null,"sampled_by":null,'
            '"sampled_with":null,"sampled_temperature":null,"draws":1,"plain_draws":1,"same_as":null,'
            '"visits":2,"value":0.0,"reward":0.1,"rewards":{},"observations":null,"expected_outcome":null,'
            '"rollouts":[]}],'
            '"failed_continuations":[],"unreadable_judgements":[],"error":null}\n'
        ).encode()
    )


# -- reading ------------------------------------------------------------------------------------------------------


def test_optional_fields_may_be_missing_and_those_of_later_versions_are_passed_over() -> None:
    """A node needs its place in the tree only; everything else has a default that says so."""
    record = rollout(node(0, None, (1,)), node(1))
    content = as_json(record) | {"weather": "fine", "usage": {"joules": 3}}
    place = ("id", "parent_id", "children_ids", "layer")
    content["nodes"] = [{key: each[key] for key in place} | {"mood": {"good": True}} for each in content["nodes"]]
    del content["failed_continuations"], content["error"]
    assert parse_rollout(json.dumps(content).encode(), where="line 1") == record


def changed(**changes: Any) -> bytes:
    return json.dumps(as_json(rollout(node(0, None, (1,)), node(1))) | changes).encode()


def without(field: str) -> bytes:
    content = as_json(rollout(node(0, None)))
    del content[field]
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"", "is not JSON"),
        (b'{"question_id": "q1", "ques', "is not JSON"),  # torn by a kill
        (b"[]", "is not a rollout record: record"),
        (without("question_id"), "is not a rollout record: question_id is missing"),
        (changed(schema_version="reasonrag.rollouts/2"), "is not a rollout record: schema_version"),
        (changed(nodes=[{"id": 0, "parent_id": None, "children_ids": []}]), "record: nodes.0.layer is missing"),
        (changed(recipe={"name": "paper", "alpha": 0, "margin_by_layer": True}), "record: recipe.alpha"),
        (without("schema_version"), "is not a rollout record: it has no schema_version"),
    ],
)
def test_a_line_that_is_no_record_is_refused_with_file_line_and_cause(
    line: bytes, complaint: str, tmp_path: Path
) -> None:
    """The message says which file, which line, and what is wrong with it."""
    path = tmp_path / "rollouts.jsonl"
    path.write_bytes(rollout(node(0, None)).to_line() + line + b"\n")
    with pytest.raises(MalformedRolloutsError, match=complaint) as caught:
        list(read_rollouts(path))
    assert str(caught.value).startswith(f"{path}, line 2 ")


@pytest.mark.parametrize(
    ("common", "complaint"),
    [
        ({"3": 0.5}, "node 2 has something in common with 3, no earlier sibling"),  # a sibling, but a later one
        ({"-1": 0.5}, "node 2 has something in common with -1, no earlier sibling"),
        ({"1": 1.5}, "nodes.2.in_common.1"),
        ([1], "nodes.2.in_common"),
    ],
)
def test_what_no_two_siblings_can_have_in_common_is_refused(common: object, complaint: str, tmp_path: Path) -> None:
    """With file and line; and so is what steps of two states share. What fits is read as it was written, and holds for
    both."""
    good = rollout(node(0, None, (1, 2, 3)), node(1), node(2, in_common={1: 0.5}), node(3, same_as=2))
    path = tmp_path / "rollouts.jsonl"
    content = json.loads(good.to_line())
    assert "in_common" not in content["nodes"][1]
    content["nodes"][2]["in_common"] = common
    path.write_bytes(good.to_line() + json.dumps(content).encode() + b"\n")
    records = read_rollouts(path)
    assert next(records).common_findings == [{}, {2: 0.5}, {1: 0.5}, {1: 0.5}]
    with pytest.raises(MalformedRolloutsError, match=re.escape(complaint)) as caught:
        next(records)
    assert str(caught.value).startswith(f"{path}, line 2 ")
    with pytest.raises(ValidationError, match="node 2 has something in common with 1, no earlier sibling"):
        rollout(node(0, None, (1,)), node(1, 0, (2,)), node(2, 1, layer=1, in_common={1: 0.5}))


@pytest.mark.parametrize(
    ("nodes", "complaint"),
    [
        ([node(1, None)], "node 0 has id 1"),
        ([node(0, None, (2, 1)), node(2), node(1)], "node 1 has id 2"),
        ([node(0, None, (1,))], r"node 0 lists the children \[1\], its children are \[\]"),
        ([node(0, None, (1,)), node(1, 0, (1,))], "node 1 lists the children"),
        ([node(0, None, layer=0)], "node 0 is the root, but has parent None and layer 0"),
        ([node(0, None, (1,)), node(1, None)], "node 1 has parent None, which is not an earlier node"),
        ([node(0, None, (1,)), node(1, 1)], "node 1 has parent 1, which is not an earlier node"),
        ([node(0, None, (1,)), node(1, layer=3)], "node 1 has layer 3, below node 0 it is 0"),
        (
            [node(0, None, (1,)), node(1, 0, (2,), terminal=True), node(2, 1, layer=1)],
            "node 2 continues node 1, which is terminal",
        ),
    ],
)
def test_nodes_that_are_no_tree_are_refused(nodes: list[RolloutNode], complaint: str) -> None:
    """Nodes stand in order of their ids and after their parents, both sides of an edge agree, layers count edges."""
    with pytest.raises(ValidationError, match=complaint):
        rollout(*nodes)


# -- ends ---------------------------------------------------------------------------------------------------------

RIGHT, WRONG = FinalScore(f1=1.0, em=1.0, steps=2), FinalScore(f1=0.0, em=0.0, steps=2)


def with_query(*query_ends: FinalScore, plain_draws: int, at_root: tuple[FinalScore, ...]) -> RolloutRecord:
    """A query below the root, and the ends that each of both knows."""
    return rollout(
        node(0, None, (1,), rollouts=at_root), node(1, rollouts=query_ends, draws=2, plain_draws=plain_draws)
    )


@pytest.mark.parametrize(
    ("record", "found"),
    [
        (with_query(RIGHT, WRONG, plain_draws=2, at_root=(RIGHT, WRONG)), [RIGHT, WRONG]),
        (with_query(WRONG, WRONG, plain_draws=1, at_root=(WRONG, WRONG, WRONG)), [WRONG, WRONG, WRONG]),
        (with_query(RIGHT, WRONG, plain_draws=0, at_root=()), [RIGHT, WRONG]),
        (with_query(WRONG, plain_draws=0, at_root=(WRONG,)), [WRONG, WRONG]),
        # seen below the query before it was drawn plainly
        (with_query(RIGHT, WRONG, plain_draws=1, at_root=(WRONG,)), [RIGHT, WRONG]),
        (rollout(), []),
    ],
)
def test_the_ends_of_a_tree_are_those_of_all_continuations_each_once(
    record: RolloutRecord, found: list[FinalScore]
) -> None:
    """Whether they count for the root or only for a step that was no plain sample."""
    assert sorted(record.ends, key=lambda end: -end.f1) == found


@pytest.mark.parametrize("kind", [RolloutRecord, RolloutNode, StateRecord, QuestionRecord])
def test_a_list_of_wrong_items_is_refused_for_the_first(kind: type[BaseModel]) -> None:
    """A line of 5 MB took 6 GB and half a minute for the errors of all."""

    def errors(items: int) -> int:
        with pytest.raises(ValidationError) as error:
            kind.model_validate({name: [None] * items for name in kind.model_fields})
        return error.value.error_count()

    assert errors(1000) == errors(1)
