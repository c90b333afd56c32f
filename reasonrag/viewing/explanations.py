"""Why a pair was labelled as it was, and why it is a row or not: in sentences that need no other page.

Decides the words. The numbers are those of the records; nothing is computed anew but what a sentence spells out. Knows
nothing of pages or terminals; text of models stands in quotes and is escaped by whoever shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import BaseModel

from preference import (
    Candidate,
    DropReason,
    FinalScore,
    PairingRules,
    RolloutNode,
    RolloutRecord,
    StepRecord,
    f1_score,
)
from preference.export.formats import SplitName
from preference.records import ContinuationResult
from reasonrag.viewing.collection import ExploredTree

Topic = Literal["state", "chosen", "rejected", "label", "confidence", "checks", "verdict"]
_TURN_WORDS = {
    "think": "what to do next: ask another query, or answer",
    "read": "which evidence to take from the passages that its query found",
    "conclude": "its answer, because the steps it may take were spent",
}
OUTCOMES = {
    "f1": "its F1 against the golden answers",
    "em": "as it equals a golden answer or does not",
    "evident_f1": "its F1 against the golden answers",
    "judge": "by a judge",
    "rubric": "by a judge who has a rubric",
}


class Reason(BaseModel):
    """A sentence or two about one side of the matter."""

    topic: Topic
    text: str


def reasons(
    each: Candidate,
    tree: ExploredTree | None,
    rules: PairingRules,
    *,
    part: SplitName | None = None,
    flipped: bool = False,
    caps_known: bool = True,
) -> list[Reason]:
    """Everything that decided this pair, in the order in which it is told.

    tree: the one it is of, where it is at hand. part: of the data set, where it is a row. caps_known: whether rules
    about shares of the whole data set have been applied.
    """
    told: list[tuple[Topic, str]] = [
        ("state", _state(each)),
        ("chosen", _worth(each, each.chosen, tree)),
        ("rejected", _worth(each, each.rejected, tree)),
        ("label", _label(each, tree)),
    ]
    if each.pair.label == "value" and each.pair.confidence is not None:
        told.append(("confidence", _confidence(each)))
    told += [("checks", text) for text in _checks(each)]
    told.append(("verdict", _verdict(each, rules, part=part, flipped=flipped, caps_known=caps_known)))
    return [Reason(topic=topic, text=text) for topic, text in told]


def cautions(each: Candidate) -> list[str]:
    """Why one should look twice before one believes the label: what is known beside it says the opposite.

    Golden answers and gold passages decide no label by themselves, since a lucky guess teaches nothing and gold
    passages are not the only ones that help; where they contradict one, somebody should know.
    """
    found = []
    if each.types == ("answer", "answer"):
        golden = each.state.golden_answers
        chosen, rejected = (f1_score(step.content or "", golden) for step in (each.chosen, each.rejected))
        if chosen < rejected:
            found.append(
                f"by the golden answers alone the rejected answer is the better one (F1 {number(rejected)}, the chosen "
                f"one {number(chosen)})"
            )
    if each.gold == "wrong":
        does = "finds" if each.rejected.action_type == "query" else "reports"
        found.append(f"the rejected step {does} more gold passages than the chosen one")
    return found


def _state(each: Candidate) -> str:
    turn = _TURN_WORDS.get(each.state.action or "")
    layer = each.state.layer
    when = "at the very beginning" if layer == 0 else f"after {_count(layer, 'step')}"
    asked = f", where the agent had to say {turn}" if turn else ""
    return f"Both steps were taken in the same state, {when} (layer {layer}){asked}. Which of them was better?"


# -- what a step is worth --------------------------------------------------------------------------------------


def _worth(each: Candidate, step: StepRecord, tree: ExploredTree | None) -> str:
    record = tree.record if tree else None
    node = record.nodes[step.id] if record and step.id < len(record.nodes) else None
    rule, _, judged = _reward(each, record).partition("+")
    if step.parse_error is not None:
        return f"Its reply could not be read as a step ({step.parse_error}), so the path ended there and counts 0."
    if step.reward is None:
        return _unknown(each, node, judged or (rule if rule in _JUDGED else ""))
    shared = "" if step.same_as is None else f" It says the same as step {step.same_as}, and both share one estimate."
    if rule in _JUDGED:
        return f"It is worth {number(step.reward)}: {_JUDGED[rule]}.{shared}"
    how = _answer(node, record) if step.action_type == "answer" else _continued(step, node, record, rule)
    if not judged:
        return f"It is worth {number(step.reward)}: {how}.{shared}"
    own, weight = (node.rewards if node else {}), record.recipe.judge_weight if record else None
    shares = "" if weight is None else f" ({1 - weight:g} and {weight:g} of it)"
    return (
        f"It is worth {number(step.reward)}, of two parts{shares}. By what it led to {number(own.get(rule))}: {how}. "
        f"And {number(own.get(judged))}: {_JUDGED.get(judged, judged)}.{shared}"
    )


_JUDGED = {
    "judge-score": "a judge's score of the path down to it",
    "judge-rank": "its rank, by a judge, among the different steps of this state",
}


def _reward(each: Candidate, record: RolloutRecord | None) -> str:
    """Name of the rule, or of the two, that rewards are made of."""
    return (record.recipe.reward if record else each.state.origin.reward) or ""


def _unknown(each: Candidate, node: RolloutNode | None, judged: str) -> str:
    if each.pair.label == "imported":
        return "The file that was imported does not say what it is worth."
    if judged and (node is None or node.rewards.get(judged) is None):
        return (
            "The judgement that it would be worth is missing: it could not be read, or there was nothing to choose "
            "between. So nobody knows what it is worth."
        )
    return "No continuation from it that counts came to an answer, so nobody knows what it is worth."


def _answer(node: RolloutNode | None, record: RolloutRecord | None) -> str:
    """What an answer scores, and how that becomes its reward."""
    if node is None or record is None or node.layer is None:
        return "it is an answer, and its tree is not at hand"
    quality = node.f1 if node.outcome is None else node.outcome.value
    if quality is None:
        return "its score is not known"
    steps, alpha = node.layer + 1, record.recipe.alpha
    score = _score(node, record.recipe.outcome, quality)
    if alpha == 1:
        return score
    times = "1 step" if steps == 1 else f"each of {steps} steps"
    worked = f"{number(quality)} x {alpha:g}^{steps} = {number(quality * alpha**steps)}"
    return f"{score}; shorter ways are better, so it counts {alpha:g} for {times} from the question: {worked}"


def _score(node: RolloutNode, outcome: str, quality: float) -> str:
    """What an answer scores, in a clause."""
    if outcome == "evident_f1" and node.in_evidence is False and node.f1:
        return (
            f"the answer scores 0, because no evidence that was reported before it holds it, although its F1 against "
            f"the golden answers is {number(node.f1)}"
        )
    held = " (what was reported before it holds it)" if outcome == "evident_f1" and node.in_evidence else ""
    meaning = OUTCOMES.get(outcome, f"by the outcome {outcome}")
    return f"the answer scores {number(quality)}, {meaning}{held}"


def _continued(step: StepRecord, node: RolloutNode | None, record: RolloutRecord | None, rule: str) -> str:
    """What came of the continuations through a step, and how that becomes its reward."""
    if node is None or record is None:
        continued = f"the mean of what {_count(step.rollouts, 'continuation')} through it came to"
        return continued if step.rollouts else "from continuations that this folder does not hold"
    if not node.rollouts:
        return "by what is known of a step that says the same"
    found = f"of {_count(len(node.rollouts), 'continuation')} through it {came_to(_results(node.rollouts))}"
    alpha = record.recipe.alpha
    lengths = sorted({end.steps for end in node.rollouts})
    how_many = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
    power = f"{alpha:g} to the power of its steps from the question ({how_many})"
    discount = f", and each answer counts {power}" if alpha < 1 else ""
    if rule == "outcome":
        return f"{found}; what follows it is weighted by how often the search went there{discount}"
    plain = sum(end.quality for end in node.rollouts) / len(node.rollouts)
    if rule != "spre_even" or node.expected_outcome is None:
        return f"{found}, which is {number(plain)} on average{discount}"
    even = node.expected_outcome
    if abs(even - plain) < _SAME:
        return f"{found}, which is {number(even)} on average{discount}"
    return (
        f"{found}. They are not counted one by one ({number(plain)} on average), as the search went to some places "
        f"more often than to others: at every fork each reply that was drawn counts alike, which makes {number(even)}"
        f"{discount}"
    )


_SAME = 0.005
"""Means that are closer are the same when they are written."""


def _results(ends: Iterable[FinalScore]) -> Counter[ContinuationResult]:
    return Counter(end.came_to for end in ends)


def came_to(counts: Mapping[ContinuationResult, int]) -> str:
    """How many ended right, partly right, wrong or in a failed step."""
    order: tuple[ContinuationResult, ...] = ("right", "partly right", "wrong")
    words = [f"{counts[name]} ended {name}" for name in order if counts.get(name)]
    if counts.get("failed"):
        words.append(f"{counts['failed']} broke off at a reply that could not be read")
    return ", ".join(words) or "none ended"


# -- label and confidence --------------------------------------------------------------------------------------


def _label(each: Candidate, tree: ExploredTree | None) -> str:
    pair = each.pair
    if pair.label == "judge":
        values = (
            "" if pair.margin is None else f" By their continuations alone the margin would be {number(pair.margin)}."
        )
        return f"A judge saw all steps of this state, and picked this one as better and the other as worse.{values}"
    if pair.label == "imported":
        return "The label comes from the file that was imported."
    if pair.label is None:
        return "A judge saw all steps of this state and did not pick these two."
    if pair.margin is None:
        return "One of both has no known worth, so neither can be called better."
    if pair.margin == 0:
        return "Both are worth the same, so neither is better; the earlier one stands first."
    chosen, rejected = (number(step.reward) for step in (each.chosen, each.rejected))
    recipe = tree.record.recipe if tree else None
    difference, why = f"{chosen} - {rejected}", ""
    if recipe and recipe.margin_by_layer and each.layer and recipe.alpha < 1:
        difference = f"({difference}) / {recipe.alpha:g}^{each.layer}"
        why = ", divided so that deep steps, which can be worth less, count as much"
    margin = f"The margin is {difference} = {number(pair.margin)}{why}."
    return f"The step worth more is the chosen one. {margin}{_shorter(each)}"


def _shorter(each: Candidate) -> str:
    if "efficiency_only" not in each.tags:
        return ""
    return (
        " Both come to equally good answers on average, apart from the discount: what is good comes after fewer steps "
        "where the chosen step was taken, or was visited more often."
    )


def _confidence(each: Candidate) -> str:
    chosen, rejected = (number(step.observations) for step in (each.chosen, each.rejected))
    sure = number(each.pair.confidence)
    if each.types == ("answer", "answer"):
        said = (
            "The score of an answer is certain; as for other steps, each time it was drawn counts as one observation "
            f"({chosen} and {rejected}), by which the chance that the chosen one is truly better is {sure}. It tells "
            "how often both were seen, and doubts neither score."
        )
    else:
        said = (
            f"A few continuations may be luck. With as many as are known here (worth {chosen} independent ones for the "
            f"chosen step, {rejected} for the rejected one, as those that share a beginning count less), the chance "
            f"that the chosen step is truly better is {sure}: both are Beta distributions with Jeffreys' prior."
        )
    even = 0.5
    if each.pair.confidence is not None and each.pair.confidence < even:
        said += " That is less than one half: so little is known that the other one may as well be the better."
    return said


def _checks(each: Candidate) -> list[str]:
    found = []
    if each.chosen.grounded is not None:
        held = "stands" if each.chosen.grounded else "does not stand"
        found.append(f"What the chosen step says {held} in the passages that were read so far (string match).")
    if each.gold != "unknown":
        more = {"right": "more gold passages than", "wrong": "fewer than", "tie": "as many as"}[each.gold]
        found.append(f"Gold passages, which decide nothing, say: the chosen step has {more} the rejected one.")
    if "style_only" in each.tags:
        found.append("Either both answers hold a golden answer, or neither does.")
    return found


# -- the verdict -----------------------------------------------------------------------------------------------


def _verdict(each: Candidate, rules: PairingRules, *, part: SplitName | None, flipped: bool, caps_known: bool) -> str:
    if each.dropped is not None:
        return f"Left out: {_dropped(each, rules)}."
    where = {"train": " for training", "validation": " for validation"}.get(part or "", "")
    turned = " Its sides were exchanged on purpose (--flip)." if flipped else ""
    capped = (
        " Pairs with its tags are capped over the whole data set; whether this one stays was not looked at here."
        if each.tags and not caps_known
        else ""
    )
    if each.pair.label == "imported":
        return f"Kept{where}, as it stands in the file that was imported.{turned}"
    said = f"Kept{where}: it passes every filter"
    if each.pair.label == "value":
        said += f" (margin at least {number(rules.min_margin)}"
        if each.pair.confidence is not None:
            said += f", confidence at least {number(rules.min_confidence)}"
        widest = ", widest margin of this state for these two action types"
        said += f"{widest if rules.max_per_combination == 1 else ''})"
    return f"{said}.{turned}{capped}"


def _dropped(each: Candidate, rules: PairingRules) -> str:
    pair = each.pair
    words: dict[DropReason, str] = {
        "contaminated": "the question stands in an evaluation split",
        "malformed": "a side could not be read as a step",
        "unvalued": "nobody knows what one of both is worth",
        "same_content": "both say the same",
        "not_picked": "the judge picked two other steps of this state, or none",
        "ungrounded": "no passage read so far supports the chosen step",
        "small_margin": "the margin {} is below {}".format(*_apart(each.margin, rules.min_margin))
        if each.margin < rules.min_margin
        else "both are worth the same, a margin of 0",
        "uncertain": "the confidence {} is below {}".format(*_apart(pair.confidence or 0.0, rules.min_confidence)),
        "near_identical": "both say nearly the same: {} of their words, above {}".format(
            *_apart(pair.similarity, rules.max_similarity)
        ),
        "other_type": "the steps are of two action types",
        "too_long": f"prompt and longer reply have {each.tokens or 0:,} tokens, and {rules.max_tokens or 0:,} are "
        "allowed",
        "duplicate": "another pair of this state says the same, with a margin at least as wide",
        "contradicted": "another pair says the opposite, with a margin at least as wide",
        "not_extreme": f"for these two action types this state has {_pairs(rules.max_per_combination)} whose margin is "
        f"{number(pair.margin)} or wider",
        "state_full": f"this state has {_pairs(rules.max_per_state)} that are surer, and may have no more",
        "question_full": f"this question has {_pairs(rules.max_per_question)} that are surer, and may have no more",
        "efficiency_only_cap": "only path lengths differ; at most "
        f"{rules.max_efficiency_only:.0%} of the data set may be such pairs, and surer ones fill that",
        "style_only_cap": "both answers hold a golden answer, or neither does; at most "
        f"{rules.max_style_only:.0%} of the data set may be such pairs, and surer ones fill that",
        "unbalanced": "each action type gets as many pairs as the rarest (--balance), and surer ones of this type fill "
        "that",
    }
    reason = each.dropped
    return "" if reason is None else f"{words[reason]} ({reason})"


# -- words -----------------------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    """Two digits; of small ones, and of those close to 1, as many as tell it from nothing and from 1."""
    if value is None:
        return "unknown"
    if 0 < abs(value) < 0.01:  # noqa: PLR2004 - what two digits would call nothing
        return f"{value:.2g}"
    texts = (f"{value:.{digits}f}" for digits in range(2, 7) if round(value, digits) != 1)
    return next(texts, f"{value:.2f}")


def _apart(value: float, limit: float) -> tuple[str, str]:
    """Both with as many digits as it takes to see that they differ, two at least."""
    for digits in range(2, 17):
        texts = f"{value:.{digits}f}", f"{limit:.{digits}f}"
        if texts[0] != texts[1]:
            break
    return texts


def _pairs(most: int | None) -> str:
    return "pairs" if most is None else _count(most, "pair")


def _count(many: int, what: str) -> str:
    return f"1 {what}" if many == 1 else f"{many:,} {what}s"
