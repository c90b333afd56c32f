"""How much truth a call buys: search recipes through the real search and pair builder, with a teacher whose step values
are known.

Prints Markdown with date, commit and machine; `--append FILE` adds it to a file as well. Costs nothing and needs no
data. See decision_process.py for the teacher and for what counts as true, and search_economy_real.py for real
questions.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from decision_process import LabQuestion, LabStep, Setting, State
from reporting import CONFIDENCE, publish, table
from verdicts import (
    Verdict,
    Verdicts,
    right_of_all,
    right_ties_apart,
    ties_of_all,
    ties_of_queries,
    type_cells,
    types_of,
    verdict_cells,
    verdict_of,
    with_interval,
    wrong_of_all,
)

from mcts import (
    RECIPES,
    ROOT_ID,
    Continue,
    Continued,
    Estimate,
    Expand,
    Expanded,
    Node,
    Rank,
    Ranked,
    Recipe,
    Rollout,
    Scored,
    Search,
    SearchConfig,
    Step,
    Work,
    estimates,
)
from mcts.rewards import REWARDS
from mcts.search import RIGHT
from preference import NO_FILTERS, Candidate, Message, PairingRules, RolloutNode, RolloutRecord, StateRecord
from preference.filters import AS_PUBLISHED, select
from preference.labelling import distinct_steps, labelled_states, with_judge_label
from preference.published.pair_rules import visited_enough
from preference.records import FinalScore, RecipeRef, Usage
from preference.similarity import jaccard, overlap
from reasonrag.exploration.shared_findings import SHOWN
from reasonrag.llm.prices import find_price

BASE_TOKENS, STEP_TOKENS, PASSAGES_TOKENS, REPLY_TOKENS = 260, 60, 390, 60
"""Of a prompt: instructions and question, each step so far, three passages; and of a reply."""
JUDGE_NOISE, POOR_NOISE = 0.15, 0.3
"""Standard deviation of what a judge, or a poor one, thinks of a step around the truth. A judge that sees the gold
answers knows which answer is right; any other knows what such answers are worth on average."""

TARGET = Setting("one turn a fact .6", early=0.0, luck=0.0, turns=1)
HARDER = Setting("good .6", early=0.0, luck=0.0)
GUESSING = Setting("many guess luckily", good=0.85, early=0.3, luck=0.4)
ALIKE = Setting("several queries reveal the same", early=0.0, luck=0.0, beside=2)
MEASURED = (TARGET, HARDER)
"""With `ALIKE` the settings whose tables have every figure."""
SETTINGS = (
    TARGET,
    Setting("one turn a fact .85", good=0.85, early=0.0, luck=0.0, turns=1),
    HARDER,
    Setting("good .85", good=0.85, early=0.0, luck=0.0),
    ALIKE,
    Setting("some guess", early=0.15, luck=0.2),
    GUESSING,
    Setting("most guess luckily", good=0.7, early=0.8, luck=0.6),
    Setting("partial F1", good=0.7, early=0.3, luck=0.2, partial=0.5),
    Setting("correlated misses", good=0.7, hard=0.5),
    Setting("three hops", facts=3, good=0.75, early=0.15),
    Setting("four hops", facts=4, good=0.85, early=0.15),
)


@dataclass(frozen=True)
class Plan:
    """A row of the tables: a recipe, and which pairs are kept.

    judged: whether a judge picks the pairs, as ProRAG's does: of each state a better and a worse step. noise: of the
    judge, in the search or after it. share: of the questions that are explored; for plans that cost a thousand replies
    each. gold_passages: whether they are known, and guide the search. share_findings: whether steps that reveal the
    same share an estimate, in whole or by what they have in common.
    """

    name: str
    recipe: Recipe
    rules: PairingRules = field(default_factory=PairingRules)
    judged: bool = False
    noise: float = JUDGE_NOISE
    share: float = 1.0
    gold_passages: bool = True
    share_findings: bool = True

    @property
    def search(self) -> SearchConfig:
        return self.recipe.search


def _variant(name: str, *, outcome: str = "evident_f1", reward: str = "spre_even", **search: object) -> Plan:
    """The recipe `economy` with something else."""
    economy = RECIPES["economy"]
    changed = {"search": economy.search.model_copy(update=search), "outcome": outcome, "reward": reward}
    return Plan(name, economy.model_copy(update=changed))


PUBLISHED_RULES = replace(NO_FILTERS, min_margin=0.01, max_per_state=1)
"""For values of the search, which no published system labels by: the widest margin of a state, from .01 on."""

PLANS = (
    Plan("released", RECIPES["released"], AS_PUBLISHED),
    Plan("released, forced count", RECIPES["released"].model_copy(update={"forced_answers": "counted"}), AS_PUBLISHED),
    Plan("reasonrag", RECIPES["reasonrag"], AS_PUBLISHED),
    Plan("prorag", RECIPES["prorag"], AS_PUBLISHED, judged=True, share=0.3),
    Plan("prorag, poor judge", RECIPES["prorag"], AS_PUBLISHED, judged=True, noise=POOR_NOISE, share=0.3),
    Plan("prorag, no judge", RECIPES["prorag"], PUBLISHED_RULES, share=0.3),
    Plan("ragym", RECIPES["ragym"], AS_PUBLISHED),
    Plan("ragym, poor judge", RECIPES["ragym"], AS_PUBLISHED, noise=POOR_NOISE),
    Plan("continuation", RECIPES["continuation"]),
    Plan("economy", RECIPES["economy"]),
)
VARIATIONS = (
    replace(_variant("economy, no gold passages"), gold_passages=False),
    replace(_variant("economy, findings apart"), share_findings=False),
    _variant("economy, guesses count", outcome="f1"),
    _variant("economy, pooled means", reward="spre"),
    _variant("economy, 2 continuations", continuations=2),
    _variant("economy, 3 siblings", siblings=3, root_siblings=6),
    _variant("economy, 6 siblings", siblings=6, root_siblings=12),
    _variant("economy, 48 replies", max_calls=48),
    _variant("economy, 96 replies", max_calls=96),
    _variant("economy, 192 replies", max_calls=192),
    _variant("economy, 2 siblings", siblings=2, root_siblings=4),
)
_FEWEST = 2
"""Steps that a judge can pick a pair of."""
NO_BRANCH = ("same_content", "duplicate", "unvalued")
"""Reasons of candidates that do not tell two valued steps apart."""
SWEPT = ("released", "continuation", "economy")
"""Plans whose pairs are kept by other thresholds as well."""
THRESHOLDS: dict[str, Sequence[PairingRules]] = {
    "margin": [PairingRules(min_margin=each, min_confidence=0.0) for each in (0.01, 0.05, 0.1, 0.3)],
    "confidence": [PairingRules(min_confidence=each) for each in (0.5, 0.6, 0.7, 0.8, 0.9)],
}

SHARES: dict[str, Callable[[Sequence[Verdicts]], float]] = {
    "Right of all kept pairs": right_of_all,
    "Wrong of all kept pairs": wrong_of_all,
    "Ties of all kept pairs": ties_of_all,
    "Ties of kept query pairs": ties_of_queries,
    "Right, ties apart,": right_ties_apart,
}
"""What is shown of every setting, by the title of its table."""


def main(
    questions: Annotated[int, typer.Option(help="Questions per setting and plan")] = 300,
    variations: Annotated[bool, typer.Option(help="Also measure variations of economy")] = True,  # noqa: FBT002 - typer's
    append: Annotated[Optional[Path], typer.Option(help="Also append the report to this file")] = None,  # noqa: UP045 - typer reads it
) -> None:
    """Measure what calls buy and print a report."""
    wanted = list(product([*PLANS, *(VARIATIONS if variations else ())], SETTINGS, [questions]))
    with ProcessPoolExecutor() as pool:
        measured = list(pool.map(measure, *zip(*wanted, strict=True)))
    tallies: dict[str, list[dict[PairingRules, Tally]]] = {}
    for (plan, _, _), found in zip(wanted, measured, strict=True):
        tallies.setdefault(plan.name, []).append(found)
    publish(_report(tallies, questions), append)


def _report(tallies: dict[str, list[dict[PairingRules, Tally]]], questions: int) -> Iterator[str]:
    plans = [each for each in (*PLANS, *VARIATIONS) if each.name in tallies]
    own = {plan.name: [each[plan.rules] for each in tallies[plan.name]] for plan in plans}
    for setting in (*MEASURED, ALIKE):
        at = SETTINGS.index(setting)
        call = own["released"][at].dollars / own["released"][at].sum("replies")
        yield from table(
            f"{questions} questions of the setting `{setting.name}` (replies to dollars: per question; a call: the "
            f"mean price of one of `released`, ${call:.4f}; in brackets: {CONFIDENCE:.0%} of the bootstrap over "
            "questions)",
            _columns({name: row[at] for name, row in own.items()}, lambda tally, call=call: _economy_row(tally, call)),
        )
        yield from table("What those pairs are like", _columns({name: row[at] for name, row in own.items()}, _bias_row))
    for title, figure in SHARES.items():
        yield from table(
            f"{title} by setting", _by_setting(own, lambda each, figure=figure: f"{figure(each.questions):.3f}")
        )
    yield from table(
        "Dollars per right pair by setting", _by_setting(own, lambda each: f"{each.dollars_per_right:.4f}")
    )
    yield from table(
        "Share of questions with a right pair by setting",
        _by_setting(own, lambda each: f"{each.share(lambda question: question.right > 0):.2f}"),
    )
    for kind, rules in THRESHOLDS.items():
        swept = {
            f"{name}, {kind} {getattr(rule, f'min_{kind}'):g}": [each[rule] for each in tallies[name]]
            for name in SWEPT
            for rule in rules
        }
        yield from table(
            f"Right of all kept pairs by setting, and dollars per right pair, with other thresholds of {kind}",
            _by_setting(swept, lambda each: f"{right_of_all(each.questions):.2f} at {each.dollars_per_right:.4f}"),
        )
    yield from table("What confidence said, and what was right (all settings, recipe economy)", _reliability(tallies))


def _by_setting(tallies: dict[str, list[Tally]], figure: Callable[[Tally], str]) -> dict[str, list[str]]:
    return _columns(tallies, lambda row: {each.name: figure(tally) for each, tally in zip(SETTINGS, row, strict=True)})


def _columns(rows: dict[str, Any], cells: Callable[..., dict[str, str]]) -> dict[str, list[str]]:
    """A table's columns from its rows."""
    made = {name: cells(row) for name, row in rows.items()}
    heads = next(iter(made.values()))
    return {"plan": list(made)} | {head: [row[head] for row in made.values()] for head in heads}


