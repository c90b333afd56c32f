"""Published trees and rows: what they mean here, what is repaired, what is given up, and that nothing crashes."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference import NO_FILTERS, ExportOptions, PairingRules, RolloutRecord, export_pairs
from preference.candidate_records import question_key
from preference.filters import AS_PUBLISHED
from preference.labelled_runs import write_candidates
from preference.published.repairs import (
    REFUSALS,
    REPAIRS,
    ImportRules,
    KnownQuestion,
    Notes,
    Unusable,
    read_prompt,
    read_reply,
)
from preference.published.rows import PublishedRowReader
from preference.published.trees import read_tree
from preference.records import parse_rollout
from tests.helpers.published_rows import published_row as row_of

QUESTION = "Which river flows through the capital of France?"
SYSTEM = "Answer, or search.\nSay <answer>..</answer> or <query>..</query>.\n"
FIELDS = 10
NOTHING_KNOWN = ImportRules()
PUBLISHED_RULE = replace(NO_FILTERS, min_margin=0.01, allow_malformed=True)

Json = dict[str, Any]


def chat(user: str, system: str = SYSTEM) -> list[Json]:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def published_node(node_id: int, parent: int, children: list[int], step: int, response: str, **more: Any) -> Json:
    return {
        "action_name": "reasoning",
        "input_prompt": chat(f"Question: {QUESTION}"),
        "response": response,
        "id": node_id,
        "parent_id": parent,
        "children_ids": children,
        "Q": 0.5,
        "N": 4,
        "step": step,
    } | more


THOUGHT = "So the next query is <query>capital of France</query>"


def published_tree() -> Json:
    """A direct wrong answer; a query, two readings of it, and an answer after each."""
    after = f"Question: {QUESTION}\nPrevious Thoughts: {THOUGHT}"
    passages = [
        {"id": "7", "title": "", "contents": '"Rome"\nRome lies on the Tiber.', "score": 0.2},
        {"id": 9, "title": "", "contents": '"Paris ""city"""\nParis lies on the Seine.', "score": 0.8},
    ]
    read = {
        "action_name": "document_analysis",
        "input_prompt": chat(f"{after}. Reference: <reference>Wikipedia Title: Paris\nParis..</reference>", "Read."),
        "query": "capital of France",
        "retrieval_result": passages,
    }
    seine, nothing = "<evidence>Paris lies on the Seine.</evidence>.", "<evidence>None</evidence>."
    nodes = [
        {"Q": 0.4, "N": 16, "step": 0, "parent_id": -1, "children_ids": [1, 2]},
        published_node(
            1, 0, [], 1, "So the answer is <answer>Rhine</answer>", answer="Rhine", next_query=None, N=4
        )
        | {"action_name": "begin_reasoning"},
        published_node(2, 0, [3, 4], 1, THOUGHT, answer=None, next_query="capital of France", N=12)
        | {"action_name": "begin_reasoning"},
        published_node(3, 2, [5], 2, seine, N=9) | read,
        published_node(4, 2, [6], 2, nothing, N=3) | read,
        published_node(
            5, 3, [], 3, "<answer>the Seine river</answer>", answer="the Seine river", next_query=None, N=9,
            input_prompt=chat(f"{after} {seine}"),
        ),
        published_node(
            6, 4, [], 3, "<answer>Loire</answer>", answer="Loire", next_query=None, N=3,
            input_prompt=chat(f"{after} {nothing}"),
        ),
    ]  # fmt: skip
    output = {f"intermediate_node_{i}": node for i, node in enumerate(nodes)} | {"metric_score": {"f1": 1.0}}
    return {"id": "dev_7", "question": QUESTION, "golden_answers": ["Seine"], "output": output}


def nodes_of(tree: Json) -> Json:
    found: Json = tree["output"]
    return found


