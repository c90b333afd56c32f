"""Random trees in the published form, and the published builder's rules restated from its description."""

from __future__ import annotations

import re
import string
from collections import Counter
from itertools import combinations
from random import Random
from typing import Any

from preference import RolloutRecord
from tests.helpers.published_rows import NAMES, published_row

Json = dict[str, Any]
Row = dict[str, Any]

QUESTION = "Which river flows through the capital of France?"
GOLDS = ["Seine", "the River Seine"]
_THINK, _READ = "Think, then search or answer.", "Report evidence."
_SAID = ("Seine", "the Seine", "SEINE", "River", "a river", "Loire", "yes", "")
_DISCOUNT, _LEAST_DIFFERENCE = 0.9, 0.01


def random_tree(random: Random) -> Json:
    """A tree as the published search may leave it: equal siblings, contents that differ in case or stand in other
    tags, single children, replies without a whole tag, steps that nothing came of."""
    nodes: list[Json] = [{"Q": 0.1, "N": random.randint(1, 9), "step": 0, "parent_id": -1, "children_ids": []}]
    states = [(0, f"Question: {QUESTION}", "begin_reasoning")]
    for new in range(1, random.randint(4, 40)):
        open_states = [each for each in states if len(nodes[each[0]]["children_ids"]) < 4]
        if not open_states:
            break
        parent, user, action = random.choice(open_states)
        above = nodes[parent]
        node = {
            "action_name": action,
            "input_prompt": _prompt(action, user),
            "id": new,
            "parent_id": parent,
            "children_ids": [],
            "Q": 0.5,
            "N": random.choice([0, 1, 1, 2, 2, 3, 5, 5, 8]),
            "step": above["step"] + 1,
        } | _said(random, action)
        above["children_ids"].append(new)
        nodes.append(node)
        if node.get("answer") is None:
            thoughts = f"{user} {node['response']}" if parent else f"{user}\nPrevious Thoughts: {node['response']}"
            following = "reasoning" if action == "document_analysis" else "document_analysis"
            states.append((new, thoughts, following))
        if random.random() < 0.5:
            node["reward"] = 0.25
    output = {f"intermediate_node_{i}": node for i, node in enumerate(nodes)}
    return {"id": "dev_1", "question": QUESTION, "golden_answers": list(GOLDS), "output": output}


def _prompt(action: str, user: str) -> list[Json]:
    system = _READ if action == "document_analysis" else _THINK
    passages = ". Reference: <reference>Wikipedia Title: Paris\nIt lies on the Seine.\n\n</reference>"
    shown = f"{user}{passages}" if action == "document_analysis" else user
    return [{"role": "system", "content": system}, {"role": "user", "content": shown}]


def _said(random: Random, action: str) -> Json:
    content = random.choice(_SAID)
    if action == "document_analysis":
        whole = random.random() < 0.8
        return {"response": f"So <evidence>{content}</evidence>." if whole else f"So {content}", "query": "q"}
    kind = random.choice(["query", "query", "answer", "answer", "answer", "open", "none"])
    if kind == "answer":
        return {"response": f"Hm. <answer> {content}</answer>", "next_query": None, "answer": f" {content}"}
    if kind == "query":
        return {"response": f"Hm. <query>{content}</query>", "next_query": content, "answer": None}
    response = f"Hm. <query>{content}" if kind == "open" else f"Hm, {content}"
    return {"response": response, "next_query": None, "answer": None}


def builder_rewards(tree: Json) -> dict[int, float | None]:
    """A leaf with an answer: token F1, articles counted, times .9**step; a leaf without: none. Others: the mean over
    children with a reward, weighted by visits."""
    nodes = _by_id(tree)
    found: dict[int, float | None] = {}
    for here, node in sorted(nodes.items(), reverse=True):  # children have higher ids
        if not node["children_ids"]:
            answered = node.get("answer") is not None and node.get("response")
            best = max(_f1(node["answer"], gold) for gold in tree["golden_answers"]) if answered else 0.0
            found[here] = best * _DISCOUNT ** node["step"] if answered else None
            continue
        known = [(found[child], nodes[child]["N"]) for child in node["children_ids"] if found[child] is not None]
        visits = sum(count for _, count in known)
        found[here] = sum((reward or 0.0) * count for reward, count in known) / visits if visits else None
    return found