def _reliability(tallies: dict[str, list[dict[PairingRules, Tally]]]) -> dict[str, list[str]]:
    loosest = THRESHOLDS["margin"][0]
    verdicts: Counter[tuple[float, Verdict]] = Counter()
    for found in tallies["economy"]:
        verdicts.update(found[loosest].by_confidence)
    bins = sorted({low for low, _ in verdicts})
    return {
        "confidence": [f"{low:.1f} to {low + 0.1:.1f}" for low in bins],
        "pairs": [f"{sum(verdicts[low, each] for each in (1, -1, 0)):,}" for low in bins],
        "right of all": [_right_of_all(verdicts, low) for low in bins],
        "right, ties apart": [_right_of_all(verdicts, low, among=(1, -1)) for low in bins],
        "ties": [f"{verdicts[low, 0]:,}" for low in bins],
    }


def _economy_row(tally: Tally, call: float) -> dict[str, str]:
    count = len(tally.questions)
    return {
        "replies": f"{tally.sum('replies') / count:.0f}",
        "requests": f"{tally.sum('requests') / count:.0f}",
        "tokens": f"{tally.sum('tokens_in') / count:,.0f} + {REPLY_TOKENS * tally.sum('replies') / count:,.0f}",
        "$": f"{tally.dollars / count:.3f}",
        "pairs": f"{tally.pairs / count:.1f}",
        **verdict_cells(tally.questions),
        "right by regret": f"{tally.accuracy_by_regret:.3f}",
        "replies per right": with_interval(tally.questions, _replies_per_right, ".1f", ".1f"),
        "requests per right": f"{tally.sum('requests') / max(1, tally.sum('right')):.1f}",
        "$ per right": f"{tally.dollars_per_right:.4f}",
        "calls per right": f"{tally.dollars_per_right / call:.1f}",
        "questions with a pair": f"{tally.share(lambda each: each.pairs > 0):.2f}",
        "with a right one": f"{tally.share(lambda each: each.right > 0):.2f}",
    }


