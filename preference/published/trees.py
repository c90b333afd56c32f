"""Trees of the published ReasonRAG pipeline as rollout records, with rewards recomputed.

Decides what a published node means: `intermediate_node_N` is a step, `N` its visits, `Q` its search value, `answer` an
end. Inconsistencies are repaired and counted, or the tree is refused; see `repairs`. Both the published builder's
reward and the paper's are computed; the builder's makes the labels. Departures from the builder, unless
`TreeRules.as_published`: (1) a child missing from the file does not leave its parents without a reward; (2) the answer
is the content of the tag; (3) the answer of a forced conclusion counts.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, NamedTuple, Protocol

from mcts import RECIPES, Estimate, Step, Tree, estimates, shortest_path_reward, spre_rewards, visit_weighted_rewards
from preference.answer_scores import builder_f1, exact_match, f1_score
from preference.candidates import question_key
from preference.export.sanitize import plain_text
from preference.published.repairs import (
    KnownQuestion,
    Notes,
    RepairLog,
    StepReply,
    Turns,
    Unusable,
    golden_answers,
    number,
    plain,
    plain_turns,
    question_asked,
    question_of,
    read_prompt,
    read_reply,
    text,
    whole_number,
)
from preference.records import (
    ActionType,
    AgentAction,
    FinalScore,
    Outcome,
    PassageRef,
    RecipeRef,
    RolloutNode,
    RolloutRecord,
    Usage,
)
from preference.similarity import overlap

RELEASED = RECIPES["released"]
"""Whose rewards make the labels: those of the published builder."""
RECIPE = RecipeRef(
    name=RELEASED.name,
    reward=RELEASED.reward,
    alpha=RELEASED.search.alpha,
    margin_by_layer=RELEASED.margin_by_layer,
)
_NODE = re.compile(r"intermediate_node_([0-9]{1,9})")
_GOES_WITH: dict[str, tuple[AgentAction, tuple[ActionType, ...]]] = {
    "begin_reasoning": ("think", ("query", "answer")),
    "reasoning": ("think", ("query", "answer")),
    "document_analysis": ("read", ("evidence",)),
    "answer_generation": ("conclude", ("answer",)),
}
"""Published name of an action -> our name, and the action types of its replies."""


class PassageText(NamedTuple):
    """A passage as stored in a tree."""

    id: str
    title: str
    text: str
    score: float | None


class Support(Protocol):
    """Decides whether a step's content is supported by what was read."""

    def grounded(self, action_type: ActionType, content: str, passages: Sequence[PassageText]) -> bool | None: ...

    def in_evidence(self, answer: str, evidence: Iterable[str]) -> bool | None: ...


@dataclass(frozen=True)
class TreeRules:
    """How trees are read. as_published: rewards are exactly the builder's. config_hash, dataset, split: written to
    every record. questions: known questions, by `question_key`."""

    as_published: bool = False
    config_hash: str = ""
    dataset: str = "unknown"
    split: str = "unknown"
    questions: Mapping[str, KnownQuestion] = field(default_factory=dict)
    support: Support | None = None


def is_tree(item: object) -> bool:
    """Whether an item of a file looks like a tree, including a failed one."""
    if not isinstance(item, dict):
        return False
    return ("output" in item and "question" in item) or _nodes_of(item) is not None


def read_tree(item: object, rules: TreeRules, repair_log: RepairLog, *, where: str, revision: str) -> RolloutRecord:
    """The record of a published item. Raises Unusable if it cannot be repaired.

    where: location, which names the item if it has no id. revision: SHA-256 of its file.
    """
    if not isinstance(item, dict):
        raise Unusable("not_an_object")
    given = _id_of(item)
    found = RepairLog()  # a refused tree counts no repairs
    note = Notes(found, given or where)
    output = _nodes_of(item)
    if output is None:
        raise Unusable("no_tree", _what_it_says(item))
    steps = _steps(_skeleton(output, note), note)
    question, facts = _about(item, steps, rules, note)
    values = _values(steps, facts.golden_answers)
    if rules.as_published:
        exact = _builder_rewards(_by_id(output), facts.golden_answers, RELEASED.search.alpha)
        for step, rewards in zip(steps, values.rewards, strict=True):
            rewards["outcome"] = exact[step.place.old]
    repair_log.include(found)
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
        nodes=_with_common_passages([_record(i, steps, values, rules) for i in range(len(steps))], steps),
    )