def read(tree: object, rules: ImportRules = NOTHING_KNOWN) -> tuple[RolloutRecord, dict[str, int]]:
    """The record, and how often each repair was made."""
    note = Notes("file.json:1")
    record = read_tree(tree, rules, note, revision="f00")
    return record, Counter(name for name, _ in note.found)


def exported(records: list[RolloutRecord], rules: PairingRules) -> list[Json]:
    """The rows that `pairs` makes of the records."""
    with tempfile.TemporaryDirectory() as place:
        write_candidates(records, Path(place))
        export_pairs(Path(place), Path(place), rules, ExportOptions(validation=0.0))
        rows: list[Json] = json.loads((Path(place) / "RAG_ProGuide.json").read_bytes())
        return rows


def ten_fields(rows: list[Json]) -> list[Json]:
    return [dict(list(row.items())[:FIELDS]) for row in rows]


# -- trees that are whole --------------------------------------------------------------------------------------


def test_a_whole_tree_needs_no_repair() -> None:
    """Its nodes become steps: action, type, content, visits and what the search thought are the file's; data set and
    split are the caller's."""
    record, repairs = read(published_tree() | {"dataset": "mine", "split": "train"})
    assert repairs == {}
    assert (record.question_id, record.question, record.golden_answers) == ("dev_7", QUESTION, ["Seine"])
    assert (record.dataset, record.split, record.revision) == ("unknown", "unknown", "f00")
    assert [(node.action, node.action_type, node.content) for node in record.nodes[1:]] == [
        ("think", "answer", "Rhine"),
        ("think", "query", "capital of France"),
        ("read", "evidence", "Paris lies on the Seine."),
        ("read", "evidence", "None"),
        ("think", "answer", "the Seine river"),
        ("think", "answer", "Loire"),
    ]
    assert [node.visits for node in record.nodes] == [16, 4, 12, 9, 3, 9, 3]
    assert [node.layer for node in record.nodes] == [None, 0, 0, 1, 1, 2, 2]
    assert [node.terminal for node in record.nodes] == [False, True, False, False, False, True, True]
    assert {node.value for node in record.nodes} == {0.4, 0.5}


def test_the_papers_rewards_stand_beside_them() -> None:
    """Means over the answers below: visits do not count, and F1 is SQuAD's, which leaves articles out: 2 * 1/2 /
    (1/2 + 1) = 2/3. There are none where no golden answer is known."""
    tree, leaf = published_tree(), 2 / 3 * 0.9**3
    record, _ = read(tree)
    assert [node.rewards["spre"] for node in record.nodes] == pytest.approx([leaf / 3, 0, leaf / 2, leaf, 0, leaf, 0])
    assert record.nodes[2].observations == 2
    assert [end.steps for end in record.nodes[0].rollouts] == [1, 3, 3]
    tree["golden_answers"] = None
    unknown, _ = read(tree)
    assert [node.reward for node in unknown.nodes] == [None] * 7


def test_passages_are_named_and_best_first() -> None:
    """The pipeline keeps them worst first, and titles in quotes in the first line of the contents."""
    record, _ = read(published_tree())
    assert [each.model_dump() for each in record.nodes[3].passages or ()] == [
        {"id": "9", "title": 'Paris "city"', "score": 0.8},
        {"id": "7", "title": "Rome", "score": 0.2},
    ]
    tree = published_tree()
    nodes_of(tree)["intermediate_node_3"]["retrieval_result"] = [{"title": "Paris"}]
    assert read(tree)[0].nodes[3].passages is None


# -- trees that are not ----------------------------------------------------------------------------------------


def set_in(node: int, **fields: Any) -> Callable[[Json], None]:
    return lambda tree: nodes_of(tree)[f"intermediate_node_{node}"].update(fields)


def take_out(node: int, *fields: str) -> Callable[[Json], None]:
    return lambda tree: [nodes_of(tree)[f"intermediate_node_{node}"].pop(each) for each in fields] and None


def leave_out(*nodes: int) -> Callable[[Json], None]:
    return lambda tree: [nodes_of(tree).pop(f"intermediate_node_{each}") for each in nodes] and None


