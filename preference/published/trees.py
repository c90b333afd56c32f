"""Trees of the published ReasonRAG pipeline as rollout records, with rewards recomputed.

Decides what a published node means: `intermediate_node_N` is a step, `N` its visits, `Q` its search value, `answer` an
end, `pred` that of a forced conclusion. One walk from the root reads every node; inconsistencies are repaired and
counted, or the tree is refused; see `repairs`. Both the published builder's reward and the paper's are computed; the
builder's makes the labels. Departures from the builder: (1) a child missing from the file does not leave its parents
without a reward; (2) the answer is the content of the tag; (3) the answer of a forced conclusion counts.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping
from typing import Any, Literal

from mcts import RECIPES, Rollout, Step, Tree, estimates, spre_rewards, visit_weighted_rewards
from preference.answer_scores import builder_f1, exact_match, f1_score
from preference.candidate_records import question_key
from preference.export.sanitize import plain_text
from preference.published.repairs import (
    ImportRules,
    Notes,
    StepReply,
    Turns,
    Unusable,
    facts_about,
    number,
    plain,
    question_asked,
    question_of,
    read_prompt,
    read_reply,
    text,
    whole_number,
)
from preference.records import ActionType, FinalScore, Outcome, PassageRef, RecipeRef, RolloutNode, RolloutRecord, Usage

RELEASED = RECIPES["released"]
"""Whose rewards make the labels: those of the published builder."""
RECIPE = RecipeRef(
    name=RELEASED.name, reward=RELEASED.reward, alpha=RELEASED.search.alpha, margin_by_layer=RELEASED.margin_by_layer
)
_NODE = re.compile(r"intermediate_node_([0-9]{1,9})")


def is_tree(item: object) -> bool:
    """Whether an item of a file looks like a tree, including a failed one."""
    return isinstance(item, dict) and "output" in item and "question" in item


def read_tree(item: object, rules: ImportRules, note: Notes, *, revision: str) -> RolloutRecord:
    """The record of a published item. Raises Unusable if it cannot be repaired.

    note: its location names the item if it has no id. revision: SHA-256 of its file.
    """
    if not isinstance(item, dict):
        raise Unusable("not_an_object")
    given = item.get("id")
    given = None if isinstance(given, bool) or not isinstance(given, int | str) else str(given).strip() or None
    note = Notes(given or note.where, note.found)
    output = item.get("output")
    if not isinstance(output, dict) or not any(map(_NODE.fullmatch, output)):
        reason = text(item.get("error")) or text(item.get("status"))
        raise Unusable("no_tree", f"there is no tree; the item says {reason[:200]!r}" if reason else "")
    nodes, answers = _steps(_by_id(output), note)
    stated = text(item.get("question"))
    asked = next((found for node in nodes if node.prompt and (found := question_of(node.prompt[1].content))), None)
    if stated is None or asked is None:
        raise Unusable("no_question")
    question = question_asked(stated, asked, note)
    # of the tree's own fields, its gold answers alone
    facts = facts_about({"golden_answers": item.get("golden_answers")}, question, rules, note)
    if given is None and question_key(question) not in rules.questions:
        note("id_from_question")
    nodes = _rewarded(nodes, answers, facts.golden_answers)
    return RolloutRecord(
        question_id=given or facts.id,
        question=question,
        golden_answers=facts.golden_answers,
        dataset=facts.dataset,
        split=facts.split,
        revision=revision,
        config_hash=rules.config_hash,
        seed=0,
        recipe=RECIPE,
        usage=Usage(),
        nodes=nodes,
    )


# -- the walk --------------------------------------------------------------------------------------------------


def _by_id(output: dict[str, Any]) -> dict[int, dict[str, Any]]:
    nodes: dict[int, dict[str, Any]] = {}
    for name, node in output.items():
        match = _NODE.fullmatch(name)
        if not match:
            continue  # FlashRAG keeps metrics beside the nodes
        here = int(match[1])
        if here in nodes or not isinstance(node, dict) or (here and node.get("id") != here):
            raise Unusable("broken_tree", f"node {here} is there twice, is no object, or has another id than its name")
        nodes[here] = node
    if not nodes.keys() > {0}:
        raise Unusable("broken_tree", "the tree has no node 0, or no other")
    return nodes


def _steps(found: dict[int, dict[str, Any]], note: Notes) -> tuple[list[RolloutNode], dict[int, str]]:
    """The nodes, parents first, without children and rewards, and the answers of ends. Ids are kept where possible."""
    nodes: list[RolloutNode] = []
    answers: dict[int, str] = {}
    parents: dict[int, int | None] = {0: None}
    """New id of the parent, by the file's id of every node that was met."""
    order: list[int] = []
    waiting = [0]
    while waiting:
        here = heapq.heappop(waiting)
        listed = found[here].get("children_ids")
        if not isinstance(listed, list) or any(whole_number(each) is None for each in listed):
            raise Unusable("broken_tree", f"node {here} has no list of children")
        for child in listed:
            if child not in found:
                note.at(f"node {here}")("dangling_child")
                continue
            if child in parents or found[child].get("parent_id") != here:
                raise Unusable("broken_tree", f"node {child} is listed twice, or its parent is not node {here}")
            parents[child] = len(order)
            heapq.heappush(waiting, child)
        above = parents[here]
        node, answer = _step(found[here], None if above is None else nodes[above], note.at(f"node {here}"))
        if answer is not None and not found.keys().isdisjoint(listed):
            note.at(f"node {here}")("answer_went_on")
        elif answer is not None:
            answers[len(order)] = answer
        nodes.append(node.model_copy(update={"id": len(order), "terminal": len(order) in answers}))
        order.append(here)
    if len(order) < len(found):
        raise Unusable("broken_tree", f"node {min(found.keys() - parents.keys())} is not below the root")
    if order != list(range(len(order))):
        note("renumbered")
    return nodes, answers