def _id_of(item: dict[str, Any]) -> str | None:
    given = item.get("id")
    if isinstance(given, bool) or not isinstance(given, int | str):
        return None
    return str(given).strip() or None


def _nodes_of(item: dict[str, Any]) -> dict[str, Any] | None:
    for place in (item.get("output"), item):
        if isinstance(place, dict) and any(_NODE.fullmatch(key) for key in place if isinstance(key, str)):
            return place
    return None


def _what_it_says(item: dict[str, Any]) -> str:
    """Why there is no tree, from the item's own fields."""
    reason = text(item.get("error")) or text(item.get("status"))
    return f"there is no tree; the item says {reason[:200]!r}" if reason else ""


# -- parents and children ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _PlacedNode:
    """A node with its place in the tree: ids are new, `old` is the file's."""

    old: int
    parent: int | None
    depth: int
    node: dict[str, Any]
    lost: int
    """Children that it lists and that are not in the file."""


def _skeleton(output: dict[str, Any], note: Notes) -> list[_PlacedNode]:
    """The nodes of the tree, parents first; ids are kept where possible."""
    nodes = _by_id(output)
    if 0 not in nodes:
        raise Unusable("no_root")
    children = _children(nodes, note)
    places: list[_PlacedNode] = []
    new_ids: dict[int, int] = {}
    waiting = [0]
    while waiting:
        old = heapq.heappop(waiting)
        new_ids[old] = len(places)
        parent = new_ids[nodes[old]["parent_id"]] if old else None
        depth = 0 if parent is None else places[parent].depth + 1
        if nodes[old].get("step") != depth:
            raise Unusable("broken_tree", f"node {old} is step {depth}, and the file does not say so")
        lost = sum(each not in nodes for each in nodes[old]["children_ids"])
        places.append(_PlacedNode(old, parent, depth, nodes[old], lost))
        for child in children[old]:
            heapq.heappush(waiting, child)
    if len(places) < len(nodes):
        raise Unusable(
            "broken_tree", f"node {min(nodes.keys() - new_ids.keys())} is below itself, or below one that is"
        )
    if len(places) == 1:
        raise Unusable("no_steps")
    if any(place.old != position for position, place in enumerate(places)):
        note("renumbered")
    return places


def _by_id(output: dict[str, Any]) -> dict[int, dict[str, Any]]:
    nodes: dict[int, dict[str, Any]] = {}
    for name, node in output.items():
        match = _NODE.fullmatch(name)
        if not match:
            continue  # FlashRAG keeps metrics beside the nodes
        here = int(match[1])
        if here in nodes:
            raise Unusable("duplicate_id", f"two nodes have id {here}")
        if not isinstance(node, dict) or (here and node.get("id") != here):
            raise Unusable("broken_tree", f"node {here} is no object, or has another id than its name")
        nodes[here] = node
    return nodes


def _children(nodes: dict[int, dict[str, Any]], note: Notes) -> dict[int, list[int]]:
    """The children of each node that are in the file. Raises Unusable where a node and its parent contradict."""
    children: dict[int, list[int]] = {}
    for here, node in nodes.items():
        listed = node.get("children_ids")
        if not isinstance(listed, list) or any(whole_number(each) is None for each in listed):
            raise Unusable("broken_tree", f"node {here} has no list of children")
        children[here] = [each for each in listed if each in nodes]
        for _ in range(len(listed) - len(children[here])):
            note.at(f"node {here}")("dangling_child")
    ids = Counter(each for listed in children.values() for each in listed)
    for here, node in nodes.items():
        parent = node.get("parent_id")
        if here and (ids[here] != 1 or not isinstance(parent, int) or here not in children.get(parent, ())):
            raise Unusable("broken_tree", f"node {here} is not once among the children of its parent, and of no other")
    if ids[0]:
        raise Unusable("broken_tree", "node 0 is listed as a child")
    return children


# -- nodes ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _PublishedStep:
    """A parsed node. The root has no `turns` and no `reply`."""

    place: _PlacedNode
    turns: Turns | None
    reply: StepReply
    action: AgentAction | None
    answer: str | None
    """The answer, if the node is an end."""
    visits: int
    value: float
    passages: list[PassageText] | None
    """Passages of a read turn; None if the file does not have them, and for other turns."""