def _bias_row(tally: Tally) -> dict[str, str]:
    layers = sorted({layer for layer, _ in tally.by_layer})
    return {
        **type_cells(tally.questions),
        "right of all by layer": " ".join(_right_of_all(tally.by_layer, layer) for layer in layers),
        "pairs by layer": " ".join(f"{sum(tally.by_layer[layer, each] for each in (-1, 0, 1))}" for layer in layers),
        "pairs per branching state": f"{tally.pairs / max(1, tally.sum('branching')):.2f}",
        "margin said": f"{statistics.fmean(tally.said or [0]):.2f}",
        "true": f"{statistics.fmean(tally.true or [0]):.2f}",
        "chosen guesses": f"{tally.guesses / max(1, tally.pairs):.2f}",
        "steps to the answer, chosen - rejected": f"{statistics.fmean(tally.longer or [0]):+.2f}",
        "mixed outcomes": f"{tally.share(lambda each: each.mixed):.2f}",
        "pairs without": f"{sum(each.pairs for each in tally.questions if not each.mixed):.0f}",
    }


def _right_of_all(verdicts: Counter[tuple[Any, Verdict]], which: object, among: Sequence[Verdict] = (1, -1, 0)) -> str:
    """Share of right pairs, or of those among pairs with these verdicts."""
    pairs = sum(verdicts[which, each] for each in among)
    return f"{verdicts[which, 1] / pairs:.2f}" if pairs else "-"