def top(**fields: Any) -> Callable[[Json], None]:
    return lambda tree: tree.update(fields)


def header(role: str) -> str:
    return f"<|start_header_id|>{role}<|end_header_id|>\n\n"


def rendered(tree: Json) -> None:
    dates = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
    for node in nodes_of(tree).values():
        if prompt := node.get("input_prompt"):
            system, user = (turn["content"] for turn in prompt)
            node["input_prompt"] = (
                f"<|begin_of_text|>{header('system')}{dates}{system}<|eot_id|>"
                f"{header('user')}{user}<|eot_id|>{header('assistant')}"
            )


forced = set_in(5, action_name="answer_generation", answer=None, pred="the Seine river")
answered = set_in(2, response="<answer>x</answer>", answer="x", next_query=None)

REPAIRED: list[tuple[str, Callable[[Json], None], dict[str, int]]] = [
    ("a child that is not there", set_in(1, children_ids=[12]), {"dangling_child": 1}),
    ("a leaf cut away", leave_out(6), {"dangling_child": 1}),
    ("a node cut away before another", leave_out(4, 6), {"dangling_child": 1, "renumbered": 1}),
    ("an action that lies", set_in(5, action_name="document_analysis"), {}),
    ("an answer only in the tag", set_in(5, answer=None), {"content_from_tag": 1}),
    ("a query only in the tag", set_in(2, next_query=None), {"content_from_tag": 1}),
    ("a forced answer", forced, {}),
    ("a tag that stays open", set_in(3, response="<evidence>Paris lies on"), {"no_tag": 1}),
    ("two tags", set_in(5, response="<query>who?</query> <answer>the Seine river</answer>"), {"mixed_tags": 1}),
    ("nothing in the tag", set_in(5, response="<answer> </answer>", answer=""), {"empty_content": 1}),
    ("an empty reply", set_in(3, response=" "), {"empty_content": 1}),
    ("an answer that went on", answered, {"answer_went_on": 1}),
    ("prompts in a template", rendered, {"template_cut": 6, "template_preamble": 6}),
]
WHOLE_AGAIN = {"a child that is not there", "an answer only in the tag", "a forced answer", "prompts in a template"}
"""Repairs that bring everything back."""


@pytest.mark.parametrize(("what", "spoil", "expected"), REPAIRED, ids=[each[0] for each in REPAIRED])
def test_what_can_be_repaired_is_and_is_counted(
    what: str, spoil: Callable[[Json], None], expected: dict[str, int]
) -> None:
    """A tree with one fault has exactly the repairs of that fault, and is exported without complaint."""
    tree = published_tree()
    spoil(tree)
    record, repairs = read(tree)
    assert repairs == expected, what
    assert repairs.keys() <= REPAIRS.keys()
    assert exported([record], PUBLISHED_RULE) is not None
    if what in WHOLE_AGAIN:
        whole, _ = read(published_tree())
        assert [node.reward for node in record.nodes] == [node.reward for node in whole.nodes]
        assert [node.content for node in record.nodes] == [node.content for node in whole.nodes]


def test_a_reply_without_a_tag_ends_where_the_file_says_so() -> None:
    """It counts for what is above it, but is malformed itself, so that it makes no pair by default."""
    tree = published_tree()
    set_in(1, response="The Seine, surely.", answer="Seine")(tree)
    record, repairs = read(tree)
    assert repairs == {"no_tag": 1}
    assert (record.nodes[1].terminal, record.nodes[1].reward) == (True, 0.9)
    assert record.nodes[1].parse_error
    assert record.nodes[1].parse_error.cause == "no_tag"
    assert [row["layer"] for row in exported([record], NO_FILTERS)] == [1]


def circle(tree: Json) -> None:
    """Two nodes are each other's parents."""
    set_in(0, children_ids=[1])(tree)
    set_in(2, parent_id=3)(tree)
    set_in(3, children_ids=[5, 2])(tree)