def builder_rows(tree: Json) -> list[Row]:
    """From the root down through nodes that have a reward and several children: of every two siblings with rewards, a
    row if these differ by .01, what stands in the tags differs, and the better reply opens a tag."""
    nodes, rewards, rows = _by_id(tree), builder_rewards(tree), list[Row]()
    if rewards[0] is None:
        return []

    def visit(here: int, layer: int) -> None:
        if len(nodes[here]["children_ids"]) < 2:
            return
        valued = [child for child in nodes[here]["children_ids"] if rewards[child] is not None]
        for one, other in combinations(valued, 2):
            left, right = rewards[one] or 0.0, rewards[other] or 0.0
            better, worse = (one, other) if left > right else (other, one)
            rows.extend(_row(nodes[better], nodes[worse], layer) if abs(left - right) >= _LEAST_DIFFERENCE else ())
        for child in valued:
            visit(child, layer + 1)

    visit(0, 0)
    return rows


def _row(better: Json, worse: Json, layer: int) -> list[Row]:
    (chosen, said), (rejected, other) = _reading(better["response"]), _reading(worse["response"])
    if said == other or chosen == "Other":
        return []
    system, user = (turn["content"] for turn in better["input_prompt"])
    sides = (better["response"], chosen, said), (worse["response"], rejected, other)
    return [published_row(system, user, layer, *sides)]


def _reading(response: str) -> tuple[str, str]:
    """The type is that of the first tag of these that is opened, the content that of the first whole one of those."""
    kind = next((name for tag, name in NAMES.items() if f"<{tag}>" in response), "Other")
    found = (re.search(rf"<{tag}>([\s\S]*?)</{tag}>", response) for tag in ("answer", "query", "evidence"))
    return kind, next((each[1].strip() for each in found if each), "")


def _f1(answer: str, gold: str) -> float:
    left, right = ("".join(c for c in each.lower() if c not in string.punctuation).split() for each in (answer, gold))
    verdicts = (["yes"], ["no"], ["noanswer"])
    shared = sum((Counter(left) & Counter(right)).values())
    if (left != right and (left in verdicts or right in verdicts)) or not shared:
        return 0.0
    precision, recall = shared / len(left), shared / len(right)
    return 2 * precision * recall / (precision + recall)


def _by_id(tree: Json) -> dict[int, Json]:
    return {int(name.rpartition("_")[2]): node for name, node in tree["output"].items()}


_ACTION_NAMES = {"think": "reasoning", "read": "document_analysis", "conclude": "answer_generation"}


def in_published_form(record: RolloutRecord) -> Json:
    """A tree of ours as the published pipeline would have written it: its forced conclusions have a `pred` and no
    `answer`."""
    output: Json = {}
    for node in record.nodes:
        own: Json = {"id": node.id, "parent_id": -1 if node.parent_id is None else node.parent_id}
        own |= {"children_ids": node.children_ids, "N": node.visits, "Q": node.value, "step": 0}
        if node.layer is not None and node.action is not None:
            own |= {
                "action_name": _ACTION_NAMES[node.action],
                "input_prompt": [turn.model_dump() for turn in node.prompt or ()],
                "response": node.response,
                "step": node.layer + 1,
            }
        if node.action == "think":
            own["next_query"] = node.content if node.action_type == "query" else None
            own["answer"] = node.content if node.action_type == "answer" and not node.parse_error else None
        if node.action == "conclude":
            own["pred"] = node.content
        output[f"intermediate_node_{node.id}"] = own
    return {"id": record.question_id, "question": record.question, "golden_answers": record.golden_answers} | {
        "output": output
    }
