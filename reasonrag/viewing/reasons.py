"""Why a pair was labelled as it was, and why it is a row or not: in sentences that need no other page.

Decides the words. The numbers are those of the records; nothing is computed anew but what a sentence spells out. Knows
nothing of pages or terminals; text of models stands in quotes and is escaped by whoever shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel

from preference import Candidate, DropReason, FinalScore, PairingRules, RolloutNode, RolloutRecord, StepRecord
from preference.formats import SplitName
from reasonrag.viewing.sources import Tree

Topic = Literal["state", "chosen", "rejected", "label", "confidence", "checks", "verdict"]
_TURN_WORDS = {
    "think": "what to do next: ask another query, or answer",
    "read": "which evidence to take from the passages that its query found",
    "conclude": "its answer, because the steps it may take were spent",
}
OUTCOMES = {
    "f1": "F1 of the answer against the golden answers",
    "em": "whether the answer equals a golden answer",
    "evident_f1": "F1 of the answer against the golden answers, but 0 where no evidence on its way holds the answer",
    "judge": "a judge's score of the answer",
    "rubric": "a judge's score of the answer by a rubric",
}


class Reason(BaseModel):
    """A sentence or two about one side of the matter."""

    topic: Topic
    text: str


def reasons(
    each: Candidate,
    tree: Tree | None,
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


def _state(each: Candidate) -> str:
    turn = _TURN_WORDS.get(each.state.action or "", "what to say")
    layer = each.state.layer
    when = "at the very beginning" if layer == 0 else f"after {_count(layer, 'step')}"
    return (
        f"Both steps answer the same prompt, {when} (layer {layer}), where the agent had to say {turn}. "
        "Only what it said differs."
    )


# -- what a step is worth --------------------------------------------------------------------------------------


def _worth(each: Candidate, step: StepRecord, tree: Tree | None) -> str:
    record = tree.record if tree else None
    node = record.nodes[step.id] if record and step.id < len(record.nodes) else None
    if step.parse_error is not None:
        return f"Its reply could not be read as a step ({step.parse_error}), so the path ended there and counts 0."
    if step.reward is None and each.pair.label == "imported":
        return "The file that was imported does not say what it is worth."
    if step.reward is None:
        return "No continuation from it that counts came to an answer, so nobody knows what it is worth."
    worth = f"worth {number(step.reward)}"
    if step.action_type == "answer":
        return f"Its answer is {worth}{_answer(node, record)}."
    how = _how(each, step, node, record)
    shared = f" It says the same as step {step.same_as}, and both share what is known of them." if step.same_as else ""
    return f"It is {worth}: {how}.{shared}"


def _answer(node: RolloutNode | None, record: RolloutRecord | None) -> str:
    if node is None or record is None or node.layer is None:
        return ""
    alpha, steps = record.recipe.alpha, node.layer + 1
    quality = node.f1 if node.outcome is None else node.outcome.value
    if quality is None:
        return ""
    name = record.recipe.outcome
    meaning = OUTCOMES.get(name, f"the outcome {name}")
    said = f": {meaning} is {number(quality)}"
    if name == "evident_f1" and node.in_evidence is False and node.f1:
        said += f" (F1 alone would be {number(node.f1)}, but the answer stands in no evidence that was reported)"
    if alpha < 1 and _by_continuations(record.recipe.reward):
        each_step = "its one step" if steps == 1 else f"each of the {steps} steps"
        said += f", times {alpha:g} for {each_step} from the question, as shorter ways are better"
    return said


def _by_continuations(reward: str | None) -> bool:
    return (reward or "spre").split("+")[0] in ("spre", "spre_even", "outcome")


def _how(each: Candidate, step: StepRecord, node: RolloutNode | None, record: RolloutRecord | None) -> str:
    reward = (record.recipe.reward if record else each.state.origin.reward) or ""
    if reward == "judge-score":
        return "a judge's score of the path down to it"
    if reward == "judge-rank":
        return "its rank, by a judge, among the different steps of this state"
    how = _continued(step, node, record)
    if reward == "outcome":
        how += ", weighted by how often the search visited what follows"
    elif reward.startswith("spre_even"):
        how += ", every draw of a state weighing the same"
    if "+judge-" in reward:
        judged = reward.partition("+")[2]
        weight = f" (its share is {record.recipe.judge_weight:g})" if record else ""
        how += f"; a judge's {'score' if judged == 'judge-score' else 'ranking'} counts beside it{weight}"
    return how


def _continued(step: StepRecord, node: RolloutNode | None, record: RolloutRecord | None) -> str:
    """What came of the continuations through a step."""
    if node is None or record is None:
        continued = f"the mean of what {_count(step.rollouts, 'continuation')} through it came to"
        return continued if step.rollouts else "from continuations that this folder does not hold"
    alpha = record.recipe.alpha
    found = f"of {_count(len(node.rollouts), 'continuation')} through it {came_to(node.rollouts)}"
    if not node.rollouts:
        return "by what is known of a step that says the same"
    mean = node.expected_outcome
    undiscounted = "" if mean is None else f"; the mean outcome is {number(mean)}"
    discount = f", and each counts {alpha:g} to the power of its steps from the question" if alpha < 1 else ""
    return f"{found}{undiscounted}{discount}"


def came_to(ends: Sequence[FinalScore]) -> str:
    """How many ended right, partly right, wrong or in a failed step."""
    counts: Counter[str] = Counter()
    for end in ends:
        if end.end == "failed":
            counts["failed"] += 1
        else:
            counts["right" if end.quality >= 1 else "wrong" if end.quality <= 0 else "partly right"] += 1
    words = [f"{counts[name]} ended {name}" for name in ("right", "partly right", "wrong") if counts[name]]
    if counts["failed"]:
        words.append(f"{counts['failed']} broke off at a reply that could not be read")
    return ", ".join(words) or "none ended"


# -- label and confidence --------------------------------------------------------------------------------------


def _label(each: Candidate, tree: Tree | None) -> str:
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
    by_layer = tree.record.recipe.margin_by_layer if tree else False
    divided = ""
    if by_layer and tree and each.layer and tree.record.recipe.alpha < 1:
        alpha = tree.record.recipe.alpha
        divided = (
            f" (their difference divided by {alpha:g} to the power of {each.layer}, so that deep steps count as much)"
        )
    efficiency = (
        " Both come to right answers equally often: the better one only takes fewer steps."
        if "efficiency_only" in pair.tags
        else ""
    )
    return (
        f"The step worth more is the chosen one. The margin between them is {number(pair.margin)}{divided}.{efficiency}"
    )


def _confidence(each: Candidate) -> str:
    chosen, rejected = (number(step.observations) for step in (each.chosen, each.rejected))
    return (
        f"A few continuations may be luck. With as many as are known here (worth {chosen} independent ones for the "
        f"chosen step, {rejected} for the rejected one), the chance that the chosen step is truly better is "
        f"{number(each.pair.confidence)}."
    )


def _checks(each: Candidate) -> list[str]:
    found = []
    if each.chosen.grounded is not None:
        held = "is" if each.chosen.grounded else "is not"
        found.append(f"What the chosen step says {held} supported by passages read so far (string match).")
    if each.gold != "unknown":
        more = {"right": "more gold passages than", "wrong": "fewer than", "tie": "as many as"}[each.gold]
        found.append(f"Gold passages, which decide nothing, say: the chosen step has {more} the rejected one.")
    if "style_only" in each.tags:
        found.append("Both answers are equally right or wrong apart from their wording.")
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
    said = f"Kept{where}: it passes every filter"
    if each.pair.label == "value":
        said += f" (margin at least {number(rules.min_margin)}, confidence at least {number(rules.min_confidence)}"
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
        "duplicate": "another pair of this state says the same, with a wider margin",
        "contradicted": "another pair says the opposite, with a wider margin",
        "not_extreme": f"for these two action types this state has {_pairs(rules.max_per_combination)} whose margin is "
        f"{number(pair.margin)} or wider",
        "state_full": f"this state has {_pairs(rules.max_per_state)} that are surer, and may have no more",
        "question_full": f"this question has {_pairs(rules.max_per_question)} that are surer, and may have no more",
        "efficiency_only_cap": "only path lengths differ; at most "
        f"{rules.max_efficiency_only:.0%} of the data set may be such pairs, and surer ones fill that",
        "style_only_cap": "only the wording differs; at most "
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