def lone(tree: Json) -> None:
    tree["output"] = {"intermediate_node_0": nodes_of(tree)["intermediate_node_0"]}


REFUSED: list[tuple[str, Callable[[Json], None]]] = [
    ("no_tree", top(output=None, error="CUDA out of memory")),
    ("no_tree", top(output={"metric_score": {"f1": 1}})),
    ("broken_tree", leave_out(0)),
    ("broken_tree", lambda tree: nodes_of(tree).update(intermediate_node_01=nodes_of(tree)["intermediate_node_1"])),
    ("broken_tree", circle),
    ("broken_tree", set_in(1, children_ids=["x", None])),
    ("broken_tree", set_in(2, children_ids=[3, 4, 3])),
    ("broken_tree", set_in(5, children_ids=[0])),
    ("broken_tree", take_out(5, "parent_id")),
    ("broken_tree", set_in(5, id=50)),
    ("broken_tree", leave_out(4)),
    ("broken_tree", lambda tree: nodes_of(tree).update(intermediate_node_6=None)),
    ("broken_tree", set_in(5, step=9)),
    ("broken_tree", take_out(4, "response")),
    ("broken_tree", set_in(5, N=-3)),
    ("broken_tree", set_in(5, Q=None)),
    ("broken_tree", lone),
    ("unreadable_prompt", set_in(1, input_prompt="[INST] Who? [/INST]")),
    ("other_question", top(question="Who was Ada?")),
    ("golden_answers", top(golden_answers="Seine")),
    ("no_question", top(question=None)),
]


@pytest.mark.parametrize(("cause", "spoil"), REFUSED)
def test_what_cannot_be_repaired_is_refused_with_its_cause(cause: str, spoil: Callable[[Json], None]) -> None:
    tree = published_tree()
    spoil(tree)
    with pytest.raises(Unusable) as refused:
        read_tree(tree, NOTHING_KNOWN, Notes("file.json:1"), revision="f00")
    assert refused.value.cause == cause
    assert cause in REFUSALS


def test_golden_answers_and_names_come_from_a_question_file() -> None:
    """Where the tree does not say them: those that it says are not replaced."""
    known = {question_key(QUESTION): KnownQuestion("train_3", ["Seine"], "hotpotqa", "train")}
    tree = published_tree()
    del tree["golden_answers"], tree["id"]
    record, repairs = read(tree, replace(NOTHING_KNOWN, questions=known))
    assert repairs == {"golden_answers_joined": 1}
    assert (record.question_id, record.dataset, record.split) == ("train_3", "hotpotqa", "train")
    assert record.nodes[5].reward == pytest.approx(0.5 * 0.9**3)
    named, _ = read(published_tree(), replace(NOTHING_KNOWN, questions=known))
    assert (named.question_id, named.split) == ("dev_7", "train")


# -- laws ------------------------------------------------------------------------------------------------------

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 20) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 12), JUNK | st.just("delete")), max_size=6))
def test_no_tree_however_broken_is_a_crash(changes: list[tuple[int, int, Any]]) -> None:
    """It is refused with a cause, or becomes a line that reads back and can be exported."""
    tree = published_tree()
    for node, field, value in changes:
        found = nodes_of(tree).get(f"intermediate_node_{node}")
        if not isinstance(found, dict) or not found:
            continue
        name = sorted(found)[field % len(found)]
        if value == "delete":
            del found[name]
        else:
            found[name] = value
    record = None
    with suppress(Unusable):
        record, _ = read(tree)
    if record is None:
        return
    assert parse_rollout(record.to_line(), where="here") == record
    exported([record], PUBLISHED_RULE)


@given(JUNK)
def test_no_item_whatever_it_is_is_a_crash(item: Any) -> None:
    """Neither as a tree nor as a row."""
    for take in (read, PublishedRowReader(ImportRules()).add):
        with pytest.raises(Unusable):
            take(item) if take is read else take(item, Notes("f:1"), revision="f")  # type: ignore[operator]