def _replies_per_right(questions: Sequence[Explored]) -> float:
    return sum(each.replies for each in questions) / max(1, sum(each.right for each in questions))


# -- one question ------------------------------------------------------------------------------------------------


class Exploration:
    """One question explored by one plan: the real search, its wishes carried out by the decision process."""

    def __init__(self, plan: Plan, question: LabQuestion, seed: str) -> None:
        self.plan, self.question, self._seed = plan, question, seed
        self.replies = self.requests = self.tokens_in = 0
        same, common = (_same_step, self._in_common) if plan.share_findings else (None, None)
        self.search: Search[LabStep] = Search(plan.search, equivalent=same, in_common=common, seed=question.number)
        while work := self.search.ask():
            for item in work:
                self.search.tell(item.id, self._carry_out(item))

    def _carry_out(self, work: Work) -> Expanded[LabStep] | Continued[LabStep] | Scored | Ranked:
        dice, node = random.Random(f"{self._seed}/{work.id}"), self.search.tree[work.node_id]
        if isinstance(work, Expand):
            drawn = self._draw(_after(node), work.count, dice)
            return Expanded([self._as_step(each, plain=work.attempt == 0) for each in drawn], calls=len(drawn))
        if isinstance(work, Continue):
            greedy = self.plan.recipe.greedy_continuations
            firsts = self._draw(_after(node), work.count, dice, most_probable=greedy)
            paths = [self._finish(first, dice) for first in firsts]
            return Continued([[self._as_step(each) for each in path] for path in paths], calls=sum(map(len, paths)))
        if isinstance(work, Rank):
            steps = [each.payload for each in self.search.tree.children(node)]
            thought = self._judged(steps, dice)
            order = sorted(range(len(steps)), key=lambda place: -thought[place])
            return Ranked([1 / (1 + order.index(place)) for place in range(len(steps))], calls=1)
        self._count(node.payload.state, 1, shown=False)
        return Scored(min(1.0, max(0.0, self._thought_of(node.payload, dice))), calls=1)

    def _judged(self, steps: Sequence[LabStep], dice: random.Random) -> list[float]:
        """What a judge thinks of siblings that it is shown together."""
        self._count(steps[0].state, 1, candidates=len(steps))
        return [self._thought_of(each, dice) for each in steps]

    def _thought_of(self, step: LabStep, dice: random.Random) -> float:
        seen = self.question.prospect if self.plan.recipe.judge_sees_gold else self.question.expectation
        return dice.gauss(seen(step), self.plan.noise)

    def _draw(self, state: State, count: int, dice: random.Random, *, most_probable: bool = False) -> list[LabStep]:
        """Siblings from one request."""
        self._count(state, count)
        draw = self.question.most_probable if most_probable else lambda state: self.question.sample(state, dice)
        return [draw(state) for _ in range(count)]

    def _finish(self, first: LabStep, dice: random.Random) -> list[LabStep]:
        path = [first]
        while (state := path[-1].after) is not None:
            path += self._draw(state, 1, dice, most_probable=self.plan.recipe.greedy_continuations)
        return path

    def _as_step(self, step: LabStep, *, plain: bool = True) -> Step[LabStep]:
        guessed = self.plan.recipe.outcome == "evident_f1" and step.grounded is False
        last = step.state.layer == self.question.setting.max_steps - 1
        missing = last and self.plan.recipe.forced_answers == "missing"
        outcome = None if missing else 0.0 if guessed else step.f1
        said = step.type, step.text
        progress = _progress(step, self.question.setting) if self.plan.gold_passages else None
        end = step.after is None
        return Step(step, terminal=end, outcome=outcome, plain=plain, identity=said, progress=progress)

    def _count(self, state: State, replies: int, *, shown: bool = True, candidates: int = 0) -> None:
        """shown: whether the passages of a read turn are. candidates: steps that a judge is shown beside the state."""
        self.requests += 1
        self.replies += replies
        self.tokens_in += BASE_TOKENS + STEP_TOKENS * state.layer + PASSAGES_TOKENS * (shown and state.turn == "read")
        self.tokens_in += REPLY_TOKENS * candidates

    def states(self) -> list[StateRecord]:
        """What the pair builder makes of the tree; with the judge's picks, if one labels."""
        labelled = labelled_states(self.record())
        return [self._picked(each) for each in labelled] if self.plan.judged else list(labelled)

    def _picked(self, state: StateRecord) -> StateRecord:
        """The state with the one pair that the judge picks of the steps that it is shown, or none where it sees no
        clear difference."""
        shown = [each for each in distinct_steps(state) if visited_enough(state, each)]
        if len(shown) < _FEWEST:
            return with_judge_label(state, None)
        steps = [self.search.tree[each.id].payload for each in shown]
        thought = self._judged(steps, random.Random(f"{self._seed}/judge/{shown[0].id}"))
        ordered = sorted(zip(thought, (each.id for each in shown), strict=True))
        (worst, rejected), (best, chosen) = ordered[0], ordered[-1]
        return with_judge_label(state, (chosen, rejected) if best - worst > JUDGE_NOISE else None)

    def record(self) -> RolloutRecord:
        """The tree as the pair builder reads it."""
        tree, plan = self.search.tree, self.plan
        if plan.search.share_estimates:
            self._note_common_findings()
        rewards = REWARDS[plan.recipe.reward](tree, alpha=plan.search.alpha)
        known = estimates(tree, lambda end: end.outcome)
        self._note_common_findings()
        nodes = [self._node(*each) for each in zip(tree.nodes, rewards, known, strict=True)]
        return RolloutRecord(
            question_id="lab",
            question="lab",
            golden_answers=["right"],
            dataset="lab",
            split="train",
            config_hash="",
            seed=0,
            recipe=RecipeRef(
                name=plan.recipe.name,
                reward=plan.recipe.reward,
                alpha=plan.search.alpha,
                margin_by_layer=plan.recipe.margin_by_layer,
            ),
            usage=Usage(calls=self.replies, requests=self.requests),
            nodes=nodes,
        )

    def _node(self, node: Node[LabStep], reward: float | None, known: Estimate | None) -> RolloutNode:
        ends = [(each.final.f1, each.steps) for each in node.rollouts]
        common = {
            "id": node.id,
            "parent_id": node.parent_id,
            "children_ids": node.children_ids,
            "layer": node.layer,
            "in_common": node.in_common,
            "visits": node.visits,
            "value": node.value,
            "reward": reward,
            "observations": known.observations if known else None,
            "expected_outcome": known.mean if known else None,
            "rollouts": [FinalScore(f1=f1, em=float(f1 == 1), steps=steps) for f1, steps in ends],
        }
        if node.step is None:
            return RolloutNode.model_validate(common)
        step, above = node.payload, [each.payload.text for each in self.search.tree.path_up(node) if each.step][1:]
        return RolloutNode.model_validate(
            common
            | {
                "action": step.state.turn,
                "prompt": [Message(role="user", content=" ".join(reversed(above)))],
                "response": f"<{step.type}>{step.text}</{step.type}>",
                "action_type": step.type,
                "content": step.text,
                "terminal": step.after is None,
                "f1": step.f1 if step.after is None else None,
                "grounded": step.grounded,
            }
        )

    def _in_common(self, step: LabStep, other: LabStep, *, known: bool | None = None) -> float:
        """`exploration.shared_findings.in_common`. known: whether it is known what is useful; by default, if the gold
        passages are."""
        if step.type != other.type or step.reveals is None or other.reveals is None:
            return 0.0
        if self.plan.gold_passages if known is None else known:
            same = step.after == other.after
        elif step.type == "query":
            return overlap(step.reveals, other.reveals)
        else:
            same = bool(step.reveals and other.reveals) and (
                step.reveals <= other.reveals or other.reveals <= step.reveals
            )
        return (1 + jaccard(step.reveals, other.reveals)) / 2 if same else 0.0

    def _note_common_findings(self) -> None:
        """What all siblings have in common, now that right answers may say what is useful: all facts."""
        if not self.plan.share_findings:
            return
        tree = self.search.tree
        known = self.plan.gold_passages or any(each.outcome >= RIGHT for node in tree.nodes for each in node.rollouts)
        for state in tree.nodes:
            steps = [each for each in tree.children(state) if each.same_as is None]
            for place, step in enumerate(steps):
                shares = {each.id: self._in_common(each.payload, step.payload, known=known) for each in steps[:place]}
                step.in_common = {other: share for other, share in shares.items() if share}

    def true_margin(self, pair: Candidate) -> float:
        """Of the decisions, divided as the reported margin is."""
        chosen, rejected = (
            self.question.worth(self.search.tree[each.id].payload) for each in (pair.chosen, pair.rejected)
        )
        scale = self.plan.search.alpha**pair.state.layer if self.plan.recipe.margin_by_layer else 1.0
        return (chosen - rejected) / scale