def _steps(places: list[_PlacedNode], note: Notes) -> list[_PublishedStep]:
    inner = {place.parent for place in places}
    return [_step(place, inner=i in inner, note=note.at(f"node {place.old}")) for i, place in enumerate(places)]


def _step(place: _PlacedNode, *, inner: bool, note: Notes) -> _PublishedStep:
    node = place.node
    visits, value = whole_number(node.get("N")), number(node.get("Q"))
    if visits is None or value is None or (place.depth and not isinstance(node.get("response"), str)):
        raise Unusable("broken_node", f"node {place.old} has no reply, no usable N or no usable Q")
    turns: Turns | None = None
    reply = StepReply("", None, None)
    action: AgentAction | None = None
    answer: str | None = None
    if place.depth:
        turns = _prompt(place, note)
        reply, ending = _reply(node, note)
        action = _action(node, turns, reply, note)
        if ending is not None and inner:
            note("answer_went_on")
        elif ending is not None:
            answer = ending
    return _PublishedStep(
        place,
        turns,
        reply,
        action,
        answer,
        visits=visits,
        value=value,
        passages=_passages(node.get("retrieval_result")) if action == "read" else None,
    )


def _prompt(place: _PlacedNode, note: Notes) -> Turns:
    turns = read_prompt(place.node.get("input_prompt"), note)
    if turns is None:
        begins = str(place.node.get("input_prompt"))[:80]
        raise Unusable("unreadable_prompt", f"node {place.old} has no readable prompt; it begins {begins!r}")
    return plain_turns(turns, note)


def _reply(node: dict[str, Any], note: Notes) -> tuple[StepReply, str | None]:
    """The parsed reply and its answer, if any: the content of the tag, else the file's."""
    answer, query = node.get("answer"), node.get("next_query")
    if not isinstance(answer, str) and isinstance(node.get("pred"), str):
        note("answer_from_pred")
        answer = node["pred"]
    stated: ActionType | None = None
    if isinstance(answer, str):
        stated = "answer"
    elif text(query):
        stated = "query"
    elif node.get("action_name") == "document_analysis":
        stated = "evidence"
    recorded = answer if isinstance(answer, str) else query if isinstance(query, str) else None
    recorded = None if recorded is None else plain_text(recorded)
    reply = read_reply(plain(node["response"], note), note, stated=stated)
    if reply.action_type in ("query", "answer") and reply.content != (recorded or "").strip():
        note("content_from_tag")
    if reply.action_type == "answer":
        return reply, reply.content
    # without a tag the reply is not a step, but the published search took it for an end
    return reply, recorded if reply.action_type is None and isinstance(answer, str) else None


def _action(node: dict[str, Any], turns: Turns, reply: StepReply, note: Notes) -> AgentAction:
    """The agent's action: the recorded one, unless prompt or reply contradict it."""
    name = node.get("action_name")
    named, types = _GOES_WITH.get(name, (None, ())) if isinstance(name, str) else (None, ())
    if named and (named == "read") == turns.is_read and (reply.action_type is None or reply.action_type in types):
        return named
    note("action_from_prompt")
    if turns.is_read:
        return "read"
    return "conclude" if named == "conclude" and reply.action_type != "query" else "think"


def _passages(retrieved: object) -> list[PassageText] | None:
    """The retrieved passages, best first if they have scores; None if unreadable."""
    if not isinstance(retrieved, list):
        return None
    passages = []
    for each in retrieved:
        if not isinstance(each, dict) or not isinstance(each.get("id"), int | str):
            return None
        contents = each.get("contents")
        first, _, rest = contents.partition("\n") if isinstance(contents, str) else ("", "", "")
        title = text(each.get("title")) or first
        body = rest or text(each.get("text")) or ""
        passages.append(PassageText(str(each["id"]), _unquoted(title), body, number(each.get("score"))))
    if all(passage.score is not None for passage in passages):
        passages.sort(key=lambda passage: -(passage.score or 0.0))
    return passages