def test_the_head_of_a_real_llama_tree_is_read(shared_data: Path) -> None:
    """Prompts in one string, dangling children, no rewards and no id."""
    [tree] = json.loads((shared_data / "rollouts" / "reasonrag_llama70b_tree_head.json").read_bytes())
    record, repairs = read(tree)
    assert repairs == {"template_cut": 3, "template_preamble": 3, "dangling_child": 5, "id_from_question": 1}
    assert [node.action_type for node in record.nodes[1:]] == ["query", "query", "evidence"]
    assert record.nodes[1].prompt
    assert record.nodes[1].prompt[1].content == f"Question: {tree['question']}"
    assert record.nodes[1].prompt[0].content.startswith("You are an assistant")
    scores = [each.score or 0 for each in record.nodes[3].passages or ()]
    assert scores == sorted(scores, reverse=True)


# -- prompts and replies ---------------------------------------------------------------------------------------

CHATML = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nQuestion: Who?<|im_end|>\n<|im_start|>assistant\n"
LLAMA = (
    f"<|begin_of_text|>{header('system')}Be brief.<|eot_id|>"
    f"{header('user')}Question: Who?<|eot_id|>{header('assistant')}"
)
GLUED = "Be brief.\n\nQuestion: Who?"


@pytest.mark.parametrize(
    ("prompt", "known"),
    [
        (chat("Question: Who?", "Be brief."), True),
        (CHATML, True),
        (LLAMA, True),
        (None, False),
        ("Question: Who?", False),
        (CHATML + "So", False),
        ("before " + CHATML, False),
        (CHATML.replace("Be brief.", "Be<|im_end|>\n<|im_start|>user\nbrief."), False),
        (chat("Question: Who?", "  "), False),
        (chat(GLUED, "Be brief."), False),
        ([["system", "Be brief."]], False),
    ],
)
def test_prompts_are_read_in_every_known_form_and_no_other_is_guessed_at(prompt: object, known: bool) -> None:
    """Messages, ChatML and Llama 3; not even where the text has special tokens of its own."""
    assert read_prompt(prompt, Notes("")) == (("Be brief.", "Question: Who?") if known else None)


@pytest.mark.parametrize(
    ("response", "stated", "action_type", "content", "cause"),
    [
        ("So <query>who?</query>", None, "query", "who?", None),
        ("<answer>a</answer><query>b</query>", None, "query", "b", None),
        ("<answer>a</answer><query>b</query>", "answer", "answer", "a", None),
        ("<answer>a <answer>b</answer>", "query", "answer", "a <answer>b", None),
        ("<evidence>\n</evidence>", None, "evidence", "", "empty"),
        ("<answer>a", "answer", None, None, "cut_off"),
        ("a</answer>", None, None, None, "no_tag"),
    ],
)
def test_a_reply_has_the_last_word_on_itself(
    response: str, stated: Any, action_type: str | None, content: str | None, cause: str | None
) -> None:
    """The stated type decides between several tags only."""
    said = read_reply(response, Notes(""), stated=stated)
    assert (said.action_type, said.content) == (action_type, content)
    assert (said.parse_error and said.parse_error.cause) == cause


# -- rows ------------------------------------------------------------------------------------------------------


def published_row(**changed: Any) -> Json:
    user = f"Question: {QUESTION}\nPrevious Thoughts: {THOUGHT} <evidence>Paris.</evidence>."
    answered = "<answer>Seine</answer>", "Answer Generation", "Seine"
    asked = "So <query>Seine?</query>", "Query Generation", "Seine?"
    row = row_of(SYSTEM, user, 2, answered, asked)
    return {name: value for name, value in (row | changed).items() if value is not ...}