def _step(node: dict[str, Any], above: RolloutNode | None, note: Notes) -> tuple[RolloutNode, str | None]:
    """A node without its id, and its answer, if any."""
    layer = None if above is None else 0 if above.layer is None else above.layer + 1
    depth = 0 if layer is None else layer + 1
    visits, value = whole_number(node.get("N")), number(node.get("Q"))
    if node.get("step") != depth or visits is None or value is None:
        raise Unusable("broken_tree", f"{note.where} needs `step` {depth}, N and Q")
    place = RolloutNode(id=0, parent_id=above and above.id, children_ids=[], layer=layer, visits=visits, value=value)
    if above is None:
        return place, None
    turns = read_prompt(node.get("input_prompt"), note)
    if turns is None:
        begins = str(node.get("input_prompt"))[:80]
        raise Unusable("unreadable_prompt", f"{note.where} has no readable prompt; it begins {begins!r}")
    turns = Turns(plain(turns.system, note), plain(turns.user, note))
    reply, answer = _reply(node, turns, note)
    must_answer = node.get("action_name") == "answer_generation"
    concludes = must_answer and reply.action_type != "query"
    said = {
        "action": "read" if turns.is_read else "conclude" if concludes else "think",
        "prompt": turns.messages,
        "passages": _passages(node.get("retrieval_result")) if turns.is_read else None,
    }
    return place.model_copy(update=reply._asdict() | said), answer


def _reply(node: dict[str, Any], turns: Turns, note: Notes) -> tuple[StepReply, str | None]:
    """The parsed reply and its answer, if any: the content of the tag, else the file's."""
    if not isinstance(node.get("response"), str):
        raise Unusable("broken_tree", f"{note.where} has no reply")
    answer, query = (
        next((plain_text(node[name]) for name in names if isinstance(node.get(name), str)), None)
        for names in (("answer", "pred"), ("next_query",))
    )
    stated: ActionType | None = "answer" if answer is not None else "query" if text(query) else None
    reply = read_reply(plain(node["response"], note), note, stated=stated or ("evidence" if turns.is_read else None))
    recorded = query if answer is None else answer
    if reply.action_type in ("query", "answer") and reply.content != (recorded or "").strip():
        note("content_from_tag")
    if reply.action_type == "answer":
        return reply, reply.content
    # without a tag the reply is not a step, but the published search took it for an end
    return reply, answer if reply.action_type is None else None


def _passages(retrieved: object) -> list[PassageRef] | None:
    """The retrieved passages, best first if they have scores; None if unreadable."""
    if not isinstance(retrieved, list):
        return None
    passages = []
    for each in retrieved:
        if not isinstance(each, dict) or not isinstance(each.get("id"), int | str):
            return None
        title = text(each.get("title")) or (text(each.get("contents")) or "").partition("\n")[0]
        passages.append(PassageRef(id=str(each["id"]), title=_unquoted(title), score=number(each.get("score"))))
    if all(passage.score is not None for passage in passages):
        passages.sort(key=lambda passage: -(passage.score or 0.0))
    return passages


def _unquoted(title: str) -> str:
    """A title without the wiki dump's quotes, in which inner quotes are doubled."""
    title = title.strip()
    if len(title) > 1 and title[0] == title[-1] == '"':
        return title[1:-1].replace('""', '"')
    return title


# -- the record ------------------------------------------------------------------------------------------------


def _rewarded(nodes: list[RolloutNode], answers: Mapping[int, str], golds: list[str]) -> list[RolloutNode]:
    """The nodes with their children, and rewards by both rules."""
    ends = answers if golds else {}
    f1 = {i: f1_score(answer, golds) for i, answer in ends.items()}
    em = {i: exact_match(answer, golds) for i, answer in ends.items()}
    outcomes = {i: builder_f1(answer, golds) for i, answer in ends.items()}
    tree, by_f1, alpha = _tree(nodes, outcomes), _tree(nodes, f1), RELEASED.search.alpha
    rules = {"outcome": visit_weighted_rewards(tree, alpha=alpha), "spre": spre_rewards(by_f1, alpha=alpha)}
    known = estimates(tree, lambda end: end.outcome)

    def end_of(rollout: Rollout[int]) -> FinalScore:
        i = rollout.final
        kind: Literal["conclusion", "answer"] = "conclusion" if nodes[i].action == "conclude" else "answer"
        return FinalScore(f1=f1[i], em=em[i], steps=rollout.steps, end=kind, outcome=rollout.outcome)

    return [
        nodes[node.id].model_copy(
            update={
                "children_ids": node.children_ids,
                "reward": rules[RELEASED.reward][node.id],
                "rewards": {name: rewards[node.id] for name, rewards in rules.items()},
                "observations": estimate.observations if estimate else None,
                "expected_outcome": estimate.mean if estimate else None,
                "f1": f1.get(node.id),
                "em": em.get(node.id),
                "outcome": Outcome(name="builder_f1", value=outcomes[node.id]) if node.id in ends else None,
                "rollouts": [end_of(each) for each in node.rollouts],
            }
        )
        for node, estimate in zip(tree.nodes, known, strict=True)
    ]


def _tree(nodes: list[RolloutNode], outcomes: Mapping[int, float]) -> Tree[int]:
    """The tree with these ends; ends of unknown quality are left without an outcome."""
    tree: Tree[int] = Tree()
    tree.root.visits = nodes[0].visits
    for node in nodes[1:]:
        added = Step(node.id, terminal=node.id in outcomes, outcome=outcomes.get(node.id, 0.0))
        tree.add(tree[node.parent_id or 0], added).visits = node.visits
    return tree