def _unquoted(title: str) -> str:
    """A title without the wiki dump's quotes, in which inner quotes are doubled."""
    title = title.strip()
    if len(title) > 1 and title[0] == title[-1] == '"':
        return title[1:-1].replace('""', '"')
    return title


# -- the question ----------------------------------------------------------------------------------------------


def _about(
    item: dict[str, Any], steps: list[_PublishedStep], rules: TreeRules, note: Notes
) -> tuple[str, KnownQuestion]:
    """The question, and the facts known about it."""
    stated = text(item.get("question"))
    asked = next((found for step in steps if step.turns and (found := question_of(step.turns.user))), None)
    if stated is None or asked is None:
        raise Unusable("no_question")
    question = question_asked(stated, asked, note)
    key = question_key(question)
    known = rules.questions.get(key)
    golds = golden_answers(item.get("golden_answers"), note, known)
    if _id_of(item) is None and not known:
        note("id_from_question")
    facts = known or KnownQuestion(id=f"q-{key}", golden_answers=golds, dataset=rules.dataset, split=rules.split)
    return question, replace(facts, golden_answers=golds)


# -- rewards --------------------------------------------------------------------------------------


def _builder_rewards(nodes: Mapping[int, dict[str, Any]], golds: list[str], alpha: float) -> dict[int, float | None]:
    """The reward of each node of the file exactly as the published builder has it.

    A leaf with an `answer` has F1 * alpha**`step`, another leaf none; other nodes have the mean of their children's
    rewards by visits `N`. A node above one that is missing is never computed: it keeps what the file has.
    """
    children = {here: node["children_ids"] for here, node in nodes.items()}
    rewards = {here: number(node.get("reward")) for here, node in nodes.items()}
    computed: set[int] = set()
    waiting = [here for here in nodes if not children[here]]
    while waiting:
        here = waiting.pop()
        computed.add(here)
        node = nodes[here]
        if children[here]:
            known = [(rewards[each], nodes[each]["N"]) for each in children[here]]
            rewards[here] = _mean_by_visits([(reward, visits) for reward, visits in known if reward is not None])
        else:
            f1 = _builder_f1(node, golds)
            rewards[here] = None if f1 is None else shortest_path_reward(f1, steps=node["step"], alpha=alpha)
        above = node.get("parent_id")
        if isinstance(above, int) and above in nodes and above not in computed and computed.issuperset(children[above]):
            waiting.append(above)
    return rewards


def _builder_f1(node: dict[str, Any], golds: list[str]) -> float | None:
    """F1 of a leaf; None where it has no answer that the builder sees."""
    answer = node.get("answer")
    return builder_f1(answer, golds) if golds and isinstance(answer, str) and node.get("response") else None


def _mean_by_visits(known: list[tuple[float, int]]) -> float | None:
    visits = sum(counted for _, counted in known)
    return sum(reward * counted for reward, counted in known) / visits if visits > 0 else None


@dataclass(frozen=True)
class _LabelValues:
    """Per node: rewards by rule, and estimates of the tree behind the labels."""

    rewards: list[dict[str, float | None]]
    tree: Tree[int]
    estimates: list[Estimate | None]
    outcomes: dict[int, Outcome]
    f1: dict[int, float]
    em: dict[int, float]


def _values(steps: list[_PublishedStep], golds: list[str]) -> _LabelValues:
    ends = {i: step.answer for i, step in enumerate(steps) if step.answer is not None and golds}
    f1 = {i: f1_score(answer, golds) for i, answer in ends.items()}
    by_builder = {i: builder_f1(answer, golds) for i, answer in ends.items()}
    published, paper = _tree(steps, by_builder), _tree(steps, f1)
    outcome = visit_weighted_rewards(published, alpha=RELEASED.search.alpha)
    spre = spre_rewards(paper, alpha=RELEASED.search.alpha)
    rewards: list[dict[str, float | None]] = [{"outcome": outcome[i], "spre": spre[i]} for i in range(len(steps))]
    return _LabelValues(
        rewards,
        published,
        estimates(published, lambda end: end.outcome),
        outcomes={i: Outcome(name="builder_f1", value=by_builder[i]) for i in ends},
        f1=f1,
        em={i: exact_match(answer, golds) for i, answer in ends.items()},
    )