def take(*rows: Json, rules: ImportRules = NOTHING_KNOWN) -> tuple[PublishedRowReader, Counter[str]]:
    reader, repairs = PublishedRowReader(rules), Counter[str]()
    for number, row in enumerate(rows, start=1):
        note = Notes(f"rows.json:{number}")
        reader.add(row, note, revision="f00")
        repairs.update(name for name, _ in note.found)
    return reader, repairs


def rows_of(reader: PublishedRowReader, rules: PairingRules = NO_FILTERS) -> list[Json]:
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "candidates.jsonl").write_bytes(b"".join(each.to_line() for each in reader.states()))
        (Path(place) / "questions.jsonl").write_bytes(b"".join(each.to_line() for each in reader.questions()))
        export_pairs(Path(place), Path(place), rules, ExportOptions(validation=0.0))
        rows: list[Json] = json.loads((Path(place) / "RAG_ProGuide.json").read_bytes())
        return rows


USER = published_row()["input"]
ROWS_REPAIRED: list[tuple[str, Json, dict[str, int]]] = [
    ("nothing", {}, {}),
    ("no content", {"chosen_content": ..., "rejected_content": None}, {"content_from_tag": 2}),
    ("wrong content", {"chosen_content": "Loire"}, {"content_from_tag": 1}),
    ("wrong type", {"chosen_action_type": "Query Generation"}, {"type_from_tag": 1}),
    ("a type that is none", {"rejected_action_type": ["Query Generation"]}, {"type_from_tag": 1}),
]


@pytest.mark.parametrize(("what", "changed", "expected"), ROWS_REPAIRED, ids=[each[0] for each in ROWS_REPAIRED])
def test_a_row_is_repaired_to_what_it_should_have_been(what: str, changed: Json, expected: dict[str, int]) -> None:
    """Each fault alone gives its one repair, and the ten fields of the row without it."""
    reader, repairs = take(published_row(**changed))
    assert repairs == expected, what
    assert ten_fields(rows_of(reader)) == [published_row()]


@pytest.mark.parametrize(
    ("cause", "changed"),
    [
        ("no_prompt", {"instruction": f"{SYSTEM}\n{USER}", "input": ""}),
        ("no_prompt", {"system": SYSTEM}),
        ("other_prompt", {"prompt": "System: x\nUser: y"}),
        ("no_question", {"input": f"{SYSTEM}\n{USER}", "prompt": ..., "question": QUESTION}),
        ("other_question", {"question": "Who was Ada?"}),
        ("golden_answers", {"golden_answers": "Seine"}),
        ("empty_reply", {"chosen": " "}),
        ("empty_reply", {"rejected": None}),
        ("identical_sides", {"rejected": "<answer>Seine</answer> "}),
        ("chosen_malformed", {"chosen": "<answer></answer>"}),
        ("chosen_malformed", {"chosen": "< ANSWER >Seine</Answer>"}),
        ("no_layer", {"layer": -1}),
        ("no_layer", {"layer": 1001}),
    ],
)
def test_a_row_that_cannot_be_repaired_is_given_up_with_its_cause(cause: str, changed: Json) -> None:
    """Nothing of it is kept."""
    reader = PublishedRowReader(ImportRules())
    with pytest.raises(Unusable) as refused:
        reader.add(published_row(**changed), Notes("rows.json:1"), revision="f00")
    assert refused.value.cause == cause
    assert (list(reader.states()), list(reader.questions())) == ([], [])


def test_a_rejected_reply_that_does_not_parse_is_a_candidate_and_no_row() -> None:
    """Whoever wants it asks for it."""
    reader, repairs = take(published_row(rejected="Seine, I think.", rejected_action_type="Other", rejected_content=""))
    assert list(repairs) == ["no_tag"]
    assert rows_of(reader) == []
    for rules in (replace(NO_FILTERS, allow_malformed=True), AS_PUBLISHED):
        [row] = rows_of(reader, rules)
        assert (row["rejected_action_type"], row["rejected_content"]) == ("Other", "")