def _same_step(step: LabStep, other: LabStep) -> bool:
    """Whether two queries show the agent the same."""
    return step.type == other.type == "query" and (step.after, step.reveals) == (other.after, other.reveals)


def _progress(step: LabStep, setting: Setting) -> float | None:
    """Share of the facts that a step newly brings to light, as `reasonrag.exploration.shared_findings` has it."""
    if step.after is None:
        return None
    return (step.after.found - step.state.found + SHOWN * step.after.shown) / setting.facts


def _after(node: Node[LabStep]) -> State:
    state = State() if node.id == ROOT_ID else node.payload.after
    if state is None:
        raise ValueError(f"node {node.id} is an answer; nothing follows it")
    return state


# -- many questions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Explored(Verdicts):
    """What one question gave. gained, lost: sums of true margins of right and wrong pairs."""

    replies: int
    requests: int
    tokens_in: int
    gained: float
    lost: float
    branching: int
    mixed: bool


@dataclass
class Tally:
    """What a plan made of a setting. said, true: margins of all pairs. longer: steps to the answer, chosen less
    rejected, where answers below both were seen."""

    questions: list[Explored]
    said: list[float] = field(default_factory=list)
    true: list[float] = field(default_factory=list)
    longer: list[float] = field(default_factory=list)
    guesses: int = 0
    by_layer: Counter[tuple[object, Verdict]] = field(default_factory=Counter)
    by_confidence: Counter[tuple[float, Verdict]] = field(default_factory=Counter)

    def sum(self, name: str) -> float:
        return sum(getattr(each, name) for each in self.questions)

    def share(self, holds: Callable[[Explored], bool]) -> float:
        return statistics.fmean(map(holds, self.questions))

    @property
    def pairs(self) -> float:
        return self.sum("pairs")

    @property
    def accuracy_by_regret(self) -> float:
        return self.sum("gained") / max(1e-9, self.sum("gained") + self.sum("lost"))

    @property
    def dollars(self) -> float:
        return find_price("gpt-4o").cost(self.sum("tokens_in"), self.sum("replies") * REPLY_TOKENS)

    @property
    def dollars_per_right(self) -> float:
        return self.dollars / max(1, self.sum("right"))