def _tree(steps: list[_PublishedStep], outcomes: Mapping[int, float]) -> Tree[int]:
    """The tree with these ends; ends of unknown quality are left without an outcome."""
    tree: Tree[int] = Tree()
    tree.root.visits = steps[0].visits
    for i, step in enumerate(steps[1:], start=1):
        if step.place.parent is None:
            raise ValueError(f"node {i} has no parent")
        added = Step(i, terminal=i in outcomes, outcome=outcomes.get(i, 0.0))
        tree.add(tree[step.place.parent], added).visits = step.visits
    return tree


# -- the record ------------------------------------------------------------------------------------------------


def _record(i: int, steps: list[_PublishedStep], values: _LabelValues, rules: TreeRules) -> RolloutNode:
    node, step, estimate = values.tree[i], steps[i], values.estimates[i]
    common: dict[str, Any] = {
        "id": i,
        "parent_id": node.parent_id,
        "children_ids": node.children_ids,
        "children_lost": step.place.lost,
        "layer": node.layer,
        "visits": node.visits,
        "value": step.value,
        "reward": values.rewards[i][RELEASED.reward],
        "rewards": values.rewards[i],
        "observations": estimate.observations if estimate else None,
        "expected_outcome": estimate.mean if estimate else None,
        "rollouts": [_end(end.final, end.steps, steps, values) for end in node.rollouts],
    }
    if step.turns is None:
        return RolloutNode(**common)
    grounded, in_evidence = _supported(step, _above(step, steps), rules.support)
    return RolloutNode(
        **common,
        action=step.action,
        prompt=step.turns.messages,
        response=step.reply.response,
        action_type=step.reply.action_type,
        content=step.reply.content,
        passages=None
        if step.passages is None
        else [PassageRef(id=each.id, title=each.title, score=each.score) for each in step.passages],
        terminal=step.answer is not None,
        parse_error=step.reply.parse_error,
        f1=values.f1.get(i),
        em=values.em.get(i),
        outcome=values.outcomes.get(i),
        grounded=grounded,
        in_evidence=in_evidence,
    )


def _with_common_passages(nodes: list[RolloutNode], steps: list[_PublishedStep]) -> list[RolloutNode]:
    """The nodes, with what queries have in common of the passages that the next turn shows, by title and text."""
    read = ((node, steps[node.id].passages or ()) for node in nodes)
    shown = {node.parent_id: [f"{each.title}\n{each.text}" for each in found] for node, found in read if found}
    found: dict[int, dict[int, float]] = {}
    for state in nodes:
        queries = [each for each in state.children_ids if each in shown and nodes[each].action_type == "query"]
        for other, query in combinations(queries, 2):
            if share := overlap(shown[query], shown[other]):
                found.setdefault(query, {})[other] = share
    return [each.model_copy(update={"in_common": found[each.id]}) if each.id in found else each for each in nodes]


def _end(last: int, edges: int, steps: list[_PublishedStep], values: _LabelValues) -> FinalScore:
    outcome = values.outcomes[last]
    return FinalScore(
        f1=values.f1[last],
        em=values.em[last],
        steps=edges,
        end="conclusion" if steps[last].action == "conclude" else "answer",
        outcome=None if outcome.name == "f1" else outcome.value,
    )


def _above(step: _PublishedStep, steps: list[_PublishedStep]) -> list[_PublishedStep]:
    """The earlier steps of its path, the first one last."""
    above = []
    parent = step.place.parent
    while parent:
        above.append(steps[parent])
        parent = steps[parent].place.parent
    return above


def _supported(
    step: _PublishedStep, above: list[_PublishedStep], support: Support | None
) -> tuple[bool | None, bool | None]:
    """Support by the passages read so far, and by the evidence reported before; None where that does not apply or the
    file does not tell what was read."""
    reply = step.reply
    if support is None or reply.parse_error or reply.action_type is None or reply.content is None:
        return None, None
    read = [each.passages for each in (step, *above) if each.action == "read"]
    passages = [passage for each in read for passage in each or ()]
    grounded = None if None in read else support.grounded(reply.action_type, reply.content, passages)
    if reply.action_type != "answer":
        return grounded, None
    evidence = [each.reply.content or "" for each in above if each.reply.action_type == "evidence"]
    return grounded, support.in_evidence(reply.content, evidence)