def test_rows_of_one_prompt_are_one_state() -> None:
    """With each reply once, whatever its sides; a row that comes again is no second pair."""
    first, second = published_row(), published_row(chosen="So <query>Seine?</query>", rejected="<answer>Po</answer>")
    reader, _ = take(first, second)
    [state] = reader.states()
    assert [step.response for step in state.steps] == [first["chosen"], first["rejected"], "<answer>Po</answer>"]
    assert [(pair.chosen, pair.rejected, pair.label, pair.margin) for pair in state.pairs] == [
        (0, 1, "imported", None),
        (1, 2, "imported", None),
    ]
    with pytest.raises(Unusable, match="already read"):
        reader.add(published_row(), Notes("rows.json:3"), revision="f00")
    with pytest.raises(Unusable, match="of an earlier row of the same state 2"):
        reader.add(published_row(chosen="<answer>Po</answer>", layer=3), Notes("rows.json:4"), revision="f00")
    assert reader.rows == 2


def test_rows_that_reasonrag_wrote_say_where_they_are_from() -> None:
    """Published ones do not: only their file is known."""
    own = {"question_id": "q7", "dataset": "toy", "split": "train", "teacher": "m"}
    for told in ({}, own):
        reader, _ = take(published_row(**told))
        [question], [state] = reader.questions(), reader.states()
        known = {"dataset": "unknown", "split": "unknown", "revision": "f00"} | told
        assert known.pop("question_id", question.question_id) == question.question_id
        assert state.origin.model_dump(exclude_none=True) == known
        assert {step.reward for step in state.steps} == {None}


def test_a_question_file_tells_what_rows_do_not() -> None:
    """By the question alone, whatever its case and punctuation."""
    known = {question_key(QUESTION.upper()): KnownQuestion("dev_9", ["Seine"], "hotpotqa", "dev")}
    both_right = {"rejected_action_type": "Answer Generation", "rejected_content": "the Seine"}
    rows = published_row(), published_row(rejected="<answer>the Seine</answer>", **both_right)
    reader, repairs = take(*rows, rules=ImportRules(questions=known, teacher="gpt-4o"))
    [state], [question] = reader.states(), reader.questions()
    assert [pair.tags for pair in state.pairs] == [[], ["style_only"]]
    assert (question.question_id, question.golden_answers) == ("dev_9", ["Seine"])
    assert (question.origin.dataset, question.origin.split, question.origin.teacher) == ("hotpotqa", "dev", "gpt-4o")
    assert list(repairs) == ["golden_answers_joined"]


def test_states_of_one_question_stand_together() -> None:
    """Wherever its rows stood in the file."""
    other = {"input": "Question: Who was Ada?", "prompt": ..., "layer": 0}
    reader, _ = take(
        published_row(), published_row(**other), published_row(input=f"Question: {QUESTION}", prompt=..., layer=0)
    )
    assert [state.question for state in reader.states()] == [QUESTION, QUESTION, "Who was Ada?"]


@given(st.lists(st.tuples(st.sampled_from(sorted(published_row())), JUNK | st.just(...)), max_size=5))
def test_no_row_however_broken_is_a_crash(changes: list[tuple[str, Any]]) -> None:
    """It is given up with a cause, or exported."""
    reader = PublishedRowReader(ImportRules())
    with suppress(Unusable):
        reader.add(published_row(**dict(changes)), Notes("rows.json:1"), revision="f00")
    assert len(rows_of(reader, replace(NO_FILTERS, allow_malformed=True))) <= 1


def test_the_real_rows_come_out_as_they_went_in(shared_data: Path) -> None:
    """All three, in order."""
    rows = json.loads((shared_data / "rollouts" / "ragproguide_format_pairs_from_real_trees.json").read_bytes())
    reader, repairs = take(*rows)
    assert repairs == {}
    assert ten_fields(rows_of(reader)) == rows
    assert [list(row)[:FIELDS] for row in rows_of(reader)] == [list(row) for row in rows]