def measure(plan: Plan, setting: Setting, questions: int) -> dict[PairingRules, Tally]:
    """Explore so many questions of a setting; their pairs by the plan's rules, and by others if it is swept."""
    swept = [rules for each in THRESHOLDS.values() for rules in each] if plan.name in SWEPT else []
    tallies = {rules: Tally([]) for rules in dict.fromkeys([plan.rules, *swept])}
    for number in range(max(1, round(plan.share * questions))):
        question = LabQuestion(setting, number, alpha=plan.search.alpha)
        exploration = Exploration(plan, question, f"{setting.name}/{number}")
        states = exploration.states()
        for rules, tally in tallies.items():
            tally.questions.append(_judge(exploration, select(states, rules), tally))
    return tallies


def _judge(exploration: Exploration, found: Sequence[Candidate], tally: Tally) -> Explored:
    """Compare a question's pairs with the truth; what is counted by pair goes into the tally."""
    pairs = [each for each in found if each.dropped is None]
    margins = [exploration.true_margin(pair) for pair in pairs]
    tree = exploration.search.tree
    ends = [each for node in tree.nodes for each in node.rollouts]
    verdicts = [verdict_of(margin) for margin in margins]
    by_types: Counter[tuple[str, Verdict]] = Counter()
    for pair, margin, verdict in zip(pairs, margins, verdicts, strict=True):
        tally.said.append(pair.margin)
        tally.true.append(margin)
        chosen, rejected = (tree[each.id].rollouts for each in (pair.chosen, pair.rejected))
        if chosen and rejected:
            tally.longer.append(_length(chosen) - _length(rejected))
        tally.guesses += pair.chosen.grounded is False
        by_types[types_of(pair.chosen.action_type, pair.rejected.action_type), verdict] += 1
        tally.by_layer[pair.state.layer, verdict] += 1
        tally.by_confidence[min(9, int(10 * (pair.pair.confidence or 0))) / 10, verdict] += 1
    return Explored(
        replies=exploration.replies,
        requests=exploration.requests,
        tokens_in=exploration.tokens_in,
        by_types=by_types,
        gained=sum(margin for margin in margins if margin > 0),
        lost=-sum(margin for margin in margins if margin < 0),
        branching=len({each.state.state_id for each in found if each.dropped not in NO_BRANCH}),
        mixed=len({each.outcome for each in ends}) > 1,
    )


def _length(ends: Sequence[Rollout[LabStep]]) -> float:
    """Mean steps from the root to the answers seen below a step."""
    return statistics.fmean(each.steps for each in ends)


if __name__ == "__main__":
    typer.run(main)
